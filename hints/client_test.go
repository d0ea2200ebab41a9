package hints

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func textLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, nil))
}

func TestC11Client(t *testing.T) {
	for _, timeout := range []time.Duration{0, 120 * time.Second} {
		for _, verify := range []bool{true, false} {
			cfg := DefaultConfig()
			cfg.VerifySSL = verify
			want := 600 * time.Second
			if timeout != 0 {
				cfg.RequestTimeout, want = timeout, timeout
			}
			client, err := NewClient(cfg)
			if err != nil {
				t.Fatal(err)
			}
			base := client.Transport.(*http.Transport)
			if insecure := base.TLSClientConfig != nil && base.TLSClientConfig.InsecureSkipVerify; insecure == verify {
				t.Errorf("verify %t: insecure %t", verify, insecure)
			}
			if base.TLSHandshakeTimeout != want {
				t.Errorf("handshake may take %s, want %s", base.TLSHandshakeTimeout, want)
			}
			if client.Timeout != 0 {
				t.Errorf("a stream may take %s", client.Timeout)
			}
		}
	}
	cfg := DefaultConfig()
	cfg.RequestTimeout = 0
	if _, err := NewClient(cfg); err == nil {
		t.Error("a timeout of 0 was accepted")
	}
}

func TestDisabledClientHasNoWrapper(t *testing.T) {
	client, err := NewClient(DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := client.Transport.(*Transport); ok {
		t.Error("hints are added although they are off")
	}
}

// A library is silent unless somebody listens.
func TestAnnounce(t *testing.T) {
	var log strings.Builder
	before := slog.Default()
	slog.SetDefault(textLogger(&log))
	defer slog.SetDefault(before)
	NewTransport(nil)
	if log.Len() > 0 {
		t.Errorf("said unasked:\n%s", log.String())
	}
	for range 2 {
		NewTransport(nil, WithLogger(textLogger(&log)), WithPolarity(Complement))
	}
	if n := strings.Count(log.String(), "polarity=complement"); n != 2 {
		t.Errorf("the polarity is there %d times:\n%s", n, log.String())
	}
	if n := strings.Count(log.String(), "0.5.9"); n > 1 {
		t.Errorf("the notice about cache_control is there %d times:\n%s", n, log.String())
	}
}

// Connecting, reading and writing have the time that is configured, each for itself.
func TestC11Timeouts(t *testing.T) {
	const timeout = 120 * time.Second
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		defer theirs.Close()
		c := &timedConn{Conn: ours, timeout: timeout}
		took := func(what string, f func() error, want time.Duration) {
			began := time.Now()
			if err := f(); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: %v", what, err)
			}
			if d := time.Since(began); d != want {
				t.Errorf("%s took %s, want %s", what, d, want)
			}
		}
		read := func() error { _, err := c.Read(make([]byte, 1)); return err }
		took("a read that nobody answers", read, timeout)
		took("a write that nobody takes", func() error { _, err := c.Write([]byte("x")); return err }, timeout)
		took("another read", read, timeout)
		// A read that waits on an idle connection gets as long as the answer to what is
		// written meanwhile.
		go func() {
			time.Sleep(timeout - time.Second)
			go c.Write([]byte("x"))
			theirs.Read(make([]byte, 1))
		}()
		took("a read with a write at its end", read, 2*timeout-time.Second)
	})
	if d := newDialer(timeout); d.Timeout != timeout {
		t.Errorf("a connection may take %s", d.Timeout)
	}
}

// A connection as a client makes them has these bounds.
func TestC11Connections(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	base := newHTTPTransport(7*time.Second, true)
	c, err := base.DialContext(t.Context(), "tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if timed, ok := c.(*timedConn); !ok || timed.timeout != 7*time.Second {
		t.Errorf("%T: %+v", c, c)
	}
}
