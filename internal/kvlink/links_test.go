package kvlink

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvfeed"
	"github.com/stator-ai/stator/internal/zmtp"
)

// Sequence: 0,1,2,5 is a gap of 2 and has 3 asked for; then 0 is a restart.
func TestSequence(t *testing.T) {
	for _, topic := range []bool{false, true} {
		t.Run(fmt.Sprintf("topic in replies %v", topic), func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fleet) {
				r := f.rig("a:1", 0)
				r.topic = topic
				f.Follow(7, of(at(0, "a:1", true)), nil, false)
				rest()
				f.stands(src, Live)
				r.steps(3)
				synctest.Wait()
				f.same(src, r.model)
				r.do(func() { r.asked = nil })
				r.missed(2)
				r.steps(1)
				rest()
				f.same(src, r.model)
				f.stands(src, Live)
				st := f.link(src)
				if st.Feed.Gaps != 1 || st.Feed.Missed != 2 || st.Feed.Restarts != 0 {
					t.Errorf("%d gaps, %d missed, %d restarts; want 1, 2, 0", st.Feed.Gaps, st.Feed.Missed, st.Feed.Restarts)
				}
				// The one before is asked for to see whether it is the same.
				if diff := cmp.Diff([]uint64{2}, r.asked); diff != "" {
					t.Errorf("asked (-want +got):\n%s", diff)
				}
				r.do(r.restart)
				r.steps(1)
				synctest.Wait()
				f.same(src, r.model)
				f.stands(src, Live)
				if st := f.link(src); st.Feed.Restarts != 1 || st.Feed.Next != 1 {
					t.Errorf("%d restarts, %d is next; want 1 and 1", st.Feed.Restarts, st.Feed.Next)
				}
			})
		})
	}
}

// A router that starts later than the engine asks for all that was said.
func TestColdStart(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.rig("a:1", 0)
		r.missed(40)
		f.Follow(7, of(at(0, "a:1", true)), nil, false)
		rest()
		f.same(src, r.model)
		f.stands(src, Live)
		if st := f.link(src); st.BlockSize != blockSize || !st.ExtraKeys || st.Events == 0 {
			t.Errorf("block size %d, extra keys %v, %d events", st.BlockSize, st.ExtraKeys, st.Events)
		}
	})
}

// What is published before the subscription is known to the publisher is asked for,
// although nothing comes after it.
func TestSlowJoiner(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.rig("a:1", 0)
		r.missed(3)
		f.Follow(7, of(at(0, "a:1", true)), nil, false)
		synctest.Wait()
		f.stands(src, Live)
		r.missed(4)
		time.Sleep(2 * confirmAfter)
		synctest.Wait()
		f.same(src, r.model)
		f.stands(src, Live)
		f.told(src)
		asked := len(r.asked)
		rest()
		if len(r.asked) != asked || len(f.told(src)) != 0 {
			t.Errorf("asked %d times, then %d", asked, len(r.asked))
		}
		// Where nothing is missing the state stays.
		r.hangUp(false)
		time.Sleep(confirmAfter / 2)
		f.told(src)
		rest()
		if told := f.told(src); len(told) != 0 {
			t.Errorf("told %v although nothing was missing", told)
		}
	})
}

// What was said while there was no connection is asked for at once, although nothing
// comes after it that would show the gap.
func TestQuietAfterReconnect(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.rig("a:1", 0)
		f.Follow(7, of(at(0, "a:1", true)), nil, false)
		rest()
		r.steps(5)
		synctest.Wait()
		r.hangUp(true)
		rest()
		f.stands(src, Dialing)
		if err := f.link(src).LastError; err == nil {
			t.Error("no error is told")
		}
		r.missed(7)
		r.do(func() { r.down = false })
		rest()
		f.same(src, r.model)
		f.stands(src, Live)
		r.steps(3)
		synctest.Wait()
		f.same(src, r.model)
		if st := f.link(src); st.Connects != 2 || st.Feed.Restarts != 0 || st.Feed.Gaps != 0 {
			t.Errorf("%d connects, %d restarts, %d gaps; want 2, 0, 0", st.Connects, st.Feed.Restarts, st.Feed.Gaps)
		}
	})
}

