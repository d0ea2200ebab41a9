package model

import (
	"math/bits"
	"slices"
	"strings"
)

// trie maps strings to small numbers, byte by byte. It is a double array: the child
// of a node for byte b, if there is one, is the slot at the node's base plus b, and
// that slot says whose child it is. It does not change after newTrie.
type trie struct{ slots []slot }

type slot struct {
	base   int32
	parent int32
	value  int32 // -1: no key ends here
}

const (
	root = int32(0)
	none = int32(-1)
)

// newTrie returns a trie of keys with their values, which are not negative. Of equal
// keys the last counts. The empty key is left out.
func newTrie(keys []string, values []uint32) trie {
	order := make([]int32, 0, len(keys))
	for i, k := range keys {
		if k != "" {
			order = append(order, int32(i))
		}
	}
	slices.SortFunc(order, func(a, b int32) int {
		if c := strings.Compare(keys[a], keys[b]); c != 0 {
			return c
		}
		return int(a - b)
	})
	b := builder{keys: keys, values: values, order: order, low: 256 >> 6}
	b.take(root, none)
	for work := []span{{root, 0, len(order), 0}}; len(work) > 0; {
		last := len(work) - 1
		work = b.place(work[:last], work[last])
	}
	b.grow(b.end + 256) // so that base + byte is always inside
	return trie{slices.Clip(b.slots)}
}

// child returns the node that b leads to from n, or none.
func (t trie) child(n int32, b byte) int32 {
	next := t.slots[n].base + int32(b)
	if t.slots[next].parent != n {
		return none
	}
	return next
}

// get returns the value of key, or none.
func (t trie) get(key []byte) int32 {
	n := root
	for _, b := range key {
		if n = t.child(n, b); n == none {
			return none
		}
	}
	return t.slots[n].value
}

// longest returns the value of the longest key that text begins with and its
// length, which is 0 when there is none.
func (t trie) longest(text []byte) (value int32, size int) {
	n := root
	for i, b := range text {
		if n = t.child(n, b); n == none {
			break
		}
		if v := t.slots[n].value; v != none {
			value, size = v, i+1
		}
	}
	return value, size
}

// builder fills a trie. All nodes but the root are at 256 or above, so that no base
// is negative.
type builder struct {
	keys   []string
	values []uint32
	order  []int32 // indices of keys, sorted

	slots []slot
	free  []uint64 // one bit for each slot
	low   int      // no word of free from 256 up to this one has a bit
	end   int      // one past the last slot taken
}

// span is a node whose children have no place yet. Its keys are order[lo:hi]; they
// agree in their first depth bytes.
type span struct {
	node          int32
	lo, hi, depth int
}

// place gives the children of n their slots and appends them to work.
func (b *builder) place(work []span, n span) []span {
	for n.lo < n.hi && len(b.keys[b.order[n.lo]]) == n.depth {
		b.slots[n.node].value = int32(b.values[b.order[n.lo]])
		n.lo++
	}
	var labels [256]byte
	count := 0
	at := len(work)
	for lo := n.lo; lo < n.hi; {
		label := b.keys[b.order[lo]][n.depth]
		hi := lo + 1
		for hi < n.hi && b.keys[b.order[hi]][n.depth] == label {
			hi++
		}
		work = append(work, span{lo: lo, hi: hi, depth: n.depth + 1})
		labels[count] = label
		count++
		lo = hi
	}
	if count == 0 {
		return work
	}
	base := b.base(labels[:count])
	b.slots[n.node].base = int32(base)
	for i, label := range labels[:count] {
		child := int32(base + int(label))
		b.take(child, n.node)
		work[at+i].node = child
	}
	return work
}

// base returns a base at which the slots of all labels are free.
func (b *builder) base(labels []byte) int {
	for b.low < len(b.free) && b.free[b.low] == 0 {
		b.low++
	}
	// After some attempts the end of the array is better than its gaps: a node
	// with a single child finds use for those.
	tries := 32
	for w := b.low; w < len(b.free); w++ {
		for word := b.free[w]; word != 0; word &= word - 1 {
			base := w<<6 + bits.TrailingZeros64(word) - int(labels[0])
			if b.fits(base, labels[1:]) {
				return base
			}
			if tries--; tries == 0 {
				return b.end
			}
		}
	}
	return max(b.end, 256)
}

func (b *builder) fits(base int, labels []byte) bool {
	for _, label := range labels {
		at := base + int(label)
		if at>>6 < len(b.free) && b.free[at>>6]>>(at&63)&1 == 0 {
			return false
		}
	}
	return true
}

// take marks a slot as the child of parent.
func (b *builder) take(at, parent int32) {
	b.grow(int(at) + 1)
	b.slots[at].parent = parent
	b.free[at>>6] &^= 1 << (at & 63)
	b.end = max(b.end, int(at)+1)
}

// grow makes room for n slots.
func (b *builder) grow(n int) {
	for len(b.free)<<6 < n {
		b.free = append(b.free, ^uint64(0))
		for range 64 {
			b.slots = append(b.slots, slot{parent: none - 1, value: none})
		}
	}
}
