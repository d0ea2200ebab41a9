package promtest

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stator-ai/stator/internal/collect"
)

// natQueries are what NeMo Agent Toolkit asks, in its order.
var natQueries = []struct{ field, promql string }{
	{"inflight_requests_frontend", `dynamo_frontend_inflight_requests`},
	{"inflight_requests_worker", `dynamo_component_inflight_requests`},
	{"queued_requests", `dynamo_frontend_queued_requests`},
	{"requests_per_minute", `rate(dynamo_frontend_requests_total[{range}]) * 60`},
	{"ttft_p50", `histogram_quantile(0.50, rate(dynamo_frontend_time_to_first_token_seconds_bucket[{range}]))`},
	{"ttft_p95", `histogram_quantile(0.95, rate(dynamo_frontend_time_to_first_token_seconds_bucket[{range}]))`},
	{"ttft_p99", `histogram_quantile(0.99, rate(dynamo_frontend_time_to_first_token_seconds_bucket[{range}]))`},
	{"itl_p50", `histogram_quantile(0.50, rate(dynamo_frontend_inter_token_latency_seconds_bucket[{range}]))`},
	{"itl_p95", `histogram_quantile(0.95, rate(dynamo_frontend_inter_token_latency_seconds_bucket[{range}]))`},
	{"itl_p99", `histogram_quantile(0.99, rate(dynamo_frontend_inter_token_latency_seconds_bucket[{range}]))`},
	{"kve_cached_tokens_rate", `rate(dynamo_component_thompson_kve_cached_tokens_total[{range}])`},
	{"kve_prompt_tokens_rate", `rate(dynamo_component_thompson_kve_prompt_tokens_total[{range}])`},
	{"kve_device_blocks_rate", `rate(dynamo_component_thompson_kve_device_blocks_total[{range}])`},
	{"kve_host_blocks_rate", `rate(dynamo_component_thompson_kve_host_blocks_total[{range}])`},
	{"kve_disk_blocks_rate", `rate(dynamo_component_thompson_kve_disk_blocks_total[{range}])`},
	{"kv_cache_usage_percent", `dynamo_component_kvstats_gpu_cache_usage_percent`},
	{"kv_cache_hit_rate_sglang", `sglang:cache_hit_rate`},
	{"kv_cache_hit_rate_dynamo", `dynamo_component_kvstats_gpu_prefix_cache_hit_rate`},
	{"token_throughput", `rate(dynamo_frontend_output_tokens_total[{range}])`},
	{"sglang_gen_throughput", `sglang:gen_throughput`},
	{"sglang_running_requests", `sglang:num_running_reqs`},
	{"sglang_queue_depth", `sglang:num_queue_reqs`},
	{"sglang_utilization", `sglang:utilization`},
	{"thompson_routing_decisions_rate", `rate(dynamo_component_thompson_routing_decisions_total[{range}])`},
	{"thompson_requests_rate", `rate(dynamo_component_thompson_requests_total[{range}])`},
}

// natRange is what rates look back in these tests.
const natRange = "5s"

func natQuery(promql string) string { return strings.ReplaceAll(promql, "{range}", natRange) }

func natConfig() collect.Config {
	cfg := collect.DefaultConfig()
	cfg.Compat, cfg.QueryRange = collect.NAT, natRange
	return cfg
}

// natWant is what a field should be, and how it is found.
type natWant struct {
	value  *float64
	method collect.Method
	// many says that there were several series at the instant, with different values.
	many bool
}

// natByHand is what the reference makes of the answers: the first series now unless it is 0
// or NaN, or else the mean of all samples in the window that are neither.
func natByHand(t *testing.T, p *prometheus, promql string, at, start, end time.Time) natWant {
	t.Helper()
	now := p.ask(t, promql, at)
	var w natWant
	for _, s := range now {
		w.many = w.many || s.last() != now[0].last()
	}
	if len(now) > 0 && now[0].last() != 0 && !math.IsNaN(now[0].last()) {
		v := now[0].last()
		w.value, w.method = &v, collect.Instant
		return w
	}
	sum, n := 0.0, 0.0
	for _, s := range p.askRange(t, promql, start, end, "15s") {
		for _, sample := range s.samples {
			if sample.value != 0 && !math.IsNaN(sample.value) {
				sum += sample.value
				n++
			}
		}
	}
	if n > 0 {
		v := sum / n
		w.value, w.method = &v, collect.OverWindow
	}
	return w
}

