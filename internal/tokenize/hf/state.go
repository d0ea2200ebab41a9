package hf

import (
	"runtime"
	"sync"

	"github.com/stator-ai/stator/internal/tokenize/split"
)

// keepScratch is how many elements of scratch space a state keeps after a long
// text.
const keepScratch = 1 << 18

// state is what one goroutine needs while it encodes: the word cache and scratch
// space.
type state struct {
	words   wordCache
	matches [2][]match
	norm    []byte
	hidden  []byte
	pieces  split.Pieces

	ids, starts []uint32
	links       []link
	heap        []uint64

	err error // why the text cannot be encoded
}

// trim lets go of what a long text has left behind.
func (s *state) trim() {
	if cap(s.links) > keepScratch || cap(s.ids) > keepScratch {
		s.ids, s.starts, s.links, s.heap = nil, nil, nil, nil
	}
	if cap(s.norm) > 4*keepScratch {
		s.norm = nil
	}
	if cap(s.hidden) > 4*keepScratch {
		s.hidden = nil
	}
	if cap(s.pieces.Text) > 4*keepScratch || cap(s.pieces.Spans) > keepScratch {
		s.pieces = split.Pieces{}
	}
	for i, m := range s.matches {
		if cap(m) > keepScratch {
			s.matches[i] = nil
		}
	}
}

// states keeps the states that nobody uses, as many as can be used at a time: a
// [sync.Pool] would drop the word caches at every garbage collection.
type states struct {
	mu   sync.Mutex
	free []*state
}

func (p *states) get() *state {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.free)
	if n == 0 {
		return new(state)
	}
	s := p.free[n-1]
	p.free = p.free[:n-1]
	return s
}

func (p *states) put(s *state) {
	s.trim()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) < runtime.GOMAXPROCS(0) {
		p.free = append(p.free, s)
	}
}
