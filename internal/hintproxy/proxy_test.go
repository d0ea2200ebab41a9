package hintproxy_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/hints"
	"github.com/stator-ai/stator/internal/hintproxy"
	"github.com/stator-ai/stator/nvext"
	"github.com/stator-ai/stator/trie"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// running is a proxy with its upstream.
type running struct {
	*hintproxy.Proxy
	url      string
	upstream string
	server   *http.Server
	logged   *lockedBuffer
}

// lockedBuffer is a buffer that several goroutines write to.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// start runs a proxy before a handler.
func start(t *testing.T, handler http.HandlerFunc, change func(*hintproxy.Config)) *running {
	t.Helper()
	upstream := httptest.NewServer(handler)
	t.Cleanup(upstream.Close)
	return startBefore(t, upstream.URL, change)
}

// startBefore runs a proxy before a server.
func startBefore(t *testing.T, upstream string, change func(*hintproxy.Config)) *running {
	t.Helper()
	u, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	logged := new(lockedBuffer)
	cfg := hintproxy.Config{
		Upstream: u,
		Hints:    hints.DefaultConfig(),
		Log:      slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	cfg.Hints.Enable = true
	if change != nil {
		change(&cfg)
	}
	p, err := hintproxy.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := p.Server()
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close the server: %v", err)
		}
		if err := p.Close(); err != nil {
			t.Errorf("close the proxy: %v", err)
		}
	})
	return &running{Proxy: p, url: "http://" + l.Addr().String(), upstream: upstream, server: srv, logged: logged}
}

// newClient returns a client that adds nothing of its own to requests and takes answers as
// they are.
func newClient(t *testing.T) *http.Client {
	tr := &http.Transport{DisableCompression: true, ExpectContinueTimeout: patience}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

// post sends a chat request with headers, given as name and value by turns.
func post(t *testing.T, base, body string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, base+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := newClient(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// eventually waits for what happens in another goroutine.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for tick := time.NewTicker(time.Millisecond); !ok(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("no %s after %s", what, patience)
		}
	}
}

// echo answers with the body of the request.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(body)
}

// extension is the part of a request that hints are in.
type extension struct {
	Nvext struct {
		AgentHints   map[string]any `json:"agent_hints"`
		CacheControl map[string]any `json:"cache_control"`
	} `json:"nvext"`
}

func hintsOf(t *testing.T, body string) map[string]any {
	t.Helper()
	var e extension
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return e.Nvext.AgentHints
}

func TestHintsAreAdded(t *testing.T) {
	p := start(t, echo, nil)
	const body = `{"model":"m",  "messages":[{"role":"user","content":"Hi \u00e9"}]}`
	_, got := post(t, p.url, body, hints.HeaderRun, "run-1", nvext.HeaderPrefixOSL, "99")
	want := map[string]any{
		"prefix_id": "run-1-d0", "osl": 99.0, "iat": 250.0, "total_requests": 10.0,
		"latency_sensitivity": 2.0, "priority": 2.0,
	}
	if d := cmp.Diff(want, hintsOf(t, got)); d != "" {
		t.Errorf("agent_hints (-want +got):\n%s", d)
	}
	if !strings.HasPrefix(got, strings.TrimSuffix(body, "}")) {
		t.Errorf("the request was changed: %s", got)
	}
	if s := p.Stats(); s.Requests != 1 || s.Hints.Hinted != 1 || s.InFlight != 0 {
		t.Errorf("stats: %+v", s)
	}
}

