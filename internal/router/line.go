package router

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/nvext"
)

// line is where the requests of a pool wait while its ranks are busy. It is guarded
// by the pool's mutex.
type line struct {
	pool    *pool
	cfg     *QueueConfig
	queue   *sched.Queue
	classes []*metrics.QueueClass
	armed   bool // the line looks again by itself
}

// waiter is a request in line.
type waiter struct {
	sched.Waiter
	c *choice
	// It is told that it is its turn by a call, or else by closing done.
	call func(*Placement, error)
	done chan struct{}
	err  error // why it was refused when it was its turn
}

// lookAgain is how often the line is looked at when nothing happens. What makes
// room is told at once; but nobody says when a worker has rested enough.
const lookAgain = time.Second

func newLine(p *pool, cfg *QueueConfig) *line {
	q, err := sched.NewQueue(cfg.QueueConfig)
	if err != nil {
		panic("router: " + err.Error()) // whoever made it has checked it
	}
	l := &line{pool: p, cfg: cfg, queue: q}
	for _, c := range q.Classes() {
		l.classes = append(l.classes, p.metrics.Class(c.Name))
	}
	return l
}

// gate has c wait if its class has to: it returns a waiter then. Those that came before
// and can go have gone, or with behind set are about to.
func (l *line) gate(c *choice, behind bool, call func(*Placement, error)) (*waiter, error) {
	if blocked := c.gather(); len(c.dec.Candidates) == 0 {
		return nil, c.refuse(blocked)
	}
	cached, waits := l.classify(c)
	if behind {
		waits = l.queue.Classes()[c.class].Waits()
	}
	if !waits {
		return nil, nil
	}
	if l.pool.router.ctx.Err() != nil {
		return nil, ErrNoWorkers // nobody would tell it
	}
	w := &waiter{c: c, call: call}
	if call == nil {
		w.done = make(chan struct{})
	}
	w.Waiter = sched.Waiter{
		Arrived:      c.arrived().Sub(l.pool.router.began),
		Jump:         c.q.Jump,
		Tier:         c.q.Tier,
		PromptTokens: c.tokens(),
		CachedTokens: cached,
		Tenant:       c.q.Tenant,
		Lane:         l.lane(c.restriction),
		Value:        w,
	}
	if c.q.QueryOnly { // nothing is computed for it
		w.PromptTokens, w.CachedTokens = 1, 0
	}
	if err := l.queue.Push(&w.Waiter, c.class, l.workers()); err != nil {
		var limit *sched.LimitError
		if errors.As(err, &limit) {
			l.classes[c.class].Rejected(rejection(limit.Kind))
		}
		return nil, err
	}
	l.show(c.class)
	l.arm()
	c.trim()
	return w, nil
}

// trim gives up what is found out anew when it is the request's turn.
func (c *choice) trim() {
	c.dec.Candidates, c.slots, c.others, c.live = nil, nil, nil, nil
	c.told, c.sent = slices.Clone(c.told), slices.Clone(c.sent)
}

// classify finds the class of c, which has gathered, and returns how much of its prompt
// is in a cache and whether it has to wait.
func (l *line) classify(c *choice) (cached int, waits bool) {
	tokens := c.tokens()
	cached = min(c.best*l.pool.blockSize(), tokens)
	c.class = l.queue.Classify(c.q.Class, tokens-cached)
	class := &l.queue.Classes()[c.class]
	return cached, class.Waits() && !l.free(c.q, class)
}

func rejection(k sched.LimitKind) metrics.QueueLimit {
	switch k {
	case sched.LimitPromptTokens:
		return metrics.QueueLimitPromptTokens
	case sched.LimitCachedTokens:
		return metrics.QueueLimitCachedTokens
	default:
		return metrics.QueueLimitRequests
	}
}

// maxLanes bounds how many restrictions are told apart in the line. Beyond that they
// share lanes, as many as that again, and one may wait for the other in vain for a
// while.
const maxLanes = 128

// lane returns the lane of a request whose restrictions have that number.
func (l *line) lane(restriction uint64) uint64 {
	if restriction == 0 || l.queue.Lanes() < maxLanes {
		return restriction
	}
	return 1 + restriction%maxLanes
}

