// Package stator runs the control plane inside a Go program: the OpenAI API with
// nvext in front, a fleet of engines behind, and the router between them.
//
//	cfg := stator.DefaultConfig()
//	cfg.Engines = []stator.EngineConfig{{URL: "http://gpu1:8000"}, {URL: "http://gpu2:8000"}}
//	srv, err := stator.New(cfg)
//	if err != nil { … }
//	if err := srv.Start(ctx); err != nil { … }
//	defer srv.Close()
//
// The stator command is a thin layer over this package.
package stator

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/stator-ai/stator/internal/frontend"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvlink"
	"github.com/stator-ai/stator/internal/learn"
	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/simserver"
)

const (
	// identifyWait bounds how long Start waits for engines that do not answer.
	identifyWait = 3 * time.Second
	// idleConnection is how long a client may keep a connection without a
	// request.
	idleConnection = 2 * time.Minute
	// closeTimeout bounds how long Close waits for requests that were broken off.
	closeTimeout = time.Second
	// maxHeader leaves room for the largest metadata headers.
	maxHeader = 256 << 10
)

// Server is one control plane. Make it with [New], run it with [Server.Start],
// end it with [Server.Drain] and [Server.Close].
type Server struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics.Set
	router  *router.Router
	front   *frontend.Server
	tracing *tracing  // nil when off
	trace   *recorder // nil when off

	progress func(file string, done, total int64) // hears of downloads; may be nil

	// running is the context of all requests; stop ends it with a cause.
	running context.Context
	stop    context.CancelCauseFunc

	links    *kvlink.Links // what engines say about their caches
	follower *follower     // whose links they are
	fleet    fleet

	sims  []*simEngine
	clock simserver.Clock // of the simulated engines if their time is virtual

	restored bool       // what policies had learned was read, and may be written
	saving   sync.Mutex // held while it is

	http      []*http.Server
	addr      net.Addr // of the API; nil before Start
	adminAddr net.Addr // of the admin routes; nil if they have none of their own
	wg        sync.WaitGroup
}

// Option changes how a [Server] is made.
type Option func(*options)

type options struct {
	log      *slog.Logger
	version  string
	progress func(file string, done, total int64)

	selector     Selector
	selectorName string
}

// WithLogger sends the log there instead of nowhere.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.log = l } }

// WithVersion sets the version that /health and the metrics report.
func WithVersion(v string) Option { return func(o *options) { o.version = v } }

// WithProgress calls f while [Server.Start] downloads the files of tokenizers: at the
// beginning of each, now and then, and at its end, when done equals total. Total is
// -1 while it is not known. Calls come from several goroutines, for one file never
// two at once.
func WithProgress(f func(file string, done, total int64)) Option {
	return func(o *options) { o.progress = f }
}

