package simserver

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/simengine"
	"github.com/stator-ai/stator/internal/tokenize"
)

// llamaFace is that of llama.cpp's server, with its metrics on.
type llamaFace struct{}

var llamaTraits = traits{
	version: "b6700-sim", anyModel: true, noRanks: true, noCards: true,
	alwaysCached: true, unbounded: true,
	noticeStream: time.Second, noticeUnary: time.Second, nextToken: true,
	roleFirst: true, nullRole: true, finishApart: true, finishText: true, choicesFirst: true,
	detokenized: "content", ping: 30 * time.Second,
}

func (llamaFace) traits() *traits { return &llamaTraits }

func (llamaFace) route(_ *Server, path string) (string, handler) {
	switch path {
	case "/health", "/v1/health":
		return http.MethodGet, (*Server).serveLlamaHealth
	case "/models":
		return http.MethodGet, (*Server).serveModels
	case "/props":
		return http.MethodGet, (*Server).serveProps
	case "/slots":
		return http.MethodGet, (*Server).serveSlots
	case "/tokenize":
		return http.MethodPost, (*Server).serveLlamaTokenize
	case "/detokenize":
		return http.MethodPost, (*Server).serveDetokenize
	case "/apply-template":
		return http.MethodPost, (*Server).serveApplyTemplate
	case "/lora-adapters":
		return http.MethodGet, (*Server).serveAdapters
	}
	if strings.HasPrefix(path, "/slots/") {
		return http.MethodPost, (*Server).serveSlotAction
	}
	return "", nil
}

func (llamaFace) appendCard(b []byte, s *Server, name, _ string) []byte {
	b = appendModelCard(b, name, "llamacpp")
	return fmt.Appendf(b, `,"meta":{"vocab_type":2,"n_vocab":%d,"n_ctx":%d,"n_ctx_train":%d,"n_embd":4096,"n_params":8190735360,"size":16381516800}}`,
		s.vocab.size, s.cfg.ContextLength, s.cfg.ContextLength)
}

func (llamaFace) appendError(b []byte, e *apiError) []byte {
	message, kind := e.message, "server_error"
	switch {
	case e.route && e.status == http.StatusNotFound:
		message, kind = "File Not Found", "not_found_error"
	case e.context > 0:
		kind = "exceed_context_size_error"
	default:
		switch e.status {
		case http.StatusNotFound:
			kind = "not_found_error"
		case http.StatusNotImplemented:
			kind = "not_supported_error"
		case http.StatusServiceUnavailable:
			kind = "unavailable_error"
		default:
			if e.status < 500 {
				kind = "invalid_request_error"
			}
		}
	}
	b = fmt.Appendf(b, `{"error":{"code":%d,"message":`, e.status)
	b = openai.AppendString(b, message)
	b = fmt.Appendf(b, `,"type":"%s"`, kind)
	if e.context > 0 {
		b = fmt.Appendf(b, `,"n_prompt_tokens":%d,"n_ctx":%d`, e.tokens, e.context)
	}
	return append(b, "}}"...)
}

func (f llamaFace) appendStreamError(b []byte, e *apiError) ([]byte, bool) {
	return f.appendError(b, e), true
}

func (llamaFace) parse(s *Server, r *request, f *fields, _ http.Header) {
	r.salt = "" // it knows none
	if n, ok := f.integer("n_predict", -1, 1<<31-1); ok && r.maxTokens == 0 {
		r.maxTokens = max(int(n), 0)
	}
	r.fresh = !f.boolean("cache_prompt", true)
	if n, ok := f.integer("id_slot", -1, int64(s.cfg.Slots)-1); ok {
		r.slot = int(n) + 1
	}
	r.id = responseID("", true)
	if v := f.Get("lora"); v.Present() {
		r.adapter = s.llamaAdapter(f, v)
	}
}

// llamaAdapter returns the adapter that a request asks for: of a list of them, the
// last whose scale is not 0.
func (s *Server) llamaAdapter(f *fields, list openai.Value) (name string) {
	bad := func() { f.fail(badField("lora", "expected an array of objects with id and scale")) }
	if list.Kind() != '[' {
		bad()
		return ""
	}
	list.Elements(func(v openai.Value) bool {
		o, err := openai.ParseObject(v)
		if err != nil {
			bad()
			return false
		}
		id, ok := o.Get("id").Uint()
		scale, err := strconv.ParseFloat(string(o.Get("scale")), 64)
		if !ok || id >= uint64(len(s.cfg.Adapters)) || err != nil {
			bad()
			return false
		}
		if scale != 0 {
			name = s.cfg.Adapters[id]
		}
		return true
	})
	return name
}

