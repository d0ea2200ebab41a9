package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// The targets of lookups.
const (
	removalLimit    = 5 * time.Millisecond // the 99th percentile while a rank is removed
	longLookupLimit = 0.5                  // of the time of hashing the prompt

	removalRounds = 5 // removals in a round, each of which lasts for few lookups
)

// underLoad plays all batches of a workload on one goroutine, for two seconds at most,
// and returns, sorted, how long lookups took that another made meanwhile: of requests
// that have come just before.
func (w *indexWorkload) underLoad(ctx context.Context, x indexer) ([]time.Duration, error) {
	const limit, recent = 2 * time.Second, 256
	runtime.GC()
	var arrived atomic.Int32 // requests
	var took []time.Duration
	var applied atomic.Bool
	ready := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		rng := rand.New(rand.NewPCG(1, 2))
		dst := make([]kvindex.Overlap, 0, 2*w.engines)
		took = make([]time.Duration, 0, 1<<20)
		close(ready)
		for {
			all, n := applied.Load(), arrived.Load()
			if all && (n == 0 || len(took) > 0) {
				return
			}
			if n == 0 {
				runtime.Gosched()
				continue
			}
			prompt := w.prompt(n - 1 - rng.Int32N(min(n, recent)))
			start := time.Now()
			dst = x.Match(dst[:0], prompt)
			took = append(took, time.Since(start))
		}
	})
	err := func() error {
		<-ready
		start := time.Now()
		for i, op := range w.ops {
			if op.engine < 0 {
				arrived.Add(1)
				continue
			}
			if err := x.Apply(w.batch(op)); err != nil {
				return err
			}
			if i%1024 == 0 && (time.Since(start) > limit || ctx.Err() != nil) {
				break
			}
		}
		return ctx.Err()
	}()
	applied.Store(true)
	looking.Wait()
	if err == nil && len(took) == 0 {
		err = errors.New("no lookup while events came in")
	}
	slices.Sort(took)
	return took, err
}

// percentile returns the value of sorted ones below which the share p of them is.
// There must be one.
func percentile(sorted []time.Duration, p float64) time.Duration {
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}

// measureRankRemoval removes a rank while another goroutine looks up prompts that it
// shares with a rank that stays.
func measureRankRemoval(ctx context.Context, o options, r *report, s indexScale) error {
	o.progress("index: removal of a rank of %d blocks", s.blocks())
	var all, removals []time.Duration
	for range removalRounds * o.rounds {
		removal, took, err := removeRank(ctx, s)
		if err != nil {
			return err
		}
		removals = append(removals, removal)
		all = append(all, took...)
	}
	slices.Sort(all)
	p99 := percentile(all, 0.99)
	r.rows = append(r.rows, row{
		what:   fmt.Sprintf("lookup while a rank of %s blocks is removed, p99", millions(s.blocks())),
		stator: micros(p99),
		target: fmt.Sprintf("≤ %d ms", removalLimit.Milliseconds()),
		ok:     p99 <= removalLimit,
	})
	r.note("index: removal of a rank of %s blocks takes %s; %d lookups during %d of them, the longest %s",
		millions(s.blocks()), micros(median(removals)), len(all), len(removals), micros(all[len(all)-1]))
	return nil
}

