package collect

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// soundQuery returns the nth expression of a field for a range.
func soundQuery(t *testing.T, c *Config, f Field, n int, within string) string {
	t.Helper()
	for _, s := range fields {
		if s.field == f {
			return s.sound[n].query(c, within)
		}
	}
	t.Fatalf("no field %s", f)
	return ""
}

func metric(t *testing.T, r *Results, f Field) Metric {
	t.Helper()
	for _, m := range r.Metrics {
		if m.Field == f {
			return m
		}
	}
	t.Fatalf("%s was not collected", f)
	return Metric{}
}

func TestSoundZeroIsANumber(t *testing.T) {
	p := newProm(t)
	p.instant["sum(dynamo_frontend_queued_requests)"] = vector("0")
	p.ranged["sum(dynamo_frontend_queued_requests)"] = matrix([]string{"9"})
	cfg := only(GroupInflight)
	m := metric(t, Metrics(t.Context(), now, p.client(), &cfg), QueuedRequests)
	if m.Value == nil || *m.Value != 0 || m.Method != Instant || m.Source != "dynamo_frontend_queued_requests" {
		t.Errorf("got %+v, want 0 at the instant", m)
	}
	for i, r := range p.requests {
		if strings.HasPrefix(r, "/api/v1/query ") && p.params[i].Get("time") != "1700000000" {
			t.Errorf("%s: at %q, want now", r, p.params[i].Get("time"))
		}
	}
}

func TestSoundNaNIsNone(t *testing.T) {
	cfg := only(GroupTTFT)
	short, long := soundQuery(t, &cfg, TTFTP95, 0, "30s"), soundQuery(t, &cfg, TTFTP95, 0, "600s")
	p := newProm(t)
	p.names = []string{"dynamo_frontend_time_to_first_token_seconds_bucket"}
	p.instant[short] = vector("NaN")
	p.instant[long] = vector("0.25")
	r := Metrics(t.Context(), now, p.client(), &cfg)
	if m := metric(t, r, TTFTP95); m.Value == nil || *m.Value != 0.25 || m.Method != OverWindow || m.Query != long {
		t.Errorf("got %+v, want 0.25 over the window", m)
	}
	// Nothing in the window either.
	p.instant[long] = vector("NaN")
	r = Metrics(t.Context(), now, p.client(), &cfg)
	if m := metric(t, r, TTFTP95); m.Value != nil || m.Reason != "nothing happened in the last 10m" {
		t.Errorf("got %+v, want none because nothing happened", m)
	}
	// No samples at all.
	delete(p.instant, short)
	delete(p.instant, long)
	r = Metrics(t.Context(), now, p.client(), &cfg)
	if m := metric(t, r, TTFTP95); m.Value != nil || m.Reason != "fewer than two samples in the last 10m" {
		t.Errorf("got %+v, want none without samples", m)
	}
	if got := p.asked("/api/v1/query_range"); got != nil {
		t.Errorf("asked %q: the mean of quantiles is none", got)
	}
}

func TestSoundInfiniteIsNone(t *testing.T) {
	cfg := only(GroupTTFT)
	p := newProm(t)
	p.instant[soundQuery(t, &cfg, TTFTP95, 0, "30s")] = vector("+Inf")
	p.instant[soundQuery(t, &cfg, TTFTP95, 1, "30s")] = vector("0.5")
	if m := metric(t, Metrics(t.Context(), now, p.client(), &cfg), TTFTP95); m.Value == nil || m.Source != "vllm:time_to_first_token_seconds_bucket" {
		t.Errorf("got %+v, want vLLM's number", m)
	}
	// If there is no other number, it is said what there is instead.
	for value, want := range map[string]string{
		"+Inf": "not a finite number in the last 10m, but +Inf",
		"-Inf": "not a finite number in the last 10m, but -Inf",
		"NaN":  "nothing happened in the last 10m",
	} {
		p = newProm(t)
		p.instant[soundQuery(t, &cfg, TTFTP95, 0, "30s")] = vector(value)
		p.instant[soundQuery(t, &cfg, TTFTP95, 0, "600s")] = vector(value)
		if m := metric(t, Metrics(t.Context(), now, p.client(), &cfg), TTFTP95); m.Value != nil || m.Reason != want {
			t.Errorf("%s: got %+v, want none because %s", value, m, want)
		}
	}
	c := collection{cfg: &cfg, results: &Results{}}
	v, instead, err := c.one(&Answer{Series: []Series{{Samples: []Sample{{1, math.NaN()}, {2, math.Inf(-1)}, {3, math.NaN()}}}}}, nil)
	if v != nil || instead != "-Inf" || err != nil {
		t.Errorf("got %v, %q, %v", v, instead, err)
	}
}

