package policyeval

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"

	"github.com/stator-ai/stator/internal/thompson"
)

// ErrEmpty is behind the error of a log that has no decisions to evaluate.
var ErrEmpty = errors.New("no decisions to evaluate")

const (
	// DefaultMaxWeight is what weights are bounded by.
	DefaultMaxWeight = 50
	// minEffective and minSupport are what an estimate needs to be trusted: so many
	// effective samples, and so much of the target's choices within reach of the recorded
	// policy. maxUnfinished is the share of requests that may come to another end than an
	// answer from the worker that was chosen, of those that came to a choice.
	minEffective = 200
	minSupport   = 0.95

	maxUnfinished = 0.01
)

// Config configures [Log.Evaluate]. The zero value has working defaults.
type Config struct {
	// MaxWeight bounds what a row counts for: how much more likely the policy was to choose
	// the same. 0 means [DefaultMaxWeight].
	MaxWeight float64
	// Resamples, if above 0, has intervals come from estimating so many times again from
	// rows drawn at random, with the numbers of Seed.
	Resamples int
	Seed      uint64
}

// Evaluate estimates how policies would have done. Rows that one of them cannot be seen in
// count for none, so that all are compared on the same. The error is [ErrEmpty] where there
// are no rows left, and names a policy that can be seen in none.
func (l *Log) Evaluate(policies []*Policy, cfg Config) (*Report, error) {
	if cfg.MaxWeight <= 0 {
		cfg.MaxWeight = DefaultMaxWeight
	}
	s, err := l.see(policies)
	if err != nil {
		return nil, err
	}
	r := &Report{
		Metric: l.opts.Metric, Rows: len(s.decisions), Recorded: l.recorded, Skipped: s.skipped,
		Bootstrap: max(cfg.Resamples, 0), MaxWeight: cfg.MaxWeight,
	}
	rewards, unit := s.rewards(l.opts.Metric)
	models := [2]*model{fitModel(s.decisions, rewards, 1), fitModel(s.decisions, rewards, 0)}
	predicted := make([][]float64, len(s.decisions))
	for i, d := range s.decisions {
		predicted[i] = make([]float64, len(d.cands))
		for k := range d.cands {
			predicted[i][k] = models[i%2].predict(d, k)
		}
		if len(d.cands) > 1 && d.odds[d.chosen] < 1 {
			r.Chance++
		}
	}
	for k, p := range policies {
		w := newWeighing(cfg.MaxWeight, len(s.decisions))
		for i, d := range s.decisions {
			w.add(d, s.odds[k][i], predicted[i], rewards[i])
		}
		with := thompson.EvaluateConfig{MaxWeight: cfg.MaxWeight, Resamples: cfg.Resamples}
		if cfg.Resamples > 0 {
			with.Rand = rand.New(rand.NewPCG(cfg.Seed, 0)) // the same for all policies
		}
		e, err := thompson.Evaluate(w.rows, with)
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", p, err)
		}
		if k == 0 {
			r.Value = unit.interval(e.Logged)
		}
		r.Policies = append(r.Policies, w.result(p, &e, unit))
	}
	r.warn()
	return r, nil
}

// seen is the part of a log that all policies can be seen in.
type seen struct {
	decisions []*decision
	odds      [][][]float64 // by policy and decision
	skipped   Skipped
}

func (l *Log) see(policies []*Policy) (*seen, error) {
	s := &seen{odds: make([][][]float64, len(policies)), skipped: maps.Clone(l.skipped)}
	if len(policies) == 0 {
		return nil, errors.New("policies: expected at least one")
	}
	choices, applied := false, make([]bool, len(policies)) // where there is something to choose
	odds := make([][]float64, len(policies))
	for i := range l.decisions {
		d := &l.decisions[i]
		all := true
		choices = choices || len(d.cands) > 1
		for k, p := range policies {
			var ok bool
			odds[k], ok = p.see(make([]float64, 0, len(d.cands)), d)
			applied[k] = applied[k] || ok && len(d.cands) > 1
			all = all && ok
		}
		if !all {
			s.skipped[NotForPolicy]++
			continue
		}
		s.decisions = append(s.decisions, d)
		for k := range policies {
			s.odds[k] = append(s.odds[k], odds[k])
		}
	}
	for k, p := range policies {
		if choices && !applied[k] {
			return nil, fmt.Errorf("policy %s: no row holds what it goes by", p)
		}
	}
	switch {
	case len(s.decisions) > 0:
		return s, nil
	case s.skipped.Rows() > 0:
		return nil, fmt.Errorf("%w: %v", ErrEmpty, s.skipped)
	}
	return nil, ErrEmpty
}

