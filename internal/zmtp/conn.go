package zmtp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// recvBuffer is how much Recv asks of the socket at a time; controlBuffer is for peers
// that send little.
const (
	recvBuffer    = 64 << 10
	controlBuffer = 1 << 10
)

// Conn is one connection after its handshake. One goroutine may call Recv while others
// call the other methods. Whoever has a Conn has to close it.
type Conn struct {
	nc      net.Conn
	peer    Type
	in      reader
	done    chan struct{}                        // closed when the connection is over
	handle  func(body []byte) error              // dispatch, bound once so that Recv allocates nothing
	command func(name string, data []byte) error // takes commands that are not about the connection; nil: passed over
	pong    func(context []byte) error           // answers a PING

	write struct {
		sync.Mutex
		buf []byte
	}

	state struct {
		sync.Mutex
		err      error     // why the connection is over
		deadline time.Time // of the caller
	}
}

// newConn makes a connection that has its handshake before it.
func newConn(nc net.Conn, buffer, limit int) *Conn {
	c := &Conn{nc: nc, done: make(chan struct{}), in: reader{br: bufio.NewReaderSize(nc, buffer), limit: limit}}
	c.handle = c.dispatch
	c.pong = func(context []byte) error { return c.transmit(appendCommand(nil, "PONG", context)) }
	return c
}

// handshake exchanges greetings and READY commands within handshakeTimeout.
func (c *Conn) handshake(local Type) error {
	c.nc.SetDeadline(time.Now().Add(handshakeTimeout))
	if err := c.greet(); err != nil {
		return err
	}
	if _, err := c.nc.Write(appendReady(nil, local)); err != nil {
		return step("send READY", err)
	}
	if err := c.meet(); err != nil {
		return err
	}
	if err := match(local, c.peer); err != nil {
		return err
	}
	return c.nc.SetDeadline(time.Time{})
}

// greet exchanges greetings.
func (c *Conn) greet() error {
	if _, err := c.nc.Write(appendGreeting(nil)); err != nil {
		return step("send greeting", err)
	}
	err := whole(c.in.greeting())
	if errors.Is(err, io.ErrUnexpectedEOF) {
		// libzmq does so to a peer whose greeting names another mechanism than its own.
		err = fmt.Errorf("the peer hung up, as it does when it wants another mechanism than NULL: %w", err)
	}
	return step("receive greeting", err)
}

// meet waits for the peer's READY.
func (c *Conn) meet() (err error) {
	c.peer, err = c.in.ready()
	return step("receive READY", whole(err))
}

// step says at which step of a handshake an error came. A ProtocolError says so itself.
func step(name string, err error) error {
	var protocol *ProtocolError
	if err == nil || errors.As(err, &protocol) {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// Peer returns the type of the socket at the other end.
func (c *Conn) Peer() Type { return c.peer }

// RemoteAddr returns the address of the other end.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// Recv waits for the next message and returns it in the memory of m, which may be nil
// and must not be used afterwards; the message is valid until it is given to Recv again.
// A PING is answered on the way.
//
// Where a deadline passes between messages, the error is os.ErrDeadlineExceeded and Recv
// can be called again. Every other error ends the connection: io.EOF when the peer
// closed it, net.ErrClosed after Close, a *ProtocolError, or the network's.
func (c *Conn) Recv(m Message) (Message, error) {
	m, begun, err := c.in.message(m, c.handle)
	if err == nil {
		return m, nil
	}
	if !begun && errors.Is(err, os.ErrDeadlineExceeded) {
		return m[:0], err
	}
	return m[:0], c.fail(err)
}

// dispatch acts on a command.
func (c *Conn) dispatch(body []byte) error {
	name, data, err := splitCommand(body)
	if err != nil {
		return err
	}
	switch string(name) {
	case "PING":
		if len(data) < 2 {
			return unexpected("PING with a time to live", "one of %d bytes", len(data))
		}
		return c.pong(data[2:])
	case "ERROR":
		return unexpected("messages", "the error %q", reason(data))
	}
	if c.command != nil {
		return c.command(string(name), data)
	}
	return nil
}

// Send sends one message, and returns when the system has taken it. It waits no longer
// than the deadline and than ten seconds. Where it fails the connection is closed.
func (c *Conn) Send(frames ...[]byte) error {
	if len(frames) == 0 {
		return errors.New("zmtp: send a message without frames")
	}
	c.write.Lock()
	defer c.write.Unlock()
	c.write.buf = appendMessage(c.write.buf[:0], frames)
	err := c.put(c.write.buf, c.deadline())
	if cap(c.write.buf) > recvBuffer {
		c.write.buf = nil
	}
	return err
}

// transmit sends frames that are encoded already. The caller's deadline is not for them:
// a PING may come just before it.
func (c *Conn) transmit(frames []byte) error {
	c.write.Lock()
	defer c.write.Unlock()
	return c.put(frames, time.Time{})
}

// put writes until a deadline, while write is locked.
func (c *Conn) put(frames []byte, deadline time.Time) error {
	limit := time.Now().Add(sendTimeout)
	if !deadline.IsZero() && deadline.Before(limit) {
		limit = deadline
	}
	c.nc.SetWriteDeadline(limit)
	if _, err := c.nc.Write(frames); err != nil {
		return c.fail(err)
	}
	return nil
}

// deadline returns that of the caller.
func (c *Conn) deadline() time.Time {
	c.state.Lock()
	defer c.state.Unlock()
	return c.state.deadline
}

// SetDeadline sets the time after which Recv, and every Send that begins from now on,
// fail. The zero time is none.
func (c *Conn) SetDeadline(t time.Time) error {
	c.state.Lock()
	c.state.deadline = t
	c.state.Unlock()
	return c.nc.SetReadDeadline(t)
}

// Close ends the connection. Recv and Send return. It can be called more than once.
func (c *Conn) Close() error {
	c.fail(net.ErrClosed)
	return nil
}

// fail closes the connection for a reason, and returns the first there was. That is
// never os.ErrDeadlineExceeded, by which callers know that they may go on.
func (c *Conn) fail(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("zmtp: broken off within a message: %v", err)
	}
	c.state.Lock()
	defer c.state.Unlock()
	if c.state.err == nil {
		c.state.err = err
		close(c.done)
		c.nc.Close()
	}
	return c.state.err
}
