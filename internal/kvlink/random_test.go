package kvlink

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// Everything that can happen to a connection and an engine happens at random. When it
// is quiet again, the rank is the engine's cache.
func TestRandom(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fleet) {
				rng := rand.New(rand.NewPCG(seed, 1))
				r := f.rig("a:1", 0)
				r.topic = seed%2 == 0
				r.model.rng = rand.New(rand.NewPCG(seed, 2))
				f.Follow(7, of(at(0, "a:1", true)), nil, false)
				for range 80 {
					switch n := rng.IntN(100); {
					case n < 50:
						r.steps(1 + rng.IntN(4))
					case n < 65:
						r.missed(1 + rng.IntN(3))
					case n < 70:
						r.hangUp(rng.IntN(2) == 0)
					case n < 78:
						r.do(func() { r.down, r.silent, r.limit = false, false, 0 })
					case n < 81:
						r.do(func() { r.silent = true })
					case n < 84:
						r.do(func() { r.limit = 1 + rng.IntN(9) })
					case n < 87:
						r.do(func() { r.publish(r.wipe()) })
					case n < 90:
						r.hangUp(rng.IntN(2) == 0) // a connection does not outlive the engine
						r.do(r.restart)
					case n < 93:
						r.do(func() {
							b := r.step()
							b.payload = b.payload[:rng.IntN(len(b.payload))]
							r.publish(b)
						})
					case n < 95:
						f.Follow(7, of(at(0, "a:1", true)), nil, rng.IntN(2) == 0)
					}
					if rng.IntN(2) == 0 {
						time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
					}
					synctest.Wait()
				}
				r.do(func() { r.down, r.silent, r.limit = false, false, 0 })
				rest()
				r.steps(1)                  // a connection that lost the last batch cannot know
				time.Sleep(3 * time.Minute) // what was given up is tried again after a while
				synctest.Wait()
				f.same(src, r.model)
				f.stands(src, Live)
				r.steps(2)
				rest()
				f.same(src, r.model)
			})
		})
	}
}

// A hundred restarts in a row, with the rank right after each.
func TestRestarts(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.rig("a:1", 0)
		f.Follow(7, of(at(0, "a:1", true)), nil, false)
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range 100 {
			r.steps(rng.IntN(6))
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
			r.hangUp(rng.IntN(2) == 0)
			r.do(r.restart)
			r.missed(rng.IntN(12))
			r.do(func() { r.down = false })
			time.Sleep(time.Second)
			if rng.IntN(3) == 0 {
				f.Follow(7, of(at(0, "a:1", true)), nil, true)
			}
			r.steps(rng.IntN(3))
			rest()
			if f.same(src, r.model); t.Failed() {
				t.Fatalf("after restart %d", i)
			}
			f.stands(src, Live)
		}
	})
}

// Workers come, go and restart while others are looked at and flushed.
func TestRaces(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		const workers = 4
		rigs := make([]*rig, workers)
		for i := range rigs {
			rigs[i] = f.rig(fmt.Sprintf("a:%d", i), 0)
		}
		var wg sync.WaitGroup
		for i, r := range rigs {
			id := kv.WorkerID(1 + i)
			info := of(at(0, fmt.Sprintf("a:%d", i), i%2 == 0))
			for g := range 3 {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(i), uint64(g)))
					for range 100 {
						switch rng.IntN(5) {
						case 0:
							f.Follow(id, info, nil, rng.IntN(2) == 0)
						case 1:
							f.Forget(id)
						case 2:
							r.steps(3)
						case 3:
							r.hangUp(false)
						case 4:
							f.Stats()
						}
						time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond)
					}
				})
			}
		}
		wg.Wait()
		for i, r := range rigs {
			f.Forget(kv.WorkerID(1 + i))
			r.do(func() { r.restart() })
			f.Follow(kv.WorkerID(1+i), of(at(0, fmt.Sprintf("a:%d", i), true)), nil, false)
		}
		rest()
		for i, r := range rigs {
			r.steps(5)
			synctest.Wait()
			src := kv.Source{Worker: kv.WorkerID(1 + i)}
			f.same(src, r.model)
			f.stands(src, Live)
		}
		wg.Go(func() { f.Follow(1, of(at(0, "a:1", true)), nil, true) })
		wg.Go(f.Close)
		wg.Go(func() { f.Forget(2) })
		wg.Wait()
		f.Follow(1, of(at(0, "a:0", true)), nil, true)
		f.Forget(1)
	})
}
