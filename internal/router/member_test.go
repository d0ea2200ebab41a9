package router

import (
	"errors"
	"testing"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
)

// TestWorkerVanishesBeforeDial: what was booked on a worker that turns out to be dead
// is given back, and the next try goes elsewhere.
func TestWorkerVanishesBeforeDial(t *testing.T) {
	r, m := crew(t, Config{}, tellers(2)...)
	prompt := tokensOf(1, 160)
	store(t, r, 1, 0, kv.Device, prompt, 0, 10)
	r.workers[1].Engine.(*stubEngine).down.Store(true)
	p := mustPlace(t, r, ask(m, prompt))
	if workerOf(p) != 1 {
		t.Fatalf("placed on %d", workerOf(p))
	}
	p.Done(Unreachable)
	q := ask(m, prompt)
	q.Exclude, q.Attempt = []kv.WorkerID{1}, 1
	p = mustPlace(t, r, q)
	if workerOf(p) != 2 || p.Routing.Attempt != 2 {
		t.Errorf("attempt %d placed on %d", p.Routing.Attempt, workerOf(p))
	}
	p.Done(Completed)
	if p = mustPlace(t, r, ask(m, prompt)); workerOf(p) != 2 {
		t.Error("a worker that cannot be reached was chosen again")
	}
	p.Done(Completed)
	if got := loads(m); got != (load{}) {
		t.Errorf("left over: %+v", got)
	}
}

// reshape has a worker come back with other models or ranks.
func reshape(r *Router, w kv.WorkerID, models ...engine.Model) {
	r.admit(r.workers[w], &engine.Info{Kind: "stub", Models: models}, true)
}

// TestRankLeavesWhileBooked: a rank that comes back has nothing to do, and what was
// booked on it before ends without a trace.
func TestRankLeavesWhileBooked(t *testing.T) {
	shape := engine.Model{ID: "m", BlockSize: 16, Ranks: 2}
	r, m := crew(t, Config{}, Spec{Events: true, Engine: &stubEngine{models: []engine.Model{shape}}})
	prompt := tokensOf(1, 160)
	q := ask(m, prompt)
	q.Pinned, q.Pin, q.PinRank = true, 1, ptr(uint32(1))
	old := mustPlace(t, r, q)
	store(t, r, 1, 1, kv.Device, prompt, 0, 10)
	one := shape
	one.Ranks = 1
	reshape(r, 1, one)
	var pin *PinError
	if _, err := r.Place(t.Context(), q); !errors.As(err, &pin) || pin.Reason != PinRankUnknown {
		t.Fatalf("pin to a rank that has left: %v", err)
	}
	reshape(r, 1, shape)
	m, _ = r.Lookup("m")
	q.Model = m
	p := mustPlace(t, r, q)
	if p.Last().OverlapBlocks != 0 {
		t.Error("what a rank held before it left is taken to be there")
	}
	want := load{inflight: 1, prefillTokens: 160, activeBlocks: 10}
	if got := loads(m); got != want {
		t.Errorf("a rank that came back has %+v, want %+v", got, want)
	}
	if p.booking.Seat() == old.booking.Seat() {
		t.Error("a seat on which something is booked was given away")
	}
	seat := old.booking.Seat()
	old.FirstToken()
	old.Output(100)
	old.Done(Completed)
	if got := loads(m); got != want {
		t.Errorf("the end of what was booked before left %+v, want %+v", got, want)
	}
	reshape(r, 1, one)
	p.Done(Completed)
	reshape(r, 1, shape)
	if q := mustPlace(t, r, q); q.booking.Seat() != min(seat, p.booking.Seat()) {
		t.Errorf("seat %d, want the lowest that is free", q.booking.Seat())
	}
}

