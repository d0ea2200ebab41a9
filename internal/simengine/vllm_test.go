package simengine

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
)

// tick makes every pass take a millisecond for prompts and one for answers.
var tick = Fixed{PrefillTime: time.Millisecond, DecodeTime: time.Millisecond}

// story drives an engine and tells in short lines what its passes did.
type story struct {
	*world
	lines []string
}

func newStory(t *testing.T, cfg Config) *story {
	if cfg.Timing == nil {
		cfg.Timing = tick
	}
	s := &story{world: newWorld(t, cfg)}
	s.onPass = func(p *Pass) {
		var b strings.Builder
		fmt.Fprintf(&b, "%dms: new %d", s.now.Milliseconds(), p.Batch.NewTokens())
		for _, a := range p.Admissions {
			again := ""
			if a.Again {
				again = " again"
			}
			fmt.Fprintf(&b, ", %d runs%s with %d", a.Request.ID, again, a.Cached)
		}
		for _, r := range p.Rejected {
			fmt.Fprintf(&b, ", %d rejected", r.ID)
		}
		if p.Preempted > 0 {
			fmt.Fprintf(&b, ", %d preempted", p.Preempted)
		}
		for _, o := range p.Outputs {
			fmt.Fprintf(&b, ", %d +%d", o.Request.ID, o.Tokens)
			if o.Done {
				b.WriteString(" done")
			}
		}
		s.lines = append(s.lines, b.String())
	}
	return s
}

// tells compares what happened.
func (s *story) tells(want ...string) {
	s.t.Helper()
	s.run()
	if diff := cmp.Diff(want, s.lines); diff != "" {
		s.t.Errorf("(-want +got):\n%s", diff)
	}
}

// ask returns a request for a prompt that begins like all others over the same
// ids, with blocks of four tokens.
func ask(id uint64, prompt, output int, over ...uint64) *Request {
	if over == nil {
		over = []uint64{id}
	}
	return &Request{ID: id, Prompt: prompt, MaxOutput: output, Content: &text{ids: over, size: 4, prompt: prompt, own: id}}
}

func TestChunkedPrefill(t *testing.T) {
	s := newStory(t, Config{BlockSize: 4, MaxBatchedTokens: 10})
	s.add(0, ask(1, 8, 3))
	s.add(0, ask(2, 14, 1))
	s.tells(
		"2ms: new 10, 1 runs with 0, 2 runs with 0, 1 +1", // 8 and 2 tokens
		"4ms: new 9, 1 +1", // its token leaves a budget of 9
		"6ms: new 3, 1 +1 done, 2 +1 done",
	)
}

func TestNoChunkedPrefill(t *testing.T) {
	s := newStory(t, Config{BlockSize: 4, MaxBatchedTokens: 10, NoChunkedPrefill: true})
	s.add(0, ask(1, 8, 2))
	s.add(0, ask(2, 9, 1))
	s.add(0, ask(3, 14, 1)) // longer than any budget: alone
	s.tells(
		"2ms: new 8, 1 runs with 0, 1 +1",
		"4ms: new 9, 2 runs with 0, 1 +1 done, 2 +1 done",
		"6ms: new 14, 3 runs with 0, 3 +1 done",
	)
}

func TestPrefixReuse(t *testing.T) {
	s := newStory(t, Config{BlockSize: 4})
	s.add(0, ask(1, 12, 1, 7))
	s.add(time.Second, ask(2, 12, 1, 7))   // all of it: the last block is computed again
	s.add(2*time.Second, ask(3, 14, 1, 7)) // and two tokens
	s.add(3*time.Second, ask(4, 12, 1, 8)) // another prompt
	s.tells(
		"2ms: new 12, 1 runs with 0, 1 +1 done",
		"1002ms: new 4, 2 runs with 8, 2 +1 done",
		"2002ms: new 2, 3 runs with 12, 3 +1 done",
		"3002ms: new 12, 4 runs with 0, 4 +1 done",
	)
}

