package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
	"github.com/stator-ai/stator/internal/kvlink"
)

const (
	// The targets, in processor time: getting events from a socket into the index,
	// in order and with nothing lost, costs so many times what decoding them does,
	// and what decoding and applying them does.
	eventsLimit      = 3.0
	eventsApplyLimit = 2.0

	eventLaps = 8 // of a turn
)

// measureEvents measures what it takes until the events of an engine, which another
// process publishes on a ZeroMQ socket, are visible to lookups. The baselines decode
// the same payloads in a loop, and decode and apply them. A turn ends when the last
// batch is applied; all that this process does until then counts. Afterwards both
// indexes have to give the same answers, and nothing may have been dropped or missing.
func measureEvents(ctx context.Context, o options, r *report) error {
	return measureEventsOf(ctx, o, r, eventScaleFull, eventLaps)
}

func measureEventsOf(ctx context.Context, o options, r *report, s eventScale, laps int) error {
	o.progress("events: %d rounds of %d batches", o.rounds, laps*s.requests)
	w := newEventWorkload(s)
	linked, err := openLinked(ctx, o.dir, w)
	if err != nil {
		return err
	}
	defer linked.close()
	decoded, applied := newDecodeSide(w, nil), newDecodeSide(w, kvindex.New(kvindex.Config{}))
	cpu, wall, err := playEvents(ctx, o.rounds, laps, []eventSide{decoded, applied, linked})
	if err == nil {
		err = linked.check()
	}
	if err == nil {
		err = sameEvents(s, applied.index, linked.Index)
	}
	if err != nil {
		return err
	}
	rate := func(seconds []float64) string {
		return fmt.Sprintf("%.2f M/s", float64(2*laps*w.blocks())/median(seconds)/1e6)
	}
	for i, b := range []struct {
		to    string
		limit float64
	}{{"decoding", eventsLimit}, {"decoding and applying", eventsApplyLimit}} {
		ratios := make([]float64, o.rounds)
		for k := range ratios {
			ratios[k] = cpu[2][k] / cpu[i][k]
		}
		r.ratio("events from socket to visible, to "+b.to, rate(cpu[i]), rate(cpu[2]), ratios, b.limit)
	}
	r.note("events: blocks stored and removed per second of processor time, and by the clock on the wall %s; batches of %.1f KB, %d blocks stored in %d events and as many removed in one each; none dropped, no gaps",
		rate(wall[2]), float64(w.bytes())/float64(len(w.Lap))/1e3, eventRequest, 1+eventAnswer)
	return nil
}

// playEvents fills every side and has them take turns of so many laps. It returns, by
// side and round, the seconds of a turn: of the processor and by the clock on the wall.
func playEvents(ctx context.Context, rounds, laps int, sides []eventSide) (cpu, wall [][]float64, err error) {
	turns := make([]int, len(sides))
	for i, s := range sides {
		turns[i] = i
		if err := s.fill(ctx); err != nil {
			return nil, nil, err
		}
		if err := s.lap(ctx); err != nil {
			return nil, nil, err
		}
	}
	cpu, wall = make([][]float64, len(sides)), make([][]float64, len(sides))
	for range rounds {
		for _, i := range turns {
			var took time.Duration
			used, err := spent(func() error {
				start := time.Now()
				for range laps {
					if err := sides[i].lap(ctx); err != nil {
						return err
					}
				}
				took = time.Since(start)
				return ctx.Err()
			})
			if err != nil {
				return nil, nil, err
			}
			cpu[i], wall[i] = append(cpu[i], used), append(wall[i], took.Seconds())
		}
		slices.Reverse(turns)
	}
	return cpu, wall, nil
}

// eventSide is one that takes in the workload: what fills the cache once, then laps.
type eventSide interface {
	fill(context.Context) error
	lap(context.Context) error
}

// decodeSide decodes payloads and, if it has an index, applies them.
type decodeSide struct {
	work    *eventWorkload
	decoder *kv.Decoder
	index   *kvindex.Index
	next    uint64
}

func newDecodeSide(w *eventWorkload, x *kvindex.Index) *decodeSide {
	return &decodeSide{work: w, decoder: kv.NewDecoder(kv.DecoderConfig{Source: eventSource, Counted: true}), index: x}
}

