package hintproxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/hints"
	"github.com/stator-ai/stator/internal/openai"
)

// Config is what a [Proxy] is made of.
type Config struct {
	// Upstream is where requests go: scheme, host and the path that theirs go below.
	Upstream *url.URL
	// Hints are the settings of hints. Unless Enable is set, requests pass without any. Of
	// TriePath, the file is read again when it changes. RequestTimeout has no effect.
	Hints hints.Config
	// Record is the file that gets a line of JSON for each call of a model; "" for none.
	// What is in it stays. While it cannot be written, calls go on and spans wait, and are
	// dropped when there are too many.
	Record string
	// Log is where the proxy says what it could not do.
	Log *slog.Logger
}

// Proxy is an [http.Handler] that passes requests on with hints. Make one with [New]. It is
// safe for concurrent use.
type Proxy struct {
	cfg      Config
	proxy    httputil.ReverseProxy
	upstream *upstream
	hints    *hints.Transport // nil if there are none
	trie     *follower        // nil without one
	record   *spanFile        // nil without one
	started  time.Time
	name     string // in Via headers
	held     budget // for bodies
	stop     context.CancelFunc

	requests, failures, broken, left atomic.Uint64
	looped, crowded, withoutRun      atomic.Uint64
	inFlight                         atomic.Int64

	mu      sync.Mutex
	ignored map[string]uint64
}

// New returns a proxy. It does not connect. A recording that cannot be written to is an
// error; a trie that cannot be read is logged, and looked at again when it changes. Close
// the proxy when it is no longer used.
func New(cfg Config) (*Proxy, error) {
	if u := cfg.Upstream; u == nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("upstream: expected a URL such as http://127.0.0.1:8000")
	}
	if err := cfg.Hints.Validate(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Proxy{
		cfg:      cfg,
		upstream: newUpstream(cfg.Hints.VerifySSL),
		started:  time.Now(),
		name:     newPseudonym(),
		stop:     stop,
		ignored:  make(map[string]uint64),
	}
	p.proxy = httputil.ReverseProxy{
		Rewrite:       p.rewrite,
		Transport:     p.upstream,
		FlushInterval: -1, // at once
		ErrorLog:      slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
		ErrorHandler:  p.refuse,
		BufferPool:    buffers{},
	}
	if !cfg.Hints.Enable {
		return p, nil
	}
	opts := append(cfg.Hints.Options(), hints.WithBuffering(), hints.WithMatch(isCall), hints.WithLogger(cfg.Log))
	if cfg.Record != "" {
		f, err := openSpanFile(cfg.Record, cfg.Log)
		if err != nil {
			stop()
			return nil, err
		}
		p.record = f
		opts = append(opts, hints.WithRecording(hints.NewRecorder(f)))
	}
	if cfg.Hints.TriePath != "" {
		p.trie = newFollower(cfg.Hints.TriePath, cfg.Log)
		opts = append(opts, hints.WithLookup(p.trie))
		go p.trie.run(ctx)
	}
	p.hints = hints.NewTransport(p.upstream, opts...)
	p.proxy.Transport = p.hints
	return p, nil
}

// Server returns a server for the proxy: HTTP/1.1 and HTTP/2 without TLS, with a bound on
// how long headers take, and how long the body of a call of a model pauses.
func (p *Proxy) Server() *http.Server {
	srv := &http.Server{
		Handler:           p,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(p.cfg.Log.Handler(), slog.LevelWarn),
		Protocols:         new(http.Protocols),
	}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	return srv
}

// Close writes down what was recorded and lets go of idle connections. What requests that
// are still running record is lost. It waits a few seconds for files that cannot be read or
// written at present, and no longer. The error says what is missing from the recording.
func (p *Proxy) Close() (err error) {
	p.stop()
	p.upstream.CloseIdleConnections()
	if p.record != nil {
		err = p.record.Close()
	}
	if p.trie != nil && !within(closeTimeout, p.trie.done) {
		p.cfg.Log.LogAttrs(context.Background(), slog.LevelWarn, "the prediction trie is still being read; it is not waited for", slog.String("path", p.trie.path))
	}
	return err
}

// ServeHTTP passes a request on, unless it is one of the proxy's own.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		answer(w, &openai.Error{Code: openai.CodeMethodNotAllowed, Message: "CONNECT: expected a request for the server behind; this is no proxy for others"})
		return
	}
	if name, own := strings.CutPrefix(r.URL.Path, Routes); own {
		p.serveOwn(w, r, name)
		return
	}
	p.requests.Add(1)
	p.inFlight.Add(1)
	defer p.inFlight.Add(-1)
	if hasPassed(r.Header, p.name) {
		p.refuseLoop(w, r)
		return
	}
	held := false
	if p.hints != nil && hints.MatchLLM(r) {
		body := newCallBody(w, r, &p.held)
		defer body.end()
		r = p.identify(r, body)
		held = p.hold(r, body)
	}
	if !held {
		// The answer may begin before the body ends. Where this is not supported it is not
		// needed.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	watched := &watchedWriter{ResponseWriter: w}
	began := time.Now()
	defer func() { p.finish(r, watched, time.Since(began), recover()) }()
	p.proxy.ServeHTTP(watched, r)
}

