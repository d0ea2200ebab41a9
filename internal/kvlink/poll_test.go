package kvlink

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// poller is an engine that is asked. What is sent to it is answered once.
type poller struct {
	batches chan []*kv.Batch
	errs    chan error
	polls   int
	size    int // of blocks
}

func newPoller() *poller {
	return &poller{batches: make(chan []*kv.Batch, 16), errs: make(chan error, 16)}
}

func (p *poller) PollEvents(ctx context.Context) ([]*kv.Batch, error) {
	p.polls++
	select {
	case b := <-p.batches:
		return b, nil
	case err := <-p.errs:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(2 * time.Second):
		return nil, nil
	}
}

func (p *poller) BlockSize() int { return p.size }

// storing is a batch that stores one block after another.
func storing(rank uint32, seq uint64, id kv.BlockID) *kv.Batch {
	return &kv.Batch{Source: kv.Source{Rank: rank}, Seq: seq, Events: []kv.Event{{
		Kind: kv.Stored, Parent: id - 1, HasParent: id > 1, Blocks: []kv.Block{{ID: id, Tokens: kv.LocalHash(id)}},
	}}}
}

func TestPoll(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		info := &engine.Info{Models: []engine.Model{{ID: "m", Ranks: 2}}}
		one := kv.Source{Worker: 7, Rank: 1}
		count := func(src kv.Source, want int) {
			t.Helper()
			if got := len(holds(f.index, src)); got != want {
				t.Fatalf("rank %d has %d blocks, want %d", src.Rank, got, want)
			}
		}
		p := newPoller()
		f.Follow(7, info, p, false)
		synctest.Wait()
		f.stands(src, Dialing)
		p.batches <- []*kv.Batch{storing(0, 0, 1), storing(1, 0, 1), storing(0, 1, 2), storing(5, 0, 1)}
		synctest.Wait()
		f.stands(src, Live)
		f.stands(one, Live)
		count(src, 2)
		count(one, 1)
		if st := f.link(src); !st.Polled || st.Batches != 2 || st.Events != 2 || st.Misplaced != 1 {
			t.Errorf("%+v", st)
		}

		// An engine that does not answer is asked more and more rarely.
		for range 8 {
			p.errs <- errors.New("refused")
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		f.stands(src, Dialing)
		count(src, 2)
		if st := f.link(src); st.Failures < 3 || st.Failures > 7 || st.LastError == nil {
			t.Errorf("%d failures, %v", st.Failures, st.LastError)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		f.stands(src, Live)

		// Another poller goes on where this one stopped.
		q := newPoller()
		f.Follow(7, info, q, false)
		q.batches <- []*kv.Batch{storing(0, 2, 3)}
		rest()
		count(src, 3)
		f.stands(src, Live)

		// What is missing cannot be had: the rank begins anew.
		q.batches <- []*kv.Batch{storing(0, 9, 1)}
		rest()
		count(src, 1)
		f.stands(src, Dirty)
		count(one, 1)

		// A restart shows in the numbers, or is told.
		q.batches <- []*kv.Batch{storing(0, 0, 1), storing(0, 1, 2)}
		rest()
		count(src, 2)
		f.stands(src, Live)
		f.Follow(7, info, q, true)
		rest()
		count(src, 2)
		count(one, 0)
		f.stands(one, Silent)

		f.Follow(7, info, nil, false)
		if ranks := f.index.Ranks(); len(ranks) != 0 {
			t.Errorf("ranks %v of an engine that is not asked any more", ranks)
		}
		before := q.polls
		rest()
		if q.polls != before {
			t.Error("it is asked all the same")
		}
	})
}

// An engine that answers at once with nothing is not asked without a pause.
func TestPollPause(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		var n int
		f.Follow(7, &engine.Info{}, pollFunc(func() { n++ }), false)
		time.Sleep(time.Second)
		f.Forget(7)
		if n < 40 || n > 60 {
			t.Errorf("asked %d times in a second", n)
		}
	})
}

type pollFunc func()

func (f pollFunc) PollEvents(context.Context) ([]*kv.Batch, error) {
	f()
	return nil, nil
}

func (pollFunc) BlockSize() int { return 0 }

// What a poller finds out about blocks is told before the events are applied, and once.
func TestPollLearns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []int
		index := kvindex.New(kvindex.Config{})
		l := Open(Config{Target: index, Now: time.Now, Learned: func(id kv.WorkerID, size int, eagle bool) {
			if id != 7 || eagle || index.Stats().Blocks != 0 {
				t.Errorf("worker %d, eagle %t, %d blocks", id, eagle, index.Stats().Blocks)
			}
			got = append(got, size)
		}})
		defer l.Close()
		p := newPoller()
		l.Follow(7, &engine.Info{}, p, false)
		synctest.Wait()
		p.size = 32
		for seq := range uint64(2) {
			p.batches <- []*kv.Batch{storing(0, seq, kv.BlockID(seq+1))}
			synctest.Wait()
			time.Sleep(time.Second)
		}
		if diff := cmp.Diff([]int{32}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// States are told in their order, and only what is still so.
func TestTeller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var got []State
		tell := newTeller(func(_ kv.Source, s State) {
			<-gate
			got = append(got, s)
		})
		go tell.run()
		tell.tell(src, Dialing)
		synctest.Wait()
		for _, s := range []State{Syncing, Live, Syncing, Live} {
			tell.tell(src, s)
		}
		close(gate)
		synctest.Wait()
		tell.tell(src, Dirty)
		tell.tell(src, Live) // it may be told or not, but Live is what stays
		synctest.Wait()
		tell.tell(src, None)
		tell.tell(kv.Source{Worker: 9}, None)
		synctest.Wait()
		tell.close()
		if len(got) == 5 && got[2] == Dirty {
			got = append(got[:2], got[4:]...)
		}
		if diff := cmp.Diff([]State{Dialing, Live, None}, got); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
	})
}

// Of a rank that was forgotten and came back while nobody was told, the state is told
// even if it is the same as before: who hears has forgotten it, too.
func TestTellerForgets(t *testing.T) {
	var got []State
	tell := newTeller(func(_ kv.Source, s State) { got = append(got, s) })
	next := func() {
		for src, s, ok := tell.next(); ok; src, s, ok = tell.next() {
			tell.call(src, s)
		}
	}
	tell.tell(src, Live)
	next()
	for _, s := range []State{None, Dialing, Live} {
		tell.tell(src, s)
	}
	next()
	tell.tell(src, Live)
	next()
	if diff := cmp.Diff([]State{Live, Live}, got); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}
