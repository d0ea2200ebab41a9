package router

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/sched"
)

// queueOf returns a queue of one class in which a rank is busy that has more than so
// many tokens to compute.
func queueOf(tokens int) *QueueConfig {
	return &QueueConfig{QueueConfig: sched.QueueConfig{Classes: []sched.Class{{Name: "default", Quantum: 1, BusyTokens: &tokens}}}}
}

// waiting is a call of Place in another goroutine.
type waiting struct {
	done   chan struct{}
	pl     *Placement
	err    error
	cancel context.CancelFunc
}

func waitFor(t *testing.T, r *Router, q *Request) *waiting {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &waiting{done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(w.done)
		w.pl, w.err = r.Place(ctx, q)
	}()
	synctest.Wait()
	return w
}

// returned reports whether the call has.
func (w *waiting) returned() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// placed returns the placement that there has to be.
func (w *waiting) placed(t *testing.T) *Placement {
	t.Helper()
	if !w.returned() {
		t.Fatal("it still waits")
	}
	if w.err != nil {
		t.Fatalf("Place: %v", w.err)
	}
	return w.pl
}

// still fails unless the call has not returned.
func (w *waiting) still(t *testing.T) {
	t.Helper()
	if w.returned() {
		t.Fatalf("it does not wait: %v, %v", w.pl, w.err)
	}
}

// idle fails unless nothing waits in the model's queues and nothing is booked.
func idle(t *testing.T, r *Router, m *Model) {
	t.Helper()
	if got := loads(m); got != (load{}) {
		t.Errorf("left over: %+v", got)
	}
	for _, p := range m.pools {
		p.mu.Lock()
		n, tokens := p.line.pending()
		if l := p.line; l != nil && (l.queue.Len() != 0 || n != 0 || tokens != 0) {
			t.Errorf("%d wait, with %d tokens", n, tokens)
		}
		if s, b := p.ledger.Stats(); s != 0 || b != 0 {
			t.Errorf("%d blocks in %d stretches are left", b, s)
		}
		p.mu.Unlock()
	}
	set := r.cfg.Metrics
	r.CountWorkers()
	for _, name := range []string{
		"stator_queue_requests", "stator_queue_prompt_tokens", "stator_queue_cached_tokens", "stator_worker_active_requests",
		"dynamo_frontend_router_queue_pending_requests", "dynamo_frontend_router_queue_pending_isl_tokens",
	} {
		if got := sum(t, set, name); got != 0 {
			t.Errorf("%s is %v", name, got)
		}
	}
}

func TestBusyRanksAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{Queue: queueOf(100)}, Spec{}, Spec{})
		a := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		b := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		if workerOf(a) == workerOf(b) {
			t.Fatal("both on one worker")
		}
		first := waitFor(t, r, &Request{Model: m, PromptTokens: 1000})
		second := waitFor(t, r, &Request{Model: m, PromptTokens: 1000})
		first.still(t)
		for name, want := range map[string]float64{
			"stator_queue_requests": 2, "stator_queue_prompt_tokens": 2000,
			"dynamo_frontend_router_queue_pending_requests": 2, "dynamo_frontend_router_queue_pending_isl_tokens": 2000,
		} {
			if got := sum(t, r.cfg.Metrics, name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		if _, n, tokens := r.PotentialLoads(&Request{Model: m, PromptTokens: 10}); n != 2 || tokens != 2000 {
			t.Errorf("%d wait with %d tokens", n, tokens)
		}
		a.FirstToken()
		synctest.Wait()
		p := first.placed(t)
		second.still(t)
		b.Done(Completed)
		synctest.Wait()
		q := second.placed(t)
		for _, p := range []*Placement{a, p, q} {
			p.Done(Completed)
		}
		idle(t, r, m)
	})
}

// drainOrder submits requests and returns the order in which they are placed; each makes
// room for the next when it is.
func drainOrder(t *testing.T, r *Router, m *Model, requests []*Request) (order []string) {
	t.Helper()
	busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
	var running []*Placement
	for _, q := range requests {
		q.Model = m
		if q.PromptTokens == 0 {
			q.PromptTokens = 512
		}
		r.Submit(q, func(p *Placement, err error) {
			if err != nil {
				t.Errorf("%s: %v", q.ID, err)
				return
			}
			order = append(order, q.ID)
			running = append(running, p)
		})
		time.Sleep(time.Millisecond) // they come one after another
	}
	if len(order) > 0 {
		t.Fatalf("placed without waiting: %v", order)
	}
	busy.Done(Completed)
	for len(running) > 0 {
		if len(running) > 1 {
			t.Fatalf("%d at once", len(running))
		}
		p := running[0]
		running = nil
		p.Done(Completed)
	}
	idle(t, r, m)
	return order
}

