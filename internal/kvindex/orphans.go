package kvindex

import (
	"slices"

	"github.com/stator-ai/stator/internal/kv"
)

// orphans are blocks that a rank holds behind one that it does not hold, or not
// yet. They wait in stretches: for the block before the first of a stretch, by its
// name, or by its sequence hash where that is known.
type orphans struct {
	max, count     int // blocks
	lost           int // those of them that wait for a name
	forgotten      uint64
	byName         map[tierName][]*stretch
	byHash         map[kv.BlockID][]*stretch
	at             map[tierName][]*stretch // by the names of their blocks
	oldest, newest *stretch
	copies         *[kv.NumTiers]map[kv.BlockID]uint32 // of the rank
}

type tierName struct {
	tier kv.Tier
	id   kv.BlockID
}

type stretch struct {
	tier       kv.Tier
	from       origin
	blocks     []kv.Block
	since      int64
	prev, next *stretch // by age
}

// park lets blocks wait. It keeps a copy of them.
func (o *orphans) park(t kv.Tier, from origin, blocks []kv.Block, now int64) {
	if o.at == nil {
		o.byName, o.byHash, o.at = map[tierName][]*stretch{}, map[kv.BlockID][]*stretch{}, map[tierName][]*stretch{}
	}
	if len(blocks) > o.max {
		o.forgotten += uint64(len(blocks) - o.max)
		blocks = blocks[:o.max]
	}
	if len(blocks) == 0 {
		return
	}
	o.link(&stretch{tier: t, from: from, blocks: slices.Clone(blocks), since: now})
	for o.count > o.max {
		o.forgotten += uint64(len(o.oldest.blocks))
		o.forget(o.oldest)
	}
}

// forget gives a stretch up.
func (o *orphans) forget(s *stretch) {
	o.unlink(s)
	for _, b := range s.blocks {
		delete(o.copies[s.tier], b.ID)
	}
}

func (o *orphans) link(s *stretch) {
	if s.from.anchored {
		o.byHash[s.from.seq] = append(o.byHash[s.from.seq], s)
	} else {
		k := tierName{s.tier, s.from.parent}
		o.byName[k] = append(o.byName[k], s)
		o.lost += len(s.blocks)
	}
	for _, b := range s.blocks {
		k := tierName{s.tier, b.ID}
		o.at[k] = append(o.at[k], s)
	}
	o.count += len(s.blocks)
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
		without(o.byHash, s.from.seq, s)
	} else {
		without(o.byName, tierName{s.tier, s.from.parent}, s)
		o.lost -= len(s.blocks)
	}
	for _, b := range s.blocks {
		without(o.at, tierName{s.tier, b.ID}, s)
	}
	o.count -= len(s.blocks)
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
}

func without[K comparable](m map[K][]*stretch, k K, s *stretch) {
	list := m[k]
	list = slices.DeleteFunc(list, func(o *stretch) bool { return o == s })
	if len(list) == 0 {
		delete(m, k)
	} else {
		m[k] = list
	}
}

// waits reports whether a block waits.
func (o *orphans) waits(t kv.Tier, id kv.BlockID) bool {
	return o.count > 0 && len(o.at[tierName{t, id}]) > 0
}

// takeName takes out a stretch that waits for a name.
func (o *orphans) takeName(t kv.Tier, id kv.BlockID) *stretch {
	return take(o, o.byName[tierName{t, id}])
}

// takeHash takes out a stretch that waits for a sequence hash.
func (o *orphans) takeHash(seq kv.BlockID) *stretch { return take(o, o.byHash[seq]) }

func take(o *orphans, list []*stretch) *stretch {
	if len(list) == 0 {
		return nil
	}
	s := list[0]
	o.unlink(s)
	return s
}

// drop forgets a block, wherever it waits, and reports whether it did. Those behind
// it in its stretch wait on, for it.
func (o *orphans) drop(t kv.Tier, id kv.BlockID) bool {
	if !o.waits(t, id) {
		return false
	}
	for k := (tierName{t, id}); len(o.at[k]) > 0; {
		o.split(o.at[k][0], id)
	}
	return true
}

// cut lets the blocks behind one that waits wait for its name alone, since a block
// of that name has come elsewhere.
func (o *orphans) cut(t kv.Tier, id kv.BlockID) {
	for _, s := range slices.Clone(o.at[tierName{t, id}]) {
		i := slices.IndexFunc(s.blocks, func(b kv.Block) bool { return b.ID == id }) + 1
		if i == len(s.blocks) || s.from.anchored {
			continue
		}
		o.unlink(s)
		o.link(&stretch{tier: t, from: origin{parent: id, has: true}, blocks: s.blocks[i:], since: s.since})
		s.blocks = s.blocks[:i:i]
		o.link(s)
	}
}

// split takes a block out of a stretch.
func (o *orphans) split(s *stretch, id kv.BlockID) {
	i := slices.IndexFunc(s.blocks, func(b kv.Block) bool { return b.ID == id })
	o.unlink(s)
	front, back := s.blocks[:i:i], s.blocks[i+1:]
	if len(back) > 0 {
		from := origin{parent: id, has: true}
		if s.from.anchored {
			from.seq, from.anchored = s.from.seq, true
			for _, b := range s.blocks[:i+1] {
				from.seq = kv.Chain(from.seq, b.Tokens)
			}
		}
		o.link(&stretch{tier: s.tier, from: from, blocks: back, since: s.since})
	}
	if len(front) > 0 {
		s.blocks = front
		o.link(s)
	}
}
