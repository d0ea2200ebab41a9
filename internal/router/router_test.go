package router

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/nvext"
)

// stubEngine is an engine whose health the test decides. It opens nothing.
type stubEngine struct {
	models []engine.Model
	down   atomic.Bool
	slow   atomic.Bool // its health route takes for ever
	probes atomic.Int64
}

func (e *stubEngine) Open(context.Context, engine.Target, *engine.Request) (*engine.Response, error) {
	return nil, errors.New("not used")
}

func (e *stubEngine) Identify(context.Context) (*engine.Info, error) {
	if e.down.Load() || e.slow.Load() {
		return nil, errors.New("down")
	}
	return &engine.Info{Kind: "stub", Models: e.models}, nil
}

func (e *stubEngine) Probe(ctx context.Context) error {
	e.probes.Add(1)
	if e.slow.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if e.down.Load() {
		return errors.New("down")
	}
	return nil
}

func (e *stubEngine) Close() {}

// fleet returns a router with workers 1…n of one rank each, all serving "m".
func fleet(t *testing.T, cfg Config, n int, model engine.Model) (*Router, *Model, []*stubEngine) {
	t.Helper()
	model.ID = "m"
	r := New(cfg)
	t.Cleanup(r.Close)
	var engines []*stubEngine
	for i := range n {
		e := &stubEngine{models: []engine.Model{model}}
		engines = append(engines, e)
		if err := r.Add(Spec{ID: kv.WorkerID(i + 1), Name: fmt.Sprintf("stub-%d", i+1), Engine: e}); err != nil {
			t.Fatal(err)
		}
	}
	r.WaitChecked(t.Context())
	m, err := r.Lookup("m")
	if err != nil {
		t.Fatal(err)
	}
	return r, m, engines
}

func mustPlace(t *testing.T, r *Router, q *Request) *Placement {
	t.Helper()
	p, err := r.Place(t.Context(), q)
	if err != nil {
		t.Fatalf("Place: %v", err)
	}
	return p
}

// loads returns the sum of everything booked on the model's ranks.
func loads(m *Model) (total load) {
	for _, p := range m.pools {
		p.mu.Lock()
		for _, s := range p.slots {
			l := p.load(s)
			total.inflight += l.inflight
			total.prefillTokens += l.prefillTokens
			total.activeBlocks += l.activeBlocks
		}
		p.mu.Unlock()
	}
	return total
}

func TestRoundRobinTakesTurns(t *testing.T) {
	r, m, _ := fleet(t, Config{Mode: RoundRobin}, 3, engine.Model{})
	var got []kv.WorkerID
	for range 7 {
		p := mustPlace(t, r, &Request{Model: m})
		got = append(got, p.Last().Target.Worker)
		p.Done(Completed)
	}
	if diff := cmp.Diff([]kv.WorkerID{1, 2, 3, 1, 2, 3, 1}, got); diff != "" {
		t.Errorf("workers (-want +got):\n%s", diff)
	}
}

func TestQueryOnlyBooksNothing(t *testing.T) {
	r, m, _ := fleet(t, Config{Mode: RoundRobin}, 2, engine.Model{BlockSize: 16})
	for range 3 {
		p := mustPlace(t, r, &Request{Model: m, QueryOnly: true, PromptTokens: 100})
		if got := p.Last().Target.Worker; got != 1 {
			t.Fatalf("query-only placement on worker %d, want 1: the turn must not move", got)
		}
		p.FirstToken()
		p.Output(50)
		p.Done(Completed)
	}
	if got := loads(m); got != (load{}) {
		t.Errorf("query-only requests left %+v booked", got)
	}
}

func TestLeastLoadedAndPowerOfTwo(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	cands := []sched.Candidate{{Requests: 5}, {Requests: 2}, {Requests: 2}, {Requests: 9}}
	seen := map[int]int{}
	for range 1000 {
		seen[pick(LeastLoaded, 0, rng, cands)]++
	}
	if seen[1]+seen[2] != 1000 || seen[1] < 400 || seen[2] < 400 {
		t.Errorf("least-loaded picked %v, want only 1 and 2, about as often", seen)
	}
	worst := 0
	for range 1000 {
		if pick(PowerOfTwo, 0, rng, cands) == 3 {
			worst++
		}
	}
	if worst != 0 {
		t.Errorf("power-of-two picked the most loaded of four %d times; it loses every comparison", worst)
	}
	// Ties go to the first drawn, which is uniform.
	even := []sched.Candidate{{Requests: 1}, {Requests: 1}}
	first := 0
	for range 1000 {
		if pick(PowerOfTwo, 0, rng, even) == 0 {
			first++
		}
	}
	if first < 400 || first > 600 {
		t.Errorf("power-of-two on a tie picked the first %d of 1000 times", first)
	}
}

