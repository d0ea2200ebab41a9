package thompson

import (
	"fmt"
	"math"
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// safePending is a decision that waits for feedback.
type safePending struct {
	arm     *safeArm
	phi     [safeDim]float64
	prior   float64
	prefill float64 // tokens to be computed
	since   time.Time
	first   bool // the first token has come
	unary   bool // it never will
	cost    float64
	late    bool          // it took longer than predicted
	look    time.Duration // then, at which age to look again
	compare comparisonRow
}

// A difference of logarithms beyond this says no more than this.
const maxSurprise = 3

// Of fewer tokens than that the time says nothing about how fast they are computed.
const minRateTokens = 256

// wait makes a decision pending.
func (s *Safe) wait(now time.Time, req *Request, dec *SafeDecision, arm *Arm, a *safeArm, out []SafeChoice) uint64 {
	id, p := s.pending.add()
	c := &out[dec.Chosen]
	*p = safePending{
		arm: a, phi: c.X, prior: c.Prior, prefill: float64(max(arm.PrefillTokens, 0)), since: now,
		unary: req.Unary,
	}
	if dec.Why == WhySampled || dec.Why == WhyShadow {
		p.compare = compareWith(dec, req.Baseline, out, s.in)
		if s.split() {
			p.compare.later = s.cfg.ITLWeight * (s.heads[1].at(&c.X) + a.offsets[1].at(now, s.cfg.HalfLife))
		}
	}
	return id
}

// predicted is the logarithm of what the first head expects of a decision now.
func (s *Safe) predicted(now time.Time, p *safePending) float64 {
	return p.prior + s.heads[0].at(&p.phi) + p.arm.offsets[0].at(now, s.cfg.HalfLife)
}

// logSeconds is the cost of a time to the first token.
func (s *Safe) logSeconds(d time.Duration) float64 {
	return math.Log(max(d, 0).Seconds() + s.cfg.FixedDelay.Seconds())
}

// learn takes a cost in, as one of the heads knows it; prior is what it was expected to be
// before anything was learned.
func (s *Safe) learn(now time.Time, h int, p *safePending, cost, prior float64) {
	e := min(max(cost-prior, -maxSurprise), maxSurprise)
	o := &p.arm.offsets[h]
	s.heads[h].learn(now, &p.phi, e, o, s.cfg.HalfLife, s.cfg.Lambda)
	o.setLevel(s.zero, s.cfg.HalfLife)
}

// FirstToken learns from the time that a request's first token took, from the decision on.
// Only the first call for a decision counts. The error is [ErrUnknown] for one that is not
// pending.
func (s *Safe) FirstToken(now time.Time, id uint64, ttft time.Duration) error {
	i := s.pending.get(id)
	if i == none {
		return fmt.Errorf("first token of %016x: %w", id, ErrUnknown)
	}
	p := s.pending.at(i)
	if p.first {
		return nil
	}
	p.first, p.cost = true, s.logSeconds(ttft)
	if !s.cfg.OneHead {
		s.learn(now, 0, p, p.cost, p.prior)
	}
	if p.prefill >= minRateTokens && ttft > 0 && !s.rate.reported {
		s.rate.add(p.prefill, ttft.Seconds())
	}
	return nil
}

// PrefillRate takes in how many prompt tokens a second an engine computes. Once anybody
// says, it is not inferred from the times of first tokens any more. What is no rate is
// ignored.
func (s *Safe) PrefillRate(tokensPerSecond float64) {
	if !(tokensPerSecond >= minPrefillRate && tokensPerSecond <= maxPrefillRate) {
		return
	}
	if !s.rate.reported {
		s.rate = newPrefillRate(tokensPerSecond)
		s.rate.reported = true
	}
	s.rate.add(tokensPerSecond, 1)
}

// Outcome is how a request ended.
type Outcome uint8

// The outcomes.
const (
	Completed Outcome = iota // with an answer
	Cancelled                // the client left
	Failed                   // the engine failed
)

// Done learns from the end of a request, which is not pending any more then: from the mean
// time between its tokens, 0 if there were too few. Nothing is learned about the arm from
// a request that was cancelled or failed. The error is [ErrUnknown] for a decision that is
// not pending.
func (s *Safe) Done(now time.Time, id uint64, itl time.Duration, o Outcome) error {
	i := s.pending.get(id)
	if i == none {
		return fmt.Errorf("end of %016x: %w", id, ErrUnknown)
	}
	s.finish(now, s.pending.at(i), itl, o)
	s.pending.removeAt(i)
	return nil
}

func (s *Safe) finish(now time.Time, p *safePending, itl time.Duration, o Outcome) {
	if o != Completed || !p.first {
		if o != Completed && p.late && !p.first { // given up: as much as it took is certain
			s.watch.add(now, p.compare.difference(s.logSeconds(now.Sub(p.since))+p.compare.later))
		}
		return
	}
	cost, later := p.cost, p.compare.later
	if itl > 0 {
		ratio := math.Log(itl.Seconds() / s.cfg.ITLReference.Seconds())
		later = s.cfg.ITLWeight * ratio
		if s.split() {
			s.learn(now, 1, p, ratio, 0)
		}
	}
	cost += later
	if s.cfg.OneHead {
		s.learn(now, 0, p, cost, p.prior)
	}
	s.watch.add(now, p.compare.difference(cost))
}

// TickResult is what [Safe.Tick] did.
type TickResult struct {
	// Late is how many requests without a first token were learned from.
	Late int
	// Stopped says that the policy has stopped because it does worse than the baseline.
	Stopped bool
}

// pendingIdle is when a decision is dropped that nobody finishes.
const pendingIdle = time.Hour

// Tick does what time brings, and is called every second or so. Requests that have waited
// for their first token for longer than is predicted by now are learned from before it
// comes: the time so far is what it takes at least. That happens at most once per doubling
// of the time. When it is due, the policy is compared with its baseline.
func (s *Safe) Tick(now time.Time) TickResult {
	var res TickResult
	for i := s.pending.oldest; i != none; {
		p, next := s.pending.at(i), s.pending.slots[i].next
		age := now.Sub(p.since)
		if age >= pendingIdle {
			s.finish(now, p, 0, Cancelled)
			s.pending.removeAt(i)
		} else if !p.first && !p.unary && (!p.late || age >= p.look) {
			if cost := s.logSeconds(age); cost > s.predicted(now, p) {
				s.learn(now, 0, p, cost, p.prior)
				p.late, p.look = true, 2*age
				res.Late++
			}
		}
		i = next
	}
	s.forgetIdle()
	if since := now.Sub(s.lastStop); since < 0 || since >= s.cfg.StopInterval {
		s.lastStop = now
		res.Stopped = s.stop(now)
	}
	return res
}

// forgetIdle drops ranks that have long been no candidates.
func (s *Safe) forgetIdle() {
	for id, a := range s.arms {
		if a.seen.IsZero() { // restored, before any decision
			a.seen = s.decided
		}
		if s.decided.Sub(a.seen) >= armIdle {
			s.Forget(id)
		}
	}
}

// Offset returns by how much a rank is predicted to differ from what its features say, in
// logarithms of seconds, and how many observations that comes from, both at the latest of
// them; of the first token, or of all with one head.
func (s *Safe) Offset(id kv.Source) (mean, count float64) {
	a := s.arms[id]
	if a == nil {
		return 0, 0
	}
	return a.offsets[0].mean, a.offsets[0].count
}
