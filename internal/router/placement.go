package router

import (
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/nvext"
)

// Leg is one part of a request's way: where a phase of it runs.
type Leg struct {
	Phase         nvext.Phase
	Target        engine.Target
	Engine        engine.Engine
	Ranked        bool // the worker has several ranks and must be told which
	OverlapBlocks int  // prompt blocks the rank holds already, as far as known
}

// Placement is where a request runs, and the handle of its booking. Apart from
// Done it is used by one goroutine at a time. It must not be copied.
type Placement struct {
	// Routing explains the choice; nil unless it was asked for.
	Routing *nvext.Routing

	router *Router
	model  *Model
	pool   *pool
	slot   *slot
	leg    Leg

	placed       time.Time
	waited       time.Duration
	ordinal      uint64 // of the decision
	promptTokens int
	expected     int           // tokens of the answer, 0 = unknown
	booking      sched.Booking // guarded by the pool's mutex
	blocks       int           // KV blocks of prompt and answer
	outputTokens atomic.Int64
	decoding     bool      // the first token was seen
	grown        time.Time // when blocks grew last, or the first token came
	since        int       // tokens since then
	guess        prediction
	memory       memory     // where the server had the prompt, if it keeps whole ones
	kept         uint64     // where the ring has the decision
	prompt       []kv.Block // to be noted as sent once it has been computed
	perhaps      []kv.Block // of which the rank may hold more than it has told
	ahead        int        // tokens that the rank had to compute for it and before it
	prefill      *prefill   // nil if the first token is seen
	bandit       uint64     // the decision of the policy that chose; 0 if none did
	seen         seen       // of its tokens, guarded by the pool's mutex
	last         lastToken  // of them, where a policy chose
	cached       float64    // share of the prompt, as predicted or as the engine says; guarded by the pool's mutex
	released     atomic.Bool
}

// Waited returns how long the request waited in the queue for this placement.
func (p *Placement) Waited() time.Duration { return p.waited }

// Legs returns the request's way, in order. The last leg answers the client.
func (p *Placement) Legs() []Leg { return []Leg{p.leg} }

// Last returns the leg that answers the client.
func (p *Placement) Last() *Leg { return &p.leg }

// BlockSize returns how many tokens a KV block has where the request runs; 0 if
// that is not known.
func (p *Placement) BlockSize() int { return p.pool.key.blockSize }

// FirstToken says that the prompt has been computed. Repeats are ignored.
func (p *Placement) FirstToken() {
	if p.decoding || p.released.Load() {
		return
	}
	p.decoding = true
	p.grown = p.router.cfg.Now()
	p.pool.metrics.FirstToken(p.grown.Sub(p.placed))
	p.slot.worker.answered.Store(p.grown.UnixNano())
	p.noteSent(p.grown)
	p.pool.mu.Lock()
	p.slot.learnSpeed(p.ahead, p.grown.Sub(p.placed))
	p.pool.ledger.Prefilled(&p.booking)
	if b := p.pool.bandit; b != nil {
		p.seen = seen{first: p.grown, last: p.grown, tokens: 1}
		b.firstToken(p.grown, p.bandit, p.grown.Sub(p.placed))
	}
	granted := p.pool.drain(p.grown)
	p.pool.mu.Unlock()
	p.pool.tell(p.grown, granted)
}

// noteSent notes that the rank has the prompt in its cache by now, if nobody else tells.
// Of a rank that has left the pool, nothing is noted.
func (p *Placement) noteSent(now time.Time) {
	prompt, src := p.prompt, p.slot.source()
	if p.prompt = nil; prompt == nil || p.slot.left.Load() {
		return
	}
	p.pool.sent.Route(now, src, prompt)
	var gone [][]kv.Block
	if p.slot.worker.slots() > 0 {
		p.pool.mu.Lock()
		if p.slot.recall != nil {
			gone = p.slot.recall.note(prompt)
		}
		p.pool.mu.Unlock()
	}
	p.pool.forget(src, gone)
	if p.slot.left.Load() { // meanwhile
		p.pool.sent.RemoveRank(src)
	}
}

// Output says that n more tokens were generated. It takes the pool's lock only
// when they fill another block.
func (p *Placement) Output(n int) {
	if n <= 0 || p.released.Load() {
		return
	}
	output := int(p.outputTokens.Add(int64(n)))
	p.since += n
	grown := p.pool.blocksOf(p.promptTokens+output) - p.blocks
	if grown <= 0 && p.bandit == 0 {
		return
	}
	now := p.router.cfg.Now()
	p.last.came(now.Sub(p.placed))
	if grown <= 0 {
		return
	}
	p.blocks += grown
	p.slot.worker.answered.Store(now.UnixNano())
	p.pool.metrics.Tokens(now.Sub(p.grown), p.since)
	p.grown, p.since = now, 0
	decay := p.decay()
	var granted []*waiter
	p.pool.mu.Lock()
	p.pool.ledger.Grow(&p.booking, grown, decay)
	p.seen.last, p.seen.tokens = now, output
	if decay >= 0 { // there may be fewer by now
		granted = p.pool.drain(now)
	}
	p.pool.mu.Unlock()
	p.pool.tell(now, granted)
}

