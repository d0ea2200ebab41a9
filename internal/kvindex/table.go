package kvindex

import "math/bits"

// mix spreads the bits of a hash. Engines and tests may use small numbers.
func mix(h uint64) uint64 {
	hi, lo := bits.Mul64(h^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return hi ^ lo
}

const (
	tagBits   = 24
	valueBits = 64 - tagBits
	valueMask = 1<<valueBits - 1
	minTable  = 16
)

// tagOf returns the part of a mixed hash that a table keeps.
func tagOf(h uint64) uint64 { return h >> valueBits }

// table is a hash table from something the caller keeps to a value below
// 2^40 - 1: open addressing with linear probing. A slot holds a tag, which is part
// of the key's hash, and the value; whether a value belongs to a key is the
// caller's to check. Several values may have one key. The zero value is empty.
//
// Slots are in the order of tags, except where they had to move on, so that a
// table grows by any factor in one pass.
type table struct {
	slots []uint64 // tag, then value + 1; 0 is free
	count int
}

// home returns the slot at which a tag would like to be.
func (t *table) home(tag uint64) int {
	return int(tag * uint64(len(t.slots)) >> tagBits)
}

func (t *table) next(i int) int {
	if i++; i == len(t.slots) {
		return 0
	}
	return i
}

// reserve makes room for n more values.
func (t *table) reserve(n int) {
	if need := t.count + n; 4*need > 3*len(t.slots) {
		t.resize(max(minTable, len(t.slots)+len(t.slots)/2, need+need/2))
	}
}

// add adds a value.
func (t *table) add(tag, value uint64) {
	t.reserve(1)
	t.count++
	t.put(tag<<valueBits | value + 1)
}

func (t *table) put(slot uint64) {
	i := t.home(slot >> valueBits)
	for t.slots[i] != 0 {
		i = t.next(i)
	}
	t.slots[i] = slot
}

// remove takes a value out and reports whether it was there.
func (t *table) remove(tag, value uint64) bool {
	if t.count == 0 {
		return false
	}
	want := tag<<valueBits | value + 1
	for i := t.home(tag); t.slots[i] != 0; i = t.next(i) {
		if t.slots[i] == want {
			t.free(i)
			return true
		}
	}
	return false
}

// free empties a slot and closes the gap.
func (t *table) free(gap int) {
	t.count--
	for i := t.next(gap); t.slots[i] != 0; i = t.next(i) {
		// What stands at its home, or behind a home after the gap, stays.
		if t.distance(t.home(t.slots[i]>>valueBits), i) < t.distance(gap, i) {
			continue
		}
		t.slots[gap] = t.slots[i]
		gap = i
	}
	t.slots[gap] = 0
	if n := len(t.slots); n > 4*minTable && 5*t.count < n {
		t.resize(n / 2)
	}
}

// distance returns how many steps lead from one slot on to another.
func (t *table) distance(from, to int) int {
	if d := to - from; d >= 0 {
		return d
	}
	return to - from + len(t.slots)
}

func (t *table) resize(n int) {
	old := t.slots
	t.slots = make([]uint64, n)
	for _, s := range old {
		if s != 0 {
			t.put(s)
		}
	}
}

func (t *table) bytes() int { return 8 * cap(t.slots) }
