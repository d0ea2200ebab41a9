// Package sglang is the adapter for SGLang's own server, 0.4.7 and later.
//
// Its /health runs a token and takes a second or more, so that it is never asked:
// whether the server is well is told by its loads.
package sglang

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/eventsocket"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
	"github.com/stator-ai/stator/internal/openai"
)

// Engine is an SGLang server.
type Engine struct {
	*openaihttp.Engine
	opt eventsocket.Options
	// info is what the server tells of how it was started.
	info openaihttp.Kept[serverInfo]
	// facts are what the server said when it was asked last; nil before.
	facts atomic.Pointer[facts]
	// noLoads says that the server has no /v1/loads, as before 0.5.8.
	noLoads atomic.Bool
}

// facts are what requests and loads depend on.
type facts struct {
	priority  engine.Priority
	lowFirst  bool // the lowest priority goes first
	usage     bool // streams have usage whether asked or not
	blockSize int
}

var (
	_ engine.Engine    = (*Engine)(nil)
	_ engine.Loader    = (*Engine)(nil)
	_ engine.Tokenizer = (*Engine)(nil)
	_ engine.Aborter   = (*Engine)(nil)
	_ engine.Canary    = (*Engine)(nil)
)

// New returns the adapter for the server that base reaches.
func New(base *openaihttp.Engine, opt eventsocket.Options) *Engine {
	return &Engine{Engine: base, opt: opt}
}

// Open implements [engine.Engine].
func (e *Engine) Open(ctx context.Context, t engine.Target, r *engine.Request) (*engine.Response, error) {
	if r.Body == nil {
		return e.Send(ctx, t, r, nil)
	}
	f := e.known()
	resp, err := e.Send(ctx, t, r, f.edits(r))
	if err == nil {
		resp.UsageUnasked = f.usage
	}
	return resp, err
}

// known returns what the server said when it was asked last.
func (e *Engine) known() *facts {
	if f := e.facts.Load(); f != nil {
		return f
	}
	return &facts{}
}

// edits say the wishes of r.
func (f *facts) edits(r *engine.Request) []openai.Edit {
	edits := openaihttp.ModelEdits(slices.Clip(r.Edits), r, model(r))
	edits = openaihttp.SaltEdits(edits, r, r.Salt)
	if r.Greedy {
		edits = append(edits, openaihttp.GreedyEdits...)
	}
	if !f.usage {
		edits = openaihttp.UsageEdits(edits, r)
	}
	if r.Path != openai.Chat.Path() && r.Path != openai.Completions.Path() {
		return edits
	}
	edits = f.priorityEdits(edits, r)
	if r.MaxThinking != nil {
		// Heeded by servers that were started with --enable-strict-thinking or run a
		// logit processor of the request's.
		params, err := openai.ParseObject(r.Body.Get("custom_params"))
		budget := strconv.AppendUint(nil, uint64(*r.MaxThinking), 10)
		value := fmt.Appendf(nil, `{"thinking_budget":%s}`, budget)
		if err == nil {
			value = params.Edit([]openai.Edit{{Key: "thinking_budget", Value: budget}}).Bytes()
		}
		edits = append(edits, openai.Edit{Key: "custom_params", Value: value})
	}
	if r.ID != "" && isSingle(r.Body) {
		edits = append(edits, openai.Edit{Key: "rid", Value: openai.AppendString(nil, rid(r.ID))})
	}
	return edits
}

// model returns the name by which the server knows what r asks for: an adapter follows
// its model after a colon.
func model(r *engine.Request) string {
	if r.Parent == "" {
		return r.Model
	}
	prefix := r.Parent + ":"
	if len(r.Model) > len(prefix) && r.Model[:len(prefix)] == prefix {
		return r.Model
	}
	return prefix + r.Model
}

// priorityEdits appends the one that says how urgent the request is. Where priorities
// are heeded, a request without one comes after all others, so that it gets one in the
// middle; where they are not, the server may have been told to refuse them.
func (f *facts) priorityEdits(edits []openai.Edit, r *engine.Request) []openai.Edit {
	var p int64
	switch {
	case f.priority == engine.PriorityIgnored:
		return edits
	case r.Priority != nil:
		p = int64(*r.Priority)
	case f.priority != engine.PriorityHonoured || r.Body.Get("priority").Present():
		return edits
	}
	if f.lowFirst {
		p = -p
	}
	return append(edits, openai.Edit{Key: "priority", Value: strconv.AppendInt(nil, p, 10)})
}

// rid is the id of a request on the server, where aborting an id aborts all that begin
// with it: they are made equally long.
func rid(id string) string {
	sum := xxh3.HashString128(id).Bytes()
	return hex.EncodeToString(sum[:])
}

// isSingle reports whether a body asks for one answer. Several would each need an id,
// and how they are named depends on the release.
func isSingle(body *openai.Object) bool {
	if n := body.Get("n"); n.Present() && string(n) != "1" {
		return false
	}
	single := true
	if prompt := body.Get("prompt"); prompt.Kind() == '[' {
		prompt.Elements(func(first openai.Value) bool {
			single = first.Kind() == '0'
			return false
		})
	}
	return single
}

// Abort implements [engine.Aborter]. The server itself would notice after two seconds.
func (e *Engine) Abort(ctx context.Context, id string) error {
	doc := append([]byte(`{"rid":`), openai.AppendString(nil, rid(id))...)
	status, _, err := e.Post(ctx, "/abort_request", append(doc, '}'))
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("abort %s: /abort_request answered status %d", e.URL(), status)
	}
	return nil
}

// Probe implements [engine.Engine]. It asks the scheduler for its loads, and a server
// without that route whether it is there at all.
func (e *Engine) Probe(ctx context.Context) error {
	paths := []string{loadsPath, "/ping", "/v1/models"}
	if e.noLoads.Load() {
		paths = paths[1:]
	}
	for _, path := range paths {
		status, _, err := e.Get(ctx, path)
		switch {
		case err != nil:
			return err
		case status == http.StatusOK:
			return nil
		case status != http.StatusNotFound:
			return fmt.Errorf("probe %s: %s answered status %d", e.URL(), path, status)
		case path == loadsPath:
			e.noLoads.Store(true)
		}
	}
	return fmt.Errorf("probe %s: status %d", e.URL(), http.StatusNotFound)
}

// Canary implements [engine.Canary].
func (e *Engine) Canary(ctx context.Context, model string) error { return e.OneToken(ctx, model) }
