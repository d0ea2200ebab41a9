package kv

import "sync/atomic"

// namespace is what a cache salt adds to the seed of a block's hash.
type namespace uint64

const (
	unsalted  namespace = 0
	ambiguous namespace = 1<<64 - 1
)

// namespaceOf returns the namespace of a salt, tagged or not.
func namespaceOf(salt string) namespace {
	ns := namespace(HashSeed("", salt) - HashSeed("", ""))
	if ns == ambiguous {
		ns--
	}
	return ns
}

// namespaces remembers under which salt blocks were stored, because engines tell
// it of the first block of a prompt only. Blocks without a salt take no room. It
// holds up to limit blocks and forgets those that were named longest ago; the
// blocks after a forgotten one count as unsalted and so match no prompt, for the
// first of their prompt is salted.
type namespaces struct {
	limit      int
	young, old map[BlockID]namespace
	forgotten  atomic.Uint64 // blocks
}

func (n *namespaces) empty() bool { return len(n.young) == 0 && len(n.old) == 0 }

func (n *namespaces) reset() { n.young, n.old = nil, nil }

// get returns the namespace of a block.
func (n *namespaces) get(id BlockID) namespace {
	if ns, ok := n.young[id]; ok {
		return ns
	}
	ns, ok := n.old[id]
	if ok {
		n.set(id, ns)
	}
	return ns
}

// record notes that a block was stored in a namespace. One that was stored in
// another before becomes ambiguous.
func (n *namespaces) record(id BlockID, ns namespace) {
	if ns == unsalted && n.empty() {
		return
	}
	switch was := n.get(id); {
	case was == ns || was == ambiguous:
	case was != unsalted:
		n.set(id, ambiguous)
	default:
		n.set(id, ns)
	}
}

func (n *namespaces) set(id BlockID, ns namespace) {
	if n.young == nil {
		n.young = make(map[BlockID]namespace)
	}
	n.young[id] = ns
	if len(n.young) >= (n.limit+1)/2 {
		n.forget()
	}
}

// forget drops the older blocks, save those that were named since, and lets the
// others age.
func (n *namespaces) forget() {
	lost := 0
	for id := range n.old {
		if _, ok := n.young[id]; !ok {
			lost++
		}
	}
	n.forgotten.Add(uint64(lost))
	n.young, n.old = nil, n.young
}
