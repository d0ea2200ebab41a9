package kvindex_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// The workers of the vectors; their ranks are 0.
const (
	workerA kv.WorkerID = iota + 1
	workerB
	workerC
)

// vectors is an index whose block i has local hash i and engine id 100·i.
type vectors struct {
	*testing.T
	*kvindex.Index
}

func newVectors(t *testing.T, cfg kvindex.Config) vectors {
	return vectors{t, kvindex.New(cfg)}
}

func rank0(w kv.WorkerID) kv.Source { return kv.Source{Worker: w} }

func numbered(locals []kv.LocalHash) []kv.Block {
	blocks := make([]kv.Block, len(locals))
	for i, local := range locals {
		blocks[i] = kv.Block{ID: kv.BlockID(100 * local), Tokens: local}
	}
	return blocks
}

// do applies one event and returns how it ended.
func (v vectors) do(src kv.Source, ev kv.Event) kvindex.Status {
	v.Helper()
	before := v.Stats().Applied
	if err := v.Apply(&kv.Batch{Source: src, Events: []kv.Event{ev}}); err != nil {
		v.Fatal(err)
	}
	after := v.Stats().Applied
	for st := range kvindex.Status(kvindex.NumStatus) {
		if after[ev.Kind][st] == before[ev.Kind][st]+1 {
			return st
		}
	}
	v.Fatalf("event %s was not counted", eventString(&ev))
	return 0
}

// store stores blocks from the beginning of a prompt on.
func (v vectors) store(w kv.WorkerID, locals ...kv.LocalHash) kvindex.Status {
	v.Helper()
	return v.do(rank0(w), kv.Event{Kind: kv.Stored, Blocks: numbered(locals)})
}

// storeAfter stores blocks after another.
func (v vectors) storeAfter(w kv.WorkerID, parent kv.BlockID, locals ...kv.LocalHash) kvindex.Status {
	v.Helper()
	return v.do(rank0(w), kv.Event{Kind: kv.Stored, Parent: parent, HasParent: true, Blocks: numbered(locals)})
}

func (v vectors) remove(w kv.WorkerID, locals ...kv.LocalHash) kvindex.Status {
	v.Helper()
	return v.do(rank0(w), kv.Event{Kind: kv.Removed, Blocks: numbered(locals)})
}

type scores map[kv.Source]int

