package router

import (
	"slices"
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// departure is when a rank left. What was learned of it is kept for a while: after an
// update, or when its name could not be looked up, it comes back as the same.
type departure struct {
	rank kv.Source
	at   time.Time
}

// maxDeparted bounds the ranks that are remembered although they have left. Those that left
// first are forgotten first.
const maxDeparted = 1024

// leave notes that a rank has left the pool. The caller holds the pool's lock.
func (b *bandit) leave(now time.Time, rank kv.Source) {
	if b.reference != nil {
		b.reference.Leave(rank)
	}
	b.stays.leave(rank)
	b.departed = slices.DeleteFunc(b.departed, func(d departure) bool { return d.rank == rank })
	b.departed = append(b.departed, departure{rank, now})
}

// forgetDeparted forgets the ranks that left long ago, or are too many, and have not come
// back.
func (b *bandit) forgetDeparted(p *pool, now time.Time) {
	n := 0
	for len(b.departed)-n > maxDeparted || n < len(b.departed) && now.Sub(b.departed[n].at) >= b.keep {
		if rank := b.departed[n].rank; !slices.ContainsFunc(p.slots, func(s *slot) bool { return s.source() == rank }) {
			b.forget(rank)
		}
		n++
	}
	b.departed = slices.Delete(b.departed, 0, n)
}

// forget drops what was learned of a rank.
func (b *bandit) forget(rank kv.Source) {
	if b.reference != nil {
		b.reference.Forget(rank)
	} else {
		b.safe.Forget(rank)
	}
}
