package learn

import "container/heap"

// table holds entries by name. It knows which of them was used first, and which to give up
// where there are too many: one of the scope that has most of them, so that no scope takes
// the room of another that has less. Entries are not moved in memory, so that they can be
// pointed to, also after they have been removed.
type table[V any] struct {
	entries map[name]*entry[V]
	all     link[V] // of all scopes, the one used last first
	scopes  map[Hash]*holding[V]
	most    bySize[V]
	came    uint64 // scopes so far
}

type entry[V any] struct {
	all, own link[V] // own is that of its scope
	scope    *holding[V]
	key      name
	kept     bool
	value    V
}

// holding is what a scope has in a table: at least one entry.
type holding[V any] struct {
	came       uint64
	place      int // in most
	size       int
	keptSize   int
	once, kept link[V] // entries that keep was not called for, and that it was
}

func (t *table[V]) init() {
	t.entries = make(map[name]*entry[V])
	t.scopes = make(map[Hash]*holding[V])
	t.all.init()
}

func (t *table[V]) len() int { return len(t.entries) }

// peek returns the entry of a name, or nil.
func (t *table[V]) peek(key name) *entry[V] { return t.entries[key] }

// add makes an entry for a name that has none.
func (t *table[V]) add(key name) *entry[V] {
	s := t.scopes[key.scope]
	if s == nil {
		t.came++
		s = &holding[V]{came: t.came}
		s.once.init()
		s.kept.init()
		t.scopes[key.scope] = s
		heap.Push(&t.most, s)
	}
	e := &entry[V]{scope: s, key: key}
	e.all.of, e.own.of = e, e
	t.entries[key] = e
	t.all.push(&e.all)
	s.once.push(&e.own)
	s.size++
	heap.Fix(&t.most, s.place)
	return e
}

// use marks an entry as the one used last.
func (t *table[V]) use(e *entry[V]) {
	e.all.unlink()
	t.all.push(&e.all)
	e.own.unlink()
	e.scope.list(e.kept).push(&e.own)
}

// keep marks an entry as worth more than one that was seen once.
func (t *table[V]) keep(e *entry[V]) {
	if e.kept {
		return
	}
	e.own.unlink()
	e.kept = true
	e.scope.keptSize++
	e.scope.kept.push(&e.own)
}

// oldest returns the entry that has not been used for the longest time, or nil.
func (t *table[V]) oldest() *entry[V] { return t.all.prev.of }

// spare returns the entry to give up, of at least one: of the scope with most entries, and
// among equals of the one that came first, the entry that has not been used for the longest
// time. Those to keep come last, as long as a quarter of the scope is others: so much is
// left for what is new to be seen again.
func (t *table[V]) spare() *entry[V] {
	s := t.most[0]
	return s.list(s.size-s.keptSize <= s.size/4).prev.of
}

func (t *table[V]) remove(e *entry[V]) {
	delete(t.entries, e.key)
	e.all.unlink()
	e.own.unlink()
	s := e.scope
	s.size--
	if e.kept {
		s.keptSize--
	}
	heap.Fix(&t.most, s.place)
	if s.size == 0 {
		heap.Remove(&t.most, s.place)
		delete(t.scopes, e.key.scope)
	}
}

func (s *holding[V]) list(kept bool) *link[V] {
	if kept {
		return &s.kept
	}
	return &s.once
}

// link is a place in a ring, which is a list: the entry at its root's next was used last, the
// one at its prev first. The root is of no entry.
type link[V any] struct {
	prev, next *link[V]
	of         *entry[V]
}

func (root *link[V]) init() { root.prev, root.next = root, root }

func (root *link[V]) push(l *link[V]) {
	l.prev, l.next = root, root.next
	l.prev.next, l.next.prev = l, l
}

func (l *link[V]) unlink() {
	l.prev.next, l.next.prev = l.next, l.prev
	l.prev, l.next = nil, nil
}

// bySize is a heap with the largest scope on top.
type bySize[V any] []*holding[V]

func (h bySize[V]) Len() int { return len(h) }

func (h bySize[V]) Less(i, j int) bool {
	if h[i].size != h[j].size {
		return h[i].size > h[j].size
	}
	return h[i].came < h[j].came
}

func (h bySize[V]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *bySize[V]) Push(s any) {
	added := s.(*holding[V])
	added.place = len(*h)
	*h = append(*h, added)
}

func (h *bySize[V]) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return s
}
