package kvindex

import "github.com/stator-ai/stator/internal/kv"

// farNames is what a rank holds in a tier beyond the device's memory.
type farNames struct {
	links map[kv.BlockID]farLink
	held  map[kv.BlockID]uint32 // names by sequence hash
}

// farLink is a block in such a tier. It keeps its content whatever becomes of the
// blocks before it.
type farLink struct {
	seq     kv.BlockID
	local   kv.LocalHash
	from    origin // anchored unless it is the first of a prompt
	touched int64
}

// storeFar takes blocks in that lie beyond the device's memory. What they follow
// may lie in any tier.
func (r *rank) storeFar(t kv.Tier, from origin, blocks []kv.Block, counted bool) Status {
	seq, ok := from.seq, from.anchored || !from.has
	if !ok {
		seq, ok = r.seqOf(t, from.parent)
	}
	if ok {
		r.layFar(t, seq, from.has, from, blocks, told(counted))
		if r.orphans.count > 0 {
			r.adopt(t, seq, !from.has, blocks)
		}
		return OK
	}
	r.wait(t, from, blocks, counted)
	return ParentNotFound
}

// seqOf returns the sequence hash of a block in a tier, or else in any.
func (r *rank) seqOf(t kv.Tier, id kv.BlockID) (kv.BlockID, bool) {
	if l, ok := r.far[t].links[id]; ok {
		return l.seq, true
	}
	if p, ok := r.find(id); ok {
		return r.hash(p), true
	}
	for t := kv.Host; t < kv.NumTiers; t++ {
		if l, ok := r.far[t].links[id]; ok {
			return l.seq, true
		}
	}
	return 0, false
}

// layFar stores blocks behind one with a sequence hash, or at the beginning of a
// prompt.
func (r *rank) layFar(t kv.Tier, seq kv.BlockID, follows bool, from origin, blocks []kv.Block, how manner) {
	f := &r.far[t]
	if f.links == nil {
		f.links, f.held = map[kv.BlockID]farLink{}, map[kv.BlockID]uint32{}
	}
	for _, b := range blocks {
		if how.news() && r.knows(t, b.ID) {
			r.again(t, b.ID, how)
		}
		if how != adopted {
			r.orphans.drop(t, b.ID)
		}
		link := farLink{local: b.Tokens, touched: r.now}
		if follows {
			link.from = origin{parent: from.parent, has: true, seq: seq, anchored: true}
			seq = kv.Chain(seq, b.Tokens)
		} else {
			seq, follows = kv.BlockID(b.Tokens), true
		}
		link.seq = seq
		old, was := f.links[b.ID]
		f.links[b.ID] = link
		if !was || old.seq != seq {
			if f.held[seq]++; f.held[seq] == 1 {
				r.setFar(t, seq)
			}
			if was {
				r.losing(func() { r.dropFar(t, old.seq) })
			}
		}
		from = origin{parent: b.ID, has: true}
	}
}

// storeBare takes in copies of blocks in another tier, whose content is known from
// there.
func (r *rank) storeBare(ev *kv.Event) Status {
	st := OK
	for _, b := range ev.Blocks {
		link, ok := r.linkOf(b.ID)
		if !ok {
			st = BlockNotFound
			continue
		}
		one := []kv.Block{{ID: b.ID, Tokens: link.local}}
		if ev.Tier == kv.Device {
			r.storeNear(link.from, one, ev.Counted)
		} else {
			r.storeFar(ev.Tier, link.from, one, ev.Counted)
		}
	}
	return st
}

// linkOf returns a block as the nearest tier knows it.
func (r *rank) linkOf(id kv.BlockID) (farLink, bool) {
	if p, ok := r.find(id); ok {
		locals, hashes := r.plane.contents(r.runs[p.run].page, int(p.off)+1, nil, []kv.BlockID{})
		l := farLink{seq: hashes[p.off], local: locals[p.off]}
		if q, ok := r.before(p); ok {
			l.from = origin{parent: r.id(q), has: true, seq: r.hash(q), anchored: true}
		}
		return l, true
	}
	for t := kv.Host; t < kv.NumTiers; t++ {
		if l, ok := r.far[t].links[id]; ok {
			return l, true
		}
	}
	return farLink{}, false
}

func (r *rank) removeFar(t kv.Tier, id kv.BlockID) bool {
	f := &r.far[t]
	l, ok := f.links[id]
	if ok {
		delete(f.links, id)
		r.losing(func() { r.dropFar(t, l.seq) })
		if len(f.links) == 0 {
			*f = farNames{}
		}
	}
	return ok
}

// dropFar takes a name from a content.
func (r *rank) dropFar(t kv.Tier, seq kv.BlockID) {
	f := &r.far[t]
	if f.held[seq]--; f.held[seq] == 0 {
		delete(f.held, seq)
		r.unsetFar(t, seq)
	}
}

// losing calls do, which takes blocks out of the sight of lookups.
func (r *rank) losing(do func()) {
	version := &r.plane.versions[r.slot]
	version.Add(1)
	do()
	version.Add(1)
}

func (r *rank) setFar(t kv.Tier, seq kv.BlockID) {
	r.plane.far[t].Add(1)
	s, _ := r.plane.at(mix(uint64(seq)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lower[t].set(seq, r.slot)
}

func (r *rank) unsetFar(t kv.Tier, seq kv.BlockID) {
	r.plane.far[t].Add(-1)
	s, _ := r.plane.at(mix(uint64(seq)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lower[t].unset(seq, r.slot)
}
