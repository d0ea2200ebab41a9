package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// The targets of memory.
const (
	firstRankLimit   = 64.0 // bytes per block that one rank holds
	furtherRankLimit = 32.0 // and for each rank more that holds it
	heldLimit        = 64.0 // bytes per block and rank after a workload
	churnLimit       = 1.1  // heap after ten churns over that after one

	memoryRanks = 8
	churns      = 10
)

// indexScale is how much is put into an index: prompts that have no block in common,
// and the blocks of each.
type indexScale struct{ prompts, length int }

func (s indexScale) blocks() int { return s.prompts * s.length }

// fullScale is a million blocks in prompts of 3,200 tokens, if blocks have 16.
var fullScale = indexScale{prompts: 5000, length: 200}

// contents are prompts; those of another salt have nothing in common with them.
type contents struct {
	salt  uint64
	scale indexScale
}

// local returns the local hash of block i of prompt p.
func (c contents) local(p, i int) kv.LocalHash {
	return kv.LocalHash(kv.Chain(kv.BlockID(c.salt), kv.LocalHash(p*c.scale.length+i)))
}

// prompt returns the blocks of a prompt with their sequence hashes.
func (c contents) prompt(p int) []kv.Block {
	out := make([]kv.Block, c.scale.length)
	for i := range out {
		out[i].Tokens = c.local(p, i)
		out[i].ID = kv.BlockID(out[i].Tokens)
		if i > 0 {
			out[i].ID = kv.Chain(out[i-1].ID, out[i].Tokens)
		}
	}
	return out
}

// engineName is an engine's own name for a block that others name differently.
func engineName(src kv.Source, of kv.BlockID) kv.BlockID {
	return kv.Chain(kv.BlockID(src.Worker), kv.LocalHash(of))
}

// fill has a rank store all prompts, each in one event.
func (c contents) fill(x indexer, src kv.Source) error {
	blocks := make([]kv.Block, c.scale.length)
	for p := range c.scale.prompts {
		for i := range blocks {
			local := c.local(p, i)
			blocks[i] = kv.Block{ID: engineName(src, kv.BlockID(local)), Tokens: local}
		}
		if err := x.Apply(&kv.Batch{Source: src, Events: []kv.Event{{Kind: kv.Stored, Counted: true, Blocks: blocks}}}); err != nil {
			return err
		}
	}
	return nil
}

// empty has a rank remove all prompts, as an engine does that needs the room: prompt
// by prompt, the last block of each first, in an event per block.
func (c contents) empty(x indexer, src kv.Source) error {
	blocks := make([]kv.Block, c.scale.length)
	events := make([]kv.Event, c.scale.length)
	for i := range events {
		events[i] = kv.Event{Kind: kv.Removed, Counted: true, Blocks: blocks[i : i+1]}
	}
	for p := range c.scale.prompts {
		for i := range blocks {
			blocks[i].ID = engineName(src, kv.BlockID(c.local(p, len(blocks)-1-i)))
		}
		if err := x.Apply(&kv.Batch{Source: src, Events: events}); err != nil {
			return err
		}
	}
	return nil
}

// measureIndexMemory measures what a block takes, for the first rank that holds it and
// for others, and whether memory comes back when content changes.
func measureIndexMemory(ctx context.Context, o options, r *report, s indexScale) error {
	o.progress("index: memory of %d blocks", s.blocks())
	first, further, err := footprint(indexers[len(indexers)-1].make(), s, memoryRanks)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("memory per block, %s in prompts of %d", millions(s.blocks()), s.length)
	for _, f := range []struct {
		what         string
		value, limit float64
	}{{"first rank", first, firstRankLimit}, {"each further rank", further, furtherRankLimit}} {
		r.rows = append(r.rows, row{
			what:   what + ", " + f.what,
			stator: fmt.Sprintf("%.1f B", f.value),
			target: fmt.Sprintf("≤ %g B", f.limit),
			ok:     f.value <= f.limit,
		})
	}
	// Baselines take longer, and need not be as large to tell.
	small := indexScale{prompts: max(s.prompts/5, 1), length: s.length}
	for i, x := range indexers {
		who, scale := x.name, small
		if i == len(indexers)-1 {
			who, scale = "stator, prompts of one block", indexScale{prompts: s.blocks(), length: 1}
		}
		first, further, err := footprint(x.make(), scale, 2)
		if err != nil {
			return err
		}
		r.note("index: memory per block of %s, %s in prompts of %d: %.0f B for the first rank and %.0f B for another",
			who, millions(scale.blocks()), scale.length, first, further)
	}
	return measureChurn(ctx, o, r, s)
}

