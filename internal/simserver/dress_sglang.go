package simserver

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/simengine"
)

// sglangFace is that of SGLang's server, release 0.5.18.
type sglangFace struct{}

var sglangTraits = traits{
	version: "0.5.18+sim", healthFor: time.Second, doneAfterError: true,
	noticeStream: 2 * time.Second, noticeUnary: 4 * time.Second,
	roleFirst: true, finishApart: true, stop: "matched_stop", stopToken: true, usageNull: true,
	tokenIDs: true, reasoning: true, detokenized: "text",
}

func (sglangFace) traits() *traits { return &sglangTraits }

func (sglangFace) route(_ *Server, path string) (string, handler) {
	switch path {
	case "/health", "/health_generate":
		return http.MethodGet, (*Server).serveHealth
	case "/ping":
		return "GET, POST", (*Server).servePing
	case "/model_info", "/get_model_info":
		return http.MethodGet, (*Server).serveModelInfo
	case "/server_info", "/get_server_info":
		return http.MethodGet, (*Server).serveSGLangInfo
	case "/v1/loads":
		return http.MethodGet, (*Server).serveLoads
	case "/tokenize", "/v1/tokenize":
		return http.MethodPost, (*Server).serveTokenize
	case "/detokenize", "/v1/detokenize":
		return http.MethodPost, (*Server).serveDetokenize
	case "/flush_cache":
		return "GET, POST", (*Server).serveFlushCache
	case "/abort_request":
		return http.MethodPost, (*Server).serveAbortRequest
	}
	return "", nil
}

func (sglangFace) appendCard(b []byte, s *Server, name, parent string) []byte {
	b = appendModelCard(b, name, "sglang")
	b = append(b, `,"root":`...)
	b = openai.AppendString(b, name)
	b = append(b, `,"parent":`...)
	if parent == "" {
		b = append(b, "null"...)
	} else {
		b = openai.AppendString(b, parent)
	}
	return fmt.Appendf(b, `,"max_model_len":%d}`, s.cfg.ContextLength)
}

func (sglangFace) appendError(b []byte, e *apiError) []byte {
	if d := detail(e); d != "" {
		return append(b, d...)
	}
	return appendFlatError(b, e)
}

func (sglangFace) appendStreamError(b []byte, e *apiError) ([]byte, bool) {
	b = append(b, `{"error":`...)
	return append(appendFlatError(b, e), '}'), true
}

// appendFlatError appends an error that is not inside of an object.
func appendFlatError(b []byte, e *apiError) []byte {
	b = append(b, `{"object":"error","message":`...)
	b = openai.AppendString(b, e.message)
	b = fmt.Appendf(b, `,"type":"%s","param":`, errorType(e.status))
	if e.param == "" {
		b = append(b, "null"...)
	} else {
		b = openai.AppendString(b, e.param)
	}
	return fmt.Appendf(b, `,"code":%d}`, e.status)
}

func (sglangFace) parse(s *Server, r *request, f *fields, _ http.Header) {
	r.priority = s.priority(f, false /* low first */)
	r.rid = randomID("")
	if v := f.Get("rid"); v.Present() {
		var ok bool
		if r.rid, ok = v.Text(); !ok || r.rid == "" {
			f.fail(badField("rid", "expected a string that is not empty, got %s", got(v)))
		}
	}
	r.id = r.rid
	if v := f.Get("lora_path"); v.Present() {
		name, _ := v.Text()
		if !slices.Contains(s.cfg.Adapters, name) {
			f.fail(badField("lora_path", "expected an adapter that is loaded, got %s", v))
		}
		r.adapter = name
	}
	if r.chat && r.stream && r.returnIDs {
		f.fail(badField("return_token_ids", "expected false in a chat that is streamed"))
	}
}

func (sglangFace) metrics(s *Server, w http.ResponseWriter) { s.prometheus(w, simengine.SGLang) }

func (s *Server) serveModelInfo(w http.ResponseWriter, _ *http.Request) {
	b := openai.AppendString([]byte(`{"model_path":`), s.cfg.Model)
	b = append(b, `,"tokenizer_path":`...)
	b = openai.AppendString(b, s.cfg.Model)
	writeJSON(w, http.StatusOK, append(b, `,"is_generation":true,"weight_version":"default"}`...))
}

