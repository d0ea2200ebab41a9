package kvindex_test

import (
	"testing"

	"github.com/tinylib/msgp/msgp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// TestRefcountVector has an engine that tells of every copy of a block, from its bytes
// to the index: a block stored twice is there until it was removed twice, what is not
// known is removed without harm, and so is what was cleared.
func TestRefcountVector(t *testing.T) {
	index := kvindex.New(kvindex.Config{})
	src := kv.Source{Worker: workerA}
	decoder := kv.NewDecoder(kv.DecoderConfig{Source: src, BlockSize: 4, Counted: true})
	prompt := kv.AppendBlocks(nil, kv.HashSeed("", ""), []uint32{1, 2, 3, 4}, 4)
	const a, b = 1, 2
	stored := func(id int) []any {
		return []any{"BlockStored", []any{id}, nil, []any{1, 2, 3, 4}, 4, nil, "GPU"}
	}
	removed := func(id int) []any { return []any{"BlockRemoved", []any{id}, "GPU"} }
	for i, step := range []struct {
		name   string
		event  []any
		status kvindex.Status
		depth  int
	}{
		{"Stored a", stored(a), kvindex.OK, 1},
		{"Stored a again", stored(a), kvindex.OK, 1},
		{"Removed a", removed(a), kvindex.OK, 1},
		{"Removed a again", removed(a), kvindex.OK, 0},
		{"Removed b, unknown", removed(b), kvindex.BlockNotFound, 0},
		{"Stored a", stored(a), kvindex.OK, 1},
		{"Cleared", []any{"AllBlocksCleared"}, kvindex.OK, 0},
		{"Removed a after it", removed(a), kvindex.BlockNotFound, 0},
		{"Stored a after it", stored(a), kvindex.OK, 1},
		{"Removed a, the only one", removed(a), kvindex.OK, 0},
	} {
		payload, err := msgp.AppendIntf(nil, []any{1.5, []any{step.event}, 0})
		if err != nil {
			t.Fatal(err)
		}
		batch, err := decoder.Decode(uint64(i), payload)
		if err != nil || len(batch.Events) != 1 {
			t.Fatalf("%s: %+v, %v", step.name, batch, err)
		}
		kind := batch.Events[0].Kind
		before := index.Stats().Applied[kind][step.status]
		if err := index.Apply(batch); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if after := index.Stats().Applied[kind][step.status]; after != before+1 {
			t.Errorf("%s: it did not end as %d: %v", step.name, step.status, index.Stats().Applied[kind])
		}
		depth := 0
		for _, o := range index.Match(nil, prompt) {
			depth = int(o.Depth[kv.Device])
		}
		if depth != step.depth {
			t.Errorf("%s: %d blocks of the prompt are found, want %d", step.name, depth, step.depth)
		}
	}
}
