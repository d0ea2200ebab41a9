// Package enginetest is the contract of an engine adapter as a test suite: every
// adapter runs it.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/openai"
)

// Run checks the adapter that open makes for a server at a base URL.
func Run(t *testing.T, open func(t *testing.T, url string) engine.Engine) {
	t.Run("edits reach the engine, all else is untouched", func(t *testing.T) {
		var got string
		e := serve(t, open, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			got = fmt.Sprintf("%s %s %d %s", r.Method, r.URL.Path, r.ContentLength, body)
		})
		for _, pad := range []string{"", strings.Repeat("x", 100<<10)} {
			body := `{ "b" : 1.50, "a":"` + pad + `" ,"nvext":{"x":1}}`
			resp := mustOpen(t, e, engine.Target{Worker: 1}, request(t, body, openai.Edit{Key: "nvext"}, openai.Edit{Key: "c", Value: []byte("true")}))
			resp.Body.Close()
			sent := `{ "b" : 1.50, "a":"` + pad + `","c":true}`
			if want := fmt.Sprintf("POST /v1/chat/completions %d %s", len(sent), sent); got != want {
				t.Errorf("the engine got %.120s, want %.120s", got, want)
			}
		}
	})
	t.Run("any status is a response", func(t *testing.T) {
		e := serve(t, open, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Engine", "yes")
			w.WriteHeader(http.StatusTeapot)
			io.WriteString(w, "short and stout")
		})
		resp := mustOpen(t, e, engine.Target{Worker: 1}, request(t, `{}`))
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if resp.Status != http.StatusTeapot || resp.Header.Get("X-Engine") != "yes" || string(body) != "short and stout" || err != nil {
			t.Errorf("got %d %v %q %v", resp.Status, resp.Header, body, err)
		}
	})
	t.Run("answers are not compressed", func(t *testing.T) {
		var got string
		e := serve(t, open, func(w http.ResponseWriter, r *http.Request) { got = r.Header.Get("Accept-Encoding") })
		mustOpen(t, e, engine.Target{Worker: 1}, request(t, `{}`)).Body.Close()
		if got != "identity" {
			t.Errorf("Accept-Encoding %q", got)
		}
	})
	t.Run("cancelling aborts the request", func(t *testing.T) {
		arrived, left := make(chan struct{}, 2), make(chan struct{}, 2)
		e := serve(t, open, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			if r.Header.Get("X-Begin") != "" {
				w.(http.Flusher).Flush()
			}
			arrived <- struct{}{}
			<-r.Context().Done()
			left <- struct{}{}
		})
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := e.Open(ctx, engine.Target{Worker: 1}, request(t, `{}`))
			failed <- err
		}()
		receive(t, arrived)
		cancel()
		receive(t, left)
		wantFailure(t, <-failed, engine.FailCancelled)

		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		r := request(t, `{}`)
		r.Header = http.Header{"X-Begin": {"1"}}
		resp, err := e.Open(ctx, engine.Target{Worker: 1}, r)
		if err != nil {
			t.Fatal(err)
		}
		receive(t, arrived)
		resp.Body.Close()
		receive(t, left)
	})
	t.Run("no listener is a failure to connect", func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ln.Close()
		e := open(t, "http://"+ln.Addr().String())
		defer e.Close()
		_, err = e.Open(t.Context(), engine.Target{Worker: 7, Rank: 2}, request(t, `{}`))
		wantFailure(t, err, engine.FailConnect)
		if !strings.Contains(err.Error(), "7/2") {
			t.Errorf("error %v does not name the target", err)
		}
		if err := e.Probe(t.Context()); err == nil {
			t.Error("probe: no error")
		}
		if _, err := e.Identify(t.Context()); err == nil {
			t.Error("identify: no error")
		}
	})
	t.Run("a server that hangs up is broken", func(t *testing.T) {
		e := serve(t, open, func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) })
		_, err := e.Open(t.Context(), engine.Target{Worker: 1}, request(t, `{}`))
		wantFailure(t, err, engine.FailBroken)
	})
	t.Run("a server that does not speak HTTP is broken", func(t *testing.T) {
		e := open(t, "http://"+raw(t, func(c net.Conn) { io.WriteString(c, "SSH-2.0-x\r\n") }))
		defer e.Close()
		_, err := e.Open(t.Context(), engine.Target{Worker: 1}, request(t, `{}`))
		wantFailure(t, err, engine.FailBroken)
	})
	t.Run("a connection that closes as the request comes is replaced", func(t *testing.T) {
		var conns atomic.Int32
		e := open(t, "http://"+raw(t, func(c net.Conn) {
			n := conns.Add(1)
			readRequest(c)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			if n == 1 {
				c.Read(make([]byte, 1)) // and hangs up, the rest unread
			}
		}))
		defer e.Close()
		for i := range 2 {
			resp := mustOpen(t, e, engine.Target{Worker: 1}, request(t, `{"a":1}`))
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(body) != "ok" {
				t.Errorf("request %d: %q", i, body)
			}
		}
		if n := conns.Load(); n != 2 {
			t.Errorf("%d connections, want 2", n)
		}
	})
	t.Run("a request that the engine took and dropped is not sent again", func(t *testing.T) {
		var requests, conns atomic.Int32
		e := open(t, "http://"+raw(t, func(c net.Conn) {
			conns.Add(1)
			for readRequest(c) {
				if requests.Add(1) > 1 {
					time.Sleep(400 * time.Millisecond) // at work, long enough to be told from a closed connection
					return
				}
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			}
		}))
		defer e.Close()
		resp := mustOpen(t, e, engine.Target{Worker: 1}, request(t, `{"a":1}`))
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		_, err := e.Open(t.Context(), engine.Target{Worker: 1}, request(t, `{"a":1}`))
		wantFailure(t, err, engine.FailBroken)
		if r, c := requests.Load(), conns.Load(); r != 2 || c != 1 {
			t.Errorf("the engine saw %d requests on %d connections, want 2 on 1", r, c)
		}
	})
	t.Run("a request that the engine answered with nonsense is not sent again", func(t *testing.T) {
		var requests atomic.Int32
		e := open(t, "http://"+raw(t, func(c net.Conn) {
			for readRequest(c) {
				if requests.Add(1) == 2 {
					io.WriteString(c, "HTTP/1.1 2xx nonsense\r\n\r\n")
					return
				}
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			}
		}))
		defer e.Close()
		resp := mustOpen(t, e, engine.Target{Worker: 1}, request(t, `{"a":1}`))
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		_, err := e.Open(t.Context(), engine.Target{Worker: 1}, request(t, `{"a":1}`))
		wantFailure(t, err, engine.FailBroken)
		if n := requests.Load(); n != 2 {
			t.Errorf("the engine saw %d requests, want 2", n)
		}
	})
	t.Run("an idle time-out is told from a cancellation", func(t *testing.T) {
		e := serve(t, open, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(10*time.Millisecond, func() { cancel(engine.ErrIdle) })
		_, err := e.Open(ctx, engine.Target{Worker: 1}, request(t, `{}`))
		wantFailure(t, err, engine.FailTimeout)
	})
}

