package kvindex

import (
	"iter"
	"slices"

	"github.com/stator-ai/stator/internal/kv"
)

// Dump is a copy of what a rank holds.
type Dump struct {
	// Source, Epoch and Seq are the rank and the last batch that the dump knows.
	Source     kv.Source
	Epoch, Seq uint64
	// Known is false for a rank that has had no batch; Seq says nothing then.
	Known bool
	// Blocks is how many blocks the rank holds.
	Blocks int

	blocks []kv.Block
	spans  []span
}

// span is some of a dump's blocks that make an event.
type span struct {
	tier    kv.Tier
	counted bool
	from    origin
	end     int // in blocks; it begins where the one before ends
}

// All returns the events that make an empty rank hold what this one holds. On the
// device blocks come after those they follow; everywhere else an event says which
// content it follows. An event is valid until the next.
func (d *Dump) All() iter.Seq[*kv.Event] {
	return func(yield func(*kv.Event) bool) {
		begin := 0
		var ev kv.Event
		for _, s := range d.spans {
			ev = kv.Event{
				Kind: kv.Stored, Tier: s.tier, Counted: s.counted, Blocks: d.blocks[begin:s.end:s.end],
				Parent: s.from.parent, HasParent: s.from.has, ParentSeq: s.from.seq, HasParentSeq: s.from.anchored,
			}
			begin = s.end
			if !yield(&ev) {
				return
			}
		}
	}
}

func (d *Dump) add(t kv.Tier, from origin, counted bool, blocks ...kv.Block) {
	d.blocks = append(d.blocks, blocks...)
	d.spans = append(d.spans, span{tier: t, counted: counted, from: from, end: len(d.blocks)})
}

// addStretch adds blocks that wait. One event does not name two blocks alike.
func (d *Dump) addStretch(s *stretch) {
	from, begin := s.from, 0
	next := from
	for i, b := range s.blocks {
		if slices.ContainsFunc(s.blocks[begin:i], func(o kv.Block) bool { return o.ID == b.ID }) {
			d.add(s.tier, from, false, s.blocks[begin:i]...)
			from, begin = next, i
		}
		next.parent = b.ID
		next.seq = kv.Chain(next.seq, b.Tokens)
	}
	d.add(s.tier, from, false, s.blocks[begin:]...)
}

// Dump returns a copy of what a rank holds, and whether the rank is known. Other
// ranks and lookups go on meanwhile.
func (x *Index) Dump(src kv.Source) (*Dump, bool) {
	if x == nil {
		return nil, false
	}
	r := x.locked(src)
	if r == nil {
		return nil, false
	}
	defer r.mu.Unlock()
	return r.dump(), true
}

func (r *rank) dump() *Dump {
	d := &Dump{Source: r.source, Epoch: r.epoch, Seq: r.seq, Known: r.known, Blocks: r.blocks()}
	d.blocks = make([]kv.Block, 0, d.Blocks)
	r.dumpNear(d)
	for t := range r.far {
		for id, l := range r.far[t].links {
			d.add(kv.Tier(t), l.from, false, kv.Block{ID: id, Tokens: l.local})
		}
	}
	r.dumpCopies(d, false)
	for s := r.orphans.oldest; s != nil; s = s.next {
		d.addStretch(s)
	}
	r.dumpCopies(d, true)
	return d
}

// dumpCopies adds the further copies of blocks that wait, or of those that do not.
func (r *rank) dumpCopies(d *Dump, waiting bool) {
	for t := range r.copies {
		for id, n := range r.copies[t] {
			from, b, waits, ok := r.recall(kv.Tier(t), id)
			for ; ok && n > 0 && waits == waiting; n-- {
				d.add(kv.Tier(t), from, true, b)
			}
		}
	}
}

// dumpNear adds the blocks on the device.
func (r *rank) dumpNear(d *Dump) {
	type step struct {
		at  uint32
		seq kv.BlockID // of the block before
	}
	var todo []step
	for at := r.roots; at != none; at = r.runs[at].next {
		todo = append(todo, step{at: at})
	}
	var locals []kv.LocalHash
	var hashes []kv.BlockID
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		u := &r.runs[s.at]
		locals, hashes = r.plane.contents(u.page, int(u.n), locals[:0], append(hashes[:0], 0)[:0])
		from := origin{}
		if p, ok := r.before(place{run: s.at}); ok {
			from = origin{parent: r.id(p), has: true, seq: s.seq, anchored: true}
		}
		first := from
		piece := r.piece(u)
		begin := len(d.blocks)
		for o := range int(u.n) {
			id := kv.BlockID(piece[o])
			if len(r.places) > 0 && slices.ContainsFunc(d.blocks[begin:], func(b kv.Block) bool { return b.ID == id }) {
				// One event does not name two blocks alike.
				d.add(kv.Device, from, false)
				begin, from = len(d.blocks), origin{parent: kv.BlockID(piece[o-1]), has: true, seq: hashes[o-1], anchored: true}
			}
			d.blocks = append(d.blocks, kv.Block{ID: id, Tokens: locals[o]})
		}
		d.add(kv.Device, from, false)
		for o := range int(u.n) {
			if len(r.aliases) == 0 {
				break
			}
			for _, id := range r.aliases[place{s.at, uint8(o)}] {
				from := first
				if o > 0 {
					from = origin{parent: kv.BlockID(piece[o-1]), has: true, seq: hashes[o-1], anchored: true}
				}
				d.add(kv.Device, from, false, kv.Block{ID: id, Tokens: locals[o]})
			}
		}
		for c := u.child; c != none; c = r.runs[c].next {
			todo = append(todo, step{c, hashes[r.runs[c].off-1]})
		}
	}
}

