package replay

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/internal/simengine"
	"github.com/stator-ai/stator/internal/trace"
)

// queueAt is a queue in which requests wait while every rank has more prompt tokens
// to compute than that.
func queueAt(tokens int) *router.QueueConfig {
	return &router.QueueConfig{QueueConfig: sched.QueueConfig{
		Classes: []sched.Class{{Name: "default", Quantum: 1, BusyTokens: &tokens}},
	}}
}

// burst is n requests of their own that come at once, with prompts as long as
// input says.
func burst(n int, input func(i int) int) *trace.Trace {
	tr := &trace.Trace{BlockSize: 512}
	for i := range n {
		tr.Requests = append(tr.Requests, trace.Request{Input: input(i), Output: 4})
	}
	return tr
}

// TestWait: one engine, which is busy with any prompt. A prompt and its first token
// take 11 ms, and the next goes in when it is there.
func TestWait(t *testing.T) {
	var log strings.Builder
	cfg := Config{Engines: 1, Engine: fixed(10*time.Millisecond, time.Millisecond), Log: &log, Router: router.Config{Queue: queueAt(0)}}
	tr := burst(3, func(int) int { return 10 })
	tr.Requests[2].Session, tr.Requests[2].Follows = "a", true
	tr.Requests[1].Session = "a"
	rep, err := Run(t.Context(), cfg, tr)
	if err != nil {
		t.Fatal(err)
	}
	ms := time.Millisecond
	type times struct{ Arrived, Placed, First time.Duration }
	var got []times
	for _, r := range rep.Results {
		got = append(got, times{r.Arrived, r.Placed, r.First})
	}
	want := []times{
		{0, 0, 11 * ms},
		{0, 11 * ms, 22 * ms}, // with the second token of the first
		{25 * ms, 25 * ms, 36 * ms},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, &log)
	}
	if rep.Wait.Max != 11 || rep.Wait.Min != 0 || rep.TTFT.Max != 22 {
		t.Errorf("waits %+v, TTFT %+v", rep.Wait, rep.TTFT)
	}
	for _, line := range []string{"0 wait 1\n", "11000000 place 1 on 1/0: only, overlap 0 of 1, score 0.15625, tied 0, waited 11000000\n"} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("no line %q in the log:\n%s", line, &log)
		}
	}
}

// TestQueueLimit: whoever finds too many waiting is refused, and whoever follows in
// its session comes all the same.
func TestQueueLimit(t *testing.T) {
	queue, most := queueAt(0), 1
	queue.Classes[0].MaxRequests = &most
	tr := burst(5, func(int) int { return 10 })
	tr.Requests[3].Session = "a"
	tr.Requests[4].Session, tr.Requests[4].Follows, tr.Requests[4].Delay = "a", true, time.Second
	rep, err := Run(t.Context(), Config{Engines: 1, Router: router.Config{Queue: queue}}, tr)
	if err != nil {
		t.Fatal(err)
	}
	var done []bool
	for _, r := range rep.Results {
		done = append(done, r.Done)
	}
	if diff := cmp.Diff([]bool{true, true, false, false, true}, done); diff != "" || rep.Refused != 2 || rep.Completed != 3 {
		t.Errorf("done (-want +got):\n%s\n%v", diff, rep)
	}
}

// TestPrepare: what is changed of a request reaches the router.
func TestPrepare(t *testing.T) {
	cfg := Config{Engines: 3, Prepare: func(i int, q *router.Request) { q.Pinned, q.Pin = true, kv.WorkerID(i%2+2) }}
	rep, err := Run(t.Context(), cfg, small(1, 10))
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range rep.Results {
		if r.Worker != kv.WorkerID(i%2+2) {
			t.Errorf("request %d ran on worker %d, want %d", i, r.Worker, i%2+2)
		}
	}
	cfg.Prepare = func(_ int, q *router.Request) { q.Pinned, q.Pin = true, 9 }
	var pin *router.PinError
	if _, err := Run(t.Context(), cfg, small(1, 10)); !errors.As(err, &pin) || pin.Worker != 9 {
		t.Errorf("error %v, want one that names worker 9", err)
	}
}

// TestHints: what the trace says of urgency and of the length of answers reaches the
// router, unless the lengths are known.
func TestHints(t *testing.T) {
	tr := burst(3, func(int) int { return 10 })
	tr.Requests[0].Hints = &trace.Hints{OSL: new(uint32(7)), Priority: new(int32(3)), StrictPriority: new(uint32(2))}
	tr.Requests[1].Hints = &trace.Hints{}
	type hints struct {
		Expected int
		Jump     float64
		Tier     uint32
	}
	for known, want := range map[bool][]hints{
		false: {{7, 3, 2}, {}, {}},
		true:  {{4, 3, 2}, {4, 0, 0}, {4, 0, 0}},
	} {
		var got []hints
		_, err := Run(t.Context(), Config{Engines: 1, KnownOutput: known, Prepare: func(_ int, q *router.Request) {
			got = append(got, hints{q.ExpectedOutput, q.Jump, q.Tier})
		}}, tr)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("known %v (-want +got):\n%s", known, diff)
		}
	}
}

