package router

import (
	"iter"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/metrics"
)

// TestRemoveLastWorkerWakes: who waits in a pool that the removal empties is told at once.
func TestRemoveLastWorkerWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{Queue: queueOf(100)}, Spec{})
		running := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		defer running.Done(Completed)
		waits := waitFor(t, r, &Request{Model: m, PromptTokens: 1000})
		waits.still(t)
		r.Remove(1)
		synctest.Wait()
		if !waits.returned() {
			t.Error("it still waits in a pool that is gone")
		}
	})
}

// TestRemoveLastWorkerWakesVirtual: in virtual time nobody ever tells it.
func TestRemoveLastWorkerWakesVirtual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{Queue: queueOf(100), Virtual: true}, Spec{})
		running := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		called := false
		r.Submit(&Request{Model: m, PromptTokens: 1000}, func(*Placement, error) { called = true })
		r.Remove(1)
		running.Done(Completed)
		time.Sleep(time.Minute)
		r.Close()
		if !called {
			t.Error("nobody is ever told")
		}
	})
}

// TestWaitersFollowMove: a worker that goes to another pool takes those who wait with it.
func TestWaitersFollowMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{Queue: queueOf(100)}, Spec{Engine: live(0)})
		running := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		waits := waitFor(t, r, &Request{Model: m, PromptTokens: 1000})
		waits.still(t)
		r.Learned(1, 32, false)
		synctest.Wait()
		running.Done(Completed)
		synctest.Wait()
		if waits.returned() && waits.err != nil {
			t.Errorf("refused although the worker is well: %v", waits.err)
		}
		waits.cancel()
	})
}

// TestLookupBeforeMove: a request whose model was looked up before the move.
func TestLookupBeforeMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{}, Spec{Engine: live(0)})
		r.Learned(1, 32, false)
		synctest.Wait()
		p, err := r.Place(t.Context(), &Request{Model: m, PromptTokens: 10})
		if err != nil {
			t.Fatalf("looked up a moment before: %v", err)
		}
		p.Done(Completed)
	})
}

// TestTrippedWorkerReadmitted: a tripped worker that says something new stays tripped.
func TestTrippedWorkerReadmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := live(0)
		r, m := crew(t, Config{Queue: queueOf(100)}, Spec{Engine: bad}, Spec{Engine: live(0)})
		for range tripFailures {
			mustPlace(t, r, &Request{Model: m, Pinned: true, Pin: 1}).Done(Failed)
		}
		if !r.workers[1].tripped.Load() {
			t.Fatal("not tripped")
		}
		synctest.Wait()
		a := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		if workerOf(a) != 2 {
			t.Fatal("placed on tripped")
		}
		waits := waitFor(t, r, &Request{Model: m, PromptTokens: 1000})
		waits.still(t)
		bad.life.Store(nil)
		// the operator's engine lists something else, without a restart
		bad.publish(engine.EventStream{Address: "x:1"})
		r.workers[1].awaken()
		synctest.Wait()
		if waits.returned() && waits.err == nil && workerOf(waits.pl) == 1 {
			t.Errorf("a request that waited was given to the worker that is left alone (tripped=%v)", r.workers[1].tripped.Load())
		}
		waits.cancel()
		a.Done(Completed)
	})
}

// TestTrippedRestart: a tripped worker that restarts in place has to compute a token.
func TestTrippedRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := live(16)
		bad.mute.Store(true)
		bad.life.Store(new("one"))
		r, m := crew(t, Config{}, Spec{Engine: bad}, Spec{Engine: live(16)})
		fail := func() { mustPlace(t, r, &Request{Model: m, Pinned: true, Pin: 1}).Done(Failed) }
		for range tripFailures {
			fail()
		}
		bad.life.Store(new("two"))
		r.workers[1].awaken()
		synctest.Wait()
		if !r.workers[1].tripped.Load() {
			t.Errorf("restarted in place: back at once without computing (canaries %d, probation %d)", bad.canaries.Load(), r.workers[1].breaker.probation.Load())
		}
	})
}

