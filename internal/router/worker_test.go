package router

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/nvext"
)

// liveEngine is a stub that has a life, a load and a voice of its own.
type liveEngine struct {
	stubEngine
	life     atomic.Pointer[string]
	load     atomic.Pointer[[]engine.Load]
	mute     atomic.Bool // computes nothing
	canaries atomic.Int64
	streams  atomic.Pointer[[]engine.EventStream]
	adapter  atomic.Pointer[string] // that it serves as well
	slots    int
	block    int
}

func (e *liveEngine) Identify(ctx context.Context) (*engine.Info, error) {
	info, err := e.stubEngine.Identify(ctx)
	if err != nil {
		return nil, err
	}
	if l := e.life.Load(); l != nil {
		info.Life = *l
	}
	info.Models = []engine.Model{{ID: "m", BlockSize: e.block, TotalBlocks: 1000}}
	if name := e.adapter.Load(); name != nil {
		info.Models = append(info.Models, engine.Model{ID: *name, Parent: "m"})
	}
	if l := e.streams.Load(); l != nil {
		info.Streams = *l
	}
	info.Slots = e.slots
	return info, nil
}

func (e *liveEngine) Load(context.Context) ([]engine.Load, error) {
	if l := e.load.Load(); l != nil {
		return *l, nil
	}
	return nil, errors.New("none")
}

func (e *liveEngine) Canary(context.Context, string) error {
	e.canaries.Add(1)
	if e.mute.Load() {
		return errors.New("nothing came")
	}
	return nil
}

// publish has it say where it publishes its events.
func (e *liveEngine) publish(streams ...engine.EventStream) { e.streams.Store(&streams) }

func live(block int) *liveEngine { return &liveEngine{block: block} }

// follower writes down what it hears.
type follower struct{ heard []string }

func (f *follower) Follow(w kv.WorkerID, info *engine.Info, _ engine.EventPoller, restarted bool) {
	what := "follow"
	if restarted {
		what = "restarted"
	}
	f.heard = append(f.heard, what)
}

func (f *follower) Forget(kv.WorkerID) { f.heard = append(f.heard, "forget") }

// TestRemove: a worker that is removed gets nothing more, its requests end as they
// would, and its id is free.
func TestRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{Queue: queueOf(100)}, Spec{}, Spec{})
		running := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000, Pinned: true, Pin: 1})
		waits := waitFor(t, r, &Request{Model: m, PromptTokens: 1000, Pinned: true, Pin: 1})
		if !r.Remove(1) || r.Remove(1) {
			t.Error("a worker is removed once")
		}
		synctest.Wait()
		var pin *PinError
		if !waits.returned() || !errors.As(waits.err, &pin) {
			t.Errorf("who waited for it: %v, want a PinError", waits.err)
		}
		if _, err := r.Place(t.Context(), &Request{Model: m, Pinned: true, Pin: 1}); !errors.As(err, &pin) || pin.Reason != PinUnknown {
			t.Errorf("a pin: %v, want unknown", err)
		}
		running.FirstToken()
		running.Output(3)
		running.Done(Completed)
		idle(t, r, m)
		if d, all := r.Workers(); d != 1 || all != 1 {
			t.Errorf("%d of %d workers", d, all)
		}
		if err := r.Add(Spec{ID: 1, Name: "again", Engine: live(16)}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		mustPlace(t, r, &Request{Model: m, Pinned: true, Pin: 1}).Done(Completed)
		r.Remove(1)
		r.Remove(2)
		if _, err := r.Place(t.Context(), &Request{Model: m}); !errors.Is(err, ErrNoWorkers) {
			t.Errorf("without workers: %v", err)
		}
	})
}

// TestRestartInPlace: an engine that is back before anybody missed it is followed from
// the beginning.
func TestRestartInPlace(t *testing.T) {
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
		time.Sleep(2 * identifyInterval) // asked again, and it says the same
		synctest.Wait()
		p := mustPlace(t, r, &Request{Model: m})
		e.life.Store(new("two"))
		p.Done(Broken)
		time.Sleep(10 * time.Millisecond) // one probe later
		synctest.Wait()
		if diff := cmp.Diff([]string{"restarted", "restarted"}, f.heard); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		e.down.Store(true)
		time.Sleep(20 * time.Second)
		e.down.Store(false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"restarted", "restarted", "forget", "restarted"}, f.heard); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestBreaker: a worker that says it is well and fails its requests is left alone, for
