package collect

import (
	"fmt"
	"slices"
	"strings"
)

// Field names a number that is collected, as results call it.
type Field string

// The fields, in the order of results.
const (
	InflightFrontend     Field = "inflight_requests_frontend"
	InflightWorker       Field = "inflight_requests_worker"
	QueuedRequests       Field = "queued_requests"
	RequestsPerMinute    Field = "requests_per_minute"
	TTFTP50              Field = "ttft_p50"
	TTFTP95              Field = "ttft_p95"
	TTFTP99              Field = "ttft_p99"
	ITLP50               Field = "itl_p50"
	ITLP95               Field = "itl_p95"
	ITLP99               Field = "itl_p99"
	KVECachedTokensRate  Field = "kve_cached_tokens_rate"
	KVEPromptTokensRate  Field = "kve_prompt_tokens_rate"
	KVEDeviceBlocksRate  Field = "kve_device_blocks_rate"
	KVEHostBlocksRate    Field = "kve_host_blocks_rate"
	KVEDiskBlocksRate    Field = "kve_disk_blocks_rate"
	KVCacheUsagePercent  Field = "kv_cache_usage_percent"
	KVHitRateSGLang      Field = "kv_cache_hit_rate_sglang"
	KVHitRateDynamo      Field = "kv_cache_hit_rate_dynamo"
	TokenThroughput      Field = "token_throughput"
	SGLangThroughput     Field = "sglang_gen_throughput"
	SGLangRunning        Field = "sglang_running_requests"
	SGLangQueueDepth     Field = "sglang_queue_depth"
	SGLangUtilization    Field = "sglang_utilization"
	ThompsonDecisionRate Field = "thompson_routing_decisions_rate"
	ThompsonRequestRate  Field = "thompson_requests_rate"
)

// Group is a part of the fields that a [Config] turns on and off.
type Group string

// The groups. GroupAlways cannot be turned off.
const (
	GroupInflight        Group = "inflight"
	GroupThroughput      Group = "throughput"
	GroupTTFT            Group = "ttft"
	GroupITL             Group = "itl"
	GroupKVCache         Group = "kv_cache"
	GroupTokenThroughput Group = "token_throughput"
	GroupAlways          Group = "always"
)

// fieldSpec is how a field is asked for.
type fieldSpec struct {
	field Field
	group Group
	unit  string
	// nat is the query of NeMo Agent Toolkit. sound are expressions for the whole fleet, the
	// first that has a number counts; see template for what is replaced in them.
	nat   string
	sound []template
}

// isField reports whether a name is that of a field.
func isField(name string) bool {
	return slices.ContainsFunc(fields, func(s fieldSpec) bool { return string(s.field) == name })
}

