package router

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/metrics"
)

// admit enters a worker into the pools of the models it serves, and takes it out
// of those that it serves no more. A rank that stays keeps what is booked on it.
//
// A worker that came back, or was started anew, has restarted: its cache is empty.
func (r *Router) admit(w *worker, info *engine.Info, restarted bool) {
	r.mu.Lock()
	if w.removed { // meanwhile
		r.mu.Unlock()
		return
	}
	if w.ranksOf(info) < w.ranks.Load() {
		r.cfg.Metrics.DropWorker(uint64(w.ID)) // series of ranks that it has no more
	}
	w.moving.Lock()
	old := w.info.Swap(info)
	stays := make(map[*slot]bool)
	var in []*pool
	ranks, moved, refused := 0, false, false
	for _, em := range info.Models {
		if em.Parent != "" && em.Parent != em.ID && serves(info, em.Parent) {
			continue // it goes with its model
		}
		w.complete(&em)
		p := r.poolLocked(&em, w.eagle.Load())
		if p == nil {
			refused = true
			continue
		}
		in = append(in, p)
		var adapters []engine.Model
		for _, a := range info.Models {
			if a.Parent == em.ID && a.ID != em.ID {
				if !r.modelLocked(a.ID, p) {
					refused = true
					continue
				}
				a.BlockSize, a.TotalBlocks, a.MaxBatchedTokens, a.Ranks = em.BlockSize, em.TotalBlocks, em.MaxBatchedTokens, em.Ranks
				a.Tokenizer = cmp.Or(a.Tokenizer, em.Tokenizer)
				a.ContextLength = cmp.Or(a.ContextLength, em.ContextLength)
				adapters = append(adapters, a)
			}
		}
		ranks = max(ranks, em.Ranks)
		for rank := range em.Ranks {
			gauges := r.cfg.Metrics.Worker(uint64(w.ID), uint32(rank))
			s := p.admit(w, uint32(rank), &em, adapters, gauges, restarted)
			stays[s] = true
			if restarted {
				moved = moved || p.entered(w.in(), s) != nil
			} else {
				p.carry(w.in(), s)
			}
		}
	}
	if info.Engine != nil {
		w.adapted.Store(&info.Engine)
	} else {
		w.adapted.Store(nil)
	}
	w.pools.Store(&in)
	w.ranks.Store(uint32(ranks))
	w.moving.Unlock()
	if restarted {
		w.clear()
		w.since.Store(r.cfg.Now().UnixNano())
	}
	w.discovered.Store(true)
	pools := slices.Collect(maps.Values(r.pools))
	empty := r.retainLocked(w, stays)
	r.mu.Unlock()
	closeAll(empty)
	if moved && r.follower != nil {
		r.follower.Forget(w.ID) // what it has told of its new life, it told another pool
	}
	r.follow(w, info, restarted)
	now := r.cfg.Now()
	for _, p := range pools {
		p.wake(now)
	}
	r.announce(w, old, info, restarted)
	if !w.refused.Swap(refused) && refused {
		r.cfg.Log.Warn("there are as many models as may be: some of a worker's get no requests", "worker", w.ID, "url", w.Name, "models", r.cfg.MaxModels)
	}
}

// announce logs what a worker is, and of what is wrong with it what was not said before.
func (r *Router) announce(w *worker, old, info *engine.Info, restarted bool) {
	what := "worker discovered"
	if old != nil && !restarted {
		what = "worker has changed"
	}
	r.cfg.Log.Info(what, "worker", w.ID, "url", w.Name, "engine", info.Kind, "version", info.Version, "models", len(info.Models))
	for _, warn := range info.Warnings {
		if old == nil || !slices.Contains(old.Warnings, warn) {
			r.cfg.Log.Warn(warn.Text, "worker", w.ID, "url", w.Name, "code", warn.Code)
		}
	}
}

