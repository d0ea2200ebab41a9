package simserver

import (
	"context"
	"net/http"
	"runtime"
)

// largeBody is where a body begins to be large: its prompt takes more than a few
// milliseconds to render and encode.
const largeBody = 64 << 10

// turns has a place for each large prompt that may be rendered and encoded at a
// time, by all servers of the process together. One core stays free, so that answers
// keep flowing.
var turns = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1))

// takeTurn waits until the prompt of the body may be rendered and encoded; done is
// to be called after that. A small one need not wait. There is an error when ctx ends
// before.
func (sc *scratch) takeTurn(ctx context.Context) (done func(), err *apiError) {
	if sc.body.Len() < largeBody {
		return func() {}, nil
	}
	select {
	case turns <- struct{}{}:
		return func() { <-turns }, nil
	case <-ctx.Done():
		return nil, &apiError{status: http.StatusServiceUnavailable, message: "the request was cancelled before its prompt was read"}
	}
}
