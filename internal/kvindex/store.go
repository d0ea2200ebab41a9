package kvindex

import (
	"math/bits"
	"slices"

	"github.com/stator-ai/stator/internal/kv"
)

// store takes an event Stored in.
func (r *rank) store(ev *kv.Event) Status {
	if !r.distinct(ev) {
		return Invalid
	}
	switch {
	case len(ev.Blocks) == 0:
		return OK
	case ev.Bare:
		return r.storeBare(ev)
	case ev.Tier != kv.Device:
		return r.storeFar(ev.Tier, origin{ev.Parent, ev.HasParent, ev.ParentSeq, ev.HasParentSeq}, ev.Blocks, ev.Counted)
	default:
		return r.storeNear(origin{ev.Parent, ev.HasParent, ev.ParentSeq, ev.HasParentSeq}, ev.Blocks, ev.Counted)
	}
}

// distinct reports whether no name occurs twice in an event. Where the hash of the
// block before is known, its name may.
func (r *rank) distinct(ev *kv.Event) bool {
	blocks := ev.Blocks
	parent := ev.HasParent && !ev.HasParentSeq
	if len(blocks) <= 8 {
		for i, b := range blocks {
			if parent && b.ID == ev.Parent {
				return false
			}
			for _, c := range blocks[:i] {
				if b.ID == c.ID {
					return false
				}
			}
		}
		return true
	}
	if len(blocks) > 4096 {
		return r.distinctMany(ev)
	}
	// Mostly a bit for each name, of many times as many, is enough to see that they
	// differ.
	width := bits.Len(uint(32 * len(blocks)))
	seen := r.scratch(1 << (width - 6))
	for i, b := range blocks {
		h := mix(uint64(b.ID)) >> (64 - width)
		w := &seen[h/64]
		if bit := uint64(1) << (h % 64); *w&bit == 0 {
			*w |= bit
		} else if slices.ContainsFunc(blocks[:i], func(o kv.Block) bool { return o.ID == b.ID }) {
			return false
		}
		if parent && b.ID == ev.Parent {
			return false
		}
	}
	return true
}

// distinctMany is distinct for an event of many blocks: with a hash table.
func (r *rank) distinctMany(ev *kv.Event) bool {
	size := 1 << bits.Len(uint(2*len(ev.Blocks)))
	seen := r.scratch(size)
	defer func() { r.seen = nil }()
	zero := false
	for _, b := range ev.Blocks {
		switch {
		case b.ID == ev.Parent && ev.HasParent && !ev.HasParentSeq, b.ID == 0 && zero:
			return false
		case b.ID == 0: // which marks what is free
			zero = true
			continue
		}
		i := mix(uint64(b.ID)) & uint64(size-1)
		for seen[i] != 0 {
			if seen[i] == uint64(b.ID) {
				return false
			}
			i = (i + 1) & uint64(size-1)
		}
		seen[i] = uint64(b.ID)
	}
	return true
}

// scratch returns n words that are 0, until it is called again.
func (r *rank) scratch(n int) []uint64 {
	if cap(r.seen) < n {
		r.seen = make([]uint64, n)
	}
	words := r.seen[:n]
	clear(words)
	return words
}

// origin is what a stored block follows: nothing, or a block with a name, or one
// with a sequence hash, which then counts.
type origin struct {
	parent   kv.BlockID
	has      bool
	seq      kv.BlockID
	anchored bool
}

// storeNear takes blocks in that lie on the device. If what they follow is not
// there they wait for it.
func (r *rank) storeNear(from origin, blocks []kv.Block, counted bool) Status {
	at, ok := place{run: none}, true
	if from.has {
		at, ok = r.follow(from)
	}
	if ok {
		if !r.put(at, blocks, told(counted)) {
			return Invalid
		}
		return OK
	}
	r.wait(kv.Device, from, blocks, counted)
	return ParentNotFound
}

// follow returns where the block after an origin goes.
func (r *rank) follow(from origin) (place, bool) {
	p, ok := r.find(from.parent)
	if !ok {
		return place{}, false
	}
	if from.anchored && r.hash(p) != from.seq {
		i := slices.IndexFunc(r.places[from.parent], func(p place) bool { return r.hash(p) == from.seq })
		if i < 0 {
			return place{}, false
		}
		p = r.places[from.parent][i]
	}
	p.off++
	return p, true
}

// wait parks blocks, counting those that were known already.
func (r *rank) wait(t kv.Tier, from origin, blocks []kv.Block, counted bool) {
	for _, b := range blocks {
		if r.knows(t, b.ID) {
			r.again(t, b.ID, told(counted))
			r.orphans.drop(t, b.ID)
		}
	}
	r.orphans.park(t, from, blocks, r.now)
}

