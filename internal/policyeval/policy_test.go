package policyeval

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/nvext"
)

var near = cmpopts.EquateApprox(0, 1e-9)

func TestParsePolicy(t *testing.T) {
	for text, want := range map[string]string{
		"":                              `policy "": expected one of logged, cost, thompson, least-loaded, power-of-two, random, round-robin, or cost:NAME=NUMBER,…`,
		"best":                          `policy "best": expected one of logged, cost, thompson, least-loaded, power-of-two, random, round-robin, or cost:NAME=NUMBER,…`,
		"random:x=1":                    `policy random: expected no parameters, got "x=1"`,
		"cost:":                         `policy cost: parameter "": expected one of overlap_score_credit, overlap_score_credit_decay, prefill_load_scale, decode_active_request_weight, host_cache_hit_weight, disk_cache_hit_weight, shared_cache_multiplier, router_temperature`,
		"cost:prefill_load_scale":       `policy cost: prefill_load_scale: expected a number of at least 0, got ""`,
		"cost:prefill_load_scale=-1":    `policy cost: prefill_load_scale: expected a number of at least 0, got "-1"`,
		"cost:prefill_load_scale=Inf":   `policy cost: prefill_load_scale: expected a number of at least 0, got "Inf"`,
		"cost:host_cache_hit_weight=2":  `policy cost: host_cache_hit_weight: expected a number from 0 to 1, got "2"`,
		"cost:router_temperature=0.5":   "",
		"cost:overlap_score_credit = 2": "",
		"round-robin":                   "",
	} {
		p, err := ParsePolicy(text)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want || err == nil && p.String() != text {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// choices are three workers: the first has all of the prompt and much to do, the second
// nothing of it and as much, the third is idle.
func choices() *decision {
	d := &decision{promptTokens: 160, blockSize: 16, costed: true, scored: true, cost: sched.DefaultCost(), odds: []float64{.2, .3, .5}}
	for i, c := range []sched.Candidate{
		{Requests: 4, Blocks: 20, Depth: [kv.NumTiers]uint32{10, 10, 10, 10}, Score: 20},
		{Requests: 4, Blocks: 20, NewBlocks: 10, Score: 40},
		{Requests: 1, NewBlocks: 10, Score: 20},
	} {
		c.Worker, c.Trust, c.Taint, c.Warmth = kv.WorkerID(i+1), 1, 1, 1
		d.cands = append(d.cands, c)
	}
	return d
}

func TestOdds(t *testing.T) {
	for text, want := range map[string][]float64{
		"logged":                      {.2, .3, .5},
		"cost":                        {.5, 0, .5},
		"cost:prefill_load_scale=2":   {1, 0, 0}, // 20, 50, 30
		"cost:overlap_score_credit=0": {0, 0, 1}, // 30, 40, 20
		"cost:decode_active_request_weight=1,prefill_load_scale=1": {0, 0, 1}, // 24, 44, 21
		"cost:router_temperature=1":                                {0.422318799, 0.155362403, 0.422318799},
		"least-loaded":                                             {0, 0, 1},
		"power-of-two":                                             {1. / 6, 1. / 6, 4. / 6},
		"random":                                                   {1. / 3, 1. / 3, 1. / 3},
		"round-robin":                                              {1. / 3, 1. / 3, 1. / 3},
	} {
		p, err := ParsePolicy(text)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := p.see(nil, choices())
		if diff := cmp.Diff(want, got, near); !ok || diff != "" {
			t.Errorf("%s: (-want +got):\n%s", text, diff)
		}
	}
	if _, ok := policies(t, "thompson")[0].see(nil, choices()); ok {
		t.Error("thompson where nothing learns")
	}
	// Equal costs go to the emptier cache.
	d := choices()
	d.cands[0].Held = 5
	if got, _ := policies(t, "cost")[0].see(nil, d); !cmp.Equal(got, []float64{0, 0, 1}) {
		t.Errorf("got %v, expected the third, whose cache counts as empty", got)
	}
}

// TestRecordedOdds takes the chances of the recorded policy from the record, or from the
// rule that decided.
func TestRecordedOdds(t *testing.T) {
	drawn := []float64{.7, .2, .1}
	for _, test := range []struct {
		name   string
		change func(*nvext.Routing)
		want   []float64
	}{
		{"cost with a tie", func(*nvext.Routing) {}, []float64{.5, 0, .5}},
		{"cost with a temperature", func(r *nvext.Routing) { propose(r, drawn) }, drawn},
		{"thompson", func(r *nvext.Routing) {
			r.Policy, r.Reason = "thompson", nvext.ReasonThompson
			propose(r, drawn)
		}, drawn},
		{"thompson looks on", func(r *nvext.Routing) {
			r.Policy = "thompson"
			propose(r, drawn)
		}, []float64{.5, 0, .5}},
		{"thompson looks on, cost with a temperature", func(r *nvext.Routing) {
			r.Policy, r.Cost.RouterTemperature = "thompson", 1
			propose(r, drawn)
		}, []float64{0.422318799, 0.155362403, 0.422318799}},
		{"selector", func(r *nvext.Routing) { r.Policy, r.Reason, r.Cost = "mine", nvext.ReasonSelector, nil }, []float64{1, 0, 0}},
		{"random", func(r *nvext.Routing) { r.Mode, r.Reason = "random", nvext.ReasonRandom }, []float64{1. / 3, 1. / 3, 1. / 3}},
		{"round-robin", func(r *nvext.Routing) { r.Mode, r.Reason = "round_robin", nvext.ReasonRoundRobin }, []float64{1. / 3, 1. / 3, 1. / 3}},
		{"power-of-two", func(r *nvext.Routing) { r.Mode, r.Reason = "power_of_two_choices", nvext.ReasonLeastLoaded }, []float64{1. / 6, 1. / 6, 4. / 6}},
		{"least-loaded", func(r *nvext.Routing) {
			r.Mode, r.Reason, r.Candidates[0].Inflight = "least-loaded", nvext.ReasonLeastLoaded, 1
		}, []float64{.5, 0, .5}},
	} {
		rec := &nvext.Routing{
			Mode: "kv", Policy: "cost", Reason: nvext.ReasonCost, PromptTokens: 160, BlockSize: 16,
			Cost: &nvext.CostParams{PrefillLoadScale: 1, OverlapScoreCredit: 1, HostCacheHitWeight: .75, DiskCacheHitWeight: .25},
		}
		want := choices()
		for i := range want.cands {
			c := &want.cands[i]
			rec.Candidates = append(rec.Candidates, nvext.Candidate{
				WorkerID: uint64(c.Worker), State: nvext.StateEligible, Inflight: c.Requests, ActiveDecodeBlocks: int64(c.Blocks),
				NewBlocks: int64(c.NewBlocks), OverlapBlocks: int(c.Depth[kv.Device]), Score: nvext.Float(c.Score),
			})
		}
		rec.Chosen = rec.Candidates[0]
		test.change(rec)
		d, ok := recall(rec)
		if diff := cmp.Diff(test.want, d.odds, near); diff != "" || !ok {
			t.Errorf("%s: (-want +got):\n%s", test.name, diff)
		}
		if rec.Policy == "thompson" && !cmp.Equal(d.learned, drawn) {
			t.Errorf("%s: learned %v, want %v", test.name, d.learned, drawn)
		}
		if test.name == "cost with a tie" {
			if diff := cmp.Diff(want.cands, d.cands); diff != "" {
				t.Errorf("candidates (-want +got):\n%s", diff)
			}
		}
	}
}

func propose(r *nvext.Routing, odds []float64) {
	for i := range r.Candidates {
		r.Candidates[i].Propensity = new(nvext.Float(odds[i]))
	}
}

// TestPowerOfTwo compares with the draws themselves.
func TestPowerOfTwo(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	cands := []sched.Candidate{{Requests: 1}, {Requests: 3}, {Requests: 1}, {Requests: 2}}
	counts := make([]float64, len(cands))
	const n = 200_000
	for range n {
		a, b := rnd.IntN(4), rnd.IntN(3)
		if b >= a {
			b++
		}
		if cands[b].Requests < cands[a].Requests {
			a = b
		}
		counts[a] += 1. / n
	}
	if diff := cmp.Diff(counts, powerOfTwo(nil, cands), cmpopts.EquateApprox(0, 0.005)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTiers takes blocks in all tiers from a record.
func TestTiers(t *testing.T) {
	c := router.RecallCandidate(&nvext.Candidate{OverlapBlocks: 10, HostBlocks: 3, DiskBlocks: 2, SharedBlocks: 1})
	if want := [kv.NumTiers]uint32{4, 7, 9, 10}; c.Depth != want {
		t.Errorf("depth %v, want %v", c.Depth, want)
	}
}

// TestModel has rewards that are linear in what is known, with an offset for a rank.
func TestModel(t *testing.T) {
	w := newWorld(4, 0.6)
	l := w.log(4000, Options{})
	var decisions []*decision
	var rewards []float64
	reward := func(d *decision, i int) float64 {
		x := d.features(i)
		y := 1 + 0.5*x[1] - 0.3*x[2] + 0.2*x[5]
		if d.cands[i].Worker == 2 {
			y += 0.1
		}
		return y
	}
	for i := range l.decisions {
		d := &l.decisions[i]
		decisions, rewards = append(decisions, d), append(rewards, reward(d, d.chosen))
	}
	m := fitModel(decisions, rewards, 0)
	for _, d := range decisions[1:100] {
		for i := range d.cands {
			want := min(max(reward(d, i), m.low), m.high)
			if got := m.predict(d, i); got < want-0.01 || got > want+0.01 {
				t.Fatalf("predicted %v, want %v", got, want)
			}
		}
	}
}
