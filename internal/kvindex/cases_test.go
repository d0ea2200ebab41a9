package kvindex_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// sound fails the test if the index is not in order.
func (v vectors) sound() {
	v.Helper()
	if err := v.Check(); err != nil {
		v.Error(err)
	}
}

func stored(tier kv.Tier, blocks ...kv.Block) kv.Event {
	return kv.Event{Kind: kv.Stored, Tier: tier, Blocks: blocks}
}

func storedAfter(parent kv.BlockID, blocks ...kv.Block) kv.Event {
	return kv.Event{Kind: kv.Stored, Parent: parent, HasParent: true, Blocks: blocks}
}

func removed(ids ...kv.BlockID) kv.Event {
	ev := kv.Event{Kind: kv.Removed}
	for _, id := range ids {
		ev.Blocks = append(ev.Blocks, kv.Block{ID: id})
	}
	return ev
}

func counted(ev kv.Event) kv.Event {
	ev.Counted = true
	return ev
}

// TestForgedHash: the hash of a prompt's first block is whatever the engine says, so
// that it can be that of a block which follows another. Who comes second is refused,
// and nobody else's blocks are affected.
func TestForgedHash(t *testing.T) {
	a, b := rank0(workerA), rank0(workerB)
	forged := kv.LocalHash(kv.Chain(5, 6))
	root := kv.Event{Kind: kv.Stored, Blocks: []kv.Block{{ID: 1, Tokens: forged}}}
	for name, row := range map[string]func(v vectors){
		"in one rank": func(v vectors) {
			v.do(a, root)
			v.store(workerA, 5, 7)
			v.ended(v.storeAfter(workerA, 500, 6, 8), kvindex.Invalid)
			v.query(scores{a: 1}, 5, 6, 8)
			v.query(scores{a: 1}, forged, 8)
			v.size(workerA, 3)
			v.do(a, removed(1))
			v.ended(v.storeAfter(workerA, 500, 6, 8), kvindex.OK)
			v.query(scores{a: 3}, 5, 6, 8)
		},
		"the forged one first": func(v vectors) {
			v.do(a, root)
			v.store(workerB, 5, 7)
			v.ended(v.storeAfter(workerB, 500, 6, 8), kvindex.Invalid)
			v.query(scores{b: 1}, 5, 6, 8)
			v.query(scores{a: 1}, forged, 8)
			v.RemoveRank(a)
			v.ended(v.storeAfter(workerB, 500, 6, 8), kvindex.OK)
			v.query(scores{b: 3}, 5, 6, 8)
		},
		"the forged one second": func(v vectors) {
			v.store(workerB, 5, 7)
			v.storeAfter(workerB, 500, 6, 8)
			v.ended(v.do(a, root), kvindex.Invalid)
			v.query(scores{b: 3}, 5, 6, 8)
			v.query(scores{}, forged)
			v.size(workerA, 0)
		},
		"of a block that waited": func(v vectors) {
			v.do(a, root)
			v.storeAfter(workerB, 500, 6, 8)
			v.store(workerB, 5, 7)
			v.query(scores{b: 1}, 5, 6, 8)
			v.size(workerB, 2)
			if s := v.Stats(); s.Orphans != 0 || s.Forgotten != 2 {
				v.Errorf("%d orphans, %d forgotten, want 0 and 2", s.Orphans, s.Forgotten)
			}
		},
		"of a prompt that was routed": func(v vectors) {
			v.do(a, root)
			v.Route(noon, b, chain(5, 7))
			v.Route(noon, b, chain(5, 6, 8))
			v.query(scores{b: 1}, 5, 6, 8)
			v.query(scores{a: 1}, forged)
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVectors(t, kvindex.Config{})
			row(v)
			v.sound()
		})
	}
}