func TestBodyOfUnknownLengthGetsHints(t *testing.T) {
	p := start(t, echo, nil)
	req, err := http.NewRequest(http.MethodPost, p.url+"/v1/responses", io.MultiReader(strings.NewReader(`{"model":"m"`), strings.NewReader(`}`)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := newClient(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if hintsOf(t, string(got))["osl"] != 512.0 {
		t.Errorf("got %s", got)
	}
}

func TestIdentityHeadersAreForTheProxy(t *testing.T) {
	got := make(chan http.Header, 1)
	p := start(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }, nil)
	post(t, p.url, `{}`, hints.HeaderRun, "r", hints.HeaderPath, "a/b", hints.HeaderFunctionID, "f", hints.HeaderBranch, "x",
		"Authorization", "Bearer key", nvext.HeaderPrefixOSL, "9", "X-Forwarded-For", "10.0.0.1", "User-Agent", "agent/1")
	want := http.Header{
		"Authorization": {"Bearer key"}, "Content-Type": {"application/json"}, nvext.HeaderPrefixOSL: {"9"},
		"X-Forwarded-For": {"10.0.0.1"}, "User-Agent": {"agent/1"},
	}
	header := <-got
	delete(header, "Content-Length")
	delete(header, "Via")
	if d := cmp.Diff(want, header); d != "" {
		t.Errorf("headers at the upstream (-want +got):\n%s", d)
	}
}

// twoCalls is a trie that knows a function plan in which two calls are made.
func twoCalls(first, second float64) *trie.Trie {
	predict := func(tokens float64) trie.Prediction {
		return trie.Prediction{OutputTokens: trie.Metrics{SampleCount: 1, P90: tokens}}
	}
	return &trie.Trie{Version: trie.Version, WorkflowName: "w", Root: &trie.Node{Name: "root", Children: []*trie.Node{{
		Name:        "plan",
		ByCallIndex: []trie.Indexed{{Index: 1, Prediction: predict(first)}, {Index: 2, Prediction: predict(second)}},
	}}}}
}

func TestRunsAreCountedApart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trie.json")
	if err := twoCalls(11, 22).Save(path); err != nil {
		t.Fatal(err)
	}
	p := start(t, echo, func(c *hintproxy.Config) { c.Hints.TriePath = path })
	for _, tt := range []struct {
		name   string
		header []string
		prefix string
		osl    float64
	}{
		{"first of a", []string{hints.HeaderRun, "a", hints.HeaderPath, "plan"}, "a-d1", 11},
		{"first of b", []string{hints.HeaderRun, "b", hints.HeaderPath, "plan"}, "b-d1", 11},
		{"second of a", []string{hints.HeaderRun, "a", hints.HeaderPath, "plan"}, "a-d1", 22},
		{"another invocation", []string{hints.HeaderRun, "a", hints.HeaderPath, "plan", hints.HeaderFunctionID, "2"}, "a-d1", 11},
		{"sent again", []string{hints.HeaderRun, "a", hints.HeaderPath, "plan", hints.HeaderFunctionID, "2", "X-Stainless-Retry-Count", "1"}, "a-d1", 11},
		{"another function", []string{hints.HeaderRun, "a", hints.HeaderPath, "other"}, "a-d1", 512},
		{"session of Claude Code", []string{nvext.HeaderClaudeCodeSessionID, "s"}, "s-d0", 512},
		{"branch", []string{hints.HeaderWorkflowRun, "w", hints.HeaderPath, "plan/search", hints.HeaderBranch, "left"}, "w-d2/left", 11},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, body := post(t, p.url, `{"model":"m"}`, tt.header...)
			h := hintsOf(t, body)
			if h["prefix_id"] != tt.prefix || h["osl"] != tt.osl {
				t.Errorf("prefix %v and osl %v, want %s and %v", h["prefix_id"], h["osl"], tt.prefix, tt.osl)
			}
		})
	}
	if s := p.Stats().Trie; s == nil || s.Path != path || s.Loaded.IsZero() || s.Error != "" {
		t.Errorf("stats of the trie: %+v", s)
	}
}

func TestHeadersThatMakeNoSense(t *testing.T) {
	p := start(t, echo, nil)
	code, body := post(t, p.url, `{}`, nvext.HeaderPrefixOSL, "many", hints.HeaderPath, "a//b", hints.HeaderRun, strings.Repeat("r", nvext.MaxIDBytes+1))
	if code != http.StatusOK || hintsOf(t, body)["osl"] != 512.0 {
		t.Errorf("%d %s", code, body)
	}
	want := map[string]uint64{nvext.HeaderPrefixOSL: 1, hints.HeaderPath: 1, hints.HeaderRun: 1}
	if d := cmp.Diff(want, p.Stats().IgnoredHeaders); d != "" {
		t.Errorf("ignored headers (-want +got):\n%s", d)
	}
}

