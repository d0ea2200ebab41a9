package kvfeed

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// The newest batches of an answer may follow a clear, with what came before left
// out.
func TestFeedAnswerFromClear(t *testing.T) {
	f := NewFeed(testSource, broker)
	f.Batch(stored(0, 0))
	f.Batch(stored(0, 9))
	var got []uint64
	for _, a := range f.Answer(f.Recovery(), Answer{Kind: Events, Batches: []*kv.Batch{cleared(0, 6), stored(0, 7)}, Last: 8, Known: true}) {
		got = append(got, a.Batch.Seq)
	}
	if diff := cmp.Diff([]uint64{6, 7, 9}, got); diff != "" {
		t.Error(diff)
	}
}

func TestFeedForeignAnswer(t *testing.T) {
	f := NewFeed(testSource, broker)
	f.Batch(stored(0, 2))
	other := stored(0, 0)
	other.Source.Rank++
	acts := f.Answer(f.Recovery(), Answer{Kind: Events, Batches: []*kv.Batch{other}})
	if len(acts) != 1 || acts[0].Do != Recover {
		t.Errorf("a batch of another rank: %+v, want another attempt", acts)
	}
}

func TestFeedCounts(t *testing.T) {
	f := NewFeed(testSource, Options{Recoverable: true, Buffer: 2, Attempts: 1})
	for _, b := range []*kv.Batch{stored(1, 0), stored(1, 0), stored(1, 3), stored(1, 4), stored(1, 8)} {
		f.Batch(b)
	}
	f.Answer(f.Recovery(), Answer{Kind: Events, Batches: []*kv.Batch{stored(1, 1), stored(1, 2)}})
	f.Answer(f.Recovery(), Answer{})
	f.Batch(stored(1, 11))
	f.Batch(stored(2, 0))
	want := Counts{Applied: 6, Stale: 1, Gaps: 3, Missed: 2 + 3 + 2, Restarts: 1, Overflowed: 1}
	want.Recoveries[GotEvents] = 1
	want.Recoveries[GotNothing] = 1
	want.Recoveries[Exhausted] = 1
	want.Recoveries[Superseded] = 1
	if diff := cmp.Diff(want, f.Counts()); diff != "" {
		t.Error(diff)
	}
}

func TestFeedAllocs(t *testing.T) {
	f := NewFeed(testSource, engine)
	b := stored(0, 0)
	f.Batch(b)
	if n := testing.AllocsPerRun(100, func() {
		b.Seq++
		f.Batch(b)
	}); n != 0 {
		t.Errorf("a batch in order allocates %v times, want 0", n)
	}
}

func TestBackoffIsBounded(t *testing.T) {
	f := NewFeed(testSource, Options{Recoverable: true, Attempts: 100})
	acts := f.Batch(stored(0, 9))
	for range 98 {
		acts = f.Answer(f.Recovery(), Answer{})
	}
	if after := acts[0].Recovery.After; after <= 0 || after > 4*time.Hour {
		t.Errorf("attempt 99 after %v, want a positive time of at most 4 h", after)
	}
}

// TestFeedHealSpills: a dump without a mark is not trusted when batches since the
// question may be missing behind it.
func TestFeedHealSpills(t *testing.T) {
	for _, ordered := range []bool{true, false} {
		f := NewFeed(testSource, Options{Ordered: ordered, Recoverable: true, Buffer: 4})
		x := kvindex.New(kvindex.Config{})
		x.Apply(stored(0, 9))
		d, _ := x.Dump(testSource)
		restored := func(acts []Action) []Action {
			for _, a := range acts {
				if a.Do == Recover {
					f.Answer(a.Recovery.ID, Answer{Kind: Dump, Dump: func(yield func(*kv.Event, error) bool) {
						for ev := range d.All() {
							if !yield(ev, nil) {
								return
							}
						}
					}})
				}
			}
			for range f.dump.Dump { // as an index would
			}
			return f.Restored(nil)
		}
		heal := restored(f.Start())
		heal = slices.Clone(heal)
		for seq := uint64(10); seq < 30; seq++ {
			f.Batch(stored(0, seq))
		}
		restored(heal)
		if f.State() != Dirty {
			t.Errorf("ordered %v: %v, although batches are in neither the dump nor what was held", ordered, f.State())
		}
	}
}
