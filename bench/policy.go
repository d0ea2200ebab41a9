package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/stator-ai/stator/internal/sched"
)

// The targets of policies that learn.
const (
	// policyLimit is what a decision may take, in decisions of the cost selector: three of
	// its costs for each of the sixteen samples that the safe policy takes of a rank.
	policyLimit = 48
	// policyP99Few and policyP99Many are for single decisions between up to 8 ranks, and more.
	policyP99Few, policyP99Many = 20 * time.Microsecond, 150 * time.Microsecond
	policyFeedback              = 5 * time.Microsecond
)

// policyScale is how much of policies is measured.
type policyScale struct {
	ranks   []int
	moments int         // that are different
	learned int         // decisions that a policy has heard of before
	calls   int         // in a turn, with 8 ranks
	singles int         // that are timed one by one, in a round
	fleet   decideScale // of a rank, where it has what runs meanwhile; ranks do not count
}

var policyScaleFull = policyScale{
	ranks: []int{8, 64}, moments: 32, learned: 5000, calls: 2048, singles: 4000,
	fleet: decideScale{blocks: 64, families: 32, prompts: 1024, live: 8},
}

// measurePolicy measures decisions of policies that learn: by themselves, on the candidates
// that the cost selector is given, and as part of a placement. A policy decides after the cost
// selector has: the ratio is of what it adds.
func measurePolicy(ctx context.Context, o options, r *report) error {
	return measurePolicies(ctx, o, r, policyScaleFull)
}

func measurePolicies(ctx context.Context, o options, r *report, s policyScale) error {
	table := [][]string{{"policy", "ranks", "load", "a choice", "between", "decision", "p99", "feedback"}}
	for _, ranks := range s.ranks {
		for _, pc := range []policyCase{evenLoad, mixedLoad} {
			o.progress("policy: %d ranks, %s", ranks, pc.name)
			figures, err := s.measureLearners(ctx, o.rounds, pc, ranks)
			if err != nil {
				return fmt.Errorf("%d ranks, %s: %w", ranks, pc.name, err)
			}
			for i := range figures {
				table = append(table, figures[i].cells())
			}
			if pc.name == evenLoad.name {
				if err := r.policies(ranks, figures); err != nil {
					return err
				}
			}
		}
	}
	r.tables = append(r.tables, table)
	return s.measurePlacements(ctx, o, r)
}

// policyFigures are what was measured of a policy, in seconds by round.
type policyFigures struct {
	name             string
	ranks            int
	load             string
	chose, among     float64 // share of decisions with a choice, and between how many ranks
	decide, feedback []float64
	cost             []float64 // of the cost selector on the same candidates
	p99              []float64
	allocations      float64 // by a decision and its feedback
}

func (f *policyFigures) cells() []string {
	return []string{
		f.name, fmt.Sprint(f.ranks), f.load, fmt.Sprintf("%.0f %%", 100*f.chose), fmt.Sprintf("%.1f", f.among),
		seconds(f.decide), seconds(f.p99), seconds(f.feedback),
	}
}

// policies adds the rows of policies between so many ranks, all of which could be chosen.
// One row goes for all policies where the slowest decides.
func (r *report) policies(ranks int, figures []policyFigures) error {
	what := fmt.Sprintf("%d ranks, all admissible", ranks)
	p99Limit := policyP99Few
	if ranks > 8 {
		p99Limit = policyP99Many
	}
	var p99, feedback, both, allocations worst
	for i := range figures {
		f := &figures[i]
		if f.chose < 1 || f.among != float64(ranks) {
			return fmt.Errorf("%s, %s: a choice in %.3f of the decisions, between %.1f", f.name, what, f.chose, f.among)
		}
		ratios := make([]float64, len(f.decide))
		for i := range ratios {
			ratios[i] = f.decide[i] / f.cost[i]
		}
		r.ratio(fmt.Sprintf("deciding by policy %s, %s, to the cost", f.name, what), nanos(f.cost, 1), seconds(f.decide), ratios, policyLimit)
		p99.add(median(f.p99), f.name)
		feedback.add(median(f.feedback), f.name)
		both.add(median(f.decide)+median(f.feedback), f.name)
		allocations.add(f.allocations, f.name)
	}
	r.atMost(fmt.Sprintf("single decision, %s, p99", what), p99, p99Limit)
	r.atMost(fmt.Sprintf("feedback, %d ranks", ranks), feedback, policyFeedback)
	r.note("policy: %s: a core makes %.0f k decisions with feedback a second by the slowest policy, %s", what, 1/both.value/1e3, both.who)
	r.rows = append(r.rows, row{
		what:   fmt.Sprintf("allocations per decision of a policy, %s", what),
		stator: fmt.Sprintf("%.2g", allocations.value),
		target: "0",
		ok:     allocations.value < 0.01, // the runtime may make one of its own
	})
	return nil
}

