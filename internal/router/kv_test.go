package router

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/sched"
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
	return crewOf(t, r, specs...)
}

// crewOf adds the workers to a router.
func crewOf(t testing.TB, r *Router, specs ...Spec) (*Router, *Model) {
	t.Helper()
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
		if p.Last().OverlapBlocks != 0 || *p.Routing.PredictedCachedTokens != 1600 {
			t.Errorf("%d blocks known to be there, %d tokens predicted to be found", p.Last().OverlapBlocks, *p.Routing.PredictedCachedTokens)
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
	}{{0, 0.125}, {3 * time.Second, 0.125}, {30 * time.Second, 0.5}, {31 * time.Second, 0.5625}, {59 * time.Second, 1}, {time.Minute, 1}, {time.Hour, 1}} {
		r.workers[2].since.Store(now.Add(-row.age).UnixNano())
		p := query(t, r, ask(m, prompt))
		if diff := cmp.Diff(map[uint64]float64{1: 20, 2: 20 / row.warmth}, scores(p)); diff != "" {
			t.Errorf("%v old: scores (-want +got):\n%s", row.age, diff)
		}
		if row.warmth < 1 && workerOf(p) != 1 {
			t.Errorf("%v old: it was chosen", row.age)
		}
	}
	// Those that came together, or nearly so, are equals however cold they are.
	for _, age := range []time.Duration{0, 20 * time.Second, 40 * time.Second} {
		r.workers[1].since.Store(now.Add(-age - 100*time.Millisecond).UnixNano())
		r.workers[2].since.Store(now.Add(-age).UnixNano())
		p := query(t, r, ask(m, prompt))
		if diff := cmp.Diff(map[uint64]float64{1: 20, 2: 20}, scores(p)); diff != "" || p.Routing.Tied != 2 {
			t.Errorf("both %v old: %d tied; scores (-want +got):\n%s", age, p.Routing.Tied, diff)
		}
	}
	// Warmth is that of a rank among those that can be chosen.
	r.workers[1].since.Store(now.Add(-30 * time.Second).UnixNano())
	r.workers[2].since.Store(now.Add(-15 * time.Second).UnixNano())
	if diff := cmp.Diff(map[uint64]float64{1: 20, 2: 40}, scores(query(t, r, ask(m, prompt)))); diff != "" {
		t.Errorf("one twice as old: scores (-want +got):\n%s", diff)
	}
	q := ask(m, prompt)
	q.Allowed = []uint64{2}
	if got := query(t, r, q).Routing.Chosen.Score; got != 20 {
		t.Errorf("alone: score %v, want 20", got)
	}
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
