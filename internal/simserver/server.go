package simserver

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/stator-ai/stator/internal/simengine"
)

// Server is a simulated engine. It is an [http.Handler] and safe for concurrent
// use.
type Server struct {
	cfg     Config
	vocab   *vocabulary
	created int64 // Unix seconds
	began   time.Time
	life    context.Context
	kill    context.CancelFunc
	running sync.WaitGroup // requests, and goroutines that run passes
	ranks   []*rank
	// timeless engines take no time for a pass, and begin each when they get to
	// it.
	timeless bool

	mu struct {
		sync.Mutex
		closed  bool
		answers *answer // being written, linked
	}
}

var _ http.Handler = (*Server)(nil)

// New returns an engine with the given configuration. It starts nothing: a rank
// has a goroutine while it has work.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	s := &Server{cfg: cfg, vocab: cfg.Vocabulary.load(), created: now.Unix(), began: now, ranks: make([]*rank, cfg.Ranks)}
	var model simengine.Config
	if cfg.Engine != nil {
		if model, err = cfg.model(); err != nil {
			return nil, err
		}
	}
	s.timeless = model.Timing == simengine.Timing(simengine.Fixed{})
	s.life, s.kill = context.WithCancel(context.Background())
	for i := range s.ranks {
		r := newRank(s, i)
		if cfg.Engine != nil {
			if r.engine, err = simengine.New(model); err != nil {
				return nil, fmt.Errorf("simserver: %w", err)
			}
		}
		s.ranks[i] = r
	}
	if cfg.Clock != nil {
		cfg.Clock.add(s.ranks)
	}
	return s, nil
}

// Close ends the engine as if it had died: streams break off without their last
// events, which clients see as a connection that was cut, and requests that have
// not been answered yet are refused with 503, as are later ones. It returns when
// no request and no pass is running. Closing again does nothing.
func (s *Server) Close() {
	s.mu.Lock()
	s.mu.closed = true
	s.kill()
	for a := s.mu.answers; a != nil; a = a.next {
		a.cut()
	}
	s.mu.Unlock()
	s.running.Wait()
	if s.cfg.Clock != nil {
		s.cfg.Clock.remove(s.ranks)
	}
}

// Inflight returns the number of requests being answered.
func (s *Server) Inflight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.ranks {
		n += r.booked
	}
	return n
}

// begin books an answer on a rank, the least busy one for -1, and returns it, or
// nil when the server is closed. The caller must end it.
func (s *Server) begin(rank int, a *answer) *rank {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return nil
	}
	if rank < 0 {
		rank = 0
		for i, r := range s.ranks {
			if r.booked < s.ranks[rank].booked {
				rank = i
			}
		}
	}
	r := s.ranks[rank]
	r.booked++
	if a.next = s.mu.answers; a.next != nil {
		a.next.prev = a
	}
	s.mu.answers = a
	s.running.Add(1)
	return r
}

func (s *Server) end(r *rank, a *answer) {
	s.mu.Lock()
	r.booked--
	if a.prev != nil {
		a.prev.next = a.next
	} else {
		s.mu.answers = a.next
	}
	if a.next != nil {
		a.next.prev = a.prev
	}
	s.mu.Unlock()
	s.running.Done()
}

// now returns the time on the wall clock since the server was made.
func (s *Server) now() time.Duration { return time.Since(s.began) }

// ServeHTTP answers the routes of the engine.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method, handle := s.route(r.URL.Path)
	if handle == nil {
		writeError(w, &apiError{status: http.StatusNotFound, message: "no such route: " + r.URL.Path})
		return
	}
	if r.Method != method && !(r.Method == http.MethodHead && method == http.MethodGet) {
		w.Header().Set("Allow", method)
		writeError(w, &apiError{status: http.StatusMethodNotAllowed, message: fmt.Sprintf("%s: expected %s, got %s", r.URL.Path, method, r.Method)})
		return
	}
	handle(s, w, r)
}

// handler answers the requests of a route.
type handler func(*Server, http.ResponseWriter, *http.Request)

// route returns the method and the handler of a path, nil where there is none.
func (s *Server) route(path string) (method string, handle handler) {
	switch path {
	case "/v1/chat/completions":
		return http.MethodPost, (*Server).serveChat
	case "/v1/completions":
		return http.MethodPost, (*Server).serveCompletion
	case "/v1/models":
		return http.MethodGet, (*Server).serveModels
	case "/health", "/ping":
		return http.MethodGet, (*Server).serveHealth
	case "/version":
		return http.MethodGet, (*Server).serveVersion
	case "/metrics":
		return http.MethodGet, (*Server).serveMetrics
	case "/tokenize":
		return http.MethodPost, (*Server).serveTokenize
	case "/detokenize":
		return http.MethodPost, (*Server).serveDetokenize
	case "/sim/drain":
		if s.cfg.Clock != nil {
			return http.MethodPost, (*Server).serveDrain
		}
	}
	if s.cfg.Kind == simengine.SGLang {
		switch path {
		case "/health_generate":
			return http.MethodGet, (*Server).serveHealth
		case "/server_info", "/get_server_info":
			return http.MethodGet, (*Server).serveServerInfo
		}
	}
	return "", nil
}

func (s *Server) serveDrain(w http.ResponseWriter, r *http.Request) { s.cfg.Clock.ServeDrain(w, r) }
