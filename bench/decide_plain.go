package main

import (
	"fmt"
	"math"
	"sync"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// plainRouter decides as the router does with its defaults, in the way that is written
// first: for every rank a map of the blocks of its requests, with how many of them
// have each, beside a radix tree of what ranks hold, all behind a lock. Its workers
// have one rank each, with the ids 1 and up. It is safe for concurrent use.
type plainRouter struct {
	mu    sync.Mutex
	index indexer
	ranks []plainRank
	told  []kvindex.Overlap
	costs []plainCost
}

// plainRank is what is booked on a rank.
type plainRank struct {
	requests map[kv.BlockID]uint32 // by block
	waiting  int                   // prompt tokens yet to be computed
}

// plainCost is what a prompt costs on a rank, and the tokens of it to compute there.
type plainCost struct{ total, compute int }

// plainBooking is a request on a rank.
type plainBooking struct {
	rank, compute int
	blocks        []kv.Block
}

func newPlainRouter(ranks int) *plainRouter {
	p := &plainRouter{index: newRadixIndex(), ranks: make([]plainRank, ranks), costs: make([]plainCost, ranks)}
	for i := range p.ranks {
		p.ranks[i].requests = map[kv.BlockID]uint32{}
	}
	return p
}

// rebuild does to p what was done to a fleet, and compares the choices.
func (p *plainRouter) rebuild(f *decideFleet) error {
	for i := range f.steps {
		s := &f.steps[i]
		if s.batch != nil {
			if err := p.index.Apply(s.batch); err != nil {
				return err
			}
			continue
		}
		rank := f.rank(s.placement)
		if err := p.agrees(s.blocks, rank); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		b := p.book(s.blocks, rank)
		if s.prefilled {
			p.prefilled(&b)
		}
	}
	return nil
}

// agrees returns an error if another rank would cost less.
func (p *plainRouter) agrees(blocks []kv.Block, rank int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if best := p.choose(blocks); p.costs[best].total < p.costs[rank].total {
		return fmt.Errorf("rank %d costs %d, rank %d was chosen and costs %d", best, p.costs[best].total, rank, p.costs[rank].total)
	}
	return nil
}

// choose returns the rank where a prompt costs least, in tokens: those that wait,
// those of it that are not there, and those of the blocks that the rank would hold.
func (p *plainRouter) choose(blocks []kv.Block) int {
	p.told = p.index.Match(p.told[:0], blocks)
	for i := range p.costs {
		p.costs[i].compute = 0 // blocks that are there
	}
	for _, o := range p.told {
		p.costs[o.Source.Worker-1].compute = int(o.Depth[kv.Device])
	}
	best, least := 0, math.MaxInt
	for i := range p.ranks {
		r, c := &p.ranks[i], &p.costs[i]
		live := 0
		for live < len(blocks) && r.requests[blocks[live].ID] > 0 {
			live++
		}
		c.compute = decideBlock * (len(blocks) - max(c.compute, live))
		c.total = r.waiting + c.compute + decideBlock*(len(r.requests)+len(blocks)-live)
		if c.total < least {
			best, least = i, c.total
		}
	}
	return best
}

// place chooses a rank and books it.
func (p *plainRouter) place(blocks []kv.Block) plainBooking {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bookLocked(blocks, p.choose(blocks))
}

// book books a rank for the prompt that was asked about last.
func (p *plainRouter) book(blocks []kv.Block, rank int) plainBooking {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bookLocked(blocks, rank)
}

func (p *plainRouter) bookLocked(blocks []kv.Block, rank int) plainBooking {
	r := &p.ranks[rank]
	for _, b := range blocks {
		r.requests[b.ID]++
	}
	r.waiting += p.costs[rank].compute
	return plainBooking{rank, p.costs[rank].compute, blocks}
}

// prefilled says that the prompt has been computed.
func (p *plainRouter) prefilled(b *plainBooking) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ranks[b.rank].waiting -= b.compute
	b.compute = 0
}

// done gives the booking back.
func (p *plainRouter) done(b *plainBooking) {
	p.prefilled(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &p.ranks[b.rank]
	for _, blk := range b.blocks {
		if n := r.requests[blk.ID]; n > 1 {
			r.requests[blk.ID] = n - 1
		} else {
			delete(r.requests, blk.ID)
		}
	}
}
