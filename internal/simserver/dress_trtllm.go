package simserver

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/simengine"
)

// trtllmFace is that of TensorRT-LLM's server, trtllm-serve.
type trtllmFace struct{}

var trtllmTraits = traits{
	version: "1.2.0+sim", anyModel: true, noRanks: true, noCards: true,
	usageDefault: true, alwaysCached: true,
	noticeStream: time.Second, noticeUnary: time.Second,
	stop: "stop_reason", usageNull: true,
}

func (trtllmFace) traits() *traits { return &trtllmTraits }

func (trtllmFace) route(_ *Server, path string) (string, handler) {
	switch path {
	case "/health", "/health_generate":
		return http.MethodGet, (*Server).serveHealth
	case "/version":
		return http.MethodGet, (*Server).serveVersion
	case "/server_info":
		return http.MethodGet, (*Server).serveTRTLLMInfo
	case "/kv_cache_events":
		return http.MethodPost, (*Server).serveQueuedEvents
	}
	return "", nil
}

func (trtllmFace) appendCard(b []byte, _ *Server, name, _ string) []byte {
	return append(appendModelCard(b, name, "tensorrt_llm"), '}')
}

func (trtllmFace) appendError(b []byte, e *apiError) []byte {
	if d := detail(e); d != "" {
		return append(b, d...)
	}
	if e.param != "" && e.status == http.StatusBadRequest { // what a validator says
		return append(openai.AppendString(append(b, `{"error":`...), e.message), '}')
	}
	return appendFlatError(b, e)
}

func (trtllmFace) appendStreamError(b []byte, _ *apiError) ([]byte, bool) { return b, false }

// trtllmMembers are the members that requests may have, sorted: those of both routes,
// and those of one.
var (
	trtllmMembers = sorted("model", "stream", "stream_options", "n", "max_tokens", "min_tokens", "temperature", "top_p", "top_k",
		"min_p", "top_p_min", "stop", "stop_token_ids", "seed", "logit_bias", "logprobs", "presence_penalty", "frequency_penalty",
		"repetition_penalty", "length_penalty", "early_stopping", "use_beam_search", "best_of", "ignore_eos", "user",
		"include_stop_str_in_output", "skip_special_tokens", "spaces_between_special_tokens", "truncate_prompt_tokens",
		"add_special_tokens", "response_format", "lora_request", "disaggregated_params", "cache_salt", "priority",
		"conversation_params", "echo", "detokenize", "return_context_logits", "prompt_ignore_length")
	trtllmChatMembers = sorted("messages", "top_logprobs", "tools", "tool_choice", "parallel_tool_calls", "reasoning_effort",
		"add_generation_prompt", "documents", "chat_template", "chat_template_kwargs", "mm_processor_kwargs", "media_io_kwargs",
		"prompt_token_ids")
	trtllmTextMembers = sorted("prompt", "suffix")
)

func sorted(names ...string) []string {
	slices.Sort(names)
	return names
}

func (trtllmFace) parse(s *Server, r *request, f *fields, _ http.Header) {
	own := trtllmTextMembers
	if r.chat {
		own = trtllmChatMembers
	}
	for i := range f.Len() {
		key, _ := f.At(i)
		_, shared := slices.BinarySearch(trtllmMembers, key)
		if _, ok := slices.BinarySearch(own, key); !shared && !ok {
			f.fail(badField(key, "Extra inputs are not permitted"))
		}
	}
	if v := f.Get("priority"); v.Present() {
		p, err := strconv.ParseFloat(string(v), 64)
		if err != nil || !(p >= 0 && p <= 1) {
			f.fail(badField("priority", "expected a number from 0 to 1, got %s", got(v)))
		}
		r.priority = trtllmPriority(p)
	} else {
		r.priority = trtllmPriority(0.5)
	}
	lora := f.object("lora_request")
	if v := lora.Get("lora_name"); v.Present() {
		name, _ := v.Text()
		if !slices.Contains(s.cfg.Adapters, name) {
			f.fail(badField("lora_request", "expected an adapter that is loaded, got %s", v))
		}
		r.adapter = name
	}
	r.returnIDs = false
}

// trtllmPriority makes a share into a whole number.
func trtllmPriority(p float64) int64 { return int64(math.Round(p * 1e9)) }

// serveTRTLLMInfo tells of what prefill and decode servers must know of each other;
// there are none here.
func (s *Server) serveTRTLLMInfo(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, []byte(`{"disaggregated_params":{}}`))
}

// serveQueuedEvents hands out the events that nobody has asked for.
func (s *Server) serveQueuedEvents(w http.ResponseWriter, r *http.Request) {
	events, ok := s.queuedEvents(r.Context())
	if !ok {
		events = []byte("[]")
	}
	writeJSON(w, http.StatusOK, events)
}

// maxIterations bounds what is kept for the metrics route of each rank.
const maxIterations = 1000

// iterated notes a pass for the metrics route. The caller holds the mutex.
func (r *rank) iterated(p *simengine.Pass) {
	cfg, load, batch := &r.server.cfg, r.engine.Load(), &p.Batch
	waiting := load.Waiting + len(r.inbox)
	r.waiting.Store(int64(waiting))
	queued := 0
	if r.index == 0 { // for all
		for _, other := range r.server.ranks {
			queued += int(other.waiting.Load())
		}
	}
	ended := 0
	for i := range p.Outputs {
		if p.Outputs[i].Done {
			ended++
		}
	}
	b := fmt.Appendf(nil, `{"iter":%d,"iterLatencyMS":%.3f,"numActiveRequests":%d,"numQueuedRequests":%d,"numCompletedRequests":%d`,
		r.passes, float64(p.Duration)/float64(time.Millisecond), load.Running, queued, ended)
	if cfg.Ranks > 1 {
		b = fmt.Appendf(b, `,"attentionDpRank":%d`, r.index)
	}
	var hitRate float64
	if r.stats.queries > 0 {
		hitRate = float64(r.stats.hits) / float64(r.stats.queries)
	}
	size := uint64(cfg.BlockSize)
	b = fmt.Appendf(b, `,"kvCacheStats":{"maxNumBlocks":%d,"freeNumBlocks":%d,"usedNumBlocks":%d,"tokensPerBlock":%d,"reusedBlocks":%d,"missedBlocks":%d,"cacheHitRate":%.4f}`,
		cfg.TotalBlocks, cfg.TotalBlocks-load.ActiveBlocks, load.ActiveBlocks, r.server.blockSize(),
		r.stats.hits/size, (r.stats.queries-r.stats.hits)/size, hitRate)
	b = fmt.Appendf(b, `,"inflightBatchingStats":{"numScheduledRequests":%d,"numContextRequests":%d,"numGenRequests":%d,"numPausedRequests":%d,"numQueuedContextRequests":%d,"numCtxTokens":%d}}`,
		batch.Prompts+batch.Decodes, batch.Prompts, batch.Decodes, p.Preempted, queued, batch.NewTokens())
	if len(r.iterations) == maxIterations {
		r.iterations = slices.Delete(r.iterations, 0, maxIterations/2) // the oldest
	}
	r.iterations = append(r.iterations, b)
}

// metrics hands out what was noted since it was asked for last.
func (trtllmFace) metrics(s *Server, w http.ResponseWriter) {
	b := []byte{'['}
	for _, r := range s.ranks {
		r.mu.Lock()
		rows := r.iterations
		r.iterations = nil
		r.mu.Unlock()
		for _, row := range rows {
			if len(b) > 1 {
				b = append(b, ',')
			}
			b = append(b, row...)
		}
	}
	writeJSON(w, http.StatusOK, append(b, ']'))
}
