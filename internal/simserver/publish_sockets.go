package simserver

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/internal/kv/enginehash"
	"github.com/stator-ai/stator/internal/zmtp"
)

// publisher is the streams of all ranks, and their sockets.
type publisher struct {
	server  *Config
	cfg     PublishConfig
	layout  layout
	faults  atomic.Pointer[EventFaults]
	streams []rankEvents
	queue   *eventQueue // nil where there are sockets

	listening []*zmtp.Publisher
	replaying []*zmtp.Router

	life context.Context
	kill context.CancelFunc
	wg   sync.WaitGroup // of those who connect
}

// openPublisher opens the sockets that the configuration, which has its defaults,
// asks for.
func openPublisher(server *Config) (*publisher, error) {
	p := &publisher{server: server, cfg: *server.Publish}
	p.faults.Store(new(EventFaults))
	p.life, p.kill = context.WithCancel(context.Background())
	var err error
	if p.layout, err = findLayout(server.Kind, p.cfg.Format); err != nil {
		return nil, err
	}
	if p.layout.polled {
		p.queue = &eventQueue{limit: p.cfg.Buffer}
		for rank := range server.Ranks {
			p.streams = append(p.streams, newQueueStream(p, rank))
		}
		return p, nil
	}
	streams := make([]*zmqStream, server.Ranks)
	for rank := range streams {
		streams[rank] = newZMQStream(p, rank)
		p.streams = append(p.streams, streams[rank])
	}
	if err := p.open(streams); err != nil {
		p.close()
		return nil, fmt.Errorf("simserver: publish: %w", err)
	}
	return p, nil
}

func (p *publisher) open(streams []*zmqStream) (err error) {
	if p.cfg.Replay != "" {
		p.replaying, err = bind(p.cfg.Replay, len(streams), func(rank int, addr string) (*zmtp.Router, error) {
			return zmtp.ListenRouter(addr, streams[rank].replay)
		})
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
	}
	if p.cfg.Connect != "" {
		host, port, err := splitAddr(p.cfg.Connect)
		if err != nil {
			return err
		}
		for rank, s := range streams {
			addr := net.JoinHostPort(host, strconv.Itoa(port+rank))
			p.wg.Go(func() { p.connect(s, addr) })
		}
		return nil
	}
	opt := zmtp.PubOptions{HWM: p.cfg.HWM}
	p.listening, err = bind(p.cfg.Listen, len(streams), func(_ int, addr string) (*zmtp.Publisher, error) {
		return zmtp.ListenPub(addr, opt)
	})
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	for rank, s := range streams {
		s.socket.Store(p.listening[rank])
	}
	return nil
}

// connect keeps a stream connected to a subscriber.
func (p *publisher) connect(s *zmqStream, addr string) {
	const shortest, longest = 100 * time.Millisecond, time.Second
	wait := shortest
	for p.life.Err() == nil {
		socket, err := zmtp.DialPub(p.life, addr, zmtp.PubOptions{HWM: p.cfg.HWM})
		if err != nil {
			select {
			case <-time.After(wait):
			case <-p.life.Done():
			}
			wait = min(2*wait, longest)
			continue
		}
		wait = shortest
		s.socket.Store(socket)
		select {
		case <-socket.Done():
		case <-p.life.Done():
		}
		s.socket.Store(nil)
		socket.Close()
	}
}

// socket is what listens.
type socket interface {
	Addr() net.Addr
	Close() error
}

// bind listens at a port for each rank, one after another. Where any will do it looks
// for as many free ones in a row.
func bind[S socket](addr string, ranks int, listen func(rank int, addr string) (S, error)) ([]S, error) {
	host, first, err := splitAddr(addr)
	if err != nil {
		return nil, err
	}
	const attempts = 100
	for attempt := 1; ; attempt++ {
		var sockets []S
		port := first
		for rank := range ranks {
			var s S
			if s, err = listen(rank, net.JoinHostPort(host, strconv.Itoa(port))); err != nil {
				break
			}
			sockets = append(sockets, s)
			port = s.Addr().(*net.TCPAddr).Port + 1
		}
		if err == nil {
			return sockets, nil
		}
		for _, s := range sockets {
			s.Close()
		}
		if first != 0 || len(sockets) == 0 || attempt == attempts {
			return nil, err
		}
	}
}

// newNames returns the names of a rank that has just started.
func (p *publisher) newNames() *names {
	var none enginehash.Digest
	if p.cfg.HashSeed != "" {
		none = enginehash.NoneHash(p.cfg.HashSeed)
	} else {
		rand.Read(none[:])
	}
	return newNames(p.server.Kind, none, p.server.BlockSize)
}

// restart begins a new life of all ranks, none of which runs a pass meanwhile. Whoever
// is connected is cut off and may connect again.
func (p *publisher) restart() {
	if p.queue != nil {
		p.queue.reset()
	}
	for _, s := range p.streams {
		s.restart()
		if z, ok := s.(*zmqStream); ok {
			if socket := z.socket.Load(); socket != nil {
				socket.Disconnect()
			}
		}
	}
	for _, r := range p.replaying {
		r.Disconnect()
	}
}

func (p *publisher) close() {
	p.kill()
	p.wg.Wait()
	for _, s := range p.listening {
		s.Close()
	}
	for _, s := range p.replaying {
		s.Close()
	}
}

// EventAddrs returns the host and port at which each rank publishes its events and at
// which it answers for those that were missed. Either is empty where none listens.
func (s *Server) EventAddrs() (publish, replay []string) {
	if s.publisher == nil {
		return nil, nil
	}
	for _, p := range s.publisher.listening {
		publish = append(publish, p.Addr().String())
	}
	for _, r := range s.publisher.replaying {
		replay = append(replay, r.Addr().String())
	}
	return publish, replay
}

// SetEventFaults sets what is wrong with the events from now on. A server that
// publishes none has no use for it.
func (s *Server) SetEventFaults(f EventFaults) {
	if s.publisher != nil {
		s.publisher.faults.Store(&f)
	}
}

// queuedEvents returns what the route of TensorRT-LLM for events answers, a JSON array,
// and false where events are not kept for it. The events are gone with it. When there
// are none it waits for some, as that route does.
func (s *Server) queuedEvents(ctx context.Context) ([]byte, bool) {
	if s.publisher == nil || s.publisher.queue == nil {
		return nil, false
	}
	b := []byte{'['}
	for i, ev := range s.publisher.queue.take(ctx, s.life.Done()) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, ev...)
	}
	return append(b, ']'), true
}