func serve(t *testing.T, open func(*testing.T, string) engine.Engine, h http.HandlerFunc) engine.Engine {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	e := open(t, srv.URL)
	t.Cleanup(e.Close)
	return e
}

// raw serves each connection, one after another, by hand and closes it.
func raw(t *testing.T, h func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			h(c)
			c.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().String()
}

// readRequest reads up to the end of a small request body and reports whether one
// came.
func readRequest(c net.Conn) bool {
	var got strings.Builder
	buf := make([]byte, 1)
	for !strings.HasSuffix(got.String(), `{"a":1}`) {
		if _, err := c.Read(buf); err != nil {
			return false
		}
		got.Write(buf)
	}
	return true
}

func request(t *testing.T, body string, edits ...openai.Edit) *engine.Request {
	t.Helper()
	o, err := openai.ParseObject([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return &engine.Request{Path: openai.Chat.Path(), Body: &o, Edits: edits}
}

func mustOpen(t *testing.T, e engine.Engine, target engine.Target, r *engine.Request) *engine.Response {
	t.Helper()
	resp, err := e.Open(t.Context(), target, r)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return resp
}

func receive(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came within 10 s")
	}
}

func wantFailure(t *testing.T, err error, want engine.Failure) {
	t.Helper()
	var open *engine.OpenError
	if !errors.As(err, &open) || open.Failure != want {
		t.Errorf("got error %v, want an OpenError of kind %s", err, want)
	}
}
