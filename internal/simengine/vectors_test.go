package simengine

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
)

func ids(from, n uint64) (out []uint64) {
	for i := range n {
		out = append(out, from+i)
	}
	return out
}

// plain returns a request over ids at the default block size.
func plain(id uint64, prompt, output int, over []uint64) *Request {
	return &Request{ID: id, Prompt: prompt, MaxOutput: output, Content: &text{ids: over, size: 64, prompt: prompt, own: id}}
}

// near compares times with the six decimals of a millisecond that are known.
func near(t *testing.T, what string, got []time.Duration, want ...float64) {
	t.Helper()
	var ms []float64
	for _, d := range got {
		ms = append(ms, float64(d)/1e6)
	}
	if diff := cmp.Diff(want, ms, cmp.Comparer(func(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 })); diff != "" {
		t.Errorf("%s (-want +got), ms:\n%s", what, diff)
	}
}

// TestMockerVectors holds the numbers that Dynamo's mock engine gives.
func TestMockerVectors(t *testing.T) {
	mock := Config{Rules: Mocker, Timing: MockerPolynomial}

	t.Run("one request ISL 1000, OSL 3 at 0", func(t *testing.T) {
		w := newWorld(t, mock)
		w.add(0, plain(1, 1000, 3, ids(0, 2)))
		w.pass()
		if n := w.engine.Load().ActiveBlocks; n != 16 {
			t.Errorf("%d active blocks during, want 16", n)
		}
		w.run()
		near(t, "tokens", w.at(1), 37.898579, 43.691299, 49.484019)
		if l := w.engine.Load(); l.ActiveBlocks != 0 || l.CachedBlocks != 15 {
			t.Errorf("after: %+v, want 15 cached", l)
		}
	})

	t.Run("ISL 20000, OSL 2 at 0; then ISL 20480, OSL 2 at 2000", func(t *testing.T) {
		w := newWorld(t, mock)
		second := plain(2, 20480, 2, append(ids(0, 39), 40))
		w.add(0, plain(1, 20000, 2, ids(0, 40)))
		w.add(2*time.Second, second)
		var ends []time.Duration
		w.onPass = func(*Pass) { ends = append(ends, w.now) }
		w.run()
		near(t, "passes", ends, 169.136918, 338.273836, 421.945741, 428.708154, 2031.170768, 2037.959067)
		near(t, "first", w.at(1), 421.945741, 428.708154)
		near(t, "second", w.at(2), 2031.170768, 2037.959067)
		if second.Cached() != 19968 {
			t.Errorf("second reused %d tokens, want 19968", second.Cached())
		}
	})

	t.Run("two requests at 0: ISL 1024 and 512, OSL 2", func(t *testing.T) {
		w := newWorld(t, mock)
		w.add(0, plain(1, 1024, 2, ids(0, 2)))
		w.add(0, plain(2, 512, 2, ids(2, 1)))
		active := 0
		w.onPass = func(p *Pass) { active = p.Batch.ActiveBlocks }
		w.run()
		near(t, "first", w.at(1), 46.635506, 52.461150)
		near(t, "second", w.at(2), 46.635506, 52.461150)
		if active != 26 {
			t.Errorf("%d active blocks in the second pass, want 26", active)
		}
	})

	t.Run("ISL 1024, OSL 1 at 0 and identical at 500", func(t *testing.T) {
		w := newWorld(t, mock)
		second := plain(2, 1024, 1, ids(0, 2))
		w.add(0, plain(1, 1024, 1, ids(0, 2)))
		w.add(500*time.Millisecond, second)
		w.run()
		near(t, "first", w.at(1), 38.283432)
		near(t, "second", w.at(2), 505.792720)
		if second.Cached() != 1024 {
			t.Errorf("second reused %d tokens, want 1024", second.Cached())
		}
	})

	t.Run("budget 12, bs 4, two 8-token prompts", func(t *testing.T) {
		cfg := mock
		cfg.MaxBatchedTokens, cfg.BlockSize = 12, 4
		w := newWorld(t, cfg)
		first := &Request{ID: 1, Prompt: 8, MaxOutput: 2, Content: &text{ids: ids(0, 1), size: 4, prompt: 8, own: 1}}
		second := &Request{ID: 2, Prompt: 8, MaxOutput: 2, Content: &text{ids: ids(1, 1), size: 4, prompt: 8, own: 2}}
		w.add(0, first)
		w.add(0, second)
		w.pass()
		if len(w.tokens) != 1 || w.tokens[0].id != 1 {
			t.Errorf("tokens %v, want one for the first", w.tokens)
		}
		if second.computed != 4 || second.state != running {
			t.Errorf("second: computed %d, state %d; want 4 and running", second.computed, second.state)
		}
		if n := w.engine.Load().ActiveBlocks; n != 4 {
			t.Errorf("%d active blocks, want 4", n)
		}
	})
}

// TestVectors holds the same cases under the rules of engines today.
func TestVectors(t *testing.T) {
	t.Run("ISL 1024, OSL 1 at 0 and identical at 500", func(t *testing.T) {
		w := newWorld(t, Config{Timing: MockerPolynomial})
		second := plain(2, 1024, 1, ids(0, 2))
		w.add(0, plain(1, 1024, 1, ids(0, 2)))
		w.add(500*time.Millisecond, second)
		w.run()
		// The last block must be computed again: what follows a prompt comes
		// from its last token.
		if second.Cached() != 1024-64 {
			t.Errorf("second reused %d tokens, want 960", second.Cached())
		}
		cold := MockerPolynomial.Prefill(&Batch{Prompts: 1, Tokens: 64}) + MockerPolynomial.Decode(&Batch{ActiveBlocks: 16, TotalBlocks: 16384})
		near(t, "second", w.at(2), 500+cold)
	})

	t.Run("P/D hand-off: 128 tokens, 1e6 B/token, 1 GB/s", func(t *testing.T) {
		w := newWorld(t, Config{Role: Prefill, KVBytesPerToken: 1e6, TransferBandwidth: 1})
		w.add(0, plain(1, 128, 20, ids(0, 1)))
		var got []Output
		w.onPass = func(p *Pass) { got = append(got, p.Outputs...) }
		w.run()
		if len(got) != 1 || got[0].Transfer != 128*time.Millisecond || !got[0].Done || got[0].Tokens != 1 {
			t.Errorf("outputs %+v, want one token, done, 128 ms of transfer", got)
		}
	})

	t.Run("LRU: insert (or refresh) 4,3,2,1,5,1,4,2", func(t *testing.T) {
		// A block is refreshed when it is used and let go again. What is evicted
		// first is what was let go first. The mock engine can also push a block to
		// the front, which none of its own rules needs, and so is not here.
		c := newCache(5, true)
		var p Pass
		at := make(map[uint64]int32)
		for _, id := range []uint64{4, 3, 2, 1, 5, 1, 4, 2} {
			b, ok := at[id]
			if ok {
				c.use(b)
			} else {
				b = c.take(&p)
				c.name(b, kv.BlockID(id))
				at[id] = b
			}
			c.letGo(b)
		}
		c.silent = false
		for range 5 {
			c.take(&p)
		}
		var order []uint64
		for _, ev := range p.Events {
			order = append(order, uint64(ev.Blocks[0].ID))
		}
		if diff := cmp.Diff([]uint64{3, 5, 1, 4, 2}, order); diff != "" {
			t.Errorf("order of eviction (-want +got):\n%s", diff)
		}
	})
}
