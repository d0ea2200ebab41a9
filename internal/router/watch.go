package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	ID     kv.WorkerID
	Name   string // for people: its URL
	Engine engine.Engine

	Ranks            int
	BlockSize        int
	TotalBlocks      int
	MaxBatchedTokens int
}

const (
	identifyTimeout = 5 * time.Second
	probeTimeout    = 3 * time.Second
	// retryInterval is the time between probes of a worker that is not well.
	retryInterval = time.Second
	// goneAfter is the number of failed probes in a row after which a worker
	// counts as gone and is identified anew when it comes back.
	goneAfter = 3
)

// worker is a watched engine. The three facts about it are discovered,
// inhibitedUntil, and the load in its slots.
type worker struct {
	Spec
	index          int // in the order of Add
	discovered     atomic.Bool
	inhibitedUntil atomic.Int64 // Unix nanoseconds; 0 = not
	answered       atomic.Int64 // Unix nanoseconds of the last first token; 0 = none
	info           atomic.Pointer[engine.Info]
	wake           chan struct{} // of size one: probe now
	checked        chan struct{} // closed after the first check
	once           sync.Once
}

func (w *worker) inhibited(now time.Time) bool {
	until := w.inhibitedUntil.Load()
	return until != 0 && now.UnixNano() < until
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
	w := &worker{Spec: spec, index: len(r.order), wake: make(chan struct{}, 1), checked: make(chan struct{})}
	if other := r.workers[spec.ID]; other != nil {
		return fmt.Errorf("worker id %d is used by both %s and %s", spec.ID, other.Name, spec.Name)
	}
	r.workers[spec.ID] = w
	r.order = append(r.order, w)
	r.wg.Go(func() { r.watch(w) })
	return nil
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

// Close stops watching, closes the engines and waits until all is done. Bookings
// can still be released afterwards.
func (r *Router) Close() {
	r.cancel()
	r.wg.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.order {
		w.Engine.Close()
	}
}

// watch looks after one worker until the router closes.
func (r *Router) watch(w *worker) {
	failures := 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-w.wake:
		case <-timer.C:
		}
		began := r.cfg.Now()
		err := r.check(w)
		if r.ctx.Err() != nil {
			return
		}
		wait := r.cfg.ProbeInterval
		switch {
		case err == nil:
			failures = 0
		case engine.IsLocal(err):
			r.cfg.Log.Error("cannot look after workers", "error", err)
		case isTimeout(err) && w.answered.Load() > began.UnixNano():
			wait = min(retryInterval, wait) // it is busy answering, and its health route has to wait
		default:
			failures++
			wait = min(retryInterval, wait)
			r.unwell(w, failures, err)
		}
		w.once.Do(func() { close(w.checked) })
		timer.Reset(wait)
	}
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}

// check identifies a worker that is not known yet and probes one that is.
func (r *Router) check(w *worker) error {
	if !w.discovered.Load() {
		ctx, cancel := context.WithTimeout(r.ctx, identifyTimeout)
		defer cancel()
		info, err := w.Engine.Identify(ctx)
		if err != nil {
			return err
		}
		r.admit(w, info)
		return nil
	}
	ctx, cancel := context.WithTimeout(r.ctx, probeTimeout)
	defer cancel()
	if err := w.Engine.Probe(ctx); err != nil {
		return err
	}
	if loader, ok := w.Engine.(engine.Loader); ok {
		if loads, err := loader.Load(ctx); err == nil {
			r.Report(w.ID, loads)
		}
	}
	if w.inhibitedUntil.Swap(0) != 0 {
		r.cfg.Log.Info("worker is back", "worker", w.ID, "url", w.Name)
	}
	return nil
}

// unwell notes a failed check.
func (r *Router) unwell(w *worker, failures int, err error) {
	if failures == 1 {
		what := "worker does not answer"
		if !w.discovered.Load() {
			what = "worker cannot be identified"
		}
		r.cfg.Log.Warn(what, "worker", w.ID, "url", w.Name, "error", err)
	}
	w.inhibitedUntil.Store(r.cfg.Now().Add(r.cfg.Inhibit).UnixNano())
	if failures >= goneAfter && w.discovered.Swap(false) {
		r.cfg.Log.Warn("worker is gone", "worker", w.ID, "url", w.Name)
		r.cfg.Metrics.DropWorker(uint64(w.ID))
	}
}

