package simserver

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/simengine"
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
	stopStrings []string
	stops       *tokenize.Stops // the same made ready, nil for none
	showEnd     bool            // the token that ends the answer is part of its text
	seed        int64
	hasSeed     bool

	logprobs  bool
	top       int
	echo      bool
	returnIDs bool
	rank      int // -1: any

	rid      string // by which it can be aborted
	priority int64  // more is more urgent
	fresh    bool   // nothing that is cached is to be used
	slot     int    // to run in, counted from 1; 0 for any

	model   string           // as asked for
	adapter string           // empty for none
	salt    string           // keeps its blocks apart
	hashing tokenize.Hashing // of its blocks, without a size where there is no cache
	arrival time.Duration
}

// prompt is one prompt of a request, and as many of its blocks as are known.
type prompt struct {
	ids    []uint32
	blocks []kv.Block
}

// checkModel returns the model that a body names, and the adapter if it is one;
// naming none is fine and means the model without any.
func (s *Server) checkModel(f *fields) (model, adapter string, err *apiError) {
	v := f.Get("model")
	if !v.Present() {
		return s.cfg.Model, "", nil
	}
	name, ok := v.Text()
	if !ok {
		return "", "", badField("model", "expected a string, got %s", got(v))
	}
	if s.face.traits().anyModel {
		return s.cfg.Model, "", nil
	}
	if name == s.cfg.Model {
		return name, "", nil
	}
	adapter = name
	if s.cfg.Kind == simengine.SGLang { // also has base:adapter
		adapter = strings.TrimPrefix(name, s.cfg.Model+":")
	}
	if !slices.Contains(s.cfg.Adapters, adapter) {
		return "", "", &apiError{status: http.StatusNotFound, message: fmt.Sprintf("The model `%s` does not exist.", name), param: "model"}
	}
	return name, adapter, nil
}

// parseRequest reads a request, checks it and leaves what it asks for in sc.req.
func (s *Server) parseRequest(sc *scratch, w http.ResponseWriter, hr *http.Request, chat bool) *apiError {
	if err := sc.read(w, hr); err != nil {
		return err
	}
	f, h, r := &sc.fields, hr.Header, &sc.req
	model, adapter, err := s.checkModel(f)
	if err != nil {
		return err
	}
	*r = request{chat: chat, n: 1, model: model, adapter: adapter, prompts: r.prompts[:0]}
	s.parseCommon(r, f)
	s.face.parse(s, r, f, h)
	r.hashing.Seed = kv.HashSeed(r.adapter, r.salt)
	if s.cfg.Engine != nil {
		r.hashing.Size = s.cfg.BlockSize
	}
	done, err := sc.takeTurn(hr.Context())
	if err != nil {
		return err
	}
	defer done()
	if chat {
		s.parseChat(r, f)
	} else {
		s.parseCompletion(r, f)
	}
	if f.err != nil {
		return f.err
	}
	if r.maxTokens > 0 && r.minTokens > r.maxTokens {
		return badField("min_tokens", "expected at most as many as max_tokens, %d, got %d", r.maxTokens, r.minTokens)
	}
	if total := len(r.prompts) * r.n; total > maxChoices {
		return badField("n", "expected at most %d choices, got %d prompts with n = %d", maxChoices, len(r.prompts), r.n)
	}
	for i := range r.prompts {
		if err := s.checkLength(len(r.prompts[i].ids)); err != nil {
			return err
		}
	}
	if !s.face.traits().noRanks {
		if r.rank, err = s.parseRank(f, h); err != nil {
			return err
		}
	} else {
		r.rank = -1
	}
	if r.arrival, err = s.parseArrival(h, f); err != nil {
		return err
	}
	if r.id == "" {
		r.id = responseID(h.Get("X-Request-Id"), chat)
	}
	return nil
}

// responseID returns the id of the answer to a request with that id, or of one without.
func responseID(request string, chat bool) string {
	prefix := "cmpl-"
	if chat {
		prefix = "chatcmpl-"
	}
	if request == "" {
		return randomID(prefix)
	}
	return prefix + request
}

// randomID returns prefix with 32 hexadecimal digits.
func randomID(prefix string) string {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:8], rand.Uint64())
	binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	return prefix + hex.EncodeToString(id[:])
}

// checkLength refuses a prompt that leaves no room for an answer.
func (s *Server) checkLength(tokens int) *apiError {
	if tokens >= s.cfg.ContextLength {
		return s.tooLong(tokens)
	}
	if tokens >= s.cfg.room() {
		return s.tooLarge(tokens)
	}
	return nil
}

// tooLong says that a prompt fills the context.
func (s *Server) tooLong(tokens int) *apiError {
	return &apiError{status: http.StatusBadRequest, tokens: tokens, context: s.cfg.ContextLength, message: fmt.Sprintf(
		"This model's maximum context length is %d tokens. However, your messages resulted in %d tokens. Please reduce the length of the messages.",
		s.cfg.ContextLength, tokens)}
}

