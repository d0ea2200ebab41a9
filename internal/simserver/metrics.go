package simserver

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stator-ai/stator/internal/simengine"
)

// snapshot is what a rank is doing and has counted.
type snapshot struct {
	stats
	running, waiting    int // sequences
	active, total, size int // blocks in use, blocks, tokens in one
	context             int // longest prompt and answer
	queuedTokens        int // of prompts that never ran
	passes              uint64
	lag                 time.Duration
}

func (s *snapshot) usage() float64 { return float64(s.active) / float64(s.total) }

// snapshot returns the state of the rank. While a pass is under way it is that of
// the pass, not that of its end.
func (r *rank) snapshot() snapshot {
	cfg := &r.server.cfg
	out := snapshot{total: cfg.TotalBlocks, size: cfg.BlockSize, context: cfg.ContextLength}
	if cfg.Engine == nil {
		r.server.mu.Lock()
		out.running = r.booked
		r.server.mu.Unlock()
	}
	if cfg.Clock == nil {
		out.lag = r.late.worst(r.server.now())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out.stats = r.stats.clone()
	if r.engine == nil {
		return out
	}
	load := r.engine.Load()
	out.queuedTokens, out.passes = r.unstarted, r.passes
	out.running, out.waiting, out.active = load.Running, load.Waiting+len(r.inbox), load.ActiveBlocks
	if r.pass != nil {
		out.active = r.pass.Batch.ActiveBlocks
		for i := range r.pass.Outputs {
			if r.pass.Outputs[i].Done {
				out.running++
			}
		}
	}
	return out
}

// series is a counter or a gauge that every rank has.
type series struct {
	name, kind, help string
	label            string // besides those of the rank, if any
	value            func(*snapshot) float64
}

// distribution is a histogram that every rank has.
type distribution struct {
	name, help string
	value      func(*snapshot) *histogram
}

func count(n uint64) float64 { return float64(n) }

var vllmSeries = []series{
	{"vllm:num_requests_running", "gauge", "Requests being answered.", "", func(s *snapshot) float64 { return float64(s.running) }},
	{"vllm:num_requests_waiting", "gauge", "Requests waiting to be answered.", "", func(s *snapshot) float64 { return float64(s.waiting) }},
	{"vllm:kv_cache_usage_perc", "gauge", "Share of KV blocks in use, 0 to 1.", "", (*snapshot).usage},
	{"vllm:gpu_cache_usage_perc", "gauge", "The same under its older name.", "", (*snapshot).usage},
	{"vllm:num_preemptions_total", "counter", "Requests that lost their blocks.", "", func(s *snapshot) float64 { return count(s.preemptions) }},
	{"vllm:prompt_tokens_total", "counter", "Prompt tokens processed.", "", func(s *snapshot) float64 { return count(s.promptTokens) }},
	{"vllm:prompt_tokens_cached_total", "counter", "Prompt tokens found in the cache.", "", func(s *snapshot) float64 { return count(s.hits) }},
	{"vllm:generation_tokens_total", "counter", "Tokens generated.", "", func(s *snapshot) float64 { return count(s.generated) }},
	{"vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked for in the cache.", "", func(s *snapshot) float64 { return count(s.queries) }},
	{"vllm:prefix_cache_hits_total", "counter", "Prompt tokens found in the cache.", "", func(s *snapshot) float64 { return count(s.hits) }},
	{"vllm:request_success_total", "counter", "Requests that ended, by reason.", `finished_reason="stop"`, func(s *snapshot) float64 { return count(s.finished[endStop]) }},
	{"vllm:request_success_total", "counter", "", `finished_reason="length"`, func(s *snapshot) float64 { return count(s.finished[endLength]) }},
	{"vllm:request_success_total", "counter", "", `finished_reason="abort"`, func(s *snapshot) float64 { return count(s.finished[endAbort]) }},
	lagSeries,
}

var vllmDistributions = []distribution{
	{"vllm:time_to_first_token_seconds", "Time to the first token.", func(s *snapshot) *histogram { return &s.ttft }},
	{"vllm:inter_token_latency_seconds", "Time between two tokens.", func(s *snapshot) *histogram { return &s.itl }},
	{"vllm:time_per_output_token_seconds", "The same under its older name.", func(s *snapshot) *histogram { return &s.itl }},
	{"vllm:e2e_request_latency_seconds", "Time to the last token.", func(s *snapshot) *histogram { return &s.e2e }},
	{"vllm:request_queue_time_seconds", "Time until a request began to run.", func(s *snapshot) *histogram { return &s.queued }},
}

var sglangSeries = []series{
	{"sglang:num_running_reqs", "gauge", "Requests being answered.", "", func(s *snapshot) float64 { return float64(s.running) }},
	{"sglang:num_queue_reqs", "gauge", "Requests waiting to be answered.", "", func(s *snapshot) float64 { return float64(s.waiting) }},
	{"sglang:num_used_tokens", "gauge", "Tokens of the KV cache in use.", "", func(s *snapshot) float64 { return float64(s.active * s.size) }},
	{"sglang:token_usage", "gauge", "Share of the KV cache in use, 0 to 1.", "", (*snapshot).usage},
	{"sglang:full_token_usage", "gauge", "Share of the full attention's KV cache in use, 0 to 1.", "", (*snapshot).usage},
	{"sglang:max_total_num_tokens", "gauge", "Tokens that the KV cache holds.", "", func(s *snapshot) float64 { return float64(s.total * s.size) }},
	{"sglang:page_size", "gauge", "Tokens in a page of the KV cache.", "", func(s *snapshot) float64 { return float64(s.size) }},
	{"sglang:num_pages", "gauge", "Pages of the KV cache.", "", func(s *snapshot) float64 { return float64(s.total) }},
	{"sglang:context_len", "gauge", "Longest prompt and answer, in tokens.", "", func(s *snapshot) float64 { return float64(s.context) }},
	{"sglang:cache_hit_rate", "gauge", "Share of the latest prompts found in the cache.", "", func(s *snapshot) float64 { return s.hitRate }},
	{"sglang:gen_throughput", "gauge", "Tokens generated per second.", "", func(s *snapshot) float64 { return s.throughput }},
	{"sglang:prompt_tokens_total", "counter", "Prompt tokens processed.", "", func(s *snapshot) float64 { return count(s.promptTokens) }},
	{"sglang:generation_tokens_total", "counter", "Tokens generated.", "", func(s *snapshot) float64 { return count(s.generated) }},
	{"sglang:cached_tokens_total", "counter", "Prompt tokens found in the cache.", `cache_source="device"`, func(s *snapshot) float64 { return count(s.hits) }},
	{"sglang:num_retracted_requests_total", "counter", "Requests that lost their pages.", "", func(s *snapshot) float64 { return count(s.preemptions) }},
	{"sglang:num_requests_total", "counter", "Requests that were answered.", "", func(s *snapshot) float64 { return float64(s.finished[endStop] + s.finished[endLength]) }},
	{"sglang:num_aborted_requests_total", "counter", "Requests whose client went away.", "", func(s *snapshot) float64 { return count(s.finished[endAbort]) }},
	lagSeries,
}

var sglangDistributions = []distribution{
	{"sglang:time_to_first_token_seconds", "Time to the first token.", func(s *snapshot) *histogram { return &s.ttft }},
	{"sglang:inter_token_latency_seconds", "Time between two tokens.", func(s *snapshot) *histogram { return &s.itl }},
	{"sglang:e2e_request_latency_seconds", "Time to the last token.", func(s *snapshot) *histogram { return &s.e2e }},
	{"sglang:queue_time_seconds", "Time until a request began to run.", func(s *snapshot) *histogram { return &s.queued }},
}

// lagSeries is ours: what it measures is not the engine's fault.
var lagSeries = series{"stator_sim_lag_seconds", "gauge", "How much later than modelled tokens came in the last seconds, at worst, because this machine was too slow.", "",
	func(s *snapshot) float64 { return s.lag.Seconds() }}

// serveMetrics tells what the ranks do under the names that the engine has for it.
func (s *Server) serveMetrics(w http.ResponseWriter, _ *http.Request) { s.face.metrics(s, w) }

// prometheus writes the series of an engine of that kind.
func (s *Server) prometheus(w http.ResponseWriter, kind simengine.Kind) {
	e := exposition{ranks: make([]snapshot, len(s.ranks)), labels: make([]string, len(s.ranks))}
	model := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s.cfg.Model)
	sglang := kind == simengine.SGLang
	for i, r := range s.ranks {
		e.ranks[i] = r.snapshot()
		e.labels[i] = fmt.Sprintf(`engine="%d",model_name="%s"`, i, model)
		if sglang {
			e.labels[i] = fmt.Sprintf(`model_name="%s",engine_type="unified",tp_rank="0",pp_rank="0",moe_ep_rank="0",dp_rank="%d"`, model, i)
		}
	}
	if sglang {
		e.series(sglangSeries)
		e.distributions(sglangDistributions)
	} else {
		e.series(vllmSeries)
		e.distributions(vllmDistributions)
		s.cacheConfig(&e)
	}
	e.send(w)
}

