package simengine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sglRig drives an engine and checks after each pass what must always hold.
type sglRig struct {
	testing.TB
	e     *Engine
	s     *sglang
	held  sglHeld
	live  []*Request
	names map[*Request]string
	log   []string // a line per pass
	spent int      // prompt tokens computed
}

func newSGLRig(t testing.TB, cfg Config) *sglRig {
	t.Helper()
	cfg.Kind = SGLang
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &sglRig{TB: t, e: e, s: e.sched.(*sglang), held: sglHeld{}, names: map[*Request]string{}}
}

// text is the content of a request: a token per letter of the prompt, and then
// tokens that only requests of that name generate.
func (g *sglRig) text(name, prompt string) *sglContent {
	return &sglContent{t: g, page: g.s.page, known: len(prompt), token: func(i int) uint32 {
		if i < len(prompt) {
			return uint32(prompt[i])
		}
		return uint32(len(name)*1_000_000 + int(name[len(name)-1])*1000 + i)
	}}
}

func (g *sglRig) receive(name string, r *Request) *Request {
	g.names[r] = name
	g.live = append(g.live, r)
	g.e.Receive(r)
	return r
}

// ask sends a prompt.
func (g *sglRig) ask(name, prompt string, output int) *Request {
	return g.receive(name, &Request{Prompt: len(prompt), MaxOutput: output, Content: g.text(name, prompt)})
}

// asks sends a prompt of so many tokens that shares nothing.
func (g *sglRig) asks(name string, prompt, output int) *Request {
	return g.receive(name, &Request{Prompt: prompt, MaxOutput: output})
}

func (g *sglRig) drop(r *Request) {
	g.e.Drop(r)
	g.live = slices.DeleteFunc(g.live, func(l *Request) bool { return l == r })
	g.checkPages()
}

// step runs a pass. The log gets the requests admitted with what they found
// cached, the tokens computed of prompts, and the requests that got a token, each
// with a full stop at its end.
func (g *sglRig) step() *Pass {
	g.Helper()
	p := g.e.Step()
	var words []string
	say := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	for _, a := range p.Admissions {
		again := ""
		if a.Again {
			again = "again "
		}
		say("%s+%s%d", g.names[a.Request], again, a.Cached)
	}
	if n := p.Batch.NewTokens(); n > 0 {
		say("compute %d", n)
		g.spent += n
	}
	if p.Preempted > 0 {
		say("retract %d", p.Preempted)
	}
	for _, r := range p.Rejected {
		say("%s rejected", g.names[r])
		g.end(r)
	}
	if p.Batch.Decodes > 0 || len(p.Outputs) > 0 {
		words = append(words, "->")
	}
	for _, o := range p.Outputs {
		end := ""
		if o.Done {
			end = "."
			g.end(o.Request)
		}
		say("%s%s", g.names[o.Request], end)
		if c, ok := o.Request.Content.(*sglContent); ok {
			c.known += o.Tokens
		}
		want := 1
		if o.Request.WarmUp {
			want = 0
		}
		if o.Tokens != want {
			g.Errorf("%s got %d tokens in a pass", g.names[o.Request], o.Tokens)
		}
	}
	g.log = append(g.log, strings.Join(words, " "))
	g.check(p)
	return p
}

func (g *sglRig) end(r *Request) {
	i := slices.Index(g.live, r)
	if i < 0 {
		g.Fatalf("%s ended twice", g.names[r])
	}
	g.live = slices.Delete(g.live, i, i+1)
	if (r.generated != r.limit) && r.admitted {
		g.Errorf("%s ended with %d tokens, want %d", g.names[r], r.generated, r.limit)
	}
}

func (g *sglRig) check(p *Pass) {
	g.Helper()
	checkOrigins(g, p)
	g.held.apply(g, p.Events)
	if !g.s.tree.silent {
		held := maps.Clone(g.held)
		held.apply(g, g.s.late.Events) // to be told with the next pass
		held.sameAs(g, &g.s.tree)
	}
	b := &p.Batch
	if b.Tokens < b.Prefix || (b.Prompts == 0) != (b.NewTokens() == 0) || b.ActiveBlocks > b.TotalBlocks {
		g.Errorf("pass %d: %+v", len(g.log), *b)
	}
	g.checkPages()
	l := g.e.Load()
	if l.Running+l.Waiting != len(g.live) || g.e.Requests() != len(g.live) {
		g.Errorf("pass %d: %+v with %d requests", len(g.log), l, len(g.live))
	}
}

// checkPages recounts the pages of the pool.
func (g *sglRig) checkPages() {
	g.Helper()
	own := 0
	var holders []*radixNode
	for _, r := range g.live {
		st := &r.sglang
		own += st.pages - st.shared
		if st.pages < st.shared || st.pages < g.s.pagesFor(r.computed) {
			g.Errorf("%s has %d pages, %d of them shared, for %d tokens", g.names[r], st.pages, st.shared, r.computed)
		}
		if st.node == nil {
			continue
		}
		holders = append(holders, st.node)
		depth := 0
		for n := st.node; n != g.s.tree.root; n = n.parent {
			depth += len(n.ids)
		}
		if depth != st.shared {
			g.Errorf("%s holds %d pages of the tree, want %d", g.names[r], depth, st.shared)
		}
	}
	sglCheckTree(g, &g.s.tree, holders)
	if g.s.free < 0 || g.s.free+g.s.tree.pages+own != g.s.cfg.Blocks {
		g.Errorf("%d pages free, %d in the tree, %d with requests, of %d", g.s.free, g.s.tree.pages, own, g.s.cfg.Blocks)
	}
	l := g.e.Load()
	if want := own + g.s.tree.locked; l.ActiveBlocks != want || l.CachedBlocks != g.s.tree.pages-g.s.tree.locked {
		g.Errorf("load %+v with %d pages in use", l, want)
	}
}

// drain runs passes until nothing is left to do.
func (g *sglRig) drain(limit int) {
	g.Helper()
	for n := 0; g.e.Busy(); n++ {
		if n == limit {
			g.Fatalf("busy after %d passes:\n%s", n, strings.Join(g.log[max(0, len(g.log)-10):], "\n"))
		}
		g.step()
	}
	if g.s.tree.locked != 0 || g.s.free+g.s.tree.pages != g.s.cfg.Blocks {
		g.Errorf("idle with %d pages locked, %d free, %d in the tree", g.s.tree.locked, g.s.free, g.s.tree.pages)
	}
}

// steps runs n passes and compares their log.
func (g *sglRig) steps(want ...string) {
	g.Helper()
	from := len(g.log)
	for range want {
		g.step()
	}
	if diff := cmp.Diff(want, g.log[from:]); diff != "" {
		g.Errorf("passes (-want +got):\n%s", diff)
	}
}