// TestPriorities: under contention urgent requests wait less, be it by a head start
// or by a tier of their own; nobody is left out.
func TestPriorities(t *testing.T) {
	for _, tc := range []struct {
		name  string
		raise func(*router.Request)
		most  float64 // of the others' wait
	}{
		{"head start of 20 s", func(q *router.Request) { q.Jump = 20 }, 0.25},
		{"tier", func(q *router.Request) { q.Tier = 1 }, 0.25},
		{"none", func(*router.Request) {}, 1.2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tr := small(6, 900)
			for i := range tr.Requests {
				tr.Requests[i].Session, tr.Requests[i].Follows = "", false
				tr.Requests[i].Arrival /= 4
			}
			cfg := Config{Engines: 2, Ranks: 2, Router: router.Config{Queue: queueAt(8000)}, Engine: simengine.Config{Speedup: 0.2}}
			cfg.Prepare = func(i int, q *router.Request) {
				if i%4 == 0 {
					tc.raise(q)
				}
			}
			rep, err := Run(t.Context(), cfg, tr)
			if err != nil {
				t.Fatal(err)
			}
			var urgent, others []time.Duration
			for i := range rep.Results {
				if w := rep.Results[i].Wait(); i%4 == 0 {
					urgent = append(urgent, w)
				} else {
					others = append(others, w)
				}
			}
			u, o := Describe(urgent), Describe(others)
			t.Logf("urgent requests wait %.0f ms on average and %.0f ms at p95, others %.0f and %.0f", u.Mean, u.P95, o.Mean, o.P95)
			if rep.Completed != len(tr.Requests) || o.Mean < 1000 {
				t.Fatalf("%d requests done, waits of %.0f ms on average: want all, and contention", rep.Completed, o.Mean)
			}
			if u.Mean > tc.most*o.Mean || tc.most > 1 && u.Mean < o.Mean/tc.most {
				t.Errorf("urgent requests wait %.0f ms and others %.0f ms", u.Mean, o.Mean)
			}
		})
	}
}

// TestTenants: one of two tenants floods the queue. While both wait, each gets half
// of the tokens, however many requests it has and however long they are. Who asks for
// less than half hardly waits.
func TestTenants(t *testing.T) {
	const n, fifth = 1500, 5 // one request in five is the quiet tenant's
	quiet := func(i int) bool { return i%fifth == 0 }
	side := func(i int) int { // 0 is the quiet one
		if quiet(i) {
			return 0
		}
		return 1
	}
	run := func(tr *trace.Trace) *Report {
		cfg := Config{Engines: 2, Ranks: 2, Router: router.Config{Queue: queueAt(8000)}}
		cfg.Prepare = func(i int, q *router.Request) {
			q.Tenant = "loud"
			if quiet(i) {
				q.Tenant = "quiet"
			}
		}
		rep, err := Run(t.Context(), cfg, tr)
		if err != nil {
			t.Fatal(err)
		}
		if rep.Completed != n {
			t.Fatalf("%d requests done, want %d", rep.Completed, n)
		}
		return rep
	}
	traffic := func() *trace.Trace {
		return burst(n, func(i int) int {
			if quiet(i) {
				return 1000 + i%700
			}
			return 3000 + i%2000
		})
	}

	t.Run("both wait", func(t *testing.T) {
		tr := traffic()
		for i := range tr.Requests {
			if quiet(i) {
				tr.Requests[i].Arrival = time.Millisecond // the flood is there before
			}
		}
		rep := run(tr)
		end := time.Duration(0) // from then on only the loud tenant waits
		for i := range rep.Results {
			if quiet(i) {
				end = max(end, rep.Results[i].Placed)
			}
		}
		var tokens, longest [2]int
		for i := range rep.Results {
			if r := &rep.Results[i]; r.Wait() > 0 && r.Placed < end {
				k := side(i)
				tokens[k] += tr.Requests[i].Input
				longest[k] = max(longest[k], tr.Requests[i].Input)
			}
		}
		t.Logf("while both wait: %d tokens of the quiet tenant, %d of the loud one", tokens[0], tokens[1])
		if tokens[0] < 100*longest[0] {
			t.Fatal("they do not wait for long enough to tell anything")
		}
		// Two flows differ by no more than the longest request of each.
		if gap := tokens[0] - tokens[1]; max(gap, -gap) > longest[0]+longest[1] {
			t.Errorf("the quiet tenant got %d tokens and the loud one %d, want at most %d between them", tokens[0], tokens[1], longest[0]+longest[1])
		}
	})

	t.Run("one floods", func(t *testing.T) {
		tr := traffic()
		for i := range tr.Requests {
			tr.Requests[i].Arrival = time.Duration(i) * 10 * time.Millisecond
		}
		rep := run(tr)
		var waits [2][]time.Duration
		for i := range rep.Results {
			k := side(i)
			waits[k] = append(waits[k], rep.Results[i].Wait())
		}
		q, l := Describe(waits[0]), Describe(waits[1])
		t.Logf("the quiet tenant waits %.0f ms on average and %.0f ms at p99, the loud one %.0f and %.0f", q.Mean, q.P99, l.Mean, l.P99)
		if l.Mean < 1000 || q.Mean > 0.1*l.Mean {
			t.Errorf("the quiet tenant waits %.0f ms and the loud one %.0f ms", q.Mean, l.Mean)
		}
	})
}
