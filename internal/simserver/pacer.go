package simserver

import (
	"context"
	"time"
)

// pacer waits until tokens are due. The k-th token after the first is due
// ttft + k·itl after the start, however long sending the ones before took: an
// engine does not wait for its clients.
type pacer struct {
	closed    <-chan struct{}
	start     time.Time
	ttft, itl time.Duration
	tokens    int
	timer     *time.Timer
}

// wait waits until the last of the next n tokens is due. It returns the context's
// error when the client is gone and errClosed when the server is closed.
func (p *pacer) wait(ctx context.Context, n int) error {
	p.tokens += n
	wait := time.Duration(0)
	if p.ttft > 0 || p.itl > 0 {
		due := p.start.Add(p.ttft + time.Duration(p.tokens-1)*p.itl)
		wait = time.Until(due)
	}
	if wait <= 0 {
		select {
		case <-p.closed:
			return errClosed
		default:
			return ctx.Err()
		}
	}
	if p.timer == nil {
		p.timer = time.NewTimer(wait)
	} else {
		p.timer.Reset(wait)
	}
	select {
	case <-p.timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.closed:
		return errClosed
	}
}

// stop releases the timer.
func (p *pacer) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
}
