package kvindex

import (
	"sync"
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// maxUses bounds the uses of blocks that a Uses remembers.
const maxUses = 1 << 20

// Uses counts how often blocks were asked for within a sliding window of time. It
// remembers the latest 1,048,576 uses of single blocks and takes older ones for
// expired. Methods are safe for concurrent use.
type Uses struct {
	window time.Duration
	limit  int

	mu     sync.Mutex
	log    []use // a ring: len(log) uses, the oldest at first
	first  int
	size   int
	counts map[kv.BlockID]int32
}

// use is that a block was asked for.
type use struct {
	id kv.BlockID
	at int64 // nanoseconds since 1970
}

// NewUses returns a counter without any uses. A use is forgotten when it is older
// than window.
func NewUses(window time.Duration) *Uses {
	return &Uses{window: window, limit: maxUses, counts: map[kv.BlockID]int32{}}
}

// Record notes that the blocks of a matched prefix were asked for at now, and
// appends to dst how often each was asked for before, blocks that were not left
// out. Blocks are told apart by their ID. It keeps nothing of prefix.
func (u *Uses) Record(dst []int, now time.Time, prefix []kv.Block) []int {
	at := now.UnixNano()
	u.mu.Lock()
	defer u.mu.Unlock()
	for u.size > 0 && at-u.log[u.first].at > int64(u.window) {
		u.forget()
	}
	for _, b := range prefix {
		n := u.counts[b.ID]
		if n > 0 {
			dst = append(dst, int(n))
		}
		if u.size == u.limit {
			u.forget()
		}
		u.push(use{b.ID, at})
		u.counts[b.ID]++
	}
	return dst
}

// forget drops the oldest use.
func (u *Uses) forget() {
	id := u.log[u.first].id
	u.first = (u.first + 1) % len(u.log)
	u.size--
	if u.counts[id]--; u.counts[id] == 0 {
		delete(u.counts, id)
	}
}

// push appends to the ring, which grows up to the limit.
func (u *Uses) push(x use) {
	if u.size == len(u.log) {
		log := make([]use, min(max(2*len(u.log), 64), u.limit))
		n := copy(log, u.log[u.first:])
		copy(log[n:], u.log[:u.first])
		u.log, u.first = log, 0
	}
	u.log[(u.first+u.size)%len(u.log)] = x
	u.size++
}
