package simserver

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// Listen listens on a TCP address for the server. Connections to it can be refused for
// a while: see [FaultRefuse].
func (s *Server) Listen(addr string) (net.Listener, error) {
	inner, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	g := &gate{addr: inner.Addr(), done: make(chan struct{})}
	g.mu.inner = inner
	s.gates.mu.Lock()
	defer s.gates.mu.Unlock()
	s.gates.all = append(s.gates.all, g)
	if f, on := s.faults.on(FaultRefuse); on {
		g.refuse(f.For)
	}
	return g, nil
}

// gates are the listeners of a server.
type gates struct {
	mu  sync.Mutex
	all []*gate
}

// refuse has all refuse connections for a while, or accept them again.
func (gs *gates) refuse(d time.Duration) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for _, g := range gs.all {
		g.refuse(d)
	}
}

// gate is a listener whose socket is closed while it refuses, so that the system does
// the refusing, and opened again at the same address.
type gate struct {
	addr   net.Addr
	done   chan struct{}
	closed sync.Once

	mu struct {
		sync.Mutex
		inner  net.Listener // nil while it refuses
		opened chan struct{}
		again  *time.Timer
		err    error // it could not be opened
	}
}

// Accept waits for a connection, through all refusing.
func (g *gate) Accept() (net.Conn, error) {
	for {
		g.mu.Lock()
		inner, opened, err := g.mu.inner, g.mu.opened, g.mu.err
		g.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if inner == nil {
			select {
			case <-opened:
			case <-g.done:
				return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: g.addr, Err: net.ErrClosed}
			}
			continue
		}
		c, err := inner.Accept()
		if err == nil || g.is(inner) {
			return c, err
		}
	}
}

// is reports whether a socket is the one that listens, or it never will again.
func (g *gate) is(inner net.Listener) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.done:
		return true
	default:
		return g.mu.inner == inner
	}
}

// refuse closes the socket for a while, or opens it for 0.
func (g *gate) refuse(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.again != nil {
		g.mu.again.Stop()
		g.mu.again = nil
	}
	if d <= 0 {
		g.open()
		return
	}
	if g.mu.inner != nil {
		g.mu.inner.Close()
		g.mu.inner, g.mu.opened = nil, make(chan struct{})
	}
	g.mu.again = time.AfterFunc(d, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.open()
	})
}

// open listens again. The caller holds the mutex.
func (g *gate) open() {
	select {
	case <-g.done:
		return
	default:
	}
	if g.mu.inner != nil {
		return
	}
	inner, err := net.Listen("tcp", g.addr.String())
	if err != nil {
		g.mu.err = fmt.Errorf("listen again after refusing connections: %w", err)
	}
	g.mu.inner = inner
	close(g.mu.opened)
}

// Close stops the listener.
func (g *gate) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed.Do(func() { close(g.done) })
	if g.mu.again != nil {
		g.mu.again.Stop()
	}
	if g.mu.inner == nil {
		return nil
	}
	return g.mu.inner.Close()
}

// Addr returns the listener's address.
func (g *gate) Addr() net.Addr { return g.addr }
