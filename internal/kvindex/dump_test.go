package kvindex_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// copyRank dumps a rank and restores it into another index.
func copyRank(t *testing.T, from, to *kvindex.Index, src kv.Source) []kv.Event {
	t.Helper()
	d, ok := from.Dump(src)
	if !ok {
		t.Fatalf("no dump of %v", src)
	}
	events := dumped(d)
	if err := to.Restore(src, d.Epoch, d.Seq, pour(events, nil)); err != nil {
		t.Fatal(err)
	}
	return events
}

// TestDumpRestore shows that a restored rank answers like the one that was dumped,
// and goes on like it.
func TestDumpRestore(t *testing.T) {
	src := rank0(workerA)
	a := newVectors(t, kvindex.Config{})
	blocks := numbered(to(6))
	after := func(tier kv.Tier, parent kv.BlockID, blocks ...kv.Block) kv.Event {
		return kv.Event{Kind: kv.Stored, Tier: tier, Parent: parent, HasParent: true, Blocks: blocks}
	}
	if err := a.Apply(&kv.Batch{Source: src, Epoch: 3, Seq: 41, Events: []kv.Event{
		{Kind: kv.Stored, Blocks: blocks[:3]},
		after(kv.Device, 200, kv.Block{ID: 777, Tokens: 7}, kv.Block{ID: 888, Tokens: 8}),
		{Kind: kv.Stored, Counted: true, Blocks: blocks[:1]},
		{Kind: kv.Stored, Counted: true, Blocks: blocks[:1]},
		after(kv.Device, 100, kv.Block{ID: 201, Tokens: 2}), // another name of the second block
		after(kv.Host, 300, blocks[3]),
		after(kv.Disk, 400, blocks[4]),
		after(kv.Device, 12345, kv.Block{ID: 999, Tokens: 9}), // waits
		after(kv.Device, 888, kv.Block{ID: 1000, Tokens: 10}, kv.Block{ID: 1100, Tokens: 11}),
		{Kind: kv.Removed, Blocks: []kv.Block{{ID: 1000}}}, // 11 waits
	}}); err != nil {
		t.Fatal(err)
	}
	b := newVectors(t, kvindex.Config{})
	b.store(workerA, 50, 51) // to be replaced
	copyRank(t, a.Index, b.Index, src)

	same := func(what string) {
		t.Helper()
		for _, p := range [][]kv.LocalHash{{1, 2, 3, 4, 5, 6}, {1, 2, 7, 8, 10, 11}, {1, 2, 7, 8}, {50, 51}, {20, 9}} {
			if diff := cmp.Diff(a.Match(nil, chain(p...)), b.Match(nil, chain(p...))); diff != "" {
				t.Errorf("%s: of %v (-want +got):\n%s", what, p, diff)
			}
		}
		want, _ := a.Rank(src)
		got, _ := b.Rank(src)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	same("restored")
	if s, _ := b.Rank(src); s.Epoch != 3 || s.Seq != 41 || !s.Known || s.Blocks != 10 || s.Orphans != 2 {
		t.Errorf("restored: %+v", s)
	}
	if got := b.Match(nil, chain(to(6)...)); len(got) != 1 || got[0].Depth != (depths{3, 4, 5, 5}) {
		t.Errorf("restored: %v", got)
	}
	for _, step := range []struct {
		what  string
		event kv.Event
	}{
		{"one of three copies went", kv.Event{Kind: kv.Removed, Counted: true, Blocks: blocks[:1]}},
		{"one of two names went", kv.Event{Kind: kv.Removed, Blocks: blocks[1:2]}},
		{"a second copy went", kv.Event{Kind: kv.Removed, Counted: true, Blocks: blocks[:1]}},
		{"a lost one came back", after(kv.Device, 888, kv.Block{ID: 1000, Tokens: 10})},
		{"what one waited for came", kv.Event{Kind: kv.Stored, Blocks: []kv.Block{{ID: 12345, Tokens: 20}}}},
		{"the last copy went", kv.Event{Kind: kv.Removed, Counted: true, Blocks: blocks[:1]}},
		{"it came back", kv.Event{Kind: kv.Stored, Blocks: blocks[:1]}},
		{"a block of a far tier went", kv.Event{Kind: kv.Removed, Tier: kv.Host, Blocks: blocks[3:4]}},
		{"all went", kv.Event{Kind: kv.Cleared}},
	} {
		if st, other := a.do(src, step.event), b.do(src, step.event); st != other {
			t.Errorf("%s: the event ended as %d, want %d", step.what, other, st)
		}
		same(step.what)
	}
}

// TestDumpOneNameTwice shows that blocks survive whose engine names them by their own
// content, so that a name occurs twice on the way from the root.
func TestDumpOneNameTwice(t *testing.T) {
	src := rank0(workerA)
	for name, fill := range map[string]func(v vectors){
		"with a block between": func(v vectors) {
			v.store(workerA, 1, 2)
			v.storeAfter(workerA, 200, 1)
		},
		"one after another": func(v vectors) {
			v.store(workerA, 1)
			v.store(workerA, 3, 1)
			v.do(src, kv.Event{Kind: kv.Stored, Blocks: []kv.Block{{ID: 700, Tokens: 1}, {ID: 100, Tokens: 2}}})
		},
		"with copies": func(v vectors) {
			v.store(workerA, 1, 2)
			v.storeAfter(workerA, 200, 1)
			v.do(src, kv.Event{Kind: kv.Stored, Counted: true, Blocks: numbered(to(2))})
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newVectors(t, kvindex.Config{}), kvindex.New(kvindex.Config{})
			fill(a)
			events := copyRank(t, a.Index, b, src)
			for _, p := range [][]kv.LocalHash{{1, 2, 1, 2}, {3, 1}, {1, 1}, {2, 1}} {
				if diff := cmp.Diff(a.Match(nil, chain(p...)), b.Match(nil, chain(p...))); diff != "" {
					t.Errorf("of %v (-want +got):\n%s the dump has\n%s", p, diff, eventLines(events))
				}
			}
		})
	}
}

