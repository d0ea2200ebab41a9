package kvindex

import (
	"math/bits"

	"github.com/stator-ai/stator/internal/kv"
)

// farTable says which slots hold a block in a tier beyond the device's memory: a
// mask for each sequence hash. Such blocks come and go without regard to those
// before them, so each stands for itself. The zero value is empty.
type farTable struct {
	entries []farEntry
	count   int
}

type farEntry struct {
	seq  kv.BlockID
	mask uint64 // 0 is a free entry
}

func (t *farTable) home(seq kv.BlockID) int {
	hi, _ := bits.Mul64(mix(uint64(seq)), uint64(len(t.entries)))
	return int(hi)
}

// find returns the place of a block, or the free one where it would go.
func (t *farTable) find(seq kv.BlockID) int {
	i := t.home(seq)
	for t.entries[i].mask != 0 && t.entries[i].seq != seq {
		if i++; i == len(t.entries) {
			i = 0
		}
	}
	return i
}

func (t *farTable) get(seq kv.BlockID) uint64 {
	if t.count == 0 {
		return 0
	}
	return t.entries[t.find(seq)].mask
}

func (t *farTable) set(seq kv.BlockID, slot int) {
	if 4*t.count >= 3*len(t.entries) {
		t.resize(max(minTable, len(t.entries)+len(t.entries)/2))
	}
	e := &t.entries[t.find(seq)]
	if e.mask == 0 {
		e.seq = seq
		t.count++
	}
	e.mask |= 1 << slot
}

func (t *farTable) unset(seq kv.BlockID, slot int) {
	if t.count == 0 {
		return
	}
	gap := t.find(seq)
	before := t.entries[gap].mask
	t.entries[gap].mask &^= 1 << slot
	if before == 0 || t.entries[gap].mask != 0 {
		return
	}
	t.count--
	n := len(t.entries)
	for i := (gap + 1) % n; t.entries[i].mask != 0; i = (i + 1) % n {
		if (i-t.home(t.entries[i].seq)+n)%n < (i-gap+n)%n {
			continue
		}
		t.entries[gap] = t.entries[i]
		t.entries[i].mask = 0
		gap = i
	}
	if n > 4*minTable && 5*t.count < n {
		t.resize(n / 2)
	}
}

func (t *farTable) resize(n int) {
	old := t.entries
	t.entries = make([]farEntry, n)
	for _, e := range old {
		if e.mask != 0 {
			t.entries[t.find(e.seq)] = e
		}
	}
}

func (t *farTable) bytes() int { return 16 * cap(t.entries) }
