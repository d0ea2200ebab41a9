package kvlink

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvfeed"
)

const (
	// pollPause is the least time between two polls that find nothing, for engines that
	// do not wait themselves.
	pollPause = 20 * time.Millisecond
	// pollTimeout bounds one poll.
	pollTimeout = 30 * time.Second
)

// poll follows an engine that is asked for its events. There is one for all ranks.
type poll struct {
	links  *Links
	worker *worker
	ranks  uint32
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	size   int // of blocks, as it was told; of run

	// mu is worker.mu's to guard.
	mu struct {
		poller    engine.EventPoller
		connected bool // the last poll was answered
		connects  uint64
		failures  uint64
		err       error
		feeds     []kvfeed.State
		counts    []pollCounts
		misplaced uint64
	}
}

// pollCounts are what was heard of one rank.
type pollCounts struct {
	batches, events uint64
	restarts        uint64 // as of the last Follow
	last            time.Time
}

// poll makes the polling of a worker what it should be: with poller, or, if that is
// nil, none.
func (l *Links) poll(w *worker, poller engine.EventPoller, restarted bool) {
	w.mu.Lock()
	p, ranks := w.mu.poll, w.mu.ranks
	w.mu.Unlock()
	if p != nil && (poller == nil || p.ranks != ranks) {
		p.end()
		p = nil
	}
	switch {
	case poller == nil:
	case p == nil:
		l.beginPoll(w, poller, ranks)
	default:
		w.mu.Lock()
		p.mu.poller = poller
		w.mu.Unlock()
		p.follow(restarted)
	}
}

func (l *Links) beginPoll(w *worker, poller engine.EventPoller, ranks uint32) {
	p := &poll{links: l, worker: w, ranks: ranks}
	p.ctx, p.cancel = context.WithCancel(l.ctx)
	p.mu.poller = poller
	p.mu.feeds = make([]kvfeed.State, ranks)
	p.mu.counts = make([]pollCounts, ranks)
	w.mu.Lock()
	w.mu.poll = p
	w.mu.Unlock()
	for rank := range ranks {
		p.add(rank)
	}
	p.wg.Go(p.run)
}

func (p *poll) source(rank uint32) kv.Source { return kv.Source{Worker: p.worker.id, Rank: rank} }

func (p *poll) follows(rank uint32) bool { return rank < p.ranks }

// add begins to follow a rank. What an engine dropped before it was asked cannot be had
// any more.
func (p *poll) add(rank uint32) {
	// It can fail only when the hub is closed, and so are we.
	_ = p.links.hub.Add(p.source(rank), kvfeed.Options{Ordered: true, ClearOnGap: true})
}

// end stops the polling and forgets the ranks.
func (p *poll) end() {
	p.cancel()
	p.wg.Wait()
	for rank := range p.ranks {
		p.links.hub.Remove(p.source(rank))
	}
	w := p.worker
	w.mu.Lock()
	w.mu.poll = nil
	w.mu.Unlock()
}

// follow begins anew the ranks of an engine that was restarted, unless their numbers
// have shown it.
func (p *poll) follow(restarted bool) {
	restarts := map[kv.Source]uint64{}
	for _, st := range p.links.hub.Stats() {
		restarts[st.Source] = st.Restarts
	}
	w := p.worker
	for rank := range p.ranks {
		n := restarts[p.source(rank)]
		w.mu.Lock()
		noticed := n != p.mu.counts[rank].restarts
		if restarted && !noticed {
			n, p.mu.feeds[rank] = 0, kvfeed.Idle
		}
		p.mu.counts[rank].restarts = n
		w.mu.Unlock()
		if restarted && !noticed {
			p.links.hub.Remove(p.source(rank))
			p.add(rank)
		}
	}
}

// run polls until the polling ends.
func (p *poll) run() {
	wait := newBackoff(p.links.cfg.Seed, p.source(0))
	for failing := false; ; {
		began := p.links.cfg.Now()
		n, err := p.once()
		switch {
		case p.ctx.Err() != nil:
			return
		case err != nil:
			if !failing {
				p.links.cfg.Log.LogAttrs(p.ctx, slog.LevelWarn, "kv events: not polled",
					slog.Uint64("worker", uint64(p.worker.id)), slog.Any("err", err))
			}
			if failing = true; !wait.sleep(p.ctx) {
				return
			}
			continue
		}
		failing = false
		wait.reset()
		if rest := pollPause - p.links.cfg.Now().Sub(began); n == 0 && rest > 0 {
			select {
			case <-time.After(rest):
			case <-p.ctx.Done():
				return
			}
		}
	}
}

// once polls once and returns how many batches there were.
func (p *poll) once() (int, error) {
	w := p.worker
	w.mu.Lock()
	poller := p.mu.poller
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(p.ctx, pollTimeout)
	batches, err := poller.PollEvents(ctx)
	cancel()
	if p.ctx.Err() != nil {
		return 0, p.ctx.Err()
	}
	p.polled(batches, err)
	if size := poller.BlockSize(); size != p.size && size > 0 {
		p.size = size
		if tell := p.links.cfg.Learned; tell != nil {
			tell(w.id, size, false)
		}
	}
	// Those of an answer that broke off are lost to everybody else.
	for _, b := range batches {
		b.Source.Worker = w.id
		if !p.follows(b.Source.Rank) {
			continue
		}
		if err := p.links.hub.Apply(b); errors.Is(err, kvfeed.ErrClosed) {
			return 0, err
		}
	}
	return len(batches), err
}

// polled notes what came of a poll.
func (p *poll) polled(batches []*kv.Batch, err error) {
	now := p.links.cfg.Now()
	w := p.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	p.mu.connected, p.mu.err = err == nil, err
	if err == nil {
		p.mu.connects++
	} else {
		p.mu.failures++
	}
	for _, b := range batches {
		if !p.follows(b.Source.Rank) {
			p.mu.misplaced++
			continue
		}
		n := &p.mu.counts[b.Source.Rank]
		n.batches++
		n.events += uint64(len(b.Events))
		n.last = now
	}
	w.refreshLocked()
}

func (p *poll) stateLocked(rank uint32) State {
	if !p.mu.connected {
		return Dialing
	}
	return stateOf(p.mu.feeds[rank])
}

func (p *poll) statsLocked(rank uint32) Stats {
	n := p.mu.counts[rank]
	st := Stats{
		Source: p.source(rank), Polled: true, State: p.stateLocked(rank), Connected: p.mu.connected,
		Connects: p.mu.connects, Failures: p.mu.failures, LastError: p.mu.err,
		Batches: n.batches, Events: n.events, LastBatch: n.last,
	}
	if rank == 0 {
		st.Misplaced = p.mu.misplaced
	}
	return st
}