// worst is the largest of several values, and whose it is.
type worst struct {
	value float64
	who   string
}

func (w *worst) add(v float64, who string) {
	if w.who == "" || v > w.value {
		*w = worst{v, who}
	}
}

// atMost adds the row of a time in seconds.
func (r *report) atMost(what string, w worst, limit time.Duration) {
	d := time.Duration(w.value * 1e9)
	r.rows = append(r.rows, row{
		what:   what,
		stator: fmt.Sprintf("%s (%s)", micros(d), w.who),
		target: fmt.Sprintf("≤ %g µs", limit.Seconds()*1e6),
		ok:     d <= limit,
	})
}

// measureLearners has policies and the cost selector take turns at the same moments. Each
// policy has learned before, and has as many decisions under way as ranks have requests.
func (s *policyScale) measureLearners(ctx context.Context, rounds int, pc policyCase, ranks int) ([]policyFigures, error) {
	moments := pc.moments(s.moments, ranks)
	var learners []*learner
	var figures []policyFigures
	for _, name := range policyNames {
		l, err := newLearner(name, moments)
		if err != nil {
			return nil, err
		}
		f := policyFigures{name: name, ranks: ranks, load: pc.name}
		if f.chose, f.among, err = l.learn(s.learned, 8*ranks); err != nil {
			return nil, err
		}
		learners, figures = append(learners, l), append(figures, f)
	}
	calls := max(1, 8*s.calls/ranks)
	for range rounds {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		cost, err := policyRound(learners, figures, moments, calls)
		if err != nil {
			return nil, err
		}
		for i, l := range learners {
			figures[i].cost = append(figures[i].cost, cost)
			p99, err := l.single(s.singles)
			if err != nil {
				return nil, err
			}
			figures[i].p99 = append(figures[i].p99, p99.Seconds())
		}
	}
	for i, l := range learners {
		var failed error
		figures[i].allocations = allocations(1000, func() {
			l.step()
			failed = errors.Join(failed, l.hear(1))
		})
		if failed != nil {
			return nil, failed
		}
	}
	return figures, nil
}

// policyRound appends to the figures of each policy the processor time of a decision and of
// its feedback, and returns that of the cost selector: medians over turns, which they take
// after each other.
func policyRound(learners []*learner, figures []policyFigures, moments []moment, calls int) (float64, error) {
	const turns = 12
	runtime.GC()
	cost := sched.DefaultCost()
	var costs []float64
	decide, feedback := make([][]float64, len(learners)), make([][]float64, len(learners))
	for range turns {
		took, err := perCall(calls, func() error {
			for n := range calls {
				cost.Select(&moments[n%len(moments)].decision)
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
		costs = append(costs, took)
		for i, l := range learners {
			took, err := perCall(calls, func() error {
				for range calls {
					l.step()
				}
				return nil
			})
			if err != nil {
				return 0, err
			}
			decide[i] = append(decide[i], took)
			if took, err = perCall(calls, func() error { return l.hear(calls) }); err != nil {
				return 0, err
			}
			feedback[i] = append(feedback[i], took)
		}
	}
	for i := range figures {
		figures[i].decide = append(figures[i].decide, median(decide[i]))
		figures[i].feedback = append(figures[i].feedback, median(feedback[i]))
	}
	return median(costs), nil
}

// perCall returns the processor time of a call in seconds, given how many f makes.
func perCall(calls int, f func() error) (float64, error) {
	before, err := cpuTime(os.Getpid())
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := cpuTime(os.Getpid())
	return (after - before).Seconds() / float64(calls), err
}

// single returns the time below which 99 % of n decisions take, on the clock on the wall.
func (l *learner) single(n int) (time.Duration, error) {
	took := make([]time.Duration, 0, n)
	for range n {
		start := time.Now()
		l.step()
		took = append(took, time.Since(start))
		if err := l.hear(1); err != nil {
			return 0, err
		}
	}
	slices.Sort(took)
	return percentile(took, 0.99), nil
}
