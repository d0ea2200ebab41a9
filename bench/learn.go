package main

import (
	"context"
	"fmt"
)

// measureLearn compares stator that infers hints with a bare reverse proxy, as measureUnary
// does with stator that infers none, and has the same targets. The latter is shown beside it.
func measureLearn(ctx context.Context, o options, r *report) error {
	engine, err := startReplayer(ctx, o)
	if err != nil {
		return err
	}
	defer engine.stop()
	var ps []*process
	for _, begin := range []func() (*process, error){
		func() (*process, error) { return startProxy(ctx, "bare reverse proxy", kindReverse, engine.addr) },
		func() (*process, error) { return startLearner(ctx, o, engine.addr) },
		func() (*process, error) { return startStator(ctx, "stator", o, engine.addr, "round-robin") },
	} {
		p, err := begin()
		if err != nil {
			return err
		}
		defer p.stop()
		ps = append(ps, p)
	}
	for _, m := range []struct {
		name  string
		body  []byte
		limit float64
	}{
		{"request that is learned from, %d B", smallChat(), smallLimit},
		{"request that is learned from, %d KB", largeChat(largeBody), largeLimit},
	} {
		size := len(m.body)
		if size >= largeBody {
			size /= 1000
		}
		want, err := engine.record(ctx, m.body)
		if err != nil {
			return err
		}
		l := unaryLoad(engine, fmt.Sprintf(m.name, size), m.body, want)
		rounds, err := l.compare(ctx, o, ps)
		if err != nil {
			return err
		}
		r.compared(l, ps, rounds, m.limit)
	}
	return nil
}

// startLearner runs stator in front of the engine at addr so that it infers hints.
func startLearner(ctx context.Context, o options, addr string) (*process, error) {
	return start(ctx, "stator, learn-hints", o.stator, "serve", "--listen", "127.0.0.1:0", "--engine", "http://"+addr,
		"--router-mode", "round-robin", "--learn-hints")
}
