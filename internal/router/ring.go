package router

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/stator-ai/stator/nvext"
)

// ring keeps the latest decisions, in memory that is used again. A nil ring keeps
// none.
type ring struct {
	mu      sync.Mutex
	entries []entry // a decision lies at its ordinal modulo their number
}

type entry struct {
	ordinal uint64 // 0 means that there is none
	record
}

func newRing(n int) *ring {
	if n <= 0 {
		return nil
	}
	return &ring{entries: make([]entry, n)}
}

// add keeps a copy of a decision.
func (r *ring) add(c *choice) {
	if r == nil {
		return
	}
	rec := c.record()
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &r.entries[c.d.ordinal%uint64(len(r.entries))]
	if e.ordinal > c.d.ordinal { // that of a request that has waited for long
		return
	}
	cands, others, pools := e.cands, e.others, e.pools
	e.ordinal, e.record = c.d.ordinal, rec
	e.cands = append(cands[:0], rec.cands...)
	e.others = append(others[:0], rec.others...)
	e.pools = append(pools[:0], rec.pools...)
	if len(rec.pools) == 0 {
		e.pools = nil
	} else {
		chosePool(&e.pools[c.d.pool], len(rec.cands))
	}
}

// settle notes what the engine found in its cache.
func (r *ring) settle(ordinal uint64, v nvext.Verdict, cached int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := &r.entries[ordinal%uint64(len(r.entries))]; e.ordinal == ordinal {
		e.verdict, e.actual = v, cached
	}
}

// Decided is a decision that was made.
type Decided struct {
	At      time.Time
	Routing *nvext.Routing
}

// Decisions returns the latest decisions that keep wants, the latest first, at most
// so many, each with all candidates. Keep sees the name of the model, the id of the
// request and the worker that got it.
func (r *Router) Decisions(most int, keep func(model, request string, worker uint64) bool) []Decided {
	if r.ring == nil {
		return nil
	}
	r.ring.mu.Lock()
	defer r.ring.mu.Unlock()
	latest := make([]*entry, 0, len(r.ring.entries))
	for i := range r.ring.entries {
		e := &r.ring.entries[i]
		if e.ordinal > 0 && keep(e.model, e.requestID, uint64(e.cands[e.chosen].Worker)) {
			latest = append(latest, e)
		}
	}
	slices.SortFunc(latest, func(a, b *entry) int {
		if a.ordinal > b.ordinal {
			return -1
		}
		return 1
	})
	var out []Decided
	for _, e := range latest[:min(most, len(latest))] {
		routing := e.routing(math.MaxInt)
		routing.Pools = slices.Clone(routing.Pools)
		out = append(out, Decided{e.at, routing})
	}
	return out
}
