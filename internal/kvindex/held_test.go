package kvindex

import (
	"testing"

	"github.com/stator-ai/stator/internal/kv"
)

func TestHeldFollowsTheRank(t *testing.T) {
	x := New(Config{})
	src := kv.Source{Worker: 7, Rank: 1}
	held := x.Held(src)
	want := func(what string, n int64) {
		t.Helper()
		if got := held.Load(); got != n {
			t.Errorf("%s: %d blocks held, want %d", what, got, n)
		}
	}
	want("before it is known", 0)
	tokens := make([]uint32, 64)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	blocks := kv.AppendBlocks(nil, kv.HashSeed("", ""), tokens, 16)
	store := &kv.Batch{Source: src, Events: []kv.Event{{Kind: kv.Stored, Blocks: blocks}}}
	x.Apply(store)
	want("after four were stored", 4)
	x.Apply(&kv.Batch{Source: src, Seq: 1, Events: []kv.Event{{Kind: kv.Removed, Blocks: blocks[3:]}}})
	want("after one was removed", 3)
	d, _ := x.Dump(src)
	if err := x.Restore(src, 0, 1, func(yield func(*kv.Event, error) bool) {
		for ev := range d.All() {
			if !yield(ev, nil) {
				return
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	want("after it was replaced by its dump", 3)
	x.RemoveRank(src)
	want("after it was removed", 0)
	x.Apply(store)
	want("after it came back", 4)
	x.ClearRank(src)
	want("after it was cleared", 0)
	if (*Index)(nil).Held(src).Load() != 0 {
		t.Error("a nil index holds something")
	}
}
