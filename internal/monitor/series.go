package monitor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stator-ai/stator/internal/metrics"
)

// family is what is known of the series of one name.
type family struct {
	kind   metrics.FamilyType
	labels []string // those of the target included
	need   Need
	server bool      // its instance is a server of Stator's
	always []matcher // that every selector has
}

// Labels that Prometheus adds to whatever it scrapes.
var targetLabels = []string{"instance", "job"}

// foreign is a family that Stator does not expose.
type foreign struct {
	name   string
	kind   metrics.FamilyType
	labels string
}

// Of each engine, the families that are used here, as vLLM 0.26, SGLang 0.5 and llama.cpp's
// server expose them.
var (
	vllmFamilies = []foreign{
		{"vllm:num_requests_running", metrics.GaugeFamily, "engine model_name"},
		{"vllm:num_requests_waiting", metrics.GaugeFamily, "engine model_name"},
		{"vllm:kv_cache_usage_perc", metrics.GaugeFamily, "engine model_name"},
		{"vllm:generation_tokens_total", metrics.CounterFamily, "engine model_name"},
		{"vllm:prefix_cache_queries_total", metrics.CounterFamily, "engine model_name"},
		{"vllm:prefix_cache_hits_total", metrics.CounterFamily, "engine model_name"},
		{"vllm:time_to_first_token_seconds", metrics.HistogramFamily, "engine model_name"},
	}
	sglangFamilies = []foreign{
		{"sglang:num_running_reqs", metrics.GaugeFamily, "dp_rank engine_type model_name moe_ep_rank pp_rank tp_rank"},
		{"sglang:num_queue_reqs", metrics.GaugeFamily, "dp_rank engine_type model_name moe_ep_rank pp_rank tp_rank"},
		{"sglang:token_usage", metrics.GaugeFamily, "dp_rank engine_type model_name moe_ep_rank pp_rank tp_rank"},
		{"sglang:generation_tokens_total", metrics.CounterFamily, "dp_rank engine_type model_name moe_ep_rank pp_rank tp_rank"},
		{"sglang:prompt_tokens_total", metrics.CounterFamily, "dp_rank engine_type model_name moe_ep_rank pp_rank tp_rank"},
		{"sglang:cached_tokens_total", metrics.CounterFamily, "cache_source dp_rank engine_type model_name moe_ep_rank pp_rank tp_rank"},
		{"sglang:time_to_first_token_seconds", metrics.HistogramFamily, "dp_rank engine_type model_name moe_ep_rank pp_rank tp_rank"},
	}
	llamaFamilies = []foreign{
		{"llamacpp:requests_processing", metrics.GaugeFamily, ""},
		{"llamacpp:requests_deferred", metrics.GaugeFamily, ""},
		{"llamacpp:tokens_predicted_total", metrics.CounterFamily, ""},
	}
	// processFamilies are those of the client library that every server has on Linux.
	processFamilies = []foreign{
		{"go_goroutines", metrics.GaugeFamily, ""},
		{"go_memstats_heap_inuse_bytes", metrics.GaugeFamily, ""},
		{"process_cpu_seconds_total", metrics.CounterFamily, ""},
		{"process_open_fds", metrics.GaugeFamily, ""},
		{"process_resident_memory_bytes", metrics.GaugeFamily, ""},
		{"process_start_time_seconds", metrics.GaugeFamily, ""},
	}
	// prometheusFamilies are made by Prometheus itself.
	prometheusFamilies = []foreign{
		{"up", metrics.GaugeFamily, ""},
		{"ALERTS", metrics.GaugeFamily, "alertname alertstate severity"},
	}
)

// needs says which of Stator's families not every server that serves requests has series
// of. The longest beginning of a name counts.
var needs = map[string]Need{
	"thompson_router_decisions_total":  NeedLearning,
	"thompson_router_kv_overlap":       NeedLearning,
	"thompson_router_reward":           NeedLearning,
	"thompson_router_feedback_latency": NeedLearning,
	"thompson_router_beta_":            NeedReference,

	"stator_engine_":         NeedReports,
	"stator_engine_info":     NeedStator,
	"stator_engine_up":       NeedStator,
	"stator_engine_warning":  NeedIncident,
	"stator_engine_errors":   NeedIncident,
	"stator_event_":          NeedEvents,
	"stator_feed_":           NeedEvents,
	"stator_queue_":          NeedQueue,
	"stator_queue_left":      NeedIncident,
	"stator_shed_total":      NeedIncident,
	"stator_retries_total":   NeedIncident,
	"stator_feed_recoveries": NeedIncident,

	"dynamo_frontend_model_rejection":           NeedIncident,
	"dynamo_frontend_model_cancellation":        NeedIncident,
	"dynamo_frontend_router_queue_backpressure": NeedIncident,
}

func needOf(name string) Need {
	longest, need := 0, NeedStator
	for begin, n := range needs {
		if len(begin) > longest && strings.HasPrefix(name, begin) {
			longest, need = len(begin), n
		}
	}
	return need
}

// schema has every family that expressions may use, by name.
type schema map[string]family

func newSchema() schema {
	s := make(schema)
	for _, f := range metrics.Catalogue() {
		s[f.Name] = family{kind: f.Type, labels: slices.Concat(f.Labels, targetLabels), need: needOf(f.Name), server: true}
	}
	for need, all := range map[Need][]foreign{
		NeedStator: slices.Concat(processFamilies, prometheusFamilies),
		NeedVLLM:   vllmFamilies, NeedSGLang: sglangFamilies, NeedLlamaCpp: llamaFamilies,
	} {
		for _, f := range all {
			s[f.name] = family{kind: f.kind, labels: slices.Concat(strings.Fields(f.labels), targetLabels), need: need}
		}
	}
	return s
}

// chosen is the schema for a dashboard: of what servers expose, only the series of those that
// are chosen there.
func (s schema) chosen() schema {
	out := maps.Clone(s)
	for name, f := range out {
		if f.server {
			f.always = []matcher{someServer}
			out[name] = f
		}
	}
	return out
}

// record adds a family that a rule records.
func (s schema) record(name string, q query) {
	s[name] = family{kind: metrics.GaugeFamily, labels: slices.Clone(q.labels), need: q.need}
}

// find returns a family as the name of one of its series has it: those of a histogram end
// in _bucket, _sum and _count, which are counters.
func (s schema) find(series string) (family, error) {
	if f, ok := s[series]; ok {
		if f.kind == metrics.HistogramFamily {
			return f, fmt.Errorf("series %s: expected _bucket, _sum or _count of a histogram", series)
		}
		return f, nil
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		name, ok := strings.CutSuffix(series, suffix)
		f, there := s[name]
		if !ok || !there || f.kind != metrics.HistogramFamily {
			continue
		}
		f.kind = metrics.CounterFamily
		if suffix == "_bucket" {
			f.labels = append(slices.Clone(f.labels), "le")
		}
		return f, nil
	}
	return family{}, fmt.Errorf("series %s: nobody exposes or records it", series)
}