// inhibit leaves a worker alone after a request failed on it, and has it probed.
func (r *Router) inhibit(w *worker, o Outcome) {
	first := w.inhibitedUntil.Swap(r.cfg.Now().Add(r.cfg.Inhibit).UnixNano()) == 0
	select {
	case w.wake <- struct{}{}:
	default:
	}
	if first {
		reason := "connection broke"
		if o == Unreachable {
			reason = "connect failed"
		}
		r.cfg.Log.Warn("worker inhibited", "worker", w.ID, "url", w.Name, "reason", reason)
		r.cfg.Metrics.Worker(uint64(w.ID), 0).Inhibited()
	}
}

// admit enters a worker into the pools of the models it serves, and takes it out
// of those that it serves no more. A rank that stays keeps what is booked on it.
func (r *Router) admit(w *worker, info *engine.Info) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cfg.Metrics.DropWorker(uint64(w.ID)) // series of ranks that it has no more
	stays := make(map[*slot]bool)
	for _, em := range info.Models {
		em.BlockSize = cmp.Or(w.BlockSize, em.BlockSize)
		em.TotalBlocks = cmp.Or(w.TotalBlocks, em.TotalBlocks)
		em.MaxBatchedTokens = cmp.Or(w.MaxBatchedTokens, em.MaxBatchedTokens)
		em.Ranks = max(1, cmp.Or(w.Ranks, em.Ranks))
		p := r.poolLocked(&em)
		for rank := range em.Ranks {
			gauges := r.cfg.Metrics.Worker(uint64(w.ID), uint32(rank))
			stays[p.admit(w, uint32(rank), &em, gauges)] = true
		}
	}
	for _, m := range r.models {
		for _, p := range m.pools {
			p.retain(w, stays)
		}
		r.summarizeLocked(m)
	}
	w.info.Store(info)
	w.inhibitedUntil.Store(0)
	w.discovered.Store(true)
	r.cfg.Log.Info("worker discovered", "worker", w.ID, "url", w.Name, "engine", info.Kind, "models", len(info.Models))
}

// poolLocked returns the pool for a model as an engine serves it, a new one if
// there is none.
func (r *Router) poolLocked(em *engine.Model) *pool {
	m := r.models[em.ID]
	if m == nil {
		th := r.cfg.Thresholds
		m = &Model{ID: em.ID, Created: r.cfg.Now(), Metrics: r.cfg.Metrics.Model(em.ID), thresholds: new(atomic.Pointer[Thresholds])}
		m.thresholds.Store(&th)
	}
	key := poolKey{model: em.ID, blockSize: em.BlockSize, tokenizer: em.Tokenizer}
	for _, p := range m.pools {
		if p.key == key {
			return p
		}
	}
	p := &pool{
		key:        key,
		thresholds: m.thresholds,
		metrics:    r.cfg.Metrics.Router(em.ID, metrics.WorkerDecode),
	}
	p.rng = rand.New(&p.chance)
	grown := *m
	grown.pools = append(slices.Clone(m.pools), p)
	r.models[em.ID] = &grown
	return p
}

// summarizeLocked publishes what a model's workers have in common. The view that
// readers hold is replaced, never changed, so that they need no lock.
func (r *Router) summarizeLocked(old *Model) {
	m := *old
	m.ContextLength, m.Tokenizer, m.BlockSize, m.Adapter, m.Parent = 0, "", 0, false, ""
	var info metrics.Info
	first := true
	m.pools = nil
	for _, p := range old.pools {
		n := p.models(func(em *engine.Model) {
			m.ContextLength = max(m.ContextLength, em.ContextLength)
			if em.Parent != "" {
				m.Adapter, m.Parent = true, em.Parent
			}
			if first {
				m.Tokenizer, m.BlockSize, first = em.Tokenizer, em.BlockSize, false
			}
			if m.Tokenizer != em.Tokenizer {
				m.Tokenizer = ""
			}
			if m.BlockSize != em.BlockSize {
				m.BlockSize = 0
			}
			info.TotalKVBlocks = max(info.TotalKVBlocks, em.TotalBlocks)
			info.MaxNumBatchedTokens = max(info.MaxNumBatchedTokens, em.MaxBatchedTokens)
			info.KVCacheBlockSize = max(info.KVCacheBlockSize, em.BlockSize)
		})
		if n > 0 {
			m.pools = append(m.pools, p)
		} else {
			p.metrics.Close() // its ranks have left; what is booked ends by itself
		}
	}
	info.ContextLength = m.ContextLength
	m.Metrics.SetInfo(info)
	r.models[m.ID] = &m
}

// CountWorkers publishes how many ranks of each model are in which state. It is
// meant to be called when somebody looks.
func (r *Router) CountWorkers() {
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
