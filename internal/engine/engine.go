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
	"fmt"
	"io"
	"net/http"

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
// Open returns, apart from Body, Raw and Edits, which it may read until the
// response's body is closed.
type Request struct {
	Path   string         // route below the engine's base URL, such as /v1/chat/completions
	Query  string         // of the URL, without its question mark
	Body   *openai.Object // the client's body, as sent; nil for one that is not looked into
	Edits  []openai.Edit  // changes to apply to Body on the way out
	Header http.Header    // headers to pass on, already chosen; the engine takes it over
	Ranked bool           // the worker has several ranks: tell it which

	// Method and Raw are for requests that are not looked into: Raw is sent as it
	// is, with the Content-Type of Header. Method is POST if empty.
	Method string
	Raw    []byte

	Wishes
}

// Wishes are what a request wants of an engine beyond its body. Each adapter says
// them in the way of its engine, and leaves out what that cannot do.
type Wishes struct {
	// ID names the request to the engine; no two under way have the same.
	ID string
	// Model is the name that the engine serves, and Parent the model that it is an
	// adapter of; empty for a model. Both are empty for a body that is to keep its own.
	Model, Parent string
	// Priority is how urgent the request is, more being more urgent; nil if nobody
	// said.
	Priority *int32
	// Salt keeps the request's blocks in the cache apart from those of others; empty
	// for none. Unsalted says that the body has one that does not count.
	Salt     string
	Unsalted bool
	// Greedy asks for the most likely token each time.
	Greedy bool
	// MaxThinking bounds the tokens of the reasoning; nil for no bound.
	MaxThinking *uint32
	// Usage asks for the usage at the end of a stream that the body does not ask for.
	Usage bool
}

// Response is what an engine answered. Body is never nil and must be closed;
// closing it early aborts the request on the engine.
type Response struct {
	Status int
	Header http.Header
	Body   io.ReadCloser
	// Sent reports whether the engine has let go of the request's body and
	// edits, so that their memory may be used again. It may stay false.
	Sent         func() bool
	UsageUnasked bool // the engine tells usage in streams whether asked or not
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
