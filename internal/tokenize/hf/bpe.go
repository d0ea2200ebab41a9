package hf

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"unicode/utf8"
)

// bpe is the model of most language models: it begins with the characters of a
// piece, or with its bytes, and joins the two neighbours whose pair comes first in
// the list of merges, the leftmost of equals, until no pair is in the list.
// Immutable but for what it has found out about whole words; safe for concurrent
// use.
type bpe struct {
	vocab vocab
	pairs pairTable // the merges
	byID  bool      // they are the vocabulary: the rank of a pair is the id of the token that the two make

	bytes        bool        // symbols are bytes, otherwise characters
	complete     bool        // and every byte is a token
	asciiID      [128]uint32 // the token of a character
	byteID       [256]uint32 // the token of a byte: the symbol, or what stands in for a missing character
	fallback     bool        // all bytes of a missing character stand in for it
	unk          uint32      // stands in for it otherwise; none: it is dropped
	fuse         bool        // one unk for several missing characters in a row
	ignoreMerges bool        // a piece that is a token is that token

	// whole remembers of tokens whether merging their text gives them back: two
	// bits per id, known and true. It saves merging for most words.
	whole []atomic.Uint32

	joins  *joins     // says where pieces of characters can be cut; nil for nowhere
	beside *bytePairs // the bytes that stand beside each other in tokens, if the model is complete
}

// pairTable maps pairs of ids to their rank and the id they merge to. It is a hash
// table with linear probing.
type pairTable struct {
	slots []pair
	n     int
	// maybe has a bit set for each pair, by its hash. Most pairs that are asked for
	// are none, and this fits into a cache of the processor where slots does not.
	maybe []uint64
}

type pair struct {
	key uint64 // left<<32 | right, plus one; 0 is empty
	val uint64 // rank<<32 | merged
}

// noMerge is the value of a pair that does not merge. Every other is smaller.
const noMerge = ^uint64(0)

// newPairTable returns a table for about n pairs.
func newPairTable(n int) pairTable {
	size := 1 << bits.Len(uint(max(n+n/2, 8)-1))
	return pairTable{slots: make([]pair, size), maybe: make([]uint64, max(size*maybeBits/64, 1))}
}

// maybeBits is the number of bits in maybe for each slot.
const maybeBits = 4

// grow doubles the table.
func (t *pairTable) grow() {
	old := t.slots
	t.slots = make([]pair, 2*len(old))
	t.maybe = make([]uint64, max(len(t.slots)*maybeBits/64, 1))
	for _, p := range old {
		if p.key != 0 {
			*t.slot(p.key) = p
			t.note(p.key)
		}
	}
}

// note sets the bit of a key.
func (t *pairTable) note(key uint64) {
	at, bit := t.bit(key)
	t.maybe[at] |= bit
}

// bit returns the place of a key's bit in maybe.
func (t *pairTable) bit(key uint64) (at uint64, bit uint64) {
	h := key * 0x9e3779b97f4a7c15 >> 20
	return h / 64 & uint64(len(t.maybe)-1), 1 << (h & 63)
}

func (t *pairTable) slot(key uint64) *pair {
	mask := uint64(len(t.slots) - 1)
	for h := key * 0x9e3779b97f4a7c15 >> 20; ; h++ {
		s := &t.slots[h&mask]
		if s.key == key || s.key == 0 {
			return s
		}
	}
}

// add records a merge. A pair that is listed twice keeps the later rank, as in a
// map.
func (t *pairTable) add(left, right, rank, merged uint32) {
	key := uint64(left)<<32 | uint64(right) + 1
	s := t.slot(key)
	if s.key == 0 {
		if t.n++; 4*t.n > 3*len(t.slots) {
			t.grow()
			s = t.slot(key)
		}
	}
	*s = pair{key, uint64(rank)<<32 | uint64(merged)}
	t.note(key)
}

func (t *pairTable) get(left, right uint32) uint64 {
	key := uint64(left)<<32 | uint64(right) + 1
	if at, bit := t.bit(key); t.maybe[at]&bit == 0 {
		return noMerge
	}
	if s := t.slot(key); s.key != 0 {
		return s.val
	}
	return noMerge
}

// finish prepares what is derived from the vocabulary and the merges.
func (m *bpe) finish() {
	for b := range m.byteID {
		if m.bytes {
			m.byteID[b] = m.vocab.lookup([]byte{byte(b)})
		} else {
			m.byteID[b] = m.vocab.lookup(fmt.Appendf(nil, "<0x%02X>", b))
		}
	}
	for c := range m.asciiID {
		m.asciiID[c] = m.vocab.lookup([]byte{byte(c)})
	}
	m.complete = m.bytes
	for _, id := range m.byteID {
		m.complete = m.complete && id != none
	}
	if m.complete {
		m.beside = new(bytePairs)
		for i := range uint32(m.vocab.len()) {
			m.beside.addAll(m.vocab.at(i))
		}
	}
	m.whole = make([]atomic.Uint32, (2*m.vocab.size()+31)/32)
}