func TestClosedPolicyRefuses(t *testing.T) {
	reached := false
	p := start(t, func(http.ResponseWriter, *http.Request) { reached = true }, func(c *hintproxy.Config) {
		c.Hints.FailurePolicy, c.Hints.MaxSensitivity = hints.Closed, 10
	})
	code, body := post(t, p.url, `{}`, nvext.HeaderPrefixLatencySensitivity, "11")
	const want = `{"error":{"message":"hints: latency_sensitivity 11 exceeds max_sensitivity 10","type":"invalid_request_error","param":null,"code":"invalid_value"}}`
	if code != http.StatusBadRequest || body != want || reached {
		t.Errorf("%d %s, reached the upstream: %t", code, body, reached)
	}
}

func TestDisabled(t *testing.T) {
	got := make(chan http.Header, 1)
	p := start(t, func(w http.ResponseWriter, r *http.Request) { got <- r.Header; echo(w, r) }, func(c *hintproxy.Config) { c.Hints.Enable = false })
	if _, body := post(t, p.url, `{"model":"m"}`, hints.HeaderRun, "r"); body != `{"model":"m"}` {
		t.Errorf("got %s", body)
	}
	if h := <-got; h.Get(hints.HeaderRun) != "" {
		t.Errorf("%s went on", hints.HeaderRun)
	}
	if s := p.Stats(); s.Requests != 1 || s.Hints.Hinted != 0 {
		t.Errorf("stats: %+v", s)
	}
}

func TestPathAndQuery(t *testing.T) {
	got := make(chan string, 1)
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.RequestURI + " " + r.Host }))
	defer upstream.Close()
	host := strings.TrimPrefix(upstream.URL, "http://")
	for _, tt := range []struct{ below, uri, want string }{
		{"", "/v1/models", "/v1/models"},
		{"", "/", "/"},
		{"", "/v1/files/a%2Fb//c/../d", "/v1/files/a%2Fb//c/../d"},
		{"", "/v1/models?a=1;b=2&c=%zz&d", "/v1/models?a=1;b=2&c=%zz&d"},
		{"/api", "/v1/models?q", "/api/v1/models?q"},
		{"/api/", "/v1/models", "/api/v1/models"},
	} {
		t.Run(tt.below+tt.uri, func(t *testing.T) {
			p := startBefore(t, upstream.URL+tt.below, nil)
			conn := dial(t, p.url)
			fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", tt.uri)
			if _, err := io.ReadAll(conn); err != nil {
				t.Fatal(err)
			}
			if uri := <-got; uri != tt.want+" "+host {
				t.Errorf("the upstream was asked for %s, want %s", uri, tt.want)
			}
		})
	}
}

func TestOwnRoutes(t *testing.T) {
	p := start(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was asked") }, nil)
	for _, tt := range []struct {
		method, path string
		status       int
		want         string
	}{
		{"GET", "live", 200, `"status":"live"`},
		{"GET", "stats", 200, `"upstream":"` + p.upstream + `"`},
		{"GET", "stats", 200, `"nvext_prefix_osl":512`},
		{"GET", "stats", 200, `"ignored_headers":{},"hints":{"hinted":0,"untouched":{}`},
		{"POST", "stats", 405, `"code":"method_not_allowed"`},
		{"GET", "nothing", 404, `expected /_stator/hints/live or /_stator/hints/stats`},
	} {
		t.Run(tt.method+" "+tt.path, func(t *testing.T) {
			req, err := http.NewRequest(tt.method, p.url+hintproxy.Routes+tt.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := newClient(t).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.status || !strings.Contains(string(body), tt.want) || resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%d %v %s, want %d with %s", resp.StatusCode, resp.Header, body, tt.status, tt.want)
			}
		})
	}
	if n := p.Stats().Requests; n != 0 {
		t.Errorf("%d requests were counted", n)
	}
}

func TestVia(t *testing.T) {
	got := make(chan []string, 1)
	p := start(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header["Via"] }, nil)
	for _, tt := range []struct {
		name, header string
		protocol     func(*http.Protocols)
		want         string
	}{
		{"HTTP/1.1", "", func(p *http.Protocols) { p.SetHTTP1(true) }, `^1\.1 stator-hints-[0-9a-f]{16}$`},
		{"HTTP/2", "", func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }, `^2 stator-hints-[0-9a-f]{16}$`},
		{"another proxy", "1.0 fred, 1.1 stator-hints-0123456789abcdef", func(p *http.Protocols) { p.SetHTTP1(true) },
			`^1\.0 fred, 1\.1 stator-hints-0123456789abcdef, 1\.1 stator-hints-[0-9a-f]{16}$`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := newClient(t)
			tr := client.Transport.(*http.Transport)
			tr.Protocols = new(http.Protocols)
			tt.protocol(tr.Protocols)
			req, err := http.NewRequest(http.MethodGet, p.url+"/v1/models", nil)
			if err != nil {
				t.Fatal(err)
			}
			if tt.header != "" {
				req.Header.Set("Via", tt.header)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if via := strings.Join(<-got, ", "); !regexp.MustCompile(tt.want).MatchString(via) {
				t.Errorf("Via: %s, want %s", via, tt.want)
			}
		})
	}
}

