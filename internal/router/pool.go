package router

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/nvext"
)

// poolKey is what ranks must share to be one pool: blocks of the same tokens
// have the same hashes on all of them. Adapters of a model are in its pool.
type poolKey struct {
	model     string
	blockSize int
	tokenizer string
	eagle     bool // blocks depend on the token after them
}

// pool is a set of ranks between which a request may be moved freely. Choosing
// and booking happen under mu, in one critical section; hashing, looking up and
// explaining do not.
type pool struct {
	router  *Router
	key     poolKey
	metrics *metrics.Router
	// told is what engines say they hold, sent what the others were sent. Both are
	// nil where nobody asks.
	told, sent *kvindex.Index
	unwatch    []func()
	strange    atomic.Uint64 // events of ranks that there are not
	expired    atomic.Int64  // when sent was last looked through, in Unix nanoseconds

	mu     sync.Mutex
	slots  []*slot // sorted by (worker, rank)
	ledger sched.Ledger
	turn   uint64          // of round robin
	pins   uint64          // the same for requests that name their worker
	line   *line           // where requests wait; nil if they do not
	shown  map[string]bool // adapters whose series are there
	bandit *bandit         // the policy that learns; nil if none does
	closed bool            // nobody is in it any more
}

// slot is one rank in a pool. What changes in it is guarded by the pool's mutex; a
// slot that left the pool still takes back what was booked on it.
type slot struct {
	worker   *worker
	target   engine.Target
	model    engine.Model   // as the worker serves it
	adapters []engine.Model // of it
	seat     sched.Seat
	left     atomic.Bool   // it is in the pool no more
	held     *atomic.Int64 // blocks in its cache
	trust    float64       // how much of what is predicted was found there
	trusted  time.Time     // when that was
	doubted  bool          // it was said that little was
	speed    float64       // prompt tokens a second; 0 = unknown
	gauges   *metrics.Worker
	truth    *metrics.Truth

	recall      *recall     // nil unless its server keeps whole prompts and does not tell
	telling     atomic.Bool // its events are known, and it is in the state they tell
	partial     atomic.Bool // but for what it held before
	usedBlocks  int         // KV blocks in use, as the engine reports them; 0 if it does not
	reported    time.Time   // when it did
	said        engine.Load // what it did
	others      foreign     // what is on the rank and was not sent from here
	othersLast  foreign     // the same one report earlier, not reconciled
	totalBlocks int         // 0 = unknown
	maxBatched  int         // 0 = unknown
}

// foreign is load that comes from elsewhere.
type foreign struct{ requests, blocks int }

// StateGone is the state of a rank whose worker is not there, besides the states
// that a decision tells apart.
const StateGone nvext.State = "undiscovered"

func newPool(r *Router, key poolKey) *pool {
	p := &pool{router: r, key: key, shown: make(map[string]bool), metrics: r.cfg.Metrics.Router(key.model, metrics.WorkerDecode)}
	p.told, p.sent = r.cfg.indexes()
	for _, x := range []*kvindex.Index{p.told, p.sent} {
		if x != nil {
			p.unwatch = append(p.unwatch, r.cfg.Metrics.WatchIndex(key.model, func() metrics.IndexSample { return p.sample(x) }))
		}
	}
	if r.cfg.Queue != nil {
		p.line = newLine(p, r.cfg.Queue)
	}
	if r.cfg.Bandit != nil && r.cfg.Mode == KV && r.cfg.Selector == nil {
		p.bandit = r.banditFor(key)
	}
	return p
}

func (p *pool) sample(x *kvindex.Index) metrics.IndexSample {
	st := x.Stats()
	out := metrics.IndexSample{
		Ranks: st.Ranks, Blocks: st.Blocks, Orphans: st.Orphans, Bytes: st.Bytes,
		Stored: st.Applied[kv.Stored], Removed: st.Applied[kv.Removed], Cleared: st.Applied[kv.Cleared],
		Duplicates: st.Duplicates, Forgotten: st.Forgotten, Expired: st.Expired, Pruned: st.Pruned,
	}
	if x == p.told {
		out.Skipped = map[string]uint64{"not_registered": p.strange.Load()}
		p.sampleFeeds(&out)
	}
	return out
}

// close ends the pool's series. What is booked ends by itself.
func (p *pool) close() {
	p.metrics.Close()
	if p.bandit != nil {
		p.mu.Lock()
		p.closed = true
		p.bandit.metrics.Gauges(p.key.String(), 0, 0)
		p.mu.Unlock()
	}
	for _, stop := range p.unwatch {
		stop()
	}
	p.unwatch = nil
}

// source is the rank as events name it.
func (s *slot) source() kv.Source { return kv.Source{Worker: s.target.Worker, Rank: s.target.Rank} }

// serves reports whether the rank serves a model or adapter.
func (s *slot) serves(name string) bool {
	return s.model.ID == name || slices.ContainsFunc(s.adapters, func(a engine.Model) bool { return a.ID == name })
}

