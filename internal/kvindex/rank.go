package kvindex

import (
	"sync"
	"sync/atomic"

	"github.com/stator-ai/stator/internal/kv"
)

// none is no run.
const none = ^uint32(0)

// run is the part of a page that a rank holds: the first n of its blocks. Runs are
// a tree: the parent is the run in which the block before the page lies.
type run struct {
	page              pageRef
	parent            uint32
	child, next, prev uint32 // the first child; siblings
	pos               uint32 // of the first block in the prompt
	ids               uint32 // piece with the engine's names of the blocks
	size              uint8  // of the piece
	off               uint8  // how many of the parent's blocks lie before the page
	n                 uint8
	reach             uint8  // no child has a larger off
	dead              uint64 // a bit for each block that leaves
}

const runBytes = 40

// place is where a block of a rank lies.
type place struct {
	run uint32
	off uint8
}

// rank is what one rank holds, and by which names. Lookups never come here.
type rank struct {
	mu     sync.Mutex
	index  *Index
	source kv.Source
	plane  *plane
	slot   int
	gone   bool // replaced or removed; whoever waited for the lock asks again

	runs  []run
	spare uint32 // the run given back last; next names the one before
	roots uint32 // runs without parent
	// onPage finds runs by their pages, once somebody had to.
	onPage map[pageRef]uint32
	ids    arena // of names, and of the times when blocks were last touched
	now    int64

	names names
	// What engines that name blocks by content and position never need: further
	// names of a block, by its place; and of names with several places, or with
	// none of their own, all places, the latest last.
	aliases map[place][]kv.BlockID
	places  map[kv.BlockID][]place

	copies  [kv.NumTiers]map[kv.BlockID]uint32 // how often a block must be removed in vain
	far     [kv.NumTiers]farNames
	orphans orphans

	placed     int // blocks on the device, a block once for each name
	held       *atomic.Int64
	counts     counts   // not yet in the index's figures
	leaving    []uint32 // runs with dead blocks
	last       place    // of the block that left last
	epoch, seq uint64
	known      bool
	seen       []uint64 // scratch of distinct
	hashes     [pageBlocks]uint64
	touched    uint32 // keeps reads that have no other use
}

func (x *Index) newRank(src kv.Source, p *plane, slot int) *rank {
	r := &rank{index: x, source: src, plane: p, slot: slot, held: x.Held(src)}
	r.empty()
	return r
}

// empty forgets everything, without a word to the plane.
func (r *rank) empty() {
	r.vacate()
	r.copies, r.far = [kv.NumTiers]map[kv.BlockID]uint32{}, [kv.NumTiers]farNames{}
	r.orphans = orphans{max: r.index.cfg.MaxOrphans, copies: &r.copies}
}

// vacate forgets the blocks on the device, of which none is left in any page.
func (r *rank) vacate() {
	r.runs, r.spare, r.roots, r.onPage = nil, none, none, nil
	r.ids = arena{timed: r.index.cfg.TTL > 0 || r.index.cfg.MaxBlocks > 0}
	r.names = names{}
	r.aliases, r.places = nil, nil
	r.placed, r.leaving, r.last = 0, nil, place{run: none}
}

// sweep takes the rank out of all pages and tiers, and forgets everything. Lookups
// must not see the slot.
func (r *rank) sweep() {
	for i := range r.runs {
		if u := &r.runs[i]; u.n > 0 {
			r.plane.shrink(r.slot, u.page, 0)
		}
	}
	for t := range r.far {
		for seq := range r.far[t].held {
			r.unsetFar(kv.Tier(t), seq)
		}
	}
	r.account()
	r.empty()
	r.account()
}

// clear forgets all blocks. The rank stays, unless it has been removed or replaced
// meanwhile.
func (r *rank) clear() {
	if r.blocks() == 0 {
		return
	}
	r.plane.hide(r.slot)
	r.sweep()
	r.index.mu.RLock()
	defer r.index.mu.RUnlock()
	if r.index.ranks[r.source] == r {
		r.plane.show(r.source, r.slot, -1)
	}
}

// piece returns the names of a run's blocks, in a slice with room for as many as fit.
func (r *rank) piece(u *run) []uint64 { return r.ids.piece(u.ids, pieceSizes[u.size]) }