// recall returns a block as it would be stored, and whether it only waits.
func (r *rank) recall(t kv.Tier, id kv.BlockID) (from origin, b kv.Block, waits, ok bool) {
	if t == kv.Device {
		if _, ok := r.find(id); ok {
			l, _ := r.linkOf(id)
			return l.from, kv.Block{ID: id, Tokens: l.local}, false, true
		}
	} else if l, ok := r.far[t].links[id]; ok {
		return l.from, kv.Block{ID: id, Tokens: l.local}, false, true
	}
	for _, s := range r.orphans.at[tierName{t, id}] {
		from = s.from
		for _, b = range s.blocks {
			if b.ID == id {
				return from, b, true, true
			}
			from.parent = b.ID
			if from.anchored {
				from.seq = kv.Chain(from.seq, b.Tokens)
			}
		}
	}
	return origin{}, kv.Block{}, false, false
}

// Restore replaces what a rank holds by what the events make an empty one hold, and
// its epoch and sequence number by those given. A lookup sees the old, or the new,
// or for an instant neither. If events yields an error, Restore returns it and the
// rank stays as it was. It keeps nothing of the events.
func (x *Index) Restore(src kv.Source, epoch, seq uint64, events iter.Seq2[*kv.Event, error]) error {
	if x == nil {
		return nil
	}
	x.mu.Lock()
	fresh, _ := x.seat(src, len(*x.planes.Load())+1)
	x.mu.Unlock()
	if err := x.rebuild(fresh, epoch, seq, events); err != nil {
		return err
	}
	x.moveDown(fresh)
	x.prune()
	return nil
}

// rebuild fills a rank that no lookup sees, and lets it take the place of the one with
// its source.
func (x *Index) rebuild(fresh *rank, epoch, seq uint64, events iter.Seq2[*kv.Event, error]) error {
	fresh.mu.Lock()
	defer fresh.mu.Unlock()
	fresh.now = x.now.Load()
	fresh.epoch, fresh.seq, fresh.known = epoch, seq, true
	for ev, err := range events {
		if err != nil {
			fresh.retire()
			return err
		}
		switch {
		case ev.Tier >= kv.NumTiers:
		case ev.Kind == kv.Stored:
			fresh.settle()
			fresh.store(ev)
		case ev.Kind == kv.Removed:
			fresh.remove(ev)
		case ev.Kind == kv.Cleared:
			fresh.settle()
			fresh.sweep()
		}
	}
	fresh.settle()
	fresh.counts.duplicates = 0 // they are our own
	fresh.account()
	x.mu.Lock()
	old := x.ranks[fresh.source]
	x.replace(fresh, old)
	x.mu.Unlock()
	if old != nil {
		old.mu.Lock()
		defer old.mu.Unlock()
		old.retire()
	}
	return nil
}

// replace lets lookups see a rank instead of the one that has its source, which may be
// nil. The caller holds the index's lock.
func (x *Index) replace(fresh, old *rank) {
	x.ranks[fresh.source] = fresh
	hidden := -1
	if old != nil {
		if old.plane == fresh.plane {
			hidden = old.slot
		} else {
			old.plane.hide(old.slot)
		}
	}
	fresh.plane.show(fresh.source, fresh.slot, hidden)
}

// moveDown moves a rank to an earlier plane if one has room. A rank that was restored
// beside the one it replaces may have opened a plane of its own, which every lookup
// would have to walk.
func (x *Index) moveDown(r *rank) {
	at := slices.Index(*x.planes.Load(), r.plane)
	if at <= 0 {
		return
	}
	x.mu.Lock()
	fresh, ok := x.seat(r.source, at)
	x.mu.Unlock()
	if !ok {
		return
	}
	// Whoever wants to change the rank meanwhile waits, and is then sent to the copy.
	r.mu.Lock()
	defer r.mu.Unlock()
	fresh.mu.Lock()
	defer fresh.mu.Unlock()
	fresh.now = r.now
	fresh.epoch, fresh.seq, fresh.known = r.epoch, r.seq, r.known
	for ev := range r.dump().All() {
		fresh.store(ev)
	}
	fresh.counts.duplicates = 0
	fresh.account()
	x.mu.Lock()
	there := x.ranks[r.source] == r
	if there {
		x.replace(fresh, r)
	}
	x.mu.Unlock()
	if there {
		r.retire()
	} else {
		fresh.retire() // the rank was removed or replaced meanwhile
	}
}
