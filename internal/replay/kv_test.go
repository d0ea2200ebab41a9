package replay

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/internal/simengine"
	"github.com/stator-ai/stator/internal/trace"
	"github.com/stator-ai/stator/internal/trace/tracetest"
	"github.com/stator-ai/stator/nvext"
)

// TestConversation replays an hour of conversations in half an hour, which keeps four
// engines busy without overwhelming them: going by caches and load beats taking
// turns.
func TestConversation(t *testing.T) {
	long(t)
	run := func(mode router.Mode) *Report {
		tr := tracetest.Conversation(t)
		if err := tr.Speed(2, 2); err != nil {
			t.Fatal(err)
		}
		rep, err := Run(t.Context(), Config{Engines: 4, Router: router.Config{Mode: mode}}, tr)
		if err != nil {
			t.Fatal(err)
		}
		if rep.Completed != len(tr.Requests) {
			t.Errorf("%s: %d of %d requests completed", mode, rep.Completed, len(tr.Requests))
		}
		t.Logf("%s: %v", mode, rep)
		return rep
	}
	turns, cached := run(router.RoundRobin), run(router.KV)
	if cached.TTFT.P95 > 0.8*turns.TTFT.P95 {
		t.Errorf("TTFT p95 is %.0f ms in mode kv and %.0f ms round robin, want at most 0.8 of it", cached.TTFT.P95, turns.TTFT.P95)
	}
	if 4*cached.Cached < 5*turns.Cached {
		t.Errorf("%d tokens cached in mode kv and %d round robin, want at least 1.25 times as many", cached.Cached, turns.Cached)
	}
	if cached.E2E.Mean > turns.E2E.Mean {
		t.Errorf("answers took %.0f ms in mode kv and %.0f ms round robin", cached.E2E.Mean, turns.E2E.Mean)
	}
}

// TestLargeCache: where nothing is ever evicted, what the router predicts is there.
func TestLargeCache(t *testing.T) {
	tr := tracetest.Conversation(t)
	n := 3000
	if raceDetector {
		n = 300
	}
	tr.Requests = tr.Requests[:n]
	for _, early := range []bool{false, true} {
		rep, err := Run(t.Context(), Config{
			Engines: 2, Ranks: 2, EarlyEvents: early,
			Engine: simengine.Config{Blocks: 1 << 20},
			Router: router.Config{Mode: router.KV},
		}, tr)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("events early %v: %v", early, rep)
		if stale, unknown := rep.Verdicts[nvext.VerdictIndexStale], rep.Verdicts[nvext.VerdictUnknown]; stale+unknown > 0 {
			t.Errorf("events early %v: %d predictions were stale and %d unknown, want none", early, stale, unknown)
		}
		sum := 0
		for _, k := range rep.Verdicts {
			sum += k
		}
		if sum != rep.Completed || rep.Completed != n {
			t.Errorf("events early %v: %d verdicts and %d requests completed, want %d", early, sum, rep.Completed, n)
		}
	}
}

// TestStale gives engines small caches: a prediction that does not come true is
// one of which the rank has given up a block since, and it has said so.
func TestStale(t *testing.T) {
	const size = 16
	tr := small(4, 600)
	clock := 0 // counts what happens
	placed, settled := make([]int, len(tr.Requests)), make([]int, len(tr.Requests))
	lost := map[kv.Source]map[kv.BlockID][]int{} // when a rank gave a block up
	rep, err := Run(t.Context(), Config{
		Engines: 3, Engine: simengine.Config{Blocks: 800, BlockSize: size}, Router: router.Config{Mode: router.KV},
		Events: applierFunc(func(b *kv.Batch) error {
			for _, ev := range b.Events {
				clock++
				if ev.Kind != kv.Removed {
					continue
				}
				if lost[b.Source] == nil {
					lost[b.Source] = map[kv.BlockID][]int{}
				}
				for _, bl := range ev.Blocks {
					lost[b.Source][bl.ID] = append(lost[b.Source][bl.ID], clock)
				}
			}
			return nil
		}),
		Log: lineWriter(func(line string) {
			clock++
			_, what, _ := strings.Cut(line, " ")
			var i int
			if n, _ := fmt.Sscanf(what, "place %d on", &i); n == 1 {
				placed[i] = clock
			}
			if n, _ := fmt.Sscanf(what, "cached %d:", &i); n == 1 {
				settled[i] = clock
			}
		}),
	}, tr)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(rep)
	if rep.Verdicts[nvext.VerdictIndexStale] == 0 {
		t.Error("no prediction was stale: the caches are too large to tell anything")
	}
	for i, res := range rep.Results {
		if res.Verdict != nvext.VerdictIndexStale {
			continue
		}
		content := tr.Content(i, size)
		explained := false
		for k := range res.Overlap {
			for _, at := range lost[kv.Source{Worker: res.Worker, Rank: res.Rank}][content.Block(k).ID] {
				explained = explained || placed[i] < at && at < settled[i]
			}
		}
		if !explained {
			t.Errorf("request %d found %d tokens, %d blocks were predicted, and none of them was given up meanwhile", i, res.Cached, res.Overlap)
		}
	}
}

