package sched

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stator-ai/stator/internal/kv"
)

func TestSelectAllocs(t *testing.T) {
	for _, temperature := range []float64{0, .5} {
		c := costWith(func(c *Cost) { c.Temperature, c.CreditDecay = temperature, 1 })
		d := manyRanks(64)
		if n := testing.AllocsPerRun(100, func() { c.Select(d) }); n != 0 {
			t.Errorf("temperature %v: %v allocations, want none", temperature, n)
		}
		p := make([]float64, 0, 64)
		terms := make([]Term, 0, 8)
		if n := testing.AllocsPerRun(100, func() {
			c.Propensities(p, d.Candidates)
			c.Terms(terms, d, 9)
		}); n != 0 {
			t.Errorf("temperature %v: %v allocations to explain, want none", temperature, n)
		}
	}
}

// manyRanks are n candidates for a prompt of 1000 tokens.
func manyRanks(n int) *Decision {
	r := rand.New(rand.NewPCG(34, 55))
	d := &Decision{PromptTokens: 1000, BlockSize: 16, Candidates: make([]Candidate, n), Rand: chance(1)}
	for i := range d.Candidates {
		c := cachedRank(uint32(r.IntN(62)), 62)
		c.Worker = kv.WorkerID(i + 1)
		c.Requests, c.PrefillTokens, c.Blocks, c.Held = r.IntN(30), r.IntN(4000), r.IntN(3000), r.IntN(10_000)
		d.Candidates[i] = c
	}
	return d
}

// On two busy cores of a Xeon server:
//
//	ranks=64/temperature=0        1.5 µs/op   0 allocs/op
//	ranks=64/temperature=0.5      3.1 µs/op   0 allocs/op
//	ranks=1000/temperature=0       35 µs/op   0 allocs/op
//	ranks=1000/temperature=0.5     66 µs/op   0 allocs/op
func BenchmarkSelect(b *testing.B) {
	for _, n := range []int{64, 1000} {
		for _, temperature := range []float64{0, .5} {
			b.Run(fmt.Sprintf("ranks=%d/temperature=%v", n, temperature), func(b *testing.B) {
				c := costWith(func(c *Cost) { c.Temperature = temperature })
				d := manyRanks(n)
				b.ReportAllocs()
				for b.Loop() {
					c.Select(d)
				}
			})
		}
	}
}
