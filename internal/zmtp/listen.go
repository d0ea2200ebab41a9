package zmtp

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// SubListener is a SUB socket that publishers connect to. Its methods may be called
// concurrently.
type SubListener struct {
	socket socket
	topics []string
	ready  chan *Conn
}

// ListenSub listens at addr, a host and port, for publishers, and subscribes with each
// of them to topics; without any, to everything.
func ListenSub(addr string, topics ...string) (*SubListener, error) {
	l := &SubListener{topics: topics, ready: make(chan *Conn)}
	if err := l.socket.listen(addr, TypeSub, MaxMessage, l.offer); err != nil {
		return nil, err
	}
	return l, nil
}

// offer waits until a connection is accepted.
func (l *SubListener) offer(c *Conn) {
	if c.subscribe(l.topics) != nil {
		return
	}
	l.socket.release(c)
	select {
	case l.ready <- c:
	case <-l.socket.done:
		c.Close()
	}
}

// Accept returns the next publisher that has connected. The connection is the caller's
// and outlives the listener. The error is that of ctx, or net.ErrClosed after Close.
func (l *SubListener) Accept(ctx context.Context) (*Conn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-l.socket.done:
		return nil, net.ErrClosed
	}
}

// Addr returns the address that publishers connect to.
func (l *SubListener) Addr() net.Addr { return l.socket.addr() }

// Close stops listening, ends the connections that nobody has accepted, and waits for
// its goroutines.
func (l *SubListener) Close() error {
	l.socket.close()
	return nil
}

// maxConns bounds the connections that a socket serves at a time. The next ones wait in
// the system's queue.
const maxConns = 1024

// socket is the connections of one socket and the goroutines that serve them.
type socket struct {
	ln     net.Listener  // nil for one that connects
	done   chan struct{} // closed by close
	served chan struct{} // one for each connection that was accepted and is being served
	wg     sync.WaitGroup

	mu struct {
		sync.Mutex
		closed bool
		conns  map[*Conn]struct{}
	}
}

// init makes a socket without listener.
func (s *socket) init() {
	s.done = make(chan struct{})
	s.served = make(chan struct{}, maxConns)
	s.mu.conns = make(map[*Conn]struct{})
}

// listen accepts connections and has each served after its handshake in a goroutine of
// its own. A connection is closed when serve returns, unless it was released.
func (s *socket) listen(addr string, local Type, limit int, serve func(*Conn)) error {
	s.init()
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	ln, err := lc.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return err
	}
	s.ln = ln
	s.wg.Go(func() { s.accept(local, limit, serve) })
	return nil
}

// accept is the loop of a listener. What the system is short of, descriptors as a rule,
// it waits for.
func (s *socket) accept(local Type, limit int, serve func(*Conn)) {
	const longest = time.Second
	delay := 5 * time.Millisecond
	for {
		select {
		case s.served <- struct{}{}:
		case <-s.done:
			return
		}
		nc, err := s.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			<-s.served
			select {
			case <-time.After(delay):
			case <-s.done:
				return
			}
			delay = min(2*delay, longest)
			continue
		}
		delay = 5 * time.Millisecond
		c := newConn(nc, buffer(limit), limit)
		s.start(c, func(c *Conn) {
			defer func() { <-s.served }()
			if c.handshake(local) == nil {
				serve(c)
			}
		})
	}
}

// start has a connection served. It is closed when serve returns, unless it was
// released, and at once where the socket is.
func (s *socket) start(c *Conn, serve func(*Conn)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		c.Close()
		return false
	}
	s.mu.conns[c] = struct{}{}
	s.wg.Go(func() {
		serve(c)
		if s.release(c) {
			c.Close()
		}
	})
	return true
}

// release makes a connection somebody else's. It reports whether it was the socket's.
func (s *socket) release(c *Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ours := s.mu.conns[c]
	delete(s.mu.conns, c)
	return ours
}

// disconnect closes all connections.
func (s *socket) disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.mu.conns {
		c.Close()
	}
}

func (s *socket) addr() net.Addr { return s.ln.Addr() }

// close ends everything and waits for it.
func (s *socket) close() {
	s.mu.Lock()
	first := !s.mu.closed
	s.mu.closed = true
	s.mu.Unlock()
	if first {
		close(s.done)
		if s.ln != nil {
			s.ln.Close()
		}
		s.disconnect()
	}
	s.wg.Wait()
}
