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
			base := client.Transport.(*patient)
			if insecure := base.TLSClientConfig != nil && base.TLSClientConfig.InsecureSkipVerify; insecure == verify {
				t.Errorf("verify %t: insecure %t", verify, insecure)
			}
			for what, got := range map[string]time.Duration{
				"a handshake": base.TLSHandshakeTimeout, "an answer": base.ResponseHeaderTimeout, "more of an answer": base.timeout,
			} {
				if got != want {
					t.Errorf("%s may take %s, want %s", what, got, want)
				}
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
	took := func(t *testing.T, what string, f func() error) {
		began := time.Now()
		if err := f(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
		if d := time.Since(began); d != timeout {
			t.Errorf("%s took %s, want %s", what, d, timeout)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		c := &timedConn{Conn: ours, timeout: timeout}
		defer c.Close()
		took(t, "a write that nobody takes", func() error { _, err := c.Write([]byte("x")); return err })
	})
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		b := newPatientBody(r, timeout, func(cause error) { r.CloseWithError(cause) })
		read := func() error { _, err := b.Read(make([]byte, 1)); return err }
		for range 3 { // in all, that is longer
			go func() {
				time.Sleep(timeout - time.Second)
				w.Write([]byte("x"))
			}()
			if err := read(); err != nil {
				t.Error(err)
			}
			time.Sleep(2 * timeout) // a reader may take its time
		}
		took(t, "a read that nothing comes to", read)
		b.Close()
	})
	if d := newDialer(timeout); d.Timeout != timeout {
		t.Errorf("a connection may take %s", d.Timeout)
	}
}

// A connection as a client makes them has these bounds.
func TestC11Connections(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	c, err := newPatient(7*time.Second, true).DialContext(t.Context(), "tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if timed, ok := c.(*timedConn); !ok || timed.timeout != 7*time.Second {
		t.Errorf("%T: %+v", c, c)
	}
}

// A call that gets no answer is given up although another one on its connection does.
func TestC11SharedConnection(t *testing.T) {
	silentDone := make(chan struct{})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("over %s", r.Proto)
		}
		w.WriteHeader(http.StatusOK)
		flush := http.NewResponseController(w).Flush
		flush()
		if r.URL.Path == "/silent" {
			<-r.Context().Done()
			return
		}
		for {
			select {
			case <-silentDone:
				return
			case <-time.After(5 * time.Millisecond):
				w.Write([]byte("x"))
				flush()
			}
		}
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	cfg := DefaultConfig()
	cfg.VerifySSL, cfg.RequestTimeout = false, 2*time.Second
	client, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	chatty, err := client.Get(srv.URL + "/chatty")
	if err != nil {
		t.Fatal(err)
	}
	defer chatty.Body.Close()
	silent, err := client.Get(srv.URL + "/silent")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(silent.Body); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the silent call ended with %v", err)
	}
	silent.Body.Close()
	close(silentDone)
	if _, err := io.ReadAll(chatty.Body); err != nil {
		t.Errorf("the other ended with %v", err)
	}
}
