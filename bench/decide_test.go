package main

import (
	"io"
	"maps"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/router"
)

// smallFleet returns a fleet that is soon made.
func smallFleet(t *testing.T, ranks int) *decideFleet {
	t.Helper()
	s := decideScale{ranks: ranks, blocks: 100, families: 3, prompts: 40, live: 60}
	f, err := newDecideFleet(t.Context(), s, router.Config{Decisions: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	return f
}

// costs returns what every prompt would cost on every rank, in tokens.
func (f *decideFleet) costs() [][]int {
	var out [][]int
	a := f.asker(0)
	for range f.asked {
		a.hash()
		loads, _, _ := f.router.PotentialLoads(f.request(a.blocks, nil))
		var costs []int
		for _, l := range loads {
			costs = append(costs, l.PrefillTokens+decideBlock*l.DecodeBlocks)
		}
		out = append(out, costs)
	}
	return out
}

// TestPlainRouter compares the costs of the router and its baseline, and their
// choices.
func TestPlainRouter(t *testing.T) {
	for _, ranks := range []int{1, 7, 70} {
		f := smallFleet(t, ranks)
		p := newPlainRouter(ranks)
		if err := p.rebuild(f); err != nil {
			t.Fatalf("%d ranks: %v", ranks, err)
		}
		want := f.costs()
		a := f.asker(0)
		shared := false
		for i := range f.asked {
			if err := a.decide(t.Context()); err != nil {
				t.Fatal(err)
			}
			b := p.place(a.blocks)
			p.done(&b)
			var got []int
			for _, c := range p.costs {
				got = append(got, c.total)
			}
			if diff := cmp.Diff(want[i], got); diff != "" {
				t.Fatalf("%d ranks, prompt %d: costs (-router +plain)\n%s", ranks, i, diff)
			}
			if err := p.agrees(a.blocks, f.rank(&a.placement)); err != nil {
				t.Errorf("%d ranks, prompt %d: %v", ranks, i, err)
			}
			shared = shared || a.placement.Last().OverlapBlocks > 0
		}
		if !shared {
			t.Errorf("%d ranks: no prompt goes where some of it is", ranks)
		}
	}
}

func TestPlainRouterDisagrees(t *testing.T) {
	p := newPlainRouter(2)
	prompt := contents{salt: 1, scale: indexScale{prompts: 1, length: 4}}.prompt(0)
	if err := p.index.Apply(storing(kv.Source{Worker: 2}, prompt, 0, 3)); err != nil {
		t.Fatal(err)
	}
	if err := p.agrees(prompt, 1); err != nil {
		t.Error(err)
	}
	const want = "rank 1 costs 80, rank 0 was chosen and costs 128"
	if err := p.agrees(prompt, 0); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestPlainRouterDone(t *testing.T) {
	p := newPlainRouter(1)
	c := contents{salt: 1, scale: indexScale{prompts: 1, length: 4}}
	prompt := c.prompt(0)
	a, b := p.place(prompt[:3]), p.place(prompt)
	p.prefilled(&a)
	p.done(&a)
	held := maps.Collect(maps.All(p.ranks[0].requests))
	want := map[kv.BlockID]uint32{prompt[0].ID: 1, prompt[1].ID: 1, prompt[2].ID: 1, prompt[3].ID: 1}
	if diff := cmp.Diff(want, held); diff != "" || p.ranks[0].waiting != decideBlock {
		t.Errorf("%d tokens wait, blocks (-want +got)\n%s", p.ranks[0].waiting, diff)
	}
	p.done(&b)
	if n := len(p.ranks[0].requests); n > 0 || p.ranks[0].waiting != 0 {
		t.Errorf("%d blocks and %d tokens are left", n, p.ranks[0].waiting)
	}
}

// TestStorm: the events change what is known, and leave it as it was.
func TestStorm(t *testing.T) {
	f := smallFleet(t, 7)
	w := f.storm()
	before := f.costs()
	stored := len(w.batches) / 2
	for _, b := range w.batches[:stored] {
		if err := f.router.Apply(b); err != nil {
			t.Fatal(err)
		}
	}
	if cmp.Equal(before, f.costs()) {
		t.Error("what is stored changes nothing")
	}
	for _, b := range w.batches[stored:] {
		if err := f.router.Apply(b); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(before, f.costs()); diff != "" {
		t.Errorf("costs (-before +after)\n%s", diff)
	}
	var stop atomic.Bool
	stop.Store(true)
	if err := w.rage(f.router, &stop); err != nil || w.applied != 0 {
		t.Errorf("applied %d times after it was to stop: %v", w.applied, err)
	}
}

func TestDecisionRows(t *testing.T) {
	small := decideScale{ranks: 3, blocks: 20, families: 2, prompts: 8, live: 5}
	var r report
	err := measureDecisions(t.Context(), options{rounds: 1, log: io.Discard}, &r, decideScales{small, small, small})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.rows) != 7 || len(r.notes) < 4 {
		t.Errorf("%d rows and %d notes", len(r.rows), len(r.notes))
	}
	var out strings.Builder
	if err := r.write(&out); err != nil || strings.Contains(out.String(), "%!") || strings.Contains(out.String(), "NaN") {
		t.Errorf("%v\n%s", err, &out)
	}
}