// send answers a request with the series.
func (e *exposition) send(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(e.text)))
	w.Write(e.text)
}

// cacheConfig tells the size of the cache in labels. The number of blocks is that
// of all ranks together, on each of them.
func (s *Server) cacheConfig(e *exposition) {
	const name = "vllm:cache_config_info"
	e.head(name, "gauge", "The KV cache.")
	caching := "False"
	if s.cfg.Engine != nil && !s.cfg.Engine.NoPrefixCaching {
		caching = "True"
	}
	blocks, more := s.cfg.TotalBlocks, ""
	if s.cfg.Dress == DressVLLM {
		blocks++ // one is never used
		more = `cache_dtype="auto",cpu_offload_gb="0.0",`
	}
	for i := range s.ranks {
		e.sample(name, fmt.Sprintf(`block_size="%d",%senable_prefix_caching="%s",engine="%d",num_gpu_blocks="%d"`,
			s.blockSize(), more, caching, i, blocks*s.cfg.Ranks), 1)
	}
	if s.cfg.Dress == DressVLLM {
		const started = "process_start_time_seconds"
		e.head(started, "gauge", "Start time of the process since unix epoch in seconds.")
		e.text = fmt.Appendf(e.text, "%s %.6f\n", started, unixSeconds(s.life.now.Load().began))
	}
}

