package router

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/thompson"
	"github.com/stator-ai/stator/nvext"
)

func safePolicy(change func(*thompson.SafeConfig)) *BanditConfig {
	cfg := thompson.DefaultSafe()
	if change != nil {
		change(&cfg)
	}
	return &BanditConfig{Safe: cfg}
}

func referencePolicy(t testing.TB) *BanditConfig {
	t.Helper()
	cfg, err := thompson.ReferenceSet(thompson.SetConfigYAML)
	if err != nil {
		t.Fatal(err)
	}
	return &BanditConfig{Reference: &cfg}
}

// clock is one that tests move. Workers are watched by it, too.
type clock struct{ passed atomic.Int64 } // nanoseconds

func (c *clock) time() time.Time { return time.Unix(1_700_000_000, c.passed.Load()) }

func (c *clock) pass(d time.Duration) { c.passed.Add(int64(d)) }

// serve places a request, has its first token come after so long, and its end a second
// later.
func (c *clock) serve(t *testing.T, r *Router, q *Request, ttft time.Duration, o Outcome) *Placement {
	t.Helper()
	p := mustPlace(t, r, q)
	c.pass(ttft)
	p.FirstToken()
	c.pass(time.Second)
	p.Output(50)
	p.Done(o)
	return p
}

// A worker that is slower than its load says is found out, and others get its requests.
func TestSafePolicyLearns(t *testing.T) {
	c := new(clock)
	r, m := crew(t, Config{Mode: KV, Now: c.time, Virtual: true, Bandit: safePolicy(nil)}, tellers(2)...)
	share := func(n int) (slow int) {
		for i := range n {
			q := ask(m, tokensOf(1+i%50, 160))
			p := mustPlace(t, r, q)
			ttft := 50 * time.Millisecond
			if p.Last().Target.Worker == 2 {
				slow++
				ttft = 2 * time.Second
			}
			c.pass(ttft)
			p.FirstToken()
			p.Done(Completed)
		}
		return slow
	}
	share(200)
	if slow := share(100); slow > 25 {
		t.Errorf("the slow one of two idle workers has %d of 100 requests", slow)
	}
	st := r.Bandits()
	if len(st) != 1 || st[0].Mode != "safe" || st[0].Pending != 0 || *st[0].Ranks[0].Offset >= *st[0].Ranks[1].Offset {
		t.Errorf("status %s", jsonOf(t, st))
	}
}

func TestPolicyExplained(t *testing.T) {
	for name, bandit := range map[string]*BanditConfig{
		"safe": safePolicy(nil), "shadow": safePolicy(func(c *thompson.SafeConfig) { c.Shadow = true }), "reference": referencePolicy(t),
	} {
		t.Run(name, func(t *testing.T) {
			r, m := crew(t, Config{Mode: KV, Bandit: bandit, Decisions: 4}, tellers(3)...)
			q := ask(m, tokensOf(1, 320))
			q.Prefix, q.TotalRequests = "conversation", 4
			p := mustPlace(t, r, q)
			defer p.Done(Completed)
			rt := p.Routing
			if rt.Policy != "thompson" || rt.Cost == nil || len(rt.Candidates) != 3 {
				t.Errorf("explained as %s", jsonOf(t, rt))
			}
			sum := 0.0
			for _, cand := range rt.Candidates {
				sum += float64(*cand.Propensity)
				terms := 0.0
				for _, term := range cand.PolicyTerms {
					terms += float64(term.Value)
				}
				if d := terms - float64(*cand.PolicyScore); d > 1e-9 || d < -1e-9 {
					t.Errorf("terms sum to %v of %s", terms, jsonOf(t, cand))
				}
			}
			if sum < 0.999 || sum > 1.001 {
				t.Errorf("propensities sum to %v", sum)
			}
			want := nvext.ReasonThompson
			if name == "shadow" {
				want = nvext.ReasonCost
			}
			if rt.Reason != want {
				t.Errorf("reason %s, want %s", rt.Reason, want)
			}
			kept := r.Decisions(1, func(string, string, uint64) bool { return true })
			if diff := cmp.Diff(jsonOf(t, rt), jsonOf(t, kept[0].Routing)); diff != "" {
				t.Errorf("kept (-placed +kept):\n%s", diff)
			}
			if _, err := Rerun(rt); !errors.Is(err, ErrIncomplete) {
				t.Errorf("made again: %v", err)
			}
			if name == "reference" {
				if n := r.Bandits()[0].Prefixes; n != 1 {
					t.Errorf("%d conversations", n)
				}
			}
		})
	}
}

