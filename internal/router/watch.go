package router

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
)

const (
	identifyTimeout = 5 * time.Second
	probeTimeout    = 3 * time.Second
	canaryTimeout   = 20 * time.Second
	// retryInterval is the time between probes of a worker that is not well.
	retryInterval = time.Second
	// identifyInterval is the time after which a worker that is well is asked again
	// what it is: adapters come and go.
	identifyInterval = 30 * time.Second
	// goneAfter is the number of failed probes in a row after which a worker
	// counts as gone and is identified anew when it comes back.
	goneAfter = 3
)

// watch looks after one worker until it is removed or the router closes.
func (r *Router) watch(w *worker) {
	polled := make(chan struct{})
	go func() {
		defer close(polled)
		r.poll(w)
	}()
	defer func() { <-polled }()
	failures := 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-w.wake:
		case <-timer.C:
		}
		began := r.cfg.Now()
		err := r.check(w)
		if w.ctx.Err() != nil {
			return
		}
		wait := r.cfg.ProbeInterval
		switch {
		case err == nil:
			failures = 0
			if w.tripped.Load() { // it is asked again when its time is over
				wait = min(wait, max(retryInterval, time.Unix(0, w.inhibitedUntil.Load()).Sub(r.cfg.Now())))
			}
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

// poll asks a worker that tells about its load.
func (r *Router) poll(w *worker) {
	ticker := time.NewTicker(r.cfg.LoadInterval)
	defer ticker.Stop()
	var asked time.Time
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-ticker.C:
		}
		loader, ok := w.adapter().(engine.Loader)
		if !ok || !w.discovered.Load() {
			continue
		}
		now := r.cfg.Now()
		if s, ok := loader.(engine.Sparing); ok && now.Sub(asked) < s.LoadEvery() {
			continue
		}
		asked = now
		ctx, cancel := context.WithTimeout(w.ctx, probeTimeout)
		loads, err := loader.Load(ctx)
		cancel()
		if err == nil {
			r.Report(w.ID, loads)
		}
	}
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}

// check identifies a worker that is not known yet and probes one that is.
func (r *Router) check(w *worker) error {
	if !w.discovered.Load() {
		info, err := r.identify(w)
		if err != nil {
			return err
		}
		if err := r.vet(w, info); err != nil {
			return err
		}
		r.admit(w, info, true)
		return nil
	}
	ctx, cancel := context.WithTimeout(w.ctx, probeTimeout)
	defer cancel()
	if err := w.adapter().Probe(ctx); err != nil {
		return err
	}
	if err := r.review(w); err != nil {
		return err
	}
	if r.songDue(w) {
		if err := r.sing(w, w.info.Load()); err != nil {
			return err
		}
	}
	if w.back(r.cfg.Now()) {
		r.cfg.Log.Info("worker is back", "worker", w.ID, "url", w.Name)
		r.wake(w)
	}
	return nil
}

// vet has a worker compute a token whose requests failed, or that could not when it was
// last asked to, before it gets requests again.
func (r *Router) vet(w *worker, info *engine.Info) error {
	if w.hoarse || w.tripped.Load() {
		if err := r.sing(w, info); err != nil {
			return err
		}
	}
	if w.tripped.Load() {
		w.breaker.try()
	}
	return nil
}

// back ends the inhibition of a worker that is well, and reports whether there was one.
// One that is tripped is as well as it was when it failed, and has to wait.
func (w *worker) back(now time.Time) bool {
	w.trouble.Lock()
	defer w.trouble.Unlock()
	until := w.inhibitedUntil.Load()
	if until == 0 || w.tripped.Load() && now.UnixNano() < until {
		return false
	}
	if w.tripped.Load() {
		w.breaker.try()
		w.since.Store(now.UnixNano())
		w.tripped.Store(false)
	}
	w.inhibitedUntil.Store(0)
	return true
}

// clear forgets what was wrong with a worker that began anew.
func (w *worker) clear() {
	w.trouble.Lock()
	defer w.trouble.Unlock()
	w.inhibitedUntil.Store(0)
	w.tripped.Store(false)
}

