package simserver

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stator-ai/stator/internal/simengine"
)

// Server is a simulated engine. It is an [http.Handler] and safe for concurrent
// use.
type Server struct {
	cfg     Config
	face    face
	vocab   *vocabulary
	model   simengine.Config // of the ranks, if they are modelled
	began   time.Time
	life    lifetime
	running sync.WaitGroup // requests, and goroutines that run passes
	ranks   []*rank
	faults  faults
	gates   gates
	// publisher is where events go as the engine publishes them, nil for nowhere.
	publisher *publisher
	// timeless engines take no time for a pass, and begin each when they get to
	// it.
	timeless bool

	restarting sync.Mutex // held while it ends or begins anew
	mu         struct {
		sync.Mutex
		closed  bool
		down    bool    // closed, or about to begin anew
		answers *answer // being written, linked
	}
}

var _ http.Handler = (*Server)(nil)

// New returns an engine with the given configuration. It starts nothing, a rank has
// a goroutine while it has work, but it opens the sockets that events are published
// on.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, face: newFace(cfg.Dress), vocab: cfg.Vocabulary.load(), began: time.Now(), ranks: make([]*rank, cfg.Ranks)}
	if cfg.Engine != nil {
		if s.model, err = cfg.model(); err != nil {
			return nil, err
		}
	}
	s.timeless = s.model.Timing == simengine.Timing(simengine.Fixed{})
	s.life.begin()
	for i := range s.ranks {
		r := newRank(s, i)
		if cfg.Engine != nil {
			if r.engine, err = simengine.New(s.model); err != nil {
				return nil, fmt.Errorf("simserver: %w", err)
			}
		}
		s.ranks[i] = r
	}
	if cfg.Publish != nil {
		if s.publisher, err = openPublisher(&s.cfg); err != nil {
			return nil, err
		}
		for i, r := range s.ranks {
			r.events = s.publisher.streams[i]
		}
	}
	if cfg.Clock != nil {
		cfg.Clock.add(s.ranks)
	}
	for _, f := range cfg.Faults {
		if err := s.Fault(f); err != nil {
			s.Close()
			return nil, fmt.Errorf("simserver: %w", err)
		}
	}
	return s, nil
}

// Close ends the engine as if it had died: streams break off without their last
// events, which clients see as a connection that was cut, and requests that have
// not been answered yet are refused with 503, as are later ones. It returns when
// no request and no pass is running. Closing again does nothing.
func (s *Server) Close() {
	s.restarting.Lock()
	defer s.restarting.Unlock()
	if !s.stop(true /* for good */) {
		return
	}
	if s.publisher != nil {
		s.publisher.close()
	}
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
	if s.mu.down {
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
	methods, handle := s.route(r.URL.Path)
	if handle == nil {
		s.fail(w, &apiError{status: http.StatusNotFound, route: true, message: "no such route: " + r.URL.Path})
		return
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if method != methods && !slices.Contains(strings.Split(methods, ", "), method) {
		w.Header().Set("Allow", methods)
		s.fail(w, &apiError{status: http.StatusMethodNotAllowed, route: true, message: fmt.Sprintf("%s: expected %s, got %s", r.URL.Path, methods, r.Method)})
		return
	}
	if _, loading := s.faults.on(FaultLoading); loading && !strings.HasPrefix(r.URL.Path, "/sim/") {
		s.fail(w, &apiError{status: http.StatusServiceUnavailable, message: "Loading model"})
		return
	}
	handle(s, w, r)
}

// handler answers the requests of a route.
type handler func(*Server, http.ResponseWriter, *http.Request)

// route returns the methods and the handler of a path, nil where there is none.
func (s *Server) route(path string) (methods string, handle handler) {
	switch path {
	case "/sim/fault":
		return "GET, POST, DELETE", (*Server).serveFault
	case "/sim/drain":
		if s.cfg.Clock != nil {
			return http.MethodPost, (*Server).serveDrain
		}
	}
	if s.faults.missing(path) {
		return "", nil
	}
	switch path {
	case "/v1/chat/completions":
		return http.MethodPost, (*Server).serveChat
	case "/v1/completions":
		return http.MethodPost, (*Server).serveCompletion
	case "/v1/models":
		return http.MethodGet, (*Server).serveModels
	case "/metrics":
		return http.MethodGet, (*Server).serveMetrics
	}
	return s.face.route(s, path)
}

func (s *Server) serveDrain(w http.ResponseWriter, r *http.Request) { s.cfg.Clock.ServeDrain(w, r) }
