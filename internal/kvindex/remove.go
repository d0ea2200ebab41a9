package kvindex

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/stator-ai/stator/internal/kv"
)

// remove takes an event Removed in. Blocks on the device only begin to leave: until
// settle they are counted as there.
func (r *rank) remove(ev *kv.Event) Status {
	st := OK
	plain := ev.Tier == kv.Device && len(r.copies[kv.Device])+r.orphans.count+len(r.places) == 0
	for _, b := range ev.Blocks {
		if plain {
			if p, ok := r.near(b.ID); ok {
				r.unname(p)
				continue
			}
		}
		if !r.removeOne(ev.Tier, b.ID, ev.Counted) {
			st = BlockNotFound
		}
	}
	return st
}

func (r *rank) removeOne(t kv.Tier, id kv.BlockID, counted bool) bool {
	if len(r.copies[t]) > 0 {
		if n := r.copies[t][id]; counted && n > 1 {
			r.copies[t][id] = n - 1
			return true
		} else if n > 0 {
			delete(r.copies[t], id)
			if counted {
				return true
			}
		}
	}
	found := r.orphans.drop(t, id)
	if t != kv.Device {
		return r.removeFar(t, id) || found
	}
	if len(r.places) > 0 {
		if ps := r.places[id]; len(ps) > 0 {
			delete(r.places, id)
			for _, p := range ps {
				r.leave(p, id)
			}
			return true
		}
	}
	p, ok := r.near(id)
	if !ok {
		p, ok = r.own(id)
	}
	if ok {
		r.unname(p)
	}
	return ok || found
}

// near returns the place of a block if it is next to the one that left last, as it
// mostly is: engines give up prompts from the end, or whole stretches from their
// beginning.
func (r *rank) near(id kv.BlockID) (place, bool) {
	p := r.last
	if p.run == none {
		return p, false
	}
	if before, ok := r.before(p); ok && r.named(before, id) {
		return before, true
	}
	p.off++
	return p, r.named(p, id)
}

// named reports whether there is a block at a place, and with that as its own name.
func (r *rank) named(p place, id kv.BlockID) bool {
	u := &r.runs[p.run]
	return p.off < u.n && u.dead>>p.off&1 == 0 && r.piece(u)[p.off] == uint64(id)
}

// leave takes a name from a block. With its last one the block leaves.
func (r *rank) leave(p place, id kv.BlockID) {
	if r.id(p) == id {
		r.unname(p)
		return
	}
	r.placed--
	r.setAliases(p, slices.DeleteFunc(r.aliases[p], func(o kv.BlockID) bool { return o == id }))
}

// unname lets a block leave whose own name is gone, unless it has another one.
func (r *rank) unname(p place) {
	r.placed--
	u := &r.runs[p.run]
	if len(r.aliases) > 0 {
		if others := r.aliases[p]; len(others) > 0 {
			r.piece(u)[p.off] = uint64(others[0])
			r.addName(others[0], p)
			r.setAliases(p, others[1:])
			return
		}
	}
	if u.dead == 0 {
		r.leaving = append(r.leaving, p.run)
	}
	u.dead |= 1 << p.off
	r.last = p
}

func (r *rank) setAliases(p place, ids []kv.BlockID) {
	if len(ids) == 0 {
		delete(r.aliases, p)
	} else {
		r.aliases[p] = ids
	}
}

// settle lets go of the blocks that leave. Blocks behind them that stay become
// orphans. It goes from the end of prompts to their beginning, so that a lookup
// never sees a block of a rank without those before it.
func (r *rank) settle() {
	if len(r.leaving) == 0 {
		return
	}
	version := &r.plane.versions[r.slot]
	version.Add(1)
	slices.SortFunc(r.leaving, func(a, b uint32) int { return cmp.Compare(r.runs[b].pos, r.runs[a].pos) })
	for _, at := range r.leaving {
		u := &r.runs[at]
		keep := bits.TrailingZeros64(u.dead)
		if u.dead>>keep != 1<<(int(u.n)-keep)-1 || r.branches(u, keep) {
			r.strand(at, keep)
		}
		u.n, u.dead = uint8(keep), 0
		r.plane.shrink(r.slot, u.page, keep)
		if keep == 0 {
			if r.last.run == at {
				r.last = place{run: u.parent, off: u.off}
			}
			r.dropRun(at)
		}
	}
	r.leaving = r.leaving[:0]
	version.Add(1)
	if r.placed == 0 {
		r.vacate()
	} else {
		r.trimNames()
	}
}

