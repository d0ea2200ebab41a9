package frontend

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/trace"
	"github.com/stator-ai/stator/nvext"
)

// The annotations that a stream can begin with.
const (
	noteRequestID = "request_id"
	notePrompt    = "formatted_prompt"
	noteTokenIDs  = "token_ids"
)

// bytesPerToken is the guess behind the length of a prompt that is not
// tokenized.
const bytesPerToken = 4

// tokenize finds the prompt's token ids when something depends on them.
func (c *call) tokenize() error {
	needed := c.needsTokens()
	if c.ext != nil && c.ext.TokenData != nil && (needed || c.row != nil) {
		c.prompt = tokenize.Result{IDs: c.ext.TokenData, Source: tokenize.Client}
	}
	if !needed {
		return nil
	}
	if src := c.source(); src != nil && c.prompt.Source == tokenize.None {
		select {
		case c.encoders <- struct{}{}:
			defer func() { <-c.encoders }()
		case <-c.ctx.Done():
			return c.cancelled()
		}
		var err error
		if c.prompt, err = src.encode(); err != nil {
			return err
		}
	}
	if c.row != nil && c.prompt.Source != tokenize.None {
		c.row.TokenizedMS = trace.MS(time.Since(c.received))
	}
	return c.checkContext()
}

// source returns what the prompt's tokens can be made of, nil if the model's
// tokenizer is not known.
func (c *call) source() *promptSource {
	tok, renderer := builtin(c.model.Tokenizer)
	if tok == nil || c.req.Messages == nil && c.req.Prompt == nil { // embeddings stand in for a prompt
		return nil
	}
	return &promptSource{endpoint: c.endpoint, req: *c.req, tok: tok, renderer: renderer, metrics: c.metrics}
}

// needsTokens reports whether the request's ids are worth their cost: they are
// asked for, or a threshold counts them.
func (c *call) needsTokens() bool {
	if c.model.Thresholds().Set() {
		return true
	}
	return c.ext != nil && (c.ext.QueryOnly() || c.ext.Wants("routing") || c.ext.HasAnnotation(noteTokenIDs) || c.ext.HasAnnotation(notePrompt))
}

// builtin returns a tokenizer that needs no files, and its template; nil for a
// name that is none.
func builtin(name string) (tokenize.Tokenizer, tokenize.Renderer) {
	if name == (tokenize.Bytes{}).Fingerprint() {
		return tokenize.Bytes{}, tokenize.ChatML{}
	}
	return nil, nil
}

// promptSource is a request's prompt before it is tokenized. It holds on to the
// body.
type promptSource struct {
	endpoint openai.Endpoint
	req      openai.Request
	tok      tokenize.Tokenizer
	renderer tokenize.Renderer
	metrics  *metrics.Set
}

// encode makes tokens of the prompt.
func (p *promptSource) encode() (tokenize.Result, error) {
	if err := p.req.CheckUTF8(); err != nil {
		return tokenize.Result{}, err
	}
	if p.endpoint == openai.Chat {
		return p.renderChat()
	}
	return p.encodePrompts()
}

func (p *promptSource) renderChat() (tokenize.Result, error) {
	start := time.Now()
	var out tokenize.Prompt
	err := p.renderer.Render(&out, tokenize.Chat{
		Messages:           p.req.Messages,
		Tools:              p.req.Get("tools"),
		NoGenerationPrompt: string(p.req.Get("add_generation_prompt")) == "false",
		ContinueFinal:      p.req.Get("continue_final_message").True(),
	})
	if err != nil {
		return tokenize.Result{}, &openai.Error{Code: openai.CodeInvalidValue, Param: "messages", Message: err.Error()}
	}
	p.metrics.Templated(time.Since(start))
	start = time.Now()
	ids, err := out.AppendIDs(nil, p.tok)
	if err != nil {
		return tokenize.Result{}, &openai.Error{Code: openai.CodeInvalidValue, Param: "messages", Message: err.Error()}
	}
	p.metrics.Tokenized(time.Since(start))
	return tokenize.Result{IDs: ids, Text: out.Text, Fingerprint: p.tok.Fingerprint(), Source: tokenize.Local}, nil
}

