package hintproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/hints"
)

// pipes is a listener in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p <- server
	return client, nil
}

// serve serves until the test ends.
func serve(t *testing.T, srv *http.Server) pipes {
	l := make(pipes)
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() {
		close(l)
		_ = srv.Close()
	})
	return l
}

// newTestProxy returns a proxy before a handler, and its listener, all in memory.
func newTestProxy(t *testing.T, upstream http.HandlerFunc) (*Proxy, pipes) {
	t.Helper()
	cfg := Config{Upstream: &url.URL{Scheme: "http", Host: "upstream"}, Hints: hints.DefaultConfig(), Log: quiet}
	cfg.Hints.Enable = true
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.upstream.DialContext = serve(t, &http.Server{Handler: upstream}).dial
	t.Cleanup(func() { _ = p.Close() })
	return p, serve(t, p.Server())
}

// TestSlowBody sends a body bit by bit.
func TestSlowBody(t *testing.T) {
	for _, tt := range []struct {
		name   string
		path   string
		length int
		pause  time.Duration
		status int
		want   string
	}{
		{"steady", "/v1/completions", 4, maxPause - time.Second, 200, `"agent_hints"`},
		{"steady, of unknown length", "/v1/completions", -1, maxPause - time.Second, 200, `"agent_hints"`},
		{"pausing", "/v1/completions", 4, maxPause + time.Second, 408, `"message":"nothing came of the request's body for 1m0s"`},
		{"pausing, of unknown length", "/v1/completions", -1, maxPause + time.Second, 408, `"code":"request_timeout"`},
		{"pausing, not of a call", "/v1/files", 4, time.Hour, 200, "{}  "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, l := newTestProxy(t, func(w http.ResponseWriter, r *http.Request) {
					body, err := io.ReadAll(r.Body)
					if err != nil {
						t.Error(err)
					}
					time.Sleep(2 * maxPause) // an answer may take as long as it likes
					_, _ = w.Write(body)
				})
				conn, err := l.dial(t.Context(), "", "")
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				sent := make(chan bool)
				go func() { // until it is refused
					defer close(sent)
					if tt.length < 0 {
						fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", tt.path)
					} else {
						fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", tt.path, tt.length)
					}
					for _, b := range "{}  " {
						time.Sleep(tt.pause)
						if tt.length < 0 {
							fmt.Fprintf(conn, "1\r\n%c\r\n", b)
						} else {
							fmt.Fprintf(conn, "%c", b)
						}
					}
					if tt.length < 0 {
						fmt.Fprint(conn, "0\r\n\r\n")
					}
				}()
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				if err != nil || resp.StatusCode != tt.status || !strings.Contains(string(body), tt.want) {
					t.Errorf("%d %q, %v, want %d with %q", resp.StatusCode, body, err, tt.status, tt.want)
				}
				conn.Close()
				<-sent
				synctest.Wait()
				if s := p.Stats(); s.HeldBytes != 0 || s.InFlight != 0 || s.Left != 0 {
					t.Errorf("stats: %+v", s)
				}
			})
		})
	}
}

// TestSlowBodyOverHTTP2 has an answer although the body has not ended.
func TestSlowBodyOverHTTP2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := newTestProxy(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was asked") })
		tr := &http.Transport{DialContext: l.dial, Protocols: new(http.Protocols)}
		tr.Protocols.SetUnencryptedHTTP2(true)
		defer tr.CloseIdleConnections()
		body, send := io.Pipe()
		defer send.Close()
		go func() { _, _ = io.WriteString(send, "{") }()
		began := time.Now()
		resp, err := (&http.Client{Transport: tr}).Post("http://proxy/v1/completions", "application/json", body)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if took := time.Since(began); resp.ProtoMajor != 2 || resp.StatusCode != http.StatusRequestTimeout || took != maxPause {
			t.Errorf("%s %s after %s", resp.Proto, resp.Status, took)
		}
	})
}

// TestHeldBodies fills the memory for bodies up to some bytes, and looks which calls still
// get hints and what they hold while they are answered.
func TestHeldBodies(t *testing.T) {
	const call = `{"model":"m"}`
	for _, tt := range []struct {
		name   string
		left   int64
		body   io.Reader
		length int64
		sealed bool // by a header
		hinted bool
		held   int64
	}{
		{"room", 100, strings.NewReader(call), 13, false, true, 13},
		{"just enough", 13, strings.NewReader(call), 13, false, true, 13},
		{"too little", 12, strings.NewReader(call), 13, false, false, 0},
		{"nothing to hold", 0, nil, 0, false, false, 0},
		{"unknown length", hints.DefaultMaxBody, strings.NewReader(call), -1, false, true, 13},
		{"unknown length, too little", hints.DefaultMaxBody - 1, strings.NewReader(call), -1, false, false, 0},
		{"too long to be held", 0, strings.NewReader(strings.Repeat(" ", hints.DefaultMaxBody+1)), hints.DefaultMaxBody + 1, false, false, 0},
		{"sealed", 100, strings.NewReader(call), 13, true, false, 0},
		{"sealed, no room", 0, strings.NewReader(call), 13, true, false, 0},
		{"sealed, of unknown length, no room", 0, strings.NewReader(call), -1, true, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var p *Proxy
			var held int64
			p, l := newTestProxy(t, func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				held = p.Stats().HeldBytes
				_, _ = w.Write(body[:min(len(body), 1000)])
			})
			before := maxHeld - tt.left
			if !p.held.take(before) {
				t.Fatal("there is no memory")
			}
			tr := &http.Transport{DialContext: l.dial}
			defer tr.CloseIdleConnections()
			req, err := http.NewRequest(http.MethodPost, "http://proxy/v1/completions", nil)
			if err != nil {
				t.Fatal(err)
			}
			if tt.body != nil {
				req.Body, req.ContentLength = io.NopCloser(tt.body), tt.length
			}
			req.Header.Set(hints.HeaderRun, "r")
			if tt.sealed {
				req.Header.Set("Content-Digest", "sha-256=::")
			}
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("%d, %v", resp.StatusCode, err)
			}
			if got := strings.Contains(string(body), "agent_hints"); got != tt.hinted {
				t.Errorf("hints %t, want %t", got, tt.hinted)
			}
			if held -= before; held != tt.held {
				t.Errorf("%d bytes are held, want %d", held, tt.held)
			}
			tr.CloseIdleConnections()
			s := p.Stats()
			crowded := !tt.sealed && (tt.left < 13 && tt.length == 13 || tt.length < 0 && !tt.hinted)
			if (s.Crowded == 1) != crowded || (s.Hints.Untouched["unmatched"] == 1) != crowded || (s.Hints.Untouched["sealed"] == 1) != tt.sealed {
				t.Errorf("stats: %+v", s)
			}
		})
	}
}
