package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a file.
const maxDepth = 200

var errSyntax = errors.New("not valid JSON")

// scanner walks over JSON. It exists because the vocabulary and the merges of a
// file are megabytes of short strings, which a decoder into Go values spends most
// of its time allocating. Strings without escapes are returned as they lie in the
// input.
type scanner struct {
	data []byte
	at   int
	buf  []byte // the last string that had escapes
}

// fail returns an error that says where the scanner stands.
func (s *scanner) fail(format string, args ...any) error {
	line := 1 + bytes.Count(s.data[:min(s.at, len(s.data))], []byte{'\n'})
	return fmt.Errorf("line %d, byte %d: %w: %s", line, s.at, errSyntax, fmt.Sprintf(format, args...))
}

// peek returns the first byte of the next token, 0 at the end.
func (s *scanner) peek() byte {
	if s.at < len(s.data) && s.data[s.at] > ' ' {
		return s.data[s.at]
	}
	return s.space()
}

// space is peek where there is white space. Files are indented, so there is much.
func (s *scanner) space() byte {
	const indent = "        "
	at, data := s.at, s.data
	for at < len(data) {
		switch c := data[at]; c {
		case ' ', '\n', '\r', '\t':
			at++
			for at+len(indent) <= len(data) && string(data[at:at+len(indent)]) == indent {
				at += len(indent)
			}
		default:
			s.at = at
			return c
		}
	}
	s.at = at
	return 0
}

// expect takes the next token, which must be c.
func (s *scanner) expect(c byte) error {
	if got := s.peek(); got != c {
		if got == 0 {
			return s.fail("expected %q, got the end of the file", c)
		}
		return s.fail("expected %q, got %q", c, got)
	}
	s.at++
	return nil
}

// object calls member for each member of the object that comes next, at its value,
// which member must take. The key is valid until then.
func (s *scanner) object(member func(key []byte) error) error {
	if err := s.expect('{'); err != nil {
		return err
	}
	if s.peek() == '}' {
		s.at++
		return nil
	}
	for {
		s.peek()
		key, err := s.str()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		if err := member(key); err != nil {
			return err
		}
		if done, err := s.next('}'); done || err != nil {
			return err
		}
	}
}

// array calls element for each element of the array that comes next, at its value,
// which element must take.
func (s *scanner) array(element func(i int) error) error {
	if err := s.expect('['); err != nil {
		return err
	}
	if s.peek() == ']' {
		s.at++
		return nil
	}
	for i := 0; ; i++ {
		if err := element(i); err != nil {
			return err
		}
		if done, err := s.next(']'); done || err != nil {
			return err
		}
	}
}

// next takes a comma, or the end of a list and reports it.
func (s *scanner) next(end byte) (bool, error) {
	switch s.peek() {
	case ',':
		s.at++
		return false, nil
	case end:
		s.at++
		return true, nil
	default:
		return false, s.fail("expected ',' or %q", end)
	}
}

// str takes a string and returns its text, valid until the next call.
func (s *scanner) str() ([]byte, error) {
	if s.peek() != '"' {
		return nil, s.fail("expected a string")
	}
	s.at++
	start := s.at
	high := byte(0)
	for s.at < len(s.data) {
		switch c := s.data[s.at]; {
		case c == '"':
			text := s.data[start:s.at]
			s.at++
			if high >= utf8.RuneSelf && !utf8.Valid(text) {
				return nil, s.fail("a string is not valid UTF-8")
			}
			return text, nil
		case c == '\\':
			return s.escaped(start)
		case c < ' ':
			return nil, s.fail("a control character in a string")
		default:
			high |= c
			s.at++
		}
	}
	return nil, s.fail("a string without end")
}

