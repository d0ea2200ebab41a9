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

// variance returns that of the mean at phi, before it is scaled.
func (h *head) variance(phi *[safeDim]float64) float64 {
	var y [safeDim]float64
	forward(y[:], h.l[:], phi[:])
	return dot(y[:], y[:])
}

// draw samples weights.
func (h *head) draw(d Draws, v float64) [safeDim]float64 {
	var z [safeDim]float64
	for i := range z {
		z[i] = d.Norm()
	}
	backward(z[:], h.l[:], z[:])
	for i := range z {
		z[i] = h.theta[i] + v*z[i]
	}
	return z
}

// learn takes in by how much the cost at phi, on an arm with offset o, differed from what
// was expected before anything was learned.
func (h *head) learn(now time.Time, phi *[safeDim]float64, e float64, o *offset, halfLife time.Duration, lambda float64) {
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
	o.learn(now, e-h.at(phi), halfLife)
}

// offset is by how much an arm differs from what the features say.
type offset struct {
	mean    float64
	count   float64 // of observations, as far as they have not faded
	updated time.Time
}

func (o *offset) learn(now time.Time, e float64, halfLife time.Duration) {
	o.count = o.count*fade(now, o.updated, halfLife) + 1
	o.mean += (e - o.mean) / (o.count + 4)
	o.updated = now
}

// variance returns that of the mean, before it is scaled.
func (o *offset) variance(now time.Time, halfLife time.Duration) float64 {
	if o.count == 0 {
		return 1
	}
	return 1 / (1 + o.count*fade(now, o.updated, halfLife))
}

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