// TestLoop has proxies in a circle. Each stands behind a server that gives up after a few
// requests.
func TestLoop(t *testing.T) {
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprintf("of %d", n), func(t *testing.T) {
			urls := make([]string, n)
			proxies := make([]*running, n)
			asked := make(chan bool, 10)
			for i := range n {
				front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					select {
					case asked <- true:
						proxies[i].ServeHTTP(w, r)
					default:
						http.Error(w, "enough", http.StatusTeapot)
					}
				}))
				defer front.Close()
				urls[i] = front.URL
			}
			for i := range n {
				proxies[i] = startBefore(t, urls[(i+1)%n], nil)
			}
			for _, path := range []string{"/v1/chat/completions", "/v1/files"} {
				resp, err := newClient(t).Post(urls[0]+path, "application/json", strings.NewReader(`{"model":"m"}`))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				want := `{"error":{"message":"the request came back to the proxy that passed it on: --to, ` + urls[1%n] + `, leads to the proxy itself","type":"server_error","param":null,"code":"engine_error"}}`
				if err != nil || resp.StatusCode != http.StatusLoopDetected || string(body) != want {
					t.Errorf("%s: %d %s, %v, want 508 %s", path, resp.StatusCode, body, err, want)
				}
			}
			if s := proxies[0].Stats(); s.Looped != 2 || s.UpstreamErrors != 0 {
				t.Errorf("stats: %+v", s)
			}
			if log := proxies[0].logged.String(); strings.Count(log, "level=ERROR msg=\"the request came back to the proxy") != 1 {
				t.Errorf("log: %s", log)
			}
		})
	}
}

// TestCallsWithoutRun counts calls that do not say whose they are.
func TestCallsWithoutRun(t *testing.T) {
	const warning = "level=WARN msg=\"a call does not say which run of the agent it is of, in X-Stator-Run or a session header;"
	for _, tt := range []struct {
		name   string
		change func(*hintproxy.Config)
		warned int
	}{
		{"static", nil, 0},
		{"recorded", func(c *hintproxy.Config) { c.Record = filepath.Join(t.TempDir(), "spans.jsonl") }, 1},
		{"predicted", func(c *hintproxy.Config) { c.Hints.TriePath = "none.json" }, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := start(t, echo, tt.change)
			post(t, p.url, `{}`, hints.HeaderRun, "r")
			post(t, p.url, `{}`, nvext.HeaderClaudeCodeSessionID, "s")
			if s, log := p.Stats(), p.logged.String(); s.WithoutRun != 0 || strings.Contains(log, warning) {
				t.Errorf("with runs: %d, log %s", s.WithoutRun, log)
			}
			for range 3 {
				post(t, p.url, `{}`, hints.HeaderPath, "plan", nvext.HeaderPrefixID, "p")
			}
			if s, log := p.Stats(), p.logged.String(); s.WithoutRun != 3 || strings.Count(log, warning) != tt.warned {
				t.Errorf("without: %d, log %s", s.WithoutRun, log)
			}
		})
	}
}

