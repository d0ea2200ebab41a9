package kvindex

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stator-ai/stator/internal/kv"
)

// Index is who holds what. A nil Index is that of a router which does not ask: it
// takes everything, holds nothing and finds nothing. Methods are safe for
// concurrent use; batches of one source must come one after another.
type Index struct {
	cfg    Config
	planes atomic.Pointer[[]*plane]

	mu    sync.RWMutex
	ranks map[kv.Source]*rank

	applied    [kv.Cleared + 1][NumStatus]atomic.Uint64
	duplicates atomic.Uint64
	forgotten  atomic.Uint64
	expired    atomic.Uint64
	pruned     atomic.Uint64
	placed     atomic.Int64 // blocks on devices
	held       sync.Map     // the same for each rank: kv.Source to *atomic.Int64
	now        atomic.Int64 // the latest time told
	pruning    sync.Mutex
}

// New returns an empty index.
func New(cfg Config) *Index {
	if !(cfg.PruneRatio > 0 && cfg.PruneRatio <= 1) {
		cfg.PruneRatio = defaultPruneRatio
	}
	if cfg.MaxOrphans == 0 {
		cfg.MaxOrphans = defaultMaxOrphans
	}
	cfg.MaxOrphans = max(cfg.MaxOrphans, 0)
	x := &Index{cfg: cfg, ranks: map[kv.Source]*rank{}}
	x.planes.Store(&[]*plane{})
	return x
}

// compare orders sources by worker and rank.
func compare(a, b kv.Source) int {
	if c := cmp.Compare(a.Worker, b.Worker); c != 0 {
		return c
	}
	return cmp.Compare(a.Rank, b.Rank)
}

// Apply takes in what a rank says. It keeps nothing of the batch. It always
// returns nil: an event that makes no sense is skipped and counted, one of an unknown
// kind or tier is skipped.
func (x *Index) Apply(b *kv.Batch) error {
	if x == nil {
		return nil
	}
	if x.apply(b) && x.cfg.ClearWorker {
		x.visit(func(r *rank) {
			if r.source.Worker == b.Source.Worker && r.source != b.Source {
				r.clear()
			}
		})
	}
	x.prune()
	return nil
}

// apply takes a batch in and reports whether it cleared the rank.
func (x *Index) apply(b *kv.Batch) bool {
	r := x.lock(b.Source)
	defer r.mu.Unlock()
	r.epoch, r.seq, r.known = b.Epoch, b.Seq, true
	return r.apply(b.Events)
}

// apply takes events in and reports whether one of them cleared the rank.
func (r *rank) apply(events []kv.Event) (cleared bool) {
	for i := range events {
		ev := &events[i]
		st := OK
		switch {
		case ev.Tier >= kv.NumTiers:
			continue
		case ev.Kind == kv.Removed:
			st = r.remove(ev)
		case ev.Kind == kv.Stored:
			r.settle()
			st = r.store(ev)
		case ev.Kind == kv.Cleared:
			r.settle()
			r.clear()
			cleared = true
		default:
			continue
		}
		r.counts.applied[ev.Kind][st]++
	}
	r.settle()
	r.account()
	return cleared
}

// counts are figures of a rank that the index has not heard of yet.
type counts struct {
	applied    [kv.Cleared + 1][NumStatus]uint64
	duplicates uint64
	placed     int // of rank.placed, what it has
}

// account adds what was counted to the index's figures.
func (r *rank) account() {
	x := r.index
	for k := range r.counts.applied {
		for st, n := range r.counts.applied[k] {
			if n > 0 {
				x.applied[k][st].Add(n)
			}
		}
	}
	if r.counts.duplicates > 0 {
		x.duplicates.Add(r.counts.duplicates)
	}
	if n := r.orphans.forgotten; n > 0 {
		x.forgotten.Add(n)
		r.orphans.forgotten = 0
	}
	if n := r.placed - r.counts.placed; n != 0 {
		x.placed.Add(int64(n))
		r.held.Add(int64(n))
	}
	r.counts = counts{placed: r.placed}
}

// lock returns a rank, made if there is none, with its lock held.
func (x *Index) lock(src kv.Source) *rank {
	for {
		if r := x.locked(src); r != nil {
			return r
		}
		x.add(src)
	}
}

// locked returns a rank with its lock held, or nil if there is none.
func (x *Index) locked(src kv.Source) *rank {
	for {
		x.mu.RLock()
		r := x.ranks[src]
		x.mu.RUnlock()
		if r == nil {
			return nil
		}
		r.mu.Lock()
		if !r.gone {
			r.now = x.now.Load()
			return r
		}
		r.mu.Unlock()
	}
}