// query checks what each rank holds of a prompt.
func (v vectors) query(want scores, locals ...kv.LocalHash) {
	v.Helper()
	got := scores{}
	for _, o := range v.Match(nil, chain(locals...)) {
		got[o.Source] = int(o.Depth[kv.Device])
		if o.Depth[kv.External] != o.Depth[kv.Device] {
			v.Errorf("%v has %v, and told only of its device", o.Source, o.Depth)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		v.Errorf("query %v (-want +got):\n%s", locals, diff)
	}
}

func (v vectors) size(w kv.WorkerID, want int) {
	v.Helper()
	if s, _ := v.Rank(rank0(w)); s.Blocks != want {
		v.Errorf("worker %d has %d blocks, want %d", w, s.Blocks, want)
	}
}

func (v vectors) ended(got, want kvindex.Status) {
	v.Helper()
	if got != want {
		v.Errorf("the event ended as %d, want %d", got, want)
	}
}

// to returns 1..n.
func to(n int) []kv.LocalHash {
	locals := make([]kv.LocalHash, n)
	for i := range locals {
		locals[i] = kv.LocalHash(i + 1)
	}
	return locals
}

// TestTreeVectors has the behaviours of a prefix tree that the reference states,
// with what is true where the reference counts blocks that are not there.
func TestTreeVectors(t *testing.T) {
	a, b, c := rank0(workerA), rank0(workerB), rank0(workerC)
	for name, row := range map[string]func(v vectors){
		"A stores 1,2,3; B stores 1,4,5": func(v vectors) {
			v.store(workerA, 1, 2, 3)
			v.store(workerB, 1, 4, 5)
			v.query(scores{a: 3, b: 1}, 1, 2, 3)
			v.size(workerA, 3)
			v.size(workerB, 3)

			// B removes 5, then 4, and stores 2,6,7 after 1.
			v.remove(workerB, 5)
			v.remove(workerB, 4)
			v.ended(v.storeAfter(workerB, 100, 2, 6, 7), kvindex.OK)
			v.query(scores{a: 3, b: 2}, 1, 2, 3)
			v.size(workerB, 4)
		},
		"A,B store 1,2,3; A removes 1, stores it again": func(v vectors) {
			v.store(workerA, 1, 2, 3)
			v.store(workerB, 1, 2, 3)
			v.remove(workerA, 1)
			v.query(scores{b: 3}, 1, 2, 3)
			v.size(workerA, 2)
			v.store(workerA, 1)
			v.query(scores{a: 3, b: 3}, 1, 2, 3)
		},
		"A stores 1,2,3; removes 1; stores 1; stores 2 after 1": func(v vectors) {
			v.store(workerA, 1, 2, 3)
			v.remove(workerA, 1)
			v.query(scores{}, 1, 2, 3)
			v.store(workerA, 1)
			v.query(scores{a: 3}, 1, 2, 3)
			v.storeAfter(workerA, 100, 2)
			v.query(scores{a: 3}, 1, 2, 3)
		},
		"A,B store 1,2,3; A removes 2": func(v vectors) {
			v.store(workerA, 1, 2, 3)
			v.store(workerB, 1, 2, 3)
			v.remove(workerA, 2)
			v.query(scores{a: 1, b: 3}, 1, 2, 3)
			v.remove(workerB, 3)
			v.query(scores{a: 1, b: 2}, 1, 2, 3)
		},
		"A,B,C store 1,2; C removes 1; A and B remove 2": func(v vectors) {
			for _, w := range []kv.WorkerID{workerA, workerB, workerC} {
				v.store(w, 1, 2)
			}
			v.remove(workerC, 1)
			v.remove(workerA, 2)
			v.remove(workerB, 2)
			v.query(scores{a: 1, b: 1}, 1, 2)
			v.store(workerC, 1)
			v.query(scores{a: 1, b: 1, c: 2}, 1, 2)
		},
		"unknown parent, unknown blocks, block after itself": func(v vectors) {
			v.ended(v.storeAfter(workerA, 12345, 9), kvindex.ParentNotFound)
			v.ended(v.remove(workerA, 1, 2, 3), kvindex.BlockNotFound)
			v.ended(v.store(workerA, 1), kvindex.OK)
			v.ended(v.storeAfter(workerA, 100, 1, 2, 3), kvindex.Invalid)
			v.ended(v.storeAfter(workerA, 100, 1, 2, 3), kvindex.Invalid)
			v.query(scores{a: 1}, 1, 1, 2, 3)
			v.query(scores{a: 1}, 1, 2, 3)
			v.size(workerA, 2)
		},
		"ranks 0 and 1 store 1,2,3; clear of rank 0": func(v vectors) {
			other := kv.Source{Worker: workerA, Rank: 1}
			v.store(workerA, 1, 2, 3)
			v.do(other, kv.Event{Kind: kv.Stored, Blocks: numbered(to(3))})
			v.query(scores{a: 3, other: 3}, 1, 2, 3)
			v.ended(v.do(a, kv.Event{Kind: kv.Cleared}), kvindex.OK)
			v.query(scores{other: 3}, 1, 2, 3)
		},
		"A stores 1,2; A stores 1 after 2": func(v vectors) {
			v.store(workerA, 1, 2)
			v.ended(v.storeAfter(workerA, 200, 1), kvindex.OK)
			v.query(scores{a: 3}, 1, 2, 1, 2, 1)
			v.query(scores{a: 2}, 1, 2, 2)
			// Removing the block takes both of its places away.
			v.remove(workerA, 1)
			v.query(scores{}, 1, 2, 1, 2, 1)
			v.store(workerA, 1)
			v.query(scores{a: 2}, 1, 2, 1, 2, 1)
		},
		"1000 times store and remove of a chain of two": func(v vectors) {
			round := func(i int) {
				first, second := kv.LocalHash(2*i+1), kv.LocalHash(2*i+2)
				v.store(workerA, first, second)
				v.remove(workerA, second)
				v.ended(v.remove(workerA, first), kvindex.OK)
			}
			for i := range 1000 {
				round(i)
			}
			v.size(workerA, 0)
			before := v.Stats()
			for i := range 10_000 {
				round(1000 + i)
			}
			after := v.Stats()
			if after.Blocks != 0 || after.Orphans != 0 || after.Bytes > 2*before.Bytes {
				v.Errorf("%d blocks, %d orphans, %d bytes; after the first thousand it was %d bytes",
					after.Blocks, after.Orphans, after.Bytes, before.Bytes)
			}
		},
		"prefixes of 10, 20, 35, 64, 100": func(v vectors) {
			v.prefixes(100, 10, 20, 35, 64, 100)
		},
		"prefixes of 31, 32, 33, 64, 65": func(v vectors) {
			v.prefixes(65, 31, 32, 33, 64, 65)
		},
		"A stores 1..128; the 50th of the query is strange": func(v vectors) {
			v.store(workerA, to(128)...)
			strange := to(100)
			strange[49] = 99999
			v.query(scores{a: 49}, strange...)
			v.query(scores{a: 64}, to(64)...)
		},
		"A stores 1,2,3 under rolling hashes; removes that of 3": func(v vectors) {
			blocks := chain(1, 2, 3)
			v.do(a, kv.Event{Kind: kv.Stored, Blocks: blocks})
			v.ended(v.do(a, kv.Event{Kind: kv.Removed, Blocks: blocks[2:]}), kvindex.OK)
			v.query(scores{a: 2}, 1, 2, 3)
			v.query(scores{a: 2}, 1, 2)
		},
	} {
		t.Run(name, func(t *testing.T) { row(newVectors(t, kvindex.Config{})) })
	}
	t.Run("ranks 0 and 1 store 1,2,3; clear of the worker", func(t *testing.T) {
		v := newVectors(t, kvindex.Config{ClearWorker: true})
		v.store(workerA, 1, 2, 3)
		v.store(workerB, 1, 2, 3)
		v.do(kv.Source{Worker: workerA, Rank: 1}, kv.Event{Kind: kv.Stored, Blocks: numbered(to(3))})
		v.do(a, kv.Event{Kind: kv.Cleared})
		v.query(scores{b: 3}, 1, 2, 3)
	})
}

// prefixes lets five workers store 1..n and looks up 1..query.
func (v vectors) prefixes(query int, lengths ...int) {
	v.Helper()
	want := scores{}
	for i, n := range lengths {
		w := kv.WorkerID(i + 1)
		v.store(w, to(n)...)
		want[rank0(w)] = n
	}
	v.query(want, to(query)...)
}

// TestPruneVectors has the rows about which blocks go first when there are too many.
func TestPruneVectors(t *testing.T) {
	// left returns which of the one-block prompts 1..n worker A still has.
	left := func(x *kvindex.Index, n int) []int {
		var keys []int
		for i, key := range to(n) {
			if len(x.Match(nil, chain(key))) > 0 {
				keys = append(keys, i+1)
			}
		}
		return keys
	}
	start := time.Unix(1_700_000_000, 0)
	for _, row := range []struct {
		name  string
		max   int
		ratio float64
		keys  []kv.LocalHash // one second after another
		last  []kv.LocalHash // at once, as one prompt
		want  []int
	}{
		{"max 10, ratio 0.5, 15 keys: prunes 1..10", 10, 0.5, to(10), []kv.LocalHash{11, 12, 13, 14, 15}, []int{11}},
		{"max 10, ratio 0.5, 15 keys one by one", 10, 0.5, to(15), nil, []int{7, 8, 9, 10, 11, 12, 13, 14, 15}},
		{"max 5, ratio 0.8, key 1 re-inserted", 5, 0.8, []kv.LocalHash{1, 2, 3, 4, 5, 1, 6}, nil, []int{1, 4, 5, 6}},
		{"max 5, ratio 0.8, keys 1..10, key 1 re-inserted", 5, 0.8, []kv.LocalHash{1, 2, 3, 4, 5, 1, 6, 7, 8, 9, 10}, nil, []int{7, 8, 9, 10}},
		{"max 5, ratio 0.4, six requests", 5, 0.4, to(6), nil, []int{5, 6}},
	} {
		t.Run(row.name, func(t *testing.T) {
			x := kvindex.New(kvindex.Config{TTL: time.Hour, MaxBlocks: row.max, PruneRatio: row.ratio})
			now := start
			for _, key := range row.keys {
				now = now.Add(time.Second)
				x.Route(now, rank0(workerA), chain(key))
			}
			if row.last != nil {
				now = now.Add(time.Second)
				x.Route(now, rank0(workerA), chain(row.last...))
				if got := x.Match(nil, chain(row.last...)); len(got) != 1 || got[0].Depth[kv.Device] != uint32(len(row.last)) {
					t.Errorf("of the last prompt: %v", got)
				}
			}
			if diff := cmp.Diff(row.want, left(x, 15)); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
			if s := x.Stats(); s.Blocks > row.max || s.Pruned == 0 || s.Orphans != 0 {
				t.Errorf("%d blocks, %d pruned, %d orphans", s.Blocks, s.Pruned, s.Orphans)
			}
		})
	}
}

// TestNil shows that no index is an index.
func TestNil(t *testing.T) {
	var x *kvindex.Index
	src := rank0(workerA)
	if err := x.Apply(&kv.Batch{Source: src, Events: []kv.Event{{Kind: kv.Stored, Blocks: chain(1)}}}); err != nil {
		t.Error(err)
	}
	x.Route(time.Now(), src, chain(1))
	x.ClearRank(src)
	if err := x.Restore(src, 0, 0, pour(nil, nil)); err != nil {
		t.Error(err)
	}
	_, known := x.Rank(src)
	_, dumps := x.Dump(src)
	if n := len(x.Match(nil, chain(1))); n != 0 || known || dumps || x.RemoveRank(src) || x.RemoveWorker(workerA) != 0 ||
		x.Expire(time.Now()) != 0 || len(x.Ranks()) != 0 || x.Stats() != (kvindex.Stats{}) {
		t.Error("no index holds something")
	}
	if got := x.Match(make([]kvindex.Overlap, 1), chain(1)); !slices.Equal(got, make([]kvindex.Overlap, 1)) {
		t.Errorf("Match is %v, want what was there", got)
	}
}
