package simserver

import (
	"fmt"
	"net"
	"net/http"
	"strconv"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/simengine"
)

// vllmFace is that of vLLM's server, release 0.26.
type vllmFace struct{}

var vllmTraits = traits{
	version: "0.26.0+sim", doneAfterError: true,
	roleFirst: true, stop: "stop_reason", tokenIDs: true, chatStreamIDs: true, detokenized: "prompt",
}

func (vllmFace) traits() *traits { return &vllmTraits }

func (vllmFace) route(s *Server, path string) (string, handler) {
	switch path {
	case "/health":
		return http.MethodGet, (*Server).serveHealth
	case "/ping":
		return "GET, POST", (*Server).serveHealth
	case "/version":
		return http.MethodGet, (*Server).serveVersion
	case "/load":
		return http.MethodGet, (*Server).serveLoad
	case "/tokenize":
		return http.MethodPost, (*Server).serveTokenize
	case "/detokenize":
		return http.MethodPost, (*Server).serveDetokenize
	case "/kv_event_sources":
		if s.tellsSources() {
			return http.MethodGet, (*Server).serveEventSources
		}
	}
	if !s.cfg.DevMode {
		return "", nil
	}
	switch path {
	case "/server_info":
		return http.MethodGet, (*Server).serveVLLMInfo
	case "/reset_prefix_cache":
		return http.MethodPost, (*Server).serveResetCache
	case "/abort_requests":
		return http.MethodPost, (*Server).serveAbortRequests
	}
	return "", nil
}

// appendCard appends a card that is made when it is asked for, as the engines' are: it
// is new each second.
func (vllmFace) appendCard(b []byte, s *Server, name, parent string) []byte {
	b = appendModelCard(b, name, "vllm")
	b = append(b, `,"root":`...)
	b = openai.AppendString(b, name)
	b = append(b, `,"parent":`...)
	if parent == "" {
		b = append(b, "null"...)
	} else {
		b = openai.AppendString(b, parent)
	}
	return fmt.Appendf(b, `,"max_model_len":%d,"permission":[]}`, s.cfg.ContextLength)
}

func (vllmFace) appendError(b []byte, e *apiError) []byte {
	if d := detail(e); d != "" {
		return append(b, d...)
	}
	return appendError(b, e)
}

func (vllmFace) appendStreamError(b []byte, e *apiError) ([]byte, bool) {
	return appendError(b, e), true
}

func (vllmFace) parse(s *Server, r *request, f *fields, h http.Header) {
	r.priority = s.priority(f, true /* low first */)
	id := h.Get("X-Request-Id")
	if v := f.Get("request_id"); id == "" && v.Present() {
		var ok bool
		if id, ok = v.Text(); !ok {
			f.fail(badField("request_id", "expected a string, got %s", got(v)))
		}
	}
	r.id = responseID(id, r.chat)
	r.rid = r.id
}

func (vllmFace) metrics(s *Server, w http.ResponseWriter) { s.prometheus(w, simengine.VLLM) }

// serveLoad tells how many requests there are, which a real one does only when it is
// told to keep count of them.
func (s *Server) serveLoad(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, fmt.Appendf(nil, `{"server_load":%d}`, s.Inflight()))
}

// serveVLLMInfo tells the settings of the engine.
func (s *Server) serveVLLMInfo(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("config_format") != "json" {
		writeJSON(w, http.StatusOK, []byte(`{"vllm_config":"a simulated engine"}`))
		return
	}
	c := &s.cfg
	policy, seqs, caching := "fcfs", 256, c.Engine != nil && !c.Engine.NoPrefixCaching
	if c.PriorityScheduling {
		policy = "priority"
	}
	if c.Engine != nil && c.Engine.MaxSeqs > 0 {
		seqs = c.Engine.MaxSeqs
	}
	b := []byte(`{"vllm_config":{"model_config":{"model":`)
	b = openai.AppendString(b, c.Model)
	b = fmt.Appendf(b, `,"max_model_len":%d},"cache_config":{"block_size":%d,"num_gpu_blocks":%d,"enable_prefix_caching":%t,"prefix_caching_hash_algo":"sha256_cbor"}`,
		c.ContextLength, s.blockSize(), (c.TotalBlocks+1)*c.Ranks, caching)
	b = fmt.Appendf(b, `,"scheduler_config":{"max_num_seqs":%d,"max_num_batched_tokens":%d,"policy":"%s"}`, seqs, c.MaxBatchedTokens, policy)
	b = fmt.Appendf(b, `,"parallel_config":{"data_parallel_size":%d,"tensor_parallel_size":1},"kv_events_config":`, c.Ranks)
	b = s.appendEventsConfig(b)
	b = append(b, `,"kv_transfer_config":null},"vllm_env":{"VLLM_SERVER_DEV_MODE":true}}`...)
	writeJSON(w, http.StatusOK, b)
}