// knows reports whether a block is there by a name, or waits.
func (r *rank) knows(t kv.Tier, id kv.BlockID) bool {
	if r.orphans.waits(t, id) {
		return true
	}
	if t != kv.Device {
		_, ok := r.far[t].links[id]
		return ok
	}
	_, ok := r.find(id)
	return ok
}

// again counts a block that was stored while it was there.
func (r *rank) again(t kv.Tier, id kv.BlockID, how manner) {
	r.counts.duplicates++
	if how == toldCounted {
		if r.copies[t] == nil {
			r.copies[t] = map[kv.BlockID]uint32{}
		}
		r.copies[t][id]++
	}
}

// manner is how blocks come to be stored.
type manner uint8

const (
	adopted     manner = iota // they waited for one that came
	routed                    // they were only predicted
	toldOnce                  // the engine told of them
	toldCounted               // and tells of every copy
)

func told(counted bool) manner {
	if counted {
		return toldCounted
	}
	return toldOnce
}

// news reports whether it is news to hear of a block.
func (m manner) news() bool { return m >= toldOnce }

// put stores blocks at a place and behind it, and then what waited for them. It
// reports whether all were stored.
func (r *rank) put(at place, blocks []kv.Block, how manner) bool {
	n := r.lay(at, blocks, how)
	if r.orphans.count > 0 {
		r.adopt(kv.Device, r.hashBefore(at), at.run == none, blocks[:n])
	}
	return n == len(blocks)
}

// hashBefore returns the sequence hash of the block before a place, 0 at the
// beginning of a prompt.
func (r *rank) hashBefore(at place) kv.BlockID {
	if at.run == none {
		return 0
	}
	return r.hash(place{run: at.run, off: at.off - 1})
}

// lay stores blocks at a place and behind it, page by page, and returns how many: it
// stops where a hash stands for another content.
func (r *rank) lay(at place, blocks []kv.Block, how manner) int {
	run, off, all := at.run, int(at.off), len(blocks)
	if r.ids.timed {
		r.refresh(at)
	}
	for len(blocks) > 0 {
		if run != none && off < pageBlocks {
			if n := r.plane.fill(r.slot, r.runs[run].page, off, blocks); n > 0 {
				r.name(run, off, blocks[:n], how)
				blocks = blocks[n:]
				off += n
				continue
			}
		}
		before := r.hashBefore(place{run: run, off: uint8(off)})
		page, was := r.plane.enter(r.slot, before, run == none, blocks[0].Tokens, len(blocks))
		switch was {
		case entered:
			run = r.addRun(page, run, off, len(blocks))
		case held:
			run = r.runOn(page, run, off, blocks[0].ID)
		}
		if was == taken || run == none {
			break
		}
		r.name(run, 0, blocks[:1], how)
		blocks, off = blocks[1:], 1
	}
	return all - len(blocks)
}

// refresh notes that the blocks before a place were touched, since one behind them is:
// so none expires before those that need it.
func (r *rank) refresh(at place) {
	run, off := at.run, at.off
	for run != none {
		u := &r.runs[run]
		times := r.times(u)[:off]
		if len(times) > 0 && times[len(times)-1] == uint64(r.now) {
			return
		}
		for i := range times {
			times[i] = uint64(r.now)
		}
		run, off = u.parent, u.off
	}
}

// name records the names of blocks of a run, from one of them on. The rank holds
// them already or they are the next.
func (r *rank) name(at uint32, off int, blocks []kv.Block, how manner) {
	u := &r.runs[at]
	if n := off + len(blocks); n > pieceSizes[u.size] {
		r.widen(at, n)
	}
	piece := r.piece(u)
	before := int(u.n)
	r.reserveNames(len(blocks))
	var touched uint32
	for i, b := range blocks {
		r.hashes[i] = mix(uint64(b.ID))
		touched ^= r.names.touch(r.hashes[i])
	}
	r.touched = touched
	for i, b := range blocks {
		o := off + i
		if o < before {
			p := place{run: at, off: uint8(o)}
			if piece[o] == uint64(b.ID) {
				r.stored(p, b.ID, how)
			} else {
				r.alias(p, b.ID, how)
			}
			continue
		}
		other, slot, ok := r.search(r.hashes[i], b.ID)
		if ok || len(r.places) > 0 || r.orphans.count > 0 {
			r.elsewhere(place{run: at, off: uint8(o)}, b.ID, other, ok, how)
		}
		piece[o] = uint64(b.ID)
		u.n = uint8(o + 1)
		if word := u.ids + uint32(o); ok {
			r.putName(uint64(b.ID), word)
		} else {
			r.names.set(slot, r.hashes[i], word)
		}
	}
	if r.ids.timed {
		times := r.times(u)[off:]
		for i := range blocks {
			times[i] = uint64(r.now)
		}
	}
	r.placed += int(u.n) - before
}

