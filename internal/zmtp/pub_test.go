package zmtp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestPublish(t *testing.T) {
	checkLeaks(t)
	p := listenPub(t, PubOptions{})
	all := dialSub(t, p.Addr())
	some := dialSub(t, p.Addr(), "kv@a", "kv@b", "kv@b@")
	wait(t, p, 2)
	for _, topic := range []string{"kv@a@m", "kv@c@m", "", "kv@b@m"} {
		p.Publish([]byte(topic), []byte("1"), nil)
	}
	for _, want := range []string{"kv@a@m|1|", "kv@c@m|1|", "|1|", "kv@b@m|1|"} {
		if got := texts(t, all); got != want {
			t.Errorf("all: got %q, want %q", got, want)
		}
	}
	for _, want := range []string{"kv@a@m|1|", "kv@b@m|1|"} {
		if got := texts(t, some); got != want {
			t.Errorf("some: got %q, want %q", got, want)
		}
	}
	if p.Dropped() != 0 {
		t.Errorf("%d dropped", p.Dropped())
	}
}

// Subscriptions come as messages and as commands, are cancelled both ways, and count.
func TestSubscriptions(t *testing.T) {
	checkLeaks(t)
	p := listenPub(t, PubOptions{})
	peer := rawDial(t, p.Addr())
	peer.send(appendGreeting(nil))
	peer.send(appendReady(nil, TypeXSub))
	peer.expect(appendGreeting(nil))
	peer.expect(appendReady(nil, TypePub))

	// A PONG says that everything before its PING was taken.
	sync := func() {
		t.Helper()
		peer.send(appendCommand(nil, "PING", []byte("\x00\x00now")))
		peer.expect(appendCommand(nil, "PONG", []byte("now")))
	}
	subscribe := func(topic string) []byte { return appendMessage(nil, Message{[]byte("\x01" + topic)}) }
	cancel := func(topic string) []byte { return appendMessage(nil, Message{[]byte("\x00" + topic)}) }
	steps := []struct {
		name string
		send []byte
		want bool // whether "abc" is wanted then
	}{
		{"nothing", nil, false},
		{"message", subscribe("ab"), true},
		{"once more", subscribe("ab"), true},
		{"cancelled once", cancel("ab"), true},
		{"cancelled twice", cancel("ab"), false},
		{"cancelled too often", cancel("ab"), false},
		{"command", appendCommand(nil, "SUBSCRIBE", []byte("a")), true},
		{"cancelled by command", appendCommand(nil, "CANCEL", []byte("a")), false},
		{"not a prefix", subscribe("abcd"), false},
		{"something else", appendMessage(nil, Message{[]byte("\x07a"), {}}), false},
		{"empty message", appendMessage(nil, Message{{}}), false},
		{"everything", subscribe(""), true},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			peer.send(step.send)
			sync()
			p.Publish([]byte("abc"))
			if step.want {
				peer.expect(appendMessage(nil, Message{[]byte("abc")}))
			}
			sync()
		})
	}
	if n := p.Subscribers(); n != 1 {
		t.Errorf("%d subscribers", n)
	}
}

// A subscriber that does not read loses the latest, and nobody else loses anything.
func TestSlowSubscriber(t *testing.T) {
	checkLeaks(t)
	const hwm, total = 50, 2000
	p := listenPub(t, PubOptions{HWM: hwm})
	slow := dialSub(t, p.Addr(), "")
	fast := dialSub(t, p.Addr(), "")
	wait(t, p, 2)
	payload := make([]byte, 64<<10) // more than the system's buffers hold in all
	var seq [8]byte
	for i := range total {
		binary.BigEndian.PutUint64(seq[:], uint64(i))
		p.Publish(nil, seq[:], payload)
		m, err := fast.Recv(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := binary.BigEndian.Uint64(m[1]); got != uint64(i) {
			t.Fatalf("the fast one got %d, want %d", got, i)
		}
	}
	lost := p.Dropped()
	if lost == 0 || lost > total-hwm {
		t.Fatalf("%d of %d dropped", lost, total)
	}
	// What was kept is the oldest, in order; from there on it is whole again.
	var m Message
	var err error
	for i := range total - lost {
		if m, err = slow.Recv(m); err != nil {
			t.Fatal(err)
		}
		if i < hwm {
			if got := binary.BigEndian.Uint64(m[1]); got != i {
				t.Fatalf("the slow one got %d, want %d", got, i)
			}
		}
	}
	p.Publish([]byte("after"))
	if got := texts(t, slow); got != "after" {
		t.Errorf("got %q", got)
	}
}

// A subscriber that is stuck does not keep a publisher from closing.
func TestCloseWithStuckSubscriber(t *testing.T) {
	checkLeaks(t)
	p := listenPub(t, PubOptions{HWM: 10})
	dialSub(t, p.Addr())
	wait(t, p, 1)
	payload := make([]byte, 1<<20)
	for p.Dropped() == 0 {
		p.Publish(payload)
	}
	p.Close()
	p.Publish(payload)
	if n := p.Subscribers(); n != 0 {
		t.Errorf("%d subscribers after Close", n)
	}
	if err := p.Wait(testContext(t), 1); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Wait: %v, want %v", err, net.ErrClosed)
	}
}

