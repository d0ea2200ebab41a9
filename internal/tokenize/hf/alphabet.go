package hf

import "unicode/utf8"

// The byte alphabet writes any bytes as printable characters: those that are
// printable in Latin-1 as themselves, the other 68 as U+0100 and on. Vocabularies
// of byte-level models are spelled in it; here they are turned back into bytes when
// they are read, so that no text is ever spelled out.
var fromAlphabet = func() (t [0x144]int16) {
	for i := range t {
		t[i] = -1
	}
	next := 0x100
	for b := range 256 {
		if '!' <= b && b <= '~' || 0xa1 <= b && b <= 0xac || 0xae <= b {
			t[b] = int16(b)
		} else {
			t[next] = int16(b)
			next++
		}
	}
	return t
}()

// appendRaw appends the bytes that a text in the byte alphabet stands for. With a
// character outside it, ok is false and dst as it came.
func appendRaw(dst, text []byte) (raw []byte, ok bool) {
	raw = dst
	for i := 0; i < len(text); {
		c := rune(text[i])
		if c < utf8.RuneSelf {
			i++
		} else {
			var n int
			c, n = utf8.DecodeRune(text[i:])
			i += n
		}
		if int(c) >= len(fromAlphabet) || fromAlphabet[c] < 0 {
			return dst, false
		}
		raw = append(raw, byte(fromAlphabet[c]))
	}
	return raw, true
}
