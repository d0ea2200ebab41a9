package main

import (
	"sync"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// mapIndex is an index of maps behind one lock: for every block that somebody holds
// the set of ranks that do, by sequence hash, and for every rank what its names of
// blocks stand for.
//
// It takes device memory only, and expects an engine to have one name for a content
// and to store nothing behind a block that it does not hold. It is safe for
// concurrent use.
type mapIndex struct {
	mu      sync.RWMutex
	holders map[kv.BlockID]map[kv.Source]struct{} // by sequence hash
	held    map[kv.Source]map[kv.BlockID]mapBlock // by the rank's own names
}

type mapBlock struct {
	seq    kv.BlockID
	copies uint32 // beyond the first
}

func newMapIndex() *mapIndex {
	return &mapIndex{holders: map[kv.BlockID]map[kv.Source]struct{}{}, held: map[kv.Source]map[kv.BlockID]mapBlock{}}
}

// Apply takes in a batch under the lock.
func (x *mapIndex) Apply(b *kv.Batch) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	held := x.held[b.Source]
	if held == nil {
		held = map[kv.BlockID]mapBlock{}
		x.held[b.Source] = held
	}
	for i := range b.Events {
		switch ev := &b.Events[i]; {
		case ev.Kind == kv.Cleared:
			for _, h := range held {
				x.leave(b.Source, h.seq)
			}
			clear(held)
		case ev.Tier != kv.Device || ev.Bare:
		case ev.Kind == kv.Stored:
			x.store(b.Source, held, ev)
		case ev.Kind == kv.Removed:
			x.remove(b.Source, held, ev)
		}
	}
	return nil
}

func (x *mapIndex) store(src kv.Source, held map[kv.BlockID]mapBlock, ev *kv.Event) {
	var seq kv.BlockID
	if ev.HasParent {
		parent, ok := held[ev.Parent]
		if !ok {
			return
		}
		seq = parent.seq
	}
	for i, b := range ev.Blocks {
		if i == 0 && !ev.HasParent {
			seq = kv.BlockID(b.Tokens)
		} else {
			seq = kv.Chain(seq, b.Tokens)
		}
		if h, ok := held[b.ID]; ok {
			if ev.Counted {
				h.copies++
				held[b.ID] = h
			}
			continue
		}
		held[b.ID] = mapBlock{seq: seq}
		set := x.holders[seq]
		if set == nil {
			set = map[kv.Source]struct{}{}
			x.holders[seq] = set
		}
		set[src] = struct{}{}
	}
}

func (x *mapIndex) remove(src kv.Source, held map[kv.BlockID]mapBlock, ev *kv.Event) {
	for _, b := range ev.Blocks {
		h, ok := held[b.ID]
		if !ok {
			continue
		}
		if ev.Counted && h.copies > 0 {
			h.copies--
			held[b.ID] = h
			continue
		}
		delete(held, b.ID)
		x.leave(src, h.seq)
	}
}

// leave takes a rank out of the holders of a block.
func (x *mapIndex) leave(src kv.Source, seq kv.BlockID) {
	set := x.holders[seq]
	delete(set, src)
	if len(set) == 0 {
		delete(x.holders, seq)
	}
}

// Match walks the prompt with the ranks that hold all of it so far. The answer is in
// no particular order.
func (x *mapIndex) Match(dst []kvindex.Overlap, prompt []kv.Block) []kvindex.Overlap {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var active []kv.Source
	depth := 0
	for ; depth < len(prompt); depth++ {
		set := x.holders[prompt[depth].ID]
		if depth == 0 {
			for r := range set {
				active = append(active, r)
			}
		} else {
			kept := active[:0]
			for _, r := range active {
				if _, ok := set[r]; ok {
					kept = append(kept, r)
				} else {
					dst = append(dst, deviceOverlap(r, depth))
				}
			}
			active = kept
		}
		if len(active) == 0 {
			return dst
		}
	}
	for _, r := range active {
		dst = append(dst, deviceOverlap(r, depth))
	}
	return dst
}

// deviceOverlap is the overlap of a rank that has nothing beyond device memory.
func deviceOverlap(src kv.Source, depth int) kvindex.Overlap {
	o := kvindex.Overlap{Source: src}
	for t := range o.Depth {
		o.Depth[t] = uint32(depth)
	}
	return o
}
