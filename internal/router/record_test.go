package router

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/nvext"
)

// checkExplained fails unless an explanation is sound: terms sum to scores, the best
// come first, and those that could not be chosen last.
func checkExplained(t *testing.T, p *Placement, limit int) {
	t.Helper()
	ro := p.Routing
	if len(ro.Candidates) != min(limit, ro.Considered) {
		t.Fatalf("%d candidates of %d", len(ro.Candidates), ro.Considered)
	}
	if got := (engine.Target{Worker: kv.WorkerID(ro.Chosen.WorkerID), Rank: ro.Chosen.DPRank}); got != p.Last().Target || ro.Chosen.State != nvext.StateEligible {
		t.Fatalf("%+v was chosen, placed on %v", ro.Chosen, p.Last().Target)
	}
	scored := func(c *nvext.Candidate) {
		t.Helper()
		if len(c.Terms) == 0 || math.Abs(c.TermSum()-float64(c.Score)) > 1e-9*max(1, math.Abs(float64(c.Score))) {
			t.Fatalf("worker %d: terms %v sum to %v, the score is %v", c.WorkerID, c.Terms, c.TermSum(), c.Score)
		}
	}
	scored(&ro.Chosen)
	odds, past := 0.0, false
	for i := range ro.Candidates {
		c := &ro.Candidates[i]
		if c.State != nvext.StateEligible {
			past = true
			if !math.IsNaN(float64(c.Score)) || c.Terms != nil || c.Propensity != nil {
				t.Fatalf("worker %d is %s and has the score %v", c.WorkerID, c.State, c.Score)
			}
			continue
		}
		if past {
			t.Fatalf("worker %d could be chosen and comes after one that could not", c.WorkerID)
		}
		scored(c)
		if i > 0 && c.Score < ro.Candidates[i-1].Score {
			t.Fatalf("score %v comes after %v", c.Score, ro.Candidates[i-1].Score)
		}
		if ro.Cost.RouterTemperature == 0 && ro.Chosen.Score > c.Score {
			t.Fatalf("chosen with %v, there was one with %v", ro.Chosen.Score, c.Score)
		}
		if c.Propensity != nil {
			odds += float64(*c.Propensity)
		}
	}
	if limit >= ro.Considered && odds != 0 && math.Abs(odds-1) > 1e-9 {
		t.Fatalf("propensities sum to %v", odds)
	}
}

// chaos returns a fleet of several workers, some in another pool, and a function that
// makes a random request and changes something now and then.
type chaos struct {
	t       *testing.T
	rng     *rand.Rand
	r       *Router
	m       *Model
	workers int
	running []*Placement
}

func newChaos(t *testing.T, cfg Config, seed uint64, workers int, sizes ...int) *chaos {
	rng := rand.New(rand.NewPCG(seed, 7))
	cost := sched.DefaultCost()
	cost.RequestWeight, cost.SharedWeight = float64(rng.IntN(2)), 0.5
	if seed%2 == 0 {
		cost.CreditDecay = 0.5
	}
	if cfg.KV.Cost == nil {
		cfg.KV.Cost = &cost
	}
	cfg.Seed = rng.Uint64()
	var specs []Spec
	for i := range workers {
		shape := engine.Model{ID: "m", BlockSize: sizes[i%len(sizes)], Ranks: 1 + i%2, TotalBlocks: 80}
		s := Spec{Events: i%3 != 0, Engine: &stubEngine{models: []engine.Model{shape}}}
		if i%2 == 0 {
			s.Taints = []string{"even"}
		}
		specs = append(specs, s)
	}
	r, m := crew(t, cfg, specs...)
	m.SetThresholds(Thresholds{DecodeBlocks: ptr(0.9)})
	return &chaos{t: t, rng: rng, r: r, m: m, workers: workers}
}

func (c *chaos) prompt() []uint32 {
	text := 1 + c.rng.IntN(6)
	return append(tokensOf(text, 16*c.rng.IntN(20)), tokensOf(10+c.rng.IntN(500), c.rng.IntN(60))...)
}