// leave has a worker left alone until then at least, and reports whether it was not
// before.
func (w *worker) leave(until time.Time) bool {
	w.trouble.Lock()
	defer w.trouble.Unlock()
	before := w.inhibitedUntil.Load()
	w.inhibitedUntil.Store(max(before, until.UnixNano()))
	return before == 0
}

func (r *Router) identify(w *worker) (*engine.Info, error) {
	ctx, cancel := context.WithTimeout(w.ctx, identifyTimeout)
	defer cancel()
	w.identified = r.cfg.Now()
	return w.Engine.Identify(ctx)
}

// review asks a worker again what it is, from time to time and after it failed: it may
// have been started anew, or serve other adapters by now. The error is that of one that
// was started anew and does not compute.
func (r *Router) review(w *worker) error {
	renew, doubted := w.renew.Swap(false), w.doubted.Swap(false)
	if !renew && !doubted && w.inhibitedUntil.Load() == 0 && r.cfg.Now().Sub(w.identified) < identifyInterval {
		return nil
	}
	info, err := r.identify(w)
	if err != nil {
		w.renew.CompareAndSwap(false, renew)
		w.doubted.CompareAndSwap(false, doubted)
		return nil // it answers probes, which is enough
	}
	old := w.info.Load()
	restarted := info.Kind != old.Kind || info.Life != "" && old.Life != "" && info.Life != old.Life
	if restarted {
		if err := r.vet(w, info); err != nil {
			return err
		}
	} else {
		info = complement(info, old)
	}
	switch {
	case renew || restarted || !same(old, info):
		r.admit(w, info, restarted)
	case old.Life != info.Life: // which it had not said
		w.info.Store(info)
	}
	return nil
}

// Doubt has a worker asked at once what it is, because it may be another by now: its
// connection was lost, or it does not know what it should serve.
func (r *Router) Doubt(id kv.WorkerID) {
	if w := r.worker(id); w != nil {
		w.doubted.Store(true)
		w.awaken()
	}
}

// complement returns info with what an engine said before, where it does not say it now.
// A question that was not answered in time is no change.
func complement(info, old *engine.Info) *engine.Info {
	out := *info
	out.Life, out.Version = cmp.Or(info.Life, old.Life), cmp.Or(info.Version, old.Version)
	out.Slots, out.Priority = cmp.Or(info.Slots, old.Slots), cmp.Or(info.Priority, old.Priority)
	out.Models = slices.Clone(info.Models)
	for i := range out.Models {
		m := &out.Models[i]
		at := slices.IndexFunc(old.Models, func(o engine.Model) bool { return o.ID == m.ID && o.Parent == m.Parent })
		if at < 0 {
			continue
		}
		o := &old.Models[at]
		m.Tokenizer = cmp.Or(m.Tokenizer, o.Tokenizer)
		for _, f := range []struct{ to, from *int }{
			{&m.ContextLength, &o.ContextLength}, {&m.BlockSize, &o.BlockSize}, {&m.TotalBlocks, &o.TotalBlocks},
			{&m.MaxBatchedTokens, &o.MaxBatchedTokens}, {&m.MaxSeqs, &o.MaxSeqs}, {&m.Ranks, &o.Ranks},
		} {
			*f.to = cmp.Or(*f.to, *f.from)
		}
		if o.TotalBlocks > 0 && info.Models[i].TotalBlocks == 0 {
			m.Ranks = max(m.Ranks, o.Ranks) // where it says nothing, one is a guess
		}
	}
	if len(info.Streams) == 0 && len(old.Streams) > 0 {
		out.Streams, out.Warnings = old.Streams, old.Warnings
	}
	out.Streams = slices.Clone(out.Streams)
	for i := range out.Streams {
		s := &out.Streams[i]
		if at := slices.IndexFunc(old.Streams, func(o engine.EventStream) bool { return o.Rank == s.Rank && o.Address == s.Address }); at >= 0 {
			s.Replay, s.BlockSize = cmp.Or(s.Replay, old.Streams[at].Replay), cmp.Or(s.BlockSize, old.Streams[at].BlockSize)
		}
	}
	return &out
}

// same reports whether an engine says the same as before, but for when it began.
func same(a, b *engine.Info) bool {
	x, y := *a, *b
	x.Engine, y.Engine = nil, nil
	x.Life, y.Life = "", ""
	return reflect.DeepEqual(x, y)
}

