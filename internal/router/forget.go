package router

import (
	"strconv"
	"strings"
	"time"
)

// dueLocked reports whether a model is to be forgotten: no worker has had it for as long
// as models are remembered, and no request of it is under way. One whose last worker was
// taken out and put in again, and has not said yet what it serves, stays.
func (r *Router) dueLocked(m *Model, now time.Time) bool {
	if m.last == 0 || now.Sub(m.left) < r.cfg.ForgetModels || m.booked.Load() > 0 {
		return false
	}
	w := r.workers[m.last]
	return w == nil || w.info.Load() != nil
}

// forgetModels forgets models that nobody serves any more, and what was learned of models
// that have not come, until the router is closed.
func (r *Router) forgetModels() {
	t := time.NewTicker(max(r.cfg.ForgetModels/60, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-t.C:
		}
		now, forgotten := r.cfg.Now(), false
		for _, name := range r.due(now) {
			forgotten = r.forgetModel(name, now) || forgotten
		}
		if forgotten {
			r.readmit()
		}
		if now.Sub(r.began) >= r.cfg.ForgetModels {
			r.forgetLessons()
		}
	}
}

// due returns the names of the models that are to be forgotten.
func (r *Router) due(now time.Time) (names []string) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for name, m := range r.models {
		if r.dueLocked(m, now) {
			names = append(names, name)
		}
	}
	return names
}

// forgetModel forgets a model with all that is kept of it, unless it is wanted by now. If
// it comes back it begins anew.
func (r *Router) forgetModel(name string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.models[name]
	if m == nil || !r.dueLocked(m, now) {
		return false
	}
	delete(r.models, name)
	r.cfg.Metrics.DropModel(name)
	r.cfg.Log.Info("model is forgotten", "model", name, "without_workers", now.Sub(m.left).Round(time.Second))
	return true
}

// forgetLessons forgets what was learned in pools of models that are not known.
func (r *Router) forgetLessons() {
	r.mu.RLock() // so that no model comes in between
	defer r.mu.RUnlock()
	for pool := range r.learned.copy() {
		if !r.knowsPoolLocked(pool) {
			r.learned.drop(pool)
		}
	}
}

// knowsPoolLocked reports whether a pool of that name can be one of a model that is known.
// Names of models may have slashes in them, as those of pools do.
func (r *Router) knowsPoolLocked(pool string) bool {
	for i := range len(pool) {
		if pool[i] != '/' || r.models[pool[:i]] == nil {
			continue
		}
		size, _, _ := strings.Cut(pool[i+1:], "/")
		if _, err := strconv.Atoi(size); err == nil {
			return true
		}
	}
	return false
}

// readmit has workers admitted anew of whose models there was no room for all.
func (r *Router) readmit() {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, w := range r.order {
		if w.refused.Load() {
			w.renew.Store(true)
			w.awaken()
		}
	}
}

// roomLocked reports whether a model is known or may become so.
func (r *Router) roomLocked(name string) bool {
	return r.models[name] != nil || len(r.models) < r.cfg.MaxModels
}

// drop forgets what was learned in a pool, by whomever.
func (s *banditStates) drop(pool string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.saved, pool)
}
