package trace

import "slices"

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
		return func(i int, ids []uint32) int {
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
		l := newLRU(bound)
		return func(_ int, ids []uint32) int {
			hit := 0
			for hit < len(ids) && l.holds(ids[hit]) {
				hit++
			}
			for _, id := range slices.Backward(ids) {
				l.use(id)
			}
			for l.len > capacity {
				l.evict()
			}
			return hit
		}
	})
}

// cache takes the blocks of request i in and returns how many leading ones it
// held before.
type cache func(i int, ids []uint32) int

// hits runs the trace through a new cache with all blocks, and through another
// with full blocks only.
func (t *Trace) hits(newCache func() cache) Hits {
	var h Hits
	var blocks int
	var tokens, held int64
	all, full := newCache(), newCache()
	for i := range t.Requests {
		r := &t.Requests[i]
		n := all(i, r.Blocks)
		h.Blocks += n
		h.FullBlocks += full(i, r.Blocks[:r.Input/t.BlockSize])
		blocks += len(r.Blocks)
		tokens += int64(r.Input)
		held += int64(min(n*t.BlockSize, r.Input))
	}
	h.BlockRatio = ratio(h.Blocks, blocks)
	if tokens > 0 {
		h.TokenRatio = float64(held) / float64(tokens)
	}
	return h
}

// lru is a set of block ids in the order of their last use: a ring through two
// slices, in which the id after all others is head and tail.
type lru struct {
	next, prev []uint32 // next is towards older; nowhere for an id that is not in
	len        int
}

const nowhere = noParent

func newLRU(bound int) *lru {
	l := &lru{next: make([]uint32, bound+1), prev: make([]uint32, bound+1)}
	for i := range l.next {
		l.next[i] = nowhere
	}
	end := uint32(bound)
	l.next[end], l.prev[end] = end, end
	return l
}

func (l *lru) holds(id uint32) bool { return l.next[id] != nowhere }

// use makes an id the newest, and takes it in if need be.
func (l *lru) use(id uint32) {
	if l.holds(id) {
		l.remove(id)
	}
	end := uint32(len(l.next) - 1)
	first := l.next[end]
	l.next[id], l.prev[id] = first, end
	l.next[end], l.prev[first] = id, id
	l.len++
}

// evict removes the oldest id of a set that is not empty.
func (l *lru) evict() { l.remove(l.prev[len(l.prev)-1]) }

func (l *lru) remove(id uint32) {
	l.next[l.prev[id]], l.prev[l.next[id]] = l.next[id], l.prev[id]
	l.next[id] = nowhere
	l.len--
}
