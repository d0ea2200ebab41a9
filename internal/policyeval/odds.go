package policyeval

import (
	"math"
	"slices"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/nvext"
)

// policyThompson is what records call the policies that learn.
const policyThompson = "thompson"

// recordedOdds returns how likely the policy that decided was to choose each candidate. The
// record says it where a policy drew by it. Otherwise it follows from the rule that decided
// and from what the candidates had in common.
func (d *decision) recordedOdds(rec *nvext.Routing, eligible []*nvext.Candidate) []float64 {
	n := len(d.cands)
	switch {
	case n == 1:
		return []float64{1}
	case rec.Reason == nvext.ReasonThompson, rec.Policy != policyThompson && eligible[0].Propensity != nil:
		return propensities(eligible)
	case rec.Reason == nvext.ReasonSelector || isMode(rec.Mode, "kv") && !d.scored:
		only := make([]float64, n) // how a selector of the program's own chooses is not known
		only[d.chosen] = 1
		return only
	case isMode(rec.Mode, "kv"):
		return costOdds(nil, &d.cost, d.cands)
	case isMode(rec.Mode, "least-loaded"), isMode(rec.Mode, "direct"):
		return leastLoaded(nil, d.cands)
	case isMode(rec.Mode, "power-of-two"):
		return powerOfTwo(nil, d.cands)
	default:
		// Whose turn it is has nothing to do with the request, so that turns are as good
		// as chance.
		return uniform(nil, n)
	}
}

// propensities returns the recorded ones, 0 where there is none.
func propensities(cands []*nvext.Candidate) []float64 {
	out := make([]float64, len(cands))
	for i, c := range cands {
		if c.Propensity != nil {
			out[i] = float64(*c.Propensity)
		}
	}
	return out
}

// lost is how far odds may be off that were written down, or computed again.
const lost = 1e-6

// equalOdds reports whether two policies are as likely to choose each candidate.
func equalOdds(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(p, q float64) bool { return math.Abs(p-q) < lost })
}

// sound reports whether odds are probabilities that sum to 1.
func sound(odds []float64) bool {
	sum := 0.0
	for _, p := range odds {
		if !(p >= 0 && p <= 1) {
			return false
		}
		sum += p
	}
	return math.Abs(sum-1) < lost
}

// uniform appends equal odds.
func uniform(dst []float64, n int) []float64 {
	for range n {
		dst = append(dst, 1/float64(n))
	}
	return dst
}

// costOdds appends the odds of the cost selector for candidates that have been scored.
func costOdds(dst []float64, c *sched.Cost, cands []sched.Candidate) []float64 {
	if c.Temperature > 0 && len(cands) > 1 {
		return c.Propensities(dst, cands)
	}
	return lowest(dst, len(cands), func(i, j int) int {
		a, b := &cands[i], &cands[j]
		switch {
		case a.Score != b.Score:
			return less(a.Score < b.Score || math.IsNaN(b.Score))
		case fill(a) != fill(b):
			return less(fill(a) < fill(b))
		}
		return 0
	})
}

// fill is what decides between equal costs: how much the cache holds, of those that have
// some of the prompt.
func fill(c *sched.Candidate) int {
	if c.Depth[kv.NumTiers-1] == 0 {
		return 0
	}
	return c.Held
}

// leastLoaded appends the odds of the choice by the number of requests.
func leastLoaded(dst []float64, cands []sched.Candidate) []float64 {
	return lowest(dst, len(cands), func(i, j int) int { return cands[i].Requests - cands[j].Requests })
}

// powerOfTwo appends the odds of the choice between two that are drawn: each ordered pair is
// as likely, the one with fewer requests gets it, and the first of the pair among equals.
func powerOfTwo(dst []float64, cands []sched.Candidate) []float64 {
	n := len(cands)
	if n == 1 {
		return append(dst, 1)
	}
	for i := range cands {
		more, equal := 0, -1 // itself
		for j := range cands {
			switch {
			case cands[j].Requests > cands[i].Requests:
				more++
			case cands[j].Requests == cands[i].Requests:
				equal++
			}
		}
		dst = append(dst, float64(2*more+equal)/float64(n*(n-1)))
	}
	return dst
}

// lowest appends the odds of a choice of the least, shared evenly by those that are equal.
func lowest(dst []float64, n int, compare func(i, j int) int) []float64 {
	best, tied := 0, 1
	for i := 1; i < n; i++ {
		switch order := compare(i, best); {
		case order < 0:
			best, tied = i, 1
		case order == 0:
			tied++
		}
	}
	for i := range n {
		p := 0.0
		if i == best || compare(i, best) == 0 {
			p = 1 / float64(tied)
		}
		dst = append(dst, p)
	}
	return dst
}

func less(yes bool) int {
	if yes {
		return -1
	}
	return 1
}