// removeRank returns how long the removal of a rank takes and how long lookups do
// meanwhile, of which there is one at least.
func removeRank(ctx context.Context, s indexScale) (removal time.Duration, took []time.Duration, err error) {
	x := kvindex.New(kvindex.Config{})
	c := contents{salt: 1, scale: s}
	leaves, stays := kv.Source{Worker: 1}, kv.Source{Worker: 2}
	for _, src := range []kv.Source{leaves, stays} {
		if err := c.fill(x, src); err != nil {
			return 0, nil, err
		}
	}
	prompts := make([][]kv.Block, min(s.prompts, 1000))
	for i := range prompts {
		prompts[i] = c.prompt(i * (s.prompts / len(prompts)))
	}
	runtime.GC()
	var phase atomic.Int32 // 0 before the removal, 1 from its beginning on, 2 from its end on
	warm := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		dst := make([]kvindex.Overlap, 0, 4)
		took = make([]time.Duration, 0, 1<<20)
		// Those count that overlap with the removal, or one if it was too short for any.
		for i := 0; phase.Load() < 2 || len(took) == 0; i++ {
			start := time.Now()
			dst = x.Match(dst[:0], prompts[i%len(prompts)])
			d := time.Since(start)
			if phase.Load() > 0 {
				took = append(took, d)
			}
			if i == len(prompts) {
				close(warm)
			}
		}
	})
	<-warm
	phase.Store(1)
	start := time.Now()
	known := x.RemoveRank(leaves)
	removal = time.Since(start)
	phase.Store(2)
	looking.Wait()
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	if !known {
		return 0, nil, errors.New("removal of a rank: expected one that is known")
	}
	for i, p := range prompts {
		if got, want := x.Match(nil, p), deviceOverlap(stays, len(p)); !slices.Equal(got, []kvindex.Overlap{want}) {
			return 0, nil, fmt.Errorf("lookup %d after the removal of a rank: expected %v, got %v", i, want, got)
		}
	}
	return removal, took, nil
}

// measureLongLookup compares the lookup of a prompt of which 64 ranks hold more or
// less with hashing its tokens, and counts what a lookup allocates.
func measureLongLookup(ctx context.Context, o options, r *report) error {
	const ranks, blocks, blockSize, repeats = 64, 8192, 16, 32
	o.progress("index: lookup of %d blocks over %d ranks", blocks, ranks)
	rng := rand.New(rand.NewPCG(3, 4))
	tokens := make([]uint32, blocks*blockSize)
	for i := range tokens {
		tokens[i] = rng.Uint32N(150_000)
	}
	seed := kv.HashSeed("", "")
	prompt := kv.AppendBlocks(nil, seed, tokens, blockSize)
	x := kvindex.New(kvindex.Config{})
	for k, d := range rng.Perm(ranks) {
		src := kv.Source{Worker: kv.WorkerID(k + 1)}
		held := slices.Clone(prompt[:(d+1)*blocks/ranks])
		for i := range held {
			held[i].ID = engineName(src, held[i].ID)
		}
		if err := x.Apply(&kv.Batch{Source: src, Events: []kv.Event{{Kind: kv.Stored, Counted: true, Blocks: held}}}); err != nil {
			return err
		}
	}
	dst := make([]kvindex.Overlap, 0, ranks)
	hashed := make([]kv.Block, 0, blocks)
	var hashing, looking, ratios []float64 // seconds
	for range o.rounds {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := spent(func() error {
			for range repeats {
				hashed = kv.AppendBlocks(hashed[:0], seed, tokens, blockSize)
			}
			return nil
		})
		if err != nil {
			return err
		}
		l, err := spent(func() error {
			for range repeats {
				dst = x.Match(dst[:0], prompt)
			}
			return nil
		})
		if err != nil {
			return err
		}
		hashing, looking, ratios = append(hashing, h/repeats), append(looking, l/repeats), append(ratios, l/h)
	}
	if len(dst) != ranks {
		return fmt.Errorf("lookup of %d blocks: expected %d ranks, got %d", blocks, ranks, len(dst))
	}
	micro := func(seconds []float64) string { return micros(time.Duration(median(seconds) * 1e9)) }
	r.ratio(fmt.Sprintf("lookup of %d blocks over %d ranks, to hashing them", blocks, ranks), micro(hashing), micro(looking), ratios, longLookupLimit)
	allocs := allocations(1000, func() { dst = x.Match(dst[:0], prompt) })
	r.rows = append(r.rows, row{
		what:   "allocations per lookup",
		stator: fmt.Sprintf("%.2g", allocs),
		target: "0",
		ok:     allocs < 0.01, // the runtime may make one of its own
	})
	return nil
}

// allocations returns how many allocations a call of f makes, on average over n.
func allocations(n int, f func()) float64 {
	f()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range n {
		f()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(n)
}
