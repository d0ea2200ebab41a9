// Package vllm is the adapter for vLLM's own server, 0.9 and later.
//
// Nothing goes by versions: what a server has is found out by asking for it. Most of
// what an operator may have configured is told only in development mode
// (VLLM_SERVER_DEV_MODE=1); without it, metrics and sockets say what they can.
package vllm

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/eventsocket"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
	"github.com/stator-ai/stator/internal/openai"
)

// saltTag marks the salts that we send. vLLM tells of a block's salt among strings of
// other meanings, and whoever reads its events takes one with the tag for the salt.
const saltTag = "dynamo-cache-salt:"

// Engine is a vLLM server.
type Engine struct {
	*openaihttp.Engine
	opt eventsocket.Options
	// facts are what the server said when it was asked last; nil before.
	facts atomic.Pointer[facts]
	// unbounded says that the server refuses a bound on reasoning: it knows none, or
	// was started without a reasoning parser.
	unbounded atomic.Bool

	// What the server tells of itself.
	version openaihttp.Kept[about]
	metrics openaihttp.Kept[metrics]
	config  openaihttp.Kept[serverInfo]
	sources openaihttp.Kept[map[string]*events]
}

// facts are what requests depend on.
type facts struct {
	priority engine.Priority
	life     string
}

var (
	_ engine.Engine    = (*Engine)(nil)
	_ engine.Loader    = (*Engine)(nil)
	_ engine.Tokenizer = (*Engine)(nil)
	_ engine.Canary    = (*Engine)(nil)
)

// New returns the adapter for the server that base reaches.
func New(base *openaihttp.Engine, opt eventsocket.Options) *Engine {
	return &Engine{Engine: base, opt: opt}
}

// Open implements [engine.Engine]. The request's id goes into a header. A bound on
// reasoning is left out for servers that refuse it.
func (e *Engine) Open(ctx context.Context, t engine.Target, r *engine.Request) (*engine.Response, error) {
	if r.ID != "" {
		openaihttp.SetHeader(r, "X-Request-Id", r.ID)
	}
	if r.Body == nil {
		return e.Send(ctx, t, r, nil)
	}
	edits := e.edits(r)
	if r.MaxThinking == nil {
		return e.Send(ctx, t, r, edits)
	}
	budget := openai.Edit{Key: "thinking_token_budget", Value: strconv.AppendUint(nil, uint64(*r.MaxThinking), 10)}
	return e.SendOptional(ctx, t, r, edits, budget, &e.unbounded)
}

// edits say the wishes of r, apart from the bound on reasoning. An adapter is a model
// like any other.
func (e *Engine) edits(r *engine.Request) []openai.Edit {
	edits := openaihttp.ModelEdits(slices.Clip(r.Edits), r, r.Model)
	edits = openaihttp.SaltEdits(edits, r, saltTag+strings.TrimPrefix(r.Salt, saltTag))
	if r.Greedy {
		edits = append(edits, openaihttp.GreedyEdits...)
	}
	edits = openaihttp.UsageEdits(edits, r)
	f := e.facts.Load()
	if r.Priority != nil && (f == nil || f.priority != engine.PriorityIgnored) {
		// The lowest number goes first.
		edits = append(edits, openai.Edit{Key: "priority", Value: strconv.AppendInt(nil, -int64(*r.Priority), 10)})
	}
	return edits
}

// Canary implements [engine.Canary]. The token leaves nothing in the cache.
func (e *Engine) Canary(ctx context.Context, model string) error { return e.OneToken(ctx, model) }
