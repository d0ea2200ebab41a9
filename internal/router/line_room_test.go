package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/sched"
)

// makeRoom has the prompt of a placement count as computed without anybody being told.
func makeRoom(p *Placement) {
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	p.pool.ledger.Prefilled(&p.booking)
}

// TestThoseBeforeGoFirst: an arrival that finds room which nobody has noticed yet leaves
// it to those that wait.
func TestThoseBeforeGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{Queue: queueOf(100)}, Spec{})
		busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		before := waitFor(t, r, &Request{Model: m, PromptTokens: 1000})
		before.still(t)
		makeRoom(busy)
		after := waitFor(t, r, &Request{Model: m, PromptTokens: 1000, Tier: 9})
		p := before.placed(t)
		after.still(t)
		p.FirstToken()
		synctest.Wait()
		for _, p := range []*Placement{busy, p, after.placed(t)} {
			p.Done(Completed)
		}
		idle(t, r, m)
	})
}

// TestBacklogOfPinsHoldsNobodyUp: who has a rank with room does not wait, whatever waits
// for others, and does not count against the limits of the line.
func TestBacklogOfPinsHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		most := 2 // for each worker
		cfg := queueOf(100)
		cfg.Classes[0].MaxRequests = &most
		r, m := crew(t, Config{Queue: cfg}, Spec{}, Spec{})
		pinned := func() *Request { return &Request{Model: m, PromptTokens: 1000, Pinned: true, Pin: 1} }
		running := []*Placement{mustPlace(t, r, pinned())}
		var backlog []*waiting
		for range 4 {
			backlog = append(backlog, waitFor(t, r, pinned()))
			backlog[len(backlog)-1].still(t)
		}
		var limit *sched.LimitError
		if _, err := r.Place(t.Context(), pinned()); !errors.As(err, &limit) {
			t.Errorf("a fifth pin: %v, want a limit", err)
		}
		for range 3 {
			p := waitFor(t, r, &Request{Model: m, PromptTokens: 1000}).placed(t)
			if workerOf(p) != 2 {
				t.Errorf("placed on %d", workerOf(p))
			}
			p.Done(Completed)
		}
		running = append(running, mustPlace(t, r, &Request{Model: m, PromptTokens: 1000}))
		if _, err := r.Place(t.Context(), &Request{Model: m, PromptTokens: 1000}); !errors.As(err, &limit) {
			t.Errorf("no room and a full line: %v, want a limit", err)
		}
		for _, w := range backlog {
			w.cancel()
		}
		synctest.Wait()
		for _, p := range running {
			p.Done(Completed)
		}
		idle(t, r, m)
	})
}

// TestParkedWhileOverloaded: who waits already goes on waiting while its ranks are above a
// busy threshold; who comes then is refused.
func TestParkedWhileOverloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &stubEngine{models: []engine.Model{{ID: "m", BlockSize: 16, TotalBlocks: 1000}}}
		r, m := crew(t, Config{Queue: queueOf(100)}, Spec{Engine: e})
		m.SetThresholds(Thresholds{DecodeBlocks: ptr(0.5)})
		busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		parked := waitFor(t, r, &Request{Model: m, PromptTokens: 1000})
		pinned := waitFor(t, r, &Request{Model: m, PromptTokens: 1000, Pinned: true, Pin: 1})
		r.Report(1, []engine.Load{{UsedBlocks: 900}})
		busy.FirstToken() // there is room for prompts, but none for blocks
		for range 6 {
			time.Sleep(10 * time.Second)
			r.Report(1, []engine.Load{{UsedBlocks: 900}})
		}
		synctest.Wait()
		parked.still(t)
		pinned.still(t)
		if _, err := r.Place(t.Context(), &Request{Model: m, PromptTokens: 10}); !errors.Is(err, ErrOverloaded) {
			t.Errorf("an arrival: %v, want ErrOverloaded", err)
		}
		var pin *PinError
		if _, err := r.Place(t.Context(), &Request{Model: m, Pinned: true, Pin: 1}); !errors.As(err, &pin) || pin.Reason != PinOverloaded {
			t.Errorf("a pinned arrival: %v, want PinOverloaded", err)
		}
		parked.still(t)
		r.Report(1, []engine.Load{{UsedBlocks: 100}})
		synctest.Wait()
		p := parked.placed(t)
		pinned.still(t)
		p.FirstToken()
		synctest.Wait()
		for _, p := range []*Placement{busy, p, pinned.placed(t)} {
			p.Done(Completed)
		}
		idle(t, r, m)
	})
}

