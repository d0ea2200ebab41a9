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

	mu     sync.Mutex
	slots  []*slot     // sorted by (worker, rank)
	chance rand.PCG    // seeded anew for each decision
	rng    *rand.Rand  // over chance
	turn   uint64      // of round robin
	pins   uint64      // the same for requests that name their worker
	cands  []candidate // scratch
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
func (p *pool) place(r *Router, now time.Time, q *Request, d decision) (*Placement, error) {
	th := p.thresholds.Load()
	p.mu.Lock()
	defer p.mu.Unlock()

	p.cands = p.cands[:0]
	var blocked [4]int // why slots were passed over, by blockedBy
	// What is recorded is what was seen: workers fail and recover meanwhile, so
	// that a second look may see something else.
	var seen []nvext.Candidate
	explain := q.Explain || q.ExplainAll
	if explain {
		seen = make([]nvext.Candidate, 0, len(p.slots))
	}
	for i, s := range p.slots {
		wanted := s.wanted(q)
		if !wanted && !explain {
			continue
		}
		st := s.state(now, q, th)
		switch {
		case !wanted:
			if st == nvext.StateEligible {
				st = nvext.StateNotPinned
			}
		case st == nvext.StateEligible:
			p.cands = append(p.cands, candidate{slot: i, inflight: s.load.inflight})
		default:
			blocked[blockedBy(st)]++
		}
		if explain && st != StateGone {
			seen = append(seen, s.candidate(st))
		}
	}
	if len(p.cands) == 0 {
		return nil, p.refuse(q, blocked)
	}
	turn := &p.turn
	if q.Pinned {
		turn = &p.pins
	}
	p.chance.Seed(r.cfg.Seed, d.ordinal)
	chosen := pick(r.cfg.Mode, *turn, p.rng, p.cands)
	s := p.slots[p.cands[chosen].slot]
	pl := &Placement{pool: p, router: r, slot: s, promptTokens: max(q.PromptTokens, 0)}
	pl.leg = Leg{Phase: nvext.Aggregated, Target: s.target, Engine: s.worker.Engine, Ranked: s.model.Ranks > 1}
	if explain {
		pl.Routing = p.explain(r, q, d, *turn, s, seen)
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

// candidate returns s as a decision sees it, not scored.
func (s *slot) candidate(st nvext.State) nvext.Candidate {
	return nvext.Candidate{
		WorkerID:            uint64(s.target.Worker),
		DPRank:              s.target.Rank,
		State:               st,
		Inflight:            s.load.inflight,
		ActivePrefillTokens: int64(s.load.prefillTokens),
		ActiveDecodeBlocks:  int64(s.load.activeBlocks),
		Score:               nvext.Float(math.NaN()),
	}
}

// explain records the decision: the chosen slot, and all or at most
// nvext.MaxCandidates of those that were seen, those that could be chosen first.
// It keeps seen.
func (p *pool) explain(r *Router, q *Request, d decision, turn uint64, chosen *slot, seen []nvext.Candidate) *nvext.Routing {
	out := &nvext.Routing{
		RequestID: q.ID,
		Model:     q.Model.ID,
		Mode:      string(r.cfg.Mode),
		Policy:    string(r.cfg.Mode),
		Reason:    reason(r.cfg.Mode, q, len(p.cands)),
		Attempt:   q.Attempt + 1,
		Chosen:    chosen.candidate(nvext.StateEligible),
	}
	if p.key.blockSize > 0 {
		out.TotalBlocks = p.blocksOf(q.PromptTokens)
	}
	if r.cfg.Mode == RoundRobin {
		out.Turn = turn
	}
	if d.pools != nil {
		out.Pools = slices.Clone(d.pools)
		was := &out.Pools[d.pool]
		was.Chosen = true
		if was.Eligible == 0 { // none had anything to offer a moment ago
			was.Eligible = len(p.cands)
		}
	}
	if d.pools != nil || len(p.cands) > 1 && r.cfg.Mode != RoundRobin {
		out.Seed, out.Decision = &r.cfg.Seed, d.ordinal
	}
	if len(p.cands) < len(seen) {
		slices.SortStableFunc(seen, func(a, b nvext.Candidate) int {
			return cmp.Compare(passedOver(a.State), passedOver(b.State))
		})
	}
	out.Candidates, out.Considered = seen, len(seen)
	if !q.ExplainAll {
		out.Candidates = seen[:min(len(seen), nvext.MaxCandidates)]
	}
	return out
}

func passedOver(s nvext.State) int {
	if s == nvext.StateEligible {
		return 0
	}
	return 1
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

// standing returns what p could do for q now.
func (p *pool) standing(now time.Time, q *Request) nvext.Pool {
	out := nvext.Pool{BlockSize: p.key.blockSize}
	th := p.thresholds.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.slots {
		if s.state(now, q, th) == nvext.StateEligible {
			if out.Eligible == 0 || s.load.inflight < out.Inflight {
				out.Inflight = s.load.inflight
			}
			out.Eligible++
		}
	}
	return out
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

// tokenizers calls f for the engines of the ranks that can be reached and that have
// the capability, with the number of requests there. A busy one counts: its load is
// not in its tokenizer.
func (p *pool) tokenizers(now time.Time, th *Thresholds, f func(t engine.Tokenizer, inflight int)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.slots {
		switch s.state(now, nil, th) {
		case nvext.StateEligible, nvext.StateOverloaded:
			if t, ok := s.worker.Engine.(engine.Tokenizer); ok {
				f(t, s.load.inflight)
			}
		}
	}
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
