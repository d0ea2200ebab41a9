package kvfeed

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

func clock() time.Time { return time.Now() }

// locals recovers from what companions keep.
type locals []*Local

func (ls locals) Recover(_ context.Context, src kv.Source, from uint64, full bool) (Answer, error) {
	for _, l := range ls {
		if l.worker == src.Worker {
			q := Request{Worker: src.Worker, Rank: &src.Rank, Start: &from}
			if full {
				q.Start = nil
			}
			return l.Query(q), nil
		}
	}
	return Answer{}, errors.New("no companion")
}

// recoverFunc is a Recoverer made of a function.
type recoverFunc func(ctx context.Context, src kv.Source, from uint64, full bool) (Answer, error)

func (f recoverFunc) Recover(ctx context.Context, src kv.Source, from uint64, full bool) (Answer, error) {
	return f(ctx, src, from, full)
}

// never is a source that does not answer.
func never(ctx context.Context, _ kv.Source, _ uint64, _ bool) (Answer, error) {
	<-ctx.Done()
	return Answer{}, ctx.Err()
}

// slow is an index whose Apply waits until gate is closed.
type slow struct {
	*kvindex.Index
	gate chan struct{}
}

func (s slow) Apply(b *kv.Batch) error {
	<-s.gate
	return s.Index.Apply(b)
}

// of returns a batch of another source.
func of(src kv.Source, b *kv.Batch) *kv.Batch {
	b.Source = src
	return b
}

func blocks(x *kvindex.Index, src kv.Source) int {
	st, _ := x.Rank(src)
	return st.Blocks
}

func add(t *testing.T, h *Hub, opt Options, srcs ...kv.Source) {
	t.Helper()
	for _, src := range srcs {
		if err := h.Add(src, opt); err != nil {
			t.Fatal(err)
		}
	}
}

func push(t *testing.T, h *Hub, bs ...*kv.Batch) {
	t.Helper()
	for _, b := range bs {
		if err := h.Apply(b); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := local(t, 0, 0, 9)
		x := kvindex.New(kvindex.Config{})
		h := Open(Config{Target: x, Recoverer: locals{there}, Now: clock})
		defer h.Close()
		add(t, h, engine, testSource)
		synctest.Wait()
		if n := blocks(x, testSource); n != 10 {
			t.Errorf("%d blocks before anything was said, want 10", n)
		}
		for seq := uint64(10); seq < 14; seq++ {
			there.Apply(stored(0, seq))
		}
		push(t, h, stored(0, 13))
		if err := h.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := blocks(x, testSource); n != 14 {
			t.Errorf("%d blocks after a gap, want 14", n)
		}
		want := Stats{Source: testSource, State: Live, Next: 14, Known: true, Counts: Counts{Applied: 4, Gaps: 1, Missed: 3}}
		want.Recoveries[GotDump] = 1
		want.Recoveries[GotEvents] = 1
		if diff := cmp.Diff([]Stats{want}, h.Stats()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestHubDistrust: blocks behind one that was never told of, without a gap in the
// numbers, mean that something was lost all the same.
func TestHubDistrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := NewLocal(testSource.Worker, kvindex.New(kvindex.Config{}), 0)
		x := kvindex.New(kvindex.Config{})
		h := Open(Config{Target: x, Recoverer: locals{there}, Now: clock})
		defer h.Close()
		add(t, h, engine, testSource)
		synctest.Wait()
		chain := func(seq uint64) *kv.Batch {
			ev := kv.Event{Kind: kv.Stored, Blocks: []kv.Block{{ID: kv.BlockID(seq + 1), Tokens: kv.LocalHash(seq)}}}
			if seq > 0 {
				ev.Parent, ev.HasParent = kv.BlockID(seq), true
			}
			return &kv.Batch{Source: testSource, Seq: seq, Events: []kv.Event{ev}}
		}
		for seq := range uint64(2 * doubtEvery) {
			there.Apply(chain(seq))
			b := chain(seq)
			if seq == 1 {
				b.Events = nil // lost on the way
			}
			push(t, h, b)
		}
		if err := h.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if st, _ := x.Rank(testSource); st.Blocks != 2*doubtEvery || st.Orphans != 0 {
			t.Errorf("%+v, want %d blocks and no orphan", st, 2*doubtEvery)
		}
		if st := h.Stats()[0]; st.Distrusts != 1 || st.State != Live {
			t.Errorf("%d distrusts and state %v, want 1 and live", st.Distrusts, st.State)
		}
	})
}