// restriction tells requests apart by what they may run on, now or when others have
// joined. It is 0 for those that may run anywhere. Workers that there are not make no
// difference.
func (r *Router) restriction(q *Request) uint64 {
	if !q.Pinned && q.Allowed == nil && len(q.Exclude) == 0 && len(q.RequiredTaints) == 0 && !q.Model.Adapter {
		return 0
	}
	b := append(make([]byte, 0, 128), q.Model.ID...)
	b = append(b, 0)
	if q.Pinned {
		b = binary.LittleEndian.AppendUint64(b, uint64(q.Pin))
		if q.PinRank != nil {
			b = binary.LittleEndian.AppendUint32(b, *q.PinRank)
		}
	}
	r.mu.RLock()
	b = r.appendKnown(append(b, 1), q.Allowed)
	if q.Allowed == nil {
		b = append(b, 1)
	}
	r.mu.RUnlock()
	b = append(b, 2)
	for _, id := range q.Exclude {
		b = binary.LittleEndian.AppendUint64(b, uint64(id))
	}
	taints := slices.Clone(q.RequiredTaints)
	slices.Sort(taints)
	for _, t := range slices.Compact(taints) {
		b = append(append(b, 3), t...)
	}
	return max(xxh3.Hash(b), 1)
}

// appendKnown appends the ids of a list that are those of workers, sorted. The caller
// holds the lock.
func (r *Router) appendKnown(b []byte, ids []uint64) []byte {
	var known []uint64
	for _, id := range ids {
		if r.workers[kv.WorkerID(id)] != nil {
			known = append(known, id)
		}
	}
	slices.Sort(known)
	for _, id := range slices.Compact(known) {
		b = binary.LittleEndian.AppendUint64(b, id)
	}
	return b
}

// workers counts the pool's workers that are there.
func (l *line) workers() int {
	n := 0
	for i, s := range l.pool.slots {
		if (i == 0 || l.pool.slots[i-1].worker != s.worker) && s.worker.discovered.Load() {
			n++
		}
	}
	return n
}

// free reports whether a rank that may run q has room for its class, or none may run
// it at all: that is not worth waiting for. One that is overloaded or rests after a
// failure will have room again, or be gone.
func (l *line) free(q *Request, class *sched.Class) bool {
	p := l.pool
	now, th := p.router.cfg.Now(), q.Model.thresholds.Load()
	worth := false
	for _, s := range p.slots {
		if !s.serves(q.Model.ID) || !s.wanted(q) {
			continue
		}
		switch p.state(s, now, q, th) {
		case nvext.StateEligible:
			if !class.Busy(p.ledger.Totals(s.seat, false).PrefillTokens, s.maxBatched) {
				return true
			}
			worth = true
		case nvext.StateOverloaded, nvext.StateInhibited:
			worth = true
		}
	}
	return !worth
}

// batch is how many requests leave the line in one go, so that the lock is not held
// for too long.
const batch = 64

// drain places a batch of the requests whose turn it is and that can go, and returns
// them; the caller hands them to tell when it has given the lock back. It looks no
// further if no rank has room for anybody: those whose ranks have all gone are refused
// by sweep.
func (p *pool) drain(now time.Time) (granted []*waiter) {
	if l := p.line; l == nil || l.queue.Len() == 0 || !l.room() {
		return nil
	}
	return p.sweep(now)
}

// room reports whether a rank has room for a class in which somebody waits.
func (l *line) room() bool {
	classes := l.queue.Classes()
	for _, s := range l.pool.slots {
		tokens := l.pool.ledger.Totals(s.seat, false).PrefillTokens
		for i := range classes {
			if l.queue.Waiting(i).Requests > 0 && !classes[i].Busy(tokens, s.maxBatched) {
				return true
			}
		}
	}
	return false
}

// sweep is drain that looks at everybody who waits.
func (p *pool) sweep(now time.Time) (granted []*waiter) {
	l := p.line
	if l == nil || l.queue.Len() == 0 {
		return nil
	}
	refresh := cmp.Or(l.cfg.RefreshAfter, 10*time.Second)
	for len(granted) < batch {
		sw, class := l.queue.Pop(func(sw *sched.Waiter, class int) bool {
			return l.free(sw.Value.(*waiter).c.q, &l.queue.Classes()[class])
		})
		if sw == nil {
			break
		}
		w := sw.Value.(*waiter)
		w.c.waited = max(0, now.Sub(w.c.now))
		if refresh > 0 && now.Sub(w.c.looked) >= refresh {
			w.c.match()
		}
		w.c.gathered, w.c.at = false, now
		if w.err = w.c.choose(); w.err != nil {
			l.classes[class].Left(metrics.QueueNoWorkers)
		} else {
			l.classes[class].Waited(w.c.waited)
		}
		l.show(class)
		granted = append(granted, w)
	}
	return granted
}

