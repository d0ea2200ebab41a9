package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	usageConns  = 16
	usageTokens = 64
	usageRound  = time.Second // at most
	// usageLimit is the target: asking for the usage, reading it and keeping it from
	// the client costs little beside the stream.
	usageLimit = 1.1
)

// measureUsage compares streams at whose end stator asks for the usage by itself, and
// hides it, with the same streams for clients that asked and see it, and with streams
// through a server that is set not to ask, which have none. They run in lockstep, as
// those of measureStream do.
func measureUsage(ctx context.Context, o options, r *report) error {
	engine, err := startReplayer(ctx, o)
	if err != nil {
		return err
	}
	defer engine.stop()
	asks, err := startStator(ctx, "stator", o, engine.addr, "round-robin")
	if err != nil {
		return err
	}
	defer asks.stop()
	quiet, err := startQuiet(ctx, o, engine.addr)
	if err != nil {
		return err
	}
	defer quiet.stop()
	s, err := recordUsage(ctx, engine)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("stream of %d", usageTokens)
	hidden := usageLoad(name+", usage hidden", func(user string) func(*conn) error {
		return lockstep(engine, usageChat(user, false), usageChat(user, true), s.asked, s.hidden)
	})
	shown := usageLoad(name+", usage shown", func(user string) func(*conn) error {
		return lockstep(engine, usageChat(user, true), usageChat(user, true), s.asked, s.asked)
	})
	none := usageLoad(name+", no usage", func(user string) func(*conn) error {
		return lockstep(engine, usageChat(user, false), usageChat(user, false), s.plain, s.plain)
	})
	o.round = min(o.round, usageRound)
	sides := []side{{shown, asks}, {hidden, asks}, {none, quiet}}
	rounds, err := compareSides(ctx, o, name, sides)
	if err != nil {
		return err
	}
	cpu := func(rs []round) string { return micros(medianOf(rs, func(r round) time.Duration { return r.cpu })) }
	r.ratio("CPU per "+hidden.name+", to usage shown", cpu(rounds[0]), cpu(rounds[1]), ratios(rounds[1], rounds[0]), usageLimit)
	r.ratio("CPU per "+hidden.name+", to no usage", cpu(rounds[2]), cpu(rounds[1]), ratios(rounds[1], rounds[2]), usageLimit)
	for i, s := range sides {
		r.details = append(r.details, processDetails(s.load, []*process{s.process}, rounds[i:i+1])...)
	}
	return nil
}

// startQuiet runs stator so that it asks for no usage.
func startQuiet(ctx context.Context, o options, addr string) (*process, error) {
	file := filepath.Join(o.dir, "quiet.yaml")
	if err := os.WriteFile(file, []byte("ask_usage: false\n"), 0o600); err != nil {
		return nil, err
	}
	return start(ctx, "stator, ask_usage false", o.stator, "serve", "--config", file,
		"--listen", "127.0.0.1:0", "--engine", "http://"+addr, "--router-mode", "round-robin")
}

// usageStreams are the events of the same answer. The last of each is sent at once with
// the end of the stream: the chunk that finishes the answer is held back until the next
// event shows whether that is the usage.
type usageStreams struct {
	asked  [][]byte // with the usage before the end
	hidden [][]byte // those without it
	plain  [][]byte // for a request that does not ask for it
}

// recordUsage has the engine answer with and without usage.
func recordUsage(ctx context.Context, engine *replayer) (*usageStreams, error) {
	answers := make([][][]byte, 2)
	for i, ask := range []bool{false, true} {
		whole, err := engine.record(ctx, usageChat("recording", ask))
		if err != nil {
			return nil, err
		}
		if answers[i], err = splitEvents(whole); err != nil {
			return nil, err
		}
	}
	return splitUsage(answers[0], answers[1])
}

// splitUsage makes streams of the same length of an answer without usage and of one
// with.
func splitUsage(plain, asked [][]byte) (*usageStreams, error) {
	n := len(asked)
	if len(plain) != n-1 || n < 4 {
		return nil, fmt.Errorf("expected an event more with usage, got %d with and %d without", n, len(plain))
	}
	if !bytes.Contains(asked[n-2], []byte(`"usage":{`)) {
		return nil, errors.New("expected the usage before the end of the stream")
	}
	return &usageStreams{
		asked:  append(slices.Clone(asked[:n-3]), slices.Concat(asked[n-3:]...)),
		hidden: append(slices.Clone(asked[:n-3]), slices.Concat(asked[n-3], asked[n-1])),
		plain:  append(slices.Clone(plain[:n-3]), slices.Concat(plain[n-3:]...)),
	}, nil
}

// usageLoad returns the load of streams on behalf of users.
func usageLoad(name string, exchange func(user string) func(*conn) error) *load {
	return &load{
		name:   name,
		unit:   "streams",
		each:   1,
		conns:  usageConns,
		client: func(i int) func(*conn) error { return exchange(fmt.Sprintf("user-%d", i)) },
	}
}

// usageChat returns the request for a stream on behalf of a user: as a client sends it
// that does not ask for the usage, or as stator makes that into one that does.
func usageChat(user string, ask bool) []byte {
	b := fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":"Tell me more."}],`+
		`"max_tokens":%d,"ignore_eos":true,"stream":true,"user":%q`, model, usageTokens, user)
	if ask {
		b = append(b, `,"stream_options":{"include_usage":true}`...)
	}
	return append(b, '}')
}