func (d *decodeSide) fill(context.Context) error { return d.take(d.work.Fill) }
func (d *decodeSide) lap(context.Context) error  { return d.take(d.work.Lap) }

func (d *decodeSide) take(payloads [][]byte) error {
	for _, p := range payloads {
		b, err := d.decoder.Decode(d.next, p)
		if err != nil {
			return err
		}
		d.next++
		if d.index != nil {
			if err := d.index.Apply(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// linkedSide is an index that follows the socket of another process. The caller must
// close it.
type linkedSide struct {
	*drain
	links   *kvlink.Links
	engine  *publisher
	work    *eventWorkload
	batches uint64 // that were asked for
}

func openLinked(ctx context.Context, dir string, w *eventWorkload) (*linkedSide, error) {
	engineProcess, err := startPublisher(ctx, dir, w)
	if err != nil {
		return nil, err
	}
	d := &drain{Index: kvindex.New(kvindex.Config{}), done: make(chan struct{}, 1)}
	l := &linkedSide{drain: d, links: kvlink.Open(kvlink.Config{Target: d, Now: time.Now}), engine: engineProcess, work: w}
	l.links.Follow(eventSource.Worker, &engine.Info{Streams: []engine.EventStream{
		{Address: l.engine.events, Counted: true},
	}}, nil, false)
	return l, nil
}

func (l *linkedSide) close() {
	l.links.Close()
	l.engine.stop()
}

func (l *linkedSide) fill(ctx context.Context) error { return l.take(ctx, pathFill, len(l.work.Fill)) }
func (l *linkedSide) lap(ctx context.Context) error  { return l.take(ctx, pathLap, len(l.work.Lap)) }

// take has batches published and waits until they are all visible.
func (l *linkedSide) take(ctx context.Context, path string, batches int) error {
	ctx, cancel := context.WithTimeout(ctx, exchangeWait)
	defer cancel()
	l.left.Store(int64(batches))
	l.batches += uint64(batches)
	dropped, err := l.engine.get(ctx, path)
	if err != nil {
		return err
	}
	if string(dropped) != "0" {
		return fmt.Errorf("the publisher dropped %s batches", dropped)
	}
	select {
	case <-l.done:
		return l.links.Flush(ctx)
	case <-ctx.Done():
		return fmt.Errorf("%d of %d batches are not visible: %+v: %w", l.left.Load(), batches, l.links.Stats(), ctx.Err())
	}
}

// check looks for what was lost on the way.
func (l *linkedSide) check() error {
	all := l.links.Stats()
	if len(all) != 1 {
		return fmt.Errorf("expected one link, got %d", len(all))
	}
	s := all[0]
	lost := s.Malformed + s.Misplaced + s.Failures + s.Feed.Dropped + s.Feed.Failed + s.Feed.Gaps + s.Feed.Missed
	for _, n := range s.Skipped {
		lost += n
	}
	if lost > 0 || s.Batches != l.batches || s.State != kvlink.Live {
		return fmt.Errorf("expected %d batches and none lost, got %+v", l.batches, s)
	}
	return nil
}

// drain is an index that says when so many batches have been applied to it.
type drain struct {
	*kvindex.Index
	left atomic.Int64
	done chan struct{} // of size one
}

// Apply applies a batch and counts it.
func (d *drain) Apply(b *kv.Batch) error {
	err := d.Index.Apply(b)
	if d.left.Add(-1) == 0 {
		d.done <- struct{}{}
	}
	return err
}

// sameEvents compares two indexes: blocks and answers have to be the same, and some of
// them hits.
func sameEvents(s eventScale, want, got *kvindex.Index) error {
	held := (s.ended+1)*eventRequest + eventAnswer*eventPrompt + eventAnswer*(eventAnswer-1)/2
	for _, x := range []*kvindex.Index{want, got} {
		if st := x.Stats(); st.Blocks != held || st.Orphans != 0 {
			return fmt.Errorf("expected %d blocks and no orphans, got %d and %d", held, st.Blocks, st.Orphans)
		}
	}
	requests, _ := eventPrompts(s)
	for i, prompt := range requests {
		if w, g := want.Match(nil, prompt), got.Match(nil, prompt); !slices.Equal(w, g) {
			return fmt.Errorf("request %d: expected %v, got %v", i, w, g)
		}
	}
	return nil
}
