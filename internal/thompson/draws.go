package thompson

import (
	"math"
	"math/rand/v2"
)

// Draws is where chance comes from. An implementation need not be safe for concurrent use.
type Draws interface {
	// Norm draws from the standard normal distribution.
	Norm() float64
	// Beta draws from the Beta distribution with parameters a and b, which are above 0.
	Beta(a, b float64) float64
	// Uniform draws from [0, 1).
	Uniform() float64
}

// RandDraws are draws made of random numbers.
type RandDraws struct{ r *rand.Rand }

// NewDraws returns draws made of r's numbers.
func NewDraws(r *rand.Rand) *RandDraws { return &RandDraws{r} }

// Norm implements [Draws].
func (d *RandDraws) Norm() float64 { return d.r.NormFloat64() }

// Uniform implements [Draws].
func (d *RandDraws) Uniform() float64 { return d.r.Float64() }

// norms fills dst with draws from the standard normal distribution: what as many calls of
// Norm return, or for [RandDraws] others that are made faster.
func norms(d Draws, dst []float64) {
	if d, ok := d.(*RandDraws); ok {
		normals(d.r, dst)
		return
	}
	for i := range dst {
		dst[i] = d.Norm()
	}
}

// Beta implements [Draws]: a ratio of two gamma variates. Parameters that are not above 0
// count as very small.
func (d *RandDraws) Beta(a, b float64) float64 {
	x, y := d.gamma(a), d.gamma(b)
	if sum := x + y; sum > 0 && !math.IsInf(sum, 1) {
		return x / sum
	}
	// Both are too small for a number, as with very small parameters: nearly all of the
	// distribution lies at its ends.
	if d.r.Float64()*(a+b) < a {
		return 1
	}
	return 0
}

// gamma draws from the gamma distribution with the given shape by the method of Marsaglia
// and Tsang: the cube of a shifted normal variate, accepted nearly always.
func (d *RandDraws) gamma(shape float64) float64 {
	if !(shape > 0) {
		shape = math.SmallestNonzeroFloat64
	}
	if shape < 1 {
		return d.gamma(shape+1) * math.Pow(1-d.r.Float64(), 1/shape)
	}
	k := shape - 1.0/3
	c := 1 / math.Sqrt(9*k)
	for {
		x := d.r.NormFloat64()
		t := 1 + c*x
		if t <= 0 {
			continue
		}
		v := t * t * t
		u := 1 - d.r.Float64() // above 0, so that it has a logarithm
		if sq := x * x; u < 1-0.0331*sq*sq || math.Log(u) < 0.5*sq+k*(1-v+math.Log(v)) {
			return k * v
		}
	}
}

// Script are draws that are known beforehand, used up in order. It makes a recorded
// decision again and drives tests; it panics when there is none left.
type Script struct {
	Norms, Betas, Uniforms []float64
}

// Norm implements [Draws].
func (s *Script) Norm() float64 { return next(&s.Norms, "normal") }

// Beta implements [Draws], whatever the parameters are.
func (s *Script) Beta(_, _ float64) float64 { return next(&s.Betas, "Beta") }

// Uniform implements [Draws].
func (s *Script) Uniform() float64 { return next(&s.Uniforms, "uniform") }

func next(from *[]float64, name string) float64 {
	if len(*from) == 0 {
		panic("thompson: script has no " + name + " draw left")
	}
	v := (*from)[0]
	*from = (*from)[1:]
	return v
}

var (
	_ Draws = (*RandDraws)(nil)
	_ Draws = (*Script)(nil)
)
