// Package engine is the contract between the router and an engine server.
//
// An [Engine] opens requests and says what it is. What only some engines can do
// is a capability: a small interface found by type assertion, such as [Loader] or
// [Tokenizer]. No method ever answers "unsupported".
//
// A request goes out as the client's bytes plus a list of edits and comes back
// as status, header and a stream of bytes; nothing in between is decoded.
package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/openai"
)

// Target is where a request runs: one data-parallel rank of one worker.
type Target struct {
	Worker kv.WorkerID
	Rank   uint32
}

func (t Target) String() string { return fmt.Sprintf("%d/%d", t.Worker, t.Rank) }

// Request is one call of an engine's API. The engine does not keep it after
// Open returns, apart from Body and Edits, which it may read until the
// response's body is closed.
type Request struct {
	Path   string         // route below the engine's base URL, such as /v1/chat/completions
	Body   *openai.Object // the client's body, as sent
	Edits  []openai.Edit  // changes to apply to Body on the way out
	Header http.Header    // headers to pass on, already chosen; the engine takes it over
	Ranked bool           // the worker has several ranks: tell it which
}

// Response is what an engine answered. Body is never nil and must be closed;
// closing it early aborts the request on the engine.
type Response struct {
	Status int
	Header http.Header
	Body   io.ReadCloser
	// Sent reports whether the engine has let go of the request's body and
	// edits, so that their memory may be used again. It may stay false.
	Sent func() bool
}

// Engine talks to one engine server. Implementations are safe for concurrent
// use.
type Engine interface {
	// Open sends the request to the given rank and returns once the response's
	// header is there. Any status is a response, not an error. Cancelling ctx
	// aborts the request, before and after Open returns. The error is an
	// *[OpenError].
	Open(ctx context.Context, t Target, r *Request) (*Response, error)
	// Identify asks the server what it is and what it serves.
	Identify(ctx context.Context) (*Info, error)
	// Probe reports nil when the server says it is healthy. It is cheaper than
	// Identify.
	Probe(ctx context.Context) error
	// Close drops idle connections. Running requests are not touched.
	Close()
}

// HeaderArrival carries nvext.request_timestamp_ms to an engine, since nvext itself
// stays behind: in milliseconds, when the request arrived. A simulated engine in
// virtual time goes by it; no other looks at it.
const HeaderArrival = "X-Request-Timestamp-Ms"

// Info is what Identify found out.
type Info struct {
	Kind    string // "sim", "openai"
	Version string // as the server spells it; empty when it does not say
	Models  []Model
}

// Model is one model as an engine serves it. Zero means unknown.
type Model struct {
	ID               string
	Parent           string // the model that this is an adapter of; empty for a model
	Tokenizer        string // name of a built-in tokenizer, when the engine uses one
	ContextLength    int
	BlockSize        int // tokens per KV block
	TotalBlocks      int // KV blocks per rank
	MaxBatchedTokens int // prefill tokens per step and rank
	Ranks            int // data-parallel ranks
}

// Load is an engine's own view of one rank.
type Load struct {
	Rank         uint32
	UsedBlocks   int // KV blocks in use
	Running      int
	Waiting      int
	TotalBlocks  int // 0 when not said
	BatchedLimit int // max_num_batched_tokens, 0 when not said
}

// Loader is the capability of engines that report their load.
type Loader interface {
	// Load returns one entry per rank that has something to say.
	Load(ctx context.Context) ([]Load, error)
}

// TokenizeRequest asks for the tokens of a prompt. The engine does not keep it.
type TokenizeRequest struct {
	Model string         // as the engine serves it
	Body  *openai.Object // the client's body, of which the engine takes what decides the prompt
	// Prompt is the text of a completion, a JSON string; nil for a chat.
	Prompt openai.Value
}

// TokenizeResult is what an engine made of a prompt.
type TokenizeResult struct {
	IDs  []uint32
	Text []byte // the formatted prompt of a chat, nil when the engine does not say
	// MaxModelLen is the longest sequence as the route states it, 0 when it does
	// not. Some engines state what the model was made for and not what they serve.
	MaxModelLen int
}

// Tokenizer is the capability of engines that give the tokens of a prompt without
// running it.
type Tokenizer interface {
	// Tokenize returns the tokens that the request would have.
	Tokenize(ctx context.Context, r *TokenizeRequest) (*TokenizeResult, error)
	// Resting reports whether the engine has not answered a while ago and would
	// not be asked now.
	Resting() bool
}

// Failure says how far a request came before it failed.
type Failure uint8

// The failures of Open and of reading a response.
const (
	// FailConnect: no connection; nothing was sent.
	FailConnect Failure = iota + 1
	// FailBroken: the connection broke, or what came was not HTTP.
	FailBroken
	// FailTimeout: nothing came for too long.
	FailTimeout
	// FailCancelled: the caller's context ended.
	FailCancelled
	// FailLocal: this machine has no socket or memory left; the engine has no
	// part in it.
	FailLocal
)

func (f Failure) String() string {
	switch f {
	case FailConnect:
		return "connect"
	case FailBroken:
		return "broken"
	case FailTimeout:
		return "timeout"
	case FailCancelled:
		return "cancelled"
	case FailLocal:
		return "local"
	default:
		return "unknown"
	}
}

// OpenError is the error of Open.
type OpenError struct {
	Failure Failure
	Target  Target
	Err     error
}

func (e *OpenError) Error() string {
	return fmt.Sprintf("engine %s: %s: %v", e.Target, e.Failure, e.Err)
}

func (e *OpenError) Unwrap() error { return e.Err }

// ErrIdle is the cause of a context cancelled because the engine sent nothing
// for too long.
var ErrIdle = errors.New("engine sent nothing for too long")

// IsLocal reports whether err is a shortage on this machine.
func IsLocal(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// FailureOf tells what kind of failure err is; a cancelled ctx with the cause
// [ErrIdle] is a time-out.
func FailureOf(ctx context.Context, err error) Failure {
	var open *OpenError
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), ErrIdle):
		return FailTimeout
	case ctx.Err() != nil:
		return FailCancelled
	case errors.As(err, &open):
		return open.Failure
	default:
		return FailBroken
	}
}
