package router

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/metrics"
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

func TestNobodyWaitsForNobody(t *testing.T) {
	t.Run("none there", func(t *testing.T) {
		r, m := crew(t, Config{Queue: queueOf(100)}, Spec{})
		r.workers[1].discovered.Store(false)
		if _, err := r.Place(t.Context(), &Request{Model: m, PromptTokens: 10}); !errors.Is(err, ErrNoWorkers) {
			t.Errorf("got %v", err)
		}
		reshape(r, 1)
		m, _ = r.Lookup("m")
		if _, err := r.Place(t.Context(), &Request{Model: m, PromptTokens: 10}); !errors.Is(err, ErrNoWorkers) {
			t.Errorf("without a pool: %v", err)
		}
	})
	t.Run("the last one fails", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, m := crew(t, Config{Queue: queueOf(100)}, Spec{})
			r.workers[1].Engine.(*stubEngine).down.Store(true)
			busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
			w := waitFor(t, r, &Request{Model: m, PromptTokens: 1000})
			pinned := waitFor(t, r, &Request{Model: m, PromptTokens: 1000, Pinned: true, Pin: 1})
			busy.Done(Unreachable)
			synctest.Wait()
			var pin *PinError
			if !w.returned() || !errors.Is(w.err, ErrNoWorkers) || !errors.As(pinned.err, &pin) || pin.Reason != PinUnavailable {
				t.Errorf("%v, %v", w.err, pinned.err)
			}
			idle(t, r, m)
		})
	})
	t.Run("the last one is found dead", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, m := crew(t, Config{Queue: queueOf(100)}, Spec{})
			busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
			w := waitFor(t, r, &Request{Model: m, PromptTokens: 1000})
			r.workers[1].Engine.(*stubEngine).down.Store(true)
			time.Sleep(5 * time.Second) // the next probe
			synctest.Wait()
			if !w.returned() || !errors.Is(w.err, ErrNoWorkers) {
				t.Errorf("got %v", w.err)
			}
			busy.Done(Completed)
			idle(t, r, m)
		})
	})
	t.Run("the last one serves something else", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, m := crew(t, Config{Queue: queueOf(100)}, Spec{})
			busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
			w := waitFor(t, r, &Request{Model: m, PromptTokens: 1000})
			reshape(r, 1, engine.Model{ID: "n"})
			synctest.Wait()
			if !w.returned() || !errors.Is(w.err, ErrNoWorkers) {
				t.Errorf("got %v", w.err)
			}
			busy.Done(Completed)
		})
	})
	t.Run("closed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, m := crew(t, Config{Queue: queueOf(100)}, Spec{})
			busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
			w := waitFor(t, r, &Request{Model: m, PromptTokens: 1000})
			var called error
			r.Submit(&Request{Model: m, PromptTokens: 1000}, func(_ *Placement, err error) { called = err })
			r.Close()
			synctest.Wait()
			if !errors.Is(w.err, ErrNoWorkers) || !errors.Is(called, ErrNoWorkers) {
				t.Errorf("%v and %v", w.err, called)
			}
			called = nil
			r.Submit(&Request{Model: m, PromptTokens: 1000}, func(_ *Placement, err error) { called = err })
			if !errors.Is(called, ErrNoWorkers) {
				t.Errorf("after the end: %v", called)
			}
			busy.Done(Completed)
			idle(t, r, m)
		})
	})
}

