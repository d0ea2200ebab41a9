package kvfeed

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stator-ai/stator/internal/kv"
)

// TestResyncTrustsNothingBefore has a source begin anew while it is asked about a batch
// that came twice. What arrived by the connection before is not taken for part of the
// new life, and that says nothing yet is an answer.
func TestResyncTrustsNothingBefore(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer []*kv.Batch
		want   []any
		next   uint64
		placed bool
	}{
		{"it has said something", numbered(0, 0), []any{Clear, uint64(0)}, 1, true},
		{"it has said nothing", nil, []any{Clear}, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := NewFeed(kv.Source{}, Options{Ordered: true, Recoverable: true})
			f.Start()
			f.Answer(f.Recovery(), Answer{Kind: Events, Batches: numbered(0, 0, 1)})
			f.Batch(numbered(0, 1)[0]) // which the answer had, or is of another life
			if f.State() != Syncing || f.Held() != 1 {
				t.Fatalf("%v with %d batches held back", f.State(), f.Held())
			}
			f.Resync(0)
			if diff := cmp.Diff(tt.want, doing(f.Answer(f.Recovery(), Answer{Kind: Events, Batches: tt.answer}))); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			cur := f.Cursor()
			if next, placed := cur.Next(); f.State() != Live || f.Held() != 0 || placed != tt.placed || placed && next != tt.next {
				t.Errorf("%v with %d batches held back, at %d, %t", f.State(), f.Held(), next, placed)
			}
		})
	}
}
