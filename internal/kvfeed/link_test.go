package kvfeed

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// doing returns what actions do, with the numbers of batches and what is asked for.
func doing(acts []Action) []any {
	var out []any
	for _, a := range acts {
		switch a.Do {
		case Apply:
			out = append(out, a.Batch.Seq)
		case Recover:
			out = append(out, [2]any{a.Recovery.From, a.Recovery.Full})
		default:
			out = append(out, a.Do)
		}
	}
	return out
}

func numbered(epoch uint64, seqs ...uint64) []*kv.Batch {
	var bs []*kv.Batch
	for _, seq := range seqs {
		bs = append(bs, &kv.Batch{Epoch: epoch, Seq: seq})
	}
	return bs
}

func TestResync(t *testing.T) {
	ordered := Options{Ordered: true, Recoverable: true}
	tests := []struct {
		name   string
		opt    Options
		before []uint64
		epoch  uint64
		want   []any
		answer *Answer
		after  []any
		state  State
	}{
		{"the same life, nothing missed", ordered, []uint64{0, 1}, 0,
			[]any{[2]any{uint64(2), false}}, &Answer{Kind: Events}, nil, Live},
		{"the same life, two missed", ordered, []uint64{0, 1}, 0,
			[]any{[2]any{uint64(2), false}}, &Answer{Kind: Events, Batches: numbered(0, 2, 3)}, []any{uint64(2), uint64(3)}, Live},
		{"a new life that says nothing yet", ordered, []uint64{0, 1}, 1,
			[]any{Clear, [2]any{uint64(0), true}}, &Answer{Kind: Events}, []any{Clear}, Live},
		{"a new life", ordered, []uint64{0, 1}, 1,
			[]any{Clear, [2]any{uint64(0), true}}, &Answer{Kind: Events, Batches: numbered(1, 0, 1, 2)},
			[]any{Clear, uint64(0), uint64(1), uint64(2)}, Live},
		{"nothing heard before", ordered, nil, 1,
			[]any{[2]any{uint64(0), true}}, &Answer{Kind: Events}, []any{Clear}, Live},
		{"the same life, with more than was answered", ordered, []uint64{0, 1}, 0,
			[]any{[2]any{uint64(2), false}}, &Answer{Kind: Events, More: true}, []any{[2]any{uint64(2), false}}, Syncing},
		{"nothing heard before, with more than was answered", ordered, nil, 0,
			[]any{[2]any{uint64(0), true}}, &Answer{Kind: Events, More: true}, []any{[2]any{uint64(0), true}}, Syncing},
		{"nobody to ask", Options{Ordered: true}, []uint64{0, 1}, 0, nil, nil, nil, Live},
		{"nobody to ask about a new life", Options{Ordered: true}, []uint64{0, 1}, 1, []any{Clear}, nil, nil, Idle},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := NewFeed(kv.Source{}, tt.opt)
			f.Start()
			for _, b := range numbered(0, tt.before...) {
				f.Batch(b)
			}
			if diff := cmp.Diff(tt.want, doing(f.Resync(tt.epoch))); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if tt.answer != nil {
				if diff := cmp.Diff(tt.after, doing(f.Answer(f.Recovery(), *tt.answer))); diff != "" {
					t.Errorf("after the answer (-want +got):\n%s", diff)
				}
			}
			if f.State() != tt.state {
				t.Errorf("state %v, want %v", f.State(), tt.state)
			}
		})
	}
}

// An answer that says that there is more is applied, and the rest asked for, before
// what was held back.
func TestAnswerWithMore(t *testing.T) {
	for _, kind := range []Kind{Events, Gone} {
		first := uint64(0)
		state := Live
		if kind == Gone {
			first, state = 5, Degraded
		}
		f := NewFeed(kv.Source{}, Options{Ordered: true, Recoverable: true})
		f.Start()
		f.Batch(numbered(0, first+6)[0])
		step := func(a Answer, want ...any) {
			t.Helper()
			if diff := cmp.Diff(want, doing(f.Answer(f.Recovery(), a))); diff != "" {
				t.Errorf("kind %d: actions (-want +got):\n%s", kind, diff)
			}
		}
		step(Answer{Kind: kind, Batches: numbered(0, first, first+1), More: true},
			Clear, first, first+1, [2]any{first + 2, false})
		if f.State() != Syncing {
			t.Errorf("kind %d: %v in the middle", kind, f.State())
		}
		step(Answer{Kind: Events, Batches: numbered(0, first+2, first+3), More: true},
			first+2, first+3, [2]any{first + 4, false})
		step(Answer{Kind: Events, Batches: numbered(0, first+4, first+5)}, first+4, first+5, first+6)
		if f.State() != state {
			t.Errorf("kind %d: %v at the end, want %v", kind, f.State(), state)
		}
		// One that does not get any further is not asked at once again.
		f.Resync(0)
		acts := f.Answer(f.Recovery(), Answer{Kind: Events, Batches: numbered(0, first), More: true})
		if len(acts) != 1 || acts[0].Recovery.After == 0 {
			t.Errorf("kind %d: %+v", kind, acts)
		}
	}
}

