package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"time"

	"github.com/stator-ai/stator/internal/collect"
)

// watchMetrics collects and shows, at once and then at every tick, until ctx ends. A
// collection that takes longer than a tick has the next one follow it. Its error is that of
// show, or that nothing could be collected in all that time.
func watchMetrics(ctx context.Context, every time.Duration, run func(now time.Time) *collect.Results, show func(*collect.Results, *collect.History) error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var history collect.History
	found := false
	for {
		r := run(time.Now())
		if ctx.Err() == nil { // or else it is half of one
			found = found || r.Collected() > 0
			history.Add(r)
			if err := show(r, &history); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			if !found {
				return errNothing
			}
			return nil
		case <-tick.C:
		}
	}
}

// clearScreen moves to the top of a terminal and empties it.
const clearScreen = "\x1b[H\x1b[2J"

// metricsView returns what shows results of a watch: a screen of a terminal with lines for
// how numbers went, tables one after the other elsewhere, or JSON, a document in a line.
func metricsView(w io.Writer, asJSON bool) func(*collect.Results, *collect.History) error {
	if asJSON {
		return func(r *collect.Results, _ *collect.History) error {
			line, err := json.Marshal(r)
			if err != nil {
				return err
			}
			_, err = w.Write(append(line, '\n'))
			return err
		}
	}
	terminal := isTerminal(w) && os.Getenv("TERM") != "dumb"
	look := collect.Look{Color: useColor("auto", isTerminal(w), os.Getenv)}
	first := true
	return func(r *collect.Results, h *collect.History) error {
		var screen bytes.Buffer // in one write, so that it does not flicker
		switch {
		case terminal:
			screen.WriteString(clearScreen)
			look.History = h
		case !first:
			screen.WriteByte('\n')
		}
		first = false
		if err := r.WriteText(&screen, look); err != nil {
			return err
		}
		_, err := w.Write(screen.Bytes())
		return err
	}
}
