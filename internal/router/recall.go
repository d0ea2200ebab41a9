package router

import (
	"slices"
	"sort"

	"github.com/stator-ai/stator/internal/kv"
)

// recall is what a server is taken to remember that keeps whole prompts, one in each
// of its slots, as llama.cpp does. A slot that has some of a new prompt is used on for
// it and loses the rest of its own, unless the server puts that aside in the host's
// memory. It tells nothing of all this; how much it remembers is learned from what it
// finds of prompts that it should have.
type recall struct {
	slots   int  // prompts that it keeps in any case
	limit   int  // prompts that it keeps
	aside   bool // prompts are put aside before they are overwritten
	misses  int  // in a row: prompts that it should have had
	blocks  int  // of all prompts
	prompts []recalled
}

// recalled is a prompt that was computed. The latest is the first.
type recalled struct {
	blocks      []kv.Block
	overwritten bool // by a prompt that begins alike: only what was put aside is left of it
}

const (
	// recallSpare is how many prompts a server is taken to put aside until it shows
	// otherwise.
	recallSpare = 16
	// recallMost and recallBlocks bound what is remembered of one.
	recallMost   = 256
	recallBlocks = 1 << 17
	// recallMisses is how many prompts in a row must be missing for the server to be
	// taken to keep fewer: one may have been sent not to be kept.
	recallMisses = 2
	// recallAlike is the share of a prompt that must be in a slot for the slot to be
	// used on.
	recallAlike = 0.1
)

func newRecall(slots int) *recall {
	return &recall{slots: slots, limit: slots + recallSpare, aside: true}
}

// memory is where a prompt was found.
type memory struct {
	at          int // prompts ago; -1 for nowhere
	common      int // blocks that both begin with
	overwritten bool
}

// find returns the prompt that has most in common with this one.
func (r *recall) find(prompt []kv.Block) memory {
	best := memory{at: -1}
	for i, p := range r.prompts {
		if n := commonBlocks(p.blocks, prompt); n > best.common {
			best = memory{i, n, p.overwritten}
		}
	}
	return best
}

// commonBlocks returns how many blocks two prompts begin with in common. A block's id
// stands for all before it.
func commonBlocks(a, b []kv.Block) int {
	return sort.Search(min(len(a), len(b)), func(i int) bool { return a[i].ID != b[i].ID })
}

// slot returns the place of the prompt whose slot this one would be computed in, because
// they begin alike; -1 if there is none.
func (r *recall) slot(prompt []kv.Block) (at, common int) {
	at = -1
	for i, p := range r.prompts {
		if n := commonBlocks(p.blocks, prompt); n > common && !p.overwritten {
			at, common = i, n
		}
	}
	if float64(common) < recallAlike*float64(len(prompt)) {
		at = -1
	}
	return at, common
}

// note takes in that the server has computed a prompt, and returns what had to go for
// it: the blocks that no prompt has any more.
func (r *recall) note(prompt []kv.Block) (gone [][]kv.Block) {
	var dropped []recalled
	r.prompts = slices.DeleteFunc(r.prompts, func(p recalled) bool {
		return p.overwritten && commonBlocks(p.blocks, prompt) == len(p.blocks) // it is all in the new one
	})
	if at, common := r.slot(prompt); at >= 0 {
		switch {
		case common == len(r.prompts[at].blocks):
			r.prompts = slices.Delete(r.prompts, at, at+1)
		case r.aside:
			r.prompts[at].overwritten = true
		default:
			dropped = append(dropped, r.prompts[at])
			r.prompts = slices.Delete(r.prompts, at, at+1)
		}
	}
	r.prompts = slices.Insert(r.prompts, 0, recalled{blocks: prompt})
	return r.tails(append(dropped, r.trim()...))
}

// trim drops the oldest prompts until there are no more than there may be.
func (r *recall) trim() (dropped []recalled) {
	r.blocks = 0
	for i, p := range r.prompts {
		r.blocks += len(p.blocks)
		if i > 0 && (i >= r.limit || r.blocks > recallBlocks) {
			dropped = slices.Clone(r.prompts[i:])
			clear(r.prompts[i:])
			r.prompts = r.prompts[:i]
			break
		}
	}
	return dropped
}

// tails returns the ends of prompts that were dropped, beyond what others begin with.
func (r *recall) tails(dropped []recalled) (out [][]kv.Block) {
	for _, d := range dropped {
		if tail := d.blocks[r.find(d.blocks).common:]; len(tail) > 0 {
			out = append(out, tail)
		}
	}
	return out
}

// displaced returns how many blocks the server would have to forget for a prompt.
func (r *recall) displaced(prompt []kv.Block) int {
	if at, common := r.slot(prompt); at >= 0 {
		if r.aside {
			return 0
		}
		return len(r.prompts[at].blocks) - common
	}
	if len(r.prompts) < r.limit {
		return 0
	}
	return len(r.prompts[len(r.prompts)-1].blocks)
}

// lacked takes in that the server did not find what it should have had of a prompt, and
// returns what is gone by that. Either nothing is put aside, or, if it happens again,
// what is older is not there either.
func (r *recall) lacked(m memory) (gone [][]kv.Block) {
	r.misses++
	var dropped []recalled
	switch {
	case m.overwritten && r.aside:
		r.aside, r.misses = false, 0
		r.prompts = slices.DeleteFunc(r.prompts, func(p recalled) bool {
			if p.overwritten {
				dropped = append(dropped, p)
			}
			return p.overwritten
		})
	case r.misses >= recallMisses:
		r.misses = 0
		r.limit = max(1, r.slots, min(r.limit, m.at))
		dropped = r.trim()
	}
	return r.tails(dropped)
}

// found takes in that it did.
func (r *recall) found(m memory) {
	r.misses = 0
	r.aside = r.aside || m.overwritten
	if m.at+2 > r.limit {
		r.limit = min(m.at+2, recallMost)
	}
}

// forget takes blocks out of the index of what a rank was sent.
func (p *pool) forget(src kv.Source, gone [][]kv.Block) {
	if len(gone) == 0 {
		return
	}
	events := make([]kv.Event, 0, len(gone))
	for _, tail := range gone {
		events = append(events, kv.Event{Kind: kv.Removed, Blocks: tail})
	}
	p.sent.Apply(&kv.Batch{Source: src, Events: events})
}
