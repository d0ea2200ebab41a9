package router

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/nvext"
)

func reserve(t *testing.T, r *Router, m *Model, id string, length time.Duration) *Placement {
	t.Helper()
	p, err := r.Reserve(t.Context(), &Request{Model: m, ID: id, PromptTokens: 1000}, length)
	if err != nil {
		t.Fatalf("Reserve: %v", err)
	}
	return p
}

func TestReserveRenewRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{}, Spec{})
		reserve(t, r, m, "a", 0)
		if _, err := r.Reserve(t.Context(), &Request{Model: m, ID: "a", PromptTokens: 5}, 0); !errors.Is(err, ErrDuplicate) {
			t.Errorf("the same id again: %v", err)
		}
		reserve(t, r, m, "b", 0)
		if got, want := loads(m), (load{inflight: 2, prefillTokens: 2000, activeBlocks: 124}); got != want {
			t.Errorf("booked %+v, want %+v", got, want)
		}
		for range 2 { // what is said twice is heard once
			if err := r.Renew("m", "a", true); err != nil {
				t.Error(err)
			}
		}
		if got := loads(m).prefillTokens; got != 1000 {
			t.Errorf("%d tokens to compute, want 1000", got)
		}
		for _, name := range []string{"c", ""} {
			if err := r.Renew("m", name, true); !errors.Is(err, ErrUnknownBooking) {
				t.Errorf("renewal of what is not there: %v", err)
			}
		}
		if err := r.Renew("n", "a", true); !errors.Is(err, ErrUnknownBooking) {
			t.Errorf("renewal under another model: %v", err)
		}
		if !r.Release("m", "a") || r.Release("m", "a") || r.Release("n", "b") {
			t.Error("a booking is released once, under its own name")
		}
		if err := r.Renew("m", "a", false); !errors.Is(err, ErrUnknownBooking) {
			t.Errorf("renewal after the end: %v", err)
		}
		reserve(t, r, m, "a", 0) // the id is free again
		r.Release("m", "a")
		r.Release("m", "b")
		idle(t, r, m)
		time.Sleep(time.Hour)
		if got := sum(t, r.cfg.Metrics, "stator_router_leases_expired_total"); got != 0 {
			t.Errorf("%v leases ended that were released", got)
		}
	})
}

func TestLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{Lease: time.Minute}, Spec{})
		reserve(t, r, m, "default", 0)
		reserve(t, r, m, "long", 10*time.Minute)
		at := func(d time.Duration, want int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := loads(m).inflight; got != want {
				t.Errorf("%d booked, want %d", got, want)
			}
			if got := r.leases.count(); got != want {
				t.Errorf("%d leases, want %d", got, want)
			}
		}
		at(59*time.Second, 2)
		if err := r.Renew("m", "default", false); err != nil {
			t.Fatal(err)
		}
		at(59*time.Second, 2)
		at(time.Second, 1)
		if err := r.Renew("m", "default", true); !errors.Is(err, ErrUnknownBooking) {
			t.Errorf("renewal after the end: %v", err)
		}
		if r.Release("m", "default") {
			t.Error("released after the end")
		}
		at(7*time.Minute+59*time.Second, 1)
		at(time.Second+time.Minute, 0)
		idle(t, r, m)
		if got := sum(t, r.cfg.Metrics, "stator_router_leases_expired_total"); got != 2 {
			t.Errorf("%v leases ended, want 2", got)
		}
	})
}

