package router

import (
	"testing"
	"testing/synctest"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
)

func TestPinsBlockNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{Queue: queueOf(100)}, Spec{}, Spec{})
		a := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000, Pinned: true, Pin: 1})
		b := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000, Pinned: true, Pin: 2})
		pinned := waitFor(t, r, &Request{Model: m, PromptTokens: 1000, Pinned: true, Pin: 1, Tier: 9})
		free := waitFor(t, r, &Request{Model: m, PromptTokens: 1000})
		b.Done(Completed)
		synctest.Wait()
		pinned.still(t)
		p := free.placed(t)
		if workerOf(p) != 2 {
			t.Errorf("placed on %d", workerOf(p))
		}
		// Nor does a line of others block a pin to a rank with room.
		again := waitFor(t, r, &Request{Model: m, PromptTokens: 1000})
		p.FirstToken()
		synctest.Wait()
		again.placed(t).FirstToken()
		third := waitFor(t, r, &Request{Model: m, PromptTokens: 1000, Pinned: true, Pin: 2})
		q := third.placed(t)
		pinned.still(t)
		a.FirstToken()
		synctest.Wait()
		if got := workerOf(pinned.placed(t)); got != 1 {
			t.Errorf("the pinned one went to %d", got)
		}
		for _, p := range []*Placement{a, p, again.pl, q, pinned.pl} {
			p.Done(Completed)
		}
		idle(t, r, m)
	})
}

// TestNobodyWaitsWhileAnotherPoolHasRoom, however good the busy one would be.
func TestNobodyWaitsWhileAnotherPoolHasRoom(t *testing.T) {
	for _, mode := range []Mode{KV, RoundRobin, LeastLoaded} {
		synctest.Test(t, func(t *testing.T) {
			r, m := crew(t, Config{Mode: mode, Queue: queueOf(100)}, Spec{Events: true}, Spec{Events: true, BlockSize: 32})
			prompt := tokensOf(1, 320)
			store(t, r, 1, 0, kv.Device, prompt, 0, 20)
			a := mustPlace(t, r, &Request{Model: m, PromptTokens: 110, Pinned: true, Pin: 1})
			b := waitFor(t, r, ask(m, prompt)).placed(t)
			if workerOf(b) != 2 {
				t.Errorf("%s: placed on %d", mode, workerOf(b))
			}
			if c, err := Rerun(b.Routing); err != nil || c.WorkerID != 2 {
				t.Errorf("%s: Rerun = %d, %v", mode, c.WorkerID, err)
			}
			w := waitFor(t, r, ask(m, prompt)) // now both are busy
			w.still(t)
			a.Done(Completed)
			b.Done(Completed)
			synctest.Wait()
			p := w.placed(t)
			if c, err := Rerun(p.Routing); err != nil || kv.WorkerID(c.WorkerID) != workerOf(p) {
				t.Errorf("%s: Rerun = %d, %v, want %d", mode, c.WorkerID, err, workerOf(p))
			}
			p.Done(Completed)
			idle(t, r, m)
		})
	}
}

// TestRestrictions: those that come to the same are the same, whoever joins later, and
// those who ask for none in particular have their own.
func TestRestrictions(t *testing.T) {
	base, lora, other := engine.Model{ID: "m", BlockSize: 16}, engine.Model{ID: "a", Parent: "m"}, engine.Model{ID: "b", Parent: "m"}
	with := func(models ...engine.Model) engine.Engine { return &stubEngine{models: models} }
	r, m := crew(t, Config{Queue: queueOf(100)},
		Spec{Engine: with(base, lora, other), Taints: []string{"x"}}, Spec{Engine: with(base, lora, other)}, Spec{Engine: with(base), Ranks: 2})
	model := func(name string) *Model {
		m, err := r.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	seen := make(map[uint64]string)
	for _, same := range []struct {
		name string
		qs   []Request
	}{
		{"none", []Request{{}, {Tenant: "t", Tier: 3, PromptTokens: 9, Class: "c"}}},
		{"a pin", []Request{{Pinned: true, Pin: 1}}},
		{"a pin to a rank", []Request{{Pinned: true, Pin: 1, PinRank: ptr(uint32(0))}}},
		{"a list", []Request{{Allowed: []uint64{1}}, {Allowed: []uint64{9, 1, 1}}, {Allowed: []uint64{1, 8}}}},
		{"a longer list", []Request{{Allowed: []uint64{1, 2}}, {Allowed: []uint64{2, 1, 2}}}},
		{"a list of nobody", []Request{{Allowed: []uint64{}}, {Allowed: []uint64{9}}}},
		{"a taint", []Request{{RequiredTaints: []string{"x"}}, {RequiredTaints: []string{"x", "x"}}}},
		{"two taints", []Request{{RequiredTaints: []string{"x", "y"}}, {RequiredTaints: []string{"y", "x"}}}},
		{"failed on one", []Request{{Exclude: []kv.WorkerID{2}}}},
		{"an adapter", []Request{{Model: model("a")}, {Model: model("m:a")}}},
		{"another adapter", []Request{{Model: model("b")}}},
		{"an adapter and a list", []Request{{Model: model("a"), Allowed: []uint64{1}}}},
	} {
		for i, q := range same.qs {
			if q.Model == nil {
				q.Model = m
			}
			n := r.restriction(&q)
			if before, ok := seen[n]; ok != (i > 0) || ok && before != same.name {
				t.Errorf("%s: number %d of %+v is that of %q", same.name, n, q, before)
			}
			seen[n] = same.name
		}
	}
	if seen[0] != "none" {
		t.Errorf("0 is %q", seen[0])
	}
}

// TestLaneOfANewcomer: a worker that joins takes those that it may run, also if they
// wait behind others with which they could go nowhere else so far.
func TestLaneOfANewcomer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{Queue: queueOf(100)}, Spec{})
		if err := r.Add(Spec{ID: 5, Name: "late", Engine: &stubEngine{}}); err != nil { // serves nothing yet
			t.Fatal(err)
		}
		synctest.Wait()
		a := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		first := waitFor(t, r, &Request{Model: m, PromptTokens: 1000, Allowed: []uint64{1}})
		second := waitFor(t, r, &Request{Model: m, PromptTokens: 1000, Allowed: []uint64{1, 5}})
		r.mu.RLock()
		w := r.workers[5]
		r.mu.RUnlock()
		r.admit(w, &engine.Info{Kind: "stub", Models: []engine.Model{{ID: "m", BlockSize: 16}}}, true)
		synctest.Wait()
		first.still(t)
		p := second.placed(t)
		if workerOf(p) != 5 {
			t.Errorf("placed on %d", workerOf(p))
		}
		p.Done(Completed)
		a.Done(Completed)
		synctest.Wait()
		first.placed(t).Done(Completed)
		idle(t, r, m)
	})
}

