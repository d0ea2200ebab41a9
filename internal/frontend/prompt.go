package frontend

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/stator-ai/stator/internal/kv"
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

// mediaTokens is the guess at what an engine makes of an image or a recording.
const mediaTokens = 1024

// tokenize finds the prompt's token ids when something depends on them. A request
// whose tokens cannot be had goes on without them: what a template does not take is
// for the engine to refuse. Only a body that is no text is refused here.
func (c *call) tokenize() error {
	if c.endpoint == openai.Chat && c.ext != nil && c.ext.UseRawPrompt != nil && *c.ext.UseRawPrompt {
		c.metrics.HintIgnored("nvext.use_raw_prompt") // a chat has no other prompt
	}
	needed := c.needsTokens()
	brought := c.ext != nil && len(c.ext.TokenData) > 0 && (needed || c.row != nil)
	if !needed && !brought {
		return nil
	}
	tokens := c.tokensOf(c.model)
	if brought {
		c.takeTokenData(tokens)
	}
	if !needed {
		return nil
	}
	if src := c.source(tokens); src != nil && (c.prompt.Source == tokenize.None || c.wantsPrompt()) {
		if err := c.encode(src); err != nil {
			return err
		}
	}
	if c.row != nil && c.prompt.Source != tokenize.None {
		c.row.TokenizedMS = trace.MS(time.Since(c.received))
	}
	return c.checkContext()
}

// takeTokenData takes the tokens that the client brings along, unless they are none
// of the model's, or stand for something else than one text or chat. Nobody checks that
// they are those of the prompt, which the engine computes whatever they are: only who is
// trusted is believed, or else a tenant could make its prompts look short in the queue,
// and caches look as if they did not keep what they hold.
func (c *call) takeTokenData(tokens Tokens) {
	if c.key != nil && !c.key.Trusted || !c.oneText() || !tokens.knows(c.ext.TokenData) {
		c.metrics.HintIgnored("nvext.token_data")
		return
	}
	h := c.wantedHashing()
	c.prompt = tokenize.Result{IDs: c.ext.TokenData, Source: tokenize.Client}
	if h.Size > 0 {
		blocks := make([]kv.Block, 0, len(c.ext.TokenData)/h.Size)
		c.prompt.Blocks, c.hashing = kv.AppendBlocks(blocks, h.Seed, c.ext.TokenData, h.Size), h
	}
}

// oneText reports whether the prompt is a chat or one text, and not tokens, several
// prompts or embeddings.
func (c *call) oneText() bool {
	if c.endpoint == openai.Chat {
		return true
	}
	batch := c.req.Batch()
	return len(batch) == 1 && batch[0].Kind() == '"'
}

// encode makes the tokens. Those that the client brought along stay.
func (c *call) encode(src *promptSource) error {
	if src.busy() {
		gate := c.encoders.gate(len(c.req.Raw()))
		select {
		case gate <- struct{}{}:
			defer func() { <-gate }()
		case <-c.ctx.Done():
			return c.cancelled()
		}
	}
	h := c.wantedHashing()
	found, err := src.encode(c.ctx, h)
	var refused *openai.Error
	switch {
	case c.ctx.Err() != nil:
		return c.cancelled()
	case errors.As(err, &refused):
		return err
	case err != nil:
		c.skipTokens(err)
	case c.prompt.Source == tokenize.Client:
		c.prompt.Text = found.Text
	default:
		c.prompt, c.hashing = found, h
	}
	return nil
}

// wantedHashing says how the blocks of the prompt are to be hashed along with making
// its tokens: for the router or the trace, if all workers have blocks of one size.
func (c *call) wantedHashing() tokenize.Hashing {
	if c.row == nil && c.router.Mode() != router.KV || c.model.BlockSize < 1 || c.batched() {
		return tokenize.Hashing{}
	}
	return tokenize.Hashing{Seed: c.hashSeed(), Size: c.model.BlockSize}
}

// skipTokens notes that a prompt has no tokens.
func (c *call) skipTokens(err error) {
	c.tokenless = true
	reason := skipReason(err)
	c.model.Metrics.TokensSkipped(reason)
	if reason != metrics.SkipTemplate { // what a template says may quote the prompt
		c.log.Debug("prompt without tokens", "request_id", c.id, "model", c.model.ID, "reason", reason, "error", err)
	}
}

// source returns what the prompt's tokens can be made of, nil if nothing is known
// to make them of.
func (c *call) source(tokens Tokens) *promptSource {
	if c.req.Messages == nil && c.req.Prompt == nil { // embeddings stand in for a prompt
		return nil
	}
	p := &promptSource{endpoint: c.endpoint, req: *c.req, tokens: tokens, metrics: c.metrics, model: c.model, media: c.countMedia() > 0}
	if c.endpoint == openai.Completions {
		p.batch = c.req.Batch()
	}
	switch {
	case p.given(): // no matter by which tokenizer
	case tokens.Engine:
		p.engine = c.router.Tokenizer(c.model)
	case tokens.Local == nil:
		return nil
	}
	return p
}

// needsTokens reports whether the request's ids are worth their cost: they are
// asked for, caches are found by them, a threshold counts them, or they may be too
// many.
func (c *call) needsTokens() bool {
	if c.router.Mode() == router.KV || c.model.Thresholds().Set() || c.mayBeTooLong() {
		return true
	}
	return c.ext != nil && (c.ext.QueryOnly() || c.ext.Wants("routing") || c.ext.HasAnnotation(noteTokenIDs) || c.ext.HasAnnotation(notePrompt))
}

// mayBeTooLong reports whether the prompt may exceed the context and it takes no
// engine to find out. A token stands for at least a byte, and what is in the body
// besides the prompt makes up for those that a template adds.
func (c *call) mayBeTooLong() bool {
	limit := c.model.ContextLength
	return limit > 0 && len(c.req.Raw()) >= limit && !c.batched() && c.tokensOf(c.model).Local != nil
}

// batched reports whether there are several prompts, whose lengths do not add up.
func (c *call) batched() bool { return c.endpoint == openai.Completions && len(c.req.Batch()) > 1 }

// wantsPrompt reports whether the formatted prompt is asked for.
func (c *call) wantsPrompt() bool {
	return c.endpoint == openai.Chat && c.ext != nil && c.ext.HasAnnotation(notePrompt)
}

// checkContext refuses a prompt that leaves no room for an answer.
func (c *call) checkContext() error {
	limit, n := c.model.ContextLength, len(c.prompt.IDs)
	if limit <= 0 || n < limit || c.batched() {
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
	bytes := len(c.req.Get("tools")) + len(c.req.Messages) + len(c.req.Prompt)
	if c.countMedia() == 0 {
		return bytes / bytesPerToken, true
	}
	openai.EachMedia(c.req.Messages, func(m openai.Media) bool {
		bytes -= m.End - m.Start
		return true
	})
	return bytes/bytesPerToken + c.media*mediaTokens, true
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
	if src := c.prompt.Source; c.ext.HasAnnotation(noteTokenIDs) && (src == tokenize.Local || src == tokenize.Engine) {
		// The list is a string that holds JSON: clients decode it twice.
		ids := openai.AppendTokenIDs(nil, c.prompt.IDs)
		out = openai.AppendAnnotation(out, noteTokenIDs, openai.AppendString(nil, ids))
	}
	return out
}

// query answers where the request would run, without running it.
func (c *call) query() error {
	var err error
	if c.placement, err = c.place(); err != nil {
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
