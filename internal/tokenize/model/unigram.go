package model

import (
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"
)

// unknownPenalty is how much less likely than the least likely piece a character is
// that no piece spells.
const unknownPenalty = 10

// Piece is an entry of a [Unigram] vocabulary; its index is its id.
type Piece struct {
	Text  string
	Score float64 // a logarithm of its probability
}

// Unigram cuts text into the pieces with the highest sum of scores. Of equal sums
// the one with the longer last piece counts. It does not change and is safe for
// concurrent use.
type Unigram struct {
	trie     trie
	scores   []float64
	unk      int32 // none: there is no such token
	unkScore float64
	longest  int         // bytes of the longest piece
	bytes    *[256]int32 // ids of <0x00> to <0xFF>, nil without byte fallback
	scratch  sync.Pool   // of *path
}

// NewUnigram returns a model with the given vocabulary. Unk is the id of the unknown
// token, -1 when there is none. With byteFallback set, text that no piece spells
// becomes the tokens <0x00> to <0xFF> of its bytes where the vocabulary has them all.
// Of pieces with the same text the last counts. An error says what is wrong with
// unk. Pieces are not kept.
func NewUnigram(pieces []Piece, unk int, byteFallback bool) (*Unigram, error) {
	if unk < -1 || unk >= len(pieces) {
		return nil, fmt.Errorf("unk_id: expected an id below the size of the vocabulary %d, got %d", len(pieces), unk)
	}
	m := &Unigram{
		scores:  make([]float64, len(pieces)),
		unk:     int32(unk),
		scratch: sync.Pool{New: func() any { return new(path) }},
	}
	keys := make([]string, len(pieces))
	ids := make([]uint32, len(pieces))
	for i, p := range pieces {
		keys[i], ids[i], m.scores[i] = p.Text, uint32(i), p.Score
		m.longest = max(m.longest, len(p.Text))
	}
	if len(pieces) > 0 {
		m.unkScore = slices.Min(m.scores) - unknownPenalty
	}
	m.trie = newTrie(keys, ids)
	if byteFallback {
		m.bytes = new([256]int32)
		for b := range m.bytes {
			m.bytes[b] = m.trie.get(fmt.Appendf(nil, "<0x%02X>", b))
		}
	}
	return m, nil
}

// path is the best way to each position of a text.
type path struct {
	back []link // to each position; a size of 0: none yet
	// scores of the ways to the positions that pieces can reach from where we
	// are. The length is a power of two.
	scores []float64
}

// link is the last piece on a way.
type link struct{ id, size int32 }

// maxKept bounds the links that are kept for reuse.
const maxKept = 1 << 16

// Encode appends the ids of piece to dst. The error is [ErrNoUnknown], with dst
// returned as it came. The time it takes is at most that of looking at each byte
// once for every byte of the longest vocabulary entry. Piece is read only and not
// kept; bytes in it that are not UTF-8 are characters no token spells.
func (m *Unigram) Encode(dst []uint32, piece []byte) ([]uint32, error) {
	if len(piece) == 0 {
		return dst, nil
	}
	p := m.scratch.Get().(*path)
	defer func() {
		if cap(p.back) <= maxKept {
			m.scratch.Put(p)
		}
	}()
	if err := m.search(p, piece); err != nil {
		return dst, err
	}
	return m.trace(dst, p, piece), nil
}

// search finds the best way to the end of text.
func (m *Unigram) search(p *path, text []byte) error {
	p.back = slices.Grow(p.back[:0], len(text)+1)[:len(text)+1]
	clear(p.back)
	if p.scores == nil {
		n := 8 // more than a character
		for n <= m.longest {
			n *= 2
		}
		p.scores = make([]float64, n)
	}
	mask := len(p.scores) - 1
	p.scores[0] = 0
	for at := 0; at < len(text); {
		here := p.scores[at&mask]
		char := 1
		if text[at] >= utf8.RuneSelf {
			_, char = utf8.DecodeRune(text[at:])
		}
		single := false
		node := root
		for i := at; i < len(text); i++ {
			if node = m.trie.child(node, text[i]); node == none {
				break
			}
			id := m.trie.slots[node].value
			if id == none {
				continue
			}
			end := i + 1
			score := m.scores[id] + here
			if p.back[end].size == 0 || score > p.scores[end&mask] {
				p.scores[end&mask] = score
				p.back[end] = link{id, int32(end - at)}
			}
			single = single || end-at == char
		}
		if !single {
			end := at + char
			score := m.unkScore + here
			if p.back[end].size == 0 || score > p.scores[end&mask] {
				if m.unk == none {
					return ErrNoUnknown
				}
				p.scores[end&mask] = score
				p.back[end] = link{m.unk, int32(char)}
			}
		}
		at += char
	}
	return nil
}

// trace appends the ids on the way to the end of text. Neighbouring unknown tokens
// become one.
func (m *Unigram) trace(dst []uint32, p *path, text []byte) []uint32 {
	at := len(dst)
	for end := len(text); end > 0; {
		l := p.back[end]
		start := end - int(l.size)
		if l.id != m.unk {
			dst = append(dst, uint32(l.id))
			end = start
			continue
		}
		for start > 0 && p.back[start].id == m.unk {
			start -= int(p.back[start].size)
		}
		dst = m.unknown(dst, text[start:end])
		end = start
	}
	slices.Reverse(dst[at:])
	return dst
}

// unknown appends the ids of text that was found to be unknown, last first.
func (m *Unigram) unknown(dst []uint32, text []byte) []uint32 {
	// The parts together may be a piece after all: the unknown token's own
	// spelling, say.
	if len(text) <= m.longest {
		if id := m.trie.get(text); id != none {
			return append(dst, uint32(id))
		}
	}
	if m.bytes != nil && !slices.ContainsFunc(text, func(b byte) bool { return m.bytes[b] == none }) {
		for _, b := range slices.Backward(text) {
			dst = append(dst, uint32(m.bytes[b]))
		}
		return dst
	}
	return append(dst, uint32(m.unk))
}