// load returns what is known about a slot's load.
func (p *pool) load(s *slot) load {
	l := p.ledger.Totals(s.seat, true)
	out := load{
		inflight:      l.Requests,
		prefillTokens: l.PrefillTokens,
		activeBlocks:  l.Blocks,
		totalBlocks:   s.totalBlocks,
		maxBatched:    s.maxBatched,
	}
	if s.usedBlocks > 0 && s.fresh(p.router.cfg.Now()) {
		out.usedBlocks = s.usedBlocks
	}
	return out
}

// state judges s for q; q may be nil. The order is that of the reasons a person
// would want to hear first.
func (p *pool) state(s *slot, now time.Time, q *Request, th *Thresholds) nvext.State {
	switch {
	case q != nil && q.Allowed != nil && !slices.Contains(q.Allowed, uint64(s.target.Worker)):
		return nvext.StateNotAllowed
	case !s.worker.discovered.Load():
		return StateGone
	case q != nil && slices.Contains(q.Exclude, s.target.Worker):
		return nvext.StateExcluded
	case s.worker.inhibited(now):
		return nvext.StateInhibited
	case q != nil && !s.worker.tainted(q.RequiredTaints):
		return nvext.StateExcluded
	}
	if th.Set() {
		if l := p.load(s); th.busy(&l) {
			return nvext.StateOverloaded
		}
	}
	return nvext.StateEligible
}

func (s *slot) wanted(q *Request) bool {
	return !q.Pinned || s.target.Worker == q.Pin && (q.PinRank == nil || s.target.Rank == *q.PinRank)
}

// place chooses a slot for q and books it, or has q wait: the placement is nil then,
// and the waiter tells, by calling if call is not nil.
func (p *pool) place(now time.Time, q *Request, d decision, call func(*Placement, error)) (*Placement, *waiter, error) {
	c := newChoice(p, now, q, d)
	c.look()
	if p.line != nil {
		c.restriction = p.router.restriction(q)
	}
	var w *waiter
	var err error
	p.mu.Lock()
	var locked time.Time
	if p.router.cfg.LockHeld != nil {
		locked = time.Now()
	}
	granted := p.drain(now)
	if p.line != nil {
		w, err = p.line.gate(c, len(granted) == batch, call)
	}
	if w == nil && err == nil {
		err = c.choose()
	}
	p.mu.Unlock()
	if p.router.cfg.LockHeld != nil {
		p.router.cfg.LockHeld(time.Since(locked))
	}
	p.tell(now, granted)
	switch {
	case w != nil:
		return nil, w, nil
	case err != nil:
		c.free()
		return nil, nil, err
	}
	return c.finish(), nil, nil
}

// blocksOf returns how many KV blocks n tokens take; 0 when the block size is
// unknown.
func (p *pool) blocksOf(n int) int {
	if p.key.blockSize <= 0 {
		return 0
	}
	return (n + p.key.blockSize - 1) / p.key.blockSize
}

// guessedBlockSize stands in for the block size of engines that do not tell it.
const guessedBlockSize = 16

// blockSize returns the number of tokens in a block for the purposes of a cost.
func (p *pool) blockSize() int {
	if p.key.blockSize > 0 {
		return p.key.blockSize
	}
	return guessedBlockSize
}

func (p *pool) has(w kv.WorkerID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.slots, func(s *slot) bool { return s.target.Worker == w })
}

// hasLocked reports whether a worker serves a model or adapter here.
func (p *pool) hasLocked(w kv.WorkerID, name string) bool {
	return slices.ContainsFunc(p.slots, func(s *slot) bool { return s.target.Worker == w && s.serves(name) })
}

// standing returns what p could do for q now, and whether q would have to wait.
func (p *pool) standing(now time.Time, q *Request) (out nvext.Pool, waits bool) {
	out.BlockSize = p.key.blockSize
	if p.router.cfg.Mode == KV || p.line != nil {
		c := newChoice(p, now, q, decision{})
		defer c.free()
		c.look()
		p.mu.Lock()
		defer p.mu.Unlock()
		c.gather()
		if out.Eligible = len(c.dec.Candidates); out.Eligible == 0 {
			return out, false
		}
		out.Inflight = c.leastRequests()
		if p.router.cfg.Mode == KV {
			c.price()
			out.CostTokens = nvext.Float(c.leastScore() * float64(p.blockSize()))
		}
		if p.line != nil {
			_, waits = p.line.classify(c)
		}
		return out, waits
	}
	th := q.Model.thresholds.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.slots {
		if s.serves(q.Model.ID) && p.state(s, now, q, th) == nvext.StateEligible {
			if n := p.ledger.Load(s.seat).Requests; out.Eligible == 0 || n < out.Inflight {
				out.Inflight = n
			}
			out.Eligible++
		}
	}
	return out, false
}

