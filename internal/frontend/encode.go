package frontend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/jinja"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/chat"
)

// tokenizeTimeout bounds how long an engine is waited for that was asked for
// tokens. They are a help; the request goes on without.
const tokenizeTimeout = 3 * time.Second

// promptSource is a request's prompt before it is tokenized. It holds on to the
// body.
type promptSource struct {
	endpoint openai.Endpoint
	req      openai.Request
	batch    []openai.Value // the prompts of a completion
	media    bool           // something in it is not text
	tokens   Tokens
	engine   engine.Tokenizer // if the tokens are the engine's; nil if there is none to ask
	metrics  *metrics.Set
	model    *router.Model
}

// given reports whether the prompt is tokens already.
func (p *promptSource) given() bool { return len(p.batch) > 0 && p.batch[0].Kind() == '[' }

// busy reports whether making the tokens takes this machine's time.
func (p *promptSource) busy() bool { return p.tokens.Local != nil && !p.given() }

// Why a prompt is not tokenized, besides the errors of those who do it.
var (
	errNoEngine = errors.New("no engine can be asked for tokens")
	errBatch    = errors.New("prompt: expected one prompt for an engine to tokenize")
	errChanged  = errors.New("the request has the engine change its tokens")
	// errMedia: an engine makes many tokens of an image, and no template says how many.
	errMedia = errors.New("messages: expected text, for tokens that are the engine's")
)

// encode makes tokens of the prompt, and the hashes of their blocks if there is one
// prompt. The error is an *[openai.Error] when the request is to be refused, and
// otherwise only says why there are no tokens.
func (p *promptSource) encode(ctx context.Context, h tokenize.Hashing) (tokenize.Result, error) {
	if err := p.req.CheckUTF8(); err != nil {
		return tokenize.Result{}, err
	}
	if p.req.Get("truncate_prompt_tokens").Present() || p.endpoint == openai.Chat && p.req.Get("add_special_tokens").True() {
		return tokenize.Result{}, errChanged
	}
	if p.given() {
		return p.ids(h), nil
	}
	if p.media {
		return tokenize.Result{}, errMedia
	}
	if at := openai.LoneSurrogate(p.req.Raw()); at >= 0 {
		return tokenize.Result{}, fmt.Errorf("body: half a surrogate pair at byte %d, which is no character", at)
	}
	if p.tokens.Engine {
		return p.ask(ctx, h)
	}
	var found tokenize.Result
	var err error
	if p.endpoint == openai.Chat {
		found, err = p.encodeChat(h)
	} else {
		found, err = p.encodePrompts(h)
	}
	if err == nil {
		p.model.Metrics.Tokens(found.Cached, len(found.IDs)-found.Cached)
	}
	return found, err
}

// ids reads the tokens of a completion whose prompts are tokens.
func (p *promptSource) ids(h tokenize.Hashing) tokenize.Result {
	found := tokenize.Result{Source: tokenize.Client}
	for _, v := range p.batch {
		_ = v.Elements(func(id openai.Value) bool {
			n, _ := id.Uint()
			found.IDs = append(found.IDs, uint32(n))
			return true
		})
	}
	if len(p.batch) == 1 {
		found.Blocks = kv.AppendBlocks(nil, h.Seed, found.IDs, h.Size)
	}
	return found
}

// ask has an engine make the tokens.
func (p *promptSource) ask(ctx context.Context, h tokenize.Hashing) (tokenize.Result, error) {
	if p.engine == nil {
		return tokenize.Result{}, errNoEngine
	}
	r := &engine.TokenizeRequest{Model: p.model.ID, Body: &p.req.Object}
	if p.endpoint == openai.Completions {
		if len(p.batch) > 1 {
			return tokenize.Result{}, errBatch
		}
		r.Prompt = p.batch[0]
	}
	ctx, cancel := context.WithTimeout(ctx, tokenizeTimeout)
	defer cancel()
	start := time.Now()
	found, err := p.engine.Tokenize(ctx, r)
	if err != nil {
		return tokenize.Result{}, &engineError{err}
	}
	p.metrics.Tokenized(time.Since(start))
	return tokenize.Result{
		IDs: found.IDs, Text: found.Text, Source: tokenize.Engine,
		Blocks: kv.AppendBlocks(nil, h.Seed, found.IDs, h.Size),
	}, nil
}

