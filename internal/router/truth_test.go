package router

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/sched"
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
		{"nobody was known to have anything", g(0, 0), ours, 64, nvext.VerdictUnforeseen},
		{"nobody was known to have anything, a block", g(0, 0), ours, 16, nvext.VerdictUnforeseen},
		{"nobody was known to have anything, less than a block", g(0, 0), ours, 15, nvext.VerdictNoReuse},
		{"nobody had anything, it does not say", g(0, 0), ours, -1, nvext.VerdictNoReuse},
		{"another had more", g(32, 96), ours, 32, nvext.VerdictTraded},
		{"another had all", g(0, 96), ours, 0, nvext.VerdictTraded},
		{"another had more and this one lost it", g(64, 96), ours, 0, nvext.VerdictIndexStale},
		{"other tokens", g(96, 96), ours + 1, 96, nvext.VerdictTokensDiffer},
		{"other tokens, nobody had anything", g(0, 0), ours - 1, 0, nvext.VerdictTokensDiffer},
		{"it does not say", g(96, 96), ours, -1, nvext.VerdictUnknown},
		{"it does not say, other tokens", g(96, 96), ours + 5, -1, nvext.VerdictTokensDiffer},
		{"no usage", g(96, 96), 0, 0, nvext.VerdictUnknown},
		{"no usage, nobody had anything", g(0, 0), -1, -1, nvext.VerdictUnknown},
		{"a guess", guess, ours, 0, nvext.VerdictUnknown},
		{"a guess, other tokens", guess, ours + 1, 0, nvext.VerdictUnknown},
	} {
		if got := row.g.judge(ours, row.prompt, row.cached); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
}

// TestTrust: a worker that keeps having less than it says is believed less, and
// believed again once it is right.
func TestTrust(t *testing.T) {
	now := time.Unix(1000, 0)
	r, m := crew(t, Config{Now: func() time.Time { return now }, Virtual: true}, tellers(2)...)
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

// TestMistrustIsForgotten: half of it in a minute, whether or not anybody is sent there.
func TestMistrustIsForgotten(t *testing.T) {
	now := time.Unix(1000, 0)
	r, m := crew(t, Config{Now: func() time.Time { return now }, Virtual: true}, tellers(2)...)
	prompt := tokensOf(1, 1600)
	store(t, r, 1, 0, kv.Device, prompt, 0, 100)
	q := ask(m, prompt)
	q.Pinned, q.Pin = true, 1
	for range 40 {
		p := mustPlace(t, r, q)
		p.Usage(1600, 0)
		p.Done(Completed)
	}
	trust := func() float64 {
		for _, c := range query(t, r, ask(m, prompt)).Routing.Candidates {
			if c.WorkerID == 1 && c.Trust != nil {
				return float64(*c.Trust)
			}
		}
		return 1
	}
	begin := trust()
	if begin > 0.05 {
		t.Fatalf("trust %v after 40 answers without a block", begin)
	}
	// What is booked is what is to be computed if no more is there than is trusted.
	p := mustPlace(t, r, q)
	if got, want := loads(m).prefillTokens, 1600-int(math.Round(1600*begin)); got != want {
		t.Errorf("%d tokens to compute, want %d", got, want)
	}
	p.Done(Completed)
	for _, row := range []struct {
		after time.Duration
		left  float64
	}{{30 * time.Second, math.Sqrt(0.5)}, {time.Minute, 0.5}, {2 * time.Minute, 0.25}, {10 * time.Minute, 1.0 / 1024}} {
		now = time.Unix(1000, 0).Add(row.after)
		if got, want := trust(), 1-(1-begin)*row.left; math.Abs(got-want) > 1e-9 {
			t.Errorf("after %v: trust %v, want %v", row.after, got, want)
		}
	}
	if got := m.pools[0].slots[0].trustAt(time.Unix(1, 0)); got != begin {
		t.Errorf("by a clock that went back: trust %v, want %v", got, begin)
	}
	now = time.Unix(1000, 0).Add(time.Minute)
	r.CountWorkers()
	if got, want := sum(t, r.cfg.Metrics, "stator_worker_cache_trust", "worker_id", "1"), 1-(1-begin)/2; math.Abs(got-want) > 1e-9 {
		t.Errorf("the gauge says %v, want %v", got, want)
	}
	// The next answer counts on top of what is left.
	p = mustPlace(t, r, q)
	p.Usage(1600, 0)
	p.Done(Completed)
	before := 1 - (1-begin)/2
	if got, want := trust(), before+0.1*(0.01-before); math.Abs(got-want) > 1e-9 {
		t.Errorf("after another answer: trust %v, want %v", got, want)
	}
}

// TestTrustOfThoseWhoWaited: what a worker was found to have while a request waited counts
// for it as of when it is placed, not as of when it came.
func TestTrustOfThoseWhoWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := queueOf(100)
		cfg.RefreshAfter = -1
		r, m := crew(t, Config{Queue: cfg}, tellers(1)...)
		prompt := tokensOf(1, 1600)
		store(t, r, 1, 0, kv.Device, prompt, 0, 100)
		stale := mustPlace(t, r, ask(m, prompt))
		busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		w := waitFor(t, r, ask(m, prompt))
		w.still(t)
		time.Sleep(10 * time.Minute)
		stale.Usage(1600, 0)
		stale.Done(Completed)
		busy.Done(Completed)
		synctest.Wait()
		p := w.placed(t)
		if got := p.Routing.Chosen.Trust; got == nil || math.Abs(float64(*got)-0.901) > 1e-9 {
			t.Errorf("trust %v, want 0.901", got)
		}
		w = waitFor(t, r, ask(m, prompt)) // as long as it takes to forget half
		w.still(t)
		time.Sleep(time.Minute)
		p.Done(Completed)
		synctest.Wait()
		p = w.placed(t)
		if got := p.Routing.Chosen.Trust; got == nil || math.Abs(float64(*got)-0.9505) > 1e-9 {
			t.Errorf("a minute later: trust %v, want 0.9505", got)
		}
		p.Done(Completed)
		idle(t, r, m)
	})
}

