package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/simengine"
	"github.com/stator-ai/stator/internal/trace"
	"github.com/stator-ai/stator/internal/trace/tracetest"
)

// indexWorkload is what a router asks of its index while a fleet serves a trace, in
// the order of time: a lookup when a request arrives, and a batch of events when a
// pass of an engine ends. It lies outside the heap, so that what the garbage collector
// does, and how often, is due to the index under test alone. It must not be changed
// once it is recorded.
type indexWorkload struct {
	engines, blockSize int
	ops                []indexOp
	lookups            []span // of prompts
	prompts            []kv.Block
	batches            [][]kv.Batch // by engine

	lookedUp, stored, removed int // blocks
	events                    int

	memory arena
}

// indexOp is one operation.
type indexOp struct {
	at     time.Duration
	engine int32 // of a batch; -1 for a lookup
	number int32 // of the lookup, or of the batch among those of its engine
}

// span is a part of a slice.
type span struct{ from, to int32 }

// telling is everything that one engine says about its cache, flat.
type telling struct {
	ends    []time.Duration // of batches
	batches []span          // of events
	events  []toldEvent
	blocks  []kv.Block
}

// toldEvent is an event whose blocks are a part of those of the telling.
type toldEvent struct {
	parent    kv.BlockID
	blocks    span
	kind      kv.Kind
	hasParent bool
	counted   bool
}

// conversations reads the trace that the index is measured with.
func conversations() (*trace.Trace, error) {
	return trace.Read(bytes.NewReader(tracetest.ConversationFile()), trace.ReadOptions{})
}

// recordIndex has simulated engines serve the first so many requests of a trace round
// robin, and returns what an index would have seen; close gives its memory back.
// Requests come at the times of the trace, whatever became of those before. Engines
// are workers of one rank.
func recordIndex(ctx context.Context, tr *trace.Trace, requests, engines, blockSize, blocks int) (*indexWorkload, error) {
	requests = min(requests, len(tr.Requests))
	order := make([]int, len(tr.Requests)) // by arrival
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(tr.Requests[a].Arrival, tr.Requests[b].Arrival)
	})
	order = order[:requests]
	tellings := make([]telling, engines)
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for e := range tellings {
		var mine []int
		for i := e; i < requests; i += engines {
			mine = append(mine, order[i])
		}
		g.Go(func() error {
			return tellings[e].record(ctx, tr, mine, simengine.Config{Blocks: blocks, BlockSize: blockSize})
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	w := &indexWorkload{engines: engines, blockSize: blockSize}
	err := w.addLookups(tr, order)
	for e := range tellings {
		if err == nil {
			err = w.addBatches(e, &tellings[e])
		}
	}
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	// What an engine had told when a request came is known to its lookup.
	slices.SortStableFunc(w.ops, func(a, b indexOp) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.engine, a.engine))
	})
	return w, nil
}

// close ends the use of the workload.
func (w *indexWorkload) close() error { return w.memory.free() }

func (w *indexWorkload) addLookups(tr *trace.Trace, order []int) (err error) {
	for _, i := range order {
		w.lookedUp += tr.Requests[i].Input / w.blockSize
	}
	if w.prompts, err = outside[kv.Block](&w.memory, w.lookedUp); err != nil {
		return err
	}
	n := 0
	for _, i := range order {
		c := tr.Content(i, w.blockSize)
		from := n
		for k := range c.Full() {
			b := kv.Block{Tokens: c.Block(k).Tokens}
			b.ID = kv.BlockID(b.Tokens)
			if k > 0 {
				b.ID = kv.Chain(w.prompts[n-1].ID, b.Tokens)
			}
			w.prompts[n] = b
			n++
		}
		w.ops = append(w.ops, indexOp{at: tr.Requests[i].Arrival, engine: -1, number: int32(len(w.lookups))})
		w.lookups = append(w.lookups, span{int32(from), int32(n)})
	}
	return nil
}

