package hintproxy_test

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stator-ai/stator/hints"
	"github.com/stator-ai/stator/internal/hintproxy"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// running is a proxy with its upstream.
type running struct {
	*hintproxy.Proxy
	url      string
	upstream string
	server   *http.Server
	logged   *lockedBuffer
}

// lockedBuffer is a buffer that several goroutines write to.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// start runs a proxy before a handler.
func start(t *testing.T, handler http.HandlerFunc, change func(*hintproxy.Config)) *running {
	t.Helper()
	upstream := httptest.NewServer(handler)
	t.Cleanup(upstream.Close)
	return startBefore(t, upstream.URL, change)
}

// startBefore runs a proxy before a server.
func startBefore(t *testing.T, upstream string, change func(*hintproxy.Config)) *running {
	t.Helper()
	u, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	logged := new(lockedBuffer)
	cfg := hintproxy.Config{
		Upstream: u,
		Hints:    hints.DefaultConfig(),
		Log:      slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	cfg.Hints.Enable = true
	if change != nil {
		change(&cfg)
	}
	p, err := hintproxy.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := p.Server()
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close the server: %v", err)
		}
		if err := p.Close(); err != nil {
			t.Errorf("close the proxy: %v", err)
		}
	})
	return &running{Proxy: p, url: "http://" + l.Addr().String(), upstream: upstream, server: srv, logged: logged}
}

// newClient returns a client that adds nothing of its own to requests and takes answers as
// they are.
func newClient(t *testing.T) *http.Client {
	tr := &http.Transport{DisableCompression: true, ExpectContinueTimeout: patience}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

// post sends a chat request with headers, given as name and value by turns.
func post(t *testing.T, base, body string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, base+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := newClient(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// eventually waits for what happens in another goroutine.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for tick := time.NewTicker(time.Millisecond); !ok(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("no %s after %s", what, patience)
		}
	}
}

// echo answers with the body of the request.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(body)
}

// dial connects to a server at the address of a URL.
func dial(t *testing.T, base string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}
