package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

const (
	streamConns  = 16
	streamTokens = 2000
	// streamLimit is the target: each chunk is read as an event and counted on
	// top of one read and one write.
	streamLimit = 2.5
)

// measureStream compares stator with a proxy that only copies, on long streams.
//
// A fast engine lets chunks pile up in front of a proxy, which then relays several
// with one read and one write, the more the slower it is. To keep the work equal,
// the streams run in lockstep: the engine sends the next chunk when the client has
// received the one before, so every proxy makes one read and one write per chunk.
func measureStream(ctx context.Context, o options, r *report) error {
	engine, err := startReplayer(ctx, o)
	if err != nil {
		return err
	}
	defer engine.stop()
	ps, stop, err := contenders(ctx, o, r, kindCopy, engine.addr)
	if err != nil {
		return err
	}
	defer stop()
	whole, err := engine.record(ctx, streamChat("recording"))
	if err != nil {
		return err
	}
	events, err := splitEvents(whole)
	if err != nil {
		return err
	}
	if want := streamTokens + 2; len(events) != want { // those of tokens, the usage and the end
		return fmt.Errorf("expected %d events, got %d", want, len(events))
	}
	l := streamLoad(engine, events)
	rounds, err := l.compare(ctx, o, ps)
	if err != nil {
		return err
	}
	r.compared(l, ps, rounds, streamLimit)
	return measureDirect(ctx, o, r, l, engine.addr)
}

// streamLoad returns the load of streams in lockstep, which the engine answers with
// the events.
func streamLoad(engine *replayer, events [][]byte) *load {
	return &load{
		name:  "relayed chunk",
		unit:  "chunks",
		each:  len(events),
		conns: streamConns,
		client: func(i int) func(*conn) error {
			body := streamChat(fmt.Sprintf("user-%d", i))
			return lockstep(engine, body, body, events, events)
		},
	}
}

// lockstep returns the exchange of a stream in which the engine sends each event when
// the client has the one before: the client sends body, the engine gets arrives and
// sends events, and the client gets want, of which there are as many.
func lockstep(engine *replayer, body, arrives []byte, events, want [][]byte) func(*conn) error {
	request := chatRequest(body)
	buf := make([]byte, 16<<10)
	return func(c *conn) error {
		// There is room for every step, also when nobody waits any more.
		steps := make(chan struct{}, len(events))
		engine.set(arrives, &answer{contentType: "text/event-stream; charset=utf-8", events: events, steps: steps})
		resp, err := c.send(request)
		if err != nil {
			return err
		}
		return receive(resp.Body, want, buf, steps)
	}
}

// streamChat returns the request for a stream, on behalf of a user. It asks for the
// usage, so that stator has nothing to ask for and nothing to hide: everyone relays
// the same bytes.
func streamChat(user string) []byte {
	return fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":"Tell me more."}],`+
		`"max_tokens":%d,"ignore_eos":true,"stream":true,"user":%q,"stream_options":{"include_usage":true}}`, model, streamTokens, user)
}

// errMerged means that bytes arrived after an event before they were asked for.
var errMerged = errors.New("a chunk arrived before its turn")

// receive reads a stream to its end, checks it against the events and takes a step
// whenever one is complete.
func receive(body io.Reader, events [][]byte, buf []byte, steps chan<- struct{}) error {
	at, part := 0, 0 // events received, and bytes of the next one
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if at == len(events) {
				return fmt.Errorf("expected the end of the stream, got %.80q", buf[:n])
			}
			rest := events[at][part:]
			if n > len(rest) {
				return errMerged
			}
			if !bytes.Equal(buf[:n], rest[:n]) {
				return fmt.Errorf("event %d from byte %d on: expected %.80q, got %.80q", at, part, rest, buf[:n])
			}
			if part += n; n == len(rest) {
				at, part = at+1, 0
				steps <- struct{}{}
			}
		}
		switch {
		case err == io.EOF && at == len(events):
			return nil
		case err == io.EOF:
			return fmt.Errorf("the stream ended after %d of %d events", at, len(events))
		case err != nil:
			return fmt.Errorf("event %d: %w", at, err)
		}
	}
}

// openStream sends a request for a stream and waits for its first event.
func openStream(ctx context.Context, addr string) (*conn, error) {
	c, err := dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	if err := firstEvent(c); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func firstEvent(c *conn) error {
	resp, err := c.send(chatRequest(streamChat("idle")))
	if err != nil {
		return err
	}
	var got []byte
	buf := make([]byte, 1<<10)
	for !bytes.HasSuffix(got, []byte("\n\n")) {
		n, err := resp.Body.Read(buf)
		got = append(got, buf[:n]...)
		if err != nil {
			return fmt.Errorf("expected an event, got %q: %w", got, err)
		}
	}
	if !bytes.HasPrefix(got, []byte("data: {")) {
		return fmt.Errorf("expected a chunk, got %q", got)
	}
	return c.nc.SetDeadline(time.Time{})
}
