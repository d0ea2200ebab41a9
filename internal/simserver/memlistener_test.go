package simserver

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
)

func TestMemListener(t *testing.T) {
	l := NewMemListener("engine-1")
	accepted := make(chan net.Conn)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	client, err := l.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server := <-accepted
	go func() {
		io.WriteString(client, "hello")
		client.Close()
	}()
	if b, err := io.ReadAll(server); err != nil || string(b) != "hello" {
		t.Errorf("read %q, %v", b, err)
	}
	if got := l.Addr(); got.Network() != "mem" || got.String() != "engine-1" {
		t.Errorf("address %s %s", got.Network(), got)
	}
}

func TestMemListenerClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewMemListener("engine-1")
		accept := make(chan error)
		go func() {
			_, err := l.Accept()
			accept <- err
		}()
		synctest.Wait()
		l.Close()
		l.Close()
		if err := <-accept; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept = %v, want closed", err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close = %v, want closed", err)
		}
		_, err := l.Dial(t.Context())
		checkDial(t, err, syscall.ECONNREFUSED)
		if want := "dial mem engine-1: connect: connection refused"; err.Error() != want {
			t.Errorf("message %q, want %q", err, want)
		}
	})
}

func TestMemListenerDialWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewMemListener("engine-1")
		ctx, cancel := context.WithCancel(t.Context())
		dial := func(ctx context.Context) chan error {
			c := make(chan error)
			go func() {
				_, err := l.Dial(ctx)
				c <- err
			}()
			synctest.Wait()
			return c
		}
		first := dial(ctx)
		cancel()
		checkDial(t, <-first, context.Canceled)
		second := dial(t.Context())
		l.Close()
		checkDial(t, <-second, syscall.ECONNREFUSED)
		checkDial(t, <-dial(ctx), syscall.ECONNREFUSED)
	})
}

func checkDial(t *testing.T, err, want error) {
	t.Helper()
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" || !errors.Is(err, want) {
		t.Errorf("Dial = %v, want a dial error that is %v", err, want)
	}
}
