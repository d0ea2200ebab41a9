package zmtp

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
)

// Bounds on what a subscriber may ask for.
const (
	maxSubscriptions = 1024
	maxTopic         = 4 << 10
)

// PubOptions are the settings of a publisher.
type PubOptions struct {
	// HWM is how many messages may wait for one subscriber. What is published while so
	// many do is lost to it. Default: 1000, as in libzmq.
	HWM int
}

// Publisher is a PUB socket. Its methods may be called concurrently.
//
// Each subscriber gets the messages whose first frame begins with a topic that it has
// subscribed to, in order, and loses the latest while it does not keep up. None holds up
// Publish or another, and none is disconnected for being slow.
type Publisher struct {
	hwm     int
	socket  socket
	dropped atomic.Uint64
	done    chan struct{}
	end     func() // closes done, once

	mu struct {
		sync.Mutex
		subs    []*subscriber // in the order of their connecting
		changed chan struct{} // closed when a subscriber comes, goes or subscribes
	}
}

// subscriber is one connection of a publisher. Its topics are guarded by the
// publisher's lock, and counted: what was subscribed to twice is to be cancelled twice.
type subscriber struct {
	topics map[string]int
	out    *outbox
}

func newPublisher(opt PubOptions) *Publisher {
	p := &Publisher{hwm: opt.HWM, done: make(chan struct{})}
	if p.hwm <= 0 {
		p.hwm = 1000
	}
	p.end = sync.OnceFunc(func() { close(p.done) })
	p.mu.changed = make(chan struct{})
	return p
}

// ListenPub makes a publisher that subscribers connect to at addr, a host and port.
func ListenPub(addr string, opt PubOptions) (*Publisher, error) {
	p := newPublisher(opt)
	if err := p.socket.listen(addr, TypePub, MaxCommand, p.serve); err != nil {
		return nil, err
	}
	return p, nil
}

// DialPub makes a publisher that connects to the one SUB socket that listens at addr.
// When that connection ends Done is closed, and what is published goes nowhere.
func DialPub(ctx context.Context, addr string, opt PubOptions) (*Publisher, error) {
	p := newPublisher(opt)
	p.socket.init()
	c, err := dial(ctx, addr, MaxCommand, func(c *Conn) error { return c.handshake(TypePub) })
	if err != nil {
		return nil, fmt.Errorf("publish to %s: %w", addr, err)
	}
	p.socket.start(c, func(c *Conn) {
		defer p.end()
		p.serve(c)
	})
	return p, nil
}

// Publish sends a message to the subscribers of its first frame. It never blocks, and
// keeps nothing of frames.
func (p *Publisher) Publish(frames ...[]byte) {
	if len(frames) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var msg []byte
	for _, s := range p.mu.subs {
		if !s.wants(frames[0]) {
			continue
		}
		if msg == nil {
			msg = appendMessage(make([]byte, 0, messageSize(frames)), frames)
		}
		if !s.out.offer(msg) {
			p.dropped.Add(1)
		}
	}
}

func (s *subscriber) wants(topic []byte) bool {
	for t := range s.topics {
		if len(t) <= len(topic) && string(topic[:len(t)]) == t {
			return true
		}
	}
	return false
}

// serve is the life of a subscriber.
func (p *Publisher) serve(c *Conn) {
	s := &subscriber{topics: make(map[string]int), out: newOutbox(p.hwm)}
	c.command = func(name string, topic []byte) error {
		switch name {
		case "SUBSCRIBE":
			return p.subscribe(s, string(topic))
		case "CANCEL":
			p.cancel(s, string(topic))
		}
		return nil
	}
	p.mu.Lock()
	p.mu.subs = append(p.mu.subs, s)
	p.mu.Unlock()
	defer p.remove(s)
	s.out.serve(c, func() { p.read(c, s) })
}

// read takes the subscriptions of a peer until its connection ends. Other messages, which
// XSUB sockets may send, are passed over.
func (p *Publisher) read(c *Conn, s *subscriber) {
	var m Message
	var err error
	for {
		if m, err = c.Recv(m); err != nil {
			return
		}
		if len(m) != 1 || len(m[0]) == 0 {
			continue
		}
		switch topic := string(m[0][1:]); m[0][0] {
		case 1:
			if err := p.subscribe(s, topic); err != nil {
				c.fail(err)
				return
			}
		case 0:
			p.cancel(s, topic)
		}
	}
}

func (p *Publisher) subscribe(s *subscriber, topic string) error {
	if len(topic) > maxTopic {
		return unexpected("a topic within the limit", "one of %d bytes, where %d are the limit", len(topic), maxTopic)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.topics[topic] == 0 && len(s.topics) == maxSubscriptions {
		return unexpected("few subscriptions", "more than %d", maxSubscriptions)
	}
	s.topics[topic]++
	p.changedLocked()
	return nil
}

func (p *Publisher) cancel(s *subscriber, topic string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := s.topics[topic]; n > 1 {
		s.topics[topic] = n - 1
	} else {
		delete(s.topics, topic)
	}
	p.changedLocked()
}

// remove forgets a subscriber.
func (p *Publisher) remove(s *subscriber) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.subs = slices.DeleteFunc(p.mu.subs, func(other *subscriber) bool { return other == s })
	p.changedLocked()
}

func (p *Publisher) changedLocked() {
	close(p.mu.changed)
	p.mu.changed = make(chan struct{})
}

// Subscribers returns how many connected subscribers have subscribed to something.
func (p *Publisher) Subscribers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.subscribersLocked()
}

func (p *Publisher) subscribersLocked() int {
	n := 0
	for _, s := range p.mu.subs {
		if len(s.topics) > 0 {
			n++
		}
	}
	return n
}

// Wait returns when Subscribers is at least n: before that, what is published goes to
// fewer. The error is that of ctx, or net.ErrClosed when there will not be any more.
func (p *Publisher) Wait(ctx context.Context, n int) error {
	for {
		p.mu.Lock()
		have, changed := p.subscribersLocked(), p.mu.changed
		p.mu.Unlock()
		if have >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.done:
			return net.ErrClosed
		}
	}
}

// Dropped returns how many messages were not sent to a subscriber because too many
// waited for it, counted for each that lost one.
func (p *Publisher) Dropped() uint64 { return p.dropped.Load() }

// Addr returns the address that subscribers connect to; nil where the publisher itself
// has connected.
func (p *Publisher) Addr() net.Addr {
	if p.socket.ln == nil {
		return nil
	}
	return p.socket.addr()
}

// Done is closed when the publisher is closed, and for one that has connected when its
// connection ends.
func (p *Publisher) Done() <-chan struct{} { return p.done }

// Disconnect drops all connections with what waits on them. A publisher that listens
// goes on listening.
func (p *Publisher) Disconnect() {
	p.mu.Lock()
	p.mu.subs = nil
	p.changedLocked()
	p.mu.Unlock()
	p.socket.disconnect()
}

// Close ends all connections, drops what waits on them, and waits for its goroutines.
func (p *Publisher) Close() error {
	p.end()
	p.socket.close()
	return nil
}
