package thompson

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// safeDim is the number of features of the safe policy.
const safeDim = 5

// Safe chooses like a cost model, the baseline, until it knows better. It predicts the
// logarithm of what a request will take on each rank: what the prompt should take by the
// cost model's numbers, plus a correction that is linear in a few features and shared by
// all ranks, plus an offset of the rank's own. Corrections and offsets are learned, and
// what was learned fades with time.
//
// Three things bound what that can cost, whatever is learned. Only ranks within
// [SafeConfig.Guard] of the baseline's cost can be chosen, and none but the baseline's where
// much waits already: the policy knows what a choice means for the request and not what its
// work means for those behind it. What choices cost more than the baseline's comes out of a
// budget, and the baseline decides while there is none: what t decisions cost more, each as
// a fraction of the baseline's cost, is never above Budget + Allowance·t + Guard where a cost
// is at least that of the prompt's blocks, and at least one. And if the requests show that
// the policy does worse, it stops for a while.
type Safe struct {
	cfg      SafeConfig
	heads    [2]head // of the first token, or all; of the others
	arms     map[kv.Source]*safeArm
	last     []*safeArm // of the latest decision, by index
	pending  *pending[safePending]
	rate     prefillRate
	budget   float64
	until    time.Time // stopped until then
	stops    uint64
	watch    watch
	lastStop time.Time // when it was last looked whether to stop
	decided  time.Time
	zero     time.Time // for which offsets have levels; the zero time if they have none
	in       []admitted
	noise    []float64 // draws, within a decision
}

// safeArm is what is known about a rank alone.
type safeArm struct {
	id               kv.Source
	offsets          [2]offset
	seen             time.Time
	tokens, inFlight logOf // as it had at the latest decision
}

// admitted is an arm that may be chosen, within a decision.
type admitted struct {
	index   int
	phi     [safeDim]float64
	center  float64 // what is known before the weights are sampled
	spread  float64 // of the offset
	won     int
	predict float64
}

// NewSafe returns a policy that has learned nothing. An error names what cannot be.
func NewSafe(cfg SafeConfig) (*Safe, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("safe policy: %w", err)
	}
	s := &Safe{cfg: cfg, arms: make(map[kv.Source]*safeArm)}
	s.reset()
	return s, nil
}

func (s *Safe) reset() {
	clear(s.arms)
	s.last = s.last[:0]
	s.zero = time.Time{}
	for i := range s.heads {
		s.heads[i].reset(s.cfg.Lambda)
	}
	s.pending = newPending[safePending](s.cfg.MaxPending, nil)
	s.rate = newPrefillRate(s.cfg.PrefillRate)
	s.budget, s.until = s.cfg.Budget, time.Time{}
	s.watch = newWatch(s.cfg.StopWindow)
}

// split reports whether the tokens after the first have a belief of their own.
func (s *Safe) split() bool { return !s.cfg.OneHead && s.cfg.ITLWeight > 0 }

// Why says what decided.
type Why uint8

// What decides.
const (
	WhySampled  Why = iota // the policy
	WhyOnly                // no other arm was admissible
	WhyBudget              // the budget was spent: the baseline
	WhyStopped             // the policy did worse than the baseline: the baseline
	WhyShadow              // the baseline, as configured
	WhyBaseline            // the baseline's cost is no number, so that nothing compares with it
	WhyBusy                // too much waits where the baseline goes: the baseline
)

var whyNames = [...]string{"sampled", "only", "budget", "stopped", "shadow", "baseline", "busy"}

// String returns a word for it.
func (w Why) String() string {
	if int(w) < len(whyNames) {
		return whyNames[w]
	}
	return "unknown"
}

// SafeChoice is what the safe policy makes of an arm. The lower Score, the better.
type SafeChoice struct {
	// Admissible arms are those that could be chosen.
	Admissible bool
	// Score is the predicted logarithm of the cost in seconds: Prior + Residual + Offset,
	// where Prior is what the prompt should take, Residual the learned correction, and
	// Offset that of the arm alone.
	Score, Prior, Residual, Offset float64
	// Won is in how many samples the arm was the best, and P the probability that the
	// policy gives it.
	Won int
	P   float64
	// X are the features.
	X [safeDim]float64
}

