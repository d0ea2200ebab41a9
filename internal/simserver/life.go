package simserver

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/internal/simengine"
)

// lifetime is the time from a start of the engine to its end. Safe for concurrent use.
type lifetime struct{ now atomic.Pointer[era] }

// era is one life of an engine.
type era struct {
	ctx    context.Context
	kill   context.CancelFunc
	number uint64 // lives before
	began  time.Time
}

// begin starts the next life.
func (l *lifetime) begin() {
	e := &era{began: time.Now()}
	if last := l.now.Load(); last != nil {
		e.number = last.number + 1
	}
	e.ctx, e.kill = context.WithCancel(context.Background())
	l.now.Store(e)
}

// Done returns a channel that is closed when the life that it is now ends.
func (l *lifetime) Done() <-chan struct{} { return l.now.Load().ctx.Done() }

// Err returns an error once the life that it is now has ended.
func (l *lifetime) Err() error { return l.now.Load().ctx.Err() }

// Restart ends the engine as if it had died and begins it anew in the same place:
// answers break off, requests that come meanwhile are refused with 503, and it comes
// back with empty caches, no request, counters at 0, and events numbered from 0 in a
// new epoch. Faults stay. It returns when the new engine is there. A server that is
// closed stays closed.
func (s *Server) Restart() {
	s.restarting.Lock()
	defer s.restarting.Unlock()
	if !s.stop(false /* for good */) {
		return
	}
	for _, r := range s.ranks {
		r.reset()
	}
	if s.publisher != nil {
		s.publisher.restart()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life.begin()
	s.mu.down = s.mu.closed
	if s.mu.closed { // while it was on its way
		s.life.now.Load().kill()
	}
}

// stop ends what runs and lets nothing in. It returns when nothing is left, and reports
// whether the server was open.
func (s *Server) stop(forGood bool) bool {
	s.mu.Lock()
	open := !s.mu.closed
	s.mu.down = true
	s.mu.closed = s.mu.closed || forGood
	if open {
		s.life.now.Load().kill()
		for a := s.mu.answers; a != nil; a = a.next {
			a.cut()
		}
	}
	s.mu.Unlock()
	s.running.Wait()
	return open
}

// closed reports whether the server was closed, and not only restarted.
func (s *Server) closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.closed
}

// reset makes the rank as it was at the start, apart from its clock. Nothing runs.
func (r *rank) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.engine != nil {
		engine, err := simengine.New(r.server.model)
		if err != nil {
			panic(fmt.Sprintf("simserver: %v", err)) // there was one with that model
		}
		r.engine = engine
	}
	r.inbox, r.pass, r.driven, r.batches = nil, nil, false, 0
	r.stats = stats{}
	r.stats.init(r.server.cfg.Kind)
	r.iterations, r.passes, r.unstarted = nil, 0, 0
	r.waiting.Store(0)
}

// clearCaches empties the caches of all ranks and reports whether it could: none may
// have anything to do.
func (s *Server) clearCaches() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.down || s.cfg.Engine == nil {
		return !s.mu.down
	}
	for _, r := range s.ranks {
		if !r.idle() {
			return false
		}
	}
	for _, r := range s.ranks {
		if !r.clear() {
			return false
		}
	}
	return true
}

// idle reports whether the rank has no request.
func (r *rank) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.load() == 0 && r.pass == nil
}

// clear empties the rank's cache, which its next pass tells. The caller holds the
// server's mutex, and the server is not down.
func (r *rank) clear() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.load() > 0 || r.pass != nil || !r.engine.Clear() {
		return false
	}
	if r.server.cfg.Clock == nil && r.engine.Busy() && !r.driven {
		r.driven = true
		r.server.running.Go(r.run)
	}
	return true
}
