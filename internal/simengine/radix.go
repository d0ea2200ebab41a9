package simengine

import (
	"container/heap"
	"math/bits"
	"sort"

	"github.com/stator-ai/stator/internal/kv"
)

// radix is a prefix cache of token pages, as a tree. An edge holds the pages that
// always occur together, so following, locking and splitting a prompt costs by
// the number of its branches and not of its pages.
//
// A page's ID stands for everything before it. Hence one table of the first page
// of each edge finds every child of every node, and where two edges part can be
// found by halving.
//
// A node is locked while a request uses it, and so are all nodes above it. What
// is not locked can be evicted, leaf by leaf, the longest unused first. Uses are
// counted, not timed: each marks one path with a number of its own, and two leaves
// are never on one path, so no two leaves are equally old.
type radix struct {
	root    *radixNode
	byFirst map[kv.BlockID]*radixNode
	leaves  leafHeap // not locked
	uses    uint64
	changes uint64 // of what the tree holds
	pages   int
	locked  int // pages
	loose   int // pages of leaves that are not locked
	silent  bool

	added []kv.Block // scratch
	spare []*radixNode
	edges [bits.UintSize][][]kv.BlockID // spare ones by the logarithm of their capacity
}

// radixNode is an edge and the node at its end.
type radixNode struct {
	ids      []kv.BlockID
	parent   *radixNode
	children int
	locks    int
	used     uint64
	at       int // in the heap of leaves; -1 when it is not there
}

func newRadix(silent bool) radix {
	return radix{root: &radixNode{at: -1}, byFirst: map[kv.BlockID]*radixNode{}, silent: silent}
}

// evictable returns the pages that nobody uses.
func (t *radix) evictable() int { return t.pages - t.locked }

// find follows a content down from a node at whose end its page at begins, as far
// as the tree has it and at most up to page limit. It returns the last node
// reached, how many pages of that node's edge match, and the page after the match.
func (t *radix) find(c Content, n *radixNode, at, limit int) (last *radixNode, in, end int) {
	in = len(n.ids)
	for at < limit {
		next := t.byFirst[c.Block(at).ID]
		if next == nil || next.parent != n { // elsewhere only if IDs repeat
			break
		}
		n, in = next, next.matching(c, at, limit)
		at += in
		if in < len(n.ids) {
			break
		}
	}
	return n, in, at
}

// matching returns how many pages of the edge a content has from its page at on,
// given that it has the first.
func (n *radixNode) matching(c Content, at, limit int) int {
	most := min(len(n.ids), limit-at)
	if c.Block(at+most-1).ID == n.ids[most-1] {
		return most
	}
	return 1 + sort.Search(most-2, func(i int) bool { return c.Block(at+1+i).ID != n.ids[1+i] })
}

// cut splits an edge after k pages, unless it ends there, and returns the node
// where those end. The node n keeps the lower part, so that whoever locked it
// still has the whole.
func (t *radix) cut(n *radixNode, k int) *radixNode {
	if k == len(n.ids) {
		return n
	}
	upper := t.node(n.parent, k)
	upper.ids = append(upper.ids, n.ids[:k]...)
	upper.children, upper.locks, upper.used = 1, n.locks, n.used
	n.ids = n.ids[:copy(n.ids, n.ids[k:])]
	n.parent = upper
	t.byFirst[upper.ids[0]] = upper
	t.byFirst[n.ids[0]] = n
	if n.at >= 0 {
		t.loose -= k
	}
	return upper
}

// hold locks n and what is above it, down from a node that the caller has locked
// already, and marks all of the path as used.
func (t *radix) hold(n, locked *radixNode) {
	t.uses++
	for ; n != locked; n = n.parent {
		if n.locks++; n.locks == 1 {
			t.locked += len(n.ids)
			if n.at >= 0 {
				t.loose -= len(n.ids)
				heap.Remove(&t.leaves, n.at)
			}
		}
		n.used = t.uses
	}
	for ; n != t.root; n = n.parent {
		n.used = t.uses
	}
}

