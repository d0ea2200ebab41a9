package jinja

import (
	"math"
	"math/big"
	"strings"
	"unicode/utf8"
)

// printf is format % args. like is the format as a value: when it is a Markup,
// what is inserted is escaped.
func printf(st *state, like Value, format string, args Value) (string, error) {
	if err := st.alloc(len(format)); err != nil {
		return "", err
	}
	_, safe := like.(markup)
	p := printer{st: st, safe: safe, args: args}
	if t, ok := args.(*Tuple); ok {
		p.list = t.Items
	} else {
		p.list = []Value{args}
		switch args.(type) {
		case *Dict, *List, Undefined, *rangeValue:
			p.lenient = true
		}
	}
	for {
		i := strings.IndexByte(format, '%')
		if i < 0 {
			break
		}
		p.out = append(p.out, format[:i]...)
		var err error
		if format, err = p.verb(format[i+1:]); err != nil {
			return "", err
		}
		if len(p.out) > st.maxOut {
			return "", &LimitError{What: "bytes of a value", Max: st.maxOut}
		}
	}
	p.out = append(p.out, format...)
	if len(p.list) > 0 && !p.lenient {
		return "", errorf("not all arguments converted during string formatting")
	}
	return string(p.out), st.alloc(len(p.out))
}

// A printer is a printf in progress.
type printer struct {
	st   *state
	out  []byte
	safe bool
	args Value
	// list holds the arguments that are left.
	list []Value
	// lenient says that arguments may be left over.
	lenient bool
}

func (p *printer) next() (Value, error) {
	if len(p.list) == 0 {
		return nil, errorf("not enough arguments for format string")
	}
	v := p.list[0]
	p.list = p.list[1:]
	return v, nil
}

// star reads a width or precision: digits, or an asterisk for an argument.
func (p *printer) star(s string, def int) (int, string, error) {
	if !strings.HasPrefix(s, "*") {
		return leadingInt(s, def)
	}
	v, err := p.next()
	if err != nil {
		return 0, "", err
	}
	n, ok := asInt64(v)
	if !ok || n > math.MaxInt32 || n < math.MinInt32 {
		return 0, "", errorf("* wants an int")
	}
	return int(n), s[1:], nil
}

// verb prints one conversion and returns the format behind it.
func (p *printer) verb(s string) (string, error) {
	f := formatSpec{fill: " ", prec: -1, align: '>'}
	keyed := false
	var value Value
	if strings.HasPrefix(s, "(") {
		key, rest, err := cutKey(s)
		if err != nil {
			return "", err
		}
		d, ok := p.args.(*Dict)
		if !ok {
			return "", errorf("format requires a mapping")
		}
		v, ok := d.Get(key)
		if !ok {
			return "", errorf("format: the mapping has no key %s", repr(key))
		}
		s, value, keyed = rest, v, true
		p.lenient = true
	}
	left, zero := false, false
flags:
	for s != "" {
		switch s[0] {
		case '-':
			left = true
		case '+':
			f.sign = '+'
		case ' ':
			if f.sign == 0 {
				f.sign = ' '
			}
		case '#':
			f.alt = true
		case '0':
			zero = true
		default:
			break flags
		}
		s = s[1:]
	}
	var err error
	if f.width, s, err = p.star(s, 0); err != nil {
		return "", err
	}
	if f.width < 0 {
		left, f.width = true, -f.width
	}
	if strings.HasPrefix(s, ".") {
		if f.prec, s, err = p.star(s[1:], 0); err != nil {
			return "", err
		}
		f.prec = max(f.prec, 0)
	}
	if s != "" && strings.IndexByte("hlL", s[0]) >= 0 {
		s = s[1:]
	}
	if s == "" {
		return "", errorf("incomplete format")
	}
	c, n := utf8.DecodeRuneInString(s)
	s = s[n:]
	if c == '%' {
		p.out = append(p.out, '%')
		return s, nil
	}
	if !keyed {
		if value, err = p.next(); err != nil {
			return "", err
		}
	}
	if left {
		f.align = '<'
	} else if zero && strings.ContainsRune("diuoxXeEfFgG", c) {
		f.fill, f.align = "0", '='
	}
	text, err := p.convert(c, value, &f)
	p.out = append(p.out, text...)
	return s, err
}

