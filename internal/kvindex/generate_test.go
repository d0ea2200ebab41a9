package kvindex_test

import (
	"math/rand/v2"
	"slices"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// shape is a kind of random script.
type shape struct {
	name           string
	workers, ranks int // ranks of each worker
	nodes          int // of the tree of content that ranks hold parts of
	locals         int // how many local hashes there are
	long           int // of 100 nodes, how many prolong the one before them
	names          naming
	run            int // the most blocks of an event
	tiers          int // how many are used
	steps          int
	lookups        int // prompts looked up after each step
	mess           int // of 100 events, how many are not as an engine would send them
	clearWorker    bool
}

// naming is how engines name blocks.
type naming int

const (
	exact    naming = iota // one name for one sequence of blocks
	own                    // the name is our own sequence hash
	alias                  // one of two names
	content                // the local hash, wherever the block lies
	recycled               // any of a few
)

// vague reports whether names and sequences of blocks are not the same thing.
func (n naming) vague() bool { return n != exact && n != own }

// universe is what ranks may hold: a tree of blocks in which contents recur.
type universe struct {
	shape
	rng     *rand.Rand
	tree    []node
	prompts [][]kv.Block
}

type node struct {
	parent int // -1 at the root
	number int // of the first node with this sequence hash
	local  kv.LocalHash
	seq    kv.BlockID
}

func newUniverse(sh shape, seed uint64) *universe {
	u := &universe{shape: sh, rng: rand.New(rand.NewPCG(seed, 1))}
	for i := range sh.nodes {
		n := node{parent: u.rng.IntN(i+1) - 1, local: kv.LocalHash(1 + u.rng.IntN(sh.locals))}
		if i > 0 && u.rng.IntN(100) < sh.long {
			n.parent = i - 1
		}
		n.seq = kv.BlockID(n.local)
		if n.parent >= 0 {
			n.seq = kv.Chain(u.tree[n.parent].seq, n.local)
		}
		n.number = i
		if first := slices.IndexFunc(u.tree, func(o node) bool { return o.seq == n.seq }); first >= 0 {
			n.number = first
		}
		u.tree = append(u.tree, n)
	}
	u.prompts = [][]kv.Block{nil}
	for range 24 {
		u.prompts = append(u.prompts, u.prompt())
	}
	return u
}

// prompt returns the blocks of a path, sometimes with a strange one in it and
// sometimes with more behind it.
func (u *universe) prompt() []kv.Block {
	var locals []kv.LocalHash
	for _, n := range u.path(u.deep()) {
		locals = append(locals, u.tree[n].local)
	}
	if u.rng.IntN(4) == 0 {
		locals[u.rng.IntN(len(locals))] = kv.LocalHash(1 + u.rng.IntN(u.locals+1))
	}
	for u.rng.IntN(3) == 0 {
		locals = append(locals, kv.LocalHash(1+u.rng.IntN(u.locals)))
	}
	return chain(locals...)
}

// chain returns the blocks of a prompt as a lookup wants them.
func chain(locals ...kv.LocalHash) []kv.Block {
	blocks := make([]kv.Block, len(locals))
	for i, local := range locals {
		blocks[i] = kv.Block{ID: kv.BlockID(local), Tokens: local}
		if i > 0 {
			blocks[i].ID = kv.Chain(blocks[i-1].ID, local)
		}
	}
	return blocks
}

// deep returns a node, rather a deep one than not.
func (u *universe) deep() int {
	return max(u.rng.IntN(u.nodes), u.rng.IntN(u.nodes))
}

// path returns the nodes from the root to n.
func (u *universe) path(n int) []int {
	var path []int
	for ; n >= 0; n = u.tree[n].parent {
		path = append(path, n)
	}
	slices.Reverse(path)
	return path
}

// name returns a name of a node's block.
func (u *universe) name(n int) kv.BlockID {
	switch u.names {
	case own:
		return u.tree[n].seq
	case alias:
		return kv.BlockID(100 + 10*u.tree[n].number + u.rng.IntN(2))
	case content:
		return kv.BlockID(u.tree[n].local)
	case recycled:
		return kv.BlockID(1 + u.rng.IntN(u.nodes/2+2))
	default:
		return kv.BlockID(100 + u.tree[n].number)
	}
}

// blocks returns nodes as the blocks of an event.
func (u *universe) blocks(path []int) []kv.Block {
	blocks := make([]kv.Block, len(path))
	for i, n := range path {
		blocks[i] = kv.Block{ID: u.name(n), Tokens: u.tree[n].local}
	}
	return blocks
}

func (u *universe) source() kv.Source {
	return kv.Source{Worker: kv.WorkerID(1 + u.rng.IntN(u.workers)), Rank: uint32(u.rng.IntN(u.ranks))}
}

// one in n.
func (u *universe) one(n int) bool { return u.rng.IntN(n) == 0 }

// next returns a step that suits what the model holds.
func (u *universe) next(x *naive) step {
	s := step{src: u.source(), epoch: u.rng.Uint64N(3), seq: u.rng.Uint64()}
	switch p := u.rng.IntN(1000); {
	case p < 30 && u.names != exact:
		s.do = route // by our own names, so that blocks have two
		if long := u.prompts[u.rng.IntN(len(u.prompts))]; len(long) > 0 {
			s.prompt = long[:min(1+u.rng.IntN(len(long)), 2*u.run)]
		}
	case p < 40:
		s.do = dropRank
	case p < 43:
		s.do = dropWorker
	case p < 48:
		s.do = clearRank
	case p < 55:
		s.do = restore
		s.events = u.history(x, s.src)
	case p < 60:
		s.do = spoil
		s.events = u.history(x, s.src)
	case p < 70:
		s.do = reload
	default:
		s.do = apply
		for n := 1 + u.rng.IntN(3); n > 0; n-- {
			s.events = append(s.events, u.event(x, s.src))
		}
	}
	return s
}

// history returns events to restore a rank from.
func (u *universe) history(x *naive, src kv.Source) []kv.Event {
	var events []kv.Event
	for range u.rng.IntN(8) {
		events = append(events, u.event(x, src))
	}
	return events
}

func (u *universe) event(x *naive, src kv.Source) kv.Event {
	r := x.ranks[src]
	ev := kv.Event{Kind: kv.Stored, Counted: u.one(3)}
	if u.tiers > 1 && u.one(2) {
		ev.Tier = kv.Tier(u.rng.IntN(u.tiers))
	}
	switch p := u.rng.IntN(100); {
	case p < 55 || r == nil:
		if r != nil && u.tiers > 1 && u.one(4) {
			ev.Bare = true
			ev.Blocks = u.some(r)
		} else {
			u.stored(&ev, r)
		}
	case p < 97:
		ev.Kind = kv.Removed
		ev.Blocks = u.some(r)
	case p < 99:
		ev.Kind = kv.Cleared
	default:
		ev.Kind = kv.Cleared + 1 // none that is known
	}
	return ev
}

// stored fills an event with a part of a path: what follows the part that the rank
// holds, as an engine does, or any.
func (u *universe) stored(ev *kv.Event, r *naiveRank) {
	path := u.path(u.deep())
	from := 0
	if u.rng.IntN(100) < u.mess {
		from = u.rng.IntN(len(path))
	} else if r != nil {
		seen := r.tiers[ev.Tier].look()
		for from < len(path)-1 && seen[u.tree[path[from]].seq] {
			from++
		}
	}
	path = path[from:min(len(path), from+1+u.rng.IntN(u.run))]
	ev.Blocks = u.blocks(path)
	if p := u.tree[path[0]].parent; p >= 0 {
		ev.Parent, ev.HasParent = u.name(p), true
		if u.one(12) {
			ev.ParentSeq, ev.HasParentSeq = u.tree[p].seq, true
		}
	}
	if u.rng.IntN(100) < u.mess && u.one(4) {
		kinds := 2
		if u.names.vague() {
			kinds = 4
		}
		switch u.rng.IntN(kinds) {
		case 0:
			ev.Blocks = append(ev.Blocks, ev.Blocks[u.rng.IntN(len(ev.Blocks))])
		case 1:
			ev.Blocks = ev.Blocks[:0]
		case 2:
			ev.HasParent = !ev.HasParent
		case 3:
			ev.Parent, ev.HasParent = u.name(u.deep()), true
		}
	}
}

// some returns names of blocks, most of which the rank has in some tier: the end of
// a path from its leaf on, a path from its root on, or a handful.
func (u *universe) some(r *naiveRank) []kv.Block {
	path := u.path(u.deep())
	var ids []kv.Block
	switch u.rng.IntN(4) {
	case 0:
		path = path[:1+u.rng.IntN(len(path))]
	case 1:
		for i := range path {
			path[i] = u.rng.IntN(u.nodes)
		}
	default:
		// What is held at the end of the path, leaf first.
		slices.Reverse(path)
		seen := r.tiers[kv.Device].look()
		from := slices.IndexFunc(path, func(n int) bool { return seen[u.tree[n].seq] })
		path = path[max(from, 0):]
	}
	path = path[:min(len(path), 1+u.rng.IntN(u.run))]
	for _, n := range path {
		ids = append(ids, kv.Block{ID: u.name(n)})
	}
	if u.one(20) {
		ids = append(ids, kv.Block{ID: kv.BlockID(u.rng.Uint64())})
	}
	return ids
}

// config returns the settings of the index that a script runs on.
func (sh shape) config() kvindex.Config { return kvindex.Config{ClearWorker: sh.clearWorker} }