// engineError says that an engine did not give tokens.
type engineError struct{ err error }

func (e *engineError) Error() string { return e.err.Error() }
func (e *engineError) Unwrap() error { return e.err }

// stepwise is a model whose two steps can be taken, and timed, apart.
type stepwise interface {
	tokenize.Renderer
	EncodePrompt(p *tokenize.Prompt, h tokenize.Hashing) (tokenize.Result, error)
}

// encodeChat renders a chat and makes tokens of it.
func (p *promptSource) encodeChat(h tokenize.Hashing) (tokenize.Result, error) {
	c := tokenize.Chat{
		Messages:           p.req.Messages,
		Tools:              p.req.Get("tools"),
		NoGenerationPrompt: string(p.req.Get("add_generation_prompt")) == "false",
		ContinueFinal:      p.req.Get("continue_final_message").True(),
		ToolChoice:         p.req.Get("tool_choice"),
		Documents:          p.req.Get("documents"),
		ReasoningEffort:    p.req.Get("reasoning_effort"),
		Kwargs:             p.req.Get("chat_template_kwargs"),
		Template:           p.req.Get("chat_template"),
	}
	start := time.Now()
	if m, ok := p.tokens.Local.(stepwise); ok {
		var out tokenize.Prompt
		if err := m.Render(&out, c); err != nil {
			return tokenize.Result{}, err
		}
		p.metrics.Templated(time.Since(start))
		start = time.Now()
		found, err := m.EncodePrompt(&out, h)
		p.metrics.Tokenized(time.Since(start))
		return found, err
	}
	found, err := p.tokens.Local.Chat(c, h)
	p.metrics.Tokenized(time.Since(start))
	return found, err
}

// encodePrompts makes tokens of the prompts of a completion, one after another when
// there are several.
func (p *promptSource) encodePrompts(h tokenize.Hashing) (tokenize.Result, error) {
	start := time.Now()
	bare := string(p.req.Get("add_special_tokens")) == "false"
	if len(p.batch) > 1 {
		h = tokenize.Hashing{} // they are not one sequence
	}
	var all tokenize.Result
	for i, v := range p.batch {
		text, ok := v.Text()
		if !ok {
			return tokenize.Result{}, fmt.Errorf("prompt[%d]: expected a string with valid escapes", i)
		}
		found, err := p.tokens.Local.Complete([]byte(text), bare, h)
		if err != nil {
			return tokenize.Result{}, fmt.Errorf("prompt[%d]: %w", i, err)
		}
		if i == 0 {
			all = found
			continue
		}
		all.IDs = append(all.IDs, found.IDs...)
		all.Cached += found.Cached
	}
	all.Text = nil // nothing was formatted
	p.metrics.Tokenized(time.Since(start))
	return all, nil
}

// skipReason classifies why a prompt has no tokens.
func skipReason(err error) metrics.SkipReason {
	var (
		asked  *engineError
		raised *jinja.RaiseError
		failed *jinja.Error
		limit  *jinja.LimitError
	)
	switch {
	case errors.Is(err, chat.ErrNoTemplate):
		return metrics.SkipNoTemplate
	case errors.Is(err, errMedia), errors.Is(err, chat.ErrMedia):
		return metrics.SkipMedia
	case errors.As(err, &raised), errors.As(err, &failed), errors.As(err, &limit):
		return metrics.SkipTemplate
	case errors.As(err, &asked):
		return metrics.SkipEngine
	case errors.Is(err, errNoEngine):
		return metrics.SkipNoEngine
	case errors.Is(err, errBatch):
		return metrics.SkipBatch
	default:
		return metrics.SkipRequest
	}
}
