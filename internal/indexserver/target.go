package indexserver

import (
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvfeed"
	"github.com/stator-ai/stator/internal/kvindex"
)

// target takes in what comes from the sockets of a pool's workers. Whether a batch is
// the next was judged before; here it has to get past who else changes its rank.
type target struct {
	*kvindex.Index // that of the pool
	server         *Server
	pool           *pool
}

var _ kvfeed.Target = target{}

// Apply takes a batch in, and registers its rank along with the worker.
func (t target) Apply(b *kv.Batch) error {
	r, err := t.server.lookup(t.pool, b.Source)
	if err == nil && !r.hear(time.Now(), b, t.server.cfg.Record) {
		err = errUnregistered
	}
	if err != nil {
		t.pool.skipped[skipReason(err)].Add(uint64(len(b.Events)))
	}
	return err
}

// ClearRank empties a rank, which begins anew.
func (t target) ClearRank(src kv.Source) {
	t.forget(src, func() bool { t.Index.ClearRank(src); return true })
}

// RemoveRank forgets what a rank holds. It stays registered.
func (t target) RemoveRank(src kv.Source) bool {
	return t.forget(src, func() bool { return t.Index.RemoveRank(src) })
}

// forget has the blocks of a rank forgotten, unless there is none any more.
func (t target) forget(src kv.Source, forget func() bool) bool {
	_, r := t.server.registered(t.pool.key, src)
	if r == nil || r.pool != t.pool {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		return false
	}
	r.told = false
	r.renumber()
	return forget()
}

// hear takes a batch in that came from a socket, unless the rank is gone.
func (r *rank) hear(now time.Time, b *kv.Batch, record kv.Applier) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		return false
	}
	if r.known && b.Seq <= r.last { // of another source than those before
		r.renumber()
	}
	r.told = true
	r.take(now, b, record)
	return true
}

// renumber begins a new epoch, if the one there is has begun: the ids that follow may
// be any. r.mu is held.
func (r *rank) renumber() {
	if r.known {
		r.known = false
		r.epoch++
	}
}

// take applies a batch as the next of the rank, and has it recorded if there is a
// record. r.mu is held.
func (r *rank) take(now time.Time, b *kv.Batch, record kv.Applier) {
	b.Epoch = r.epoch
	r.pool.index.Tell(now)
	if err := r.pool.index.Apply(b); err != nil {
		panic(err) // an index takes every batch
	}
	if record != nil {
		_ = record.Apply(b) // it counts what it cannot take
	}
	r.known, r.last = true, b.Seq
	r.applied += uint64(len(b.Events))
}
