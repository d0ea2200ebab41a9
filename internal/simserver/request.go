package simserver

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/tokenize"
)

const (
	// maxBody bounds a request body in bytes.
	maxBody = 64 << 20
	// maxChoices bounds prompts times n.
	maxChoices = 128
	// maxTop bounds the alternatives in logprobs.
	maxTop = 20
	// defaultCompletion is max_tokens of a completion that does not say.
	defaultCompletion = 16
)

// request is what a chat or completion request asks for, checked.
type request struct {
	chat    bool
	id      string // of the response, prefix included
	prompts []prompt
	n       int

	stream          bool
	includeUsage    bool
	continuousUsage bool

	maxTokens   int // 0: up to the context length
	minTokens   int
	ignoreEOS   bool
	stops       []stopString
	includeStop bool
	seed        int64
	hasSeed     bool

	logprobs  bool
	top       int
	echo      bool
	returnIDs bool
	rank      int // -1: any
}

// prompt is one prompt of a request.
type prompt struct {
	ids []uint32
}

// appendText appends the prompt as text.
func (p *prompt) appendText(dst []byte) []byte {
	dst, _ = tokenize.Bytes{}.Decode(dst, p.ids) // the ids were checked
	return dst
}

// fields reads the members of a body and keeps the first error.
type fields struct {
	openai.Object
	err *apiError
}

func (f *fields) fail(e *apiError) {
	if f.err == nil {
		f.err = e
	}
}

// got describes a value in an error.
func got(v openai.Value) string {
	if v.Kind() == '0' && len(v) < 40 {
		return string(v)
	}
	return v.TypeName()
}

// boolean returns a member that is true or false, def when absent or null.
func (f *fields) boolean(key string, def bool) bool {
	v := f.Get(key)
	if !v.Present() {
		return def
	}
	if v.Kind() != 't' {
		f.fail(badField(key, "expected a boolean, got %s", got(v)))
	}
	return v.True()
}

// integer returns a whole number within bounds, or false when absent or null.
func (f *fields) integer(key string, lo, hi int64) (int64, bool) {
	v := f.Get(key)
	if !v.Present() {
		return 0, false
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	switch {
	case v.Kind() == '0' && err == nil && n >= lo && n <= hi:
		return n, true
	case hi == math.MaxInt64 && lo == math.MinInt64:
		f.fail(badField(key, "expected an integer, got %s", got(v)))
	case hi >= math.MaxInt32:
		f.fail(badField(key, "expected an integer of at least %d, got %s", lo, got(v)))
	default:
		f.fail(badField(key, "expected an integer from %d to %d, got %s", lo, hi, got(v)))
	}
	return 0, false
}

// object returns a member that is an object, empty when absent or null.
func (f *fields) object(key string) fields {
	v := f.Get(key)
	if !v.Present() {
		return fields{}
	}
	if v.Kind() != '{' {
		f.fail(badField(key, "expected an object, got %s", got(v)))
		return fields{}
	}
	o, err := openai.ParseObject(v)
	if err != nil {
		f.fail(badField(key, "%v", err))
	}
	return fields{Object: o}
}

// readObject reads a request body that is one JSON object.
func readObject(w http.ResponseWriter, r *http.Request) (*fields, *apiError) {
	var buf bytes.Buffer
	if n := r.ContentLength; n > 0 && n <= maxBody {
		buf.Grow(int(n) + bytes.MinRead)
	}
	if _, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return nil, &apiError{status: http.StatusRequestEntityTooLarge, message: fmt.Sprintf("body: larger than %d bytes", large.Limit)}
		}
		return nil, &apiError{status: http.StatusBadRequest, message: "body: " + err.Error()}
	}
	o, err := openai.ParseObject(buf.Bytes())
	if err != nil {
		return nil, &apiError{status: http.StatusBadRequest, message: "body: " + err.Error()}
	}
	if !utf8.Valid(buf.Bytes()) {
		return nil, &apiError{status: http.StatusBadRequest, message: "body: not valid UTF-8"}
	}
	return &fields{Object: o}, nil
}

// checkModel checks the model that a body names; naming none is fine, there is
// only one.
func (s *Server) checkModel(f *fields) *apiError {
	v := f.Get("model")
	if !v.Present() {
		return nil
	}
	name, ok := v.Text()
	if !ok {
		return badField("model", "expected a string, got %s", got(v))
	}
	if name != s.cfg.Model {
		return &apiError{status: http.StatusNotFound, message: fmt.Sprintf("The model `%s` does not exist.", name), param: "model"}
	}
	return nil
}

