package hub

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"time"
)

const (
	// maxTries is how often a request is made that gets nowhere.
	maxTries = 5
	// firstPause is the pause before the second try; the later ones double.
	firstPause = 500 * time.Millisecond
	// maxPause is the longest pause, also one that a server asks for. It is an
	// error to be told to wait longer.
	maxPause = 60 * time.Second
	// askTimeout is how long a server may be silent when it is asked about files,
	// stallTimeout when it sends one.
	askTimeout   = 10 * time.Second
	stallTimeout = 30 * time.Second
	// fallbackTimeout is how long the Hub may take to say what has changed, when
	// the cache could do without.
	fallbackTimeout = 10 * time.Second
)

// errStalled says that nothing came for a while.
var errStalled = errors.New("no answer in time")

// errProgress is returned by an operation that failed, though it got on: it is
// called again at once and its failures are forgotten.
var errProgress = errors.New("interrupted after some progress")

// retry calls op until it succeeds, fails for good, or has failed tries times.
func (t *target) retry(ctx context.Context, tries int, op func() error) error {
	for failed := 0; ; {
		err := op()
		if errors.Is(err, errProgress) {
			failed = 0
			continue
		}
		failed++
		if err == nil || failed >= tries || !worthRetry(err) {
			return err
		}
		pause := min(firstPause<<(failed-1), maxPause)
		pause += rand.N(pause / 4) // so that a fleet does not come back at once
		if se := (*StatusError)(nil); errors.As(err, &se) && se.After > 0 {
			pause = se.After
		}
		t.reportPause(err, pause)
		wait := t.wait
		if wait == nil {
			wait = sleep
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

// sleep returns after d, or with the cause of the context's end.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// watchdog ends a request whose server has fallen silent.
type watchdog struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	stall  time.Duration
}

// watch returns a watchdog that lets the server be silent for so long.
func (c *Client) watch(ctx context.Context, stall time.Duration) *watchdog {
	w := &watchdog{stall: stall}
	if c.stall > 0 {
		w.stall = c.stall
	}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.timer = time.AfterFunc(w.stall, func() { w.cancel(errStalled) })
	return w
}

// alive is called when something has come.
func (w *watchdog) alive() { w.timer.Reset(w.stall) }

func (w *watchdog) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// reader returns r, each byte of which is a sign of life.
func (w *watchdog) reader(r io.Reader) io.Reader { return &watchedReader{r, w} }

type watchedReader struct {
	r io.Reader
	w *watchdog
}

func (r *watchedReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if n > 0 {
		r.w.alive()
	}
	return n, err
}