// songDue reports whether a worker has to show that it computes: it has not for long, or
// its requests failed although it says that it is well.
func (r *Router) songDue(w *worker) bool {
	now := r.cfg.Now().UnixNano()
	due := w.hoarse || w.tripped.Load() && now >= w.inhibitedUntil.Load()
	if every := r.cfg.CanaryInterval; every > 0 {
		due = due || now-max(w.answered.Load(), w.since.Load()) >= int64(every)
	}
	return due
}

// sing has a worker compute a token, if its engine can be asked to.
func (r *Router) sing(w *worker, info *engine.Info) error {
	adapter := w.Engine
	if info.Engine != nil {
		adapter = info.Engine
	}
	canary, ok := adapter.(engine.Canary)
	if !ok || len(info.Models) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(w.ctx, canaryTimeout)
	defer cancel()
	if err := canary.Canary(ctx, info.Models[0].ID); err != nil {
		w.hoarse = true
		return err
	}
	w.hoarse = false
	w.answered.Store(r.cfg.Now().UnixNano())
	return nil
}

// wake has requests go for which a change of w matters.
func (r *Router) wake(w *worker) {
	now := r.cfg.Now()
	for _, p := range w.in() {
		p.wake(now)
	}
}

// awaken has the worker probed at once.
func (w *worker) awaken() {
	select {
	case w.wake <- struct{}{}:
	default:
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
	w.leave(r.cfg.Now().Add(r.cfg.Inhibit))
	if failures >= goneAfter && w.discovered.Swap(false) {
		r.cfg.Log.Warn("worker is gone", "worker", w.ID, "url", w.Name)
		r.cfg.Metrics.DropWorker(uint64(w.ID))
		if r.follower != nil {
			r.follower.Forget(w.ID)
		}
	}
	r.wake(w) // those who wait for it do so in vain
}

// settle draws conclusions about a worker from how a request on it ended. One that broke
// is left alone until it is probed. One whose requests keep failing is left alone for a
// while even if it says that it is well, unless there is no better.
func (p *Placement) settle(o Outcome) {
	r, w := p.router, p.slot.worker
	if o == Completed {
		w.breaker.succeeded()
	}
	if o != Failed && !o.inhibits() || w.ctx.Err() != nil {
		return
	}
	now := r.cfg.Now()
	p.pool.mu.Lock()
	gauges := p.slot.gauges
	p.pool.mu.Unlock()
	if o.inhibits() {
		first := w.leave(now.Add(r.cfg.Inhibit))
		w.awaken()
		if first {
			reason := "connection broke"
			if o == Unreachable {
				reason = "connect failed"
			}
			r.cfg.Log.Warn("worker inhibited", "worker", w.ID, "url", w.Name, "reason", reason)
			gauges.Inhibited()
		}
	}
	if !w.breaker.failed() || !r.better(p.model, w, now) {
		return
	}
	w.trouble.Lock()
	tripped := w.tripped.Swap(true)
	var wait time.Duration
	if !tripped {
		wait = w.breaker.trip()
		w.inhibitedUntil.Store(max(w.inhibitedUntil.Load(), now.Add(wait).UnixNano()))
	}
	w.trouble.Unlock()
	if tripped {
		return
	}
	r.cfg.Log.Warn("worker keeps failing and is left alone", "worker", w.ID, "url", w.Name, "for", wait)
	gauges.Tripped()
	w.awaken()
	r.wake(w)
}

// better reports whether requests for a model could go to a worker other than w that does
// not fail as well: what fails everywhere is the requests' own fault.
func (r *Router) better(m *Model, w *worker, now time.Time) bool {
	r.mu.RLock()
	if latest := r.models[m.ID]; latest != nil {
		m = latest
	}
	r.mu.RUnlock()
	for _, p := range m.pools {
		p.mu.Lock()
		found := slices.ContainsFunc(p.slots, func(s *slot) bool {
			o := s.worker
			return o != w && s.serves(m.ID) && o.discovered.Load() && !o.inhibited(now) && !o.breaker.shaky()
		})
		p.mu.Unlock()
		if found {
			return true
		}
	}
	return false
}