func TestConnectIsRefused(t *testing.T) {
	p := start(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was asked") }, nil)
	conn := dial(t, p.url)
	fmt.Fprint(conn, "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestUpstreamDown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p := startBefore(t, "http://"+addr, nil)
	code, body := post(t, p.url, `{"model":"m"}`)
	want := fmt.Sprintf(`{"error":{"message":"the upstream http://%s cannot be reached: dial tcp %s: connect: connection refused","type":"server_error","param":null,"code":"engine_error"}}`, addr, addr)
	if code != http.StatusBadGateway || body != want {
		t.Errorf("%d %s, want 502 %s", code, body, want)
	}
	if n := p.Stats().UpstreamErrors; n != 1 {
		t.Errorf("%d upstream errors", n)
	}
}

func TestUpstreamWithoutAnswer(t *testing.T) {
	p := start(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, nil)
	code, body := post(t, p.url, `{"model":"m"}`)
	if want := "the upstream " + p.upstream + " gave no answer: EOF"; code != http.StatusBadGateway || !strings.Contains(body, want) {
		t.Errorf("%d %s, want 502 with %s", code, body, want)
	}
}

func TestConcurrentRuns(t *testing.T) {
	const runs, calls = 8, 40
	var mu sync.Mutex
	seen := make(map[string]int)
	p := start(t, func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var e extension
		if err = errors.Join(err, json.Unmarshal(body, &e)); err != nil {
			t.Errorf("%v in %s", err, body)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		seen[e.Nvext.AgentHints["prefix_id"].(string)]++
	}, nil)
	var wg sync.WaitGroup
	client := newClient(t)
	for run := range runs {
		wg.Go(func() {
			for range calls {
				req, err := http.NewRequest(http.MethodPost, p.url+"/v1/completions", strings.NewReader(`{"model":"m"}`))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set(hints.HeaderRun, fmt.Sprint("run", run))
				resp, err := client.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	wg.Wait()
	want := make(map[string]int)
	for run := range runs {
		want[fmt.Sprintf("run%d-d0", run)] = calls
	}
	if d := cmp.Diff(want, seen); d != "" {
		t.Errorf("calls by prefix (-want +got):\n%s", d)
	}
	if s := p.Stats(); s.Hints.Hinted != runs*calls || s.Hints.Prefixes != runs {
		t.Errorf("stats: %+v", s.Hints)
	}
}

func TestDrainLetsAnswersEnd(t *testing.T) {
	begun, end := make(chan bool), make(chan bool)
	p := start(t, func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-end
		_, _ = io.WriteString(w, "done")
	}, nil)
	got := make(chan string, 1)
	go func() {
		_, body := post(t, p.url, `{}`)
		got <- body
	}()
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	drained := make(chan error, 1)
	go func() { drained <- p.server.Shutdown(ctx) }()
	eventually(t, "closed listener", func() bool {
		c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	close(end)
	if body := <-got; body != "done" {
		t.Errorf("got %q", body)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
}

func TestNewRefuses(t *testing.T) {
	good, err := url.Parse("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(*hintproxy.Config)
		want   string
	}{
		{"no upstream", func(c *hintproxy.Config) { c.Upstream = nil }, "upstream: expected a URL such as http://127.0.0.1:8000"},
		{"no host", func(c *hintproxy.Config) { c.Upstream = &url.URL{Scheme: "http"} }, "upstream: expected a URL such as http://127.0.0.1:8000"},
		{"bad setting", func(c *hintproxy.Config) { c.Hints.OutputTokens = 0 }, "nvext_prefix_osl: expected a whole number of at least 1, got 0"},
		{"recording in no directory", func(c *hintproxy.Config) { c.Record = "/does/not/exist" }, "open /does/not/exist: no such file or directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := hintproxy.Config{Upstream: good, Hints: hints.DefaultConfig(), Log: slog.New(slog.DiscardHandler)}
			cfg.Hints.Enable = true
			tt.change(&cfg)
			if p, err := hintproxy.New(cfg); err == nil || err.Error() != tt.want {
				t.Errorf("New = %v, %v, want %s", p, err, tt.want)
			}
		})
	}
}

// dial connects to a server at the address of a URL.
func dial(t *testing.T, base string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}