// longer each time, and only a token that it computes brings it back.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := live(16)
		r, m := crew(t, Config{Mode: RoundRobin}, Spec{Engine: bad}, Spec{Engine: live(16)})
		fail := func() { mustPlace(t, r, &Request{Model: m, Pinned: true, Pin: 1}).Done(Failed) }
		out := func() bool {
			var pin *PinError
			p, err := r.Place(t.Context(), &Request{Model: m, Pinned: true, Pin: 1})
			if err == nil {
				p.Done(Cancelled)
			}
			return errors.As(err, &pin) && pin.Reason == PinUnavailable
		}
		for range tripFailures - 1 {
			fail()
		}
		mustPlace(t, r, &Request{Model: m, Pinned: true, Pin: 1}).Done(Completed)
		if out() {
			t.Fatal("out after four failures")
		}
		bad.mute.Store(true)
		fail()
		if !out() {
			t.Fatal("five of six failed, and it is still in")
		}
		time.Sleep(tripLeast + 2*time.Second)
		synctest.Wait()
		if !out() || bad.canaries.Load() == 0 {
			t.Error("it is back without having computed anything")
		}
		bad.mute.Store(false)
		time.Sleep(2 * tripLeast)
		synctest.Wait()
		if out() {
			t.Fatal("it computes, and is not back")
		}
		for range probationFailures {
			fail()
		}
		if !out() {
			t.Error("failures on probation, and it is still in")
		}
		time.Sleep(tripLeast + time.Second)
		synctest.Wait()
		if !out() {
			t.Error("the second time is no longer than the first")
		}
		time.Sleep(2 * tripLeast)
		synctest.Wait()
		for range tripRequests {
			mustPlace(t, r, &Request{Model: m, Pinned: true, Pin: 1}).Done(Completed)
		}
		for range tripFailures - 1 {
			fail()
		}
		if out() {
			t.Error("all is not forgotten")
		}
	})
}

// TestBreakerOfTheLastWorker: one that fails is better than none.
func TestBreakerOfTheLastWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{}, Spec{Engine: live(16)})
		for range 3 * tripRequests {
			mustPlace(t, r, &Request{Model: m}).Done(Failed)
		}
	})
}

// TestCanary: a worker that has not answered for long has to compute a token.
func TestCanary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := live(16)
		r, m := crew(t, Config{CanaryInterval: time.Minute}, Spec{Engine: e})
		time.Sleep(50 * time.Second)
		if e.canaries.Load() != 0 {
			t.Error("asked too early")
		}
		e.mute.Store(true)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if _, err := r.Place(t.Context(), &Request{Model: m}); !errors.Is(err, ErrNoWorkers) {
			t.Errorf("it computes nothing: %v", err)
		}
		e.mute.Store(false)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		mustPlace(t, r, &Request{Model: m}).Done(Completed)
	})
}

// TestForeignLoad: what others send to an engine counts, if it was there twice and not
// long ago.
func TestForeignLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := live(16)
		r, m := crew(t, Config{}, Spec{Engine: busy}, Spec{Engine: live(16)})
		place := func() kv.WorkerID {
			p := mustPlace(t, r, &Request{Model: m, PromptTokens: 100})
			defer p.Done(Completed)
			return p.Last().Target.Worker
		}
		foreign := func() int { return r.Engines()[0].Ranks[0].Foreign }
		busy.load.Store(&[]engine.Load{{Running: 3, Waiting: 2, Usage: 0.5}})
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		if foreign() != 0 {
			t.Error("counted after one report")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if foreign() != 5 {
			t.Errorf("%d requests of others, want 5", foreign())
		}
		for range 20 {
			if place() == 1 {
				t.Fatal("chosen although others use it")
			}
		}
		ours := mustPlace(t, r, &Request{Model: m, Pinned: true, Pin: 1})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if foreign() != 4 {
			t.Errorf("%d requests of others beside one of ours, want 4", foreign())
		}
		ours.Done(Completed)
		busy.load.Store(nil) // it says nothing any more
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if foreign() != 0 {
			t.Error("an old report counts")
		}
	})
}

