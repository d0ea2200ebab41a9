package sched

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
)

var _ Selector = (*Cost)(nil)

// rank returns an idle rank, edited.
func rank(edit func(*Candidate)) Candidate {
	c := idleRank()
	edit(&c)
	return c
}

// cachedRank has so many blocks of the prompt on the device and the others to store.
func cachedRank(device uint32, fresh int) Candidate {
	return rank(func(c *Candidate) {
		c.Depth = [kv.NumTiers]uint32{device, device, device, device}
		c.NewBlocks = fresh
	})
}

func costWith(edit func(*Cost)) *Cost {
	c := DefaultCost()
	edit(&c)
	return &c
}

func terms(c *Cost, d *Decision, i int) map[string]float64 {
	m := make(map[string]float64)
	for _, term := range c.Terms(nil, d, i) {
		m[term.Name] = term.Value
	}
	return m
}

// threeRanks have 160 tokens of prompt before them: one with 8 other blocks in use,
// one idle, and one computing a prompt that begins with the same 4 blocks.
func threeRanks() []Candidate {
	w1 := cachedRank(2, 10)
	w1.Worker, w1.Requests, w1.Blocks = 1, 1, 8
	w2 := cachedRank(5, 10)
	w2.Worker = 2
	w3 := cachedRank(4, 6)
	w3.Worker, w3.Requests, w3.PrefillTokens, w3.Blocks, w3.Live = 3, 1, 64, 4, 4
	return []Candidate{w1, w2, w3}
}

func TestT1Cost(t *testing.T) {
	for _, tt := range []struct {
		w    float64
		want []float64
	}{
		{1, []float64{26, 15, 20}},
		{2, []float64{34, 20, 30}},
	} {
		c := costWith(func(c *Cost) { c.PrefillScale = tt.w })
		d := Decision{PromptTokens: 160, BlockSize: 16, Candidates: threeRanks(), Rand: chance(1)}
		if i := c.Select(&d); i != 1 || d.Tied != 0 {
			t.Errorf("w = %v: chose %d of %d tied, want 1 outright", tt.w, i, d.Tied)
		}
		if diff := cmp.Diff(tt.want, scores(d.Candidates)); diff != "" {
			t.Errorf("w = %v: scores (-want +got):\n%s", tt.w, diff)
		}
		for i, tokens := range []int{128, 80, 96} {
			if got := c.PrefillTokens(&d, &d.Candidates[i]); got != tokens {
				t.Errorf("w = %v: %d tokens of the prompt to compute on %d, want %d", tt.w, got, i, tokens)
			}
		}
	}
}

func TestT1CostTie(t *testing.T) {
	c := costWith(func(c *Cost) { c.PrefillScale = 0 })
	d := Decision{PromptTokens: 160, BlockSize: 16, Candidates: threeRanks(), Rand: chance(1)}
	counts := make([]int, 3)
	for range 10_000 {
		counts[c.Select(&d)]++
	}
	checkFrequencies(t, counts, []float64{0, .5, .5})
	if diff := cmp.Diff([]float64{18, 10, 10}, scores(d.Candidates)); diff != "" {
		t.Errorf("scores (-want +got):\n%s", diff)
	}
	if d.Tied != 2 {
		t.Errorf("%d tied, want 2", d.Tied)
	}

	d.Candidates[1].Held, d.Candidates[2].Held = 5, 4
	if i := c.Select(&d); i != 2 || d.Tied != 2 {
		t.Errorf("chose %d of %d tied, want the emptier of 2", i, d.Tied)
	}
}

func TestT2PartialTail(t *testing.T) {
	for _, tt := range []struct {
		overlap uint32
		tokens  int
		score   float64
	}{
		{4, 6, 4.375},
		{1, 54, 7.375},
		{5, 0, 4},
	} {
		c := DefaultCost()
		d := Decision{PromptTokens: 70, BlockSize: 16, Candidates: []Candidate{cachedRank(tt.overlap, 4)}}
		c.Select(&d)
		if got := d.Candidates[0].Score; got != tt.score {
			t.Errorf("overlap %d: score %v, want %v", tt.overlap, got, tt.score)
		}
		if got := c.PrefillTokens(&d, &d.Candidates[0]); got != tt.tokens {
			t.Errorf("overlap %d: %d tokens to compute, want %d", tt.overlap, got, tt.tokens)
		}
	}
}