func TestSoundGaugeOverWindow(t *testing.T) {
	p := newProm(t)
	p.ranged["sum(dynamo_frontend_queued_requests)"] = matrix([]string{"0", "NaN", "6"})
	cfg := only(GroupInflight)
	cfg.Lookback = time.Hour
	m := metric(t, Metrics(t.Context(), now, p.client(), &cfg), QueuedRequests)
	if m.Value == nil || *m.Value != 3 || m.Method != OverWindow {
		t.Errorf("got %+v, want the mean 3 with its zero", m)
	}
	for i, r := range p.requests {
		if !strings.HasPrefix(r, "/api/v1/query_range") {
			continue
		}
		if got := p.params[i]; got.Get("start") != "1699996400" || got.Get("end") != "1700000000" || got.Get("step") != "15s" {
			t.Errorf("%s: got %v", r, got)
		}
	}
}

func TestSoundChosenWindow(t *testing.T) {
	p := newProm(t)
	cfg := DefaultConfig()
	cfg.Start, cfg.End = now.Add(-10*time.Minute), now.Add(-5*time.Minute)
	rate := soundQuery(t, &cfg, RequestsPerMinute, 0, "315s")
	p.instant[rate] = vector("12")
	p.instant["sum(dynamo_frontend_queued_requests)"] = vector("77") // now is not asked for
	p.ranged["sum(dynamo_frontend_queued_requests)"] = matrix([]string{"1", "2"})
	r := Metrics(t.Context(), now, p.client(), &cfg)
	if m := metric(t, r, RequestsPerMinute); m.Value == nil || *m.Value != 12 {
		t.Errorf("got %+v, want the rate over all of the window", m)
	}
	if m := metric(t, r, QueuedRequests); m.Value == nil || *m.Value != 1.5 {
		t.Errorf("got %+v, want the mean of the window", m)
	}
	for i, req := range p.requests {
		if at := p.params[i].Get("time"); strings.HasPrefix(req, "/api/v1/query ") && at != "1699999715" {
			t.Errorf("%s: at %q, want the end of the window", req, at)
		}
	}
	// What is yet to come has no samples.
	cfg.End = now
	if r = Metrics(t.Context(), now, p.client(), &cfg); !r.Window.End.Equal(now) {
		t.Errorf("window ends at %v, want now", r.Window.End)
	}
}

func TestSoundLongWindow(t *testing.T) {
	p := newProm(t)
	cfg := only(GroupInflight)
	cfg.Start = now.Add(-30 * 24 * time.Hour)
	Metrics(t.Context(), now, p.client(), &cfg)
	asked := 0
	for i, req := range p.requests {
		if strings.HasPrefix(req, "/api/v1/query_range") {
			asked++
			if step := p.params[i].Get("step"); step != "260s" {
				t.Errorf("step %s: Prometheus takes 11,000 at most", step)
			}
		}
	}
	if asked == 0 {
		t.Error("no range was asked for")
	}
}