// TestTells: what a rank holds is what was sent there until it tells, and what it tells
// from then on.
func TestTells(t *testing.T) {
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
		tokens := make([]uint32, 2000)
		for i := range tokens {
			tokens[i] = uint32(i)
		}
		seed := kv.HashSeed("", "")
		src := kv.Source{Worker: 1}
		blocks := kv.AppendBlocks(nil, seed, tokens, 16)
		run := func(n, cached int) int {
			p := mustPlace(t, r, &Request{Model: m, PromptTokens: n, Tokens: tokens[:n], HashSeed: seed})
			p.FirstToken()
			p.Usage(n, cached)
			p.Done(Completed)
			return p.Last().OverlapBlocks
		}
		if got := run(100, 0); got != 0 {
			t.Errorf("a first prompt: %d", got)
		}
		if got := run(100, 96); got != 6 {
			t.Errorf("what was sent: %d blocks, want 6", got)
		}
		r.Tells(src, true, false)
		if got := run(100, 0); got != 0 {
			t.Errorf("it tells, and has told nothing: %d", got)
		}
		if err := r.Apply(&kv.Batch{Source: src, Events: []kv.Event{{Kind: kv.Stored, Blocks: slices.Clone(blocks[:3])}}}); err != nil {
			t.Fatal(err)
		}
		if got := run(100, 48); got != 3 {
			t.Errorf("what it told: %d blocks, want 3", got)
		}
		if e := r.Engines()[0].Ranks[0]; !e.Told || e.Held != 3 {
			t.Errorf("told %v, holds %d", e.Told, e.Held)
		}

		// It computes more than a thousand tokens and says nothing.
		time.Sleep(silentTime)
		run(2000, 0)
		run(2000, 0) // the first that is taken note of
		if got := run(2000, 0); got != 125 {
			t.Errorf("it has lost its voice: %d blocks, want what was sent, 125", got)
		}
		if w := r.Engines()[0].Warnings; len(w) != 1 || w[0].Code != WarnSilent {
			t.Errorf("warnings %v", w)
		}
		_ = r.Apply(&kv.Batch{Source: src, Events: []kv.Event{{Kind: kv.Removed, Blocks: blocks[2:3]}}})
		if w := r.Engines()[0].Warnings; len(w) != 0 {
			t.Errorf("it tells again: warnings %v", w)
		}
		r.ClearRank(src)
		r.Tells(src, false, false)
		if got := r.Engines()[0].Ranks[0]; got.Told {
			t.Error("it does not tell and counts as one that does")
		}
	})
}

// TestLearnedBlockSize: an engine that does not state its block size is in a pool with
// the one that its events tell.
func TestLearnedBlockSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := crew(t, Config{}, Spec{Engine: live(0)})
		r.Learned(1, 32, false)
		synctest.Wait()
		m, err := r.Lookup("m")
		if err != nil || m.BlockSize != 32 {
			t.Errorf("block size %d, %v, want 32", m.BlockSize, err)
		}
		if st := r.Engines()[0]; st.State != nvext.StateEligible {
			t.Errorf("state %s", st.State)
		}

		// And of one that speculates, blocks depend on the token after them.
		r.Learned(1, 32, true)
		synctest.Wait()
		m, _ = r.Lookup("m")
		tokens := tokensOf(1, 97)
		run := func(tokens []uint32) int {
			p := mustPlace(t, r, ask(m, tokens))
			defer p.Done(Completed)
			p.FirstToken()
			return p.Last().OverlapBlocks
		}
		run(tokens)
		if got := run(tokens); got != 3 {
			t.Errorf("the same prompt: %d blocks, want 3", got)
		}
		if got := run(tokens[:96]); got != 2 {
			t.Errorf("a prompt without the token after its last block: %d blocks, want 2", got)
		}
	})
}