// trailing returns how many messages at the end are the assistant's.
func trailing(messages openai.Value) (n int) {
	if messages.Kind() != '[' {
		return 0
	}
	messages.Elements(func(v openai.Value) bool {
		n++
		if o, err := openai.ParseObject(v); err != nil || string(o.Get("role")) != `"assistant"` {
			n = 0
		}
		return true
	})
	return n
}

func (s *Server) serveLlamaHealth(w http.ResponseWriter, r *http.Request) {
	if s.ill(r) {
		s.fail(w, &apiError{status: http.StatusServiceUnavailable, message: errClosed.Error()})
		return
	}
	writeJSON(w, http.StatusOK, []byte(`{"status":"ok"}`))
}

func (s *Server) serveProps(w http.ResponseWriter, _ *http.Request) {
	b := fmt.Appendf(nil, `{"default_generation_settings":{"n_ctx":%d,"params":{"n_predict":-1,"temperature":0.8}},"total_slots":%d,"model_alias":`,
		s.cfg.ContextLength, s.cfg.Slots)
	b = openai.AppendString(b, s.cfg.Model)
	b = append(b, `,"model_path":`...)
	b = openai.AppendString(b, "/models/"+s.cfg.Model+".gguf")
	b = append(b, `,"modalities":{"vision":false,"audio":false},"chat_template":`...)
	b = openai.AppendString(b, chatMLTemplate)
	b = fmt.Appendf(b, `,"bos_token":"","eos_token":"<|im_end|>","build_info":"%s","is_sleeping":false}`, llamaTraits.version)
	writeJSON(w, http.StatusOK, b)
}

// chatMLTemplate stands for the template of the vocabulary where one is shown.
const chatMLTemplate = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}" +
	"{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

// serveSlots tells what the slots do. Without an engine model there is nothing to tell
// but how many are busy.
func (s *Server) serveSlots(w http.ResponseWriter, r *http.Request) {
	slots := s.slots()
	idle := false
	b := []byte{'['}
	for i, slot := range slots {
		if i > 0 {
			b = append(b, ',')
		}
		var prompt, cached, processed, decoded, task int
		if q := slot.Request; q != nil {
			prompt, cached, decoded, task = q.Prompt, q.Cached(), q.Generated(), i
			processed = max(min(slot.Held, prompt)-cached, 0)
		} else {
			idle, task, prompt = true, -1, slot.Held
		}
		b = fmt.Appendf(b, `{"id":%d,"n_ctx":%d,"speculative":false,"is_processing":%t,"id_task":%d,"n_prompt_tokens":%d,"n_prompt_tokens_processed":%d,"n_prompt_tokens_cache":%d,"params":{},"next_token":[{"has_next_token":%t,"has_new_line":false,"n_remain":-1,"n_decoded":%d}]}`,
			i, s.cfg.ContextLength, slot.Request != nil, task, prompt, processed, cached, slot.Request != nil, decoded)
	}
	if r.URL.Query().Has("fail_on_no_slot") && !idle {
		s.fail(w, &apiError{status: http.StatusServiceUnavailable, message: "no slot available"})
		return
	}
	writeJSON(w, http.StatusOK, append(b, ']'))
}

