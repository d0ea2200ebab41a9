package router

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/nvext"
)

// crew returns a router in mode kv with these workers. Those without an engine serve
// the model "m" with blocks of 16 tokens.
func crew(t testing.TB, cfg Config, specs ...Spec) (*Router, *Model) {
	t.Helper()
	if cfg.Seed == 0 {
		cfg.Seed = 1
	}
	r := New(cfg)
	t.Cleanup(r.Close)
	for i, s := range specs {
		if s.ID == 0 {
			s.ID = kv.WorkerID(i + 1)
		}
		if s.Engine == nil {
			s.Engine = &stubEngine{models: []engine.Model{{ID: "m", BlockSize: 16}}}
		}
		s.Name = fmt.Sprintf("stub-%d", s.ID)
		if err := r.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	r.WaitChecked(t.Context())
	m, err := r.Lookup("m")
	if err != nil {
		t.Fatal(err)
	}
	return r, m
}

// tellers returns n workers that tell of their caches.
func tellers(n int) []Spec {
	specs := make([]Spec, n)
	for i := range specs {
		specs[i].Events = true
	}
	return specs
}

// tokensOf returns n tokens of a text; two texts have no token in common.
func tokensOf(text, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(text<<16 + i)
	}
	return out
}

// ask returns a request for "m" with this prompt.
func ask(m *Model, tokens []uint32) *Request {
	return &Request{Model: m, Tokens: tokens, PromptTokens: len(tokens), HashSeed: kv.HashSeed("", ""), ExplainAll: true}
}

var sequence atomic.Uint64 // of batches

// store has a rank say that it holds the first blocks of a prompt, but for those that
// are said to be there already.
func store(t testing.TB, r *Router, w kv.WorkerID, rank uint32, tier kv.Tier, tokens []uint32, from, to int) {
	t.Helper()
	blocks := kv.AppendBlocks(nil, kv.HashSeed("", ""), tokens, 16)
	ev := kv.Event{Kind: kv.Stored, Tier: tier, Blocks: blocks[from:to]}
	if from > 0 {
		ev.HasParent, ev.Parent = true, blocks[from-1].ID
	}
	apply(t, r, w, rank, ev)
}

func apply(t testing.TB, r *Router, w kv.WorkerID, rank uint32, events ...kv.Event) {
	t.Helper()
	if err := r.Apply(&kv.Batch{Source: kv.Source{Worker: w, Rank: rank}, Epoch: 1, Seq: sequence.Add(1), Events: events}); err != nil {
		t.Fatal(err)
	}
}

// query asks where a request would go.
func query(t testing.TB, r *Router, q *Request) *Placement {
	t.Helper()
	asked := *q
	asked.QueryOnly = true
	p, err := r.Place(t.Context(), &asked)
	if err != nil {
		t.Fatalf("Place: %v", err)
	}
	return p
}

// scores returns the scores of a placement's candidates by worker.
func scores(p *Placement) map[uint64]float64 {
	out := make(map[uint64]float64)
	for _, c := range p.Routing.Candidates {
		out[c.WorkerID] = float64(c.Score)
	}
	return out
}

func workerOf(p *Placement) kv.WorkerID { return p.Last().Target.Worker }

