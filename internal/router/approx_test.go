package router

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// TestSentPromptsAttract: where caches are not told of, what was sent to a worker is
// taken to be there.
func TestSentPromptsAttract(t *testing.T) {
	for name, row := range map[string]struct {
		cfg  KVConfig
		spec Spec
	}{
		"events are not heeded":  {KVConfig{NoEvents: true}, Spec{Events: true}},
		"workers without events": {KVConfig{}, Spec{}},
	} {
		t.Run(name, func(t *testing.T) {
			r, m := crew(t, Config{KV: row.cfg}, row.spec, row.spec, row.spec, row.spec)
			prompt := tokensOf(1, 160)
			if row.cfg.NoEvents {
				store(t, r, 4, 0, kv.Device, prompt, 0, 10)
			}
			first := query(t, r, ask(m, prompt))
			if first.Last().OverlapBlocks != 0 {
				t.Fatalf("%d blocks before anything was sent", first.Last().OverlapBlocks)
			}
			first = answered(t, r, ask(m, prompt))
			for i := range 8 {
				q := ask(m, append(prompt[:160:160], tokensOf(2+i, 40)...))
				p := answered(t, r, q)
				if workerOf(p) != workerOf(first) || p.Last().OverlapBlocks != 10 || *p.Routing.PredictedCachedTokens != 160 {
					t.Errorf("request %d: placed on %d with %d blocks, the first on %d", i, workerOf(p), p.Last().OverlapBlocks, workerOf(first))
				}
			}
		})
	}
}

// answered places a request and has it answered.
func answered(t *testing.T, r *Router, q *Request) *Placement {
	t.Helper()
	p := mustPlace(t, r, q)
	p.FirstToken()
	p.Done(Completed)
	return p
}

// TestOnlyWhatWasComputedIsNoted: a prompt is in the cache of a worker that does not tell
// once the first token or the whole answer has come. Before, requests under way count
// where they run.
func TestOnlyWhatWasComputedIsNoted(t *testing.T) {
	prompt := tokensOf(1, 160)
	for _, row := range []struct {
		name string
		end  func(*Placement)
		want int
	}{
		{"refused", func(p *Placement) { p.Done(Refused) }, 0},
		{"cancelled", func(p *Placement) { p.Done(Cancelled) }, 0},
		{"done before the first token", func(p *Placement) { p.Done(Completed); p.FirstToken() }, 0},
		{"first token", func(p *Placement) { p.FirstToken(); p.Done(Cancelled) }, 10},
		{"at once", func(p *Placement) { p.Whole(7); p.Done(Completed) }, 10},
	} {
		r, m := crew(t, Config{}, make([]Spec, 3)...)
		p := mustPlace(t, r, ask(m, prompt))
		for _, c := range query(t, r, ask(m, prompt)).Routing.Candidates {
			want := 0
			if c.WorkerID == uint64(workerOf(p)) {
				want = 10
			}
			if c.LiveBlocks != want || c.OverlapBlocks != 0 {
				t.Errorf("%s: while it is computed worker %d has %d blocks under way and %d cached, want %d and none",
					row.name, c.WorkerID, c.LiveBlocks, c.OverlapBlocks, want)
			}
		}
		row.end(p)
		if got := query(t, r, ask(m, prompt)).Routing.BestOverlapBlocks; got != row.want {
			t.Errorf("%s: %d blocks are taken to be cached, want %d", row.name, got, row.want)
		}
		if got := m.pools[0].sent.Stats().Blocks; got != row.want {
			t.Errorf("%s: %d blocks noted, want %d", row.name, got, row.want)
		}
	}
}

// TestRanksThatLeftAreNotNoted: an answer of a rank that has left the pool leaves nothing
// in the index.
func TestRanksThatLeftAreNotNoted(t *testing.T) {
	r, m := crew(t, Config{}, make([]Spec, 2)...)
	q := ask(m, tokensOf(1, 160))
	q.Pinned, q.Pin = true, 1
	streamed, whole := mustPlace(t, r, q), mustPlace(t, r, q)
	reshape(r, 1)
	streamed.FirstToken()
	whole.Whole(5)
	if st := m.pools[0].sent.Stats(); st.Blocks != 0 || st.Ranks != 0 {
		t.Errorf("%d blocks of %d ranks are noted", st.Blocks, st.Ranks)
	}
	streamed.Done(Completed)
	whole.Done(Completed)
}

// TestTellersAreNotGuessedAt: a worker that tells has what it says, not what it was
// sent.
func TestTellersAreNotGuessedAt(t *testing.T) {
	r, m := crew(t, Config{}, tellers(2)...)
	prompt := tokensOf(1, 160)
	answered(t, r, ask(m, prompt))
	if p := query(t, r, ask(m, prompt)); p.Last().OverlapBlocks != 0 {
		t.Errorf("%d blocks, want none before an event", p.Last().OverlapBlocks)
	}
	if st := m.pools[0].sent.Stats(); st.Blocks != 0 {
		t.Errorf("%d blocks are taken to be sent", st.Blocks)
	}
}

