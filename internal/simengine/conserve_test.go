package simengine

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
)

// load is a random configuration and what is asked of it.
type load struct {
	cfg      Config
	arrivals []arrival
	drops    map[uint64]int // request → dropped after that many passes
}

// randomLoad draws a load that is hard on memory: few blocks, many requests that
// share prefixes.
func randomLoad(rng *rand.Rand, rules Rules) load {
	pick := func(values ...int) int { return values[rng.IntN(len(values))] }
	cfg := Config{
		Rules:            rules,
		Blocks:           pick(8, 20, 64, 300),
		BlockSize:        pick(2, 4, 16),
		MaxSeqs:          pick(1, 3, 16, 256),
		MaxBatchedTokens: pick(8, 33, 256, 8192),
		NoPrefixCaching:  rng.IntN(8) == 0,
		NoChunkedPrefill: rng.IntN(8) == 0,
		Watermark:        []float64{0, 0, 0.01, 0.2}[rng.IntN(4)],
		Victim:           []Victim{Newest, Oldest}[rng.IntN(2)],
		Role:             []Role{Aggregated, Aggregated, Prefill, Decode}[rng.IntN(4)],
	}
	if rules == Current {
		cfg.Draft = pick(0, 0, 2, 5)
	}
	if rng.IntN(4) == 0 {
		cfg.MaxModelLen = 40
	}
	l := load{cfg: cfg, drops: map[uint64]int{}}
	capacity := cfg.Blocks * cfg.BlockSize
	at := time.Duration(0)
	for id := uint64(1); id <= 60; id++ {
		at += time.Duration(rng.IntN(40)) * time.Millisecond
		// Some do not fit at all.
		r := &Request{ID: id, Prompt: 1 + rng.IntN(capacity*5/4), MaxOutput: 1 + rng.IntN(40), WarmUp: rng.IntN(10) == 0}
		if rng.IntN(3) > 0 {
			r.Prompt = 1 + rng.IntN(min(capacity, 60))
		}
		shared := make([]uint64, r.Prompt/512+1)
		for i := range shared {
			shared[i] = uint64(rng.IntN(3)) // few different beginnings
		}
		if rng.IntN(10) > 0 {
			r.Content = &text{ids: shared, size: cfg.BlockSize, prompt: r.Prompt, own: id}
		}
		if rng.IntN(10) == 0 {
			l.drops[id] = rng.IntN(60)
		}
		l.arrivals = append(l.arrivals, arrival{at, r})
	}
	return l
}

// TestConservation sees that blocks, tokens and requests neither appear nor
// vanish, whatever the load, and that the events tell all there is to know about
// the cache.
func TestConservation(t *testing.T) {
	for _, rules := range []Rules{Current, MockerGated, Mocker} {
		t.Run(string(rules), func(t *testing.T) {
			for seed := range uint64(seeds) {
				conserve(t, seed, randomLoad(rand.New(rand.NewPCG(seed, 1)), rules))
				if t.Failed() {
					return
				}
			}
		})
	}
}

