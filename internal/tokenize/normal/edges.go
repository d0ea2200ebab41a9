package normal

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// strip removes white space from the ends of a text.
type strip struct {
	left, right bool
}

func (m members) strip() ([]Normalizer, error) {
	left, err := get[bool](m, "strip_left")
	if err != nil {
		return nil, err
	}
	right, err := get[bool](m, "strip_right")
	if err != nil || !left && !right {
		return nil, err
	}
	return []Normalizer{strip{left, right}}, nil
}

func (n strip) Normalize(dst, src []byte) []byte {
	text := src
	if n.left {
		text = bytes.TrimLeftFunc(text, unicode.IsSpace)
	}
	if n.right {
		text = bytes.TrimRightFunc(text, unicode.IsSpace)
	}
	if len(text) == len(src) {
		return src
	}
	return append(dst[:0], text...)
}

// prepend puts a text in front of every text that is not empty.
type prepend []byte

func (m members) prepend() ([]Normalizer, error) {
	text, err := get[string](m, "prepend")
	if err != nil || text == "" {
		return nil, err
	}
	return []Normalizer{prepend(text)}, nil
}

func (n prepend) Normalize(dst, src []byte) []byte {
	if len(src) == 0 {
		return src
	}
	return append(append(dst[:0], n...), src...)
}

// byteLevel replaces every byte by the character that stands for it in the
// vocabulary of a byte-level model. Bytes of visible characters of Latin-1 stand
// for themselves, the other 68 for U+0100 and those after it.
type byteLevel struct{}

func (byteLevel) Normalize(dst, src []byte) []byte {
	i := 0
	for i < len(src) && src[i] > ' ' && src[i] < 0x7F {
		i++
	}
	if i == len(src) {
		return src
	}
	out := append(dst[:0], src[:i]...)
	for _, b := range src[i:] {
		out = utf8.AppendRune(out, byteRune(b))
	}
	return out
}

// byteRune returns the character that stands for b.
func byteRune(b byte) rune {
	switch {
	case b <= ' ':
		return 0x100 + rune(b)
	case b < 0x7F:
		return rune(b)
	case b <= 0xA0:
		return 0x121 + rune(b-0x7F)
	case b == 0xAD:
		return 0x143
	}
	return rune(b)
}
