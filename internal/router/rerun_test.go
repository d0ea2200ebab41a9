package router

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/nvext"
)

// mixedFleet returns a router whose model "m" has workers 1…n with some ranks
// each, in as many pools as there are block sizes.
func mixedFleet(t *testing.T, cfg Config, n int, blockSizes ...int) (*Router, *Model) {
	t.Helper()
	r := New(cfg)
	t.Cleanup(r.Close)
	for i := range n {
		em := engine.Model{ID: "m", BlockSize: blockSizes[i%len(blockSizes)], TotalBlocks: 64, Ranks: 1 + i%3}
		if err := r.Add(Spec{ID: kv.WorkerID(i + 1), Engine: &stubEngine{models: []engine.Model{em}}}); err != nil {
			t.Fatal(err)
		}
	}
	r.WaitChecked(t.Context())
	m, err := r.Lookup("m")
	if err != nil {
		t.Fatal(err)
	}
	return r, m
}

// randomRequest returns a request for one of n workers or any of them.
func randomRequest(rng *rand.Rand, m *Model, n int) *Request {
	q := &Request{Model: m, PromptTokens: rng.IntN(300), ExplainAll: true, QueryOnly: rng.IntN(10) == 0}
	worker := func() uint64 { return 1 + rng.Uint64N(uint64(n)) }
	if m := rng.IntN(4); m == 0 {
		q.Pinned, q.Pin = true, kv.WorkerID(worker())
		if rng.IntN(2) == 0 {
			q.PinRank = ptr(uint32(rng.IntN(3)))
		}
	} else if m == 1 {
		for range 1 + rng.IntN(n) {
			q.Allowed = append(q.Allowed, worker())
		}
	}
	for range rng.IntN(3) {
		q.Exclude = append(q.Exclude, kv.WorkerID(worker()))
	}
	return q
}

// checkRerun re-runs a record from its inputs alone: as it is, shuffled, and, as
// this takes long, every fourth time after a way through JSON.
func checkRerun(t *testing.T, rng *rand.Rand, p *Placement) {
	t.Helper()
	want := p.Last().Target
	rec := *p.Routing
	rec.Chosen = nvext.Candidate{}
	read := rec
	if rng.IntN(4) == 0 {
		text, err := json.Marshal(&rec)
		if err != nil {
			t.Fatal(err)
		}
		read = nvext.Routing{}
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
	}
	shuffled := rec
	shuffled.Candidates = slices.Clone(rec.Candidates)
	rng.Shuffle(len(shuffled.Candidates), func(i, j int) {
		c := shuffled.Candidates
		c[i], c[j] = c[j], c[i]
	})
	for name, r := range map[string]*nvext.Routing{"as recorded": &rec, "shuffled": &shuffled, "from JSON": &read} {
		c, err := Rerun(r)
		if got := (engine.Target{Worker: kv.WorkerID(c.WorkerID), Rank: c.DPRank}); err != nil || got != want {
			t.Fatalf("%s: Rerun = %v, %v, want %v; record %+v", name, got, err, want, r)
		}
	}
}

// TestRerun makes random decisions and then makes each of them again from its
// record.
func TestRerun(t *testing.T) {
	fleets := []struct {
		name       string
		workers    int
		blockSizes []int
	}{
		{"one pool", 6, []int{16}},
		{"a pool of many", 14, []int{0}},
		{"three pools", 8, []int{16, 32, 64}},
	}
	for _, mode := range Modes {
		for _, f := range fleets {
			t.Run(string(mode)+"/"+f.name, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(11, uint64(f.workers)))
				r, m := mixedFleet(t, Config{Mode: mode, Seed: rng.Uint64()}, f.workers, f.blockSizes...)
				m.SetThresholds(Thresholds{DecodeBlocks: ptr(0.5), PrefillTokens: ptr(uint64(900))})
				var running []*Placement
				states := make(map[nvext.State]int)
				decisions := 700
				if raceEnabled {
					decisions = 400
				}
				for made := 0; made < decisions; {
					if k := len(running); k > 0 && (k > 30 || rng.IntN(2) == 0) {
						i := rng.IntN(k)
						running[i].FirstToken()
						if rng.IntN(3) > 0 {
							running[i].Done([]Outcome{Completed, Completed, Completed, Cancelled, Refused, Broken}[rng.IntN(6)])
							running = slices.Delete(running, i, i+1)
						}
					}
					p, err := r.Place(t.Context(), randomRequest(rng, m, f.workers))
					if err != nil {
						continue // there was nothing to choose
					}
					made++
					running = append(running, p)
					for _, c := range p.Routing.Candidates {
						states[c.State]++
					}
					checkRerun(t, rng, p)
				}
				for _, s := range []nvext.State{nvext.StateEligible, nvext.StateInhibited, nvext.StateExcluded, nvext.StateNotPinned} {
					if states[s] == 0 {
						t.Errorf("no candidate was %s: %v", s, states)
					}
				}
			})
		}
	}
}

