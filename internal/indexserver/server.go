package indexserver

import (
	"cmp"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
	"github.com/stator-ai/stator/internal/metrics"
)

// Config says how a [Server] behaves. The zero value is a service of what engines
// say, with the default limits.
type Config struct {
	// Index is the configuration of each model's index.
	Index kvindex.Config
	// FrequencyWindow is how long a query counts in the frequencies of later ones;
	// 0 leaves them empty.
	FrequencyWindow time.Duration
	// MaxBody is the bytes of one body; 0 means 8 MiB. MaxRestore is the same for
	// POST /restore, whose body is not held in memory; 0 means 16 GiB.
	MaxBody, MaxRestore int64
	// MaxHeld is the bytes of all bodies held in memory at a time, and of what is
	// made of them, about; 0 means 512 MiB.
	MaxHeld int64
	// MaxRanks bounds the ranks registered for all models; 0 means 65536.
	MaxRanks int
	// Record is given every batch that is taken in, of all models; it must not keep
	// or change it. nil means nobody is.
	Record  kv.Applier
	Metrics *metrics.Set // nil means one of its own
	Log     *slog.Logger // nil means none
	Version string
}

const (
	defaultMaxBody    = 8 << 20
	defaultMaxRestore = 16 << 30
	defaultMaxHeld    = 512 << 20
	defaultMaxRanks   = 1 << 16
)

// stall is how long a client may take for a body of a query, and to send or take
// the next part of a longer one.
const stall = 30 * time.Second

// Server is the HTTP API of the indexes. It is an [http.Handler]; who listens is
// the caller's business. It is safe for concurrent use.
type Server struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics.Set
	service *metrics.IndexService
	routes  map[string]route
	origins *http.CrossOriginProtection
	held    atomic.Int64 // bytes of bodies in memory, and of what is made of them
	// transfers has an element for each dump and restore under way.
	transfers chan struct{}

	linking sync.Mutex // held while sockets come and go, and ranks go; taken before mu
	closed  bool       // guarded by linking: no socket comes any more

	mu     sync.RWMutex // nobody waits for a rank's lock with it
	pools  map[poolKey]*pool
	ranks  int // registered in all pools
	expiry expiry
}

var _ http.Handler = (*Server)(nil)

// New returns a service without any model. It starts nothing by itself, but a worker
// that is registered with an event socket is followed until Close.
func New(cfg Config) *Server {
	cfg.MaxBody = cmp.Or(cfg.MaxBody, defaultMaxBody)
	cfg.MaxRestore = cmp.Or(cfg.MaxRestore, defaultMaxRestore)
	cfg.MaxHeld = cmp.Or(cfg.MaxHeld, defaultMaxHeld)
	cfg.MaxRanks = cmp.Or(cfg.MaxRanks, defaultMaxRanks)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.New(metrics.Options{Version: cfg.Version})
	}
	s := &Server{
		cfg:     cfg,
		log:     cfg.Log,
		metrics: cfg.Metrics,
		pools:   make(map[poolKey]*pool),
		origins: http.NewCrossOriginProtection(),

		transfers: make(chan struct{}, maxTransfers),
	}
	s.service = s.metrics.IndexService()
	s.routes = s.routeTable()
	return s
}

// handler answers a request, or returns what the client is to be told instead.
type handler func(http.ResponseWriter, *http.Request) error

// route is what is served on a path: one method, GET including HEAD.
type route struct {
	method string
	handle handler
}

func (s *Server) routeTable() map[string]route {
	return map[string]route{
		"/register":         {http.MethodPost, s.register},
		"/unregister":       {http.MethodPost, s.unregister},
		"/workers":          {http.MethodGet, s.workers},
		"/events":           {http.MethodPost, s.events},
		"/query":            {http.MethodPost, s.query},
		"/query_by_hash":    {http.MethodPost, s.queryByHash},
		"/route":            {http.MethodPost, s.route},
		"/kv_indexer_query": {http.MethodPost, s.planeQuery},
		"/dump":             {http.MethodGet, s.dump},
		"/restore":          {http.MethodPost, s.restore},
		"/health":           {http.MethodGet, s.health},
		"/openapi.json":     {http.MethodGet, describe},
		"/metrics":          {http.MethodGet, s.scrape(s.metrics.Handler())},
	}
}

// ServeHTTP serves the routes of the service.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	answer := &answer{ResponseWriter: w}
	rt, ok := s.routes[r.URL.Path]
	defer func() {
		s.service.Request(r.URL.Path, r.Method, cmp.Or(answer.status, http.StatusOK), time.Since(began))
	}()
	defer s.recovered(answer, r)
	if r.Body != nil && r.Body != http.NoBody {
		// Whether or not the body is read, it has to arrive in time: net/http takes
		// in what a handler left.
		_ = http.NewResponseController(w).SetReadDeadline(began.Add(stall))
	}
	_ = http.NewResponseController(w).SetWriteDeadline(began.Add(2 * stall))
	if err := s.serve(answer, r, rt, ok); err != nil {
		s.fail(answer, r, err)
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, rt route, found bool) error {
	if !found {
		return fail(http.StatusNotFound, "no route %.100q; see /openapi.json for the routes there are", r.URL.Path)
	}
	if r.Method != rt.method && !(r.Method == http.MethodHead && rt.method == http.MethodGet) {
		allow := rt.method
		if allow == http.MethodGet {
			allow = "GET, HEAD"
		}
		w.Header().Set("Allow", allow)
		return fail(http.StatusMethodNotAllowed, "method %.20q is not allowed here, expected %s", r.Method, allow)
	}
	if err := s.origins.Check(r); err != nil {
		return &failure{status: http.StatusForbidden, field: "Origin", message: "a page of another site may not change anything here", err: err}
	}
	return rt.handle(w, r)
}

// recovered turns a panic of a handler into a 500 and a log line.
func (s *Server) recovered(w *answer, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p != http.ErrAbortHandler {
		s.log.Error("panic", "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
		if w.status == 0 {
			reply(w, http.StatusInternalServerError, errorBody{errorDetail{Message: "internal error"}})
			return
		}
	}
	panic(http.ErrAbortHandler)
}

// answer remembers the status that was sent.
type answer struct {
	http.ResponseWriter
	status int
}

// Unwrap gives [http.ResponseController] the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader sends the status.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write sends a part of the body.
func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(b)
}

// healthBody is what /health says.
type healthBody struct {
	Status  string `json:"status"`
	Version string `json:"version,omitempty"`
	Models  int    `json:"models"`
	Ranks   int    `json:"ranks"`
	Blocks  int    `json:"blocks"`
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) error {
	body := healthBody{Status: "healthy", Version: s.cfg.Version}
	for _, p := range s.all() {
		body.Models++
		body.Blocks += p.index.Stats().Blocks
	}
	s.mu.RLock()
	body.Ranks = s.ranks
	s.mu.RUnlock()
	reply(w, http.StatusOK, body)
	return nil
}
