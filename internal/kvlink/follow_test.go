package kvlink

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
)

// A stream whose batches name another rank tells of that one.
func TestRanks(t *testing.T) {
	one := kv.Source{Worker: 7, Rank: 1}
	t.Run("streams in another order", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fleet) {
			a, b := f.rig("a:1", 1), f.rig("a:2", 0)
			f.Follow(7, of(at(0, "a:1", true), at(1, "a:2", true)), nil, false)
			rest()
			a.steps(5)
			b.steps(5)
			rest()
			f.same(one, a.model)
			f.same(src, b.model)
			a.hangUp(true)
			rest()
			if diff := cmp.Diff(Dialing, last(f.told(one))); diff != "" {
				t.Errorf("state of the rank that it tells of: %s", diff)
			}
			if diff := cmp.Diff(Live, last(f.told(src))); diff != "" {
				t.Errorf("state of the other: %s", diff)
			}
			a.do(func() { a.restart(); a.down = false })
			a.missed(3)
			rest()
			f.same(one, a.model)
			f.same(src, b.model)
			f.Follow(7, of(at(1, "a:2", true)), nil, false)
			if n := len(holds(f.index, one)); n != 0 {
				t.Errorf("%d blocks of a stream that is gone", n)
			}
			f.same(src, b.model)
		})
	})
	t.Run("a rank without a stream", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fleet) {
			r := f.rig("a:1", 1)
			info := of(at(0, "a:1", true))
			info.Models = []engine.Model{{ID: "m", Ranks: 2}}
			f.Follow(7, info, nil, false)
			rest()
			r.steps(5)
			synctest.Wait()
			f.same(one, r.model)
			if st := f.link(src); !slices.Equal(st.Ranks, []uint32{1}) || st.Misplaced != 0 {
				t.Errorf("ranks %v, %d misplaced", st.Ranks, st.Misplaced)
			}
		})
	})
	t.Run("counted from another", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fleet) {
			rigs := []*rig{f.rig("a:1", 2), f.rig("a:2", 3), f.rig("a:3", 0)}
			rigs[2].mute = true // and so of the rank that the stream was found for
			streams := []engine.EventStream{at(0, "a:1", true), at(1, "a:2", true), at(2, "a:3", true)}
			for i := range streams {
				streams[i].First = 2
			}
			f.Follow(7, of(streams...), nil, false)
			rest()
			for i, r := range rigs {
				rank := kv.Source{Worker: 7, Rank: uint32(i)}
				r.steps(5)
				synctest.Wait()
				f.same(rank, r.model)
				f.stands(rank, Live)
				if st := f.link(rank); st.Misplaced != 0 || !slices.Equal(st.Ranks, []uint32{uint32(i)}) {
					t.Errorf("rank %d: %d misplaced, ranks %v", i, st.Misplaced, st.Ranks)
				}
			}
		})
	})
	t.Run("a rank that is not there", func(t *testing.T) {
		// A socket of its own is of the rank that it was found for.
		for _, first := range []uint32{0, 1, 9} {
			inBubble(t, func(t *testing.T, f *fleet) {
				a, b := f.rig("a:1", 5), f.rig("a:2", 6)
				streams := []engine.EventStream{at(0, "a:1", true), at(1, "a:2", true)}
				streams[0].First, streams[1].First = first, first
				f.Follow(7, of(streams...), nil, false)
				rest()
				a.steps(5)
				b.steps(5)
				synctest.Wait()
				f.same(src, a.model)
				f.same(one, b.model)
				f.stands(src, Live)
				f.stands(one, Live)
				if st := f.link(src); st.Misplaced != 0 || st.LastError != nil {
					t.Errorf("%d misplaced, %v", st.Misplaced, st.LastError)
				}
				// But it is not of two.
				a.do(func() { a.publish(a.say()) })
				a.do(func() { a.rank++; a.publish(a.say()) })
				synctest.Wait()
				if st := f.link(src); st.Misplaced != 1 || st.State != Live {
					t.Errorf("%d misplaced, want 1; %v", st.Misplaced, st.State)
				}
				// Until it begins anew.
				a.do(func() { a.restart(); a.publish(a.step()) })
				synctest.Wait()
				f.same(src, a.model)
			})
		}
	})
	t.Run("ranks that are not there on one socket", func(t *testing.T) {
		for _, replay := range []bool{true, false} {
			inBubble(t, func(t *testing.T, f *fleet) {
				r := f.rig("a:1", 5)
				f.Follow(7, of(at(0, "a:1", replay), at(1, "a:1", replay)), nil, false)
				rest()
				r.steps(5)
				rest()
				f.stands(src, Silent)
				f.stands(one, Silent)
				st := f.link(src)
				if st.Misplaced != 5 || st.Events != 0 {
					t.Errorf("%d misplaced, %d events", st.Misplaced, st.Events)
				}
				if want := "events are of rank 5, which the worker does not have"; st.LastError == nil || st.LastError.Error() != want {
					t.Errorf("error %v, want %s", st.LastError, want)
				}
				// A connection that is made anew does not change it.
				r.hangUp(false)
				rest()
				f.stands(src, Silent)
				r.hangUp(true)
				rest()
				f.stands(src, Dialing)
				r.do(func() { r.restart(); r.rank, r.down = 0, false })
				rest()
				if replay { // a life that has said nothing yet
					f.stands(src, Live)
				}
				r.steps(5)
				rest()
				r.steps(1)
				synctest.Wait()
				owner, other := f.link(src), f.link(one)
				if len(owner.Ranks) == 0 {
					owner, other = other, owner
				}
				if !slices.Equal(owner.Ranks, []uint32{0}) || owner.LastError != nil || owner.State != Live {
					t.Errorf("ranks %v, %v, %v", owner.Ranks, owner.State, owner.LastError)
				}
				if other.State != Silent || other.LastError == nil {
					t.Errorf("the other is %v, %v", other.State, other.LastError)
				}
				f.same(src, r.model)
			})
		}
	})
	t.Run("two that tell of the same", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fleet) {
			a, b := f.rig("a:1", 0), f.rig("a:2", 0)
			f.Follow(7, of(at(0, "a:1", true), at(1, "a:2", true)), nil, false)
			rest()
			a.steps(5)
			synctest.Wait()
			b.steps(5)
			synctest.Wait()
			f.same(src, a.model)
			st := f.link(one)
			if st.Misplaced != 5 {
				t.Errorf("%d misplaced", st.Misplaced)
			}
			if want := "events are of rank 0, which another socket tells of"; st.LastError == nil || st.LastError.Error() != want {
				t.Errorf("error %v, want %s", st.LastError, want)
			}
			f.stands(one, Silent)
			f.stands(src, Live)
		})
	})
}

