package zmtp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// checkLeaks fails a test that leaves goroutines of this package behind. Call it first,
// so that it looks last.
func checkLeaks(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		stacks := make([]byte, 1<<20)
		for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			var left []string
			for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
				if strings.Contains(stack, "zmtp.(*") && !strings.Contains(stack, "zmtp.checkLeaks") {
					left = append(left, stack)
				}
			}
			if len(left) == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Errorf("%d goroutines left:\n%s", len(left), strings.Join(left, "\n\n"))
				return
			}
		}
	})
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so: %s", what)
		}
	}
}

func listenPub(t *testing.T, opt PubOptions) *Publisher {
	t.Helper()
	p, err := ListenPub("127.0.0.1:0", opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func dialSub(t *testing.T, addr net.Addr, topics ...string) *Conn {
	t.Helper()
	c, err := DialSub(testContext(t), addr.String(), topics...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

func wait(t *testing.T, p *Publisher, n int) {
	t.Helper()
	if err := p.Wait(testContext(t), n); err != nil {
		t.Fatal(err)
	}
}

// texts receives a message and returns its frames as one text.
func texts(t *testing.T, c *Conn) string {
	t.Helper()
	m, err := c.Recv(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.Join(m, []byte("|")))
}

// checkMessage compares messages, and prints them only where they differ: comparing in
// detail takes long for large ones.
func checkMessage(t *testing.T, got, want Message) {
	t.Helper()
	if !slices.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("message (-want +got):\n%s", cmp.Diff(want, got))
	}
}

// rawPeer is the far end of a connection, for what no decent peer does.
type rawPeer struct {
	net.Conn
	t *testing.T
}

// rawDial connects to a listener.
func rawDial(t *testing.T, addr net.Addr) rawPeer {
	t.Helper()
	nc, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(patience))
	return rawPeer{nc, t}
}

// rawServe listens, and has the first connection served by serve.
func rawServe(t *testing.T, serve func(p rawPeer)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		nc.SetDeadline(time.Now().Add(patience))
		serve(rawPeer{nc, t})
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
	})
	return ln.Addr().String()
}

func (p rawPeer) send(b []byte) {
	p.t.Helper()
	if _, err := p.Write(b); err != nil {
		p.t.Error(err)
	}
}

// expect reads as many bytes as it wants and compares.
func (p rawPeer) expect(want []byte) {
	p.t.Helper()
	got := make([]byte, len(want))
	for n := 0; n < len(got); {
		k, err := p.Read(got[n:])
		if err != nil {
			p.t.Errorf("read %x, then %v, want %x", got[:n], err, want)
			return
		}
		n += k
	}
	if !bytes.Equal(got, want) {
		p.t.Errorf("read %x, want %x", got, want)
	}
}

// shake does the handshake of a socket of ZMTP 3.1.
func (p rawPeer) shake(local, remote Type) {
	p.t.Helper()
	greeting := appendGreeting(nil)
	p.expect(greeting)
	greeting[11] = 1
	p.send(greeting)
	p.expect(appendReady(nil, remote))
	p.send(appendReady(nil, local))
}

// ended waits until the other end hangs up, whatever it sends before.
func (p rawPeer) ended() {
	p.t.Helper()
	if _, err := io.Copy(io.Discard, p.Conn); errors.Is(err, os.ErrDeadlineExceeded) {
		p.t.Error("the connection was not ended")
	}
}