// TestDumpIsACopy shows that a dump stays what it was.
func TestDumpIsACopy(t *testing.T) {
	v := newVectors(t, kvindex.Config{})
	v.store(workerA, 1, 2, 3)
	v.store(workerB, 7)
	d, _ := v.Dump(rank0(workerA))
	want := dumped(d)
	v.remove(workerA, 2)
	v.storeAfter(workerA, 100, 8, 9)
	v.store(workerB, 4, 5)
	v.RemoveRank(rank0(workerA))
	if diff := cmp.Diff(want, dumped(d)); diff != "" {
		t.Errorf("the dump changed (-before +after):\n%s", diff)
	}
	if d.Blocks != 3 {
		t.Errorf("%d blocks, want 3", d.Blocks)
	}
	for range d.All() {
		break // stops early
	}
	if _, ok := v.Dump(rank0(workerA)); ok {
		t.Error("a dump of a rank that is gone")
	}
	if other, ok := v.Dump(rank0(workerB)); !ok || other.Blocks != 3 {
		t.Errorf("dump of B: %v, %v", other, ok)
	}
}

// TestRestore shows that a restore replaces, and that one that fails does not.
func TestRestore(t *testing.T) {
	a, b := rank0(workerA), rank0(workerB)
	v := newVectors(t, kvindex.Config{})
	v.Apply(&kv.Batch{Source: a, Epoch: 1, Seq: 10, Events: []kv.Event{{Kind: kv.Stored, Blocks: numbered(to(3))}}})
	v.store(workerB, 1, 2)
	fresh := []kv.Event{
		{Kind: kv.Stored, Blocks: numbered([]kv.LocalHash{1, 5, 6})},
		{Kind: kv.Removed, Blocks: numbered([]kv.LocalHash{6})},
	}
	before := v.Stats()

	broken := errors.New("connection lost")
	if err := v.Restore(a, 2, 20, pour(fresh, broken)); !errors.Is(err, broken) {
		t.Errorf("got error %v, want %v", err, broken)
	}
	v.query(scores{a: 3, b: 2}, 1, 2, 3)
	if s, _ := v.Rank(a); s.Epoch != 1 || s.Seq != 10 || s.Blocks != 3 {
		t.Errorf("after a restore that failed: %+v", s)
	}
	if s := v.Stats(); s.Blocks != before.Blocks || s.Ranks != before.Ranks {
		t.Errorf("after a restore that failed: %d ranks, %d blocks", s.Ranks, s.Blocks)
	}
	unknown := rank0(workerC)
	if err := v.Restore(unknown, 2, 20, pour(fresh, broken)); !errors.Is(err, broken) {
		t.Errorf("got error %v, want %v", err, broken)
	}
	if got := v.Ranks(); !slices.Equal(got, []kv.Source{a, b}) {
		t.Errorf("ranks are %v after a restore that failed", got)
	}

	if err := v.Restore(a, 2, 20, pour(fresh, nil)); err != nil {
		t.Error(err)
	}
	v.query(scores{a: 1, b: 2}, 1, 2, 3)
	v.query(scores{a: 2, b: 1}, 1, 5, 6)
	if s, _ := v.Rank(a); s.Epoch != 2 || s.Seq != 20 || !s.Known || s.Blocks != 2 {
		t.Errorf("restored: %+v", s)
	}
	if err := v.Restore(unknown, 0, 0, pour(nil, nil)); err != nil {
		t.Error(err)
	}
	if s, ok := v.Rank(unknown); !ok || !s.Known || s.Blocks != 0 {
		t.Errorf("restored from nothing: %+v, %v", s, ok)
	}
	// Names of the old content are gone.
	v.ended(v.remove(workerA, 2), kvindex.BlockNotFound)
}

// TestDumpLarge dumps and restores many blocks.
func TestDumpLarge(t *testing.T) {
	const chains, length = 200, 400
	src := rank0(workerA)
	a, b := kvindex.New(kvindex.Config{}), kvindex.New(kvindex.Config{})
	var prompts [][]kv.Block
	for i := range kv.LocalHash(chains) {
		locals := to(100) // what all have in common
		for k := range kv.LocalHash(length - 100) {
			locals = append(locals, (i+1)<<20+k)
		}
		prompts = append(prompts, chain(locals...))
		a.Apply(&kv.Batch{Source: src, Seq: uint64(i), Events: []kv.Event{{Kind: kv.Stored, Blocks: prompts[i]}}})
	}
	copyRank(t, a, b, src)
	want, _ := a.Rank(src)
	if got, _ := b.Rank(src); got != want || got.Blocks != 100+chains*(length-100) {
		t.Errorf("restored %+v, want %+v", got, want)
	}
	for i, p := range prompts {
		if got := depthOn(b, src, p); got != length {
			t.Fatalf("%d blocks of prompt %d, want %d", got, i, length)
		}
	}
}