func conserve(t *testing.T, seed uint64, l load) {
	t.Helper()
	w := newWorld(t, l.cfg)
	cfg := w.engine.Config()
	byID := map[uint64]*Request{}
	for _, a := range l.arrivals {
		w.add(a.at, a.req)
		byID[a.req.ID] = a.req
	}
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("seed %d, %+v, pass %d: %s", seed, cfg, w.passes, fmt.Sprintf(format, args...))
	}
	told := map[kv.BlockID]int{} // copies, by the events
	got := map[uint64]int{}      // tokens of each request
	ended := map[uint64]string{}
	var computed, wanted, preemptions int
	end := func(id uint64, how string) {
		if before, twice := ended[id]; twice {
			fail("request %d is %s after being %s", id, how, before)
		}
		ended[id] = how
	}
	w.onPass = func(p *Pass) {
		computed += p.Batch.NewTokens()
		preemptions += p.Preempted
		for _, ev := range p.Events {
			if ev.Kind == kv.Stored && ev.HasParent && told[ev.Parent] == 0 {
				fail("block stored behind %d, which is not there", ev.Parent)
			}
			for _, b := range ev.Blocks {
				if ev.Kind == kv.Stored {
					told[b.ID]++
				} else if told[b.ID]--; told[b.ID] < 0 {
					fail("block %d removed, which was not there", b.ID)
				} else if told[b.ID] == 0 {
					delete(told, b.ID)
				}
			}
		}
		for _, a := range p.Admissions {
			if !a.Again {
				wanted += a.Request.Prompt - a.Cached
			}
			if a.Cached > a.Request.Prompt || a.Cached < 0 {
				fail("request %d found %d of %d tokens", a.Request.ID, a.Cached, a.Request.Prompt)
			}
		}
		for _, r := range p.Rejected {
			end(r.ID, "rejected")
		}
		for _, o := range p.Outputs {
			got[o.Request.ID] += o.Tokens
			if o.Tokens < 1 && !o.Request.WarmUp || o.Tokens > 1+cfg.Draft {
				fail("request %d got %d tokens at once", o.Request.ID, o.Tokens)
			}
			if o.Done {
				end(o.Request.ID, "done")
			}
		}
		for id, after := range l.drops {
			if w.passes >= after {
				delete(l.drops, id)
				if r := byID[id]; r.state != idle {
					w.engine.Drop(r)
					end(id, "dropped")
				}
			}
		}
		checkCache(w.engine, told, fail)
		if p.Duration == 0 && cfg.Role == Aggregated && cfg.Rules == Current && len(p.Rejected)+p.Preempted == 0 && len(p.Outputs) == 0 {
			fail("nothing moved: %+v", p)
		}
	}
	w.run()
	for id, r := range byID {
		// The last token of an answer needs no room, except in the mock engine.
		room := cfg.Blocks * cfg.BlockSize
		if cfg.Rules == Current {
			room++
		}
		want := min(r.MaxOutput, room-r.Prompt, cfg.MaxModelLen-r.Prompt)
		if cfg.Role == Prefill {
			want = min(want, 1)
		}
		if r.WarmUp {
			want = 0
		}
		switch how := ended[id]; {
		case how == "":
			fail("request %d never ended", id)
		case how == "done" && (got[id] != want || r.Generated() != want):
			fail("request %d of %d tokens got %d and counts %d, want %d", id, r.Prompt, got[id], r.Generated(), want)
		case (how == "rejected") != (r.Prompt > cfg.Blocks*cfg.BlockSize || want < 1 && (!r.WarmUp || r.Prompt >= cfg.MaxModelLen)) && how != "dropped":
			fail("request %d of %d tokens was %s", id, r.Prompt, how)
		}
	}
	if preemptions == 0 && !slices.Contains(slices.Collect(maps.Values(ended)), "dropped") && computed != wanted {
		fail("%d prompt tokens were computed, %d were not in the cache", computed, wanted)
	}
	if l := w.engine.Load(); l.ActiveBlocks != 0 || l.Running != 0 || l.Waiting != 0 || w.engine.Requests() != 0 {
		fail("at the end: %+v, %d requests", l, w.engine.Requests())
	}
}

// checkCache counts the blocks anew.
func checkCache(e *Engine, told map[kv.BlockID]int, fail func(string, ...any)) {
	var s *blockScheduler
	switch v := e.sched.(type) {
	case *vllm:
		s = &v.blockScheduler
	case *mocker:
		s = &v.blockScheduler
	}
	c := &s.cache
	refs := make([]int32, len(c.blocks))
	held := slices.Concat(s.running, s.waiting.items[s.waiting.head:], s.warm.items[s.warm.head:])
	for _, r := range held {
		for _, b := range r.blocks {
			refs[b]++
		}
	}
	active, known := 0, map[kv.BlockID]int{}
	free := make([]bool, len(c.blocks))
	for _, b := range c.free {
		free[b] = true
	}
	for b := range c.blocks {
		bl := &c.blocks[b]
		if bl.refs != refs[b] && !free[b] {
			fail("block %d has %d users, counts %d", b, refs[b], bl.refs)
		}
		if refs[b] > 0 {
			active++
		}
		if bl.known {
			known[bl.id]++
		}
	}
	cached := 0
	for b := c.oldest; b != none; b = c.blocks[b].next {
		cached++
	}
	if active != c.active || cached != c.cached || active+cached+len(c.free) != len(c.blocks) {
		fail("%d active, %d cached, %d free of %d; counted %d and %d", active, cached, len(c.free), len(c.blocks), c.active, c.cached)
	}
	if !c.silent {
		if !maps.Equal(known, told) {
			fail("the cache and what its events tell (-cache +events):\n%s", cmp.Diff(known, told))
		}
	}
}

// TestDeterminism runs the same load twice.
func TestDeterminism(t *testing.T) {
	for seed := range uint64(20) {
		var logs [2]string
		for i := range logs {
			l := randomLoad(rand.New(rand.NewPCG(seed, 2)), Current)
			w := newWorld(t, l.cfg)
			w.pending = l.arrivals
			w.run()
			logs[i] = w.log.String()
		}
		if diff := cmp.Diff(logs[0], logs[1]); diff != "" {
			t.Fatalf("seed %d (-first +second):\n%s", seed, diff)
		}
	}
}
