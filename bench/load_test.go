package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestChatBodies(t *testing.T) {
	for name, test := range map[string]struct {
		body []byte
		size int
	}{
		"small":  {smallChat(), 70},
		"large":  {largeChat(largeBody), largeBody},
		"stream": {streamChat("someone"), 180},
	} {
		var chat struct {
			Model    string
			Messages []struct{ Role, Content string }
		}
		if err := json.Unmarshal(test.body, &chat); err != nil || !utf8.Valid(test.body) {
			t.Errorf("%s: no JSON: %v", name, err)
		}
		if chat.Model != model || len(chat.Messages) != 1 || chat.Messages[0].Content == "" {
			t.Errorf("%s: no chat: %.200s", name, test.body)
		}
		if n := len(test.body); math.Abs(float64(n-test.size)) > 0.1*float64(test.size) {
			t.Errorf("%s: got %d bytes, want about %d", name, n, test.size)
		}
	}
	if !bytes.Equal(largeChat(5000), largeChat(5000)) {
		t.Error("large: differs from one time to the next")
	}
}

// newTestEngine returns an engine with no other behind it, and its address.
func newTestEngine(t *testing.T) (*replayer, string) {
	e := &replayer{rest: http.NotFoundHandler(), answers: make(map[string]*answer)}
	srv := httptest.NewServer(e)
	t.Cleanup(srv.Close)
	return e, srv.Listener.Addr().String()
}

func testEvents(n int) [][]byte {
	var events [][]byte
	for i := range n {
		events = append(events, fmt.Appendf(nil, "data: {\"n\":%d}\n\n", i))
	}
	return append(events, []byte("data: [DONE]\n\n"))
}

// TestBaselines runs both loads through both baselines as processes.
func TestBaselines(t *testing.T) {
	ctx := context.Background()
	engine, addr := newTestEngine(t)
	loads := []*load{
		unaryLoad(engine, "small", smallChat(), []byte(`{"small":true}`)),
		unaryLoad(engine, "large", largeChat(largeBody), bytes.Repeat([]byte("answer "), 50_000)),
		streamLoad(engine, testEvents(50)),
	}
	for _, kind := range []string{kindReverse, kindCopy} {
		p, err := startProxy(ctx, kind, kind, addr)
		if err != nil {
			t.Fatal(err)
		}
		defer p.stop()
		for _, l := range loads {
			const n = 3
			r, err := l.run(ctx, p.addr, n)
			if err != nil {
				t.Errorf("%s: %v", kind, p.failure(err))
				continue
			}
			if r.took <= 0 || r.wall < r.took || r.reads < 1 {
				t.Errorf("%s: %s: implausible round %+v", kind, l.name, r)
			}
		}
		// One read per event and none for more than one.
		if r, err := loads[2].run(ctx, p.addr, 1); err == nil && r.reads > 1.5 {
			t.Errorf("%s: %.2f reads per chunk", kind, r.reads)
		}
	}
}

// TestLoadFindsFaults runs the unary load through servers that cheat.
func TestLoadFindsFaults(t *testing.T) {
	engine, _ := newTestEngine(t)
	l := unaryLoad(engine, "small", smallChat(), []byte("right"))
	for name, test := range map[string]struct {
		proxy http.HandlerFunc
		want  string
	}{
		"other answer": {
			func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "wrong") },
			"small: expected the answer right, got wrong",
		},
		"part of the answer": {
			func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "rig") },
			"small: expected the answer right, got rig",
		},
		"other status": {
			func(w http.ResponseWriter, r *http.Request) { http.Error(w, "busy", http.StatusServiceUnavailable) },
			"small: expected status 200, got 503: busy",
		},
		"other request": {
			func(w http.ResponseWriter, r *http.Request) {
				r.Body = io.NopCloser(strings.NewReader(`{}`))
				engine.ServeHTTP(w, r)
			},
			`small: expected status 200, got 400: the request differs from those sent, it has 2 bytes: "{}"`,
		},
		"answer broken off": {
			func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, "right")
				http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			},
			"small: unexpected EOF",
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(test.proxy)
			defer srv.Close()
			_, err := l.run(context.Background(), srv.Listener.Addr().String(), 1)
			if err == nil || err.Error() != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

