package router

import (
	"fmt"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/thompson"
)

func TestStays(t *testing.T) {
	s := newStays(3)
	start := time.Unix(1_700_000_000, 0)
	one, two := kv.Source{Worker: 1}, kv.Source{Worker: 1, Rank: 1}
	for _, c := range []struct {
		what  string
		after time.Duration
		name  string
		ttl   time.Duration
		rank  kv.Source
		want  metrics.Stick
	}{
		{"the first", 0, "a", time.Minute, one, metrics.NoPrevious},
		{"the next", time.Second, "a", time.Minute, one, metrics.Stayed},
		{"another conversation", 2 * time.Second, "b", time.Minute, two, metrics.NoPrevious},
		{"another rank", 30 * time.Second, "a", time.Minute, two, metrics.Switched},
		{"once more", 60 * time.Second, "a", 0, one, metrics.Switched},
		{"long after", 95 * time.Second, "a", time.Minute, one, metrics.NoPrevious},
		{"back again", 96 * time.Second, "a", time.Minute, one, metrics.Stayed},
	} {
		if got := s.move(start.Add(c.after), thompson.NewPrefixID("", c.name), c.ttl, c.rank); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	for i := range 10 {
		s.move(start, thompson.NewPrefixID("", fmt.Sprint(i)), time.Minute, two)
	}
	if n := len(s.known); n != 3 {
		t.Errorf("%d conversations are known, want 3", n)
	}
	s.move(start, thompson.NewPrefixID("", "a"), time.Minute, one)
	s.leave(two)
	if n := len(s.known); n != 1 {
		t.Errorf("%d conversations are known, want that on the rank that stayed", n)
	}
	if n := newStays(0).max; n != thompson.DefaultMaxPrefixes {
		t.Errorf("%d at most, want as many as are counted", n)
	}
}

// What is shown of the reference policy is shown of the others, as far as they have it.
func TestSafeMetrics(t *testing.T) {
	for name, bandit := range map[string]*BanditConfig{
		"safe": safePolicy(nil), "shadow": safePolicy(func(c *thompson.SafeConfig) { c.Shadow = true }),
	} {
		t.Run(name, func(t *testing.T) {
			c := new(clock)
			r, m := crew(t, Config{Mode: KV, Now: c.time, Virtual: true, Bandit: bandit}, tellers(2)...)
			prompt := tokensOf(1, 64)
			request := func(worker uint64) *Request {
				q := ask(m, prompt)
				q.Prefix, q.TotalRequests, q.Allowed = "conversation", 20, []uint64{worker}
				return q
			}
			want := func(what string, latency, reward, stayed, switched float64) {
				t.Helper()
				for name, want := range map[string]float64{
					"thompson_router_feedback_latency_seconds": latency,
					"thompson_router_reward":                   reward,
					"thompson_router_sticky_decisions_total":   stayed,
					"thompson_router_switch_decisions_total":   switched,
					"thompson_router_beta_alpha":               0,
				} {
					if got := sum(t, r.cfg.Metrics, name); got != want {
						t.Errorf("%s: %s is %v, want %v", what, name, got, want)
					}
				}
			}
			for _, o := range []Outcome{Cancelled, Refused, Failed} {
				c.serve(t, r, request(1), time.Second, o)
			}
			mustPlace(t, r, request(1)).Done(Completed) // the request makes no sense
			want("without an answer", 0, 0, 3, 0)

			store(t, r, 1, 0, kv.Device, prompt, 0, 2)
			c.serve(t, r, request(1), time.Second, Completed)
			itl := time.Second / 49
			want("the engine does not say", 2, thompson.Reward(0.5, time.Second, itl), 4, 0)

			p := mustPlace(t, r, request(1))
			c.pass(time.Second)
			p.FirstToken()
			c.pass(time.Second)
			p.Output(50)
			p.Usage(64, 48)
			p.Done(Completed)
			want("the engine says", 4, thompson.Reward(0.75, time.Second, itl), 5, 0)

			q := request(1)
			q.Whole = true
			p = mustPlace(t, r, q)
			c.pass(3 * time.Second)
			p.Whole(10)
			p.Done(Completed)
			want("at once", 7, thompson.Reward(0.5, 3*time.Second, 0), 6, 0)

			q = request(2)
			q.Pinned, q.Pin = true, 2
			mustPlace(t, r, q).Done(Cancelled)
			want("pinned", 7, thompson.Reward(0.5, 3*time.Second, 0), 6, 0)
			mustPlace(t, r, request(1)).Done(Cancelled)
			want("back again", 7, thompson.Reward(0.5, 3*time.Second, 0), 6, 1)
			r.Remove(1)
			mustPlace(t, r, request(2)).Done(Cancelled)
			if n := sum(t, r.cfg.Metrics, "thompson_router_switch_decisions_total"); n != 1 {
				t.Errorf("%v have switched, want 1: the rank is gone", n)
			}
		})
	}
}

// The reference begins a conversation anew that goes on beyond its total, and takes a client
// by its word that does not name it. The others expect nothing more.
func TestCountsBeyondTheTotal(t *testing.T) {
	for name, bandit := range learners(t) {
		r, m := crew(t, Config{Mode: KV, Bandit: bandit}, tellers(2)...)
		b := r.bandits()[0].bandit
		budgets := func(prefix string) (out []int) {
			for range 6 {
				q := ask(m, tokensOf(1, 64))
				q.Prefix, q.TotalRequests = prefix, 4
				mustPlace(t, r, q).Done(Completed)
				out = append(out, b.request.Budget)
			}
			return out
		}
		named, unnamed := "[3 2 1 0 0 0]", "[0 0 0 0 0 0]"
		if name == "reference" {
			named, unnamed = "[3 2 1 0 3 2]", "[3 3 3 3 3 3]"
		}
		if got := fmt.Sprint(budgets("conversation")); got != named {
			t.Errorf("%s: %s are to come, want %s", name, got, named)
		}
		if got := fmt.Sprint(budgets("")); got != unnamed {
			t.Errorf("%s: without a name %s are to come, want %s", name, got, unnamed)
		}
	}
}
