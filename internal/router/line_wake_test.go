package router

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
)

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
			time.Sleep(time.Second) // it may be well again in a moment
			synctest.Wait()
			w.still(t)
			pinned.still(t)
			if _, err := r.Place(t.Context(), &Request{Model: m, PromptTokens: 10}); !errors.Is(err, ErrNoWorkers) {
				t.Errorf("an arrival: %v, want ErrNoWorkers", err)
			}
			time.Sleep(2 * time.Second) // it is gone
			synctest.Wait()
			var pin *PinError
			if !w.returned() || !errors.Is(w.err, ErrNoWorkers) || !errors.As(pinned.err, &pin) || pin.Reason != PinUnavailable {
				t.Errorf("%v, %v", w.err, pinned.err)
			}
			idle(t, r, m)
		})
	})
	t.Run("the last one fails for a moment", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, m := crew(t, Config{Queue: queueOf(100)}, Spec{})
			e := r.workers[1].Engine.(*stubEngine)
			e.down.Store(true)
			busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
			w := waitFor(t, r, &Request{Model: m, PromptTokens: 1000})
			busy.Done(Broken)
			synctest.Wait()
			w.still(t)
			e.down.Store(false)
			time.Sleep(time.Second)
			synctest.Wait()
			w.placed(t).Done(Completed)
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
			w.still(t)
			time.Sleep(goneAfter * time.Second)
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
			r.workers[2].leave(time.Now().Add(r.cfg.Inhibit))
			r.workers[2].awaken()
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
