package collect

import (
	"bytes"
	"encoding/json"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sample is a collection with a bit of everything.
func sample(t *testing.T) *Results {
	p := newProm(t)
	cfg := DefaultConfig()
	cfg.Queries = map[string]string{"by_status": "sum by (status) (rate(x[{range}]))", "nothing": "nothing", "wrong": "("}
	set := func(f Field, n int, within, value string) {
		p.instant[soundQuery(t, &cfg, f, n, within)] = vector(value)
	}
	set(InflightFrontend, 0, "", "3")
	set(QueuedRequests, 0, "", "0")
	set(RequestsPerMinute, 0, "30s", "1234.5678")
	set(TTFTP50, 0, "30s", "0.034")
	set(TTFTP95, 0, "30s", "NaN")
	set(TTFTP95, 0, "600s", "0.25")
	set(ITLP95, 1, "30s", "0.02")
	set(SGLangRunning, 1, "30s", "2")
	set(TokenThroughput, 0, "30s", "51.46123")
	p.instant[kveSources[2].expr.query(&cfg, "30s")] = vector("0.8")
	p.instant["sum by (status) (rate(x[30s]))"] = `[{"metric":{"status":"bad\u001b[2J"},"value":[1,"0"]},{"metric":{"status":"ok"},"value":[1,"2.5"]}]`
	p.instant["("] = `!{"status":"error","errorType":"bad_data","error":"no\n\u001b[31mgood"}`
	p.instant["nothing"] = `!{"status":"success","warnings":["partial answer"],"data":{"resultType":"vector","result":[]}}`
	p.names = []string{
		"dynamo_frontend_inflight_requests", "dynamo_frontend_queued_requests", "dynamo_frontend_requests_total",
		"dynamo_frontend_time_to_first_token_seconds_bucket", "vllm:inter_token_latency_seconds_bucket",
		"vllm:num_requests_running", "dynamo_frontend_output_tokens_total", "dynamo_frontend_cached_tokens_sum",
		"dynamo_frontend_input_sequence_tokens_sum",
	}
	r := Metrics(t.Context(), now, p.client(), &cfg)
	r.PrometheusURL = "http://prom:9090"
	r.Health = &Health{Prometheus: true, Frontend: true, Down: []Target{{"dynamo-worker", "gpu2:8081"}}}
	return r
}

func TestWriteText(t *testing.T) {
	r := sample(t)
	var out bytes.Buffer
	if err := r.WriteText(&out, Look{}); err != nil {
		t.Fatal(err)
	}
	golden(t, "table.txt", out.Bytes())
	if bytes.ContainsRune(out.Bytes(), '\x1b') {
		t.Error("a server speaks to the terminal")
	}
	for line := range strings.Lines(out.String()) {
		if strings.TrimRight(line, " \n") != strings.TrimRight(line, "\n") {
			t.Errorf("space at the end of %q", line)
		}
	}
	out.Reset()
	var h History
	h.Add(r)
	r.Metrics[0].Value = f(5)
	h.Add(r)
	if err := r.WriteText(&out, Look{Color: true, History: &h}); err != nil {
		t.Fatal(err)
	}
	golden(t, "table_color.txt", out.Bytes())
}

func TestWriteTextChosenWindow(t *testing.T) {
	r := sample(t)
	r.Window = Window{now.Add(-time.Hour), now, true}
	r.Compat = NAT
	var out bytes.Buffer
	if err := r.WriteText(&out, Look{}); err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(out.String(), "\n")
	if want := "http://prom:9090  from 2023-11-14 21:13:20Z to 2023-11-14 22:13:20Z, compat nat"; head != want {
		t.Errorf("got %q, want %q", head, want)
	}
	if strings.Contains(out.String(), " over ") {
		t.Error("every number is of the window, which need not be said")
	}
}

func TestWriteJSON(t *testing.T) {
	var out bytes.Buffer
	r := sample(t)
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	golden(t, "results.json", out.Bytes())

	// The score is what the numbers in the document make by hand.
	var doc struct {
		Score   float64
		Summary struct {
			KV   float64 `json:"kv_efficiency"`
			TTFT float64 `json:"ttft_p95_seconds"`
			ITL  float64 `json:"itl_p95_seconds"`
		}
	}
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if want := 0.4*0.8 + 0.4 + 0.2; math.Abs(doc.Score-want) > 1e-12 || doc.Summary.KV != 0.8 || doc.Summary.TTFT != 0.25 || doc.Summary.ITL != 0.02 {
		t.Errorf("got %+v, want a score of %v", doc, want)
	}
}

func TestWriteJSONWithoutAnything(t *testing.T) {
	text, err := json.Marshal(&Results{Time: now, Metrics: []Metric{{Field: TTFTP95, Value: f(math.Inf(-1))}}})
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	for _, s := range fields {
		if v, ok := doc[string(s.field)]; !ok || v != nil && s.field != TTFTP95 {
			t.Errorf("%s: got %v, there: %v", s.field, v, ok)
		}
	}
	if doc["ttft_p95"] != "-Inf" || doc["score"] != nil || doc["errors"] == nil {
		t.Errorf("got %s", text)
	}
}

// TestWriteTextFits writes for a screen that has no room for all.
func TestWriteTextFits(t *testing.T) {
	r := sample(t)
	var h History
	for range historyLength {
		h.Add(r)
	}
	for _, c := range []struct{ width, height int }{{80, 23}, {40, 5}, {1, 1}, {0, 23}, {200, 200}} {
		var out bytes.Buffer
		if err := r.WriteText(&out, Look{Color: true, History: &h, Width: c.width, Height: c.height}); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) > c.height {
			t.Errorf("%d lines on a screen of %d", len(lines), c.height)
		}
		for _, line := range lines {
			shown := []rune(regexp.MustCompile(`\x1b\[[0-9]*m`).ReplaceAllString(line, ""))
			if c.width > 0 && len(shown) > c.width || strings.ContainsRune(string(shown), '\x1b') {
				t.Errorf("%d wide: %q", c.width, line)
			}
			if n := strings.LastIndex(line, "\x1b["); n >= 0 && !strings.HasPrefix(line[n:], plain) {
				t.Errorf("%q ends in a style", line)
			}
		}
		if c.width == 80 {
			golden(t, "screen.txt", out.Bytes())
		}
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		line  string
		width int
		want  string
	}{
		{"abc", 0, "abc"}, {"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"äöü", 2, "ä…"}, {"abc", 1, "…"}, {"", 1, ""},
		{bold + "abcd" + plain, 3, bold + "ab…" + plain},
		{"ab" + bold + "cd" + plain + "ef", 2, "a…" + bold + plain},
		{"ab" + bold + plain, 2, "ab" + bold + plain},
	} {
		if got := cut(c.line, c.width); got != c.want {
			t.Errorf("%q to %d: got %q, want %q", c.line, c.width, got, c.want)
		}
	}
}

func TestCollapse(t *testing.T) {
	got := collapse([]string{
		"Failed to collect a: x: y", "Failed to collect b: x: y", "something else: z",
		"Failed to collect c: 1", "Failed to collect d: 1", "Failed to collect e: 1", "Failed to collect f: 1",
	})
	want := []string{"Failed to collect a, b: x: y", "something else: z", "Failed to collect c and 3 more: 1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFormatNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", 0.75195: "0.752", 0.0456612: "0.04566", 1234.5678: "1235", 12.3456: "12.35", 1e6: "1000000",
		-0.5: "-0.5", 100: "100", 1e20: "1e+20", 1e-9: "1e-09", 0.00001234567: "0.00001235", math.Inf(1): "+Inf", 9.9999: "10",
	} {
		if got := formatNumber(v); got != want {
			t.Errorf("%v: got %s, want %s", v, got, want)
		}
	}
}

func TestHistory(t *testing.T) {
	var h History
	add := func(v *float64) { h.Add(&Results{Metrics: []Metric{{Field: TTFTP95, Value: v}}, Score: f(0.5)}) }
	for _, v := range []*float64{f(0), f(7), nil, f(3), f(3.6), f(math.Inf(1))} {
		add(v)
	}
	if got, want := h.line(string(TTFTP95), historyLength), "▁█ ▄▅ "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := h.line(string(TTFTP95), 3), "▁█ "; got != want {
		t.Errorf("the latest three: got %q, want %q", got, want)
	}
	if got, want := h.line(nameScore, historyLength), "▄▄▄▄▄▄"; got != want {
		t.Errorf("always the same: got %q, want %q", got, want)
	}
	for _, v := range []float64{0.84721, 0.84722, 0.84721} {
		add(f(v))
	}
	if got, want := h.line(string(TTFTP95), 3), "▄▄▄"; got != want {
		t.Errorf("about the same: got %q, want %q", got, want)
	}
	for range historyLength {
		add(f(0))
	}
	if got, want := h.line(string(TTFTP95), historyLength), strings.Repeat("▁", historyLength); got != want {
		t.Errorf("the oldest are forgotten: got %q, want %q", got, want)
	}
	add(f(math.MaxFloat64))
	add(f(-math.MaxFloat64))
	if got := []rune(h.line(string(TTFTP95), historyLength)); got[len(got)-2] != '█' || got[len(got)-1] != '▁' {
		t.Errorf("got %q", string(got))
	}
}