// TestLeaseEndsAsItIsRenewed: either it is there and stays for a lease, or it is not.
func TestLeaseEndsAsItIsRenewed(t *testing.T) {
	for range 60 {
		synctest.Test(t, func(t *testing.T) {
			r, m := crew(t, Config{}, Spec{})
			reserve(t, r, m, "a", time.Second)
			var err error
			go func() {
				time.Sleep(time.Second)
				err = r.Renew("m", "a", true)
			}()
			time.Sleep(time.Second)
			synctest.Wait()
			want := load{}
			if err == nil {
				want = load{inflight: 1, activeBlocks: 62}
			}
			if got := loads(m); got != want {
				t.Errorf("renewal said %v and left %+v", err, got)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			idle(t, r, m)
		})
	}
}

func TestReleaseWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{Queue: queueOf(100)}, Spec{})
		busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		var errs [2]error
		start := func(i int) (cancel func()) {
			ctx, cancel := context.WithCancel(t.Context())
			go func() { _, errs[i] = r.Reserve(ctx, &Request{Model: m, ID: "a", PromptTokens: 1000}, time.Minute) }()
			synctest.Wait()
			return cancel
		}
		cancel := start(0)
		if _, err := r.Reserve(t.Context(), &Request{Model: m, ID: "a"}, 0); !errors.Is(err, ErrDuplicate) {
			t.Errorf("the id of one that waits: %v", err)
		}
		if err := r.Renew("m", "a", false); !errors.Is(err, ErrUnknownBooking) {
			t.Errorf("renewal of one that waits: %v", err)
		}
		if !r.Release("m", "a") {
			t.Error("one that waits cannot be released")
		}
		synctest.Wait()
		if !errors.Is(errs[0], ErrUnknownBooking) {
			t.Errorf("released while it waited: %v", errs[0])
		}
		if n, _ := m.pools[0].line.pending(); n != 0 {
			t.Errorf("%d wait that nobody wants", n)
		}
		// Another with its id is none of its business.
		start(1)
		cancel()
		synctest.Wait()
		busy.Done(Completed)
		synctest.Wait()
		if errs[1] != nil || r.leases.count() != 1 {
			t.Errorf("the second: %v, %d leases", errs[1], r.leases.count())
		}
		if !r.Release("m", "a") {
			t.Error("the second was lost")
		}
		idle(t, r, m)
	})
}

func TestCancelledReserveLeavesItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{Queue: queueOf(100)}, Spec{})
		busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		ctx, cancel := context.WithCancel(t.Context())
		var err error
		go func() { _, err = r.Reserve(ctx, &Request{Model: m, ID: "a", PromptTokens: 1000}, 0) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if !errors.Is(err, context.Canceled) || r.leases.count() != 0 {
			t.Errorf("%v, %d leases", err, r.leases.count())
		}
		busy.Done(Completed)
		reserve(t, r, m, "a", 0)
		r.Release("m", "a")
		idle(t, r, m)
	})
}

func TestCloseEndsLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{}, Spec{})
		for i := range 10 {
			reserve(t, r, m, fmt.Sprint(i), time.Hour)
		}
		r.Close()
		if r.leases.count() != 0 || r.Release("m", "3") {
			t.Error("leases live on")
		}
		idle(t, r, m)
	})
}

func TestLeasesConcurrently(t *testing.T) {
	t.Run("cost", func(t *testing.T) { leasesConcurrently(t, Config{Queue: queueOf(2000)}) })
	t.Run("thompson", func(t *testing.T) {
		leasesConcurrently(t, Config{Queue: queueOf(2000), Mode: KV, Bandit: safePolicy(nil)})
	})
}

func leasesConcurrently(t *testing.T, cfg Config) {
	r, m := crew(t, cfg, Spec{}, Spec{})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 300 {
				id := fmt.Sprint((g*7 + i) % 10)
				ctx, cancel := context.WithCancel(t.Context())
				if i%3 == 0 {
					cancel()
				}
				length := time.Duration(i%2) * time.Microsecond
				switch g % 4 {
				case 0, 1:
					go func() { r.Release("m", id) }()
					if _, err := r.Reserve(ctx, &Request{Model: m, ID: id, PromptTokens: 1500}, length); err != nil &&
						!errors.Is(err, ErrDuplicate) && !errors.Is(err, ErrUnknownBooking) && !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				case 2:
					_ = r.Renew("m", id, i%2 == 0)
					r.CountWorkers()
				case 3:
					r.Release("m", id)
				}
				cancel()
			}
			for i := range 10 {
				r.Release("m", fmt.Sprint(i))
			}
		})
	}
	// Those that wait are released until none does.
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		for i := range 10 {
			r.Release("m", fmt.Sprint(i))
		}
		runtime.Gosched()
	}
	r.leases.end()
	for deadline := time.Now().Add(10 * time.Second); loads(m) != (load{}) && time.Now().Before(deadline); {
		runtime.Gosched() // some leases end in this very moment
	}
	idle(t, r, m)
}

// TestReservedPlacementExplains: a booking for somebody else is a decision like any other.
func TestReservedPlacementExplains(t *testing.T) {
	r, m := crew(t, Config{}, tellers(2)...)
	prompt := tokensOf(1, 160)
	store(t, r, 2, 0, kv.Device, prompt, 0, 10)
	q := ask(m, prompt)
	q.ID = "a"
	p, err := r.Reserve(t.Context(), q, 0)
	if err != nil || workerOf(p) != 2 || p.Routing.OverlapBlocks != 10 || p.Routing.Reason != nvext.ReasonCost {
		t.Errorf("%v, %+v", err, p)
	}
	r.Release("m", "a")
	idle(t, r, m)
}
