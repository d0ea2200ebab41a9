package kvindex_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

var (
	seeds     = flag.Int("kvindex.seeds", floorSeeds, "how many random scripts of each shape TestProperty runs")
	firstSeed = flag.Uint64("kvindex.first", 1, "the seed of the first of them")
)

var shapes = []shape{
	{name: "exact", workers: 3, ranks: 2, nodes: 24, locals: 9, long: 50, run: 6, tiers: 1, steps: 1500, lookups: 4, mess: 30},
	{name: "own names", workers: 3, ranks: 1, nodes: 24, locals: 9, long: 50, names: own, run: 6, tiers: 1, steps: 1500, lookups: 4, mess: 20},
	{name: "aliases", workers: 2, ranks: 2, nodes: 20, locals: 9, long: 60, names: alias, run: 5, tiers: 1, steps: 1500, lookups: 4, mess: 30},
	{name: "content names", workers: 2, ranks: 1, nodes: 20, locals: 5, long: 40, names: content, run: 4, tiers: 1, steps: 1500, lookups: 4, mess: 10},
	{name: "recycled names", workers: 2, ranks: 1, nodes: 16, locals: 4, long: 50, names: recycled, run: 4, tiers: 1, steps: 1500, lookups: 4, mess: 10},
	{name: "tiers", workers: 2, ranks: 2, nodes: 20, locals: 9, long: 60, run: 6, tiers: int(kv.NumTiers), steps: 1500, lookups: 4, mess: 20},
	{name: "tiers with aliases", workers: 2, ranks: 1, nodes: 16, locals: 9, long: 60, names: alias, run: 6, tiers: 2, steps: 1500, lookups: 4, mess: 20},
	{name: "tiers with recycled names", workers: 1, ranks: 2, nodes: 14, locals: 4, long: 50, names: recycled, run: 4, tiers: 3, steps: 1500, lookups: 4, mess: 10},
	{name: "clear of workers", workers: 2, ranks: 3, nodes: 16, locals: 9, long: 50, run: 6, tiers: 2, steps: 1000, lookups: 4, mess: 20, clearWorker: true},
	{name: "many ranks", workers: 50, ranks: 4, nodes: 16, locals: 9, long: 50, run: 8, tiers: 2, steps: 1200, lookups: 2, mess: 10},
	{name: "long chains", workers: 3, ranks: 1, nodes: 900, locals: 1 << 40, long: 99, run: 200, tiers: 1, steps: 400, lookups: 4, mess: 5},
	{name: "long chains with tiers", workers: 2, ranks: 1, nodes: 700, locals: 1 << 40, long: 99, names: own, run: 150, tiers: 2, steps: 300, lookups: 4, mess: 5},
}

// TestProperty runs random scripts on the index and on the naive one and compares
// every answer. Of a script that fails it prints the shortest part that does.
func TestProperty(t *testing.T) {
	told, looked := 0, 0
	for _, sh := range shapes {
		t.Run(sh.name, func(t *testing.T) {
			var sum rig
			for seed := *firstSeed; seed < *firstSeed+uint64(*seeds); seed++ {
				g := property(t, sh, seed)
				sum.told += g.told
				sum.looked += g.looked
				sum.doubts += g.doubts
				sum.reloads += g.reloads
			}
			t.Logf("%d blocks told and %d looked up; %d ranks dumped and restored, %d given up", sum.told, sum.looked, sum.reloads, sum.doubts)
			if sum.reloads == 0 {
				t.Error("no rank was dumped and restored")
			}
			if sum.doubts > 0 && !sh.names.vague() && sh.tiers == 1 {
				t.Errorf("%d ranks given up, where names are exact", sum.doubts)
			}
			told, looked = told+sum.told, looked+sum.looked
		})
	}
	t.Logf("%d blocks told and %d looked up", told, looked)
	if n := told + looked; !t.Failed() && *seeds >= floorSeeds && n < floorOps {
		t.Errorf("%d blocks stored, removed and looked up; want %d or more", n, floorOps)
	}
}