// rewards returns what the decisions are compared by, the more the better, and what makes
// values of the metric of it again. Times are compared by their logarithms, counted from
// the mean of these: a row that says nothing about a policy then counts as a usual one.
func (s *seen) rewards(m Metric) ([]float64, unit) {
	out := make([]float64, len(s.decisions))
	if !m.isTime() {
		for i, d := range s.decisions {
			out[i] = d.value
		}
		return out, unit{}
	}
	mean := 0.0
	for i, d := range s.decisions {
		out[i] = math.Log(d.value)
		mean += (out[i] - mean) / float64(i+1)
	}
	for i := range out {
		out[i] = mean - out[i]
	}
	return out, unit{time: true, mean: mean}
}

// unit turns rewards into what is shown.
type unit struct {
	time bool
	mean float64 // of the logarithms of times in milliseconds
}

// interval returns the value of a policy: a reward, or the geometric mean of its times.
func (u unit) interval(v thompson.Interval) Interval {
	if !u.time {
		return Interval{number(v.Value), number(v.BootstrapLow), number(v.BootstrapHigh)}
	}
	ms := func(reward float64) number { return number(math.Exp(u.mean - reward)) }
	return Interval{ms(v.Value), ms(v.BootstrapHigh), ms(v.BootstrapLow)}
}

// change returns how far a policy is from the recorded one: the difference of rewards, or
// by which share times are longer.
func (u unit) change(v thompson.Interval) Interval {
	if !u.time {
		return u.interval(v)
	}
	share := func(reward float64) number { return number(math.Expm1(-reward)) }
	return Interval{share(v.Value), share(v.BootstrapHigh), share(v.BootstrapLow)}
}

// weighing is a policy's view of the decisions.
type weighing struct {
	limit   float64
	rows    []thompson.LoggedRow
	clipped int
	// support is what is expected of the sum of weights, off how far it is from that, and
	// variance what the odds say that chance makes of it.
	support, off, variance float64
	// same is whether the policy has been the recorded one so far.
	same bool
}

func newWeighing(limit float64, rows int) *weighing {
	return &weighing{limit: limit, rows: make([]thompson.LoggedRow, 0, rows), same: true}
}

func (w *weighing) add(d *decision, target, predicted []float64, reward float64) {
	if equalOdds(target, d.odds) {
		target = d.odds
	} else {
		w.same = false
	}
	row := thompson.LoggedRow{Reward: reward, Predicted: predicted[d.chosen]}
	expected, square := 0.0, 0.0 // of the weight
	for i, t := range target {
		row.TargetPredicted += t * predicted[i]
		row.LoggedPredicted += d.odds[i] * predicted[i]
		if p := d.odds[i]; p > 0 {
			expected += min(t, p*w.limit)
			square += min(t, p*w.limit) * min(t/p, w.limit)
		}
	}
	// The weight, and not 1/p, is bounded, so that a choice that is as unlikely for the
	// target keeps the weight 1.
	t, p := target[d.chosen], d.odds[d.chosen]
	weight := min(t/p, w.limit)
	if t/p > w.limit {
		w.clipped++
	}
	row.P = max(p, 1/w.limit)
	row.Target = min(weight*row.P, 1)
	w.rows = append(w.rows, row)
	w.support += expected
	w.off += weight - expected
	w.variance += max(square-expected*expected, 0)
}

// misfit reports whether weights are off by more than a little, and by more than chance can
// explain. Then the recorded probabilities are not those of the choices.
func (w *weighing) misfit() bool {
	off := math.Abs(w.off)
	return off > 0.02*float64(len(w.rows)) && off > 5*math.Sqrt(w.variance)
}

func (w *weighing) result(p *Policy, e *thompson.Evaluation, u unit) Result {
	r := Result{
		Policy:           p.name,
		Value:            u.interval(e.DR),
		Change:           u.change(e.Gain),
		IPS:              u.interval(e.IPS),
		SNIPS:            u.interval(e.SNIPS),
		Support:          number(min(w.support/float64(len(w.rows)), 1)),
		EffectiveSamples: number(e.EffectiveSamples),
		MeanWeight:       number(e.MeanWeight),
		Clipped:          w.clipped,
		misfit:           w.misfit(),
	}
	r.Verdict = Unclear
	switch {
	case w.same:
		r.Change, r.Verdict = Interval{}, Same
	case e.EffectiveSamples < minEffective || r.Support < minSupport || r.misfit:
		r.Verdict = Untrusted
	case e.Gain.BootstrapLow > 0:
		r.Verdict = Better
	case e.Gain.BootstrapHigh < 0:
		r.Verdict = Worse
	}
	return r
}
