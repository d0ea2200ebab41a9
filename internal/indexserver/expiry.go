package indexserver

import (
	"sync"
	"time"
)

// expiry is the goroutine that drops blocks whose time is over.
type expiry struct {
	stop chan struct{}
	done sync.WaitGroup
}

// Start begins to drop blocks that outlived Config.Index.TTL, if there is one. Call
// it once; Close ends it.
func (s *Server) Start() {
	ttl := s.cfg.Index.TTL
	if ttl <= 0 {
		return
	}
	s.expiry.stop = make(chan struct{})
	s.expiry.done.Go(func() {
		// A block may stay a tenth longer than it should, and a second at most.
		tick := time.NewTicker(max(min(ttl/10, time.Second), time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-s.expiry.stop:
				return
			case now := <-tick.C:
				for _, p := range s.all() {
					p.index.Expire(now)
				}
			}
		}
	})
}

// Close ends what Start began and hangs up on event sockets, and waits for all of it.
// What is known stays, and can be dumped. The caller has stopped listening. Close may be
// called more than once.
func (s *Server) Close() {
	s.linking.Lock()
	s.closed = true
	for _, p := range s.all() {
		p.sockets.close()
	}
	s.linking.Unlock()
	if s.expiry.stop != nil {
		close(s.expiry.stop)
		s.expiry.done.Wait()
		s.expiry.stop = nil
	}
}