func TestOrderInLine(t *testing.T) {
	class := func(p sched.Policy) *QueueConfig {
		c := queueOf(100)
		c.Classes[0].Policy = p
		return c
	}
	for _, row := range []struct {
		name     string
		cfg      *QueueConfig
		requests []*Request
		want     string
	}{
		{"fcfs", class(sched.FCFS), []*Request{{ID: "a"}, {ID: "b"}, {ID: "c"}}, "a b c"},
		{"lcfs", class(sched.LCFS), []*Request{{ID: "a"}, {ID: "b"}, {ID: "c"}}, "c b a"},
		{"wspt", class(sched.WSPT), []*Request{{ID: "a", PromptTokens: 900}, {ID: "b", PromptTokens: 300}, {ID: "c", PromptTokens: 1000, Jump: 9}}, "c b a"},
		{"jump", class(""), []*Request{{ID: "a"}, {ID: "b", Jump: 5}, {ID: "c", Jump: 9}, {ID: "d", Jump: -9}}, "c b a d"},
		{"jumps are bounded", class(""), []*Request{{ID: "a", Jump: 60}, {ID: "b", Jump: 1e9}}, "a b"},
		{"tier", class(""), []*Request{{ID: "a", Jump: 50}, {ID: "b", Tier: 1}, {ID: "c", Tier: 2}, {ID: "d", Tier: 1}}, "c b d a"},
		{"tenants share", class(""), []*Request{
			{ID: "a1", Tenant: "a"}, {ID: "a2", Tenant: "a"}, {ID: "a3", Tenant: "a"}, {ID: "a4", Tenant: "a"},
			{ID: "b1", Tenant: "b"}, {ID: "b2", Tenant: "b"},
		}, "a1 b1 a2 b2 a3 a4"},
		{"tenants share tokens", class(""), []*Request{
			{ID: "a1", Tenant: "a", PromptTokens: 1000}, {ID: "a2", Tenant: "a", PromptTokens: 1000},
			{ID: "b1", Tenant: "b", PromptTokens: 400}, {ID: "b2", Tenant: "b", PromptTokens: 400}, {ID: "b3", Tenant: "b", PromptTokens: 400}, {ID: "b4", Tenant: "b", PromptTokens: 400},
		}, "a1 b1 b2 b3 a2 b4"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, m := crew(t, Config{Queue: row.cfg}, Spec{})
				if got := strings.Join(drainOrder(t, r, m, row.requests), " "); got != row.want {
					t.Errorf("got %s, want %s", got, row.want)
				}
			})
		})
	}
}

func TestT11Classes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := 100
		cfg := &QueueConfig{QueueConfig: sched.QueueConfig{DefaultFamily: "regular", Classes: []sched.Class{
			{Name: "premium", Quantum: 512, BusyTokens: &busy},
			{Name: "regular", Quantum: 128, BusyTokens: &busy},
			{Name: "free", Quantum: 1},
		}}}
		r, m := crew(t, Config{Queue: cfg}, Spec{})
		var requests []*Request
		for range 8 {
			requests = append(requests, &Request{ID: "p", Class: "premium"})
		}
		for range 8 {
			requests = append(requests, &Request{ID: "r", Class: "nobody knows this one"})
		}
		if got, want := strings.Join(drainOrder(t, r, m, requests), ""), "pppprpppprrrrrrr"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		// A class without threshold does not wait.
		running := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		mustPlace(t, r, &Request{Model: m, Class: "free", PromptTokens: 1000}).Done(Completed)
		running.Done(Completed)
		idle(t, r, m)
	})
}

