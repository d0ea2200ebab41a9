package simserver

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
)

// TestRestart has an engine begin anew under a stream: the stream breaks off, the cache
// is empty, and its events are those of a new life.
func TestRestart(t *testing.T) {
	var mu sync.Mutex
	var told []uint64 // epoch and number of each batch
	cfg := modelled(Config{Dress: DressVLLM, Vocabulary: Bytes, Epoch: 7, Events: func(b *kv.Batch) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, b.Epoch, b.Seq)
	}}, 0, time.Millisecond)
	s := newServer(t, cfg)
	defer s.Close()
	srv := httptest.NewServer(s)
	defer srv.Close()

	ask := func() int {
		return unary(t, s, "/v1/chat/completions", `{"messages":[{"role":"user","content":"Hi"}],"max_tokens":1}`).Usage.Details.Cached
	}
	if a, b := ask(), ask(); a != 0 || b != 16 {
		t.Fatalf("%d and %d tokens cached, want 0 and 16", a, b)
	}
	before := call(s, "GET", "/metrics", "").Body.String()

	resp, err := http.Post(srv.URL+"/v1/chat/completions", "application/json", strings.NewReader(chatBody[:len(chatBody)-len(`20,"ignore_eos":true`)]+`9999,"stream":true,"ignore_eos":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	if line, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: ") {
		t.Fatalf("%q, %v", line, err)
	}
	s.Restart()
	if rest, err := io.ReadAll(lines); err != io.ErrUnexpectedEOF || strings.Contains(string(rest), "[DONE]") {
		t.Errorf("the stream goes on to %v", err)
	}
	if n := s.Inflight(); n != 0 {
		t.Errorf("%d requests in flight", n)
	}
	after := call(s, "GET", "/metrics", "").Body.String()
	started := func(text string) string {
		_, text, _ = strings.Cut(text, "\nprocess_start_time_seconds ")
		return text
	}
	if started(after) == started(before) || !strings.Contains(after, "vllm:prompt_tokens_total{engine=\"0\",model_name=\"stator-sim\"} 0\n") {
		t.Errorf("metrics of the life before:\n%s", after)
	}
	mu.Lock()
	lived := len(told)
	mu.Unlock()
	if a, b := ask(), ask(); a != 0 || b != 16 {
		t.Errorf("%d and %d tokens cached after it, want 0 and 16", a, b)
	}
	mu.Lock()
	defer mu.Unlock()
	if lived == 0 || told[0] != 7 {
		t.Errorf("batches before: %v", told[:lived])
	}
	if diff := cmp.Diff([]uint64{8, 0}, told[lived:lived+2]); diff != "" {
		t.Errorf("the first batch after it (-want +got):\n%s", diff)
	}
}

// TestRestartOften restarts under a load of requests, each of which ends in one way or
// the other, and leaves nothing behind.
func TestRestartOften(t *testing.T) {
	for _, dress := range []Dress{DressVLLM, DressSGLang, DressLlamaCpp, DressTRTLLM} {
		t.Run(string(dress), func(t *testing.T) {
			s := newServer(t, modelled(Config{Dress: dress}, 0, 0))
			srv := httptest.NewServer(s)
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for g := range 4 {
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
							outcome(t, srv.URL, g%2 == 0)
						}
					}
				})
			}
			for range 100 {
				s.Restart()
			}
			close(stop)
			wg.Wait()
			if got := outcome(t, srv.URL, false); got != "200 whole end" {
				t.Errorf("at last: %s", got)
			}
			if n := s.Inflight(); n != 0 {
				t.Errorf("%d requests in flight", n)
			}
			srv.Close()
			s.Close()
			s.Restart() // does nothing any more
			if w := call(s, "POST", "/v1/chat/completions", chatBody+`}`); w.Code != 503 {
				t.Errorf("closed: %d %s", w.Code, w.Body)
			}
		})
	}
}

// TestClearCaches empties caches by the routes of the engines.
func TestClearCaches(t *testing.T) {
	for dress, path := range map[Dress]string{DressVLLM: "/reset_prefix_cache", DressSGLang: "/flush_cache", DressLlamaCpp: "/slots/0?action=erase"} {
		t.Run(string(dress), func(t *testing.T) {
			s := newServer(t, modelled(Config{Dress: dress, DevMode: dress == DressVLLM, Vocabulary: Bytes}, 0, 0))
			defer s.Close()
			ask := func() int {
				return unary(t, s, "/v1/chat/completions", `{"messages":[{"role":"user","content":"Hi"}],"max_tokens":1}`).Usage.Details.Cached
			}
			want := 16
			if dress == DressLlamaCpp {
				want = 20
			}
			if a, b := ask(), ask(); a != 0 || b != want {
				t.Fatalf("%d and %d tokens cached", a, b)
			}
			if w := call(s, "POST", path, ""); w.Code != 200 {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			if n := ask(); n != 0 {
				t.Errorf("%d tokens cached after clearing", n)
			}
		})
	}
}