func (c *chaos) request() *Request {
	rng := c.rng
	q := randomRequest(rng, c.m, c.workers)
	q.Tokens = c.prompt()
	q.PromptTokens, q.HashSeed = len(q.Tokens), kv.HashSeed("", "")
	if rng.IntN(3) == 0 {
		q.PreferredTaints = map[string]float64{"even": rng.NormFloat64()}
	}
	if rng.IntN(8) == 0 {
		q.RequiredTaints = []string{"even"}
	}
	if rng.IntN(3) == 0 {
		o := new(Override)
		for _, f := range []**float64{&o.Temperature, &o.PrefillScale, &o.Credit, &o.SharedWeight, &o.OverlapWeight} {
			if rng.IntN(3) == 0 {
				*f = ptr(float64(rng.IntN(5)) / 4)
			}
		}
		for _, f := range []**bool{&o.AssumeReuse, &o.TrackPrefill} {
			if rng.IntN(3) == 0 {
				*f = ptr(rng.IntN(2) == 0)
			}
		}
		q.Override = o
	}
	return q
}

// disturb changes something.
func (c *chaos) disturb() {
	rng := c.rng
	switch k := len(c.running); {
	case k > 0 && (k > 40 || rng.IntN(2) == 0):
		i := rng.IntN(k)
		p := c.running[i]
		p.FirstToken()
		p.Output(rng.IntN(50))
		p.Usage(p.promptTokens, rng.IntN(p.promptTokens+1))
		if rng.IntN(3) > 0 {
			p.Done([]Outcome{Completed, Completed, Cancelled, Refused}[rng.IntN(4)])
			c.running = slices.Delete(c.running, i, i+1)
		}
	case rng.IntN(2) == 0:
		w := kv.WorkerID(1 + rng.IntN(c.workers))
		blocks := kv.AppendBlocks(nil, kv.HashSeed("", ""), c.prompt(), c.r.workers[w].Engine.(*stubEngine).models[0].BlockSize)
		if len(blocks) == 0 {
			return
		}
		ev := kv.Event{Kind: kv.Stored, Tier: kv.Tier(rng.IntN(kv.NumTiers)), Blocks: blocks}
		if rng.IntN(3) > 0 {
			ev.Tier = kv.Device
		}
		if rng.IntN(5) == 0 {
			ev.Kind, ev.Blocks = kv.Removed, blocks[rng.IntN(len(blocks)):]
		}
		apply(c.t, c.r, w, uint32(rng.IntN(2)), ev)
	case rng.IntN(4) == 0:
		w := c.r.workers[kv.WorkerID(1+rng.IntN(c.workers))]
		w.discovered.Store(!w.discovered.Load())
	}
}

// TestExplained: explanations of random decisions are sound, and each decision comes
// out the same from its record alone.
func TestExplained(t *testing.T) {
	for _, row := range []struct {
		name        string
		workers     int
		sizes       []int
		temperature float64
		absolute    bool
		slow        bool
	}{
		{name: "one pool", workers: 7, sizes: []int{16}},
		{name: "slow start", workers: 7, sizes: []int{16}, slow: true},
		{name: "block size unknown", workers: 5, sizes: []int{0}},
		{name: "temperature", workers: 7, sizes: []int{16}, temperature: 0.7},
		{name: "absolute temperature", workers: 7, sizes: []int{16}, temperature: 5, absolute: true},
		{name: "three pools", workers: 9, sizes: []int{16, 32, 64}},
		{name: "two pools, temperature", workers: 8, sizes: []int{16, 48}, temperature: 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			cost := sched.DefaultCost()
			cost.Temperature, cost.AbsoluteTemperature, cost.CreditDecay, cost.SharedWeight = row.temperature, row.absolute, 0.25, 0.5
			cfg := Config{KV: KVConfig{Cost: &cost, TrackOutput: true}, Decisions: 32}
			if row.slow {
				cfg.KV.SlowStart = 1 << 40
			}
			c := newChaos(t, cfg, 3, row.workers, row.sizes...)
			tied, states := 0, map[nvext.State]int{}
			decisions := 600
			if raceEnabled {
				decisions = 100
			}
			for made := 0; made < decisions; {
				c.disturb()
				q := c.request()
				q.ID = fmt.Sprint("id-", made)
				p, err := c.r.Place(t.Context(), q)
				if err != nil {
					continue
				}
				made++
				checkExplained(t, p, math.MaxInt)
				checkRerun(t, c.rng, p)
				if p.Routing.Tied > 0 {
					tied++
				}
				for _, cand := range p.Routing.Candidates {
					states[cand.State]++
				}
				if q.QueryOnly {
					continue
				}
				c.running = append(c.running, p)
				// The ring has it too, as complete.
				kept := c.r.Decisions(1, func(_, id string, _ uint64) bool { return id == q.ID })
				if len(kept) != 1 {
					t.Fatalf("%d decisions with the id %s", len(kept), q.ID)
				}
				want, got := *p.Routing, *kept[0].Routing
				if diff := cmp.Diff(jsonOf(t, &want), jsonOf(t, &got)); diff != "" {
					t.Fatalf("the ring's record (-explained +kept):\n%s", diff)
				}
			}
			for _, s := range []nvext.State{nvext.StateEligible, nvext.StateExcluded, nvext.StateNotPinned, nvext.StateNotAllowed, nvext.StateOverloaded} {
				if states[s] == 0 && (s != nvext.StateOverloaded || len(row.sizes) == 1) {
					t.Errorf("no candidate was %s: %v", s, states)
				}
			}
			if row.temperature == 0 && !row.slow && tied == 0 {
				t.Error("no decision was a tie")
			}
		})
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestRerunWhilePoolsChange: records are true also when others place at the same time.
func TestRerunWhilePoolsChange(t *testing.T) {
	c := newChaos(t, Config{Decisions: 4096, Queue: queueOf(2000)}, 5, 6, 16, 32)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 3))
			for i := range 150 {
				q := ask(c.m, append(tokensOf(1+rng.IntN(4), 160), tokensOf(5, rng.IntN(100))...))
				q.ID = fmt.Sprint(g, "-", i)
				p, err := c.r.Place(t.Context(), q)
				if errors.Is(err, ErrOverloaded) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := Rerun(p.Routing); err != nil || kv.WorkerID(got.WorkerID) != workerOf(p) || got.DPRank != p.Last().Target.Rank {
					t.Errorf("Rerun = %d/%d, %v, want %v", got.WorkerID, got.DPRank, err, p.Last().Target)
				}
				p.FirstToken()
				p.Usage(q.PromptTokens, 0)
				p.Done(Completed)
			}
		})
	}
	wg.Wait()
	for _, d := range c.r.Decisions(math.MaxInt, func(string, string, uint64) bool { return true }) {
		if got, err := Rerun(d.Routing); err != nil || got.WorkerID != d.Routing.Chosen.WorkerID || got.DPRank != d.Routing.Chosen.DPRank {
			t.Errorf("from the ring: Rerun = %d/%d, %v, want %d/%d", got.WorkerID, got.DPRank, err, d.Routing.Chosen.WorkerID, d.Routing.Chosen.DPRank)
		}
	}
	idle(t, c.r, c.m)
}

