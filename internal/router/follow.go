package router

import (
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
	"github.com/stator-ai/stator/internal/metrics"
)

// Follower hears of workers, so that what they say about their caches can be followed.
// Calls for one worker come one after another.
type Follower interface {
	// Follow is called when a worker was identified: it says what info has, or has to
	// be asked by the poller if that is not nil. Restarted says that its cache is
	// empty.
	Follow(worker kv.WorkerID, info *engine.Info, poller engine.EventPoller, restarted bool)
	// Forget is called when a worker is gone.
	Forget(worker kv.WorkerID)
}

// FeedSampler is a follower that says how its feeds stand.
type FeedSampler interface {
	// Feeds returns the state of the feed of each rank.
	Feeds() []FeedSample
}

// FeedSample is the state of the feed of one rank, and how many of its events were left
// out, by reason.
type FeedSample struct {
	metrics.FeedSample
	Skipped map[string]uint64
}

// sampleFeeds adds the feeds of the pool's ranks, and what was left out of their events.
func (p *pool) sampleFeeds(out *metrics.IndexSample) {
	f, ok := p.router.follower.(FeedSampler)
	if !ok {
		return
	}
	here := make(map[uint64]bool)
	p.mu.Lock()
	for _, s := range p.slots {
		here[uint64(s.target.Worker)] = true
	}
	p.mu.Unlock()
	for _, one := range f.Feeds() {
		if !here[one.Worker] {
			continue
		}
		out.Feeds = append(out.Feeds, one.FeedSample)
		for reason, n := range one.Skipped {
			out.Skipped[reason] += n
		}
	}
}

// SetFollower has f hear of workers. It must be called before the first is added. The
// follower changes the router with [Router.Apply] and the methods beside it, and says
// with [Router.Tells] of which ranks all is known.
func (r *Router) SetFollower(f Follower) { r.follower = f }

// follow hands a worker to the follower.
func (r *Router) follow(w *worker, info *engine.Info, restarted bool) {
	if r.follower == nil || r.cfg.Mode != KV || r.cfg.KV.NoEvents {
		return
	}
	poller, _ := w.adapter().(engine.EventPoller)
	w.voice.begin(r.cfg.Now(), len(info.Streams) > 0 || poller != nil)
	r.follower.Follow(w.ID, info, poller, restarted)
}

// Apply takes in what engines say about their caches, and keeps nothing of the batch.
// Batches of workers and ranks that are not known are left out. It returns nil.
func (r *Router) Apply(b *kv.Batch) error {
	w := r.worker(b.Source.Worker)
	if w == nil {
		return nil
	}
	if w.voice.heard(r.cfg.Now) {
		r.cfg.Log.Info("worker tells of its cache again", "worker", w.ID, "url", w.Name)
		for _, p := range w.in() {
			p.revoice(w, true)
		}
	}
	defer w.stay()()
	for _, p := range w.in() {
		if b.Source.Rank < w.ranks.Load() {
			p.told.Apply(b)
		} else {
			p.strange.Add(uint64(len(b.Events)))
		}
	}
	return nil
}

// ClearRank takes it that a rank's cache is empty.
func (r *Router) ClearRank(src kv.Source) {
	w := r.worker(src.Worker)
	defer w.stay()()
	for _, p := range w.in() {
		p.told.ClearRank(src)
	}
}

// RemoveRank forgets what a rank said of its cache, and reports whether there was
// something.
func (r *Router) RemoveRank(src kv.Source) bool {
	found := false
	w := r.worker(src.Worker)
	defer w.stay()()
	for _, p := range w.in() {
		// The rank stays, and so does what counts its blocks.
		if _, ok := p.told.Rank(src); ok {
			p.told.ClearRank(src)
			found = true
		}
	}
	return found
}

