package kvindex

import (
	"slices"

	"github.com/stator-ai/stator/internal/kv"
)

// orphans are blocks that a rank holds behind one that it does not hold, or not
// yet. They wait in stretches: for the block before the first of a stretch, by its
// name, or by its sequence hash where that is known. Stretches are short, so that
// taking a block out of one costs little; the ones of a longer piece wait for each
// other.
type orphans struct {
	max, count     int // blocks
	lost           int // those of them that wait for a name
	stretches      int
	forgotten      uint64
	byName         map[tierName]*stretch // the first of a ring
	byHash         map[kv.BlockID]*stretch
	at             map[tierName][]*stretch // by the names of their blocks
	oldest, newest *stretch
	copies         *[kv.NumTiers]map[kv.BlockID]uint32 // of the rank
}

type tierName struct {
	tier kv.Tier
	id   kv.BlockID
}

const stretchBlocks = 64

// stretch is up to stretchBlocks blocks that wait.
type stretch struct {
	tier       kv.Tier
	from       origin
	blocks     []kv.Block
	since      int64
	prev, next *stretch // by age
	// In the ring of those that wait for the same.
	before, after *stretch
}

// park lets blocks wait. It keeps a copy of them.
func (o *orphans) park(t kv.Tier, from origin, blocks []kv.Block, now int64) {
	if len(blocks) > o.max {
		o.lose(t, blocks[o.max:])
		blocks = blocks[:o.max]
	}
	for len(blocks) > 0 {
		n := min(len(blocks), stretchBlocks)
		o.link(&stretch{tier: t, from: from, blocks: slices.Clone(blocks[:n]), since: now})
		from = from.behind(blocks[:n])
		blocks = blocks[n:]
	}
	for o.count > o.max {
		o.forget(o.oldest)
	}
}

// behind returns the origin of what follows blocks that have this one.
func (f origin) behind(blocks []kv.Block) origin {
	next := origin{parent: blocks[len(blocks)-1].ID, has: true, seq: f.seq, anchored: f.anchored}
	for _, b := range blocks {
		if !f.anchored {
			break
		}
		next.seq = kv.Chain(next.seq, b.Tokens)
	}
	return next
}

// forget gives a stretch up.
func (o *orphans) forget(s *stretch) {
	o.unlink(s)
	o.lose(s.tier, s.blocks)
}

// lose counts blocks, which wait no more, as forgotten.
func (o *orphans) lose(t kv.Tier, blocks []kv.Block) {
	o.forgotten += uint64(len(blocks))
	for _, b := range blocks {
		delete(o.copies[t], b.ID)
	}
}

func (o *orphans) link(s *stretch) {
	if o.at == nil {
		o.byName, o.byHash, o.at = map[tierName]*stretch{}, map[kv.BlockID]*stretch{}, map[tierName][]*stretch{}
	}
	if s.from.anchored {
		join(o.byHash, s.from.seq, s)
	} else {
		join(o.byName, tierName{s.tier, s.from.parent}, s)
		o.lost += len(s.blocks)
	}
	for _, b := range s.blocks {
		k := tierName{s.tier, b.ID}
		o.at[k] = append(o.at[k], s)
	}
	o.count += len(s.blocks)
	o.stretches++
	s.prev = o.newest
	if s.prev != nil {
		s.prev.next = s
	} else {
		o.oldest = s
	}
	o.newest = s
}

func (o *orphans) unlink(s *stretch) {
	if s.from.anchored {
		part(o.byHash, s.from.seq, s)
	} else {
		part(o.byName, tierName{s.tier, s.from.parent}, s)
		o.lost -= len(s.blocks)
	}
	for _, b := range s.blocks {
		k := tierName{s.tier, b.ID}
		if rest := slices.DeleteFunc(o.at[k], func(o *stretch) bool { return o == s }); len(rest) > 0 {
			o.at[k] = rest
		} else {
			delete(o.at, k)
		}
	}
	o.count -= len(s.blocks)
	o.stretches--
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		o.oldest = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		o.newest = s.prev
	}
	s.prev, s.next = nil, nil
	if o.count == 0 {
		o.byName, o.byHash, o.at = nil, nil, nil
	}
}

// join adds a stretch at the end of the ring of a key.
func join[K comparable](rings map[K]*stretch, k K, s *stretch) {
	first := rings[k]
	if first == nil {
		rings[k] = s
		first = s
		s.before = s
	}
	s.before, s.after = first.before, first
	s.before.after, s.after.before = s, s
}

// part takes a stretch out of the ring of a key.
func part[K comparable](rings map[K]*stretch, k K, s *stretch) {
	s.before.after, s.after.before = s.after, s.before
	switch {
	case s.after == s:
		delete(rings, k)
	case rings[k] == s:
		rings[k] = s.after
	}
	s.before, s.after = nil, nil
}

// waits reports whether a block waits.
func (o *orphans) waits(t kv.Tier, id kv.BlockID) bool {
	return o.count > 0 && len(o.at[tierName{t, id}]) > 0
}

// takeName takes out a stretch that waits for a name, or returns nil.
func (o *orphans) takeName(t kv.Tier, id kv.BlockID) *stretch {
	return o.take(o.byName[tierName{t, id}])
}

// takeHash takes out a stretch that waits for a sequence hash, or returns nil.
func (o *orphans) takeHash(seq kv.BlockID) *stretch { return o.take(o.byHash[seq]) }

func (o *orphans) take(s *stretch) *stretch {
	if s != nil {
		o.unlink(s)
	}
	return s
}

// drop forgets a block, wherever it waits, and reports whether it did. Those behind
// it in its stretch wait on, for it.
func (o *orphans) drop(t kv.Tier, id kv.BlockID) bool {
	if !o.waits(t, id) {
		return false
	}
	for k := (tierName{t, id}); len(o.at[k]) > 0; {
		s := o.at[k][0]
		o.split(s, s.index(id), 1)
	}
	return true
}

// cut lets the blocks behind one that waits wait for its name alone, since a block
// of that name has come elsewhere.
func (o *orphans) cut(t kv.Tier, id kv.BlockID) {
	for _, s := range slices.Clone(o.at[tierName{t, id}]) {
		if i := s.index(id) + 1; i < len(s.blocks) && !s.from.anchored {
			o.split(s, i, 0)
		}
	}
}

func (s *stretch) index(id kv.BlockID) int {
	return slices.IndexFunc(s.blocks, func(b kv.Block) bool { return b.ID == id })
}

// split divides a stretch in two, and takes n blocks out between them.
func (o *orphans) split(s *stretch, at, n int) {
	o.unlink(s)
	front, back := s.blocks[:at:at], s.blocks[at+n:]
	if len(back) > 0 {
		o.link(&stretch{tier: s.tier, from: s.from.behind(s.blocks[:at+n]), blocks: back, since: s.since})
	}
	if len(front) > 0 {
		s.blocks = front
		o.link(s)
	}
}

// bytes is about what the orphans take.
func (o *orphans) bytes() int { return 220*o.stretches + 100*o.count }
