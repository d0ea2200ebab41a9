package frontend

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/simserver"
)

// rig is a whole control plane in memory: clients, server, router and simulated
// engines, joined by pipes. It works inside a synctest bubble.
type rig struct {
	*Server
	router  *router.Router
	engines []*rigEngine
	client  *http.Client
	listen  *simserver.MemListener
	stop    func()
}

// rigEngine is one simulated engine. A test may put a handler in front of it, for
// POST requests and for all below /v1/x/.
type rigEngine struct {
	front func(w http.ResponseWriter, r *http.Request, next http.Handler) // nil = none
	cfg   simserver.Config

	mu     sync.Mutex // guards what a restart replaces
	sim    *simserver.Server
	http   *http.Server
	listen *simserver.MemListener
}

// start runs the engine anew, as after a crash.
func (e *rigEngine) start() error {
	sim, err := simserver.New(e.cfg)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sim = sim
	e.listen = simserver.NewMemListener("engine")
	e.http = &http.Server{Handler: e}
	srv, ln := e.http, e.listen
	go srv.Serve(ln)
	return nil
}

// kill ends the engine with all its connections; dialling it is refused.
func (e *rigEngine) kill() {
	e.mu.Lock()
	sim, srv, ln := e.sim, e.http, e.listen
	e.mu.Unlock()
	ln.Close()
	srv.Close()
	sim.Close()
}

func (e *rigEngine) dial(ctx context.Context) (net.Conn, error) {
	e.mu.Lock()
	ln := e.listen
	e.mu.Unlock()
	return ln.Dial(ctx)
}

func (e *rigEngine) current() *simserver.Server {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sim
}

func (e *rigEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if e.front != nil && (r.Method == http.MethodPost || strings.HasPrefix(r.URL.Path, "/v1/x/")) {
		e.front(w, r, e.current())
		return
	}
	e.current().ServeHTTP(w, r)
}

// rigConfig describes a rig. The zero value is one instant engine whose tokens are
// bytes.
type rigConfig struct {
	engines int
	sim     simserver.Config
	router  router.Config
	front   Config
	fault   func(w http.ResponseWriter, r *http.Request, next http.Handler)
	wrap    func(engine.Engine) engine.Engine // nil = none
	events  bool                              // the router hears of every change of caches
	taints  []string                          // of the first engine
	http2   bool                              // clients speak HTTP/2 without TLS
	down    bool                              // engines are not started
	base    context.Context                   // of all requests; nil = the background
}

// newRig starts a rig that ends with the test.
func newRig(t testing.TB, cfg rigConfig) *rig {
	t.Helper()
	cfg.front.Metrics = metrics.New(metrics.Options{})
	cfg.router.Metrics = cfg.front.Metrics
	rg := &rig{router: router.New(cfg.router)}
	for i := range max(1, cfg.engines) {
		sc := cfg.sim
		sc.Worker = kv.WorkerID(i + 1)
		sc.Vocabulary = cmp.Or(sc.Vocabulary, simserver.Bytes)
		if cfg.events {
			sc.Events = func(b *kv.Batch) { rg.router.Apply(b) }
		}
		name := "http://sim-" + string(rune('1'+i))
		e := &rigEngine{cfg: sc, front: cfg.fault}
		if err := e.start(); err != nil {
			t.Fatal(err)
		}
		if cfg.down {
			e.kill()
		}
		rg.engines = append(rg.engines, e)
		adapter, err := openaihttp.New(openaihttp.Config{URL: name, Dial: e.dial})
		if err != nil {
			t.Fatal(err)
		}
		var eng engine.Engine = adapter
		if cfg.wrap != nil {
			eng = cfg.wrap(eng)
		}
		spec := router.Spec{ID: kv.WorkerID(i + 1), Name: name, Engine: eng, Events: cfg.events}
		if i == 0 {
			spec.Taints = cfg.taints
		}
		if err := rg.router.Add(spec); err != nil {
			t.Fatal(err)
		}
	}
	rg.router.WaitChecked(t.Context())
	cfg.front.Router = rg.router
	rg.Server = New(cfg.front)
	rg.listen = simserver.NewMemListener("http://stator")
	srv := &http.Server{Handler: rg.Server}
	if cfg.base != nil {
		srv.BaseContext = func(net.Listener) context.Context { return cfg.base }
	}
	transport := &http.Transport{
		DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return rg.listen.Dial(ctx)
		},
	}
	if cfg.http2 {
		srv.Protocols, transport.Protocols = new(http.Protocols), new(http.Protocols)
		srv.Protocols.SetUnencryptedHTTP2(true)
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	rg.client = &http.Client{Transport: transport}
	go srv.Serve(rg.listen)
	stopped := false
	rg.stop = func() {
		if stopped {
			return
		}
		stopped = true
		transport.CloseIdleConnections()
		srv.Close()
		rg.Server.Close()
		rg.router.Close()
		for _, e := range rg.engines {
			e.kill()
		}
	}
	t.Cleanup(rg.stop)
	return rg
}

// post sends a JSON body and returns the answer, read to its end.
func (rg *rig) post(t testing.TB, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	resp, err := rg.client.Do(rg.request(t, path, body, header...))
	if err != nil {
		t.Fatalf("post %s: %v", path, err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("post %s: read: %v", path, err)
	}
	return resp, string(got)
}

// request makes a POST; header holds names and values in turn.
func (rg *rig) request(t testing.TB, path, body string, header ...string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://stator"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

// get fetches a path.
func (rg *rig) get(t testing.TB, path string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://stator"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := rg.client.Do(req)
	if err != nil {
		t.Fatalf("get %s: %v", path, err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		t.Fatalf("get %s: read: %v", path, err)
	}
	return resp, b.String()
}

// booked returns what the router counts as running.
func (rg *rig) booked() int {
	n := 0
	for _, m := range rg.router.Status() {
		for _, w := range m.Workers {
			n += w.Inflight
		}
	}
	return n
}