func TestT10DecodeOverride(t *testing.T) {
	for name, c := range map[string]*Cost{
		"no prefill": costWith(func(c *Cost) { c.NoPrefill = true }),
		"weight 0":   costWith(func(c *Cost) { c.PrefillScale = 0 }),
	} {
		busy := cachedRank(3, 10)
		busy.Blocks, busy.Requests, busy.PrefillTokens = 8, 1, 500
		d := Decision{PromptTokens: 160, BlockSize: 16, Candidates: []Candidate{busy}}
		c.Select(&d)
		if got := d.Candidates[0].Score; got != 18 {
			t.Errorf("%s: score %v, want 18", name, got)
		}
	}
}

func TestT12NewerCost(t *testing.T) {
	c := DefaultCost()
	d := Decision{PromptTokens: 160, BlockSize: 16, Candidates: []Candidate{rank(func(c *Candidate) {
		c.PrefillTokens, c.NewBlocks = 64, 10
		c.Depth = [kv.NumTiers]uint32{4, 8, 10, 10}
	})}}
	c.Select(&d)
	if got := d.Candidates[0].Score; got != 16.5 {
		t.Errorf("score %v, want 16.5", got)
	}
	if got := c.PrefillTokens(&d, &d.Candidates[0]); got != 160-120 {
		t.Errorf("%d tokens to compute, want 40", got)
	}
	want := map[string]float64{"queued_prefill": 4, "prompt": 10, "cache_credit": -7.5, "active_blocks": 0, "new_blocks": 10}
	if diff := cmp.Diff(want, terms(&c, &d, 0)); diff != "" {
		t.Errorf("terms (-want +got):\n%s", diff)
	}
}

// TestPrefillTokensByTrust: what is predicted to be cached counts as computed no further
// than it is trusted.
func TestPrefillTokensByTrust(t *testing.T) {
	tiered := rank(func(c *Candidate) { c.Depth = [kv.NumTiers]uint32{4, 8, 10, 10} })
	live := rank(func(c *Candidate) { c.Live = 10 })
	for _, tt := range []struct {
		name  string
		cand  Candidate
		trust float64
		want  int
	}{
		{"trusted", cachedRank(10, 0), 1, 0},
		{"by half", cachedRank(10, 0), .5, 80},
		{"not at all", cachedRank(10, 0), 0, 160},
		{"by half, in several tiers", tiered, .5, 160 - 60},
		{"by half, under way", live, .5, 80},
		{"rounded", cachedRank(1, 0), .3, 155},
	} {
		c := DefaultCost()
		d := Decision{PromptTokens: 160, BlockSize: 16, Candidates: []Candidate{tt.cand}}
		d.Candidates[0].Trust = tt.trust
		if got := c.PrefillTokens(&d, &d.Candidates[0]); got != tt.want {
			t.Errorf("%s: %d tokens to compute, want %d", tt.name, got, tt.want)
		}
	}
}

func TestT12CreditDecay(t *testing.T) {
	busy, cold := cachedRank(8, 10), cachedRank(0, 10)
	busy.PrefillTokens = 160
	for _, tt := range []struct {
		decay float64
		edit  func(d *Decision)
		want  []float64
	}{
		{0, nil, []float64{22, 20}},
		{1, nil, []float64{26, 20}},
		{3, nil, []float64{28, 20}},
		// Only what a rank is behind the one with least counts.
		{1, func(d *Decision) { d.Candidates[1].PrefillTokens = 160 }, []float64{22, 30}},
	} {
		c := costWith(func(c *Cost) { c.CreditDecay = tt.decay })
		d := Decision{PromptTokens: 160, BlockSize: 16, Candidates: []Candidate{busy, cold}, Rand: chance(1)}
		if tt.edit != nil {
			tt.edit(&d)
		}
		won := c.Select(&d)
		if diff := cmp.Diff(tt.want, scores(d.Candidates)); diff != "" {
			t.Errorf("decay %v: scores (-want +got):\n%s", tt.decay, diff)
		}
		if tt.want[won] > tt.want[1-won] {
			t.Errorf("decay %v: chose %d of %v", tt.decay, won, tt.want)
		}
	}
}

