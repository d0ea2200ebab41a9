package thompson

import (
	"fmt"
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// mode is what latencies are measured by; averages of different modes are kept apart.
type mode uint8

const (
	perToken mode = iota
	whole
	numModes = 2
)

// average is a moving average; a negative one has no value yet.
type average float64

const unset = average(-1)

func (a *average) add(v, alpha float64) {
	if *a < 0 {
		*a = average(v)
		return
	}
	*a = average(alpha*v + (1-alpha)*float64(*a))
}

// Feedback is what became of a request.
type Feedback struct {
	// Latency is the time from sending it to the end of the answer.
	Latency time.Duration
	// TokensOut is the length of the answer.
	TokensOut int
	// Failed says that there was no proper answer.
	Failed bool
}

// Result is what the reference policy made of feedback.
type Result struct {
	Arm kv.Source
	// Metric is the latency in milliseconds, of one token if PerToken.
	Metric   float64
	PerToken bool
	// Baseline is what it was compared with, and After what the next one like it will be
	// compared with.
	Baseline, After float64
	// Reward is from 0 to 1, 0.5 for an answer as fast as the baseline.
	Reward float64
	// Age is the time since the decision.
	Age time.Duration
}

// Feedback learns from what became of a decision, which is not pending any more then. The
// error is [ErrUnknown] for one that was not.
func (r *Reference) Feedback(now time.Time, id uint64, f Feedback) (Result, error) {
	i := r.pending.get(id)
	if i == none {
		return Result{}, fmt.Errorf("feedback for %016x: %w", id, ErrUnknown)
	}
	p := r.pending.at(i)
	res := Result{Arm: p.arm.id, Metric: milliseconds(f.Latency), PerToken: f.TokensOut > 0, Age: now.Sub(p.since)}
	m := whole
	if res.PerToken {
		m = perToken
		res.Metric /= float64(f.TokensOut)
	}
	res.Baseline = r.baseline(p, m, res.Metric)
	if !f.Failed {
		res.Reward = 1 / (1 + res.Metric/max(1e-3, res.Baseline))
		alpha := r.cfg.LatencyAlpha
		p.arm.byKind[p.osl][p.prefill][m].add(res.Metric, alpha)
		p.arm.all[m].add(res.Metric, alpha)
		r.global[m].add(res.Metric, alpha)
	}
	res.After = r.baseline(p, m, res.Metric)
	r.learn(p, res.Reward)
	r.pending.removeAt(i)
	return res, nil
}

// Drop forgets a pending decision without learning from it, as for a client that left, and
// reports whether it was pending.
func (r *Reference) Drop(id uint64) bool {
	i := r.pending.get(id)
	if i == none {
		return false
	}
	r.pending.removeAt(i)
	return true
}

// baseline is what a latency is compared with: the average of the closest kind there is.
func (r *Reference) baseline(p *refPending, m mode, metric float64) float64 {
	for _, a := range [...]average{p.arm.byKind[p.osl][p.prefill][m], p.arm.all[m], r.global[m]} {
		if a >= 0 {
			return float64(a)
		}
	}
	return max(1, metric)
}

func (r *Reference) learn(p *refPending, reward float64) {
	reward = unit(reward)
	p.arm.alpha += reward
	p.arm.beta += 1 - reward
	p.arm.model.learn(&p.x, reward, r.cfg.ForgetRate, r.cfg.Lambda)
}