func TestAdaptersShareTheirModelsPool(t *testing.T) {
	base := engine.Model{ID: "m", BlockSize: 16}
	lora := engine.Model{ID: "m:a", Parent: "m"}
	specs := []Spec{
		{Events: true, Engine: &stubEngine{models: []engine.Model{base}}},
		{Events: true, Engine: &stubEngine{models: []engine.Model{base, lora}}},
		{Events: true, Engine: &stubEngine{models: []engine.Model{base, lora}}},
	}
	r, m := crew(t, Config{}, specs...)
	a, err := r.Lookup("m:a")
	if err != nil {
		t.Fatal(err)
	}
	if !a.Adapter || a.Parent != "m" || len(a.pools) != 1 || a.pools[0] != m.pools[0] || m.Adapter || len(m.pools) != 1 {
		t.Fatalf("adapter %+v of %+v", a, m)
	}
	prompt := tokensOf(1, 160)
	q := &Request{Model: a, Tokens: prompt, PromptTokens: 160, HashSeed: kv.HashSeed("m:a", ""), ExplainAll: true}
	store(t, r, 1, 0, kv.Device, prompt, 0, 10) // of the model without the adapter
	store(t, r, 2, 0, kv.Device, prompt, 0, 10)
	p := mustPlace(t, r, q)
	if workerOf(p) == 1 || p.Last().OverlapBlocks != 0 || p.Routing.Considered != 2 {
		t.Errorf("placed on %d with %d blocks among %d", workerOf(p), p.Last().OverlapBlocks, p.Routing.Considered)
	}
	// The next one for the model sees what the adapter's request does to its worker.
	plain := mustPlace(t, r, ask(m, prompt))
	if got := scores(plain); got[uint64(workerOf(p))] < 20+20-10 {
		t.Errorf("worker %d has a request of the adapter; scores %v", workerOf(p), got)
	}
	if workerOf(plain) != 1 && workerOf(plain) != 2 {
		t.Errorf("placed on %d, which has nothing of the prompt", workerOf(plain))
	}
	plain.Done(Completed)
	blocks := kv.AppendBlocks(nil, kv.HashSeed("m:a", ""), prompt, 16)
	other := 5 - workerOf(p) // of 2 and 3
	apply(t, r, other, 0, kv.Event{Kind: kv.Stored, Blocks: blocks})
	if p := mustPlace(t, r, q); workerOf(p) != other || p.Last().OverlapBlocks != 10 {
		t.Errorf("placed on %d with %d blocks, want %d with 10", workerOf(p), p.Last().OverlapBlocks, other)
	}
	var pin *PinError
	q.Pinned, q.Pin, q.PinRank = true, 1, ptr(uint32(0))
	if _, err := r.Place(t.Context(), q); !errors.As(err, &pin) || pin.Reason != PinUnknown {
		t.Errorf("pinned to a worker without the adapter: %v", err)
	}
	p.Done(Completed)
	reshape(r, 3, base)
	reshape(r, 2, base)
	if a, _ := r.Lookup("m:a"); len(a.pools) != 0 {
		t.Errorf("an adapter that nobody lists has %d pools", len(a.pools))
	} else if _, err := r.Place(t.Context(), &Request{Model: a}); !errors.Is(err, ErrNoWorkers) {
		t.Errorf("nobody serves the adapter: %v", err)
	}
}

// TestSeveralPools: costs of pools with blocks of different sizes are compared in
// tokens.
func TestSeveralPools(t *testing.T) {
	r, m := crew(t, Config{},
		Spec{Events: true},
		Spec{Events: true, BlockSize: 32},
	)
	prompt := tokensOf(1, 320)
	for i, row := range []struct{ worker, blocks, size int }{{1, 10, 16}, {2, 8, 32}} {
		blocks := kv.AppendBlocks(nil, kv.HashSeed("", ""), prompt, row.size)
		apply(t, r, kv.WorkerID(row.worker), 0, kv.Event{Kind: kv.Stored, Blocks: blocks[:row.blocks]})
		p := query(t, r, ask(m, prompt))
		if workerOf(p) != kv.WorkerID(row.worker) || p.BlockSize() != row.size {
			t.Errorf("placed on %d, want %d", workerOf(p), row.worker)
		}
		pools := p.Routing.Pools
		if len(pools) != 2 || !pools[i].Chosen || pools[1-i].Chosen {
			t.Errorf("pools %+v", pools)
		}
	}
	p := query(t, r, ask(m, prompt))
	if a, b := p.Routing.Pools[0].CostTokens, p.Routing.Pools[1].CostTokens; a != 160+320 || b != 64+320 {
		t.Errorf("costs of %v and %v tokens, want 480 and 384", a, b)
	}
	// Both are refused for reasons of their own: the more telling one is heard.
	m.SetThresholds(Thresholds{PrefillTokens: ptr(uint64(100))})
	for w := kv.WorkerID(1); w <= 2; w++ {
		mustPlace(t, r, &Request{Model: m, PromptTokens: 500, Pinned: true, Pin: w})
	}
	r.workers[2].discovered.Store(false)
	if _, err := r.Place(t.Context(), ask(m, prompt)); !errors.Is(err, ErrOverloaded) {
		t.Errorf("one busy, one gone: %v", err)
	}
}
