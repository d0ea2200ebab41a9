package zmtp

import (
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"
)

func listenRouter(t *testing.T, serve func(p *Peer, m Message)) *Router {
	t.Helper()
	r, err := ListenRouter("127.0.0.1:0", serve)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func dialDealer(t *testing.T, addr net.Addr) *Conn {
	t.Helper()
	c, err := DialDealer(testContext(t), addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// replay answers like an engine: the batches from the one asked for on, and an end.
func replay(total uint64, payload []byte) func(*Peer, Message) {
	return func(p *Peer, m Message) {
		seq := m[1]
		for i := binary.BigEndian.Uint64(seq); i < total; i++ {
			binary.BigEndian.PutUint64(seq, i)
			if p.Send(nil, seq, payload) != nil {
				return
			}
		}
		binary.BigEndian.PutUint64(seq, ^uint64(0))
		p.Send(nil, seq, nil)
	}
}

func TestRouterReplay(t *testing.T) {
	checkLeaks(t)
	const total = 5000 // several times what waits in a queue
	r := listenRouter(t, replay(total, make([]byte, 2000)))
	c := dialDealer(t, r.Addr())
	if c.Peer() != TypeRouter {
		t.Errorf("peer %q", c.Peer())
	}
	for _, from := range []uint64{0, 42, total} {
		if err := c.Send(nil, binary.BigEndian.AppendUint64(nil, from)); err != nil {
			t.Fatal(err)
		}
		var m Message
		var err error
		for want := from; ; want++ {
			if m, err = c.Recv(m); err != nil {
				t.Fatal(err)
			}
			if len(m[2]) == 0 {
				if want != total {
					t.Errorf("from %d: the end came at %d", from, want)
				}
				break
			}
			if got := binary.BigEndian.Uint64(m[1]); got != want {
				t.Fatalf("from %d: got %d, want %d", from, got, want)
			}
		}
	}
}

// A router's side of the wire, byte for byte.
func TestRouterWire(t *testing.T) {
	checkLeaks(t)
	r := listenRouter(t, replay(0, nil))
	peer := rawDial(t, r.Addr())
	peer.send(unhex(t, greetingHex))
	peer.send(unhex(t, readyDealerHex))
	peer.expect(unhex(t, greetingHex))
	peer.expect(appendReady(nil, TypeRouter))
	peer.send(unhex(t, "01000008000000000000002a"))
	peer.expect(unhex(t, "01000108ffffffffffffffff0000"))
	peer.send(appendCommand(nil, "PING", []byte("\x00\x00x")))
	peer.expect(appendCommand(nil, "PONG", []byte("x")))
}

// A peer that asks and does not read holds up itself.
func TestRouterStuckPeer(t *testing.T) {
	checkLeaks(t)
	full := make(chan struct{}, 1)
	answered := make(chan error, 1)
	r := listenRouter(t, func(p *Peer, m Message) {
		if string(m[0]) != "flood" {
			p.Send(m...)
			return
		}
		for payload := make([]byte, 1<<20); ; {
			if len(p.out.slots) == routerHWM {
				select {
				case full <- struct{}{}:
				default:
				}
			}
			if err := p.Send(payload[:64<<10]); err != nil {
				answered <- err
				return
			}
		}
	})
	stuck := dialDealer(t, r.Addr())
	stuck.Send([]byte("flood"))
	<-full
	other := dialDealer(t, r.Addr())
	other.Send([]byte("hello"), nil)
	if got := texts(t, other); got != "hello|" {
		t.Errorf("got %q", got)
	}
	r.Disconnect()
	if err := <-answered; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Send to a peer that is gone: %v, want %v", err, net.ErrClosed)
	}
}
