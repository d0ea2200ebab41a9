package stator

import (
	"math/rand/v2"
	"slices"

	"github.com/stator-ai/stator/internal/sched"
)

// Selector chooses the rank that gets a request, in the place of the cost that
// router mode kv goes by. Register one with [WithSelector].
type Selector interface {
	// Select returns the index of the candidate that gets the request; an index out
	// of range is taken for the nearest. It may sort the candidates, and set their
	// scores, the lower the better, for explanations. It must be quick, since requests for the same
	// model wait for it, must not block or call the server, and keeps nothing of d.
	// Calls for different models come from several goroutines at once.
	Select(d *Decision) int
}

// Decision is what a [Selector] chooses by.
type Decision struct {
	// PromptTokens is the length of the prompt, at least 1, and BlockSize how many of
	// its tokens are in a KV block.
	PromptTokens int
	BlockSize    int
	// ExpectedOutput is how many tokens the answer is expected to have, as the request
	// hints or the server inferred; 0 if nobody knows.
	ExpectedOutput int
	// Candidates could each have the request. They are sorted by worker and rank; there
	// is at least one.
	Candidates []Candidate
	// Rand is where chance should come from: it is seeded for each decision, so that
	// the same server comes to the same choices.
	Rand *rand.Rand
}

// Candidate is a rank of a worker in the eyes of a [Selector].
type Candidate struct {
	Worker uint64
	Rank   uint32
	// Requests is how many requests run there, PrefillTokens how many prompt tokens
	// they still have to compute, and Blocks how many KV blocks they hold.
	Requests      int
	PrefillTokens int
	Blocks        int
	// NewBlocks is how many blocks of the prompt none of these requests holds.
	NewBlocks int
	// CachedTokens is how many of the prompt's first tokens are in the rank's cache.
	CachedTokens int
	// Score is what the selector makes of it, the lower the better. NaN at first.
	Score float64
}

// WithSelector has s choose the rank of every request in router mode kv. The name
// stands for it in explanations and metrics.
func WithSelector(name string, s Selector) Option {
	return func(o *options) { o.selector, o.selectorName = s, name }
}

// selection lets a Selector choose.
type selection struct{ Selector }

func (s selection) Select(d *sched.Decision) int {
	cands := make([]Candidate, len(d.Candidates))
	out := Decision{
		PromptTokens:   d.PromptTokens,
		BlockSize:      d.BlockSize,
		ExpectedOutput: d.ExpectedOutput,
		Candidates:     cands,
		Rand:           d.Rand,
	}
	for i := range d.Candidates {
		c := &d.Candidates[i]
		device, host, disk, shared := c.Cached(false)
		cands[i] = Candidate{
			Worker: uint64(c.Worker), Rank: c.Rank,
			Requests: c.Requests, PrefillTokens: c.PrefillTokens, Blocks: c.Blocks, NewBlocks: c.NewBlocks,
			CachedTokens: min(int(device+host+disk+shared)*d.BlockSize, d.PromptTokens),
			Score:        c.Score,
		}
	}
	chosen := s.Selector.Select(&out)
	if n := len(out.Candidates); n > 0 {
		chosen = min(max(chosen, 0), n-1)
		chosen = max(0, find(d, chosen, &out.Candidates[chosen]))
	}
	for i := range cands {
		if at := find(d, i, &cands[i]); at >= 0 {
			d.Candidates[at].Score = cands[i].Score
		}
	}
	return chosen
}

// find returns the index of the rank that c is: i, unless a selector has moved it, and
// -1 if c is none.
func find(d *sched.Decision, i int, c *Candidate) int {
	same := func(o sched.Candidate) bool { return uint64(o.Worker) == c.Worker && o.Rank == c.Rank }
	if i < len(d.Candidates) && same(d.Candidates[i]) {
		return i
	}
	return slices.IndexFunc(d.Candidates, same)
}