// TestRerunUnderLoad: a record is true to the choice also when pools change
// between the choice of one and the choice inside it.
func TestRerunUnderLoad(t *testing.T) {
	for _, mode := range Modes[:4] {
		r, m := mixedFleet(t, Config{Mode: mode, Seed: 5}, 4, 16, 32)
		m.SetThresholds(Thresholds{PrefillTokens: ptr(uint64(100))})
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), 2))
				for range 300 {
					p, err := r.Place(t.Context(), &Request{Model: m, PromptTokens: rng.IntN(300), ExplainAll: true})
					if errors.Is(err, ErrOverloaded) {
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					c, err := Rerun(p.Routing)
					if err != nil || kv.WorkerID(c.WorkerID) != p.Last().Target.Worker || c.DPRank != p.Last().Target.Rank {
						t.Errorf("%s: Rerun = %d/%d, %v, want %v", mode, c.WorkerID, c.DPRank, err, p.Last().Target)
					}
					p.Done(Completed)
				}
			})
		}
		wg.Wait()
	}
}

// TestChanceIsPartOfTheRecord: another seed or ordinal comes to other choices, so
// that a record without the right ones would be noticed.
func TestChanceIsPartOfTheRecord(t *testing.T) {
	for _, mode := range []Mode{Random, PowerOfTwo, LeastLoaded} {
		r, m, _ := fleet(t, Config{Mode: mode, Seed: 42}, 8, engine.Model{})
		otherSeed, otherDecision := 0, 0
		for range 200 {
			p := mustPlace(t, r, &Request{Model: m, ExplainAll: true})
			p.Done(Completed)
			rec := *p.Routing
			rec.Seed = ptr(uint64(43))
			if c, err := Rerun(&rec); err != nil || c.WorkerID != rec.Chosen.WorkerID {
				otherSeed++
			}
			rec = *p.Routing
			rec.Decision++
			if c, err := Rerun(&rec); err != nil || c.WorkerID != rec.Chosen.WorkerID {
				otherDecision++
			}
		}
		if otherSeed < 150 || otherDecision < 150 {
			t.Errorf("%s: of 200 choices among 8, another seed changed %d and another ordinal %d", mode, otherSeed, otherDecision)
		}
	}
}

// TestQueriesSpread: every query is a decision of its own, so that many of them go to
// equal ranks equally often, and none moves the turn of round robin.
func TestQueriesSpread(t *testing.T) {
	const workers, queries = 4, 2000
	for _, row := range []struct {
		name  string
		mode  Mode
		warm  float64 // temperature
		whole bool    // one worker gets all
	}{
		{"kv", KV, 0, false}, {"kv by chance", KV, 0.5, false}, {"random", Random, 0, false},
		{"least loaded", LeastLoaded, 0, false}, {"power of two", PowerOfTwo, 0, false}, {"round robin", RoundRobin, 0, true},
	} {
		cost := sched.DefaultCost()
		cost.Temperature = row.warm
		r, m := crew(t, Config{Mode: row.mode, Seed: 9, KV: KVConfig{Cost: &cost}}, tellers(workers)...)
		count := make(map[kv.WorkerID]int)
		ordinals := make(map[uint64]bool)
		for range queries {
			q := ask(m, tokensOf(1, 160))
			p := query(t, r, q)
			count[workerOf(p)]++
			if !row.whole {
				ordinals[p.Routing.Decision] = true
			}
		}
		switch {
		case row.whole && count[1] != queries:
			t.Errorf("%s: queries moved the turn: %v", row.name, count)
		case !row.whole && len(ordinals) != queries:
			t.Errorf("%s: %d ordinals for %d queries", row.name, len(ordinals), queries)
		}
		for w := kv.WorkerID(1); w <= workers && !row.whole; w++ {
			// Six standard deviations are 116.
			if n := count[w]; n < queries/workers-116 || n > queries/workers+116 {
				t.Errorf("%s: worker %d was named %d times of %d", row.name, w, n, queries)
			}
		}
		if p := mustPlace(t, r, &Request{Model: m}); row.whole && workerOf(p) != 1 {
			t.Errorf("%s: the first request went to %d", row.name, workerOf(p))
		}
	}
}

