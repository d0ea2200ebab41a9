package main

import (
	"context"
	"fmt"
)

// learnLimit is the target: what inferring hints adds to all else that stator does.
const learnLimit = 1.25

// measureLearn compares stator that infers hints with stator that infers none. A bare
// reverse proxy is shown beside them: measureUnary holds stator against that.
func measureLearn(ctx context.Context, o options, r *report) error {
	engine, err := startReplayer(ctx, o)
	if err != nil {
		return err
	}
	defer engine.stop()
	var ps []*process
	for _, begin := range []func() (*process, error){
		func() (*process, error) { return startStator(ctx, "stator", o, engine.addr, "round-robin") },
		func() (*process, error) { return startLearner(ctx, o, engine.addr) },
		func() (*process, error) { return startProxy(ctx, "bare reverse proxy", kindReverse, engine.addr) },
	} {
		p, err := begin()
		if err != nil {
			return err
		}
		defer p.stop()
		ps = append(ps, p)
	}
	return compareUnary(ctx, o, engine, "request that is learned from", ps, func(l *load, rounds [][]round, _ bool) error {
		r.learned(l, ps, rounds)
		return nil
	})
}

// learned adds the row of a load that stator was measured with, first without learning and
// then with it.
func (r *report) learned(l *load, ps []*process, rounds [][]round) {
	r.compared(l, ps, rounds, learnLimit)
	r.rows[len(r.rows)-1].target = fmt.Sprintf("≤ %.2f×", learnLimit)
}

// startLearner runs stator in front of the engine at addr so that it infers hints.
func startLearner(ctx context.Context, o options, addr string) (*process, error) {
	return start(ctx, "stator, learn-hints", o.stator, "serve", "--listen", "127.0.0.1:0", "--engine", "http://"+addr,
		"--router-mode", "round-robin", "--learn-hints")
}
