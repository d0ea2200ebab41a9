package thompson

import (
	"math"
	"time"
)

// head is a Gaussian belief about the weights of the features, which fades with time.
type head struct {
	a, l    [safeDim * (safeDim + 1) / 2]float64
	b       [safeDim]float64
	theta   [safeDim]float64 // the mean
	updated time.Time        // zero if never
}

func (h *head) reset(lambda float64) {
	*h = head{}
	diagonal(h.a[:], safeDim, lambda)
	cholesky(h.l[:], h.a[:], safeDim, 0)
}

// at returns the mean at phi.
func (h *head) at(phi *[safeDim]float64) float64 {
	p, t := phi, &h.theta
	return p[0]*t[0] + p[1]*t[1] + p[2]*t[2] + p[3]*t[3] + p[4]*t[4]
}

// draw makes a sample of the weights out of standard normal variates.
func (h *head) draw(z *[safeDim]float64, v float64) {
	backward(z[:], h.l[:], z[:])
	for i := range z {
		z[i] = h.theta[i] + v*z[i]
	}
}

// learn takes in by how much the cost at phi, on an arm with offset o, differed from what
// was expected before anything was learned.
func (h *head) learn(now time.Time, phi *[safeDim]float64, e float64, o *offset, halfLife time.Duration, lambda float64) {
	o.fadeTo(now, halfLife)
	keep := fade(now, h.updated, halfLife)
	for i := range h.a {
		h.a[i] *= keep
	}
	outer(h.a[:], phi[:], 1)
	for i, at := 0, 0; i < safeDim; i++ {
		h.a[at] += (1 - keep) * lambda
		at += i + 2
		h.b[i] = keep*h.b[i] + phi[i]*(e-o.mean)
	}
	if !cholesky(h.l[:], h.a[:], safeDim, 0) { // cannot be; better to begin anew than to sample what is no number
		h.reset(lambda)
	}
	h.updated = now
	forward(h.theta[:], h.l[:], h.b[:])
	backward(h.theta[:], h.l[:], h.theta[:])
	o.learn(e - h.at(phi))
}

// offset is by how much an arm differs from what the features say. It is the sum of what
// was observed over the number of observations and offsetPrior more that said 0, so that it
// returns to 0 as the observations fade.
type offset struct {
	mean    float64
	count   float64 // of observations, as far as they had not faded when updated
	updated time.Time
	level   float64 // see setLevel
}

// offsetPrior is how many observations it takes to believe one half of an offset.
const offsetPrior = 4

// meanOf is what is left of the mean when that much is left of the count.
func (o *offset) meanOf(count float64) float64 {
	if o.count <= 0 || count >= o.count {
		return o.mean
	}
	return o.mean * (count / o.count) * ((o.count + offsetPrior) / (count + offsetPrior))
}

// at returns the mean now.
func (o *offset) at(now time.Time, halfLife time.Duration) float64 {
	return o.meanOf(o.count * fade(now, o.updated, halfLife))
}

// fadeTo makes the offset what is left of it now.
func (o *offset) fadeTo(now time.Time, halfLife time.Duration) {
	count := o.count * fade(now, o.updated, halfLife)
	o.mean, o.count, o.updated = o.meanOf(count), count, now
}

func (o *offset) learn(e float64) {
	o.count++
	o.mean += (e - o.mean) / (o.count + offsetPrior)
}

// setLevel makes the level what the count is at a time of which all offsets have their levels,
// be it before or after the count was made. It may be infinite, where that time is long ago.
func (o *offset) setLevel(zero time.Time, halfLife time.Duration) {
	o.level = o.count
	if o.count > 0 && !o.updated.IsZero() {
		o.level *= math.Exp2(float64(o.updated.Sub(zero)) / float64(halfLife))
	}
}

// left returns what is left of the count, given how much what was learned at the time of
// levels counts now.
func (o *offset) left(faded float64) float64 { return min(o.level*faded, o.count) }

// fade is how much what was learned then counts now.
func fade(now, then time.Time, halfLife time.Duration) float64 {
	if then.IsZero() || !now.After(then) {
		return 1
	}
	return math.Exp2(-float64(now.Sub(then)) / float64(halfLife))
}

// The slowest and the fastest that prompts are believed to be computed, in tokens a
// second.
const (
	minPrefillRate = 10
	maxPrefillRate = 1e8
)

// prefillRate is how fast prompts are computed: tokens over seconds, of which those of the
// latest fifty requests count most.
type prefillRate struct {
	tokens, seconds float64
	reported        bool // by somebody who knows
}

func newPrefillRate(perSecond float64) prefillRate { return prefillRate{tokens: perSecond, seconds: 1} }

func (r *prefillRate) add(tokens, seconds float64) {
	const keep = 0.98
	r.tokens, r.seconds = keep*r.tokens+(1-keep)*tokens, keep*r.seconds+(1-keep)*seconds
}

func (r *prefillRate) perSecond() float64 {
	return min(max(r.tokens/r.seconds, minPrefillRate), maxPrefillRate)
}
