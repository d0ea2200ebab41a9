package router

import (
	"math"
	"testing"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/nvext"
)

func TestVerdicts(t *testing.T) {
	const ours = 160
	g := func(predicted, best int) prediction {
		return prediction{made: true, exact: true, tokens: predicted, best: best, block: 16}
	}
	guess := g(64, 64)
	guess.exact = false
	for _, row := range []struct {
		name           string
		g              prediction
		prompt, cached int
		want           nvext.Verdict
	}{
		{"as predicted", g(96, 96), ours, 96, nvext.VerdictAgreed},
		{"more than predicted", g(96, 96), ours, 160, nvext.VerdictAgreed},
		{"a block less", g(96, 96), ours, 80, nvext.VerdictAgreed},
		{"a block and a token less", g(96, 96), ours, 79, nvext.VerdictIndexStale},
		{"nothing", g(96, 96), ours, 0, nvext.VerdictIndexStale},
		{"nobody had anything", g(0, 0), ours, 0, nvext.VerdictNoReuse},
		{"nobody was known to have anything", g(0, 0), ours, 64, nvext.VerdictNoReuse},
		{"another had more", g(32, 96), ours, 32, nvext.VerdictTraded},
		{"another had all", g(0, 96), ours, 0, nvext.VerdictTraded},
		{"another had more and this one lost it", g(64, 96), ours, 0, nvext.VerdictIndexStale},
		{"other tokens", g(96, 96), ours + 1, 96, nvext.VerdictTokensDiffer},
		{"other tokens, nobody had anything", g(0, 0), ours - 1, 0, nvext.VerdictTokensDiffer},
		{"it does not say", g(96, 96), ours, -1, nvext.VerdictUnknown},
		{"it does not say, other tokens", g(96, 96), ours + 5, -1, nvext.VerdictUnknown},
		{"a guess", guess, ours, 0, nvext.VerdictUnknown},
	} {
		if got := row.g.judge(ours, row.prompt, row.cached); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
}

// TestTrust: a worker that keeps having less than it says is believed less, and
// believed again once it is right.
func TestTrust(t *testing.T) {
	r, m := crew(t, Config{}, tellers(2)...)
	prompt := tokensOf(1, 1600)
	store(t, r, 1, 0, kv.Device, prompt, 0, 100)
	slot := m.pools[0].slots[0]
	send := func(cached int) *Placement {
		q := ask(m, prompt)
		q.Pinned, q.Pin = true, 1
		p := mustPlace(t, r, q)
		p.Usage(1600, cached)
		p.Done(Completed)
		return p
	}
	send(1600)
	send(1584) // a block may be missing
	if slot.trust != 1 {
		t.Fatalf("trust %v after answers that agree", slot.trust)
	}
	want := 1.0
	for range 20 {
		if p := send(0); p.Routing.CacheVerdict != nvext.VerdictIndexStale || *p.Routing.ActualCachedTokens != 0 {
			t.Fatalf("verdict %s", p.Routing.CacheVerdict)
		}
		want += 0.1 * (0.01 - want) // a block of a hundred is forgiven
		if math.Abs(slot.trust-want) > 1e-9 {
			t.Fatalf("trust %v, want %v", slot.trust, want)
		}
	}
	// The credit of its hundred blocks has shrunk with it, for all to see.
	p := query(t, r, ask(m, prompt))
	for _, c := range p.Routing.Candidates {
		if c.WorkerID == 1 && (c.Trust == nil || math.Abs(float64(*c.Trust)-want) > 1e-9 || math.Abs(float64(c.Score)-(200-100*want)) > 1e-9) {
			t.Errorf("trust %v, score %v, want %v and %v", c.Trust, c.Score, want, 200-100*want)
		}
		if c.WorkerID == 2 && (c.Trust != nil || c.Score != 200) {
			t.Errorf("the other one: trust %v, score %v", c.Trust, c.Score)
		}
	}
	for range 100 {
		send(1600)
	}
	if slot.trust != 1 {
		t.Errorf("trust %v after a hundred answers that agree, want 1", slot.trust)
	}
	// What cannot be compared, or is no fault of the index, changes nothing.
	send(-1)
	q := ask(m, prompt)
	q.Pinned, q.Pin = true, 1
	mustPlace(t, r, q).Usage(1599, 0)
	q = ask(m, tokensOf(2, 160))
	q.Pinned, q.Pin = true, 1
	mustPlace(t, r, q).Usage(160, 0)
	if slot.trust != 1 {
		t.Errorf("trust %v", slot.trust)
	}
}

func TestNoTrust(t *testing.T) {
	r, m := crew(t, Config{KV: KVConfig{NoTrust: true}}, tellers(1)...)
	prompt := tokensOf(1, 160)
	store(t, r, 1, 0, kv.Device, prompt, 0, 10)
	for range 10 {
		p := mustPlace(t, r, ask(m, prompt))
		p.Usage(160, 0)
		p.Done(Completed)
		if p.Routing.Chosen.Score != 10 || p.Routing.Chosen.Trust != nil {
			t.Fatalf("score %v, trust %v", p.Routing.Chosen.Score, p.Routing.Chosen.Trust)
		}
	}
}

func TestTruthIsToldOnce(t *testing.T) {
	set := metrics.New(metrics.Options{})
	r, m := crew(t, Config{Metrics: set, Decisions: 8}, tellers(2)...)
	prompt := tokensOf(1, 160)
	store(t, r, 1, 0, kv.Device, prompt, 0, 10)
	p := mustPlace(t, r, ask(m, prompt))
	query(t, r, ask(m, prompt)).Usage(160, 0) // nobody runs it: it says nothing
	p.Usage(160, 160)
	p.Usage(160, 0)
	p.Done(Completed)
	p.Usage(160, 0)
	if n := sum(t, set, "stator_cache_verdicts_total"); n != 1 {
		t.Errorf("%v verdicts counted, want 1", n)
	}
	if n := sum(t, set, "stator_cache_verdicts_total", "verdict", "agreed", "worker_id", "1"); n != 1 {
		t.Errorf("%v of them agreed, want 1", n)
	}
	d := r.Decisions(10, func(string, string, uint64) bool { return true })
	if len(d) != 1 || d[0].Routing.CacheVerdict != nvext.VerdictAgreed || *d[0].Routing.ActualCachedTokens != 160 || p.Routing.CacheVerdict != nvext.VerdictAgreed {
		t.Errorf("decisions %+v", d)
	}
}
