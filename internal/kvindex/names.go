package kvindex

import (
	"math/bits"

	"github.com/stator-ai/stator/internal/kv"
)

// names leads from the names that an engine gives to blocks to the words of the
// rank's arena that hold them. It is a hash table with open addressing; a slot is
// part of the name's hash, as much as has room, and the word.
//
// Nothing is ever taken out: a slot counts while there is a block with the name at
// the word, and whoever searches looks there anyway. So blocks leave without a
// search. What has no use any more goes when the table is made anew, which is often
// enough that most slots are free.
type names struct {
	slots []uint32 // 0 is free
	used  int
	word  uint32 // the bits of a slot that are the word, plus one
}

const minNames = 64

func (t *names) home(hash uint64) int {
	hi, _ := bits.Mul64(hash, uint64(len(t.slots)))
	return int(hi)
}

func (t *names) next(i int) int {
	if i++; i == len(t.slots) {
		return 0
	}
	return i
}

// touch reads the slot at which a name would like to be. A search for one name waits
// for memory; touching the slots of many names first makes it wait for all of them
// at once.
func (t *names) touch(hash uint64) uint32 { return t.slots[t.home(hash)] }

// set adds a word at a slot where a search has ended.
func (t *names) set(slot int, hash uint64, word uint32) {
	if t.slots[slot] == 0 {
		t.used++
	}
	t.slots[slot] = uint32(hash)&^t.word | word + 1
}

// search returns the place of a block by its own name, or the slot where the name
// would go: one that has led to such a block before, or the free one where the search
// ended.
func (r *rank) search(hash uint64, id kv.BlockID) (p place, slot int, ok bool) {
	t := &r.names
	tag := uint32(hash) &^ t.word
	slot = t.home(hash)
	old := -1
	for s := t.slots[slot]; s != 0; s = t.slots[slot] {
		if s&^t.word == tag {
			word := s&t.word - 1
			if p, ok := r.at(word, id); ok {
				return p, slot, true
			}
			if old < 0 && kv.BlockID(*r.ids.at(word)) == id {
				old = slot // the block was there
			}
		}
		slot = t.next(slot)
	}
	if old >= 0 {
		slot = old
	}
	return place{}, slot, false
}

// at returns the place of the block whose name is at a word, if there is one with
// that name.
func (r *rank) at(word uint32, id kv.BlockID) (place, bool) {
	if kv.BlockID(*r.ids.at(word)) != id {
		return place{}, false
	}
	at := r.ids.owner[word/granule]
	u := &r.runs[at]
	off := word - u.ids
	if off >= uint32(u.n) || u.dead>>off&1 != 0 {
		return place{}, false // it was there
	}
	return place{run: at, off: uint8(off)}, true
}

// own returns the place of a block by its own name.
func (r *rank) own(id kv.BlockID) (place, bool) {
	if r.names.used == 0 {
		return place{}, false
	}
	p, _, ok := r.search(mix(uint64(id)), id)
	return p, ok
}

// addName lets a name lead to a place.
func (r *rank) addName(id kv.BlockID, p place) {
	r.reserveNames(1)
	r.putName(uint64(id), r.runs[p.run].ids+uint32(p.off))
}

func (r *rank) putName(id uint64, word uint32) {
	t := &r.names
	hash := mix(id)
	i := t.home(hash)
	for t.slots[i] != 0 {
		i = t.next(i)
	}
	t.set(i, hash, word)
}

// reserveNames makes room for n more names.
func (r *rank) reserveNames(n int) {
	if 4*(r.names.used+n) > 3*len(r.names.slots) || r.ids.words >= r.names.word {
		r.renewNames(n)
	}
}

// renewNames makes the table anew, of what has a use, with room for n more names and
// about as many again before that has to be done next.
func (r *rank) renewNames(n int) {
	t := &r.names
	if size := max(minNames, 3*(r.placed+n)); size > len(t.slots) || 2*size < len(t.slots) {
		t.slots = make([]uint32, size)
	} else {
		clear(t.slots)
	}
	t.used = 0
	t.word = 1<<bits.Len32(2*r.ids.words+1024) - 1
	for at := r.roots; at != none; at = r.after(at) {
		u := &r.runs[at]
		for o, id := range r.piece(u)[:u.n] {
			if u.dead>>o&1 == 0 {
				r.putName(id, u.ids+uint32(o))
			}
		}
	}
}

// trimNames gives memory back when most of it is not needed.
func (r *rank) trimNames() {
	if n := len(r.names.slots); n > 16*minNames && 16*r.placed < n {
		r.renewNames(0)
	}
}

func (t *names) bytes() int { return 4 * cap(t.slots) }
