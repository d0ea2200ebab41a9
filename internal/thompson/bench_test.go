package thompson

import (
	"fmt"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// manyArms are n arms within the guard of each other, and a request for them.
func manyArms(n int) (*Request, []Arm) {
	_, rnd := seeded(61)
	arms := make([]Arm, n)
	for i := range arms {
		arms[i] = Arm{
			ID: kv.Source{Worker: kv.WorkerID(i + 1)}, Overlap: rnd.Float64(), KVUsage: rnd.Float64() / 2, Queue: float64(rnd.IntN(4)), Scraped: true,
			Cost: 500 + 100*rnd.Float64(), PrefillTokens: rnd.IntN(4000), KVTokens: rnd.IntN(100_000), InFlight: rnd.IntN(20), Healthy: true,
		}
	}
	return &Request{PromptTokens: 1024, BlockSize: 16, Prefix: NewPrefixID("", "s"), Budget: 3, TTL: time.Minute}, arms
}

func TestAllocs(t *testing.T) {
	for _, n := range []int{8, 64} {
		req, arms := manyArms(n)
		d, rnd := seeded(62)
		now := start
		ref, choices := newReference(t, nil), make([]Choice, n)
		step := func() {
			now = now.Add(time.Millisecond)
			dec := ref.Decide(now, d, req, arms, choices)
			if _, err := ref.Feedback(now, dec.ID, Feedback{Latency: time.Second, TokensOut: 10}); err != nil {
				t.Fatal(err)
			}
		}
		if got := testing.AllocsPerRun(500, step); got != 0 {
			t.Errorf("reference, %d arms: %v allocations", n, got)
		}
		safe, safeChoices := newSafe(t, nil), make([]SafeChoice, n)
		step = func() {
			now = now.Add(time.Millisecond)
			dec := safe.Decide(now, d, req, arms, safeChoices)
			if safe.FirstToken(now, dec.ID, time.Duration(rnd.IntN(1e9))) != nil || safe.Done(now, dec.ID, 1e7, Completed) != nil {
				t.Fatal("feedback")
			}
			safe.Tick(now)
		}
		if got := testing.AllocsPerRun(500, step); got != 0 {
			t.Errorf("safe, %d arms: %v allocations", n, got)
		}
		prefixes := NewPrefixes(PrefixConfig{})
		if got := testing.AllocsPerRun(500, func() { prefixes.Next(now, req.Prefix, Expectation{Total: 4}) }); got != 0 {
			t.Errorf("prefixes: %v allocations", got)
		}
	}
}

// CPU time on a busy Xeon server:
//
//	arms=8      2 µs/op   0 allocs/op
//	arms=64    12 µs/op   0 allocs/op
func BenchmarkReference(b *testing.B) {
	for _, n := range []int{8, 64} {
		b.Run(fmt.Sprintf("arms=%d", n), func(b *testing.B) {
			r := newReference(b, nil)
			req, arms := manyArms(n)
			d, _ := seeded(63)
			out := make([]Choice, n)
			b.ReportAllocs()
			for b.Loop() {
				dec := r.Decide(start, d, req, arms, out)
				r.Drop(dec.ID)
			}
		})
	}
}

// With the decision, 0.8 µs of CPU time there.
func BenchmarkReferenceFeedback(b *testing.B) {
	r := newReference(b, nil)
	req, arms := manyArms(1)
	d, _ := seeded(63)
	out := make([]Choice, 1)
	b.ReportAllocs()
	for b.Loop() {
		dec := r.Decide(start, d, req, arms, out)
		r.Feedback(start, dec.ID, Feedback{Latency: time.Second, TokensOut: 10})
	}
}

// CPU time on a busy Xeon server, with all arms admissible:
//
//	arms=8      3 µs/op   0 allocs/op
//	arms=64    13 µs/op   0 allocs/op
func BenchmarkSafe(b *testing.B) {
	for _, n := range []int{8, 64} {
		b.Run(fmt.Sprintf("arms=%d", n), func(b *testing.B) {
			s := newSafe(b, func(c *SafeConfig) { c.Allowance = 1 })
			req, arms := manyArms(n)
			d, _ := seeded(63)
			out := make([]SafeChoice, n)
			b.ReportAllocs()
			for b.Loop() {
				dec := s.Decide(start, d, req, arms, out)
				s.Done(start, dec.ID, 0, Cancelled)
			}
		})
	}
}

// With the decision, 0.7 µs of CPU time there.
func BenchmarkSafeFeedback(b *testing.B) {
	s := newSafe(b, nil)
	req, arms := manyArms(1)
	d, _ := seeded(63)
	out := make([]SafeChoice, 1)
	b.ReportAllocs()
	for b.Loop() {
		dec := s.Decide(start, d, req, arms, out)
		s.FirstToken(start, dec.ID, 100*time.Millisecond)
		s.Done(start, dec.ID, 10*time.Millisecond, Completed)
	}
}