// Batches that wait are bounded by their payloads too, though one alone is never too
// large.
// A source that was heard to begin at 0 does not begin at 1.
func TestBeginning(t *testing.T) {
	for _, tt := range []struct {
		seqs []uint64
		want State
	}{
		{[]uint64{1, 2, 3}, Live},
		{[]uint64{1, 2, 1, 2}, Live},
		{[]uint64{0, 1, 0, 1}, Live},
		{[]uint64{0, 1, 1, 2}, Dirty},
		{[]uint64{0, 1, 2, 3, 2}, Dirty},
	} {
		f := NewFeed(kv.Source{}, Options{Ordered: true})
		f.Start()
		for _, b := range numbered(0, tt.seqs...) {
			f.Batch(b)
		}
		if got := f.State(); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.seqs, got, tt.want)
		}
	}
}

func TestBytes(t *testing.T) {
	f := NewFeed(kv.Source{}, Options{Ordered: true, Recoverable: true, BufferBytes: 100})
	f.Start()
	for seq, size := range []int{0, 40, 40, 40, 300} {
		f.Batch(&kv.Batch{Seq: uint64(seq) + 1, Payload: make([]byte, size)})
		if want := []int{1, 2, 3, 2, 1}[seq]; f.Held() != want {
			t.Errorf("%d held after batch %d, want %d", f.Held(), seq+1, want)
		}
	}
	if n := f.Counts().Overflowed; n != 4 {
		t.Errorf("%d overflowed, want 4", n)
	}

	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		h := Open(Config{Target: slow{kvindex.New(kvindex.Config{}), gate}, Now: clock, QueueBytes: 100})
		defer h.Close()
		src := kv.Source{Worker: 1}
		add(t, h, Options{Ordered: true}, src)
		send := func(seq uint64, size int) error {
			err := h.Apply(&kv.Batch{Source: src, Seq: seq, Payload: make([]byte, size)})
			synctest.Wait()
			return err
		}
		for seq, size := range []int{300, 300} { // the first is being applied
			if err := send(uint64(seq), size); err != nil {
				t.Error(err)
			}
		}
		if err := send(2, 1); err == nil {
			t.Error("a full queue takes one more")
		}
		close(gate)
		synctest.Wait()
		for seq := range uint64(50) {
			if err := send(3+seq, 90); err != nil {
				t.Error(err)
			}
		}
		if st := h.Stats()[0]; st.Dropped != 1 || st.Gaps != 1 || st.State != Dirty {
			t.Errorf("%d dropped, %d gaps, %v", st.Dropped, st.Gaps, st.State)
		}
	})
}

// States are told when they change; Lost and Resync take their turn.
func TestHubTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := kv.Source{Worker: 1}
		var mu sync.Mutex
		var told []State
		asked := make(chan uint64, 10)
		answer := make(chan Answer)
		h := Open(Config{
			Target: kvindex.New(kvindex.Config{}), Now: clock,
			Recoverer: recoverFunc(func(ctx context.Context, _ kv.Source, from uint64, _ bool) (Answer, error) {
				asked <- from
				select {
				case a := <-answer:
					return a, nil
				case <-ctx.Done():
					return Answer{}, ctx.Err()
				}
			}),
			Changed: func(_ kv.Source, s State) {
				mu.Lock()
				told = append(told, s)
				mu.Unlock()
			},
		})
		defer h.Close()
		if err := h.Lost(src, 0, 1); err == nil {
			t.Error("a source that is not followed can lose something")
		}
		add(t, h, Options{Ordered: true, Recoverable: true}, src)
		answer <- Answer{Kind: Events}
		synctest.Wait()
		push(t, h, of(src, numbered(0, 0)[0]))
		if err := h.Lost(src, 0, 1); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		answer <- Answer{Kind: Events, Batches: []*kv.Batch{of(src, numbered(0, 1)[0])}}
		synctest.Wait()
		if err := h.Resync(src, 0); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		answer <- Answer{Kind: Events}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if diff := cmp.Diff([]State{Syncing, Live, Syncing, Live, Syncing, Live}, told); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
		close(asked)
		var froms []uint64
		for from := range asked {
			froms = append(froms, from)
		}
		if diff := cmp.Diff([]uint64{0, 1, 2}, froms); diff != "" {
			t.Errorf("asked (-want +got):\n%s", diff)
		}
		if st := h.Stats()[0]; st.Next != 2 || st.Missed != 1 {
			t.Errorf("%d is next, %d missed", st.Next, st.Missed)
		}
	})
}