// New checks cfg and puts a server together. It opens nothing yet. The error is a
// *[ConfigError] when cfg is at fault.
func New(cfg Config, opts ...Option) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	o := options{log: slog.New(slog.DiscardHandler)}
	for _, opt := range opts {
		opt(&o)
	}
	s := &Server{cfg: cfg, log: o.log, progress: o.progress}
	s.running, s.stop = context.WithCancelCause(context.Background())
	s.metrics = metrics.New(metrics.Options{
		Version: o.version,
		Prefix:  cfg.Metrics.Prefix,
		Buckets: cfg.Metrics.Buckets.buckets(),
	})
	routing, err := cfg.Router.router()
	if err != nil {
		return nil, err
	}
	routing.Log, routing.Metrics = o.log, s.metrics
	if o.selector != nil {
		routing.Selector, routing.SelectorName = selection{o.selector}, o.selectorName
	}
	s.router = router.New(routing)
	s.fleet = fleet{server: s, members: make(map[kv.WorkerID]*member), names: make(map[string]context.CancelFunc)}
	s.follow()
	if s.tracing, err = newTracing(cfg.Tracing, o.version); err != nil {
		return nil, err
	}
	front := frontend.Config{
		Router:         s.router,
		Metrics:        s.metrics,
		Log:            o.log,
		Limits:         cfg.Limits.limits(),
		OverloadStatus: cfg.Router.OverloadStatus,
		Strict:         cfg.Strict,
		IgnoreNvExt:    cfg.NvExt.Disabled,
		ForwardNvExt:   cfg.NvExt.Forward,
		NoUsage:        !cfg.AskUsage,
		LogRequests:    cfg.Log.Requests,
		SplitAdmin:     cfg.AdminListen != "",
		MetricsApart:   cfg.Metrics.Ports.apart(),
		Version:        o.version,
	}
	front.Engines = s.engines
	if l := cfg.Learn; l.Enabled {
		learner := learn.New(learn.Config{
			Idle: l.Idle, MaxConversations: l.MaxConversations, MaxFamilies: l.MaxFamilies, MinSamples: l.MinSamples,
		})
		s.metrics.WatchLearner(func() metrics.LearnSample {
			n := learner.Stats()
			return metrics.LearnSample{
				Conversations: n.Conversations, ConversationsEvicted: n.ConversationsEvicted,
				Families: n.Families, FamiliesEvicted: n.FamiliesEvicted,
			}
		})
		front.Learner = learner
	}
	if cfg.Discovery.Register {
		front.Registry = &s.fleet
	}
	if s.tracing != nil {
		front.Tracer = s.tracing.tracer
	}
	if cfg.Trace.Out != "" {
		s.trace = &recorder{cfg: cfg.Trace, log: o.log, metrics: s.metrics}
		front.Trace, front.TraceText = s.trace, cfg.Trace.Text
	}
	if cfg.Errors.Format == "dynamo" {
		front.ErrorFormat = openai.FormatDynamo
	}
	for _, k := range cfg.Keys {
		key := frontend.Key{Name: k.Name, Trusted: k.Trusted, Admin: k.Admin, Tenant: k.Tenant, PreferSensitivity: k.PreferSensitivity}
		if _, err := hex.Decode(key.Hash[:], []byte(k.SHA256)); err != nil {
			return nil, fmt.Errorf("keys: %s: %w", k.Name, err)
		}
		front.Keys = append(front.Keys, key)
	}
	s.front = frontend.New(front)
	return s, nil
}

// Start loads the tokenizers, downloading what is not there, opens the engines and
// the listeners and returns once every engine was asked what it serves, or a few
// seconds have passed; engines that answer later join later. After an error nothing
// is left open.
func (s *Server) Start(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

func (s *Server) start(ctx context.Context) error {
	if s.trace != nil {
		if err := s.trace.open(); err != nil {
			return err
		}
	}
	if err := s.loadTokens(ctx); err != nil {
		return err
	}
	if err := s.restoreLearned(); err != nil {
		return err
	}
	// Requests that come early are for models that some worker may serve.
	if err := s.addSims(); err != nil {
		return err
	}
	if err := s.fleet.set(s.cfg.Engines); err != nil {
		return err
	}
	if s.cfg.Discovery.Register {
		s.wg.Go(func() { s.fleet.sweep(s.running) })
	}
	if s.learnedFile() != "" {
		s.wg.Go(func() { s.keepLearned(s.running) })
	}
	if err := s.listenAll(); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, identifyWait)
	defer cancel()
	s.fleet.wait(wait)
	s.router.WaitChecked(wait)
	return ctx.Err()
}

// listenAll opens the listeners: the API, then what is apart from it.
func (s *Server) listenAll() (err error) {
	if s.addr, err = s.listen(s.cfg.Listen, s.api()); err != nil {
		return err
	}
	if s.cfg.AdminListen != "" {
		if s.adminAddr, err = s.listen(s.cfg.AdminListen, s.front.AdminHandler()); err != nil {
			return err
		}
	}
	return s.listenMetrics()
}

// listen serves h on addr and returns the address that it has.
func (s *Server) listen(addr string, h http.Handler) (net.Addr, error) {
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: s.cfg.Limits.HeaderTimeout,
		IdleTimeout:       idleConnection,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		Protocols:         new(http.Protocols),
		BaseContext:       func(net.Listener) context.Context { return s.running },
	}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	if s.cfg.TLS.Cert != "" {
		cert, err := tls.LoadX509KeyPair(s.cfg.TLS.Cert, s.cfg.TLS.Key)
		if err != nil {
			return nil, fmt.Errorf("load %s and %s: %w", s.cfg.TLS.Cert, s.cfg.TLS.Key, err)
		}
		srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err // it says "listen" and the address
	}
	s.http = append(s.http, srv)
	s.wg.Go(func() {
		serve := srv.Serve
		if srv.TLSConfig != nil {
			serve = func(ln net.Listener) error { return srv.ServeTLS(ln, "", "") }
		}
		if err := serve(ln); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("listener failed", "addr", ln.Addr().String(), "error", err)
		}
	})
	return ln.Addr(), nil
}

