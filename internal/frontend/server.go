package frontend

import (
	"cmp"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/stator-ai/stator/internal/learn"
	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/router"
)

// Config is what a [Server] needs. Router is required; the rest has defaults.
type Config struct {
	Router  *router.Router
	Metrics *metrics.Set
	Log     *slog.Logger // nil means none
	// Tracer makes spans; nil means that trace headers are passed on as they are.
	Tracer trace.Tracer
	// Keys are the API keys; none means that everyone is trusted.
	Keys   []Key
	Limits Limits
	// ErrorFormat is the shape of error bodies.
	ErrorFormat openai.ErrorFormat
	// OverloadStatus is the status when all workers are busy; 0 means 503.
	OverloadStatus int
	// Strict refuses what the engines might forgive.
	Strict bool
	// IgnoreNvExt drops nvext and the headers that override it.
	IgnoreNvExt bool
	// ForwardNvExt leaves nvext in the body that an engine gets, for engines that
	// understand it. It is read here all the same.
	ForwardNvExt bool
	// NoUsage does not ask engines for the usage of streams whose clients did not ask,
	// for engines that refuse to be asked.
	NoUsage bool
	// Learner infers what clients do not say of their requests; nil means that nobody
	// does.
	Learner *learn.Learner
	// Engines describes all workers for GET /v1/engines; nil means that there is no
	// such route.
	Engines func() []EngineStatus
	// Registry takes engines that announce themselves; nil means that none can.
	Registry Registry
	// Trace takes a row for every request that was let in; nil means none are
	// made.
	Trace RowWriter
	// TraceText has the rows hold the text of prompts.
	TraceText bool
	// LogRequests logs one line per finished request.
	LogRequests bool
	// SplitAdmin leaves the admin routes to AdminHandler.
	SplitAdmin bool
	// MetricsApart are the parts whose series /metrics leaves to MetricsHandler.
	MetricsApart metrics.Part
	Version      string
}

// Limits bound what a client can make the server hold. Zero fields mean the
// defaults.
type Limits struct {
	Body        int64         // bytes of one body; 45 MiB
	Budget      int64         // bytes of all buffered bodies; 1 GiB
	Inflight    int           // requests at a time; 0 means no limit
	BodyTimeout time.Duration // to receive a body; 60 s
	Write       time.Duration // for a client to take what was written; 30 s
	EngineIdle  time.Duration // for an engine to send nothing; 10 min, negative = no limit
}

const (
	smallBody       = 2 << 20 // limit of bodies on routes other than inference
	retryAfter      = "1"     // seconds
	defaultBody     = 45 << 20
	defaultBudget   = 1 << 30
	defaultBodyTime = 60 * time.Second
	defaultWrite    = 30 * time.Second
	defaultIdle     = 10 * time.Minute
)

// Server is the HTTP API. It is an [http.Handler]; who listens is the caller's
// business. It is safe for concurrent use.
type Server struct {
	cfg      Config
	router   *router.Router
	metrics  *metrics.Set
	log      *slog.Logger
	keys     keyring
	routes   map[string]route
	body     atomic.Int64 // bytes of bodies held
	encoders encoders
	aborts   aborts
	tokens   map[string]Tokens
	unproven atomic.Bool   // nobody has looked yet whether all tokens are of use
	qwen3    atomic.Bool   // the built-in tokenizer is in use
	asked    atomic.Uint32 // numbers what engines are asked
	inflight atomic.Int64
	draining atomic.Bool
	idle     struct {
		sync.Mutex
		wait chan struct{} // closed when the last request ends during a drain
	}
}

