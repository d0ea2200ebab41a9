package promtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/collect"
)

// fieldNames are what is collected.
var fieldNames = strings.Fields(`
	inflight_requests_frontend inflight_requests_worker queued_requests requests_per_minute
	ttft_p50 ttft_p95 ttft_p99 itl_p50 itl_p95 itl_p99
	kve_cached_tokens_rate kve_prompt_tokens_rate kve_device_blocks_rate kve_host_blocks_rate kve_disk_blocks_rate
	kv_cache_usage_percent kv_cache_hit_rate_sglang kv_cache_hit_rate_dynamo
	token_throughput sglang_gen_throughput sglang_running_requests sglang_queue_depth sglang_utilization
	thompson_routing_decisions_rate thompson_requests_rate`)

// TestCollect has a Prometheus scrape nothing but serve --sim 4 under load, and collects
// from it.
func TestCollect(t *testing.T) {
	t.Parallel()
	srv := start(t, "serve", "--sim", "4")
	p := scrapeWith(t, scraping("stator", srv.addr))
	l := startLoad(t, srv.url(), simModel, 6)
	p.scraped(t, 1, 2)
	busySince := time.Now().Truncate(time.Millisecond)
	l.wait(t, 60)
	eventually(t, "load is seen over a while", func() string {
		if n, _ := p.sum(t, "min_over_time(sum(rate(dynamo_component_thompson_requests_total[3s]))[4s:1s])", time.Now()); n <= 0 {
			return "not yet"
		}
		return ""
	})
	busy := lastScrape(t, p)
	t.Run("default", func(t *testing.T) { collectDefault(t, p, busy) })
	t.Run("command", func(t *testing.T) { collectCommand(t, p) })

	l.stop()
	var quiet time.Time
	eventually(t, "nothing happens", func() string {
		quiet = lastScrape(t, p)
		if n, found := p.sum(t, "sum(rate(dynamo_frontend_requests_total["+natRange+"])) + sum(dynamo_frontend_inflight_requests)", quiet); n != 0 || found == 0 {
			return fmt.Sprintf("%v a second", n)
		}
		return ""
	})
	t.Run("nat", func(t *testing.T) { collectNAT(t, p, busySince, busy, quiet) })
}

// scraping is a configuration with one target.
func scraping(job, addr string) string {
	return fmt.Sprintf(`
global: {scrape_interval: 1s}
scrape_configs:
  - job_name: %s
    static_configs: [{targets: [%q]}]
`, job, addr)
}

// lastScrape returns the time of the latest scrape: what is asked for at that time will not
// change any more.
func lastScrape(t *testing.T, p *prometheus) time.Time {
	t.Helper()
	at, _ := p.sum(t, "max(timestamp(up))", time.Now())
	return time.UnixMilli(int64(math.Round(at * 1000)))
}

// collectDefault compares every field with what it should be at a time.
func collectDefault(t *testing.T, p *prometheus, at time.Time) {
	client := newClient(t, p.url)
	cfg := collect.DefaultConfig()
	r := collect.Metrics(t.Context(), at, client, &cfg)
	if len(r.Errors) != 0 || len(r.Warnings) != 0 {
		t.Errorf("errors %q, warnings %q", r.Errors, r.Warnings)
	}
	var names []string
	for _, m := range r.Metrics {
		names = append(names, string(m.Field))
		if m.Value == nil {
			t.Errorf("%s: no number: %s: %s", m.Field, m.Missing, m.Reason)
		}
	}
	if !slices.Equal(names, fieldNames) {
		t.Errorf("fields %q, want %q", names, fieldNames)
	}
	for field, want := range expectations(t, p, at) {
		if got := r.Value(collect.Field(field)); got == nil || !near(*got, want) {
			t.Errorf("%s: got %s, want %v", field, show(got), want)
		}
	}

	if r.Core.Source != "kve" || r.Core.KVEfficiency == nil || !r.Core.Complete() {
		t.Fatalf("core: source %q, KV efficiency %s, complete %t", r.Core.Source, show(r.Core.KVEfficiency), r.Core.Complete())
	}
	cached, _ := p.sum(t, "increase(dynamo_component_thompson_kve_cached_tokens_total[30s])", at)
	prompt, _ := p.sum(t, "increase(dynamo_component_thompson_kve_prompt_tokens_total[30s])", at)
	if cached <= 0 || cached >= prompt {
		t.Errorf("%v of %v prompt tokens were cached: this load has to be between", cached, prompt)
	}
	if !near(*r.Core.KVEfficiency, cached/prompt) {
		t.Errorf("KV efficiency: got %v, want %v", *r.Core.KVEfficiency, cached/prompt)
	}
	ttft := quantileByHand(t, p, 0.95, "dynamo_frontend_time_to_first_token_seconds", at)
	itl := quantileByHand(t, p, 0.95, "dynamo_frontend_inter_token_latency_seconds", at)
	for _, want := range []float64{
		scoreByHand(*r.Core.KVEfficiency, number(t, r, collect.TTFTP95), number(t, r, collect.ITLP95)),
		scoreByHand(cached/prompt, ttft, itl),
	} {
		if r.Score == nil || !near(*r.Score, want) {
			t.Errorf("score: got %s, want %v", show(r.Score), want)
		}
	}
}

// scoreByHand is the score with the weights and targets that are the default.
func scoreByHand(kv, ttft, itl float64) float64 {
	return 0.4*kv + 0.4*math.Min(1, 0.5/ttft) + 0.2*math.Min(1, 0.05/itl)
}