// decay is what the request's own blocks weigh by now: less the nearer the answer is
// to its expected length, because they will be given back then. It is negative where
// that does not count.
func (p *Placement) decay() float64 {
	if p.expected <= 0 || !p.router.cfg.KV.TrackOutput {
		return -1
	}
	return max(0, 1-float64(p.outputTokens.Load())/float64(p.expected))
}

// Whole says that the answer came at once, with n tokens. It takes the place of
// FirstToken and Output where they cannot be told apart. Without tokens the answer has
// only begun, and goes on until Done.
func (p *Placement) Whole(n int) {
	now := p.router.cfg.Now()
	p.outputTokens.Store(int64(n))
	if n > 0 {
		p.last.came(now.Sub(p.placed))
	} else {
		p.last.begun()
	}
	p.slot.worker.answered.Store(now.UnixNano())
	p.noteSent(now)
}

// Outcome is how a request ended.
type Outcome uint8

// The outcomes.
const (
	// Completed: the engine answered to the end, be it that the request makes no
	// sense.
	Completed Outcome = iota
	// Cancelled: the client left. It is no failure of the worker.
	Cancelled
	// Refused: the engine said that it cannot serve at the moment.
	Refused
	// Failed: the engine answered that something went wrong with it.
	Failed
	// Unreachable: no connection could be made.
	Unreachable
	// Broken: the connection broke, or nothing came for too long.
	Broken
)

// inhibits reports whether the worker should be left alone for a while.
func (o Outcome) inhibits() bool { return o == Unreachable || o == Broken }

// Done releases the booking. Only the first call counts; it is safe to call from
// any goroutine.
func (p *Placement) Done(o Outcome) {
	if !p.released.CompareAndSwap(false, true) {
		return
	}
	p.settle(o) // before somebody else is sent there
	if p.prefill != nil {
		p.prefill.timer.Stop()
	}
	now := p.router.cfg.Now()
	p.pool.mu.Lock()
	if p.prefill != nil {
		p.prefill.booking = nil
	}
	p.pool.ledger.Free(&p.booking)
	p.model.booked.Add(-1)
	b := p.pool.bandit
	var l lesson
	if b != nil {
		l = b.done(now, p.bandit, p.ended(now, o))
	}
	granted := p.pool.drain(now)
	p.pool.mu.Unlock()
	p.pool.tell(now, granted)
	if b != nil {
		l.note(b.metrics)
	}
	p.pool.metrics.Done(int(p.outputTokens.Load()))
}

// seen is when tokens came: the first, and the one that filled a block last, which was the
// tokens-th.
type seen struct {
	first, last time.Time
	tokens      int
}

// lastToken is when tokens came last, after how many nanoseconds: 0 before any, negative
// where nobody says.
type lastToken struct{ after atomic.Int64 }

func (l *lastToken) came(after time.Duration) { l.after.Store(max(int64(after), 1)) }

func (l *lastToken) begun() { l.after.Store(-1) }

// ended is what became of the request. An answer ends with its last tokens: what comes
// after may have waited for the client, or for an engine that does not hang up. Likewise
// the time between tokens goes up to the last block that was filled. The caller holds the
// pool's lock.
func (p *Placement) ended(now time.Time, o Outcome) ended {
	n := int(p.outputTokens.Load())
	last := time.Duration(p.last.after.Load())
	out := ended{
		worker: p.slot.target.Worker, took: now.Sub(p.placed), tokens: n, cached: p.cached,
		answered: last != 0 || !p.seen.first.IsZero(), outcome: outcomeOf(o),
	}
	if last > 0 && o == Completed {
		out.took = last
	}
	out.ttft = out.took
	if !p.seen.first.IsZero() {
		out.ttft = p.seen.first.Sub(p.placed)
	}
	switch s := p.seen; {
	case s.first.IsZero():
	case s.tokens > 1 && s.last.After(s.first):
		out.itl = s.last.Sub(s.first) / time.Duration(s.tokens-1)
	case n > 1:
		out.itl = (out.took - s.first.Sub(p.placed)) / time.Duration(n-1)
	}
	return out
}

// Latency records what the request's timing says about its worker. What is not
// known is 0.
func (p *Placement) Latency(ttft, itl time.Duration, promptTokens int) {
	p.pool.mu.Lock() // a worker that comes back gets new gauges
	gauges := p.slot.gauges
	p.pool.mu.Unlock()
	gauges.Last(ttft, itl, promptTokens)
}