// TestAllThatCanGoGo: ten thousand go at once, a few in each hold of the lock.
func TestAllThatCanGoGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{Queue: queueOf(100)}, Spec{})
		p := m.pools[0]
		const n = 10_000
		for _, told := range []bool{false, true} {
			busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
			called := 0
			for range n {
				r.Submit(&Request{Model: m, PromptTokens: 1000, QueryOnly: true}, func(pl *Placement, err error) {
					if called++; err != nil {
						t.Error(err)
					}
				})
			}
			if told {
				busy.Done(Completed)
			} else {
				makeRoom(busy)
				p.mu.Lock()
				granted := p.drain(time.Now())
				p.mu.Unlock()
				if len(granted) != 64 {
					t.Errorf("%d in one go, want 64", len(granted))
				}
				p.tell(time.Now(), granted)
				busy.Done(Completed)
			}
			if called != n {
				t.Errorf("%d of %d went", called, n)
			}
			idle(t, r, m)
		}
	})
}

// TestQueriesCostAToken: nothing is computed for them, so they take nothing from a line's
// limits nor from what a tenant gets.
func TestQueriesCostAToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		most := 1500
		cfg := queueOf(100)
		cfg.Classes[0].MaxPromptTokens = &most
		r, m := crew(t, Config{Queue: cfg}, Spec{})
		busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		var order []string
		var running []*Placement
		submit := func(id, tenant string, query bool) {
			r.Submit(&Request{Model: m, ID: id, Tenant: tenant, PromptTokens: 1000, QueryOnly: query}, func(p *Placement, err error) {
				if err != nil {
					t.Errorf("%s: %v", id, err)
					return
				}
				order, running = append(order, id), append(running, p)
			})
			time.Sleep(time.Millisecond)
		}
		for i := range 3 {
			submit(fmt.Sprint("a", i), "a", true)
		}
		if got := sum(t, r.cfg.Metrics, "stator_queue_prompt_tokens"); got != 3 {
			t.Errorf("%v tokens wait, want 3", got)
		}
		submit("b0", "b", false)
		submit("a3", "a", false)
		busy.Done(Completed)
		for len(running) > 0 {
			p := running[0]
			running = running[1:]
			p.Done(Completed)
		}
		// The first of each tenant, and then the one that has been given less.
		if got, want := strings.Join(order, " "), "a0 b0 a1 a2 a3"; got != want {
			t.Errorf("order %s, want %s", got, want)
		}
		idle(t, r, m)
	})
}

// TestRetriesKeepTheirPlace: a request that was placed before stands where it would if it
// had waited all the time.
func TestRetriesKeepTheirPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{Queue: queueOf(100)}, Spec{})
		time.Sleep(time.Minute)
		retry := &Request{ID: "retry", Arrived: time.Now().Add(-10 * time.Second)}
		early := &Request{ID: "early", Arrived: time.Now().Add(-time.Hour)} // before there was a router
		if got, want := strings.Join(drainOrder(t, r, m, []*Request{{ID: "a"}, {ID: "b"}, retry, {ID: "c"}, early}), " "), "early retry a b c"; got != want {
			t.Errorf("order %s, want %s", got, want)
		}
	})
}

// TestRetriesWaitNoLonger: what a request waited before counts in its longest wait.
func TestRetriesWaitNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := queueOf(100)
		cfg.MaxWait = 7 * time.Second
		r, m := crew(t, Config{Queue: cfg}, Spec{})
		busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		for _, row := range []struct{ before, wait time.Duration }{
			{5 * time.Second, 2 * time.Second}, {7 * time.Second, 0}, {time.Hour, 0}, {0, 7 * time.Second},
		} {
			began := time.Now()
			_, err := r.Place(context.Background(), &Request{Model: m, PromptTokens: 1000, Waited: row.before})
			var late *WaitError
			if got := time.Since(began); !errors.As(err, &late) || got != row.wait {
				t.Errorf("after %v: %v when it had waited %v, want %v", row.before, err, got, row.wait)
			}
		}
		busy.Done(Completed)
		// It does not matter to one that need not wait.
		mustPlace(t, r, &Request{Model: m, PromptTokens: 1000, Arrived: time.Now().Add(-time.Hour)}).Done(Completed)
		idle(t, r, m)
	})
}

// TestNobodyPassesABatch: those that are about to go are not passed by one that comes
// while they are told.
func TestNobodyPassesABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{Queue: queueOf(100), Now: time.Now}, Spec{})
		busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		var order []int
		var late []*Placement
		submit := func(i int, q *Request) {
			r.Submit(q, func(p *Placement, err error) {
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i)
				late = append(late, p)
				if i == 0 {
					r.Submit(&Request{Model: m}, func(p *Placement, _ error) { order = append(order, 1000); late = append(late, p) })
				}
			})
		}
		for i := range 3 * batch {
			submit(i, &Request{Model: m, Tier: 5}) // nothing to compute: all can go at once
		}
		busy.FirstToken()
		synctest.Wait()
		// The rest of the first batch, which was placed before, hears of it last.
		newcomer := slices.Index(order, 1000)
		if len(order) != 3*batch+1 || slices.ContainsFunc(order[newcomer+1:], func(i int) bool { return i >= batch }) {
			t.Errorf("%d went, the newcomer as number %d: %v", len(order), 1+newcomer, order)
		}
		for _, p := range append(late, busy) {
			p.Done(Completed)
		}
		idle(t, r, m)
	})
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
