package stator_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stator-ai/stator"
)

// freePorts returns ports that nobody listens on at the moment.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var out []int
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close() // all at the end, so that they differ
		out = append(out, ln.Addr().(*net.TCPAddr).Port)
	}
	return out
}

// withPorts starts a server of two simulated engines whose metrics are apart. Should
// somebody else take one of its ports meanwhile, it tries others.
func withPorts(t *testing.T, change func(*stator.Config)) (*stator.Server, stator.MetricsPortsConfig) {
	t.Helper()
	for try := 0; ; try++ {
		free := freePorts(t, 3)
		cfg := stator.DefaultConfig()
		cfg.Listen = "127.0.0.1:0"
		cfg.Sim.Engines, cfg.Sim.Speedup = 2, 0
		cfg.Metrics.Ports = stator.MetricsPortsConfig{Worker: free[0], Router: free[1], Processor: free[2]}
		if change != nil {
			change(&cfg)
		}
		srv, err := stator.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		err = srv.Start(t.Context())
		if errors.Is(err, syscall.EADDRINUSE) && try < 10 {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { srv.Close() })
		return srv, cfg.Metrics.Ports
	}
}

// fetch returns the status and body of a GET.
func fetch(t *testing.T, url, key string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// scrape returns the series at an address.
func scrape(t *testing.T, addr string) map[string]float64 {
	t.Helper()
	status, body := fetch(t, "http://"+addr+"/metrics", "")
	if status != http.StatusOK {
		t.Fatalf("%s/metrics: status %d: %s", addr, status, body)
	}
	out := make(map[string]float64)
	for line := range strings.Lines(body) {
		if i := strings.LastIndexByte(line, ' '); line[0] != '#' {
			v, err := strconv.ParseFloat(strings.TrimSpace(line[i+1:]), 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			out[line[:i]] = v
		}
	}
	return out
}

func local(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// TestMetricsPorts scrapes a server as the four processes that scrape configurations of
// Dynamo name, and finds each series at one of them.
func TestMetricsPorts(t *testing.T) {
	srv, ports := withPorts(t, nil)
	for i := range 3 {
		body := fmt.Sprintf(`{"model":"stator-sim","messages":[{"role":"user","content":"%s"}],"max_tokens":4,"nvext":{"agent_hints":{"prefix_id":"p"}}}`,
			strings.Repeat("the same beginning ", 20+i))
		resp, err := http.Post("http://"+srv.Addr()+"/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("status %d", resp.StatusCode)
		}
	}
	if addr := srv.AdminAddr(); addr != "" {
		t.Errorf("the admin routes have an address of their own: %s", addr)
	}
	jobs := map[string]string{
		"dynamo-frontend": srv.Addr(), "dynamo-worker": local(ports.Worker),
		"dynamo-router": local(ports.Router), "dynamo-processor": local(ports.Processor),
	}
	where := make(map[string]string)
	sums := make(map[string]float64)
	for job, addr := range jobs {
		for series, v := range scrape(t, addr) {
			if other, ok := where[series]; ok {
				t.Errorf("%s is at %s and %s", series, other, job)
			}
			where[series] = job
			name, _, _ := strings.Cut(series, "{")
			sums[name] += v
		}
		if status, body := fetch(t, "http://"+addr+"/live", ""); status != http.StatusOK || !strings.Contains(body, `"live"`) {
			t.Errorf("%s/live: %d %s", job, status, body)
		}
	}
	for series, job := range map[string]string{
		`dynamo_frontend_requests_started_total{endpoint="chat_completions",model="stator-sim",request_type="unary"}`:                     "dynamo-frontend",
		`dynamo_component_kvstats_total_blocks{dp_rank="0",model="stator-sim",worker_id="1"}`:                                             "dynamo-worker",
		`dynamo_component_kvstats_gpu_cache_usage_percent{dp_rank="0",model="stator-sim",worker_id="2"}`:                                  "dynamo-worker",
		`dynamo_component_requests_total{dynamo_component="backend",dynamo_endpoint="generate",dynamo_namespace="workers",worker_id="1"}`: "dynamo-worker",
		`dynamo_component_requests_total{dynamo_component="router",dynamo_endpoint="find_worker",dynamo_namespace="dynamo",worker_id=""}`: "dynamo-router",
		`thompson_router_pending_decisions`:        "dynamo-router",
		`dynamo_component_thompson_requests_total`: "dynamo-processor",
		`dynamo_component_inflight_requests{dynamo_component="backend",dynamo_endpoint="generate",dynamo_namespace="dynamo",worker_id=""}`: "dynamo-processor",
	} {
		if where[series] != job {
			t.Errorf("%s is at %q, want %s", series, where[series], job)
		}
	}
	for name, want := range map[string]float64{
		"dynamo_frontend_requests_total":                          3,
		"dynamo_component_thompson_requests_total":                3,
		"dynamo_component_thompson_routing_decisions_total":       3,
		"dynamo_component_requests_total":                         3 + 3 + 3 + 3, // sent, processed, found, fed back
		"dynamo_component_kvstats_total_blocks":                   2 * 16384,
		"dynamo_component_thompson_kve_prompt_tokens_total":       sums["stator_kve_prompt_tokens_total"],
		"dynamo_component_thompson_kve_cached_tokens_total":       sums["stator_kve_cached_tokens_total"],
		"dynamo_component_thompson_request_latency_seconds_count": 3,
	} {
		if sums[name] != want {
			t.Errorf("all %s together = %v, want %v", name, sums[name], want)
		}
	}
	if p, c := sums["dynamo_component_thompson_kve_prompt_tokens_total"], sums["dynamo_component_thompson_kve_cached_tokens_total"]; !(c > 0 && c < p) {
		t.Errorf("%v of %v prompt tokens were cached, want some", c, p)
	}

	// A port has nothing else, and one that is off is where it was.
	if status, _ := fetch(t, "http://"+local(ports.Router)+"/v1/models", ""); status != http.StatusNotFound {
		t.Errorf("/v1/models at the router's port: %d", status)
	}
}

func TestMetricsOfOnePort(t *testing.T) {
	srv, ports := withPorts(t, func(cfg *stator.Config) { cfg.Metrics.Ports.Worker, cfg.Metrics.Ports.Router = 0, 0 })
	rest, apart := scrape(t, srv.Addr()), scrape(t, local(ports.Processor))
	const processor, router, worker = "dynamo_component_thompson_requests_total", "thompson_router_pending_decisions", `dynamo_component_thompson_routing_decisions_total{worker_id="1"}`
	if _, ok := rest[router]; !ok {
		t.Errorf("no %s at /metrics", router)
	}
	for _, series := range []string{processor, worker} {
		if _, ok := rest[series]; ok {
			t.Errorf("%s is at /metrics as well", series)
		}
		if _, ok := apart[series]; !ok {
			t.Errorf("no %s at its port", series)
		}
	}
}

func TestMetricsTogether(t *testing.T) {
	srv, _ := withPorts(t, func(cfg *stator.Config) { cfg.Metrics.Ports = stator.MetricsPortsConfig{} })
	all := scrape(t, srv.Addr())
	for _, series := range []string{
		"dynamo_component_thompson_requests_total", "thompson_router_pending_decisions",
		`dynamo_component_kvstats_total_blocks{dp_rank="0",model="stator-sim",worker_id="1"}`,
	} {
		if _, ok := all[series]; !ok {
			t.Errorf("no %s at /metrics", series)
		}
	}
}

// TestMetricsPortsNeedAKey: the ports are on the host of the admin routes and as closed.
func TestMetricsPortsNeedAKey(t *testing.T) {
	srv, ports := withPorts(t, func(cfg *stator.Config) {
		cfg.AdminListen = "127.0.0.1:0"
		cfg.Keys = []stator.KeyConfig{
			{Name: "ops", SHA256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", Admin: true}, // abc
			{Name: "team", SHA256: "cb8379ac2098aa165029e3938a51da0bcecfc008fd6795f401178647f96c5b34"},             // def
		}
	})
	if srv.AdminAddr() == "" || srv.AdminAddr() == srv.Addr() {
		t.Errorf("the admin routes are at %q, the API at %q", srv.AdminAddr(), srv.Addr())
	}
	for _, port := range []int{ports.Worker, ports.Router, ports.Processor} {
		for key, want := range map[string]int{"": 401, "wrong": 401, "def": 403, "abc": 200} {
			if status, _ := fetch(t, "http://"+local(port)+"/metrics", key); status != want {
				t.Errorf("port %d with key %q: status %d, want %d", port, key, status, want)
			}
		}
		if status, _ := fetch(t, "http://"+local(port)+"/live", ""); status != 200 {
			t.Errorf("/live at port %d: status %d", port, status)
		}
	}
}

// TestMetricsPortsDrain: the ports are closed with the rest.
func TestMetricsPortsDrain(t *testing.T) {
	var open []int
	for range 3 { // as somebody else may take a port at once
		srv, ports := withPorts(t, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := srv.Drain(ctx); err != nil {
			t.Fatal(err)
		}
		open = nil
		for _, port := range []int{ports.Worker, ports.Router, ports.Processor} {
			if conn, err := net.Dial("tcp", local(port)); err == nil {
				conn.Close()
				open = append(open, port)
			}
		}
		if open == nil {
			return
		}
	}
	t.Errorf("ports %v are still open", open)
}

// TestMetricsPortTaken: a server whose port is taken does not start, and lets go of the
// others.
func TestMetricsPortTaken(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	free := freePorts(t, 1)
	cfg := stator.DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	cfg.Sim.Engines, cfg.Sim.Profile = 1, "instant"
	cfg.Metrics.Ports = stator.MetricsPortsConfig{Worker: free[0], Processor: ln.Addr().(*net.TCPAddr).Port}
	srv, err := stator.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("Start: %v", err)
	}
	if again, err := net.Listen("tcp", local(free[0])); err != nil {
		t.Errorf("the worker's port is still taken: %v", err)
	} else {
		again.Close()
	}
}
