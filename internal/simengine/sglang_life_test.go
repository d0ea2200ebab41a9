package simengine

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
)

// sglStored returns the number of blocks that events stored.
func sglStored(events []kv.Event) (n int) {
	for _, ev := range events {
		if ev.Kind == kv.Stored {
			n += len(ev.Blocks)
		}
	}
	return n
}

func TestSGLangAnswerIsCached(t *testing.T) {
	g := newSGLRig(t, Config{BlockSize: 2})
	a := g.ask("a", "12345", 6)
	if n := sglStored(g.step().Events); n != 2 {
		t.Errorf("%d pages of the prompt stored, want the 2 full ones", n)
	}
	for range 4 {
		if p := g.step(); len(p.Events) != 0 {
			t.Errorf("an answer under way is cached: %v", p.Events)
		}
	}
	p := g.step()
	// Of 11 tokens the last is not computed.
	if len(p.Events) != 1 || sglStored(p.Events) != 3 {
		t.Fatalf("stored at the end: %v", p.Events)
	}
	if ev := p.Events[0]; !ev.HasParent || ev.Parent != a.Content.Block(1).ID || ev.Blocks[2] != a.Content.Block(4) {
		t.Errorf("stored at the end: %+v", ev)
	}

	// A turn later the conversation is found, as far as it was computed.
	next := g.text("a", "12345")
	next.known = 13
	g.receive("b", &Request{Prompt: 13, MaxOutput: 1, Content: next})
	g.steps("b+10 compute 3 -> b.")
}

func TestSGLangDrop(t *testing.T) {
	g := newSGLRig(t, Config{BlockSize: 2, SGLang: SGLangConfig{ChunkedPrefillSize: 4}})
	a := g.ask("a", "1234", 100)
	g.steps("a+0 compute 4 -> a", "-> a", "-> a", "-> a", "-> a")
	b, c := g.ask("b", "abcdefgh", 1), g.ask("c", "xyz", 1)
	g.steps("b+0 compute 4 -> a")
	g.drop(c) // has nothing
	g.drop(b) // has a part of its prompt
	g.drop(a) // has 4 and 5 tokens computed
	g.e.Drop(a)
	if l := g.e.Load(); l.Running+l.Waiting+l.ActiveBlocks != 0 || l.CachedBlocks != 6 {
		t.Errorf("load %+v", l)
	}
	// What a left behind is told with the next pass.
	g.receive("a", a)
	if p := g.step(); sglStored(p.Events) != 2 || a.Cached() != 2 {
		t.Errorf("cached %d, events %v", a.Cached(), p.Events)
	}
	g.drop(a)

	// A prompt shorter than a page leaves no parent for the answer.
	g = newSGLRig(t, Config{BlockSize: 4})
	d := g.ask("d", "1", 20)
	for range 5 {
		g.step()
	}
	g.drop(d)
	g.ask("e", "e", 1)
	if p := g.step(); len(p.Events) != 1 || p.Events[0].HasParent || len(p.Events[0].Blocks) != 1 {
		t.Errorf("events %v", p.Events)
	}
}

func TestSGLangSharesNothing(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  Config
		text bool
	}{
		{"no content", Config{}, false},
		{"no prefix caching", Config{NoPrefixCaching: true, SGLang: SGLangConfig{Policy: LPM}}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.cfg.SGLang.ChunkedPrefillSize = 4
			g := newSGLRig(t, tc.cfg)
			for _, name := range []string{"a", "b"} {
				r := &Request{Prompt: 6, MaxOutput: 2}
				if tc.text {
					r.Content = g.text("a", "abcdef")
				}
				g.receive(name, r)
			}
			g.steps("a+0 compute 4", "b+0 compute 4 -> a", "compute 4 -> a. b", "-> b.")
			if g.s.free != g.s.cfg.Blocks || len(g.held) != 0 {
				t.Errorf("%d pages free, %d blocks told", g.s.free, len(g.held))
			}
		})
	}
}

