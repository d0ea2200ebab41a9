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
	// Prefixes says how the requests of conversations are counted. For Reference they are
	// always counted as the toolkit does.
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

// tickEvery is how often time brings something: every second, or more often where the
// reference policy is to look for decisions that nothing was heard of.
func (c *BanditConfig) tickEvery() time.Duration {
	if c.Reference == nil {
		return time.Second
	}
	return min(max(c.Reference.SweepInterval, 50*time.Millisecond), time.Second)
}

// keep is for how long what was learned of a rank is kept that has left: until next to
// nothing of it would count.
func (c *BanditConfig) keep() time.Duration {
	const most = time.Hour
	if c.Reference != nil {
		return most
	}
	return 10 * min(c.Safe.HalfLife, most/10)
}

// bandit is the policy of one pool. The pool's lock guards what changes in it. Metrics are
// recorded without the lock: what they are told is returned, or left in the choice.
type bandit struct {
	variant     string
	prefixes    *thompson.Prefixes
	stays       stays               // of conversations, where the policy does not keep them
	reference   *thompson.Reference // nil for the safe one
	safe        *thompson.Safe
	metrics     *metrics.Thompson
	every, keep time.Duration

	request  thompson.Request
	arms     []thompson.Arm
	ticked   time.Time
	timeouts uint64      // of those that there were, how many were told
	departed []departure // oldest first
}

// newBandit returns a policy that has learned nothing. The configuration is one that the
// policies take.
func newBandit(cfg *BanditConfig, m *metrics.Set) (*bandit, error) {
	prefixes := cfg.Prefixes
	prefixes.Compat = prefixes.Compat || cfg.Reference != nil
	b := &bandit{
		variant: cfg.mode(), prefixes: thompson.NewPrefixes(prefixes), stays: newStays(prefixes.Max),
		metrics: m.Thompson(), every: cfg.tickEvery(), keep: cfg.keep(),
	}
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
	ruling
}

// ruling is what a policy has to say about its decision as a whole.
type ruling struct {
	variant string
	why     thompson.Why
	p       float64 // of the chosen
	// Of the safe policy: the candidate that it would have chosen, what is left of its
	// budget, and the highest cost that it admits.
	would         int
	budget, limit float64
}

// decided is a decision of a policy.
type decided struct {
	id      uint64 // 0 for none
	budget  int
	overlap float64 // of the chosen
	stick   metrics.Stick
}

// decides reports whether a request is the policy's. There is nothing to decide about one
// that is pinned, and nobody may ever tell what became of one that runs elsewhere. From one
// whose answer comes at once the safe policy learns nothing about the worker, because nobody
// sees its first token; it is placed by what the others have taught.
func (b *bandit) decides(q *Request) bool {
	return !q.QueryOnly && !q.Pinned && !q.Remote
}