// TestTrippedGoneAndBack: nor does going away help.
func TestTrippedGoneAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := live(16)
		bad.mute.Store(true)
		r, m := crew(t, Config{}, Spec{Engine: bad}, Spec{Engine: live(16)})
		w := r.workers[1]
		w.breaker.trips.Store(4)
		for range tripFailures {
			mustPlace(t, r, &Request{Model: m, Pinned: true, Pin: 1}).Done(Failed)
		}
		t.Log("left alone for", time.Until(time.Unix(0, w.inhibitedUntil.Load())))
		bad.down.Store(true)
		w.awaken()
		time.Sleep(5 * time.Second)
		bad.down.Store(false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !w.tripped.Load() || w.discovered.Load() && !w.inhibited(time.Now()) {
			t.Errorf("7s of 60s: takes requests again; canaries %d, hoarse %v", bad.canaries.Load(), w.hoarse)
		}
	})
}

// TestBreakerAcrossPools: the breaker works where the other worker is in another pool of the model.
func TestBreakerAcrossPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{}, Spec{Engine: live(16)}, Spec{Engine: live(32)})
		for range tripFailures {
			mustPlace(t, r, &Request{Model: m, Pinned: true, Pin: 1}).Done(Failed)
		}
		if !r.workers[1].tripped.Load() {
			t.Error("failures in a row, another worker serves the model, not tripped")
		}
	})
}

// TestBreakerAdapter: an adapter that only one worker has is not taken away
func TestBreakerAdapter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e1 := &stubEngine{models: []engine.Model{{ID: "m", BlockSize: 16}, {ID: "a", Parent: "m"}}}
		r, _ := crew(t, Config{}, Spec{Engine: e1}, Spec{})
		a, err := r.Lookup("a")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 * tripRequests {
			p, err := r.Place(t.Context(), &Request{Model: a})
			if err != nil {
				t.Fatalf("after %d: %v: there is no other", i, err)
			}
			p.Done(Failed)
		}
	})
}

// TestVoiceRegained: what was sent counts while a worker does not tell, and no longer
func TestVoiceRegained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := live(16)
		e.publish(engine.EventStream{Address: "a:1"})
		r := New(Config{Seed: 1})
		t.Cleanup(r.Close)
		r.SetFollower(&follower{})
		if err := r.Add(Spec{ID: 1, Engine: e}); err != nil {
			t.Fatal(err)
		}
		r.WaitChecked(t.Context())
		m, _ := r.Lookup("m")
		src := kv.Source{Worker: 1}
		r.Tells(src, true, false)
		tokens := tokensOf(1, 2000)
		run := func(cached int) int {
			p := mustPlace(t, r, ask(m, tokens))
			p.FirstToken()
			p.Usage(2000, cached)
			p.Done(Completed)
			return p.Last().OverlapBlocks
		}
		time.Sleep(silentTime)
		run(0)
		run(0)
		if got := run(0); got != 125 {
			t.Fatalf("lost voice: %d", got)
		}
		st := r.Engines()[0].Ranks[0]
		if st.Told || st.Held != 125 {
			t.Errorf("voice lost: told %v held %d, want what was sent: 125", st.Told, st.Held)
		}
		_ = r.Apply(&kv.Batch{Source: src, Seq: 1, Events: []kv.Event{{Kind: kv.Cleared}}})
		if st := r.Engines()[0].Ranks[0]; !st.Told {
			t.Error("not told")
		}
		if got := run(0); got != 0 {
			t.Errorf("it tells again that it has nothing, and %d blocks are expected there", got)
		}
	})
}

// TestVoiceNotExpected: an engine that was started without events is not missed
func TestVoiceNotExpected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := live(16)
		e.publish(engine.EventStream{Address: "a:1"})
		e.life.Store(new("one"))
		r := New(Config{Seed: 1})
		t.Cleanup(r.Close)
		r.SetFollower(&follower{})
		if err := r.Add(Spec{ID: 1, Engine: e}); err != nil {
			t.Fatal(err)
		}
		r.WaitChecked(t.Context())
		e.publish()
		e.life.Store(new("two"))
		time.Sleep(2 * identifyInterval)
		synctest.Wait()
		m, _ := r.Lookup("m")
		for range 3 {
			p := mustPlace(t, r, ask(m, tokensOf(1, 2000)))
			p.FirstToken()
			p.Usage(2000, 0)
			p.Done(Completed)
			time.Sleep(silentTime)
		}
		if w := r.Engines()[0].Warnings; len(w) != 0 {
			t.Errorf("it has no events, and is warned of: %v", w)
		}
	})
}

