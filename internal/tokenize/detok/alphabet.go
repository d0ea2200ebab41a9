package detok

import "unicode/utf8"

// The byte alphabet spells each byte as a printable character: bytes that are
// printable in Latin-1 as themselves, the other 68 in ascending order as the
// characters from U+0100 on.

// alphabetSize is one more than the last character of the alphabet.
const alphabetSize = 0x100 + 68

// alphabet maps a character of the byte alphabet to its byte, others to -1.
var alphabet = func() (t [alphabetSize]int16) {
	for i := range t {
		t[i] = -1
	}
	next := 0x100
	for b := range 256 {
		switch {
		case b >= 0x21 && b <= 0x7E, b >= 0xA1 && b <= 0xAC, b >= 0xAE:
			t[b] = int16(b)
		default:
			t[next] = int16(b)
			next++
		}
	}
	return t
}()

// AppendBytes appends the bytes that a token of a byte-level vocabulary stands for:
// each character of the byte alphabet as its byte. A token with any other character
// in it, as added tokens may have, stands for its own UTF-8.
func AppendBytes(dst []byte, token string) []byte {
	at := len(dst)
	for i := 0; i < len(token); {
		r, size := rune(token[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRuneInString(token[i:])
		}
		if r >= alphabetSize || alphabet[r] < 0 {
			return append(dst[:at], token...)
		}
		dst = append(dst, byte(alphabet[r]))
		i += size
	}
	return dst
}
