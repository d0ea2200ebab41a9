package router

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/stator-ai/stator/internal/sched"
)

// Errors of bookings that are made for somebody else, besides those of Place.
var (
	// ErrDuplicate: a booking with that id exists.
	ErrDuplicate = errors.New("a booking with that id exists")
	// ErrUnknownBooking: no booking has that id, or its lease has ended.
	ErrUnknownBooking = errors.New("no booking with that id")
)

// leases are the bookings of requests that run elsewhere: those who asked for them
// may be gone, so they end by themselves when nobody speaks of them any more.
type leases struct {
	mu   sync.Mutex
	byID map[leaseKey]*lease
}

type leaseKey struct{ model, id string }

type lease struct {
	placement *Placement         // nil while it is being placed
	cancel    context.CancelFunc // of the wait for it
	length    time.Duration
	until     time.Time
	timer     *time.Timer // nil in virtual time
	telling   sync.Mutex  // held while the placement is told something
}

func (l *leases) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.byID)
}

// Reserve places a request that somebody else runs. The booking has the request's
// model and id and lives until Release, or until nothing is said about it for a
// lease, the configured one if 0. The errors are those of Place, [ErrDuplicate], and
// [ErrUnknownBooking] if it was released while it waited for its turn.
func (r *Router) Reserve(ctx context.Context, q *Request, length time.Duration) (*Placement, error) {
	if length <= 0 {
		length = r.cfg.Lease
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	key := leaseKey{q.Model.ID, q.ID}
	mine := &lease{length: length, cancel: cancel}
	l := &r.leases
	if !l.enter(key, mine) {
		return nil, ErrDuplicate
	}
	remote := *q
	remote.Remote = true
	pl, err := r.Place(ctx, &remote)
	l.mu.Lock()
	released := l.byID[key] != mine
	switch {
	case released:
	case err != nil:
		delete(l.byID, key)
	default:
		mine.placement, mine.until = pl, r.cfg.Now().Add(length)
		if !r.cfg.Virtual {
			mine.timer = time.AfterFunc(length, func() { r.expire(key, mine) })
		}
	}
	l.mu.Unlock()
	if !released {
		return pl, err
	}
	if err == nil {
		pl.Done(Cancelled)
	}
	return nil, ErrUnknownBooking
}

// enter takes in a booking that is about to be made and reports whether its id was
// free.
func (l *leases) enter(key leaseKey, mine *lease) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID[key] != nil {
		return false
	}
	if l.byID == nil {
		l.byID = make(map[leaseKey]*lease)
	}
	l.byID[key] = mine
	return true
}

// expire ends a booking that nobody speaks of any more.
func (r *Router) expire(key leaseKey, mine *lease) {
	l := &r.leases
	l.mu.Lock()
	if l.byID[key] != mine || r.cfg.Now().Before(mine.until) { // renewed in that very moment
		l.mu.Unlock()
		return
	}
	delete(l.byID, key)
	l.mu.Unlock()
	mine.placement.Done(Cancelled)
	r.cfg.Metrics.LeaseExpired()
	r.cfg.Log.Debug("lease of a booking has ended", "model", key.model, "request_id", key.id, "lease", mine.length)
}

// Renew says that a booking is still wanted, and with prefilled set that its prompt
// has been computed. The error is [ErrUnknownBooking].
func (r *Router) Renew(model, id string, prefilled bool) error {
	l := &r.leases
	l.mu.Lock()
	mine := l.byID[leaseKey{model, id}]
	if mine == nil || mine.placement == nil {
		l.mu.Unlock()
		return ErrUnknownBooking
	}
	mine.until = r.cfg.Now().Add(mine.length)
	if mine.timer != nil {
		mine.timer.Reset(mine.length)
	}
	l.mu.Unlock()
	if prefilled {
		mine.telling.Lock()
		defer mine.telling.Unlock()
		mine.placement.FirstToken()
	}
	return nil
}

// Release ends a booking, or the wait for it, and reports whether there was one.
func (r *Router) Release(model, id string) bool {
	l := &r.leases
	key := leaseKey{model, id}
	l.mu.Lock()
	mine := l.byID[key]
	delete(l.byID, key)
	l.mu.Unlock()
	if mine == nil {
		return false
	}
	mine.end(Completed)
	return true
}

// end releases a booking that nobody can find any more.
func (mine *lease) end(o Outcome) {
	mine.cancel()
	if mine.timer != nil {
		mine.timer.Stop()
	}
	if mine.placement != nil {
		mine.placement.Done(o)
	}
}

// end ends all of them.
func (l *leases) end() {
	l.mu.Lock()
	all := l.byID
	l.byID = nil
	l.mu.Unlock()
	for _, mine := range all {
		mine.end(Cancelled)
	}
}

// PotentialLoad is what a rank would have to do with one more request.
type PotentialLoad struct {
	Worker        uint64
	Rank          uint32
	PrefillTokens int
	DecodeBlocks  int
	Requests      int // those that are there
}

// PotentialLoads returns what each rank that serves q.Model would have to do if q was
// placed there, sorted by worker and rank, and how many requests with how many prompt
// tokens wait.
func (r *Router) PotentialLoads(q *Request) (loads []PotentialLoad, requests, tokens int) {
	now := r.cfg.Now()
	for _, p := range q.Model.pools {
		c := newChoice(p, now, q, decision{})
		c.look()
		p.mu.Lock()
		n, t := p.line.pending()
		loads = append(loads, c.potential()...)
		p.mu.Unlock()
		c.free()
		requests, tokens = requests+n, tokens+t
	}
	slices.SortFunc(loads, func(a, b PotentialLoad) int {
		return cmp.Or(cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.Rank, b.Rank))
	})
	return loads, requests, tokens
}

// potential returns what each rank would have to do. The caller holds the pool's
// lock.
func (c *choice) potential() (out []PotentialLoad) {
	tracked := c.pool.router.cfg.Mode == KV && !c.pool.router.cfg.KV.NoActiveBlocks
	c.live = c.live[:0]
	if tracked && len(c.prompt) > 0 && c.reuses() {
		c.live = c.pool.ledger.Live(c.live, c.prompt)
	}
	c.dec.PromptTokens, c.dec.BlockSize = max(c.q.PromptTokens, 0), c.pool.blockSize()
	told, sent := c.told, c.sent
	for _, s := range c.pool.slots {
		depth := c.pool.deepest(&told, &sent, s)
		if !s.serves(c.q.Model.ID) {
			continue
		}
		var cand sched.Candidate
		c.candidate(&cand, s, &depth, tracked)
		out = append(out, PotentialLoad{
			Worker:        uint64(cand.Worker),
			Rank:          cand.Rank,
			PrefillTokens: cand.PrefillTokens + c.cost.PrefillTokens(&c.dec, &cand),
			DecodeBlocks:  cand.Blocks + cand.NewBlocks,
			Requests:      cand.Requests,
		})
	}
	return out
}