// SafeDecision is what the safe policy decided.
type SafeDecision struct {
	// Chosen is the index of the arm, −1 if there was none to choose from, and P the
	// probability with which it was chosen, given the samples. Would is what the policy
	// would have chosen, where it does not decide.
	Chosen, Would int
	P             float64
	Why           Why
	// ID names the decision in feedback. It is 0 if there was nothing to decide.
	ID uint64
	// Limit is the highest admissible cost, the baseline's where nothing else is admissible
	// because it is busy, and Excess what the choice costs more than the baseline, as it is
	// taken from the budget. Budget is what is left of it.
	Limit, Excess, Budget float64
}

// Decide chooses an arm for a request and waits for feedback. The baseline's choice,
// [Request.Baseline], is one of the arms. What it makes of each arm is left in out, which
// has as many elements as arms. Draws are used only where there is something to choose:
// for each sample five normal ones, five more where later tokens have a belief of their
// own, and one for each admissible arm; then a uniform one.
func (s *Safe) Decide(now time.Time, d Draws, req *Request, arms []Arm, out []SafeChoice) SafeDecision {
	if req.Baseline < 0 || req.Baseline >= len(arms) {
		return SafeDecision{Chosen: -1, Would: -1}
	}
	s.decided = now
	base := arms[req.Baseline].Cost
	sound := !math.IsNaN(base) && !math.IsInf(base, 0)
	limit, busy := base, s.busy(req, &arms[req.Baseline])
	if sound && !busy {
		size := float64(max(req.BlockSize, 1))
		extra := s.cfg.Guard * max(base, float64(max(req.PromptTokens, 0))/size)
		limit += min(extra, s.cfg.MaxExtra.Seconds()*s.rate.perSecond()/size)
	}
	known := s.find(now, arms)
	s.admit(now, req, arms, known, limit, busy, out)

	dec := SafeDecision{Chosen: req.Baseline, Would: req.Baseline, P: 1, Limit: limit, Budget: s.budget}
	stopped := s.stopped(now)
	switch {
	case !sound:
		dec.Why = WhyBaseline
	case busy:
		dec.Why = WhyBusy
	case len(s.in) == 1:
		dec.Why = WhyOnly
	case stopped && !s.cfg.Shadow:
		dec.Why = WhyStopped
	case s.budget <= 0 && !s.cfg.Shadow:
		dec.Why = WhyBudget
	default:
		s.sample(d)
		dec.Would = s.choose(d.Uniform(), req.Baseline, out)
		dec.Why = WhyShadow
		if !s.cfg.Shadow {
			dec.Why, dec.Chosen, dec.P = WhySampled, dec.Would, out[dec.Would].P
		}
	}
	if sampled := dec.Why == WhySampled || dec.Why == WhyShadow; !sampled {
		out[req.Baseline].P = 1
	}
	if sound {
		dec.Excess = max(0, arms[dec.Chosen].Cost-base) / max(base, 1)
		s.pay(stopped, dec.Excess)
		dec.Budget = s.budget
	}
	dec.ID = s.wait(now, req, &dec, &arms[dec.Chosen], known[dec.Chosen], out)
	return dec
}

// busy reports whether the prompts that wait where the baseline goes take longer than they
// may.
func (s *Safe) busy(req *Request, base *Arm) bool {
	own := float64(max(req.PromptTokens, 0)) * (1 - unit(base.Overlap))
	return float64(max(base.PrefillTokens, 0))-own > s.cfg.BusyAfter.Seconds()*s.rate.perSecond()
}

// stopped reports whether the policy has stopped. That never lasts longer than it may from
// now on, also if the time was set back or what was restored says so.
func (s *Safe) stopped(now time.Time) bool {
	if end := now.Add(s.cfg.StopWindow); s.until.After(end) {
		s.until = end
	}
	return now.Before(s.until)
}

func (s *Safe) pay(stopped bool, excess float64) {
	switch {
	case s.cfg.Shadow:
		return
	case !stopped:
		s.budget = min(s.budget+s.cfg.Allowance, s.cfg.BudgetCap)
	}
	s.budget -= excess
}

