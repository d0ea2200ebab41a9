package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxJSONDepth bounds how deep arrays and objects of a JSON text may nest.
const maxJSONDepth = 500

// ParseJSON reads a JSON text as Python's json.loads does: integers of any size
// and floats stay apart, objects keep the order of their keys, of a key that
// comes twice the last value counts in the first place, and NaN, Infinity and
// -Infinity are numbers. An escaped surrogate without its other half becomes
// U+FFFD. Text that is not UTF-8 is an error.
func ParseJSON(data []byte) (Value, error) {
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("json: text is not valid UTF-8")
	}
	p := jsonParser{s: string(data)}
	v, err := p.value(0)
	if err == nil {
		p.space()
		if p.pos < len(p.s) {
			err = p.fail("expected the end")
		}
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// A jsonParser reads from s; the strings that it returns share its memory.
type jsonParser struct {
	s   string
	pos int
}

func (p *jsonParser) fail(msg string) error {
	return fmt.Errorf("json: at byte %d: %s", p.pos, msg)
}

func (p *jsonParser) space() {
	for p.pos < len(p.s) {
		switch p.s[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

// peek returns the next byte, 0 at the end.
func (p *jsonParser) peek() byte {
	if p.pos < len(p.s) {
		return p.s[p.pos]
	}
	return 0
}

func (p *jsonParser) value(depth int) (Value, error) {
	if depth > maxJSONDepth {
		return nil, &LimitError{What: "depth of JSON", Max: maxJSONDepth}
	}
	p.space()
	switch c := p.peek(); {
	case c == '"':
		return p.string()
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.array(depth)
	case c == '-' || isDigit(c):
		return p.number()
	}
	for _, w := range [...]struct {
		text  string
		value Value
	}{{"null", nil}, {"true", true}, {"false", false}, {"NaN", math.NaN()}, {"Infinity", math.Inf(1)}} {
		if strings.HasPrefix(p.s[p.pos:], w.text) {
			p.pos += len(w.text)
			return w.value, nil
		}
	}
	return nil, p.fail("expected a value")
}

func (p *jsonParser) object(depth int) (Value, error) {
	p.pos++
	d := &Dict{}
	p.space()
	if p.peek() == '}' {
		p.pos++
		return d, nil
	}
	for {
		p.space()
		if p.peek() != '"' {
			return nil, p.fail("expected a key in double quotes")
		}
		k, err := p.string()
		if err != nil {
			return nil, err
		}
		p.space()
		if p.peek() != ':' {
			return nil, p.fail("expected ':'")
		}
		p.pos++
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		d.Set(k.(string), v)
		p.space()
		switch p.peek() {
		case ',':
			p.pos++
		case '}':
			p.pos++
			return d, nil
		default:
			return nil, p.fail("expected ',' or '}'")
		}
	}
}

func (p *jsonParser) array(depth int) (Value, error) {
	p.pos++
	l := &List{}
	p.space()
	if p.peek() == ']' {
		p.pos++
		return l, nil
	}
	for {
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		l.Items = append(l.Items, v)
		p.space()
		switch p.peek() {
		case ',':
			p.pos++
		case ']':
			p.pos++
			return l, nil
		default:
			return nil, p.fail("expected ',' or ']'")
		}
	}
}

func (p *jsonParser) number() (Value, error) {
	start := p.pos
	digits := func() int {
		n := 0
		for isDigit(p.peek()) {
			p.pos++
			n++
		}
		return n
	}
	if p.peek() == '-' {
		p.pos++
		if strings.HasPrefix(p.s[p.pos:], "Infinity") {
			p.pos += len("Infinity")
			return math.Inf(-1), nil
		}
	}
	first := p.peek()
	n := digits()
	if n == 0 || first == '0' && n > 1 {
		return nil, p.fail("bad number")
	}
	isFloat := false
	if p.peek() == '.' {
		isFloat = true
		p.pos++
		if digits() == 0 {
			return nil, p.fail("expected a digit after the point")
		}
	}
	if p.peek()|0x20 == 'e' {
		isFloat = true
		p.pos++
		if c := p.peek(); c == '+' || c == '-' {
			p.pos++
		}
		if digits() == 0 {
			return nil, p.fail("expected a digit in the exponent")
		}
	}
	text := p.s[start:p.pos]
	if isFloat {
		f, _ := strconv.ParseFloat(text, 64) // out of range is an infinity
		return f, nil
	}
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i, nil
	}
	if n > maxIntDigits {
		return nil, p.fail(fmt.Sprintf("integer of %d digits, at most %d", n, maxIntDigits))
	}
	i, _ := new(big.Int).SetString(text, 10)
	return i, nil
}

func (p *jsonParser) string() (Value, error) {
	p.pos++
	start := p.pos
	p.pos = plain(p.s, p.pos)
	switch {
	case p.pos == len(p.s):
		return nil, p.fail("string without an end")
	case p.s[p.pos] == '"':
		p.pos++
		return p.s[start : p.pos-1], nil
	case p.s[p.pos] == '\\':
		return p.escapedString(start)
	default:
		return nil, p.fail("control character in a string")
	}
}

// plain returns where the first byte from i on is that does not stand for itself in a
// string, or the end of s. Prompts are long, so it looks at eight bytes at a time.
func plain(s string, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(s); i += 8 {
		w := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
			uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
		quote, escape := w^ones*'"', w^ones*'\\'
		if ((w-ones*' ')&^w|(quote-ones)&^quote|(escape-ones)&^escape)&highs != 0 {
			break
		}
	}
	for i < len(s) && s[i] >= ' ' && s[i] != '"' && s[i] != '\\' {
		i++
	}
	return i
}

// escapedString reads the rest of a string from its first escape.
func (p *jsonParser) escapedString(start int) (Value, error) {
	var buf strings.Builder
	buf.Grow(p.closing() - start) // an escape is no shorter than what it stands for
	buf.WriteString(p.s[start:p.pos])
	for p.pos < len(p.s) {
		c := p.s[p.pos]
		switch {
		case c == '"':
			p.pos++
			return buf.String(), nil
		case c < ' ':
			return nil, p.fail("control character in a string")
		case c != '\\':
			end := plain(p.s, p.pos)
			buf.WriteString(p.s[p.pos:end])
			p.pos = end
			continue
		}
		p.pos++
		c = p.peek()
		p.pos++
		switch c {
		case '"', '\\', '/':
			buf.WriteByte(c)
		case 'b':
			buf.WriteByte('\b')
		case 'f':
			buf.WriteByte('\f')
		case 'n':
			buf.WriteByte('\n')
		case 'r':
			buf.WriteByte('\r')
		case 't':
			buf.WriteByte('\t')
		case 'u':
			r, err := p.hex4()
			if err != nil {
				return nil, err
			}
			if utf16.IsSurrogate(r) {
				r = p.pair(r)
			}
			buf.WriteRune(r)
		default:
			p.pos--
			return nil, p.fail("bad escape")
		}
	}
	return nil, p.fail("string without an end")
}

// closing returns where the quote is that ends the string, or the end of the text.
func (p *jsonParser) closing() int {
	at := p.pos
	for {
		i := strings.IndexByte(p.s[at:], '"')
		if i < 0 {
			return len(p.s)
		}
		at += i
		escapes := 0
		for at-escapes > p.pos && p.s[at-escapes-1] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return at
		}
		at++
	}
}

func (p *jsonParser) hex4() (rune, error) {
	if p.pos+4 > len(p.s) {
		return 0, p.fail("bad \\u escape")
	}
	n, err := strconv.ParseUint(p.s[p.pos:p.pos+4], 16, 32)
	if err != nil {
		return 0, p.fail("bad \\u escape")
	}
	p.pos += 4
	return rune(n), nil
}

// pair returns the character of the surrogate hi and an escaped one behind it,
// or U+FFFD for hi alone.
func (p *jsonParser) pair(hi rune) rune {
	back := p.pos
	if strings.HasPrefix(p.s[p.pos:], `\u`) {
		p.pos += 2
		if lo, err := p.hex4(); err == nil {
			if r := utf16.DecodeRune(hi, lo); r != utf8.RuneError {
				return r
			}
		}
	}
	p.pos = back
	return utf8.RuneError
}