// TestSetsDoNotShareLanes unless there are very many.
func TestSetsDoNotShareLanes(t *testing.T) {
	r, m := crew(t, Config{Queue: queueOf(100)}, make([]Spec, 16)...)
	seen := make(map[uint64][]uint64)
	for a := range uint64(16) {
		for b := range a {
			set := []uint64{a + 1, b + 1}
			lane := m.pools[0].line.lane(r.restriction(&Request{Model: m, Allowed: set}))
			if other, ok := seen[lane]; ok {
				t.Errorf("%v has the lane of %v", set, other)
			}
			seen[lane] = set
		}
	}
}

// TestLanesAreBounded: a thousand sets of ranks make no thousand lanes, and nobody is
// left behind.
func TestLanesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{Queue: queueOf(100)}, make([]Spec, 10)...)
		var running []*Placement
		for w := range 10 {
			running = append(running, mustPlace(t, r, &Request{Model: m, PromptTokens: 1000, Pinned: true, Pin: kv.WorkerID(w + 1)}))
		}
		left := 0
		for set := 1; set < 1<<10; set++ {
			var allowed []uint64
			for w := range 10 {
				if set>>w&1 != 0 {
					allowed = append(allowed, uint64(w+1))
				}
			}
			left++
			r.Submit(&Request{Model: m, PromptTokens: 1000, Allowed: allowed}, func(p *Placement, err error) {
				if left--; err != nil {
					t.Error(err)
					return
				}
				running = append(running, p)
			})
		}
		if got := m.pools[0].line.queue.Lanes(); left != 1023 || got > 256 || got < 128 {
			t.Errorf("%d requests wait in %d lanes, want 1023 in at most 256", left, got)
		}
		for len(running) > 0 {
			p := running[0]
			running = running[1:]
			p.Done(Completed)
		}
		if left != 0 {
			t.Errorf("%d still wait", left)
		}
		idle(t, r, m)
	})
}

// TestPinsDoNotWaitForEachOther in a fleet of some size.
func TestPinsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{Queue: queueOf(100)}, make([]Spec, 60)...)
		var busy, placed []*Placement
		pin := func(w int) *Request {
			return &Request{Model: m, PromptTokens: 1000, Pinned: true, Pin: kv.WorkerID(w + 1)}
		}
		for w := range 60 {
			busy = append(busy, mustPlace(t, r, pin(w)))
		}
		for w := range 60 {
			r.Submit(pin(w), func(p *Placement, err error) {
				if err != nil {
					t.Error(err)
				}
				placed = append(placed, p)
			})
		}
		for i := range 60 { // the last that came is the first that can go
			w := 59 - i
			busy[w].Done(Completed)
			if len(placed) != i+1 || workerOf(placed[i]) != kv.WorkerID(w+1) {
				t.Fatalf("worker %d has room; %d of %d were placed", w+1, len(placed), i+1)
			}
		}
		for _, p := range placed {
			p.Done(Completed)
		}
		idle(t, r, m)
	})
}

// TestNewcomersAreForAll: a worker that joins takes those who may run anywhere, also if
// somebody waits before them whose list once had all workers on it.
func TestNewcomersAreForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{Queue: queueOf(100)}, Spec{}, Spec{})
		a := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		b := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		listed := waitFor(t, r, &Request{Model: m, PromptTokens: 1000, Allowed: []uint64{1, 2}})
		anywhere := waitFor(t, r, &Request{Model: m, PromptTokens: 1000})
		if err := r.Add(Spec{ID: 3, Engine: &stubEngine{models: []engine.Model{{ID: "m", BlockSize: 16}}}}); err != nil {
			t.Fatal(err)
		}
		r.WaitChecked(t.Context())
		synctest.Wait()
		listed.still(t)
		p := anywhere.placed(t)
		if workerOf(p) != 3 {
			t.Errorf("placed on %d", workerOf(p))
		}
		a.Done(Completed)
		synctest.Wait()
		for _, p := range []*Placement{b, p, listed.placed(t)} {
			p.Done(Completed)
		}
		m, _ = r.Lookup("m")
		idle(t, r, m)
	})
}