// parseRequest checks a body and gathers what it asks for.
func (s *Server) parseRequest(h http.Header, f *fields, chat bool) (*request, *apiError) {
	if err := s.checkModel(f); err != nil {
		return nil, err
	}
	r := &request{chat: chat, n: 1}
	s.parseCommon(r, f)
	if chat {
		s.parseChat(r, f)
	} else {
		s.parseCompletion(r, f)
	}
	if f.err != nil {
		return nil, f.err
	}
	if total := len(r.prompts) * r.n; total > maxChoices {
		return nil, badField("n", "expected at most %d choices, got %d prompts with n = %d", maxChoices, len(r.prompts), r.n)
	}
	for i := range r.prompts {
		if n := len(r.prompts[i].ids); n >= s.cfg.ContextLength {
			return nil, &apiError{status: http.StatusBadRequest, message: fmt.Sprintf(
				"This model's maximum context length is %d tokens. However, your messages resulted in %d tokens. Please reduce the length of the messages.",
				s.cfg.ContextLength, n)}
		}
	}
	var err *apiError
	if r.rank, err = s.parseRank(h); err != nil {
		return nil, err
	}
	prefix := "cmpl-"
	if chat {
		prefix = "chatcmpl-"
	}
	if id := h.Get("X-Request-Id"); id != "" {
		r.id = prefix + id
	} else {
		r.id = fmt.Sprintf("%s%016x%016x", prefix, rand.Uint64(), rand.Uint64())
	}
	return r, nil
}

// parseCommon reads what chat and completions share.
func (s *Server) parseCommon(r *request, f *fields) {
	r.stream = f.boolean("stream", false)
	if f.Get("stream_options").Present() {
		if !r.stream {
			f.fail(badField("stream_options", "expected stream to be true with it"))
		}
		o := f.object("stream_options")
		r.includeUsage = o.boolean("include_usage", false)
		r.continuousUsage = o.boolean("continuous_usage_stats", false) && r.includeUsage
		if o.err != nil {
			f.fail(badField("stream_options."+o.err.param, "%s", o.err.message[len(o.err.param)+2:]))
		}
	}
	if n, ok := f.integer("n", 1, maxChoices); ok {
		r.n = int(n)
	}
	if n, ok := f.integer("max_tokens", 1, math.MaxInt32); ok {
		r.maxTokens = int(n)
	}
	if n, ok := f.integer("min_tokens", 0, math.MaxInt32); ok {
		r.minTokens = int(n)
	}
	r.seed, r.hasSeed = f.integer("seed", math.MinInt64, math.MaxInt64)
	r.ignoreEOS = f.boolean("ignore_eos", false)
	r.includeStop = f.boolean("include_stop_str_in_output", false)
	r.returnIDs = f.boolean("return_token_ids", false)
	r.stops = f.stops()
}

// stops reads stop, which is a string or a list of them.
func (f *fields) stops() []stopString {
	v := f.Get("stop")
	var out []stopString
	add := func(v openai.Value) bool {
		t, ok := v.Text()
		if !ok || t == "" {
			what := got(v)
			if ok {
				what = "an empty one"
			}
			f.fail(badField("stop", "expected a non-empty string or an array of them, got %s", what))
			return false
		}
		out = append(out, newStopString(t))
		return true
	}
	switch {
	case !v.Present():
	case v.Kind() == '[':
		if err := v.Elements(add); err != nil {
			f.fail(badField("stop", "%v", err))
		}
	default:
		add(v)
	}
	return out
}

func (s *Server) parseChat(r *request, f *fields) {
	if n, ok := f.integer("max_completion_tokens", 1, math.MaxInt32); ok {
		r.maxTokens = int(n)
	}
	r.logprobs = f.boolean("logprobs", false)
	if n, ok := f.integer("top_logprobs", 0, maxTop); ok {
		if !r.logprobs {
			f.fail(badField("top_logprobs", "expected logprobs to be true with it"))
		}
		r.top = int(n)
	}
	ids, err := s.chatIDs(f)
	if err != nil {
		f.fail(err)
		return
	}
	r.prompts = []prompt{{ids: ids}}
}