// fields is every field in order.
//
// Labels differ: what Dynamo and Stator publish has model, what engines publish has
// model_name. SGLang may publish the same number from each part of a rank, and with
// priorities a total, whose label is empty, beside its parts.
//
// Fields of engines that are not scraped end with what Stator knows of them: what they told
// it, and then what it sent there itself or has waiting, which servers have apart.
var fields = slices.Concat(
	[]fieldSpec{
		{InflightFrontend, GroupInflight, "requests", "dynamo_frontend_inflight_requests", []template{
			"sum(dynamo_frontend_inflight_requests{$model})",
			"sum(dynamo_frontend_active_requests{$model})",
		}},
		// Each hop of a request counts it. The workers of Dynamo's Thompson setup have a
		// namespace of their own; elsewhere a worker's endpoint is generate.
		{InflightWorker, GroupInflight, "requests", "dynamo_component_inflight_requests", []template{
			`sum(dynamo_component_inflight_requests{dynamo_namespace="workers",$model})`,
			`sum(dynamo_component_inflight_requests{dynamo_endpoint=~"generate|",$model})`,
		}},
		{QueuedRequests, GroupInflight, "requests", "dynamo_frontend_queued_requests", []template{
			"sum(dynamo_frontend_queued_requests{$model})",
		}},
		{RequestsPerMinute, GroupThroughput, "req/min", "rate(dynamo_frontend_requests_total[{range}]) * 60", []template{
			"sum(rate(dynamo_frontend_requests_total{$model}[{range}])) * 60",
		}},
	},
	quantiles(GroupTTFT, "time_to_first_token_seconds", TTFTP50, TTFTP95, TTFTP99),
	quantiles(GroupITL, "inter_token_latency_seconds", ITLP50, ITLP95, ITLP99),
	[]fieldSpec{
		rateOf(KVECachedTokensRate, GroupKVCache, "tok/s", "dynamo_component_thompson_kve_cached_tokens_total", "stator_kve_cached_tokens_total"),
		rateOf(KVEPromptTokensRate, GroupKVCache, "tok/s", "dynamo_component_thompson_kve_prompt_tokens_total", "stator_kve_prompt_tokens_total"),
		rateOf(KVEDeviceBlocksRate, GroupKVCache, "blocks/s", "dynamo_component_thompson_kve_device_blocks_total"),
		rateOf(KVEHostBlocksRate, GroupKVCache, "blocks/s", "dynamo_component_thompson_kve_host_blocks_total"),
		rateOf(KVEDiskBlocksRate, GroupKVCache, "blocks/s", "dynamo_component_thompson_kve_disk_blocks_total"),
		// The first is from 0 to 100, the others from 0 to 1.
		{KVCacheUsagePercent, GroupKVCache, "%", "dynamo_component_kvstats_gpu_cache_usage_percent", []template{
			"avg(dynamo_component_kvstats_gpu_cache_usage_percent{$model})",
			"avg(dynamo_component_gpu_cache_usage_percent{$model}) * 100",
			"avg(vllm:kv_cache_usage_perc{$served}) * 100",
			"avg(sglang:token_usage{$served}) * 100",
			perEngine("avg", "stator_engine_kv_usage") + " * 100",
		}},
		{KVHitRateSGLang, GroupKVCache, "", "sglang:cache_hit_rate", []template{
			"avg(sglang:cache_hit_rate{$served})",
			kveOf("sglang:cached_tokens_total", "sglang:prompt_tokens_total", "$served"),
			kveOf("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total", "$served"),
			"avg(dynamo_component_kvstats_gpu_prefix_cache_hit_rate{$model})",
		}},
		{KVHitRateDynamo, GroupKVCache, "", "dynamo_component_kvstats_gpu_prefix_cache_hit_rate", []template{
			"avg(dynamo_component_kvstats_gpu_prefix_cache_hit_rate{$model})",
			"avg(dynamo_component_kv_cache_hit_rate{$model})",
		}},
		rateOf(TokenThroughput, GroupTokenThroughput, "tok/s", "dynamo_frontend_output_tokens_total"),
		{SGLangThroughput, GroupTokenThroughput, "tok/s", "sglang:gen_throughput", []template{
			perRank("sglang:gen_throughput"),
			"sum(rate(vllm:generation_tokens_total{$served}[{range}]))",
			"sum(rate(llamacpp:tokens_predicted_total{$model}[{range}]))",
			"sum(rate(dynamo_frontend_output_tokens_total{$model}[{range}]))",
		}},
		{SGLangRunning, GroupAlways, "requests", "sglang:num_running_reqs", []template{
			perRank("sglang:num_running_reqs"),
			"sum(vllm:num_requests_running{$served})",
			"sum(llamacpp:requests_processing{$model})",
			perEngine("sum", "stator_engine_running_requests"),
			"sum(stator_worker_active_requests{$model})",
		}},
		{SGLangQueueDepth, GroupAlways, "requests", "sglang:num_queue_reqs", []template{
			perRank("sglang:num_queue_reqs"),
			"sum(vllm:num_requests_waiting{$served})",
			"sum(llamacpp:requests_deferred{$model})",
			perEngine("sum", "stator_engine_waiting_requests"),
			"sum(dynamo_frontend_router_queue_pending_requests{$model})",
		}},
		// SGLang leaves its own number at 0 unless it was told a latency to keep.
		{SGLangUtilization, GroupAlways, "", "sglang:utilization", []template{
			"avg(sglang:utilization{$served}) > 0",
			"avg(sglang:token_usage{$served})",
			"avg(vllm:kv_cache_usage_perc{$served})",
			"avg(sglang:utilization{$served})",
			perEngine("avg", "stator_engine_kv_usage"),
			"avg(dynamo_component_kvstats_gpu_cache_usage_percent{$model}) / 100",
		}},
		rateOf(ThompsonDecisionRate, GroupAlways, "1/s", "dynamo_component_thompson_routing_decisions_total"),
		rateOf(ThompsonRequestRate, GroupAlways, "1/s", "dynamo_component_thompson_requests_total"),
	},
)

// rateOf is the field that is the rate of a counter of Dynamo, or else of others that count
// the same.
func rateOf(f Field, g Group, unit, counter string, others ...string) fieldSpec {
	s := fieldSpec{field: f, group: g, unit: unit, nat: "rate(" + counter + "[{range}])"}
	for _, c := range append([]string{counter}, others...) {
		s.sound = append(s.sound, template("sum(rate("+c+"{$model}[{range}]))"))
	}
	return s
}

