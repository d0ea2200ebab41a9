package thompson

import (
	"fmt"
	"math"
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// refDim is the number of features of the reference policy.
const refDim = 9

// Reference is the policy of the NeMo Agent Toolkit's router. For each rank it samples a
// linear model of nine features, adds a draw from the rank's Beta distribution, a bonus
// for the rank that a conversation is on and a penalty for others, multiplies by a factor
// for load, and chooses by a softmax over these scores. Feedback is a reward from 0 to 1:
// how fast an answer was compared with others of its kind on the same rank.
//
// It differs from its model in what it remembers: conversations and pending decisions are
// bounded and expire, and ranks that have not been candidates for an hour of decisions are
// forgotten. A conversation leaves with the rank that it is on.
type Reference struct {
	cfg       ReferenceConfig
	arms      map[kv.Source]*refArm
	last      []*refArm // of the latest decision, by index
	prefixes  *table[stay]
	pending   *pending[refPending]
	global    [numModes]average
	changes   int // of prefixes since their sums were last made anew
	lastSweep time.Time
	decided   time.Time
	timeouts  uint64
}

// refArm is what is known about a rank.
type refArm struct {
	id          kv.Source
	model       linearModel
	alpha, beta float64
	byKind      [numLevels][numLevels][numModes]average // by length of the answer, and of what is computed
	all         [numModes]average
	pending     int
	outstanding float64 // work that conversations on it will bring, and how many these are
	stays       int
	seen        time.Time
}

// stay is where a conversation is, the work that it will bring, and what its latest request
// said of those to come.
type stay struct {
	arm    *refArm
	work   float64
	budget int
	ttl    time.Duration
}

type refPending struct {
	arm     *refArm
	x       [refDim]float64
	osl     Level
	prefill Level
	since   time.Time
}

// armIdle is for how long, between decisions, a rank is remembered that is no candidate.
const armIdle = time.Hour

// NewReference returns a policy that has learned nothing. The configuration is clamped
// where the toolkit does, and an error names the key that cannot be.
func NewReference(cfg ReferenceConfig) (*Reference, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("reference policy: %w", err)
	}
	r := &Reference{cfg: cfg, arms: make(map[kv.Source]*refArm)}
	r.reset()
	return r, nil
}

func (r *Reference) reset() {
	clear(r.arms)
	r.last = r.last[:0]
	r.prefixes = newTable(r.cfg.MaxPrefixes, r.left)
	r.pending = newPending(r.cfg.MaxPending, func(p *refPending) { p.arm.pending-- })
	for m := range r.global {
		r.global[m] = unset
	}
}

// Choice is what the reference policy makes of an arm. Score is
// Load·(Mean + Noise + Beta + Affinity − Switch).
type Choice struct {
	// Score is what the softmax goes by, and P the probability that it gives.
	Score, P float64
	// Mean is what the linear model expects, and Noise how far the sample is from it.
	Mean, Noise float64
	// Beta is the weighted draw from the Beta distribution.
	Beta float64
	// Affinity is the bonus for staying and Switch the penalty for leaving.
	Affinity, Switch float64
	// Load is the factor for load, from 0 to 1.
	Load float64
	// Job is the work of the request there, and Outstanding the work that conversations
	// will bring.
	Job, Outstanding float64
	// X are the features.
	X [refDim]float64
}

// Decision is what the reference policy decided.
type Decision struct {
	// Chosen is the index of the arm, −1 if there was none to choose from, and P its
	// probability given the samples.
	Chosen int
	P      float64
	// ID names the decision in feedback. It is 0 if there was nothing to decide.
	ID uint64
	// Temperature is the softmax's.
	Temperature float64
	// Previous is where the conversation was, if Known.
	Previous kv.Source
	Known    bool
}

