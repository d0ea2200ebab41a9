package router

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/internal/thompson"
	"github.com/stator-ai/stator/nvext"
)

// choice is one decision in the making. The steps are look, outside the pool's lock;
// gather, score, choose, with it; and finish, outside again.
type choice struct {
	pool *pool
	q    *Request
	d    decision
	now  time.Time // when the request came
	at   time.Time // the time that candidates are judged by
	cost sched.Cost

	prompt []kv.Block // the prompt's full blocks, as far as they are known
	blocks int        // how many it has
	text   bool       // they are of its text
	looked time.Time
	told   []kvindex.Overlap
	sent   []kvindex.Overlap

	live   []int32 // by seat: how much of the prompt requests hold
	slots  []*slot // of the candidates
	dec    sched.Decision
	others []passed
	best   int // the most blocks of the prompt that a candidate has
	// gathered says that all of these are as they are now.
	gathered bool
	turn     uint64
	chosen   int
	class    int // in which it waited
	// restriction is what it may run on, where there is a line.
	restriction uint64
	waited      time.Duration // how long
	prefill     time.Duration // how long its prompt takes, if nobody will tell

	placement         *Placement
	hashing, matching time.Duration
	own               []kv.Block // for hashes that nobody had
	chance            rand.PCG

	draws        *thompson.RandDraws // made of dec.Rand
	conversation thompson.PrefixID   // that it belongs to, where a policy learns
	bandit       decided             // of the policy, where one chose
	news         news                // what the policy found meanwhile
	verdicts     verdicts
}

// passed is a rank that could not be chosen.
type passed struct {
	state nvext.State
	cand  sched.Candidate
}

var choices = sync.Pool{New: func() any {
	c := new(choice)
	c.dec.Rand = rand.New(&c.chance)
	c.draws = thompson.NewDraws(c.dec.Rand)
	return c
}}

func newChoice(p *pool, now time.Time, q *Request, d decision) *choice {
	c := choices.Get().(*choice)
	c.pool, c.q, c.d, c.now, c.at = p, q, d, now, now
	c.cost = q.Override.apply(*p.router.cfg.KV.Cost)
	c.text, c.best, c.class, c.waited, c.gathered = false, 0, 0, 0, false
	c.prompt, c.blocks, c.told, c.sent = nil, 0, c.told[:0], c.sent[:0]
	c.hashing, c.matching, c.prefill = 0, 0, 0
	c.conversation, c.bandit, c.news = thompson.PrefixID{}, decided{}, news{}
	c.verdicts = verdicts{reference: c.verdicts.reference[:0], safe: c.verdicts.safe[:0]}
	return c
}

// free gives c back. Nothing of it may be in use.
func (c *choice) free() {
	c.pool, c.q, c.placement, c.prompt, c.d = nil, nil, nil, nil, decision{}
	clear(c.slots)
	choices.Put(c)
}

// arrived is when the request first came.
func (c *choice) arrived() time.Time {
	if c.q.Arrived.IsZero() {
		return c.now
	}
	return c.q.Arrived
}

// tokens is the length of the prompt as costs take it: one that is empty costs as
// much as a token.
func (c *choice) tokens() int { return max(c.q.PromptTokens, 1) }

// look finds out who has how much of the prompt in its cache.
func (c *choice) look() {
	p, q := c.pool, c.q
	if p.router.cfg.Mode != KV {
		return
	}
	start := c.now
	c.prompt, c.text = c.hash()
	c.blocks = max(len(c.prompt), q.PromptTokens/p.blockSize())
	hashed := start
	if q.Blocks == nil { // else somebody has done it before
		hashed = p.router.cfg.Now()
	}
	p.expire(hashed)
	c.match()
	c.hashing, c.matching, c.at = hashed.Sub(start), c.looked.Sub(hashed), c.looked
	if p.bandit != nil && c.d.ordinal != 0 && !q.QueryOnly { // it is to be placed
		c.conversation = thompson.NewPrefixID(q.Tenant, q.Prefix)
	}
}

// match looks the prompt up.
func (c *choice) match() {
	c.told = c.pool.told.Match(c.told[:0], c.prompt)
	c.sent = c.pool.sent.Match(c.sent[:0], c.prompt)
	c.looked = c.pool.router.cfg.Now()
}

