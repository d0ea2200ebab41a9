package enginetest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/openai"
)

// Script is a server that has the documents it is given and notes what it was asked.
// Everything else is not found.
type Script struct {
	URL string

	mu    sync.Mutex
	docs  map[string]string
	hangs map[string]bool
	asked []Asked
	done  chan struct{}
}

// Asked is a request that a [Script] was sent.
type Asked struct {
	Line   string // method and path with query
	Header http.Header
	Body   string
}

// NewScript starts a server with documents by path, which includes the query. It ends
// with the test.
func NewScript(t *testing.T, docs map[string]string) *Script {
	t.Helper()
	s := &Script{docs: make(map[string]string), hangs: make(map[string]bool), done: make(chan struct{})}
	for path, doc := range docs {
		s.docs[path] = doc
	}
	srv := httptest.NewServer(s)
	t.Cleanup(func() { close(s.done); srv.Close() })
	s.URL = srv.URL
	return s
}

// Set changes a document; an empty one is not found.
func (s *Script) Set(path, doc string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.docs[path] = doc
}

// Hang has the server not answer for a path.
func (s *Script) Hang(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangs[path] = true
}

// Asked returns what the server was asked so far.
func (s *Script) Asked() []Asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Asked(nil), s.asked...)
}

// Wait returns when the server has been asked n times.
func (s *Script) Wait(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d requests", n), func() (bool, error) { return len(s.Asked()) >= n, nil })
}

// ServeHTTP implements [http.Handler].
func (s *Script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	path := r.URL.RequestURI()
	s.mu.Lock()
	s.asked = append(s.asked, Asked{Line: r.Method + " " + path, Header: r.Header, Body: string(body)})
	doc, hangs := s.docs[path], s.hangs[path]
	s.mu.Unlock()
	switch {
	case hangs:
		select {
		case <-s.done:
		case <-r.Context().Done():
		}
	case doc == "":
		http.NotFound(w, r)
	default:
		io.WriteString(w, doc)
	}
}

// Sent opens a request through an adapter and returns what the script was sent.
func (s *Script) Sent(t *testing.T, e engine.Engine, r *engine.Request) Asked {
	t.Helper()
	resp, err := e.Open(t.Context(), engine.Target{Worker: 1, Rank: 1}, r)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	resp.Body.Close()
	asked := s.Asked()
	return asked[len(asked)-1]
}

// Request returns a request for a route, with a body and wishes.
func Request(t *testing.T, path, body string, wishes engine.Wishes, edits ...openai.Edit) *engine.Request {
	t.Helper()
	r := request(t, body, edits...)
	r.Path, r.Wishes = path, wishes
	return r
}

// eventually polls until ok reports true.
func eventually(t *testing.T, what string, ok func() (bool, error)) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	last := errors.New("not so yet")
	for time.Now().Before(deadline) {
		done, err := ok()
		if done {
			return
		}
		if err != nil {
			last = err
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%s: not within 10 s: %v", what, last)
}
