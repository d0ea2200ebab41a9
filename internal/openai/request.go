package openai

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Endpoint is the kind of a generation request.
type Endpoint uint8

// The endpoints with a view.
const (
	Chat Endpoint = iota
	Completions
)

// Path returns the endpoint's route.
func (e Endpoint) Path() string {
	if e == Completions {
		return "/v1/completions"
	}
	return "/v1/chat/completions"
}

// Request is the view of a generation body: what the control plane has to know,
// and the bytes. Everything that it does not know is the engine's business.
type Request struct {
	Endpoint Endpoint
	Object
	Model        string
	Stream       bool
	IncludeUsage bool   // stream_options.include_usage
	RunningUsage bool   // stream_options.continuous_usage_stats
	MaxTokens    uint64 // max_tokens, in chat overruled by max_completion_tokens; 0 when unset
	N            uint64 // choices per prompt, at least 1
	Messages     Value  // chat
	Prompt       Value  // completions; nil when prompt_embeds stands in for it
	NvExt        Value  // raw nvext member; nil when absent
}

// ParseRequest checks body as far as the control plane needs it and returns the
// view, which aliases body. The body is structurally valid JSON (see
// [ParseObject]); of duplicate keys the last counts. Whether it is UTF-8 is
// [Request.CheckUTF8]'s to say. The error is an *[Error] that names the field and
// what was expected; a request returned with it holds what was read before, the
// model first.
func ParseRequest(ep Endpoint, body []byte) (*Request, error) {
	o, err := ParseObject(body)
	if err != nil {
		return nil, syntaxError(err)
	}
	r := &Request{Endpoint: ep, Object: o, N: 1}
	var stream, options, maxTokens, maxCompletion, n, nvext, model, embeds Value
	for i := range o.members {
		m := o.members[i]
		v := Value(o.raw[m.ValueStart:m.ValueEnd])
		key := o.raw[m.KeyStart+1 : m.KeyEnd-1]
		if bytes.IndexByte(key, '\\') >= 0 {
			k, _ := o.At(i)
			key = []byte(k)
		}
		switch string(key) {
		case "model":
			model = v
		case "messages":
			r.Messages = v
		case "prompt":
			r.Prompt = v
		case "prompt_embeds":
			embeds = v
		case "stream":
			stream = v
		case "stream_options":
			options = v
		case "max_tokens":
			maxTokens = v
		case "max_completion_tokens":
			maxCompletion = v
		case "n":
			n = v
		case "nvext":
			nvext = v
		}
	}
	r.Stream = stream.True()
	if r.Model, err = text("model", model); err != nil {
		return r, err
	}
	switch {
	case ep == Chat:
		err = checkMessages(r.Messages)
	case r.Prompt.Present() || !embeds.Present():
		err = checkPrompt(r.Prompt)
	default:
		r.Prompt = nil
	}
	if err != nil {
		return r, err
	}
	if stream.Present() && stream.Kind() != 't' {
		return r, typeError("stream", "a boolean", stream)
	}
	if err := r.streamOptions(options); err != nil {
		return r, err
	}
	if r.MaxTokens, err = limit("max_tokens", maxTokens); err != nil {
		return r, err
	}
	if ep == Chat && maxCompletion.Present() {
		if r.MaxTokens, err = limit("max_completion_tokens", maxCompletion); err != nil {
			return r, err
		}
	}
	if n.Present() {
		var ok bool
		if r.N, ok = n.Uint(); !ok {
			return r, typeError("n", "a positive integer", n)
		}
		if r.N == 0 {
			return r, &Error{Code: CodeInvalidValue, Param: "n", Message: "n: expected at least 1, got 0"}
		}
	}
	if nvext.Present() {
		r.NvExt = nvext
	}
	return r, nil
}

// CheckUTF8 returns an *[Error] that says where the body stops being UTF-8, or nil.
// It is a pass over the whole body, which costs as much as parsing it.
func (r *Request) CheckUTF8() error {
	if utf8.Valid(r.Raw()) {
		return nil
	}
	return &Error{Code: CodeInvalidJSON, Message: fmt.Sprintf(
		"the request body is not valid UTF-8 (first bad byte at offset %d)", invalidUTF8(r.Raw()))}
}

func (r *Request) streamOptions(v Value) error {
	if !v.Present() {
		return nil
	}
	if v.Kind() != '{' {
		return typeError("stream_options", "an object", v)
	}
	if !r.Stream {
		return &Error{Code: CodeInvalidValue, Param: "stream_options",
			Message: "The 'stream_options' field is only allowed when 'stream' is set to true."}
	}
	o, err := ParseObject(v)
	if err != nil {
		return syntaxError(err)
	}
	usage := o.Get("include_usage")
	if usage.Present() && usage.Kind() != 't' {
		return typeError("stream_options.include_usage", "a boolean", usage)
	}
	r.IncludeUsage = usage.True()
	r.RunningUsage = o.Get("continuous_usage_stats").True()
	return nil
}

func checkMessages(v Value) error {
	switch {
	case !v.Present():
		return missing("messages", "an array with at least one message")
	case v.Kind() != '[':
		return typeError("messages", "an array", v)
	}
	if v.empty() {
		return &Error{Code: CodeInvalidValue, Param: "messages",
			Message: "The 'messages' field cannot be empty. At least one message is required."}
	}
	return nil
}