// allowCuts makes pieces be cut where no token spans the cut, so that a whole segment
// does not have to be merged as one word: a merge across it would make such a token.
// They are cut before the word mark, and where every character is known, by itself or
// by its bytes, anywhere.
func (m *bpe) allowCuts(mark rune) {
	if m.bytes || m.ignoreMerges || m.unk == none || m.vocab.lookup([]byte(string(mark))) == none {
		return // a character that is dropped makes neighbours of those beside it
	}
	standIn := map[uint32]bool{m.unk: true} // what a character becomes that is no token
	known := m.fallback
	for _, id := range m.byteID {
		known = known && id != none
		if m.fallback && id != none {
			standIn[id] = true
		}
	}
	for _, p := range m.pairs.slots {
		if p.key != 0 && (standIn[uint32((p.key-1)>>32)] || standIn[uint32(p.key-1)]) {
			return // these merge, and their neighbours in tokens are not those of the text
		}
	}
	m.joins = &joins{mark: mark, anywhere: known}
	for i := range uint32(m.vocab.len()) {
		last := rune(-1)
		for _, r := range string(m.vocab.at(i)) {
			if last >= 0 {
				m.joins.add(last, r)
			}
			last = r
		}
	}
}

// joins is the set of neighbours that stand beside each other in some token. Between
// two others a piece can be cut: no merge spans the place. It may hold more pairs
// than there are, which costs a cut and nothing else.
type joins struct {
	mark     rune // how a word begins
	anywhere bool // cut not only before marks
	ascii    [128][2]uint64
	other    [1 << 15]uint64 // bits by the hash of a pair that is not ASCII
}

func (j *joins) add(a, b rune) {
	if a|b < utf8.RuneSelf {
		j.ascii[a][b>>6] |= 1 << (b & 63)
		return
	}
	h := joinHash(a, b)
	j.other[h>>6] |= 1 << (h & 63)
}

func (j *joins) has(a, b rune) bool {
	if a|b < utf8.RuneSelf {
		return j.ascii[a&127][b>>6&1]>>(b&63)&1 != 0
	}
	h := joinHash(a, b)
	return j.other[h>>6]>>(h&63)&1 != 0
}

func joinHash(a, b rune) uint64 {
	return (uint64(a)<<32 | uint64(b)) * 0x9e3779b97f4a7c15 >> (64 - 21)
}

// cuts reports whether a piece can be cut between two neighbours.
func (j *joins) cuts(a, b rune) bool { return (j.anywhere || b == j.mark) && !j.has(a, b) }

// encode appends the ids of a piece, word by word where it can be cut.
func (m *bpe) encode(dst []uint32, piece []byte, s *state) []uint32 {
	if m.joins == nil {
		return m.word(dst, piece, 0, len(piece), s)
	}
	start, last := 0, rune(-1)
	for i := 0; i < len(piece); {
		r, n := rune(piece[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRune(piece[i:])
		}
		if last >= 0 && m.joins.cuts(last, r) {
			dst = m.word(dst, piece, start, i, s)
			start = i
		}
		last = r
		i += n
	}
	return m.word(dst, piece, start, len(piece), s)
}

// word appends the ids of text[i:j], which is not to be cut any further.
func (m *bpe) word(dst []uint32, text []byte, i, j int, s *state) []uint32 {
	if j-i > maxWordLen {
		return m.merge(dst, text[i:j], s)
	}
	if i == j {
		return dst
	}
	dst, ok := s.words.get(dst, text, i, j, 0)
	if ok {
		return dst
	}
	n := len(dst)
	dst = m.merge(dst, text[i:j], s)
	s.words.put(text, i, j, 0, dst[n:])
	return dst
}

// merge appends the ids of a piece, without looking into the cache.
func (m *bpe) merge(dst []uint32, piece []byte, s *state) []uint32 {
	id := m.vocab.lookup(piece)
	if id == none {
		return m.run(dst, piece, s)
	}
	if m.ignoreMerges {
		return append(dst, id)
	}
	const known, yes = 1, 2
	w, shift := &m.whole[id/16], id%16*2
	switch w.Load() >> shift & (known | yes) {
	case known | yes:
		return append(dst, id)
	case known:
		return m.run(dst, piece, s)
	}
	n := len(dst)
	dst = m.run(dst, piece, s)
	found := uint32(known)
	if len(dst) == n+1 && dst[n] == id {
		found |= yes
	}
	w.Or(found << shift)
	return dst
}

// symbols fills the state with the symbols that a piece begins with.
func (m *bpe) symbols(piece []byte, s *state) {
	s.ids, s.starts = s.ids[:0], s.starts[:0]
	if m.complete {
		for i, b := range piece {
			s.ids = append(s.ids, m.byteID[b])
			s.starts = append(s.starts, uint32(i))
		}
		s.starts = append(s.starts, uint32(len(piece)))
		return
	}
	pending := false // an unk that is not written yet: more may join it
	for i, n := 0, 1; i < len(piece); i += n {
		id := none
		switch b := piece[i]; {
		case m.bytes:
			id = m.byteID[b]
		case b < utf8.RuneSelf:
			id, n = m.asciiID[b], 1
		default:
			_, n = utf8.DecodeRune(piece[i:])
			id = m.vocab.lookup(piece[i : i+n])
		}
		switch {
		case id != none:
			if pending {
				s.ids, pending = append(s.ids, m.unk), false
			}
			s.ids = append(s.ids, id)
		case m.fallback && m.haveBytes(piece[i:i+n]): // goes before a pending unk
			for _, b := range piece[i : i+n] {
				s.ids = append(s.ids, m.byteID[b])
			}
		case m.unk != none:
			if pending && !m.fuse {
				s.ids = append(s.ids, m.unk)
			}
			pending = true
		}
	}
	if pending {
		s.ids = append(s.ids, m.unk)
	}
}

func (m *bpe) haveBytes(b []byte) bool {
	for _, c := range b {
		if m.byteID[c] == none {
			return false
		}
	}
	return true
}