// retainLocked takes the worker's slots that do not stay out of all pools, and the
// pools that are empty then, which it returns to be closed.
func (r *Router) retainLocked(w *worker, stays map[*slot]bool) (empty []*pool) {
	for _, p := range r.pools {
		p.retain(w, stays)
	}
	for _, m := range r.models {
		r.summarizeLocked(m, w)
	}
	for key, p := range r.pools {
		if p.empty() {
			empty = append(empty, p)
			delete(r.pools, key)
			if p.bandit != nil {
				r.learned.put(p)
			}
		}
	}
	return empty
}

// closeAll ends pools that nobody is in any more. What is booked ends by itself.
func closeAll(pools []*pool) {
	for _, p := range pools {
		p.close()
	}
}

func serves(info *engine.Info, name string) bool {
	return slices.ContainsFunc(info.Models, func(m engine.Model) bool { return m.ID == name })
}

// ranksOf returns how many ranks the worker has by what it says.
func (w *worker) ranksOf(info *engine.Info) (n uint32) {
	for _, em := range info.Models {
		w.complete(&em)
		n = max(n, uint32(em.Ranks))
	}
	return n
}

// complete lays the sizes that are configured over those that the engine states.
func (w *worker) complete(em *engine.Model) {
	em.BlockSize = cmp.Or(w.BlockSize, em.BlockSize, int(w.learned.Load()))
	em.TotalBlocks = cmp.Or(w.TotalBlocks, em.TotalBlocks)
	em.MaxBatchedTokens = cmp.Or(w.MaxBatchedTokens, em.MaxBatchedTokens)
	em.Ranks = max(1, cmp.Or(w.Ranks, em.Ranks))
}

// poolLocked returns the pool for a model as an engine serves it, a new one if
// there is none, and nil if there is no room for the model.
func (r *Router) poolLocked(em *engine.Model, eagle bool) *pool {
	if !r.roomLocked(em.ID) {
		return nil
	}
	key := poolKey{model: em.ID, blockSize: em.BlockSize, tokenizer: em.Tokenizer, eagle: eagle}
	p := r.pools[key]
	if p == nil {
		p = newPool(r, key)
		r.pools[key] = p
	}
	r.modelLocked(em.ID, p)
	return p
}

// modelLocked has a pool serve a model or adapter, and reports whether there was room
// for it.
func (r *Router) modelLocked(name string, p *pool) bool {
	if !r.roomLocked(name) {
		return false
	}
	m := r.models[name]
	if m == nil {
		th := r.cfg.Thresholds
		m = &Model{ID: name, Created: r.cfg.Now(), Metrics: r.cfg.Metrics.Model(name), thresholds: new(atomic.Pointer[Thresholds]), booked: new(atomic.Int64)}
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
	return true
}

// summarizeLocked publishes what a model's workers have in common, after a change of w.
// The view that readers hold is replaced, never changed, so that they need no lock.
func (r *Router) summarizeLocked(old *Model, w *worker) {
	m := *old
	m.ContextLength, m.Tokenizer, m.BlockSize, m.Adapter, m.Parent = 0, "", 0, false, ""
	m.EngineTokens = true
	var info metrics.Info
	first := true
	m.pools = nil
	for _, p := range old.pools {
		n := p.models(m.ID, func(em *engine.Model, kind string) {
			m.EngineTokens = m.EngineTokens && givesTokens(kind)
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
	switch {
	case len(m.pools) > 0:
		m.last = 0
	case m.last == 0:
		m.left, m.last = r.cfg.Now(), w.ID
	}
	m.EngineTokens = m.EngineTokens && len(m.pools) > 0
	info.ContextLength = m.ContextLength
	m.Metrics.SetInfo(info)
	r.models[m.ID] = &m
}

// givesTokens reports whether engines of a kind give the tokens of chats and texts as
// they would compute them.
func givesTokens(kind string) bool {
	return kind == engine.VLLM || kind == engine.SGLang || kind == engine.LlamaCpp
}