func TestQueueLimits(t *testing.T) {
	two, tokens := 2, 1500
	for _, row := range []struct {
		name  string
		class sched.Class
		kind  sched.LimitKind
		fit   int
	}{
		{"requests", sched.Class{MaxRequests: &two}, sched.LimitRequests, 4},
		{"tokens", sched.Class{MaxPromptTokens: &tokens}, sched.LimitPromptTokens, 6},
	} {
		synctest.Test(t, func(t *testing.T) {
			busy := 100
			row.class.Name, row.class.Quantum, row.class.BusyTokens = "default", 1, &busy
			r, m := crew(t, Config{Queue: &QueueConfig{QueueConfig: sched.QueueConfig{Classes: []sched.Class{row.class}}}}, Spec{}, Spec{})
			a := mustPlace(t, r, &Request{Model: m, PromptTokens: 512})
			b := mustPlace(t, r, &Request{Model: m, PromptTokens: 512})
			var calls []*waiting
			for range row.fit {
				w := waitFor(t, r, &Request{Model: m, PromptTokens: 512})
				w.still(t)
				calls = append(calls, w)
			}
			_, err := r.Place(t.Context(), &Request{Model: m, PromptTokens: 512})
			var limit *sched.LimitError
			if !errors.As(err, &limit) || limit.Kind != row.kind || limit.Class != "default" {
				t.Errorf("%s: %v", row.name, err)
			}
			if got := sum(t, r.cfg.Metrics, "dynamo_frontend_router_queue_backpressure_total", "model", "m"); got != 1 {
				t.Errorf("%v rejections counted", got)
			}
			// A worker that has gone does not count.
			r.workers[2].discovered.Store(false)
			calls[0].cancel()
			synctest.Wait()
			if _, err := r.Place(t.Context(), &Request{Model: m, PromptTokens: 512}); !errors.As(err, &limit) {
				t.Errorf("%s: with one worker left: %v", row.name, err)
			}
			r.workers[2].discovered.Store(true)
			for _, w := range calls {
				w.cancel()
			}
			synctest.Wait()
			a.Done(Completed)
			b.Done(Completed)
			idle(t, r, m)
		})
	}
}

func TestLongestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := queueOf(100)
		cfg.MaxWait = 7 * time.Second
		r, m := crew(t, Config{Queue: cfg}, Spec{})
		busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		w := waitFor(t, r, &Request{Model: m, PromptTokens: 1000})
		time.Sleep(7*time.Second - time.Millisecond)
		w.still(t)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		var late *WaitError
		if !w.returned() || !errors.As(w.err, &late) || late.Wait != cfg.MaxWait {
			t.Fatalf("after 7 s: %v", w.err)
		}
		if got := sum(t, r.cfg.Metrics, "stator_queue_left_total", "reason", "timeout"); got != 1 {
			t.Errorf("%v left by timeout", got)
		}
		busy.Done(Completed)
		idle(t, r, m)
	})
}

func TestClientLeavesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{Queue: queueOf(100)}, Spec{})
		busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		gone := waitFor(t, r, &Request{Model: m, PromptTokens: 1000})
		stays := waitFor(t, r, &Request{Model: m, PromptTokens: 1000})
		gone.cancel()
		synctest.Wait()
		if !gone.returned() || !errors.Is(gone.err, context.Canceled) {
			t.Fatalf("got %v", gone.err)
		}
		if got := sum(t, r.cfg.Metrics, "stator_queue_left_total", "reason", "cancelled"); got != 1 {
			t.Errorf("%v left by their own will", got)
		}
		busy.Done(Completed)
		synctest.Wait()
		stays.placed(t).Done(Completed)
		idle(t, r, m)
	})
}

// TestClientLeavesWhenItIsItsTurn: whichever comes first, nothing stays booked.
func TestClientLeavesWhenItIsItsTurn(t *testing.T) {
	r, m := crew(t, Config{Queue: queueOf(100)}, Spec{}, Spec{})
	for i := range 2000 {
		a := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		b := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		ctx, cancel := context.WithCancel(t.Context())
		parked := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			close(parked)
			p, err := r.Place(ctx, &Request{Model: m, PromptTokens: 1000})
			if err == nil {
				p.Done(Completed)
			} else if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		<-parked
		for range i % 40 {
			runtime.Gosched()
		}
		wg.Go(cancel)
		wg.Go(func() { a.FirstToken() })
		wg.Wait()
		a.Done(Completed)
		b.Done(Cancelled)
		cancel()
	}
	idle(t, r, m)
}

func TestOneTenantDoesNotStarveTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{Queue: queueOf(100)}, Spec{})
		var requests []*Request
		for i := range 60 {
			requests = append(requests, &Request{ID: "a", Tenant: "a", Jump: 60, Tier: 9})
			if i%6 == 0 {
				requests = append(requests, &Request{ID: "b", Tenant: "b"})
			}
		}
		order := drainOrder(t, r, m, requests)
		if n := strings.Count(strings.Join(order[:20], ""), "b"); n != 10 {
			t.Errorf("%d of the first 20 are of the other tenant, want all 10: %v", n, order)
		}
		if diff := cmp.Diff(70, len(order)); diff != "" {
			t.Error(diff)
		}
	})
}
