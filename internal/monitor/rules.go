package monitor

import (
	"fmt"

	"github.com/stator-ai/stator/internal/metrics"
)

// rule records an expression under a name: what it is about, stator for all together,
// stator_model or stator_worker for each; what is measured; and what is made of it.
type rule struct {
	Record string `yaml:"record"`
	Expr   string `yaml:"expr"`

	query query
}

// Names of what the latency of requests is seen by.
const (
	ttftBuckets     = "dynamo_frontend_time_to_first_token_seconds_bucket"
	ttftCount       = "dynamo_frontend_time_to_first_token_seconds_count"
	itlBuckets      = "dynamo_frontend_inter_token_latency_seconds_bucket"
	durationBuckets = "dynamo_component_request_duration_seconds_bucket"
	durations       = "dynamo_frontend_request_duration_seconds"
)

// whole are the matchers of a component's work that is a request as a whole, and not the part
// of a worker. It tells durations below 2 s apart, as the frontend's buckets do not, but not
// models.
var whole = []matcher{is("dynamo_component", "backend"), is("dynamo_endpoint", "generate"), is("worker_id", "")}

// served leaves out requests for models that are not served.
var served = isNot("model", metrics.UnknownModel)

// ours are the rules about Stator, whose names become part of the schema.
func ours(s schema, window string) []rule {
	var rules []rule
	record := func(name string, q query) {
		rules = append(rules, rule{name, q.text, q})
		s.record(name, q)
	}
	counted := func(name string, where ...matcher) query { return rate(s.series(name, where...), window) }

	record("stator:requests:rate", sum(counted("dynamo_frontend_requests_total")))
	record("stator_model:requests:rate", sum(counted("dynamo_frontend_requests_total"), "model"))
	record("stator:request_errors:ratio", errorRatio(s, window))
	record("stator_model:request_errors:ratio", errorRatio(s, window, "model"))

	for _, h := range []struct {
		name, buckets string
		where         []matcher
		models        bool // it tells them apart
	}{
		{"ttft_seconds", ttftBuckets, nil, true},
		{"itl_seconds", itlBuckets, nil, true},
		{"request_duration_seconds", durationBuckets, whole, false},
	} {
		for _, p := range []float64{0.5, 0.95, 0.99} {
			record(fmt.Sprintf("stator:%s:p%g", h.name, 100*p), quantile(p, sum(counted(h.buckets, h.where...), "le")))
			if h.models {
				record(fmt.Sprintf("stator_model:%s:p%g", h.name, 100*p), quantile(p, sum(counted(h.buckets, served), "model", "le")))
			}
		}
	}
	record("stator_model:request_duration_seconds:mean", s.mean(durations, window, []matcher{served}, "model"))

	record("stator:prompt_tokens:rate", sum(counted("dynamo_frontend_input_sequence_tokens_sum")))
	record("stator_model:prompt_tokens:rate", sum(counted("dynamo_frontend_input_sequence_tokens_sum", served), "model"))
	record("stator:output_tokens:rate", sum(counted("dynamo_frontend_output_tokens_total")))
	record("stator_model:output_tokens:rate", sum(counted("dynamo_frontend_output_tokens_total", served), "model"))

	record("stator:kv_efficiency:ratio", div(
		sum(counted("dynamo_component_thompson_kve_cached_tokens_total")),
		sum(counted("dynamo_component_thompson_kve_prompt_tokens_total"))))
	record("stator_model:kv_efficiency:ratio", efficiency(s, window, nil, "model"))
	record("stator_worker:kv_efficiency:ratio", efficiency(s, window, nil, "model", "worker_id"))

	record("stator:optimization_score", score(
		s.series("stator:kv_efficiency:ratio"), s.series("stator:ttft_seconds:p95"), s.series("stator:itl_seconds:p95")))
	return rules
}

// failures are the ends of requests that are not the client's doing.
const failures = string(metrics.ErrOverload + "|" + metrics.ErrResponseTimeout + "|" + metrics.ErrUnavailable + "|" + metrics.ErrInternal)

// errorRatio is the share of requests that failed, 0 where none has.
func errorRatio(s schema, window string, by ...string) query {
	const name = "dynamo_frontend_requests_total"
	all := sum(rate(s.series(name), window), by...)
	failed := sum(rate(s.series(name, like("error_type", failures)), window), by...)
	return div(orElse(failed, times(constant(0), all)), all)
}

// efficiency is the share of prompt tokens that engines found in their caches.
func efficiency(s schema, window string, where []matcher, by ...string) query {
	return div(
		sum(rate(s.series("stator_kve_cached_tokens_total", where...), window), by...),
		sum(rate(s.series("stator_kve_prompt_tokens_total", where...), window), by...))
}

// score weighs KV efficiency and how far the latencies are within 500 ms to the first token
// and 50 ms between tokens.
func score(efficiency, ttft, itl query) query {
	within := func(target float64, q query) query { return atMost(div(constant(target), atLeast(q, 0.001)), 1) }
	return plus(plus(
		times(constant(0.4), efficiency),
		times(constant(0.4), within(0.5, ttft))),
		times(constant(0.2), within(0.05, itl)))
}

// dynamos are the rules of NeMo Agent Toolkit's stack for Dynamo, by which its dashboard
// compares engines.
func dynamos(s schema, window string) []rule {
	var rules []rule
	record := func(name string, q query) {
		rules = append(rules, rule{name, q.text, q})
		s.record(name, q)
	}
	share := func(part, whole string) query {
		by := []string{"instance", "model_name"}
		return div(sum(rate(s.series(part), window), by...), atLeast(sum(rate(s.series(whole), window), by...), 1e-6))
	}
	// Of each model: blocks of one rank's cache, times tokens in a block.
	capacity := renamed(times(
		most(s.series("dynamo_component_kvstats_total_blocks"), "model"),
		most(s.series("dynamo_frontend_model_kv_cache_block_size"), "model")),
		"model", "model_name")

	record("sglang:cache_hit_efficiency", share("sglang:cached_tokens_total", "sglang:prompt_tokens_total"))
	record("vllm:cache_hit_efficiency", share("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"))
	record("vllm:gen_throughput", rate(s.series("vllm:generation_tokens_total"), window))
	record("vllm:token_usage", s.series("vllm:kv_cache_usage_perc"))
	record("vllm:num_queue_reqs", s.series("vllm:num_requests_waiting"))
	record("vllm:num_running_reqs", s.series("vllm:num_requests_running"))
	record("vllm:num_used_tokens", timesOn("model_name", s.series("vllm:kv_cache_usage_perc"), capacity))
	return rules
}
