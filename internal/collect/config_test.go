package collect

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

func TestConfigFile(t *testing.T) {
	var c Config
	err := yaml.Unmarshal([]byte(`
enable: true
prometheus_url: https://prom.example/path/
collect_itl: false
query_range: 1m30s
lookback_seconds: 90.5
workflow_start_timestamp: 1700000000.25
workflow_end_timestamp: null
queries:
  failed: sum(rate(x{status="error"}[{range}]))
model: Qwen/Qwen3-8B
compat: null
score_weights: {kv: 1, itl: 0.5}
score_targets: {ttft: 2}
`), &c)
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultConfig()
	want.Enable = true
	want.PrometheusURL = "https://prom.example/path/"
	want.CollectITL = false
	want.QueryRange = "1m30s"
	want.Lookback = 90500 * time.Millisecond
	want.Start = time.Unix(1_700_000_000, 250_000_000).UTC()
	want.Queries = map[string]string{"failed": `sum(rate(x{status="error"}[{range}]))`}
	want.Model = "Qwen/Qwen3-8B"
	want.Weights = Weights{KV: 1, TTFT: 0.4, ITL: 0.5}
	want.Targets = Targets{TTFT: 2, ITL: 0.05}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	for name, codec := range map[string]struct {
		marshal   func(any) ([]byte, error)
		unmarshal func([]byte, any) error
	}{"YAML": {yaml.Marshal, yaml.Unmarshal}, "JSON": {json.Marshal, json.Unmarshal}} {
		text, err := codec.marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var back Config
		if err := codec.unmarshal(text, &back); err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
		if diff := cmp.Diff(c, back); diff != "" {
			t.Errorf("%s round trip (-want +got):\n%s", name, diff)
		}
	}
}

func TestConfigDefaults(t *testing.T) {
	var c Config
	if err := json.Unmarshal([]byte("{}"), &c); err != nil {
		t.Fatal(err)
	}
	want := Config{
		PrometheusURL: "http://localhost:9090", CollectKVCache: true, CollectTTFT: true, CollectITL: true,
		CollectInflight: true, CollectThroughput: true, CollectTokenThroughput: true, QueryRange: "30s",
		Weights: Weights{0.4, 0.4, 0.2}, Targets: Targets{0.5, 0.05},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestConfigKeepsPasswords(t *testing.T) {
	c := DefaultConfig()
	c.PrometheusURL = "http://me:hunter2@prom"
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "hunter2") || !strings.Contains(string(text), `"http://prom"`) {
		t.Errorf("written: %s", text)
	}
	for _, raw := range []string{
		"http://me:hunter2@prom?x=%zz\x7f",
		"me:hunter2@prom:9090",
		"me:/hunter2@prom",
		"me:hunter2?@prom",
		"hunter2@prom",
		"ftp://me:hunter2@prom",
		"ftp://hunter2@prom",
		"http://me:hunter2@",
		"http://prom/?token=hunter2",
		"http://prom#hunter2",
		"prom:9090?token=hunter2",
		"http://me:hun/hunter2@prom",
	} {
		c.PrometheusURL = raw
		if err := c.Validate(); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got error %v", raw, err)
		}
		if _, err := NewClient(Options{URL: raw}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got error %v", raw, err)
		}
		if text, err := json.Marshal(c); err != nil || strings.Contains(string(text), "hunter2") {
			t.Errorf("%s: written: %s, %v", raw, text, err)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{"enable": 1}`:                                                "enable: expected true or false, got 1",
		`{"prometheus_url": 9090}`:                                     "prometheus_url: expected text, got 9090",
		`{"prometheus_url": "localhost"}`:                              `prometheus_url: expected a base URL such as http://localhost:9090, got "localhost"`,
		`{"prometheus_url": "http://a?b=c"}`:                           `prometheus_url: expected a base URL such as http://localhost:9090, without a query or fragment`,
		`{"prometheus_url": ""}`:                                       `prometheus_url: expected a base URL such as http://localhost:9090, got ""`,
		`{"query_range": "30"}`:                                        `query_range: expected a duration such as 30s or 1m30s, got "30"`,
		`{"query_range": null}`:                                        "query_range: expected text, got null",
		`{"lookback_seconds": -1}`:                                     "lookback_seconds: expected a number of seconds of at least 0, got -1",
		`{"workflow_start_timestamp": "now"}`:                          `workflow_start_timestamp: expected a time in seconds since 1970, or null, got "now"`,
		`{"workflow_end_timestamp": 5}`:                                "workflow_end_timestamp: expected only with workflow_start_timestamp",
		`{"workflow_start_timestamp": 9, "workflow_end_timestamp": 5}`: "workflow_end_timestamp: expected a time after workflow_start_timestamp",
		`{"queries": ["up"]}`:                                          "queries: expected names, each with PromQL, got [up]",
		`{"queries": {"a": 1}}`:                                        "queries: a: expected PromQL, got 1",
		`{"queries": {"a": " "}}`:                                      `queries: a: expected PromQL, got " "`,
		`{"queries": {"a b": "up"}}`:                                   `queries: expected names of letters, digits, - and _, got "a b"`,
		`{"queries": {"ttft_p95": "up"}}`:                              "queries: ttft_p95: expected another name than that of a field",
		`{"compat": "dynamo"}`:                                         `compat: expected nat or null, got "dynamo"`,
		`{"compat": "nat", "model": "m"}`:                              "model: expected none with compat nat, which takes all models together",
		`{"compat": "nat", "instance": "m"}`:                           "instance: expected none with compat nat, which takes all instances together",
		`{"score_weights": {"kv": -1}}`:                                "score_weights: kv: expected a number of at least 0, got -1",
		`{"score_weights": {"cache": 1}}`:                              "score_weights: cache: unknown setting",
		`{"score_weights": {"kv": "1"}}`:                               `score_weights: kv: expected a number, got "1"`,
		`{"score_targets": {"itl": 0}}`:                                "score_targets: itl: expected a number of seconds above 0, got 0",
		`{"collect_kvcache": true}`:                                    "collect_kvcache: unknown setting",
		`{"enable": 1, "compat": "x", "zz": {}}`:                       "enable: expected true or false, got 1\nzz: unknown setting\ncompat: expected nat or null, got \"x\"",
	} {
		var c Config
		err := json.Unmarshal([]byte(text), &c)
		if err == nil || err.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
		}
	}
	c := DefaultConfig()
	c.Weights.KV = math.NaN()
	if err := c.Validate(); err == nil {
		t.Error("a weight that is no number was taken")
	}
}

