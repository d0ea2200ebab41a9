package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
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

// A screen is written over from its top. Each line is emptied before it is written, as one
// that is full would lose its last column after, and then the rest of the screen.
const (
	screenTop  = "\x1b[H"
	emptyLine  = "\x1b[K"
	screenRest = "\x1b[J"
)

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
		var text bytes.Buffer
		if terminal {
			look.History = h
			look.Width, look.Height = screenSize(w)
			if look.Height > 0 {
				look.Height = max(look.Height-1, 1) // the cursor has the last line
			}
		} else if !first {
			text.WriteByte('\n')
		}
		first = false
		if err := r.WriteText(&text, look); err != nil {
			return err
		}
		out := text.String()
		if terminal {
			out = screenTop + emptyLine + strings.ReplaceAll(out, "\n", "\n"+emptyLine) + screenRest
		}
		_, err := io.WriteString(w, out) // in one write, so that it does not flicker
		return err
	}
}