// TestText: prompts without tokens go by their text, on workers that tell too.
func TestText(t *testing.T) {
	for _, off := range []bool{false, true} {
		r, m := crew(t, Config{KV: KVConfig{NoText: off}}, tellers(4)...)
		text := bytes.Repeat([]byte("to be or not to be, "), 64) // 20 blocks of 64 bytes
		send := func(text []byte) *Placement {
			q := &Request{Model: m, Text: text, PromptTokens: len(text) / 4, Guess: true, ExplainAll: true}
			return answered(t, r, q)
		}
		first := send(text)
		same := 0
		for range 10 {
			p := send(append(bytes.Clone(text), "that is the question, and here is more of it than fits into one block of bytes"...))
			if workerOf(p) == workerOf(first) {
				same++
			}
			if want := map[bool]int{false: 20, true: 0}[off]; p.Last().OverlapBlocks < want || off && p.Last().OverlapBlocks != 0 {
				t.Errorf("without text %v: %d blocks, want %d", off, p.Last().OverlapBlocks, want)
			}
			p.Usage(99, 12) // a guess says nothing about the engine's cache
			if p.slot.trust != 1 {
				t.Error("a guess changed what the worker is trusted with")
			}
		}
		if !off && same != 10 {
			t.Errorf("%d of 10 went where the text is", same)
		}
		if p := send(bytes.Repeat([]byte("something else "), 80)); p.Last().OverlapBlocks != 0 {
			t.Errorf("another text has %d blocks in common", p.Last().OverlapBlocks)
		}
		if got := loads(m); got != (load{}) {
			t.Errorf("left over: %+v", got)
		}
	}
}

func TestSentPromptsExpire(t *testing.T) {
	now := time.Unix(1000, 0)
	cfg := Config{KV: KVConfig{TTL: 80 * time.Second}, Now: func() time.Time { return now }, Virtual: true}
	r, m := crew(t, cfg, make([]Spec, 3)...)
	prompt := tokensOf(1, 160)
	overlap := func() int {
		return query(t, r, ask(m, prompt)).Routing.BestOverlapBlocks
	}
	answered(t, r, ask(m, prompt))
	now = now.Add(79 * time.Second)
	if got := overlap(); got != 10 {
		t.Errorf("after 79 s: %d blocks, want 10", got)
	}
	now = now.Add(11 * time.Second) // looked at every 10 s
	if got := overlap(); got != 0 {
		t.Errorf("after 90 s: %d blocks, want none", got)
	}
	// Sending it again keeps it.
	for range 5 {
		answered(t, r, ask(m, prompt))
		now = now.Add(60 * time.Second)
		if got := overlap(); got != 10 {
			t.Errorf("sent a minute ago: %d blocks, want 10", got)
		}
	}
}

func TestSentPromptsForEver(t *testing.T) {
	now := time.Unix(1000, 0)
	r, m := crew(t, Config{KV: KVConfig{TTL: -1}, Now: func() time.Time { return now }, Virtual: true}, make([]Spec, 2)...)
	prompt := tokensOf(1, 160)
	answered(t, r, ask(m, prompt))
	now = now.Add(1000 * time.Hour)
	if got := query(t, r, ask(m, prompt)).Routing.BestOverlapBlocks; got != 10 {
		t.Errorf("%d blocks, want 10", got)
	}
}

// TestSentPromptsAreBounded: the oldest go when there are too many.
func TestSentPromptsAreBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	r, m := crew(t, Config{KV: KVConfig{MaxBlocks: 100, PruneRatio: 0.5}, Now: func() time.Time { return now }, Virtual: true}, Spec{})
	for i := range 30 {
		now = now.Add(time.Second)
		answered(t, r, ask(m, tokensOf(i+1, 160)))
		if got := m.pools[0].sent.Stats().Blocks; got > 100 {
			t.Fatalf("%d blocks after %d prompts, want at most 100", got, i+1)
		}
	}
	if got := query(t, r, ask(m, tokensOf(30, 160))).Last().OverlapBlocks; got != 10 {
		t.Errorf("%d blocks of the latest, want 10", got)
	}
	if got := query(t, r, ask(m, tokensOf(1, 160))).Last().OverlapBlocks; got != 0 {
		t.Errorf("%d blocks of the first, want none", got)
	}
}

// TestReturningWorkerIsCold: what was sent to a worker before it went is not there
// when it comes back, not even what is noted in that very moment.
func TestReturningWorkerIsCold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{}, Spec{})
		e := r.workers[1].Engine.(*stubEngine)
		prompt := tokensOf(1, 160)
		answered(t, r, ask(m, prompt))
		if got := query(t, r, ask(m, prompt)).Last().OverlapBlocks; got != 10 {
			t.Fatalf("%d blocks, want 10", got)
		}
		e.down.Store(true)
		time.Sleep(20 * time.Second)
		e.down.Store(false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := query(t, r, ask(m, prompt)).Last().OverlapBlocks; got != 0 {
			t.Errorf("%d blocks after it came back, want none", got)
		}
		shape := e.models[0]
		reshape(r, 1) // serves nothing
		m.pools[0].sent.Route(time.Now(), kv.Source{Worker: 1}, kv.AppendBlocks(nil, kv.HashSeed("", ""), prompt, 16))
		reshape(r, 1, shape)
		m, _ = r.Lookup("m")
		if got := query(t, r, ask(m, prompt)).Last().OverlapBlocks; got != 0 {
			t.Errorf("%d blocks after its rank came back, want none", got)
		}
	})
}