// TestWakes: whatever makes room is noticed at once, or within a second where nobody
// says so.
func TestWakes(t *testing.T) {
	small := engine.Model{ID: "m", BlockSize: 16, TotalBlocks: 100}
	for _, row := range []struct {
		name string
		// what happens, with worker 1 busy
		cfg    Config
		before func(r *Router, m *Model)
		then   func(r *Router, m *Model, busy *Placement)
		within time.Duration
	}{
		{name: "first token", then: func(_ *Router, _ *Model, busy *Placement) { busy.FirstToken() }},
		{name: "done", then: func(_ *Router, _ *Model, busy *Placement) { busy.Done(Cancelled) }},
		{name: "a worker joins", then: func(r *Router, _ *Model, _ *Placement) {
			if err := r.Add(Spec{ID: 3, Engine: &stubEngine{models: []engine.Model{small}}}); err != nil {
				t.Error(err)
			}
		}},
		{name: "a worker comes back", before: func(r *Router, _ *Model) { r.workers[2].discovered.Store(false) },
			then: func(r *Router, _ *Model, _ *Placement) { reshape(r, 2, small) }},
		{name: "a probe succeeds", before: func(r *Router, _ *Model) {
			r.workers[2].Engine.(*stubEngine).down.Store(true)
			r.inhibit(r.workers[2], Broken)
			synctest.Wait()
		}, then: func(r *Router, _ *Model, _ *Placement) { r.workers[2].Engine.(*stubEngine).down.Store(false) }, within: time.Second},
		{name: "inhibition ends", cfg: Config{Inhibit: 500 * time.Millisecond, ProbeInterval: time.Hour},
			before: func(r *Router, _ *Model) {
				r.workers[2].inhibitedUntil.Store(time.Now().Add(500 * time.Millisecond).UnixNano())
			},
			then: func(*Router, *Model, *Placement) {}, within: time.Second},
		{name: "the engine reports", before: func(r *Router, m *Model) {
			m.SetThresholds(Thresholds{DecodeBlocks: ptr(0.5)})
			r.Report(2, []engine.Load{{UsedBlocks: 60}})
		}, then: func(r *Router, _ *Model, _ *Placement) { r.Report(2, []engine.Load{{UsedBlocks: 50}}) }},
		{name: "thresholds change", before: func(r *Router, m *Model) {
			m.SetThresholds(Thresholds{DecodeBlocks: ptr(0.5)})
			r.Report(2, []engine.Load{{UsedBlocks: 60}})
		}, then: func(_ *Router, m *Model, _ *Placement) { m.SetThresholds(Thresholds{DecodeBlocks: ptr(0.6)}) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				row.cfg.Queue = queueOf(100)
				engines := []*stubEngine{{models: []engine.Model{small}}, {models: []engine.Model{small}}}
				r, m := crew(t, row.cfg, Spec{Engine: engines[0]}, Spec{Engine: engines[1]})
				busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 500, Pinned: true, Pin: 1})
				var other *Placement
				if row.before != nil {
					row.before(r, m)
				} else {
					other = mustPlace(t, r, &Request{Model: m, PromptTokens: 500, Pinned: true, Pin: 2})
				}
				w := waitFor(t, r, &Request{Model: m, PromptTokens: 500})
				w.still(t)
				row.then(r, m, busy)
				time.Sleep(row.within)
				synctest.Wait()
				w.placed(t).Done(Completed)
				busy.Done(Completed)
				if other != nil {
					other.Done(Completed)
				}
				m, _ = r.Lookup("m")
				idle(t, r, m)
			})
		})
	}
}

func TestPinsBlockNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{Queue: queueOf(100)}, Spec{}, Spec{})
		a := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000, Pinned: true, Pin: 1})
		b := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000, Pinned: true, Pin: 2})
		pinned := waitFor(t, r, &Request{Model: m, PromptTokens: 1000, Pinned: true, Pin: 1, Tier: 9})
		free := waitFor(t, r, &Request{Model: m, PromptTokens: 1000})
		b.Done(Completed)
		synctest.Wait()
		pinned.still(t)
		p := free.placed(t)
		if workerOf(p) != 2 {
			t.Errorf("placed on %d", workerOf(p))
		}
		// Nor does a line of others block a pin to a rank with room.
		again := waitFor(t, r, &Request{Model: m, PromptTokens: 1000})
		p.FirstToken()
		synctest.Wait()
		again.placed(t).FirstToken()
		third := waitFor(t, r, &Request{Model: m, PromptTokens: 1000, Pinned: true, Pin: 2})
		q := third.placed(t)
		pinned.still(t)
		a.FirstToken()
		synctest.Wait()
		if got := workerOf(pinned.placed(t)); got != 1 {
			t.Errorf("the pinned one went to %d", got)
		}
		for _, p := range []*Placement{a, p, again.pl, q, pinned.pl} {
			p.Done(Completed)
		}
		idle(t, r, m)
	})
}

// TestNobodyWaitsWhileAnotherPoolHasRoom, however good the busy one would be.
func TestNobodyWaitsWhileAnotherPoolHasRoom(t *testing.T) {
	for _, mode := range []Mode{KV, RoundRobin, LeastLoaded} {
		synctest.Test(t, func(t *testing.T) {
			r, m := crew(t, Config{Mode: mode, Queue: queueOf(100)}, Spec{Events: true}, Spec{Events: true, BlockSize: 32})
			prompt := tokensOf(1, 320)
			store(t, r, 1, 0, kv.Device, prompt, 0, 20)
			a := mustPlace(t, r, &Request{Model: m, PromptTokens: 110, Pinned: true, Pin: 1})
			b := waitFor(t, r, ask(m, prompt)).placed(t)
			if workerOf(b) != 2 {
				t.Errorf("%s: placed on %d", mode, workerOf(b))
			}
			if c, err := Rerun(b.Routing); err != nil || c.WorkerID != 2 {
				t.Errorf("%s: Rerun = %d, %v", mode, c.WorkerID, err)
			}
			w := waitFor(t, r, ask(m, prompt)) // now both are busy
			w.still(t)
			a.Done(Completed)
			b.Done(Completed)
			synctest.Wait()
			p := w.placed(t)
			if c, err := Rerun(p.Routing); err != nil || kv.WorkerID(c.WorkerID) != workerOf(p) {
				t.Errorf("%s: Rerun = %d, %v, want %d", mode, c.WorkerID, err, workerOf(p))
			}
			p.Done(Completed)
			idle(t, r, m)
		})
	}
}