func TestSameSeedSameChoices(t *testing.T) {
	for _, mode := range []Mode{Random, PowerOfTwo, LeastLoaded} {
		run := func() (out []kv.WorkerID) {
			r, m, _ := fleet(t, Config{Mode: mode, Seed: 42}, 5, engine.Model{})
			for i := range 200 {
				p := mustPlace(t, r, &Request{Model: m})
				out = append(out, p.Last().Target.Worker)
				if i%3 == 0 {
					p.Done(Completed)
				}
			}
			return out
		}
		if diff := cmp.Diff(run(), run()); diff != "" {
			t.Errorf("%s: two runs with one seed differ:\n%s", mode, diff)
		}
	}
}

func TestParseMode(t *testing.T) {
	for in, want := range map[string]Mode{
		"": KV, "kv": KV, "KV": KV, "round_robin": RoundRobin, "Round-Robin": RoundRobin, "random": Random,
		"power_of_two_choices": PowerOfTwo, "power-of-two": PowerOfTwo, "least_loaded": LeastLoaded, "direct": Direct,
	} {
		if got, err := ParseMode(in); err != nil || got != want {
			t.Errorf("ParseMode(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
	if _, err := ParseMode("best"); err == nil {
		t.Error("ParseMode(best): no error")
	}
}

func ptr[T any](v T) *T { return &v }

func TestBusyThresholds(t *testing.T) {
	decode := Thresholds{DecodeBlocks: ptr(0.85)}
	frac := Thresholds{PrefillFrac: ptr(0.8)}
	abs := Thresholds{PrefillTokens: ptr(uint64(100))}
	rows := []struct {
		name string
		th   Thresholds
		load load
		want bool
	}{
		{"85 of 100 blocks is free", decode, load{activeBlocks: 85, totalBlocks: 100}, false},
		{"86 of 100 blocks is busy", decode, load{activeBlocks: 86, totalBlocks: 100}, true},
		{"active 50 but used still 90 is busy", decode, load{activeBlocks: 50, usedBlocks: 90, totalBlocks: 100}, true},
		{"both clear is free", decode, load{activeBlocks: 50, usedBlocks: 60, totalBlocks: 100}, false},
		{"unknown total is free", decode, load{activeBlocks: 500}, false},
		{"frac 0.8 of 8192, 6553 is free", frac, load{prefillTokens: 6553, maxBatched: 8192}, false},
		{"frac 0.8 of 8192, 6554 is busy", frac, load{prefillTokens: 6554, maxBatched: 8192}, true},
		{"frac of an unknown limit is of 10 000 000", frac, load{prefillTokens: 8_000_000}, false},
		{"frac of an unknown limit, above", frac, load{prefillTokens: 8_000_001}, true},
		{"absolute 100 is free", abs, load{prefillTokens: 100}, false},
		{"absolute 101 is busy", abs, load{prefillTokens: 101}, true},
		{"an absurd factor is never reached", Thresholds{PrefillFrac: ptr(1e300)}, load{prefillTokens: 1 << 40}, false},
		{"nothing set is never busy", Thresholds{}, load{prefillTokens: 1 << 40, activeBlocks: 1 << 40, totalBlocks: 1}, false},
	}
	for _, row := range rows {
		if got := row.th.busy(&row.load); got != row.want {
			t.Errorf("%s: busy = %v", row.name, got)
		}
	}
}

func TestOverloadedRanksAreLeftOutOneByOne(t *testing.T) {
	r, m, _ := fleet(t, Config{Mode: RoundRobin}, 2, engine.Model{BlockSize: 16, TotalBlocks: 10})
	m.SetThresholds(Thresholds{DecodeBlocks: ptr(0.5)})
	// 96 tokens are 6 blocks of 10: above half.
	first := mustPlace(t, r, &Request{Model: m, PromptTokens: 96})
	for range 3 {
		p := mustPlace(t, r, &Request{Model: m})
		if p.Last().Target.Worker == first.Last().Target.Worker {
			t.Fatal("a busy worker got a request while another was free")
		}
		p.Done(Completed)
	}
	second := mustPlace(t, r, &Request{Model: m, PromptTokens: 96})
	if _, err := r.Place(t.Context(), &Request{Model: m}); !errors.Is(err, ErrOverloaded) {
		t.Errorf("all busy: got %v, want ErrOverloaded", err)
	}
	var pin *PinError
	if _, err := r.Place(t.Context(), &Request{Model: m, Pinned: true, Pin: 1}); !errors.As(err, &pin) || pin.Reason != PinOverloaded {
		t.Errorf("pin on a busy worker: got %v, want PinOverloaded", err)
	}
	first.Done(Completed)
	if p := mustPlace(t, r, &Request{Model: m}); p.Last().Target.Worker != first.Last().Target.Worker {
		t.Errorf("after a release worker %d was chosen, want %d", p.Last().Target.Worker, first.Last().Target.Worker)
	} else {
		p.Done(Completed)
	}
	second.Done(Completed)
	if got := loads(m); got != (load{}) {
		t.Errorf("left over: %+v", got)
	}
}

func TestEngineReportCountsBesideOwn(t *testing.T) {
	r, m, _ := fleet(t, Config{}, 1, engine.Model{BlockSize: 16, TotalBlocks: 100})
	m.SetThresholds(Thresholds{DecodeBlocks: ptr(0.85)})
	r.Report(1, []engine.Load{{Rank: 0, UsedBlocks: 90}})
	if _, err := r.Place(t.Context(), &Request{Model: m}); !errors.Is(err, ErrOverloaded) {
		t.Fatalf("engine reports 90 of 100: got %v, want ErrOverloaded", err)
	}
	r.Report(1, []engine.Load{{Rank: 0, UsedBlocks: 60}})
	mustPlace(t, r, &Request{Model: m}).Done(Completed)
}

func TestPins(t *testing.T) {
	r, m, _ := fleet(t, Config{Mode: RoundRobin}, 2, engine.Model{Ranks: 3})
	for range 4 {
		p := mustPlace(t, r, &Request{Model: m, Pinned: true, Pin: 2, PinRank: ptr(uint32(1))})
		if got := p.Last().Target; got != (engine.Target{Worker: 2, Rank: 1}) || !p.Last().Ranked {
			t.Fatalf("pinned to 2/1, got %v (ranked %v)", got, p.Last().Ranked)
		}
		p.Done(Completed)
	}
	seen := map[uint32]bool{}
	for range 6 {
		p := mustPlace(t, r, &Request{Model: m, Pinned: true, Pin: 2})
		if p.Last().Target.Worker != 2 {
			t.Fatalf("pinned to 2, got %v", p.Last().Target)
		}
		seen[p.Last().Target.Rank] = true
	}
	if len(seen) != 3 {
		t.Errorf("a pin without rank used ranks %v, want all three", seen)
	}
	rows := []struct {
		name string
		q    Request
		want PinReason
	}{
		{"unknown worker", Request{Pin: 9}, PinUnknown},
		{"unknown rank", Request{Pin: 1, PinRank: ptr(uint32(7))}, PinRankUnknown},
		{"not allowed", Request{Pin: 1, Allowed: []uint64{2}}, PinNotAllowed},
	}
	for _, row := range rows {
		row.q.Model, row.q.Pinned = m, true
		_, err := r.Place(t.Context(), &row.q)
		var pin *PinError
		if !errors.As(err, &pin) || pin.Reason != row.want {
			t.Errorf("%s: got %v, want reason %d", row.name, err, row.want)
		}
	}
}

func TestDirectNeedsAPin(t *testing.T) {
	r, m, _ := fleet(t, Config{Mode: Direct}, 2, engine.Model{})
	if _, err := r.Place(t.Context(), &Request{Model: m}); !errors.Is(err, ErrPinMissing) {
		t.Errorf("got %v, want ErrPinMissing", err)
	}
	if p := mustPlace(t, r, &Request{Model: m, Pinned: true, Pin: 2}); p.Last().Target.Worker != 2 {
		t.Errorf("got worker %d", p.Last().Target.Worker)
	}
}

func TestAllowListAndExclude(t *testing.T) {
	r, m, _ := fleet(t, Config{Mode: RoundRobin}, 3, engine.Model{})
	for range 3 {
		if p := mustPlace(t, r, &Request{Model: m, Allowed: []uint64{3, 2}, Exclude: []kv.WorkerID{2}}); p.Last().Target.Worker != 3 {
			t.Errorf("got worker %d, want 3", p.Last().Target.Worker)
		}
	}
	for _, none := range [][]uint64{{}, {9}} {
		if _, err := r.Place(t.Context(), &Request{Model: m, Allowed: none}); !errors.Is(err, ErrNoneAllowed) {
			t.Errorf("allow-list %v: got %v, want ErrNoneAllowed", none, err)
		}
	}
	if _, err := r.Place(t.Context(), &Request{Model: m, Allowed: []uint64{2}, Exclude: []kv.WorkerID{2}}); !errors.Is(err, ErrNoWorkers) {
		t.Errorf("the only allowed worker failed: got %v, want ErrNoWorkers", err)
	}
}

func TestDoneIsIdempotentAndBound(t *testing.T) {
	r, m, _ := fleet(t, Config{Mode: RoundRobin}, 1, engine.Model{BlockSize: 16})
	a := mustPlace(t, r, &Request{Model: m, PromptTokens: 33})
	b := mustPlace(t, r, &Request{Model: m, PromptTokens: 33})
	if got, want := loads(m), (load{inflight: 2, prefillTokens: 66, activeBlocks: 6}); got != want {
		t.Fatalf("booked %+v, want %+v", got, want)
	}
	a.FirstToken()
	a.FirstToken()
	a.Output(15) // 48 tokens: still 3 blocks
	a.Output(20) // 68 tokens: 5 blocks, two more at once
	if got, want := loads(m), (load{inflight: 2, prefillTokens: 33, activeBlocks: 8}); got != want {
		t.Fatalf("while decoding %+v, want %+v", got, want)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { a.Done(Completed) })
	}
	wg.Wait()
	a.Output(1000)
	if got, want := loads(m), (load{inflight: 1, prefillTokens: 33, activeBlocks: 3}); got != want {
		t.Fatalf("after one Done %+v, want %+v", got, want)
	}
	b.Done(Cancelled)
	if got := loads(m); got != (load{}) {
		t.Fatalf("left over %+v", got)
	}
}

func TestPoolsOfOneModelAreDrawnByTheirRanks(t *testing.T) {
	r := New(Config{Mode: RoundRobin, Seed: 7})
	t.Cleanup(r.Close)
	for i, bs := range []int{16, 16, 16, 64} {
		e := &stubEngine{models: []engine.Model{{ID: "m", BlockSize: bs}}}
		if err := r.Add(Spec{ID: kv.WorkerID(i + 1), Engine: e}); err != nil {
			t.Fatal(err)
		}
	}
	r.WaitChecked(t.Context())
	m, err := r.Lookup("m")
	if err != nil {
		t.Fatal(err)
	}
	if len(m.pools) != 2 {
		t.Fatalf("%d pools, want 2", len(m.pools))
	}
	count := map[kv.WorkerID]int{}
	for range 4000 {
		p := mustPlace(t, r, &Request{Model: m})
		count[p.Last().Target.Worker]++
		p.Done(Completed)
	}
	for w := kv.WorkerID(1); w <= 4; w++ {
		if count[w] < 850 || count[w] > 1150 {
			t.Errorf("worker %d got %d of 4000", w, count[w])
		}
	}
	if p := mustPlace(t, r, &Request{Model: m, Pinned: true, Pin: 4}); p.Last().Target.Worker != 4 {
		t.Error("a pin did not find the other pool")
	}
}

func TestPoolThatCannotServeIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Config{Mode: RoundRobin, Seed: 7})
		t.Cleanup(r.Close)
		var engines []*stubEngine
		for i, bs := range []int{16, 32} {
			e := &stubEngine{models: []engine.Model{{ID: "m", BlockSize: bs, TotalBlocks: 10}}}
			engines = append(engines, e)
			if err := r.Add(Spec{ID: kv.WorkerID(i + 1), Engine: e}); err != nil {
				t.Fatal(err)
			}
		}
		r.WaitChecked(t.Context())
		m, _ := r.Lookup("m")
		m.SetThresholds(Thresholds{DecodeBlocks: ptr(0.5)})
		busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 16 * 6, Pinned: true, Pin: 1})
		for range 20 {
			if p := mustPlace(t, r, &Request{Model: m}); p.Last().Target.Worker != 2 {
				t.Fatal("the busy pool got a request while the other was free")
			}
		}
		engines[1].down.Store(true)
		mustPlace(t, r, &Request{Model: m, Pinned: true, Pin: 2}).Done(Unreachable)
		if _, err := r.Place(t.Context(), &Request{Model: m}); !errors.Is(err, ErrOverloaded) {
			t.Errorf("one pool busy, one unreachable: got %v, want ErrOverloaded", err)
		}
		busy.Done(Completed)
		for range 20 {
			if p := mustPlace(t, r, &Request{Model: m}); p.Last().Target.Worker != 1 {
				t.Fatal("the unreachable pool got a request")
			}
		}
		for range 20 {
			if _, err := r.Place(t.Context(), &Request{Model: m, Exclude: []kv.WorkerID{1}}); !errors.Is(err, ErrNoWorkers) {
				t.Fatalf("everyone excluded or unreachable: %v", err)
			}
		}
	})
}

