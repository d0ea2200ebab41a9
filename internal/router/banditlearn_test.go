package router

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/thompson"
)

func draws() *thompson.RandDraws { return thompson.NewDraws(rand.New(rand.NewPCG(1, 2))) }

// outcomes are all there are.
var outcomes = []Outcome{Completed, Cancelled, Refused, Failed, Unreachable, Broken}

// Nothing is learned about a worker from a request that ends before its first token, however
// it does, and from others what was seen of them.
func TestSafeLearnsFromWhatIsSeen(t *testing.T) {
	for _, o := range outcomes {
		for _, first := range []bool{false, true} {
			c := new(clock)
			r, m := crew(t, Config{Mode: KV, Now: c.time, Virtual: true, Bandit: safePolicy(nil)}, tellers(1)...)
			p := mustPlace(t, r, ask(m, tokensOf(1, 64)))
			c.pass(time.Second)
			want := 0.0
			if first {
				p.FirstToken()
				p.Output(1)
				want = 1
			}
			c.pass(time.Second)
			p.Done(o)
			if n := float64(*r.Bandits()[0].Ranks[0].Observations); n != want {
				t.Errorf("outcome %d, first token %v: learned from %v, want %v", o, first, n, want)
			}
		}
	}
}

// An answer has its reward, a failure of the engine has none, and what is nobody's fault or
// the client's counts for nothing.
func TestReferenceLearnsFromWhatIsSeen(t *testing.T) {
	type counts struct{ Alpha, Beta float64 }
	nothing, failure, answer := counts{1, 1}, counts{1, 2}, counts{1.5, 1.5}
	stream := func(p *Placement) { p.FirstToken(); p.Output(10) }
	whole := func(p *Placement) { p.Whole(10) }
	for name, answers := range map[string]func(*Placement){"nothing came": nil, "a stream": stream, "a whole": whole} {
		for _, o := range outcomes {
			c := new(clock)
			r, m := crew(t, Config{Mode: KV, Now: c.time, Virtual: true, Bandit: referencePolicy(t)}, tellers(1)...)
			q := ask(m, tokensOf(1, 64))
			q.Whole = name == "a whole"
			p := mustPlace(t, r, q)
			c.pass(time.Second)
			if answers != nil {
				answers(p)
			}
			p.Done(o)
			want := failure
			switch {
			case o == Completed && answers != nil:
				want = answer
			case o == Completed, o == Cancelled, o == Refused: // completed without an answer: the request makes no sense
				want = nothing
			}
			rank := r.Bandits()[0].Ranks[0]
			if got := (counts{float64(*rank.Alpha), float64(*rank.Beta)}); got != want {
				t.Errorf("%s, outcome %d: %+v, want %+v", name, o, got, want)
			}
			if n := r.Bandits()[0].Pending; n != 0 {
				t.Errorf("%s, outcome %d: %d pending", name, o, n)
			}
		}
	}
}

// The latency goes from when the request was sent to the end of the answer, as it came from
// the engine.
func TestReferenceLatency(t *testing.T) {
	for _, c := range []struct {
		name     string
		answer   func(*clock, *Placement)
		latency  float64 // seconds
		perToken float64 // milliseconds; of the whole if negative
	}{
		{"stream", func(c *clock, p *Placement) {
			c.pass(time.Second)
			p.FirstToken()
			p.Output(1)
			c.pass(time.Second)
			p.Output(9)
		}, 2, 200},
		{"long stream", func(c *clock, p *Placement) {
			c.pass(time.Second)
			p.FirstToken()
			for range 50 {
				p.Output(2)
				c.pass(100 * time.Millisecond)
			}
			p.Output(100)
		}, 6, 30},
		{"unary", func(c *clock, p *Placement) {
			c.pass(3 * time.Second)
			p.Whole(10)
		}, 3, 300},
		{"bytes that nobody counts", func(c *clock, p *Placement) {
			c.pass(time.Second)
			p.Whole(0)
			c.pass(2 * time.Second)
		}, 8, -8000},
	} {
		k := new(clock)
		r, m := crew(t, Config{Mode: KV, Now: k.time, Virtual: true, Bandit: referencePolicy(t)}, tellers(1)...)
		q := ask(m, tokensOf(1, 64))
		q.Whole = c.name == "unary"
		p := mustPlace(t, r, q)
		c.answer(k, p)
		k.pass(5 * time.Second) // the client is slow
		p.Done(Completed)
		if got := sum(t, r.cfg.Metrics, "thompson_router_feedback_latency_seconds"); got != c.latency {
			t.Errorf("%s: %v s, want %v", c.name, got, c.latency)
		}
		var file struct {
			Pools map[string]struct {
				Reference struct {
					Latency [2]float64 `json:"latency_ms"`
				}
			}
		}
		if err := json.Unmarshal(save(t, r), &file); err != nil {
			t.Fatal(err)
		}
		got, want := file.Pools["m/16"].Reference.Latency, [2]float64{c.perToken, -1}
		if c.perToken < 0 {
			want = [2]float64{-1, -c.perToken}
		}
		if got != want {
			t.Errorf("%s: averages %v, want %v", c.name, got, want)
		}
	}
}

