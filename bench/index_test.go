package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
	"github.com/stator-ai/stator/internal/trace"
)

// talks returns a trace in blocks of 64 tokens: conversations that begin alike and go
// on turn by turn.
func talks(conversations, turns int) *trace.Trace {
	tr := &trace.Trace{BlockSize: 64}
	next := uint32(1)
	for c := range conversations {
		ids := []uint32{0}
		for t := range turns {
			for range 3 {
				ids = append(ids, next)
				next++
			}
			tr.Requests = append(tr.Requests, trace.Request{
				Arrival: time.Duration(t)*time.Second + time.Duration(c)*time.Millisecond,
				Input:   64 * len(ids), Output: 20, Blocks: slices.Clone(ids),
			})
		}
	}
	return tr
}

// recorded returns what engines of 64 blocks make of a trace.
func recorded(t *testing.T, tr *trace.Trace, engines, blockSize int) *indexWorkload {
	t.Helper()
	w, err := recordIndex(t.Context(), tr, len(tr.Requests), engines, blockSize, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func TestIndexWorkload(t *testing.T) {
	const engines, size = 3, 16
	tr := talks(8, 4)
	w := recorded(t, tr, engines, size)
	if len(w.lookups) != len(tr.Requests) {
		t.Errorf("%d lookups, want %d", len(w.lookups), len(tr.Requests))
	}
	if held := w.stored - w.removed; held <= 0 || held > engines*64 || w.removed == 0 {
		t.Errorf("%d blocks stored and %d removed by %d engines of 64", w.stored, w.removed, engines)
	}
	// Each prompt is that of the request which came next.
	order := slices.Clone(tr.Requests)
	slices.SortStableFunc(order, func(a, b trace.Request) int { return int(a.Arrival - b.Arrival) })
	var at time.Duration
	seen := make([]int32, engines)
	lookups := int32(0)
	for i, op := range w.ops {
		if op.at < at {
			t.Fatalf("operation %d comes at %v, after %v", i, op.at, at)
		}
		at = op.at
		next := &lookups
		if op.engine >= 0 {
			next = &seen[op.engine]
		} else if got, want := len(w.prompt(op.number)), order[op.number].Input/size; got != want || at != order[op.number].Arrival {
			t.Errorf("lookup %d of %d blocks at %v, want %d", op.number, got, at, want)
		}
		if op.number != *next {
			t.Fatalf("operation %d: number %d, want %d", i, op.number, *next)
		}
		*next++
	}
	// Turns of a conversation are prefixes of each other.
	a, b := w.prompt(0), w.prompt(8)
	if !slices.Equal(a, b[:len(a)]) {
		t.Errorf("the first turn is not the beginning of the second")
	}
	for i, p := range a {
		want := kv.BlockID(p.Tokens)
		if i > 0 {
			want = kv.Chain(a[i-1].ID, p.Tokens)
		}
		if p.ID != want {
			t.Errorf("block %d has sequence hash %x, want %x", i, p.ID, want)
		}
	}
}

func TestIndexLanes(t *testing.T) {
	w := &indexWorkload{ops: []indexOp{{0, -1, 0}, {1, 0, 0}, {2, 1, 0}, {3, -1, 1}, {4, 2, 0}, {5, 0, 1}}}
	want := [][]indexOp{
		{{0, -1, 0}, {1, 0, 0}, {4, 2, 0}, {5, 0, 1}},
		{{2, 1, 0}, {3, -1, 1}},
	}
	if diff := cmp.Diff(want, w.lanes(2), cmp.AllowUnexported(indexOp{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestIndexersAgree plays a workload from several goroutines and has everyone compared
// with everyone else, as the measurement does.
func TestIndexersAgree(t *testing.T) {
	w := recorded(t, talks(12, 4), 4, 16)
	var r report
	if err := compareIndexers(t.Context(), options{rounds: 2, log: io.Discard}, &r, w); err != nil {
		t.Fatal(err)
	}
	if len(r.rows) != len(indexers)-1 {
		t.Errorf("%d rows, want one for each baseline", len(r.rows))
	}
}

// forgetful is an index that misses removals.
type forgetful struct{ *mapIndex }

func (f forgetful) Apply(b *kv.Batch) error {
	kept := slices.DeleteFunc(slices.Clone(b.Events), func(ev kv.Event) bool { return ev.Kind == kv.Removed })
	return f.mapIndex.Apply(&kv.Batch{Source: b.Source, Seq: b.Seq, Events: kept})
}

func TestIndexersDiffer(t *testing.T) {
	w := recorded(t, talks(12, 4), 2, 16)
	answers := func(x indexer) [][]kvindex.Overlap {
		if _, err := w.play(x, w.lanes(2)); err != nil {
			t.Fatal(err)
		}
		return w.answers(x, w.sample())
	}
	want := answers(newMapIndex())
	if err := w.compareAnswers(w.sample(), want, answers(forgetful{newMapIndex()})); err == nil {
		t.Error("an index that misses removals passes for a right one")
	}
	if err := w.compareAnswers(w.sample(), want, want); err != nil {
		t.Error(err)
	}
	nothing := make([][]kvindex.Overlap, len(want))
	if err := w.compareAnswers(w.sample(), nothing, nothing); err == nil {
		t.Error("no error when nothing is found")
	}
}

// TestIndexBaselines compares the baselines with the index event by event: copies,
// blocks that go before those behind them, and clears.
func TestIndexBaselines(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		// Four prompts that share beginnings of 6, 3 and 1 blocks.
		var prompts [][]kv.Block
		for p, shared := range []int{0, 6, 3, 1} {
			var locals []kv.Block
			if p > 0 {
				locals = slices.Clone(prompts[0][:shared])
			}
			for i := len(locals); i < 10; i++ {
				local := kv.LocalHash(100*p + i + 1)
				id := kv.BlockID(local)
				if i > 0 {
					id = kv.Chain(locals[i-1].ID, local)
				}
				locals = append(locals, kv.Block{ID: id, Tokens: local})
			}
			prompts = append(prompts, locals)
		}
		all := make([]indexer, len(indexers))
		for i := range all {
			all[i] = indexers[i].make()
		}
		held := map[kv.Source]map[kv.BlockID]int{}
		for step := range 150 {
			src := kv.Source{Worker: kv.WorkerID(rng.IntN(3) + 1), Rank: rng.Uint32N(2)}
			if held[src] == nil {
				held[src] = map[kv.BlockID]int{}
			}
			b := randomBatch(rng, src, prompts[rng.IntN(len(prompts))], held[src])
			for i, x := range all {
				if err := x.Apply(b); err != nil {
					t.Fatalf("%s: %v", indexers[i].name, err)
				}
			}
			w := &indexWorkload{}
			for _, p := range prompts {
				w.lookups = append(w.lookups, span{int32(len(w.prompts)), int32(len(w.prompts) + len(p))})
				w.prompts = append(w.prompts, p...)
			}
			want := w.answers(all[len(all)-1], w.sample())
			for i, x := range all {
				if diff := cmp.Diff(want, w.answers(x, w.sample())); diff != "" {
					t.Fatalf("seed %d, step %d: %s after %+v: -want +got\n%s", seed, step, indexers[i].name, b, diff)
				}
			}
		}
	}
}

// randomBatch returns something that an engine may say which holds so many copies of
// blocks, and notes what it then holds.
func randomBatch(rng *rand.Rand, src kv.Source, prompt []kv.Block, held map[kv.BlockID]int) *kv.Batch {
	name := func(b kv.Block) kv.Block { return kv.Block{ID: engineName(src, b.ID), Tokens: b.Tokens} }
	ev := kv.Event{Counted: true}
	switch n := rng.IntN(20); {
	case n == 0:
		ev.Kind = kv.Cleared
		clear(held)
	case n < 10: // behind a block that is held, or at the beginning
		ev.Kind = kv.Stored
		from := rng.IntN(len(prompt))
		for from > 0 && held[name(prompt[from-1]).ID] == 0 {
			from--
		}
		if from > 0 {
			ev.Parent, ev.HasParent = name(prompt[from-1]).ID, true
		}
		for _, b := range prompt[from : from+1+rng.IntN(len(prompt)-from)] {
			ev.Blocks = append(ev.Blocks, name(b))
			held[name(b).ID]++
		}
	default: // anything, held or not
		ev.Kind = kv.Removed
		for _, i := range rng.Perm(len(prompt))[:1+rng.IntN(3)] {
			b := name(prompt[i])
			ev.Blocks = append(ev.Blocks, kv.Block{ID: b.ID})
			held[b.ID] = max(held[b.ID]-1, 0)
		}
	}
	return &kv.Batch{Source: src, Events: []kv.Event{ev}}
}

// TestRadixUnlinks has ranks come and go: an empty tree has no nodes.
func TestRadixUnlinks(t *testing.T) {
	x := newRadixIndex()
	c := contents{salt: 1, scale: indexScale{prompts: 5, length: 20}}
	a, b := kv.Source{Worker: 1}, kv.Source{Worker: 2}
	for _, f := range []func() error{
		func() error { return c.fill(x, a) },
		func() error { return c.fill(x, b) },
		func() error { return c.empty(x, a) },
	} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(x.root.children); n != 5 {
		t.Errorf("%d prompts while a rank holds 5", n)
	}
	if err := x.Apply(&kv.Batch{Source: b, Events: []kv.Event{{Kind: kv.Cleared}}}); err != nil {
		t.Fatal(err)
	}
	if n := len(x.root.children); n != 0 {
		t.Errorf("%d prompts are left of an empty tree", n)
	}
}

// TestRadixRank has two ask at once for a rank that is new: there is one of it.
func TestRadixRank(t *testing.T) {
	const rounds = 20_000
	x := newRadixIndex()
	var got [2][rounds]*radixRank
	var begun atomic.Int64
	var asked sync.WaitGroup
	for k := range got {
		asked.Go(func() {
			for i := range rounds {
				for begun.Add(1); begun.Load() < int64(len(got)*(i+1)); {
					runtime.Gosched() // until the other is here
				}
				got[k][i] = x.rank(kv.Source{Worker: kv.WorkerID(i)})
			}
		})
	}
	asked.Wait()
	if got[0] != got[1] || len(x.sources) != rounds {
		t.Errorf("%d ranks, want %d", len(x.sources), rounds)
	}
}

// TestIndexHeld measures the memory of a workload.
func TestIndexHeld(t *testing.T) {
	w := recorded(t, talks(12, 4), 4, 16)
	var r report
	if err := measureHeld(&r, w); err != nil {
		t.Fatal(err)
	}
	if len(r.rows) != 1 || !strings.HasSuffix(r.rows[0].stator, " B") || r.rows[0].stator[0] == '-' {
		t.Errorf("rows are %+v", r.rows)
	}
}

// TestRemoveRank: what counts of a removal is over when it is, however short.
func TestRemoveRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		removal, took, err := removeRank(t.Context(), indexScale{prompts: 1, length: 1})
		if err != nil || len(took) == 0 {
			t.Errorf("%d lookups, %v", len(took), err)
		}
		if waited := time.Since(start); waited > 0 || removal > 0 {
			t.Errorf("it waited for %v", waited)
		}
	})
}

func TestIndexFigures(t *testing.T) {
	small := indexScale{prompts: 20, length: 5}
	o := options{rounds: 1, log: io.Discard}
	for _, test := range []struct {
		name string
		run  func(context.Context, options, *report, indexScale) error
		rows int
	}{
		{"memory", measureIndexMemory, 4},
		{"removal", measureRankRemoval, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			var r report
			if err := test.run(t.Context(), o, &r, small); err != nil {
				t.Fatal(err)
			}
			if len(r.rows) != test.rows {
				t.Errorf("%d rows, want %d", len(r.rows), test.rows)
			}
			var out strings.Builder
			if err := r.write(&out); err != nil || strings.Contains(out.String(), "%!") {
				t.Errorf("%v\n%s", err, &out)
			}
		})
	}
}

func TestPercentile(t *testing.T) {
	var ds []time.Duration
	for i := range 200 {
		ds = append(ds, time.Duration(i))
	}
	got := fmt.Sprint(percentile(ds, 0), percentile(ds, 0.5), percentile(ds, 0.99), percentile(ds, 1), percentile(ds[:1], 0.99))
	if want := "0s 100ns 198ns 199ns 0s"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAllocations(t *testing.T) {
	var sink []byte
	if got := allocations(100, func() { sink = make([]byte, 1<<10) }); got < 1 || got > 1.5 {
		t.Errorf("%v allocations of %d bytes, want 1", got, len(sink))
	}
}