// A restart is found out without help, however much the engine has said since, and
// although it says nothing more.
func TestRestartMeanwhile(t *testing.T) {
	for name, since := range map[string]int{"nothing": 0, "less": 3, "as much": 10, "more": 25} {
		t.Run(name+" said since", func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fleet) {
				r := f.rig("a:1", 0)
				f.Follow(7, of(at(0, "a:1", true)), nil, false)
				rest()
				r.steps(10)
				synctest.Wait()
				r.hangUp(true)
				rest()
				r.do(r.restart)
				r.missed(since)
				r.do(func() { r.down = false })
				rest()
				f.same(src, r.model)
				f.stands(src, Live)
				r.steps(4)
				rest()
				f.same(src, r.model)
				f.stands(src, Live)
				if st := f.link(src); st.Feed.Restarts == 0 {
					t.Error("no restart was seen")
				}
				// Being told of it now changes nothing.
				connects := f.link(src).Connects
				f.Follow(7, of(at(0, "a:1", true)), nil, true)
				rest()
				if got := f.link(src).Connects; got != connects {
					t.Errorf("connected %d times, then %d", connects, got)
				}
				f.same(src, r.model)
			})
		})
	}
}

func TestWithoutReplay(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.rig("a:1", 0)
		f.Follow(7, of(at(0, "a:1", false)), nil, false)
		rest()
		f.stands(src, Silent)
		r.steps(3)
		synctest.Wait()
		f.stands(src, Live)
		f.same(src, r.model)
		r.missed(2)
		r.steps(1)
		synctest.Wait()
		f.stands(src, Dirty)
		if st := f.link(src); st.Feed.Gaps != 1 || st.Feed.Missed != 2 {
			t.Errorf("%d gaps, %d missed", st.Feed.Gaps, st.Feed.Missed)
		}
		r.do(func() { r.publish(r.wipe()) })
		r.steps(5)
		synctest.Wait()
		f.stands(src, Live)
		f.same(src, r.model)
		// A new connection may have missed something, until the next batch shows.
		r.hangUp(false)
		rest()
		f.stands(src, Dirty)
		r.steps(1)
		synctest.Wait()
		f.stands(src, Live)
		f.same(src, r.model)
		// And so it is after a restart.
		r.hangUp(false)
		r.do(r.restart)
		rest()
		f.stands(src, Dirty)
		r.steps(1)
		synctest.Wait()
		f.stands(src, Live)
		f.same(src, r.model)
		// Unless somebody knows.
		f.Follow(7, of(at(0, "a:1", false)), nil, true) // the numbers have shown that one
		synctest.Wait()
		f.same(src, r.model)
		r.hangUp(true)
		r.do(r.restart)
		r.missed(9)
		f.Follow(7, of(at(0, "a:1", false)), nil, true)
		r.do(func() { r.down = false })
		rest()
		if n := len(holds(f.index, src)); n != 0 {
			t.Errorf("%d blocks of a life that is over", n)
		}
		r.steps(1)
		synctest.Wait()
		f.stands(src, Dirty)
	})
}

// History that is gone leaves the rank with what is left.
func TestGone(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.rig("a:1", 0)
		r.missed(30)
		r.do(func() { r.past = r.past[20:] })
		f.Follow(7, of(at(0, "a:1", true)), nil, false)
		rest()
		f.stands(src, Degraded)
		if st := f.link(src); st.Feed.Next != 30 || st.Feed.Recoveries[kvfeed.GotGone] == 0 {
			t.Errorf("%d is next, want 30; recoveries %v", st.Feed.Next, st.Feed.Recoveries)
		}
		// Once it is empty, everything is known.
		r.do(func() { r.publish(r.wipe()) })
		r.steps(3)
		synctest.Wait()
		f.same(src, r.model)
		f.stands(src, Live)
		// So it is if that is among what is left.
		r.hangUp(true)
		r.missed(20)
		r.do(func() { r.wipe() })
		r.missed(5)
		r.do(func() { r.past, r.down = r.past[len(r.past)-10:], false })
		rest()
		f.same(src, r.model)
		f.stands(src, Live)
	})
}

// The replay socket of an engine drops what it cannot send fast enough, the end marker
// too.
func TestReplayDrops(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.rig("a:1", 0)
		r.limit = 7
		r.missed(40)
		f.Follow(7, of(at(0, "a:1", true)), nil, false)
		time.Sleep(time.Minute)
		synctest.Wait()
		f.same(src, r.model)
		f.stands(src, Live)
		r.do(func() { r.past = r.past[15:] })
		r.hangUp(true)
		r.missed(60)
		r.do(func() { r.past, r.down = r.past[len(r.past)-30:], false })
		time.Sleep(time.Minute)
		synctest.Wait()
		f.stands(src, Degraded)
		if next := f.link(src).Feed.Next; next != 100 {
			t.Errorf("%d is next, want 100", next)
		}
	})
}