func TestT1Cost(t *testing.T) {
	r, m := crew(t, Config{}, tellers(3)...)
	prompt := tokensOf(1, 160)
	busy := mustPlace(t, r, &Request{Model: m, Tokens: tokensOf(2, 128), PromptTokens: 128, Pinned: true, Pin: 1})
	busy.FirstToken()
	mustPlace(t, r, &Request{Model: m, Tokens: prompt[:64], PromptTokens: 64, HashSeed: kv.HashSeed("", ""), Pinned: true, Pin: 3})
	store(t, r, 1, 0, kv.Device, prompt, 0, 2)
	store(t, r, 2, 0, kv.Device, prompt, 0, 5)
	store(t, r, 3, 0, kv.Device, prompt, 0, 4)

	loads, waiting, tokens := r.PotentialLoads(ask(m, prompt))
	want := []PotentialLoad{
		{Worker: 1, PrefillTokens: 128, DecodeBlocks: 18, Requests: 1},
		{Worker: 2, PrefillTokens: 80, DecodeBlocks: 10},
		{Worker: 3, PrefillTokens: 160, DecodeBlocks: 10, Requests: 1},
	}
	if diff := cmp.Diff(want, loads); diff != "" || waiting != 0 || tokens != 0 {
		t.Errorf("%d requests with %d tokens wait; potential loads (-want +got):\n%s", waiting, tokens, diff)
	}
	for _, row := range []struct {
		weight float64
		want   map[uint64]float64
		tied   int
	}{
		{1, map[uint64]float64{1: 26, 2: 15, 3: 20}, 0},
		{2, map[uint64]float64{1: 34, 2: 20, 3: 30}, 0},
		{0, map[uint64]float64{1: 18, 2: 10, 3: 10}, 2},
	} {
		q := ask(m, prompt)
		q.Override = &Override{OverlapWeight: &row.weight}
		p := query(t, r, q)
		if diff := cmp.Diff(row.want, scores(p)); diff != "" || p.Routing.Tied != row.tied {
			t.Errorf("weight %v: %d tied, want %d; scores (-want +got):\n%s", row.weight, p.Routing.Tied, row.tied, diff)
		}
		if row.tied == 0 && workerOf(p) != 2 || workerOf(p) == 1 {
			t.Errorf("weight %v: worker %d", row.weight, workerOf(p))
		}
	}
	p := mustPlace(t, r, ask(m, prompt))
	if workerOf(p) != 2 || p.Last().OverlapBlocks != 5 {
		t.Errorf("placed on %d with %d blocks, want 2 with 5", workerOf(p), p.Last().OverlapBlocks)
	}
}

func TestT2PartialTail(t *testing.T) {
	r, m := crew(t, Config{}, tellers(2)...)
	prompt := tokensOf(1, 70)
	store(t, r, 1, 0, kv.Device, prompt, 0, 4)
	store(t, r, 2, 0, kv.Device, prompt, 0, 1)
	p := mustPlace(t, r, ask(m, prompt))
	if diff := cmp.Diff(map[uint64]float64{1: 4.375, 2: 7.375}, scores(p)); diff != "" {
		t.Errorf("scores (-want +got):\n%s", diff)
	}
	if got, want := loads(m), (load{inflight: 1, prefillTokens: 6, activeBlocks: 4}); got != want {
		t.Errorf("booked %+v, want %+v", got, want)
	}
	if p.Routing.TotalBlocks != 5 || p.Routing.OverlapBlocks != 4 || *p.Routing.PredictedCachedTokens != 64 {
		t.Errorf("%d of %d blocks, %d tokens", p.Routing.OverlapBlocks, p.Routing.TotalBlocks, *p.Routing.PredictedCachedTokens)
	}
}

func TestT6OutputSchedule(t *testing.T) {
	r, m := crew(t, Config{KV: KVConfig{TrackOutput: true}}, tellers(1)...)
	q := ask(m, tokensOf(1, 40))
	q.ExpectedOutput = 32
	p := mustPlace(t, r, q)
	p.FirstToken()
	for token := 1; token <= 41; token++ {
		p.Output(1)
		want := 2
		if token >= 9 {
			want = 2
		}
		if token >= 25 {
			want = 1
		}
		if token >= 41 {
			want = 0
		}
		if got := loads(m).activeBlocks; got != want {
			t.Fatalf("after token %d: %d blocks, want %d", token, got, want)
		}
		if want, got := 3+(token+7)/16, p.blocks; got != want {
			t.Fatalf("after token %d: %d blocks in total, want %d", token, got, want)
		}
	}
	// A chunk may cross several blocks at once.
	p = mustPlace(t, r, ask(m, tokensOf(2, 40)))
	p.Output(100)
	if got := loads(m).activeBlocks; got != 2+6 {
		t.Errorf("140 tokens at once: %d blocks, want 8", got)
	}
}

