package router

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
)

// TestLifecycleConcurrently does the same things at once, without a model: in the end
// nothing is booked and nobody waits.
func TestLifecycleConcurrently(t *testing.T) {
	cfg := Config{Queue: queueOf(300), Decisions: 64, Inhibit: time.Millisecond, Lease: time.Millisecond}
	cfg.Queue.MaxWait = 5 * time.Millisecond
	var specs []Spec
	for i := range 6 {
		specs = append(specs, Spec{Events: i%3 != 0, Engine: &stubEngine{models: []engine.Model{{ID: "m", BlockSize: 16, Ranks: 1 + i%2}}}})
	}
	r, m := crew(t, cfg, specs...)
	var mu sync.Mutex
	pools := map[*pool]bool{m.pools[0]: true}
	stop := make(chan struct{})
	var disturb, work sync.WaitGroup
	disturb.Go(func() {
		rng := rand.New(rand.NewPCG(1, 77))
		for {
			select {
			case <-stop:
				return
			default:
			}
			r.admit(r.workers[kv.WorkerID(1+rng.IntN(6))], &engine.Info{Models: shapes(rng)}, true)
			r.mu.RLock()
			mu.Lock()
			for _, p := range r.pools {
				pools[p] = true
			}
			mu.Unlock()
			r.mu.RUnlock()
			r.CountWorkers()
			r.Decisions(3, func(string, string, uint64) bool { return true })
			apply(t, r, kv.WorkerID(1+rng.IntN(6)), 0, kv.Event{Kind: kv.Stored, Blocks: kv.AppendBlocks(nil, kv.HashSeed("", ""), tokensOf(1+rng.IntN(4), 160), 16)})
			r.Report(kv.WorkerID(1+rng.IntN(6)), []engine.Load{{UsedBlocks: rng.IntN(100)}})
			m.SetThresholds(Thresholds{DecodeBlocks: ptr(0.2 + rng.Float64())})
		}
	})
	n := 250
	if testing.Short() {
		n = 50
	}
	for g := range 8 {
		work.Go(func() {
			w := &world{t: t, rng: rand.New(rand.NewPCG(uint64(g), 5)), r: r}
			for i := range n {
				q := w.request()
				if q == nil {
					continue
				}
				q.ID = fmt.Sprint(g, "-", i)
				ctx, cancel := context.WithCancel(t.Context())
				end := func(p *Placement) {
					if w.rng.IntN(2) == 0 {
						p.FirstToken()
					}
					p.Output(w.rng.IntN(50))
					p.Usage(q.PromptTokens, w.rng.IntN(100)-1)
					outcome := []Outcome{Completed, Completed, Cancelled, Refused, Broken, Unreachable}[w.rng.IntN(6)]
					var twice sync.WaitGroup
					twice.Go(func() { p.Done(outcome) })
					twice.Go(func() { p.Done(Completed) })
					twice.Wait()
				}
				switch w.rng.IntN(4) {
				case 0:
					go cancel()
					if p, err := r.Place(ctx, q); err == nil {
						end(p)
					}
				case 1:
					called := make(chan *Placement, 1)
					work.Go(func() {
						r.Submit(q, func(p *Placement, err error) { called <- p })
						if p := <-called; p != nil {
							p.FirstToken()
							p.Done(Completed)
						}
					})
				case 2:
					q.QueryOnly = false
					if _, err := r.Reserve(ctx, q, time.Duration(w.rng.IntN(2000))*time.Microsecond); err == nil {
						_ = r.Renew(q.Model.ID, q.ID, true)
						if w.rng.IntN(2) == 0 {
							r.Release(q.Model.ID, q.ID)
						}
					}
				default:
					if p, err := r.Place(ctx, q); err == nil {
						end(p)
					}
				}
				cancel()
			}
		})
	}
	work.Wait()
	close(stop)
	disturb.Wait()
	r.Close()
	for p := range pools {
		empty(t, p)
	}
	if n := r.leases.count(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}
