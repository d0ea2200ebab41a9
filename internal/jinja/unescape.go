package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// unescape resolves the escapes of a string literal as Python's unicode-escape
// codec does. A surrogate, which has no place in UTF-8, becomes U+FFFD.
func unescape(s string) (string, error) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		i++ // the lexer lets no literal end in a lone backslash
		switch c := s[i]; c {
		case '\n':
		case '\\', '\'', '"':
			b.WriteByte(c)
		case 'a':
			b.WriteByte('\a')
		case 'b':
			b.WriteByte('\b')
		case 'f':
			b.WriteByte('\f')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case 'v':
			b.WriteByte('\v')
		case '0', '1', '2', '3', '4', '5', '6', '7':
			n := rune(0)
			j := i
			for ; j < len(s) && j < i+3 && '0' <= s[j] && s[j] <= '7'; j++ {
				n = n<<3 | rune(s[j]-'0')
			}
			b.WriteRune(n)
			i = j - 1
		case 'x', 'u', 'U':
			digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			if i+digits >= len(s) {
				return "", fmt.Errorf("truncated \\%c escape", c)
			}
			n, err := strconv.ParseUint(s[i+1:i+1+digits], 16, 32)
			if err != nil {
				return "", fmt.Errorf("truncated \\%c escape", c)
			}
			if n > utf8.MaxRune {
				return "", fmt.Errorf("\\U escape beyond U+10FFFF")
			}
			b.WriteRune(rune(n))
			i += digits
		case 'N':
			return "", fmt.Errorf("\\N escapes (characters by name) are not supported")
		default:
			b.WriteByte('\\')
			if c < utf8.RuneSelf {
				b.WriteByte(c)
				break
			}
			// The codec sees characters beyond ASCII in escaped form, so that the
			// backslash before one takes that form's backslash for its escape.
			r, n := utf8.DecodeRuneInString(s[i:])
			switch {
			case r < 0x100:
				fmt.Fprintf(&b, "x%02x", r)
			case r < 0x10000:
				fmt.Fprintf(&b, "u%04x", r)
			default:
				fmt.Fprintf(&b, "U%08x", r)
			}
			i += n - 1
		}
	}
	return b.String(), nil
}
