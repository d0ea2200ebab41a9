package router

import (
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/thompson"
	"github.com/stator-ai/stator/nvext"
)

// Requests whose answers come at once are placed by the safe policy, and pay for what it
// tries. It learns nothing from them, neither about workers nor about itself, however long
// they take and however they end.
func TestSafePlacesWhatComesAtOnce(t *testing.T) {
	c := new(clock)
	bandit := safePolicy(func(c *thompson.SafeConfig) { c.Guard, c.Epsilon, c.Allowance = 100, 1, 0 })
	r, m := crew(t, Config{Mode: KV, Now: c.time, Virtual: true, Bandit: bandit}, tellers(2)...)
	prompt := tokensOf(1, 640)
	store(t, r, 1, 0, kv.Device, prompt, 0, 20)
	before := *r.Bandits()[0].Safe
	elsewhere := 0
	for i := range 60 {
		q := ask(m, prompt)
		q.Whole = true
		p := mustPlace(t, r, q)
		rt := p.Routing
		sum := 0.0
		for _, cand := range rt.Candidates {
			sum += float64(*cand.Propensity)
		}
		if rt.Reason != nvext.ReasonThompson || sum < 0.999 || sum > 1.001 {
			t.Fatalf("explained as %s", jsonOf(t, rt))
		}
		if workerOf(p) == 2 { // which has nothing of the prompt
			elsewhere++
		}
		for range 20 { // far longer than predicted
			c.pass(time.Second)
			pool := r.bandits()[0]
			pool.mu.Lock()
			pool.bandit.tick(pool, c.time())
			pool.mu.Unlock()
		}
		o := []Outcome{Completed, Cancelled, Refused}[i%3]
		if o == Completed {
			p.Whole(10)
		}
		if i == 59 {
			o = Failed
		}
		p.Done(o)
	}
	st := r.Bandits()[0]
	if elsewhere == 0 || st.Safe.Budget >= before.Budget {
		t.Errorf("%d went where they cost more; of a budget of %v there is %v", elsewhere, before.Budget, st.Safe.Budget)
	}
	if st.Pending != 0 || st.Safe.Compared != 0 || st.Safe.PrefillRate != before.PrefillRate || *st.Ranks[0].Observations != 0 || *st.Ranks[1].Observations != 0 {
		t.Errorf("learned %s", jsonOf(t, st))
	}
}