// script is a body that arrives in the given pieces.
type script []string

func (s *script) Read(b []byte) (int, error) {
	if len(*s) == 0 {
		return 0, io.EOF
	}
	n := copy(b, (*s)[0])
	*s = (*s)[1:]
	return n, nil
}

func TestReceive(t *testing.T) {
	events := [][]byte{[]byte("data: 1\n\n"), []byte("data: 2\n\n"), []byte("data: [DONE]\n\n")}
	for name, test := range map[string]struct {
		body  script
		steps int
		want  string
	}{
		"one by one":       {script{"data: 1\n\n", "data: 2\n\n", "data: [DONE]\n\n"}, 3, ""},
		"in parts":         {script{"data", ": 1\n", "\n", "data: 2\n\n", "data: ", "[DONE]\n\n"}, 3, ""},
		"two at once":      {script{"data: 1\n\ndata: 2\n\n", "data: [DONE]\n\n"}, 0, errMerged.Error()},
		"one and a half":   {script{"data: 1\n\nda", "ta: 2\n\n", "data: [DONE]\n\n"}, 0, errMerged.Error()},
		"changed":          {script{"data: 1\n\n", "data: 3\n\n"}, 1, `event 1 from byte 0 on: expected "data: 2\n\n", got "data: 3\n\n"`},
		"without its end":  {script{"data: 1\n\n", "data: 2\n\n"}, 2, "the stream ended after 2 of 3 events"},
		"with more":        {script{"data: 1\n\n", "data: 2\n\n", "data: [DONE]\n\n", "\n"}, 3, `expected the end of the stream, got "\n"`},
		"nothing":          {script{}, 0, "the stream ended after 0 of 3 events"},
		"half of an event": {script{"data"}, 0, "the stream ended after 0 of 3 events"},
	} {
		t.Run(name, func(t *testing.T) {
			steps := make(chan struct{}, len(events))
			err := receive(&test.body, events, make([]byte, 64), steps)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != test.want || len(steps) != test.steps {
				t.Errorf("got %q after %d steps, want %q after %d", got, len(steps), test.want, test.steps)
			}
		})
	}
}

func TestSplitEvents(t *testing.T) {
	events, err := splitEvents([]byte("data: 1\n\ndata: [DONE]\n\n"))
	if err != nil || len(events) != 2 || string(events[0]) != "data: 1\n\n" {
		t.Errorf("got %q, %v", events, err)
	}
	for _, bad := range []string{"", "data: 1\n\n", "data: [DONE]\n", "data: [DONE]\n\ndata"} {
		if events, err := splitEvents([]byte(bad)); err == nil {
			t.Errorf("%q: got %q", bad, events)
		}
	}
}

// TestSilence tells streams that are open and silent from those that are not.
func TestSilence(t *testing.T) {
	release := make(chan string)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "data: {}\n\n")
		http.NewResponseController(w).Flush()
		select {
		case s := <-release:
			io.WriteString(w, s)
		case <-r.Context().Done():
		}
	}))
	defer srv.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conns, err := openStreams(ctx, srv.Listener.Addr().String(), 3)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(conns)
	if err := allSilent(conns); err != nil {
		t.Error(err)
	}
	release <- "data: [DONE]\n\n"
	if err := allSilent(conns); err == nil {
		t.Error("a stream that goes on counts as silent")
	}
}

func TestOpenStreamsFails(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"not":"a stream"}`)
	}))
	defer srv.Close()
	_, err := openStreams(context.Background(), srv.Listener.Addr().String(), 2)
	if !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want an error that says the stream ended", err)
	}
}