// visit calls do for one rank after the other, with its lock held.
func (x *Index) visit(do func(*rank)) {
	one := func(src kv.Source) {
		if r := x.locked(src); r != nil {
			defer r.mu.Unlock()
			do(r)
			r.account()
		}
	}
	for _, src := range x.Ranks() {
		one(src)
	}
}

// add makes a rank, unless there is one.
func (x *Index) add(src kv.Source) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ranks[src] == nil {
		r, _ := x.seat(src, len(*x.planes.Load())+1)
		x.ranks[src] = r
		r.plane.show(src, r.slot, -1)
	}
}

// seat returns a rank with a slot of one of the first planes, which are made if there
// are not as many, and which no lookup sees. It reports false if they are full. The
// caller holds the index's lock.
func (x *Index) seat(src kv.Source, first int) (*rank, bool) {
	planes := *x.planes.Load()
	for i := range first {
		if i == len(planes) {
			planes = append(slices.Clip(planes), newPlane())
			x.planes.Store(&planes)
		}
		if slot, ok := planes[i].take(); ok {
			return x.newRank(src, planes[i], slot), true
		}
	}
	return nil, false
}

// RemoveRank forgets a rank and reports whether it was known.
func (x *Index) RemoveRank(src kv.Source) bool {
	if x == nil {
		return false
	}
	x.mu.Lock()
	r := x.ranks[src]
	if r != nil {
		delete(x.ranks, src)
		r.plane.hide(r.slot)
	}
	x.mu.Unlock()
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.retire()
	return true
}

// retire gives up everything of a rank that lookups no longer see, and planes that
// nobody needs.
func (r *rank) retire() {
	r.gone = true
	r.sweep()
	r.plane.give(r.slot)
	x := r.index
	x.mu.Lock()
	defer x.mu.Unlock()
	planes := *x.planes.Load()
	for len(planes) > 1 && planes[len(planes)-1].unused() {
		planes = planes[:len(planes)-1]
	}
	x.planes.Store(&planes)
}

// RemoveWorker forgets all ranks of a worker and returns how many there were.
func (x *Index) RemoveWorker(w kv.WorkerID) int {
	n := 0
	for _, src := range x.Ranks() {
		if src.Worker == w && x.RemoveRank(src) {
			n++
		}
	}
	return n
}

// ClearRank forgets the blocks of a rank, and which batch was the last. The rank
// stays.
func (x *Index) ClearRank(src kv.Source) {
	if x == nil {
		return
	}
	if r := x.locked(src); r != nil {
		defer r.mu.Unlock()
		r.clear()
		r.epoch, r.seq, r.known = 0, 0, false
	}
}

// Ranks returns the ranks that are known, sorted.
func (x *Index) Ranks() []kv.Source {
	if x == nil {
		return nil
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	all := make([]kv.Source, 0, len(x.ranks))
	for src := range x.ranks {
		all = append(all, src)
	}
	slices.SortFunc(all, compare)
	return all
}

// Rank returns a view of a rank, and whether it is known.
func (x *Index) Rank(src kv.Source) (RankStats, bool) {
	if x == nil {
		return RankStats{}, false
	}
	r := x.locked(src)
	if r == nil {
		return RankStats{}, false
	}
	defer r.mu.Unlock()
	return RankStats{
		Source: src, Blocks: r.blocks(), Orphans: r.orphans.count, Lost: r.orphans.lost,
		Epoch: r.epoch, Seq: r.seq, Known: r.known,
	}, true
}

// Held returns a figure that always says how many blocks a rank has on its device,
// also of one that is not known yet. It is for those who ask often.
func (x *Index) Held(src kv.Source) *atomic.Int64 {
	if x == nil {
		return new(atomic.Int64)
	}
	n, ok := x.held.Load(src)
	if !ok {
		n, _ = x.held.LoadOrStore(src, new(atomic.Int64))
	}
	return n.(*atomic.Int64)
}

// Stats returns a view of the whole.
func (x *Index) Stats() Stats {
	if x == nil {
		return Stats{}
	}
	s := Stats{
		Forgotten: x.forgotten.Load(), Duplicates: x.duplicates.Load(),
		Expired: x.expired.Load(), Pruned: x.pruned.Load(),
	}
	for _, p := range *x.planes.Load() {
		s.Bytes += p.bytes()
	}
	x.visit(func(r *rank) {
		s.Ranks++
		s.Blocks += r.blocks()
		s.Orphans += r.orphans.count
		s.Bytes += r.bytes()
	})
	for k := range s.Applied {
		for st := range s.Applied[k] {
			s.Applied[k][st] = x.applied[k][st].Load()
		}
	}
	return s
}
