package kvfeed

import (
	"context"
	"sync"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// Stats is a view of a source.
type Stats struct {
	Source kv.Source
	State  State
	// Next is the number of the batch expected, in Epoch; Known is whether one is.
	Epoch, Next uint64
	Known       bool
	// Queued is how many batches wait to be looked at, and Lag how long the oldest
	// of them has. Held is how many wait for a recovery.
	Queued, Held int
	Lag          time.Duration
	// Dropped counts batches that found the queue full, Failed those that the
	// target refused.
	Dropped, Failed uint64
	Counts
}

// item is one thing for a source's goroutine to do: the first of its fields that is
// set.
type item struct {
	batch  *kv.Batch
	at     time.Time // when batch came
	answer *answered
	lost   *position
	resync *uint64 // the epoch
}

type answered struct {
	id uint64
	Answer
}

type position struct{ epoch, seq uint64 }

func (p position) before(q position) bool {
	return p.epoch < q.epoch || p.epoch == q.epoch && p.seq < q.seq
}

// ending is why a source is not followed any more.
type ending uint8

const (
	following ending = iota
	closed           // the hub was; what waits is done first
	removed          // the source was; what waits is dropped
)

// source is the shell around the feed of one source. Other goroutines put items
// into its queue; everything else is done by run.
type source struct {
	hub    *Hub
	src    kv.Source
	ctx    context.Context // until the source is not followed any more
	cancel context.CancelFunc
	wake   chan struct{} // of size one: there is something new in mu
	gone   chan struct{} // closed when run has ended

	// Of run alone.
	feed    *Feed
	asking  uint64             // the recovery that runs, 0 for none
	unask   context.CancelFunc // ends it
	failed  uint64
	batches int       // handled since the rank was looked at
	doubted time.Time // when it last was distrusted
	told    State     // as Config.Changed last heard

	mu struct {
		sync.Mutex
		queue   []item
		head    int // the first of queue that was not taken
		batches int // how many there are in it
		bytes   int // of their payloads
		hand    time.Time
		lost    *position // the last batch that was dropped, if none after it shows it
		ending  ending
		pushed  uint64        // batches that were ever put into queue
		done    uint64        // how many of the first of them are applied
		moved   chan struct{} // closed when done changes; nil if nobody waits for it
		seen    Stats         // as of the last item taken
		dropped uint64
	}
}

func newSource(h *Hub, src kv.Source, opt Options) *source {
	s := &source{
		hub: h, src: src, feed: NewFeed(src, opt),
		wake: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(h.ctx)
	s.mu.seen = s.view()
	return s
}

// push adds a batch to the queue.
func (s *source) push(b *kv.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.ending == closed:
		return ErrClosed
	case s.mu.ending == removed:
		return ErrUnknown
	case s.mu.batches >= s.hub.cfg.Queue, s.mu.batches > 0 && s.mu.bytes+len(b.Payload) > s.hub.cfg.QueueBytes:
		s.mu.dropped++
		if s.mu.lost == nil || s.shows(b, *s.mu.lost) {
			s.mu.lost = &position{b.Epoch, b.Seq}
		}
		return ErrFull
	}
	if s.mu.lost != nil && s.shows(b, *s.mu.lost) {
		s.mu.lost = nil
	}
	s.mu.batches++
	s.mu.bytes += len(b.Payload)
	s.mu.pushed++
	s.putLocked(item{batch: b, at: s.hub.cfg.Now()})
	return nil
}

// shows reports whether it can be seen from b, which came later, that p is missing.
func (s *source) shows(b *kv.Batch, p position) bool {
	return s.feed.opt.Ordered || !position{b.Epoch, b.Seq}.before(p)
}

// put adds anything else to the queue, and reports whether it will be looked at.
func (s *source) put(it item) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.ending != following {
		return false
	}
	s.putLocked(it)
	return true
}

