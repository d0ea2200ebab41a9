package kvlink

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stator-ai/stator/internal/kvfeed"
)

// within checks that a rank holds nothing that a model does not.
func (f *fleet) within(m *model) {
	f.t.Helper()
	for id, b := range holds(f.index, src) {
		if m.cache[id].ID != b.ID {
			f.t.Errorf("block %x is not the engine's", id)
		}
	}
}

// Where the batch to compare with is gone, a restart cannot be ruled out, although what
// is asked for is all there.
func TestReplayWithoutMark(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.rig("a:1", 0)
		f.Follow(7, of(at(0, "a:1", true)), nil, false)
		rest()
		r.steps(10)
		synctest.Wait()
		r.hangUp(true)
		r.do(r.restart)
		r.missed(25)
		r.do(func() { r.past, r.down = r.past[10:], false })
		rest()
		f.within(r.model)
		f.stands(src, Degraded)
		if st := f.link(src); st.Feed.Next != 25 {
			t.Errorf("%d is next, want 25", st.Feed.Next)
		}
	})
}

// A hole after the batch to compare with is like any other: what is missing is asked for
// once more.
func TestReplayWithHoleAfterMark(t *testing.T) {
	for _, held := range []int{0, 2} {
		inBubble(t, func(t *testing.T, f *fleet) {
			r := f.rig("a:1", 0)
			f.Follow(7, of(at(0, "a:1", true)), nil, false)
			rest()
			r.steps(10)
			synctest.Wait()
			r.hangUp(true)
			r.missed(5)
			r.do(func() {
				whole := slices.Clone(r.past)
				r.past, r.asked, r.down = slices.Delete(r.past, 10, 12), nil, false
				r.meet = func() {
					switch len(r.asked) {
					case 1:
						for range held {
							b := r.step()
							whole = append(whole, b)
							r.publish(b)
						}
					case 2:
						r.past = whole
					}
				}
			})
			rest()
			f.same(src, r.model)
			f.stands(src, Live)
			if n := f.link(src).Feed.Recoveries[kvfeed.GotGone]; n != 0 {
				t.Errorf("%d answers were taken for the end of the history", n)
			}
		})
	}
}

// An engine that was seen to begin at 0 does not begin at 1.
func TestReplayFromOne(t *testing.T) {
	t.Run("begins there", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fleet) {
			r := f.rig("a:1", 0)
			r.seq = 1
			r.missed(5)
			f.Follow(7, of(at(0, "a:1", true)), nil, false)
			rest()
			f.same(src, r.model)
			f.stands(src, Live)
		})
	})
	for name, heard := range map[string]bool{"0 was heard": true, "0 was in an answer": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fleet) {
				r := f.rig("a:1", 0)
				if !heard {
					r.missed(3)
				}
				f.Follow(7, of(at(0, "a:1", true)), nil, false)
				rest()
				r.steps(3)
				rest()
				r.hangUp(true)
				r.do(r.restart)
				r.missed(8)
				r.do(func() { r.past, r.down = r.past[1:], false })
				rest()
				f.stands(src, Degraded)
				f.within(r.model)
			})
		})
	}
}

// What was not asked for does not stand in the way of seeing a restart.
func TestReplayOfMoreThanAsked(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.rig("a:1", 0)
		r.deaf = true
		f.Follow(7, of(at(0, "a:1", true)), nil, false)
		rest()
		r.steps(10)
		synctest.Wait()
		r.hangUp(false)
		r.missed(3)
		rest()
		f.same(src, r.model)
		f.stands(src, Live)
		r.hangUp(true)
		r.do(r.restart)
		r.missed(25)
		r.do(func() { r.down = false })
		rest()
		f.same(src, r.model)
		f.stands(src, Live)
	})
}

// Batches that take little room, or cannot be read, come in parts too.
func TestReplayOfCrumbs(t *testing.T) {
	for _, row := range []struct {
		name, payload string
		asked         []uint64
	}{
		{"unreadable", "\xc1", []uint64{0, replayBatches, 2 * replayBatches}},
		{"empty", "\x92\xc0\x90", []uint64{0, replayBatches - 1, 2*replayBatches - 1}}, // with one to compare
	} {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fleet) {
				r := f.rig("a:1", 0)
				for range 2*replayBatches + 10 {
					r.keep([]byte(row.payload))
				}
				r.missed(5)
				f.Follow(7, of(at(0, "a:1", true)), nil, false)
				synctest.Wait()
				f.same(src, r.model)
				f.stands(src, Live)
				if !slices.Equal(r.asked, row.asked) {
					t.Errorf("asked for %v, want %v", r.asked, row.asked)
				}
			})
		})
	}
}