func TestClientsSeeTheBestEight(t *testing.T) {
	r, m := crew(t, Config{}, tellers(12)...)
	prompt := tokensOf(1, 160)
	for w := range 12 {
		store(t, r, kv.WorkerID(w+1), 0, kv.Device, prompt, 0, min(10, w+1))
	}
	q := ask(m, prompt)
	q.Explain, q.ExplainAll = true, false
	q.Exclude = []kv.WorkerID{12}
	p := query(t, r, q)
	checkExplained(t, p, nvext.MaxCandidates)
	var got []uint64
	for _, c := range p.Routing.Candidates {
		got = append(got, c.WorkerID)
	}
	if diff := cmp.Diff([]uint64{10, 11, 9, 8, 7, 6, 5, 4}, got); diff != "" || p.Routing.Considered != 12 {
		t.Errorf("of %d (-want +got):\n%s", p.Routing.Considered, diff)
	}
	if ro := p.Routing; ro.Mode != "kv" || ro.Policy != "cost" || ro.Reason != nvext.ReasonCost || ro.PromptTokens != 160 || ro.BlockSize != 16 ||
		ro.TotalBlocks != 10 || ro.OverlapBlocks != 10 || ro.BestOverlapBlocks != 10 || ro.Tied != 2 {
		t.Errorf("explanation %+v", ro)
	}
	// Chance may choose one that is not among the best: it is shown all the same.
	q.Override = &Override{Temperature: ptr(100.0)}
	apart := 0
	for range 100 {
		p := mustPlace(t, r, q)
		if !slices.ContainsFunc(p.Routing.Candidates, func(c nvext.Candidate) bool { return c.WorkerID == p.Routing.Chosen.WorkerID }) {
			apart++
		}
		if p.Routing.Chosen.Propensity == nil {
			t.Fatal("no propensity")
		}
		p.Done(Completed)
	}
	if apart == 0 {
		t.Error("of 100 choices by chance among 11 none was beyond the best eight")
	}
}