func TestPublisherRestart(t *testing.T) {
	checkLeaks(t)
	p := listenPub(t, PubOptions{})
	addr := p.Addr()
	c := dialSub(t, addr)
	wait(t, p, 1)

	p.Disconnect()
	if n := p.Subscribers(); n != 0 {
		t.Errorf("%d subscribers after Disconnect", n)
	}
	if _, err := c.Recv(nil); err == nil {
		t.Error("Recv on a dropped connection")
	}
	c = dialSub(t, addr)
	wait(t, p, 1)
	p.Publish([]byte("first life"))
	if got := texts(t, c); got != "first life" {
		t.Errorf("got %q", got)
	}

	p.Close()
	if _, err := c.Recv(nil); err == nil {
		t.Error("Recv from a closed publisher")
	}
	p, err := ListenPub(addr.String(), PubOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c = dialSub(t, addr)
	wait(t, p, 1)
	p.Publish([]byte("second life"))
	if got := texts(t, c); got != "second life" {
		t.Errorf("got %q", got)
	}
}

// Peers that are no subscribers, or ask for too much, are sent away; others stay.
func TestPublisherGarbage(t *testing.T) {
	checkLeaks(t)
	p := listenPub(t, PubOptions{})
	good := dialSub(t, p.Addr())
	wait(t, p, 1)
	handshake := append(appendGreeting(nil), appendReady(nil, TypeSub)...)
	many := handshake
	for i := range maxSubscriptions + 1 {
		many = appendSubscription(many, fmt.Sprint(i))
	}
	tests := map[string][]byte{
		"HTTP":          []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"wrong socket":  append(appendGreeting(nil), appendReady(nil, TypeDealer)...),
		"long topic":    appendSubscription(handshake, strings.Repeat("x", maxTopic+1)),
		"long message":  appendSubscription(handshake, strings.Repeat("x", MaxCommand)),
		"many topics":   many,
		"unknown flags": append(handshake[:len(handshake):len(handshake)], 0xf0, 0),
	}
	for name, sent := range tests {
		t.Run(name, func(t *testing.T) {
			peer := rawDial(t, p.Addr())
			peer.send(sent)
			peer.ended()
		})
	}
	eventually(t, "only one is left", func() bool { return p.Subscribers() == 1 })
	p.Publish([]byte("still here"))
	if got := texts(t, good); got != "still here" {
		t.Errorf("got %q", got)
	}
}

// A connection that says nothing does not keep the next from being served.
func TestHalfOpen(t *testing.T) {
	checkLeaks(t)
	p := listenPub(t, PubOptions{})
	for range 5 {
		rawDial(t, p.Addr())
	}
	c := dialSub(t, p.Addr())
	wait(t, p, 1)
	p.Publish([]byte("x"))
	if got := texts(t, c); got != "x" {
		t.Errorf("got %q", got)
	}
}

func TestWait(t *testing.T) {
	checkLeaks(t)
	p := listenPub(t, PubOptions{})
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(gone)
	if err := p.Wait(ctx, 1); !errors.Is(err, gone) {
		t.Errorf("error %v, want %v", err, gone)
	}
	result := make(chan error)
	go func() { result <- p.Wait(testContext(t), 2) }()
	dialSub(t, p.Addr())
	dialSub(t, p.Addr())
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// Publishers that connect, and the listener that they connect to.
func TestListenSub(t *testing.T) {
	checkLeaks(t)
	l, err := ListenSub("127.0.0.1:0", "kv@")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	rawDial(t, l.Addr()) // says nothing
	p, err := DialPub(testContext(t), l.Addr().String(), PubOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.Addr() != nil {
		t.Errorf("address %v of a publisher that connects", p.Addr())
	}
	c, err := l.Accept(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	wait(t, p, 1)
	p.Publish([]byte("other"))
	p.Publish([]byte("kv@a"), []byte("1"))
	if got := texts(t, c); got != "kv@a|1" {
		t.Errorf("got %q", got)
	}

	// One that nobody accepts ends with the listener, one that was accepted does not.
	waiting, err := DialPub(testContext(t), l.Addr().String(), PubOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	l.Close()
	<-waiting.Done()
	if _, err := l.Accept(testContext(t)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v, want %v", err, net.ErrClosed)
	}
	p.Publish([]byte("kv@b"))
	if got := texts(t, c); got != "kv@b" {
		t.Errorf("got %q", got)
	}
	c.Close()
	<-p.Done()
	if err := p.Wait(testContext(t), 1); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Wait: %v, want %v", err, net.ErrClosed)
	}
}

func TestAcceptCancelled(t *testing.T) {
	checkLeaks(t)
	l, err := ListenSub("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.Accept(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// Everything at once, for the race detector: who publishes, comes, goes and breaks off.
func TestPublisherLifecycle(t *testing.T) {
	checkLeaks(t)
	p := listenPub(t, PubOptions{HWM: 16})
	stop := make(chan struct{})
	var publishers, subscribers sync.WaitGroup
	for i := range 2 {
		publishers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					p.Publish(fmt.Append(nil, i), make([]byte, n%5000))
				}
			}
		})
	}
	for i := range 4 {
		subscribers.Go(func() {
			for range 20 {
				c, err := DialSub(testContext(t), p.Addr().String(), fmt.Sprint(i%2))
				if err != nil {
					continue // disconnected below
				}
				c.SetDeadline(time.Now().Add(patience))
				var m Message
				for range 10 {
					if m, err = c.Recv(m); err != nil {
						break
					}
					if string(m[0]) != fmt.Sprint(i%2) || len(m) != 2 {
						t.Errorf("got %q of %d frames", m[0], len(m))
					}
				}
				c.Close()
			}
		})
	}
	subscribers.Go(func() {
		for range 5 {
			p.Wait(testContext(t), 1)
			p.Disconnect()
		}
	})
	subscribers.Wait()
	close(stop)
	publishers.Wait()
	p.Close()
}