// MaxPrompts is how many prompts a completion request may have.
const MaxPrompts = 4096

// checkPrompt accepts a string, an array of strings, an array of token ids, and
// an array of such arrays.
func checkPrompt(v Value) error {
	const want = "a string, an array of strings, an array of token ids, or an array of arrays of token ids"
	switch v.Kind() {
	case 0, 'n':
		return missing("prompt", want)
	case '"':
		return nil
	case '[':
	default:
		return typeError("prompt", want, v)
	}
	var (
		i     int
		first byte
		bad   error
	)
	err := v.Elements(func(e Value) bool {
		if i == 0 {
			first = e.Kind()
		}
		if i == MaxPrompts && first != '0' {
			bad = &Error{Code: CodeInvalidValue, Param: "prompt",
				Message: fmt.Sprintf("prompt: expected at most %d prompts", MaxPrompts)}
			return false
		}
		bad = checkPromptElement(e, i, first)
		i++
		return bad == nil
	})
	switch {
	case err != nil:
		return syntaxError(err)
	case i == 0:
		return &Error{Code: CodeInvalidValue, Param: "prompt", Message: "prompt: expected at least one element, got an empty array"}
	}
	return bad
}

const wantToken = "a token id (an unsigned 32-bit integer)"

// checkPromptElement checks element i of a prompt whose first element is of the
// given kind.
func checkPromptElement(e Value, i int, first byte) error {
	switch kind := e.Kind(); {
	case kind != '"' && kind != '0' && kind != '[':
		return typeError(index("prompt", i), "a string, a token id or an array of token ids", e)
	case kind != first:
		return typeError(index("prompt", i), "the type of the elements before it", e)
	case kind == '0' && !isToken(e):
		return typeError(index("prompt", i), wantToken, e)
	case kind == '[':
		k := 0
		var bad error
		err := e.Elements(func(id Value) bool {
			if !isToken(id) {
				bad = typeError(index(index("prompt", i), k), wantToken, id)
			}
			k++
			return bad == nil
		})
		if err != nil {
			return syntaxError(err)
		}
		if k == 0 {
			param := index("prompt", i)
			return &Error{Code: CodeInvalidValue, Param: param, Message: param + ": expected at least one token id"}
		}
		return bad
	}
	return nil
}

func isToken(v Value) bool {
	id, ok := v.Uint()
	return ok && id <= math.MaxUint32
}

// index returns the name of an array's element.
func index(param string, i int) string { return param + "[" + strconv.Itoa(i) + "]" }

// Batch returns the prompts of a completion request one by one; a chat request
// and a single prompt count as one.
func (r *Request) Batch() []Value {
	if r.Prompt.Kind() != '[' {
		return []Value{r.Prompt}
	}
	var all []Value
	_ = r.Prompt.Elements(func(e Value) bool {
		if e.Kind() == '0' { // one prompt of token ids
			all = append(all[:0], r.Prompt)
			return false
		}
		all = append(all, e)
		return true
	})
	return all
}

// text returns a string that must be there and not blank.
func text(param string, v Value) (string, error) {
	if !v.Present() {
		return "", missing(param, "a non-empty string")
	}
	s, err := decoded(param, v)
	if err == nil && strings.TrimSpace(s) == "" {
		err = &Error{Code: CodeInvalidValue, Param: param, Message: param + ": expected a non-empty string"}
	}
	return s, err
}

// decoded returns the string in v.
func decoded(param string, v Value) (string, error) {
	if v.Kind() != '"' {
		return "", typeError(param, "a string", v)
	}
	s, ok := v.Text()
	if !ok {
		return "", &Error{Code: CodeInvalidJSON, Param: param, Message: param + ": expected a string with valid escapes"}
	}
	return s, nil
}

// limit reads a number of tokens, 0 when there is none. Clients of llama.cpp
// send -1 for no limit; whether an engine takes that is for it to say.
func limit(param string, v Value) (uint64, error) {
	if !v.Present() || string(v) == "-1" {
		return 0, nil
	}
	n, ok := v.Uint()
	if !ok {
		return 0, typeError(param, "a non-negative integer", v)
	}
	return n, nil
}

func missing(param, want string) error {
	return &Error{Code: CodeMissing, Param: param, Message: fmt.Sprintf("%s: missing, expected %s", param, want)}
}

func typeError(param, want string, got Value) error {
	return &Error{Code: CodeInvalidType, Param: param,
		Message: fmt.Sprintf("%s: expected %s, got %s", param, want, describe(got))}
}

// describe names the type of v, and its value when that is short and harmless.
func describe(v Value) string {
	if k := v.Kind(); (k == '0' || k == 't') && len(v) <= 24 {
		return v.TypeName() + " (" + string(v) + ")"
	}
	return v.TypeName()
}

func syntaxError(err error) error {
	msg := err.Error()
	var syn *SyntaxError
	if errors.As(err, &syn) && syn.Offset == 0 && syn.Want == "an object" {
		msg = "the request body must be a JSON object"
	}
	return &Error{Code: CodeInvalidJSON, Message: msg, Err: err}
}

func invalidUTF8(b []byte) int {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(b)
}