// Restore replaces what is known of a rank's cache by the events of a dump, or leaves
// it as it is when it returns an error.
func (r *Router) Restore(src kv.Source, epoch, seq uint64, events iter.Seq2[*kv.Event, error]) error {
	w := r.worker(src.Worker)
	defer w.stay()()
	pools := w.in()
	if w == nil || src.Rank >= w.ranks.Load() {
		return nil
	}
	if len(pools) > 1 { // each needs them
		var kept []*kv.Event
		for ev, err := range events {
			if err != nil {
				return err
			}
			c := *ev
			c.Blocks = slices.Clone(ev.Blocks)
			kept = append(kept, &c)
		}
		events = func(yield func(*kv.Event, error) bool) {
			for _, ev := range kept {
				if !yield(ev, nil) {
					return
				}
			}
		}
	}
	for _, p := range pools {
		if p.told == nil {
			continue
		}
		if err := p.told.Restore(src, epoch, seq, events); err != nil {
			return err
		}
	}
	return nil
}

// Tells says whether what a rank has in its cache is known from its events, and whether
// partial knowledge is all there is, because it has not told of what it held before. What
// was sent to one that does not tell is taken to be there instead; of one that tells in
// part, what it turns out to hold besides is remembered.
func (r *Router) Tells(src kv.Source, tells, partial bool) {
	w := r.worker(src.Worker)
	if w == nil {
		return
	}
	defer w.stay()()
	w.setTelling(src.Rank, tells, partial)
	for _, p := range w.in() {
		p.setTells(src, tells, partial)
	}
}

// setTelling notes for pools that the worker comes to later whether a rank tells.
func (w *worker) setTelling(rank uint32, tells, partial bool) {
	w.telling.Lock()
	defer w.telling.Unlock()
	if w.telling.ranks == nil {
		w.telling.ranks = make(map[uint32][2]bool)
	}
	w.telling.ranks[rank] = [2]bool{tells, partial}
}

func (w *worker) isTelling(rank uint32) (tells, partial bool) {
	w.telling.Lock()
	defer w.telling.Unlock()
	t := w.telling.ranks[rank]
	return t[0], t[1]
}

// Rank says how a rank stands, the worst of it where it is in several pools, and whether
// it is known.
func (r *Router) Rank(src kv.Source) (worst kvindex.RankStats, ok bool) {
	w := r.worker(src.Worker)
	defer w.stay()()
	for _, p := range w.in() {
		if p.told == nil {
			continue
		}
		if st, known := p.told.Rank(src); known && (!ok || st.Lost > worst.Lost) {
			worst, ok = st, true
		}
	}
	return worst, ok
}

// Learned says what a worker's blocks are, going by its events: how many tokens they
// have, which matters for engines that do not state it, and whether they depend on the
// token after them.
func (r *Router) Learned(id kv.WorkerID, blockSize int, eagle bool) {
	w := r.worker(id)
	if w == nil {
		return
	}
	size := w.learned.Swap(int64(blockSize)) != int64(blockSize)
	info := w.info.Load()
	unstated := info != nil && w.BlockSize == 0 && slices.ContainsFunc(info.Models, func(m engine.Model) bool { return m.BlockSize == 0 })
	if w.eagle.Swap(eagle) != eagle || size && unstated {
		w.renew.Store(true)
		w.awaken()
	}
}

func (r *Router) worker(id kv.WorkerID) *worker {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.workers[id]
}

// in returns the pools that a worker is in. It may be nil.
func (w *worker) in() []*pool {
	if w == nil {
		return nil
	}
	if pools := w.pools.Load(); pools != nil {
		return *pools
	}
	return nil
}

// stay keeps a worker, which may be nil, in its pools until the function that it returns
// is called.
func (w *worker) stay() (done func()) {
	if w == nil {
		return func() {}
	}
	w.moving.RLock()
	return w.moving.RUnlock
}

// entered returns the pool of the same model that a rank's worker leaves for this one;
// nil if it is new, or was here before.
func (p *pool) entered(leaving []*pool, s *slot) *pool {
	if slices.Contains(leaving, p) {
		return nil
	}
	i := slices.IndexFunc(leaving, func(from *pool) bool {
		return from.key.model == p.key.model && s.target.Rank < s.worker.ranks.Load()
	})
	if i < 0 {
		return nil
	}
	return leaving[i]
}