// hot is requests that all begin alike, with a system prompt of so many tokens, and
// go on with 256 of their own.
func hot(n, shared int, every time.Duration) *trace.Trace {
	tr := &trace.Trace{BlockSize: 256}
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range n {
		q := trace.Request{Arrival: time.Duration(i) * every, Input: shared + 256, Output: 32 + rng.IntN(64)}
		for b := range uint32(shared / 256) {
			q.Blocks = append(q.Blocks, b)
		}
		q.Blocks = append(q.Blocks, uint32(1000+i))
		tr.Requests = append(tr.Requests, q)
	}
	return tr
}

// TestHotPrefix: that one rank holds what everybody needs does not make it get
// everything.
func TestHotPrefix(t *testing.T) {
	for _, ranks := range []int{1, 2} {
		n := 2000
		run := func(mode router.Mode) *Report {
			rep, err := Run(t.Context(), Config{Engines: 4, Ranks: ranks, Router: router.Config{Mode: mode}}, hot(n, 8192, 8*time.Millisecond/time.Duration(ranks)))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d ranks, %s: %v", 4*ranks, mode, rep)
			return rep
		}
		turns, cached := run(router.RoundRobin), run(router.KV)
		share := float64(n) / float64(4*ranks)
		for _, r := range cached.Ranks {
			if got := float64(r.Requests) / share; got > 1.5 || got < 0.5 {
				t.Errorf("rank %d/%d got %.2f times its share", r.Source.Worker, r.Source.Rank, got)
			}
		}
		if cached.Completed != n || cached.Duration.Seconds() > 1.02*turns.Duration.Seconds() || cached.TTFT.P95 > 1.25*turns.TTFT.P95 {
			t.Errorf("%d done in %v with TTFT p95 %.0f ms, want %d in %v with %.0f ms as round robin", cached.Completed, cached.Duration, cached.TTFT.P95, n, turns.Duration, turns.TTFT.P95)
		}
	}
}

// TestWarmPrefix is why a request counts beside its blocks by default: one worker has a
// popular prompt, to which requests add less than a block. They share all they hold, so
// that by blocks alone one more of them costs that worker nothing.
func TestWarmPrefix(t *testing.T) {
	const shared, n = 6144, 600
	popular := func() *trace.Trace {
		tr := hot(n, shared, time.Second/n)
		for i := range tr.Requests {
			q := &tr.Requests[i]
			q.Input, q.Output = shared+8, 100
			if i > 0 {
				q.Arrival += 5 * time.Second
			}
		}
		return tr
	}
	run := func(name string, cfg router.Config) *Report {
		rep, err := Run(t.Context(), Config{Engines: 4, Router: cfg}, popular())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %v", name, rep)
		return rep
	}
	weighed := sched.DefaultCost()
	weighed.RequestWeight = 16
	turns := run("round robin", router.Config{Mode: router.RoundRobin})
	plain := run("blocks alone", router.Config{Mode: router.KV})
	counted := run("16 blocks a request", router.Config{Mode: router.KV, KV: router.KVConfig{Cost: &weighed}})
	if counted.TTFT.P95 > 1.25*turns.TTFT.P95 || counted.E2E.Mean > 1.05*turns.E2E.Mean {
		t.Errorf("TTFT p95 %.0f ms and answers in %.0f ms, round robin %.0f and %.0f", counted.TTFT.P95, counted.E2E.Mean, turns.TTFT.P95, turns.E2E.Mean)
	}
	if plain.E2E.Mean < 1.5*turns.E2E.Mean {
		t.Errorf("answers take %.0f ms without a weight and %.0f round robin: it is not needed any more", plain.E2E.Mean, turns.E2E.Mean)
	}
}

// TestPrompt: the blocks that the router is given are found where the engines have
// told of them, to the last.
func TestPrompt(t *testing.T) {
	tr := &trace.Trace{BlockSize: 512, Requests: []trace.Request{
		{Input: 2000, Output: 1, Blocks: []uint32{0, 1, 2, 3}},
		{Arrival: time.Minute, Input: 2000, Output: 1, Blocks: []uint32{0, 1, 2, 3}},
		{Arrival: 2 * time.Minute, Input: 1600, Output: 1, Blocks: []uint32{0, 1, 4, 5}},
		{Arrival: 3 * time.Minute, Input: 10, Output: 1, Blocks: []uint32{6}},
	}}
	for _, kind := range []simengine.Kind{simengine.VLLM, simengine.SGLang} {
		for _, size := range []int{16, 64, 512, 768} {
			var log strings.Builder
			rep, err := Run(t.Context(), Config{Engines: 3, Engine: simengine.Config{Kind: kind, BlockSize: size}, Log: &log}, tr)
			if err != nil {
				t.Fatal(err)
			}
			var overlap []int
			for _, r := range rep.Results {
				overlap = append(overlap, r.Overlap)
			}
			if diff := cmp.Diff([]int{0, 2000 / size, 1024 / size, 0}, overlap); diff != "" {
				t.Errorf("%s, blocks of %d: overlap (-want +got):\n%s\n%s", kind, size, diff, &log)
			}
			want := map[nvext.Verdict]int{nvext.VerdictNoReuse: 2, nvext.VerdictAgreed: 2}
			if diff := cmp.Diff(want, rep.Verdicts); diff != "" {
				t.Errorf("%s, blocks of %d: verdicts (-want +got):\n%s", kind, size, diff)
			}
		}
	}
}
