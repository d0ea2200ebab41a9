package openai

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// LoneSurrogate returns where in a JSON text half a surrogate pair is escaped
// without the other, -1 for nowhere. It is no character, and no token stands for it.
func LoneSurrogate(text []byte) int {
	for at := 0; ; {
		i := bytes.IndexByte(text[at:], '\\')
		if i < 0 {
			return -1
		}
		at += i
		r, pair := escaped(text[at:]), rune(-1)
		if !utf16.IsSurrogate(r) {
			at = min(at+2, len(text))
			continue
		}
		if len(text) > at+escapeSize {
			pair = escaped(text[at+escapeSize:])
		}
		if utf16.DecodeRune(r, pair) == utf8.RuneError {
			return at
		}
		at += 2 * escapeSize
	}
}

// escapeSize is the length of an escape such as \u0000.
const escapeSize = 6

// escaped returns the character of the escape that text begins with, -1 when it is
// not one of four digits.
func escaped(text []byte) rune {
	if len(text) < escapeSize || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(text[2:escapeSize]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}