// elsewhere notes that a block comes to a place, whose name may be known from
// another place, if ok, or from waiting.
func (r *rank) elsewhere(p place, id kv.BlockID, other place, ok bool, how manner) {
	if how.news() && (ok || r.knows(kv.Device, id)) {
		r.again(kv.Device, id, how)
	}
	if ps := r.places[id]; ok || len(ps) > 0 {
		if len(ps) == 0 {
			ps = append(ps, other)
		}
		r.setPlaces(id, append(ps, p))
	}
	if how != adopted {
		r.orphans.drop(kv.Device, id)
	}
}

// widen moves the names of a run to a larger piece.
func (r *rank) widen(at uint32, n int) {
	u := &r.runs[at]
	old := *u
	u.size = sizeFor(n)
	u.ids = r.ids.get(u.size, at)
	copy(r.piece(u), r.piece(&old)[:u.n])
	if r.ids.timed {
		copy(r.times(u), r.times(&old)[:u.n])
	}
	r.ids.put(old.size, old.ids)
	r.reserveNames(int(u.n))
	for o, id := range r.piece(u)[:u.n] {
		r.putName(id, u.ids+uint32(o))
	}
}

// stored notes that a block was stored again where it is, under the name it has
// there.
func (r *rank) stored(p place, id kv.BlockID, how manner) {
	if how.news() {
		r.again(kv.Device, id, how)
	}
	if len(r.places) > 0 {
		if ps := r.places[id]; len(ps) > 0 {
			r.latest(ps, p)
		}
	}
	if how != adopted {
		r.orphans.drop(kv.Device, id)
	}
}

// latest makes a place the last of those of a name.
func (r *rank) latest(ps []place, p place) {
	i := slices.Index(ps, p)
	copy(ps[i:], ps[i+1:])
	ps[len(ps)-1] = p
}

func (r *rank) setPlaces(id kv.BlockID, ps []place) {
	if r.places == nil {
		r.places = map[kv.BlockID][]place{}
	}
	r.places[id] = ps
}

// alias gives a block that has a name another one.
func (r *rank) alias(p place, id kv.BlockID, how manner) {
	if slices.Contains(r.aliases[p], id) {
		r.stored(p, id, how)
		return
	}
	if how.news() && r.knows(kv.Device, id) {
		r.again(kv.Device, id, how)
	}
	ps := r.places[id]
	if len(ps) == 0 {
		if other, ok := r.own(id); ok {
			ps = append(ps, other)
		}
	}
	r.setPlaces(id, append(ps, p))
	if r.aliases == nil {
		r.aliases = map[place][]kv.BlockID{}
	}
	r.aliases[p] = append(r.aliases[p], id)
	r.placed++
	if how != adopted {
		r.orphans.drop(kv.Device, id)
	}
}

// adopt stores what waited for blocks that have just been placed in a tier, behind one
// with a sequence hash or at the beginning of a prompt.
func (r *rank) adopt(t kv.Tier, before kv.BlockID, first bool, blocks []kv.Block) {
	type batch struct {
		tier   kv.Tier
		before kv.BlockID
		first  bool
		blocks []kv.Block
	}
	todo := []batch{{t, before, first, blocks}}
	for len(todo) > 0 && r.orphans.count > 0 {
		next := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		seq, first := next.before, next.first
		for _, b := range next.blocks {
			if first {
				seq, first = kv.BlockID(b.Tokens), false
			} else {
				seq = kv.Chain(seq, b.Tokens)
			}
			if next.tier == kv.Device {
				for o := r.orphans.takeHash(seq); o != nil; o = r.orphans.takeHash(seq) {
					n := r.layBehind(b.ID, seq, o)
					todo = append(todo, batch{kv.Device, seq, false, o.blocks[:n]})
				}
				for o := r.orphans.takeName(kv.Device, b.ID); o != nil; o = r.orphans.takeName(kv.Device, b.ID) {
					n := r.layBehind(b.ID, seq, o)
					todo = append(todo, batch{kv.Device, seq, false, o.blocks[:n]})
				}
			}
			for t := kv.Host; t < kv.NumTiers; t++ {
				r.orphans.cut(t, b.ID)
				for o := r.orphans.takeName(t, b.ID); o != nil; o = r.orphans.takeName(t, b.ID) {
					r.layFar(t, seq, true, origin{parent: b.ID, has: true}, o.blocks, adopted)
					todo = append(todo, batch{t, seq, false, o.blocks})
				}
			}
		}
	}
}

// layBehind stores a stretch behind a block that has a name and a sequence hash, and
// returns how much of it. The rest is forgotten.
func (r *rank) layBehind(id, seq kv.BlockID, s *stretch) int {
	n := 0
	if p, ok := r.follow(origin{parent: id, has: true, seq: seq, anchored: true}); ok {
		n = r.lay(p, s.blocks, adopted)
	}
	r.orphans.lose(s.tier, s.blocks[n:])
	return n
}