// TestQueriesByChance: with a temperature, queries name workers as often as they say.
func TestQueriesByChance(t *testing.T) {
	cost := sched.DefaultCost()
	cost.Temperature = 1
	r, m := crew(t, Config{Seed: 3, KV: KVConfig{Cost: &cost}}, tellers(2)...)
	prompt := tokensOf(1, 160)
	store(t, r, 1, 0, kv.Device, prompt, 0, 5)
	const queries = 4000
	first := 0
	for range queries {
		if workerOf(query(t, r, ask(m, prompt))) == 1 {
			first++
		}
	}
	want := queries / (1 + math.Exp(-1))
	if math.Abs(float64(first)-want) > 170 { // six standard deviations
		t.Errorf("the better of two was named %d times of %d, want about %.0f", first, queries, want)
	}
}

// TestClientsSeeFewCandidates: the list is whole only where that was asked for.
func TestClientsSeeFewCandidates(t *testing.T) {
	r, m, _ := fleet(t, Config{Mode: Random}, 20, engine.Model{})
	few := mustPlace(t, r, &Request{Model: m, Explain: true}).Routing
	all := mustPlace(t, r, &Request{Model: m, Explain: true, ExplainAll: true}).Routing
	if len(few.Candidates) != nvext.MaxCandidates || few.Considered != 20 || len(all.Candidates) != 20 || all.Considered != 20 {
		t.Errorf("%d of %d and %d of %d", len(few.Candidates), few.Considered, len(all.Candidates), all.Considered)
	}
	if _, err := Rerun(few); !errors.Is(err, ErrIncomplete) {
		t.Errorf("Rerun of a list that was cut: %v, want ErrIncomplete", err)
	}
}

func TestRerunRefusesWhatNoDecisionLeft(t *testing.T) {
	seed := uint64(1)
	good := func() *nvext.Routing {
		c := []nvext.Candidate{{WorkerID: 1, State: nvext.StateEligible}, {WorkerID: 2, State: nvext.StateEligible}}
		return &nvext.Routing{Mode: "random", Seed: &seed, Decision: 1, Candidates: c, Considered: 2}
	}
	if _, err := Rerun(good()); err != nil {
		t.Fatal(err)
	}
	rows := []struct {
		name   string
		change func(*nvext.Routing)
		want   string
	}{
		{"unknown mode", func(r *nvext.Routing) { r.Mode = "best" }, `router mode "best"`},
		{"no seed", func(r *nvext.Routing) { r.Seed = nil }, "seed: expected one"},
		{"nobody eligible", func(r *nvext.Routing) {
			r.Candidates[0].State, r.Candidates[1].State = nvext.StateOverloaded, nvext.StateNotPinned
		}, "expected one that is eligible"},
		{"candidates missing", func(r *nvext.Routing) { r.Considered = 3 }, "expected 3, got 2"},
		{"no pool chosen", func(r *nvext.Routing) { r.Pools = []nvext.Pool{{Eligible: 2}, {}} }, "not marked as chosen"},
		{"empty pools", func(r *nvext.Routing) { r.Pools = []nvext.Pool{{}, {}} }, "not marked as chosen"},
		{"pools without a seed", func(r *nvext.Routing) { r.Pools, r.Seed = []nvext.Pool{{Eligible: 2}}, nil }, "seed: expected one"},
		{"negative pool", func(r *nvext.Routing) { r.Pools = []nvext.Pool{{Eligible: -2}} }, "pools[0].eligible"},
	}
	for _, row := range rows {
		rec := good()
		row.change(rec)
		if _, err := Rerun(rec); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got %v, want %q", row.name, err, row.want)
		}
	}
}

// Choosing a pool takes no memory, and draws by the number of ranks.
func TestChoosePool(t *testing.T) {
	pools := []nvext.Pool{{Eligible: 1}, {}, {Eligible: 3}}
	var drawn [3]int
	const draws = 4000
	for i := range uint64(draws) {
		drawn[choosePool(Random, 7, i, pools)]++
	}
	if drawn[1] != 0 || drawn[0] < draws/4-150 || drawn[0] > draws/4+150 {
		t.Errorf("of 1, 0 and 3 ranks drawn %v times", drawn)
	}
	if n := testing.AllocsPerRun(100, func() { choosePool(Random, 7, 9, pools) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