// A request that waited in our queue is decided by what is when it leaves, and its worker is
// not blamed for the wait.
func TestPolicyOfWhatWaited(t *testing.T) {
	for name, bandit := range learners(t) {
		run := func(waits bool) (string, *Placement) {
			c := new(clock)
			cfg := Config{Mode: KV, Now: c.time, Virtual: true, Bandit: bandit, Queue: queueOf(100)}
			r, m := crew(t, cfg, tellers(1)...)
			before := ask(m, tokensOf(1, 960))
			before.Pinned, before.Pin = true, 1
			busy := mustPlace(t, r, before)
			q := ask(m, tokensOf(2, 320))
			var p *Placement
			submit := func() {
				r.Submit(q, func(pl *Placement, err error) {
					if err != nil {
						t.Fatal(err)
					}
					p = pl
				})
			}
			if waits {
				submit()
				if p != nil {
					t.Fatal("it did not wait")
				}
			}
			c.pass(30 * time.Second)
			busy.FirstToken()
			if !waits {
				submit()
			}
			c.pass(100 * time.Millisecond)
			pool := r.bandits()[0]
			pool.mu.Lock()
			pool.bandit.tick(pool, c.time()) // it is late, but not by that much
			pool.mu.Unlock()
			p.FirstToken()
			for range 20 {
				c.pass(20 * time.Millisecond)
				p.Output(2)
			}
			p.Done(Completed)
			busy.Done(Completed)
			return string(save(t, r)), p
		}
		want, at := run(false)
		got, waited := run(true)
		if waited.Waited() != 30*time.Second {
			t.Fatalf("%s: it waited for %v", name, waited.Waited())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: learned (-without +with the wait):\n%s", name, diff)
		}
		if diff := cmp.Diff(jsonOf(t, at.Routing.Candidates), jsonOf(t, waited.Routing.Candidates)); diff != "" {
			t.Errorf("%s: decided by (-without +with the wait):\n%s", name, diff)
		}
	}
}

// What the first attempt took is not the second's, whose worker is another.
func TestPolicyOfRetries(t *testing.T) {
	for name, bandit := range learners(t) {
		run := func(first bool) (w kv.WorkerID, out []BanditRank) {
			c := new(clock)
			r, m := crew(t, Config{Mode: KV, Now: c.time, Virtual: true, Bandit: bandit}, tellers(2)...)
			q := ask(m, tokensOf(1, 64))
			if first {
				p := mustPlace(t, r, q)
				w = workerOf(p)
				c.pass(10 * time.Second)
				p.Done(Broken)
			} else {
				r.decisions.Add(1)
				w = 2
				c.pass(10 * time.Second)
			}
			q.Attempt, q.Exclude = 1, []kv.WorkerID{w}
			c.serve(t, r, q, 100*time.Millisecond, Completed)
			return w, r.Bandits()[0].Ranks
		}
		failed, got := run(true)
		_, want := run(false) // worker 1 alone
		if failed == 1 {
			got[0], got[1] = got[1], got[0]
		}
		if diff := cmp.Diff(jsonOf(t, []any{want[0].Alpha, want[0].Beta, want[0].Offset, want[0].Observations}),
			jsonOf(t, []any{got[0].Alpha, got[0].Beta, got[0].Offset, got[0].Observations})); diff != "" {
			t.Errorf("%s: learned of the second (-alone +after the first):\n%s", name, diff)
		}
		if f := got[1]; name == "safe" && *f.Observations != 0 || name == "reference" && (*f.Alpha != 1 || *f.Beta != 2) {
			t.Errorf("%s: learned of the first: %s", name, jsonOf(t, f))
		}
	}
}

