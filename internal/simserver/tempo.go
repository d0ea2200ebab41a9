package simserver

import (
	"context"
	"time"
)

// tempo says when the tokens of an answer may go out. Its methods return the
// context's error when the client is gone and errClosed when the server is closed.
type tempo interface {
	// more waits until there may be tokens due that were not when it returned
	// last.
	more(ctx context.Context) error
	// rest waits until an answer is complete whose longest choice has that many
	// tokens.
	rest(ctx context.Context, tokens int) error
	// due returns how many tokens of choice i are due.
	due(i int) int
}

var (
	_ tempo = (*pacer)(nil)
	_ tempo = (*job)(nil)
)

// pacer is the tempo without an engine model. The k-th token after the first is
// due ttft + k·itl after the start, however long sending the ones before took: an
// engine does not wait for its clients.
type pacer struct {
	closed    <-chan struct{}
	start     time.Time
	ttft, itl time.Duration
	tokens    int
	timer     *time.Timer
}

// more waits for one more token of each choice. It may be called again after an error.
func (p *pacer) more(ctx context.Context) error {
	before := p.tokens
	err := p.rest(ctx, before+1)
	if err != nil {
		p.tokens = before
	}
	return err
}

// rest waits until the given number of tokens is due.
func (p *pacer) rest(ctx context.Context, tokens int) error {
	p.tokens = tokens
	wait := time.Duration(0)
	if p.ttft > 0 || p.itl > 0 {
		wait = time.Until(p.start.Add(p.ttft + time.Duration(p.tokens-1)*p.itl))
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

// due returns the number of tokens waited for.
func (p *pacer) due(int) int { return p.tokens }

// stop releases the timer.
func (p *pacer) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
}
