package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	idleStreams = 4000
	// idleLimit is the target in KiB per stream.
	idleLimit = 64
	// idleSettle is how long the streams are open before memory is read.
	idleSettle = 5 * time.Second
)

// measureIdle opens thousands of streams that send one chunk and fall silent, and
// measures what each adds to the memory of the proxy in between: its share of
// resident pages, garbage that has not been collected included.
func measureIdle(ctx context.Context, o options, r *report) error {
	engine, err := start(ctx, "engine", o.stator, "sim", "--listen", "127.0.0.1:0",
		"--model", model, "--ttft", "0", "--itl", "1h")
	if err != nil {
		return err
	}
	defer engine.stop()
	// A proxy needs two descriptors per stream, and some for itself. The Go
	// runtime has raised the soft limit to the hard one already, here and there.
	streams := idleStreams
	if limit := (fileLimit() - 200) / 2; limit < streams {
		streams = limit
		r.note("only %d streams: the limit on open files allows no more", streams)
	}
	o.progress("idle: %d streams, twice", streams)
	bare, err := startProxy(ctx, "bare reverse proxy", kindReverse, engine.addr)
	if err != nil {
		return err
	}
	defer bare.stop()
	baseline, err := idleMemory(ctx, bare, streams)
	if err != nil {
		return err
	}
	server, err := startStator(ctx, "stator", o, engine.addr, "kv")
	if err != nil {
		return err
	}
	defer server.stop()
	value, err := idleMemory(ctx, server, streams)
	if err != nil {
		return err
	}
	r.below(fmt.Sprintf("memory per idle stream, %d open", streams), baseline/(1<<10), value/(1<<10), idleLimit, "KiB")
	return nil
}

// idleMemory returns the bytes that each of n silent streams through p takes.
func idleMemory(ctx context.Context, p *process, n int) (float64, error) {
	warm, err := openStreams(ctx, p.addr, 64)
	if err != nil {
		return 0, p.failure(err)
	}
	closeAll(warm)
	if err := pause(ctx, time.Second); err != nil {
		return 0, err
	}
	before, _, err := memory(p.pid())
	if err != nil {
		return 0, err
	}
	conns, err := openStreams(ctx, p.addr, n)
	if err != nil {
		return 0, p.failure(err)
	}
	defer closeAll(conns)
	if err := pause(ctx, idleSettle); err != nil {
		return 0, err
	}
	after, _, err := memory(p.pid())
	if err != nil {
		return 0, err
	}
	if err := allSilent(conns); err != nil {
		return 0, p.failure(err)
	}
	return float64(after-before) / float64(n), nil
}

// openStreams opens n streams, of which each has sent one event.
func openStreams(ctx context.Context, addr string, n int) ([]*conn, error) {
	const atATime = 32
	var mu sync.Mutex
	var conns []*conn
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atATime)
	for range n {
		g.Go(func() error {
			c, err := openStream(ctx, addr)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, c)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		closeAll(conns)
		return nil, fmt.Errorf("stream %d of %d: %w", len(conns)+1, n, err)
	}
	return conns, nil
}

// allSilent checks that the streams are still open and have nothing to say.
func allSilent(conns []*conn) error {
	until := time.Now().Add(200 * time.Millisecond)
	var g errgroup.Group
	for _, c := range conns {
		g.Go(func() error {
			if err := c.nc.SetReadDeadline(until); err != nil {
				return err
			}
			var b [1]byte
			if n, err := c.br.Read(b[:]); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("expected an open, silent stream, got %d bytes and %v", n, err)
			}
			return nil
		})
	}
	return g.Wait()
}

func closeAll(conns []*conn) {
	for _, c := range conns {
		c.close()
	}
}
