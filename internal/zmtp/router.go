package zmtp

import (
	"errors"
	"net"
	"time"
)

// routerHWM is how many messages may wait for one peer of a router.
const routerHWM = 1000

// Router is a ROUTER socket that answers its peers.
type Router struct {
	socket socket
	serve  func(p *Peer, m Message)
}

// Peer is one connection of a router. Its methods may be called concurrently and after
// the peer has gone.
type Peer struct {
	conn *Conn
	out  *outbox
}

// ListenRouter listens at addr, a host and port, and calls serve for each message of a
// peer: one at a time for a peer, and concurrently for several. The message is valid
// until serve returns.
func ListenRouter(addr string, serve func(p *Peer, m Message)) (*Router, error) {
	r := &Router{serve: serve}
	if err := r.socket.listen(addr, TypeRouter, MaxMessage, r.attend); err != nil {
		return nil, err
	}
	return r, nil
}

// attend is the life of a peer.
func (r *Router) attend(c *Conn) {
	p := &Peer{conn: c, out: newOutbox(routerHWM)}
	p.out.serve(c, func() {
		var m Message
		var err error
		for {
			if m, err = c.Recv(m); err != nil {
				return
			}
			r.serve(p, m)
		}
	})
}

// Addr returns the address that peers connect to.
func (r *Router) Addr() net.Addr { return r.socket.addr() }

// Disconnect drops all connections with what waits on them and goes on listening.
func (r *Router) Disconnect() { r.socket.disconnect() }

// Close ends all connections and waits until no serve runs any more.
func (r *Router) Close() error {
	r.socket.close()
	return nil
}

// Send queues a message for the peer, of which it keeps nothing. While a thousand wait
// it blocks, which holds up no other peer; one that takes nothing for ten seconds is
// disconnected. The error is net.ErrClosed when the peer has gone.
func (p *Peer) Send(frames ...[]byte) error {
	if len(frames) == 0 {
		return errors.New("zmtp: send a message without frames")
	}
	msg := appendMessage(make([]byte, 0, messageSize(frames)), frames)
	if p.out.offer(msg) {
		return p.gone()
	}
	timer := time.NewTimer(sendTimeout)
	defer timer.Stop()
	select {
	case p.out.slots <- struct{}{}:
		p.out.push(msg)
		return p.gone()
	case <-p.conn.done:
		return net.ErrClosed
	case <-timer.C:
		return p.conn.fail(errors.New("zmtp: the peer does not read"))
	}
}

// gone reports, as an error, that nothing will be sent any more.
func (p *Peer) gone() error {
	select {
	case <-p.conn.done:
		return net.ErrClosed
	default:
		return nil
	}
}