// collectNAT collects as NeMo Agent Toolkit does: while there is load, and when all rates
// are 0 again.
func collectNAT(t *testing.T, p *prometheus, busySince, busy, quiet time.Time) {
	ways := make(map[collect.Method]int)
	several := 0
	for _, when := range []struct {
		name string
		at   time.Time
	}{{"busy", busy}, {"quiet", quiet}} {
		t.Run(when.name, func(t *testing.T) {
			g := gatewayTo(t, p, when.at)
			cfg := natConfig()
			r := collect.Metrics(t.Context(), busy, newClient(t, g.url), &cfg)
			got := g.asked()
			start, end := busy.Add(-10*time.Minute), busy
			var asked []question
			for _, q := range natQueries {
				promql := natQuery(q.promql)
				want := natByHand(t, g.prometheus, promql, when.at, start, end)
				if got := r.Value(collect.Field(q.field)); show(got) != show(want.value) {
					t.Errorf("%s: got %s, want %s", q.field, show(got), show(want.value))
				}
				ways[want.method]++
				if want.many && want.method == collect.Instant {
					several++
				}
				asked = append(asked, question{promql: promql})
				if want.method != collect.Instant {
					asked = append(asked, question{promql, seconds(start), seconds(end), "15s"})
				}
			}
			// One after the other, each once.
			if diff := cmp.Diff(asked, got, cmp.AllowUnexported(question{})); diff != "" {
				t.Errorf("questions (-want +got):\n%s", diff)
			}
			if len(r.Errors) != 0 || len(r.Warnings) != 0 {
				t.Errorf("errors %q, warnings %q", r.Errors, r.Warnings)
			}
			kv := number(t, r, collect.KVECachedTokensRate) / number(t, r, collect.KVEPromptTokensRate)
			if r.Core.Source != "kve" || show(r.Core.KVEfficiency) != show(&kv) {
				t.Errorf("KV efficiency: got %s from %s, want %v", show(r.Core.KVEfficiency), r.Core.Source, kv)
			}
			if want := scoreByHand(kv, number(t, r, collect.TTFTP95), number(t, r, collect.ITLP95)); r.Score == nil || !near(*r.Score, want) {
				t.Errorf("score: got %s, want %v", show(r.Score), want)
			}
		})
	}
	// Every way was gone.
	if ways[collect.Instant] == 0 || ways[collect.OverWindow] == 0 || ways[""] == 0 || several == 0 {
		t.Errorf("found %v, %d of several series", ways, several)
	}

	t.Run("M2", func(t *testing.T) {
		refused, empty := natQuery(natQueries[3].promql), natQuery(natQueries[2].promql)
		g := gatewayTo(t, p, quiet, question{promql: refused}, question{promql: empty, step: "15s"})
		cfg := natConfig()
		r := collect.Metrics(t.Context(), busy, newClient(t, g.url), &cfg)
		if v := r.Value(collect.RequestsPerMinute); v != nil {
			t.Errorf("refused at the instant: got %v", *v)
		}
		if v := r.Value(collect.QueuedRequests); v != nil {
			t.Errorf("refused over the window: got %v", *v)
		}
		if len(r.Errors) != 1 || !strings.HasPrefix(r.Errors[0], "Failed to collect requests_per_minute: ") || !strings.Contains(r.Errors[0], "500") {
			t.Errorf("errors: got %q", r.Errors)
		}
		ranges := make(map[string]int)
		for _, q := range g.asked() {
			if q.step != "" {
				ranges[q.promql]++
			}
		}
		if ranges[refused] != 0 || ranges[empty] != 1 {
			t.Errorf("asked for the window of %s %d times and of %s %d times", refused, ranges[refused], empty, ranges[empty])
		}
	})

	t.Run("M4", func(t *testing.T) {
		g := gatewayTo(t, p, quiet)
		cfg := natConfig()
		cfg.Start, cfg.End = time.Unix(100, 0), time.Unix(160, 0)
		collect.Metrics(t.Context(), busy, newClient(t, g.url), &cfg)
		n := 0
		for _, q := range g.asked() {
			if q.step == "" {
				continue
			}
			n++
			if q.start != "100" || q.end != "175" || q.step != "15s" {
				t.Errorf("%s: asked from %s to %s by %s", q.promql, q.start, q.end, q.step)
			}
		}
		if n == 0 {
			t.Error("no window was asked for")
		}
	})

	t.Run("window since the start", func(t *testing.T) {
		g := gatewayTo(t, p, quiet)
		cfg := natConfig()
		cfg.Start = busySince
		collect.Metrics(t.Context(), quiet, newClient(t, g.url), &cfg)
		for _, q := range g.asked() {
			if q.step != "" && (q.start != seconds(busySince) || q.end != seconds(quiet)) {
				t.Errorf("%s: asked from %s to %s", q.promql, q.start, q.end)
			}
		}
	})
}