// Every request of a conversation that is placed counts once, whoever decides.
func TestPolicyCountsConversations(t *testing.T) {
	for name, bandit := range learners(t) {
		r, m := crew(t, Config{Mode: KV, Bandit: bandit}, tellers(2)...)
		b := r.bandits()[0].bandit
		request := func(change func(*Request)) *Request {
			q := ask(m, tokensOf(1, 64))
			q.Prefix, q.Tenant, q.TotalRequests = "conversation", "tenant", 10
			if change != nil {
				change(q)
			}
			return q
		}
		budget := func(what string, want int, change func(*Request)) {
			t.Helper()
			mustPlace(t, r, request(change)).Done(Completed)
			if got := b.request.Budget; got != want {
				t.Errorf("%s: %s: %d are to come, want %d", name, what, got, want)
			}
		}
		budget("the first", 9, nil)
		budget("pinned", 8, func(q *Request) { q.Pinned, q.Pin = true, 2 })
		budget("at once", 7, func(q *Request) { q.Whole = true })
		if _, err := r.Reserve(t.Context(), request(func(q *Request) { q.ID = "remote" }), time.Minute); err != nil {
			t.Fatal(err)
		}
		query(t, r, request(nil))
		budget("after one that runs elsewhere, and a question", 5, nil)
		if _, err := r.Place(t.Context(), request(func(q *Request) { q.Allowed = []uint64{7} })); err == nil {
			t.Fatal("placed on nobody")
		}
		again := 0
		if b.reference != nil {
			again = 5 // as the first attempt; others do not look at it
		}
		budget("once more", again, func(q *Request) { q.Attempt, q.Exclude = 1, []kv.WorkerID{1} })
		budget("the next", 4, nil)
		budget("of somebody else", 9, func(q *Request) { q.Tenant = "other" })
		if got := b.prefixes.Len(); got != 2 {
			t.Errorf("%s: %d conversations, want 2", name, got)
		}
	}
}

// A conversation goes where its request was placed once more.
func TestReferenceConversationFollowsRetry(t *testing.T) {
	r, m := crew(t, Config{Mode: KV, Bandit: referencePolicy(t)}, tellers(2)...)
	q := ask(m, tokensOf(1, 64))
	q.Prefix, q.TotalRequests = "conversation", 5
	first := mustPlace(t, r, q)
	first.Done(Failed)
	q.Attempt, q.Exclude = 1, []kv.WorkerID{workerOf(first)}
	second := mustPlace(t, r, q)
	second.Done(Completed)
	b := r.bandits()[0].bandit.reference
	away, _ := b.Learned(kv.Source{Worker: workerOf(first)})
	at, _ := b.Learned(kv.Source{Worker: workerOf(second)})
	if away.Outstanding != 0 || at.Outstanding == 0 {
		t.Errorf("work to come: %v where it failed, %v where it runs", away.Outstanding, at.Outstanding)
	}
}

// The name of a conversation is hashed once, before the lock is taken.
func TestConversationIsKnownBeforeTheLock(t *testing.T) {
	r, m := crew(t, Config{Mode: KV, Bandit: safePolicy(nil)}, tellers(1)...)
	p := r.bandits()[0]
	for _, c := range []struct {
		name  string
		d     decision
		query bool
		want  thompson.PrefixID
	}{
		{"placed", decision{ordinal: 1}, false, thompson.NewPrefixID("tenant", "conversation")},
		{"asked about", decision{ordinal: 1}, true, thompson.PrefixID{}},
		{"compared", decision{}, false, thompson.PrefixID{}},
	} {
		q := ask(m, tokensOf(1, 64))
		q.Prefix, q.Tenant, q.QueryOnly = "conversation", "tenant", c.query
		choice := newChoice(p, time.Now(), q, c.d)
		p.mu.Lock() // which it does not need
		choice.look()
		p.mu.Unlock()
		if choice.conversation != c.want {
			t.Errorf("%s: %x, want %x", c.name, choice.conversation, c.want)
		}
		choice.free()
	}
}

