package kvindex

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stator-ai/stator/internal/kv"
)

// planeRanks is how many ranks share the pages of a plane: as many as a word has
// bits.
const planeRanks = 64

// plane is the blocks of up to 64 ranks. Each has a slot: a lane in every page.
// More ranks make more planes, which share nothing.
type plane struct {
	shards [numShards]shard
	// members are the ranks that lookups see.
	members atomic.Pointer[members]
	// far counts, by tier, what lies beyond the device's memory; most fleets have
	// nothing there.
	far [kv.NumTiers]atomic.Int64
	// versions change when a slot loses blocks, and are odd while it does.
	versions [planeRanks]atomic.Uint64

	mu         sync.Mutex
	taken      uint64 // slots
	generation uint64
}

// members are the ranks of a plane, sorted by source. They are never changed, only
// replaced.
type members struct {
	mask uint64 // slots
	list []member
}

// member is a rank in a slot. Each time a rank takes a slot, or begins anew in it,
// the generation is another.
type member struct {
	source     kv.Source
	slot       int
	generation uint64
}

func newPlane() *plane {
	p := &plane{}
	p.members.Store(&members{})
	for i := range p.shards {
		p.shards[i].local = newSlabs()
	}
	return p
}

// at returns the shard of a block's hash once mixed.
func (p *plane) at(h uint64) (*shard, uint32) {
	n := uint32(h % numShards)
	return &p.shards[n], n
}

// take reserves a slot, which no lookup sees yet. It returns false when all are
// taken.
func (p *plane) take() (int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slot := bits.TrailingZeros64(^p.taken)
	if slot == planeRanks {
		return 0, false
	}
	p.taken |= 1 << slot
	return slot, true
}

// give gives a slot back that holds nothing and is hidden.
func (p *plane) give(slot int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken &^= 1 << slot
}

// unused reports whether no slot is taken.
func (p *plane) unused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken == 0
}

// show lets lookups see a slot as a rank, instead of another slot if there is one:
// hidden is -1 if there is none.
func (p *plane) show(src kv.Source, slot, hidden int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.generation++
	list := p.without(hidden)
	m := member{source: src, slot: slot, generation: p.generation}
	i, _ := slices.BinarySearchFunc(list, m, func(a, b member) int { return compare(a.source, b.source) })
	p.publish(slices.Insert(list, i, m))
}

// hide takes a slot out of the sight of lookups.
func (p *plane) hide(slot int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.publish(p.without(slot))
}

func (p *plane) without(slot int) []member {
	return slices.DeleteFunc(slices.Clone(p.members.Load().list), func(m member) bool { return m.slot == slot })
}

func (p *plane) publish(list []member) {
	m := &members{list: list}
	for _, e := range list {
		m.mask |= 1 << e.slot
	}
	p.members.Store(m)
}

// fill makes a rank hold blocks that follow the first off blocks of a page, as far
// as they are in the page or can be added to it. It returns how many that were.
func (p *plane) fill(slot int, ref pageRef, off int, blocks []kv.Block) int {
	s := &p.shards[ref.shard()]
	s.mu.Lock()
	defer s.mu.Unlock()
	pg := s.page(ref.index())
	n := 0
	locals := s.locals(pg)[:pg.n]
	for n < len(blocks) && off+n < len(locals) && locals[off+n] == uint64(blocks[n].Tokens) {
		n++
	}
	if off+n == len(locals) {
		n += s.extend(pg, blocks[n:])
	}
	if off+n > pg.lane(slot) {
		pg.setLane(slot, off+n)
	}
	return n
}

// entry is what became of entering a page.
type entry uint8

const (
	entered entry = iota
	held          // the rank held the first block before
	taken         // the page has another content with the same hash
)

// enter makes a rank hold the first block of the page that begins with it, behind a
// block with a sequence hash. The page is made if there is none, with room for as many
// blocks as given.
//
// Hashes come from outside and can be forged, so that a page counts only if what it
// begins with, and behind what, is the same.
func (p *plane) enter(slot int, before kv.BlockID, first bool, local kv.LocalHash, room int) (pageRef, entry) {
	head := kv.BlockID(local)
	if first {
		before = 0
	} else {
		head = kv.Chain(before, local)
	}
	h := mix(uint64(head))
	s, n := p.at(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.find(tagOf(h), head)
	if !ok {
		at = s.create(tagOf(h), head, before, local, room)
	}
	ref := pageRef(n<<pageIndexes | at)
	pg := s.page(at)
	switch {
	case pg.before != before || s.locals(pg)[0] != uint64(local):
		return ref, taken
	case pg.lane(slot) > 0:
		return ref, held
	}
	pg.setLane(slot, 1)
	return ref, entered
}

// shrink leaves a rank the first n blocks of a page. The page goes when nobody
// holds any.
func (p *plane) shrink(slot int, ref pageRef, n int) {
	s := &p.shards[ref.shard()]
	s.mu.Lock()
	defer s.mu.Unlock()
	pg := s.page(ref.index())
	pg.setLane(slot, n)
	if n == 0 && pg.unheld() {
		s.release(ref.index())
	}
}

// hashAt returns the sequence hash of a block of a page.
func (p *plane) hashAt(ref pageRef, off int) kv.BlockID {
	s := &p.shards[ref.shard()]
	s.mu.RLock()
	defer s.mu.RUnlock()
	pg := s.page(ref.index())
	if off == int(pg.n)-1 {
		return pg.end
	}
	h := pg.head
	for _, l := range s.locals(pg)[1 : off+1] {
		h = kv.Chain(h, kv.LocalHash(l))
	}
	return h
}

// contents appends the local hashes of the first n blocks of a page to locals, and
// their sequence hashes to hashes unless that is nil.
func (p *plane) contents(ref pageRef, n int, locals []kv.LocalHash, hashes []kv.BlockID) ([]kv.LocalHash, []kv.BlockID) {
	s := &p.shards[ref.shard()]
	s.mu.RLock()
	defer s.mu.RUnlock()
	pg := s.page(ref.index())
	for _, l := range s.locals(pg)[:n] {
		locals = append(locals, kv.LocalHash(l))
	}
	if hashes != nil {
		hashes = s.hashes(hashes, pg, n)
	}
	return locals, hashes
}

func (p *plane) bytes() (n int) {
	for i := range p.shards {
		s := &p.shards[i]
		s.mu.RLock()
		n += s.bytes()
		s.mu.RUnlock()
	}
	return n
}
