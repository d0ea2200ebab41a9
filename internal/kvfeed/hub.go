package kvfeed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// Errors of a hub.
var (
	ErrClosed  = errors.New("feeds are closed")
	ErrUnknown = errors.New("source is not followed")
	ErrKnown   = errors.New("source is followed already")
	ErrFull    = errors.New("queue of the source is full")
)

// Target is what feeds change. Calls for one rank come one after another, calls for
// different ranks at the same time. An Apply that fails is counted and has had no
// effect. Restore replaces the rank or, when it returns an error, leaves it as it
// was.
type Target interface {
	Apply(*kv.Batch) error
	ClearRank(kv.Source)
	RemoveRank(kv.Source) bool
	Restore(src kv.Source, epoch, seq uint64, events iter.Seq2[*kv.Event, error]) error
}

var (
	_ Target     = (*kvindex.Index)(nil)
	_ Target     = (*Local)(nil)
	_ kv.Applier = (*Hub)(nil)
)

// Config is what a hub works with and its bounds.
type Config struct {
	Target Target
	// Recoverer asks sources about their past. It may be nil if none can be asked.
	Recoverer Recoverer
	// Queue is how many batches may wait for each source. 0 means 4096.
	Queue int
	// QueueBytes bounds them by the sum of their payloads. 0 means 64 MiB.
	QueueBytes int
	// Recoveries is how many may run at once, over all sources. 0 means 16.
	Recoveries int
	// Timeout bounds one attempt of a recovery, the reading of its dump included.
	// 0 means 30 s.
	Timeout time.Duration
	// Now tells the time that lags are measured by.
	Now func() time.Time
	// Changed, if set, is called when a source's state is another than before, once
	// what it says is so. It is called by the goroutine that applies the source's
	// batches and must not wait for the hub.
	Changed func(kv.Source, State)
}

const (
	defaultQueue      = 4096
	defaultQueueBytes = 64 << 20
	defaultRecoveries = 16
	defaultTimeout    = 30 * time.Second
)

// Hub follows many sources. Each has a queue and a goroutine, so that a source with
// much to say, or one that is being recovered, holds up no other. All methods are
// safe for concurrent use.
type Hub struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	slots  chan struct{} // as many as recoveries may run

	mu struct {
		sync.RWMutex
		sources map[kv.Source]*source
		closed  bool
	}
}

