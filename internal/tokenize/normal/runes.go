package normal

import (
	"slices"
	"unicode"
	"unicode/utf8"
)

// class is a set of properties of a character; see the constants in tables.go.
type class uint16

// classOf returns the class of r, which must be a valid code point.
func classOf(r rune) class {
	page := int(classIndex[r>>12]) << 6
	block := int(classPages[page|int(r>>6&0x3F)]) << 6
	return classBlocks[block|int(r&0x3F)]
}

// runes rewrites characters one by one: those of a class are handed to emit, all
// others are copied.
type runes struct {
	class class
	emit  func(dst []byte, r rune) []byte
}

var (
	lowercase    = runes{classUpper, appendLower}
	stripAccents = runes{classAccent, appendNothing}
	nmt          = runes{classNmtDrop | classNmtSpace, appendNmt}
)

func (n runes) Normalize(dst, src []byte) []byte {
	at, r, size := n.find(src, 0)
	if size == 0 {
		return src
	}
	out, copied := slices.Grow(dst[:0], len(src)), 0
	for size != 0 {
		out = append(out, src[copied:at]...)
		out = n.emit(out, r)
		copied = at + size
		at, r, size = n.find(src, copied)
	}
	return append(out, src[copied:]...)
}

// find returns the next character of the class at or after i, its place and its
// length, which is 0 when there is none.
func (n runes) find(src []byte, i int) (at int, r rune, size int) {
	for i < len(src) {
		if b := src[i]; b < utf8.RuneSelf {
			// The first two blocks are those of ASCII.
			if classBlocks[b]&n.class != 0 {
				return i, rune(b), 1
			}
			i++
			continue
		}
		r, size := utf8.DecodeRune(src[i:])
		if classOf(r)&n.class != 0 && (r != utf8.RuneError || size > 1) {
			return i, r, size
		}
		i += size
	}
	return i, 0, 0
}

func appendNothing(dst []byte, _ rune) []byte { return dst }

func appendNmt(dst []byte, r rune) []byte {
	if classOf(r)&classNmtSpace != 0 {
		dst = append(dst, ' ')
	}
	return dst
}

// appendLower appends the full lower case of r by itself: what follows it plays
// no role, so that a sigma never becomes a final one.
func appendLower(dst []byte, r rune) []byte {
	if r == 'İ' {
		return append(dst, "i\u0307"...)
	}
	return utf8.AppendRune(dst, toLower(r))
}

// toLower returns the simple lower case of r in Unicode 17.
func toLower(r rune) rune {
	if r < 0x1C89 {
		return unicode.ToLower(r)
	}
	switch {
	case r == 0x1C89, r == 0xA7CC, r == 0xA7CE, r == 0xA7D2, r == 0xA7D4, r == 0xA7DA:
		return r + 1
	case r == 0xA7CB:
		return 0x0264
	case r == 0xA7DC:
		return 0x019B
	case r >= 0x10D50 && r <= 0x10D65:
		return r + 0x20
	case r >= 0x16EA0 && r <= 0x16EB8:
		return r + 0x1B
	}
	return unicode.ToLower(r)
}
