package thompson

import (
	"math"
	"time"
)

// comparisonRow is what it takes to say, once a cost is known, by how much the policy does
// worse than its baseline at one decision: the doubly robust estimate of either, which is
// what is predicted of it, corrected by how far the prediction was off where it can be
// seen. The zero value says nothing.
type comparisonRow struct {
	active         bool
	policy, base   float64 // predicted for the policy, which mixes arms, and for the baseline
	chosen         float64 // predicted for the arm that was chosen
	policyW, baseW float64 // how much the chosen arm says about either
	later          float64 // part of chosen that is about tokens after the first
}

// maxWeight bounds how much one decision can count for others that were not made.
const maxWeight = 50

func compareWith(dec *SafeDecision, baseline int, out []SafeChoice, in []admitted) comparisonRow {
	r := comparisonRow{active: true, base: out[baseline].Score, chosen: out[dec.Chosen].Score}
	for i := range in {
		r.policy += out[in[i].index].P * in[i].predict
	}
	r.policyW = out[dec.Chosen].P / dec.P // 1, except in shadow mode
	if dec.Chosen == baseline {
		r.baseW = min(1/dec.P, maxWeight)
	}
	return r
}

// difference is how much more the policy costs than the baseline, given what the chosen
// arm cost. NaN if there is nothing to compare.
func (r *comparisonRow) difference(cost float64) float64 {
	if !r.active {
		return math.NaN()
	}
	off := cost - r.chosen
	return r.policy + r.policyW*off - (r.base + r.baseW*off)
}

// watch sums up differences over a window that moves in steps.
type watch struct {
	buckets [60]watchBucket
	step    time.Duration
}

type watchBucket struct {
	at        int64 // number of the step, 0 if empty
	n         int
	sum, sum2 float64
}

func newWatch(window time.Duration) watch {
	return watch{step: window / time.Duration(len(watch{}.buckets))}
}

func (w *watch) number(now time.Time) int64 {
	return now.UnixMilli()/w.step.Milliseconds() + 1<<40 // which is above 0
}

func (w *watch) add(now time.Time, difference float64) {
	if math.IsNaN(difference) {
		return
	}
	at := w.number(now)
	b := &w.buckets[uint64(at)%uint64(len(w.buckets))]
	if b.at != at {
		*b = watchBucket{at: at}
	}
	b.n++
	b.sum += difference
	b.sum2 += difference * difference
}

// Comparison is how a policy does compared with its baseline.
type Comparison struct {
	// Decisions is how many it comes from: the latest ones in which there was a choice.
	Decisions int
	// Difference is by how much the logarithm of the cost is higher with the policy, on
	// average, and Low and High bound it with 95 % confidence.
	Difference, Low, High float64
}

// Compare returns how the policy does compared with its baseline, as far as the requests
// of the latest [SafeConfig.StopWindow] say. In shadow mode the answer for arms that only
// the policy would choose is what it predicts itself.
func (s *Safe) Compare(now time.Time) Comparison {
	var n int
	var sum, sum2 float64
	at := s.watch.number(now)
	for i := range s.watch.buckets {
		if b := &s.watch.buckets[i]; b.at > at-int64(len(s.watch.buckets)) && b.at <= at {
			n, sum, sum2 = n+b.n, sum+b.sum, sum2+b.sum2
		}
	}
	c := Comparison{Decisions: n}
	if n == 0 {
		return c
	}
	c.Difference = sum / float64(n)
	c.Low, c.High = math.Inf(-1), math.Inf(1)
	if n > 1 {
		variance := max(sum2-sum*c.Difference, 0) / float64(n-1)
		half := normalQuantile * math.Sqrt(variance/float64(n))
		c.Low, c.High = c.Difference-half, c.Difference+half
	}
	return c
}

// stop has the baseline decide for a while if the policy does worse by more than it may.
func (s *Safe) stop(now time.Time) bool {
	c := s.Compare(now)
	if s.cfg.Shadow || s.stopped(now) || c.Decisions < s.cfg.StopAfter || c.Low <= s.cfg.StopMargin {
		return false
	}
	s.until = now.Add(s.cfg.StopWindow)
	s.budget = min(s.budget, 0)
	s.watch = newWatch(s.cfg.StopWindow)
	s.stops++
	return true
}