func TestHubErrors(t *testing.T) {
	h := Open(Config{Target: kvindex.New(kvindex.Config{}), Now: clock})
	if err := h.Apply(stored(0, 0)); !errors.Is(err, ErrUnknown) {
		t.Errorf("Apply: %v, want ErrUnknown", err)
	}
	if err := h.Add(testSource, engine); err == nil {
		t.Error("Add: a source that can be asked, and nobody to ask it")
	}
	add(t, h, deaf, testSource)
	if err := h.Add(testSource, deaf); !errors.Is(err, ErrKnown) {
		t.Errorf("Add: %v, want ErrKnown", err)
	}
	if !h.Remove(testSource) || h.Remove(testSource) {
		t.Error("Remove: want true, then false")
	}
	h.Close()
	h.Close()
	if err := h.Apply(stored(0, 0)); !errors.Is(err, ErrClosed) {
		t.Errorf("Apply: %v, want ErrClosed", err)
	}
	if err := h.Add(testSource, deaf); !errors.Is(err, ErrClosed) {
		t.Errorf("Add: %v, want ErrClosed", err)
	}
	if err := h.Flush(t.Context()); err != nil {
		t.Errorf("Flush: %v", err)
	}
}

func TestHubFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := local(t, 0, 0, 9)
		x := slow{kvindex.New(kvindex.Config{}), make(chan struct{})}
		h := Open(Config{Target: x, Recoverer: locals{there}, Queue: 3, Now: clock})
		defer h.Close()
		add(t, h, engine, testSource)
		synctest.Wait() // the dump is in
		push(t, h, stored(0, 10))
		synctest.Wait() // in hand
		time.Sleep(2 * time.Second)
		push(t, h, stored(0, 11), stored(0, 12), stored(0, 13))
		for seq := uint64(10); seq < 16; seq++ {
			there.Apply(stored(0, seq))
		}
		for seq := uint64(14); seq < 16; seq++ {
			if err := h.Apply(stored(0, seq)); !errors.Is(err, ErrFull) {
				t.Errorf("batch %d: %v, want ErrFull", seq, err)
			}
		}
		time.Sleep(time.Second)
		st := h.Stats()[0]
		if st.Queued != 3 || st.Dropped != 2 || st.Lag != 3*time.Second {
			t.Errorf("queued %d, dropped %d, lag %v; want 3, 2, 3s", st.Queued, st.Dropped, st.Lag)
		}
		close(x.gate)
		synctest.Wait()
		// What was dropped is recovered although nothing came after it.
		st = h.Stats()[0]
		if n := blocks(x.Index, testSource); n != 16 || st.Missed != 2 || st.State != Live || st.Queued != 0 || st.Lag != 0 {
			t.Errorf("%d blocks, want 16; %+v", n, st)
		}
	})
}