// tell tells requests that it was their turn, and has those go that follow them. The
// pool's lock is not held.
func (p *pool) tell(now time.Time, granted []*waiter) {
	for {
		grant(granted)
		if len(granted) < batch {
			return
		}
		p.mu.Lock()
		granted = p.sweep(now)
		p.mu.Unlock()
	}
}

// grant tells requests that it was their turn.
func grant(granted []*waiter) {
	for _, w := range granted {
		if w.call != nil {
			w.call(w.result())
		} else {
			close(w.done)
		}
	}
}

// result returns what came of a request whose turn it was.
func (w *waiter) result() (*Placement, error) {
	if w.err != nil {
		w.c.free()
		return nil, w.err
	}
	return w.c.finish(), nil
}

// wait waits until it is the request's turn, the request leaves, or it has waited
// for too long.
func (w *waiter) wait(ctx context.Context) (*Placement, error) {
	r := w.c.pool.router
	var late <-chan time.Time
	if limit := r.cfg.Queue.MaxWait; limit > 0 {
		t := time.NewTimer(limit - w.c.q.Waited)
		defer t.Stop()
		late = t.C
	}
	var err error
	end := metrics.QueueCancelled
	select {
	case <-w.done:
		return w.result()
	case <-ctx.Done():
		err = ctx.Err()
	case <-late:
		err, end = &WaitError{Wait: r.cfg.Queue.MaxWait}, metrics.QueueTimeout
	case <-r.ctx.Done():
		err, end = ErrNoWorkers, metrics.QueueNoWorkers
	}
	if w.leave(end) {
		return nil, err
	}
	<-w.done // it was its turn in that very moment
	pl, e := w.result()
	if e == nil && ctx.Err() != nil {
		pl.Done(Cancelled)
		return nil, ctx.Err()
	}
	return pl, e
}

// leave takes w out of the line and reports whether it was still there.
func (w *waiter) leave(end metrics.QueueEnd) bool {
	p := w.c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.line.queue.Remove(&w.Waiter) {
		return false
	}
	p.line.classes[w.c.class].Left(end)
	p.line.show(w.c.class)
	w.c.free()
	return true
}

// dismiss refuses all that wait, because the router closes.
func (p *pool) dismiss() {
	if p.line == nil {
		return
	}
	p.mu.Lock()
	var granted []*waiter
	for sw, class := range p.line.queue.All() {
		w := sw.Value.(*waiter)
		w.err = ErrNoWorkers
		p.line.classes[class].Left(metrics.QueueNoWorkers)
		granted = append(granted, w)
	}
	for _, w := range granted {
		p.line.queue.Remove(&w.Waiter)
	}
	for class := range p.line.classes {
		p.line.show(class)
	}
	p.mu.Unlock()
	grant(granted)
}

// show publishes what waits in a class.
func (l *line) show(class int) {
	n := l.queue.Waiting(class)
	l.classes[class].Set(n.Requests, n.PromptTokens, n.CachedTokens)
	var all sched.Waiting
	for i := range l.classes {
		w := l.queue.Waiting(i)
		all.Requests += w.Requests
		all.PromptTokens += w.PromptTokens
	}
	l.pool.metrics.SetQueue(all.Requests, all.PromptTokens)
}

// arm has the line looked at again after a while, for as long as somebody waits.
func (l *line) arm() {
	r := l.pool.router
	if l.armed || l.queue.Len() == 0 || r.cfg.Virtual || r.ctx.Err() != nil {
		return
	}
	l.armed = true
	time.AfterFunc(lookAgain, func() {
		p := l.pool
		p.mu.Lock()
		l.armed = false
		now := r.cfg.Now()
		granted := p.sweep(now)
		l.arm()
		p.mu.Unlock()
		p.tell(now, granted)
	})
}

// pending returns what waits in the line.
func (l *line) pending() (requests, tokens int) {
	if l == nil {
		return 0, 0
	}
	for i := range l.classes {
		w := l.queue.Waiting(i)
		requests += w.Requests
		tokens += w.PromptTokens
	}
	return requests, tokens
}
