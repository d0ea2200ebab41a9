package router

import (
	"math"
	"time"

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
	if c.pool.told == nil && c.pool.sent == nil {
		return // nobody asks about caches
	}
	size := c.pool.blockSize()
	limit := max(c.q.PromptTokens, 0)
	p.guess = prediction{
		made:   true,
		exact:  !c.q.Guess && (c.q.Tokens != nil || c.q.Blocks != nil),
		tokens: min(c.finds(cand)*size, limit),
		best:   min(c.best*size, limit),
		block:  size,
	}
	p.cached = float64(p.guess.tokens) / float64(max(limit, 1))
}

// judge compares the prediction with what the engine says: how many tokens the prompt
// has and how many of them it found in its cache, negative if it does not say.
func (g *prediction) judge(ours, prompt, cached int) nvext.Verdict {
	switch {
	case !g.exact || prompt <= 0:
		return nvext.VerdictUnknown
	case prompt != ours:
		return nvext.VerdictTokensDiffer
	case g.best == 0 && cached >= g.block:
		return nvext.VerdictUnforeseen
	case g.best == 0:
		return nvext.VerdictNoReuse
	case cached < 0:
		return nvext.VerdictUnknown
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
	if prompt > 0 && cached >= 0 {
		p.cached = float64(cached) / float64(prompt)
	}
	lost := false
	if v == nvext.VerdictAgreed || v == nvext.VerdictTraded || v == nvext.VerdictIndexStale {
		lost = p.slot.learn(p.router.cfg.Now(), g, cached)
	}
	var gone [][]kv.Block
	if p.memory.at >= 0 && p.slot.recall != nil && cached >= 0 && !p.slot.left.Load() {
		gone = p.adjust(cached)
	}
	p.pool.mu.Unlock()
	p.pool.forget(p.slot.source(), gone)
	if n := min(cached/g.block, len(p.perhaps)); n > 0 && cached > g.tokens && prompt == p.promptTokens && !p.slot.left.Load() {
		// It has not told of that.
		p.pool.sent.Route(p.router.cfg.Now(), p.slot.source(), p.perhaps[:n])
	}
	p.perhaps = nil
	p.listen(v, prompt, cached)
	if lost {
		p.router.cfg.Log.Warn("a worker's cache holds less than it should; cached prompts count less there", "worker", p.leg.Target.Worker, "rank", p.leg.Target.Rank)
	}
	truth.Record(metrics.Verdict(v), g.tokens, max(cached, 0))
	if r := p.Routing; r != nil {
		r.CacheVerdict = v
		if cached >= 0 {
			r.ActualCachedTokens = new(cached)
		}
	}
	p.router.ring.settle(p.kept, v, cached)
	return v
}

// adjust corrects how much the rank's server is taken to remember, and returns what is
// gone. The caller holds the pool's lock.
func (p *Placement) adjust(cached int) (gone [][]kv.Block) {
	g := &p.guess
	switch {
	case g.tokens <= g.block:
	case cached >= g.tokens-g.block:
		p.slot.recall.found(p.memory)
	default:
		gone = p.slot.recall.lacked(p.memory)
	}
	return gone
}

// differing is after how many requests in a row it is said that an engine counts other
// tokens.
const differing = 8

// listen draws conclusions about the worker: whether it counts the same tokens, and
// whether it tells of what it computes.
func (p *Placement) listen(v nvext.Verdict, prompt, cached int) {
	w, log := p.slot.worker, p.router.cfg.Log
	switch {
	case v == nvext.VerdictTokensDiffer:
		if w.differing.Add(1) == differing {
			log.Warn("the engine counts other prompt tokens than its tokenizer here does; its cache is not found", "worker", w.ID, "url", w.Name, "model", p.pool.key.model)
		}
	case p.guess.exact && prompt > 0 && w.differing.Load() != 0:
		w.differing.Store(0)
	}
	if w.voice.computed(p.router.cfg.Now(), (prompt-max(cached, 0))/p.guess.block) {
		log.Warn("worker computes prompts and tells nothing of its cache; what is sent there is taken to be there", "worker", w.ID, "url", w.Name)
		for _, p := range w.in() {
			p.revoice(w, false)
		}
	}
}

// holds is how many leading blocks of the prompt a candidate should find in its cache:
// those that it has, and, where the cost counts on them, those of requests under way.
func (c *choice) holds(cand *sched.Candidate) int {
	n := int(cand.Depth[kv.NumTiers-1])
	if !c.cost.NoLive {
		n = max(n, cand.Live)
	}
	return n
}

// finds is the same where a request under way is of no help: a server that keeps whole
// prompts computes two at once in two slots.
func (c *choice) finds(cand *sched.Candidate) int {
	if s := c.slots[c.chosen]; s.recall != nil {
		return int(cand.Depth[kv.NumTiers-1])
	}
	return c.holds(cand)
}

const (
	// learning is how much the latest answer counts in a rank's trust.
	learning = 0.1
	// forgiving is the time in which half of a rank's mistrust is forgotten. Without
	// it, one that nobody trusts would never be asked again.
	forgiving = time.Minute
)

// learn adjusts how far predictions of the rank's cache are trusted. Those that are
// short of a block are right, and one of no more says nothing. It reports whether the
// trust was lost just now. The caller holds the pool's lock.
func (s *slot) learn(now time.Time, g *prediction, cached int) (lost bool) {
	if g.tokens <= g.block {
		return false
	}
	found := min(1, float64(cached+g.block)/float64(g.tokens))
	trust := s.trustAt(now)
	s.trust, s.trusted = trust+learning*(found-trust), now
	if s.trust > 0.999 {
		s.trust = 1
	}
	switch {
	case s.trust < 0.5 && !s.doubted:
		s.doubted = true
		return true
	case s.trust > 0.9:
		s.doubted = false
	}
	return false
}

// trustAt is how far predictions of the rank's cache are trusted by now. The caller
// holds the pool's lock.
func (s *slot) trustAt(now time.Time) float64 {
	if s.trust == 1 {
		return 1
	}
	since := max(0, now.Sub(s.trusted))
	return 1 - (1-s.trust)*math.Exp2(-float64(since)/float64(forgiving))
}