// exposition writes the series of some ranks in Prometheus' text format.
type exposition struct {
	ranks  []snapshot
	labels []string // of each rank
	text   []byte
}

func (e *exposition) series(all []series) {
	for i := range all {
		s := &all[i]
		if i == 0 || s.name != all[i-1].name {
			e.head(s.name, s.kind, s.help)
		}
		for r := range e.ranks {
			labels := e.labels[r]
			if s.label != "" {
				labels += "," + s.label
			}
			e.sample(s.name, labels, s.value(&e.ranks[r]))
		}
	}
}

func (e *exposition) distributions(all []distribution) {
	for i := range all {
		d := &all[i]
		e.head(d.name, "histogram", d.help)
		for r := range e.ranks {
			h := d.value(&e.ranks[r])
			var n uint64
			for b, bound := range h.bounds {
				n += h.counts[b]
				e.sample(d.name+"_bucket", e.labels[r]+`,le="`+strconv.FormatFloat(bound, 'g', -1, 64)+`"`, float64(n))
			}
			n += h.counts[len(h.bounds)]
			e.sample(d.name+"_bucket", e.labels[r]+`,le="+Inf"`, float64(n))
			e.sample(d.name+"_sum", e.labels[r], h.sum.Seconds())
			e.sample(d.name+"_count", e.labels[r], float64(n))
		}
	}
}

func (e *exposition) head(name, kind, help string) {
	e.text = fmt.Appendf(e.text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (e *exposition) sample(name, labels string, value float64) {
	e.text = append(e.text, name...)
	if labels != "" {
		e.text = append(e.text, '{')
		e.text = append(e.text, labels...)
		e.text = append(e.text, '}')
	}
	e.text = append(e.text, ' ')
	e.text = strconv.AppendFloat(e.text, value, 'g', -1, 64)
	e.text = append(e.text, '\n')
}
