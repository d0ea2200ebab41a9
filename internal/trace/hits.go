package trace

import (
	"math"
	"slices"
)

// Hits is how much of the prompts a cache would have held.
type Hits struct {
	// Blocks counts those found, leading blocks of each prompt only, partial last
	// ones included.
	Blocks int `json:"hit_blocks"`
	// BlockRatio is their share of all blocks.
	BlockRatio float64 `json:"block_ratio"`
	// TokenRatio is the share of prompt tokens in them.
	TokenRatio float64 `json:"token_ratio"`
	// FullBlocks counts those found by a cache that takes in full blocks only, as
	// those of engines do.
	FullBlocks int `json:"full_block_hits"`
}

// IdealHits returns what caches without limit would hold if requests went to
// workers in turn, in the order of the trace. There must be at least one worker.
// It takes a bit of memory per worker and different block.
func IdealHits(t *Trace, workers int) Hits {
	words := (workers + 63) / 64
	bound := t.idBound()
	return t.hits(func() cache {
		held := make([]uint64, bound*words) // a bit per worker, for each block
		return func(i int, ids []uint32, _ int) int {
			word, bit := i%workers/64, uint64(1)<<(i%workers%64)
			hit := 0
			for hit < len(ids) && held[int(ids[hit])*words+word]&bit != 0 {
				hit++
			}
			for _, id := range ids[hit:] {
				held[int(id)*words+word] |= bit
			}
			return hit
		}
	})
}

// LRUHits returns what one cache of capacity blocks would hold for all requests,
// in the order of the trace. A request uses its blocks from the last to the
// first, so that a prefix stays longer than what follows it; then the blocks go
// that were not used for longest.
func LRUHits(t *Trace, capacity int) Hits {
	bound := t.idBound()
	return t.hits(func() cache {
		l := newLRU(bound, len(t.Requests))
		return func(i int, ids []uint32, unknown int) int {
			hit := 0
			for hit < len(ids) && l.holds(ids[hit]) {
				hit++
			}
			if unknown > 0 {
				l.use(uint32(bound+i), unknown)
			}
			for _, id := range slices.Backward(ids) {
				l.use(id, 1)
			}
			l.shrink(capacity)
			return hit
		}
	})
}

// cache takes the blocks of request i in, those with ids and how many come after
// them that have none, and returns how many leading ones it held before.
type cache func(i int, ids []uint32, unknown int) int

// hits runs the trace through a new cache with all blocks, and through another
// with full blocks only.
func (t *Trace) hits(newCache func() cache) Hits {
	var h Hits
	var blocks int
	var tokens, held int64
	all, full := newCache(), newCache()
	for i := range t.Requests {
		r := &t.Requests[i]
		n := all(i, r.Blocks, t.unknown(r))
		h.Blocks += n
		whole := r.Input / t.BlockSize
		known := min(whole, len(r.Blocks))
		h.FullBlocks += full(i, r.Blocks[:known], whole-known)
		blocks += blocksOf(r.Input, t.BlockSize)
		tokens += int64(r.Input)
		held += int64(min(n*t.BlockSize, r.Input))
	}
	h.BlockRatio = ratio(h.Blocks, blocks)
	if tokens > 0 {
		h.TokenRatio = float64(held) / float64(tokens)
	}
	return h
}

// lru holds blocks in the order of their last use: a ring through two slices, in
// which the number after all others is head and tail. A block has the number of
// its id. Those of a request that have none, and so are never used again, are one
// element with the number of the request, counted from the bound of ids.
type lru struct {
	next, prev []uint32 // next is towards older; nowhere for what is not in
	bound      int
	runs       []int // how many blocks of each request's element are in
	len        int   // in blocks
}

const nowhere = math.MaxUint32

func newLRU(bound, requests int) *lru {
	n := bound + requests
	l := &lru{next: make([]uint32, n+1), prev: make([]uint32, n+1), bound: bound, runs: make([]int, requests)}
	for i := range l.next {
		l.next[i] = nowhere
	}
	l.next[n], l.prev[n] = uint32(n), uint32(n)
	return l
}

func (l *lru) holds(id uint32) bool { return l.next[id] != nowhere }

// use makes an element of some blocks the newest, and takes it in if need be.
func (l *lru) use(at uint32, blocks int) {
	if l.holds(at) {
		l.remove(at, blocks)
	}
	end := uint32(len(l.next) - 1)
	first := l.next[end]
	l.next[at], l.prev[at] = first, end
	l.next[end], l.prev[first] = at, at
	l.len += blocks
	if int(at) >= l.bound {
		l.runs[int(at)-l.bound] = blocks
	}
}

// shrink removes the oldest blocks beyond capacity.
func (l *lru) shrink(capacity int) {
	for l.len > capacity {
		oldest := l.prev[len(l.prev)-1]
		if int(oldest) < l.bound {
			l.remove(oldest, 1)
			continue
		}
		run := &l.runs[int(oldest)-l.bound]
		if over := l.len - capacity; *run > over {
			*run -= over
			l.len -= over
			return
		}
		l.remove(oldest, *run)
	}
}

func (l *lru) remove(at uint32, blocks int) {
	l.next[l.prev[at]], l.prev[l.next[at]] = l.next[at], l.prev[at]
	l.next[at] = nowhere
	l.len -= blocks
}