// A batch that was dropped is not forgotten because older ones come after it.
func TestHubDroppedThenLate(t *testing.T) {
	for _, accepted := range []bool{true, false} {
		t.Run(fmt.Sprintf("accepted=%v", accepted), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				there := local(t, 0, 0, 5)
				x := slow{kvindex.New(kvindex.Config{}), make(chan struct{}, 1)}
				h := Open(Config{Target: x, Recoverer: locals{there}, Queue: 2, Now: clock})
				defer h.Close()
				add(t, h, Options{Recoverable: true, Resume: true, Seq: 0}, testSource)
				synctest.Wait() // 1 to 5 were told, and 1 is in hand
				for seq := uint64(6); seq < 11; seq++ {
					there.Apply(stored(0, seq))
				}
				push(t, h, stored(0, 6), stored(0, 7))
				if err := h.Apply(stored(0, 10)); !errors.Is(err, ErrFull) {
					t.Errorf("Apply: %v, want ErrFull", err)
				}
				if accepted {
					for range 6 { // of 1 to 6
						x.gate <- struct{}{}
					}
					synctest.Wait()
				}
				if err := h.Apply(stored(0, 2)); (err == nil) != accepted {
					t.Errorf("Apply: %v", err)
				}
				close(x.gate)
				synctest.Wait()
				if n, st := blocks(x.Index, testSource), h.Stats()[0]; n != 10 || st.State != Live || st.Next != 11 {
					t.Errorf("%d blocks, want 10; %+v", n, st)
				}
			})
		})
	}
}

// One that was dropped in order is shown by whatever comes next, a restart too.
func TestHubDroppedThenRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := slow{kvindex.New(kvindex.Config{}), make(chan struct{}, 1)}
		h := Open(Config{Target: x, Queue: 2, Now: clock})
		defer h.Close()
		add(t, h, deaf, testSource)
		push(t, h, stored(0, 0))
		synctest.Wait() // in hand
		push(t, h, stored(0, 1), stored(0, 2))
		if err := h.Apply(stored(0, 3)); !errors.Is(err, ErrFull) {
			t.Errorf("Apply: %v, want ErrFull", err)
		}
		x.gate <- struct{}{}
		synctest.Wait()
		push(t, h, stored(0, 0))
		close(x.gate)
		synctest.Wait()
		if n, st := blocks(x.Index, testSource), h.Stats()[0]; n != 1 || st.State != Live || st.Restarts != 1 || st.Next != 1 {
			t.Errorf("%d blocks, want 1; %+v", n, st)
		}
	})
}

// Flushes that were given up leave nothing behind.
func TestHubFlushGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := slow{kvindex.New(kvindex.Config{}), make(chan struct{})}
		h := Open(Config{Target: x, Now: clock})
		defer h.Close()
		add(t, h, deaf, testSource)
		push(t, h, stored(0, 0), stored(0, 1))
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 {
			if err := h.Flush(ctx); !errors.Is(err, context.Canceled) {
				t.Fatalf("Flush: %v, want that it was given up", err)
			}
		}
		s := h.all()[0]
		s.mu.Lock()
		if n := len(s.mu.queue) - s.mu.head; n != 1 {
			t.Errorf("%d items wait, want the batch", n)
		}
		s.mu.Unlock()
		close(x.gate)
		if err := h.Flush(t.Context()); err != nil {
			t.Errorf("Flush: %v", err)
		}
		if n := blocks(x.Index, testSource); n != 2 {
			t.Errorf("%d blocks, want 2", n)
		}
	})
}

// A source that does not answer holds up no other, and no more than so many are
// asked at once.
func TestHubSlowRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := kvindex.New(kvindex.Config{})
		var mu sync.Mutex
		running, most := 0, 0
		h := Open(Config{Target: x, Now: clock, Timeout: time.Second, Recoverer: recoverFunc(
			func(ctx context.Context, src kv.Source, from uint64, full bool) (Answer, error) {
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				defer func() {
					mu.Lock()
					running--
					mu.Unlock()
				}()
				return never(ctx, src, from, full)
			})})
		defer h.Close()
		for rank := range uint32(40) {
			add(t, h, engine, kv.Source{Worker: 9, Rank: rank})
		}
		add(t, h, deaf, testSource)
		push(t, h, of(kv.Source{Worker: 9, Rank: 3}, stored(0, 5)), stored(0, 0), stored(0, 1))
		synctest.Wait()
		if n := blocks(x, testSource); n != 2 {
			t.Errorf("%d blocks of the source that can do without, want 2", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := h.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush: %v, want that it waits for the batch held back", err)
		}
		begun := time.Now()
		if err := h.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		if most != 16 {
			t.Errorf("%d recoveries at once, want 16", most)
		}
		mu.Unlock()
		// 40 sources, 16 at a time, 8 attempts of a second each.
		if took := time.Since(begun); took < 20*time.Second || took > 60*time.Second {
			t.Errorf("given up after %v", took)
		}
		for _, st := range h.Stats() {
			if st.Source.Rank == 3 && (st.State != Degraded || st.Recoveries[Exhausted] != 1 || st.Recoveries[GotNothing] != 8) {
				t.Errorf("%+v, want degraded after 8 attempts", st)
			}
		}
		if n := blocks(x, kv.Source{Worker: 9, Rank: 3}); n != 1 {
			t.Errorf("%d blocks, want the one that was held back", n)
		}
	})
}