// TestAnswerReuse continues a conversation: the next prompt contains the answer.
func TestAnswerReuse(t *testing.T) {
	s := newStory(t, Config{BlockSize: 4})
	first := ask(1, 8, 9) // blocks 2 and 3 are of the answer, its last token is never computed
	s.add(0, first)
	next := ask(2, 20, 1)
	whole := first.Content.(*text)
	whole.Block(3)
	next.Content.(*text).blocks = slices.Clone(whole.blocks)
	s.add(time.Second, next)
	s.run()
	if next.Cached() != 16 {
		t.Errorf("%d tokens found, want 16", next.Cached())
	}
}

// TestSamePass has two requests with one prompt in a pass: what the first is
// about to compute, the second need not.
func TestSamePass(t *testing.T) {
	s := newStory(t, Config{BlockSize: 4})
	s.add(0, ask(1, 10, 1, 7))
	s.add(0, ask(2, 10, 1, 7))
	s.tells("2ms: new 12, 1 runs with 0, 2 runs with 8, 1 +1 done, 2 +1 done")
}

// TestCopies has two requests compute the same block side by side. Each has its
// own, and both are told of.
func TestCopies(t *testing.T) {
	s := newStory(t, Config{BlockSize: 4, MaxBatchedTokens: 6, Blocks: 8})
	var events []string
	tell := s.onPass
	s.onPass = func(p *Pass) {
		tell(p)
		for _, ev := range p.Events {
			events = append(events, fmt.Sprintf("%d %d", ev.Kind, len(ev.Blocks)))
		}
	}
	s.add(0, ask(1, 5, 1, 7))
	s.add(0, ask(2, 5, 1, 7)) // begins before the first block is there
	s.tells(
		"2ms: new 6, 1 runs with 0, 2 runs with 4, 1 +1 done, 2 +1 done",
	)
	// The last block of a prompt that is found as a whole is computed anew, into
	// a block of its own.
	s.lines, events = nil, nil
	s.add(time.Second, ask(3, 8, 2, 9))
	s.add(time.Second+time.Microsecond, ask(4, 8, 1, 9))
	s.tells(
		"1001ms: new 6, 3 runs with 0",
		"1003ms: new 6, 4 runs with 4, 3 +1, 4 +1 done",
		"1004ms: new 0, 3 +1 done",
	)
	if diff := cmp.Diff([]string{"1 1", "1 1", "1 1"}, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if l := s.engine.Load(); l.CachedBlocks != 4 {
		t.Errorf("%+v, want 4 cached: one of 7, two of 9 and a copy", l)
	}
}

func TestGate(t *testing.T) {
	s := newStory(t, Config{BlockSize: 4, Blocks: 8})
	s.add(0, ask(1, 16, 3))
	s.add(0, ask(2, 20, 1)) // does not fit beside it, although its first tokens would
	s.add(0, ask(3, 4, 1))  // would, but it waits for its turn
	s.tells(
		"2ms: new 16, 1 runs with 0, 1 +1",
		"3ms: new 0, 1 +1",
		"4ms: new 0, 1 +1 done",
		"6ms: new 24, 2 runs with 0, 3 runs with 0, 2 +1 done, 3 +1 done",
	)
}

func TestWatermark(t *testing.T) {
	s := newStory(t, Config{BlockSize: 4, Blocks: 10, Watermark: 0.2})
	s.add(0, ask(1, 16, 2))
	s.add(0, ask(2, 20, 1)) // fits, but leaves less than two blocks
	s.add(0, ask(3, 40, 1)) // alone it may have them all
	s.tells(
		"2ms: new 16, 1 runs with 0, 1 +1",
		"3ms: new 0, 1 +1 done",
		"5ms: new 20, 2 runs with 0, 2 +1 done",
		"7ms: new 40, 3 runs with 0, 3 +1 done",
	)
}

func TestPreemption(t *testing.T) {
	for victim, want := range map[Victim][]string{
		Newest: {
			"2ms: new 16, 1 runs with 0, 2 runs with 0, 1 +1, 2 +1",
			"3ms: new 0, 1 preempted, 1 +1", // both need a fifth block; 2 loses
			"4ms: new 0, 1 +1",
			"5ms: new 0, 1 +1 done",
			"7ms: new 5, 2 runs again with 4, 2 +1", // its second block made room
			"8ms: new 0, 2 +1",
			"9ms: new 0, 2 +1 done",
		},
		Oldest: {
			"2ms: new 16, 1 runs with 0, 2 runs with 0, 1 +1, 2 +1",
			"3ms: new 0, 1 preempted, 2 +1",
			"4ms: new 0, 2 +1",
			"5ms: new 0, 2 +1 done",
			"7ms: new 5, 1 runs again with 4, 1 +1",
			"8ms: new 0, 1 +1",
			"9ms: new 0, 1 +1 done",
		},
	} {
		t.Run(string(victim), func(t *testing.T) {
			s := newStory(t, Config{BlockSize: 4, Blocks: 4, Victim: victim})
			s.add(0, ask(1, 8, 4))
			s.add(0, ask(2, 8, 4))
			s.tells(want...)
		})
	}
}

func TestWarmUp(t *testing.T) {
	s := newStory(t, Config{BlockSize: 4, MaxSeqs: 1})
	warm := ask(1, 8, 0, 7)
	warm.WarmUp = true
	s.add(0, ask(2, 4, 2))
	s.add(0, warm)
	s.add(0, ask(3, 4, 1))
	s.add(time.Second, ask(4, 9, 1, 7))
	s.tells(
		"2ms: new 4, 2 runs with 0, 2 +1",
		"3ms: new 0, 2 +1 done",
		"5ms: new 4, 3 runs with 0, 3 +1 done", // it came later
		"6ms: new 8, 1 runs with 0, 1 +0 done", // no answer, no time for one
		"1002ms: new 1, 4 runs with 8, 4 +1 done",
	)
}

func TestWarmUpGivesWay(t *testing.T) {
	s := newStory(t, Config{BlockSize: 4, Blocks: 5, MaxBatchedTokens: 9})
	warm := ask(1, 12, 0)
	warm.WarmUp = true
	s.add(0, ask(2, 8, 6))
	s.add(0, warm)
	s.tells(
		"2ms: new 9, 2 runs with 0, 1 runs with 0, 2 +1",
		"3ms: new 0, 1 preempted, 2 +1", // not enough for both
		"4ms: new 0, 2 +1",
		"5ms: new 0, 2 +1",
		"6ms: new 0, 2 +1",
		"7ms: new 0, 2 +1 done",
		"8ms: new 9, 1 runs again with 0",
		"9ms: new 3, 1 +0 done",
	)
}

// TestWarmUpYields has a long warm-up under way when another request comes: it
// costs that one no more than the pass it has to wait for.
func TestWarmUpYields(t *testing.T) {
	warm := func(prompt int) *Request {
		r := ask(1, prompt, 0)
		r.WarmUp = true
		return r
	}
	t.Run("budget", func(t *testing.T) {
		s := newStory(t, Config{BlockSize: 4, MaxBatchedTokens: 8})
		s.add(0, warm(24))
		s.add(500*time.Microsecond, ask(2, 6, 2))
		s.tells(
			"1ms: new 8, 1 runs with 0",
			"3ms: new 8, 2 runs with 0, 2 +1", // 6 for the request, 2 for the warm-up
			"5ms: new 7, 2 +1 done",
			"6ms: new 7, 1 +0 done",
		)
	})
	t.Run("place", func(t *testing.T) {
		s := newStory(t, Config{BlockSize: 4, MaxBatchedTokens: 8, MaxSeqs: 1})
		s.add(0, warm(24))
		s.add(500*time.Microsecond, ask(2, 6, 1))
		s.tells(
			"1ms: new 8, 1 runs with 0",
			"3ms: new 6, 2 runs with 0, 1 preempted, 2 +1 done",
			"4ms: new 8, 1 runs again with 8",
			"5ms: new 8, 1 +0 done",
		)
	})
	t.Run("place in vain", func(t *testing.T) {
		s := newStory(t, Config{BlockSize: 4, Blocks: 8, MaxSeqs: 2, MaxBatchedTokens: 9})
		w := ask(2, 20, 0)
		w.WarmUp = true
		s.add(0, ask(1, 8, 4))
		s.add(0, w)
		s.add(500*time.Microsecond, ask(3, 28, 1)) // has no room when it has a place
		s.pass()
		s.pass()
		if got, want := s.lines[1], "3ms: new 0, 1 preempted, 1 +1"; got != want {
			t.Errorf("second pass %q, want %q", got, want)
		}
	})
	t.Run("blocks", func(t *testing.T) {
		s := newStory(t, Config{BlockSize: 4, MaxBatchedTokens: 8, Blocks: 7})
		s.add(0, warm(24))
		s.add(1500*time.Microsecond, ask(2, 20, 1))
		s.run()
		if at := s.at(2); len(at) != 1 || at[0] != 6*time.Millisecond {
			t.Errorf("the request has its token at %v, want 6ms: after two passes of the warm-up and three of its own\n%s", at, strings.Join(s.lines, "\n"))
		}
	})
}

// TestRejectedAtOnce: what can never run is said at once, however busy the engine.
func TestRejectedAtOnce(t *testing.T) {
	for _, kind := range []Kind{VLLM, SGLang} {
		s := newStory(t, Config{Kind: kind, BlockSize: 4, Blocks: 16, MaxSeqs: 1, MaxModelLen: 40})
		warm := ask(4, 40, 0)
		warm.WarmUp = true
		s.add(0, ask(1, 4, 30))
		s.add(500*time.Microsecond, ask(2, 0, 1))
		s.add(500*time.Microsecond, ask(3, math.MaxInt, 1))
		s.add(500*time.Microsecond, warm)
		s.run()
		if line := s.lines[1]; !strings.Contains(line, "2 rejected, 3 rejected, 4 rejected") {
			t.Errorf("%s: the second pass: %s", kind, line)
		}
	}
	e, _ := New(Config{})
	r := ask(1, 0, 1)
	e.Receive(r)
	e.Drop(r)
	if p := e.Step(); e.Busy() || len(p.Rejected) > 0 {
		t.Errorf("dropped before it was rejected: %+v", p)
	}
}

// TestDropTells: what a dropped request leaves in the cache is told, even if
// nothing else is to be done.
func TestDropTells(t *testing.T) {
	for _, kind := range []Kind{VLLM, SGLang} {
		e, err := New(Config{Kind: kind, BlockSize: 4, Blocks: 64})
		if err != nil {
			t.Fatal(err)
		}
		r := ask(1, 8, 40)
		e.Receive(r)
		told := 0
		count := func() {
			for _, ev := range e.Step().Events {
				told += len(ev.Blocks)
			}
		}
		for range 20 {
			count()
		}
		e.Drop(r)
		for e.Busy() {
			count()
		}
		if n := e.Load().CachedBlocks; told != n || n != 6 {
			t.Errorf("%s: told of %d blocks, has %d, want 6", kind, told, n)
		}
	}
}

// TestOddTimes: times are never negative, whatever a Timing says.
func TestOddTimes(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -5, 1e300} {
		e, err := New(Config{Timing: constant(v), Speedup: 1e-6, DecodeSpeedup: 1e-6})
		if err != nil {
			t.Fatal(err)
		}
		e.Receive(ask(1, 8, 1))
		if p := e.Step(); p.Prefill < 0 || p.Decode < 0 || p.Duration < 0 {
			t.Errorf("%v: %v, %v, %v", v, p.Prefill, p.Decode, p.Duration)
		}
	}
	e, err := New(Config{Role: Prefill, KVBytesPerToken: math.MaxInt, TransferBandwidth: 1e-300})
	if err != nil {
		t.Fatal(err)
	}
	warm := ask(2, 8, 0)
	warm.WarmUp = true
	e.Receive(ask(1, 8, 1))
	e.Receive(warm)
	if out := e.Step().Outputs; len(out) != 2 || out[0].Transfer <= 0 || out[1].Transfer != 0 {
		t.Errorf("%+v, want a long transfer and none for the warm-up", out)
	}
}