// cutKey returns the key in the parentheses that s begins with.
func cutKey(s string) (key, rest string, err error) {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return s[1:i], s[i+1:], nil
			}
		}
	}
	return "", "", errorf("incomplete format key")
}

func (p *printer) convert(c rune, v Value, f *formatSpec) (string, error) {
	switch c {
	case 's', 'r', 'a':
		return p.text(c, v, f)
	case 'c':
		return p.char(v, f)
	case 'd', 'i', 'u', 'o', 'x', 'X':
		return p.integer(byte(c), v, f)
	case 'e', 'E', 'f', 'F', 'g', 'G':
		x, ok, err := toFloat(v)
		if err != nil {
			return "", err
		}
		if !ok {
			return "", errorf("must be real number, not %s", typeName(v))
		}
		f.verb = byte(c)
		return p.st.formatFloat(x, f)
	}
	return "", errorf("unsupported format character %s", repr(string(c)))
}

func (p *printer) text(c rune, v Value, f *formatSpec) (string, error) {
	var s string
	var err error
	switch c {
	case 's':
		if s, err = p.st.str(v); err == nil && p.safe {
			s, err = escaped(p.st, v)
		}
	default:
		s, err = p.st.repr(v)
		if c == 'a' {
			s = asciiRepr(s)
		}
		if p.safe {
			s = escapeHTML(s)
		}
	}
	if err != nil {
		return "", err
	}
	if f.prec >= 0 {
		s = s[:offset(s, int64(f.prec))]
	}
	return p.st.align("", s, f)
}

func (p *printer) char(v Value, f *formatSpec) (string, error) {
	if s, ok := asString(v); ok {
		if runeLen(s) != 1 {
			return "", errorf("%%c requires int or a single character")
		}
		return p.st.align("", s, f)
	}
	n, ok := asInt64(v)
	if !ok || n < 0 || n > utf8.MaxRune {
		return "", errorf("%%c requires int or a single character")
	}
	return p.st.align("", string(rune(n)), f)
}

func (p *printer) integer(c byte, v Value, f *formatSpec) (string, error) {
	n, ok := asBig(v)
	if x, isFloat := v.(float64); isFloat && strings.IndexByte("diu", c) >= 0 {
		if math.IsInf(x, 0) || math.IsNaN(x) {
			return "", errorf("cannot convert %v to an integer", x)
		}
		n, _ = new(big.Float).SetFloat64(x).Int(nil)
		ok = true
	}
	if !ok {
		return "", errorf("%%%c format: a number is required, not %s", c, typeName(v))
	}
	base, prefix := 10, ""
	switch c {
	case 'o':
		base, prefix = 8, "0o"
	case 'x':
		base, prefix = 16, "0x"
	case 'X':
		base, prefix = 16, "0X"
	}
	digits := new(big.Int).Abs(n).Text(base)
	if base == 10 && len(digits) > maxIntDigits {
		return "", errorf("integer of %d digits is too long to print, at most %d", len(digits), maxIntDigits)
	}
	if c == 'X' {
		digits = strings.ToUpper(digits)
	}
	if !f.alt {
		prefix = ""
	}
	zeros, err := p.st.repeat("0", f.prec-len(digits))
	if err != nil {
		return "", err
	}
	return p.st.number(n.Sign() < 0, prefix, zeros+digits, "", f)
}

// asciiRepr escapes what is beyond ASCII in a repr.
func asciiRepr(s string) string {
	if isASCII(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
			continue
		}
		// A backslash before a character beyond ASCII spells its escape.
		esc, _ := unescape("\\" + string(r))
		b.WriteString(esc)
	}
	return b.String()
}
