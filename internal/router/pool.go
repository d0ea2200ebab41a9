package router

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/nvext"
)

// poolKey is what ranks must share to be one pool: blocks of the same tokens
// have the same hashes on all of them.
type poolKey struct {
	model     string
	blockSize int
	tokenizer string
}

// pool is a set of ranks between which a request may be moved freely. Choosing
// and booking happen under mu, in one critical section.
type pool struct {
	key        poolKey
	thresholds *atomic.Pointer[Thresholds] // of the model
	metrics    *metrics.Router

	mu    sync.Mutex
	slots []*slot // sorted by (worker, rank)
	rng   *rand.Rand
	turn  uint64      // of round robin
	pins  uint64      // the same for requests that name their worker
	cands []candidate // scratch
}

// slot is one rank in a pool. Its load is guarded by the pool's mutex; a slot
// that left the pool still takes back what was booked on it.
type slot struct {
	worker *worker
	target engine.Target
	model  engine.Model // as the worker serves it
	load   load
	gauges *metrics.Worker
}

// StateGone is the state of a rank whose worker is not there, besides the states
// that a decision tells apart.
const StateGone nvext.State = "undiscovered"

// state judges s for q; q may be nil. The order is that of the reasons a person
// would want to hear first.
func (s *slot) state(now time.Time, q *Request, th *Thresholds) nvext.State {
	switch {
	case q != nil && q.Allowed != nil && !slices.Contains(q.Allowed, uint64(s.target.Worker)):
		return nvext.StateNotAllowed
	case !s.worker.discovered.Load():
		return StateGone
	case q != nil && slices.Contains(q.Exclude, s.target.Worker):
		return nvext.StateExcluded
	case s.worker.inhibited(now):
		return nvext.StateInhibited
	case th.busy(&s.load):
		return nvext.StateOverloaded
	default:
		return nvext.StateEligible
	}
}

func (s *slot) wanted(q *Request) bool {
	return !q.Pinned || s.target.Worker == q.Pin && (q.PinRank == nil || s.target.Rank == *q.PinRank)
}

// place chooses a slot for q and books it.
func (p *pool) place(r *Router, now time.Time, q *Request) (*Placement, error) {
	th := p.thresholds.Load()
	p.mu.Lock()
	defer p.mu.Unlock()

	p.cands = p.cands[:0]
	var blocked [4]int // why slots were passed over, by blockedBy
	for i, s := range p.slots {
		if !s.wanted(q) {
			continue
		}
		if st := s.state(now, q, th); st != nvext.StateEligible {
			blocked[blockedBy(st)]++
			continue
		}
		p.cands = append(p.cands, candidate{slot: i, inflight: s.load.inflight})
	}
	if len(p.cands) == 0 {
		return nil, p.refuse(q, blocked)
	}
	turn := &p.turn
	if q.Pinned {
		turn = &p.pins
	}
	chosen := pick(r.cfg.Mode, *turn, p.rng, p.cands)
	s := p.slots[p.cands[chosen].slot]
	pl := &Placement{pool: p, router: r, slot: s, promptTokens: max(q.PromptTokens, 0)}
	pl.leg = Leg{Phase: nvext.Aggregated, Target: s.target, Engine: s.worker.Engine, Ranked: s.model.Ranks > 1}
	if q.Explain {
		pl.Routing = p.explain(r, now, q, th, s)
	}
	if q.QueryOnly {
		pl.released.Store(true)
		return pl, nil
	}
	*turn++
	pl.placed = now
	pl.grown = now
	pl.blocks = p.blocksOf(pl.promptTokens)
	s.load.inflight++
	s.load.prefillTokens += pl.promptTokens
	s.load.activeBlocks += pl.blocks
	s.showLoad()
	exact := pl.promptTokens
	if q.Guess {
		exact = 0
	}
	p.metrics.Placed(exact, 0 /* no hit rate: overlap is not known */, 0)
	return pl, nil
}

const (
	byNothing = iota
	byLoad
	byAllowList
	byAbsence
)

func blockedBy(s nvext.State) int {
	switch s {
	case nvext.StateOverloaded:
		return byLoad
	case nvext.StateNotAllowed:
		return byAllowList
	case nvext.StateEligible:
		return byNothing
	default:
		return byAbsence
	}
}

// refuse names the reason why no slot could be chosen.
func (p *pool) refuse(q *Request, blocked [4]int) error {
	if !q.Pinned {
		switch {
		case blocked[byLoad] > 0:
			return ErrOverloaded
		case blocked[byAllowList] > 0 && blocked[byAbsence] == 0:
			return ErrNoneAllowed
		default:
			return ErrNoWorkers
		}
	}
	err := &PinError{Worker: q.Pin, Rank: q.PinRank}
	switch {
	case blocked[byLoad] > 0:
		err.Reason = PinOverloaded
	case blocked[byAllowList] > 0:
		err.Reason = PinNotAllowed
	case blocked[byAbsence] > 0:
		err.Reason = PinUnavailable
	case q.PinRank != nil && p.hasLocked(q.Pin):
		err.Reason = PinRankUnknown
	default:
		err.Reason = PinUnknown
	}
	return err
}