func (s *Safe) find(now time.Time, arms []Arm) []*safeArm {
	for len(s.last) < len(arms) {
		s.last = append(s.last, nil)
	}
	for i := range arms {
		a := s.last[i]
		if a == nil || a.id != arms[i].ID {
			if a = s.arms[arms[i].ID]; a == nil {
				a = &safeArm{id: arms[i].ID}
				s.arms[a.id] = a
			}
			s.last[i] = a
		}
		a.seen = now
	}
	return s.last[:len(arms)]
}

// admit fills in what is predicted of the arms and lists those that may be chosen. The
// baseline always may; if busy, it alone.
func (s *Safe) admit(now time.Time, req *Request, arms []Arm, known []*safeArm, limit float64, busy bool, out []SafeChoice) {
	s.in = s.in[:0]
	weight := 0.0
	if s.split() {
		weight = s.cfg.ITLWeight
	}
	rate, fixed, faded := s.rate.perSecond(), s.cfg.FixedDelay.Seconds(), s.faded(now)
	for i := range arms {
		arm, a, c := &arms[i], known[i], &out[i]
		// What the prompt should take, in seconds.
		*c = SafeChoice{Prior: math.Log(float64(max(arm.PrefillTokens, 0))/rate + fixed)}
		a.features(&c.X, arm)
		count := a.offsets[0].left(faded)
		variance := 1 / (1 + count)
		c.Residual, c.Offset = s.heads[0].at(&c.X), a.offsets[0].meanOf(count)
		if weight > 0 {
			count = a.offsets[1].left(faded)
			variance += weight * weight / (1 + count)
			c.Residual += weight * s.heads[1].at(&c.X)
			c.Offset += weight * a.offsets[1].meanOf(count)
		}
		c.Score = c.Prior + c.Residual + c.Offset
		if i != req.Baseline {
			full := arm.Scraped && arm.KVUsage > s.cfg.MaxKVUsage
			if busy || !arm.Healthy || full || !(arm.Cost <= limit) {
				continue
			}
		}
		c.Admissible = true
		s.in = append(s.in, admitted{
			index: i, phi: c.X, center: c.Prior + c.Offset,
			spread: s.cfg.OffsetSpread * math.Sqrt(variance), predict: c.Score,
		})
	}
}

// faded returns how much what was learned at zero counts now, after moving zero if that is
// long ago. So a decision takes one power for all offsets.
func (s *Safe) faded(now time.Time) float64 {
	const halves = 64 // far from where levels are no numbers any more
	if age := now.Sub(s.zero); s.zero.IsZero() || age < 0 || float64(age) > halves*float64(s.cfg.HalfLife) {
		s.zero = now
		for _, a := range s.arms {
			for i := range a.offsets {
				a.offsets[i].setLevel(now, s.cfg.HalfLife)
			}
		}
	}
	return fade(now, s.zero, s.cfg.HalfLife)
}

var safeFeatures = []string{"one", "overlap", "prefill", "kv", "inflight"}

// SafeFeatures returns the names of what the safe policy knows of an arm, in the order of
// [SafeChoice.X]. They must not be changed.
func SafeFeatures() []string { return safeFeatures }

// features makes x what the policy knows about the arm.
func (a *safeArm) features(x *[safeDim]float64, arm *Arm) {
	x[0] = 1
	x[1] = unit(arm.Overlap)
	x[2] = math.Log1p(float64(max(arm.PrefillTokens, 0)) / 1024)
	x[3] = a.tokens.at(max(arm.KVTokens, 0), 16384)
	x[4] = a.inFlight.at(max(arm.InFlight, 0), 1)
}

// logOf is the logarithm of a number that seldom changes from one decision to the next.
type logOf struct {
	n   int
	log float64
}

// at returns ln(1 + n/scale), always with the same scale.
func (l *logOf) at(n int, scale float64) float64 {
	if n != l.n {
		*l = logOf{n, math.Log1p(float64(n) / scale)}
	}
	return l.log
}