// The attempts of a recovery that fails at once take 25.4 s.
func TestHubBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		begun := time.Now()
		h := Open(Config{Target: kvindex.New(kvindex.Config{}), Now: clock, Recoverer: recoverFunc(
			func(context.Context, kv.Source, uint64, bool) (Answer, error) {
				at = append(at, time.Since(begun))
				return Answer{}, errors.New("refused")
			})})
		defer h.Close()
		add(t, h, engine, testSource)
		push(t, h, stored(0, 9))
		if err := h.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		var want []time.Duration
		for _, ms := range []int{0, 200, 600, 1400, 3000, 6200, 12600, 25400} {
			want = append(want, time.Duration(ms)*time.Millisecond)
		}
		if diff := cmp.Diff(want, at); diff != "" {
			t.Error(diff)
		}
	})
}

func TestHubRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := slow{kvindex.New(kvindex.Config{}), make(chan struct{})}
		h := Open(Config{Target: x, Now: clock})
		defer h.Close()
		add(t, h, deaf, testSource)
		for seq := range uint64(100) {
			push(t, h, stored(0, seq))
		}
		synctest.Wait()
		flushed := make(chan error)
		go func() { flushed <- h.Flush(t.Context()) }()
		synctest.Wait()
		gone := make(chan bool)
		go func() { gone <- h.Remove(testSource) }()
		synctest.Wait()
		if err := h.Apply(stored(0, 100)); !errors.Is(err, ErrUnknown) {
			t.Errorf("Apply while it is removed: %v, want ErrUnknown", err)
		}
		added := make(chan error)
		go func() { added <- h.Add(testSource, deaf) }()
		synctest.Wait()
		close(x.gate)
		if !<-gone {
			t.Error("Remove: false")
		}
		if err := <-flushed; err != nil {
			t.Errorf("Flush: %v", err)
		}
		if err := <-added; err != nil {
			t.Errorf("Add: %v", err)
		}
		synctest.Wait()
		if _, ok := x.Rank(testSource); ok {
			t.Error("the rank is still known")
		}
		push(t, h, stored(0, 0))
		synctest.Wait()
		if n := blocks(x.Index, testSource); n != 1 {
			t.Errorf("%d blocks of the source that was added again, want 1", n)
		}
	})
}

// Removing a source ends a recovery of it, and a dump that is just being read.
func TestHubRemoveDuringRecovery(t *testing.T) {
	for _, reading := range []bool{false, true} {
		t.Run(fmt.Sprintf("reading=%v", reading), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := kvindex.New(kvindex.Config{})
				h := Open(Config{Target: x, Now: clock, Recoverer: recoverFunc(
					func(ctx context.Context, src kv.Source, from uint64, full bool) (Answer, error) {
						if !reading {
							return never(ctx, src, from, full)
						}
						return Answer{Kind: Dump, Last: 5, Known: true, Dump: func(yield func(*kv.Event, error) bool) {
							if yield(&stored(0, 0).Events[0], nil) {
								<-ctx.Done()
								yield(nil, ctx.Err())
							}
						}}, nil
					})})
				defer h.Close()
				add(t, h, engine, testSource)
				synctest.Wait()
				begun := time.Now()
				if !h.Remove(testSource) {
					t.Error("Remove: false")
				}
				if took := time.Since(begun); took != 0 {
					t.Errorf("Remove took %v", took)
				}
				if _, ok := x.Rank(testSource); ok {
					t.Error("the rank is known")
				}
			})
		})
	}
}

