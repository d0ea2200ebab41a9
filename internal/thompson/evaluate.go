package thompson

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// normalQuantile is how many standard deviations of the normal distribution hold 95 % of
// it.
const normalQuantile = 1.959963984540054

// LoggedRow is a decision of a recorded policy, seen by another, the target.
type LoggedRow struct {
	// P is the probability with which the recorded policy chose what it chose, above 0
	// and at most 1, and Reward what that brought.
	P, Reward float64
	// Target is the probability with which the target would have chosen the same.
	Target float64
	// Predicted is the reward that a model predicts for what was chosen, and
	// TargetPredicted and LoggedPredicted what it predicts for the choice of the target
	// and of the recorded policy, on average over the choices of each. All are 0 without a
	// model.
	Predicted, TargetPredicted, LoggedPredicted float64
}

// Interval is an estimate with what it may be with 95 % confidence.
type Interval struct {
	Value float64
	// Low and High come from the estimate's variance.
	Low, High float64
	// BootstrapLow and BootstrapHigh come from estimating again from rows drawn at
	// random. They are equal to Low and High if that was not asked for.
	BootstrapLow, BootstrapHigh float64
}

// Evaluation is what recorded decisions say about a target policy. It concerns single
// decisions: that a policy which decides differently changes queues and caches, and with
// them what comes after, is not in it.
type Evaluation struct {
	Rows int
	// Logged is the mean reward of the recorded policy.
	Logged Interval
	// IPS weighs each reward by how much more likely the target was to choose the same.
	// SNIPS divides by the sum of weights instead of the number of rows. DR is what the
	// model predicts for the target, corrected by weighted errors of the model.
	IPS, SNIPS, DR Interval
	// Gain is DR less the same estimate of the recorded policy, row by row: exactly 0 for
	// a target that is the recorded policy.
	Gain Interval
	// EffectiveSamples is how many equally weighted rows would say as much. Below 200 or
	// so the intervals are not to be trusted.
	EffectiveSamples float64
	// MeanWeight is about 1 where the probabilities are right.
	MeanWeight float64
}

// EvaluateConfig configures [Evaluate]. The zero value has working defaults.
type EvaluateConfig struct {
	// MaxWeight bounds 1/P; 0 means 50.
	MaxWeight float64
	// Resamples is how often the bootstrap estimates again, with Rand's numbers. There
	// is no bootstrap without both.
	Resamples int
	Rand      *rand.Rand
}

// Evaluate estimates how a target policy would have done from decisions of another one.
// The error names the first row that cannot be, or says that there are none.
func Evaluate(rows []LoggedRow, cfg EvaluateConfig) (Evaluation, error) {
	if len(rows) == 0 {
		return Evaluation{}, errors.New("no rows to evaluate")
	}
	if cfg.MaxWeight <= 0 {
		cfg.MaxWeight = maxWeight
	}
	terms := make([]term, len(rows))
	for i := range rows {
		if err := rows[i].check(); err != nil {
			return Evaluation{}, fmt.Errorf("row %d: %w", i, err)
		}
		terms[i] = rows[i].term(cfg.MaxWeight)
	}
	e := Evaluation{Rows: len(rows)}
	var sum, sum2 float64
	for i := range terms {
		sum, sum2 = sum+terms[i].weight, sum2+terms[i].weight*terms[i].weight
	}
	if e.MeanWeight = sum / float64(len(rows)); sum2 > 0 {
		e.EffectiveSamples = sum * sum / sum2
	}
	e.setIntervals(terms)
	if cfg.Resamples > 0 && cfg.Rand != nil {
		e.bootstrap(terms, cfg)
	}
	return e, nil
}

func (r *LoggedRow) check() error {
	switch {
	case !(r.P > 0 && r.P <= 1):
		return fmt.Errorf("probability %v: expected above 0 and at most 1", r.P)
	case !(r.Target >= 0 && r.Target <= 1):
		return fmt.Errorf("target probability %v: expected from 0 to 1", r.Target)
	}
	for _, v := range [...]struct {
		name  string
		value float64
	}{
		{"reward", r.Reward}, {"predicted reward", r.Predicted},
		{"predicted reward of the target", r.TargetPredicted}, {"predicted reward of the recorded policy", r.LoggedPredicted},
	} {
		if math.IsNaN(v.value) || math.IsInf(v.value, 0) {
			return fmt.Errorf("%s %v: expected a finite number", v.name, v.value)
		}
	}
	return nil
}