func TestLeastLoadedLooksIntoAllPools(t *testing.T) {
	r := New(Config{Mode: LeastLoaded, Seed: 7})
	t.Cleanup(r.Close)
	for i, bs := range []int{16, 32} {
		if err := r.Add(Spec{ID: kv.WorkerID(i + 1), Engine: &stubEngine{models: []engine.Model{{ID: "m", BlockSize: bs}}}}); err != nil {
			t.Fatal(err)
		}
	}
	r.WaitChecked(t.Context())
	m, _ := r.Lookup("m")
	for range 10 {
		mustPlace(t, r, &Request{Model: m, Pinned: true, Pin: 1})
	}
	for range 10 {
		p := mustPlace(t, r, &Request{Model: m, Explain: true})
		if p.Last().Target.Worker != 2 || p.Routing.Reason == nvext.ReasonOnly {
			t.Fatalf("placed on %v for the reason %q while the other worker had less to do", p.Last().Target, p.Routing.Reason)
		}
	}
}

func TestPinsDoNotTakeTurns(t *testing.T) {
	r, m, _ := fleet(t, Config{Mode: RoundRobin}, 2, engine.Model{})
	var got []kv.WorkerID
	for range 4 {
		mustPlace(t, r, &Request{Model: m, Pinned: true, Pin: 2}).Done(Completed)
		p := mustPlace(t, r, &Request{Model: m})
		got = append(got, p.Last().Target.Worker)
		p.Done(Completed)
	}
	if diff := cmp.Diff([]kv.WorkerID{1, 2, 1, 2}, got); diff != "" {
		t.Errorf("unpinned requests (-want +got):\n%s", diff)
	}
}