// choose has the policy choose a candidate; the cost has scored them and would take base.
// The request has been counted. The caller holds the pool's lock.
func (b *bandit) choose(c *choice, base int) int {
	if since := c.at.Sub(b.ticked); c.pool.router.cfg.Virtual && (since < 0 || since >= b.every) { // nobody else does
		c.news = b.tick(c.pool, c.at)
	}
	d := &c.dec
	b.arms = b.arms[:0]
	for i := range d.Candidates {
		b.arms = append(b.arms, c.arm(&d.Candidates[i], c.slots[i]))
	}
	r, n := &b.request, len(b.arms)
	r.PromptTokens, r.BlockSize, r.Baseline, r.Unary = d.PromptTokens, d.BlockSize, base, c.q.Whole
	chosen := 0
	c.bandit = decided{budget: r.Budget}
	if b.reference != nil {
		c.verdicts.reference = resize(c.verdicts.reference, n)
		dec := b.reference.Decide(c.at, c.draws, r, b.arms, c.verdicts.reference)
		c.verdicts.sampled = true
		c.verdicts.ruling = ruling{variant: b.variant, why: thompson.WhySampled, p: dec.P}
		chosen, c.bandit.id, c.bandit.stick = dec.Chosen, dec.ID, stick(dec, b.arms)
	} else {
		c.verdicts.safe = resize(c.verdicts.safe, n)
		dec := b.safe.Decide(c.at, c.draws, r, b.arms, c.verdicts.safe)
		c.verdicts.sampled = dec.Why == thompson.WhySampled
		c.verdicts.ruling = ruling{variant: b.variant, why: dec.Why, p: dec.P, would: dec.Would, budget: dec.Budget, limit: dec.Limit}
		chosen, c.bandit.id = dec.Chosen, dec.ID
	}
	c.bandit.overlap = b.arms[chosen].Overlap
	return chosen
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

// count takes in what a request says of its conversation. Whoever decides, every request
// that is placed counts once: its client has made that call. One that is placed once more
// was counted before, and expects what it expected then. Of one without a name only the
// reference expects something: what the client says.
func (b *bandit) count(c *choice) {
	q, r := c.q, &b.request
	*r = thompson.Request{}
	if q.ExpectedOutput > 0 {
		r.OSL = thompson.OSL(float64(q.ExpectedOutput))
	}
	var e thompson.Expectation
	if x := q.Expected; x != nil && x.IATMS != nil {
		r.IAT = thompson.IAT(float64(*x.IATMS))
		e.Gap = time.Duration(min(*x.IATMS, 1<<31)) * time.Millisecond
	}
	r.Prefix = c.conversation
	switch {
	case q.Prefix == "" && b.reference == nil:
		return
	case q.Prefix != "" && q.Attempt > 0:
		if b.reference != nil {
			r.Budget, r.TTL = b.reference.Expects(c.at, r.Prefix)
		}
		return
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

// note records a decision. The lock is not held.
func (b *bandit) note(c *choice) {
	b.publish(c.news)
	if d := &c.bandit; d.id != 0 {
		b.metrics.Decision(uint64(c.dec.Candidates[c.chosen].Worker), d.overlap, c.dec.PromptTokens, d.budget, d.stick)
	}
}

// news is what time has brought.
type news struct {
	timeouts int  // decisions that nothing was heard of
	stopped  bool // the policy has stopped by itself
}

// tick does what time brings.
func (b *bandit) tick(p *pool, now time.Time) (n news) {
	b.ticked = now
	b.forgetDeparted(p, now)
	if b.safe != nil {
		n.stopped = b.safe.Tick(now).Stopped
		return n
	}
	b.reference.Tick(now)
	all := b.reference.Stats().Timeouts // those that decisions have found in between, too
	n.timeouts, b.timeouts = int(all-b.timeouts), all
	return n
}

// publish records news. The lock is not held.
func (b *bandit) publish(n news) {
	if n.timeouts > 0 {
		b.metrics.Timeouts(n.timeouts)
	}
	if n.stopped {
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
func (b *bandit) firstToken(now time.Time, id uint64, ttft time.Duration) {
	if id != 0 && b.safe != nil {
		_ = b.safe.FirstToken(now, id, ttft) // one that is not pending has nothing to teach
	}
}

// ended is what became of a request on a worker: how long the first token and the whole
// answer took from when the request was sent, the time between tokens, 0 if that is not
// known, how many there were, and whether there was an answer at all. The first token of an
// answer that came at once came with the last. Cached is the share of the prompt that was in
// the cache, as the engine says or, if it does not, as was predicted.
type ended struct {
	worker          kv.WorkerID
	ttft, itl, took time.Duration
	tokens          int
	cached          float64
	answered        bool
	outcome         thompson.Outcome
}

// lesson is what the end of a request is recorded as.
type lesson struct {
	worker      uint64 // 0 for nothing
	took        time.Duration
	reward      float64
	alpha, beta float64 // 0 where there are none
}

// done learns from the end of a request. Of one that was cancelled, or that the engine
// answered with what is wrong with it, nothing is learned. The safe policy has no reward of
// its own: what is recorded is what answers are worth to evaluations of policies.
func (b *bandit) done(now time.Time, id uint64, end ended) (l lesson) {
	switch {
	case id == 0:
		return l
	case b.safe != nil:
		err := b.safe.Done(now, id, end.itl, end.outcome)
		if err == nil && end.outcome == thompson.Completed && end.answered {
			l = lesson{worker: uint64(end.worker), took: end.took, reward: thompson.Reward(end.cached, end.ttft, end.itl)}
		}
		return l
	case end.outcome == thompson.Cancelled, end.outcome == thompson.Completed && !end.answered:
		b.reference.Drop(id)
		return l
	}
	res, err := b.reference.Feedback(now, id, thompson.Feedback{
		Latency: end.took, TokensOut: end.tokens, Failed: end.outcome == thompson.Failed,
	})
	if err != nil { // it has timed out
		return l
	}
	l = lesson{worker: uint64(res.Arm.Worker), took: end.took, reward: res.Reward}
	if a, ok := b.reference.Learned(res.Arm); ok {
		l.alpha, l.beta = a.Alpha, a.Beta
	}
	return l
}

// note records it. The lock is not held.
func (l *lesson) note(m *metrics.Thompson) {
	if l.worker != 0 {
		m.Feedback(l.worker, l.took, l.reward)
	}
	if l.alpha > 0 {
		m.Beta(l.worker, l.alpha, l.beta)
	}
}

// resize returns a slice of n elements, s itself if it has room.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// outcomeOf is how a request ended, to the policies. One that was refused never got as far
// as to show how its worker is.
func outcomeOf(o Outcome) thompson.Outcome {
	switch o {
	case Completed:
		return thompson.Completed
	case Cancelled, Refused:
		return thompson.Cancelled
	default:
		return thompson.Failed
	}
}