// SetEngines has the configured engines be these, while the server runs: those that are
// gone get no more requests, new ones join, and those that are as before go on
// undisturbed. The error is a *[ConfigError] when the list is at fault; nothing has
// changed then.
func (s *Server) SetEngines(engines []EngineConfig) error {
	cfg := s.cfg
	cfg.Engines = engines
	if err := cfg.Validate(); err != nil {
		return err
	}
	return s.fleet.set(engines)
}

// Addr returns the address of the API, empty before Start.
func (s *Server) Addr() string { return address(s.addr) }

// AdminAddr returns the address of the admin routes where they have one of their
// own, else empty.
func (s *Server) AdminAddr() string { return address(s.adminAddr) }

func address(a net.Addr) string {
	if a == nil {
		return ""
	}
	return a.String()
}

// Models returns the names of the models served now.
func (s *Server) Models() []string {
	var names []string
	for _, m := range s.router.Status() {
		if m.Discovered() {
			names = append(names, m.Model.ID)
		}
	}
	return names
}

// Workers returns how many workers are configured and how many of them have been
// found.
func (s *Server) Workers() (found, all int) {
	return s.router.Workers()
}

// Handler returns the API as a handler, for programs that bring their own
// listener. Start must have been called.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		defer context.AfterFunc(s.running, func() { cancel(context.Cause(s.running)) })()
		s.api().ServeHTTP(w, r.WithContext(ctx))
	})
}

// Drain refuses new requests and waits until those in flight have ended or ctx
// ends.
func (s *Server) Drain(ctx context.Context) error {
	s.log.Info("draining", "inflight", s.front.Inflight())
	s.clock.Close()
	for _, srv := range s.http {
		srv.SetKeepAlivesEnabled(false) // the next request belongs elsewhere
	}
	if err := s.front.Drain(ctx); err != nil {
		return err
	}
	for _, srv := range s.http {
		if err := srv.Shutdown(ctx); err != nil {
			return fmt.Errorf("drain: %w", err)
		}
	}
	return nil
}

// Close ends everything at once, in the reverse order of opening, and waits for
// it. Requests in flight are broken off; their clients are told, if they listen.
func (s *Server) Close() error {
	var errs []error
	s.stop(frontend.ErrStopping)
	told, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = s.front.Drain(told) // those that do not listen lose their connection
	for _, srv := range s.http {
		_ = srv.Shutdown(told) // lets the last words out
		errs = append(errs, srv.Close())
	}
	gone, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	errs = append(errs, s.front.Drain(gone))
	s.front.Close()
	errs = append(errs, s.saveLearned()) // before workers leave, and are forgotten
	s.fleet.close()
	s.router.Close()
	s.links.Close()
	for _, sim := range s.sims {
		sim.server.Close()
		errs = append(errs, sim.http.Close())
	}
	s.wg.Wait()
	if s.trace != nil {
		errs = append(errs, s.trace.close())
	}
	if s.tracing != nil {
		errs = append(errs, s.tracing.close())
	}
	return errors.Join(errs...)
}

func (l LimitsConfig) limits() frontend.Limits {
	out := frontend.Limits{
		Body:        int64(l.BodyBytes),
		Budget:      int64(l.BodyBudgetBytes),
		Inflight:    l.MaxInflight,
		BodyTimeout: l.BodyTimeout,
		Write:       l.WriteTimeout,
		EngineIdle:  l.EngineIdleTimeout,
	}
	if out.EngineIdle == 0 {
		out.EngineIdle = -1
	}
	return out
}

func (b BucketsConfig) buckets() metrics.Buckets {
	r := func(r BucketRange) metrics.BucketRange {
		return metrics.BucketRange{Min: r.Min, Max: r.Max, Count: r.Count}
	}
	return metrics.Buckets{
		RequestDuration: r(b.RequestDuration),
		InputSequence:   r(b.InputSequence),
		OutputSequence:  r(b.OutputSequence),
		TTFT:            r(b.TTFT),
		ITL:             r(b.ITL),
	}
}
