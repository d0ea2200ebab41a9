package openai

import (
	"bytes"
	"errors"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Value is one JSON value as raw bytes, without surrounding white space. A nil
// Value is an absent one.
type Value []byte

// Kind tells the type of v: '{', '[', '"', '0' for a number, 't' for either
// boolean, 'n' for null, 0 for an absent value.
func (v Value) Kind() byte {
	if len(v) == 0 {
		return 0
	}
	switch c := v[0]; c {
	case '{', '[', '"', 'n', 't':
		return c
	case 'f':
		return 't'
	default:
		return '0'
	}
}

// Present reports whether v is there and not null.
func (v Value) Present() bool { return len(v) > 0 && v[0] != 'n' }

// True reports whether v is the literal true.
func (v Value) True() bool { return len(v) == 4 && v[0] == 't' }

// TypeName names the JSON type of v for an error message.
func (v Value) TypeName() string {
	switch v.Kind() {
	case 0:
		return "nothing"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}

// Text returns the decoded string, or false when v is not a string or has a
// malformed escape. A lone surrogate decodes to U+FFFD.
func (v Value) Text() (string, bool) {
	if v.Kind() != '"' || len(v) < 2 {
		return "", false
	}
	inner := v[1 : len(v)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), true
	}
	b, err := appendUnquoted(make([]byte, 0, len(inner)), inner)
	if err != nil {
		return "", false
	}
	return string(b), true
}

// Uint returns v as an unsigned integer, or false when it is not one. Whole
// numbers only, so that ids beyond 2^53 stay exact: 1.0 and 1e3 are refused.
func (v Value) Uint() (uint64, bool) {
	if v.Kind() != '0' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(v), 10, 64)
	return n, err == nil
}

// Elements calls yield for each element of the array v until yield returns
// false. It returns an error when v is not a well-formed array; what yield
// refused to see is not looked at.
func (v Value) Elements(yield func(Value) bool) error {
	p := parser{b: v}
	if p.peek() != '[' {
		return p.want("an array")
	}
	p.i++
	for first := true; ; first = false {
		more, err := p.element(first)
		if err != nil {
			return err
		}
		if !more {
			return p.end()
		}
		start := p.i
		if err := p.skip(); err != nil {
			return err
		}
		if !yield(v[start:p.i]) {
			return nil
		}
	}
}

// empty reports whether v is a string, array or object with nothing in it.
func (v Value) empty() bool {
	if v.Kind() == '"' {
		return len(v) == 2
	}
	return len(v) >= 2 && len(bytes.TrimSpace(v[1:len(v)-1])) == 0
}

var errEscape = errors.New("invalid escape in string")

// appendUnquoted appends the decoded form of the inside of a JSON string. A lone
// surrogate becomes U+FFFD.
func appendUnquoted(dst, s []byte) ([]byte, error) {
	for {
		i := bytes.IndexByte(s, '\\')
		if i < 0 {
			return append(dst, s...), nil
		}
		dst = append(dst, s[:i]...)
		s = s[i:]
		n := escapeLen(s)
		if n == 0 {
			return dst, errEscape
		}
		switch c := s[1]; c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := hex4(s[2:])
			if utf16.IsSurrogate(r) {
				low := rune(-1)
				if escapeLen(s[n:]) == len(`\u0000`) {
					low = hex4(s[n+2:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					n += len(`\u0000`)
				}
			}
			dst = utf8.AppendRune(dst, r)
		default: // stands for itself
			dst = append(dst, c)
		}
		s = s[n:]
	}
}

// escapeLen returns the length of the escape sequence at the start of s, 0 when
// there is none or it is malformed.
func escapeLen(s []byte) int {
	if len(s) < 2 || s[0] != '\\' {
		return 0
	}
	switch s[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if hex4(s[2:]) >= 0 {
			return len(`\u0000`)
		}
	}
	return 0
}

// hex4 returns the number in the four hexadecimal digits at the start of s, or
// -1.
func hex4(s []byte) rune {
	if len(s) < 4 {
		return -1
	}
	var r rune
	for _, c := range s[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}
