package vllmtest_test

import (
	"encoding/json"
	"io"
	"math"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/vllmtest"
)

// TestRanks runs a server of two ranks, which has two processes to answer requests.
func TestRanks(t *testing.T) {
	vllmtest.Dir(t)
	if runtime.NumCPU() < vllmtest.MaxRanks {
		t.Skip("each rank needs a processor of its own")
	}
	t.Setenv("VLLM_CPU_OMP_THREADS_BIND", "0|1")
	s := vllmtest.Start(t, "--data-parallel-size", "2", "--block-size", strconv.Itoa(blockSize), "--num-gpu-blocks-override", strconv.Itoa(blocks))
	info := identify(t, s)
	models := []engine.Model{{ID: vllmtest.Model, ContextLength: vllmtest.ContextLength, BlockSize: blockSize, TotalBlocks: blocks, Ranks: 2}}
	if diff := cmp.Diff(models, info.Models); diff != "" {
		t.Errorf("models (-want +got):\n%s", diff)
	}
	streams := []engine.EventStream{
		{Rank: 0, Address: s.Events, Replay: s.Replay, Counted: true},
		{Rank: 1, Address: vllmtest.After(s.Events, 1), Replay: vllmtest.After(s.Replay, 1), Counted: true},
	}
	if diff := cmp.Diff(streams, info.Streams); diff != "" {
		t.Fatalf("streams (-want +got):\n%s", diff)
	}
	for _, w := range info.Warnings {
		t.Errorf("warning %s: %s", w.Code, w.Text)
	}
	idle := []engine.Load{{Rank: 0, TotalBlocks: blocks}, {Rank: 1, TotalBlocks: blocks}}
	for _, when := range []string{"before the first request", "after one for each rank"} {
		loads, err := info.Engine.(engine.Loader).Load(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if diff := cmp.Diff(idle, loads); diff != "" {
			t.Errorf("load %s (-want +got):\n%s", when, diff)
		}
		for _, stream := range info.Streams {
			testRank(t, info.Engine, stream)
		}
	}
}

// testRank shows that a request for a rank is run by it, and that it says so where it
// publishes.
func testRank(t *testing.T, e engine.Engine, stream engine.EventStream) {
	t.Helper()
	prompts := [][]uint32{unique(4000), unique(4001)}
	body, err := json.Marshal(map[string]any{"model": vllmtest.Model, "prompt": prompts[stream.Rank], "max_tokens": 1, "ignore_eos": true})
	if err != nil {
		t.Fatal(err)
	}
	target := engine.Target{Worker: source.Worker, Rank: stream.Rank}
	resp := send(t, e, target, string(body), &engine.Request{Path: "/v1/completions", Ranked: true})
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	f := newFollower(t, kv.Source{Worker: source.Worker, Rank: stream.Rank})
	for start := time.Now(); f.held(prompts[stream.Rank], "") < 2; {
		if time.Since(start) > patience {
			t.Fatalf("rank %d has not told of what it ran after %v", stream.Rank, patience)
		}
		f.replay(stream.Replay, math.MaxUint64)
	}
	if n := f.held(prompts[1-stream.Rank], ""); n != 0 {
		t.Errorf("rank %d has %d blocks of what the other ran", stream.Rank, n)
	}
	f.check()
}
