package sched

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
)

func TestCostHugeNumbers(t *testing.T) {
	most := rank(func(c *Candidate) {
		c.Requests, c.PrefillTokens, c.Blocks, c.NewBlocks, c.Live, c.Held = math.MaxInt, math.MaxInt, math.MaxInt, math.MaxInt, math.MaxInt, math.MaxInt
		c.Depth = [kv.NumTiers]uint32{math.MaxUint32, math.MaxUint32, math.MaxUint32, math.MaxUint32}
		c.Warmth, c.Taint = math.SmallestNonzeroFloat64, math.E
	})
	deep := rank(func(c *Candidate) {
		c.Depth = [kv.NumTiers]uint32{0, math.MaxUint32, math.MaxUint32, math.MaxUint32}
		c.Trust = 0
	})
	most64 := math.MaxFloat64
	for name, c := range map[string]*Cost{
		"defaults":    costWith(func(*Cost) {}),
		"scale":       costWith(func(c *Cost) { c.PrefillScale = most64 }),
		"credit":      costWith(func(c *Cost) { c.Credit = most64 }),
		"decay":       costWith(func(c *Cost) { c.CreditDecay = most64 }),
		"requests":    costWith(func(c *Cost) { c.RequestWeight = most64 }),
		"temperature": costWith(func(c *Cost) { c.Temperature = most64 }),
		"cold":        costWith(func(c *Cost) { c.Temperature = math.SmallestNonzeroFloat64 }),
		"all": {PrefillScale: most64, Credit: most64, CreditDecay: most64, HostWeight: 1, DiskWeight: 1, SharedWeight: 1,
			RequestWeight: most64, Temperature: most64, AbsoluteTemperature: true},
	} {
		for _, prompt := range []int{1, 1 << 30, math.MaxInt} {
			for _, bs := range []int{1, 16, math.MaxInt} {
				d := Decision{PromptTokens: prompt, BlockSize: bs, Candidates: []Candidate{most, deep, idleRank(), most}, Rand: chance(1)}
				checkDecision(t, fmt.Sprintf("%s, prompt of %d, blocks of %d", name, prompt, bs), c, &d)
			}
		}
	}
}

// randomCost returns parameters such as may be configured.
func randomCost(r *rand.Rand) *Cost {
	weight := func(most float64) float64 { return []float64{0, most, most * r.Float64()}[r.IntN(3)] }
	c := &Cost{
		PrefillScale: weight(3), Credit: weight(2), CreditDecay: weight(2),
		HostWeight: weight(1), DiskWeight: weight(1), SharedWeight: weight(1),
		RequestWeight: weight(5), Temperature: weight(2), AbsoluteTemperature: r.IntN(2) == 0,
		NoPrefill: r.IntN(8) == 0, NoLive: r.IntN(4) == 0,
	}
	return c
}

// randomDecision returns a decision between up to n candidates.
func randomDecision(r *rand.Rand, n int) *Decision {
	d := &Decision{PromptTokens: 1 + r.IntN(4000), BlockSize: 1 + r.IntN(64), Candidates: make([]Candidate, 1+r.IntN(n))}
	blocks := d.PromptTokens / d.BlockSize
	for i := range d.Candidates {
		c := idleRank()
		c.Worker, c.Rank = kv.WorkerID(1+i/2), uint32(i%2)
		c.Requests, c.PrefillTokens, c.Blocks, c.NewBlocks = r.IntN(20), r.IntN(3)*r.IntN(5000), r.IntN(500), r.IntN(blocks+1)
		depth := uint32(0)
		for tier := range c.Depth {
			depth += uint32(r.IntN(blocks + 2))
			c.Depth[tier] = depth
		}
		c.Live, c.Held = r.IntN(blocks+1), r.IntN(2)
		if r.IntN(2) == 0 {
			c.Trust, c.Warmth = r.Float64(), .05+.95*r.Float64()
			c.Taint = TaintFactor(map[string]float64{"a": 4*r.Float64() - 2}, []string{"a"})
		}
		d.Candidates[i] = c
	}
	return d
}