func (s *source) putLocked(it item) {
	if n := s.mu.head; n > 64 && n > len(s.mu.queue)/2 {
		s.mu.queue = append(s.mu.queue[:0], s.mu.queue[n:]...)
		clear(s.mu.queue[len(s.mu.queue):cap(s.mu.queue)])
		s.mu.head = 0
	}
	s.mu.queue = append(s.mu.queue, it)
	s.signal()
}

func (s *source) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// end makes run stop and reports whether it was this call that did. A source that
// is being closed can still be removed.
func (s *source) end(e ending) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.mu.ending == following
	s.mu.ending = max(s.mu.ending, e)
	s.cancel()
	s.signal()
	return first
}

func (s *source) leaving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.ending != following
}

// run does what is in the queue until the source is not followed any more.
func (s *source) run() {
	s.take(s.feed.Start())
	for {
		it, ok := s.next()
		if !ok {
			break
		}
		s.handle(it)
	}
	s.leave()
}

// next returns the next item of the queue, and waits until there is one. It reports
// false when there is no more to do.
func (s *source) next() (item, bool) {
	if now := s.feed.State(); now != s.told {
		s.told = now
		if s.hub.cfg.Changed != nil {
			s.hub.cfg.Changed(s.src, now)
		}
	}
	for {
		s.mu.Lock()
		s.mu.seen, s.mu.hand = s.view(), time.Time{}
		if s.feed.Held() == 0 {
			s.doneLocked(s.mu.pushed - uint64(s.mu.batches))
		}
		switch {
		case s.mu.ending == removed:
			s.mu.Unlock()
			return item{}, false
		case s.mu.head < len(s.mu.queue):
			it := s.mu.queue[s.mu.head]
			s.mu.queue[s.mu.head] = item{}
			s.mu.head++
			if s.mu.head == len(s.mu.queue) {
				s.mu.queue, s.mu.head = s.mu.queue[:0], 0
			}
			if it.batch != nil {
				s.mu.batches--
				s.mu.bytes -= len(it.batch.Payload)
				s.mu.hand = it.at
			}
			s.mu.Unlock()
			return it, true
		case s.mu.lost != nil:
			it := item{lost: s.mu.lost}
			s.mu.lost = nil
			s.mu.Unlock()
			return it, true
		case s.mu.ending == closed:
			s.mu.Unlock()
			return item{}, false
		}
		s.mu.Unlock()
		<-s.wake
	}
}

func (s *source) handle(it item) {
	switch {
	case it.batch != nil:
		s.take(s.feed.Batch(it.batch))
		s.doubt()
	case it.lost != nil:
		s.take(s.feed.Lost(it.lost.epoch, it.lost.seq))
	case it.resync != nil:
		s.take(s.feed.Resync(*it.resync))
	case it.answer != nil:
		s.take(s.feed.Answer(it.answer.id, it.answer.Answer))
		if it.answer.id == s.asking {
			s.stop()
		}
	}
}

const (
	doubtEvery = 64 // batches
	doubtLost  = 64 // blocks
)

// doubt looks from time to time whether the rank holds many blocks behind ones that
// it was never told of, and if so has everything told again.
func (s *source) doubt() {
	target, ok := s.hub.cfg.Target.(interface {
		Rank(kv.Source) (kvindex.RankStats, bool)
	})
	if s.batches++; !ok || s.batches < doubtEvery {
		return
	}
	s.batches = 0
	now := s.hub.cfg.Now()
	if st, _ := target.Rank(s.src); st.Lost < doubtLost || now.Sub(s.doubted) < s.feed.opt.Retry {
		return
	}
	s.doubted = now
	s.take(s.feed.Distrust())
}