// tellsSources reports whether the server says where its ranks publish: with the newest
// format of events it does. Earlier releases did not.
func (s *Server) tellsSources() bool {
	newest, err := findLayout(simengine.VLLM, "")
	return err == nil && s.publisher != nil && s.publisher.layout.name == newest.name
}

// serveEventSources tells the sockets of each rank.
func (s *Server) serveEventSources(w http.ResponseWriter, _ *http.Request) {
	b := []byte{'{'}
	for rank := range s.cfg.Ranks {
		if rank > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `"%d":`, rank)
		b = s.appendRankEvents(b, rank)
	}
	writeJSON(w, http.StatusOK, append(b, '}'))
}

// appendEventsConfig appends how events are published, as vLLM and SGLang are told; null
// if nobody can connect to them. The addresses are those of rank 0.
func (s *Server) appendEventsConfig(b []byte) []byte {
	if publish, _ := s.EventAddrs(); len(publish) == 0 {
		return append(b, "null"...)
	}
	return s.appendRankEvents(b, 0)
}

// appendRankEvents appends how a rank publishes its events, which it does on a socket.
func (s *Server) appendRankEvents(b []byte, rank int) []byte {
	publish, replay := s.EventAddrs()
	b = append(b, `{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":`...)
	if len(publish) > 0 {
		b = appendEndpoint(b, publish[rank], 0)
	} else {
		b = appendEndpoint(b, s.cfg.Publish.Connect, rank)
	}
	b = append(b, `,"replay_endpoint":`...)
	if len(replay) > 0 {
		b = appendEndpoint(b, replay[rank], 0)
	} else {
		b = append(b, "null"...)
	}
	b = fmt.Appendf(b, `,"buffer_steps":%d,"hwm":%d,"max_queue_size":100000,"topic":`, s.cfg.Publish.Buffer, s.cfg.Publish.HWM)
	b = openai.AppendString(b, s.cfg.Publish.Topic)
	return append(b, '}')
}

// appendEndpoint appends the address so many ports after addr as ZeroMQ writes it, null
// if there is none.
func appendEndpoint(b []byte, addr string, after int) []byte {
	host, port, err := splitAddr(addr)
	if err != nil {
		return append(b, "null"...)
	}
	if host == "" || host == "::" || host == "0.0.0.0" {
		return fmt.Appendf(b, `"tcp://*:%d"`, port+after)
	}
	return openai.AppendString(b, "tcp://"+net.JoinHostPort(host, strconv.Itoa(port+after)))
}

// serveResetCache empties the caches if nothing uses them.
func (s *Server) serveResetCache(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, fmt.Appendf(nil, `{"success":%t}`, s.clearCaches()))
}

// serveAbortRequests ends requests by their ids.
func (s *Server) serveAbortRequests(w http.ResponseWriter, r *http.Request) {
	sc := newScratch()
	defer sc.free()
	if bad := sc.read(w, r); bad != nil {
		s.fail(w, bad)
		return
	}
	ids := sc.fields.Get("request_ids")
	if ids.Kind() != '[' {
		s.fail(w, badField("request_ids", "expected an array of strings, got %s", got(ids)))
		return
	}
	ids.Elements(func(v openai.Value) bool {
		if id, ok := v.Text(); ok && id != "" {
			s.abortRequests(sameID(id))
		}
		return true
	})
	w.WriteHeader(http.StatusOK)
}
