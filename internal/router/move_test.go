package router

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
)

// forgetful counts what a follower hears.
type forgetful struct{ follows, restarts, forgets int }

func (f *forgetful) Follow(_ kv.WorkerID, _ *engine.Info, _ engine.EventPoller, restarted bool) {
	f.follows++
	if restarted {
		f.restarts++
	}
}

func (f *forgetful) Forget(kv.WorkerID) { f.forgets++ }

// TestMoveKeepsWhatWasTold: a worker whose blocks turn out to be of another size goes
// to another pool, and what it has told goes with it. One that was started anew with
// other blocks has to tell all of it there.
func TestMoveKeepsWhatWasTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := crew(t, Config{}, Spec{Engine: live(0)})
		var heard forgetful
		r.SetFollower(&heard)
		src := kv.Source{Worker: 1}
		prompt := tokensOf(1, 96)
		blocks := kv.AppendBlocks(nil, kv.HashSeed("", ""), prompt, 32)
		r.Tells(src, true, false)
		_ = r.Apply(&kv.Batch{Source: src, Seq: 3, Events: []kv.Event{{Kind: kv.Stored, Blocks: blocks}}})
		r.Learned(1, 32, false)
		synctest.Wait()
		if got := r.Engines()[0].Ranks[0]; got.BlockSize != 32 || !got.Told || got.Held != 3 {
			t.Fatalf("after the move: %+v, want all 3 blocks", got)
		}
		m, err := r.Lookup("m")
		if err != nil {
			t.Fatal(err)
		}
		p := mustPlace(t, r, ask(m, prompt))
		if got := p.Last().OverlapBlocks; got != 3 {
			t.Errorf("%d blocks of the prompt are found, want 3", got)
		}
		p.Done(Completed)
		if heard.restarts+heard.forgets != 0 {
			t.Errorf("the follower heard of %+v, and nothing was lost", heard)
		}
		_ = r.Apply(&kv.Batch{Source: src, Seq: 4, Events: []kv.Event{{Kind: kv.Removed, Blocks: blocks[2:]}}})
		if got := r.Engines()[0].Ranks[0].Held; got != 2 {
			t.Errorf("%d blocks after one was removed, want 2", got)
		}

		reshape(r, 1, engine.Model{ID: "m", BlockSize: 64})
		if got := r.Engines()[0].Ranks[0]; got.BlockSize != 64 || got.Held != 0 {
			t.Errorf("after a restart with other blocks: %+v, want none", got)
		}
		if heard.forgets != 1 || heard.restarts != 1 {
			t.Errorf("the follower heard of %+v, want to begin anew", heard)
		}
	})
}

// TestMoveLosesNothing moves a worker between two pools while it tells.
func TestMoveLosesNothing(t *testing.T) {
	r, _ := crew(t, Config{}, Spec{Events: true, Engine: &stubEngine{models: []engine.Model{{ID: "m", BlockSize: 16}}}})
	src := kv.Source{Worker: 1}
	const n = 2000
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range n {
			id := kv.BlockID(i + 1)
			_ = r.Apply(&kv.Batch{Source: src, Seq: uint64(i), Events: []kv.Event{{
				Kind: kv.Stored, HasParent: i > 0, Parent: id - 1, Blocks: []kv.Block{{ID: id, Tokens: kv.LocalHash(id)}},
			}}})
		}
	})
	for i := range 50 {
		r.admit(r.workers[1], &engine.Info{Kind: "stub", Models: []engine.Model{{ID: "m", BlockSize: 16 << (i % 2)}}}, false)
	}
	wg.Wait()
	if got := r.Engines()[0].Ranks[0].Held; got != n {
		t.Errorf("%d blocks are known of %d", got, n)
	}
}
