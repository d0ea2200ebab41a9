package normal

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
)

// form is one of the four normal forms of Unicode, with the data of version 9:
// marks that came later are starters, characters that came later do not
// decompose.
type form uint8

// The numbers are those of the bits in tables.go.
const (
	nfc form = iota
	nfd
	nfkc
	nfkd
)

// composes reports whether the form puts together what belongs together after
// taking it apart.
func (f form) composes() bool { return f == nfc || f == nfkc }

// record is what the forms need to know of a character that is not just copied.
type record struct {
	canon, compat       uint16 // where its decompositions start
	canonLen, compatLen uint8  // their lengths in bytes, 0 for none
	class               uint8  // canonical combining class
	flags               uint8  // a bit per form it cannot be in, at least not after every text; flagCombines
}

// decomposition returns what the character becomes in the form, empty if it
// stays. Hangul syllables are not in the table.
func (rec *record) decomposition(f form) string {
	if f <= nfd {
		return decompositions[rec.canon:][:rec.canonLen]
	}
	return decompositions[rec.compat:][:rec.compatLen]
}

func (f form) Normalize(dst, src []byte) []byte {
	at := f.span(src, 0)
	if at == len(src) {
		return src
	}
	w := workPool.Get().(*work)
	changed := false
	out := dst[:0]
	for at < len(src) {
		end := w.segment(f, src, at)
		if !changed && !bytes.Equal(w.out, src[at:end]) {
			changed = true
			out = append(slices.Grow(out, len(src)+len(w.out)-(end-at)), src[:at]...)
		}
		next := f.span(src, end)
		if changed {
			out = append(out, w.out...)
			out = append(out, src[end:next]...)
		}
		at = next
	}
	w.release()
	if !changed {
		return src
	}
	return out
}

// span returns how far src is in form from i on, where it must be a character
// that no form changes together with what precedes it. When there is something
// to do further on, it returns the last such place before that; else len(src).
func (f form) span(src []byte, i int) int {
	var (
		start, boundary = i, i
		end             int   // of the last character that had to be looked at
		last            uint8 // its combining class
		bit             = uint8(1) << f
		care            = uint16(1) << (formShift + f)
	)
	for i < len(src) {
		if leads[src[i]]&bit == 0 {
			i = skip(src, i+1, bit)
			continue
		}
		v, n := lookup(src[i:])
		if v&care != 0 {
			if i != end || last == 0 {
				last = 0
				boundary = max(start, previous(src, i))
			}
			rec := &records[v&indexMask]
			if rec.flags&bit != 0 || rec.class < last {
				return boundary
			}
			last, end = rec.class, i+n
		}
		i += n
	}
	return len(src)
}

// skip returns the first place at or after i with a byte that starts a character
// some form in bit has to look at. It tells by the byte alone, eight at a time.
func skip(src []byte, i int, bit uint8) int {
	const highs = 0x8080808080808080
	for ; i+8 <= len(src); i += 8 {
		w := binary.LittleEndian.Uint64(src[i:])
		if w&highs == 0 {
			continue
		}
		if (leads[byte(w)]|leads[byte(w>>8)]|leads[byte(w>>16)]|leads[byte(w>>24)]|
			leads[byte(w>>32)]|leads[byte(w>>40)]|leads[byte(w>>48)]|leads[byte(w>>56)])&bit != 0 {
			i += bits.TrailingZeros64(w&highs) / 8
			break
		}
	}
	for i < len(src) && leads[src[i]]&bit == 0 {
		i++
	}
	return i
}

// previous returns where the character before i starts, or may start if the bytes
// there are not UTF-8.
func previous(src []byte, i int) int {
	for n := 1; n <= 4 && n <= i; n++ {
		if src[i-n]&0xC0 != 0x80 {
			return i - n
		}
	}
	return i - 1
}

// lookup returns the value in the trie of the first character of s, which is not
// empty, and its length. Bytes that are not UTF-8 count as characters without
// properties.
func lookup(s []byte) (uint16, int) {
	b := s[0]
	var r uint32
	n := 1
	switch {
	case b < 0xC2:
		return 0, 1
	case b < 0xE0:
		if len(s) < 2 || s[1]&0xC0 != 0x80 {
			return 0, 1
		}
		r, n = uint32(b&0x1F)<<6|uint32(s[1]&0x3F), 2
	case b < 0xF0:
		if len(s) < 3 || s[1]&0xC0 != 0x80 || s[2]&0xC0 != 0x80 {
			return 0, 1
		}
		r, n = uint32(b&0x0F)<<12|uint32(s[1]&0x3F)<<6|uint32(s[2]&0x3F), 3
	default:
		if len(s) < 4 || s[1]&0xC0 != 0x80 || s[2]&0xC0 != 0x80 || s[3]&0xC0 != 0x80 {
			return 0, 1
		}
		r, n = uint32(b&0x07)<<18|uint32(s[1]&0x3F)<<12|uint32(s[2]&0x3F)<<6|uint32(s[3]&0x3F), 4
	}
	return valueOf(r), n
}

// valueOf returns the value in the trie of a character.
func valueOf(r uint32) uint16 {
	if r >= formsEnd {
		return 0
	}
	return formBlocks[int(formIndex[r>>6])<<6|int(r&0x3F)]
}
