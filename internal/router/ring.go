package router

import (
	"cmp"
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
	added   uint64
	widest  int     // most candidates of a decision
	entries []entry // the nth that was added lies at n modulo their number
}

// maxKept bounds how many candidates the decisions have together; with more ranks fewer
// decisions are kept.
const maxKept = 1 << 18

type entry struct {
	number uint64 // how many were added with it; 0 means that there is none
	record
}

func newRing(n int) *ring {
	if n <= 0 {
		return nil
	}
	return &ring{entries: make([]entry, n)}
}

// add keeps a copy of a decision and returns its number.
func (r *ring) add(c *choice) uint64 {
	if r == nil {
		return 0
	}
	rec := c.record()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.added++
	if n := len(rec.cands) + len(rec.others); n > r.widest {
		r.widest = n
		r.narrow(max(16, maxKept/n))
	}
	e := &r.entries[r.added%uint64(len(r.entries))]
	cands, others, pools, policy := e.cands, e.others, e.pools, e.policy
	e.number, e.record = r.added, rec
	e.cands = append(cands[:0], rec.cands...)
	e.others = append(others[:0], rec.others...)
	e.policy = policy.copy(rec.policy)
	e.pools = append(pools[:0], rec.pools...)
	if len(rec.pools) == 0 {
		e.pools = nil
	} else {
		chosePool(&e.pools[c.d.pool], len(rec.cands))
	}
	return e.number
}

// narrow leaves room for so many decisions, and begins anew if there was room for more.
func (r *ring) narrow(n int) {
	if n < len(r.entries) {
		r.entries = make([]entry, n)
	}
}

// settle notes what the engine found in its cache for the decision of that number, if
// it is still there.
func (r *ring) settle(number uint64, v nvext.Verdict, cached int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := &r.entries[number%uint64(len(r.entries))]; e.number == number {
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
	var out []Decided
	for _, rec := range r.ring.latest(most, keep) {
		out = append(out, Decided{rec.at, rec.routing(math.MaxInt)})
	}
	return out
}

// latest returns copies of the latest decisions that keep wants, the latest first.
func (r *ring) latest(most int, keep func(model, request string, worker uint64) bool) []record {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []*entry
	for i := range r.entries {
		e := &r.entries[i]
		if e.number > 0 && keep(e.model, e.requestID, uint64(e.cands[e.chosen].Worker)) {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b *entry) int { return cmp.Compare(b.number, a.number) })
	out := make([]record, min(most, len(found)))
	for i := range out {
		out[i] = found[i].record
		out[i].cands = slices.Clone(out[i].cands)
		out[i].others = slices.Clone(out[i].others)
		out[i].policy = verdicts{}.copy(out[i].policy)
		out[i].pools = slices.Clone(out[i].pools)
	}
	return out
}