func TestDecisionsKept(t *testing.T) {
	r, m := crew(t, Config{Decisions: 5}, tellers(3)...)
	all := func(string, string, uint64) bool { return true }
	if got := r.Decisions(10, all); len(got) != 0 {
		t.Errorf("%d decisions before the first", len(got))
	}
	for i := range 12 {
		p := mustPlace(t, r, &Request{Model: m, ID: fmt.Sprint(i), PromptTokens: 10, Pinned: true, Pin: kv.WorkerID(1 + i%3)})
		query(t, r, &Request{Model: m, ID: "query", PromptTokens: 10})
		defer p.Done(Completed)
	}
	ids := func(most int, keep func(model, id string, w uint64) bool) (out []string) {
		for _, d := range r.Decisions(most, keep) {
			if d.At.IsZero() || d.Routing.Considered != len(d.Routing.Candidates) || d.Routing.Considered != 3 {
				t.Errorf("decision %+v", d)
			}
			out = append(out, d.Routing.RequestID)
		}
		return out
	}
	for _, row := range []struct {
		name string
		got  []string
		want []string
	}{
		{"the latest first", ids(10, all), []string{"11", "10", "9", "8", "7"}},
		{"so many", ids(2, all), []string{"11", "10"}},
		{"none", ids(0, all), nil},
		{"of a worker", ids(10, func(_, _ string, w uint64) bool { return w == 2 }), []string{"10", "7"}},
		{"of a request", ids(10, func(_, id string, _ uint64) bool { return id == "9" }), []string{"9"}},
		{"one that is gone", ids(10, func(_, id string, _ uint64) bool { return id == "1" }), nil},
		{"of a model", ids(10, func(model, _ string, _ uint64) bool { return model != "m" }), nil},
	} {
		if diff := cmp.Diff(row.want, row.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.name, diff)
		}
	}
	off, m := crew(t, Config{}, Spec{})
	mustPlace(t, off, &Request{Model: m}).Done(Completed)
	if got := off.Decisions(10, all); got != nil {
		t.Errorf("%d decisions of a router that keeps none", len(got))
	}
}

// TestRefusalsLeaveNoHoles: what the ring keeps is numbered by itself, so that requests
// that were refused, or only asked, take nothing from it, and each answer finds its own.
func TestRefusalsLeaveNoHoles(t *testing.T) {
	r, m := crew(t, Config{Decisions: 4}, tellers(2)...)
	prompt := tokensOf(1, 160)
	store(t, r, 1, 0, kv.Device, prompt, 0, 10)
	var placed []*Placement
	for i := range 6 {
		for range i { // some in between
			if _, err := r.Place(t.Context(), &Request{Model: m, Allowed: []uint64{9}}); !errors.Is(err, ErrNoneAllowed) {
				t.Fatal(err)
			}
			query(t, r, ask(m, prompt))
		}
		q := ask(m, prompt)
		q.ID, q.Pinned, q.Pin = fmt.Sprint(i), true, 1
		placed = append(placed, mustPlace(t, r, q))
	}
	for i, p := range placed {
		p.Usage(160, 150+i)
		p.Done(Completed)
	}
	var got []string
	for _, d := range r.Decisions(10, func(string, string, uint64) bool { return true }) {
		if d.Routing.ActualCachedTokens == nil {
			t.Errorf("decision %s was not settled", d.Routing.RequestID)
			continue
		}
		got = append(got, fmt.Sprint(d.Routing.RequestID, " ", *d.Routing.ActualCachedTokens))
	}
	if diff := cmp.Diff([]string{"5 155", "4 154", "3 153", "2 152"}, got); diff != "" {
		t.Errorf("kept and found (-want +got):\n%s", diff)
	}
}

// TestSettledLate: an answer to a decision that the ring has forgotten is none to
// another.
func TestSettledLate(t *testing.T) {
	r, m := crew(t, Config{Decisions: 2}, tellers(1)...)
	first := mustPlace(t, r, &Request{Model: m, ID: "first", PromptTokens: 10})
	for i := range 2 {
		mustPlace(t, r, &Request{Model: m, ID: fmt.Sprint(i), PromptTokens: 10})
	}
	first.Usage(10, 0)
	for _, d := range r.Decisions(10, func(string, string, uint64) bool { return true }) {
		if d.Routing.CacheVerdict != "" {
			t.Errorf("decision %s: %s", d.Routing.RequestID, d.Routing.CacheVerdict)
		}
	}
}

// selectorFunc is a selector of one's own.
type selectorFunc func(*sched.Decision) int

func (f selectorFunc) Select(d *sched.Decision) int { return f(d) }