// encodePrompts tokenizes the prompts of a completion request, one after another
// when there are several.
func (p *promptSource) encodePrompts() (tokenize.Result, error) {
	start := time.Now()
	var ids []uint32
	for i, v := range p.req.Batch() {
		if text, ok := v.Text(); ok {
			var err error
			if ids, err = p.tok.Encode(ids, []byte(text), true); err != nil {
				return tokenize.Result{}, &openai.Error{Code: openai.CodeInvalidValue, Param: fmt.Sprintf("prompt[%d]", i), Message: err.Error()}
			}
			continue
		}
		_ = v.Elements(func(id openai.Value) bool {
			n, _ := id.Uint()
			ids = append(ids, uint32(n))
			return true
		})
	}
	p.metrics.Tokenized(time.Since(start))
	return tokenize.Result{IDs: ids, Fingerprint: p.tok.Fingerprint(), Source: tokenize.Local}, nil
}

// checkContext refuses a prompt that leaves no room for an answer.
func (c *call) checkContext() error {
	limit, n := c.model.ContextLength, len(c.prompt.IDs)
	if limit <= 0 || n < limit || c.endpoint == openai.Completions && len(c.req.Batch()) > 1 {
		return nil
	}
	param := "messages"
	if c.endpoint == openai.Completions {
		param = "prompt"
	}
	return &openai.Error{Code: openai.CodeContextLength, Param: param, Message: fmt.Sprintf(
		"This model's maximum context length is %d tokens. However, your messages resulted in %d tokens. Please reduce the length of the messages.",
		limit, n)}
}

// promptLength returns the number of prompt tokens, or a guess at it.
func (c *call) promptLength() (n int, guess bool) {
	if c.prompt.Source != tokenize.None {
		return len(c.prompt.IDs), false
	}
	return (len(c.req.Messages) + len(c.req.Prompt)) / bytesPerToken, true
}

// annotations returns the events that go before the first chunk.
func (c *call) annotations() []byte {
	if c.ext == nil || len(c.ext.Annotations) == 0 {
		return nil
	}
	var out []byte
	if c.ext.HasAnnotation(noteRequestID) {
		out = openai.AppendAnnotation(out, noteRequestID, openai.AppendString(nil, c.id))
	}
	if c.ext.HasAnnotation(notePrompt) && c.prompt.Text != nil {
		out = openai.AppendAnnotation(out, notePrompt, openai.AppendString(nil, c.prompt.Text))
	}
	if c.ext.HasAnnotation(noteTokenIDs) && c.prompt.Source == tokenize.Local {
		// The list is a string that holds JSON: clients decode it twice.
		ids := openai.AppendTokenIDs(nil, c.prompt.IDs)
		out = openai.AppendAnnotation(out, noteTokenIDs, openai.AppendString(nil, ids))
	}
	return out
}

// query answers where the request would run, without running it.
func (c *call) query() error {
	var err error
	if c.placement, err = c.router.Place(c.ctx, &c.placing); err != nil {
		return c.placeError(err)
	}
	ext := nvext.Response{WorkerID: c.workerIDs(), TokenIDs: c.prompt.IDs, Routing: brief(c.placement.Routing)}
	chunk := openai.Chunk{
		ID:      c.answerID(),
		Model:   c.model.ID,
		Created: c.received.Unix(),
		Choices: []openai.Choice{{}},
		NVExt:   ext.AppendJSON(nil),
	}
	c.committed, c.status = true, http.StatusOK
	c.limitWrite(http.NewResponseController(c.w), time.Now())
	h := c.w.Header()
	if c.req.Stream {
		h["Content-Type"], h["Cache-Control"] = eventStream, noCache
		out := openai.AppendData(c.annotations(), appendChunk(c.endpoint, nil, &chunk))
		_, err = c.w.Write(append(out, openai.Done...))
	} else {
		var body []byte
		if c.endpoint == openai.Chat {
			body = openai.AppendChat(nil, &chunk)
		} else {
			body = openai.AppendCompletion(nil, &chunk)
		}
		h["Content-Type"] = []string{"application/json"}
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
		_, err = c.w.Write(body)
	}
	if err != nil {
		return errClientGone
	}
	c.placement.Done(router.Completed)
	return nil
}

func (c *call) answerID() string {
	if c.endpoint == openai.Completions {
		return "cmpl-" + c.id
	}
	return "chatcmpl-" + c.id
}