// explain records the decision: the chosen slot, and up to nvext.MaxCandidates of
// all, those that could be chosen first.
func (p *pool) explain(r *Router, now time.Time, q *Request, th *Thresholds, chosen *slot) *nvext.Routing {
	out := &nvext.Routing{
		RequestID: q.ID,
		Model:     q.Model.ID,
		Mode:      string(r.cfg.Mode),
		Policy:    string(r.cfg.Mode),
		Reason:    reason(r.cfg.Mode, q, len(p.cands)),
		Attempt:   q.Attempt + 1,
	}
	if p.key.blockSize > 0 {
		out.TotalBlocks = p.blocksOf(q.PromptTokens)
	}
	if several := len(q.Model.pools) > 1; several || len(p.cands) > 1 && r.cfg.Mode != RoundRobin {
		out.Seed = &r.cfg.Seed
	}
	var passed []nvext.Candidate
	for _, s := range p.slots {
		st := s.state(now, q, th)
		if st == StateGone {
			continue
		}
		out.Considered++
		c := nvext.Candidate{
			WorkerID:            uint64(s.target.Worker),
			DPRank:              s.target.Rank,
			State:               st,
			Inflight:            s.load.inflight,
			ActivePrefillTokens: int64(s.load.prefillTokens),
			ActiveDecodeBlocks:  int64(s.load.activeBlocks),
			Score:               nvext.Float(math.NaN()),
		}
		switch {
		case s == chosen:
			out.Chosen = c
			out.Candidates = append(out.Candidates, c)
		case st == nvext.StateEligible && s.wanted(q):
			out.Candidates = append(out.Candidates, c)
		default:
			passed = append(passed, c)
		}
	}
	out.Candidates = append(out.Candidates, passed...)
	out.Candidates = out.Candidates[:min(len(out.Candidates), nvext.MaxCandidates)]
	return out
}

// reason says what decided when n ranks could be chosen.
func reason(mode Mode, q *Request, n int) nvext.Reason {
	switch {
	case q.Pinned:
		return nvext.ReasonPinned
	case n == 1 && len(q.Model.pools) == 1:
		return nvext.ReasonOnly
	case mode == Random:
		return nvext.ReasonRandom
	case mode == RoundRobin:
		return nvext.ReasonRoundRobin
	default:
		return nvext.ReasonLeastLoaded
	}
}

// blocksOf returns how many KV blocks n tokens take; 0 when the block size is
// unknown.
func (p *pool) blocksOf(n int) int {
	if p.key.blockSize <= 0 {
		return 0
	}
	return (n + p.key.blockSize - 1) / p.key.blockSize
}

func (p *pool) has(w kv.WorkerID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hasLocked(w)
}

func (p *pool) hasLocked(w kv.WorkerID) bool {
	return slices.ContainsFunc(p.slots, func(s *slot) bool { return s.target.Worker == w })
}

// eligible counts the slots that could take q now, and tells how much the least
// loaded of them has to do.
func (p *pool) eligible(now time.Time, q *Request) (n, inflight int) {
	th := p.thresholds.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	inflight = math.MaxInt
	for _, s := range p.slots {
		if s.state(now, q, th) == nvext.StateEligible {
			n++
			inflight = min(inflight, s.load.inflight)
		}
	}
	return n, inflight
}

func (p *pool) intN(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rng.IntN(n)
}

// admit returns the slot of a worker's rank, entered in its place if it is new,
// with the sizes that the engine states.
func (p *pool) admit(w *worker, rank uint32, m *engine.Model, gauges *metrics.Worker) *slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	target := engine.Target{Worker: w.ID, Rank: rank}
	at, found := slices.BinarySearchFunc(p.slots, target, func(s *slot, t engine.Target) int {
		return cmp.Or(cmp.Compare(s.target.Worker, t.Worker), cmp.Compare(s.target.Rank, t.Rank))
	})
	if !found {
		p.slots = slices.Insert(p.slots, at, &slot{worker: w, target: target})
	}
	s := p.slots[at]
	s.model, s.gauges = *m, gauges
	s.load.totalBlocks, s.load.maxBatched = m.TotalBlocks, m.MaxBatchedTokens
	s.showLoad()
	return s
}

// models calls f for what each slot's engine said about the model and returns how
// many slots there are.
func (p *pool) models(f func(*engine.Model)) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.slots {
		f(&s.model)
	}
	return len(p.slots)
}

// retain takes out the worker's slots that do not stay. Models stay known, so
// that a request for one without workers gets a 503 and not a 404.
func (p *pool) retain(w *worker, stays map[*slot]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slots = slices.DeleteFunc(p.slots, func(s *slot) bool { return s.worker == w && !stays[s] })
}

// status returns the state of every slot, and the lowest index of their workers.
func (p *pool) status(now time.Time, th Thresholds) (out []WorkerStatus, index int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	index = math.MaxInt
	out = make([]WorkerStatus, len(p.slots))
	for i, s := range p.slots {
		index = min(index, s.worker.index)
		out[i] = WorkerStatus{
			Target:   s.target,
			Name:     s.worker.Name,
			Kind:     s.worker.kind(),
			State:    s.state(now, nil, &th),
			Inflight: s.load.inflight,
		}
	}
	return out, index
}

func (p *pool) report(w kv.WorkerID, loads []engine.Load) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.slots {
		if s.target.Worker != w {
			continue
		}
		for _, l := range loads {
			if l.Rank != s.target.Rank {
				continue
			}
			s.load.usedBlocks = l.UsedBlocks
			s.load.totalBlocks = cmp.Or(l.TotalBlocks, s.load.totalBlocks)
			s.load.maxBatched = cmp.Or(l.BatchedLimit, s.load.maxBatched)
		}
	}
}

// showLoad publishes the slot's load. The caller holds the pool's mutex.
func (s *slot) showLoad() {
	s.gauges.SetLoad(s.load.activeBlocks, s.load.prefillTokens)
}
