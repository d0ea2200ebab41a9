package simserver

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Config describes the engine to simulate. The zero value is usable; fields that
// are 0 take the default named.
type Config struct {
	// Model is the name it serves; default "stator-sim".
	Model string
	// Worker is the engine's id in its fleet, told by the models route unless
	// 0. It has no part in the text.
	Worker uint64
	// Seed decides the text.
	Seed uint64
	// TTFT is the time from the request to the first token and ITL the time
	// from one token to the next. 0 means at once.
	TTFT, ITL time.Duration
	// ContextLength bounds prompt and answer together, in tokens; default
	// 32768. A longer answer ends there, a longer prompt is refused.
	ContextLength int
	// BlockSize (tokens, default 16), TotalBlocks (default 16384) and
	// MaxBatchedTokens (default 8192) are what the models route tells about
	// the KV cache and the batch.
	BlockSize, TotalBlocks, MaxBatchedTokens int
	// Ranks is the number of data-parallel ranks; default 1.
	Ranks int
}

// withDefaults fills in defaults and checks the rest.
func (c Config) withDefaults() (Config, error) {
	if c.Model == "" {
		c.Model = "stator-sim"
	}
	for _, f := range []struct {
		name     string
		value    *int
		def, min int
	}{
		{"context length", &c.ContextLength, 32768, 2},
		{"block size", &c.BlockSize, 16, 1},
		{"total blocks", &c.TotalBlocks, 16384, 1},
		{"max batched tokens", &c.MaxBatchedTokens, 8192, 1},
		{"ranks", &c.Ranks, 1, 1},
	} {
		if *f.value == 0 {
			*f.value = f.def
		}
		if *f.value < f.min {
			return c, fmt.Errorf("simserver: %s: expected at least %d, got %d", f.name, f.min, *f.value)
		}
	}
	if c.TTFT < 0 {
		return c, fmt.Errorf("simserver: time to first token: expected no negative duration, got %v", c.TTFT)
	}
	if c.ITL < 0 {
		return c, fmt.Errorf("simserver: inter-token latency: expected no negative duration, got %v", c.ITL)
	}
	return c, nil
}

// Server is a simulated engine. It is an [http.Handler] and safe for concurrent
// use.
type Server struct {
	cfg     Config
	created int64 // Unix seconds
	life    context.Context
	kill    context.CancelFunc
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		closed bool
		ranks  []int // requests running on each
	}
}

var _ http.Handler = (*Server)(nil)

// New returns an engine with the given configuration. It starts nothing.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, created: time.Now().Unix()}
	s.life, s.kill = context.WithCancel(context.Background())
	s.mu.ranks = make([]int, cfg.Ranks)
	return s, nil
}

// Close ends the engine as if it had died: streams break off without their last
// events, which clients see as a connection that was cut, and requests that have
// not been answered yet are refused with 503, as are later ones. It returns when
// no request is running. Closing again does nothing.
func (s *Server) Close() {
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	s.kill()
	s.running.Wait()
}

// Inflight returns the number of requests being answered.
func (s *Server) Inflight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.mu.ranks {
		n += r
	}
	return n
}

// begin books a request on a rank, the least busy one for -1, and returns it, or
// false when the server is closed. The caller must end it.
func (s *Server) begin(rank int) (int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return 0, false
	}
	if rank < 0 {
		rank = 0
		for i, n := range s.mu.ranks {
			if n < s.mu.ranks[rank] {
				rank = i
			}
		}
	}
	s.mu.ranks[rank]++
	s.running.Add(1)
	return rank, true
}

func (s *Server) end(rank int) {
	s.mu.Lock()
	s.mu.ranks[rank]--
	s.mu.Unlock()
	s.running.Done()
}

// ServeHTTP answers the routes of the engine.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var method string
	var handle func(http.ResponseWriter, *http.Request)
	switch r.URL.Path {
	case "/v1/chat/completions":
		method, handle = http.MethodPost, s.serveChat
	case "/v1/completions":
		method, handle = http.MethodPost, s.serveCompletion
	case "/v1/models":
		method, handle = http.MethodGet, s.serveModels
	case "/health":
		method, handle = http.MethodGet, s.serveHealth
	case "/version":
		method, handle = http.MethodGet, s.serveVersion
	case "/metrics":
		method, handle = http.MethodGet, s.serveMetrics
	case "/tokenize":
		method, handle = http.MethodPost, s.serveTokenize
	case "/detokenize":
		method, handle = http.MethodPost, s.serveDetokenize
	default:
		writeError(w, &apiError{status: http.StatusNotFound, message: "no such route: " + r.URL.Path})
		return
	}
	if r.Method != method && !(r.Method == http.MethodHead && method == http.MethodGet) {
		w.Header().Set("Allow", method)
		writeError(w, &apiError{status: http.StatusMethodNotAllowed, message: fmt.Sprintf("%s: expected %s, got %s", r.URL.Path, method, r.Method)})
		return
	}
	handle(w, r)
}
