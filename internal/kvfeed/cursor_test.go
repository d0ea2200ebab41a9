package kvfeed

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCursor(t *testing.T) {
	type step struct {
		epoch, seq uint64
		want       Verdict
		missed     uint64
		place      bool // the batch is taken in
	}
	tests := []struct {
		name    string
		ordered bool
		steps   []step
	}{
		{"Sequence: 0,1,2,5 then 0", true, []step{
			{0, 0, Initial, 0, true},
			{0, 1, Contiguous, 0, true},
			{0, 2, Contiguous, 0, true},
			{0, 5, Gap, 2, true},
			{0, 0, Restart, 0, true},
			{0, 1, Contiguous, 0, true},
		}},
		{"a restart at 1", true, []step{{0, 7, Initial, 0, true}, {0, 1, Restart, 0, true}, {0, 2, Contiguous, 0, true}}},
		{"a restart whose beginning was missed", true, []step{{0, 70, Initial, 0, true}, {0, 9, Restart, 0, true}}},
		{"a restart after one batch", true, []step{{0, 0, Initial, 0, true}, {0, 0, Restart, 0, true}}},
		{"a restart before there is a position", true, []step{{0, 5, Initial, 0, false}, {0, 3, Restart, 0, false}}},
		{"late and twice", false, []step{
			{0, 0, Initial, 0, true},
			{0, 2, Gap, 1, true},
			{0, 1, Stale, 0, false},
			{0, 2, Stale, 0, false},
			{0, 0, Stale, 0, false},
			{0, 3, Contiguous, 0, true},
		}},
		{"a gap is counted once while nothing is taken in", false, []step{
			{0, 0, Initial, 0, true},
			{0, 3, Gap, 2, false},
			{0, 4, Gap, 0, false},
			{0, 7, Gap, 2, false},
			{0, 2, Gap, 0, false},
		}},
		{"a larger epoch", false, []step{{1, 9, Initial, 0, true}, {2, 0, Restart, 0, true}, {1, 10, Stale, 0, false}, {2, 1, Contiguous, 0, true}}},
		{"a smaller epoch in order", true, []step{{7, 9, Initial, 0, true}, {3, 10, Restart, 0, true}, {3, 11, Contiguous, 0, true}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := Cursor{Ordered: tt.ordered}
			for i, s := range tt.steps {
				got, missed := c.Observe(s.epoch, s.seq)
				if got != s.want || missed != s.missed {
					t.Fatalf("step %d: Observe(%d, %d) = %v, %d; want %v, %d", i, s.epoch, s.seq, got, missed, s.want, s.missed)
				}
				if s.place {
					c.Place(s.epoch, s.seq)
				}
			}
		})
	}
}

// A recovery may bring batches that are still on their way. When they come they are
// no restart, although they go back behind what is known.
func TestCursorOvertaken(t *testing.T) {
	c := Cursor{Ordered: true}
	c.Observe(0, 4)
	c.Place(0, 9)
	var got []Verdict
	for _, seq := range []uint64{5, 9, 10, 10} {
		v, _ := c.Observe(0, seq)
		got = append(got, v)
		if v == Contiguous {
			c.Place(0, seq)
		}
	}
	if diff := cmp.Diff([]Verdict{Stale, Stale, Contiguous, Restart}, got); diff != "" {
		t.Error(diff)
	}
}

// Of a position that was given, the first to arrive may be late or of a new life.
func TestCursorFirst(t *testing.T) {
	for _, tt := range []struct {
		name    string
		ordered bool
		seqs    []uint64
		want    []Verdict
	}{
		{"late or anew", true, []uint64{7, 8, 9, 10}, []Verdict{Doubtful, Stale, Stale, Contiguous}},
		{"at its beginning", true, []uint64{0}, []Verdict{Restart}},
		{"as expected", true, []uint64{10}, []Verdict{Contiguous}},
		{"unordered", false, []uint64{7, 0}, []Verdict{Stale, Stale}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Cursor{Ordered: tt.ordered}
			c.Place(0, 9)
			var got []Verdict
			for _, seq := range tt.seqs {
				v, _ := c.Observe(0, seq)
				got = append(got, v)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