// tooLarge says that a prompt does not fit into the KV cache.
func (s *Server) tooLarge(tokens int) *apiError {
	return &apiError{status: http.StatusBadRequest, message: fmt.Sprintf(
		"The KV cache of this engine holds %d tokens. However, your messages resulted in %d tokens. Please reduce the length of the messages.",
		s.cfg.TotalBlocks*s.cfg.BlockSize, tokens)}
}

// parseCommon reads what chat and completions share.
func (s *Server) parseCommon(r *request, f *fields) {
	r.stream = f.boolean("stream", false)
	r.includeUsage = r.stream && s.face.traits().usageDefault
	if f.Get("stream_options").Present() {
		if !r.stream {
			f.fail(badField("stream_options", "expected stream to be true with it"))
		}
		o := f.object("stream_options")
		r.includeUsage = o.boolean("include_usage", r.includeUsage)
		r.continuousUsage = o.boolean("continuous_usage_stats", false) && r.includeUsage
		if o.err != nil {
			f.fail(badField("stream_options."+o.err.param, "%s", o.err.message[len(o.err.param)+2:]))
		}
	}
	if n, ok := f.integer("n", 1, maxChoices); ok {
		r.n = int(n)
	}
	least := int64(1)
	if s.face.traits().unbounded {
		least = -1
	}
	if n, ok := f.integer("max_tokens", least, math.MaxInt32); ok {
		r.maxTokens = max(int(n), 0)
	}
	if n, ok := f.integer("min_tokens", 0, math.MaxInt32); ok {
		r.minTokens = int(n)
	}
	r.seed, r.hasSeed = f.integer("seed", math.MinInt64, math.MaxInt64)
	r.ignoreEOS = f.boolean("ignore_eos", false)
	includeStop := f.boolean("include_stop_str_in_output", false)
	r.showEnd = !f.boolean("skip_special_tokens", true) && includeStop
	r.returnIDs = f.boolean("return_token_ids", false)
	if r.stopStrings = f.stops(); len(r.stopStrings) > 0 {
		r.stops = tokenize.NewStops(r.stopStrings, includeStop)
	}
	if v := f.Get("cache_salt"); v.Present() {
		var ok bool
		if r.salt, ok = v.Text(); !ok {
			f.fail(badField("cache_salt", "expected a string, got %s", got(v)))
		} else if r.salt == "" {
			f.fail(badField("cache_salt", "expected a string that is not empty"))
		}
	}
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
	p, known := s.vocab.memo.get(f.Raw(), s.cfg.Dress, r.hashing)
	if !known {
		var err *apiError
		if p, err = s.chatPrompt(f, r.hashing); err != nil {
			f.fail(err)
			return
		}
		if f.err == nil {
			s.vocab.memo.put(f.Raw(), s.cfg.Dress, r.hashing, p)
		}
	}
	r.prompts = append(r.prompts, p)
}

// chatPrompt returns the prompt of a chat: its messages rendered, or the token ids
// that it brings along.
func (s *Server) chatPrompt(f *fields, h tokenize.Hashing) (prompt, *apiError) {
	path, given := s.givenIDs(f)
	if given.Present() {
		h.Size = 0
	}
	r, err := s.renderChat(f, h)
	if err != nil {
		return prompt{}, err
	}
	if given.Present() {
		ids, err := s.tokenIDs(path, given)
		return prompt{ids: ids}, err
	}
	return prompt{ids: r.IDs, blocks: r.Blocks}, nil
}

// givenIDs returns the token ids that a chat brings along, and where they are.
func (s *Server) givenIDs(f *fields) (path string, ids openai.Value) {
	switch s.cfg.Dress {
	case DressSGLang:
		return "input_ids", f.Get("input_ids")
	case DressTRTLLM:
		return "prompt_token_ids", f.Get("prompt_token_ids")
	case DressLlamaCpp:
		return "", nil
	}
	transfer := f.object("kv_transfer_params")
	return "kv_transfer_params.prompt_token_ids", transfer.Get("prompt_token_ids")
}

// renderChat makes the messages of a chat into a prompt.
func (s *Server) renderChat(f *fields, h tokenize.Hashing) (tokenize.Result, *apiError) {
	c := tokenize.Chat{
		Messages:           f.Get("messages"),
		Tools:              f.Get("tools"),
		NoGenerationPrompt: !f.boolean("add_generation_prompt", true),
		ContinueFinal:      f.boolean("continue_final_message", false),
		ToolChoice:         f.Get("tool_choice"),
		Documents:          f.Get("documents"),
		ReasoningEffort:    f.Get("reasoning_effort"),
		Kwargs:             f.Get("chat_template_kwargs"),
		Template:           f.Get("chat_template"),
	}
	if s.cfg.Dress == DressLlamaCpp {
		switch n := trailing(f.Get("messages")); {
		case n > 1:
			return tokenize.Result{}, badField("messages", "Cannot have 2 or more assistant messages at the end of the list.")
		case n == 1: // to go on with
			c.NoGenerationPrompt, c.ContinueFinal = true, true
		}
	}
	r, err := s.vocab.model.Chat(c, h)
	if err != nil {
		m := err.Error()
		return r, &apiError{status: http.StatusBadRequest, message: m, param: m[:max(0, strings.IndexAny(m, "[.:"))]}
	}
	return r, nil
}