// TestRecallConcurrent: two prompts that begin alike and run at once teach nothing
func TestRecallConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := live(16)
		e.slots = 4
		r, m := crew(t, Config{}, Spec{Engine: e})
		for i := range 10 { // warm
			p := mustPlace(t, r, ask(m, tokensOf(100+i, 640)))
			p.FirstToken()
			p.Usage(640, 0)
			p.Done(Completed)
		}
		s := m.pools[0].slots[0]
		before := s.recall.limit
		// Two requests with the same system prompt at once: each in a slot of its own,
		// so that neither finds anything.
		prompt := func(n int) []uint32 { return append(tokensOf(1, 640), tokensOf(n, 160)...) }
		a, b := mustPlace(t, r, ask(m, prompt(2))), mustPlace(t, r, ask(m, prompt(3)))
		a.FirstToken()
		b.FirstToken()
		a.Usage(800, 0)
		b.Usage(800, 0)
		a.Done(Completed)
		b.Done(Completed)
		if s.recall.limit != before {
			t.Errorf("it was taken to keep %d prompts, and is now taken to keep %d; %d left, trust %v", before, s.recall.limit, len(s.recall.prompts), s.trust)
		}
	})
}

// TestRecallOneOdd: one request that found nothing may be one that was not to be kept.
func TestRecallOneOdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := live(16)
		e.slots = 4
		r, m := crew(t, Config{}, Spec{Engine: e})
		run := func(i, cached int) int {
			p := mustPlace(t, r, ask(m, tokensOf(100+i, 640)))
			p.FirstToken()
			p.Usage(640, cached)
			p.Done(Completed)
			return p.Last().OverlapBlocks
		}
		for i := range 10 {
			run(i, 0)
		}
		run(9, 0) // said not to use the cache
		n := 0
		for i := range 9 {
			if query(t, r, ask(m, tokensOf(100+i, 640))).Last().OverlapBlocks > 0 {
				n++
			}
		}
		t.Logf("known of 9: %d limit %d", n, m.pools[0].slots[0].recall.limit)
		if n == 0 {
			t.Error("one request that found nothing made everything forgotten")
		}
	})
}

// TestSeriesAfterRemove: a worker that has left has no series, however its requests end
func TestSeriesAfterRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := metrics.New(metrics.Options{})
		r, m := crew(t, Config{Metrics: set}, Spec{}, Spec{})
		p := mustPlace(t, r, &Request{Model: m, Pinned: true, Pin: 1})
		r.Remove(1)
		p.Done(Broken)
		fams, _ := set.Registry().Gather()
		for _, f := range fams {
			for _, mm := range f.Metric {
				for _, l := range mm.Label {
					if l.GetName() == "worker_id" && l.GetValue() == "1" {
						t.Errorf("%s of a removed worker", f.GetName())
					}
				}
			}
		}
	})
}

// TestCanaryWhileStreaming: a worker that streams shows that it computes
func TestCanaryWhileStreaming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := live(16)
		r, m := crew(t, Config{CanaryInterval: time.Minute}, Spec{Engine: e})
		p := mustPlace(t, r, &Request{Model: m, PromptTokens: 100})
		p.FirstToken()
		e.mute.Store(true) // saturated: a canary waits for its turn in vain
		for range 90 {
			time.Sleep(time.Second)
			p.Output(50)
		}
		synctest.Wait()
		if e.canaries.Load() > 0 {
			t.Errorf("%d canaries to a worker that gives 50 tokens a second; discovered %v", e.canaries.Load(), r.workers[1].discovered.Load())
		}
		p.Done(Completed)
	})
}

