package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A formatSpec is how one value is to be printed: what stands behind the colon
// in str.format, or between the percent sign and its letter.
type formatSpec struct {
	fill  string
	align byte // '<', '>', '^', '=' or 0
	sign  byte // '+', '-', ' ' or 0
	alt   bool
	width int
	group byte // ',', '_' or 0
	prec  int  // -1 when not given
	verb  byte // 0 when not given
}

// parseSpec reads a format specification of str.format.
func parseSpec(s string) (formatSpec, error) {
	f := formatSpec{fill: " ", prec: -1}
	isAlign := func(s string) bool { return s != "" && strings.IndexByte("<>^=", s[0]) >= 0 }
	if _, n := utf8.DecodeRuneInString(s); n < len(s) && isAlign(s[n:]) {
		f.fill, f.align = s[:n], s[n]
		s = s[n+1:]
	} else if isAlign(s) {
		f.align = s[0]
		s = s[1:]
	}
	take := func(chars string) byte {
		if s != "" && strings.IndexByte(chars, s[0]) >= 0 {
			c := s[0]
			s = s[1:]
			return c
		}
		return 0
	}
	f.sign = take("+- ")
	if take("z") != 0 {
		return f, errorf("format option 'z' is not supported")
	}
	f.alt = take("#") != 0
	if take("0") != 0 {
		if f.fill == " " && f.align == 0 {
			f.fill = "0"
		}
		if f.align == 0 {
			f.align = '0'
		}
	}
	var err error
	if f.width, s, err = leadingInt(s, 0); err != nil {
		return f, err
	}
	f.group = take(",_")
	if take(".") != 0 {
		if f.prec, s, err = leadingInt(s, -1); err != nil {
			return f, err
		}
		if f.prec < 0 {
			return f, errorf("format specifier is missing the precision")
		}
	}
	if s != "" {
		f.verb = s[0]
		s = s[1:]
	}
	if s != "" {
		return f, errorf("invalid format specifier")
	}
	return f, nil
}

// leadingInt reads a number from the beginning of s, def when there is none.
func leadingInt(s string, def int) (int, string, error) {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	if n == 0 {
		return def, s, nil
	}
	v, err := strconv.Atoi(s[:n])
	if err != nil || v > math.MaxInt32 {
		return 0, "", errorf("too many digits in a format specifier")
	}
	return v, s[n:], nil
}

// formatValue is Python's format(v, spec).
func (st *state) formatValue(v Value, spec string) (string, error) {
	if spec == "" {
		return st.str(v)
	}
	f, err := parseSpec(spec)
	if err != nil {
		return "", err
	}
	switch v := v.(type) {
	case string:
		return st.formatString(v, &f)
	case markup:
		return st.formatString(string(v), &f)
	case float64:
		return st.formatFloat(v, &f)
	}
	if n, ok := asBig(v); ok {
		return st.formatInt(n, &f)
	}
	return "", errorf("unsupported format string passed to %s", typeName(v))
}

func (st *state) formatString(s string, f *formatSpec) (string, error) {
	if f.verb != 0 && f.verb != 's' || f.sign != 0 || f.alt || f.group != 0 || f.align == '=' {
		return "", errorf("invalid format specifier for a string")
	}
	if f.prec >= 0 {
		s = s[:offset(s, int64(f.prec))]
	}
	g := *f
	if g.align == 0 || g.align == '0' {
		g.align = '<'
	}
	return st.align("", s, &g)
}

// align fills up to the width, between sign and digits where asked for.
func (st *state) align(sign, digits string, f *formatSpec) (string, error) {
	n := f.width - runeLen(sign) - runeLen(digits)
	if n <= 0 {
		return st.join(sign, digits)
	}
	l, r := n, 0
	switch f.align {
	case '<':
		l, r = 0, n
	case '^':
		l, r = n/2, n-n/2
	}
	before, err := st.repeat(f.fill, l)
	if err != nil {
		return "", err
	}
	after, err := st.repeat(f.fill, r)
	if err != nil {
		return "", err
	}
	if f.align == '=' || f.align == '0' {
		return st.join(sign, before, digits)
	}
	return st.join(before, sign, digits, after)
}

// number puts sign, prefix, digits and the rest behind them together, with
// separators between groups of digits.
func (st *state) number(negative bool, prefix, digits, rest string, f *formatSpec) (string, error) {
	sign := ""
	switch {
	case negative:
		sign = "-"
	case f.sign == '+', f.sign == ' ':
		sign = string(f.sign)
	}
	sign += prefix
	if f.group != 0 {
		size := 3
		if f.group == '_' && strings.IndexByte("boxX", f.verb) >= 0 && f.verb != 0 {
			size = 4
		}
		width := 0
		if f.fill == "0" && (f.align == '=' || f.align == '0') {
			if err := st.alloc(f.width); err != nil {
				return "", err
			}
			width = f.width - len(sign) - len(rest)
		}
		digits = groupDigits(digits, size, f.group, width)
	}
	return st.align(sign, digits+rest, f)
}

// groupDigits puts sep between groups of digits, with leading zeros up to width.
func groupDigits(digits string, size int, sep byte, width int) string {
	var rev []byte
	for i := len(digits) - 1; i >= 0 || len(rev) < width; i-- {
		if n := len(digits) - 1 - i; n > 0 && n%size == 0 {
			rev = append(rev, sep)
		}
		c := byte('0')
		if i >= 0 {
			c = digits[i]
		}
		rev = append(rev, c)
	}
	out := make([]byte, len(rev))
	for i, c := range rev {
		out[len(rev)-1-i] = c
	}
	return string(out)
}