func TestAdvice(t *testing.T) {
	c := DefaultConfig()
	for text, want := range map[string]int{"14s": 1, "999ms": 1, "15s": 0, "30s": 0, "5m": 0} {
		c.QueryRange = text
		if err := c.Validate(); err != nil {
			t.Errorf("%s: refused: %v", text, err)
		}
		if got := c.Advice(); len(got) != want {
			t.Errorf("%s: got %q", text, got)
		}
	}
}

func TestWindow(t *testing.T) {
	start, end := time.Unix(100, 0), time.Unix(160, 0)
	for _, c := range []struct {
		name string
		cfg  Config
		want Window
	}{
		{"nothing said", Config{}, Window{now.Add(-600 * time.Second), now, false}},
		{"lookback", Config{Lookback: time.Minute}, Window{now.Add(-time.Minute), now, false}},
		{"start", Config{Start: start, Lookback: time.Minute}, Window{start, now, true}},
		{"start and end", Config{Start: start, End: end}, Window{start, time.Unix(175, 0), true}},
	} {
		if diff := cmp.Diff(c.want, c.cfg.Window(now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"15s": 15 * time.Second, "1m30s": 90 * time.Second, "1500ms": 1500 * time.Millisecond, "1h": time.Hour,
		"1d": 24 * time.Hour, "1w": 168 * time.Hour, "1y": 8760 * time.Hour, "0m5s": 5 * time.Second,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0s", "5", "5s1m", "1.5s", "-1s", "1 m", "5S", "99999999999y", "999999999999999999999s", "30s]) or vector(1"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	f.Add("1h30m")
	f.Add("292y24w3d23h47m16s854ms")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDuration(text)
		if err != nil {
			return
		}
		if d <= 0 {
			t.Fatalf("%q: got %v", text, d)
		}
		if back, err := ParseDuration(formatDuration(d)); err != nil || back != d {
			t.Fatalf("%q is %v, written %s, which is %v, %v", text, d, formatDuration(d), back, err)
		}
	})
}