// TestSinceKept: a worker that gets an adapter is not new
func TestSinceKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := live(16)
		r, _ := crew(t, Config{KV: KVConfig{SlowStart: time.Minute}}, Spec{Engine: e}, Spec{})
		time.Sleep(10 * time.Minute)
		since := r.Engines()[0].Since
		e.adapter.Store(new("a"))
		time.Sleep(2 * identifyInterval)
		synctest.Wait()
		if got := r.Engines()[0].Since; got != since {
			t.Errorf("an adapter was loaded, and the worker is taken to have come at %v, not %v: warmth %v", got, since, r.workers[1].warmth(time.Now(), time.Minute))
		}
	})
}

// TestSecondModelTold: what a rank tells counts for a model that comes later.
func TestSecondModelTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := crew(t, Config{}, Spec{Engine: live(16)})
		r.Tells(kv.Source{Worker: 1}, true, false)
		r.admit(r.workers[1], &engine.Info{Kind: "stub", Models: []engine.Model{{ID: "m", BlockSize: 16}, {ID: "n", BlockSize: 16}}}, false)
		for _, rank := range r.Engines()[0].Ranks {
			if !rank.Told {
				t.Errorf("model %s: its events are not used, and nobody says so again", rank.Model)
			}
		}
	})
}

// TestSelfParent: a model that is its own parent is a model
func TestSelfParent(t *testing.T) {
	e := &stubEngine{models: []engine.Model{{ID: "m", Parent: "m", BlockSize: 16}}}
	r := New(Config{})
	defer r.Close()
	_ = r.Add(Spec{ID: 1, Engine: e})
	r.WaitChecked(t.Context())
	if _, err := r.Lookup("m"); err != nil {
		d, all := r.Workers()
		t.Errorf("%v; %d of %d discovered", err, d, all)
	}
}

// TestGhostRank: what was told of a rank that a model does not have goes with its worker
func TestGhostRank(t *testing.T) {
	e := &stubEngine{models: []engine.Model{{ID: "m", BlockSize: 16, Ranks: 1}, {ID: "n", BlockSize: 16, Ranks: 2}}}
	r, m := crew(t, Config{}, Spec{Events: true, Engine: e}, Spec{Events: true})
	store(t, r, 1, 1, kv.Device, tokensOf(1, 160), 0, 10)
	p := m.pools[0]
	r.Remove(1)
	if st := p.told.Stats(); st.Blocks != 0 {
		t.Errorf("%d blocks of a rank that left", st.Blocks)
	}
}

// TestGhostRecall: a server with slots is removed while it answers: what its last word teaches must not
// bring its rank back.
func TestGhostRecall(t *testing.T) {
	e := live(16)
	e.slots = 4
	r, m := crew(t, Config{}, Spec{Engine: e}, Spec{Engine: live(16)})
	run := func(text int) *Placement {
		q := ask(m, tokensOf(text, 640))
		q.Pinned, q.Pin = true, 1
		p := mustPlace(t, r, q)
		p.FirstToken()
		return p
	}
	for i := range 5 {
		run(i).Done(Completed)
	}
	p := run(1)
	pool := m.pools[0]
	r.Remove(1)
	p.Usage(640, 0)
	p.Done(Completed)
	if got := pool.sent.Ranks(); len(got) != 0 {
		t.Errorf("ranks of a removed worker are back: %v, %d blocks", got, pool.sent.Stats().Blocks)
	}
}

// TestGhostRestore: a rank that the worker does not have is not restored.
func TestGhostRestore(t *testing.T) {
	r, m := crew(t, Config{}, Spec{Events: true}, Spec{Events: true})
	blocks := kv.AppendBlocks(nil, kv.HashSeed("", ""), tokensOf(1, 160), 16)
	var ev iter.Seq2[*kv.Event, error] = func(y func(*kv.Event, error) bool) { y(&kv.Event{Kind: kv.Stored, Blocks: blocks}, nil) }
	_ = r.Restore(kv.Source{Worker: 1, Rank: 3}, 1, 1, ev)
	pool := m.pools[0]
	r.Remove(1)
	if got := pool.told.Stats().Blocks; got != 0 {
		t.Errorf("%d blocks of a rank that the worker does not have", got)
	}
}