// quantiles are the fields for the 50th, 95th and 99th percentile of a latency, which
// frontends publish and engines, too.
func quantiles(g Group, latency string, p50, p95, p99 Field) []fieldSpec {
	one := func(f Field, q string) fieldSpec {
		s := fieldSpec{field: f, group: g, unit: "s",
			nat: fmt.Sprintf("histogram_quantile(%s, rate(dynamo_frontend_%s_bucket[{range}]))", q, latency)}
		for _, of := range []string{"dynamo_frontend_%s_bucket{$model}", "vllm:%s_bucket{$served}", "sglang:%s_bucket{$served}"} {
			s.sound = append(s.sound, template(fmt.Sprintf("histogram_quantile(%s, sum by (le) (rate(%s[{range}])))", q, fmt.Sprintf(of, latency))))
		}
		return s
	}
	return []fieldSpec{one(p50, "0.50"), one(p95, "0.95"), one(p99, "0.99")}
}

// perRank sums a gauge of SGLang, each data-parallel rank taken once.
func perRank(gauge string) template {
	return template(`sum(max without (tp_rank, pp_rank, moe_ep_rank) (` + gauge + `{priority="",$served}))`)
}

// perEngine sums up a gauge that Stator publishes of what an engine said about a rank. Two
// servers may have asked the same engine, which is counted once: engines are told apart by
// their ids, as servers tell them apart.
func perEngine(how, gauge string) template {
	return template(how + "(max by (worker_id, dp_rank) (" + gauge + "{$model}))")
}

// kveSource is a way to find out which part of the prompts' tokens was cached: both numbers
// in one expression, so that they are of the same time.
type kveSource struct {
	name string
	expr template
}

// The names of the sources of KV efficiency that NeMo Agent Toolkit has, too.
const (
	sourceKVE      = "kve"
	sourceFallback = "sglang_fallback"
)

// kveSources are tried in this order. What the server itself counted comes first, and
// numbers of engines follow; the gauge of SGLang tells of its latest batch only. What
// llama.cpp counts are prompt tokens that it had to compute, which says how many of the
// frontend's it did not have to, if nothing else is behind it.
var kveSources = []kveSource{
	{sourceKVE, kveOf("dynamo_component_thompson_kve_cached_tokens_total", "dynamo_component_thompson_kve_prompt_tokens_total", "$model")},
	{sourceKVE, kveOf("stator_kve_cached_tokens_total", "stator_kve_prompt_tokens_total", "$model")},
	{"dynamo_frontend", kveOf("dynamo_frontend_cached_tokens_sum", "dynamo_frontend_input_sequence_tokens_sum", "$model")},
	{"vllm", kveOf("vllm:prompt_tokens_cached_total", "vllm:prompt_tokens_total", "$served")},
	{"vllm", "(sum(rate(vllm:request_prompt_tokens_sum{$served}[{range}]))" +
		" - sum(rate(vllm:request_prefill_kv_computed_tokens_sum{$served}[{range}])))" +
		" / sum(rate(vllm:request_prompt_tokens_sum{$served}[{range}]))"},
	{"vllm", kveOf("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total", "$served")},
	{"sglang", kveOf("sglang:cached_tokens_total", "sglang:prompt_tokens_total", "$served")},
	{sourceFallback, "avg(sglang:cache_hit_rate{$served})"},
	{"llamacpp", "clamp_min(1 - sum(rate(llamacpp:prompt_tokens_total{$model}[{range}]))" +
		" / sum(rate(dynamo_frontend_input_sequence_tokens_sum{$model}[{range}])), 0)"},
}

func kveOf(cached, prompt, labels string) template {
	return template(fmt.Sprintf("sum(rate(%s{%s}[{range}])) / sum(rate(%s{%s}[{range}]))", cached, labels, prompt, labels))
}

// Query is a field and how it is asked for.
type Query struct {
	Field Field
	Group Group
	Unit  string // empty for what has none
	// PromQL is the expression at the latest moment. There may be others that are tried
	// when it has no number.
	PromQL string
}

// Plan returns the fields that c collects, in order, with the first expression of each.
func (c *Config) Plan() []Query {
	var out []Query
	for _, s := range fields {
		if !c.collects(s.group) {
			continue
		}
		q := Query{Field: s.field, Group: s.group, Unit: s.unit}
		if c.Compat == NAT {
			q.PromQL = strings.ReplaceAll(s.nat, rangeMark, c.QueryRange)
		} else {
			q.PromQL = s.sound[0].query(c, c.QueryRange)
		}
		out = append(out, q)
	}
	return out
}