// TestCopiesOfForgotten: when too many blocks wait, those that are given up take their
// further copies along.
func TestCopiesOfForgotten(t *testing.T) {
	src := rank0(workerA)
	all := numbered(to(30))
	last := all[len(all)-1]
	for _, tc := range []struct {
		name string
		max  int
		fill func(v vectors)
	}{
		{"the end of an event that is too long", 10, func(v vectors) {
			v.do(src, counted(storedAfter(7, last)))
			v.do(src, counted(storedAfter(8, all...)))
		}},
		{"the end of a prompt whose beginning went", 10, func(v vectors) {
			v.do(src, counted(stored(kv.Device, all...)))
			v.do(src, counted(stored(kv.Device, all...)))
			v.do(src, removed(all[0].ID))
		}},
		{"the oldest", 1, func(v vectors) {
			v.do(src, counted(storedAfter(7, last)))
			v.do(src, counted(storedAfter(7, last)))
			v.do(src, storedAfter(8, all[0]))
		}},
		{"all", -1, func(v vectors) {
			v.do(src, counted(storedAfter(7, last)))
			v.do(src, counted(storedAfter(7, last)))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := newVectors(t, kvindex.Config{MaxOrphans: tc.max})
			tc.fill(v)
			v.sound()
			copyRank(t, v.Index, kvindex.New(kvindex.Config{}), src)
			v.ended(v.do(src, removed(last.ID)), kvindex.BlockNotFound)
			v.do(src, counted(stored(kv.Device, last)))
			v.do(src, counted(removed(last.ID)))
			v.query(scores{}, last.Tokens)
		})
	}
}

// TestCopiesOfExpired: the same is true of blocks that expire, in any tier.
func TestCopiesOfExpired(t *testing.T) {
	src := rank0(workerA)
	one := kv.Block{ID: 1, Tokens: 1}
	for _, ev := range []kv.Event{stored(kv.Device, one), stored(kv.Host, one), storedAfter(7, one)} {
		v := newVectors(t, kvindex.Config{TTL: time.Minute})
		v.Tell(noon)
		v.do(src, counted(ev))
		v.do(src, counted(ev))
		if n := v.Expire(noon.Add(time.Hour)); n != 1 {
			t.Errorf("%s: %d blocks expired, want 1", eventString(&ev), n)
		}
		v.sound()
	}
}

// TestAdoptByContent: blocks whose place is known come back to it, and not behind
// another block with the name of the one before them.
func TestAdoptByContent(t *testing.T) {
	const a, x, y, z, q, w = 1, 2, 3, 4, 5, 6
	src := rank0(workerA)
	v := newVectors(t, kvindex.Config{})
	v.store(workerA, a, x, y, q)
	v.storeAfter(workerA, 100*y, w)
	v.storeAfter(workerA, 100*a, z, y)
	for _, when := range []string{"stored", "a removed and stored again", "once more"} {
		t.Run(when, func(t *testing.T) {
			v := vectors{t, v.Index}
			v.query(scores{src: 4}, a, x, y, w)
			v.query(scores{src: 4}, a, x, y, q)
			v.query(scores{src: 3}, a, z, y, w)
			v.size(workerA, 7)
			v.sound()
			v.remove(workerA, a)
			v.query(scores{}, a, x, y, w)
			v.sound()
			v.store(workerA, a)
		})
	}
}

// TestAdoptNameTwice: a name that comes back to two places at once, at one of them
// beside another, is taken from both when the block is removed.
func TestAdoptNameTwice(t *testing.T) {
	src := rank0(workerA)
	v := newVectors(t, kvindex.Config{})
	v.store(workerA, 2, 1, 4)
	v.Route(noon, src, chain(2, 1)) // the second block has two names
	v.storeAfter(workerA, 400, 1)
	v.query(scores{src: 4}, 2, 1, 4, 1)
	v.remove(workerA, 2)
	v.sound()
	v.do(src, removed(2)) // the name that the first was routed under
	v.query(scores{}, 2, 1, 4, 1)
	v.sound()
	v.store(workerA, 2)
	v.query(scores{src: 4}, 2, 1, 4, 1)
	v.sound()
	v.remove(workerA, 1)
	v.query(scores{src: 3}, 2, 1, 4, 1)
	v.size(workerA, 3)
	v.sound()
}

// TestLateRoute: a prompt that was routed earlier and is told of later makes nothing
// older.
func TestLateRoute(t *testing.T) {
	x := kvindex.New(kvindex.Config{TTL: 100 * time.Second})
	src := rank0(workerA)
	x.Route(noon.Add(50*time.Second), src, chain(1, 2, 3))
	x.Route(noon, src, chain(1))
	if n := x.Expire(noon.Add(120 * time.Second)); n != 0 || depthOn(x, src, chain(1, 2, 3)) != 3 || x.Stats().Orphans != 0 {
		t.Errorf("%d blocks expired early, %d are left", n, depthOn(x, src, chain(1, 2, 3)))
	}
	if n := x.Expire(noon.Add(150 * time.Second)); n != 3 {
		t.Errorf("%d blocks expired, want 3", n)
	}
}