// expectations are the fields that Stator has series of its own for, made of what each of
// them says.
func expectations(t *testing.T, p *prometheus, at time.Time) map[string]float64 {
	t.Helper()
	sum := func(promql string) float64 {
		v, n := p.sum(t, promql, at)
		if n == 0 {
			t.Errorf("%s: no series", promql)
		}
		return v
	}
	mean := func(promql string) float64 {
		v, n := p.sum(t, promql, at)
		return v / float64(n)
	}
	perSecond := func(counter string) float64 { return sum("increase("+counter+"[30s])") / 30 }
	out := map[string]float64{
		"inflight_requests_frontend":      sum("dynamo_frontend_inflight_requests"),
		"inflight_requests_worker":        sum(`dynamo_component_inflight_requests{dynamo_namespace="workers"}`),
		"queued_requests":                 sum("dynamo_frontend_queued_requests"),
		"requests_per_minute":             60 * perSecond("dynamo_frontend_requests_total"),
		"kve_cached_tokens_rate":          perSecond("dynamo_component_thompson_kve_cached_tokens_total"),
		"kve_prompt_tokens_rate":          perSecond("dynamo_component_thompson_kve_prompt_tokens_total"),
		"kve_device_blocks_rate":          perSecond("dynamo_component_thompson_kve_device_blocks_total"),
		"kve_host_blocks_rate":            perSecond("dynamo_component_thompson_kve_host_blocks_total"),
		"kve_disk_blocks_rate":            perSecond("dynamo_component_thompson_kve_disk_blocks_total"),
		"kv_cache_usage_percent":          mean("dynamo_component_kvstats_gpu_cache_usage_percent"),
		"kv_cache_hit_rate_dynamo":        mean("dynamo_component_kvstats_gpu_prefix_cache_hit_rate"),
		"token_throughput":                perSecond("dynamo_frontend_output_tokens_total"),
		"thompson_routing_decisions_rate": perSecond("dynamo_component_thompson_routing_decisions_total"),
		"thompson_requests_rate":          perSecond("dynamo_component_thompson_requests_total"),
	}
	for name, latency := range map[string]string{"ttft": "time_to_first_token_seconds", "itl": "inter_token_latency_seconds"} {
		for _, q := range []int{50, 95, 99} {
			out[fmt.Sprintf("%s_p%d", name, q)] = quantileByHand(t, p, float64(q)/100, "dynamo_frontend_"+latency, at)
		}
	}
	return out
}

// quantileByHand is the quantile of a histogram over the last 30 seconds: in the bucket in
// which it falls, as far as its share of the bucket's observations.
func quantileByHand(t *testing.T, p *prometheus, q float64, histogram string, at time.Time) float64 {
	t.Helper()
	upTo := make(map[float64]float64)
	for _, s := range p.ask(t, "increase("+histogram+"_bucket[30s])", at) {
		le, err := strconv.ParseFloat(s.labels["le"], 64)
		if err != nil {
			t.Fatal(err)
		}
		upTo[le] += s.last()
	}
	bounds := slices.Sorted(maps.Keys(upTo))
	if len(bounds) < 2 || !math.IsInf(bounds[len(bounds)-1], 1) {
		t.Fatalf("%s: buckets %v", histogram, bounds)
	}
	rank := q * upTo[math.Inf(1)]
	i := 0
	for i < len(bounds)-1 && upTo[bounds[i]] < rank {
		i++
	}
	if i == len(bounds)-1 {
		return bounds[i-1]
	}
	lower, below := 0.0, 0.0
	if i > 0 {
		lower, below = bounds[i-1], upTo[bounds[i-1]]
	}
	return lower + (bounds[i]-lower)*(rank-below)/(upTo[bounds[i]]-below)
}

// collectCommand runs stator metrics.
func collectCommand(t *testing.T, p *prometheus) {
	cmd := exec.CommandContext(t.Context(), binary, "metrics", "--prometheus", p.url, "--json")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.Bytes())
	}
	var fields map[string]any
	var doc struct {
		Errors  []string
		Summary struct {
			KV     float64 `json:"kv_efficiency"`
			Source string  `json:"kv_efficiency_source"`
			TTFT   float64 `json:"ttft_p95_seconds"`
			ITL    float64 `json:"itl_p95_seconds"`
		}
		Complete bool
		Score    float64
	}
	if err := json.Unmarshal(out, &fields); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if err := json.Unmarshal(out, &doc); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	for _, name := range fieldNames {
		if v, ok := fields[name].(float64); !ok || math.IsNaN(v) {
			t.Errorf("%s: got %v, want a number", name, fields[name])
		}
	}
	if len(doc.Errors) != 0 || !doc.Complete || doc.Summary.Source != "kve" {
		t.Errorf("errors %q, complete %t, source %q", doc.Errors, doc.Complete, doc.Summary.Source)
	}
	if want := scoreByHand(doc.Summary.KV, doc.Summary.TTFT, doc.Summary.ITL); !near(doc.Score, want) {
		t.Errorf("score: got %v, want %v", doc.Score, want)
	}
}

func newClient(t *testing.T, url string) *collect.Client {
	t.Helper()
	client, err := collect.NewClient(collect.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// number returns the number of a field that has to have one.
func number(t *testing.T, r *collect.Results, f collect.Field) float64 {
	t.Helper()
	v := r.Value(f)
	if v == nil {
		t.Fatalf("%s: no number", f)
	}
	return *v
}

// show is a number or none.
func show(v *float64) string {
	if v == nil {
		return "none"
	}
	return fmt.Sprint(*v)
}