func TestCostParameters(t *testing.T) {
	base := func() Candidate {
		return rank(func(c *Candidate) {
			c.Requests, c.PrefillTokens, c.Blocks, c.NewBlocks = 3, 32, 7, 5
			c.Depth = [kv.NumTiers]uint32{2, 4, 6, 8}
			c.Live = 3
		})
	}
	for _, tt := range []struct {
		name string
		cost func(*Cost)
		cand func(*Candidate)
		want float64
	}{
		// 2 blocks wait, the prompt has 10, of which 3 are on the device, 1 in the host's
		// memory, 2 on disk, 2 shared; 12 are held or will be.
		{"defaults", nil, nil, 12 - 4.25 + 12},
		{"scale", func(c *Cost) { c.PrefillScale = 2 }, nil, 2*(12-4.25) + 12},
		{"credit", func(c *Cost) { c.Credit = .5 }, nil, 12 - 2.75 + 12},
		{"credit past all", func(c *Cost) { c.Credit = 50 }, nil, 12},
		{"host", func(c *Cost) { c.HostWeight = 0 }, nil, 12 - 3.5 + 12},
		{"disk", func(c *Cost) { c.DiskWeight = 1 }, nil, 12 - 5.75 + 12},
		{"shared", func(c *Cost) { c.SharedWeight = .5 }, nil, 12 - 5.25 + 12},
		{"requests", func(c *Cost) { c.RequestWeight = 1.5 }, nil, 12 - 4.25 + 12 + 4.5},
		{"no live", func(c *Cost) { c.NoLive = true }, nil, 12 - 4 + 12},
		{"no prefill", func(c *Cost) { c.NoPrefill = true; c.RequestWeight = 1 }, nil, 12 + 3},
		{"no trust", nil, func(c *Candidate) { c.Trust = 0 }, 24},
		{"half the trust", nil, func(c *Candidate) { c.Trust = .5 }, 24 - 2.125},
		{"taint", nil, func(c *Candidate) { c.Taint = 2 }, 2 * 19.75},
		{"slow start", nil, func(c *Candidate) { c.Warmth = .25 }, 4 * 19.75},
		{"taint and slow start", nil, func(c *Candidate) { c.Taint, c.Warmth = .5, .25 }, 2 * 19.75},
	} {
		c, cand := DefaultCost(), base()
		if tt.cost != nil {
			tt.cost(&c)
		}
		if tt.cand != nil {
			tt.cand(&cand)
		}
		d := Decision{PromptTokens: 160, BlockSize: 16, Candidates: []Candidate{cand}}
		c.Select(&d)
		if got := d.Candidates[0].Score; !near(got, tt.want, 1e-9) {
			t.Errorf("%s: score %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestCostIsTokensAndBlocks shows that with device blocks only the score is exactly
// the weighted tokens to compute, in blocks, and the blocks held, whatever these are
// made of. Ties depend on that.
func TestCostIsTokensAndBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	for range 20_000 {
		bs := 1 + r.IntN(300)
		prompt := 1 + r.IntN(5000)
		overlap := r.IntN(prompt/bs + 1)
		cand := cachedRank(uint32(overlap), r.IntN(400))
		cand.PrefillTokens, cand.Blocks = r.IntN(10_000), r.IntN(400)
		w := []float64{0, 1, .3, 1.7, r.Float64() * 10}[r.IntN(5)]
		c := costWith(func(c *Cost) { c.PrefillScale = w })
		d := Decision{PromptTokens: prompt, BlockSize: bs, Candidates: []Candidate{cand}}
		c.Select(&d)

		tokens := cand.PrefillTokens + prompt - overlap*bs
		want := float64(w*(float64(tokens)/float64(bs))) + float64(cand.Blocks+cand.NewBlocks)
		if got := d.Candidates[0].Score; got != want {
			t.Fatalf("w = %v, blocks of %d, prompt of %d, %+v: score %v, want %v", w, bs, prompt, cand, got, want)
		}
	}
}

func TestCostShortPrompt(t *testing.T) {
	for _, tt := range []struct {
		name  string
		cand  Candidate
		score float64
	}{
		{"cold", idleRank(), 1. / 16},
		{"waiting", rank(func(c *Candidate) { c.PrefillTokens = 15 }), 1},
		{"cached block", cachedRank(1, 0), 0},
		{"cached far beyond the prompt", cachedRank(1000, 0), 0},
		{"credit not taken from others", rank(func(c *Candidate) { c.PrefillTokens, c.Depth[kv.Device] = 64, 3 }), 4},
	} {
		c := costWith(func(c *Cost) { c.CreditDecay = 1 })
		d := Decision{PromptTokens: 1, BlockSize: 16, Candidates: []Candidate{tt.cand}}
		if i := c.Select(&d); i != 0 || d.Candidates[0].Score != tt.score {
			t.Errorf("%s: chose %d with score %v, want %v", tt.name, i, d.Candidates[0].Score, tt.score)
		}
	}
	// A prompt without tokens is not one to place, but does no harm.
	c := costWith(func(c *Cost) { c.CreditDecay = 1 })
	d := Decision{BlockSize: 16, Candidates: threeRanks(), Rand: chance(1)}
	if i := c.Select(&d); i != 1 || d.Candidates[1].Score != 10 {
		t.Errorf("no tokens: chose %d of %v, want 1 with 10", i, scores(d.Candidates))
	}
}

// TestTermsNames shows which terms there are and in what order.
func TestTermsNames(t *testing.T) {
	full := rank(func(c *Candidate) { c.Requests, c.Taint, c.Warmth = 1, .5, .5 })
	for _, tt := range []struct {
		name string
		cost *Cost
		cand Candidate
		want []Term
	}{
		{"idle", costWith(func(*Cost) {}), idleRank(),
			[]Term{{"queued_prefill", 0}, {"prompt", 4}, {"cache_credit", 0}, {"active_blocks", 0}, {"new_blocks", 0}}},
		{"no prefill", costWith(func(c *Cost) { c.NoPrefill = true }), idleRank(),
			[]Term{{"active_blocks", 0}, {"new_blocks", 0}}},
		{"requests weighed", costWith(func(c *Cost) { c.NoPrefill, c.RequestWeight = true, 2 }), idleRank(),
			[]Term{{"active_blocks", 0}, {"new_blocks", 0}, {"active_requests", 0}}},
		{"full", costWith(func(c *Cost) { c.RequestWeight = 2 }), full,
			[]Term{{"queued_prefill", 0}, {"prompt", 4}, {"cache_credit", 0}, {"active_blocks", 0}, {"new_blocks", 0},
				{"active_requests", 2}, {"taints", -3}, {"slow_start", 3}}},
	} {
		d := Decision{PromptTokens: 64, BlockSize: 16, Candidates: []Candidate{tt.cand}}
		got := tt.cost.Terms(nil, &d, 0)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: terms (-want +got):\n%s", tt.name, diff)
		}
		for _, term := range got {
			if term.Value == 0 && math.Signbit(term.Value) {
				t.Errorf("%s: %s is a negative 0", tt.name, term.Name)
			}
		}
	}
}

// TestSelectByChance shows that ranks are chosen as often as Propensities says.
func TestSelectByChance(t *testing.T) {
	for _, absolute := range []bool{false, true} {
		c := costWith(func(c *Cost) { c.Temperature, c.AbsoluteTemperature = .5, absolute })
		d := Decision{PromptTokens: 160, BlockSize: 16, Candidates: threeRanks(), Rand: chance(4)}
		if absolute {
			c.Temperature = 6
		}
		counts := make([]int, len(d.Candidates))
		for range 20_000 {
			counts[c.Select(&d)]++
		}
		checkFrequencies(t, counts, c.Propensities(nil, d.Candidates))
		if d.Tied != 0 {
			t.Errorf("%d tied, want none where chance chooses among all", d.Tied)
		}
	}
}

// TestAbsoluteTemperature shows that what two ranks have in common makes no
// difference to the chance of each, and that a block is a block.
func TestAbsoluteTemperature(t *testing.T) {
	c := costWith(func(c *Cost) { c.Temperature, c.AbsoluteTemperature = 2, true })
	for _, both := range []int{0, 10, 100_000} {
		a, b := idleRank(), idleRank()
		a.Blocks, b.Blocks = both, both+3
		d := Decision{PromptTokens: 160, BlockSize: 16, Candidates: []Candidate{a, b}, Rand: chance(1)}
		c.Select(&d)
		want := 1 / (1 + math.Exp(-1.5))
		if p := c.Propensities(nil, d.Candidates); !near(p[0], want, 1e-12) {
			t.Errorf("%d blocks on both: %v for the better, want %v", both, p[0], want)
		}
	}
}

func TestPropensitiesWithoutChance(t *testing.T) {
	c := DefaultCost()
	if p := c.Propensities(nil, scored(1, 2)); p != nil {
		t.Errorf("temperature 0: %v, want none", p)
	}
	c.Temperature = 1
	if p := c.Propensities(nil, scored(1)); p != nil {
		t.Errorf("one candidate: %v, want none", p)
	}
}