func TestSoundAlternatives(t *testing.T) {
	cfg := DefaultConfig()
	for _, c := range []struct {
		field  Field
		n      int
		source string
		zero   string // a query whose 0 does not count
	}{
		{InflightWorker, 1, "dynamo_component_inflight_requests", ""},
		{KVCacheUsagePercent, 1, "dynamo_component_gpu_cache_usage_percent", ""},
		{KVCacheUsagePercent, 2, "vllm:kv_cache_usage_perc", ""},
		{KVHitRateDynamo, 1, "dynamo_component_kv_cache_hit_rate", ""},
		{SGLangRunning, 1, "vllm:num_requests_running", ""},
		{SGLangQueueDepth, 2, "llamacpp:requests_deferred", ""},
		{SGLangThroughput, 1, "vllm:generation_tokens_total", ""},
		{SGLangUtilization, 1, "sglang:token_usage", soundQuery(t, &cfg, SGLangUtilization, 3, "30s")},
		{KVECachedTokensRate, 1, "stator_kve_cached_tokens_total", ""},
		{KVCacheUsagePercent, 4, "stator_engine_kv_usage", ""},
		{KVHitRateSGLang, 1, "sglang:cached_tokens_total", ""},
		{KVHitRateSGLang, 2, "vllm:prefix_cache_hits_total", ""},
		{KVHitRateSGLang, 3, "dynamo_component_kvstats_gpu_prefix_cache_hit_rate", ""},
		{SGLangThroughput, 3, "dynamo_frontend_output_tokens_total", ""},
		{SGLangRunning, 3, "stator_engine_running_requests", ""},
		{SGLangRunning, 4, "stator_worker_active_requests", ""},
		{SGLangQueueDepth, 3, "stator_engine_waiting_requests", ""},
		{SGLangQueueDepth, 4, "dynamo_frontend_router_queue_pending_requests", ""},
		{SGLangUtilization, 4, "stator_engine_kv_usage", ""},
		{SGLangUtilization, 5, "dynamo_component_kvstats_gpu_cache_usage_percent", ""},
	} {
		p := newProm(t)
		p.instant[soundQuery(t, &cfg, c.field, c.n, "30s")] = vector("0.5")
		if c.zero != "" {
			p.instant[c.zero] = vector("0")
		}
		if m := metric(t, Metrics(t.Context(), now, p.client(), &cfg), c.field); m.Value == nil || *m.Value != 0.5 || m.Source != c.source {
			t.Errorf("%s: got %+v, want it from %s", c.field, m, c.source)
		}
	}
}

// TestSoundNowBeforeWindow has engines of one kind replaced by those of another: what the
// first published is still in the window, but what the second says is of now.
func TestSoundNowBeforeWindow(t *testing.T) {
	cfg := only(GroupInflight)
	p := newProm(t)
	gone, here := soundQuery(t, &cfg, SGLangRunning, 0, ""), soundQuery(t, &cfg, SGLangRunning, 1, "")
	p.ranged[gone] = matrix([]string{"7"})
	p.instant[here] = vector("0")
	if m := metric(t, Metrics(t.Context(), now, p.client(), &cfg), SGLangRunning); m.Value == nil || *m.Value != 0 || m.Method != Instant {
		t.Errorf("got %+v, want vLLM's 0 of now", m)
	}
	delete(p.instant, here)
	if m := metric(t, Metrics(t.Context(), now, p.client(), &cfg), SGLangRunning); m.Value == nil || *m.Value != 7 || m.Method != OverWindow || m.Reason != "" {
		t.Errorf("got %+v, want SGLang's 7 over the window", m)
	}
	// The same of a number that counts only above 0: it was, but is not now.
	p.ranged[soundQuery(t, &cfg, SGLangUtilization, 0, "")] = matrix([]string{"0.9"})
	p.instant[soundQuery(t, &cfg, SGLangUtilization, 1, "")] = vector("0.1")
	if m := metric(t, Metrics(t.Context(), now, p.client(), &cfg), SGLangUtilization); m.Value == nil || *m.Value != 0.1 {
		t.Errorf("got %+v, want 0.1", m)
	}
}

// TestSoundUndefinedBeforeOthers stays with a ratio that is undefined now, as long as the
// window has a number: who is asked does not change with how busy the fleet is.
func TestSoundUndefinedBeforeOthers(t *testing.T) {
	cfg := only(GroupTTFT)
	p := newProm(t)
	p.instant[soundQuery(t, &cfg, TTFTP95, 0, "30s")] = vector("NaN")
	p.instant[soundQuery(t, &cfg, TTFTP95, 0, "600s")] = vector("0.25")
	p.instant[soundQuery(t, &cfg, TTFTP95, 1, "30s")] = vector("9")
	if m := metric(t, Metrics(t.Context(), now, p.client(), &cfg), TTFTP95); m.Value == nil || *m.Value != 0.25 || m.Method != OverWindow {
		t.Errorf("got %+v, want the frontend's 0.25 over the window", m)
	}
}

