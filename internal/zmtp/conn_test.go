package zmtp

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A subscriber's side of the wire, byte for byte.
func TestDialSubWire(t *testing.T) {
	checkLeaks(t)
	addr := rawServe(t, func(p rawPeer) {
		p.expect(unhex(t, greetingHex))
		p.send(unhex(t, greetingHex))
		p.expect(unhex(t, readySubHex))
		p.send(appendReady(nil, TypeXPub))
		p.expect(unhex(t, "0004016b7640 000101"))
		p.send(unhex(t, "0100 01080000000000000007 0023"+clearedHex))
		p.send(appendCommand(nil, "PING", []byte("\x00\x0acontext")))
		p.expect(appendCommand(nil, "PONG", []byte("context")))
		p.send(appendCommand(nil, "MYSTERY", nil))
		p.send(appendMessage(nil, Message{[]byte("last")}))
	})
	c, err := DialSub(testContext(t), addr, "kv@", "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Peer() != TypeXPub || c.RemoteAddr().String() != addr {
		t.Errorf("peer %s at %s", c.Peer(), c.RemoteAddr())
	}
	m, err := c.Recv(nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Message{{}, unhex(t, "0000000000000007"), unhex(t, clearedHex)}, m); diff != "" {
		t.Error(diff)
	}
	if m, err = c.Recv(m); err != nil || string(m[0]) != "last" {
		t.Errorf("%q, %v", m, err)
	}
	if _, err = c.Recv(m); !errors.Is(err, io.EOF) {
		t.Errorf("error %v, want %v", err, io.EOF)
	}
	if err := c.Send([]byte("x")); !errors.Is(err, io.EOF) {
		t.Errorf("Send after the end: %v", err)
	}
}

func TestDialRefused(t *testing.T) {
	checkLeaks(t)
	greet := func(p rawPeer) {
		p.expect(appendGreeting(nil))
		p.send(appendGreeting(nil))
		p.expect(appendReady(nil, TypeSub)) // left unread it would make the end a reset
	}
	tests := []struct {
		name  string
		serve func(p rawPeer)
		err   string
	}{
		{"HTTP", func(p rawPeer) { p.send([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")); p.ended() }, `got "HTTP/1.1 4"`},
		{"ZMTP 2", func(p rawPeer) { p.send(unhex(t, "ff00000000000000017f0102")); p.ended() }, "major version 1"},
		{"another socket", func(p rawPeer) { p.shake(TypeRouter, TypeSub); p.ended() }, `expected a PUB or XPUB socket, got a socket of type "ROUTER"`},
		{"refusal", func(p rawPeer) { greet(p); p.send(appendCommand(nil, "ERROR", []byte("\x02no"))) }, `expected the command READY, got the error "no"`},
		{"a message first", func(p rawPeer) { greet(p); p.send(appendMessage(nil, Message{{}})) }, "expected the command READY, got a message"},
		{"READY without end", func(p rawPeer) { greet(p); p.send([]byte{flagCommand | flagLong, 0, 0, 0, 1, 0, 0, 0, 0}) }, "one of 4294967296 bytes"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c, err := DialSub(testContext(t), rawServe(t, test.serve))
			if err == nil {
				c.Close()
				t.Fatal("no error")
			}
			checkProtocolError(t, err, test.err)
		})
	}
	t.Run("hangs up", func(t *testing.T) {
		_, err := DialSub(testContext(t), rawServe(t, greet))
		if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "receive READY") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("nobody there", func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ln.Close()
		var op *net.OpError
		if _, err := DialDealer(testContext(t), ln.Addr().String()); !errors.As(err, &op) {
			t.Errorf("error %v", err)
		}
	})
}

// Whoever connects and says nothing, or too little, is given five seconds.
func TestHandshakeTimeout(t *testing.T) {
	tests := []struct {
		name string
		sent []byte
		step string
	}{
		{"nothing", nil, "receive greeting"},
		{"a signature", appendGreeting(nil)[:10], "receive greeting"},
		{"a greeting", appendGreeting(nil), "receive READY"},
		{"half a READY", append(appendGreeting(nil), appendReady(nil, TypePub)[:9]...), "receive READY"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				defer far.Close()
				go io.Copy(io.Discard, far)
				go far.Write(test.sent)
				c := newConn(near, recvBuffer, MaxMessage)
				defer c.Close()
				start := time.Now()
				err := c.handshake(TypeSub)
				if !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), test.step) {
					t.Errorf("error %v, want %q in it", err, test.step)
				}
				if took := time.Since(start); took != handshakeTimeout {
					t.Errorf("took %v, want %v", took, handshakeTimeout)
				}
			})
		})
	}
}

func TestDialCancelled(t *testing.T) {
	checkLeaks(t)
	connected := make(chan struct{})
	addr := rawServe(t, func(p rawPeer) {
		p.expect(appendGreeting(nil))
		close(connected)
		p.ended()
	})
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		<-connected
		cancel(gone)
	}()
	if _, err := DialSub(ctx, addr); !errors.Is(err, gone) {
		t.Errorf("error %v, want %v", err, gone)
	}
}

