package router

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/thompson"
	"github.com/stator-ai/stator/nvext"
)

// Explanations say why a policy decided as it did, and what it knew of each candidate.
func TestPolicyDecisionExplained(t *testing.T) {
	wide := func(change func(*thompson.SafeConfig)) *BanditConfig {
		return safePolicy(func(c *thompson.SafeConfig) {
			c.Guard = 10
			change(c)
		})
	}
	for _, c := range []struct {
		name    string
		bandit  *BanditConfig
		workers int
		variant string
		why     thompson.Why
	}{
		{"sampled", wide(func(*thompson.SafeConfig) {}), 3, "safe", thompson.WhySampled},
		{"one", safePolicy(nil), 1, "safe", thompson.WhyOnly},
		{"poor", wide(func(c *thompson.SafeConfig) { c.Budget = 0 }), 3, "safe", thompson.WhyBudget},
		{"shadow", wide(func(c *thompson.SafeConfig) { c.Shadow = true }), 3, "shadow", thompson.WhyShadow},
		{"reference", referencePolicy(t), 3, "reference", thompson.WhySampled},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, m := crew(t, Config{Mode: KV, Bandit: c.bandit, Decisions: 2}, tellers(c.workers)...)
			store(t, r, 1, 0, kv.Device, tokensOf(1, 320), 0, 10)
			p := mustPlace(t, r, ask(m, tokensOf(1, 320)))
			defer p.Done(Completed)
			rt := p.Routing
			d := rt.PolicyDecision
			if d == nil || d.Variant != c.variant || d.Why != c.why.String() {
				t.Fatalf("explained as %s", jsonOf(t, rt))
			}
			p1 := nvext.Float(1)
			if c.why == thompson.WhySampled {
				p1 = *rt.Chosen.Propensity
			}
			if d.P != p1 {
				t.Errorf("chosen with probability %v, want %v", d.P, p1)
			}
			if (d.Would == nil) != (c.why == thompson.WhySampled) {
				t.Errorf("would choose %v", d.Would)
			}
			if w := d.Would; w != nil && c.why != thompson.WhyShadow && *w != (nvext.Rank{WorkerID: rt.Chosen.WorkerID, DPRank: rt.Chosen.DPRank}) {
				t.Errorf("would choose %v, which it did not look at", *w)
			}
			if c.variant == "reference" {
				if d.Budget != nil || d.Limit != nil || d.Features != nil || rt.Chosen.PolicyX != nil {
					t.Errorf("explained as %s", jsonOf(t, rt))
				}
				return
			}
			if d.Budget == nil || *d.Limit < rt.Chosen.Score {
				t.Errorf("decided by %s", jsonOf(t, d))
			}
			for _, cand := range rt.Candidates {
				if len(cand.PolicyX) != len(d.Features) || cand.PolicyX[0] != 1 || (cand.PolicyX[1] != 0) != (cand.WorkerID == 1) {
					t.Errorf("of %v is known of worker %d: %v", d.Features, cand.WorkerID, cand.PolicyX)
				}
			}
			kept := r.Decisions(1, func(string, string, uint64) bool { return true })
			if diff := cmp.Diff(jsonOf(t, d), jsonOf(t, kept[0].Routing.PolicyDecision)); diff != "" {
				t.Errorf("kept (-placed +kept):\n%s", diff)
			}
		})
	}
}

// In shadow the policy and the cost may differ, and both are told.
func TestShadowSaysWhomItWouldChoose(t *testing.T) {
	bandit := safePolicy(func(c *thompson.SafeConfig) { c.Shadow, c.Epsilon = true, 1 })
	r, m := crew(t, Config{Mode: KV, Bandit: bandit}, tellers(2)...)
	would := make(map[uint64]int)
	for range 50 {
		p := mustPlace(t, r, ask(m, tokensOf(1, 64)))
		would[p.Routing.PolicyDecision.Would.WorkerID]++
		p.Done(Cancelled)
	}
	if would[1] == 0 || would[2] == 0 || would[1]+would[2] != 50 {
		t.Errorf("would choose %v", would)
	}
}
