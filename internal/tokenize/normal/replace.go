package normal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/onig"
)

// replace returns the normalizer for a pattern and what to put in its place, as
// it is written: there are no references to groups.
func (m members) replace() (Normalizer, error) {
	content, err := get[string](m, "content")
	if err != nil {
		return nil, err
	}
	pattern, err := get[members](m, "pattern")
	if err != nil {
		return nil, err
	}
	if len(pattern) != 1 {
		return nil, fmt.Errorf("pattern: expected one of String and Regex, found %d members", len(pattern))
	}
	if _, ok := pattern["Regex"]; ok {
		source, err := get[string](pattern, "Regex")
		if err != nil {
			return nil, fmt.Errorf("pattern: %w", err)
		}
		re, err := onig.Compile(source)
		if err != nil {
			return nil, fmt.Errorf("pattern: Regex: %w", err)
		}
		return replaceRegexp{re, []byte(content)}, nil
	}
	if _, ok := pattern["String"]; !ok {
		return nil, errors.New("pattern: expected String or Regex")
	}
	text, err := get[string](pattern, "String")
	if err != nil {
		return nil, fmt.Errorf("pattern: %w", err)
	}
	switch {
	case text == "":
		return replaceNothing(content), nil
	case len(text) == 1 && len(content) <= 8:
		return newReplaceByte(text[0], content), nil
	}
	return replaceText{[]byte(text), []byte(content)}, nil
}

// replaceText replaces a text.
type replaceText struct {
	old, new []byte
}

func (n replaceText) Normalize(dst, src []byte) []byte {
	at := bytes.Index(src, n.old)
	if at < 0 {
		return src
	}
	out := slices.Grow(dst[:0], len(src)+len(n.new))
	for at >= 0 {
		out = append(out, src[:at]...)
		out = append(out, n.new...)
		src = src[at+len(n.old):]
		at = bytes.Index(src, n.old)
	}
	return append(out, src...)
}

// replaceByte replaces an ASCII character by at most eight bytes. It is what
// SentencePiece models do to every space.
type replaceByte struct {
	old  byte
	new  uint64 // padded with zeros
	size int    // of new
}

func newReplaceByte(old byte, content string) replaceByte {
	var word [8]byte
	size := copy(word[:], content)
	return replaceByte{old, binary.LittleEndian.Uint64(word[:]), size}
}

// Normalize goes on by eight bytes of src at a time. Whatever it stores is eight
// bytes long as well; what is too much is written over by what comes next.
func (n replaceByte) Normalize(dst, src []byte) []byte {
	count := bytes.Count(src, []byte{n.old})
	if count == 0 {
		return src
	}
	size := len(src) + count*(n.size-1)
	out := slices.Grow(dst[:0], size+8)[:size+8]
	const ones, sevens = 0x0101010101010101, 0x7F7F7F7F7F7F7F7F
	pattern := ones * uint64(n.old)
	i, o := 0, 0
	for ; i+8 <= len(src); i += 8 {
		word := binary.LittleEndian.Uint64(src[i:])
		binary.LittleEndian.PutUint64(out[o:], word)
		differ := word ^ pattern
		found := ^((differ&sevens + sevens) | differ | sevens) // upper bits of the bytes that are zero in differ
		done := 0                                              // bytes of word that are behind o
		for ; found != 0; found &= found - 1 {
			k := bits.TrailingZeros64(found) / 8
			o += k - done
			binary.LittleEndian.PutUint64(out[o:], n.new)
			o += n.size
			done = k + 1
			binary.LittleEndian.PutUint64(out[o:], word>>(8*uint(done)))
		}
		o += 8 - done
	}
	for ; i < len(src); i++ {
		if src[i] == n.old {
			binary.LittleEndian.PutUint64(out[o:], n.new)
			o += n.size
			continue
		}
		out[o] = src[i]
		o++
	}
	return out[:size]
}

// replaceNothing puts a text before every character and at the end, which is
// what the empty pattern matches. It leaves the empty text alone.
type replaceNothing string

func (n replaceNothing) Normalize(dst, src []byte) []byte {
	if len(src) == 0 || n == "" {
		return src
	}
	out := slices.Grow(dst[:0], len(src)+(utf8.RuneCount(src)+1)*len(n))
	for len(src) > 0 {
		_, size := utf8.DecodeRune(src)
		out = append(out, n...)
		out = append(out, src[:size]...)
		src = src[size:]
	}
	return append(out, n...)
}

// replaceRegexp replaces what a regular expression matches.
type replaceRegexp struct {
	re  *onig.Regexp
	new []byte
}

func (n replaceRegexp) Normalize(dst, src []byte) []byte {
	if len(src) == 0 {
		return src
	}
	out, copied := dst[:0], -1
	n.re.All(src, func(start, end int) bool {
		if copied < 0 {
			out, copied = slices.Grow(out, len(src)+len(n.new)), 0
		}
		out = append(out, src[copied:start]...)
		out = append(out, n.new...)
		copied = end
		return true
	})
	if copied < 0 {
		return src
	}
	return append(out, src[copied:]...)
}
