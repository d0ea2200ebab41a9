package router

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/nvext"
)

// record is all that a decision was made of, and what came of it.
type record struct {
	at        time.Time
	requestID string
	model     string
	mode      Mode
	selector  string // its name, empty for the cost
	reason    nvext.Reason
	attempt   int
	seed      *uint64 // nil where chance had no part
	ordinal   uint64
	turn      uint64
	pools     []nvext.Pool
	waited    time.Duration
	class     string
	expected  *nvext.Expected // as the request has it
	blocks    int             // of the prompt
	overlap   int             // of these, those that the chosen has

	cost         sched.Cost
	promptTokens int
	blockSize    int
	tied         int
	policy       verdicts          // of the policy that learns; empty without one
	cands        []sched.Candidate // those that could be chosen
	others       []passed
	chosen       int
	best         int

	foretold  bool          // something was predicted
	predicted int           // tokens
	verdict   nvext.Verdict // empty until the engine has answered
	actual    int           // negative if the engine does not say
}

// record returns what c is made of. It shares memory with c.
func (c *choice) record() record {
	p, q := c.pool, c.q
	cfg := &p.router.cfg
	rec := record{
		at:        c.now,
		requestID: q.ID,
		model:     q.Model.ID,
		mode:      cfg.Mode,
		reason:    c.reason(),
		attempt:   q.Attempt + 1,
		pools:     c.d.pools,
		waited:    c.waited,
		expected:  q.Expected,
		blocks:    p.blocksOf(q.PromptTokens),
		overlap:   c.placement.leg.OverlapBlocks,
		cands:     c.dec.Candidates,
		others:    c.others,
		chosen:    c.chosen,
		best:      c.best,
	}
	if cfg.Mode == KV {
		rec.cost, rec.promptTokens, rec.blockSize, rec.tied = c.cost, c.dec.PromptTokens, c.dec.BlockSize, c.dec.Tied
		rec.blocks = (c.dec.PromptTokens + c.dec.BlockSize - 1) / c.dec.BlockSize
		rec.foretold, rec.predicted = c.placement.guess.made, c.placement.guess.tokens
		if cfg.Selector != nil {
			rec.selector = cmp.Or(cfg.SelectorName, "custom")
		}
		if c.bandit.id != 0 {
			rec.policy = c.verdicts
		}
	}
	if cfg.Mode == RoundRobin {
		rec.turn = c.turn
	}
	if p.line != nil {
		rec.class = p.line.queue.Classes()[c.class].Name
	}
	if c.d.pools != nil || len(c.dec.Candidates) > 1 && cfg.Mode != RoundRobin {
		rec.seed, rec.ordinal = &cfg.Seed, c.d.ordinal
	}
	return rec
}

// routing explains the decision, with at most so many candidates.
func (c *choice) routing(limit int) *nvext.Routing {
	if pools := c.d.pools; pools != nil {
		c.d.pools = slices.Clone(pools)
		chosePool(&c.d.pools[c.d.pool], len(c.dec.Candidates))
	}
	rec := c.record()
	return rec.routing(limit)
}

// chosePool marks the pool that was chosen, and by so many candidates. It may have had
// none a moment before, when nobody had anything to offer.
func chosePool(p *nvext.Pool, candidates int) {
	p.Chosen = true
	if p.Eligible == 0 {
		p.Eligible = candidates
	}
}

// routing explains the decision, with at most so many candidates: the best first, and
// those that could not be chosen last.
func (rec *record) routing(limit int) *nvext.Routing {
	out := &nvext.Routing{
		RequestID:     rec.requestID,
		Model:         rec.model,
		Mode:          string(rec.mode),
		Policy:        string(rec.mode),
		Reason:        rec.reason,
		Attempt:       rec.attempt,
		Turn:          rec.turn,
		Pools:         rec.pools,
		Tied:          rec.tied,
		QueueWaitMS:   nvext.Float(float64(rec.waited) / float64(time.Millisecond)),
		PolicyClass:   rec.class,
		Expected:      rec.expected,
		TotalBlocks:   rec.blocks,
		OverlapBlocks: rec.overlap,
		CacheVerdict:  rec.verdict,
		Considered:    len(rec.cands) + len(rec.others),
	}
	if rec.seed != nil {
		seed := *rec.seed
		out.Seed, out.Decision = &seed, rec.ordinal
	}
	if rec.verdict != "" && rec.actual >= 0 {
		out.ActualCachedTokens = new(rec.actual)
	}
	if rec.mode == KV {
		out.PromptTokens, out.BlockSize = rec.promptTokens, rec.blockSize
		out.BestOverlapBlocks = rec.best
		if rec.foretold {
			out.PredictedCachedTokens = new(rec.predicted)
		}
		out.Policy = "cost"
		if rec.selector != "" {
			out.Policy = rec.selector
		} else {
			out.Cost = describeCost(&rec.cost)
		}
		if !rec.policy.empty() {
			out.Policy, out.PolicyDecision = policyThompson, rec.policy.decision(rec.cands)
		}
	}
	order := make([]int, len(rec.cands))
	for i := range order {
		order[i] = i
	}
	if rec.mode == KV {
		slices.SortStableFunc(order, func(a, b int) int { return compareScores(rec.cands[a].Score, rec.cands[b].Score) })
	}
	odds := rec.propensities()
	describe := func(i int) nvext.Candidate {
		c := describeCandidate(&rec.cands[i], nvext.StateEligible)
		if rec.mode == KV && rec.selector == "" {
			d := sched.Decision{PromptTokens: rec.promptTokens, BlockSize: rec.blockSize, Candidates: rec.cands}
			for _, t := range rec.cost.Terms(nil, &d, i) {
				c.Terms = append(c.Terms, nvext.Term{Name: t.Name, Value: nvext.Float(t.Value)})
			}
		}
		if odds != nil {
			c.Propensity = new(nvext.Float(odds[i]))
		}
		rec.policy.explain(&c, i)
		return c
	}
	out.Chosen = describe(rec.chosen)
	out.Candidates = make([]nvext.Candidate, 0, min(limit, out.Considered))
	for _, i := range order[:min(limit, len(order))] {
		out.Candidates = append(out.Candidates, describe(i))
	}
	for i := range rec.others[:min(limit-len(out.Candidates), len(rec.others))] {
		out.Candidates = append(out.Candidates, describeCandidate(&rec.others[i].cand, rec.others[i].state))
	}
	return out
}