// take does what the feed wants done.
func (s *source) take(acts []Action) {
	for i := 0; i < len(acts); i++ {
		switch a := &acts[i]; a.Do {
		case Clear:
			s.hub.cfg.Target.ClearRank(s.src)
		case Apply:
			if s.hub.cfg.Target.Apply(a.Batch) != nil {
				s.failed++
			}
		case Restore:
			err := s.hub.cfg.Target.Restore(s.src, a.Dump.Epoch, a.Dump.Last, a.Dump.Dump)
			acts, i = s.feed.Restored(err), -1
		case Recover:
			s.ask(a.Recovery)
		}
	}
	if s.asking != s.feed.Recovery() {
		s.stop()
	}
}

// ask runs a recovery beside this goroutine. Its context lasts until the answer has
// been taken.
func (s *source) ask(r Recovery) {
	s.stop()
	if s.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	s.asking, s.unask = r.ID, cancel
	s.hub.wg.Go(func() {
		if !s.hub.enter(ctx, r.After) {
			return
		}
		timeout := time.AfterFunc(s.hub.cfg.Timeout, cancel)
		context.AfterFunc(ctx, func() { timeout.Stop() })
		a, err := s.hub.cfg.Recoverer.Recover(ctx, s.src, r.From, r.Full)
		<-s.hub.slots
		if err != nil {
			a = Answer{Err: err}
		}
		s.put(item{answer: &answered{id: r.ID, Answer: a}})
	})
}

// enter waits for a time and then for its turn among all recoveries. It reports
// false, and has nothing to give back, if ctx ends first.
func (h *Hub) enter(ctx context.Context, after time.Duration) bool {
	t := time.NewTimer(after)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return false
	}
	select {
	case h.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// stop ends the recovery that runs, if one does.
func (s *source) stop() {
	if s.unask != nil {
		s.unask()
	}
	s.asking, s.unask = 0, nil
}

// taken returns how many batches there are to wait for.
func (s *source) taken() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.ending != following {
		return 0
	}
	return s.mu.pushed
}

// wait waits until the first n batches are applied, or run has ended. What Stats
// returns then is no older.
func (s *source) wait(ctx context.Context, n uint64) error {
	for {
		s.mu.Lock()
		if s.mu.done >= n {
			s.mu.Unlock()
			return nil
		}
		if s.mu.moved == nil {
			s.mu.moved = make(chan struct{})
		}
		moved := s.mu.moved
		s.mu.Unlock()
		select {
		case <-moved:
		case <-s.gone:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// doneLocked notes that the first n batches are applied.
func (s *source) doneLocked(n uint64) {
	if s.mu.done == n {
		return
	}
	s.mu.done = n
	if s.mu.moved != nil {
		close(s.mu.moved)
		s.mu.moved = nil
	}
}

func (s *source) leave() {
	s.cancel()
	s.stop()
	s.mu.Lock()
	gone := s.mu.ending == removed
	s.mu.queue, s.mu.head, s.mu.batches, s.mu.bytes = nil, 0, 0, 0
	s.mu.Unlock()
	if gone {
		s.hub.cfg.Target.RemoveRank(s.src)
		s.hub.mu.Lock()
		delete(s.hub.mu.sources, s.src)
		s.hub.mu.Unlock()
	}
	close(s.gone)
}

// view returns what run knows for Stats.
func (s *source) view() Stats {
	st := Stats{Source: s.src, State: s.feed.State(), Held: s.feed.Held(), Failed: s.failed, Counts: s.feed.Counts()}
	cur := s.feed.Cursor()
	st.Epoch, _ = cur.Epoch()
	st.Next, st.Known = cur.Next()
	return st
}

func (s *source) stats(now time.Time) Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.mu.seen
	st.Queued, st.Dropped = s.mu.batches, s.mu.dropped
	oldest := s.mu.hand
	for i := s.mu.head; oldest.IsZero() && i < len(s.mu.queue); i++ {
		oldest = s.mu.queue[i].at // zero for what is not a batch
	}
	if !oldest.IsZero() {
		st.Lag = max(0, now.Sub(oldest))
	}
	return st
}
