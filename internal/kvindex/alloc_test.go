package kvindex_test

import (
	"testing"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// TestMatchAllocs shows that a lookup allocates nothing when dst has room.
func TestMatchAllocs(t *testing.T) {
	const ranks = 100
	x := kvindex.New(kvindex.Config{})
	prompt := chain(to(200)...)
	for i := range ranks {
		src := kv.Source{Worker: kv.WorkerID(1 + i/2), Rank: uint32(i % 2)}
		held := prompt[:1+i]
		x.Apply(&kv.Batch{Source: src, Events: []kv.Event{
			{Kind: kv.Stored, Blocks: held},
			{Kind: kv.Stored, Tier: kv.Host, Parent: held[i].ID, HasParent: true, Blocks: prompt[1+i : 5+i]},
		}})
	}
	dst := make([]kvindex.Overlap, 0, ranks)
	n := testing.AllocsPerRun(20, func() { dst = x.Match(dst[:0], prompt) })
	if len(dst) != ranks {
		t.Fatalf("%d ranks, want %d", len(dst), ranks)
	}
	for i, o := range dst {
		if o.Depth[kv.Device] != uint32(1+i) || o.Depth[kv.Host] != uint32(5+i) {
			t.Fatalf("rank %d has %v", i, o.Depth)
		}
	}
	// The race detector allocates on its own.
	if n != 0 && !raceEnabled {
		t.Errorf("%v allocations", n)
	}
}