// chatIDs returns the prompt of a chat: its messages rendered, or the token ids
// that kv_transfer_params brings along.
func (s *Server) chatIDs(f *fields) ([]uint32, *apiError) {
	var p tokenize.Prompt
	err := tokenize.ChatML{}.Render(&p, tokenize.Chat{
		Messages:           f.Get("messages"),
		Tools:              f.Get("tools"),
		NoGenerationPrompt: !f.boolean("add_generation_prompt", true),
		ContinueFinal:      f.boolean("continue_final_message", false),
	})
	if err != nil {
		m := err.Error()
		return nil, &apiError{status: http.StatusBadRequest, message: m, param: m[:max(0, strings.IndexAny(m, "[.:"))]}
	}
	transfer := f.object("kv_transfer_params")
	if v := transfer.Get("prompt_token_ids"); v.Present() {
		return tokenIDs("kv_transfer_params.prompt_token_ids", v)
	}
	ids, err := p.AppendIDs(nil, tokenize.Bytes{})
	if err != nil {
		return nil, badField("messages", "%v", err)
	}
	return ids, nil
}

func (s *Server) parseCompletion(r *request, f *fields) {
	if r.maxTokens == 0 {
		r.maxTokens = defaultCompletion
	}
	r.echo = f.boolean("echo", false)
	if n, ok := f.integer("logprobs", 0, maxTop); ok {
		r.logprobs, r.top = true, int(n)
	}
	var err *apiError
	if r.prompts, err = parsePrompts(f.Get("prompt")); err != nil {
		f.fail(err)
	}
}

// parsePrompts reads the four forms of a prompt: a string, strings, token ids,
// lists of token ids. Special tokens may be spelled out in a string: whoever
// calls this route writes the template.
func parsePrompts(v openai.Value) ([]prompt, *apiError) {
	switch v.Kind() {
	case '"':
		p, err := textPrompt("prompt", v)
		return []prompt{p}, err
	case '[':
	default:
		return nil, badField("prompt", "expected a string, strings, token ids or lists of token ids, got %s", got(v))
	}
	var out []prompt
	var bad *apiError
	i := 0
	err := v.Elements(func(e openai.Value) bool {
		path := fmt.Sprintf("prompt[%d]", i)
		var p prompt
		switch e.Kind() {
		case '"':
			p, bad = textPrompt(path, e)
		case '[':
			p.ids, bad = tokenIDs(path, e)
		case '0':
			if i == 0 {
				p.ids, bad = tokenIDs("prompt", v)
				out = append(out, p)
				return false
			}
			fallthrough
		default:
			bad = badField(path, "expected a string or token ids, got %s", got(e))
		}
		out = append(out, p)
		i++
		return bad == nil && i <= maxChoices
	})
	switch {
	case bad != nil:
		return nil, bad
	case err != nil:
		return nil, badField("prompt", "%v", err)
	case len(out) == 0:
		return nil, badField("prompt", "expected at least one prompt")
	}
	return out, nil
}

func textPrompt(path string, v openai.Value) (prompt, *apiError) {
	t, ok := v.Text()
	if !ok {
		return prompt{}, badField(path, "invalid escape in string")
	}
	if t == "" {
		return prompt{}, badField(path, "expected at least one token")
	}
	ids, err := tokenize.Bytes{}.Encode(nil, []byte(t), true /* special */)
	if err != nil {
		return prompt{}, badField(path, "%v", err)
	}
	return prompt{ids: ids}, nil
}

// tokenIDs reads a list of at least one token id.
func tokenIDs(path string, v openai.Value) ([]uint32, *apiError) {
	if v.Kind() != '[' {
		return nil, badField(path, "expected token ids, got %s", got(v))
	}
	ids := make([]uint32, 0, len(v)/4)
	var bad *apiError
	err := v.Elements(func(e openai.Value) bool {
		id, ok := e.Uint()
		if !ok || id >= tokenize.BytesVocab {
			bad = badField(fmt.Sprintf("%s[%d]", path, len(ids)), "expected a token id below %d, got %s", tokenize.BytesVocab, got(e))
			return false
		}
		ids = append(ids, uint32(id))
		return true
	})
	switch {
	case bad != nil:
		return nil, bad
	case err != nil:
		return nil, badField(path, "%v", err)
	case len(ids) == 0:
		return nil, badField(path, "expected at least one token")
	}
	return ids, nil
}

// parseRank reads the rank that a request is meant for, -1 when it does not say.
// As with vLLM, what is no number does not count.
func (s *Server) parseRank(h http.Header) (int, *apiError) {
	n, err := strconv.Atoi(h.Get("X-Data-Parallel-Rank"))
	if errors.Is(err, strconv.ErrSyntax) {
		return -1, nil
	}
	if n < 0 || n >= s.cfg.Ranks {
		return 0, badField("X-Data-Parallel-Rank", "expected a rank from 0 to %d, got %d", s.cfg.Ranks-1, n)
	}
	return n, nil
}
