package router

import (
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/internal/thompson"
)

// BanditConfig has a policy that learns choose in mode kv, among the candidates that the
// cost has scored.
type BanditConfig struct {
	// Reference is NeMo Agent Toolkit's policy; nil for the safe one.
	Reference *thompson.ReferenceConfig
	// Safe is the safe policy, where Reference is nil; also for what it would do, with its
	// Shadow set.
	Safe thompson.SafeConfig
	// Prefixes says how the requests of conversations are counted.
	Prefixes thompson.PrefixConfig
}

// mode is reference, safe or shadow.
func (c *BanditConfig) mode() string {
	switch {
	case c.Reference != nil:
		return "reference"
	case c.Safe.Shadow:
		return "shadow"
	}
	return "safe"
}

// bandit is the policy of one pool. The pool's lock guards it.
type bandit struct {
	prefixes  *thompson.Prefixes
	reference *thompson.Reference // nil for the safe one
	safe      *thompson.Safe
	metrics   *metrics.Thompson
	request   thompson.Request
	arms      []thompson.Arm
	ticked    time.Time
}

// newBandit returns a policy that has learned nothing. The configuration is one that the
// policies take.
func newBandit(cfg *BanditConfig, m *metrics.Set) (*bandit, error) {
	b := &bandit{prefixes: thompson.NewPrefixes(cfg.Prefixes), metrics: m.Thompson()}
	var err error
	if cfg.Reference != nil {
		b.reference, err = thompson.NewReference(*cfg.Reference)
	} else {
		b.safe, err = thompson.NewSafe(cfg.Safe)
	}
	return b, err
}

// verdicts are what a policy made of the candidates, in their order: of one of the two.
type verdicts struct {
	reference []thompson.Choice
	safe      []thompson.SafeChoice
	// sampled is whether the policy decided, and not the cost in its place.
	sampled bool
}

// decided is what a placement has to know of a decision of a policy.
type decided struct {
	id     uint64 // 0 for none
	unary  bool
	budget int
}

// decides reports whether a request is the policy's. The others are left to the cost: they
// would not teach it anything, or something wrong, because nobody sees their first token.
func (b *bandit) decides(q *Request) bool {
	return !q.QueryOnly && !q.Pinned && !q.Remote && (b.reference != nil || !q.Whole)
}

// choose has the policy choose a candidate; the cost has scored them and would take base.
// The caller holds the pool's lock.
func (b *bandit) choose(c *choice, base int) int {
	if c.pool.router.cfg.Virtual { // nobody else does
		b.tick(c.at)
	}
	d := &c.dec
	b.arms = b.arms[:0]
	for i := range d.Candidates {
		b.arms = append(b.arms, c.arm(&d.Candidates[i], c.slots[i]))
	}
	b.describe(c, base)
	n := len(b.arms)
	if b.reference != nil {
		c.verdicts.reference = resize(c.verdicts.reference, n)
		dec := b.reference.Decide(c.at, c.draws, &b.request, b.arms, c.verdicts.reference)
		c.verdicts.sampled, c.bandit = true, decided{dec.ID, b.request.Unary, b.request.Budget}
		b.note(c, dec.Chosen, stick(dec, b.arms))
		return dec.Chosen
	}
	c.verdicts.safe = resize(c.verdicts.safe, n)
	dec := b.safe.Decide(c.at, c.draws, &b.request, b.arms, c.verdicts.safe)
	c.verdicts.sampled, c.bandit = dec.Why == thompson.WhySampled, decided{dec.ID, b.request.Unary, b.request.Budget}
	b.note(c, dec.Chosen, metrics.NoPrevious)
	return dec.Chosen
}

// arm is a candidate as the policies see it.
func (c *choice) arm(cand *sched.Candidate, s *slot) thompson.Arm {
	arm := thompson.Arm{
		ID:            s.source(),
		Cost:          cand.Score,
		PrefillTokens: cand.PrefillTokens + c.cost.PrefillTokens(&c.dec, cand),
		KVTokens:      cand.Blocks * c.dec.BlockSize,
		InFlight:      cand.Requests,
		Healthy:       true,
	}
	if c.blocks > 0 {
		arm.Overlap = min(1, float64(c.holds(cand))/float64(c.blocks))
	}
	if !s.reported.IsZero() && s.fresh(c.at) {
		arm.Scraped, arm.KVUsage, arm.Queue = true, s.said.Usage, float64(s.said.Waiting)
		if arm.KVUsage == 0 && s.totalBlocks > 0 {
			arm.KVUsage = float64(s.usedBlocks) / float64(s.totalBlocks)
		}
	}
	return arm
}