// Decisions that time out are found as often as configured, and each is counted once.
func TestReferenceTimeouts(t *testing.T) {
	for _, c := range []struct {
		name     string
		interval time.Duration
		before   time.Duration // not found then
		found    time.Duration // but then
	}{
		{"often", 100 * time.Millisecond, 150 * time.Millisecond, 350 * time.Millisecond},
		{"always", 0, 150 * time.Millisecond, 300 * time.Millisecond},
		{"every second", time.Second, 150 * time.Millisecond, 1100 * time.Millisecond},
		{"seldom", 10 * time.Second, 9 * time.Second, 12 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bandit := referencePolicy(t)
				bandit.Reference.Timeout, bandit.Reference.SweepInterval = 200*time.Millisecond, c.interval
				r, m := crew(t, Config{Mode: KV, Bandit: bandit}, tellers(2)...)
				defer r.Close()
				count := func() float64 { return sum(t, r.cfg.Metrics, "thompson_router_timeout_penalties_total") }
				p := mustPlace(t, r, ask(m, tokensOf(1, 64)))
				time.Sleep(c.before)
				if n := count(); n != 0 {
					t.Errorf("after %v: %v", c.before, n)
				}
				time.Sleep(c.found - c.before)
				if n := count(); n != 1 {
					t.Errorf("after %v: %v, want 1", c.found, n)
				}
				p.FirstToken()
				p.Output(3)
				p.Done(Completed) // too late
				// Those that requests find are counted, too.
				for range 40 {
					mustPlace(t, r, ask(m, tokensOf(1, 64)))
					time.Sleep(70 * time.Millisecond)
				}
				time.Sleep(2*c.interval + 2*time.Second)
				if n, st := count(), r.Bandits()[0]; n != 41 || *st.Timeouts != 41 || st.Pending != 0 {
					t.Errorf("%v were counted, of %d; %d are pending", n, *st.Timeouts, st.Pending)
				}
			})
		})
	}
}

// In virtual time only requests bring time.
func TestReferenceTimeoutsInVirtualTime(t *testing.T) {
	c := new(clock)
	bandit := referencePolicy(t)
	bandit.Reference.Timeout, bandit.Reference.SweepInterval = 200*time.Millisecond, 10*time.Millisecond
	r, m := crew(t, Config{Mode: KV, Now: c.time, Virtual: true, Bandit: bandit}, tellers(2)...)
	for range 20 {
		mustPlace(t, r, ask(m, tokensOf(1, 64)))
		c.pass(70 * time.Millisecond)
	}
	c.pass(time.Second)
	mustPlace(t, r, ask(m, tokensOf(1, 64))).Done(Cancelled)
	if n := sum(t, r.cfg.Metrics, "thompson_router_timeout_penalties_total"); n != 20 {
		t.Errorf("%v were counted, want 20", n)
	}
}

// What a decision and its feedback say is recorded, although no longer under the lock.
func TestPolicyMetrics(t *testing.T) {
	c := new(clock)
	r, m := crew(t, Config{Mode: KV, Now: c.time, Virtual: true, Bandit: referencePolicy(t)}, tellers(1)...)
	prompt := tokensOf(1, 64)
	store(t, r, 1, 0, kv.Device, prompt, 0, 2)
	for range 2 {
		q := ask(m, prompt)
		q.Prefix, q.TotalRequests = "conversation", 4
		c.serve(t, r, q, time.Second, Completed)
	}
	for name, want := range map[string]float64{
		"thompson_router_decisions_total":          2,
		"thompson_router_kv_overlap":               0.5,
		"thompson_router_reuse_budget":             3 + 2,
		"thompson_router_tokens_per_request":       128,
		"thompson_router_sticky_decisions_total":   1,
		"thompson_router_switch_decisions_total":   0,
		"thompson_router_feedback_latency_seconds": 4,
		"thompson_router_reward":                   0.5,
		"thompson_router_beta_alpha":               2,
		"thompson_router_beta_beta":                2,
	} {
		if got := sum(t, r.cfg.Metrics, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// TestPolicyAllocatesNothing where nobody asks for an explanation.
func TestPolicyAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for name, bandit := range learners(t) {
		r, m := crew(t, Config{Decisions: 16, Bandit: bandit}, tellers(8)...)
		prompt := tokensOf(1, 1600)
		store(t, r, 1, 0, kv.Device, prompt, 0, 50)
		var into Placement
		q := ask(m, prompt)
		q.ExplainAll, q.Into = false, &into
		q.Prefix, q.TotalRequests, q.Tenant = "conversation", 1<<30, "tenant"
		if n := testing.AllocsPerRun(200, func() {
			p, err := r.Place(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			p.FirstToken()
			p.Output(40)
			p.Usage(1600, 800)
			p.Done(Completed)
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