// carry takes over what is known of a rank's cache from the pool that it comes from:
// what an engine has told, it does not tell again. The hashes are of its own blocks,
// whatever those were taken to be. The caller holds the worker's moving.
func (p *pool) carry(leaving []*pool, s *slot) {
	from := p.entered(leaving, s)
	if from == nil || from.told == nil {
		return
	}
	src := s.source()
	if d, ok := from.told.Dump(src); ok && d.Known {
		// It has no errors to return.
		_ = p.told.Restore(src, d.Epoch, d.Seq, func(yield func(*kv.Event, error) bool) {
			for ev := range d.All() {
				if !yield(ev, nil) {
					return
				}
			}
		})
	}
	tells, partial := from.telling(src)
	p.setTells(src, tells, partial)
}

// telling reports whether what a rank has in its cache is known from its events, and
// whether that is only a part.
func (p *pool) telling(src kv.Source) (tells, partial bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.slots {
		if s.source() == src {
			return s.telling.Load(), s.partial.Load()
		}
	}
	return false, false
}

func (p *pool) setTells(src kv.Source, tells, partial bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.slots {
		if s.source() != src {
			continue
		}
		s.partial.Store(partial)
		if s.telling.Swap(tells) == tells {
			continue
		}
		s.held = p.heldBy(s)
		if tells {
			p.sent.ClearRank(src) // it knows better
		}
	}
}

// revoice takes in that a worker does not tell any more, or does again.
func (p *pool) revoice(w *worker, tells bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.slots {
		if s.worker == w {
			s.held = p.heldBy(s)
			if tells && p.tells(s) {
				p.sent.ClearRank(s.source())
			}
		}
	}
}

// heldBy returns the number of blocks in the cache of a rank, as it is known.
func (p *pool) heldBy(s *slot) *atomic.Int64 {
	if p.tells(s) {
		return p.told.Held(s.source())
	}
	return p.sent.Held(s.source())
}

// tells reports whether what a rank holds is known from its events.
func (p *pool) tells(s *slot) bool {
	return p.told != nil && (s.worker.Events || s.telling.Load() && !s.worker.voice.lost.Load())
}

// voice is whether a worker that should tell of its cache does. One that computes
// prompts has something to say.
type voice struct {
	expected atomic.Bool
	last     atomic.Int64 // when it last said something, in Unix nanoseconds
	unsaid   atomic.Int64 // blocks computed since
	lost     atomic.Bool
}

const (
	// silentBlocks is how many blocks an engine may compute without a word, and
	// silentTime for how long it may be silent then.
	silentBlocks = 64
	silentTime   = 10 * time.Second
)

// begin expects the worker to tell from now on, or not to.
func (v *voice) begin(now time.Time, expected bool) {
	if !expected {
		v.expected.Store(false)
		v.lost.Store(false)
		return
	}
	if !v.expected.Swap(true) {
		v.last.Store(now.UnixNano())
		v.unsaid.Store(0)
	}
}

// heard notes that it did, and reports whether it did not before.
func (v *voice) heard(now func() time.Time) bool {
	if !v.expected.Load() {
		return false
	}
	if v.unsaid.Load() != 0 {
		v.unsaid.Store(0)
	}
	v.last.Store(now().UnixNano())
	return v.lost.Load() && v.lost.CompareAndSwap(true, false)
}

// computed notes that it computed so many blocks, and reports whether it has lost its
// voice just now.
func (v *voice) computed(now time.Time, blocks int) bool {
	if blocks <= 0 || !v.expected.Load() {
		return false
	}
	return v.unsaid.Add(int64(blocks)) >= silentBlocks && now.UnixNano()-v.last.Load() >= int64(silentTime) && v.lost.CompareAndSwap(false, true)
}

// deepest returns how much of a prompt a rank has: as it tells itself, or of what was
// sent there, and moves both lists, which are sorted as the slots are, past it.
func (p *pool) deepest(told, sent *[]kvindex.Overlap, s *slot) (depth [kv.NumTiers]uint32) {
	src := s.source()
	if len(*told) > 0 {
		var said [kv.NumTiers]uint32
		if *told = deepen(&said, *told, src); p.tells(s) {
			depth = said
		}
	}
	if len(*sent) > 0 {
		*sent = deepen(&depth, *sent, src)
	}
	return depth
}
