package router

import (
	"slices"
	"sort"

	"github.com/stator-ai/stator/internal/kv"
)

// recall is what a server is taken to remember that keeps whole prompts, one in each
// of its slots and some more in the host's memory, as llama.cpp does. It tells nothing
// of that, so how many there are is learned from what it finds of those it should have.
type recall struct {
	limit   int          // how many prompts it keeps
	prompts [][]kv.Block // the latest first
}

const (
	// recallSpare is how many prompts a server is taken to keep beyond its slots until
	// it shows otherwise.
	recallSpare = 16
	// recallMost bounds what is remembered of one.
	recallMost = 256
	// recallAlike is the share of a prompt that must be in a slot for the slot to be
	// used on, its old end being overwritten.
	recallAlike = 0.1
)

func newRecall(slots int) *recall { return &recall{limit: slots + recallSpare} }

// find returns the place of the prompt that has most in common with this one, counted
// from the latest, and how many blocks that is. Without any it returns -1.
func (r *recall) find(prompt []kv.Block) (at, common int) {
	at = -1
	for i, p := range r.prompts {
		if n := commonBlocks(p, prompt); n > common {
			at, common = i, n
		}
	}
	return at, common
}

// commonBlocks returns how many blocks two prompts begin with in common. A block's id
// stands for all before it.
func commonBlocks(a, b []kv.Block) int {
	return sort.Search(min(len(a), len(b)), func(i int) bool { return a[i].ID != b[i].ID })
}

// note takes in that the server has computed a prompt, and reports whether something
// else had to go for it.
func (r *recall) note(prompt []kv.Block) (dropped bool) {
	if at, common := r.find(prompt); at >= 0 && float64(common) >= recallAlike*float64(len(prompt)) {
		dropped = common < len(r.prompts[at])
		r.prompts = slices.Delete(r.prompts, at, at+1)
	}
	r.prompts = slices.Insert(r.prompts, 0, prompt)
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

// lacked takes in that the server did not find a prompt that was used so many others
// ago, and reports whether something had to go: what is older is not there either.
func (r *recall) lacked(at int) (dropped bool) {
	r.limit = max(1, min(r.limit, at))
	return r.trim()
}

// found takes in that it did.
func (r *recall) found(at int) {
	if at+2 > r.limit {
		r.limit = min(at+2, recallMost)
	}
}

// remember notes a prompt on a rank that does not tell, and forgets what its server had
// to forget for it. It returns how many prompts ago the server last used what is in it,
// -1 if it did not. The caller holds the pool's lock.
func (p *pool) remember(s *slot, prompt []kv.Block) (at int) {
	if s.recall == nil {
		return -1
	}
	at, _ = s.recall.find(prompt)
	if s.recall.note(prompt) {
		p.rewrite(s)
	}
	return at
}

// rewrite has the index say what the rank's server is taken to remember.
func (p *pool) rewrite(s *slot) {
	now := p.router.cfg.Now()
	p.sent.ClearRank(s.source())
	for _, prompt := range slices.Backward(s.recall.prompts) {
		p.sent.Route(now, s.source(), prompt)
	}
}