// sample counts for each arm in how many samples of the belief it is the best. All arms of
// a sample share its weights.
func (s *Safe) sample(d Draws) {
	shared := s.shared()
	s.noise = slices.Grow(s.noise[:0], shared+len(s.in))[:shared+len(s.in)]
	for range s.cfg.Samples {
		norms(d, s.noise)
		theta := s.weights(s.noise[:shared])
		best, least := 0, math.Inf(1)
		for i, z := range s.noise[shared:] {
			if y := s.in[i].sampled(&theta, z); y < least {
				best, least = i, y
			}
		}
		s.in[best].won++
	}
}

// shared is how many normal variates of a sample all arms have in common.
func (s *Safe) shared() int {
	if s.split() {
		return 2 * safeDim
	}
	return safeDim
}

// weights makes a sample of the weights of the features out of as many standard normal
// variates as arms share.
func (s *Safe) weights(z []float64) [safeDim]float64 {
	theta := [safeDim]float64(z)
	s.heads[0].draw(&theta, s.cfg.V)
	if len(z) > safeDim {
		later := [safeDim]float64(z[safeDim:])
		s.heads[1].draw(&later, s.cfg.V)
		for i := range theta {
			theta[i] += s.cfg.ITLWeight * later[i]
		}
	}
	return theta
}

// sampled is a sample of what the request will cost on the arm, given the weights and a
// standard normal variate.
func (a *admitted) sampled(theta *[safeDim]float64, z float64) float64 {
	p, t := &a.phi, theta
	return a.center + (p[0]*t[0] + p[1]*t[1] + p[2]*t[2] + p[3]*t[3] + p[4]*t[4]) + a.spread*z
}

// choose sets the probabilities and returns the arm in whose share of 0 to 1 u lies.
func (s *Safe) choose(u float64, baseline int, out []SafeChoice) int {
	each := (1 - s.cfg.Epsilon) / float64(s.cfg.Samples)
	floor := s.cfg.Epsilon / float64(len(s.in))
	for i := range s.in {
		c := &out[s.in[i].index]
		c.Won = s.in[i].won
		c.P = each*float64(c.Won) + floor
	}
	if p := out[baseline].P; p < s.cfg.BaselineShare {
		others := (1 - s.cfg.BaselineShare) / (1 - p)
		for i := range s.in {
			out[s.in[i].index].P *= others
		}
		out[baseline].P = s.cfg.BaselineShare
	}
	chosen, sum := -1, 0.0
	for i := range s.in {
		c := &out[s.in[i].index]
		if c.P > 0 && (chosen < 0 || sum <= u) {
			chosen = s.in[i].index // so far, or for good
		}
		sum += c.P
	}
	return chosen
}

// Forget drops what is known about a rank alone, with its pending decisions.
func (s *Safe) Forget(id kv.Source) {
	a := s.arms[id]
	if a == nil {
		return
	}
	s.pending.removeIf(func(p *safePending) bool { return p.arm == a })
	delete(s.arms, id)
	for i := range s.last {
		if s.last[i] == a {
			s.last[i] = nil
		}
	}
}

// SafeStats are numbers of a [Safe].
type SafeStats struct {
	// Arms and Pending are how many ranks and decisions are remembered, and Lost is how
	// many decisions were dropped because there were too many.
	Arms, Pending int
	Lost          uint64
	// Budget is what may still be lost, and PrefillRate how many tokens a second are
	// computed.
	Budget, PrefillRate float64
	// Stops is how often the policy stopped because it did worse than the baseline, and
	// StoppedUntil when it goes on, if it is stopped.
	Stops        uint64
	StoppedUntil time.Time
	// Mean are the weights of the features: those of the first token, or of all with one
	// head, and those of the others.
	Mean [2][safeDim]float64
}

// Stats returns numbers.
func (s *Safe) Stats() SafeStats {
	return SafeStats{
		Arms: len(s.arms), Pending: s.pending.n, Lost: s.pending.lost,
		Budget: s.budget, PrefillRate: s.rate.perSecond(), Stops: s.stops, StoppedUntil: s.until,
		Mean: [2][safeDim]float64{s.heads[0].theta, s.heads[1].theta},
	}
}
