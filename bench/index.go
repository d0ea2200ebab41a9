package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// The targets of the index.
const (
	wantOverMaps  = 20 // times the block operations per second of maps behind a lock
	wantOverRadix = 5  // the same of a tree with a lock per node

	// engineBlocks is the size of an engine's cache: 262,144 tokens in blocks of 16, a
	// million in blocks of 64. The conversations overwrite each cache between once and
	// some fifteen times.
	engineBlocks = 16384

	indexRounds = 3 // at most; a round of all takes a while
)

// indexWorkloads are the fleets, and how many of the 12,031 requests of an hour they
// serve: with small blocks, which make more work, those of the first half.
var indexWorkloads = []struct{ engines, blockSize, requests int }{
	{16, 16, 6000},
	{64, 16, 6000},
	{16, 64, math.MaxInt},
	{64, 64, math.MaxInt},
}

// indexer is what is compared. Apply keeps and changes nothing of the batch, and what it was told
// is visible to Match when it returns. Match may answer in any order.
type indexer interface {
	kv.Applier
	Match(dst []kvindex.Overlap, prompt []kv.Block) []kvindex.Overlap
}

// indexers are the index and its baselines.
var indexers = []struct {
	name string
	want float64 // times as fast as this is the index; 0 for the index itself
	make func() indexer
}{
	{"maps", wantOverMaps, func() indexer { return newMapIndex() }},
	{"radix tree", wantOverRadix, func() indexer { return newRadixIndex() }},
	{"stator", 0, func() indexer { return kvindex.New(kvindex.Config{}) }},
}

// measureIndex compares the index with maps behind a lock and with a tree that has a
// lock per node, under what a router asks of it while simulated engines serve
// conversations; and measures its memory, long lookups, and lookups while a rank is
// removed.
//
// Time stops when every operation has had its effect. Afterwards all are asked about
// the same prompts and have to give the same answers. What decides is block
// operations, blocks looked up, stored and removed, per second and core: by the clock
// on the wall, because a core that waits for a lock does nothing else.
func measureIndex(ctx context.Context, o options, r *report) error {
	tr, err := conversations()
	if err != nil {
		return err
	}
	o.rounds = min(o.rounds, indexRounds)
	for _, c := range indexWorkloads {
		o.progress("index: %d workers, blocks of %d", c.engines, c.blockSize)
		w, err := recordIndex(ctx, tr, c.requests, c.engines, c.blockSize, engineBlocks)
		if err != nil {
			return err
		}
		err = compareIndexers(ctx, o, r, w)
		if err == nil {
			err = measureHeld(r, w)
		}
		if err := errors.Join(err, w.close()); err != nil {
			return fmt.Errorf("%s: %w", w, err)
		}
	}
	r.note("index: engines of %d blocks, requests round robin; %d goroutines, each with the batches of its own engines and a share of the lookups",
		engineBlocks, runtime.GOMAXPROCS(0))
	if err := measureIndexMemory(ctx, o, r, fullScale); err != nil {
		return err
	}
	if err := measureRankRemoval(ctx, o, r, fullScale); err != nil {
		return err
	}
	return measureLongLookup(ctx, o, r)
}

func (w *indexWorkload) String() string {
	return fmt.Sprintf("%d workers, blocks of %d", w.engines, w.blockSize)
}