func TestEfficiencySources(t *testing.T) {
	cfg := only(GroupKVCache)
	for i, s := range kveSources {
		t.Run(fmt.Sprintf("%d %s", i, s.name), func(t *testing.T) {
			p := newProm(t)
			// Those before it have counted nothing, those after it would say something else.
			for j, other := range kveSources {
				v := "NaN"
				if j > i {
					v = "0.9"
				}
				p.instant[other.expr.query(&cfg, "30s")] = vector(v)
			}
			p.instant[s.expr.query(&cfg, "30s")] = vector("0")
			r := Metrics(t.Context(), now, p.client(), &cfg)
			if v := r.Core.Effective(); v == nil || *v != 0 || r.Core.Source != s.name {
				t.Errorf("got %v from %q, want 0 from %s: a cold cache is a number", v, r.Core.Source, s.name)
			}
			if (r.Core.KVEfficiency != nil) != (s.name == "kve") {
				t.Errorf("kv_efficiency is %v with source %s", r.Core.KVEfficiency, s.name)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		p := newProm(t)
		p.names = []string{}
		r := Metrics(t.Context(), now, p.client(), &cfg)
		if r.Core.Effective() != nil || r.Core.Source != "" || r.Core.Reason == "" {
			t.Errorf("got %+v, want none with a reason", r.Core)
		}
	})
}

func TestScoreIsClampedByDefaultOnly(t *testing.T) {
	cfg := DefaultConfig()
	p := newProm(t)
	p.instant[kveSources[0].expr.query(&cfg, "30s")] = vector("1.2")
	p.instant[soundQuery(t, &cfg, TTFTP95, 0, "30s")] = vector("0.1")
	p.instant[soundQuery(t, &cfg, ITLP95, 0, "30s")] = vector("0.01")
	r := Metrics(t.Context(), now, p.client(), &cfg)
	if r.Score == nil || *r.Score != 1 || *r.Core.Effective() != 1.2 || !r.Core.Complete() {
		t.Errorf("got score %v of %v, want 1 of 1.2", withUnit(r.Score, ""), withUnit(r.Core.Effective(), ""))
	}
	cfg.Compat = NAT
	for _, q := range cfg.Plan() {
		switch q.Field {
		case KVECachedTokensRate:
			p.instant[q.PromQL] = vector("12")
		case KVEPromptTokensRate:
			p.instant[q.PromQL] = vector("10")
		case TTFTP95:
			p.instant[q.PromQL] = vector("0.1")
		case ITLP95:
			p.instant[q.PromQL] = vector("0.01")
		}
	}
	if r = Metrics(t.Context(), now, p.client(), &cfg); r.Score == nil || *r.Score < 1.0799 || *r.Score > 1.0801 {
		t.Errorf("got score %v with compat nat, want 1.08", withUnit(r.Score, ""))
	}
}

func TestMissingSeriesAreNotAskedFor(t *testing.T) {
	p := newProm(t)
	p.names = []string{"dynamo_frontend_inflight_requests", "dynamo_frontend_queued_requests"}
	p.instant["sum(dynamo_frontend_inflight_requests)"] = vector("2")
	p.instant["sum(dynamo_frontend_queued_requests)"] = vector("1")
	cfg := DefaultConfig()
	r := Metrics(t.Context(), now, p.client(), &cfg)
	if got := len(p.requests); got != 3 {
		t.Errorf("asked %d times, want 3:\n%s", got, strings.Join(p.requests, "\n"))
	}
	for _, c := range []struct {
		field          Field
		series, reason string
	}{
		{TTFTP50, "dynamo_frontend_time_to_first_token_seconds_bucket", "the frontend is scraped, but has had no request that counts for this yet"},
		{KVECachedTokensRate, "dynamo_component_thompson_kve_cached_tokens_total", "nothing that counts cached tokens is scraped: no processor, or its metrics port is no target"},
		{KVHitRateSGLang, "sglang:cache_hit_rate", "no SGLang is scraped, or its metrics are off: start it with --enable-metrics"},
		{InflightWorker, "dynamo_component_inflight_requests", "no worker is scraped: add its metrics port to the targets"},
	} {
		if m := metric(t, r, c.field); m.Value != nil || m.Missing != c.series || m.Reason != c.reason {
			t.Errorf("%s: got %q: %q, want %q: %q", c.field, m.Missing, m.Reason, c.series, c.reason)
		}
	}
}

func TestEverySeriesHasAReason(t *testing.T) {
	for _, s := range fields {
		series := s.sound[0].names()[0]
		none := likelyReason(series, map[string]bool{})
		some := likelyReason(series, map[string]bool{"dynamo_frontend_x": true, "dynamo_component_thompson_x": true, "sglang:x": true})
		if none == likelyReason("other", map[string]bool{}) || some == none {
			t.Errorf("%s: got %q and %q", series, none, some)
		}
	}
}

func TestFilters(t *testing.T) {
	cfg := only(GroupInflight)
	cfg.Model, cfg.Instance = `Qwen/Qwen3.5 "x"`, `gpu1:8000`
	const model = `=~"(?i:Qwen/Qwen3\\.5 \"x\")",instance="gpu1:8000"`
	p := newProm(t)
	p.instant[`sum(dynamo_frontend_queued_requests{model`+model+`})`] = vector("4")
	p.instant[`sum(max without (tp_rank, pp_rank, moe_ep_rank) (sglang:num_running_reqs{priority="",model_name`+model+`}))`] = vector("3")
	r := Metrics(t.Context(), now, p.client(), &cfg)
	if v := r.Value(QueuedRequests); v == nil || *v != 4 {
		t.Errorf("queued: got %v, want 4", v)
	}
	if v := r.Value(SGLangRunning); v == nil || *v != 3 {
		t.Errorf("running: got %v, want 3", v)
	}
	want := `no samples for model Qwen/Qwen3.5 "x" and instance gpu1:8000 in the last 10m`
	if m := metric(t, r, InflightFrontend); m.Reason != want {
		t.Errorf("reason: got %q, want %q", m.Reason, want)
	}
	want += "; Stator publishes it for all models together"
	if m := metric(t, r, InflightWorker); m.Reason != want {
		t.Errorf("reason: got %q, want %q", m.Reason, want)
	}
}

func TestFiltersThatLookLikeMarks(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Instance = "$served{range}$model"
	if got, want := template("a{$model}[{range}]").query(&cfg, "1m"), `a{instance="$served{range}$model"}[1m]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestErrors(t *testing.T) {
	t.Run("of one field", func(t *testing.T) {
		p := newProm(t)
		const bad = "sum(dynamo_frontend_queued_requests)"
		p.status["/api/v1/query "+bad] = http.StatusUnprocessableEntity
		p.instant["sum(dynamo_frontend_inflight_requests)"] = vector("2")
		cfg := only(GroupInflight)
		r := Metrics(t.Context(), now, p.client(), &cfg)
		want := []string{"Failed to collect queued_requests: status 422 Unprocessable Entity: internal: it is 422"}
		if diff := cmp.Diff(want, r.Errors); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if v := r.Value(InflightFrontend); v == nil || *v != 2 {
			t.Errorf("the others: got %v, want 2", v)
		}
	})
	t.Run("names refused", func(t *testing.T) {
		p := newProm(t)
		p.status["/api/v1/label/__name__/values"] = http.StatusForbidden
		p.instant["sum(dynamo_frontend_queued_requests)"] = vector("0")
		cfg := only(GroupInflight)
		r := Metrics(t.Context(), now, p.client(), &cfg)
		if r.Value(QueuedRequests) == nil || len(r.Errors) > 0 {
			t.Errorf("got %v, errors %q: the queries may be allowed", r.Value(QueuedRequests), r.Errors)
		}
		if diff := cmp.Diff([]string{"which series there are could not be found out: status 403 Forbidden: internal: it is 403"}, r.Warnings); diff != "" {
			t.Errorf("warnings (-want +got):\n%s", diff)
		}
		if m := metric(t, r, InflightFrontend); m.Reason != "no samples in the last 10m" {
			t.Errorf("reason: %q", m.Reason)
		}
	})
	t.Run("unauthorized once", func(t *testing.T) {
		p := newProm(t)
		p.status["/api/v1/label/__name__/values"] = http.StatusUnauthorized
		cfg := DefaultConfig()
		r := Metrics(t.Context(), now, p.client(), &cfg)
		if len(p.requests) != 1 || len(r.Errors) != 1 || r.Collected() != 0 || !strings.HasPrefix(r.Errors[0], p.url+" wants to know who asks: ") {
			t.Errorf("asked %d times, errors %q", len(p.requests), r.Errors)
		}
		c, err := NewClient(Options{URL: p.url, User: "me", Password: "wrong"})
		if err != nil {
			t.Fatal(err)
		}
		r = Metrics(t.Context(), now, c, &cfg)
		if len(r.Errors) != 1 || !strings.HasPrefix(r.Errors[0], p.url+" does not know who asks, or the password or token is wrong: status 401") {
			t.Errorf("with a password: errors %q", r.Errors)
		}
	})
	t.Run("not found", func(t *testing.T) {
		p := newProm(t)
		p.status["/api/v1/label/__name__/values"] = http.StatusNotFound
		cfg := only(GroupInflight)
		r := Metrics(t.Context(), now, p.client(), &cfg)
		if len(r.Warnings) != 1 || !strings.HasSuffix(r.Warnings[0], "; is this the base URL of Prometheus?") {
			t.Errorf("warnings %q", r.Warnings)
		}
	})
	t.Run("nobody there", func(t *testing.T) {
		c, err := NewClient(Options{URL: "http://user:hunter2@127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		cfg := DefaultConfig()
		r := Metrics(t.Context(), now, c, &cfg)
		if len(r.Errors) != 1 || !strings.Contains(r.Errors[0], "no answer from http://127.0.0.1:1: dial tcp 127.0.0.1:1: ") {
			t.Errorf("errors %q", r.Errors)
		}
	})
	t.Run("more than one series", func(t *testing.T) {
		p := newProm(t)
		p.instant["sum(dynamo_frontend_queued_requests)"] = vector("1", "2")
		cfg := only(GroupInflight)
		r := Metrics(t.Context(), now, p.client(), &cfg)
		if diff := cmp.Diff([]string{"Failed to collect queued_requests: expected one series, got 2"}, r.Errors); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestCustomQueries(t *testing.T) {
	p := newProm(t)
	cfg := only(GroupTTFT)
	cfg.Queries = map[string]string{
		"by_status": "sum by (status) (rate(x[{range}]))", "idle": "rate(y[{range}])", "gauge": "z", "wrong": "(", "none": "nothing", "many": "many",
	}
	p.instant["sum by (status) (rate(x[30s]))"] = `[{"metric":{"status":"error"},"value":[1,"0"]},{"metric":{"status":"ok"},"value":[1,"2.5"]},{"metric":{"status":"odd"},"value":[1,"NaN"]}]`
	p.instant["rate(y[600s])"] = vector("7")
	p.ranged["z"] = matrix([]string{"1", "3"})
	p.status["/api/v1/query ("] = http.StatusBadRequest
	p.instant["many"] = vector(strings.Fields(strings.Repeat("1 ", maxSeries+5))...)
	r := Metrics(t.Context(), now, p.client(), &cfg)
	got := make(map[string]Custom)
	for _, q := range r.Custom {
		got[q.Name] = q
	}
	if q := got["many"]; len(q.Values) != maxSeries || q.More != 5 {
		t.Errorf("many: got %d and %d more", len(q.Values), q.More)
	}
	delete(got, "many")
	worker := map[string]string{"worker_id": "0"}
	want := map[string]Custom{
		"by_status": {Name: "by_status", Query: "sum by (status) (rate(x[30s]))", Method: Instant, Values: []LabelledValue{
			{map[string]string{"status": "error"}, 0}, {map[string]string{"status": "ok"}, 2.5},
		}},
		"idle":  {Name: "idle", Query: "rate(y[600s])", Method: OverWindow, Values: []LabelledValue{{worker, 7}}},
		"gauge": {Name: "gauge", Query: "z", Method: OverWindow, Values: []LabelledValue{{worker, 2}}},
		"wrong": {Name: "wrong", Query: "("},
		"none":  {Name: "none", Query: "nothing"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Failed to collect wrong: status 400 Bad Request: internal: it is 400"}, r.Errors); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestPlan(t *testing.T) {
	all := DefaultConfig()
	if got := len(all.Plan()); got != 25 {
		t.Errorf("%d queries with all on, want 25", got)
	}
	core := DefaultConfig()
	core.CoreOnly()
	counts := make(map[Group]int)
	for _, q := range core.Plan() {
		counts[q.Group]++
	}
	want := map[Group]int{GroupKVCache: 8, GroupTTFT: 3, GroupITL: 3, GroupAlways: 5}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("core only (-want +got):\n%s", diff)
	}
	if got := len(core.Plan()); got != 19 || !core.Enable {
		t.Errorf("core only: %d queries, want 19; enabled %v", got, core.Enable)
	}
	for name, compat := range map[string]Compat{"plan.txt": "", "plan_nat.txt": NAT} {
		var out strings.Builder
		all.Compat = compat
		for _, q := range all.Plan() {
			fmt.Fprintf(&out, "%s (%s, %q)\n\t%s\n", q.Field, q.Group, q.Unit, q.PromQL)
		}
		golden(t, name, []byte(out.String()))
	}
}
