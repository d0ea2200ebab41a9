package hintproxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stator-ai/stator/hints"
	"github.com/stator-ai/stator/internal/hintproxy"
)

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
