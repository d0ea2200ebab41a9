package simserver

import (
	"context"
	"net"
	"os"
	"sync"
	"syscall"
)

// MemListener is a listener inside the process: connections are pipes, without
// buffers and without a socket. Goroutines blocked on them let virtual time move
// on. Safe for concurrent use.
type MemListener struct {
	addr   memAddr
	conns  chan net.Conn
	done   chan struct{}
	closed sync.Once
}

var _ net.Listener = (*MemListener)(nil)

// NewMemListener returns a listener whose address prints as name.
func NewMemListener(name string) *MemListener {
	return &MemListener{addr: memAddr(name), conns: make(chan net.Conn), done: make(chan struct{})}
}

// Accept waits for a connection. After Close it returns an error that wraps
// [net.ErrClosed].
func (l *MemListener) Accept() (net.Conn, error) {
	select {
	case <-l.done: // even if somebody is dialling
	default:
		select {
		case c := <-l.conns:
			return c, nil
		case <-l.done:
		}
	}
	return nil, &net.OpError{Op: "accept", Net: l.addr.Network(), Addr: l.addr, Err: net.ErrClosed}
}

// Dial connects to the listener and returns when the connection is accepted. Its
// errors are *[net.OpError] with Op "dial": connection refused after Close, or
// the context's error.
func (l *MemListener) Dial(ctx context.Context) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: l.addr.Network(), Addr: l.addr, Err: err}
	}
	refused := os.NewSyscallError("connect", syscall.ECONNREFUSED)
	select {
	case <-l.done: // even if somebody still accepts, or the context is done as well
		return fail(refused)
	default:
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.done:
		return fail(refused)
	case <-ctx.Done():
		return fail(ctx.Err())
	}
}

// Close stops the listener. Connections that were accepted stay open.
func (l *MemListener) Close() error {
	l.closed.Do(func() { close(l.done) })
	return nil
}

// Addr returns the listener's address.
func (l *MemListener) Addr() net.Addr { return l.addr }

type memAddr string

func (memAddr) Network() string  { return "mem" }
func (a memAddr) String() string { return string(a) }
