package router

import (
	"math"
	"slices"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/nvext"
)

// gather lists who could be chosen and why the others could not, as things are at c.at.
// The caller holds the pool's lock.
func (c *choice) gather() (blocked [numBlocked]int) {
	c.gathered = true
	p, q := c.pool, c.q
	cfg := &p.router.cfg
	th := q.Model.thresholds.Load()
	c.slots, c.others, c.dec.Candidates = c.slots[:0], c.others[:0], c.dec.Candidates[:0]
	c.best = 0
	tracked := cfg.Mode == KV && !cfg.KV.NoActiveBlocks
	c.live = c.live[:0]
	if tracked && len(c.prompt) > 0 && c.reuses() {
		c.live = p.ledger.Live(c.live, c.prompt)
	}
	keep := c.keepsOthers()
	told, sent := c.told, c.sent
	c.dec.Candidates = slices.Grow(c.dec.Candidates, len(p.slots))
	c.slots = slices.Grow(c.slots, len(p.slots))
	for _, s := range p.slots {
		depth := p.deepest(&told, &sent, s)
		wanted := s.wanted(q)
		if !s.serves(q.Model.ID) || !wanted && !keep {
			continue
		}
		st := p.state(s, c.at, q, th)
		switch {
		case !wanted:
			if st == nvext.StateEligible {
				st = nvext.StateNotPinned
			}
		case st == nvext.StateEligible:
			n := len(c.dec.Candidates)
			c.dec.Candidates = c.dec.Candidates[:n+1]
			c.candidate(&c.dec.Candidates[n], s, &depth, tracked)
			c.slots = append(c.slots, s)
			c.best = max(c.best, c.holds(&c.dec.Candidates[n]))
			continue
		default:
			blocked[c.blockedBy(s, st)]++
		}
		if keep && st != StateGone {
			c.others = append(c.others, passed{state: st})
			c.candidate(&c.others[len(c.others)-1].cand, s, &depth, tracked)
		}
	}
	if cfg.KV.SlowStart > 0 && cfg.Mode == KV {
		warm(c.dec.Candidates)
	}
	return blocked
}

// keepsOthers reports whether somebody will ask about ranks that could not be chosen.
func (c *choice) keepsOthers() bool {
	return c.q.Explain || c.q.ExplainAll || c.pool.router.ring != nil
}

// deepen raises depth to what a source has in one list, and returns the list after
// it.
func deepen(depth *[kv.NumTiers]uint32, list []kvindex.Overlap, src kv.Source) []kvindex.Overlap {
	for len(list) > 0 {
		o := &list[0]
		if o.Source == src {
			for t := range depth {
				depth[t] = max(depth[t], o.Depth[t])
			}
			return list[1:]
		}
		if o.Source.Worker > src.Worker || o.Source.Worker == src.Worker && o.Source.Rank > src.Rank {
			break
		}
		list = list[1:]
	}
	return list
}

// candidate makes cand s as the decision sees it. It is filled in place, since there
// are many.
func (c *choice) candidate(cand *sched.Candidate, s *slot, depth *[kv.NumTiers]uint32, tracked bool) {
	cfg := &c.pool.router.cfg
	l := c.pool.ledger.Totals(s.seat, cfg.Mode != KV || cfg.KV.TrackOutput)
	cand.Worker, cand.Rank = s.target.Worker, s.target.Rank
	cand.Requests, cand.PrefillTokens, cand.Blocks = l.Requests, l.PrefillTokens, l.Blocks
	if s.others.requests > 0 && s.fresh(c.at) {
		cand.Requests += s.others.requests
		cand.Blocks += s.others.blocks
	}
	cand.Depth = *depth
	cand.NewBlocks, cand.Live, cand.Held = 0, 0, 0
	cand.Trust, cand.Taint, cand.Warmth, cand.Score = 1, 1, 1, math.NaN()
	if cfg.Mode != KV {
		return
	}
	if depth[kv.NumTiers-1] > 0 { // else it has no part in anything
		cand.Held = int(s.held.Load())
	}
	if s.recall != nil && len(c.prompt) > 0 {
		// What it has to forget counts like what it runs: somebody will miss it.
		cand.Blocks += s.recall.displaced(c.prompt)
	}
	if tracked {
		cand.NewBlocks = c.blocks
		if int(s.seat) < len(c.live) {
			cand.Live = int(c.live[s.seat])
			cand.NewBlocks -= cand.Live
		}
	} else {
		cand.Blocks = 0
	}
	if !cfg.KV.NoTrust {
		cand.Trust = s.trustAt(c.at)
	}
	if len(c.q.PreferredTaints) > 0 {
		cand.Taint = sched.TaintFactor(c.q.PreferredTaints, s.worker.Taints)
	}
	if cfg.KV.SlowStart > 0 {
		cand.Warmth = s.worker.warmth(c.at, cfg.KV.SlowStart)
	}
}

// reuses reports whether requests that begin alike are taken to share their blocks.
func (c *choice) reuses() bool {
	if o := c.q.Override; o != nil && o.AssumeReuse != nil {
		return *o.AssumeReuse
	}
	return !c.pool.router.cfg.KV.NoReuse
}

// Why slots were passed over.
const (
	byNothing = iota
	byLoad
	byAllowList
	byTaint
	byAbsence
	numBlocked
)

func (c *choice) blockedBy(s *slot, st nvext.State) int {
	switch {
	case st == nvext.StateOverloaded:
		return byLoad
	case st == nvext.StateNotAllowed:
		return byAllowList
	case st == nvext.StateEligible:
		return byNothing
	case !s.worker.tainted(c.q.RequiredTaints): // nor will it be when it is back
		return byTaint
	}
	return byAbsence
}

// refuse names the reason why no slot could be chosen.
func (c *choice) refuse(blocked [numBlocked]int) error {
	q := c.q
	if !q.Pinned {
		switch {
		case blocked[byLoad] > 0:
			return ErrOverloaded
		case blocked[byAbsence] > 0:
			return ErrNoWorkers
		case blocked[byTaint] > 0:
			return ErrNoneTainted
		case blocked[byAllowList] > 0:
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
	case blocked[byTaint] > 0:
		err.Reason = PinUntainted
	case blocked[byAbsence] > 0:
		err.Reason = PinUnavailable
	case q.PinRank != nil && c.pool.hasLocked(q.Pin, q.Model.ID):
		err.Reason = PinRankUnknown
	default:
		err.Reason = PinUnknown
	}
	return err
}

// tainted reports whether the worker has all these taints.
func (w *worker) tainted(required []string) bool {
	for _, t := range required {
		if !slices.Contains(w.Taints, t) {
			return false
		}
	}
	return true
}

// warmth is how warm a worker is that came a while ago, from a tenth to 1.
func (w *worker) warmth(now time.Time, slowStart time.Duration) float64 {
	age := now.UnixNano() - w.since.Load()
	return min(max(float64(age)/float64(slowStart), 0.1), 1)
}

// warm takes warmth relative to the warmest candidate, in sixteenths: workers that came
// together are equals.
func warm(cands []sched.Candidate) {
	warmest := 0.0
	for i := range cands {
		warmest = max(warmest, cands[i].Warmth)
	}
	for i := range cands {
		cands[i].Warmth = math.Ceil(16*cands[i].Warmth/warmest) / 16
	}
}