// TestTenThousandWait: half of them give up, the others get their turn.
func TestTenThousandWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := metrics.New(metrics.Options{})
		r, m := crew(t, Config{Metrics: set, Queue: queueOf(100)}, Spec{}, Spec{})
		a := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		b := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		const n = 10_000
		ctx, cancel := context.WithCancel(t.Context())
		var served, left int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				ctx := ctx
				if i%2 == 0 {
					ctx = t.Context()
				}
				p, err := r.Place(ctx, &Request{Model: m, PromptTokens: 200 + i%100, Tenant: fmt.Sprint(i % 17), Tier: uint32(i % 3)})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					served++
					p.FirstToken()
					p.Done(Completed)
				case errors.Is(err, context.Canceled):
					left++
				default:
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if got := sum(t, set, "stator_queue_requests"); got != n {
			t.Fatalf("%v wait, want %d", got, n)
		}
		cancel()
		synctest.Wait()
		if got := sum(t, set, "stator_queue_requests"); got != n/2 || left != n/2 {
			t.Fatalf("%v wait and %d left, want half of them each", got, left)
		}
		a.Done(Completed)
		b.Done(Completed)
		wg.Wait()
		if served != n/2 {
			t.Errorf("%d were served, want %d", served, n/2)
		}
		idle(t, r, m)
	})
}

// TestQueriesWaitToo and book nothing.
func TestQueriesWaitToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{Queue: queueOf(100)}, Spec{})
		busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		var asked []*waiting
		for range 3 {
			asked = append(asked, waitFor(t, r, &Request{Model: m, PromptTokens: 1000, QueryOnly: true}))
		}
		asked[0].still(t)
		busy.Done(Completed)
		synctest.Wait()
		for _, w := range asked {
			w.placed(t)
		}
		idle(t, r, m)
	})
}

// TestLookedUpAgain: what a request finds in the caches after a long wait is what is
// there then.
func TestLookedUpAgain(t *testing.T) {
	for _, row := range []struct {
		wait, refresh time.Duration
		want          int
	}{
		{9 * time.Second, 0, 0}, {10 * time.Second, 0, 10}, {time.Second, time.Second, 10}, {time.Hour, -1, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg := queueOf(100)
			cfg.RefreshAfter = row.refresh
			r, m := crew(t, Config{Queue: cfg}, tellers(1)...)
			prompt := tokensOf(1, 160)
			busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
			w := waitFor(t, r, ask(m, prompt))
			store(t, r, 1, 0, kv.Device, prompt, 0, 10)
			time.Sleep(row.wait)
			busy.Done(Completed)
			synctest.Wait()
			if got := w.placed(t).Last().OverlapBlocks; got != row.want {
				t.Errorf("after %v: %d blocks, want %d", row.wait, got, row.want)
			}
		})
	}
}

// TestSubmitFromItsCallback: a call back may call the router, whatever made room.
func TestSubmitFromItsCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		small := engine.Model{ID: "m", BlockSize: 16}
		r, m := crew(t, Config{Queue: queueOf(100)}, Spec{Engine: &stubEngine{models: []engine.Model{small}}})
		for name, room := range map[string]func(busy *Placement){
			"done":        func(busy *Placement) { busy.Done(Completed) },
			"first token": func(busy *Placement) { busy.FirstToken() },
			"report":      func(*Placement) { r.Report(1, []engine.Load{{BatchedLimit: 9}}) },
			"join":        func(*Placement) { reshape(r, 1, small) },
			"release": func(*Placement) {
				r.Release("m", "lease")
			},
		} {
			var busy *Placement
			var err error
			if name == "release" {
				busy, err = r.Reserve(t.Context(), &Request{Model: m, ID: "lease", PromptTokens: 1000}, 0)
			} else {
				busy, err = r.Place(t.Context(), &Request{Model: m, PromptTokens: 1000})
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []*Placement
			for range 3 {
				r.Submit(&Request{Model: m, PromptTokens: 10}, func(p *Placement, err error) {
					if err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
					if _, err := r.Lookup("m"); err != nil {
						t.Error(err)
					}
					r.Status()
					if _, err := r.Reserve(t.Context(), &Request{Model: m, ID: "inner", PromptTokens: 1}, 0); err != nil {
						t.Errorf("%s: %v", name, err)
					}
					r.Release("m", "inner")
					got = append(got, p)
				})
			}
			if name == "report" || name == "join" {
				// These make no room by themselves here: the ledger is emptied behind the
				// queue's back.
				p := busy.pool
				p.mu.Lock()
				p.ledger.Prefilled(&busy.booking)
				p.mu.Unlock()
			}
			room(busy)
			if len(got) != 3 {
				t.Errorf("%s: %d of 3 were called", name, len(got))
			}
			for _, p := range slices.Backward(got) {
				p.Done(Completed)
			}
			busy.Done(Completed)
			m, _ = r.Lookup("m")
			idle(t, r, m)
		}
	})
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
