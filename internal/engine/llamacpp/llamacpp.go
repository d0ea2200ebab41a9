// Package llamacpp is the adapter for llama.cpp's llama-server.
//
// The server keeps the prompt of each of its slots and reuses what a new one begins
// with, token by token. It tells nobody when that changes, so that what it holds is
// known from the requests that were sent and corrected by their answers.
//
// It has no cache salts. A request with one is run without the cache: it does not see
// what others left. What it leaves in its slot can still be reused by a request
// without a salt.
package llamacpp

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
	"github.com/stator-ai/stator/internal/openai"
)

// Engine is a llama-server.
type Engine struct {
	*openaihttp.Engine
	// adapters are the ids of LoRA adapters by name, as the server said last.
	adapters atomic.Pointer[map[string]int]
	// noMetrics says that the server was started without metrics.
	noMetrics atomic.Bool

	// What the server tells of itself.
	props openaihttp.Kept[props]
	slots openaihttp.Kept[openaihttp.List[slot]]
	loras openaihttp.Kept[openaihttp.List[lora]]

	mu       sync.Mutex
	life     life
	observed uint64 // how many times life has taken in numbers
}

var (
	_ engine.Engine    = (*Engine)(nil)
	_ engine.Loader    = (*Engine)(nil)
	_ engine.Tokenizer = (*Engine)(nil)
	_ engine.Canary    = (*Engine)(nil)
)

// New returns the adapter for the server that base reaches.
func New(base *openaihttp.Engine) *Engine { return &Engine{Engine: base} }

// Open implements [engine.Engine]. The server takes requests as they come and has no
// ids for them, so that those wishes are left out.
func (e *Engine) Open(ctx context.Context, t engine.Target, r *engine.Request) (*engine.Response, error) {
	// A request of a named conversation would outlive its connection.
	r.Header.Del("X-Conversation-Id")
	if r.Body == nil {
		return e.Send(ctx, t, r, nil)
	}
	resp, err := e.Send(ctx, t, r, e.edits(r))
	if err == nil {
		resp.UsageUnasked = tellsUsage(r)
	}
	return resp, err
}

// tellsUsage reports whether a stream has usage without being asked.
func tellsUsage(r *engine.Request) bool { return r.Path == openai.Completions.Path() }

// edits say the wishes of r.
func (e *Engine) edits(r *engine.Request) []openai.Edit {
	edits := slices.Clip(r.Edits)
	if r.Parent == "" {
		edits = openaihttp.ModelEdits(edits, r, r.Model)
	} else {
		edits = openaihttp.ModelEdits(edits, r, r.Parent)
		if id, ok := e.adapter(r.Model); ok {
			edits = append(edits, openai.Edit{Key: "lora", Value: fmt.Appendf(nil, `[{"id":%d,"scale":1}]`, id)})
		}
	}
	switch {
	case r.Salt != "":
		edits = append(edits, openai.Edit{Key: "cache_salt"}, openai.Edit{Key: "cache_prompt", Value: []byte("false")})
	case r.Unsalted:
		edits = append(edits, openai.Edit{Key: "cache_salt"})
	}
	if r.Greedy {
		edits = append(edits, openaihttp.GreedyEdits...)
	}
	if r.MaxThinking != nil {
		edits = append(edits, openai.Edit{Key: "thinking_budget_tokens", Value: strconv.AppendUint(nil, uint64(*r.MaxThinking), 10)})
	}
	if tellsUsage(r) {
		return edits
	}
	return openaihttp.UsageEdits(edits, r)
}

// adapter returns the id of a LoRA adapter.
func (e *Engine) adapter(name string) (id int, ok bool) {
	if ids := e.adapters.Load(); ids != nil {
		id, ok = (*ids)[name]
	}
	return id, ok
}

// Canary implements [engine.Canary]. The token takes the place of the prompt that the
// server's least used slot holds.
func (e *Engine) Canary(ctx context.Context, model string) error { return e.OneToken(ctx, model) }
