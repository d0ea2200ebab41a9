package router

import (
	"slices"

	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/internal/thompson"
	"github.com/stator-ai/stator/nvext"
)

// policyThompson is what explanations call the policies that learn.
const policyThompson = "thompson"

// empty reports whether no policy has seen the candidates.
func (v *verdicts) empty() bool { return len(v.reference) == 0 && len(v.safe) == 0 }

// copy returns a copy of from, in v's memory.
func (v verdicts) copy(from verdicts) verdicts {
	from.reference = append(v.reference[:0], from.reference...)
	from.safe = append(v.safe[:0], from.safe...)
	return from
}

// decision says why the policy decided as it did about the candidates; nil where there was
// none.
func (v *verdicts) decision(cands []sched.Candidate) *nvext.PolicyDecision {
	if v.empty() {
		return nil
	}
	out := &nvext.PolicyDecision{Variant: v.variant, Why: v.why.String(), P: nvext.Float(v.p)}
	if len(v.safe) > 0 {
		out.Budget, out.Limit = new(nvext.Float(v.budget)), new(nvext.Float(v.limit))
		out.Features = thompson.SafeFeatures()
		if v.why != thompson.WhySampled {
			w := &cands[v.would]
			out.Would = &nvext.Rank{WorkerID: uint64(w.Worker), DPRank: w.Rank}
		}
	}
	return out
}

// explain says what the policy made of a candidate.
func (v *verdicts) explain(c *nvext.Candidate, i int) {
	switch {
	case i < len(v.safe):
		s := &v.safe[i]
		c.Propensity = new(nvext.Float(s.P))
		c.PolicyScore = new(nvext.Float(s.Score))
		c.PolicyX = make([]nvext.Float, len(s.X))
		for i, x := range s.X {
			c.PolicyX[i] = nvext.Float(x)
		}
		if s.Admissible {
			c.PolicyTerms = []nvext.Term{
				{Name: "prior", Value: nvext.Float(s.Prior)},
				{Name: "residual", Value: nvext.Float(s.Residual)},
				{Name: "offset", Value: nvext.Float(s.Offset)},
			}
		}
	case i < len(v.reference):
		r := &v.reference[i]
		c.Propensity = new(nvext.Float(r.P))
		c.PolicyScore = new(nvext.Float(r.Score))
		c.PolicyTerms = referenceTerms(r)
	}
}

// referenceTerms are the parts of a score, each with the factor for load in it.
func referenceTerms(r *thompson.Choice) []nvext.Term {
	terms := []nvext.Term{
		{Name: "mean", Value: nvext.Float(r.Load * r.Mean)},
		{Name: "noise", Value: nvext.Float(r.Load * r.Noise)},
		{Name: "beta", Value: nvext.Float(r.Load * r.Beta)},
		{Name: "affinity", Value: nvext.Float(r.Load * r.Affinity)},
		{Name: "switch", Value: nvext.Float(-r.Load * r.Switch)},
	}
	return slices.DeleteFunc(terms, func(t nvext.Term) bool { return t.Value == 0 })
}
