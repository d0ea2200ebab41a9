package openai

import "unicode/utf8"

const hexDigits = "0123456789abcdef"

// asIs has a 1 for each ASCII character that stands for itself in a JSON string.
var asIs = func() (t [256]uint8) {
	for c := ' '; c < 0x7f; c++ {
		t[c] = 1
	}
	t['"'], t['\\'] = 0, 0
	return t
}()

// AppendString appends s as a JSON string, quotes included. Bytes that are not
// UTF-8 become U+FFFD. The result is safe inside a server-sent event: it holds
// no line break.
func AppendString[S string | []byte](dst []byte, s S) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		for i+4 <= len(s) && asIs[s[i]]&asIs[s[i+1]]&asIs[s[i+2]]&asIs[s[i+3]] != 0 {
			i += 4
		}
		if i == len(s) {
			break
		}
		c := s[i]
		if c < utf8.RuneSelf {
			if asIs[c] != 0 {
				i++
				continue
			}
			dst = append(dst, s[start:i]...)
			switch c {
			case '"', '\\':
				dst = append(dst, '\\', c)
			case '\n':
				dst = append(dst, '\\', 'n')
			case '\r':
				dst = append(dst, '\\', 'r')
			case '\t':
				dst = append(dst, '\\', 't')
			default:
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			start = i
			continue
		}
		// Four bytes hold any rune, so a short copy decodes the same.
		var four [utf8.UTFMax]byte
		n := copy(four[:], s[i:min(i+utf8.UTFMax, len(s))])
		r, size := utf8.DecodeRune(four[:n])
		if r == utf8.RuneError && size == 1 {
			dst = append(dst, s[start:i]...)
			dst = utf8.AppendRune(dst, utf8.RuneError)
			i++
			start = i
			continue
		}
		i += size
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}
