// Package trtllm is the adapter for TensorRT-LLM's trtllm-serve.
//
// Two of its documents are handed out once: who reads /metrics or /kv_cache_events
// takes what is in them away from everybody else. One server must not be read by two
// routers.
//
// It refuses requests with members that it does not know. What other engines and
// clients are known to add is taken out; what changes the meaning of a request stays,
// so that the refusal is the server's to explain.
package trtllm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
	"github.com/stator-ai/stator/internal/openai"
)

// Engine is a TensorRT-LLM server.
type Engine struct {
	*openaihttp.Engine
	// unbounded says that the server refuses a bound on reasoning.
	unbounded atomic.Bool
	// noTokens says that the server has no route for the tokens of text, which came
	// late.
	noTokens atomic.Bool
	seen     atomic.Pointer[seen]
	// measured says that /metrics has iterations, or would have.
	measured atomic.Bool
	version  openaihttp.Kept[about]
	started  openaihttp.Kept[string] // when the server's process was

	poll   sync.Mutex // of who polls
	events *decoder   // under poll
}

var (
	_ engine.Engine      = (*Engine)(nil)
	_ engine.Loader      = (*Engine)(nil)
	_ engine.Tokenizer   = (*Engine)(nil)
	_ engine.EventPoller = (*Engine)(nil)
	_ engine.Canary      = (*Engine)(nil)
)

// New returns the adapter for the server that base reaches.
func New(base *openaihttp.Engine) *Engine {
	e := &Engine{Engine: base, events: newDecoder()}
	e.seen.Store(&seen{})
	return e
}

// Open implements [engine.Engine]. The server has no ids for requests and no way to be
// told a rank, so that both are left out. A salt is sent even where only chats have
// one, on /v1/completions: a refusal is better than a cache that is shared.
func (e *Engine) Open(ctx context.Context, t engine.Target, r *engine.Request) (*engine.Response, error) {
	unranked := *r
	unranked.Ranked = false
	r = &unranked
	if r.Body == nil {
		return e.Send(ctx, t, r, nil)
	}
	resp, err := e.send(ctx, t, r)
	if err == nil {
		resp.UsageUnasked = tellsUsage(r)
	}
	return resp, err
}

func (e *Engine) send(ctx context.Context, t engine.Target, r *engine.Request) (*engine.Response, error) {
	edits := edits(r)
	if r.MaxThinking == nil {
		return e.Send(ctx, t, r, edits)
	}
	budget := openai.Edit{Key: "thinking_token_budget", Value: strconv.AppendUint(nil, uint64(*r.MaxThinking), 10)}
	return e.SendOptional(ctx, t, r, edits, budget, &e.unbounded)
}

// foreign are members that others know and this server refuses, none of which changes
// what is generated here.
var foreign = map[string]bool{
	// Of OpenAI's API, about accounts and storage.
	"metadata": true, "parallel_tool_calls": true, "prompt_cache_key": true, "prompt_cache_retention": true,
	"safety_identifier": true, "service_tier": true, "store": true,
	// Hints to routers.
	"nvext": true, "cache_control": true,
	// vLLM's.
	"include_reasoning": true, "kv_transfer_params": true, "request_id": true, "return_token_ids": true,
	"return_tokens_as_token_ids": true, "session_id": true, "stream_interval": true, "vllm_xargs": true,
	// SGLang's.
	"custom_labels": true, "custom_params": true, "data_parallel_rank": true, "extra_key": true,
	"return_cached_tokens_details": true, "rid": true, "routed_dp_rank": true,
	// llama.cpp's.
	"cache_prompt": true, "id_slot": true, "return_tokens": true, "timings_per_token": true,
}

