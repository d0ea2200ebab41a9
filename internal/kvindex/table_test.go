package kvindex

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// values returns what a table has for a tag, sorted.
func (t *table) values(tag uint64) []uint64 {
	var out []uint64
	if t.count == 0 {
		return nil
	}
	for i := t.home(tag); t.slots[i] != 0; i = t.next(i) {
		if t.slots[i]>>valueBits == tag {
			out = append(out, t.slots[i]&valueMask-1)
		}
	}
	slices.Sort(out)
	return out
}

// TestTableEnd keeps a table busy around its last slot, from where it goes on at the
// first.
func TestTableEnd(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var tab table
	const last = 1<<tagBits - 1
	tags := []uint64{last, last - 1, last - 1<<19, last - 1<<20, 0, 1, 1 << 20}
	want := map[uint64][]uint64{}
	wrapped := false
	for i := range uint64(20_000) {
		tag := tags[rng.IntN(len(tags))]
		if vs := want[tag]; len(vs) > 0 && (tab.count > 10 || rng.IntN(2) == 0) {
			k := rng.IntN(len(vs))
			if !tab.remove(tag, vs[k]) || tab.remove(tag, vs[k]) {
				t.Fatalf("step %d: value %d of tag %x is not there, or twice", i, vs[k], tag)
			}
			want[tag] = slices.Delete(vs, k, k+1)
		} else if tab.count <= 10 {
			tab.add(tag, i)
			want[tag] = append(vs, i)
		}
		count := 0
		for _, tag := range tags {
			count += len(want[tag])
			if got := tab.values(tag); !slices.Equal(got, want[tag]) {
				t.Fatalf("step %d: tag %x has %v, want %v", i, tag, got, want[tag])
			}
		}
		if len(tab.slots) != minTable || tab.count != count {
			t.Fatalf("step %d: %d values, counted as %d in %d slots", i, count, tab.count, len(tab.slots))
		}
		wrapped = wrapped || tab.slots[0] != 0 && tab.home(tab.slots[0]>>valueBits) == minTable-1
	}
	if !wrapped {
		t.Error("no value ever went beyond the end")
	}
}

// TestFarTableEnd does the same with a table of far blocks.
func TestFarTableEnd(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var tab farTable
	tab.resize(minTable)
	var seqs []kv.BlockID // those that would like to be at the end or the beginning
	for seq := kv.BlockID(1); len(seqs) < 11; seq++ {
		if h := tab.home(seq); h >= minTable-2 && len(seqs) < 9 || h == 0 {
			seqs = append(seqs, seq)
		}
	}
	want := map[kv.BlockID]uint64{}
	wrapped := false
	for i := range 20_000 {
		seq, slot := seqs[rng.IntN(len(seqs))], rng.IntN(2)
		if rng.IntN(2) == 0 {
			tab.set(seq, slot)
			want[seq] |= 1 << slot
		} else {
			tab.unset(seq, slot)
			want[seq] &^= 1 << slot
		}
		count := 0
		for _, seq := range seqs {
			if want[seq] != 0 {
				count++
			}
			if got := tab.get(seq); got != want[seq] {
				t.Fatalf("step %d: %d is held by %b, want %b", i, seq, got, want[seq])
			}
		}
		if len(tab.entries) != minTable || tab.count != count {
			t.Fatalf("step %d: %d entries, counted as %d in %d places", i, count, tab.count, len(tab.entries))
		}
		wrapped = wrapped || tab.entries[0].mask != 0 && tab.home(tab.entries[0].seq) > 0
	}
	if !wrapped {
		t.Error("no entry ever went beyond the end")
	}
}

// TestPanicUnlocks: whoever recovers from a panic inside can go on with the index.
func TestPanicUnlocks(t *testing.T) {
	src := kv.Source{Worker: 1}
	now := time.Unix(1000, 0)
	block := []kv.Block{{ID: 1, Tokens: 1}}
	for name, call := range map[string]func(x *Index){
		"Apply":      func(x *Index) { x.Apply(&kv.Batch{Source: src, Events: []kv.Event{{Kind: kv.Stored, Blocks: block}}}) },
		"Route":      func(x *Index) { x.Route(now, src, block) },
		"Expire":     func(x *Index) { x.Expire(now.Add(time.Hour)) },
		"Dump":       func(x *Index) { x.Dump(src) },
		"ClearRank":  func(x *Index) { x.ClearRank(src) },
		"RemoveRank": func(x *Index) { x.ranks[src].plane.hide(0); x.RemoveRank(src) },
	} {
		t.Run(name, func(t *testing.T) {
			x := New(Config{TTL: time.Minute})
			x.Route(now, src, block)
			r := x.ranks[src]
			r.ids.chunks, r.runs[0].page = nil, ^pageRef(0) // broken
			func() {
				defer func() {
					if recover() == nil {
						t.Fatal("no panic")
					}
				}()
				call(x)
			}()
			if !x.mu.TryLock() {
				t.Error("the index is locked")
			}
			if !r.mu.TryLock() {
				t.Error("the rank is locked")
			}
			for i := range r.plane.shards {
				if !r.plane.shards[i].mu.TryLock() {
					t.Error("a shard is locked")
				}
			}
		})
	}
}