// New returns a server over cfg.Router. It starts nothing.
func New(cfg Config) *Server {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.New(metrics.Options{Version: cfg.Version})
	}
	cfg.OverloadStatus = cmp.Or(cfg.OverloadStatus, http.StatusServiceUnavailable)
	l := &cfg.Limits
	l.Body = cmp.Or(l.Body, defaultBody)
	l.Budget = cmp.Or(l.Budget, defaultBudget)
	l.BodyTimeout = cmp.Or(l.BodyTimeout, defaultBodyTime)
	l.Write = cmp.Or(l.Write, defaultWrite)
	l.EngineIdle = cmp.Or(l.EngineIdle, defaultIdle)
	if l.EngineIdle < 0 {
		l.EngineIdle = math.MaxInt64
	}
	s := &Server{
		cfg:     cfg,
		router:  cfg.Router,
		metrics: cfg.Metrics,
		log:     cfg.Log,
		keys:    keyring(cfg.Keys),
		// One core stays free, so that streams keep flowing.
		encoders: newEncoders(max(1, runtime.GOMAXPROCS(0)-1)),
	}
	// From anywhere, so that two processes in front of an engine hardly ever agree.
	s.asked.Store(rand.Uint32())
	s.routes = s.routeTable()
	return s
}

// Close waits until engines were told of requests that nobody wants any more, which
// takes a few seconds at most. It does not end requests; [Server.Drain] waits for them,
// and who listens ends them.
func (s *Server) Close() { s.aborts.close() }

// access says who may use a route.
type access uint8

const (
	open  access = iota // everyone
	api                 // any key, when keys are configured
	admin               // an admin key, when keys are configured
)

// route is what is served on a path.
type route struct {
	get, post, put, del func(http.ResponseWriter, *http.Request, *Key)
	access              access
}

func (s *Server) routeTable() map[string]route {
	exposition := s.metrics.HandlerOf(metrics.AllParts &^ s.cfg.MetricsApart)
	routes := map[string]route{
		"/v1/chat/completions": {post: s.generate, access: api},
		"/v1/completions":      {post: s.generate, access: api},
		"/v1/models":           {get: s.models, access: api},
		"/health":              {get: s.health},
		"/live":                {get: s.live},
		"/ready":               {get: s.ready},
		"/openapi.json":        {get: static("application/json", openapiJSON)},
		"/docs":                {get: static("text/html; charset=utf-8", docsHTML)},
		"/busy_threshold":      {get: s.listThresholds, post: s.setThresholds, access: admin},
		"/potential_loads":     {get: s.presentLoads, post: s.potentialLoads, access: admin},
		"/router":              {post: s.routerService, access: admin},
		"/debug/decisions":     {get: s.decisions, access: admin},
		"/debug/thompson":      {get: s.bandits, access: admin},
		"/metrics": {access: admin, get: func(w http.ResponseWriter, r *http.Request, _ *Key) {
			s.router.CountWorkers()
			s.countTokenCaches()
			exposition.ServeHTTP(w, r)
		}},
		enginesPath: {get: s.listEngines, post: s.register, access: admin},
	}
	for path := range passed {
		routes[path] = route{post: s.generate, access: api}
	}
	return routes
}

const (
	modelPrefix  = "/v1/models/"
	enginesPath  = "/v1/engines"
	enginePrefix = enginesPath + "/"
	heartbeat    = "/heartbeat"
)

// find returns the route of a path.
func (s *Server) find(path string) (route, bool) {
	if rt, ok := s.routes[path]; ok {
		return rt, true
	}
	if len(path) > len(modelPrefix) && strings.HasPrefix(path, modelPrefix) {
		return route{get: s.model, access: api}, true
	}
	if id, ok := strings.CutPrefix(path, enginePrefix); ok {
		if strings.HasSuffix(id, heartbeat) {
			return route{put: s.heartbeat, access: admin}, true
		}
		return route{del: s.deregister, access: admin}, true
	}
	if passes(path) {
		return route{get: s.generate, post: s.generate, del: s.generate, access: api}, true
	}
	return route{}, false
}

// ServeHTTP serves the API, and the admin routes unless they are split off.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rt, ok := s.find(r.URL.Path)
	if ok && rt.access == admin && s.cfg.SplitAdmin {
		ok = false
	}
	s.dispatch(w, r, rt, ok)
}