func TestT9Busy(t *testing.T) {
	for _, row := range []struct {
		frac    float64
		batched int
		tokens  int
		busy    bool
	}{
		{0.5, 8192, 4096, false},
		{0.5, 8192, 4097, true},
		{0, 8192, 0, false},
		{0, 8192, 1, true},
		{4, 0, 40_000_000, false},
		{4, 0, 40_000_001, true},
	} {
		cfg := Config{Queue: &QueueConfig{QueueConfig: sched.QueueConfig{Classes: []sched.Class{{Name: "default", Quantum: 1, BusyFrac: &row.frac}}}}}
		r, m := crew(t, cfg, Spec{MaxBatchedTokens: row.batched})
		mustPlace(t, r, &Request{Model: m, PromptTokens: row.tokens})
		placed := false
		r.Submit(&Request{Model: m, PromptTokens: 5}, func(*Placement, error) { placed = true })
		if placed == row.busy {
			t.Errorf("%d tokens of %v × %d: placed = %v", row.tokens, row.frac, row.batched, placed)
		}
	}
}

func TestT10DecodeOverride(t *testing.T) {
	r, m := crew(t, Config{}, tellers(1)...)
	prompt := tokensOf(1, 160)
	first := ask(m, prompt[:128])
	mustPlace(t, r, first).FirstToken()
	zero, no := 0.0, false
	q := ask(m, prompt)
	q.Override = &Override{OverlapWeight: &zero, AssumeReuse: &no, TrackPrefill: &no}
	p := mustPlace(t, r, q)
	if got := p.Routing.Chosen.Score; got != 18 {
		t.Errorf("score %v, want 18", got)
	}
	if got, want := loads(m), (load{inflight: 2, activeBlocks: 18}); got != want {
		t.Errorf("booked %+v, want %+v", got, want)
	}
	p.Done(Completed)
	if got := loads(m).activeBlocks; got != 8 {
		t.Errorf("%d blocks left, want 8", got)
	}
}

func TestEventsAttract(t *testing.T) {
	r, m := crew(t, Config{}, tellers(4)...)
	prompt := tokensOf(1, 320)
	store(t, r, 3, 0, kv.Device, prompt, 0, 20)
	p := mustPlace(t, r, ask(m, prompt))
	if workerOf(p) != 3 || p.Last().OverlapBlocks != 20 {
		t.Fatalf("placed on %d with %d blocks, want 3 with all", workerOf(p), p.Last().OverlapBlocks)
	}
	p.Done(Completed)

	// What is gone no longer does.
	blocks := kv.AppendBlocks(nil, kv.HashSeed("", ""), prompt, 16)
	apply(t, r, 3, 0, kv.Event{Kind: kv.Removed, Blocks: blocks[1:]})
	store(t, r, 2, 0, kv.Device, prompt, 0, 2)
	p = mustPlace(t, r, ask(m, prompt))
	if workerOf(p) != 2 {
		t.Fatalf("placed on %d, want 2, which holds most", workerOf(p))
	}
	p.Done(Completed)
	apply(t, r, 2, 0, kv.Event{Kind: kv.Cleared})
	p = mustPlace(t, r, ask(m, prompt))
	if workerOf(p) != 3 || p.Last().OverlapBlocks != 1 {
		t.Fatalf("placed on %d with %d blocks, want 3 with the one that is left", workerOf(p), p.Last().OverlapBlocks)
	}
	p.Done(Completed)
}

// TestLoadOutweighs: a prompt that many want is spread once its worker has more to
// do than the others would have to compute.
func TestLoadOutweighs(t *testing.T) {
	r, m := crew(t, Config{}, tellers(4)...)
	hot := tokensOf(1, 160)
	store(t, r, 1, 0, kv.Device, hot, 0, 10)
	count := map[kv.WorkerID]int{}
	for i := range 64 {
		q := ask(m, append(hot[:160:160], tokensOf(2+i, 160)...))
		p := mustPlace(t, r, q)
		count[workerOf(p)]++
		if i == 0 && workerOf(p) != 1 {
			t.Errorf("the first went to %d", workerOf(p))
		}
		if r := p.Routing; workerOf(p) != 1 && r.Chosen.OverlapBlocks == 0 && r.BestOverlapBlocks != 10 {
			t.Errorf("best overlap %d, want 10", r.BestOverlapBlocks)
		}
	}
	for w := kv.WorkerID(1); w <= 4; w++ {
		if count[w] < 10 {
			t.Errorf("worker %d got %d of 64", w, count[w])
		}
	}
}