func TestCustomSelector(t *testing.T) {
	var choice func(*sched.Decision) int
	cfg := Config{Selector: selectorFunc(func(d *sched.Decision) int { return choice(d) }), SelectorName: "mine", Decisions: 4}
	r, m := crew(t, cfg, tellers(3)...)
	prompt := tokensOf(1, 160)
	store(t, r, 2, 0, kv.Device, prompt, 0, 7)
	for _, row := range []struct {
		name   string
		choice func(*sched.Decision) int
		want   kv.WorkerID
		score  bool
	}{
		{"by depth", func(d *sched.Decision) int {
			best := 0
			for i := range d.Candidates {
				d.Candidates[i].Score = -float64(d.Candidates[i].Depth[kv.Device])
				if d.Candidates[i].Score < d.Candidates[best].Score {
					best = i
				}
			}
			return best
		}, 2, true},
		{"without scores", func(*sched.Decision) int { return 1 }, 2, false},
		{"below", func(*sched.Decision) int { return -7 }, 1, false},
		{"beyond", func(*sched.Decision) int { return 7 }, 3, false},
		{"panic", func(*sched.Decision) int { panic("mine") }, 2, true}, // as the cost has it
	} {
		choice = row.choice
		p := mustPlace(t, r, ask(m, prompt))
		ro := p.Routing
		if workerOf(p) != row.want || ro.Reason != nvext.ReasonSelector || ro.Policy != "mine" || ro.Cost != nil {
			t.Errorf("%s: worker %d, want %d; reason %s, policy %s", row.name, workerOf(p), row.want, ro.Reason, ro.Policy)
		}
		if row.score == math.IsNaN(float64(ro.Chosen.Score)) {
			t.Errorf("%s: score %v", row.name, ro.Chosen.Score)
		}
		if ro.Chosen.Terms != nil {
			t.Errorf("%s: terms %v of a selector that is not ours", row.name, ro.Chosen.Terms)
		}
		if _, err := Rerun(ro); !errors.Is(err, ErrIncomplete) {
			t.Errorf("%s: Rerun: %v", row.name, err)
		}
		p.Done(Completed)
	}
	if got := loads(m); got != (load{}) {
		t.Errorf("left over: %+v", got)
	}
}

// TestCustomSelectorOverPools: without scores, the pool with the least loaded rank is
// taken.
func TestCustomSelectorOverPools(t *testing.T) {
	cfg := Config{Selector: selectorFunc(func(*sched.Decision) int { return 0 })}
	r, m := crew(t, cfg, Spec{BlockSize: 16}, Spec{BlockSize: 32})
	count := map[kv.WorkerID]int{}
	for range 10 {
		count[workerOf(mustPlace(t, r, &Request{Model: m, PromptTokens: 100, ExplainAll: true}))]++
	}
	if count[1] != 5 || count[2] != 5 {
		t.Errorf("placed %v", count)
	}
}

func TestRerunOfKVRefusesWhatIsMissing(t *testing.T) {
	r, m := crew(t, Config{}, tellers(2)...)
	p := mustPlace(t, r, ask(m, tokensOf(1, 100)))
	for name, change := range map[string]func(*nvext.Routing){
		"no cost":         func(r *nvext.Routing) { r.Cost = nil },
		"no prompt":       func(r *nvext.Routing) { r.PromptTokens = 0 },
		"no block size":   func(r *nvext.Routing) { r.BlockSize = 0 },
		"no seed":         func(r *nvext.Routing) { r.Seed = nil },
		"candidates gone": func(r *nvext.Routing) { r.Candidates = r.Candidates[:1] },
	} {
		rec := *p.Routing
		change(&rec)
		if _, err := Rerun(&rec); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestSameSeedSameDecisions: chance is the only thing that a seed decides, and it
// decides it all.
func TestSameSeedSameDecisions(t *testing.T) {
	run := func() (out []string) {
		cost := sched.DefaultCost()
		cost.Temperature = 0.5
		r, m := crew(t, Config{Seed: 9, KV: KVConfig{Cost: &cost}}, Spec{}, Spec{}, Spec{BlockSize: 32}, Spec{BlockSize: 16})
		rng := rand.New(rand.NewPCG(1, 1))
		var running []*Placement
		for range 300 {
			p := mustPlace(t, r, ask(m, tokensOf(1+rng.IntN(5), rng.IntN(300))))
			ro := *p.Routing
			out = append(out, jsonOf(t, &ro))
			if running = append(running, p); len(running) > 10 {
				running[0].Done(Completed)
				running = running[1:]
			}
		}
		return out
	}
	a, b := run(), run()
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("decision %d differs:\n%s", i, cmp.Diff(a[i], b[i]))
		}
	}
}
