package main

import (
	"sync"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// radixIndex is a tree of prompts with a node per block, a lock per node, and for
// every rank a map from its names of blocks to nodes.
//
// Locks of nodes are taken from the root downwards, a child's before its parent's is
// let go. A node that no rank holds stays while it has children, because ranks that
// hold those may get it back; the last child takes it along. The index takes device
// memory only, and expects an engine to store nothing behind a block that it does not
// hold. It is safe for concurrent use by different sources.
type radixIndex struct {
	root radixNode

	mu      sync.RWMutex // of what follows
	ranks   map[kv.Source]*radixRank
	sources []kv.Source // by number
}

// radixRank is what one rank holds, by its own names. Only the rank's own batches
// touch held.
type radixRank struct {
	number uint32
	held   map[kv.BlockID]radixBlock
}

type radixBlock struct {
	node   *radixNode
	copies uint32 // beyond the first
}

// radixNode is a block behind all blocks above it.
type radixNode struct {
	parent *radixNode // nil of the root; never changes
	local  kv.LocalHash

	mu       sync.RWMutex // of what follows
	children map[kv.LocalHash]*radixNode
	holders  map[uint32]struct{}
	unlinked bool
}

func newRadixIndex() *radixIndex {
	return &radixIndex{ranks: map[kv.Source]*radixRank{}}
}

// Apply takes in a batch, a node at a time.
func (x *radixIndex) Apply(b *kv.Batch) error {
	r := x.rank(b.Source)
	for i := range b.Events {
		switch ev := &b.Events[i]; {
		case ev.Kind == kv.Cleared:
			for _, h := range r.held {
				h.node.leave(r.number)
			}
			clear(r.held)
		case ev.Tier != kv.Device || ev.Bare:
		case ev.Kind == kv.Stored:
			x.store(r, ev)
		case ev.Kind == kv.Removed:
			x.remove(r, ev)
		}
	}
	return nil
}

func (x *radixIndex) rank(src kv.Source) *radixRank {
	x.mu.RLock()
	r := x.ranks[src]
	x.mu.RUnlock()
	if r != nil {
		return r
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if r := x.ranks[src]; r != nil { // somebody else was faster
		return r
	}
	r = &radixRank{number: uint32(len(x.sources)), held: map[kv.BlockID]radixBlock{}}
	x.ranks[src] = r
	x.sources = append(x.sources, src)
	return r
}

func (x *radixIndex) store(r *radixRank, ev *kv.Event) {
	node := &x.root
	if ev.HasParent {
		parent, ok := r.held[ev.Parent]
		if !ok {
			return
		}
		node = parent.node // not unlinked: this rank holds it
	}
	node.mu.Lock()
	for _, b := range ev.Blocks {
		child := node.children[b.Tokens]
		if child == nil {
			child = &radixNode{parent: node, local: b.Tokens, holders: map[uint32]struct{}{}}
			if node.children == nil {
				node.children = map[kv.LocalHash]*radixNode{}
			}
			node.children[b.Tokens] = child
		}
		child.mu.Lock()
		child.holders[r.number] = struct{}{}
		node.mu.Unlock()
		node = child
		if h, ok := r.held[b.ID]; !ok {
			r.held[b.ID] = radixBlock{node: child}
		} else if ev.Counted {
			h.copies++
			r.held[b.ID] = h
		}
	}
	node.mu.Unlock()
}

func (x *radixIndex) remove(r *radixRank, ev *kv.Event) {
	for _, b := range ev.Blocks {
		h, ok := r.held[b.ID]
		if !ok {
			continue
		}
		if ev.Counted && h.copies > 0 {
			h.copies--
			r.held[b.ID] = h
			continue
		}
		delete(r.held, b.ID)
		h.node.leave(r.number)
	}
}

// leave takes a rank out of the holders of a node, and the node out of the tree when
// nobody needs it any more, together with those above it of which the same is true.
func (n *radixNode) leave(rank uint32) {
	n.mu.Lock()
	delete(n.holders, rank)
	unused := n.unused()
	n.mu.Unlock()
	for unused {
		p := n.parent
		p.mu.Lock()
		n.mu.Lock()
		if n.unused() { // still, and nobody else was faster
			n.unlinked = true
			delete(p.children, n.local)
		}
		n.mu.Unlock()
		unused = p.unused()
		p.mu.Unlock()
		n = p
	}
}

// unused reports whether a node is in the tree for nothing. Its lock must be held.
func (n *radixNode) unused() bool {
	return n.parent != nil && !n.unlinked && len(n.holders) == 0 && len(n.children) == 0
}

// Match walks down the tree with the ranks that hold all of the prompt so far. The
// answer is in no particular order.
func (x *radixIndex) Match(dst []kvindex.Overlap, prompt []kv.Block) []kvindex.Overlap {
	var room [64]uint32
	active := room[:0]
	first := len(dst)
	node := &x.root
	node.mu.RLock()
	depth := 0
	for ; depth < len(prompt); depth++ {
		child := node.children[prompt[depth].Tokens]
		if child == nil {
			break
		}
		child.mu.RLock()
		node.mu.RUnlock()
		node = child
		if depth == 0 {
			for r := range node.holders {
				active = append(active, r)
			}
		} else {
			kept := active[:0]
			for _, r := range active {
				if _, ok := node.holders[r]; ok {
					kept = append(kept, r)
				} else {
					dst = append(dst, numbered(r, depth))
				}
			}
			active = kept
		}
		if len(active) == 0 {
			break
		}
	}
	node.mu.RUnlock()
	for _, r := range active {
		dst = append(dst, numbered(r, depth))
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	for i := first; i < len(dst); i++ {
		dst[i].Source = x.sources[dst[i].Source.Rank]
	}
	return dst
}

// numbered is the overlap of a rank that is known by its number so far.
func numbered(rank uint32, depth int) kvindex.Overlap {
	return deviceOverlap(kv.Source{Rank: rank}, depth)
}