// What is pinned, only asked about or run by somebody else is not the policy's.
func TestPolicyLeavesOthersAlone(t *testing.T) {
	r, m := crew(t, Config{Mode: KV, Bandit: safePolicy(nil)}, tellers(2)...)
	query(t, r, ask(m, tokensOf(1, 64)))
	remote := ask(m, tokensOf(1, 64))
	remote.ID = "remote"
	if _, err := r.Reserve(t.Context(), remote, time.Minute); err != nil {
		t.Fatal(err)
	}
	q := ask(m, tokensOf(1, 64))
	q.Pinned, q.Pin = true, 2
	p := mustPlace(t, r, q)
	if n := r.Bandits()[0].Pending; n != 0 || p.Routing.Policy != "cost" || p.Routing.PolicyDecision != nil {
		t.Errorf("%d decisions are pending; explained as %s", n, jsonOf(t, p.Routing))
	}
	p.Done(Completed)
}

// However a request ends, its decision does.
func TestPolicyEndsWithItsRequests(t *testing.T) {
	for name, bandit := range map[string]*BanditConfig{"safe": safePolicy(nil), "reference": referencePolicy(t)} {
		c := new(clock)
		r, m := crew(t, Config{Mode: KV, Now: c.time, Virtual: true, Bandit: bandit}, tellers(2)...)
		for _, o := range []Outcome{Completed, Cancelled, Refused, Failed, Unreachable, Broken} {
			c.pass(time.Minute) // nobody is left alone any more
			c.serve(t, r, ask(m, tokensOf(1, 64)), time.Second, o)
			p := mustPlace(t, r, ask(m, tokensOf(1, 64)))
			p.Done(o) // before its first token
		}
		if n := r.Bandits()[0].Pending; n != 0 {
			t.Errorf("%s: %d decisions are pending", name, n)
		}
	}
}

// Where a model has several pools, only the one that gets a request decides.
func TestPolicyOfSeveralPools(t *testing.T) {
	specs := make([]Spec, 4)
	for i := range specs {
		specs[i] = Spec{Events: true, Engine: &stubEngine{models: []engine.Model{{ID: "m", BlockSize: 16 << (i % 2)}}}}
	}
	for name, bandit := range map[string]*BanditConfig{"safe": safePolicy(nil), "reference": referencePolicy(t)} {
		c := new(clock)
		r, m := crew(t, Config{Mode: KV, Now: c.time, Virtual: true, Bandit: bandit}, specs...)
		for i := range 50 {
			c.serve(t, r, ask(m, tokensOf(i, 64)), time.Second, Completed)
		}
		for _, st := range r.Bandits() {
			if st.Pending != 0 {
				t.Errorf("%s: %d decisions are pending in the pool with blocks of %d", name, st.Pending, st.BlockSize)
			}
		}
	}
}

// A choice that served another policy before explains nothing of it.
func TestPolicyExplainedOnce(t *testing.T) {
	safe, m := crew(t, Config{Mode: KV, Bandit: safePolicy(nil)}, tellers(2)...)
	reference, n := crew(t, Config{Mode: KV, Bandit: referencePolicy(t)}, tellers(2)...)
	for range 20 {
		a, b := mustPlace(t, safe, ask(m, tokensOf(1, 64))), mustPlace(t, reference, ask(n, tokensOf(1, 64)))
		for _, p := range []struct {
			pl   *Placement
			term string
		}{{a, "prior"}, {b, "noise"}} {
			if terms := p.pl.Routing.Chosen.PolicyTerms; !slices.ContainsFunc(terms, func(t nvext.Term) bool { return t.Name == p.term }) {
				t.Fatalf("explained by %v, want %s among them", terms, p.term)
			}
		}
		a.Done(Completed)
		b.Done(Completed)
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		t.Fatalf("%s\nor %s\nis no JSON", a, b)
	}
	return strings.TrimSpace(jsonOf(t, x)) == strings.TrimSpace(jsonOf(t, y))
}
