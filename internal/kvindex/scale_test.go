package kvindex_test

import (
	"testing"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// What follows is done within a second if a step costs the same however much there is,
// and takes minutes if it does not.

// many returns n blocks with names from first on, none of them alike.
func many(first kv.BlockID, n int) []kv.Block {
	out := make([]kv.Block, n)
	for i := range out {
		id := first + kv.BlockID(i)
		out[i] = kv.Block{ID: id, Tokens: kv.LocalHash(kv.Chain(id, 77))}
	}
	return out
}

// scale returns less under the race detector, which is slow.
func scale(n int) int {
	if raceEnabled {
		return n / 16
	}
	return n
}

func (v vectors) apply(events ...kv.Event) {
	v.Helper()
	if err := v.Apply(&kv.Batch{Source: rank0(workerA), Events: events}); err != nil {
		v.Fatal(err)
	}
}

func (v vectors) orphans(want int) {
	v.Helper()
	if got := v.Stats().Orphans; got != want {
		v.Errorf("%d blocks wait, want %d", got, want)
	}
}

func TestManyOrphans(t *testing.T) {
	n := scale(32768)
	blocks := many(1000, n)
	t.Run("removed one by one", func(t *testing.T) {
		v := newVectors(t, kvindex.Config{})
		v.apply(storedAfter(7, blocks...))
		v.apply(storedAfter(7, blocks...)) // told again
		v.orphans(n)
		for _, b := range blocks[:n/2] {
			v.apply(removed(b.ID))
		}
		v.orphans(n - n/2)
		v.apply(kv.Event{Kind: kv.Removed, Blocks: blocks[n/2:]})
		v.orphans(0)
		v.sound()
	})
	t.Run("of one parent", func(t *testing.T) {
		v := newVectors(t, kvindex.Config{MaxOrphans: n})
		for _, b := range blocks {
			v.apply(storedAfter(7, b))
		}
		for _, b := range many(1_000_000, n) { // at the bound
			v.apply(storedAfter(7, b))
		}
		v.orphans(n)
		v.apply(stored(kv.Device, kv.Block{ID: 7, Tokens: 7}))
		v.orphans(0)
		v.size(workerA, n+1)
		v.sound()
	})
}

func TestManyForks(t *testing.T) {
	n := scale(32768)
	v := newVectors(t, kvindex.Config{})
	trunk := many(1, 15)
	v.apply(stored(kv.Device, trunk...))
	for _, b := range many(1000, n) {
		v.apply(storedAfter(trunk[9].ID, b))
	}
	last := &trunk[14]
	for i := range n { // the end of the trunk goes and comes back
		gone := last.ID
		last.ID = kv.BlockID(1_000_000 + i)
		v.apply(removed(gone), storedAfter(trunk[13].ID, *last))
	}
	v.size(workerA, n+15)
	v.sound()
	// All wait, and come back.
	v.apply(removed(trunk[4].ID))
	v.orphans(n + 10)
	v.apply(storedAfter(trunk[3].ID, trunk[4]))
	v.orphans(0)
	v.sound()
}

func TestManyRoots(t *testing.T) {
	n := scale(65536)
	v := newVectors(t, kvindex.Config{})
	blocks := many(1000, n)
	for _, b := range blocks {
		v.apply(stored(kv.Device, b))
	}
	for i, b := range blocks { // under other names
		b.ID += kv.BlockID(n)
		v.apply(stored(kv.Device, b))
		if i%2 == 0 {
			v.apply(removed(b.ID))
		}
	}
	v.size(workerA, n+n/2)
	v.sound()
}

func TestOneBlockManyTimes(t *testing.T) {
	n := scale(32768)
	v := newVectors(t, kvindex.Config{})
	blocks := many(1000, n)
	v.apply(stored(kv.Device, blocks...))
	last, before := blocks[n-1], blocks[n-2]
	for range n {
		v.apply(removed(last.ID), storedAfter(before.ID, last))
	}
	v.size(workerA, n)
	v.sound()
}