// branches reports whether a run has children behind its first blocks.
func (r *rank) branches(u *run, keep int) bool {
	if int(u.reach) <= keep {
		return false
	}
	u.reach = 0
	for c := u.child; c != none; c = r.runs[c].next {
		u.reach = max(u.reach, r.runs[c].off)
	}
	return int(u.reach) > keep
}

// strand makes orphans of the blocks of a run from one on, those that leave left
// out, and of everything behind.
func (r *rank) strand(at uint32, keep int) {
	type branch struct {
		at  uint32
		seq kv.BlockID // of the block before it
	}
	var below []branch // parents before children
	locals, hashes := r.plane.contents(r.runs[at].page, int(r.runs[at].n), nil, []kv.BlockID{})
	for c := r.runs[at].child; c != none; c = r.runs[c].next {
		if off := int(r.runs[c].off); off > keep {
			below = append(below, branch{c, hashes[off-1]})
		}
	}
	var held []kv.Block
	r.park(at, keep, locals, hashes, kv.BlockID(0), &held)
	for i := 0; i < len(below); i++ {
		b := below[i]
		u := &r.runs[b.at]
		l, h := r.plane.contents(u.page, int(u.n), locals[:0], hashes[:0])
		for c := u.child; c != none; c = r.runs[c].next {
			below = append(below, branch{c, h[r.runs[c].off-1]})
		}
		r.park(b.at, 0, l, h, b.seq, &held)
		locals, hashes = l, h
	}
	for _, b := range slices.Backward(below) {
		u := &r.runs[b.at]
		u.n = 0
		r.plane.shrink(r.slot, u.page, 0)
		r.dropRun(b.at)
	}
}

// park makes orphans of the blocks of a run that stay, from one on. They keep
// their names and lose their places.
func (r *rank) park(at uint32, keep int, locals []kv.LocalHash, hashes []kv.BlockID, before kv.BlockID, held *[]kv.Block) {
	u := &r.runs[at]
	piece := r.piece(u)
	parent := func(o int) origin {
		from := origin{has: true, anchored: true, seq: before}
		if o > 0 {
			from.seq = hashes[o-1]
		}
		p, _ := r.before(place{at, uint8(o)}) // the first of a prompt never waits
		from.parent = r.id(p)
		return from
	}
	blocks := (*held)[:0]
	start := keep
	flush := func(end int) {
		if len(blocks) > 0 {
			r.orphans.park(kv.Device, parent(start), blocks, r.now)
		}
		blocks = blocks[:0]
		start = end + 1
	}
	for o := keep; o < int(u.n); o++ {
		if u.dead>>o&1 != 0 {
			flush(o)
			continue
		}
		p := place{at, uint8(o)}
		id := kv.BlockID(piece[o])
		r.lose(p, id)
		blocks = append(blocks, kv.Block{ID: id, Tokens: locals[o]})
		for _, other := range r.aliases[p] {
			r.lose(p, other)
			r.orphans.park(kv.Device, parent(o), []kv.Block{{ID: other, Tokens: locals[o]}}, r.now)
		}
		delete(r.aliases, p)
	}
	flush(int(u.n))
	*held = blocks
}

// lose takes a place from the places of a name.
func (r *rank) lose(p place, id kv.BlockID) {
	r.placed--
	ps := r.places[id]
	if len(ps) == 0 {
		return
	}
	ps = slices.DeleteFunc(ps, func(o place) bool { return o == p })
	switch {
	case len(ps) == 0:
		delete(r.places, id)
	case len(ps) == 1 && r.id(ps[0]) == id:
		delete(r.places, id) // the only one, and its own
	default:
		r.places[id] = ps
	}
}
