package normal

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"unicode/utf8"
)

// maxCluster is the length from which on a grapheme cluster is not looked up as a
// whole.
const maxCluster = 6

// precompiled is the character map of a SentencePiece model: a trie of texts and
// what each is replaced by.
type precompiled struct {
	trie  []uint32
	texts []byte    // replacements, each ended by a zero byte
	ascii [128]bool // which ASCII characters start a text in the trie
}

func (m members) precompiled() (Normalizer, error) {
	const name = "precompiled_charsmap"
	text, err := get[string](m, name)
	if err != nil {
		return nil, err
	}
	blob, err := base64.RawStdEncoding.DecodeString(trimPadding(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	n, err := newPrecompiled(blob)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return n, nil
}

// trimPadding returns base64 without the padding that makes its length a multiple
// of four.
func trimPadding(s string) string {
	if len(s)%4 == 0 {
		for range 2 {
			if len(s) > 0 && s[len(s)-1] == '=' {
				s = s[:len(s)-1]
			}
		}
	}
	return s
}

// newPrecompiled reads a map: the length of the trie in bytes, its units, and the
// replacements, all little-endian.
func newPrecompiled(blob []byte) (*precompiled, error) {
	if len(blob) < 4 {
		return nil, fmt.Errorf("%d bytes, expected the length of a trie", len(blob))
	}
	size := uint64(binary.LittleEndian.Uint32(blob))
	blob = blob[4:]
	if size > uint64(len(blob)) || size%4 != 0 {
		return nil, fmt.Errorf("trie of %d bytes, expected a multiple of 4 and at most %d", size, len(blob))
	}
	n := &precompiled{trie: make([]uint32, size/4), texts: slices.Clone(blob[size:])}
	for i := range n.trie {
		n.trie[i] = binary.LittleEndian.Uint32(blob[4*i:])
	}
	if !utf8.Valid(n.texts) {
		return nil, fmt.Errorf("replacements are not UTF-8")
	}
	for b := range n.ascii {
		_, n.ascii[b] = n.lookup([]byte{byte(b)})
	}
	return n, nil
}

func (n *precompiled) Normalize(dst, src []byte) []byte {
	out, copied := dst[:0], -1 // -1 as long as nothing was replaced
	for i := 0; i < len(src); {
		if b := src[i]; b < utf8.RuneSelf && !n.ascii[b] && b != '\r' && i+1 < len(src) && src[i+1] < utf8.RuneSelf {
			i++ // a cluster by itself
			continue
		}
		end := i + cluster(src[i:])
		if end-i < maxCluster {
			if text, ok := n.lookup(src[i:end]); ok {
				out = n.copyUpTo(out, src, copied, i)
				out, copied, i = append(out, text...), end, end
				continue
			}
			// Its first character is not in the map either.
			_, size := utf8.DecodeRune(src[i:end])
			i += size
		}
		for i < end {
			_, size := utf8.DecodeRune(src[i:end])
			if text, ok := n.lookup(src[i : i+size]); ok {
				out = n.copyUpTo(out, src, copied, i)
				out, copied = append(out, text...), i+size
			}
			i += size
		}
	}
	if copied < 0 {
		return src
	}
	return append(out, src[copied:]...)
}

// copyUpTo appends what lies between the last replacement and the next.
func (n *precompiled) copyUpTo(out, src []byte, copied, i int) []byte {
	if copied < 0 {
		return append(slices.Grow(out, len(src)), src[:i]...)
	}
	return append(out, src[copied:i]...)
}

// lookup returns the replacement of the shortest text of the trie that key starts
// with. The library takes the first it finds as well, and replaces all of key by
// it, which drops what follows the text in key.
func (n *precompiled) lookup(key []byte) ([]byte, bool) {
	if len(n.trie) == 0 {
		return nil, false
	}
	at := offset(n.trie[0])
	for _, b := range key {
		at ^= uint32(b)
		if b == 0 || at >= uint32(len(n.trie)) {
			return nil, false
		}
		unit := n.trie[at]
		// The label of a unit that holds a value has the upper bit set.
		if unit&(1<<31|0xFF) != uint32(b) {
			return nil, false
		}
		at ^= offset(unit)
		if unit>>8&1 != 0 {
			return n.text(at)
		}
	}
	return nil, false
}

// text returns the replacement that the value unit at an index points to. In a
// broken map it may point nowhere, which is as if there were none.
func (n *precompiled) text(at uint32) ([]byte, bool) {
	if at >= uint32(len(n.trie)) {
		return nil, false
	}
	start := n.trie[at] & (1<<31 - 1)
	if start >= uint32(len(n.texts)) || !utf8.RuneStart(n.texts[start]) {
		return nil, false
	}
	text := n.texts[start:]
	if end := bytes.IndexByte(text, 0); end >= 0 {
		text = text[:end]
	}
	return text, true
}

// offset returns by which the index of a unit differs from that of its children,
// before their labels.
func offset(unit uint32) uint32 {
	return unit >> 10 << (unit & (1 << 9) >> 6)
}
