package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// The targets of a server that has nothing to do. A megabyte has 1,000,000 bytes.
const (
	startLimit  = 1.0 // seconds
	rssLimit    = 60  // MB
	binaryLimit = 60  // MB

	startIdle = 3 * time.Second
)

// measureStart measures what a person who tries stator waits for, and what the
// server costs while nobody asks it anything. These are absolute by nature.
func measureStart(ctx context.Context, o options, r *report) error {
	o.progress("start: %d times", o.rounds)
	var waits, sizes []float64
	for range o.rounds {
		wait, err := firstAnswer(ctx, o)
		if err != nil {
			return err
		}
		waits = append(waits, wait.Seconds())
	}
	for range min(o.rounds, 2) {
		rss, err := idleServer(ctx, o)
		if err != nil {
			return err
		}
		sizes = append(sizes, float64(rss)/1e6)
	}
	info, err := os.Stat(o.stator)
	if err != nil {
		return err
	}
	r.below("start to first streamed byte", 0, median(waits), startLimit, "s")
	r.below(fmt.Sprintf("resident memory after %.0f s idle", startIdle.Seconds()), 0, median(sizes), rssLimit, "MB")
	r.below("size of the binary", 0, float64(info.Size())/1e6, binaryLimit, "MB")
	return nil
}

func startSim(ctx context.Context, o options) (*process, error) {
	return start(ctx, "stator", o.stator, "serve", "--listen", "127.0.0.1:0", "--sim", "4", "--sim-model", model)
}

// firstAnswer returns the time from the start of the process to the first event
// of a streamed answer, the simulated time to the first token included.
func firstAnswer(ctx context.Context, o options) (time.Duration, error) {
	p, err := startSim(ctx, o)
	if err != nil {
		return 0, err
	}
	defer p.stop()
	c, err := openStream(ctx, p.addr)
	if err != nil {
		return 0, p.failure(err)
	}
	defer c.close()
	return time.Since(p.began), nil
}

// idleServer returns the resident memory of a server that has answered once and
// been left alone since.
func idleServer(ctx context.Context, o options) (rss int64, err error) {
	p, err := startSim(ctx, o)
	if err != nil {
		return 0, err
	}
	defer p.stop()
	c, err := openStream(ctx, p.addr)
	if err != nil {
		return 0, p.failure(err)
	}
	c.close()
	if err := pause(ctx, startIdle); err != nil {
		return 0, err
	}
	_, rss, err = memory(p.pid())
	return rss, err
}