// compareScores orders scores, those that are none last.
func compareScores(a, b float64) int {
	switch an, bn := math.IsNaN(a), math.IsNaN(b); {
	case an && bn:
		return 0
	case an:
		return 1
	case bn:
		return -1
	}
	return cmp.Compare(a, b)
}

// propensities returns how likely each candidate was, nil where chance had no part.
func (rec *record) propensities() []float64 {
	if rec.mode != KV || rec.selector != "" || !rec.policy.empty() {
		return nil
	}
	return rec.cost.Propensities(nil, rec.cands)
}

func describeCandidate(c *sched.Candidate, st nvext.State) nvext.Candidate {
	out := nvext.Candidate{
		WorkerID:            uint64(c.Worker),
		DPRank:              c.Rank,
		State:               st,
		Inflight:            c.Requests,
		ActivePrefillTokens: int64(c.PrefillTokens),
		ActiveDecodeBlocks:  int64(c.Blocks),
		NewBlocks:           int64(c.NewBlocks),
		OverlapBlocks:       int(c.Depth[kv.External]),
		HostBlocks:          int(c.Depth[kv.Host] - c.Depth[kv.Device]),
		DiskBlocks:          int(c.Depth[kv.Disk] - c.Depth[kv.Host]),
		SharedBlocks:        int(c.Depth[kv.External] - c.Depth[kv.Disk]),
		LiveBlocks:          c.Live,
		HeldBlocks:          c.Held,
		Score:               nvext.Float(c.Score),
	}
	for _, f := range []struct {
		to *(*nvext.Float)
		v  float64
	}{{&out.Trust, c.Trust}, {&out.TaintFactor, c.Taint}, {&out.Warmth, c.Warmth}} {
		if f.v != 1 {
			*f.to = new(nvext.Float(f.v))
		}
	}
	return out
}

// RecallCandidate returns a recorded candidate as selectors see it, with its score. What
// cannot be less than nothing is nothing.
func RecallCandidate(c *nvext.Candidate) sched.Candidate {
	factor := func(f *nvext.Float) float64 {
		if f == nil {
			return 1
		}
		return float64(*f)
	}
	out := sched.Candidate{
		Worker:        kv.WorkerID(c.WorkerID),
		Rank:          c.DPRank,
		Requests:      max(c.Inflight, 0),
		PrefillTokens: int(max(c.ActivePrefillTokens, 0)),
		Blocks:        int(max(c.ActiveDecodeBlocks, 0)),
		NewBlocks:     int(max(c.NewBlocks, 0)),
		Live:          c.LiveBlocks,
		Held:          c.HeldBlocks,
		Trust:         factor(c.Trust),
		Taint:         factor(c.TaintFactor),
		Warmth:        factor(c.Warmth),
		Score:         float64(c.Score),
	}
	depth := c.OverlapBlocks
	for _, tier := range []struct {
		to     kv.Tier
		beyond int // what is farther away only
	}{{kv.External, 0}, {kv.Disk, c.SharedBlocks}, {kv.Host, c.DiskBlocks}, {kv.Device, c.HostBlocks}} {
		depth -= tier.beyond
		out.Depth[tier.to] = uint32(min(max(depth, 0), math.MaxUint32))
	}
	return out
}

func describeCost(c *sched.Cost) *nvext.CostParams {
	return &nvext.CostParams{
		PrefillLoadScale:          nvext.Float(c.PrefillScale),
		OverlapScoreCredit:        nvext.Float(c.Credit),
		OverlapScoreCreditDecay:   nvext.Float(c.CreditDecay),
		HostCacheHitWeight:        nvext.Float(c.HostWeight),
		DiskCacheHitWeight:        nvext.Float(c.DiskWeight),
		SharedCacheMultiplier:     nvext.Float(c.SharedWeight),
		DecodeActiveRequestWeight: nvext.Float(c.RequestWeight),
		RouterTemperature:         nvext.Float(c.Temperature),
		AbsoluteTemperature:       c.AbsoluteTemperature,
		NoPrefill:                 c.NoPrefill,
		NoLive:                    c.NoLive,
	}
}

// RecallCost returns the parameters of a recorded cost.
func RecallCost(p *nvext.CostParams) sched.Cost {
	return sched.Cost{
		PrefillScale:        float64(p.PrefillLoadScale),
		Credit:              float64(p.OverlapScoreCredit),
		CreditDecay:         float64(p.OverlapScoreCreditDecay),
		HostWeight:          float64(p.HostCacheHitWeight),
		DiskWeight:          float64(p.DiskCacheHitWeight),
		SharedWeight:        float64(p.SharedCacheMultiplier),
		RequestWeight:       float64(p.DecodeActiveRequestWeight),
		Temperature:         float64(p.RouterTemperature),
		AbsoluteTemperature: p.AbsoluteTemperature,
		NoPrefill:           p.NoPrefill,
		NoLive:              p.NoLive,
	}
}
