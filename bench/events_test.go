package main

import (
	"io"
	"strings"
	"testing"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

var smallEvents = eventScale{ended: 5, requests: 40}

// TestEventWorkload decodes what is published: every pass stores a prompt and removes
// as much as it stores, and a lap leaves the cache with as much as it found.
func TestEventWorkload(t *testing.T) {
	w := newEventWorkload(smallEvents)
	if len(w.Fill) != smallEvents.fill() || len(w.Lap) != smallEvents.requests {
		t.Fatalf("%d batches that fill and %d of a lap", len(w.Fill), len(w.Lap))
	}
	d := kv.NewDecoder(kv.DecoderConfig{Source: eventSource, Counted: true})
	for i, p := range w.Lap {
		b, err := d.Decode(uint64(i), p)
		if err != nil {
			t.Fatal(err)
		}
		var blocks [kv.Cleared + 1]int
		for _, ev := range b.Events {
			blocks[ev.Kind] += len(ev.Blocks)
		}
		if blocks[kv.Stored] != eventRequest || blocks[kv.Removed] != eventRequest {
			t.Fatalf("batch %d stores %d blocks and removes %d, want %d", i, blocks[kv.Stored], blocks[kv.Removed], eventRequest)
		}
	}
	if d.Skipped() != [kv.NumReasons]uint64{} || d.BlockSize() != eventBlock {
		t.Errorf("skipped %v, blocks of %d", d.Skipped(), d.BlockSize())
	}
	applied := newDecodeSide(w, kvindex.New(kvindex.Config{}))
	if err := applied.fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := applied.lap(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := sameEvents(smallEvents, applied.index, applied.index); err != nil {
			t.Fatal(err)
		}
	}
	if st := applied.index.Stats(); st.Duplicates != 0 || st.Forgotten != 0 {
		t.Errorf("%d duplicates, %d forgotten", st.Duplicates, st.Forgotten)
	}
}

// TestSameEvents tells indexes apart that are not the same.
func TestSameEvents(t *testing.T) {
	w := newEventWorkload(smallEvents)
	whole, early := newDecodeSide(w, kvindex.New(kvindex.Config{})), newDecodeSide(w, kvindex.New(kvindex.Config{}))
	for _, d := range []*decodeSide{whole, early} {
		if err := d.fill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := whole.lap(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := early.take(w.Lap[:len(w.Lap)-1]); err != nil {
		t.Fatal(err)
	}
	if err := sameEvents(smallEvents, whole.index, early.index); err == nil {
		t.Error("an index that missed a batch is the same")
	}
}

// TestMeasureEvents takes events from another process.
func TestMeasureEvents(t *testing.T) {
	var r report
	o := options{dir: t.TempDir(), rounds: 2, log: io.Discard}
	if err := measureEventsOf(t.Context(), o, &r, smallEvents, 2); err != nil {
		t.Fatal(err)
	}
	if len(r.rows) != 2 || len(r.notes) != 1 || !strings.Contains(r.notes[0], "64 blocks stored in 17 events") {
		t.Errorf("rows %v, notes %q", r.rows, r.notes)
	}
}

// TestEventsLost counts a batch that does not arrive.
func TestEventsLost(t *testing.T) {
	w := newEventWorkload(smallEvents)
	l, err := openLinked(t.Context(), t.TempDir(), w)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if err := l.fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.check(); err != nil {
		t.Errorf("nothing was lost: %v", err)
	}
	l.batches++
	if err := l.check(); err == nil {
		t.Error("a batch that did not arrive is not missed")
	}
}
