package frontend

import (
	"context"
	"errors"
	"fmt"
)

// ErrStopping is the cause with which the context of requests is cancelled when
// the server cannot wait for them any longer: they tell their clients so.
var ErrStopping = errors.New("the server is stopping")

// Drain refuses new requests from now on and waits until those in flight have
// ended, or until ctx ends: then it returns an error that says how many are left.
// Health and readiness turn to 503 at once, so that load balancers move on.
func (s *Server) Drain(ctx context.Context) error {
	s.idle.Lock()
	if s.idle.wait == nil {
		s.idle.wait = make(chan struct{})
		s.draining.Store(true)
		if s.inflight.Load() == 0 {
			close(s.idle.wait)
		}
	}
	wait := s.idle.wait
	s.idle.Unlock()
	select {
	case <-wait:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("drain: %d requests still running: %w", s.inflight.Load(), ctx.Err())
	}
}

// Inflight returns the number of inference requests being served.
func (s *Server) Inflight() int { return int(s.inflight.Load()) }

// enter counts a request in. It returns false, and counts nothing, when the
// server drains or is full.
func (s *Server) enter() (ok, full bool) {
	n := s.inflight.Add(1)
	if limit := s.cfg.Limits.Inflight; limit > 0 && n > int64(limit) {
		s.leave()
		return false, true
	}
	if s.draining.Load() {
		s.leave()
		return false, false
	}
	return true, false
}

func (s *Server) leave() {
	if s.inflight.Add(-1) > 0 || !s.draining.Load() {
		return
	}
	s.idle.Lock()
	defer s.idle.Unlock()
	select {
	case <-s.idle.wait:
	default:
		if s.inflight.Load() == 0 {
			close(s.idle.wait)
		}
	}
}