// AdminHandler serves the admin routes, and those that are open to everyone.
func (s *Server) AdminHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rt, ok := s.find(r.URL.Path)
		s.dispatch(w, r, rt, ok && rt.access != api)
	})
}

// MetricsHandler serves the series of some parts at /metrics, and /live.
func (s *Server) MetricsHandler(p metrics.Part) http.Handler {
	exposition := s.metrics.HandlerOf(p)
	routes := map[string]route{
		"/live": s.routes["/live"],
		"/metrics": {access: admin, get: func(w http.ResponseWriter, r *http.Request, _ *Key) {
			exposition.ServeHTTP(w, r)
		}},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rt, ok := routes[r.URL.Path]
		s.dispatch(w, r, rt, ok)
	})
}

// dispatch checks method and key and calls the route's handler.
func (s *Server) dispatch(w http.ResponseWriter, r *http.Request, rt route, found bool) {
	defer s.recovered(w, r)
	if r.Body != http.NoBody {
		// Whether or not the body is read, it has to arrive in time: net/http
		// takes in what a handler left.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.cfg.Limits.BodyTimeout))
	}
	if !found {
		s.noRoute(w, r)
		return
	}
	var key *Key
	if rt.access != open && len(s.keys) > 0 {
		var err *openai.Error
		if key, err = s.keys.authorize(r.Header, rt.access); err != nil {
			s.metrics.AuthFailure()
			s.fail(w, err)
			return
		}
	}
	switch handler := rt.handler(r.Method); {
	case handler != nil:
		handler(w, r, key)
	default:
		w.Header().Set("Allow", rt.allow())
		s.fail(w, &openai.Error{Code: openai.CodeMethodNotAllowed,
			Message: "method " + short(r.Method) + " is not allowed here, expected " + rt.allow()})
	}
}

func (rt route) handler(method string) func(http.ResponseWriter, *http.Request, *Key) {
	switch method {
	case http.MethodPost:
		return rt.post
	case http.MethodGet, http.MethodHead:
		return rt.get
	case http.MethodPut:
		return rt.put
	case http.MethodDelete:
		return rt.del
	default:
		return nil
	}
}

// allow lists the methods of the route.
func (rt route) allow() string {
	var all []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete} {
		if rt.handler(method) != nil {
			all = append(all, method)
		}
	}
	return strings.Join(all, ", ")
}

// recovered turns a panic of a handler into a 500 and a log line. What the
// handler held was released by its own deferred calls.
func (s *Server) recovered(w http.ResponseWriter, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	s.log.Error("panic", "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
	if w.Header().Get("Content-Type") != "" { // the answer has begun: break it off
		panic(http.ErrAbortHandler)
	}
	s.fail(w, &openai.Error{Code: openai.CodeInternal, Message: "internal error"})
}

// fail answers with an error.
func (s *Server) fail(w http.ResponseWriter, e *openai.Error) {
	h := w.Header()
	if h[headerRequestID] == nil {
		h[headerRequestID] = []string{newUUID()}
		h[headerXRequestID] = h[headerRequestID]
	}
	h.Set("Content-Type", "application/json")
	if e.RetryAfter != "" || e.Retry() {
		h.Set("Retry-After", cmp.Or(e.RetryAfter, retryAfter))
	}
	switch e.Code {
	case openai.CodeInvalidAPIKey:
		h.Set("WWW-Authenticate", "Bearer")
	case openai.CodeDraining:
		h.Set("Connection", "close") // the next request belongs elsewhere
	}
	w.WriteHeader(e.HTTPStatus())
	w.Write(append(e.AppendJSON(nil, s.cfg.ErrorFormat), '\n'))
}

func static(contentType string, body []byte) func(http.ResponseWriter, *http.Request, *Key) {
	return func(w http.ResponseWriter, _ *http.Request, _ *Key) {
		w.Header().Set("Content-Type", contentType)
		w.Write(body)
	}
}

// short cuts what a client sent to a length fit for a message.
func short(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}