// TestTokensDiffer: an engine that counts other tokens is warned of.
func TestTokensDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{}, Spec{Engine: live(16)})
		run := func(prompt int) {
			p := mustPlace(t, r, &Request{Model: m, PromptTokens: 32, Tokens: make([]uint32, 32)})
			p.Usage(prompt, 0)
			p.Done(Completed)
		}
		for range differing {
			if len(r.Engines()[0].Warnings) != 0 {
				t.Fatal("warned too early")
			}
			run(33)
		}
		if w := r.Engines()[0].Warnings; len(w) != 1 || w[0].Code != WarnTokens {
			t.Errorf("warnings %v", w)
		}
		run(32)
		if w := r.Engines()[0].Warnings; len(w) != 0 {
			t.Errorf("after an equal count: %v", w)
		}
	})
}

// TestWorkersComeAndGo: adding, removing, placing and telling at the same time leaves
// nothing behind.
func TestWorkersComeAndGo(t *testing.T) {
	r, m := crew(t, Config{}, Spec{ID: 100})
	r.SetFollower(nil)
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 50 {
				id := kv.WorkerID(1 + (g+i)%3)
				if err := r.Add(Spec{ID: id, Engine: live(16)}); err == nil {
					r.WaitChecked(t.Context())
				}
				if p, err := r.Place(t.Context(), &Request{Model: m, PromptTokens: 100}); err == nil {
					_ = r.Apply(&kv.Batch{Source: kv.Source{Worker: id}})
					r.Tells(kv.Source{Worker: id}, i%2 == 0, i%3 == 0)
					p.FirstToken()
					p.Done([]Outcome{Completed, Failed, Broken, Cancelled}[i%4])
				}
				r.Engines()
				r.Remove(id)
			}
		})
	}
	all.Wait()
	for id := range kv.WorkerID(4) {
		r.Remove(id)
	}
	m, err := r.Lookup("m")
	if err != nil {
		t.Fatal(err)
	}
	if got := loads(m); got.inflight != 0 || got.activeBlocks != 0 {
		t.Errorf("left over: %+v", got)
	}
	if d, n := r.Workers(); d > n || n != 1 {
		t.Errorf("%d of %d workers are left, want one", d, n)
	}
	for _, p := range m.pools {
		if n := len(p.told.Ranks()) + len(p.sent.Ranks()); n > 2 {
			t.Errorf("%d ranks are left in the indexes", n)
		}
	}
}

// TestPartlyTold: of a rank that has not told of what it held before, what it turns out to
// hold is remembered.
func TestPartlyTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{}, Spec{Engine: live(16)})
		src := kv.Source{Worker: 1}
		run := func(cached int) int {
			p := mustPlace(t, r, ask(m, tokensOf(1, 320)))
			defer p.Done(Completed)
			p.FirstToken()
			p.Usage(320, cached)
			return p.Last().OverlapBlocks
		}
		r.Tells(src, true, false)
		run(160)
		if got := run(160); got != 0 {
			t.Errorf("it tells everything, and %d blocks are expected that it did not tell of", got)
		}
		r.Tells(src, true, true)
		run(160)
		if got := run(160); got != 10 {
			t.Errorf("%d blocks are expected, want the 10 that it was found to hold", got)
		}
	})
}

// TestDoubt: a worker that may be another is asked at once.
func TestDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := live(16)
		e.life.Store(new("one"))
		f := &follower{}
		r := New(Config{Seed: 1})
		t.Cleanup(r.Close)
		r.SetFollower(f)
		if err := r.Add(Spec{ID: 1, Engine: e}); err != nil {
			t.Fatal(err)
		}
		r.WaitChecked(t.Context())
		r.Doubt(1)
		synctest.Wait()
		e.life.Store(new("two"))
		r.Doubt(1)
		r.Doubt(2)
		synctest.Wait()
		if diff := cmp.Diff([]string{"restarted", "restarted"}, f.heard); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
