package router

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// breaker counts how the latest requests of a worker ended. It trips when too many
// failed although the worker says that it is well; each time in a row for longer.
type breaker struct {
	recent    atomic.Uint32 // the latest outcomes, a bit for each, 1 for a failure
	probation atomic.Int32  // requests that have to succeed until all is forgotten
	trips     atomic.Int32  // in a row
}

const (
	// tripFailures of the latest tripRequests trip the breaker.
	tripFailures = 5
	tripRequests = 8
	// probationFailures of them do for a worker that is on probation.
	probationFailures = 3
	tripLeast         = 5 * time.Second
	tripMost          = time.Minute
)

// succeeded notes a request that the worker answered.
func (b *breaker) succeeded() {
	if b.recent.Load()|uint32(b.probation.Load()) == 0 {
		return // as nearly always
	}
	b.note(0)
	if n := b.probation.Load(); n > 0 && b.probation.CompareAndSwap(n, n-1) && n == 1 {
		b.trips.Store(0)
	}
}

// failed notes one that it did not, and reports whether that is too many.
func (b *breaker) failed() bool {
	n := bits.OnesCount32(b.note(1))
	return n >= tripFailures || n >= probationFailures && b.probation.Load() > 0
}

// shaky reports whether so many failed lately that others are not better off there.
func (b *breaker) shaky() bool { return bits.OnesCount32(b.recent.Load()) >= probationFailures }

func (b *breaker) note(failure uint32) uint32 {
	for {
		old := b.recent.Load()
		now := (old<<1 | failure) & (1<<tripRequests - 1)
		if b.recent.CompareAndSwap(old, now) {
			return now
		}
	}
}

// trip returns for how long the worker is to be left alone.
func (b *breaker) trip() time.Duration {
	n := min(b.trips.Add(1), 8)
	b.recent.Store(0)
	b.probation.Store(0)
	return min(tripLeast<<(n-1), tripMost)
}

// try gives the worker requests again, on probation.
func (b *breaker) try() { b.probation.Store(tripRequests) }