// TestForgottenBeforeClear: orphans that were given up are counted, whatever comes next.
func TestForgottenBeforeClear(t *testing.T) {
	x := kvindex.New(kvindex.Config{MaxOrphans: 2})
	var events []kv.Event
	for i := range kv.BlockID(4) {
		events = append(events, storedAfter(100+i, kv.Block{ID: i, Tokens: 1}))
	}
	x.Apply(&kv.Batch{Source: rank0(workerA), Events: append(events, kv.Event{Kind: kv.Cleared})})
	if got := x.Stats().Forgotten; got != 2 {
		t.Errorf("%d forgotten, want 2", got)
	}
}

// TestPruneManyPlaces: a name with many places counts once for each, and does not keep
// them from being pruned.
func TestPruneManyPlaces(t *testing.T) {
	v := newVectors(t, kvindex.Config{MaxBlocks: 10, PruneRatio: 0.5})
	v.Tell(noon)
	events := []kv.Event{stored(kv.Device, kv.Block{ID: 7, Tokens: 7})}
	for i := range kv.LocalHash(20) {
		events = append(events, stored(kv.Device, kv.Block{ID: 1, Tokens: 100 + i}))
	}
	for i := range kv.LocalHash(20) {
		events = append(events, storedAfter(7, kv.Block{ID: 1, Tokens: 100 + i}))
	}
	v.Apply(&kv.Batch{Source: rank0(workerA), Events: events})
	v.sound()
	if s := v.Stats(); s.Blocks != 5 || s.Pruned != 36 {
		t.Errorf("%d blocks, %d pruned, want 5 and 36", s.Blocks, s.Pruned)
	}
}

// TestDistinct: an event that names a block twice, or the block before it, contradicts
// itself, however long it is.
func TestDistinct(t *testing.T) {
	src := rank0(workerA)
	for _, n := range []int{2, 8, 9, 256, 257, 1000} {
		for _, tc := range []struct {
			name   string
			change func(ev *kv.Event)
			want   kvindex.Status
		}{
			{"all differ", func(*kv.Event) {}, kvindex.OK},
			{"0 is a name", func(ev *kv.Event) { ev.Blocks[n/2].ID = 0 }, kvindex.OK},
			{"0 twice", func(ev *kv.Event) { ev.Blocks[0].ID, ev.Blocks[n-1].ID = 0, 0 }, kvindex.Invalid},
			{"the first again", func(ev *kv.Event) { ev.Blocks[n-1].ID = ev.Blocks[0].ID }, kvindex.Invalid},
			{"the one before again", func(ev *kv.Event) { ev.Blocks[n-1].ID = ev.Blocks[n-2].ID }, kvindex.Invalid},
			{"the parent", func(ev *kv.Event) { ev.Blocks[n-1].ID = ev.Parent }, kvindex.Invalid},
			{"0 as parent and block", func(ev *kv.Event) { ev.Parent, ev.Blocks[n-1].ID = 0, 0 }, kvindex.Invalid},
			{"the name of a parent at a known place", func(ev *kv.Event) {
				ev.Blocks[n-1].ID = ev.Parent
				ev.ParentSeq, ev.HasParentSeq = 1, true
			}, kvindex.OK},
		} {
			t.Run(fmt.Sprintf("%d blocks, %s", n, tc.name), func(t *testing.T) {
				v := newVectors(t, kvindex.Config{})
				v.do(src, stored(kv.Device, kv.Block{ID: 7, Tokens: 1}))
				ev := storedAfter(7)
				for i := range kv.BlockID(n) {
					ev.Blocks = append(ev.Blocks, kv.Block{ID: 1000 + i, Tokens: kv.LocalHash(2 + i)})
				}
				tc.change(&ev)
				// Twice: an event before it leaves no traces.
				for range 2 {
					v.ended(v.do(src, ev), tc.want)
				}
				if tc.want == kvindex.OK {
					v.size(workerA, n+1)
				} else {
					v.size(workerA, 1)
				}
				v.sound()
			})
		}
	}
}