// Decide chooses an arm for a request, remembers where its conversation is, and waits for
// feedback. What it makes of each arm is left in out, which has as many elements as arms.
// Draws are used in this order: for each arm nine normal ones and a Beta, then a uniform
// one.
func (r *Reference) Decide(now time.Time, d Draws, req *Request, arms []Arm, out []Choice) Decision {
	r.Tick(now)
	if len(arms) == 0 {
		return Decision{Chosen: -1}
	}
	r.decided = now
	job := r.jobOf(req)
	var at *refArm
	if req.Prefix != (PrefixID{}) {
		if s := r.prefixes.get(now, req.Prefix); s != nil {
			at = s.arm
		}
	}
	known := r.find(now, arms)
	for i := range arms {
		r.score(d, &job, at, &arms[i], known[i], &out[i])
	}
	dec := Decision{Temperature: job.temperature}
	if at != nil {
		dec.Previous, dec.Known = at.id, true
	}
	r.softmax(out[:len(arms)], job.temperature)
	dec.Chosen = draw(d.Uniform(), out[:len(arms)])
	dec.P = out[dec.Chosen].P

	chosen, choice := known[dec.Chosen], &out[dec.Chosen]
	cost := r.prefillCost(req, &arms[dec.Chosen])
	r.store(now, req, chosen, job.budget*(job.decode+cost)*job.eager)
	id, p := r.pending.add()
	*p = refPending{arm: chosen, x: choice.X, osl: req.OSL.known(), prefill: prefillBin(cost), since: now}
	p.x[4] = math.Tanh(0.1 * chosen.outstanding) // as it is now that the conversation counts
	chosen.pending++
	dec.ID = id
	return dec
}

// job is what all arms have in common.
type job struct {
	req         *Request
	budget      float64
	decode      float64
	eager       float64
	temperature float64
	beta        float64 // weight of the Beta draw
	reuse       float64 // the feature that the budget makes
}

func (r *Reference) jobOf(req *Request) job {
	j := job{req: req, budget: float64(max(req.Budget, 0)), decode: req.OSL.decodeCost(), eager: req.IAT.eagerness()}
	c := &r.cfg
	spread := 1 + j.budget*j.eager
	j.temperature = min(max(c.TemperatureBase/spread, c.TemperatureMin), c.TemperatureMax)
	j.beta = c.BetaWeight / spread
	j.reuse = math.Tanh(0.25 * j.budget)
	return j
}

// find returns what is known about the arms. Their order rarely changes, so that looking
// them up is comparing.
func (r *Reference) find(now time.Time, arms []Arm) []*refArm {
	for len(r.last) < len(arms) {
		r.last = append(r.last, nil)
	}
	for i := range arms {
		a := r.last[i]
		if a == nil || a.id != arms[i].ID {
			if a = r.arms[arms[i].ID]; a == nil {
				a = r.newArm(arms[i].ID)
				r.arms[a.id] = a
			}
			r.last[i] = a
		}
		a.seen = now
	}
	return r.last[:len(arms)]
}

func (r *Reference) newArm(id kv.Source) *refArm {
	a := &refArm{id: id, alpha: 1, beta: 1}
	for i := range a.byKind {
		for j := range a.byKind[i] {
			for m := range a.byKind[i][j] {
				a.byKind[i][j][m] = unset
			}
		}
	}
	for m := range a.all {
		a.all[m] = unset
	}
	diagonal(a.model.a[:], refDim, r.cfg.Lambda)
	a.model.refresh()
	return a
}

func (r *Reference) prefillCost(req *Request, arm *Arm) float64 {
	return r.cfg.PrefillWeight * float64(max(req.PromptTokens, 0)) * (1 - unit(arm.Overlap)) / r.cfg.PrefillScale
}

// prefillBin is how much there is to compute.
func prefillBin(cost float64) Level { return levelOf(cost, 0.25, 0.75) }

