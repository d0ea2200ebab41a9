package router

import (
	"cmp"
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
	ID     kv.WorkerID
	Name   string // for people: its URL
	Engine engine.Engine
	// Taints are what requests can ask for or shun.
	Taints []string
	// Events says that Router.Apply hears of every change of its caches.
	Events bool

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
	since          atomic.Int64 // Unix nanoseconds of the time when it came
	info           atomic.Pointer[engine.Info]
	pools          atomic.Pointer[[]*pool]
	ranks          atomic.Uint32 // how many it has
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
		r.wake(w)
	}
	return nil
}

// wake has requests go for which a change of w matters.
func (r *Router) wake(w *worker) {
	if pools := w.pools.Load(); pools != nil {
		now := r.cfg.Now()
		for _, p := range *pools {
			p.wake(now)
		}
	}
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
	r.wake(w) // those who wait for it do so in vain
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
	r.cfg.Metrics.DropWorker(uint64(w.ID)) // series of ranks that it has no more
	stays := make(map[*slot]bool)
	var in []*pool
	ranks := 0
	for _, em := range info.Models {
		if em.Parent != "" && serves(info, em.Parent) {
			continue // it goes with its model
		}
		w.complete(&em)
		var adapters []engine.Model
		for _, a := range info.Models {
			if a.Parent == em.ID && a.ID != em.ID {
				a.BlockSize, a.TotalBlocks, a.MaxBatchedTokens, a.Ranks = em.BlockSize, em.TotalBlocks, em.MaxBatchedTokens, em.Ranks
				a.Tokenizer = cmp.Or(a.Tokenizer, em.Tokenizer)
				a.ContextLength = cmp.Or(a.ContextLength, em.ContextLength)
				adapters = append(adapters, a)
			}
		}
		p := r.poolLocked(&em)
		in = append(in, p)
		ranks = max(ranks, em.Ranks)
		for _, a := range adapters {
			r.modelLocked(a.ID, p)
		}
		for rank := range em.Ranks {
			gauges := r.cfg.Metrics.Worker(uint64(w.ID), uint32(rank))
			stays[p.admit(w, uint32(rank), &em, adapters, gauges)] = true
		}
	}
	w.info.Store(info)
	w.pools.Store(&in)
	w.ranks.Store(uint32(ranks))
	w.inhibitedUntil.Store(0)
	w.since.Store(r.cfg.Now().UnixNano())
	w.discovered.Store(true)
	pools := slices.Collect(maps.Values(r.pools))
	for _, p := range pools {
		p.retain(w, stays)
	}
	for _, m := range r.models {
		r.summarizeLocked(m)
	}
	for key, p := range r.pools {
		if p.empty() {
			p.close() // what is booked ends by itself
			delete(r.pools, key)
		}
	}
	r.mu.Unlock()
	now := r.cfg.Now()
	for _, p := range pools {
		p.wake(now)
	}
	r.cfg.Log.Info("worker discovered", "worker", w.ID, "url", w.Name, "engine", info.Kind, "models", len(info.Models))
}

func serves(info *engine.Info, name string) bool {
	return slices.ContainsFunc(info.Models, func(m engine.Model) bool { return m.ID == name })
}

// complete lays the sizes that are configured over those that the engine states.
func (w *worker) complete(em *engine.Model) {
	em.BlockSize = cmp.Or(w.BlockSize, em.BlockSize)
	em.TotalBlocks = cmp.Or(w.TotalBlocks, em.TotalBlocks)
	em.MaxBatchedTokens = cmp.Or(w.MaxBatchedTokens, em.MaxBatchedTokens)
	em.Ranks = max(1, cmp.Or(w.Ranks, em.Ranks))
}

// poolLocked returns the pool for a model as an engine serves it, a new one if
// there is none.
func (r *Router) poolLocked(em *engine.Model) *pool {
	key := poolKey{model: em.ID, blockSize: em.BlockSize, tokenizer: em.Tokenizer}
	p := r.pools[key]
	if p == nil {
		p = newPool(r, key)
		r.pools[key] = p
	}
	r.modelLocked(em.ID, p)
	return p
}

// modelLocked has a pool serve a model or adapter.
func (r *Router) modelLocked(name string, p *pool) {
	m := r.models[name]
	if m == nil {
		th := r.cfg.Thresholds
		m = &Model{ID: name, Created: r.cfg.Now(), Metrics: r.cfg.Metrics.Model(name), thresholds: new(atomic.Pointer[Thresholds])}
		m.thresholds.Store(&th)
	}
	grown := *m
	if !slices.Contains(grown.pools, p) {
		grown.pools = append(slices.Clone(m.pools), p)
		slices.SortFunc(grown.pools, func(a, b *pool) int { // whoever was there first
			return cmp.Or(cmp.Compare(a.key.blockSize, b.key.blockSize), cmp.Compare(a.key.tokenizer, b.key.tokenizer))
		})
	}
	r.models[name] = &grown
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
		n := p.models(m.ID, func(em *engine.Model) {
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
		}
	}
	info.ContextLength = m.ContextLength
	m.Metrics.SetInfo(info)
	r.models[m.ID] = &m
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