// term is what a row adds to the estimates.
type term struct{ reward, weight, ips, dr, gain float64 }

func (r *LoggedRow) term(limit float64) term {
	scale := min(1/r.P, limit)
	w, off := r.Target*scale, r.Reward-r.Predicted
	return term{
		reward: r.Reward, weight: w, ips: w * r.Reward, dr: r.TargetPredicted + w*off,
		gain: r.TargetPredicted - r.LoggedPredicted + (r.Target-r.P)*scale*off,
	}
}

// estimates are the values of the five intervals.
type estimates struct{ logged, ips, snips, dr, gain float64 }

func estimate(n int, at func(int) *term) estimates {
	var sum term
	for i := range n {
		t := at(i)
		sum.reward += t.reward
		sum.weight += t.weight
		sum.ips += t.ips
		sum.dr += t.dr
		sum.gain += t.gain
	}
	c := float64(n)
	e := estimates{logged: sum.reward / c, ips: sum.ips / c, dr: sum.dr / c, gain: sum.gain / c}
	if sum.weight > 0 {
		e.snips = sum.ips / sum.weight
	}
	return e
}

// setIntervals fills in the values and what their variances say. That of SNIPS, a ratio, is
// the first-order approximation.
func (e *Evaluation) setIntervals(terms []term) {
	v := estimate(len(terms), func(i int) *term { return &terms[i] })
	interval := func(value float64, of func(*term) float64) Interval {
		sum := 0.0
		for i := range terms {
			d := of(&terms[i])
			sum += d * d
		}
		n := float64(len(terms))
		half := math.Inf(1)
		if n > 1 {
			half = normalQuantile * math.Sqrt(sum/(n-1)/n)
		}
		return Interval{value, value - half, value + half, value - half, value + half}
	}
	e.Logged = interval(v.logged, func(t *term) float64 { return t.reward - v.logged })
	e.IPS = interval(v.ips, func(t *term) float64 { return t.ips - v.ips })
	e.SNIPS = interval(v.snips, func(t *term) float64 {
		if e.MeanWeight == 0 {
			return math.Inf(1) // no row says anything
		}
		return t.weight * (t.reward - v.snips) / e.MeanWeight
	})
	e.DR = interval(v.dr, func(t *term) float64 { return t.dr - v.dr })
	e.Gain = interval(v.gain, func(t *term) float64 { return t.gain - v.gain })
}

// bootstrap fills in the percentiles of estimates from rows drawn with replacement.
func (e *Evaluation) bootstrap(terms []term, cfg EvaluateConfig) {
	n := len(terms)
	values := make([][5]float64, cfg.Resamples)
	for i := range values {
		v := estimate(n, func(int) *term { return &terms[cfg.Rand.IntN(n)] })
		values[i] = [5]float64{v.logged, v.ips, v.snips, v.dr, v.gain}
	}
	column := make([]float64, len(values))
	for k, to := range []*Interval{&e.Logged, &e.IPS, &e.SNIPS, &e.DR, &e.Gain} {
		for i := range values {
			column[i] = values[i][k]
		}
		slices.Sort(column)
		to.BootstrapLow, to.BootstrapHigh = percentile(column, 0.025), percentile(column, 0.975)
	}
}

// percentile returns the value below which a share q of sorted values lies, between two of
// them where it has to be.
func percentile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// Reward returns how good an answer was, from 0 to 1, as the NeMo Agent Toolkit's optimizer
// sees it: kve is the share of the prompt that came from the cache.
func Reward(kve float64, ttft, itl time.Duration) float64 {
	return 0.4*unit(kve) + 0.4/(1+max(ttft, 0).Seconds()/0.5) + 0.2/(1+max(itl, 0).Seconds()/0.05)
}