func last(states []State) State {
	if len(states) == 0 {
		return None
	}
	return states[len(states)-1]
}

func TestFollow(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		a, b := f.rig("a:1", 0), f.rig("b:1", 0)
		f.Follow(7, of(at(0, "a:1", true)), nil, false)
		rest()
		a.steps(4)
		synctest.Wait()
		for range 3 {
			f.Follow(7, of(at(0, "a:1", true)), nil, false)
		}
		rest()
		if st := f.link(src); st.Connects != 1 || st.Batches != 4 {
			t.Errorf("%d connects, %d batches; want 1 and 4", st.Connects, st.Batches)
		}
		f.same(src, a.model)

		// An engine that began anew behind a connection that has not noticed.
		a.do(a.restart)
		f.Follow(7, of(at(0, "a:1", true)), nil, true)
		rest()
		f.same(src, a.model)
		f.stands(src, Live)
		if st := f.link(src); st.Connects != 2 || st.Feed.Restarts != 1 {
			t.Errorf("%d connects, %d restarts; want 2 and 1", st.Connects, st.Feed.Restarts)
		}
		a.steps(3)
		synctest.Wait()
		f.same(src, a.model)

		// Another address.
		b.missed(6)
		f.Follow(7, of(at(0, "b:1", true)), nil, false)
		rest()
		f.same(src, b.model)
		f.stands(src, Live)
		if a.steps(1); len(holds(f.index, src)) == 0 {
			t.Error("the rank is empty")
		}
		rest()
		f.same(src, b.model)

		f.Forget(7)
		f.Forget(7)
		synctest.Wait()
		if ranks := f.index.Ranks(); len(ranks) != 0 {
			t.Errorf("ranks %v of a worker that was forgotten", ranks)
		}
		if got := last(f.told(src)); got != None {
			t.Errorf("told %v at last", got)
		}
		if st := f.Stats(); len(st) != 0 {
			t.Errorf("links of nobody: %+v", st)
		}
		f.Follow(7, of(at(0, "b:1", true)), nil, true)
		rest()
		f.same(src, b.model)
		f.Follow(7, of(), nil, false)
		if ranks := f.index.Ranks(); len(ranks) != 0 {
			t.Errorf("ranks %v of a worker without streams", ranks)
		}
	})
}

// Lag is measured from the time in a batch.
func TestLag(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.rig("a:1", 0)
		f.Follow(7, of(at(0, "a:1", true)), nil, false)
		rest()
		if st := f.link(src); st.Timed || !st.LastBatch.IsZero() {
			t.Errorf("lag %v of nothing, last %v", st.Lag, st.LastBatch)
		}
		r.do(func() { r.clock = float64(time.Now().UnixNano())/1e9 - 0.5 })
		r.steps(1)
		synctest.Wait()
		st := f.link(src)
		if d := st.Lag - 375*time.Millisecond; !st.Timed || d.Abs() > time.Millisecond {
			t.Errorf("lag %v, want 375ms", st.Lag)
		}
		if !st.LastBatch.Equal(time.Now()) {
			t.Errorf("last batch %v, now %v", st.LastBatch, time.Now())
		}
	})
}

// Links of an engine that is not there are tried more and more rarely, and at once
// when it is back long after.
func TestBackoff(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.rig("a:1", 0)
		r.down = true
		f.Follow(7, of(at(0, "a:1", true)), nil, false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		n := f.link(src).Failures
		if n < 25 || n > 60 {
			t.Errorf("%d attempts in two minutes", n)
		}
		r.do(func() { r.down = false })
		time.Sleep(6 * time.Second)
		synctest.Wait()
		f.stands(src, Live)
		for range 5 {
			r.hangUp(false)
			time.Sleep(150 * time.Millisecond)
			synctest.Wait()
			f.stands(src, Live)
		}
	})
}