// TestBurstSiblings: requests that begin alike and come before any event tells of the
// first go where that went, since it has the blocks.
func TestBurstSiblings(t *testing.T) {
	r, m := crew(t, Config{}, tellers(4)...)
	prompt := tokensOf(1, 1600)
	first := mustPlace(t, r, ask(m, prompt))
	first.FirstToken() // what it computed has not been told yet
	for i := range 5 {
		q := ask(m, append(prompt[:1600:1600], tokensOf(2+i, 16)...))
		p := mustPlace(t, r, q)
		if workerOf(p) != workerOf(first) {
			t.Errorf("sibling %d went to %d, the first to %d", i, workerOf(p), workerOf(first))
		}
		if p.Last().OverlapBlocks != 0 || *p.Routing.PredictedCachedTokens != 0 {
			t.Error("what is not there yet was predicted to be found")
		}
	}
	if got, want := loads(m).prefillTokens, 5*16; got != want {
		t.Errorf("%d tokens to compute, want %d", got, want)
	}
}

func TestTiers(t *testing.T) {
	cost := sched.DefaultCost()
	cost.SharedWeight = 0.5
	r, m := crew(t, Config{KV: KVConfig{Cost: &cost}}, tellers(5)...)
	prompt := tokensOf(1, 160)
	for w, tier := range map[kv.WorkerID]kv.Tier{1: kv.Device, 2: kv.Host, 3: kv.Disk, 4: kv.External} {
		store(t, r, w, 0, kv.Device, prompt, 0, 2)
		store(t, r, w, 0, tier, prompt, 2, 10)
	}
	p := mustPlace(t, r, ask(m, prompt))
	want := map[uint64]float64{1: 10, 2: 8*0.25 + 10, 3: 8*0.75 + 10, 4: 8*0.5 + 10, 5: 20}
	if diff := cmp.Diff(want, scores(p)); diff != "" {
		t.Errorf("scores (-want +got):\n%s", diff)
	}
	for _, c := range p.Routing.Candidates {
		if got := []int{c.OverlapBlocks, c.HostBlocks, c.DiskBlocks, c.SharedBlocks}; !cmp.Equal(got, map[uint64][]int{
			1: {10, 0, 0, 0}, 2: {10, 8, 0, 0}, 3: {10, 0, 8, 0}, 4: {10, 0, 0, 8}, 5: {0, 0, 0, 0},
		}[c.WorkerID]) {
			t.Errorf("worker %d: blocks in all, on host, disk, shared: %v", c.WorkerID, got)
		}
	}
}

func TestSlowStart(t *testing.T) {
	now := time.Unix(1000, 0)
	r, m := crew(t, Config{KV: KVConfig{SlowStart: time.Minute}, Now: func() time.Time { return now }, Virtual: true}, tellers(2)...)
	r.workers[1].since.Store(now.Add(-time.Hour).UnixNano())
	prompt := tokensOf(1, 160)
	for _, row := range []struct {
		age    time.Duration
		warmth float64
	}{{0, 0.1}, {3 * time.Second, 0.1}, {30 * time.Second, 0.5}, {time.Minute, 1}, {time.Hour, 1}} {
		r.workers[2].since.Store(now.Add(-row.age).UnixNano())
		p := query(t, r, ask(m, prompt))
		if diff := cmp.Diff(map[uint64]float64{1: 20, 2: 20 / row.warmth}, scores(p)); diff != "" {
			t.Errorf("%v old: scores (-want +got):\n%s", row.age, diff)
		}
		if row.warmth < 1 && workerOf(p) != 1 {
			t.Errorf("%v old: it was chosen", row.age)
		}
	}
}