// Open returns a hub that follows no source yet. Close ends it. It panics without a
// target or a clock.
func Open(cfg Config) *Hub {
	if cfg.Target == nil || cfg.Now == nil {
		panic("kvfeed: a hub needs a target and a clock")
	}
	if cfg.Queue <= 0 {
		cfg.Queue = defaultQueue
	}
	if cfg.QueueBytes <= 0 {
		cfg.QueueBytes = defaultQueueBytes
	}
	if cfg.Recoveries <= 0 {
		cfg.Recoveries = defaultRecoveries
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	h := &Hub{cfg: cfg, slots: make(chan struct{}, cfg.Recoveries)}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.mu.sources = map[kv.Source]*source{}
	return h
}

// Add begins to follow a source. One that can be asked is asked at once for what it
// holds. If the source is just being removed, Add waits until it is. It returns
// ErrKnown or ErrClosed, or an error if opt contradicts the hub's configuration.
func (h *Hub) Add(src kv.Source, opt Options) error {
	if opt.Recoverable && h.cfg.Recoverer == nil {
		return fmt.Errorf("worker %d rank %d: recoverable: expected a recoverer in the configuration", src.Worker, src.Rank)
	}
	for {
		leaving, err := h.add(src, opt)
		if leaving == nil {
			return err
		}
		<-leaving
	}
}

// add returns what to wait for when the source is being removed.
func (h *Hub) add(src kv.Source, opt Options) (leaving <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed {
		return nil, ErrClosed
	}
	if s := h.mu.sources[src]; s != nil {
		if s.leaving() {
			return s.gone, nil
		}
		return nil, fmt.Errorf("worker %d rank %d: %w", src.Worker, src.Rank, ErrKnown)
	}
	s := newSource(h, src, opt)
	h.mu.sources[src] = s
	h.wg.Go(s.run)
	return nil, nil
}

// Apply takes a batch in, which then belongs to the hub. It never waits: lookups
// see the batch a little later, see Flush. If too many wait already the batch is
// dropped and counted, the feed sees that it is missing, and Apply returns ErrFull.
// Other errors are ErrUnknown and ErrClosed.
func (h *Hub) Apply(b *kv.Batch) error {
	h.mu.RLock()
	s, closed := h.mu.sources[b.Source], h.mu.closed
	h.mu.RUnlock()
	switch {
	case closed:
		return ErrClosed
	case s == nil:
		return fmt.Errorf("worker %d rank %d: %w", b.Source.Worker, b.Source.Rank, ErrUnknown)
	}
	if err := s.push(b); err != nil {
		return fmt.Errorf("worker %d rank %d: batch %d: %w", b.Source.Worker, b.Source.Rank, b.Seq, err)
	}
	return nil
}

// Lost says that a batch of a source arrived and could not be read; see [Feed.Lost].
// It takes its turn among the batches. Errors are ErrUnknown and ErrClosed.
func (h *Hub) Lost(src kv.Source, epoch, seq uint64) error {
	return h.put(src, item{lost: &position{epoch, seq}})
}

// Resync says that the connection to a source was made anew; see [Feed.Resync]. It
// takes its turn among the batches. Errors are ErrUnknown and ErrClosed.
func (h *Hub) Resync(src kv.Source, epoch uint64) error {
	return h.put(src, item{resync: &epoch})
}

func (h *Hub) put(src kv.Source, it item) error {
	h.mu.RLock()
	s, closed := h.mu.sources[src], h.mu.closed
	h.mu.RUnlock()
	switch {
	case closed:
		return ErrClosed
	case s == nil || !s.put(it):
		return fmt.Errorf("worker %d rank %d: %w", src.Worker, src.Rank, ErrUnknown)
	}
	return nil
}

// Remove stops following a source, forgets its rank and reports whether it was
// followed. It is done by the goroutine that applies the source's batches, so that
// none of those waiting can bring the rank back; they are dropped. When Remove
// returns the rank is gone.
func (h *Hub) Remove(src kv.Source) bool {
	h.mu.RLock()
	s := h.mu.sources[src]
	h.mu.RUnlock()
	if s == nil {
		return false
	}
	first := s.end(removed)
	<-s.gone
	return first
}

// Sources returns the sources that are followed, sorted by worker and rank.
func (h *Hub) Sources() []kv.Source {
	all := h.all()
	srcs := make([]kv.Source, len(all))
	for i, s := range all {
		srcs[i] = s.src
	}
	return srcs
}

// Stats returns a view of every source, sorted by worker and rank.
func (h *Hub) Stats() []Stats {
	now := h.cfg.Now()
	all := h.all()
	stats := make([]Stats, len(all))
	for i, s := range all {
		stats[i] = s.stats(now)
	}
	return stats
}

// Flush waits until every batch that was taken in before is applied, or was
// dropped: those held back during a recovery too. It returns ctx's error if that
// ends first.
func (h *Hub) Flush(ctx context.Context) error {
	all := h.all()
	taken := make([]uint64, len(all))
	for i, s := range all {
		taken[i] = s.taken()
	}
	for i, s := range all {
		if err := s.wait(ctx, taken[i]); err != nil {
			return err
		}
	}
	return nil
}

// Close stops following all sources and waits for every goroutine. Batches that
// wait are applied first; those held back by a recovery are not. The ranks stay as
// they are. Close may be called more than once.
func (h *Hub) Close() {
	h.mu.Lock()
	h.mu.closed = true
	for _, s := range h.mu.sources {
		s.end(closed)
	}
	h.mu.Unlock()
	h.cancel()
	h.wg.Wait()
}

func (h *Hub) all() []*source {
	h.mu.RLock()
	all := make([]*source, 0, len(h.mu.sources))
	for _, s := range h.mu.sources {
		all = append(all, s)
	}
	h.mu.RUnlock()
	slices.SortFunc(all, func(a, b *source) int {
		return cmp.Or(cmp.Compare(a.src.Worker, b.src.Worker), cmp.Compare(a.src.Rank, b.src.Rank))
	})
	return all
}