// admit returns the slot of a worker's rank, entered in its place if it is new,
// with the sizes that the engine states.
func (p *pool) admit(w *worker, rank uint32, m *engine.Model, adapters []engine.Model, gauges *metrics.Worker, restarted bool) *slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	target := engine.Target{Worker: w.ID, Rank: rank}
	at, found := slices.BinarySearchFunc(p.slots, target, func(s *slot, t engine.Target) int {
		return cmp.Or(cmp.Compare(s.target.Worker, t.Worker), cmp.Compare(s.target.Rank, t.Rank))
	})
	if !found {
		s := &slot{worker: w, target: target, seat: p.ledger.Join()}
		p.slots = slices.Insert(p.slots, at, s)
		tells, partial := w.isTelling(rank)
		s.telling.Store(tells)
		s.partial.Store(partial)
		restarted = true
	}
	s := p.slots[at]
	s.model, s.adapters, s.gauges = *m, adapters, gauges
	s.truth = p.router.cfg.Metrics.Truth(p.key.model, uint64(w.ID))
	s.totalBlocks, s.maxBatched = m.TotalBlocks, m.MaxBatchedTokens
	s.held = p.heldBy(s)
	if restarted {
		s.trust, s.speed, s.usedBlocks, s.others, s.othersLast = 1, 0, 0, foreign{}, foreign{}
		// Whatever it was sent, it has come with an empty cache; one that tells says so
		// itself.
		p.sent.ClearRank(s.source())
		s.recall = nil
		if n := w.slots(); n > 0 && p.sent != nil && !p.tells(s) {
			s.recall = newRecall(n)
		}
	}
	return s
}

// models calls f for what each slot's engine says about the model or adapter of that
// name, with the engine's kind, and returns how many slots have it.
func (p *pool) models(name string, f func(m *engine.Model, kind string)) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, s := range p.slots {
		if s.model.ID == name {
			n++
			f(&s.model, s.worker.kind())
		}
		for i := range s.adapters {
			if s.adapters[i].ID == name {
				n++
				f(&s.adapters[i], s.worker.kind())
			}
		}
	}
	return n
}

// empty reports whether no rank is left.
func (p *pool) empty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.slots) == 0
}

// retain takes out the worker's slots that do not stay. Models stay known for a while,
// so that a request for one without workers gets a 503 and not a 404. The caller wakes
// the pool.
func (p *pool) retain(w *worker, stays map[*slot]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slots = slices.DeleteFunc(p.slots, func(s *slot) bool {
		if s.worker != w || stays[s] {
			return false
		}
		s.left.Store(true)
		p.ledger.Leave(s.seat)
		p.told.RemoveRank(s.source())
		p.sent.RemoveRank(s.source())
		if p.bandit != nil {
			p.bandit.leave(p.router.cfg.Now(), s.source())
		}
		return true
	})
	if len(stays) == 0 && p.told != nil { // nor has it other ranks that it may have told of
		p.told.RemoveWorker(w.ID)
	}
}

// status returns the state of every slot that serves a model, and the lowest index of
// their workers.
func (p *pool) status(name string, now time.Time, th Thresholds) (out []WorkerStatus, index int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	index = math.MaxInt
	for _, s := range p.slots {
		if !s.serves(name) {
			continue
		}
		index = min(index, s.worker.index)
		out = append(out, WorkerStatus{
			Target:   s.target,
			Name:     s.worker.Name,
			Kind:     s.worker.kind(),
			State:    p.state(s, now, nil, &th),
			Inflight: p.ledger.Load(s.seat).Requests,
		})
	}
	return out, index
}

// tokenizers calls f for the engines of the ranks that can be reached and that have
// the capability, with the number of requests there. A busy one counts: its load is
// not in its tokenizer.
func (p *pool) tokenizers(name string, now time.Time, th *Thresholds, f func(t engine.Tokenizer, inflight int)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.slots {
		if !s.serves(name) {
			continue
		}
		switch p.state(s, now, nil, th) {
		case nvext.StateEligible, nvext.StateOverloaded:
			if t, ok := s.worker.adapter().(engine.Tokenizer); ok {
				f(t, p.ledger.Load(s.seat).Requests)
			}
		}
	}
}

// wake has requests go that can by now.
func (p *pool) wake(now time.Time) {
	if p.line == nil {
		return
	}
	p.mu.Lock()
	granted := p.sweep(now)
	p.mu.Unlock()
	p.tell(now, granted)
}

// show publishes what is booked.
func (p *pool) show() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.router.cfg.Now()
	for _, s := range p.slots {
		l := p.load(s)
		s.gauges.SetLoad(l.activeBlocks, l.prefillTokens)
		s.gauges.SetRequests(l.inflight)
		s.gauges.SetTrust(s.trustAt(now))
	}
	p.metrics.SetLedger(p.ledger.Stats())
	for name := range p.shown {
		p.shown[name] = false
	}
	for name, n := range p.ledger.Adapters() {
		p.metrics.SetAdapter(name, n)
		p.shown[name] = true
	}
	for name, busy := range p.shown {
		if !busy {
			p.metrics.SetAdapter(name, 0)
			delete(p.shown, name)
		}
	}
}
