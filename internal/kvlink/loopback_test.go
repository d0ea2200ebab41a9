package kvlink

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kvindex"
	"github.com/stator-ai/stator/internal/zmtp"
)

// server is a model behind sockets.
type server struct {
	*model
	topic  bool
	mu     sync.Mutex // of the model
	pub    *zmtp.Publisher
	router *zmtp.Router
}

// serve opens the sockets of a model, at the addresses of a server before if given.
func serve(t *testing.T, m *model, topic bool, hwm int, before *server) *server {
	t.Helper()
	s := &server{model: m, topic: topic}
	events, replay := "127.0.0.1:0", "127.0.0.1:0"
	if before != nil {
		events, replay = before.pub.Addr().String(), before.router.Addr().String()
	}
	var err error
	if s.router, err = zmtp.ListenRouter(replay, s.answer); err != nil {
		t.Fatal(err)
	}
	if s.pub, err = zmtp.ListenPub(events, zmtp.PubOptions{HWM: hwm}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

func (s *server) close() {
	s.pub.Close()
	s.router.Close()
}

func (s *server) answer(p *zmtp.Peer, m zmtp.Message) {
	s.mu.Lock()
	all := s.replies(binary.BigEndian.Uint64(m[len(m)-1]), s.topic)
	s.mu.Unlock()
	for _, m := range all {
		if p.Send(m...) != nil {
			return
		}
	}
}

// steps makes and publishes some batches.
func (s *server) steps(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.pub.Publish(s.step().message()...)
	}
}

func (s *server) stream() engine.EventStream {
	return engine.EventStream{
		Address: s.pub.Addr().String(), Replay: s.router.Addr().String(), Topic: "kv", Counted: true,
	}
}

// loop is links over real sockets.
type loop struct {
	*Links
	t     *testing.T
	index *kvindex.Index
}

func openLoop(t *testing.T) *loop {
	x := kvindex.New(kvindex.Config{})
	l := Open(Config{Target: x, Now: time.Now})
	t.Cleanup(l.Close)
	return &loop{l, t, x}
}

// arrive waits until the rank is live and as far as the model, and compares.
func (l *loop) arrive(s *server) {
	l.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	var st Stats
	for {
		if st = l.Stats()[0]; st.State == Live && st.Feed.Next == s.seq {
			break
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("%v at batch %d of %d: %v", st.State, st.Feed.Next, s.seq, st.LastError)
		}
		time.Sleep(time.Millisecond)
	}
	if err := l.Flush(context.Background()); err != nil {
		l.t.Fatal(err)
	}
	if diff := cmp.Diff(s.cache, holds(l.index, src)); diff != "" {
		l.t.Fatalf("rank is not the engine's cache (-want +got):\n%s", diff)
	}
}

func TestLoopback(t *testing.T) {
	for _, topic := range []bool{false, true} {
		t.Run(fmt.Sprintf("topic in replies %v", topic), func(t *testing.T) {
			l := openLoop(t)
			s := serve(t, newModel(1, 0), topic, 0, nil)
			s.steps(50) // before anybody listens
			l.Follow(7, of(s.stream()), nil, false)
			s.steps(50) // while somebody begins to
			l.arrive(s)
			s.steps(200)
			l.arrive(s)
			for range 5 {
				s.pub.Disconnect()
				s.steps(20)
				l.arrive(s)
			}
			if st := l.Stats()[0]; st.Connects < 2 || st.Feed.Restarts != 0 {
				t.Errorf("%d connects, %d restarts", st.Connects, st.Feed.Restarts)
			}
		})
	}
}

// An engine is killed and started in its place, again and again.
func TestLoopbackRestarts(t *testing.T) {
	l := openLoop(t)
	s := serve(t, newModel(2, 0), true, 0, nil)
	l.Follow(7, of(s.stream()), nil, false)
	for i := range 12 {
		s.steps(3 * i % 7)
		l.arrive(s)
		s.close()
		s.restart()
		for range i % 5 {
			s.step() // before anybody is back
		}
		s = serve(t, s.model, i%2 == 0, 0, s)
		s.steps(i % 3)
		l.arrive(s)
	}
}

// A publisher drops what does not fit into its queue, and the reader finds out.
func TestLoopbackHighWaterMark(t *testing.T) {
	l := openLoop(t)
	s := serve(t, newModel(3, 0), false, 4, nil)
	l.Follow(7, of(s.stream()), nil, false)
	l.arrive(s)
	for range 200 {
		s.steps(10)
	}
	deadline := time.Now().Add(20 * time.Second)
	for s.pub.Dropped() == 0 {
		if time.Now().After(deadline) {
			t.Fatal("nothing was dropped")
		}
		s.steps(100)
	}
	// The last batches may be among those dropped; the next one shows it.
	for l.Stats()[0].Feed.Next != s.seq {
		if time.Now().After(deadline) {
			t.Fatalf("at batch %d of %d", l.Stats()[0].Feed.Next, s.seq)
		}
		s.steps(1)
		time.Sleep(20 * time.Millisecond)
	}
	l.arrive(s)
	if st := l.Stats()[0]; st.Feed.Missed == 0 || st.Feed.Restarts != 0 {
		t.Errorf("%d missed, %d restarts, %d dropped", st.Feed.Missed, st.Feed.Restarts, s.pub.Dropped())
	}
}

// Somebody else listens there.
func TestLoopbackStranger(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"))
			c.Close()
		}
	}()
	l := openLoop(t)
	l.Follow(7, of(engine.EventStream{Address: ln.Addr().String()}), nil, false)
	deadline := time.Now().Add(20 * time.Second)
	for l.Stats()[0].Failures < 2 {
		if time.Now().After(deadline) {
			t.Fatal("no failure is seen")
		}
		time.Sleep(time.Millisecond)
	}
	if st := l.Stats()[0]; st.State != Dialing || st.LastError == nil {
		t.Errorf("%v, %v", st.State, st.LastError)
	}
}