// identify returns a call of a model with its body and the scope that its headers tell of.
func (p *Proxy) identify(r *http.Request, body *callBody) *http.Request {
	ctx, ignored := hints.FromHeader(r.Context(), r.Header)
	if len(ignored) > 0 {
		p.mu.Lock()
		for _, name := range ignored {
			p.ignored[name]++
		}
		p.mu.Unlock()
		p.cfg.Log.LogAttrs(ctx, slog.LevelDebug, "headers make no sense and are ignored", slog.Any("headers", ignored))
	}
	if hints.Run(ctx) == "" && p.withoutRun.Add(1) == 1 && (p.record != nil || p.trie != nil) {
		p.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "a call does not say which run of the agent it is of, in "+hints.HeaderRun+
			" or a session header; all such calls count as one run, of which neither a recording nor a prediction is of use")
	}
	r = r.WithContext(context.WithValue(ctx, callBodyKey{}, body))
	if r.Body != http.NoBody {
		r.Body = body
	}
	return r
}

// hold makes room for the body of a call if it is to get hints, and reports whether that was
// done. Otherwise the body passes as it is.
func (p *Proxy) hold(r *http.Request, body *callBody) bool {
	if !p.hints.Takes(r) {
		return false
	}
	if body.hold(r.ContentLength) {
		return true
	}
	if p.crowded.Add(1) == 1 {
		p.cfg.Log.LogAttrs(r.Context(), slog.LevelWarn, "a call passes without hints, because the bodies of others take up all memory that is for them",
			slog.Int64("bytes", maxHeld))
	}
	return false
}

// finish notes how a request ended, and goes on with the panic by which an answer is broken
// off.
func (p *Proxy) finish(r *http.Request, w *watchedWriter, took time.Duration, panicked any) {
	ctx := r.Context()
	switch {
	case panicked == nil:
	case w.failed || ctx.Err() != nil:
		p.left.Add(1)
	default:
		p.broken.Add(1)
		p.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "the upstream broke off an answer",
			slog.String("upstream", p.cfg.Upstream.Redacted()), slog.String("path", r.URL.Path))
	}
	p.cfg.Log.LogAttrs(ctx, slog.LevelDebug, "request",
		slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Int("status", w.status),
		slog.Bool("complete", panicked == nil), slog.Duration("took", took))
	if panicked != nil {
		panic(panicked)
	}
}

// refuseLoop answers a request that this proxy has passed on before.
func (p *Proxy) refuseLoop(w http.ResponseWriter, r *http.Request) {
	message := fmt.Sprintf("the request came back to the proxy that passed it on: --to, %s, leads to the proxy itself", p.cfg.Upstream.Redacted())
	if p.looped.Add(1) == 1 {
		p.cfg.Log.LogAttrs(r.Context(), slog.LevelError, message)
	}
	answer(w, &openai.Error{Code: openai.CodeEngineError, Status: http.StatusLoopDetected, Message: message})
}

// own are the headers that nobody but the proxy is addressed by.
var own = [...]string{hints.HeaderRun, hints.HeaderPath, hints.HeaderFunctionID, hints.HeaderBranch}

// forwarding are headers that httputil takes out, as a proxy at the edge of a network has
// to. This one is at the side of its clients.
var forwarding = [...]string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// rewrite addresses a request to the upstream, adds the proxy to those that it came through,
// and leaves the rest of it as it is.
func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery // with what a server may find hard to read
	pr.SetURL(p.cfg.Upstream)
	for _, name := range own {
		delete(pr.Out.Header, name)
	}
	for _, name := range forwarding {
		if v := pr.In.Header[name]; v != nil {
			pr.Out.Header[name] = v
		}
	}
	addVia(pr.Out.Header, pr.In.ProtoMajor, pr.In.ProtoMinor, p.name)
	pr.Out.Trailer = pr.In.Trailer // filled in when the body ends
}

// refuse answers a request that got no answer.
func (p *Proxy) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var up *upstreamError
	body := callBodyOf(r.Context())
	switch {
	case body != nil && body.stalled.Load(): // which ends the request's context, too
		answer(w, &openai.Error{Code: openai.CodeRequestTimeout, Message: fmt.Sprintf("nothing came of the request's body for %s", maxPause)})
	case r.Context().Err() != nil: // nobody is there to read it
		p.left.Add(1)
		answer(w, &openai.Error{Code: openai.CodeClientClosed, Message: "the client has left"})
	case errors.As(err, &up):
		p.failures.Add(1)
		verb := "gave no answer"
		if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
			verb = "cannot be reached"
		}
		message := fmt.Sprintf("the upstream %s %s: %v", p.cfg.Upstream.Redacted(), verb, up.err)
		p.cfg.Log.LogAttrs(r.Context(), slog.LevelWarn, message)
		answer(w, &openai.Error{Code: openai.CodeEngineError, Message: message})
	default: // of the body, or of hints that are out of bounds
		p.cfg.Log.LogAttrs(r.Context(), slog.LevelDebug, "a request was not sent", slog.Any("error", err))
		answer(w, &openai.Error{Code: openai.CodeInvalidValue, Message: err.Error()})
	}
}

// answer writes an error of the proxy's own.
func answer(w http.ResponseWriter, e *openai.Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.HTTPStatus())
	_, _ = w.Write(e.AppendJSON(nil, openai.FormatOpenAI)) // the client may have left
}

// watchedWriter remembers the status of an answer, and whether somebody took it.
type watchedWriter struct {
	http.ResponseWriter
	status int
	failed bool
}

func (w *watchedWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *watchedWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.failed = w.failed || err != nil
	return n, err
}

// Unwrap is for [http.ResponseController].
func (w *watchedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// buffers are what answers are copied through.
type buffers struct{}

const bufferSize = 32 << 10

var pool = sync.Pool{New: func() any { return new([bufferSize]byte) }}

func (buffers) Get() []byte { return pool.Get().(*[bufferSize]byte)[:] }

func (buffers) Put(b []byte) { pool.Put((*[bufferSize]byte)(b)) }