// edits say the wishes of r, apart from the bound on reasoning.
func edits(r *engine.Request) []openai.Edit {
	edits := slices.Clip(r.Edits)
	for i := range r.Body.Len() {
		if key, _ := r.Body.At(i); foreign[key] {
			edits = append(edits, openai.Edit{Key: key})
		}
	}
	// Releases differ in whether they know the newer name.
	if limit := valueOf(r, "max_completion_tokens"); limit != nil {
		edits = append(edits, openai.Edit{Key: "max_completion_tokens"})
		if limit.Present() {
			edits = append(edits, openai.Edit{Key: "max_tokens", Value: limit})
		}
	}
	if r.Parent == "" {
		edits = openaihttp.ModelEdits(edits, r, r.Model)
	} else {
		edits = openaihttp.ModelEdits(edits, r, r.Parent)
		if !r.Body.Get("lora_request").Present() {
			edits = append(edits, openai.Edit{Key: "lora_request", Value: loraRequest(r.Model)})
		}
	}
	edits = openaihttp.SaltEdits(edits, r, r.Salt)
	if r.Greedy {
		edits = append(edits, openaihttp.GreedyEdits...)
	}
	if r.Priority != nil {
		edits = append(edits, openai.Edit{Key: "priority", Value: strconv.AppendFloat(nil, priority(*r.Priority), 'f', -1, 64)})
	}
	return usageEdits(edits, r)
}

// tellsUsage reports whether a stream has usage without being asked: stream_options that
// do not say whether to include it have it included.
func tellsUsage(r *engine.Request) bool {
	options, err := openai.ParseObject(valueOf(r, "stream_options"))
	return err == nil && options.Get("include_usage") == nil
}

// usageEdits appends those that ask for the usage at the end of a stream, if r wishes
// it and it would not come anyway. Without being told not to, the server would put one
// on each chunk.
func usageEdits(edits []openai.Edit, r *engine.Request) []openai.Edit {
	if !r.Usage || tellsUsage(r) {
		return edits
	}
	value := []byte(`{"include_usage":true,"continuous_usage_stats":false}`)
	if options, err := openai.ParseObject(valueOf(r, "stream_options")); err == nil {
		value = options.Edit([]openai.Edit{
			{Key: "include_usage", Value: []byte("true")}, {Key: "continuous_usage_stats", Value: []byte("false")},
		}).Bytes()
	}
	return append(edits, openai.Edit{Key: "stream_options", Value: value})
}

// valueOf returns what a member will be after the edits of r, nil if it will not be.
func valueOf(r *engine.Request, key string) openai.Value {
	for i := len(r.Edits) - 1; i >= 0; i-- {
		if r.Edits[i].Key == key {
			return r.Edits[i].Value
		}
	}
	return r.Body.Get(key)
}

// priority maps one onto the server's, from 0 to 1 with 0.5 for none: a thousand steps
// each way.
func priority(p int32) float64 { return min(max(0.5+float64(p)/2000, 0), 1) }

// loraRequest names an adapter. The server keeps no list of them: it loads one by its
// path and tells them apart by number.
func loraRequest(name string) []byte {
	quoted := openai.AppendString(nil, name)
	id := xxh3.HashString(name)&(1<<31-1) | 1
	return fmt.Appendf(nil, `{"lora_name":%s,"lora_int_id":%d,"lora_path":%s}`, quoted, id, quoted)
}

// Canary implements [engine.Canary].
func (e *Engine) Canary(ctx context.Context, model string) error { return e.OneToken(ctx, model) }

var (
	errChat   = errors.New("tokenize: TensorRT-LLM gives the tokens of text only, not of chats")
	errTokens = errors.New("tokenize: this release of TensorRT-LLM gives no tokens")
)

// maxTokenized bounds the answer of the tokenize route.
const maxTokenized = 64 << 20

// Tokenize implements [engine.Tokenizer] for the prompts of completions. The tokens of
// chats cannot be had.
func (e *Engine) Tokenize(ctx context.Context, r *engine.TokenizeRequest) (*engine.TokenizeResult, error) {
	if r.Prompt == nil {
		return nil, errChat
	}
	if e.noTokens.Load() {
		return nil, errTokens
	}
	doc := append(append([]byte(`{"prompt":`), r.Prompt...), '}')
	status, body, err := e.PostStream(ctx, "/_internal/tokenize", doc)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	if status == http.StatusNotFound {
		e.noTokens.Store(true)
		return nil, errTokens
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("tokenize: /_internal/tokenize answered status %d", status)
	}
	var out struct {
		Tokens []uint32 `json:"tokens"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(nil, body, maxTokenized)).Decode(&out); err != nil || out.Tokens == nil {
		return nil, errors.New("tokenize: the answer of /_internal/tokenize is not what was expected")
	}
	return &engine.TokenizeResult{IDs: out.Tokens}, nil
}
