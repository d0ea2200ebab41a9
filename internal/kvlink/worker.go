package kvlink

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvfeed"
)

// worker is what is followed of one engine: its streams, or the poller that it is
// asked by.
type worker struct {
	links *Links
	id    kv.WorkerID

	mu struct {
		sync.Mutex
		ranks   uint32             // how many it has
		streams map[uint32]*stream // by the rank that they were found for
		// owners are the streams whose batches were of a rank. A rank has one, so that
		// its batches come one after another; what others say about it is misplaced.
		owners map[uint32]*stream
		poll   *poll
		states map[uint32]State // as they were told
	}
}

func newWorker(l *Links, id kv.WorkerID) *worker {
	w := &worker{links: l, id: id}
	w.mu.streams = map[uint32]*stream{}
	w.mu.owners = map[uint32]*stream{}
	w.mu.states = map[uint32]State{}
	return w
}

// setRanks takes in how many ranks the engine says it has.
func (w *worker) setRanks(info *engine.Info) {
	n := uint32(1)
	for _, m := range info.Models {
		n = max(n, uint32(max(0, m.Ranks)))
	}
	for _, s := range info.Streams {
		n = max(n, s.Rank+1)
	}
	w.mu.Lock()
	w.mu.ranks = n
	w.mu.Unlock()
}

// all returns the streams in the order of ranks.
func (w *worker) all() []*stream {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]*stream, 0, len(w.mu.streams))
	for _, rank := range slices.Sorted(maps.Keys(w.mu.streams)) {
		all = append(all, w.mu.streams[rank])
	}
	return all
}

func (w *worker) add(s *stream) {
	w.mu.Lock()
	w.mu.streams[s.spec.Rank] = s
	w.mu.Unlock()
}

func (w *worker) remove(s *stream) {
	w.mu.Lock()
	delete(w.mu.streams, s.spec.Rank)
	w.mu.Unlock()
}

// wait waits for the goroutines, which have been told to end.
func (w *worker) wait() {
	for _, s := range w.all() {
		s.wg.Wait()
	}
	w.mu.Lock()
	p := w.mu.poll
	w.mu.Unlock()
	if p != nil {
		p.wg.Wait()
	}
}

// claim returns the rank that a batch of a stream is of, given what the engine calls it,
// and reports whether the stream is the one that tells of that rank. The first to do so
// is.
func (w *worker) claim(s *stream, called uint32) (rank uint32, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rank = w.rankLocked(s, called)
	owner := w.mu.owners[rank]
	switch {
	case owner == s:
		return rank, true
	case owner == nil && rank < w.mu.ranks:
		w.mu.owners[rank] = s
		s.mu.ranks, s.mu.stray = append(s.mu.ranks, rank), nil
		w.refreshLocked()
		return rank, true
	case len(s.mu.ranks) == 0 && s.mu.stray == nil:
		why := "which the worker does not have"
		if owner != nil {
			why = "which another socket tells of"
		}
		s.mu.stray = fmt.Errorf("events are of rank %d, %s", called, why)
		w.refreshLocked()
	}
	return rank, false
}

// rankLocked returns which rank the engine means. One that the worker does not have may
// be counted from where nobody told us. Then, where a socket tells of no other, it is the
// rank that the socket was found for.
func (w *worker) rankLocked(s *stream, called uint32) uint32 {
	rank := called - s.spec.First
	switch {
	case rank < w.mu.ranks, w.mu.owners[rank] != nil:
		return rank
	case s.mu.aliased && called == s.mu.alias:
		return s.spec.Rank
	case len(s.mu.ranks) > 0:
		return rank
	}
	for _, other := range w.mu.streams {
		if other != s && other.spec.Address == s.spec.Address {
			return rank
		}
	}
	s.mu.alias, s.mu.aliased = called, true
	return s.spec.Rank
}

// claimed returns the ranks that a stream tells of: before its first batch, the one
// that it was found for.
func (w *worker) claimed(s *stream) []uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case len(s.mu.ranks) > 0:
		return slices.Clone(s.mu.ranks)
	case w.mu.owners[s.spec.Rank] == nil:
		return []uint32{s.spec.Rank}
	}
	return nil
}

// release lets others tell of the ranks that a stream told of.
func (w *worker) release(s *stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, rank := range s.mu.ranks {
		delete(w.mu.owners, rank)
	}
	s.mu.ranks, s.mu.stray, s.mu.aliased = nil, nil, false
}

// fed hears how the feed of a stream, or of a rank that is polled, stands.
func (w *worker) fed(rank uint32, st kvfeed.State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.mu.streams[rank]; s != nil {
		s.mu.feed = st
	} else if p := w.mu.poll; p != nil && p.follows(rank) {
		p.mu.feeds[rank] = st
	}
	w.refreshLocked()
}

func (w *worker) refresh() {
	w.mu.Lock()
	w.refreshLocked()
	w.mu.Unlock()
}

// refreshLocked finds out how each rank stands and has changes told.
func (w *worker) refreshLocked() {
	now := map[uint32]State{}
	for rank, s := range w.mu.streams {
		if len(s.mu.ranks) == 0 {
			now[rank] = s.stateLocked()
		}
	}
	for rank, s := range w.mu.owners {
		now[rank] = s.stateLocked()
	}
	if p := w.mu.poll; p != nil {
		for rank := range p.ranks {
			now[rank] = p.stateLocked(rank)
		}
	}
	for rank := range w.mu.states {
		if _, ok := now[rank]; !ok {
			w.links.teller.tell(kv.Source{Worker: w.id, Rank: rank}, None)
		}
	}
	for rank, st := range now {
		if was, ok := w.mu.states[rank]; !ok || was != st {
			w.links.teller.tell(kv.Source{Worker: w.id, Rank: rank}, st)
		}
	}
	w.mu.states = now
}

// stats appends a view of each link.
func (w *worker) stats(all []Stats) []Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.mu.streams {
		all = append(all, s.statsLocked())
	}
	if p := w.mu.poll; p != nil {
		for rank := range p.ranks {
			all = append(all, p.statsLocked(rank))
		}
	}
	return all
}