// TestTheShortWayIsExact: what is computed the short way is what it comes to the long
// way, to the last bit, or equal candidates would not cost the same.
func TestTheShortWayIsExact(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	short := 0
	for range 5000 {
		c, d := randomCost(r), randomDecision(r, 6)
		for i := range d.Candidates {
			cand := &d.Candidates[i]
			if r.IntN(4) > 0 {
				for tier := range cand.Depth {
					cand.Depth[tier] = cand.Depth[kv.Device]
				}
				cand.Taint, cand.Warmth = 1, 1
			}
		}
		d.Rand = chance(r.Uint64())
		c.Select(d)
		for i := range d.Candidates {
			cand := &d.Candidates[i]
			var p price
			p.set(c, d, cand, c.leastPrefill(d.Candidates))
			if want := bound(p.total()); cand.Score != want {
				t.Fatalf("%+v with %+v costs %v, want %v", *cand, *c, cand.Score, want)
			}
			if at, all := cand.near(!c.NoLive); all && cand.Taint == 1 && cand.Warmth == 1 && c.CreditDecay == 0 && !c.NoPrefill {
				short++
				if got := c.simply(d, cand, float64(at)); got != cand.Score {
					t.Fatalf("%+v with %+v costs %v, simply %v", *cand, *c, cand.Score, got)
				}
			}
		}
	}
	if short < 1000 {
		t.Errorf("%d candidates went the short way", short)
	}
}

func TestTermsSumToScore(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 8))
	seen := make(map[string]int)
	clamped := 0
	for range 5000 {
		c, d := randomCost(r), randomDecision(r, 6)
		d.Rand = chance(r.Uint64())
		c.Select(d)
		for i := range d.Candidates {
			sum, size := 0.0, 0.0
			for _, term := range c.Terms(nil, d, i) {
				sum += term.Value
				size += math.Abs(term.Value)
				seen[term.Name]++
			}
			if got := d.Candidates[i].Score; !near(sum, got, 1e-13*size) {
				t.Fatalf("terms %v sum to %v, want the score %v\ncost %+v\ncandidate %+v", c.Terms(nil, d, i), sum, got, c, d.Candidates[i])
			}
			if m := terms(c, d, i); m["cache_credit"] < 0 && m["queued_prefill"]+m["prompt"]+m["cache_credit"] == 0 {
				clamped++
			}
			if d.Candidates[i].Score < 0 {
				t.Fatalf("score %v, want at least 0\ncost %+v\ncandidate %+v", d.Candidates[i].Score, c, d.Candidates[i])
			}
		}
	}
	for _, name := range []string{"queued_prefill", "prompt", "cache_credit", "active_blocks", "new_blocks", "active_requests", "taints", "slow_start"} {
		if seen[name] < 100 {
			t.Errorf("term %s seen %d times, want 100", name, seen[name])
		}
	}
	if clamped < 100 {
		t.Errorf("credit for all there is to compute %d times, want 100", clamped)
	}
}

// TestSelectIsDeterministic shows that the same decision with the same chance gets
// the same answer, whatever the selector and the decision were used for before.
func TestSelectIsDeterministic(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 21))
	for range 2000 {
		c, d, seed := randomCost(r), randomDecision(r, 20), r.Uint64()
		if r.IntN(2) == 0 { // many ties
			for i := range d.Candidates {
				held := d.Candidates[i].Held
				d.Candidates[i] = idleRank()
				d.Candidates[i].Held = held
			}
		}
		d.Rand = chance(seed)
		first := c.Select(d)
		once := *d
		once.Candidates = append([]Candidate(nil), d.Candidates...)

		for i := range d.Candidates {
			d.Candidates[i].Score = math.NaN()
		}
		d.Tied, d.Rand = -1, chance(seed)
		again := *c
		if got := again.Select(d); got != first {
			t.Fatalf("chose %d, then %d", first, got)
		}
		if d.Tied != once.Tied {
			t.Fatalf("%d tied, then %d", once.Tied, d.Tied)
		}
		if diff := cmp.Diff(once.Candidates, d.Candidates); diff != "" {
			t.Fatalf("candidates (-first +again):\n%s", diff)
		}
	}
}