// escaped is str for a string in which an escape was met.
func (s *scanner) escaped(start int) ([]byte, error) {
	s.buf = append(s.buf[:0], s.data[start:s.at]...)
	for s.at < len(s.data) {
		c := s.data[s.at]
		switch {
		case c == '"':
			s.at++
			if !utf8.Valid(s.buf) {
				return nil, s.fail("a string is not valid UTF-8")
			}
			return s.buf, nil
		case c < ' ':
			return nil, s.fail("a control character in a string")
		case c != '\\':
			s.buf = append(s.buf, c)
			s.at++
			continue
		}
		if s.at+1 >= len(s.data) {
			break
		}
		c = s.data[s.at+1]
		s.at += 2
		switch c {
		case '"', '\\', '/':
			s.buf = append(s.buf, c)
		case 'b':
			s.buf = append(s.buf, '\b')
		case 'f':
			s.buf = append(s.buf, '\f')
		case 'n':
			s.buf = append(s.buf, '\n')
		case 'r':
			s.buf = append(s.buf, '\r')
		case 't':
			s.buf = append(s.buf, '\t')
		case 'u':
			r, err := s.unicode()
			if err != nil {
				return nil, err
			}
			s.buf = utf8.AppendRune(s.buf, r)
		default:
			return nil, s.fail("an unknown escape \\%c", c)
		}
	}
	return nil, s.fail("a string without end")
}

// unicode takes the digits of a \u escape and its second half where there is one.
// Half a pair is no character.
func (s *scanner) unicode() (rune, error) {
	r, ok := s.hex4()
	switch {
	case ok && (r < 0xd800 || r > 0xdfff):
		return r, nil
	case ok && r < 0xdc00 && s.at+1 < len(s.data) && s.data[s.at] == '\\' && s.data[s.at+1] == 'u':
		s.at += 2
		if low, ok := s.hex4(); ok && low >= 0xdc00 && low <= 0xdfff {
			return 0x10000 + (r-0xd800)<<10 + (low - 0xdc00), nil
		}
	}
	return 0, s.fail("a \\u escape that is no character")
}

func (s *scanner) hex4() (rune, bool) {
	if s.at+4 > len(s.data) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(s.data[s.at:s.at+4]), 16, 32)
	if err != nil {
		return 0, false
	}
	s.at += 4
	return rune(n), true
}

// id takes a token id.
func (s *scanner) id() (uint32, error) {
	s.peek()
	start, n := s.at, uint64(0)
	for s.at < len(s.data) && '0' <= s.data[s.at] && s.data[s.at] <= '9' && n <= maxID {
		n = n*10 + uint64(s.data[s.at]-'0')
		s.at++
	}
	if s.at == start || n > maxID {
		return 0, fmt.Errorf("line %d, byte %d: expected a token id between 0 and %d", 1+bytes.Count(s.data[:start], []byte{'\n'}), start, maxID)
	}
	return uint32(n), nil
}

// structure tells the bytes that say where a value ends from others: 1 opens, 2
// closes, 3 begins a string.
var structure = [256]uint8{'{': 1, '[': 1, '}': 2, ']': 2, '"': 3}

// raw takes any value and returns it as it is written. It finds its end and leaves
// it to others to look at what is inside.
func (s *scanner) raw() ([]byte, error) {
	c := s.peek()
	start := s.at
	if c != '{' && c != '[' {
		err := s.skip(0)
		return s.data[start:s.at], err
	}
	depth := 0
	data := s.data
	for i := s.at; i < len(data); i++ {
		switch structure[data[i]] {
		case 0:
		case 1:
			depth++
		case 2:
			if depth--; depth == 0 {
				s.at = i + 1
				return data[start:s.at], nil
			}
		default:
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		}
	}
	return nil, s.fail("expected an end of %q", c)
}

// skip takes a value of any kind.
func (s *scanner) skip(depth int) error {
	if depth > maxDepth {
		return s.fail("nested more than %d deep", maxDepth)
	}
	switch c := s.peek(); c {
	case '{':
		return s.object(func([]byte) error { return s.skip(depth + 1) })
	case '[':
		return s.array(func(int) error { return s.skip(depth + 1) })
	case '"':
		_, err := s.str()
		return err
	case 0:
		return s.fail("expected a value, got the end of the file")
	default: // a number or a word
		start := s.at
		for s.at < len(s.data) && s.data[s.at] > ' ' && bytes.IndexByte([]byte(`,:{}[]"`), s.data[s.at]) < 0 {
			s.at++
		}
		if !json.Valid(s.data[start:s.at]) {
			s.at = start
			return s.fail("expected a value, got %q", c)
		}
		return nil
	}
}

// value takes a small value and decodes it into v.
func (s *scanner) value(v any) error {
	raw, err := s.raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, v)
}

// end makes sure that nothing follows.
func (s *scanner) end() error {
	if s.peek() != 0 || s.at < len(s.data) {
		return s.fail("something follows the value")
	}
	return nil
}
