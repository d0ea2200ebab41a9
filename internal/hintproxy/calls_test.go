package hintproxy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/hints"
	"github.com/stator-ai/stator/internal/hintproxy"
	"github.com/stator-ai/stator/nvext"
	"github.com/stator-ai/stator/trie"
)

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

// TestPairsUnderCompat looks up a path whose end is in a trie of pairs. NeMo Agent Toolkit
// walks from the root alone, and has the aggregate of all calls.
func TestPairsUnderCompat(t *testing.T) {
	predict := func(tokens float64) *trie.Prediction {
		return &trie.Prediction{OutputTokens: trie.Metrics{SampleCount: 1, P90: tokens}}
	}
	pairs := &trie.Trie{Version: trie.Version, WorkflowName: "w", Root: &trie.Node{Name: "root", AnyIndex: predict(11), Children: []*trie.Node{{
		Name: "b", Children: []*trie.Node{{Name: "c", AnyIndex: predict(22)}},
	}}}}
	path := filepath.Join(t.TempDir(), "trie.json")
	if err := pairs.Save(path); err != nil {
		t.Fatal(err)
	}
	for compat, want := range map[hints.Compat]float64{"": 22, hints.NAT15: 11, hints.NAT18: 11} {
		p := start(t, echo, func(c *hintproxy.Config) { c.Hints.TriePath, c.Hints.Compat = path, compat })
		_, body := post(t, p.url, `{"model":"m"}`, hints.HeaderRun, "r", hints.HeaderPath, "a/b/c")
		if osl := hintsOf(t, body)["osl"]; osl != want {
			t.Errorf("compat %q: osl %v, want %v", compat, osl, want)
		}
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
