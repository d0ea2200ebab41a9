package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

const (
	simConns     = 8
	answerTokens = 64
	streamedSim  = 32
	// simLimit is the target: a simulated engine that takes no time parses, renders
	// and tokenizes the prompt, makes its answer up and writes it at this share of
	// the rate of a handler that has the answer ready.
	simLimit = 0.7
)

// measureSim compares a simulated engine that takes no time with a handler that
// writes the same bytes: whole answers, and streams with an event per token that
// both sides push out one by one.
func measureSim(ctx context.Context, o options, r *report) error {
	sim, err := start(ctx, "stator sim", o.stator, "sim", "--listen", "127.0.0.1:0", "--model", model, "--instant")
	if err != nil {
		return err
	}
	defer sim.stop()
	for _, m := range []struct{ name, body string }{
		{fmt.Sprintf("simulated answer of %d", answerTokens), fmt.Sprintf(
			`{"model":%q,"messages":[{"role":"user","content":"Tell me more."}],"max_tokens":%d,"ignore_eos":true}`, model, answerTokens)},
		{fmt.Sprintf("simulated stream of %d", streamedSim), fmt.Sprintf(
			`{"model":%q,"messages":[{"role":"user","content":"Tell me more."}],"max_tokens":%d,"ignore_eos":true,"stream":true}`, model, streamedSim)},
	} {
		if err := compareSim(ctx, o, r, sim, m.name, m.body); err != nil {
			return err
		}
	}
	return nil
}

// compareSim measures one kind of request.
func compareSim(ctx context.Context, o options, r *report, sim *process, name, body string) error {
	request := simRequest(body)
	c, err := dial(ctx, sim.addr)
	if err != nil {
		return sim.failure(err)
	}
	want, err := c.roundTrip(nil, request)
	c.close()
	if err != nil {
		return sim.failure(err)
	}
	file := filepath.Join(o.dir, "answer")
	if err := os.WriteFile(file, want, 0o600); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	bare, err := start(ctx, "bare handler", self, proxyCommand, kindBare, file)
	if err != nil {
		return err
	}
	defer bare.stop()
	l := simLoad(name, request, want)
	rounds, err := l.compare(ctx, o, []*process{bare, sim})
	if err != nil {
		return err
	}
	r.rates(l, rounds, simLimit)
	r.details = append(r.details, processDetails(l, []*process{bare, sim}, rounds)...)
	return nil
}

// simLoad returns the load of one request over and over, which is answered with
// want, apart from the second in which it was made.
func simLoad(name string, request, want []byte) *load {
	want = dateless(slices.Clone(want))
	return &load{
		name:  name,
		unit:  "requests",
		each:  1,
		conns: simConns,
		client: func(int) func(*conn) error {
			var got []byte
			return func(c *conn) error {
				var err error
				if got, err = c.roundTrip(got[:0], request); err != nil {
					return err
				}
				if !bytes.Equal(dateless(got), want) {
					return fmt.Errorf("expected the answer %s, got %s", want, got)
				}
				return nil
			}
		},
	}
}

// dateless blots out the seconds of created members, in place.
func dateless(b []byte) []byte {
	created := []byte(`"created":`)
	for rest := b; ; {
		at := bytes.Index(rest, created)
		if at < 0 {
			return b
		}
		rest = rest[at+len(created):]
		for i := 0; i < len(rest) && rest[i] >= '0' && rest[i] <= '9'; i++ {
			rest[i] = '0'
		}
	}
}

// simRequest returns a chat request whose answer has an id that is known.
func simRequest(body string) []byte {
	b := []byte("POST /v1/chat/completions HTTP/1.1\r\n" +
		"Host: bench\r\n" +
		"Content-Type: application/json\r\n" +
		"X-Request-Id: bench\r\n" +
		"Content-Length: ")
	b = strconv.AppendInt(b, int64(len(body)), 10)
	b = append(b, "\r\n\r\n"...)
	return append(b, body...)
}

// bareHandler reads requests and answers them with the content of a file: about
// the least that an engine on net/http can do.
func bareHandler(file string) (http.Handler, error) {
	answer, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	a := struct {
		contentType string
		events      [][]byte
	}{"application/json", [][]byte{answer}}
	if events, err := splitEvents(answer); err == nil {
		a.contentType, a.events = "text/event-stream; charset=utf-8", events
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		h := w.Header()
		h.Set("Content-Type", a.contentType)
		if len(a.events) == 1 {
			h.Set("Content-Length", strconv.Itoa(len(answer)))
			w.Write(answer)
			return
		}
		out := http.NewResponseController(w)
		for i, ev := range a.events {
			if i > 0 && out.Flush() != nil {
				return
			}
			w.Write(ev) // an error comes back from Flush
		}
	}), nil
}

// rates adds a row that is decided by the median over the rounds of how the rate
// of the second process compares with that of the first. It has to be high.
func (r *report) rates(l *load, rounds [][]round, limit float64) {
	ratios := make([]float64, len(rounds[0]))
	for i := range ratios {
		ratios[i] = float64(rounds[0][i].wall) / float64(rounds[1][i].wall)
	}
	rate := func(rs []round) string {
		n := medianOf(rs, func(r round) float64 { return float64(r.units) * float64(time.Second) / float64(r.wall) })
		return fmt.Sprintf("%.0f/s", n)
	}
	r.rows = append(r.rows, row{
		what:     "rate of " + l.name,
		baseline: rate(rounds[0]),
		stator:   rate(rounds[1]),
		ratio:    fmt.Sprintf("%.2f", median(ratios)),
		spread:   fmt.Sprintf("%.2f–%.2f", slices.Min(ratios), slices.Max(ratios)),
		target:   fmt.Sprintf("≥ %.1f×", limit),
		ok:       median(ratios) >= limit,
	})
}