func TestTaints(t *testing.T) {
	specs := tellers(3)
	specs[0].Taints = []string{"gpu=h100", "zone=a"}
	specs[1].Taints = []string{"gpu=h100"}
	r, m := crew(t, Config{}, specs...)
	prompt := tokensOf(1, 160)
	want := func(name string, q *Request, workers map[uint64]float64) {
		t.Helper()
		p := query(t, r, q)
		got := map[uint64]float64{}
		for _, c := range p.Routing.Candidates {
			if c.State == nvext.StateEligible {
				got[c.WorkerID] = math.Round(float64(c.Score)*1e3) / 1e3
			}
		}
		if diff := cmp.Diff(workers, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	q := ask(m, prompt)
	q.RequiredTaints = []string{"gpu=h100"}
	want("one required", q, map[uint64]float64{1: 20, 2: 20})
	q.RequiredTaints = []string{"zone=a", "gpu=h100"}
	want("both required", q, map[uint64]float64{1: 20})
	q.RequiredTaints = []string{"zone=b"}
	if _, err := r.Place(t.Context(), q); !errors.Is(err, ErrNoneTainted) {
		t.Errorf("nobody has it: %v", err)
	}
	var pin *PinError
	q.Pinned, q.Pin = true, 3
	if _, err := r.Place(t.Context(), q); !errors.As(err, &pin) || pin.Reason != PinUntainted {
		t.Errorf("pinned to one that has it not: %v", err)
	}
	q = ask(m, prompt)
	q.PreferredTaints = map[string]float64{"gpu=h100": 0.85}
	want("T13: preferred", q, map[uint64]float64{1: 10.021, 2: 10.021, 3: 20})
	q.PreferredTaints = map[string]float64{"gpu=h100": 1, "zone=a": -2}
	want("T13: preferred and shunned", q, map[uint64]float64{1: 42.834, 2: 9.338, 3: 20})
}

// TestZeroLengthPrompt: it is placed, costs what a token costs, and books none.
func TestZeroLengthPrompt(t *testing.T) {
	r, m := crew(t, Config{}, tellers(2)...)
	for _, n := range []int{0, -5} {
		p := mustPlace(t, r, &Request{Model: m, PromptTokens: n, ExplainAll: true})
		if got := p.Routing.Chosen.Score; got != 1.0/16 {
			t.Errorf("score %v, want 1/16", got)
		}
		if got, want := loads(m), (load{inflight: 1}); got != want {
			t.Errorf("booked %+v, want %+v", got, want)
		}
		p.Usage(0, 0)
		p.Done(Completed)
	}
}

func TestPinsInModeKV(t *testing.T) {
	specs := tellers(2)
	specs[0].Ranks, specs[1].Ranks = 3, 2
	r, m := crew(t, Config{}, specs...)
	prompt := tokensOf(1, 160)
	store(t, r, 1, 2, kv.Device, prompt, 0, 10)
	place := func(pin kv.WorkerID, rank *uint32) (engine.Target, error) {
		q := ask(m, prompt)
		q.Pinned, q.Pin, q.PinRank = true, pin, rank
		p, err := r.Place(t.Context(), q)
		if err != nil {
			return engine.Target{}, err
		}
		defer p.Done(Completed)
		if p.Routing.Reason != nvext.ReasonPinned || p.Routing.Considered != 5 {
			t.Errorf("reason %s, %d considered", p.Routing.Reason, p.Routing.Considered)
		}
		if got := loads(m).inflight; got != 1 {
			t.Errorf("a pinned request booked %d", got)
		}
		return p.Last().Target, nil
	}
	if got, err := place(1, nil); err != nil || got != (engine.Target{Worker: 1, Rank: 2}) {
		t.Errorf("pin without rank: %v, %v, want the rank with the prompt", got, err)
	}
	if got, err := place(1, ptr(uint32(1))); err != nil || got != (engine.Target{Worker: 1, Rank: 1}) {
		t.Errorf("pin with rank: %v, %v", got, err)
	}
	for _, row := range []struct {
		name   string
		pin    kv.WorkerID
		rank   *uint32
		reason PinReason
	}{
		{"rank that the worker has not", 2, ptr(uint32(2)), PinRankUnknown},
		{"worker that nobody knows", 9, nil, PinUnknown},
	} {
		var pin *PinError
		if _, err := place(row.pin, row.rank); !errors.As(err, &pin) || pin.Reason != row.reason {
			t.Errorf("%s: %v", row.name, err)
		}
	}
	r.workers[2].discovered.Store(false)
	var pin *PinError
	if _, err := place(2, nil); !errors.As(err, &pin) || pin.Reason != PinUnavailable {
		t.Errorf("pin to a worker that has gone: %v", err)
	}
	q := ask(m, prompt)
	q.Allowed = []uint64{2}
	if _, err := r.Place(t.Context(), q); !errors.Is(err, ErrNoWorkers) {
		t.Errorf("the only one allowed is gone: %v", err)
	}
	q.Allowed = []uint64{1, 2}
	if p := mustPlace(t, r, q); p.Last().Target != (engine.Target{Worker: 1, Rank: 2}) {
		t.Errorf("allowed 1 and 2: %v", p.Last().Target)
	}
	if got := loads(m).inflight; got != 1 {
		t.Errorf("%d requests booked, want the last alone", got)
	}
}

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
	r.admit(r.workers[w], &engine.Info{Kind: "stub", Models: models})
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

func TestCancelledBeforePlace(t *testing.T) {
	r, m := crew(t, Config{}, tellers(1)...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Place(ctx, ask(m, tokensOf(1, 100))); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if got := loads(m); got != (load{}) {
		t.Errorf("booked %+v", got)
	}
}

// TestOtherModesKnowNothingOfCaches: what a decision of mode kv found does not show in
// those of another router.
func TestOtherModesKnowNothingOfCaches(t *testing.T) {
	r, m := crew(t, Config{}, tellers(2)...)
	turns, n := crew(t, Config{Mode: RoundRobin}, tellers(2)...)
	prompt := tokensOf(1, 160)
	store(t, r, 1, 0, kv.Device, prompt, 0, 10)
	for range 20 {
		mustPlace(t, r, ask(m, prompt)).Done(Completed)
		p := mustPlace(t, turns, ask(n, prompt))
		for _, c := range p.Routing.Candidates {
			if c.OverlapBlocks != 0 {
				t.Fatalf("round robin says that worker %d has %d blocks", c.WorkerID, c.OverlapBlocks)
			}
		}
		p.Done(Completed)
	}
}

// TestAnswersAreCountedOnce, however often a request is said to be done.
func TestAnswersAreCountedOnce(t *testing.T) {
	r, m := crew(t, Config{}, Spec{})
	p := mustPlace(t, r, ask(m, tokensOf(1, 40)))
	p.FirstToken()
	p.Output(30)
	for _, o := range []Outcome{Completed, Broken, Unreachable} {
		p.Done(o)
	}
	if got := sum(t, r.cfg.Metrics, "dynamo_component_router_output_sequence_tokens"); got != 30 {
		t.Errorf("%v tokens were generated, want 30", got)
	}
	if _, err := r.Place(t.Context(), ask(m, tokensOf(1, 40))); err != nil {
		t.Errorf("a second end inhibited the worker: %v", err)
	}
}

// TestPlaceAllocatesNothing where nobody asks for an explanation.
func TestPlaceAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	r, m := crew(t, Config{Decisions: 16}, tellers(8)...)
	prompt := tokensOf(1, 1600)
	store(t, r, 1, 0, kv.Device, prompt, 0, 50)
	var into Placement
	q := ask(m, prompt)
	q.ExplainAll, q.Into = false, &into
	if n := testing.AllocsPerRun(200, func() {
		p, err := r.Place(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		p.FirstToken()
		p.Output(40)
		p.Usage(1600, 800)
		p.Done(Completed)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