// hash returns the full blocks of the prompt, and whether they are of its text.
func (c *choice) hash() (blocks []kv.Block, text bool) {
	p, q := c.pool, c.q
	size := p.blockSize()
	switch {
	case p.key.eagle && len(q.Tokens) > 0:
		c.own = kv.AppendEagleBlocks(c.own[:0], q.HashSeed, q.Tokens, size)
		return c.own, false
	case q.Blocks != nil && q.BlockSize == size && !p.key.eagle:
		return q.Blocks, false
	case len(q.Tokens) > 0:
		c.own = kv.AppendBlocks(c.own[:0], q.HashSeed, q.Tokens, size)
		return c.own, false
	case len(q.Text) > 0 && !p.router.cfg.KV.NoText:
		c.own = kv.AppendTextBlocks(c.own[:0], q.HashSeed, q.Text[:min(len(q.Text), MaxText)], size*bytesPerToken)
		return c.own, true
	default:
		return nil, false
	}
}

// bytesPerToken is how many bytes of text stand for a token.
const bytesPerToken = 4

// expire forgets, from time to time, what was sent to ranks long ago. No request waits
// for that, unless time stands still meanwhile.
func (p *pool) expire(now time.Time) {
	if p.sent == nil || p.router.cfg.KV.TTL < 0 {
		return
	}
	last := p.expired.Load()
	if now.UnixNano()-last < int64(p.router.cfg.KV.TTL/8) || !p.expired.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	if p.router.cfg.Virtual {
		p.sent.Expire(now)
	} else {
		go p.sent.Expire(now)
	}
}

// price fills in the decision and returns whom the selector of mode kv, or the cost, would
// choose.
func (c *choice) price() int {
	d := &c.dec
	d.PromptTokens, d.BlockSize, d.ExpectedOutput, d.Tied = c.tokens(), c.pool.blockSize(), c.q.ExpectedOutput, 0
	c.chance.Seed(c.pool.router.cfg.Seed, c.d.ordinal)
	if s := c.pool.router.cfg.Selector; s != nil {
		return c.custom(s)
	}
	return c.cost.Select(d)
}

// custom has a selector choose that is not ours. If it panics the cost chooses: the
// pool's lock is held.
func (c *choice) custom(s sched.Selector) (chosen int) {
	cands := c.dec.Candidates
	defer func() {
		c.dec.Candidates = cands
		if v := recover(); v != nil {
			c.pool.router.cfg.Log.Error("the selector panicked", "selector", c.pool.router.cfg.SelectorName, "panic", v)
			chosen = c.cost.Select(&c.dec)
		}
	}()
	return min(max(s.Select(&c.dec), 0), len(cands)-1)
}

func (c *choice) leastRequests() int {
	least := math.MaxInt
	for i := range c.dec.Candidates {
		least = min(least, c.dec.Candidates[i].Requests)
	}
	return least
}

// leastScore returns the best score, 0 where the selector gives none.
func (c *choice) leastScore() float64 {
	least := math.Inf(1)
	for i := range c.dec.Candidates {
		if s := c.dec.Candidates[i].Score; s < least {
			least = s
		}
	}
	if math.IsInf(least, 0) {
		return 0
	}
	return least
}

// choose chooses a slot and books the request on it. The caller holds the pool's
// lock.
func (c *choice) choose() error {
	if !c.gathered {
		if blocked := c.gather(); len(c.dec.Candidates) == 0 {
			return c.refuse(blocked)
		}
	}
	p, q := c.pool, c.q
	mode := p.router.cfg.Mode
	turn := &p.turn
	if q.Pinned {
		turn = &p.pins
	}
	c.turn = *turn
	if mode == KV {
		c.chosen = c.price()
		if b := p.bandit; b != nil && !q.QueryOnly {
			b.count(c)
			if b.decides(q) {
				c.chosen = b.choose(c, c.chosen)
			}
			b.stay(c)
		}
	} else {
		c.chance.Seed(p.router.cfg.Seed, c.d.ordinal)
		c.chosen = pick(mode, *turn, c.dec.Rand, c.dec.Candidates)
	}
	if !q.QueryOnly {
		*turn++
	}
	c.book()
	return nil
}

