package hf

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// maxID is the largest token id that a file may use: tables are as long as the
// largest id is great.
const maxID = 1<<24 - 1

// none stands for no token.
const none = ^uint32(0)

// vocab maps token bytes to ids and back. It holds no pointer per token. The zero
// value is empty. It is safe for concurrent use once it is complete.
type vocab struct {
	text []byte   // of all tokens, one after another
	ends []uint32 // where the text of the token with an index ends
	ids  []uint32 // the id of the token with an index; nil when they are equal
	idx  []uint32 // the index of the token with an id, none for a gap; nil when they are equal
	// slots is a hash table with linear probing of indexes + 1.
	slots []uint32
	twice bool // some text occurs twice
}

// grow makes room for n tokens of size bytes in all.
func (v *vocab) grow(n, size int) {
	v.text = slices.Grow(v.text, size)
	v.ends = slices.Grow(v.ends, n)
	v.ids = slices.Grow(v.ids, n)
}

// len returns the number of tokens.
func (v *vocab) len() int { return len(v.ends) }

// add appends a token. The table does not know it before index is called.
func (v *vocab) add(token []byte, id uint32) {
	v.text = append(v.text, token...)
	v.ends = append(v.ends, uint32(len(v.text)))
	v.ids = append(v.ids, id)
}

// at returns the text of the token with an index.
func (v *vocab) at(i uint32) []byte {
	start := uint32(0)
	if i > 0 {
		start = v.ends[i-1]
	}
	return v.text[start:v.ends[i]:v.ends[i]]
}

// id returns the id of the token with an index.
func (v *vocab) id(i uint32) uint32 {
	if v.ids == nil {
		return i
	}
	return v.ids[i]
}

// token returns the text of the token with the given id.
func (v *vocab) token(id uint32) ([]byte, bool) {
	if v.idx != nil {
		if int(id) >= len(v.idx) || v.idx[id] == none {
			return nil, false
		}
		id = v.idx[id]
	}
	if int(id) >= len(v.ends) {
		return nil, false
	}
	return v.at(id), true
}

// size returns one more than the largest id.
func (v *vocab) size() int {
	if v.idx != nil {
		return len(v.idx)
	}
	return len(v.ends)
}

// index builds the table. It returns the index of a token whose id another has
// too, and false. Of two tokens with one text, the later counts.
func (v *vocab) index() (uint32, bool) {
	plain := true
	top := uint32(0)
	for i, id := range v.ids {
		plain = plain && id == uint32(i)
		top = max(top, id)
	}
	if plain {
		v.ids, v.idx = nil, nil
	} else {
		v.idx = make([]uint32, top+1)
		for i := range v.idx {
			v.idx[i] = none
		}
		for i, id := range v.ids {
			if v.idx[id] != none {
				return uint32(i), false
			}
			v.idx[id] = uint32(i)
		}
	}
	v.slots = make([]uint32, 1<<bits.Len(uint(max(v.len(), 4)*3/2)))
	for i := range uint32(v.len()) {
		s := v.slot(v.at(i))
		v.twice = v.twice || *s != 0
		*s = i + 1
	}
	return 0, true
}

// slot returns the table's entry for a text: the token's, or the empty one where it
// would go.
func (v *vocab) slot(text []byte) *uint32 {
	mask := uint64(len(v.slots) - 1)
	for h := hash(text); ; h++ {
		s := &v.slots[h&mask]
		if *s == 0 || string(v.at(*s-1)) == string(text) {
			return s
		}
	}
}

// lookup returns the id of a text, none if there is no such token.
func (v *vocab) lookup(text []byte) uint32 {
	i := *v.slot(text) - 1
	if i == none {
		return none
	}
	return v.id(i)
}

// hash returns a hash of b. Its value is not kept anywhere.
func hash(b []byte) uint64 {
	const k0, k1 = 0x9e3779b97f4a7c15, 0xd6e8feb86659fd93
	h := uint64(len(b)) * k0
	for len(b) > 16 {
		h = mix(binary.LittleEndian.Uint64(b)^k0, binary.LittleEndian.Uint64(b[8:])^h)
		b = b[16:]
	}
	var lo, hi uint64
	switch n := len(b); {
	case n >= 8:
		lo, hi = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[n-8:])
	case n >= 4:
		lo, hi = uint64(binary.LittleEndian.Uint32(b)), uint64(binary.LittleEndian.Uint32(b[n-4:]))
	case n > 0:
		lo = uint64(b[0]) | uint64(b[n/2])<<8 | uint64(b[n-1])<<16
	}
	return mix(lo^h, hi^k1)
}

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