// TestRestoreFullPlane: a fleet that fills a plane needs no other because one of its
// ranks was restored, and planes go with their last rank.
func TestRestoreFullPlane(t *testing.T) {
	const ranks = 64
	v := newVectors(t, kvindex.Config{})
	for w := range kv.WorkerID(ranks) {
		v.store(w+1, to(100)[:w+1]...)
	}
	src := rank0(ranks)
	for _, ev := range []kv.Event{
		counted(stored(kv.Device, numbered(to(3))...)),
		stored(kv.Host, kv.Block{ID: 77, Tokens: 77}),
		storedAfter(12345, kv.Block{ID: 999, Tokens: 9}),
		storedAfter(300, kv.Block{ID: 401, Tokens: 4}),
	} {
		v.do(src, ev)
	}
	before, lookup := v.Stats(), v.Match(nil, chain(to(100)...))
	rank, _ := v.Rank(src)
	copyRank(t, v.Index, v.Index, src)
	if n := v.Planes(); n != 1 {
		t.Errorf("%d planes for %d ranks", n, ranks)
	}
	if diff := cmp.Diff(lookup, v.Match(nil, chain(to(100)...))); diff != "" {
		t.Errorf("a lookup after the restore (-before +after):\n%s", diff)
	}
	after, _ := v.Rank(src)
	rank.Known = true
	if diff := cmp.Diff(rank, after); diff != "" {
		t.Errorf("the rank (-before +after):\n%s", diff)
	}
	if s := v.Stats(); s.Blocks != before.Blocks || s.Orphans != before.Orphans || s.Duplicates != before.Duplicates {
		t.Errorf("%+v, and was %+v", s, before)
	}
	v.do(src, counted(removed(100)))
	if got := depthOn(v.Index, src, chain(to(100)...)); got != ranks {
		t.Errorf("%d blocks after one of two copies went", got)
	}
	v.sound()

	v.store(ranks+1, 1)
	v.store(ranks+2, 1)
	v.sound()
	if n := v.Planes(); n != 2 {
		t.Errorf("%d planes for %d ranks", n, ranks+2)
	}
	// Room that others leave is for who is restored.
	v.RemoveRank(rank0(1))
	copyRank(t, v.Index, v.Index, rank0(ranks+1))
	v.sound()
	v.RemoveRank(rank0(ranks + 2))
	v.sound()
	if n := v.Planes(); n != 1 {
		t.Errorf("%d planes for %d ranks", n, ranks)
	}
}

// TestGivesBack: memory that was needed for many blocks is not kept for a few.
func TestGivesBack(t *testing.T) {
	const n = 20_000
	src := rank0(workerA)
	for name, tc := range map[string]struct {
		tier     kv.Tier
		per      int  // blocks of a prompt
		backward bool // the last block first
	}{
		"prompts of one block": {kv.Device, 1, false},
		"long prompts":         {kv.Device, 200, true},
		"a far tier":           {kv.Disk, 200, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVectors(t, kvindex.Config{})
			v.store(workerB, 1, 2, 3)
			var all []kv.Block
			for i := range n {
				all = append(all, kv.Block{ID: kv.BlockID(1000 + i), Tokens: kv.LocalHash(kv.Chain(1, kv.LocalHash(i)))})
			}
			for i := 0; i < n; i += tc.per {
				v.Apply(&kv.Batch{Source: src, Events: []kv.Event{stored(tc.tier, all[i:i+tc.per]...)}})
			}
			v.sound()
			full := v.Stats().Bytes
			for i := range n {
				b := all[i]
				if tc.backward {
					b = all[n-1-i]
				}
				v.Apply(&kv.Batch{Source: src, Events: []kv.Event{{Kind: kv.Removed, Tier: tc.tier, Blocks: []kv.Block{b}}}})
				if i == n-50 || i == n-1 {
					v.sound()
				}
			}
			if s := v.Stats(); s.Blocks != 3 || s.Bytes > full/4 {
				t.Errorf("%d blocks take %d bytes, where %d took %d", s.Blocks, s.Bytes, n, full)
			}
		})
	}
}