// score fills in all of a choice except its probability.
func (r *Reference) score(d Draws, j *job, at *refArm, arm *Arm, a *refArm, out *Choice) {
	c := &r.cfg
	overlap := unit(arm.Overlap)
	prefill := r.prefillCost(j.req, arm)
	work := j.decode + prefill
	gpu, queue := min(1, float64(a.pending)/20), float64(a.pending)
	if arm.Scraped && !math.IsNaN(arm.KVUsage) && !math.IsNaN(arm.Queue) {
		gpu, queue = unit(arm.KVUsage), max(min(arm.Queue, 1e9), queue)
	}
	here := 0.0
	if a == at {
		here = 1
	}
	*out = Choice{Job: work, Outstanding: a.outstanding}
	out.X = [refDim]float64{
		1, 1 / (1 + c.GPUWeight*gpu + c.QueueWeight*queue), overlap, here,
		math.Tanh(0.1 * a.outstanding), j.decode / 3, math.Tanh(prefill), j.eager / 1.5, j.reuse,
	}
	out.Mean, out.Noise = a.model.sample(d, c.V, &out.X)
	out.Beta = j.beta * d.Beta(a.alpha, a.beta)
	sticky := at != nil && j.budget > 0
	switch {
	case sticky && a == at:
		out.Affinity = (c.AffinityBase + c.AffinityReuse*j.budget + c.AffinityIAT*j.eager) * (0.5 + 0.5*overlap)
	case sticky:
		out.Switch = c.SwitchBase + c.SwitchReuse*j.budget + c.SwitchIAT*j.eager
	}
	load := c.GPUWeight*gpu + c.QueueWeight*queue + c.OutstandingWeight*max(0, a.outstanding) +
		c.JobGPUWeight*work*gpu + c.JobQueueWeight*work*queue
	out.Load = 1 / (1 + load)
	if sticky && a == at {
		out.Load = max(out.Load, c.StickyLoadFloor)
	}
	out.Score = out.Load * (out.Mean + out.Noise + out.Beta + out.Affinity - out.Switch)
	if math.IsNaN(out.Score) || math.IsInf(out.Score, 0) {
		out.Score = -1e9
	}
}

// softmax sets the probabilities.
func (r *Reference) softmax(out []Choice, temperature float64) {
	temperature = max(temperature, 1e-6)
	best := out[0].Score
	for i := range out {
		best = max(best, out[i].Score)
	}
	sum := 0.0
	for i := range out {
		out[i].P = math.Exp((out[i].Score - best) / temperature)
		sum += out[i].P
	}
	for i := range out {
		if sum > 0 && !math.IsInf(sum, 1) {
			out[i].P /= sum
		} else {
			out[i].P = 1 / float64(len(out))
		}
	}
}

// draw returns the index in whose share of 0 to 1 u lies, the first if rounding leaves
// none.
func draw(u float64, out []Choice) int {
	sum := 0.0
	for i := range out {
		if sum += out[i].P; u <= sum {
			return i
		}
	}
	return 0
}

// store remembers where a conversation is for as long as it brings work.
func (r *Reference) store(now time.Time, req *Request, arm *refArm, work float64) {
	if req.Prefix == (PrefixID{}) {
		return
	}
	if req.Budget <= 0 {
		r.prefixes.remove(req.Prefix)
		return
	}
	s := r.prefixes.put(now, req.Prefix, min(max(req.TTL, minPrefixTTL), maxPrefixTTL))
	r.left(s)
	*s = stay{arm, work, req.Budget, req.TTL}
	arm.outstanding += work
	arm.stays++
}

// Expects returns what the latest request of a conversation said of those to come: its
// Budget and TTL. A request that is placed once more has the same. It is nothing where no
// more are expected, or the conversation is not remembered.
func (r *Reference) Expects(now time.Time, id PrefixID) (budget int, ttl time.Duration) {
	if s := r.prefixes.get(now, id); s != nil {
		return s.budget, s.ttl
	}
	return 0, 0
}