// compareIndexers measures one workload: several rounds in which everyone has a turn,
// in an order that turns around.
func compareIndexers(ctx context.Context, o options, r *report, w *indexWorkload) error {
	lanes := w.lanes(runtime.GOMAXPROCS(0))
	sample := w.sample()
	seconds, cpu := make([][]float64, len(indexers)), make([][]float64, len(indexers))
	turns := make([]int, len(indexers))
	for i := range turns {
		turns[i] = i
	}
	var want [][]kvindex.Overlap
	for range o.rounds {
		for _, i := range turns {
			if err := ctx.Err(); err != nil {
				return err
			}
			x := indexers[i].make()
			var took time.Duration
			used, err := spent(func() (err error) {
				took, err = w.play(x, lanes)
				return err
			})
			if err != nil {
				return fmt.Errorf("%s: %w", indexers[i].name, err)
			}
			seconds[i], cpu[i] = append(seconds[i], took.Seconds()), append(cpu[i], used)
			got := w.answers(x, sample)
			if want == nil {
				want = got
			}
			if err := w.compareAnswers(sample, want, got); err != nil {
				return fmt.Errorf("%s, compared with %s: %w", indexers[i].name, indexers[0].name, err)
			}
		}
		slices.Reverse(turns)
	}
	last := len(indexers) - 1
	rate := func(ops int, seconds []float64) float64 { return float64(ops) / median(seconds) / float64(len(lanes)) }
	for i, x := range indexers[:last] {
		r.speedup(fmt.Sprintf("index, %s, over %s", w, x.name),
			fmt.Sprintf("%.2f M/s", rate(w.blockOps(), seconds[i])/1e6),
			fmt.Sprintf("%.2f M/s", rate(w.blockOps(), seconds[last])/1e6),
			seconds[i], seconds[last], x.want)
	}
	r.note("index, %s: %d lookups of %.1f M blocks, %.2f M events that store %.1f M and remove %.1f M",
		w, len(w.lookups), float64(w.lookedUp)/1e6, float64(w.events)/1e6, float64(w.stored)/1e6, float64(w.removed)/1e6)
	var busy, old, waits []string
	for i, x := range indexers {
		busy = append(busy, fmt.Sprintf("%s %.2f", x.name, float64(w.blockOps())/median(cpu[i])/1e6))
		old = append(old, fmt.Sprintf("%s %.3f", x.name, rate(len(w.lookups)+w.events, seconds[i])/1e6))
		d, err := w.underLoad(ctx, x.make())
		if err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
		waits = append(waits, fmt.Sprintf("%s %s and %s", x.name, micros(percentile(d, 0.5)), micros(percentile(d, 0.99))))
	}
	r.note("index, %s: block operations, M per second of processor time: %s", w, strings.Join(busy, ", "))
	r.note("index, %s: requests and events, M per second and core: %s", w, strings.Join(old, ", "))
	r.note("index, %s: lookup while events come in, p50 and p99: %s", w, strings.Join(waits, ", "))
	return nil
}

// play gives every operation to an index, each lane on a goroutine of its own, and
// returns how long it takes until all have been done.
func (w *indexWorkload) play(x indexer, lanes [][]indexOp) (time.Duration, error) {
	begin := make(chan struct{})
	errs := make([]error, len(lanes))
	var ready, done sync.WaitGroup
	for k, ops := range lanes {
		ready.Add(1)
		done.Go(func() {
			dst := make([]kvindex.Overlap, 0, 2*w.engines)
			ready.Done()
			<-begin
			for _, op := range ops {
				if op.engine < 0 {
					dst = x.Match(dst[:0], w.prompt(op.number))
					continue
				}
				if err := x.Apply(w.batch(op)); err != nil {
					errs[k] = err
					return
				}
			}
		})
	}
	ready.Wait()
	start := time.Now()
	close(begin)
	done.Wait()
	return time.Since(start), errors.Join(errs...)
}

// sample returns the lookups by which indexes are compared: some from the whole hour,
// and the last ones, of which most is still held.
func (w *indexWorkload) sample() []int32 {
	const some, last = 500, 500
	n := len(w.lookups)
	var out []int32
	for i := 0; i < n-last; i += max(1, (n-last)/some) {
		out = append(out, int32(i))
	}
	for i := max(0, n-last); i < n; i++ {
		out = append(out, int32(i))
	}
	return out
}

// answers returns what an index says to some lookups, each sorted by rank.
func (w *indexWorkload) answers(x indexer, sample []int32) [][]kvindex.Overlap {
	out := make([][]kvindex.Overlap, len(sample))
	for k, i := range sample {
		out[k] = x.Match(nil, w.prompt(i))
		slices.SortFunc(out[k], func(a, b kvindex.Overlap) int {
			return cmp.Or(cmp.Compare(a.Source.Worker, b.Source.Worker), cmp.Compare(a.Source.Rank, b.Source.Rank))
		})
	}
	return out
}

// compareAnswers returns an error that names the first lookup to which the answers
// differ, or one if nothing was found at all.
func (w *indexWorkload) compareAnswers(sample []int32, want, got [][]kvindex.Overlap) error {
	found := false
	for k, i := range sample {
		if !slices.Equal(want[k], got[k]) {
			return fmt.Errorf("lookup %d of %d blocks: expected %v, got %v", i, len(w.prompt(i)), want[k], got[k])
		}
		found = found || len(got[k]) > 0
	}
	if !found {
		return fmt.Errorf("%d lookups: expected to find something", len(sample))
	}
	return nil
}