// release undoes a hold of the path from the root to n.
func (t *radix) release(n *radixNode) {
	for ; n != t.root; n = n.parent {
		if n.locks--; n.locks == 0 {
			t.locked -= len(n.ids)
			t.loosen(n)
		}
	}
}

// loosen makes n a candidate for eviction if it is a leaf.
func (t *radix) loosen(n *radixNode) {
	if n.children == 0 {
		t.loose += len(n.ids)
		heap.Push(&t.leaves, n)
	}
}

// extend makes the pages of a content from at up to end known, which begin after
// n, and holds them for the caller, who holds n. It returns the node where they
// end and how many of them the tree did not have.
func (t *radix) extend(p *Pass, c Content, n *radixNode, at, end int) (last *radixNode, added int) {
	last, in, at := t.find(c, n, at, end)
	last = t.cut(last, in)
	if added = end - at; added > 0 {
		last = t.grow(p, c, last, at, end)
	}
	t.hold(last, n)
	return last, added
}

// grow adds a leaf below n. Nobody holds it yet.
func (t *radix) grow(p *Pass, c Content, n *radixNode, at, end int) *radixNode {
	leaf := t.node(n, end-at)
	t.added = t.added[:0]
	for i := at; i < end; i++ {
		b := c.Block(i)
		leaf.ids = append(leaf.ids, b.ID)
		t.added = append(t.added, b)
	}
	n.children++
	t.byFirst[leaf.ids[0]] = leaf
	t.pages += end - at
	t.changes++
	if t.silent {
		return leaf
	}
	var parent *kv.Block
	if n != t.root {
		parent = &kv.Block{ID: n.ids[len(n.ids)-1]}
	}
	p.stored(Origin{Content: c, First: at}, parent, t.added...)
	return leaf
}

// evict gives up the leaf that has not been used for longest, of which there must
// be one, and returns how many pages it had. Its parent may be the next.
func (t *radix) evict(p *Pass) int {
	n := heap.Pop(&t.leaves).(*radixNode)
	size := len(n.ids)
	for i := size - 1; i >= 0 && !t.silent; i-- {
		p.removed(n.ids[i])
	}
	delete(t.byFirst, n.ids[0])
	t.pages -= size
	t.loose -= size
	t.changes++
	up := n.parent
	if up.children--; up != t.root && up.locks == 0 {
		t.loosen(up)
	}
	class := edgeClass(cap(n.ids))
	t.edges[class] = append(t.edges[class], n.ids[:0])
	*n = radixNode{at: -1}
	t.spare = append(t.spare, n)
	return size
}

// node returns a node below parent with room for so many pages on its edge.
func (t *radix) node(parent *radixNode, pages int) *radixNode {
	var n *radixNode
	if last := len(t.spare) - 1; last >= 0 {
		n, t.spare = t.spare[last], t.spare[:last]
	} else {
		n = &radixNode{at: -1}
	}
	n.parent = parent
	class := edgeClass(pages)
	if last := len(t.edges[class]) - 1; last >= 0 {
		n.ids, t.edges[class] = t.edges[class][last], t.edges[class][:last]
	} else {
		n.ids = make([]kv.BlockID, 0, 1<<class)
	}
	return n
}

// edgeClass returns the logarithm of the capacity for an edge of n pages.
func edgeClass(n int) int { return bits.Len(uint(n - 1)) }

// leafHeap has the longest unused leaf in front.
type leafHeap []*radixNode

func (h leafHeap) Len() int           { return len(h) }
func (h leafHeap) Less(i, j int) bool { return h[i].used < h[j].used }

func (h leafHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

func (h *leafHeap) Push(x any) {
	n := x.(*radixNode)
	n.at = len(*h)
	*h = append(*h, n)
}

func (h *leafHeap) Pop() any {
	last := len(*h) - 1
	n := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	n.at = -1
	return n
}