// left takes a conversation's work off its rank. Sums of differences drift away from the
// truth, so that they are made anew now and then.
func (r *Reference) left(s *stay) {
	if s.arm == nil {
		return
	}
	s.arm.stays--
	if s.arm.outstanding -= s.work; s.arm.stays == 0 {
		s.arm.outstanding = 0
	}
	s.arm, s.work = nil, 0
	if r.changes++; r.changes >= 1<<16 {
		r.changes = 0
		r.sumUp()
	}
}

func (r *Reference) sumUp() {
	for _, a := range r.arms {
		a.outstanding = 0
	}
	for i := range r.prefixes.slots {
		if s := &r.prefixes.slots[i].value; s.arm != nil {
			s.arm.outstanding += s.work
		}
	}
}

// Tick sweeps when that is due by [ReferenceConfig.SweepInterval]. [Reference.Decide] calls
// it; without requests somebody else has to.
func (r *Reference) Tick(now time.Time) {
	if since := now.Sub(r.lastSweep); since < 0 || since >= r.cfg.SweepInterval {
		r.sweep(now)
	}
}

// sweep gives decisions that have waited for feedback for too long the reward for that,
// and returns how many there were. All that there ever were are in [ReferenceStats].
func (r *Reference) sweep(now time.Time) int {
	r.lastSweep = now
	n := 0
	for i := r.pending.oldest; i != none; {
		p, next := r.pending.at(i), r.pending.slots[i].next
		age := now.Sub(p.since)
		if age >= 0 && age < r.cfg.Timeout {
			break // so are those after it, except from before the time was set back
		}
		if age >= 0 {
			r.learn(p, r.cfg.TimeoutReward)
			r.pending.removeAt(i)
			n++
		}
		i = next
	}
	r.timeouts += uint64(n)
	r.prefixes.tidy(now, 4096)
	for id, a := range r.arms {
		if a.seen.IsZero() { // restored, before any decision
			a.seen = r.decided
		}
		if r.decided.Sub(a.seen) >= armIdle {
			r.Forget(id)
		}
	}
	return n
}

// Leave drops the conversations that are on a rank, because its cache has gone. What was
// learned about it stays, for when it comes back; so do decisions that wait for feedback.
func (r *Reference) Leave(id kv.Source) {
	if a := r.arms[id]; a != nil {
		r.prefixes.removeIf(func(s *stay) bool { return s.arm == a })
	}
}

// Forget drops what is known about a rank, with its conversations and pending decisions.
func (r *Reference) Forget(id kv.Source) {
	a := r.arms[id]
	if a == nil {
		return
	}
	r.prefixes.removeIf(func(s *stay) bool { return s.arm == a })
	r.pending.removeIf(func(p *refPending) bool { return p.arm == a })
	delete(r.arms, id)
	for i := range r.last {
		if r.last[i] == a {
			r.last[i] = nil
		}
	}
}

// ReferenceStats are counts of a [Reference].
type ReferenceStats struct {
	// Arms, Prefixes and Pending are how many ranks, conversations and decisions are
	// remembered.
	Arms, Prefixes, Pending int
	// Timeouts is how many decisions had no feedback in time, and Lost how many were
	// dropped because there were too many.
	Timeouts, Lost uint64
}

// Stats returns counts.
func (r *Reference) Stats() ReferenceStats {
	return ReferenceStats{len(r.arms), r.prefixes.len(), r.pending.n, r.timeouts, r.pending.lost}
}

// Learned is what the reference policy knows about a rank.
type Learned struct {
	// Alpha and Beta are the parameters of its Beta distribution.
	Alpha, Beta float64
	// Mean are the weights that are expected of the features.
	Mean [refDim]float64
	// Pending is how many decisions wait for feedback, and Outstanding the work that
	// conversations will bring.
	Pending     int
	Outstanding float64
}

// Learned returns what is known about a rank, and whether anything is.
func (r *Reference) Learned(id kv.Source) (Learned, bool) {
	a := r.arms[id]
	if a == nil {
		return Learned{}, false
	}
	return Learned{a.alpha, a.beta, a.model.mean, a.pending, a.outstanding}, true
}
