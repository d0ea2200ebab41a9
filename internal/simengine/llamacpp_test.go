package simengine

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
)

// letters is a content of one token per byte.
type letters string

func (l letters) Block(i int) kv.Block {
	tokens := make([]uint32, i+1)
	for k := range tokens {
		tokens[k] = uint32(l[k])
	}
	return kv.Block{ID: kv.BlockID(kv.HashTokens(0, tokens))}
}

// say returns a request whose prompt is the text before the bar and whose answer the
// text behind it.
func say(prompt, answer string) *Request {
	return &Request{Prompt: len(prompt), MaxOutput: len(answer), Content: letters(prompt + answer)}
}

func newLlama(t *testing.T, cfg Config) *Engine {
	t.Helper()
	cfg.Kind = LlamaCpp
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// drain runs passes until the engine has nothing to do.
func drain(t *testing.T, e *Engine) {
	t.Helper()
	for n := 0; e.Busy(); n++ {
		if p := e.Step(); len(p.Events) > 0 {
			t.Fatalf("events %v", p.Events)
		}
		if n > 10000 {
			t.Fatal("the engine is busy for ever")
		}
	}
}

func (e *Engine) held() []int {
	var out []int
	for _, s := range e.AppendSlots(nil) {
		out = append(out, s.Held)
	}
	return out
}

func TestLlamaSlots(t *testing.T) {
	e := newLlama(t, Config{MaxSeqs: 2, Blocks: 2000})
	steps := []struct {
		name       string
		r          *Request
		wantCached int
		wantHeld   []int
	}{
		// The last token of an answer is never computed.
		{"empty slots", say("the quick brown fox", "jump"), 0, []int{22, 0}},
		{"nothing alike goes to the one never used", say("abcdefghijklmnopqrst", "uv"), 0, []int{22, 21}},
		{"a tenth alike and the oldest slot", say("the quick brown dog", "s"), 16, []int{19, 21}},
		{"an answer is held, too", say("abcdefghijklmnopqrstuvwx", "y"), 21, []int{19, 24}},
		{"less than a tenth alike", say("t0123456789012345678", "9"), 1, []int{20, 24}},
		{"the last token of a prompt is computed", say("abcdefghijkl", "m"), 11, []int{20, 12}},
		{"not to be reused", &Request{Prompt: 12, MaxOutput: 1, Content: letters("abcdefghijklm"), Fresh: true}, 0, []int{20, 12}},
		{"a slot of its choice", &Request{Prompt: 12, MaxOutput: 1, Content: letters("abcdefghijklm"), Slot: 1}, 0, []int{12, 12}},
		{"content that nobody knows", &Request{Prompt: 30, MaxOutput: 3, Slot: 2}, 0, []int{12, 0}},
	}
	for _, s := range steps {
		e.Receive(s.r)
		drain(t, e)
		if got := s.r.Cached(); got != s.wantCached {
			t.Errorf("%s: %d tokens cached, want %d", s.name, got, s.wantCached)
		}
		if diff := cmp.Diff(s.wantHeld, e.held()); diff != "" {
			t.Fatalf("%s: slots (-want +got):\n%s", s.name, diff)
		}
	}
	if !e.EraseSlot(1) || e.EraseSlot(3) || e.held()[0] != 0 {
		t.Errorf("erase: slots %v", e.held())
	}
}

// TestLlamaBusySlots runs more requests than there are slots.
func TestLlamaBusySlots(t *testing.T) {
	e := newLlama(t, Config{MaxSeqs: 2, Blocks: 2000, MaxBatchedTokens: 8})
	a, b, c := say("0123456789", "aaaa"), say("0123456789", "bb"), say("0123456789", "c")
	for _, r := range []*Request{a, b, c} {
		e.Receive(r)
	}
	p := e.Step()
	// The slots have no tokens in common: b computes what a computes.
	if len(p.Admissions) != 2 || p.Batch.Prompts != 1 || p.Batch.NewTokens() != 8 {
		t.Errorf("first pass: %d admitted, batch %+v", len(p.Admissions), p.Batch)
	}
	if l := e.Load(); l.Running != 2 || l.Waiting != 1 {
		t.Errorf("load %+v", l)
	}
	p = e.Step() // a ends its prompt, b has the rest of the room
	if len(p.Outputs) != 1 || p.Outputs[0].Request != a || p.Batch.NewTokens() != 8 || p.Batch.Decodes != 1 {
		t.Errorf("second pass: outputs %v, batch %+v", p.Outputs, p.Batch)
	}
	e.Drop(a)
	p = e.Step()
	if len(p.Admissions) != 1 || p.Admissions[0].Request != c || p.Admissions[0].Cached != 9 {
		t.Errorf("third pass: %+v", p.Admissions)
	}
	drain(t, e)
	if e.Requests() != 0 || b.Generated() != 2 || c.Generated() != 1 {
		t.Errorf("%d requests left, %d and %d tokens", e.Requests(), b.Generated(), c.Generated())
	}
}

func TestLlamaWarmUp(t *testing.T) {
	e := newLlama(t, Config{MaxSeqs: 1, Blocks: 2000, MaxBatchedTokens: 4})
	warm := &Request{Prompt: 10, WarmUp: true, Content: letters("0123456789")}
	e.Receive(warm)
	e.Step()
	r := say("0123x", "y")
	e.Receive(r)
	if p := e.Step(); p.Preempted != 1 || len(p.Admissions) != 1 || p.Admissions[0].Request != r || p.Admissions[0].Cached != 4 {
		t.Errorf("the warm-up does not give way: %+v", p)
	}
	drain(t, e)
	if warm.Generated() != 0 || e.held()[0] != 10 {
		t.Errorf("the warm-up generated %d tokens, slots %v", warm.Generated(), e.held())
	}
}

// TestLlamaConserves runs random loads: every request ends, with as many tokens as it
// should have, and finds no more than some slot computed.
func TestLlamaConserves(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		cfg := Config{MaxSeqs: 1 + rng.IntN(4), MaxBatchedTokens: 1 + rng.IntN(30), NoPrefixCaching: rng.IntN(5) == 0}
		cfg.Blocks = cfg.MaxSeqs * (20 + rng.IntN(50))
		e := newLlama(t, cfg)
		room := cfg.Blocks / cfg.MaxSeqs
		tokens, rejected := map[*Request]int{}, map[*Request]bool{}
		var all []*Request
		for n := 0; len(all) < 30 || e.Busy(); n++ {
			for len(all) < 30 && rng.IntN(2) == 0 {
				text := make([]byte, 120)
				for i := range text {
					text[i] = byte('a' + rng.IntN(1+i/10))
				}
				r := &Request{Prompt: 1 + rng.IntN(room+5), MaxOutput: 1 + rng.IntN(20), Content: letters(text), WarmUp: rng.IntN(8) == 0, Slot: max(0, rng.IntN(12)-8)}
				e.Receive(r)
				all = append(all, r)
			}
			p := e.Step()
			for _, o := range p.Outputs {
				tokens[o.Request] += o.Tokens
			}
			for _, r := range p.Rejected {
				rejected[r] = true
			}
			if l := e.Load(); l.Running > cfg.MaxSeqs || l.ActiveBlocks+l.CachedBlocks > cfg.Blocks {
				t.Fatalf("%+v: load %+v", cfg, l)
			}
			if n > 20000 {
				t.Fatalf("%+v: busy for ever", cfg)
			}
		}
		for _, r := range all {
			want := min(r.MaxOutput, room-r.Prompt)
			if r.WarmUp {
				want = 0
			}
			if tokens[r] != want && !rejected[r] || rejected[r] != (r.Prompt >= room) {
				t.Fatalf("%+v: prompt %d, output %d: got %d tokens, rejected %v", cfg, r.Prompt, r.MaxOutput, tokens[r], rejected[r])
			}
			if r.Cached() >= r.Prompt || cfg.NoPrefixCaching && r.Cached() > 0 {
				t.Fatalf("%d of %d tokens cached", r.Cached(), r.Prompt)
			}
		}
	}
}
