// Package openaihttp is the engine adapter for any server with an OpenAI-style
// HTTP API: simulated engines and everything that has no adapter of its own.
package openaihttp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/openai"
)

// Config says where a server is and how to reach it.
type Config struct {
	// URL is the server's base URL. A trailing slash or /v1 does not matter.
	URL string
	// APIKey, if set, is sent as bearer token and replaces the client's.
	APIKey string
	// Dial, if set, replaces TCP; in-memory engines use it.
	Dial func(ctx context.Context) (net.Conn, error)
}

// connectTimeout bounds dialling, and the TLS handshake after it.
const connectTimeout = 5 * time.Second

// maxRanks bounds what a server may claim to have.
const maxRanks = 1024

// rankHeader carries the data-parallel rank, under the name vLLM reads.
const rankHeader = "X-Data-Parallel-Rank"

// idleTimeout is below the five seconds after which the HTTP servers of vLLM and
// llama.cpp close an idle connection, so that a request rarely meets one that is
// being closed.
const idleTimeout = 4 * time.Second

// Engine is a server reached over HTTP.
type Engine struct {
	base      *url.URL
	apiKey    string
	transport *http.Transport
	chat      *url.URL // the two hot routes, resolved once
	compl     *url.URL
	tokenizer atomic.Int32              // the tokenizeStyle of its route
	silent    atomic.Pointer[time.Time] // when that route did not answer; nil for never
	inMemory  bool
}

var (
	_ engine.Engine    = (*Engine)(nil)
	_ engine.Tokenizer = (*Engine)(nil)
)

// Normalize returns the canonical form of a base URL: lower-case scheme and
// host, no default port, no trailing slash, no trailing /v1.
func Normalize(raw string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil {
		return nil, fmt.Errorf("engine url: %w", err)
	}
	u.Scheme = strings.ToLower(u.Scheme)
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("engine url %q: expected http:// or https://", raw)
	}
	if u.Hostname() == "" {
		return nil, fmt.Errorf("engine url %q: no host", raw)
	}
	if u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("engine url %q: expected scheme, host, port and path only", u.Redacted())
	}
	u.Host = strings.ToLower(u.Host)
	if p := u.Port(); p == "80" && u.Scheme == "http" || p == "443" && u.Scheme == "https" {
		u.Host = strings.TrimSuffix(u.Host, ":"+p)
	}
	u.Path = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v1")
	u.RawPath = ""
	return u, nil
}

// ID returns the worker id of a base URL: 53 bits of a hash of its canonical
// form, never 0.
func ID(raw string) (kv.WorkerID, error) {
	u, err := Normalize(raw)
	if err != nil {
		return 0, err
	}
	return max(1, kv.WorkerID(xxh3.HashString(u.String())&(1<<53-1))), nil
}

// New returns the engine at cfg.URL. It does not connect.
func New(cfg Config) (*Engine, error) {
	base, err := Normalize(cfg.URL)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAlive: 15 * time.Second}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, addr)
		if tcp, ok := c.(*net.TCPConn); ok {
			return conn{tcp}, nil
		}
		return c, err
	}
	if cfg.Dial != nil {
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return cfg.Dial(ctx) }
	}
	return &Engine{
		base:     base,
		apiKey:   cfg.APIKey,
		inMemory: cfg.Dial != nil,
		chat:     below(base, "/v1/chat/completions"),
		compl:    below(base, "/v1/completions"),
		transport: &http.Transport{
			DialContext:         dial,
			TLSHandshakeTimeout: connectTimeout,
			DisableCompression:  true,
			MaxIdleConnsPerHost: 4096,
			IdleConnTimeout:     idleTimeout,
		},
	}, nil
}

// URL returns the canonical base URL.
func (e *Engine) URL() string { return e.base.String() }

// Host returns the name or address of the server's host, without a port.
func (e *Engine) Host() string { return e.base.Hostname() }

// InMemory reports whether the server is reached through [Config.Dial], so that its
// host is no name to dial.
func (e *Engine) InMemory() bool { return e.inMemory }

// Close drops idle connections.
func (e *Engine) Close() { e.transport.CloseIdleConnections() }

// replayWindow is how soon after the request was written a kept-alive connection must
// fail for the failure to mean that the engine had closed it before the request came.
// On a machine with much to do that takes a while to be seen. Later, the engine had the
// request, and sending it again could run it twice, or kill a second engine with what
// killed the first.
const replayWindow = 250 * time.Millisecond

// Open implements [engine.Engine]. Wishes are said as most servers understand them,
// see [PlainEdits].
func (e *Engine) Open(ctx context.Context, t engine.Target, r *engine.Request) (*engine.Response, error) {
	if r.Body == nil {
		return e.Send(ctx, t, r, nil)
	}
	return e.Send(ctx, t, r, PlainEdits(r.Edits, r))
}

// Send is Open for adapters that have said the wishes in their own way: the body goes
// out with these edits and not those of r. A request that met a connection which the
// engine had just closed is sent once more, to the same engine.
func (e *Engine) Send(ctx context.Context, t engine.Target, r *engine.Request, edits []openai.Edit) (*engine.Response, error) {
	h := r.Header
	if h == nil {
		h = make(http.Header, 8)
	}
	var body *upload
	if r.Body != nil {
		body = newUpload(r.Body.Edit(edits))
		h["Content-Type"] = jsonType
	} else {
		body = newUpload(openai.Pieces{r.Raw})
	}
	h["Accept-Encoding"] = identity
	if r.Ranked {
		h[rankHeader] = []string{strconv.FormatUint(uint64(t.Rank), 10)}
	}
	if e.apiKey != "" {
		h["Authorization"] = []string{"Bearer " + e.apiKey}
	}
	resp, stale, err := e.send(ctx, r, h, body)
	if stale && ctx.Err() == nil {
		// Those that are idle now are as old as the one that failed.
		e.transport.CloseIdleConnections()
		if resp, _, err = e.send(ctx, r, h, body); err != nil && ctx.Err() == nil {
			// Whatever this is, the first try was sent.
			return nil, &engine.OpenError{Failure: engine.FailBroken, Target: t, Err: err}
		}
	}
	if err != nil {
		return nil, &engine.OpenError{Failure: failure(ctx, err), Target: t, Err: err}
	}
	return &engine.Response{Status: resp.StatusCode, Header: resp.Header, Body: resp.Body, Sent: body.sent}, nil
}

