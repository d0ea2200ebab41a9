package zmtp

import (
	"context"
	"fmt"
	"net"
	"time"
)

// DialSub connects a SUB socket to the publisher at addr, a host and port, and
// subscribes to the messages whose first frame begins with one of topics; without any,
// to all. Errors of the peer's making wrap a *ProtocolError.
func DialSub(ctx context.Context, addr string, topics ...string) (*Conn, error) {
	c, err := dial(ctx, addr, MaxMessage, func(c *Conn) error {
		if err := c.handshake(TypeSub); err != nil {
			return err
		}
		return c.subscribe(topics)
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", addr, err)
	}
	return c, nil
}

// subscribe sends the subscriptions of a SUB socket.
func (c *Conn) subscribe(topics []string) error {
	var frames []byte
	for _, t := range topics {
		frames = appendSubscription(frames, t)
	}
	if len(topics) == 0 {
		frames = appendSubscription(frames, "")
	}
	return c.transmit(frames)
}

// DialDealer connects a DEALER socket to the ROUTER, REP or DEALER at addr. Errors of
// the peer's making wrap a *ProtocolError.
func DialDealer(ctx context.Context, addr string) (*Conn, error) {
	c, err := dial(ctx, addr, MaxMessage, func(c *Conn) error { return c.handshake(TypeDealer) })
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	return c, nil
}

// Probe says what kind of socket listens at addr. It hangs up before the handshake is
// complete, so that the other end never counts us as a peer. Where something else than
// ZeroMQ answers, the error wraps a *ProtocolError.
func Probe(ctx context.Context, addr string) (Type, error) {
	c, err := dial(ctx, addr, MaxCommand, func(c *Conn) error {
		c.nc.SetDeadline(time.Now().Add(handshakeTimeout))
		if err := c.greet(); err != nil {
			return err
		}
		return c.meet()
	})
	if err != nil {
		return "", fmt.Errorf("probe %s: %w", addr, err)
	}
	return c.peer, c.Close()
}

// dial connects and lets prepare do what comes before the connection can be used. It
// gives up when ctx ends.
func dial(ctx context.Context, addr string, limit int, prepare func(*Conn) error) (*Conn, error) {
	d := net.Dialer{Timeout: handshakeTimeout, KeepAliveConfig: keepAlive}
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := newConn(nc, buffer(limit), limit)
	stop := context.AfterFunc(ctx, func() { c.Close() })
	err = prepare(c)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// buffer is the size of the read buffer for messages up to a limit.
func buffer(limit int) int {
	if limit < recvBuffer {
		return controlBuffer
	}
	return recvBuffer
}