// sglSame is a content with one ID for all blocks.
type sglSame struct{}

func (sglSame) Block(int) kv.Block { return kv.Block{ID: 7} }

// TestSGLangRepeatedIDs: a content that breaks its promise, and gives one ID to
// several blocks, spoils nothing but its own reuse.
func TestSGLangRepeatedIDs(t *testing.T) {
	e, err := New(Config{Kind: SGLang, Blocks: 20, SGLang: SGLangConfig{ChunkedPrefillSize: 4}})
	if err != nil {
		t.Fatal(err)
	}
	for range 6 {
		e.Receive(&Request{Prompt: 9, MaxOutput: 4, Content: sglSame{}})
	}
	for n := 0; e.Busy(); n++ {
		if n == 100 {
			t.Fatal("busy after 100 passes")
		}
		e.Step()
	}
	s := e.sched.(*sglang)
	if s.tree.locked != 0 || s.free+s.tree.pages != 20 {
		t.Errorf("%d pages locked, %d free, %d in the tree", s.tree.locked, s.free, s.tree.pages)
	}
}

// TestSGLangTwins: two that compute the same side by side share it afterwards.
func TestSGLangTwins(t *testing.T) {
	g := newSGLRig(t, Config{BlockSize: 4})
	for _, name := range []string{"a", "b"} {
		g.receive(name, &Request{Prompt: 9, MaxOutput: 8, Content: g.text("twin", "same text")})
	}
	g.steps("a+0 b+0 compute 18 -> a b")
	if l := g.e.Load(); l.ActiveBlocks != 4 {
		t.Errorf("%d pages in use, want 2 in common and a last one each", l.ActiveBlocks)
	}
	g.drain(10)
	if l := g.e.Load(); l.CachedBlocks != 4 || g.s.free != g.s.cfg.Blocks-4 {
		t.Errorf("load %+v", l)
	}
}

func TestSGLangWarmUp(t *testing.T) {
	warm := func(g *sglRig, name, text string) *Request {
		return g.receive(name, &Request{Prompt: len(text), Content: g.text(name, text), WarmUp: true})
	}
	t.Run("computes a prompt", func(t *testing.T) {
		g := newSGLRig(t, Config{})
		warm(g, "w", "prompt")
		p := g.step()
		if g.log[0] != "w+0 compute 6 -> w." || p.Decode != 0 || p.Prefill == 0 || p.Batch.ActiveBlocks != 6 {
			t.Errorf("pass %q, %+v", g.log[0], p.Batch)
		}
		g.ask("a", "prompt and more", 1)
		g.steps("a+6 compute 9 -> a.")
	})
	t.Run("waits behind others", func(t *testing.T) {
		g := newSGLRig(t, Config{MaxSeqs: 1, SGLang: SGLangConfig{ChunkedPrefillSize: 4}})
		warm(g, "w", "wwwwww")
		g.steps("w+0 compute 4")
		g.ask("a", "aa", 1)
		g.ask("b", "bbbbb", 1)
		g.steps("a+0 compute 2 -> a.", "b+0 compute 4", "compute 1 -> b.", "compute 2 -> w.")
	})
	t.Run("shares a pass", func(t *testing.T) {
		g := newSGLRig(t, Config{})
		warm(g, "w", "ww")
		g.ask("a", "aa", 2)
		g.steps("a+0 w+0 compute 4 -> a w.", "-> a.")
	})
	t.Run("gives way to a prompt", func(t *testing.T) {
		g := newSGLRig(t, Config{Blocks: 12, SGLang: SGLangConfig{ChunkedPrefillSize: 8}})
		w := warm(g, "w", "wwwwwwwwww")
		g.steps("w+0 compute 8")
		g.asks("a", 6, 2)
		g.steps("a+0 compute 6 retract 1 -> a", "-> a.")
		if w.state != preempted || g.s.ratio >= g.s.initial {
			t.Errorf("state %d, ratio %v", w.state, g.s.ratio)
		}
		g.steps("w+again 0 compute 8", "compute 2 -> w.")
	})
	t.Run("gives way to an answer", func(t *testing.T) {
		g := newSGLRig(t, Config{Blocks: 12, SGLang: SGLangConfig{ChunkedPrefillSize: 4, ClipMaxNewTokens: 1}})
		g.asks("a", 3, 4)
		g.steps("a+0 compute 3 -> a")
		g.asks("b", 1, 4)
		g.steps("b+0 compute 1 -> a b")
		w := warm(g, "w", "wwwww")
		g.steps("w+0 compute 4 -> a b")
		if w.state != waiting || g.s.free != 1 {
			t.Fatalf("state %d, %d free", w.state, g.s.free)
		}
		g.steps("retract 1 -> a. b")
		if g.s.ratio >= g.s.initial {
			t.Errorf("ratio %v: a warm-up is promised no room", g.s.ratio)
		}
	})
}

