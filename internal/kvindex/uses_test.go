package kvindex

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
)

func prefixOf(n int) []kv.Block {
	return kv.AppendBlocks(nil, kv.HashSeed("", ""), make([]uint32, 4*n), 4)
}

// The row "frequency window 50 ms: find 4 blocks ×2" of the reference's behaviour.
func TestUsesFrequencyWindow(t *testing.T) {
	const window = 50 * time.Millisecond
	u, now := NewUses(window), time.Unix(1_700_000_000, 0)
	for i, step := range []struct {
		after time.Duration
		find  int
		want  []int
	}{
		{0, 4, nil},
		{0, 4, []int{1, 1, 1, 1}},
		{window + 1, 4, nil},
		{0, 4, []int{1, 1, 1, 1}},
		{0, 3, []int{2, 2, 2}},
		{0, 4, []int{3, 3, 3, 2}},
		{window, 4, []int{4, 4, 4, 3}}, // not older than the window
		{1, 4, []int{1, 1, 1, 1}},
	} {
		now = now.Add(step.after)
		if diff := cmp.Diff(step.want, u.Record(nil, now, prefixOf(step.find))); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
}

func TestUsesBound(t *testing.T) {
	u, now := NewUses(time.Hour), time.Unix(1_700_000_000, 0)
	u.limit = 100
	all := prefixOf(150)
	u.Record(nil, now, all)
	if len(u.log) != 100 || len(u.counts) != 100 {
		t.Fatalf("ring of %d with %d blocks counted, want 100 of each", len(u.log), len(u.counts))
	}
	if got := u.Record(nil, now, all[149:]); !cmp.Equal(got, []int{1}) {
		t.Errorf("the newest block: got %v, want [1]", got)
	}
	if got := u.Record(nil, now, all[:1]); got != nil {
		t.Errorf("the oldest block: got %v, want it forgotten", got)
	}
	if u.Record(nil, now.Add(2*time.Hour), nil); u.size != 0 || len(u.counts) != 0 {
		t.Errorf("%d uses of %d blocks are left after the window", u.size, len(u.counts))
	}
}
