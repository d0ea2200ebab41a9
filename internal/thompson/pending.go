package thompson

// DefaultMaxPending is how many decisions wait for feedback at a time.
const DefaultMaxPending = 65_536

// pending holds decisions until there is feedback, in the order in which they were made.
// Where there are too many, the oldest leaves. An id is never used twice within 2^32 uses
// of its place.
type pending[T any] struct {
	slots          []record[T]
	free           int32
	oldest, newest int32
	n, max         int
	lost           uint64   // those that left because there were too many
	dropped        func(*T) // called with what leaves, whoever removes it
}

type record[T any] struct {
	value      T
	generation uint32
	used       bool
	prev, next int32 // towards the oldest, towards the newest
}

func newPending[T any](limit int, dropped func(*T)) *pending[T] {
	return &pending[T]{free: none, oldest: none, newest: none, max: limit, dropped: dropped}
}

// add returns the id of a new record and the record, which is valid until the next add.
func (p *pending[T]) add() (uint64, *T) {
	if p.n >= p.max {
		p.lost++
		p.removeAt(p.oldest)
	}
	i := p.free
	if i != none {
		p.free = p.slots[i].next
	} else {
		i = int32(len(p.slots))
		p.slots = append(p.slots, record[T]{generation: 1})
	}
	r := &p.slots[i]
	r.used, r.prev, r.next = true, p.newest, none
	if p.newest != none {
		p.slots[p.newest].next = i
	} else {
		p.oldest = i
	}
	p.newest = i
	p.n++
	return uint64(r.generation)<<32 | uint64(uint32(i)), &r.value
}

// get returns the place of a record, or none.
func (p *pending[T]) get(id uint64) int32 {
	i := uint32(id)
	if uint64(i) >= uint64(len(p.slots)) {
		return none
	}
	if r := &p.slots[i]; !r.used || uint64(r.generation) != id>>32 {
		return none
	}
	return int32(i)
}

func (p *pending[T]) at(i int32) *T { return &p.slots[i].value }

func (p *pending[T]) removeAt(i int32) {
	r := &p.slots[i]
	if p.dropped != nil {
		p.dropped(&r.value)
	}
	if r.prev != none {
		p.slots[r.prev].next = r.next
	} else {
		p.oldest = r.next
	}
	if r.next != none {
		p.slots[r.next].prev = r.prev
	} else {
		p.newest = r.prev
	}
	var zero T
	r.value, r.used = zero, false
	if r.generation++; r.generation == 0 {
		r.generation = 1 // 0 makes no id, so that the id 0 is never one
	}
	r.prev, r.next = none, p.free
	p.free = i
	p.n--
}

// removeIf removes all that match.
func (p *pending[T]) removeIf(match func(*T) bool) {
	for i := p.oldest; i != none; {
		next := p.slots[i].next
		if match(&p.slots[i].value) {
			p.removeAt(i)
		}
		i = next
	}
}
