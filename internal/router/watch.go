package router

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/stator-ai/stator/internal/engine"
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
		if w.hoarse { // which is why it is gone
			if err := r.sing(w, info); err != nil {
				return err
			}
		}
		if w.tripped.Load() {
			w.breaker.try()
		}
		r.admit(w, info, true)
		return nil
	}
	ctx, cancel := context.WithTimeout(w.ctx, probeTimeout)
	defer cancel()
	if err := w.adapter().Probe(ctx); err != nil {
		return err
	}
	r.review(w)
	if r.songDue(w) {
		if err := r.sing(w, w.info.Load()); err != nil {
			return err
		}
	}
	if w.inhibitedUntil.Load() == 0 {
		return nil
	}
	if w.tripped.Load() {
		if r.cfg.Now().UnixNano() < w.inhibitedUntil.Load() {
			return nil // it is well, as it was when it failed
		}
		w.breaker.try()
		w.since.Store(r.cfg.Now().UnixNano())
		w.tripped.Store(false)
	}
	w.inhibitedUntil.Store(0)
	r.cfg.Log.Info("worker is back", "worker", w.ID, "url", w.Name)
	r.wake(w)
	return nil
}

func (r *Router) identify(w *worker) (*engine.Info, error) {
	ctx, cancel := context.WithTimeout(w.ctx, identifyTimeout)
	defer cancel()
	w.identified = r.cfg.Now()
	return w.Engine.Identify(ctx)
}

// review asks a worker again what it is, from time to time and after it failed: it may
// have been started anew, or serve other adapters by now.
func (r *Router) review(w *worker) {
	renew := w.renew.Swap(false)
	if !renew && w.inhibitedUntil.Load() == 0 && r.cfg.Now().Sub(w.identified) < identifyInterval {
		return
	}
	info, err := r.identify(w)
	if err != nil {
		return // it answers probes, which is enough
	}
	old := w.info.Load()
	restarted := info.Kind != old.Kind || info.Life != old.Life
	if renew || restarted || !same(old, info) {
		until, tripped := w.inhibitedUntil.Load(), w.tripped.Load()
		r.admit(w, info, restarted)
		if !restarted { // it stays what it was
			w.tripped.Store(tripped)
			w.inhibitedUntil.Store(until)
		}
	}
}

// same reports whether an engine says the same as before.
func same(a, b *engine.Info) bool {
	x, y := *a, *b
	x.Engine, y.Engine = nil, nil
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
	until := r.cfg.Now().Add(r.cfg.Inhibit).UnixNano()
	w.inhibitedUntil.Store(max(until, w.inhibitedUntil.Load()))
	if failures >= goneAfter && w.discovered.Swap(false) {
		r.cfg.Log.Warn("worker is gone", "worker", w.ID, "url", w.Name)
		r.cfg.Metrics.DropWorker(uint64(w.ID))
		if r.follower != nil {
			r.follower.Forget(w.ID)
		}
	}
	r.wake(w) // those who wait for it do so in vain
}

// inhibit leaves a worker alone after a request failed on it, and has it probed.
func (r *Router) inhibit(w *worker, o Outcome) {
	until := r.cfg.Now().Add(r.cfg.Inhibit).UnixNano()
	first := w.inhibitedUntil.Swap(max(until, w.inhibitedUntil.Load())) == 0
	w.awaken()
	if first {
		reason := "connection broke"
		if o == Unreachable {
			reason = "connect failed"
		}
		r.cfg.Log.Warn("worker inhibited", "worker", w.ID, "url", w.Name, "reason", reason)
		r.cfg.Metrics.Worker(uint64(w.ID), 0).Inhibited()
	}
}

// ended notes how a request of a worker ended. One whose requests keep failing is left
// alone for a while even if it says that it is well, unless there is no other.
func (r *Router) ended(w *worker, p *pool, o Outcome) {
	switch o {
	case Completed:
		w.breaker.succeeded()
	case Failed, Unreachable, Broken:
		if !w.breaker.failed() || !p.another(w, r.cfg.Now()) {
			return
		}
		if w.tripped.Swap(true) {
			return
		}
		wait := w.breaker.trip()
		w.inhibitedUntil.Store(r.cfg.Now().Add(wait).UnixNano())
		r.cfg.Log.Warn("worker keeps failing and is left alone", "worker", w.ID, "url", w.Name, "for", wait)
		r.cfg.Metrics.Worker(uint64(w.ID), 0).Tripped()
		w.awaken()
		r.wake(w)
	}
}

// another reports whether a request could go to a worker other than w.
func (p *pool) another(w *worker, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.slots {
		if s.worker != w && s.worker.discovered.Load() && !s.worker.inhibited(now) {
			return true
		}
	}
	return false
}
