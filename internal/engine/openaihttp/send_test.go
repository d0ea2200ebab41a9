package openaihttp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/internal/engine"
)

// TestClosedConnection: a kept-alive connection that fails soon after the request was
// written, however long that took, was closed before; one that fails later was not.
func TestClosedConnection(t *testing.T) {
	for _, tc := range []struct {
		name           string
		reading, after time.Duration // to read the second request, and from then to the end of its connection
		answer         string        // what comes of an answer before that
		again          bool
	}{
		{"soon", 0, 200 * time.Millisecond, "", true},
		{"soon after a long request", time.Second, 200 * time.Millisecond, "", true},
		{"late", 0, 300 * time.Millisecond, "", false},
		{"late after a long request", time.Second, 300 * time.Millisecond, "", false},
		{"soon, with the beginning of an answer", 0, 200 * time.Millisecond, "HTTP/1.1 2", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dials := 0
				e, err := New(Config{URL: "http://engine", Dial: func(context.Context) (net.Conn, error) {
					ours, theirs := net.Pipe()
					dials++
					first := dials == 1
					go func() {
						defer theirs.Close()
						r := bufio.NewReader(theirs)
						for n := 1; ; n++ {
							req, err := http.ReadRequest(r)
							if err != nil {
								return
							}
							if first && n == 2 {
								time.Sleep(tc.reading)
							}
							io.Copy(io.Discard, req.Body)
							if first && n == 2 {
								io.WriteString(theirs, tc.answer)
								time.Sleep(tc.after)
								return
							}
							io.WriteString(theirs, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
						}
					}()
					return ours, nil
				}})
				if err != nil {
					t.Fatal(err)
				}
				defer e.Close()
				send := func() error {
					resp, err := e.Open(t.Context(), engine.Target{Worker: 1}, &engine.Request{Path: "/v1/x", Raw: bytes.Repeat([]byte("x"), 1<<16)})
					if err != nil {
						return err
					}
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					synctest.Wait() // the connection is kept
					return nil
				}
				if err := send(); err != nil {
					t.Fatal(err)
				}
				err = send()
				var open *engine.OpenError
				switch {
				case tc.again && (err != nil || dials != 2):
					t.Errorf("%v after %d connections, want an answer on the second", err, dials)
				case !tc.again && (!errors.As(err, &open) || open.Failure != engine.FailBroken || dials != 1):
					t.Errorf("%v after %d connections, want a failure on the first", err, dials)
				}
			})
		})
	}
}

// TestEscapes: what is escaped in a path stays so.
func TestEscapes(t *testing.T) {
	var got string
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.RequestURI }))
	defer srv.Close()
	for path, want := range map[string]string{
		"/v1/echo/x%2Fy":   "/a%20b/v1/echo/x%2Fy",
		"/v1/echo/x%252Fy": "/a%20b/v1/echo/x%252Fy",
		"/v1/echo/x%20y":   "/a%20b/v1/echo/x%20y",
		"/v1/embeddings":   "/a%20b/v1/embeddings",
	} {
		resp, err := open(t, srv.URL+"/a%20b").Open(t.Context(), engine.Target{Worker: 1}, &engine.Request{Path: path, Query: "q=%2F"})
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if want += "?q=%2F"; got != want {
			t.Errorf("%s arrived as %s, want %s", path, got, want)
		}
	}
}