// TestNATRows has Prometheus hold samples that are known to the last digit.
func TestNATRows(t *testing.T) {
	t.Parallel()
	dir(t)
	// Prometheus takes what is less than an hour old.
	began := time.Now().Add(-20 * time.Minute).Truncate(time.Second)
	at := func(n int) time.Time { return began.Add(time.Duration(n) * 15 * time.Second) }
	var page stamped
	page.add("sglang:cache_hit_rate", at(0), 0.3)
	const later = 30 // all before is out of sight
	for i, v := range []float64{0, math.NaN(), 2, 4, 0} {
		page.add(`dynamo_frontend_queued_requests{model="a"}`, at(later+i), v)
	}
	for i, v := range []float64{0, 6, math.NaN()} {
		page.add(`dynamo_frontend_queued_requests{model="b"}`, at(later+2+i), v)
	}
	for i := range 5 {
		page.add("dynamo_component_thompson_kve_cached_tokens_total", at(later+i), 1e6+120.5*15*float64(i))
		page.add("dynamo_component_thompson_kve_prompt_tokens_total", at(later+i), 1e6+160.25*15*float64(i))
	}
	p := scrapeWith(t, scraping("pages", page.serve(t)))
	p.scraped(t, 1, 1)
	collected := func(t *testing.T, now int) *collect.Results {
		t.Helper()
		cfg := natConfig()
		cfg.QueryRange = "30s"
		cfg.Start, cfg.End = at(now-4), at(now-2)
		r := collect.Metrics(t.Context(), time.Now(), newClient(t, gatewayTo(t, p, at(now)).url), &cfg)
		if len(r.Errors) != 0 {
			t.Errorf("errors %q", r.Errors)
		}
		return r
	}
	t.Run("M1", func(t *testing.T) {
		if got := show(collected(t, later+4).Value(collect.QueuedRequests)); got != "4" {
			t.Errorf("got %s, want 4", got)
		}
	})
	t.Run("M5", func(t *testing.T) {
		core := collected(t, later+4).Core
		if core.KVEfficiency == nil || !near(*core.KVEfficiency, 120.5/160.25) || core.Source != "kve" {
			t.Errorf("got %s from %s, want %v from kve", show(core.KVEfficiency), core.Source, 120.5/160.25)
		}
	})
	t.Run("M6", func(t *testing.T) {
		core := collected(t, 0).Core
		if core.KVEfficiency != nil || show(core.Effective()) != "0.3" || core.Source != "sglang_fallback" {
			t.Errorf("got %s and %s from %s, want 0.3 from sglang_fallback", show(core.KVEfficiency), show(core.Effective()), core.Source)
		}
	})
}

// stamped is a page of metrics that says of each sample when it was.
type stamped struct{ text strings.Builder }

func (s *stamped) add(series string, at time.Time, v float64) {
	fmt.Fprintf(&s.text, "%s %v %d\n", series, v, at.UnixMilli())
}

// serve returns the address of a server that has the page.
func (s *stamped) serve(t *testing.T) string {
	t.Helper()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprint(w, s.text.String())
	}))
	t.Cleanup(h.Close)
	return strings.TrimPrefix(h.URL, "http://")
}
