package indexserver

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// Everything at once: nothing deadlocks, and what is counted is what is there.
func TestConcurrent(t *testing.T) {
	s := New(Config{FrequencyWindow: time.Minute})
	ask := func(method, path, body string) int {
		req := httptest.NewRequest(method, path, strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		s.ServeHTTP(rec, req)
		return rec.Code
	}
	var dump bytes.Buffer
	full := New(Config{})
	fill(full, poolKey{"m", defaultGroup}, 4, 100)
	if err := full.Dump(&dump); err != nil {
		t.Fatal(err)
	}
	steps := []func(worker, i int){
		func(w, i int) {
			ask("POST", "/register", `{"instance_id":`+string(rune('0'+w))+`,"model_name":"m","block_size":16}`)
		},
		func(w, i int) { ask("POST", "/unregister", `{"instance_id":`+string(rune('0'+w))+`,"model_name":"m"}`) },
		func(w, i int) { ask("POST", "/events?model_name=m", stored(w, i%2, i, kv.Tier(i%2), blocks(64))) },
		func(w, i int) { ask("POST", "/query", tokenQuery("m", 64)) },
		func(w, i int) {
			ask("POST", "/route", strings.Replace(hashQuery("m", blocks(32)), "{", `{"instance_id":`+string(rune('0'+w))+`,`, 1))
		},
		func(w, i int) { ask("GET", "/dump", "") },
		func(w, i int) { ask("POST", "/restore", dump.String()) },
		func(w, i int) { ask("GET", "/workers", "") },
		func(w, i int) { ask("GET", "/metrics", "") },
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(g)))
			for i := range 300 {
				steps[rng.IntN(len(steps))](1+rng.IntN(3), i)
			}
		})
	}
	wg.Wait()
	ranks := 0
	for _, p := range s.all() {
		members := s.members(p)
		ranks += len(members)
		if len(members) == 0 {
			t.Errorf("%v has no ranks", p.key)
		}
		for _, src := range p.index.Ranks() {
			if p.ranks[src] == nil {
				t.Errorf("the index knows rank %v, which is not registered", src)
			}
		}
	}
	if ranks != s.ranks {
		t.Errorf("%d ranks are counted, there are %d", s.ranks, ranks)
	}
	if n := s.held.Load(); n != 0 {
		t.Errorf("%d bytes of bodies are still held", n)
	}
}

// timed is an answer that notes its deadlines.
type timed struct {
	*httptest.ResponseRecorder
	read, write time.Time
}

func (w *timed) SetReadDeadline(at time.Time) error  { w.read = at; return nil }
func (w *timed) SetWriteDeadline(at time.Time) error { w.write = at; return nil }

// A client that trickles, or does not take its answer, has a limited time.
func TestDeadlines(t *testing.T) {
	for _, tc := range []struct{ method, path, body string }{
		{"POST", "/register", registered},
		{"POST", "/restore", `{}`},
		{"POST", "/nope", `{}`},
		{"GET", "/dump", ""},
		{"GET", "/metrics", ""},
	} {
		began := time.Now()
		w := &timed{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequest(tc.method, tc.path, nil)
		seen := time.Time{}
		if tc.body != "" {
			body := strings.NewReader(tc.body)
			r = httptest.NewRequest(tc.method, tc.path, readerFunc(func(b []byte) (int, error) {
				seen = w.read
				return body.Read(b)
			}))
		}
		r.Header.Set("Content-Type", "application/json")
		New(Config{}).ServeHTTP(w, r)
		if tc.path != "/nope" && tc.body != "" && (seen.Before(began) || seen.After(began.Add(2*stall))) {
			t.Errorf("%s: the body has time until %v, which begins at %v", tc.path, seen, began)
		}
		if tc.path == "/nope" && w.read.IsZero() {
			t.Errorf("%s: a body that nobody reads has all the time", tc.path)
		}
		if w.write.Before(began) || w.write.After(began.Add(3*stall)) {
			t.Errorf("%s: the answer has time until %v, which begins at %v", tc.path, w.write, began)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

var _ http.ResponseWriter = (*timed)(nil)