// A batch in the middle that is missing from an answer is asked for again.
func TestReplayWithHole(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.rig("a:1", 0)
		r.missed(20)
		whole := slices.Clone(r.past)
		r.do(func() {
			r.past = slices.Delete(r.past, 8, 11)
			r.meet = func() {
				if len(r.asked) == 2 {
					r.past = whole
				}
			}
		})
		f.Follow(7, of(at(0, "a:1", true)), nil, false)
		rest()
		f.same(src, r.model)
		f.stands(src, Live)
	})
}

// Batches go on arriving while the past is asked for.
func TestLiveDuringReplay(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.rig("a:1", 0)
		r.missed(20)
		r.do(func() {
			r.meet = func() {
				if len(r.asked) == 1 {
					for range 5 {
						r.publish(r.step()) // in the answer as well
					}
				}
			}
		})
		f.Follow(7, of(at(0, "a:1", true)), nil, false)
		synctest.Wait()
		r.steps(5)
		rest()
		f.same(src, r.model)
		f.stands(src, Live)
		// An engine that does not answer holds what comes back, and nothing is lost.
		r.do(func() { r.silent, r.meet = true, nil })
		r.missed(1)
		r.steps(10)
		rest()
		f.stands(src, Syncing)
		r.do(func() { r.silent = false })
		rest()
		f.same(src, r.model)
		f.stands(src, Live)
	})
}

func TestGarbage(t *testing.T) {
	garbage := []zmtp.Message{
		{[]byte("kv")},
		{[]byte("kv"), {1, 2}, {0x93}},
		{},
	}
	for _, replay := range []bool{true, false} {
		t.Run(fmt.Sprintf("replay %v", replay), func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fleet) {
				r := f.rig("a:1", 0)
				f.Follow(7, of(at(0, "a:1", replay)), nil, false)
				rest()
				r.steps(3)
				r.do(func() {
					for _, m := range garbage {
						r.subs[0].in <- m
					}
				})
				rest()
				f.same(src, r.model)
				f.stands(src, Live)
				// A batch that came broken is asked for.
				r.do(func() {
					b := r.step()
					b.payload = b.payload[:len(b.payload)/2]
					r.publish(b)
				})
				rest()
				if st := f.link(src); st.Malformed != uint64(len(garbage))+1 {
					t.Errorf("%d malformed", st.Malformed)
				}
				if !replay {
					f.stands(src, Dirty)
					return
				}
				f.same(src, r.model)
				f.stands(src, Live)
				// One that is broken at its source does not come between the others.
				r.do(func() {
					r.say([]byte{0xc1})
					r.publish(r.past[len(r.past)-1])
				})
				r.steps(2)
				rest()
				f.same(src, r.model)
				f.stands(src, Live)
				// Nor is it taken for a restart when it was the last.
				r.do(func() { r.publish(r.say([]byte{0xc1})) })
				rest()
				r.hangUp(false)
				rest()
				f.same(src, r.model)
				f.stands(src, Live)
				if st := f.link(src); st.Connects != 2 || st.Feed.Restarts != 0 {
					t.Errorf("%d connects, %d restarts; want 2 and 0", st.Connects, st.Feed.Restarts)
				}
			})
		})
	}
}

// What a decoder learned of a life that is over does not outlive it.
func TestRestartWithOtherBlocks(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.rig("a:1", 0)
		f.Follow(7, of(at(0, "a:1", true)), nil, false)
		rest()
		r.steps(5)
		synctest.Wait()
		r.do(func() {
			r.restart()
			tokens := []uint32{1, 2, 3, 4, 5, 6, 7, 8}
			ev := stored(0, false, []kv.BlockID{5}, tokens, false)
			at := bytes.LastIndex(ev, []byte{blockSize, 0xc0, 0xa3}) // before no adapter and the medium
			ev[at] = byte(len(tokens))
			r.cache[5] = held{ID: 5, Tokens: kv.HashTokens(kv.HashSeed("", ""), tokens)}
			r.publish(r.say(ev))
		})
		synctest.Wait()
		f.same(src, r.model)
		if st := f.link(src); st.BlockSize != 8 || st.Mismatch != 0 {
			t.Errorf("block size %d, mismatch %d", st.BlockSize, st.Mismatch)
		}
	})
}
