package openaihttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/openai"
)

// tokenizeStyle is how the tokenize route of a server is called.
type tokenizeStyle int32

const (
	// unknownStyle: nobody has succeeded yet.
	unknownStyle tokenizeStyle = iota
	// wholeStyle: a chat or a prompt in, ids and their count out, as vLLM and SGLang
	// have it.
	wholeStyle
	// textStyle: text in, ids out, and another route that renders chats, as
	// llama.cpp has it.
	textStyle
)

// maxTokens bounds the answer of a tokenize route, in bytes.
const maxTokens = 64 << 20

// answerLimit bounds the answer to a body of so many bytes. A byte makes at most one
// token, whose id takes twelve bytes in a list; the rest is for what a template adds.
func answerLimit(body int) int64 { return min(16*int64(body)+1<<20, maxTokens) }

// tokenizeRest is how long a server is left alone that did not answer.
const tokenizeRest = 30 * time.Second

// errResting means that the server was not asked.
var errResting = fmt.Errorf("tokenize: the engine did not answer less than %v ago and is not asked again yet", tokenizeRest)

// chatMembers are the members of a chat request that decide its prompt.
var chatMembers = []string{
	"messages", "tools", "tool_choice", "documents", "reasoning_effort", "chat_template",
	"chat_template_kwargs", "add_generation_prompt", "continue_final_message", "add_special_tokens",
}

// Tokenize implements [engine.Tokenizer]. A server that cannot be reached, or does
// not answer before the deadline, is not asked again for half a minute: until then
// there is an error at once.
func (e *Engine) Tokenize(ctx context.Context, r *engine.TokenizeRequest) (*engine.TokenizeResult, error) {
	if e.Resting() {
		return nil, errResting
	}
	out, err := e.tokenize(ctx, r)
	var failed *unansweredError
	if errors.As(err, &failed) && !errors.Is(ctx.Err(), context.Canceled) && !engine.IsLocal(err) {
		now := time.Now()
		e.silent.Store(&now)
	}
	return out, err
}

// unansweredError means that a request was not answered.
type unansweredError struct{ err error }

func (e *unansweredError) Error() string { return e.err.Error() }
func (e *unansweredError) Unwrap() error { return e.err }

// tokenize asks the server. Which of the two styles it has is found out with the
// first request that succeeds.
func (e *Engine) tokenize(ctx context.Context, r *engine.TokenizeRequest) (*engine.TokenizeResult, error) {
	style := tokenizeStyle(e.tokenizer.Load())
	var first error
	if style != textStyle {
		out, err := e.tokenizeWhole(ctx, r)
		e.learn(wholeStyle, err)
		var refused *refusedError
		if style == wholeStyle || !errors.As(err, &refused) {
			return out, err
		}
		// It may be the request that is at fault; then what follows fails, too.
		first = err
	}
	out, err := e.tokenizeText(ctx, r)
	e.learn(textStyle, err)
	if err != nil {
		return nil, errors.Join(first, err)
	}
	return out, nil
}

// Resting implements [engine.Tokenizer].
func (e *Engine) Resting() bool {
	t := e.silent.Load()
	return t != nil && time.Since(*t) < tokenizeRest
}

// learn notes the server's style by what came of a request: a success shows it, and
// where the route is gone or answers otherwise another server has taken its place.
func (e *Engine) learn(style tokenizeStyle, err error) {
	var refused *refusedError
	switch {
	case err == nil:
		e.tokenizer.Store(int32(style))
	case errors.As(err, &refused) && (refused.status == http.StatusNotFound || refused.status == http.StatusOK):
		e.tokenizer.CompareAndSwap(int32(style), int32(unknownStyle))
	}
}

// refusedError is an answer that holds no tokens. It does not hold what the server
// says, which may quote the prompt.
type refusedError struct {
	path   string
	status int
}

func (e *refusedError) Error() string {
	if e.status == http.StatusOK {
		return e.path + ": the answer is not what was expected"
	}
	return fmt.Sprintf("%s: status %d", e.path, e.status)
}

// tokenizeWhole asks a server that takes the request as it is.
func (e *Engine) tokenizeWhole(ctx context.Context, r *engine.TokenizeRequest) (*engine.TokenizeResult, error) {
	members := chatMembers
	body := append([]byte(`{"model":`), openai.AppendString(nil, r.Model)...)
	if r.Prompt != nil {
		body = append(append(body, `,"prompt":`...), r.Prompt...)
		members = []string{"add_special_tokens"}
	}
	var out struct {
		Count *int `json:"count"`
		// A tokenizer without a limit has one of thirty digits.
		MaxModelLen float64  `json:"max_model_len"`
		Tokens      []uint32 `json:"tokens"`
	}
	if err := e.post(ctx, "/tokenize", appendMembers(body, r.Body, members), &out); err != nil {
		return nil, err
	}
	if out.Count == nil || *out.Count != len(out.Tokens) {
		return nil, &refusedError{"/tokenize", http.StatusOK}
	}
	return &engine.TokenizeResult{IDs: out.Tokens, MaxModelLen: int(min(max(out.MaxModelLen, 0), math.MaxInt32))}, nil
}

// tokenizeText asks a server that tokenizes only text.
func (e *Engine) tokenizeText(ctx context.Context, r *engine.TokenizeRequest) (*engine.TokenizeResult, error) {
	content, text := r.Prompt, []byte(nil)
	if content == nil {
		var rendered struct {
			Prompt *string `json:"prompt"`
		}
		body := append([]byte(`{"model":`), openai.AppendString(nil, r.Model)...)
		if err := e.post(ctx, "/apply-template", appendMembers(body, r.Body, chatMembers), &rendered); err != nil {
			return nil, err
		}
		if rendered.Prompt == nil {
			return nil, &refusedError{"/apply-template", http.StatusOK}
		}
		text = []byte(*rendered.Prompt)
		content = openai.AppendString(nil, text)
	}
	var out struct {
		Tokens []uint32 `json:"tokens"`
	}
	// The server tokenizes prompts like this, whatever the request says. Rendered
	// ones lack the token that begins a sequence if it adds that.
	body := append(append([]byte(`{"content":`), content...), `,"add_special":true,"parse_special":true}`...)
	if err := e.post(ctx, "/tokenize", body, &out); err != nil {
		return nil, err
	}
	if out.Tokens == nil {
		return nil, &refusedError{"/tokenize", http.StatusOK}
	}
	return &engine.TokenizeResult{IDs: out.Tokens, Text: text}, nil
}

// appendMembers completes the object that body begins with those members of the
// client's that are named.
func appendMembers(body []byte, from *openai.Object, names []string) []byte {
	for _, name := range names {
		if v := from.Get(name); v != nil {
			body = append(append(append(body, `,"`...), name...), `":`...)
			body = append(body, v...)
		}
	}
	return append(body, '}')
}

// post sends a JSON document and decodes the one that is answered. An answer of
// another status, or none that fits, is a *refusedError.
func (e *Engine) post(ctx context.Context, path string, body []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, below(e.base, path).String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header["Content-Type"] = jsonType
	status, answer, err := e.fetch(req, answerLimit(len(body)))
	if err != nil {
		return &unansweredError{err}
	}
	if status != http.StatusOK || json.Unmarshal(answer, out) != nil {
		return &refusedError{path, status}
	}
	return nil
}