func TestExplain(t *testing.T) {
	r, m, _ := fleet(t, Config{Mode: LeastLoaded, Seed: 3}, 12, engine.Model{BlockSize: 16})
	busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 32, Pinned: true, Pin: 1})
	defer busy.Done(Completed)
	p := mustPlace(t, r, &Request{Model: m, ID: "id-1", PromptTokens: 100, Explain: true, Exclude: []kv.WorkerID{2}})
	defer p.Done(Completed)
	ro := p.Routing
	if ro.RequestID != "id-1" || ro.Model != "m" || ro.Mode != "least-loaded" || ro.Reason != nvext.ReasonLeastLoaded ||
		ro.Considered != 12 || ro.Attempt != 1 || ro.TotalBlocks != 7 {
		t.Errorf("explanation %+v", ro)
	}
	if ro.Chosen.WorkerID != uint64(p.Last().Target.Worker) || len(ro.Candidates) != nvext.MaxCandidates {
		t.Errorf("chosen %d, placed on %v, %d candidates", ro.Chosen.WorkerID, p.Last().Target, len(ro.Candidates))
	}
}

func TestConcurrentPlacementsLeaveNothing(t *testing.T) {
	for _, mode := range Modes[:4] {
		r, m, _ := fleet(t, Config{Mode: mode}, 4, engine.Model{BlockSize: 16, Ranks: 2})
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), 1))
				for range 500 {
					p, err := r.Place(t.Context(), &Request{Model: m, PromptTokens: rng.IntN(2000), Explain: rng.IntN(4) == 0})
					if errors.Is(err, ErrNoWorkers) {
						continue // all inhibited at the moment
					}
					if err != nil {
						t.Error(err)
						return
					}
					if rng.IntN(2) == 0 {
						p.FirstToken()
					}
					p.Output(rng.IntN(100))
					p.Done([]Outcome{Completed, Cancelled, Refused, Broken}[rng.IntN(4)])
				}
			})
		}
		wg.Wait()
		if got := loads(m); got != (load{}) {
			t.Errorf("%s: left over %+v", mode, got)
		}
	}
}

func BenchmarkPlace(b *testing.B) {
	for _, n := range []int{4, 64, 1024} {
		b.Run(fmt.Sprintf("workers=%d", n), func(b *testing.B) {
			r := New(Config{Mode: RoundRobin})
			b.Cleanup(r.Close)
			for i := range n {
				if err := r.Add(Spec{ID: kv.WorkerID(i + 1), Engine: &stubEngine{models: []engine.Model{{ID: "m"}}}}); err != nil {
					b.Fatal(err)
				}
			}
			r.WaitChecked(b.Context())
			m, _ := r.Lookup("m")
			q := &Request{Model: m, PromptTokens: 100}
			b.ReportAllocs()
			for b.Loop() {
				p, err := r.Place(b.Context(), q)
				if err != nil {
					b.Fatal(err)
				}
				p.FirstToken()
				p.Done(Completed)
			}
		})
	}
}