type constant float64

func (c constant) Prefill(*Batch) float64 { return float64(c) }
func (c constant) Decode(*Batch) float64  { return float64(c) }

func TestDrafts(t *testing.T) {
	for _, tc := range []struct {
		accept []float64
		want   []int
	}{
		{[]float64{1, 1}, []int{1, 3, 3, 3}},
		{[]float64{1, 0}, []int{1, 2, 2, 2, 2, 1}},
		{[]float64{0, 1}, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
	} {
		s := newStory(t, Config{BlockSize: 4, Draft: 2, Accept: tc.accept})
		s.add(0, ask(1, 8, 10))
		s.run()
		var got []int
		for _, k := range s.tokens {
			got = append(got, k.n)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("accept %v: tokens per pass (-want +got):\n%s", tc.accept, diff)
		}
	}
	// The default gives 1 + 0.85 + 0.85·0.3 tokens a pass.
	s := newStory(t, Config{Draft: 2, Seed: 5})
	s.add(0, &Request{ID: 1, Prompt: 8, MaxOutput: 50_000})
	s.run()
	if rate := 50_000 / float64(s.passes); rate < 2.09 || rate > 2.12 {
		t.Errorf("%.3f tokens a pass, want 2.105", rate)
	}
	// What is drafted depends on the request, not on its company.
	alone := newStory(t, Config{Draft: 2, Seed: 5})
	alone.add(0, ask(1, 8, 40))
	alone.run()
	both := newStory(t, Config{Draft: 2, Seed: 5})
	both.add(0, ask(2, 8, 40))
	both.add(0, ask(1, 8, 40))
	both.run()
	per := func(w *world) (n []int) {
		for _, k := range w.tokens {
			if k.id == 1 {
				n = append(n, k.n)
			}
		}
		return n
	}
	if diff := cmp.Diff(per(alone.world), per(both.world)); diff != "" {
		t.Errorf("tokens per pass (-alone +in company):\n%s", diff)
	}
}

func TestRoles(t *testing.T) {
	s := newStory(t, Config{BlockSize: 4, Role: Prefill})
	s.add(0, ask(1, 8, 5))
	s.tells("1ms: new 8, 1 runs with 0, 1 +1 done") // no time for the token

	events := 0
	s = newStory(t, Config{BlockSize: 4, Role: Decode, Blocks: 4})
	tell := s.onPass
	s.onPass = func(p *Pass) { tell(p); events += len(p.Events) }
	s.add(0, ask(1, 8, 3))
	s.add(time.Second, ask(2, 16, 1))
	s.tells(
		"1ms: new 8, 1 runs with 0, 1 +1", // no time for the prompt
		"2ms: new 0, 1 +1",
		"3ms: new 0, 1 +1 done",
		"1001ms: new 16, 2 runs with 0, 2 +1 done",
	)
	if events > 0 {
		t.Errorf("%d events from a decode engine", events)
	}
}

// TestDisaggregated takes a request through a prefill and a decode engine.
func TestDisaggregated(t *testing.T) {
	prefill := newWorld(t, Config{Role: Prefill, KVBytesPerToken: 128_000, TransferBandwidth: 64})
	decode := newWorld(t, Config{Role: Decode})
	var out []Output
	prefill.onPass = func(p *Pass) {
		for _, o := range p.Outputs {
			out = append(out, o)
			decode.add(prefill.now+o.Transfer, &Request{ID: o.Request.ID, Prompt: o.Request.Prompt, MaxOutput: 3, Content: o.Request.Content})
		}
	}
	prefill.add(0, plain(1, 1000, 3, ids(0, 2)))
	prefill.add(0, plain(2, 500, 3, ids(2, 1)))
	prefill.run()
	slices.Reverse(decode.pending) // the shorter prompt is there first
	decode.run()
	// Both prompts in one pass; the token that ends them there is nobody's.
	done := Linear.Prefill(&Batch{Prompts: 2, Tokens: 1500})
	near(t, "prefill 1", prefill.at(1), done)
	near(t, "prefill 2", prefill.at(2), done)
	if len(out) != 2 || out[0].Transfer != 2*time.Millisecond || out[1].Transfer != time.Millisecond {
		t.Errorf("%+v, want transfers of 2 ms and 1 ms", out)
	}
	// It begins alone, and the longer one joins with the next pass. Prompts cost
	// no time there.
	step := func(n, context int) float64 { return Linear.Decode(&Batch{Decodes: n, Context: context}) }
	first := done + 1 + step(1, 500)
	second := first + step(2, 1501)
	third := second + step(2, 1503)
	near(t, "decode 2", decode.at(2), first, second, third)
	near(t, "decode 1", decode.at(1), second, third, third+step(1, 1002))
}

func TestLimits(t *testing.T) {
	s := newStory(t, Config{BlockSize: 4, Blocks: 4, MaxModelLen: 18})
	s.add(0, ask(1, 17, 5)) // does not fit
	s.add(0, ask(2, 0, 5))
	s.add(0, ask(3, 4, 0))
	s.add(0, ask(4, 16, 5)) // room for one: the token that is never computed
	s.tells("2ms: new 16, 4 runs with 0, 1 rejected, 2 rejected, 3 rejected, 4 +1 done")

	s = newStory(t, Config{BlockSize: 4, MaxModelLen: 10})
	s.add(0, ask(1, 10, 5))
	s.add(0, ask(2, 8, 5))
	s.tells(
		"2ms: new 8, 2 runs with 0, 1 rejected, 2 +1",
		"3ms: new 0, 2 +1 done",
	)
}

func TestMaxSeqs(t *testing.T) {
	s := newStory(t, Config{BlockSize: 4, MaxSeqs: 2})
	for id := range uint64(3) {
		s.add(0, ask(id+1, 4, 2))
	}
	s.tells(
		"2ms: new 8, 1 runs with 0, 2 runs with 0, 1 +1, 2 +1",
		"3ms: new 0, 1 +1 done, 2 +1 done",
		"5ms: new 4, 3 runs with 0, 3 +1",
		"6ms: new 0, 3 +1 done",
	)
}

// TestIdentity has equal tokens under different adapters and salts: nothing is
// shared.
func TestIdentity(t *testing.T) {
	tokens := make([]uint32, 12)
	s := newStory(t, Config{BlockSize: 4})
	for i, seed := range []uint64{kv.HashSeed("", ""), kv.HashSeed("adapter", ""), kv.HashSeed("", "tenant"), kv.HashSeed("adapter", "")} {
		blocks := kv.AppendBlocks(nil, seed, tokens, 4)
		s.add(time.Duration(i)*time.Second, &Request{ID: uint64(i + 1), Prompt: 12, MaxOutput: 1, Content: &text{size: 4, blocks: blocks}})
	}
	s.tells(
		"2ms: new 12, 1 runs with 0, 1 +1 done",
		"1002ms: new 12, 2 runs with 0, 2 +1 done",
		"2002ms: new 12, 3 runs with 0, 3 +1 done",
		"3002ms: new 4, 4 runs with 8, 4 +1 done",
	)
}

func TestReceiveTwice(t *testing.T) {
	e, _ := New(Config{})
	r := ask(1, 4, 1)
	e.Receive(r)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	e.Receive(r)
}

func TestConfigErrors(t *testing.T) {
	for _, tc := range []struct {
		cfg  Config
		want string
	}{
		{Config{Kind: "tgi"}, `simengine: kind: expected one of ["vllm" "sglang" "llamacpp"], got "tgi"`},
		{Config{Rules: "x"}, `simengine: rules: expected one of ["current" "mocker" "mocker-gated"], got "x"`},
		{Config{Role: "x"}, `simengine: role: expected one of ["aggregated" "prefill" "decode"], got "x"`},
		{Config{Victim: "x"}, `simengine: victim: expected one of ["lifo" "fifo"], got "x"`},
		{Config{Blocks: -1}, "simengine: blocks: expected at least 1, got -1"},
		{Config{BlockSize: 1}, "simengine: block size: expected at least 2, got 1"},
		{Config{MaxSeqs: -1}, "simengine: max seqs: expected at least 1, got -1"},
		{Config{Watermark: 1}, "simengine: watermark: expected a share from 0 to below 1, got 1"},
		{Config{Speedup: -1}, "simengine: speedup: expected a number of at least 1e-06, got -1"},
		{Config{DecodeSpeedup: 1e-7}, "simengine: decode speedup: expected a number of at least 1e-06, got 1e-07"},
		{Config{Blocks: 1 << 40}, "simengine: blocks: expected at most 17179869184 of 64 tokens each, got 1099511627776"},
		{Config{Draft: 6}, "simengine: draft: expected at most 5, got 6"},
		{Config{Draft: 1, Rules: Mocker}, "simengine: draft: expected 0 unless kind is vllm with rules current"},
		{Config{Accept: []float64{2}}, "simengine: accept[0]: expected a probability, got 2"},
		{Config{Draft: 2, Accept: []float64{1}}, "simengine: accept: expected 2 probabilities, got 1"},
	} {
		if _, err := New(tc.cfg); err == nil || err.Error() != tc.want {
			t.Errorf("New(%+v): %v, want %q", tc.cfg, err, tc.want)
		}
	}
}

func TestSpeedup(t *testing.T) {
	s := newStory(t, Config{BlockSize: 4, Speedup: 2, DecodeSpeedup: 5})
	s.add(0, ask(1, 4, 2))
	s.run()
	if diff := cmp.Diff([]time.Duration{600 * time.Microsecond, 700 * time.Microsecond}, s.at(1)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAllocs sees that a simulated token costs no memory once buffers have their
// size.
func TestAllocs(t *testing.T) {
	e, err := New(Config{BlockSize: 16, Blocks: 4096})
	if err != nil {
		t.Fatal(err)
	}
	requests := make([]*Request, 64)
	for i := range requests {
		requests[i] = ask(uint64(i), 200, 400)
		c := requests[i].Content.(*text)
		c.size = 16
		c.Block(37)
	}
	tokens := 0
	run := func() {
		for _, r := range requests {
			e.Receive(r)
		}
		for e.Busy() {
			for _, o := range e.Step().Outputs {
				tokens += o.Tokens
			}
		}
	}
	run()
	tokens = 0
	const runs = 5
	per := testing.AllocsPerRun(runs, run) * (runs + 1) / float64(tokens)
	if per > 0.0005 {
		t.Errorf("%v allocations per token", per)
	}
}

// BenchmarkStep is the cost of a decode step. On one core of a Xeon: 44 ns/token.
func BenchmarkStep(b *testing.B) {
	for _, batch := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			e, err := New(Config{Blocks: 1 << 16})
			if err != nil {
				b.Fatal(err)
			}
			for i := range batch {
				e.Receive(&Request{ID: uint64(i), Prompt: 1000, MaxOutput: 1 << 30})
			}
			tokens := 0
			b.ReportAllocs()
			for b.Loop() {
				p := e.Step()
				tokens += len(p.Outputs)
				if e.Load().ActiveBlocks > 60_000 { // begin anew
					b.StopTimer()
					for _, o := range p.Outputs {
						e.Drop(o.Request)
						e.Receive(o.Request)
					}
					b.StartTimer()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(tokens), "ns/token")
		})
	}
}