// TestLifeUnsaid: an engine that once does not say when it began has not begun anew.
func TestLifeUnsaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := live(16)
		e.publish(engine.EventStream{Address: "a:1"})
		e.life.Store(new("one"))
		f := &follower{}
		r := New(Config{Seed: 1})
		t.Cleanup(r.Close)
		r.SetFollower(f)
		if err := r.Add(Spec{ID: 1, Engine: e}); err != nil {
			t.Fatal(err)
		}
		r.WaitChecked(t.Context())
		m, _ := r.Lookup("m")
		p := mustPlace(t, r, ask(m, tokensOf(1, 160)))
		p.FirstToken()
		p.Done(Completed)
		e.life.Store(nil) // /metrics was not answered in time
		time.Sleep(identifyInterval + 6*time.Second)
		e.life.Store(new("one"))
		time.Sleep(identifyInterval + 6*time.Second)
		synctest.Wait()
		if len(f.heard) != 1 {
			t.Errorf("the follower heard %v", f.heard)
		}
		if got := query(t, r, ask(m, tokensOf(1, 160))).Last().OverlapBlocks; got != 10 {
			t.Errorf("%d blocks are known, want 10", got)
		}
	})
}

// slowFollower does something once while it is called.
type slowFollower struct{ on atomic.Pointer[func()] }

func (f *slowFollower) Follow(kv.WorkerID, *engine.Info, engine.EventPoller, bool) {
	if on := f.on.Swap(nil); on != nil {
		(*on)()
	}
}
func (f *slowFollower) Forget(kv.WorkerID) {}

// TestTripDuringReview: a worker that keeps failing while it is admitted anew is left alone.
func TestTripDuringReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := live(16)
		f := &slowFollower{}
		r := New(Config{Seed: 1})
		t.Cleanup(r.Close)
		r.SetFollower(f)
		for id, e := range map[kv.WorkerID]engine.Engine{1: e, 2: live(16)} {
			if err := r.Add(Spec{ID: id, Engine: e}); err != nil {
				t.Fatal(err)
			}
		}
		r.WaitChecked(t.Context())
		m, _ := r.Lookup("m")
		synctest.Wait()
		f.on.Store(new(func() {
			for range tripFailures {
				mustPlace(t, r, &Request{Model: m, Pinned: true, Pin: 1}).Done(Failed)
			}
			if !r.workers[1].tripped.Load() {
				t.Error("not tripped")
			}
		}))
		e.publish(engine.EventStream{Address: "x:1"}) // it says something else
		time.Sleep(identifyInterval + 6*time.Second)
		synctest.Wait()
		w := r.workers[1]
		if w.breaker.trips.Load() == 1 && w.breaker.probation.Load() == 0 && !w.tripped.Load() {
			t.Errorf("the trip is lost: until %d, tripped %v, canaries %d", w.inhibitedUntil.Load(), w.tripped.Load(), e.canaries.Load())
		}
	})
}

// TestPoisonedFleet: a client with requests that make engines fail: how many workers are left to the others?
func TestPoisonedFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{Mode: RoundRobin}, Spec{Engine: live(16)}, Spec{Engine: live(16)}, Spec{Engine: live(16)}, Spec{Engine: live(16)})
		rng := rand.New(rand.NewPCG(1, 1))
		send := func(poison float64) {
			o := Completed
			if rng.Float64() < poison {
				o = Failed
			}
			p, err := r.Place(t.Context(), &Request{Model: m})
			if err != nil {
				t.Fatal(err)
			}
			p.Done(o)
		}
		for range 40 {
			send(1) // one burst
		}
		in, n := 0, 0
		for range 6000 { // ten minutes, ten requests a second
			time.Sleep(100 * time.Millisecond)
			send(0.2)
			for _, e := range r.Engines() {
				n++
				if e.State == "eligible" {
					in++
				}
			}
		}
		if got := 4 * float64(in) / float64(n); got < 3 {
			t.Errorf("with a fifth of the requests failing everywhere alike, %.2f of 4 workers take part", got)
		}
	})
}
