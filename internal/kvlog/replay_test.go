package kvlog

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
)

// arrivals notes when batches come.
type arrivals struct {
	start time.Time
	got   []timed
	takes time.Duration // how long Apply takes
	err   error
}

func (a *arrivals) Apply(b *kv.Batch) error {
	if a.err != nil {
		return a.err
	}
	a.got = append(a.got, timed{time.Since(a.start), b})
	time.Sleep(a.takes)
	return nil
}

const ms = time.Millisecond

func TestReplay(t *testing.T) {
	recording := line(1000, 1, 0) + line(1000, 2, 0) + line(1400, 1, 1) + line(1400, 1, 1) + line(1200, 1, 2) + line(1300, 1, 3) + line(3300, 1, 4)
	for _, tc := range []struct {
		name  string
		opts  ReplayOptions
		takes time.Duration
		at    []time.Duration
		sent  int
	}{
		{"at once", ReplayOptions{}, 0, make([]time.Duration, 6), 7},
		{"as recorded", ReplayOptions{Speed: 1}, 0, []time.Duration{0, 0, 400 * ms, 400 * ms, 500 * ms, 2500 * ms}, 7},
		{"twice as fast", ReplayOptions{Speed: 2}, 0, []time.Duration{0, 0, 200 * ms, 200 * ms, 250 * ms, 1250 * ms}, 7},
		{"half as fast", ReplayOptions{Speed: 0.5}, 0, []time.Duration{0, 0, 800 * ms, 800 * ms, 1000 * ms, 5000 * ms}, 7},
		{"makes up for slow batches", ReplayOptions{Speed: 1}, 150 * ms, []time.Duration{0, 150 * ms, 400 * ms, 550 * ms, 700 * ms, 2500 * ms}, 7},
		{"max events", ReplayOptions{MaxEvents: 3}, 0, make([]time.Duration, 3), 3},
		{"max events that are all", ReplayOptions{MaxEvents: 7}, 0, make([]time.Duration, 6), 7},
		{"max duration", ReplayOptions{Speed: 1, MaxDuration: 500 * ms}, 0, []time.Duration{0, 0, 400 * ms, 400 * ms}, 5},
		{"max duration at once", ReplayOptions{MaxDuration: 500 * ms}, 200 * ms, []time.Duration{0, 200 * ms, 400 * ms}, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to := &arrivals{start: time.Now(), takes: tc.takes}
				sent, err := Replay(t.Context(), NewReader(strings.NewReader(recording)), to, tc.opts)
				if err != nil {
					t.Fatal(err)
				}
				var at []time.Duration
				events := 0
				for _, a := range to.got {
					at = append(at, a.At)
					events += len(a.Batch.Events)
				}
				if diff := cmp.Diff(tc.at, at); diff != "" {
					t.Errorf("times (-want +got):\n%s", diff)
				}
				if sent != tc.sent || events != tc.sent {
					t.Errorf("says %d events, sent %d, want %d", sent, events, tc.sent)
				}
			})
		})
	}
}

// virtual is a clock that jumps.
type virtual struct{ now time.Time }

func (c *virtual) Now() time.Time { return c.now }

func (c *virtual) Sleep(_ context.Context, d time.Duration) error {
	c.now = c.now.Add(d)
	return nil
}

func TestReplayClock(t *testing.T) {
	clock := &virtual{}
	const century = 100 * 365 * 24 * 3600 * 1000 // in milliseconds
	var at []time.Duration
	sent, err := Replay(t.Context(), NewReader(strings.NewReader(line(0, 1, 0)+line(century, 1, 1)+line(2*century, 1, 2))),
		applierFunc(func(*kv.Batch) error {
			at = append(at, clock.now.Sub(time.Time{}))
			return nil
		}), ReplayOptions{Speed: 1, Clock: clock})
	if diff := cmp.Diff([]time.Duration{0, century * ms, 2 * century * ms}, at); diff != "" || sent != 3 || err != nil {
		t.Errorf("sent %d, %v; times (-want +got):\n%s", sent, err, diff)
	}
}

func TestReplayEnds(t *testing.T) {
	broken := errors.New("broken")
	recording := line(0, 1, 0) + line(60000, 1, 1)
	t.Run("cancelled while it waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(broken) })
			to := &arrivals{start: time.Now()}
			sent, err := Replay(ctx, NewReader(strings.NewReader(recording)), to, ReplayOptions{Speed: 1})
			if sent != 1 || err != broken || time.Since(to.start) != time.Second {
				t.Errorf("sent %d, %v, after %v", sent, err, time.Since(to.start))
			}
		})
	})
	t.Run("cancelled before", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(broken)
		if sent, err := Replay(ctx, NewReader(strings.NewReader(recording)), &arrivals{}, ReplayOptions{}); sent != 0 || err != broken {
			t.Errorf("sent %d, %v", sent, err)
		}
	})
	t.Run("applier fails", func(t *testing.T) {
		sent, err := Replay(t.Context(), NewReader(strings.NewReader(recording)), &arrivals{err: broken}, ReplayOptions{})
		if sent != 0 || !errors.Is(err, broken) || !strings.Contains(err.Error(), "batch 0 of worker 1, rank 0") {
			t.Errorf("sent %d, %v", sent, err)
		}
	})
	t.Run("cannot be read", func(t *testing.T) {
		sent, err := Replay(t.Context(), NewReader(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(recording)))), &arrivals{}, ReplayOptions{})
		if sent != 0 || !errors.Is(err, iotest.ErrTimeout) {
			t.Errorf("sent %d, %v", sent, err)
		}
	})
	t.Run("options", func(t *testing.T) {
		for _, opts := range []ReplayOptions{{Speed: -1}, {Speed: math.NaN()}, {Speed: math.Inf(1)}, {MaxEvents: -1}, {MaxDuration: -1}} {
			if sent, err := Replay(t.Context(), NewReader(strings.NewReader(recording)), &arrivals{}, opts); sent != 0 || err == nil {
				t.Errorf("%+v: sent %d, %v", opts, sent, err)
			}
		}
	})
}

// Times at the end of their range neither overflow nor make a replay wait backwards.
func TestReplayLongestTimes(t *testing.T) {
	const last = math.MaxInt64 / int(time.Millisecond)
	clock := &virtual{}
	sent, err := Replay(t.Context(), NewReader(strings.NewReader(line(0, 1, 0)+line(last, 1, 1)+line(0, 1, 2)+line(last, 1, 3))),
		&arrivals{}, ReplayOptions{Speed: 1e-300, MaxDuration: time.Hour, Clock: clock})
	if sent != 1 || err != nil || !clock.now.IsZero() {
		t.Errorf("sent %d, %v, clock %v", sent, err, clock.now)
	}
}