func (s *Server) parseCompletion(r *request, f *fields) {
	if r.maxTokens == 0 && !s.face.traits().unbounded {
		r.maxTokens = defaultCompletion
	}
	r.echo = f.boolean("echo", false)
	if n, ok := f.integer("logprobs", 0, maxTop); ok {
		r.logprobs, r.top = true, int(n)
	}
	p := promptParser{server: s, bare: !f.boolean("add_special_tokens", true), hashing: r.hashing}
	var err *apiError
	if r.prompts, err = p.parse(f.Get("prompt")); err != nil {
		f.fail(err)
	}
}

// promptParser reads the prompts of a completion.
type promptParser struct {
	server  *Server
	bare    bool             // no tokens are put around a text
	hashing tokenize.Hashing // of its blocks, without a size where there is no cache
}

// parse reads the four forms of a prompt: a string, strings, token ids,
// lists of token ids. Special tokens may be spelled out in a string: whoever
// calls this route writes the template.
func (p *promptParser) parse(v openai.Value) ([]prompt, *apiError) {
	switch v.Kind() {
	case '"':
		one, err := p.text("prompt", v)
		return []prompt{one}, err
	case '[':
	default:
		return nil, badField("prompt", "expected a string, strings, token ids or lists of token ids, got %s", got(v))
	}
	var out []prompt
	var bad *apiError
	i := 0
	err := v.Elements(func(e openai.Value) bool {
		path := fmt.Sprintf("prompt[%d]", i)
		var one prompt
		switch e.Kind() {
		case '"':
			one, bad = p.text(path, e)
		case '[':
			one.ids, bad = p.server.tokenIDs(path, e)
		case '0':
			if i == 0 {
				one.ids, bad = p.server.tokenIDs("prompt", v)
				out = append(out, one)
				return false
			}
			fallthrough
		default:
			bad = badField(path, "expected a string or token ids, got %s", got(e))
		}
		out = append(out, one)
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

func (p *promptParser) text(path string, v openai.Value) (prompt, *apiError) {
	t, ok := v.Text()
	if !ok {
		return prompt{}, badField(path, "invalid escape in string")
	}
	if t == "" {
		return prompt{}, badField(path, "expected at least one token")
	}
	r, err := p.server.vocab.model.Complete([]byte(t), p.bare, p.hashing)
	if err != nil {
		return prompt{}, badField(path, "%v", err)
	}
	return prompt{ids: r.IDs, blocks: r.Blocks}, nil
}

// tokenIDs reads a list of at least one token id.
func (s *Server) tokenIDs(path string, v openai.Value) ([]uint32, *apiError) {
	if v.Kind() != '[' {
		return nil, badField(path, "expected token ids, got %s", got(v))
	}
	ids := make([]uint32, 0, len(v)/4)
	var bad *apiError
	err := v.Elements(func(e openai.Value) bool {
		id, ok := e.Uint()
		if !ok || id >= uint64(s.vocab.size) {
			bad = badField(fmt.Sprintf("%s[%d]", path, len(ids)), "expected a token id below %d, got %s", s.vocab.size, got(e))
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
// As with vLLM, what is no number does not count; SGLang refuses it, and also looks
// into the body.
func (s *Server) parseRank(f *fields, h http.Header) (int, *apiError) {
	const header = "X-Data-Parallel-Rank"
	name, text := header, h.Get(header)
	if s.cfg.Dress == DressSGLang && text == "" {
		for _, name = range []string{"routed_dp_rank", "data_parallel_rank"} {
			if v := f.Get(name); v.Present() {
				text = string(v)
				break
			}
		}
	}
	if text == "" {
		return -1, nil
	}
	n, err := strconv.Atoi(text)
	if errors.Is(err, strconv.ErrSyntax) && s.cfg.Dress != DressSGLang {
		return -1, nil
	}
	if err != nil || n < 0 || n >= s.cfg.Ranks {
		return 0, badField(name, "expected a rank from 0 to %d, got %.40s", s.cfg.Ranks-1, text)
	}
	return n, nil
}

// parseArrival reads the virtual time at which a request arrives, 0 when it does
// not say. On the wall clock nobody asks.
func (s *Server) parseArrival(h http.Header, f *fields) (time.Duration, *apiError) {
	if s.cfg.Clock == nil {
		return 0, nil
	}
	ext := f.object("nvext")
	if f.err != nil {
		return 0, f.err
	}
	name, text := "nvext.request_timestamp_ms", h.Get(engine.HeaderArrival)
	if v := ext.Get("request_timestamp_ms"); v.Present() {
		text = string(v)
	} else if text != "" {
		name = engine.HeaderArrival
	} else {
		return 0, nil
	}
	ms, err := strconv.ParseFloat(text, 64)
	if err != nil || !(math.Abs(ms) <= maxArrival) {
		return 0, badField(name, "expected a number of milliseconds, got %.40s", text)
	}
	return time.Duration(math.Round(ms * float64(time.Millisecond))), nil
}

// maxArrival bounds a time of arrival, in milliseconds. It lets Unix times in, and
// leaves room to go on from there.
const maxArrival = 4e12
