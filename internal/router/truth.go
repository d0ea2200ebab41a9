package router

import (
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/nvext"
)

// prediction is what a placement expects the engine to find in its cache.
type prediction struct {
	made   bool
	judged bool
	exact  bool // the prompt's tokens are known
	tokens int  // prompt tokens that should be found
	best   int  // the most that any candidate had
	block  int  // tokens in a block
}

func (p *Placement) predict(c *choice, cand *sched.Candidate) {
	size := c.pool.blockSize()
	limit := max(c.q.PromptTokens, 0)
	p.guess = prediction{
		made:   true,
		exact:  !c.q.Guess && (c.q.Tokens != nil || c.q.Blocks != nil),
		tokens: min(int(cand.Depth[kv.NumTiers-1])*size, limit),
		best:   min(c.best*size, limit),
		block:  size,
	}
}

// judge compares the prediction with what the engine says: how many tokens the prompt
// has and how many of them it found in its cache, negative if it does not say.
func (g *prediction) judge(ours, prompt, cached int) nvext.Verdict {
	switch {
	case !g.exact || cached < 0:
		return nvext.VerdictUnknown
	case prompt != ours:
		return nvext.VerdictTokensDiffer
	case g.best == 0:
		return nvext.VerdictNoReuse
	case cached < g.tokens-g.block:
		return nvext.VerdictIndexStale
	case g.tokens < g.best:
		return nvext.VerdictTraded
	default:
		return nvext.VerdictAgreed
	}
}

// Usage says what the engine counted: the tokens of the prompt, and how many of them
// it found in its cache, negative if it does not say. It returns the verdict on the
// prediction, empty if there was none. Only the first call counts; a request that ends
// without one is one whose engine does not say.
func (p *Placement) Usage(prompt, cached int) nvext.Verdict {
	g := &p.guess
	if !g.made || g.judged {
		return ""
	}
	g.judged = true
	v := g.judge(p.promptTokens, prompt, cached)
	p.pool.mu.Lock()
	truth := p.slot.truth
	if g.tokens > 0 && (v == nvext.VerdictAgreed || v == nvext.VerdictTraded || v == nvext.VerdictIndexStale) {
		p.slot.learn(g, cached)
	}
	p.pool.mu.Unlock()
	truth.Record(metrics.Verdict(v), g.tokens, max(cached, 0))
	if r := p.Routing; r != nil {
		r.CacheVerdict = v
		if cached >= 0 {
			r.ActualCachedTokens = new(cached)
		}
	}
	p.router.ring.settle(p.ordinal, v, cached)
	return v
}

// learning is how much the latest answer counts in a rank's trust.
const learning = 0.1

// learn adjusts how far predictions of the rank's cache are trusted. Those that are
// short of a block are right. The caller holds the pool's lock.
func (s *slot) learn(g *prediction, cached int) {
	found := min(1, float64(cached+g.block)/float64(g.tokens))
	s.trust += learning * (found - s.trust)
	if s.trust > 0.999 {
		s.trust = 1
	}
}