// addBatches puts what an engine said outside the heap.
func (w *indexWorkload) addBatches(engine int, t *telling) error {
	blocks, err := outside[kv.Block](&w.memory, len(t.blocks))
	if err != nil {
		return err
	}
	copy(blocks, t.blocks)
	events, err := outside[kv.Event](&w.memory, len(t.events))
	if err != nil {
		return err
	}
	for i := range events {
		ev := &t.events[i]
		events[i] = kv.Event{
			Kind: ev.kind, Counted: ev.counted, Parent: ev.parent, HasParent: ev.hasParent,
			Blocks: blocks[ev.blocks.from:ev.blocks.to:ev.blocks.to],
		}
		if ev.kind == kv.Stored {
			w.stored += len(events[i].Blocks)
		} else {
			w.removed += len(events[i].Blocks)
		}
	}
	w.events += len(events)
	batches, err := outside[kv.Batch](&w.memory, len(t.batches))
	if err != nil {
		return err
	}
	for i, s := range t.batches {
		batches[i] = kv.Batch{
			Source: kv.Source{Worker: kv.WorkerID(engine + 1)},
			Seq:    uint64(i),
			Events: events[s.from:s.to:s.to],
		}
		w.ops = append(w.ops, indexOp{at: t.ends[i], engine: int32(engine), number: int32(i)})
	}
	w.batches = append(w.batches, batches)
	return nil
}

// record runs an engine on its requests, which are in the order of their arrival.
func (t *telling) record(ctx context.Context, tr *trace.Trace, requests []int, cfg simengine.Config) error {
	e, err := simengine.New(cfg)
	if err != nil {
		return err
	}
	var now time.Duration
	for steps := 0; ; steps++ {
		if steps%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if !e.Busy() {
			if len(requests) == 0 {
				return nil
			}
			now = max(now, tr.Requests[requests[0]].Arrival)
		}
		for len(requests) > 0 && tr.Requests[requests[0]].Arrival <= now {
			i := requests[0]
			requests = requests[1:]
			content := tr.Content(i, cfg.BlockSize)
			e.Receive(&simengine.Request{ID: uint64(i), Prompt: tr.Requests[i].Input, MaxOutput: max(tr.Requests[i].Output, 1), Content: &content})
		}
		p := e.Step()
		now += p.Duration
		if len(p.Events) > 0 {
			if err := t.add(now, p.Events); err != nil {
				return err
			}
		}
	}
}

// add notes a copy of the events of a pass.
func (t *telling) add(at time.Duration, events []kv.Event) error {
	from := len(t.events)
	for i := range events {
		ev := &events[i]
		if ev.Kind != kv.Stored && ev.Kind != kv.Removed || ev.Tier != kv.Device || ev.Bare {
			return fmt.Errorf("event %d of a pass: expected blocks stored in or removed from device memory, got %+v", i, *ev)
		}
		first := len(t.blocks)
		t.blocks = append(t.blocks, ev.Blocks...)
		t.events = append(t.events, toldEvent{
			parent:    ev.Parent,
			blocks:    span{int32(first), int32(len(t.blocks))},
			kind:      ev.Kind,
			hasParent: ev.HasParent,
			counted:   ev.Counted,
		})
	}
	t.ends = append(t.ends, at)
	t.batches = append(t.batches, span{int32(from), int32(len(t.events))})
	return nil
}

// prompt returns the blocks of lookup i.
func (w *indexWorkload) prompt(i int32) []kv.Block {
	s := w.lookups[i]
	return w.prompts[s.from:s.to:s.to]
}

// batch returns the batch of an operation that is one.
func (w *indexWorkload) batch(op indexOp) *kv.Batch { return &w.batches[op.engine][op.number] }

// blockOps is the number of blocks looked up, stored and removed.
func (w *indexWorkload) blockOps() int { return w.lookedUp + w.stored + w.removed }

// lanes divides the operations over n goroutines and keeps their order: all batches of
// an engine go to one of them, lookups go round.
func (w *indexWorkload) lanes(n int) [][]indexOp {
	out := make([][]indexOp, n)
	for _, op := range w.ops {
		k := int(op.engine)
		if op.engine < 0 {
			k = int(op.number)
		}
		out[k%n] = append(out[k%n], op)
	}
	return out
}