// TestShortPredictionsTeachNothing: a block may be missing, so a prediction of no more
// says nothing, neither for the worker nor against it.
func TestShortPredictionsTeachNothing(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, row := range []struct {
		blocks, cached int
		want           float64
	}{{1, 0, 0.5}, {1, 16, 0.5}, {2, 0, 0.5}, {2, 32, 0.55}, {4, 0, 0.475}} {
		r, m := crew(t, Config{Now: func() time.Time { return now }, Virtual: true}, tellers(1)...)
		prompt := tokensOf(1, 160)
		store(t, r, 1, 0, kv.Device, prompt, 0, row.blocks)
		s := m.pools[0].slots[0]
		s.trust, s.trusted = 0.5, now
		p := mustPlace(t, r, ask(m, prompt))
		p.Usage(160, row.cached)
		p.Done(Completed)
		if math.Abs(s.trust-row.want) > 1e-9 {
			t.Errorf("%d blocks predicted, %d tokens found: trust %v, want %v", row.blocks, row.cached, s.trust, row.want)
		}
	}
}

// TestPredictionsCountWhatIsUnderWay: blocks that requests hold are predicted to be found,
// where the cost counts on them.
func TestPredictionsCountWhatIsUnderWay(t *testing.T) {
	for _, off := range []bool{false, true} {
		cost := sched.DefaultCost()
		cost.NoLive = off
		r, m := crew(t, Config{KV: KVConfig{Cost: &cost}}, tellers(2)...)
		prompt := tokensOf(1, 160)
		q := ask(m, prompt)
		q.Pinned, q.Pin = true, 1
		first := mustPlace(t, r, q)
		if v := first.Usage(160, 0); v != nvext.VerdictNoReuse {
			t.Errorf("the first: %s", v)
		}
		want := map[bool]struct {
			predicted, best int
			here, there     nvext.Verdict
		}{
			false: {160, 10, nvext.VerdictAgreed, nvext.VerdictTraded},
			true:  {0, 0, nvext.VerdictUnforeseen, nvext.VerdictNoReuse},
		}[off]
		same := mustPlace(t, r, q)
		if ro := same.Routing; *ro.PredictedCachedTokens != want.predicted || ro.OverlapBlocks != 0 {
			t.Errorf("NoLive %v: %d tokens predicted, want %d; %d blocks known to be there", off, *ro.PredictedCachedTokens, want.predicted, ro.OverlapBlocks)
		}
		if v := same.Usage(160, 144); v != want.here {
			t.Errorf("NoLive %v: where it runs: %s, want %s", off, v, want.here)
		}
		busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 1600, Pinned: true, Pin: 1})
		other := mustPlace(t, r, ask(m, prompt))
		if ro := other.Routing; workerOf(other) != 2 || *ro.PredictedCachedTokens != 0 || ro.BestOverlapBlocks != want.best {
			t.Errorf("NoLive %v: placed on %d with %d tokens predicted, want 2 with none; the best has %d blocks, want %d",
				off, workerOf(other), *ro.PredictedCachedTokens, ro.BestOverlapBlocks, want.best)
		}
		if v := other.Usage(160, 0); v != want.there {
			t.Errorf("NoLive %v: where it does not run: %s, want %s", off, v, want.there)
		}
		for _, p := range []*Placement{first, same, busy, other} {
			p.Done(Completed)
		}
	}
}

// TestNoPredictionWithoutIndexes: where nobody asks about caches nothing is predicted, and
// nothing comes of what engines find.
func TestNoPredictionWithoutIndexes(t *testing.T) {
	cost := sched.DefaultCost()
	cost.PrefillScale = 0
	r, m := crew(t, Config{KV: KVConfig{Cost: &cost}, Decisions: 4}, tellers(2)...)
	prompt := tokensOf(1, 160)
	first := mustPlace(t, r, ask(m, prompt))
	p := mustPlace(t, r, ask(m, prompt))
	if v := p.Usage(160, 64); v != "" || p.Routing.PredictedCachedTokens != nil || p.Routing.CacheVerdict != "" {
		t.Errorf("verdict %q, %v tokens predicted", v, p.Routing.PredictedCachedTokens)
	}
	for _, d := range r.Decisions(4, func(string, string, uint64) bool { return true }) {
		if d.Routing.PredictedCachedTokens != nil || d.Routing.CacheVerdict != "" {
			t.Errorf("the ring has verdict %q, %v tokens predicted", d.Routing.CacheVerdict, d.Routing.PredictedCachedTokens)
		}
	}
	if n := sum(t, r.cfg.Metrics, "stator_cache_verdicts_total"); n != 0 {
		t.Errorf("%v verdicts counted", n)
	}
	first.Done(Completed)
	p.Done(Completed)
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