// What supersedes a recovery ends it.
func TestHubSuperseded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := false
		h := Open(Config{Target: kvindex.New(kvindex.Config{}), Now: clock, Recoverer: recoverFunc(
			func(ctx context.Context, src kv.Source, from uint64, full bool) (Answer, error) {
				defer func() { ended = true }()
				return never(ctx, src, from, full)
			})})
		defer h.Close()
		add(t, h, engine, testSource)
		synctest.Wait()
		push(t, h, cleared(0, 6))
		synctest.Wait()
		if st := h.Stats()[0]; !ended || st.State != Live || st.Recoveries[Superseded] != 1 {
			t.Errorf("ended %v, %+v", ended, st)
		}
	})
}

// A dump that takes too long is a failure, and the rank stays as it was.
func TestHubDumpTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := kvindex.New(kvindex.Config{})
		push := func(b *kv.Batch) { _ = x.Apply(b) }
		push(stored(0, 0))
		h := Open(Config{Target: x, Now: clock, Timeout: 3 * time.Second, Recoverer: recoverFunc(
			func(ctx context.Context, src kv.Source, from uint64, full bool) (Answer, error) {
				return Answer{Kind: Dump, Last: 5, Known: true, Dump: func(yield func(*kv.Event, error) bool) {
					<-ctx.Done()
					yield(nil, ctx.Err())
				}}, nil
			})})
		defer h.Close()
		add(t, h, engine, testSource)
		time.Sleep(3*time.Second + time.Millisecond)
		st := h.Stats()[0]
		if st.State != Syncing || st.Recoveries[GotNothing] != 1 || st.Recoveries[GotDump] != 0 || blocks(x, testSource) != 1 {
			t.Errorf("%+v with %d blocks, want one failed attempt and 1 block", st, blocks(x, testSource))
		}
	})
}

func TestHubClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := slow{kvindex.New(kvindex.Config{}), make(chan struct{})}
		h := Open(Config{Target: x, Now: clock, Recoverer: recoverFunc(never)})
		other := kv.Source{Worker: 8}
		add(t, h, deaf, testSource)
		add(t, h, engine, other)
		push(t, h, stored(0, 0), stored(0, 1), stored(0, 2), of(other, stored(0, 4)))
		closed := make(chan struct{})
		go func() { h.Close(); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close did not wait")
		default:
		}
		close(x.gate)
		<-closed
		if n := blocks(x.Index, testSource); n != 3 {
			t.Errorf("%d blocks, want the 3 that waited", n)
		}
		if n := blocks(x.Index, other); n != 0 {
			t.Errorf("%d blocks of the source that was being recovered, want 0", n)
		}
	})
}

// refusing is a target that takes no batch.
type refusing struct{}

func (refusing) Apply(*kv.Batch) error     { return errors.New("no") }
func (refusing) ClearRank(kv.Source)       {}
func (refusing) RemoveRank(kv.Source) bool { return false }
func (refusing) Restore(kv.Source, uint64, uint64, iter.Seq2[*kv.Event, error]) error {
	return errors.New("no")
}

func TestHubFailed(t *testing.T) {
	h := Open(Config{Target: refusing{}, Now: clock})
	defer h.Close()
	add(t, h, deaf, testSource)
	push(t, h, stored(0, 0), stored(0, 1))
	if err := h.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st := h.Stats()[0]; st.Failed != 2 {
		t.Errorf("%+v, want 2 failed", st)
	}
}
