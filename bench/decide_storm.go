package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/router"
)

// stormTurn is for how long decisions are timed before it is another condition's turn.
const stormTurn = 150 * time.Millisecond

// measureStorm compares the time of a decision, hashing apart, while nothing else
// happens with that while events are applied as fast as one core can.
//
// What another core does slows this one down where they share parts of the machine.
// So the time is printed too while another core hashes.
func measureStorm(ctx context.Context, o options, r *report, s decideScale) error {
	f, err := newDecideFleet(ctx, s, router.Config{Decisions: keptDecisions})
	if err != nil {
		return err
	}
	defer f.close()
	w := f.storm()
	conditions := []struct {
		name string
		busy func(stop *atomic.Bool) error // on another goroutine
	}{
		{"idle", nil},
		{"storm", func(stop *atomic.Bool) error { return w.rage(f.router, stop) }},
		{"hashing", func(stop *atomic.Bool) error {
			for a := f.asker(0); !stop.Load(); {
				a.hash()
			}
			return nil
		}},
	}
	const idle, storm, hashing = 0, 1, 2
	all := make([][]time.Duration, len(conditions))
	half := make([][]float64, len(conditions)) // p50 by round, in nanoseconds
	turns := []int{idle, storm, hashing}
	a := f.asker(0)
	took := make([]time.Duration, 0, 1<<20)
	for range o.rounds {
		for _, i := range turns {
			if took, err = a.timed(ctx, took[:0], conditions[i].busy); err != nil {
				return fmt.Errorf("%s: %w", conditions[i].name, err)
			}
			slices.Sort(took)
			half[i] = append(half[i], float64(percentile(took, 0.5)))
			all[i] = append(all[i], took...)
		}
		slices.Reverse(turns)
	}
	ratios := make([]float64, o.rounds)
	for i := range ratios {
		ratios[i] = half[storm][i] / half[idle][i]
	}
	for i := range all {
		slices.Sort(all[i])
	}
	p := func(i int, p float64) string { return micros(percentile(all[i], p)) }
	r.ratio(fmt.Sprintf("decision amid events, %d tokens × %d ranks, p50", s.tokens(), s.ranks), p(idle, 0.5), p(storm, 0.5), ratios, stormLimit)
	r.note("decide: without hashing p99 %s, amid events %s; while another core hashes p50 %s, p99 %s; %.1f M events and %.1f M blocks a second",
		p(idle, 0.99), p(storm, 0.99), p(hashing, 0.5), p(hashing, 0.99), w.rate(w.events), w.rate(w.blocks))
	return nil
}

// timed returns how long placing takes for prompts that are hashed before, while busy
// runs on another goroutine, if it is not nil.
func (a *asker) timed(ctx context.Context, dst []time.Duration, busy func(stop *atomic.Bool) error) ([]time.Duration, error) {
	runtime.GC()
	var stop atomic.Bool
	var other sync.WaitGroup
	var failed error
	if busy != nil {
		other.Go(func() { failed = busy(&stop) })
	}
	var err error
	for end := time.Now().Add(stormTurn); err == nil; {
		a.hash()
		start := time.Now()
		err = a.place(ctx)
		now := time.Now()
		dst = append(dst, now.Sub(start))
		if now.After(end) {
			break
		}
	}
	stop.Store(true)
	other.Wait()
	if err == nil {
		err = failed
	}
	return dst, err
}

// storm is events that leave everything as it was: ranks go on with prompts that are
// asked about and begin others, and give all of it up.
type storm struct {
	batches        []*kv.Batch
	events, blocks int // in all of them
	applied        int // how often
	took           time.Duration
}

// stormBlocks is how many blocks an engine computes of a prompt before it says so: the
// tokens of a pass.
const stormBlocks = 32

// storm returns one in which every rank takes part.
func (f *decideFleet) storm() *storm {
	const perRank = 4
	rng := rand.New(rand.NewPCG(7, 8))
	w := &storm{}
	for range perRank {
		for k := range f.ranks {
			p := &f.asked[rng.IntN(len(f.asked))]
			blocks := kv.AppendBlocks(nil, f.seed, p.tokens, decideBlock)
			from := min(p.cut, f.held[p.family][k])
			if k == p.ran {
				from = p.before
			}
			w.batches = append(w.batches, storing(f.source(k), blocks, from, min(from+stormBlocks, len(blocks))))
			other := kv.AppendBlocks(nil, f.seed, randomTokens(nil, rng, stormBlocks*decideBlock), decideBlock)
			w.batches = append(w.batches, storing(f.source(k), other, 0, len(other)))
		}
	}
	for _, b := range w.batches {
		w.batches = append(w.batches, removing(b))
	}
	for _, b := range w.batches {
		w.events += len(b.Events)
		for _, ev := range b.Events {
			w.blocks += len(ev.Blocks)
		}
	}
	return w
}

// rage applies all of it again and again until it is to stop.
func (w *storm) rage(to kv.Applier, stop *atomic.Bool) error {
	start := time.Now()
	defer func() { w.took += time.Since(start) }()
	for !stop.Load() {
		for _, b := range w.batches {
			if err := to.Apply(b); err != nil {
				return err
			}
		}
		w.applied++
	}
	return nil
}

// rate returns how many millions a second were applied of what has n in all batches.
func (w *storm) rate(n int) float64 {
	return float64(n) * float64(w.applied) / w.took.Seconds() / 1e6
}

// measureLock prints for how long a placement keeps others from the pool, alone and
// when all cores place requests.
func measureLock(ctx context.Context, _ options, r *report, s decideScale) error {
	times := min(20_000, max(1000, 1<<23/s.blocks))
	held := make([]time.Duration, times*runtime.GOMAXPROCS(0))
	var n atomic.Int64
	f, err := newDecideFleet(ctx, s, router.Config{Decisions: keptDecisions, LockHeld: func(d time.Duration) {
		if i := int(n.Add(1)) - 1; i < len(held) {
			held[i] = d
		}
	}})
	if err != nil {
		return err
	}
	defer f.close()
	p := func(p float64) string {
		got := held[:min(int(n.Load()), len(held))]
		slices.Sort(got)
		return micros(percentile(got, p))
	}
	a := f.asker(0)
	n.Store(0)
	for range times {
		if err := a.decide(ctx); err != nil {
			return err
		}
	}
	alone, alone99 := p(0.5), p(0.99)
	n.Store(0)
	if _, err := f.everywhere(ctx, times); err != nil {
		return err
	}
	r.note("decide: a placement of %d tokens over %d ranks holds the lock for %s, p99 %s; with all cores placing %s, p99 %s",
		s.tokens(), s.ranks, alone, alone99, p(0.5), p(0.99))
	return nil
}

// everywhere hashes and places so many prompts on each core and returns how long it
// takes.
func (f *decideFleet) everywhere(ctx context.Context, times int) (time.Duration, error) {
	var g errgroup.Group
	start := time.Now()
	cores := runtime.GOMAXPROCS(0)
	for k := range cores {
		a := f.asker(k * len(f.asked) / cores)
		g.Go(func() error {
			for range times {
				if err := a.decide(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	return time.Since(start), err
}