// footprint returns the bytes of heap that a block takes for the first rank that holds
// it, and for each of the others.
func footprint(x indexer, s indexScale, ranks int) (first, further float64, err error) {
	c := contents{salt: 1, scale: s}
	sizes := []int64{heap()}
	for k := range ranks {
		if err := c.fill(x, kv.Source{Worker: kv.WorkerID(k + 1)}); err != nil {
			return 0, 0, err
		}
		if k == 0 || k == ranks-1 {
			sizes = append(sizes, heap())
		}
	}
	got := x.Match(nil, c.prompt(s.prompts-1))
	if len(got) != ranks || slices.ContainsFunc(got, func(o kvindex.Overlap) bool { return int(o.Depth[kv.Device]) != s.length }) {
		return 0, 0, fmt.Errorf("lookup of %d blocks that %d ranks hold: got %v", s.length, ranks, got)
	}
	runtime.KeepAlive(x)
	n := float64(s.blocks())
	return float64(sizes[1]-sizes[0]) / n, float64(sizes[2]-sizes[1]) / n / float64(ranks-1), nil
}

// measureChurn fills an index and empties it again, with other content each time:
// prompts of the given length and prompts of one block in turn.
func measureChurn(ctx context.Context, o options, r *report, s indexScale) error {
	o.progress("index: %d churns of %d blocks", churns, s.blocks())
	src := kv.Source{Worker: 1}
	scales := []indexScale{s, {prompts: s.blocks(), length: 1}}
	start := heap()
	x := indexers[len(indexers)-1].make()
	var full, empty []float64 // MB
	for k := range churns {
		if err := ctx.Err(); err != nil {
			return err
		}
		c := contents{salt: uint64(k + 1), scale: scales[k%len(scales)]}
		if err := c.fill(x, src); err != nil {
			return err
		}
		full = append(full, float64(heap()-start)/1e6)
		if err := c.empty(x, src); err != nil {
			return err
		}
		if got := x.Match(nil, c.prompt(0)); len(got) > 0 {
			return fmt.Errorf("lookup of blocks that were removed: got %v", got)
		}
		empty = append(empty, float64(heap()-start)/1e6)
	}
	runtime.KeepAlive(x)
	for i, scale := range scales {
		first, last := full[i], full[churns-len(scales)+i]
		r.rows = append(r.rows, row{
			what:     fmt.Sprintf("memory after %d churns of %s blocks, prompts of %d, to after one", churns, millions(s.blocks()), scale.length),
			baseline: fmt.Sprintf("%.1f MB", first),
			stator:   fmt.Sprintf("%.1f MB", last),
			ratio:    fmt.Sprintf("%.2f", last/first),
			target:   fmt.Sprintf("≤ %g×", churnLimit),
			ok:       last/first <= churnLimit,
		})
	}
	r.note("index: churns of prompts of %d and of one block in turn; emptied after one %.1f MB, after %d %.1f MB",
		s.length, empty[0], churns, empty[churns-1])
	return nil
}

// measureHeld measures what a block takes that engines hold in the course of a
// workload: prompts of all lengths, some shared by several ranks.
func measureHeld(r *report, w *indexWorkload) error {
	start := heap()
	x := kvindex.New(kvindex.Config{})
	if _, err := w.play(x, w.lanes(1)); err != nil {
		return err
	}
	bytes := float64(heap() - start)
	blocks := x.Stats().Blocks
	if blocks == 0 {
		return errors.New("memory of a workload: expected blocks")
	}
	per := bytes / float64(blocks)
	r.rows = append(r.rows, row{
		what:   fmt.Sprintf("memory per block held, %s", w),
		stator: fmt.Sprintf("%.1f B", per),
		target: fmt.Sprintf("≤ %g B", heldLimit),
		ok:     per <= heldLimit,
	})
	r.note("index, %s: %s blocks are held in the end", w, millions(blocks))
	return nil
}

// millions writes a number of blocks.
func millions(n int) string { return fmt.Sprintf("%.3g M", float64(n)/1e6) }
