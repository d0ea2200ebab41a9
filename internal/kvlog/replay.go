package kvlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// Clock is the time that a replay goes by.
type Clock interface {
	Now() time.Time
	// Sleep waits until d has passed. It returns the cause of ctx when that is done
	// before.
	Sleep(ctx context.Context, d time.Duration) error
}

// ReplayOptions say how a recording is replayed. The zero value replays all of it as
// fast as it can be read.
type ReplayOptions struct {
	// Speed is how many seconds of the recording pass in one: 1 is the pace at
	// which it was recorded. 0 means without waiting.
	Speed float64
	// MaxEvents and MaxDuration end the replay after so many events and before what
	// is due after so much time; 0 means never.
	MaxEvents   int
	MaxDuration time.Duration
	// Clock is the time to go by; nil means that of the system.
	Clock Clock
}

// Replay sends the batches of a recording to an Applier, and returns how many events
// it sent. It ends with the recording, at a limit, or with the first error: of ctx,
// of the Applier or of reading. Lines that are no events are not among them; see
// [Reader.Skipped].
//
// A batch is due as much later than the one before as it was recorded later; one
// that was recorded earlier, as where another recording begins, is due at once. Time
// that the Applier takes is made up for.
func Replay(ctx context.Context, r *Reader, to kv.Applier, opts ReplayOptions) (int, error) {
	if !(opts.Speed >= 0) || math.IsInf(opts.Speed, 1) {
		return 0, fmt.Errorf("kvlog: replay: speed: expected a number that is not negative, got %v", opts.Speed)
	}
	if opts.MaxEvents < 0 || opts.MaxDuration < 0 {
		return 0, errors.New("kvlog: replay: expected limits that are not negative")
	}
	if opts.Clock == nil {
		opts.Clock = system{}
	}
	p := pacer{opts: opts, start: opts.Clock.Now()}
	sent := 0
	for at, b := range r.Batches() {
		if ctx.Err() != nil {
			return sent, context.Cause(ctx)
		}
		more, err := p.wait(ctx, at)
		if !more || err != nil {
			return sent, err
		}
		if rest := opts.MaxEvents - sent; opts.MaxEvents > 0 && len(b.Events) > rest {
			b.Events = b.Events[:rest]
		}
		n, src, seq := len(b.Events), b.Source, b.Seq // before it is no longer ours
		if err := to.Apply(b); err != nil {
			return sent, fmt.Errorf("kvlog: replay: batch %d of worker %d, rank %d: %w", seq, src.Worker, src.Rank, err)
		}
		if sent += n; sent == opts.MaxEvents && sent > 0 {
			return sent, nil
		}
	}
	return sent, r.Err()
}

// pacer waits until batches are due.
type pacer struct {
	opts  ReplayOptions
	start time.Time
	begun bool
	last  time.Duration // the timestamp before
	due   time.Duration // of recorded time, all steps forward together
}

// wait waits until a batch with the timestamp at is due. It reports false, without
// waiting, if that is beyond the limit.
func (p *pacer) wait(ctx context.Context, at time.Duration) (bool, error) {
	if step := at - p.last; p.begun && step > 0 {
		p.due = time.Duration(min(uint64(p.due)+uint64(step), math.MaxInt64))
	}
	p.begun, p.last = true, at
	limit := p.opts.MaxDuration
	if p.opts.Speed == 0 && limit == 0 {
		return true, nil // whatever the time is
	}
	gone := p.opts.Clock.Now().Sub(p.start)
	due := gone
	if p.opts.Speed > 0 {
		due = scale(p.due, p.opts.Speed)
	}
	if limit > 0 && max(due, gone) >= limit {
		return false, nil
	}
	if due <= gone {
		return true, nil
	}
	return true, p.opts.Clock.Sleep(ctx, due-gone)
}

// scale returns how long recorded time takes.
func scale(d time.Duration, speed float64) time.Duration {
	f := float64(d) / speed
	if f >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(f)
}

// system is the clock of the system.
type system struct{}

func (system) Now() time.Time { return time.Now() }

func (system) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
