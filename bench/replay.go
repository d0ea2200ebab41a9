package main

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/stator-ai/stator/internal/replay"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/trace"
	"github.com/stator-ai/stator/internal/trace/tracetest"
)

// wantSpeed is how many times as fast as real time a replay should be, and
// wantAllocs how many allocations a simulated token may cost.
const (
	wantSpeed  = 500
	wantAllocs = 0.1
)

// measureReplay replays an hour of conversations over simulated engines in virtual
// time, placed round robin and by caches and load. The baseline is real time.
func measureReplay(ctx context.Context, o options, r *report) error {
	for _, engines := range []int{8, 64} {
		for _, mode := range []router.Mode{router.RoundRobin, router.KV} {
			if err := replayHour(ctx, o, r, engines, mode); err != nil {
				return err
			}
		}
	}
	return nil
}

// replayHour replays the hour once.
func replayHour(ctx context.Context, o options, r *report, engines int, mode router.Mode) error {
	o.progress("replay: an hour over %d engines, %s", engines, mode)
	tr, err := trace.Read(bytes.NewReader(tracetest.ConversationFile()), trace.ReadOptions{})
	if err != nil {
		return err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	rep, err := replay.Run(ctx, replay.Config{Engines: engines, Router: router.Config{Mode: mode}}, tr)
	if err != nil {
		return err
	}
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	allocs := float64(after.Mallocs-before.Mallocs) / float64(rep.Output)
	speed := rep.Duration.Seconds() / took.Seconds()
	r.rows = append(r.rows, row{
		what:     fmt.Sprintf("replay of an hour over %d engines, %s", engines, mode),
		baseline: fmt.Sprintf("%.0f s", rep.Duration.Seconds()),
		stator:   fmt.Sprintf("%.3g s", took.Seconds()),
		ratio:    fmt.Sprintf("%.0f×", speed),
		target:   fmt.Sprintf("≥ %d×", wantSpeed),
		ok:       speed >= wantSpeed,
	}, row{
		what:   "allocations per simulated token",
		stator: fmt.Sprintf("%.4f", allocs),
		target: fmt.Sprintf("< %v", wantAllocs),
		ok:     allocs < wantAllocs,
	})
	r.note("replay over %d engines, %s: %d passes and %d tokens, %.0f ns a token; TTFT p50 %.0f ms, p95 %.0f ms, p99 %.0f ms; %.1f %% of prompt tokens found in caches",
		engines, mode, rep.Passes, rep.Output, float64(took.Nanoseconds())/float64(rep.Output), rep.TTFT.Median, rep.TTFT.P95, rep.TTFT.P99, 100*rep.Reuse())
	return nil
}