// describe fills in what the policies have to know of the request. A request that is placed
// once more was counted before.
func (b *bandit) describe(c *choice, base int) {
	q := c.q
	r := &b.request
	*r = thompson.Request{PromptTokens: c.dec.PromptTokens, BlockSize: c.dec.BlockSize, Baseline: base, Unary: q.Whole}
	if q.ExpectedOutput > 0 {
		r.OSL = thompson.OSL(float64(q.ExpectedOutput))
	}
	var e thompson.Expectation
	if x := q.Expected; x != nil && x.IATMS != nil {
		r.IAT = thompson.IAT(float64(*x.IATMS))
		e.Gap = time.Duration(min(*x.IATMS, 1<<31)) * time.Millisecond
	}
	if q.Prefix == "" || q.Attempt > 0 {
		return
	}
	r.Prefix = thompson.NewPrefixID(q.Tenant, q.Prefix)
	switch {
	case q.TotalRequests > 0:
		e.Total = int(min(q.TotalRequests, 1<<31))
	case q.Expected != nil && q.Expected.RemainingCalls != nil:
		e.Total, e.Remaining = int(min(*q.Expected.RemainingCalls, 1<<31)), true
	}
	r.Budget, r.TTL = b.prefixes.Next(c.at, r.Prefix, e)
}

// stick says whether a conversation stayed where it was.
func stick(dec thompson.Decision, arms []thompson.Arm) metrics.Stick {
	switch {
	case !dec.Known:
		return metrics.NoPrevious
	case arms[dec.Chosen].ID == dec.Previous:
		return metrics.Stayed
	}
	return metrics.Switched
}

// note counts a decision.
func (b *bandit) note(c *choice, chosen int, s metrics.Stick) {
	arm := &b.arms[chosen]
	b.metrics.Decision(uint64(arm.ID.Worker), arm.Overlap, c.dec.PromptTokens, b.request.Budget, s)
}

// tick does what time brings, about once a second.
func (b *bandit) tick(now time.Time) {
	if since := now.Sub(b.ticked); since >= 0 && since < time.Second {
		return
	}
	b.ticked = now
	if b.reference != nil {
		b.metrics.Timeouts(b.reference.Sweep(now))
		return
	}
	if b.safe.Tick(now).Stopped {
		b.metrics.Fallback()
	}
}

// pending returns how many decisions wait for feedback, and how many conversations are
// remembered.
func (b *bandit) pending() (decisions, prefixes int) {
	if b.reference != nil {
		st := b.reference.Stats()
		return st.Pending, st.Prefixes
	}
	return b.safe.Stats().Pending, b.prefixes.Len()
}

// firstToken learns from a request's first token, after so long.
func (b *bandit) firstToken(now time.Time, d decided, ttft time.Duration) {
	if d.id != 0 && b.safe != nil {
		_ = b.safe.FirstToken(now, d.id, ttft) // one that is not pending has nothing to teach
	}
}

// done learns from the end of a request.
func (b *bandit) done(now time.Time, d decided, end ended) {
	if d.id == 0 {
		return
	}
	if b.safe != nil {
		_ = b.safe.Done(now, d.id, end.itl, end.outcome)
		return
	}
	if end.outcome == thompson.Cancelled {
		b.reference.Drop(d.id)
		return
	}
	res, err := b.reference.Feedback(now, d.id, thompson.Feedback{
		Latency: end.took, TokensOut: end.tokens, Failed: end.outcome == thompson.Failed,
	})
	if err != nil {
		return
	}
	b.metrics.Feedback(uint64(res.Arm.Worker), end.took, res.Reward)
	if l, ok := b.reference.Learned(res.Arm); ok {
		b.metrics.Beta(uint64(res.Arm.Worker), l.Alpha, l.Beta)
	}
}

// ended is what became of a request.
type ended struct {
	took, itl time.Duration
	tokens    int
	outcome   thompson.Outcome
}

// forget drops what was learned of a rank that has left.
func (b *bandit) forget(src kv.Source) {
	if b.reference != nil {
		b.reference.Forget(src)
		return
	}
	b.safe.Forget(src)
}

// resize returns a slice of n elements, s itself if it has room.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// outcomeOf is how a request ended, to the policies.
func outcomeOf(o Outcome) thompson.Outcome {
	switch o {
	case Completed:
		return thompson.Completed
	case Cancelled:
		return thompson.Cancelled
	default:
		return thompson.Failed
	}
}