// slots returns the state of the slots.
func (s *Server) slots() []simengine.Slot {
	r := s.ranks[0]
	if s.cfg.Engine == nil {
		out := make([]simengine.Slot, s.cfg.Slots)
		for i := range min(s.Inflight(), len(out)) {
			out[i].Request = new(simengine.Request)
		}
		return out
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.engine.AppendSlots(nil)
	for i := range out {
		if q := out[i].Request; q != nil {
			copied := *q // it goes on meanwhile
			out[i].Request = &copied
		}
	}
	return out
}

// serveSlotAction empties the cache of a slot, the only action that needs no files.
func (s *Server) serveSlotAction(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/slots/"))
	switch action := r.URL.Query().Get("action"); {
	case err != nil || id < 0 || id >= s.cfg.Slots:
		s.fail(w, &apiError{status: http.StatusBadRequest, message: "Invalid slot ID"})
	case action == "save" || action == "restore":
		s.fail(w, &apiError{status: http.StatusNotImplemented, message: "This server does not support slots action. Start it with `--slot-save-path`"})
	case action != "erase":
		s.fail(w, &apiError{status: http.StatusBadRequest, message: "Invalid action"})
	default:
		held := s.slots()[id].Held
		if !s.eraseSlot(id + 1) {
			s.fail(w, &apiError{status: http.StatusServiceUnavailable, message: "the slot is processing"})
			return
		}
		writeJSON(w, http.StatusOK, fmt.Appendf(nil, `{"id_slot":%d,"n_erased":%d}`, id, held))
	}
}

func (s *Server) eraseSlot(slot int) bool {
	r := s.ranks[0]
	if s.cfg.Engine == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.engine.EraseSlot(slot)
}

// serveLlamaTokenize gives the ids of a text.
func (s *Server) serveLlamaTokenize(w http.ResponseWriter, r *http.Request) {
	sc := newScratch()
	defer sc.free()
	if bad := sc.read(w, r); bad != nil {
		s.fail(w, bad)
		return
	}
	f := &sc.fields
	var ids []uint32
	content := f.Get("content")
	if text, ok := content.Text(); ok {
		done, bad := sc.takeTurn(r.Context())
		if bad != nil {
			s.fail(w, bad)
			return
		}
		result, err := s.vocab.model.Complete([]byte(text), !f.boolean("add_special", false), tokenize.Hashing{})
		done()
		if err != nil {
			s.fail(w, badField("content", "%v", err))
			return
		}
		ids = result.IDs
	} else if content.Present() {
		s.fail(w, badField("content", "expected a string, got %s", got(content)))
		return
	}
	pieces := f.boolean("with_pieces", false)
	if f.err != nil {
		s.fail(w, f.err)
		return
	}
	b := []byte(`{"tokens":`)
	if !pieces {
		b = openai.AppendTokenIDs(b, ids)
	} else {
		b = append(b, '[')
		for i, id := range ids {
			if i > 0 {
				b = append(b, ',')
			}
			b = fmt.Appendf(b, `{"id":%d,"piece":`, id)
			b = append(openai.AppendString(b, s.vocab.text(id)), '}')
		}
		b = append(b, ']')
	}
	writeJSON(w, http.StatusOK, append(b, '}'))
}

// serveApplyTemplate gives the text that a chat is made into.
func (s *Server) serveApplyTemplate(w http.ResponseWriter, r *http.Request) {
	sc := newScratch()
	defer sc.free()
	bad := sc.read(w, r)
	if bad == nil {
		var done func()
		if done, bad = sc.takeTurn(r.Context()); bad == nil {
			defer done()
		}
	}
	var result tokenize.Result
	if bad == nil {
		result, bad = s.renderChat(&sc.fields, tokenize.Hashing{})
	}
	if bad == nil {
		bad = sc.fields.err
	}
	if bad != nil {
		s.fail(w, bad)
		return
	}
	text := result.Text
	if text == nil {
		text = s.vocab.tokens.DecodeText(nil, result.IDs, false /* skipSpecial */)
	}
	writeJSON(w, http.StatusOK, append(openai.AppendString([]byte(`{"prompt":`), text), '}'))
}

func (s *Server) serveAdapters(w http.ResponseWriter, _ *http.Request) {
	b := []byte{'['}
	for i, name := range s.cfg.Adapters {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"id":%d,"path":`, i)
		b = append(openai.AppendString(b, name), `,"scale":0.0}`...)
	}
	writeJSON(w, http.StatusOK, append(b, ']'))
}

var llamaSeries = []series{
	{"llamacpp:prompt_tokens_total", "counter", "Number of prompt tokens processed.", "", func(s *snapshot) float64 { return float64(s.promptTokens) - float64(s.hits) }},
	{"llamacpp:tokens_predicted_total", "counter", "Number of generation tokens processed.", "", func(s *snapshot) float64 { return count(s.generated) }},
	{"llamacpp:n_decode_total", "counter", "Total number of decode calls.", "", func(s *snapshot) float64 { return count(s.passes) }},
	{"llamacpp:prompt_tokens_seconds", "gauge", "Average prompt throughput in tokens/s.", "", func(s *snapshot) float64 { return rate(s.promptTokens-min(s.hits, s.promptTokens), &s.ttft) }},
	{"llamacpp:predicted_tokens_seconds", "gauge", "Average generation throughput in tokens/s.", "", func(s *snapshot) float64 { return rate(s.generated, &s.itl) }},
	{"llamacpp:requests_processing", "gauge", "Number of requests processing.", "", func(s *snapshot) float64 { return float64(s.running) }},
	{"llamacpp:requests_deferred", "gauge", "Number of requests deferred.", "", func(s *snapshot) float64 { return float64(s.waiting) }},
}

// rate returns how many tokens there were in each second of some durations.
func rate(tokens uint64, d *histogram) float64 {
	if d.sum <= 0 {
		return 0
	}
	return float64(tokens) / d.sum.Seconds()
}

func (llamaFace) metrics(s *Server, w http.ResponseWriter) {
	e := exposition{ranks: []snapshot{s.ranks[0].snapshot()}, labels: []string{""}}
	e.series(llamaSeries)
	w.Header().Set("Process-Start-Time-Unix", strconv.FormatInt(s.life.now.Load().began.Unix(), 10))
	e.send(w)
}