// send makes one try. stale reports that it failed on a kept-alive connection so
// soon that the engine cannot have seen the request.
func (e *Engine) send(ctx context.Context, r *engine.Request, h http.Header, body *upload) (resp *http.Response, stale bool, err error) {
	var (
		reused bool
		start  = time.Now()
		// Other goroutines set these: when, after start, the connection was there or,
		// later, the writing over, and whether anything came back.
		written  atomic.Int64
		answered atomic.Bool
	)
	mark := func() { written.Store(int64(time.Since(start))) }
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:              func(i httptrace.GotConnInfo) { reused = i.Reused; mark() },
		WroteRequest:         func(httptrace.WroteRequestInfo) { mark() },
		GotFirstResponseByte: func() { answered.Store(true) },
	})
	req := (&http.Request{
		Method:        cmp.Or(r.Method, http.MethodPost),
		URL:           e.route(r),
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        h,
		Host:          e.base.Host,
		ContentLength: body.size,
		Body:          body.reader(),
		GetBody:       func() (io.ReadCloser, error) { return body.reader(), nil },
	}).WithContext(traced)
	resp, err = e.transport.RoundTrip(req)
	if err != nil {
		soon := time.Since(start)-time.Duration(written.Load()) < replayWindow
		return nil, reused && !answered.Load() && soon, err
	}
	// The transport keeps the request for as long as the answer runs. It does
	// not send it again now; without this the whole body would stay in memory.
	req.GetBody = nil
	return resp, false, nil
}

var (
	jsonType = []string{"application/json"}
	identity = []string{"identity"}
)

// route returns the URL of a request, whose path may have escapes that are to stay.
func (e *Engine) route(r *engine.Request) *url.URL {
	switch {
	case r.Query == "" && r.Path == "/v1/chat/completions":
		return e.chat
	case r.Query == "" && r.Path == "/v1/completions":
		return e.compl
	default:
		u := below(e.base, r.Path)
		if path, err := url.PathUnescape(r.Path); err == nil && path != r.Path {
			u.Path, u.RawPath = e.base.Path+path, e.base.EscapedPath()+r.Path
		}
		u.RawQuery = r.Query
		return u
	}
}

// below returns the URL of a route under base.
func below(base *url.URL, path string) *url.URL {
	u := *base
	u.Path += path
	return &u
}

// failure classifies an error of RoundTrip.
func failure(ctx context.Context, err error) engine.Failure {
	var op *net.OpError
	switch {
	case ctx.Err() != nil:
		return engine.FailureOf(ctx, err)
	case engine.IsLocal(err):
		return engine.FailLocal
	case errors.As(err, &op) && op.Op == "dial":
		return engine.FailConnect
	case isTLS(err):
		return engine.FailConnect
	default:
		return engine.FailBroken
	}
}

// isTLS reports whether the handshake failed: nothing of the request was sent.
func isTLS(err error) bool {
	var verify *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	return errors.As(err, &verify) || errors.As(err, &record) ||
		strings.Contains(err.Error(), "TLS handshake timeout")
}

// Probe implements [engine.Engine]. It asks /health, and /v1/models where a
// server has no such route.
func (e *Engine) Probe(ctx context.Context) error {
	status, _, err := e.Get(ctx, "/health")
	if err == nil && status == http.StatusNotFound {
		status, _, err = e.Get(ctx, "/v1/models")
	}
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("probe %s: status %d", e.base, status)
	}
	return nil
}

// maxDocument bounds the answers that are read as a whole.
const maxDocument = 4 << 20

// Get fetches a small document, of which no more than a few megabytes are read. The
// path may have a query. An answer with any status is no error.
func (e *Engine) Get(ctx context.Context, path string) (status int, body []byte, err error) {
	path, query, _ := strings.Cut(path, "?")
	u := below(e.base, path)
	u.RawQuery = query
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return 0, nil, err
	}
	return e.fetch(req, maxDocument)
}

// Post sends a small JSON document, or nothing if it is nil, and returns the answer as
// Get does.
func (e *Engine) Post(ctx context.Context, path string, doc []byte) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, below(e.base, path).String(), bytes.NewReader(doc))
	if err != nil {
		return 0, nil, err
	}
	if doc != nil {
		req.Header["Content-Type"] = jsonType
	}
	return e.fetch(req, maxDocument)
}

// fetch sends a request and reads the answer, up to limit bytes of it.
func (e *Engine) fetch(req *http.Request, limit int64) (status int, body []byte, err error) {
	if e.apiKey != "" {
		req.Header.Set("Authorization", "Bearer "+e.apiKey)
	}
	resp, err := e.transport.RoundTrip(req)
	if err == nil {
		defer resp.Body.Close()
		body, err = io.ReadAll(io.LimitReader(resp.Body, limit))
	}
	if err != nil {
		return 0, nil, fmt.Errorf("%s %s: %w", strings.ToLower(req.Method), req.URL, err)
	}
	return resp.StatusCode, body, nil
}