// checkDecision has the selector choose and fails if the answer is none or the
// numbers behind it are not numbers.
func checkDecision(t *testing.T, name string, c *Cost, d *Decision) {
	t.Helper()
	i := c.Select(d)
	if i < 0 || i >= len(d.Candidates) {
		t.Fatalf("%s: chose %d of %d", name, i, len(d.Candidates))
	}
	finite := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	for j := range d.Candidates {
		if v := d.Candidates[j].Score; !finite(v) || v < 0 {
			t.Fatalf("%s: score %v of %d", name, v, j)
		}
		for _, term := range c.Terms(nil, d, j) {
			if !finite(term.Value) {
				t.Fatalf("%s: term %s of %d is %v", name, term.Name, j, term.Value)
			}
		}
		if n := c.PrefillTokens(d, &d.Candidates[j]); n < 0 || n > d.PromptTokens {
			t.Fatalf("%s: %d tokens to compute of %d on %d", name, n, d.PromptTokens, j)
		}
		if c.Temperature == 0 && d.Candidates[j].Score < d.Candidates[i].Score {
			t.Fatalf("%s: chose %d of %v", name, i, scores(d.Candidates))
		}
	}
	if p := c.Propensities(nil, d.Candidates); p != nil {
		sum := 0.0
		for _, v := range p {
			sum += v
		}
		if !near(sum, 1, 1e-9) || p[i] <= 0 {
			t.Fatalf("%s: chose %d with probabilities %v of scores %v", name, i, p, scores(d.Candidates))
		}
	}
}

// FuzzSelect makes parameters and candidates of bytes, within what they may be.
func FuzzSelect(f *testing.F) {
	words := func(w ...uint64) (b []byte) {
		for _, w := range w {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
		return b
	}
	float := math.Float64bits
	f.Add([]byte{})
	f.Add(words(0, 160, 16, float(1), float(1), 0, float(.75), float(.25), 0, 0, 0, 1, 64, 4, 6, 4, 4, 4, 4, 4, 9, float(1), float(1), float(1)))
	f.Add(words(1, 1, 1, float(math.MaxFloat64), float(math.MaxFloat64), float(math.MaxFloat64), 0, 0, 0, float(math.MaxFloat64),
		float(math.SmallestNonzeroFloat64), math.MaxInt64, math.MaxInt64, math.MaxInt64))
	f.Add(words(6, math.MaxInt64, math.MaxInt64, float(1e-300), float(1e300), 1, float(1), float(1), float(1), 1, float(1e-200)))

	f.Fuzz(func(t *testing.T, data []byte) {
		word := func() (w uint64) {
			if len(data) >= 8 {
				w, data = binary.LittleEndian.Uint64(data), data[8:]
			} else {
				data = nil
			}
			return w
		}
		count := func() int { return int(word() & math.MaxInt) }
		number := func() float64 {
			if v := math.Abs(math.Float64frombits(word())); v <= math.MaxFloat64 {
				return v
			}
			return 0
		}
		part := func() float64 { return min(number(), 1) }

		flags := word()
		d := Decision{PromptTokens: max(1, count()), BlockSize: max(1, count()), Rand: chance(flags)}
		c := Cost{
			PrefillScale: number(), Credit: number(), CreditDecay: number(),
			HostWeight: part(), DiskWeight: part(), SharedWeight: part(),
			RequestWeight: number(), Temperature: number(),
			NoPrefill: flags&1 != 0, NoLive: flags&2 != 0, AbsoluteTemperature: flags&4 != 0,
		}
		for len(d.Candidates) == 0 || len(data) > 0 && len(d.Candidates) < 100 {
			cand := Candidate{Worker: kv.WorkerID(len(d.Candidates)), Requests: count(), PrefillTokens: count(), Blocks: count(), NewBlocks: count(), Live: count(), Held: count()}
			for tier := range cand.Depth {
				cand.Depth[tier] = uint32(word())
			}
			cand.Trust = part()
			cand.Taint = TaintFactor(map[string]float64{"a": math.Float64frombits(word())}, []string{"a"})
			if cand.Warmth = part(); cand.Warmth == 0 {
				cand.Warmth = 1
			}
			d.Candidates = append(d.Candidates, cand)
		}
		checkDecision(t, fmt.Sprintf("%+v", c), &c, &d)
	})
}