// A peer that does not read holds up a Send for ten seconds and no longer.
func TestSendTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		c := newConn(near, recvBuffer, MaxMessage)
		start := time.Now()
		checkBroken(t, c.Send([]byte("x")))
		if took := time.Since(start); took != sendTimeout {
			t.Errorf("took %v, want %v", took, sendTimeout)
		}
		_, err := c.Recv(nil)
		checkBroken(t, err)
	})
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		c := newConn(near, recvBuffer, MaxMessage)
		start := time.Now()
		c.SetDeadline(start.Add(time.Second))
		checkBroken(t, c.Send([]byte("x")))
		if took := time.Since(start); took != time.Second {
			t.Errorf("took %v, want the caller's second", took)
		}
	})
}

// A deadline between messages is survived, one within a message is not.
func TestRecvDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		c := newConn(near, recvBuffer, MaxMessage)
		c.SetDeadline(time.Now().Add(time.Second))
		if _, err := c.Recv(nil); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("error %v", err)
		}
		c.SetDeadline(time.Time{})
		frames := appendMessage(nil, Message{[]byte("a"), []byte("b")})
		go far.Write(frames)
		if m, err := c.Recv(nil); err != nil || len(m) != 2 {
			t.Fatalf("%q, %v", m, err)
		}
		go far.Write(frames[:4])
		c.SetDeadline(time.Now().Add(time.Second))
		_, err := c.Recv(nil)
		checkBroken(t, err)
		c.SetDeadline(time.Time{})
		_, err = c.Recv(nil)
		checkBroken(t, err)
	})
}

// A PING that comes with the deadline is answered, and the connection goes on.
func TestPingAtDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		c := newConn(near, recvBuffer, MaxMessage)
		c.SetDeadline(time.Now().Add(time.Second))
		pong := appendCommand(nil, "PONG", nil)
		go func() {
			far.Write(appendCommand(nil, "PING", []byte("\x00\x00")))
			time.Sleep(2 * time.Second)
			rawPeer{far, t}.expect(pong)
		}()
		if _, err := c.Recv(nil); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("error %v", err)
		}
		c.SetDeadline(time.Time{})
		go far.Write(appendMessage(nil, Message{[]byte("x")}))
		if _, err := c.Recv(nil); err != nil {
			t.Error(err)
		}
	})
}

// checkBroken wants an error that ends the connection because time has passed. It must
// not be the one that says to go on.
func checkBroken(t *testing.T, err error) {
	t.Helper()
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "broken off within a message") {
		t.Errorf("error %v", err)
	}
}

func TestClose(t *testing.T) {
	checkLeaks(t)
	p := listenPub(t, PubOptions{})
	c := dialSub(t, p.Addr())
	wait(t, p, 1)
	result := make(chan error)
	go func() {
		_, err := c.Recv(nil)
		result <- err
	}()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { c.Close() })
	}
	wg.Wait()
	if err := <-result; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Recv: %v, want %v", err, net.ErrClosed)
	}
	if err := c.Send([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Send: %v, want %v", err, net.ErrClosed)
	}
	eventually(t, "no subscriber", func() bool { return p.Subscribers() == 0 })
}

// What is not ZMTP ends the connection, and the error says what it was.
func TestRecvGarbage(t *testing.T) {
	checkLeaks(t)
	tests := []struct {
		name string
		sent []byte
		err  string
	}{
		{"flags", []byte("\x10hello"), "got flags 0x10"},
		{"length", []byte{flagLong, 0, 0, 1, 0, 0, 0, 0, 0}, "a frame of 1099511627776 bytes"},
		{"PING without time to live", appendCommand(nil, "PING", []byte{0}), "expected PING with a time to live, got one of 1 bytes"},
		{"ERROR", appendCommand(nil, "ERROR", []byte("\x03bye")), `got the error "bye"`},
		{"command without name", []byte{flagCommand, 1, 200}, "got a name of 200 bytes in a command of 1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			addr := rawServe(t, func(p rawPeer) {
				p.shake(TypePub, TypeSub)
				p.expect(unhex(t, "000101"))
				p.send(test.sent)
				p.ended()
			})
			c, err := DialSub(testContext(t), addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, err = c.Recv(nil)
			checkProtocolError(t, err, test.err)
			if _, again := c.Recv(nil); again == nil {
				t.Error("Recv goes on")
			}
		})
	}
}

func TestProbe(t *testing.T) {
	checkLeaks(t)
	p := listenPub(t, PubOptions{})
	r, err := ListenRouter("127.0.0.1:0", func(*Peer, Message) {})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for want, addr := range map[Type]net.Addr{TypePub: p.Addr(), TypeRouter: r.Addr()} {
		if got, err := Probe(testContext(t), addr.String()); got != want || err != nil {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	addr := rawServe(t, func(p rawPeer) { p.send([]byte("SSH-2.0-OpenSSH")); p.ended() })
	_, err = Probe(testContext(t), addr)
	checkProtocolError(t, err, `got "SSH-2.0-Op"`)
}