func TestSGLangRoles(t *testing.T) {
	t.Run("prefill", func(t *testing.T) {
		g := newSGLRig(t, Config{Role: Prefill, KVBytesPerToken: 1e6, TransferBandwidth: 1})
		g.ask("a", strings.Repeat("x", 128), 20)
		p := g.step()
		if len(p.Outputs) != 1 || !p.Outputs[0].Done || p.Outputs[0].Transfer != 128*time.Millisecond {
			t.Errorf("outputs %+v", p.Outputs)
		}
		if p.Decode != 0 || p.Prefill == 0 || sglStored(p.Events) != 128 {
			t.Errorf("prefill %v, decode %v, %d events", p.Prefill, p.Decode, len(p.Events))
		}
	})
	t.Run("decode", func(t *testing.T) {
		g := newSGLRig(t, Config{Role: Decode, SGLang: SGLangConfig{ChunkedPrefillSize: 8}})
		g.ask("a", "ten tokens", 2)
		for _, want := range []string{"a+0 compute 8", "compute 2 -> a", "-> a."} {
			p := g.step()
			if got := g.log[len(g.log)-1]; got != want || p.Prefill != 0 || len(p.Events) != 0 {
				t.Errorf("pass %q, want %q; prefill took %v; %d events", got, want, p.Prefill, len(p.Events))
			}
		}
		g.ask("b", "ten tokens", 1)
		g.steps("b+9 compute 1 -> b.")
	})
}

func TestSGLangBatch(t *testing.T) {
	g := newSGLRig(t, Config{Blocks: 10, BlockSize: 4, SGLang: SGLangConfig{ChunkedPrefillSize: 12, ClipMaxNewTokens: 1}})
	g.ask("a", "prefix: a", 5)
	p := g.step()
	want := Batch{Kind: SGLang, Prompts: 1, Tokens: 9, Decodes: 1, Context: 9, ActiveBlocks: 3, TotalBlocks: 10, BlockSize: 4}
	if diff := cmp.Diff(want, p.Batch); diff != "" {
		t.Errorf("first pass (-want +got):\n%s", diff)
	}
	g.ask("b", "prefix: b", 5)
	g.ask("c", "twelve tokens", 5)
	p = g.step()
	// b finds 8 tokens, c has its first 8 computed beside.
	want = Batch{Kind: SGLang, Prompts: 2, Prefix: 8, Tokens: 9 + 8, Decodes: 2, Context: 10 + 9, ActiveBlocks: 6, TotalBlocks: 10, BlockSize: 4}
	if diff := cmp.Diff(want, p.Batch); diff != "" {
		t.Errorf("second pass (-want +got):\n%s", diff)
	}
	// Context counts tokens that are shared once for each, but not beyond the pool.
	g = newSGLRig(t, Config{Blocks: 12})
	g.ask("d", "seven..", 1)
	g.step()
	g.ask("e", "seven..", 1)
	g.ask("f", "seven..", 1)
	if b := g.step().Batch; b.Decodes != 2 || b.Context != 12 {
		t.Errorf("batch %+v", b)
	}
}
