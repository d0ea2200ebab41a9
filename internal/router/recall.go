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
	limit   int  // how many prompts it keeps
	aside   bool // prompts are put aside before they are overwritten
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
	// recallMost bounds what is remembered of one.
	recallMost = 256
	// recallAlike is the share of a prompt that must be in a slot for the slot to be
	// used on.
	recallAlike = 0.1
)

func newRecall(slots int) *recall { return &recall{limit: slots + recallSpare, aside: true} }

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

// note takes in that the server has computed a prompt, and reports whether something
// had to go for it.
func (r *recall) note(prompt []kv.Block) (dropped bool) {
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
			r.prompts = slices.Delete(r.prompts, at, at+1)
			dropped = true
		}
	}
	r.prompts = slices.Insert(r.prompts, 0, recalled{blocks: prompt})
	return r.trim() || dropped
}

func (r *recall) trim() (dropped bool) {
	if len(r.prompts) <= r.limit {
		return false
	}
	clear(r.prompts[r.limit:])
	r.prompts = r.prompts[:r.limit]
	return true
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
// reports whether something had to go. Either nothing is put aside, or what is older is
// not there either.
func (r *recall) lacked(m memory) (dropped bool) {
	if m.overwritten && r.aside {
		r.aside = false
		before := len(r.prompts)
		r.prompts = slices.DeleteFunc(r.prompts, func(p recalled) bool { return p.overwritten })
		return len(r.prompts) < before
	}
	r.limit = max(1, min(r.limit, m.at))
	return r.trim()
}

// found takes in that it did.
func (r *recall) found(m memory) {
	r.aside = r.aside || m.overwritten
	if m.at+2 > r.limit {
		r.limit = min(m.at+2, recallMost)
	}
}

// remember notes a prompt on a rank that does not tell, and forgets what its server had
// to forget for it. It returns where the server had it before. The caller holds the
// pool's lock.
func (p *pool) remember(s *slot, prompt []kv.Block) memory {
	if s.recall == nil {
		return memory{at: -1}
	}
	m := s.recall.find(prompt)
	if s.recall.note(prompt) {
		p.rewrite(s)
	}
	return m
}

// rewrite has the index say what the rank's server is taken to remember.
func (p *pool) rewrite(s *slot) {
	now := p.router.cfg.Now()
	p.sent.ClearRank(s.source())
	for _, prompt := range slices.Backward(s.recall.prompts) {
		p.sent.Route(now, s.source(), prompt.blocks)
	}
}