func (st *state) formatInt(n *big.Int, f *formatSpec) (string, error) {
	switch f.verb {
	case 'e', 'E', 'f', 'F', 'g', 'G', '%':
		x, _, err := toFloat(n)
		if err != nil {
			return "", err
		}
		return st.formatFloat(x, f)
	}
	if f.prec >= 0 {
		return "", errorf("precision not allowed in integer format specifier")
	}
	abs := new(big.Int).Abs(n)
	base, prefix := 10, ""
	switch f.verb {
	case 0, 'd':
	case 'n':
		if f.group != 0 {
			return "", errorf("cannot specify a separator with 'n'")
		}
	case 'b':
		base, prefix = 2, "0b"
	case 'o':
		base, prefix = 8, "0o"
	case 'x':
		base, prefix = 16, "0x"
	case 'X':
		base, prefix = 16, "0X"
	case 'c':
		if f.sign != 0 || f.alt || !n.IsInt64() || n.Int64() < 0 || n.Int64() > utf8.MaxRune {
			return "", errorf("'c' expects a character code without sign")
		}
		g := *f
		g.verb = 0
		if g.align == 0 {
			g.align = '<'
		}
		return st.align("", string(rune(n.Int64())), &g)
	default:
		return "", errorf("unknown format code '%c' for an integer", f.verb)
	}
	if f.group == ',' && base != 10 {
		return "", errorf("cannot specify ',' with '%c'", f.verb)
	}
	digits := abs.Text(base)
	if base == 10 && len(digits) > maxIntDigits {
		return "", errorf("integer of %d digits is too long to print, at most %d", len(digits), maxIntDigits)
	}
	if f.verb == 'X' {
		digits = strings.ToUpper(digits)
	}
	if !f.alt {
		prefix = ""
	}
	return st.number(n.Sign() < 0, prefix, digits, "", f)
}

func (st *state) formatFloat(x float64, f *formatSpec) (string, error) {
	if f.prec > st.maxOut {
		return "", &LimitError{What: "bytes of a value", Max: st.maxOut}
	}
	if err := st.alloc(400 + max(f.prec, 0)); err != nil {
		return "", err
	}
	text, err := floatText(math.Abs(x), f)
	if err != nil {
		return "", err
	}
	// The digits before the point are grouped.
	n := 0
	for n < len(text) && isDigit(text[n]) {
		n++
	}
	negative := math.Signbit(x) && !math.IsNaN(x)
	if n == 0 {
		return st.number(negative, "", text, "", &formatSpec{fill: f.fill, align: f.align, sign: f.sign, width: f.width})
	}
	return st.number(negative, "", text[:n], text[n:], f)
}

// floatText prints a float that is not negative.
func floatText(x float64, f *formatSpec) (string, error) {
	verb, prec, suffix := f.verb, f.prec, ""
	lower := verb | 0x20
	if prec < 0 {
		prec = 6
	}
	switch {
	case verb == 0 && f.prec < 0 && !f.alt:
		return string(appendFloat(nil, x)), nil
	case verb == 0, verb == 'n':
		lower = 'g'
	case verb == '%':
		lower, suffix = 'f', "%"
		x *= 100
	case lower == 'e' || lower == 'f' || lower == 'g':
	default:
		return "", errorf("unknown format code '%c' for a float", verb)
	}
	var text string
	switch {
	case math.IsInf(x, 0):
		text = "inf"
	case math.IsNaN(x):
		text = "nan"
	default:
		if lower == 'g' {
			prec = max(prec, 1)
		}
		text = strconv.FormatFloat(x, lower, prec, 64)
		if f.alt {
			text = withPoint(text, lower, prec)
		}
		if verb == 0 && !strings.ContainsAny(text, ".e") {
			// Without a letter one digit stays behind the point, which may turn
			// what fills the precision into an exponent.
			if len(text) >= prec && f.prec > 0 {
				text = strconv.FormatFloat(x, 'e', max(prec-1, 0), 64)
				text = trimExp(text)
			} else {
				text += ".0"
			}
		}
	}
	text += suffix
	if 'A' <= verb && verb <= 'Z' {
		text = strings.ToUpper(text)
	}
	return text, nil
}

// trimExp drops the zeros at the end of the mantissa.
func trimExp(s string) string {
	m, e, _ := strings.Cut(s, "e")
	if strings.Contains(m, ".") {
		m = strings.TrimRight(strings.TrimRight(m, "0"), ".")
	}
	return m + "e" + e
}

// withPoint gives a float the point, and under 'g' the zeros, that the flag '#'
// asks for.
func withPoint(s string, verb byte, prec int) string {
	m, e, hasExp := strings.Cut(s, "e")
	if !strings.Contains(m, ".") {
		m += "."
	}
	if verb == 'g' {
		digits := len(strings.TrimLeft(strings.Replace(m, ".", "", 1), "0"))
		if digits == 0 {
			digits = 1
		}
		m += strings.Repeat("0", max(prec-digits, 0))
	}
	if hasExp {
		return m + "e" + e
	}
	return m
}
