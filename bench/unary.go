package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
)

const (
	unaryConns = 8
	// The targets: a request of ordinary size is parsed, routed and counted on
	// top of what a proxy does anyway; of a large one the copying dominates.
	smallLimit = 1.5
	largeLimit = 1.3
	largeBody  = 200_000
)

// measureUnary compares stator with a bare reverse proxy on requests that have one
// answer, small and large.
func measureUnary(ctx context.Context, o options, r *report) error {
	engine, err := startReplayer(ctx, o)
	if err != nil {
		return err
	}
	defer engine.stop()
	ps, stop, err := contenders(ctx, o, r, kindReverse, engine.addr)
	if err != nil {
		return err
	}
	defer stop()
	return compareUnary(ctx, o, engine, "request", ps, func(l *load, rounds [][]round, large bool) error {
		limit := smallLimit
		if large {
			limit = largeLimit
		}
		r.compared(l, ps, rounds, limit)
		return measureDirect(ctx, o, r, l, engine.addr)
	})
}

// compareUnary measures processes in front of the engine, the baseline first, with a small
// and then a large request that has one answer. It calls add with the rounds of each.
func compareUnary(ctx context.Context, o options, engine *replayer, name string, ps []*process,
	add func(l *load, rounds [][]round, large bool) error) error {
	for _, body := range [][]byte{smallChat(), largeChat(largeBody)} {
		size, large := fmt.Sprintf("%d B", len(body)), len(body) >= largeBody
		if large {
			size = fmt.Sprintf("%d KB", len(body)/1000)
		}
		want, err := engine.record(ctx, body)
		if err != nil {
			return err
		}
		l := unaryLoad(engine, name+", "+size, body, want)
		rounds, err := l.compare(ctx, o, ps)
		if err != nil {
			return err
		}
		if err := add(l, rounds, large); err != nil {
			return err
		}
	}
	return nil
}

// contenders starts what is compared in front of the engine at addr: the baseline
// of the given kind, stator, stator once more with prompts that it tokenizes and looks
// up, and nginx where it is installed. What stands beside the baseline is the relaying;
// placement by tokens is work that no proxy does, and is shown for information.
func contenders(ctx context.Context, o options, r *report, kind, addr string) (ps []*process, stop func(), err error) {
	stop = func() {
		for _, p := range ps {
			p.stop()
		}
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	name := map[string]string{kindReverse: "bare reverse proxy", kindCopy: "io.Copy proxy"}[kind]
	for _, begin := range []func() (*process, error){
		func() (*process, error) { return startProxy(ctx, name, kind, addr) },
		func() (*process, error) { return startStator(ctx, "stator", o, addr, "round-robin") },
		func() (*process, error) { return startStator(ctx, "stator, mode kv", o, addr, "kv") },
		func() (*process, error) { return startNginx(ctx, o.dir, addr) },
	} {
		p, err := begin()
		if errors.Is(err, errNoNginx) {
			r.note("%v", err)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		ps = append(ps, p)
	}
	return ps, stop, nil
}

// startStator runs stator in front of the engine at addr, with default settings but
// for the router's mode.
func startStator(ctx context.Context, name string, o options, addr, mode string) (*process, error) {
	return start(ctx, name, o.stator, "serve", "--listen", "127.0.0.1:0", "--engine", "http://"+addr, "--router-mode", mode)
}

// measureDirect runs the load against the engine itself, for information.
func measureDirect(ctx context.Context, o options, r *report, l *load, addr string) error {
	n, err := l.calibrate(ctx, &process{name: "engine", addr: addr}, o.round)
	if err != nil {
		return err
	}
	d, err := l.run(ctx, addr, n)
	if err != nil {
		return err
	}
	r.direct(l, d)
	return nil
}

// unaryLoad returns the load of requests with the given body, which the engine
// answers with want.
func unaryLoad(engine *replayer, name string, body, want []byte) *load {
	engine.set(body, &answer{contentType: "application/json", events: [][]byte{want}})
	request := chatRequest(body)
	return &load{
		name:  name,
		unit:  "requests",
		each:  1,
		conns: unaryConns,
		client: func(int) func(*conn) error {
			var got []byte
			return func(c *conn) error {
				var err error
				if got, err = c.roundTrip(got[:0], request); err != nil {
					return err
				}
				if !bytes.Equal(got, want) {
					return fmt.Errorf("expected the answer %s, got %s", want, got)
				}
				return nil
			}
		},
	}
}

// smallChat returns a request of about 70 bytes.
func smallChat() []byte {
	return fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":"hi"}],"max_tokens":1}`, model)
}

// largeChat returns a request of about size bytes: one long message of prose, with
// paragraphs, quotations and a few characters outside ASCII, some of them escaped.
// It is the same every time.
func largeChat(size int) []byte {
	words := [...]string{
		"the", "a", "of", "and", "to", "in", "that", "it", "was", "with", "which", "from", "water", "evening",
		"table", "letter", "morning", "garden", "station", "window", "neighbour", "remember", "between",
		"slowly", "already", "another", "something", "understand", "caf\u00e9", `na\u00efve`, "travelled",
	}
	const tail = `"}],"max_tokens":1}`
	rng := rand.New(rand.NewPCG(1, 2))
	b := fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":"`, model)
	for len(b) < size-len(tail) {
		b = append(b, words[rng.IntN(len(words))]...)
		switch k := rng.IntN(100); {
		case k < 85:
			b = append(b, ' ')
		case k < 92:
			b = append(b, ", "...)
		case k < 96:
			b = append(b, ". "...)
		case k < 98:
			b = append(b, `. \"So\", they said, \"`...)
		default:
			b = append(b, `.\n\n`...)
		}
	}
	return append(b, tail...)
}