// serveSGLangInfo tells the settings of the engine.
func (s *Server) serveSGLangInfo(w http.ResponseWriter, _ *http.Request) {
	c := &s.cfg
	seqs, radix := 256, c.Engine != nil && !c.Engine.NoPrefixCaching
	if c.Engine != nil && c.Engine.MaxSeqs > 0 {
		seqs = c.Engine.MaxSeqs
	}
	_, mute := s.faults.on(FaultNoCached)
	page := s.blockSize()
	b := openai.AppendString([]byte(`{"model_path":`), c.Model)
	b = append(b, `,"served_model_name":`...)
	b = openai.AppendString(b, c.Model)
	b = fmt.Appendf(b, `,"version":"%s","context_length":%d,"page_size":%d,"max_total_num_tokens":%d`,
		sglangTraits.version, c.ContextLength, page, c.TotalBlocks*c.BlockSize)
	b = fmt.Appendf(b, `,"chunked_prefill_size":%d,"max_prefill_tokens":16384,"max_running_requests":%d,"dp_size":%d,"tp_size":1,"enable_dp_attention":%t`,
		c.chunk(), seqs, c.Ranks, c.Ranks > 1)
	b = fmt.Appendf(b, `,"disable_radix_cache":%t,"enable_cache_report":%t,"enable_metrics":true`, !radix, !mute)
	b = fmt.Appendf(b, `,"schedule_policy":"fcfs","enable_priority_scheduling":%t,"schedule_low_priority_values_first":false,"radix_eviction_policy":"lru"`, c.PriorityScheduling)
	b = append(b, `,"disaggregation_mode":"null","disaggregation_bootstrap_port":8998,"speculative_algorithm":null,"kv_events_config":`...)
	b = s.appendQuoted(b)
	b = append(b, `,"kv_events":`...)
	b = s.appendEvents(b, page)
	// Which is drawn when it starts.
	b = fmt.Appendf(b, `,"random_seed":%d,"internal_states":[`, s.life.now.Load().began.UnixNano()/1000&(1<<30-1))
	for i := range s.ranks {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"effective_max_running_requests_per_dp":%d,"last_gen_throughput":%s}`,
			seqs, strconv.FormatFloat(s.ranks[i].snapshot().throughput, 'f', 2, 64))
	}
	writeJSON(w, http.StatusOK, append(b, "]}"...))
}

// appendQuoted appends how events are published as a string of JSON, or null.
func (s *Server) appendQuoted(b []byte) []byte {
	config := s.appendEventsConfig(nil)
	if string(config) == "null" {
		return append(b, config...)
	}
	return openai.AppendString(b, config)
}

// appendEvents appends where events are published, or null.
func (s *Server) appendEvents(b []byte, page int) []byte {
	publish, _ := s.EventAddrs()
	if len(publish) == 0 {
		return append(b, "null"...)
	}
	host, port, err := splitAddr(publish[0])
	if err != nil {
		return append(b, "null"...)
	}
	if host == "::" || host == "0.0.0.0" {
		host = "*"
	}
	b = append(b, `{"publisher":"zmq","endpoint_host":`...)
	b = openai.AppendString(b, host)
	b = fmt.Appendf(b, `,"endpoint_port_base":%d,"topic":`, port)
	b = openai.AppendString(b, s.cfg.Publish.Topic)
	return fmt.Appendf(b, `,"block_size":%d,"dp_size":%d}`, page, s.cfg.Ranks)
}

// serveLoads tells what the ranks have to do, all or one of them.
func (s *Server) serveLoads(w http.ResponseWriter, r *http.Request) {
	only := -1
	if v := r.URL.Query().Get("dp_rank"); v != "" {
		var err error
		if only, err = strconv.Atoi(v); err != nil || only < 0 || only >= len(s.ranks) {
			s.fail(w, badField("dp_rank", "expected a rank from 0 to %d, got %.40s", len(s.ranks)-1, v))
			return
		}
	}
	seqs := 256
	if e := s.cfg.Engine; e != nil && e.MaxSeqs > 0 {
		seqs = e.MaxSeqs
	}
	b := fmt.Appendf(nil, `{"timestamp":"%s","version":"%s","dp_rank_count":%d,"loads":[`,
		time.Now().UTC().Format(time.RFC3339Nano), sglangTraits.version, len(s.ranks))
	some := false
	for i, rank := range s.ranks {
		if only >= 0 && i != only {
			continue
		}
		if some {
			b = append(b, ',')
		}
		some = true
		l := rank.snapshot()
		b = fmt.Appendf(b, `{"dp_rank":%d,"num_running_reqs":%d,"num_waiting_reqs":%d,"num_waiting_uncached_tokens":%d,"num_used_tokens":%d,"num_total_tokens":%d,"max_total_num_tokens":%d,"max_running_requests":%d,"token_usage":%.4f,"gen_throughput":%.2f,"cache_hit_rate":%.4f,"utilization":%.4f}`,
			i, l.running, l.waiting, l.queuedTokens, l.active*l.size, l.active*l.size+l.queuedTokens, l.total*l.size, seqs,
			l.usage(), l.throughput, l.hitRate, float64(l.running)/float64(seqs))
	}
	writeJSON(w, http.StatusOK, append(b, "]}"...))
}

// serveFlushCache empties the caches if nothing uses them. It can be told to wait for
// that.
func (s *Server) serveFlushCache(w http.ResponseWriter, r *http.Request) {
	patience, _ := strconv.ParseFloat(r.URL.Query().Get("timeout"), 64)
	until := time.Now().Add(time.Duration(min(max(patience, 0), 600) * float64(time.Second)))
	done := s.clearCaches()
	for !done && time.Now().Before(until) && s.wait(r, 10*time.Millisecond) {
		done = s.clearCaches()
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !done {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintln(w, "Flush cache failed: there are requests.")
		return
	}
	fmt.Fprintln(w, "Cache flushed.")
}

// serveAbortRequest ends the requests whose id begins with the one given, or all.
func (s *Server) serveAbortRequest(w http.ResponseWriter, r *http.Request) {
	sc := newScratch()
	defer sc.free()
	if bad := sc.read(w, r); bad != nil {
		s.fail(w, bad)
		return
	}
	f := &sc.fields
	rid, _ := f.Get("rid").Text()
	all := f.boolean("abort_all", false)
	if f.err != nil {
		s.fail(w, f.err)
		return
	}
	if all || rid != "" {
		s.abortRequests(func(id string) bool { return all || strings.HasPrefix(id, rid) })
	}
	w.WriteHeader(http.StatusOK)
}
