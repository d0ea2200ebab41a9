package frontend

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/stator-ai/stator/internal/engine"
)

const (
	// abortTimeout is how long an engine may take to hear that a request is not wanted.
	abortTimeout = 2 * time.Second
	// maxAborts is how many engines are told at a time. Beyond it none is: all of them
	// notice in the end that the connection is gone.
	maxAborts = 256
)

// aborts tells engines of requests that nobody wants any more, in the background. The
// zero value is ready. It is safe for concurrent use.
type aborts struct {
	mu      sync.Mutex
	running int
	closed  bool
	wg      sync.WaitGroup
}

// start has e told about the request with that id.
func (a *aborts) start(e engine.Aborter, id string, log *slog.Logger) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.running == maxAborts {
		return
	}
	a.running++
	a.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), abortTimeout)
		defer cancel()
		if err := e.Abort(ctx, id); err != nil {
			log.Debug("an engine could not be told to abort", "engine_request_id", id, "error", err)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.running--
	})
}

// close waits for those under way and starts no more.
func (a *aborts) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.wg.Wait()
}

// abortEngine ends what an engine was asked and nobody waits for. The connection is
// closed by now; engines that take their time to notice are told.
func (c *call) abortEngine() {
	if e, ok := c.placement.Last().Engine.(engine.Aborter); ok {
		c.aborts.start(e, c.wishes.ID, c.log)
	}
}
