package learn

// lru is a table that knows which of its entries was used last. Entries are not moved in
// memory, so that they can be pointed to, also after they have been removed.
type lru[K comparable, V any] struct {
	entries map[K]*entry[K, V]
	root    entry[K, V] // its next was used last, its prev first; it holds no value
}

type entry[K comparable, V any] struct {
	prev, next *entry[K, V]
	key        K
	value      V
}

func (l *lru[K, V]) init() {
	l.entries = make(map[K]*entry[K, V])
	l.root.prev, l.root.next = &l.root, &l.root
}

func (l *lru[K, V]) len() int { return len(l.entries) }

// peek returns the entry of a key, or nil.
func (l *lru[K, V]) peek(key K) *entry[K, V] { return l.entries[key] }

// add makes an entry for a key that has none.
func (l *lru[K, V]) add(key K) *entry[K, V] {
	e := &entry[K, V]{key: key}
	l.entries[key] = e
	l.link(e)
	return e
}

// use marks an entry as the one used last.
func (l *lru[K, V]) use(e *entry[K, V]) {
	if l.root.next == e {
		return
	}
	e.unlink()
	l.link(e)
}

// oldest returns the entry that has not been used for the longest time, or nil.
func (l *lru[K, V]) oldest() *entry[K, V] {
	if l.root.prev == &l.root {
		return nil
	}
	return l.root.prev
}

func (l *lru[K, V]) remove(e *entry[K, V]) {
	delete(l.entries, e.key)
	e.unlink()
	e.prev, e.next = nil, nil
}

func (l *lru[K, V]) link(e *entry[K, V]) {
	e.prev, e.next = &l.root, l.root.next
	e.prev.next, e.next.prev = e, e
}

func (e *entry[K, V]) unlink() { e.prev.next, e.next.prev = e.next, e.prev }