// book makes the placement.
func (c *choice) book() {
	p, q, s := c.pool, c.q, c.slots[c.chosen]
	cand := &c.dec.Candidates[c.chosen]
	pl := q.Into
	if pl == nil {
		pl = new(Placement)
	}
	*pl = Placement{model: q.Model, pool: p, router: p.router, slot: s, promptTokens: max(q.PromptTokens, 0), expected: q.ExpectedOutput, ordinal: c.d.ordinal, memory: memory{at: -1}}
	pl.bandit = c.bandit.id
	pl.leg = Leg{Phase: nvext.Aggregated, Target: s.target, Engine: s.worker.adapter(), Ranked: s.model.Ranks > 1}
	c.placement = pl
	kvMode := p.router.cfg.Mode == KV
	if kvMode {
		pl.leg.OverlapBlocks = int(cand.Depth[kv.NumTiers-1])
		pl.predict(c, cand)
		if s.recall != nil && len(c.prompt) > 0 {
			pl.memory = s.recall.find(c.prompt)
		}
	}
	if q.QueryOnly {
		pl.released.Store(true)
		pl.guess.judged = true // nothing will come of it
		return
	}
	w := sched.Work{PrefillTokens: pl.promptTokens}
	if q.Model.Adapter {
		w.Adapter = q.Model.ID
	}
	pl.blocks = p.blocksOf(pl.promptTokens)
	switch {
	case !kvMode:
		w.Loose = pl.blocks
	case p.router.cfg.KV.NoActiveBlocks:
	case len(c.prompt) > 0 && c.reuses():
		w.Prompt, w.Loose = c.prompt, c.blocks-len(c.prompt)
	default:
		w.Loose = c.blocks
	}
	if kvMode {
		w.PrefillTokens = 0
		if !c.cost.NoPrefill && q.PromptTokens > 0 {
			w.PrefillTokens = c.cost.PrefillTokens(&c.dec, cand)
		}
	}
	q.Model.booked.Add(1)
	p.ledger.Book(&pl.booking, s.seat, w)
	if w.PrefillTokens > 0 {
		pl.ahead = p.ledger.Totals(s.seat, false).PrefillTokens
	}
	if q.Whole && pl.ahead > 0 && !p.router.cfg.Virtual {
		c.prefill = s.prefillTime(pl.ahead)
	}
}

// finish does what a decision leaves to do when the lock is given back, and returns
// the placement.
func (c *choice) finish() *Placement {
	p, q, pl := c.pool, c.q, c.placement
	r := p.router
	now := r.cfg.Now()
	pl.placed, pl.grown, pl.waited = now, now, c.waited
	cand := &c.dec.Candidates[c.chosen]
	overlap := pl.leg.OverlapBlocks
	if q.Explain || q.ExplainAll {
		limit := nvext.MaxCandidates
		if q.ExplainAll {
			limit = math.MaxInt
		}
		pl.Routing = c.routing(limit)
	}
	if !q.QueryOnly {
		if p.sent != nil && len(c.prompt) > 0 {
			switch {
			case c.text, !p.tells(pl.slot):
				pl.prompt = slices.Clone(c.prompt)
			case pl.slot.partial.Load():
				pl.perhaps = slices.Clone(c.prompt)
			}
		}
		if c.prefill > 0 {
			pl.expectPrefill(c.prefill)
		}
		pl.kept = r.ring.add(c)
		exact, size := pl.promptTokens, 0
		if q.Guess {
			exact = 0
		}
		if r.cfg.Mode == KV {
			size = p.blockSize()
			if lost := c.best - c.holds(cand); lost > 0 && !q.Pinned {
				p.metrics.OverlapLost(lost)
			}
			if c.text {
				p.metrics.TextRouted()
			}
		}
		p.metrics.Started()
		p.metrics.Placed(exact, size, overlap)
		p.metrics.Decided(string(c.reason()))
		if p.bandit != nil {
			p.bandit.note(c)
		}
	}
	took := now.Sub(c.now) - c.waited
	p.metrics.Overhead(metrics.Overhead{
		BlockHashing: c.hashing, FindMatches: c.matching, Scheduling: took - c.hashing - c.matching, Total: took,
	})
	c.free()
	return pl
}

// reason says what decided.
func (c *choice) reason() nvext.Reason {
	mode := c.pool.router.cfg.Mode
	switch {
	case c.q.Pinned:
		return nvext.ReasonPinned
	case len(c.dec.Candidates) == 1 && len(c.q.Model.pools) == 1:
		return nvext.ReasonOnly
	case mode == KV && c.pool.router.cfg.Selector != nil:
		return nvext.ReasonSelector
	case mode == KV && c.verdicts.sampled:
		return nvext.ReasonThompson
	case mode == KV:
		return nvext.ReasonCost
	case mode == Random:
		return nvext.ReasonRandom
	case mode == RoundRobin:
		return nvext.ReasonRoundRobin
	default:
		return nvext.ReasonLeastLoaded
	}
}
