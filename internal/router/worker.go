package router

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/nvext"
)

// Spec is a worker to watch. Zero sizes mean what the engine says.
type Spec struct {
	ID   kv.WorkerID
	Name string // for people: its URL
	// Engine is asked what it is; the adapter that it names then is used.
	Engine engine.Engine
	// Taints are what requests can ask for or shun.
	Taints []string
	// Events says that Router.Apply hears of every change of its caches, so that
	// nobody has to say when it does.
	Events bool

	Ranks            int
	BlockSize        int
	TotalBlocks      int
	MaxBatchedTokens int
}

// worker is a watched engine. The three facts about it are discovered,
// inhibitedUntil, and the load in its slots.
type worker struct {
	Spec
	index          int // in the order of Add
	loadInterval   time.Duration
	discovered     atomic.Bool
	inhibitedUntil atomic.Int64 // Unix nanoseconds; 0 = not
	tripped        atomic.Bool  // it is inhibited for more than a probe can tell
	trouble        sync.Mutex   // held while the two above are changed
	breaker        breaker
	voice          voice
	telling        struct { // which ranks do
		sync.Mutex
		ranks map[uint32][2]bool // whether they do, and only in part
	}
	differing  atomic.Int32 // requests in a row whose tokens it counts otherwise
	renew      atomic.Bool  // it is to be admitted anew with what is known by now
	doubted    atomic.Bool  // it may be another by now
	answered   atomic.Int64 // Unix nanoseconds of the last first token; 0 = none
	since      atomic.Int64 // Unix nanoseconds of the time when it came
	adapted    atomic.Pointer[engine.Engine]
	info       atomic.Pointer[engine.Info]
	identified time.Time    // when it was last asked what it is; for who watches it
	refused    atomic.Bool  // there was no room for all of its models
	hoarse     bool         // it did not compute a token when it was asked to; the same
	learned    atomic.Int64 // tokens in a block, as its events tell; 0 = not yet
	eagle      atomic.Bool  // its blocks depend on the token after them, as its events tell
	moving     sync.RWMutex // held by who changes pools, and for reading by who changes what is known of its caches there
	pools      atomic.Pointer[[]*pool]
	ranks      atomic.Uint32 // how many it has
	wake       chan struct{} // of size one: probe now
	checked    chan struct{} // closed after the first check
	once       sync.Once
	removed    bool            // guarded by the router's mutex
	ctx        context.Context // until it is removed
	cancel     context.CancelFunc
	ended      chan struct{} // closed when nobody watches it any more
}

// adapter returns what the worker is spoken to with.
func (w *worker) adapter() engine.Engine {
	if e := w.adapted.Load(); e != nil {
		return *e
	}
	return w.Engine
}

// inhibited reports whether the worker is left alone. One that kept failing is until it
// has shown that it computes.
func (w *worker) inhibited(now time.Time) bool {
	until := w.inhibitedUntil.Load()
	return until != 0 && (now.UnixNano() < until || w.tripped.Load())
}

// slots is how many prompts its server runs at a time and keeps afterwards, 0 if it
// shares blocks between prompts.
func (w *worker) slots() int {
	if info := w.info.Load(); info != nil {
		return info.Slots
	}
	return 0
}

func (w *worker) kind() string {
	if info := w.info.Load(); info != nil {
		return info.Kind
	}
	return ""
}

// Add starts watching a worker: it is identified, probed from time to time, and
// takes requests as long as it is well. An id can be added once.
func (r *Router) Add(spec Spec) error {
	if spec.ID == 0 {
		return errors.New("worker id 0 is not allowed")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return errors.New("the router is closed")
	}
	if other := r.workers[spec.ID]; other != nil {
		return fmt.Errorf("worker id %d is used by both %s and %s", spec.ID, other.Name, spec.Name)
	}
	w := &worker{Spec: spec, index: r.added, loadInterval: r.cfg.LoadInterval, wake: make(chan struct{}, 1), checked: make(chan struct{}), ended: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancel(r.ctx)
	if r.added == 0 && !r.cfg.Virtual {
		r.wg.Go(r.forgetModels)
	}
	r.added++
	r.workers[spec.ID] = w
	r.order = append(r.order, w)
	r.wg.Go(func() {
		defer close(w.ended)
		defer w.once.Do(func() { close(w.checked) })
		r.watch(w)
	})
	return nil
}

// Remove takes a worker out and reports whether it was there. It gets no more requests;
// those that it has go on. When Remove returns, nothing of it is known any more.
func (r *Router) Remove(id kv.WorkerID) bool {
	r.mu.Lock()
	w := r.workers[id]
	if w == nil || w.removed {
		r.mu.Unlock()
		return false
	}
	w.removed = true
	w.discovered.Store(false)
	w.cancel()
	r.order = slices.DeleteFunc(r.order, func(o *worker) bool { return o == w })
	r.mu.Unlock()
	<-w.ended
	if r.follower != nil {
		r.follower.Forget(id)
	}
	r.mu.Lock()
	delete(r.workers, id) // until here nobody else can have the id
	pools := slices.Collect(maps.Values(r.pools))
	empty := r.retainLocked(w, nil)
	r.cfg.Metrics.DropWorker(uint64(id))
	r.mu.Unlock()
	closeAll(empty)
	now := r.cfg.Now()
	for _, p := range pools {
		p.wake(now)
	}
	w.Engine.Close()
	r.cfg.Log.Info("worker removed", "worker", id, "url", w.Name)
	return true
}

// Workers returns how many workers there are and how many of them are discovered.
func (r *Router) Workers() (discovered, all int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, w := range r.order {
		if w.discovered.Load() {
			discovered++
		}
	}
	return discovered, len(r.order)
}

// Unidentified returns the workers that never said what they serve.
func (r *Router) Unidentified() []WorkerStatus {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var out []WorkerStatus
	for _, w := range r.order {
		if w.info.Load() == nil {
			out = append(out, WorkerStatus{Target: engine.Target{Worker: w.ID}, Name: w.Name, State: StateGone})
		}
	}
	return out
}

// WaitChecked returns when every worker was asked at least once what it is, or
// when ctx ends.
func (r *Router) WaitChecked(ctx context.Context) {
	r.mu.RLock()
	all := slices.Clone(r.order)
	r.mu.RUnlock()
	for _, w := range all {
		select {
		case <-w.checked:
		case <-ctx.Done():
			return
		}
	}
}

// Close stops watching, closes the engines and waits until all is done. Who waits in
// a queue gets [ErrNoWorkers]. Bookings can still be released afterwards.
func (r *Router) Close() {
	r.cancel()
	r.wg.Wait()
	r.leases.end()
	r.mu.RLock()
	pools := slices.Collect(maps.Values(r.pools))
	r.mu.RUnlock()
	for _, p := range pools {
		p.dismiss()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.order {
		w.Engine.Close()
	}
}

// CountWorkers publishes what is booked, and how many ranks of each model are in
// which state. It is meant to be called when somebody looks.
func (r *Router) CountWorkers() {
	r.mu.RLock()
	pools := slices.Collect(maps.Values(r.pools))
	r.mu.RUnlock()
	for _, p := range pools {
		p.show()
	}
	r.cfg.Metrics.SetLeases(r.leases.count())
	for _, st := range r.Status() {
		var n metrics.WorkerCounts
		for _, w := range st.Workers {
			switch w.State {
			case StateGone:
				continue
			case nvext.StateInhibited:
				n.Inhibited++
			case nvext.StateOverloaded:
				n.Overloaded++
			default:
				n.Routable++
			}
			n.Discovered++
		}
		st.Model.Metrics.SetWorkers(n)
	}
}