// times returns when a run's blocks were last touched.
func (r *rank) times(u *run) []uint64 { return r.ids.timesOf(u.ids, pieceSizes[u.size]) }

func (r *rank) id(p place) kv.BlockID {
	return kv.BlockID(*r.ids.at(r.runs[p.run].ids + uint32(p.off)))
}

// find returns the place of a block on the device that was stored last under a
// name.
func (r *rank) find(id kv.BlockID) (place, bool) {
	if len(r.places) > 0 {
		if ps := r.places[id]; len(ps) > 0 {
			return ps[len(ps)-1], true
		}
	}
	return r.own(id)
}

// hash returns the sequence hash of a block.
func (r *rank) hash(p place) kv.BlockID {
	return r.plane.hashAt(r.runs[p.run].page, int(p.off))
}

// before returns the place of the block before one, and false for the first of a
// prompt.
func (r *rank) before(p place) (place, bool) {
	if p.off > 0 {
		return place{run: p.run, off: p.off - 1}, true
	}
	u := &r.runs[p.run]
	return place{run: u.parent, off: u.off - 1}, u.parent != none
}

// addRun makes a run with one block, for a page that the rank has just entered.
func (r *rank) addRun(page pageRef, parent uint32, off int, room int) uint32 {
	at := r.spare
	if at != none {
		r.spare = r.runs[at].next
	} else {
		at = uint32(len(r.runs))
		r.runs = append(r.runs, run{})
	}
	u := &r.runs[at]
	*u = run{page: page, parent: parent, off: uint8(off), child: none, prev: none, size: sizeFor(room)}
	u.ids = r.ids.get(u.size, at)
	first := &r.roots
	if parent != none {
		up := &r.runs[parent]
		first = &up.child
		up.reach = max(up.reach, uint8(off))
		u.pos = up.pos + uint32(off)
	}
	u.next = *first
	if u.next != none {
		r.runs[u.next].prev = at
	}
	*first = at
	if r.onPage != nil {
		r.onPage[page] = at
	}
	return at
}

// dropRun gives up a run without blocks or children.
func (r *rank) dropRun(at uint32) {
	u := &r.runs[at]
	if r.onPage != nil {
		delete(r.onPage, u.page)
	}
	switch {
	case u.prev != none:
		r.runs[u.prev].next = u.next
	case u.parent != none:
		r.runs[u.parent].child = u.next
	default:
		r.roots = u.next
	}
	if u.next != none {
		r.runs[u.next].prev = u.prev
	}
	r.ids.put(u.size, u.ids)
	*u = run{next: r.spare}
	r.spare = at
}

// after returns the run that follows one in the order of the tree, parents first.
func (r *rank) after(at uint32) uint32 {
	if c := r.runs[at].child; c != none {
		return c
	}
	for at != none && r.runs[at].next == none {
		at = r.runs[at].parent
	}
	if at == none {
		return none
	}
	return r.runs[at].next
}

// runOn returns the run that lies on a page behind the first blocks of another, or at
// the beginning of a prompt. The name of its first block usually leads there. It
// returns none if the run follows something else: two contents with one hash.
func (r *rank) runOn(page pageRef, parent uint32, off int, id kv.BlockID) uint32 {
	p, ok := r.own(id)
	at := p.run
	if !ok || r.runs[at].page != page {
		if r.onPage == nil {
			r.onPage = map[pageRef]uint32{}
			for i := range r.runs {
				if u := &r.runs[i]; u.n > 0 {
					r.onPage[u.page] = uint32(i)
				}
			}
		}
		if at, ok = r.onPage[page]; !ok {
			return none
		}
	}
	if u := &r.runs[at]; u.parent != parent || parent != none && int(u.off) != off {
		return none
	}
	return at
}

// blocks counts all blocks, those that wait for others included.
func (r *rank) blocks() int {
	n := r.placed + r.orphans.count
	for t := range r.far {
		n += len(r.far[t].links)
	}
	return n
}

func (r *rank) bytes() int {
	n := cap(r.runs)*runBytes + r.ids.bytes() + r.names.bytes() + r.orphans.bytes() + 8*cap(r.seen)
	for t := range r.far {
		n += 130 * len(r.far[t].links)
	}
	for t := range r.copies {
		n += 40 * len(r.copies[t])
	}
	return n + 24*len(r.onPage) + 70*(len(r.aliases)+len(r.places))
}
