package kvlink

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvfeed"
	"github.com/stator-ai/stator/internal/kvindex"
	"github.com/tinylib/msgp/msgp"
)

// A long history comes in parts.
func TestReplayInParts(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.rig("a:1", 0)
		ballast := msgp.AppendArrayHeader(nil, 2)
		ballast = msgp.AppendString(ballast, "Mystery")
		ballast = msgp.AppendBytes(ballast, make([]byte, replayBytes/5))
		for range 18 {
			r.say(r.store(), ballast)
		}
		f.Follow(7, of(at(0, "a:1", true)), nil, false)
		rest()
		f.same(src, r.model)
		f.stands(src, Live)
		if len(r.asked) < 4 {
			t.Errorf("asked for %v only", r.asked)
		}
		if n := f.link(src).Skipped[kv.IgnoredEvent]; n != 18 {
			t.Errorf("%d events ignored, want 18", n)
		}
	})
}

// gated is an index that takes no batch until its gate is open.
type gated struct {
	*kvindex.Index
	gate chan struct{}
}

func (g gated) Apply(b *kv.Batch) error {
	<-g.gate
	return g.Index.Apply(b)
}

// An index that does not keep up loses batches, not memory, and gets them again.
func TestOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.Close()
		r := f.rig("a:1", 0)
		target := gated{f.index, make(chan struct{})}
		f.Links = Open(Config{
			Target: target, Now: time.Now, Changed: f.heard,
			Dial:       func(ctx context.Context, _ string, _ ...string) (Conn, error) { return r.dial(ctx) },
			DialReplay: func(context.Context, string) (Conn, error) { return r.dialReplay() },
		})
		defer f.Close()
		f.Follow(7, of(at(0, "a:1", true)), nil, false)
		rest()
		r.steps(6000)
		synctest.Wait()
		if st := f.link(src); st.Feed.Dropped == 0 || st.Feed.Queued > 4096 || st.Batches != 6000 {
			t.Errorf("%d dropped, %d queued, %d batches", st.Feed.Dropped, st.Feed.Queued, st.Batches)
		}
		close(target.gate)
		rest()
		f.same(src, r.model)
		f.stands(src, Live)
		if st := f.link(src); st.Feed.Missed == 0 || st.Feed.Recoveries[kvfeed.GotEvents] == 0 {
			t.Errorf("%d missed, recoveries %v", st.Feed.Missed, st.Feed.Recoveries)
		}
	})
}

// Nothing is left of links that are closed, whatever they were doing, and the ranks
// stay.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		live, asking, gone := f.rig("a:1", 0), f.rig("b:1", 0), f.rig("c:1", 0)
		asking.silent, gone.down = true, true
		asking.missed(3)
		f.Follow(1, of(at(0, "a:1", true)), nil, false)
		f.Follow(2, of(at(0, "b:1", true)), nil, false)
		f.Follow(3, of(at(0, "c:1", true)), nil, false)
		f.Follow(4, of(), newPoller(), false)
		synctest.Wait()
		live.steps(3)
		if err := f.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		f.Close()
		f.Close()
		f.same(kv.Source{Worker: 1}, live.model)
	})
}
