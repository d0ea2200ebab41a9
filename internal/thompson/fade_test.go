package thompson

import (
	"encoding/json"
	"math"
	"testing"
	"time"
)

// TestFaded: what offsets are worth at a decision is what is left of their observations, also
// after a long time, when time goes back, and in a policy that has been restored.
func TestFaded(t *testing.T) {
	s := newSafe(t, nil)
	req := &Request{PromptTokens: 1024, BlockSize: 16, Baseline: 1}
	arms, out := vectorArms(), make([]SafeChoice, 3)
	d, r := seeded(91)
	now := start
	gaps := []time.Duration{0, time.Second, -10 * time.Second, 2 * time.Minute, 3 * time.Hour, 40 * 24 * time.Hour, time.Millisecond}
	for i := range 500 {
		now = now.Add(gaps[r.IntN(len(gaps))])
		req.Baseline = i % 3
		id := s.Decide(now, d, req, arms, out).ID
		for _, a := range s.arms {
			for h := range a.offsets {
				o := &a.offsets[h]
				got := 1 / (1 + o.left(fade(now, s.zero, s.cfg.HalfLife)))
				want := 1 / (1 + o.count*fade(now, o.updated, s.cfg.HalfLife))
				if !(math.Abs(got-want) <= 1e-12*want) {
					t.Fatalf("step %d, arm %v, head %d: variance %v, want %v", i, a.id, h, got, want)
				}
				mean := o.meanOf(o.left(fade(now, s.zero, s.cfg.HalfLife)))
				if at := o.at(now, s.cfg.HalfLife); !(math.Abs(mean-at) <= 1e-12) || math.Abs(at) > math.Abs(o.mean) {
					t.Fatalf("step %d, arm %v, head %d: mean %v, want %v, at most %v", i, a.id, h, mean, at, o.mean)
				}
			}
		}
		now = now.Add(gaps[r.IntN(len(gaps))])
		if s.FirstToken(now, id, time.Second) != nil || s.Done(now, id, 10*time.Millisecond, Completed) != nil {
			t.Fatal("feedback")
		}
		if i%50 == 49 {
			var data json.RawMessage
			var err error
			if data, err = s.State().MarshalJSON(); err != nil {
				t.Fatal(err)
			}
			s = newSafe(t, nil)
			if err := s.Restore(data); err != nil {
				t.Fatal(err)
			}
		}
	}
}
