package thompson

import (
	"crypto/sha256"
	"time"
)

// DefaultMaxPrefixes is how many conversations are remembered at a time.
const DefaultMaxPrefixes = 65_536

// PrefixID stands for the name of a conversation, whatever its length. The zero PrefixID
// is none.
type PrefixID [16]byte

// NewPrefixID returns the id of a conversation's name within a scope, such as a tenant. A
// conversation without a name has none.
func NewPrefixID(scope, name string) PrefixID {
	if name == "" {
		return PrefixID{}
	}
	var room [256]byte
	b := append(room[:0], scope...)
	b = append(b, 0)
	b = append(b, name...)
	sum := sha256.Sum256(b)
	return PrefixID(sum[:])
}

// table remembers something about prefixes: at most max of them, each until it has not
// been used for a time of its own. Where there are too many, the one that was not used for
// the longest time leaves. Expired ones are found when they are asked for, and by a hand
// that goes round a few places with every use.
type table[V any] struct {
	index          map[PrefixID]int32
	slots          []slot[V]
	free           int32 // first of the empty slots, linked by next
	newest, oldest int32
	hand           int
	max            int
	dropped        func(*V) // called with what leaves, whoever removes it
}

type slot[V any] struct {
	id         PrefixID
	prev, next int32 // towards the newest, towards the oldest
	used       bool
	expires    time.Time
	value      V
}

const none = int32(-1)

func newTable[V any](limit int, dropped func(*V)) *table[V] {
	return &table[V]{
		index: make(map[PrefixID]int32), free: none, newest: none, oldest: none,
		max: limit, dropped: dropped,
	}
}

func (t *table[V]) len() int { return len(t.index) }

// get returns what is known about a prefix, or nil. It is valid until the next put.
func (t *table[V]) get(now time.Time, id PrefixID) *V {
	i, ok := t.index[id]
	if !ok {
		return nil
	}
	if !now.Before(t.slots[i].expires) {
		t.removeAt(i)
		return nil
	}
	return &t.slots[i].value
}

// put returns the place for what is known about a prefix, with what was there, and makes
// it the one used last.
func (t *table[V]) put(now time.Time, id PrefixID, ttl time.Duration) *V {
	t.tidy(now, 2)
	i, ok := t.index[id]
	if ok {
		t.unlink(i)
	} else {
		if len(t.index) >= t.max {
			t.removeAt(t.oldest)
		}
		i = t.take()
		t.index[id] = i
		t.slots[i] = slot[V]{id: id, used: true}
	}
	s := &t.slots[i]
	s.expires = now.Add(ttl)
	s.prev, s.next = none, t.newest
	if t.newest != none {
		t.slots[t.newest].prev = i
	} else {
		t.oldest = i
	}
	t.newest = i
	return &s.value
}

func (t *table[V]) remove(id PrefixID) {
	if i, ok := t.index[id]; ok {
		t.removeAt(i)
	}
}

// removeIf removes all that match.
func (t *table[V]) removeIf(match func(*V) bool) {
	for i := range t.slots {
		if t.slots[i].used && match(&t.slots[i].value) {
			t.removeAt(int32(i))
		}
	}
}

// tidy looks at the next n places and removes what has expired.
func (t *table[V]) tidy(now time.Time, n int) {
	for range min(n, len(t.slots)) {
		if t.hand >= len(t.slots) {
			t.hand = 0
		}
		if s := &t.slots[t.hand]; s.used && !now.Before(s.expires) {
			t.removeAt(int32(t.hand))
		}
		t.hand++
	}
}

func (t *table[V]) removeAt(i int32) {
	s := &t.slots[i]
	if t.dropped != nil {
		t.dropped(&s.value)
	}
	delete(t.index, s.id)
	t.unlink(i)
	*s = slot[V]{prev: none, next: t.free}
	t.free = i
}

func (t *table[V]) take() int32 {
	if i := t.free; i != none {
		t.free = t.slots[i].next
		return i
	}
	t.slots = append(t.slots, slot[V]{})
	return int32(len(t.slots) - 1)
}

func (t *table[V]) unlink(i int32) {
	s := &t.slots[i]
	if s.prev != none {
		t.slots[s.prev].next = s.next
	} else {
		t.newest = s.next
	}
	if s.next != none {
		t.slots[s.next].prev = s.prev
	} else {
		t.oldest = s.prev
	}
}