// property runs one random script.
func property(t *testing.T, sh shape, seed uint64) *rig {
	u := newUniverse(sh, seed)
	g := newRig(sh.config(), sh.names.vague(), u.prompts)
	script := make([]step, 0, sh.steps)
	if err := u.live(g, &script); err != nil {
		cfg, vague := sh.config(), sh.names.vague()
		less := shrink(script, 4000, func(s []step) int {
			n, err := play(cfg, vague, u.prompts, s)
			if err == nil {
				return 0
			}
			return n
		})
		if _, again := play(cfg, vague, u.prompts, less); again != nil {
			err = again
		}
		t.Fatalf("seed %d, after %d steps, fails in these %d:\n%s%v", seed, len(script), len(less), scriptLines(less), err)
	}
	return g
}

// live makes up steps and does them until one fails.
func (u *universe) live(g *rig, script *[]step) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	for i := range u.steps {
		*script = append(*script, u.next(g.model))
		if err := g.run(&(*script)[i]); err != nil {
			return err
		}
		for range u.lookups {
			if err := g.lookup(u.rng.IntN(len(u.prompts))); err != nil {
				return err
			}
		}
		if i%16 == 0 || i == u.steps-1 {
			if err := g.count(); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestShrink shows that a script is cut down to what matters.
func TestShrink(t *testing.T) {
	u := newUniverse(shapes[0], 1)
	x := newNaive(false, false)
	var script []step
	for range 300 {
		s := u.next(x)
		if s.do == apply {
			x.apply(&kv.Batch{Source: s.src, Events: s.events})
		}
		script = append(script, s)
	}
	cleared := func(s []step) int {
		for i := range s {
			for _, ev := range s[i].events {
				if ev.Kind == kv.Cleared {
					return i + 1
				}
			}
		}
		return 0
	}
	if less := shrink(script, 4000, cleared); len(less) != 1 || len(less[0].events) != 1 {
		t.Errorf("shrunk to\n%s", scriptLines(less))
	}
}

// TestMaxOrphans shows that blocks that wait are bounded, the oldest forgotten first.
func TestMaxOrphans(t *testing.T) {
	const bound, stored = 10, 25
	x := kvindex.New(kvindex.Config{MaxOrphans: bound})
	src := kv.Source{Worker: 1}
	for i := range kv.BlockID(stored) {
		x.Apply(&kv.Batch{Source: src, Events: []kv.Event{{
			Kind: kv.Stored, Parent: 1000 + i, HasParent: true, Blocks: []kv.Block{{ID: 2000 + i, Tokens: 7}},
		}}})
		if s, _ := x.Rank(src); s.Orphans > bound || s.Blocks != s.Orphans {
			t.Fatalf("after %d blocks: %+v", i+1, s)
		}
	}
	if s := x.Stats(); s.Orphans > bound || s.Orphans < bound/2 || int(s.Forgotten) != stored-s.Orphans {
		t.Errorf("%d orphans, %d forgotten", s.Orphans, s.Forgotten)
	}
	// The parents come. The youngest of those that waited are there, in one piece.
	seen := 0
	for i := range kv.BlockID(stored) {
		x.Apply(&kv.Batch{Source: src, Events: []kv.Event{{
			Kind: kv.Stored, Blocks: []kv.Block{{ID: 1000 + i, Tokens: kv.LocalHash(100 + i)}},
		}}})
		switch depthOn(x, src, chain(kv.LocalHash(100+i), 7)) {
		case 0:
			t.Fatalf("parent %d is not there", i)
		case 1:
			if seen > 0 {
				t.Errorf("block %d was forgotten, an older one was not", i)
			}
		case 2:
			seen++
		}
	}
	if s, _ := x.Rank(src); s.Orphans != 0 || s.Blocks != stored+seen || seen == 0 {
		t.Errorf("%d seen, %+v", seen, s)
	}
}
