package thompson

import (
	"math"
	"math/rand/v2"
)

// normalLayers is the number of layers that the ziggurat has: strips of equal area that
// cover the right half of the normal density, of which the lowest has the tail.
const normalLayers = 256

// normalTail is where the tail begins for so many layers.
const normalTail = 3.6541528853610088

// normalLayer is a strip. A uniform point of it lies below the density for certain if its
// distance from the middle is less than inner of the strip's width.
type normalLayer struct {
	width, inner float64
	low, high    float64 // density at the outer and at the inner edge
}

var ziggurat = newZiggurat()

func newZiggurat() *[normalLayers]normalLayer {
	density := func(x float64) float64 { return math.Exp(-x * x / 2) }
	z := new([normalLayers]normalLayer)
	bottom := density(normalTail)
	area := normalTail*bottom + math.Sqrt(math.Pi/2)*math.Erfc(normalTail/math.Sqrt2)
	// The lowest strip has no outer edge: it is as wide as its area makes it, and what lies
	// beyond where the tail begins stands for the tail.
	z[0] = normalLayer{width: area / bottom, inner: normalTail * bottom / area}
	x, low := normalTail, bottom
	for i := 1; i < normalLayers; i++ {
		high := low + area/x
		next := 0.0
		if high < 1 && i < normalLayers-1 {
			next = math.Sqrt(-2 * math.Log(high))
		}
		z[i] = normalLayer{width: x, inner: next / x, low: low, high: min(high, 1)}
		x, low = next, high
	}
	return z
}

// normals fills dst with draws from the standard normal distribution, by the ziggurat method
// of Marsaglia and Tsang. They come from one number of r, by a generator that is quicker than
// asking r for each: a decision between many ranks takes a thousand.
func normals(r *rand.Rand, dst []float64) {
	g := splitMix(r.Uint64())
	for i := range dst {
		g += splitStep
		l, f := g.point()
		if math.Abs(f) >= l.inner {
			dst[i], g = g.edge(l, f)
			continue
		}
		dst[i] = f * l.width
	}
}

// splitMix is a state of the generator SplitMix64. Each number takes a step to the next
// state. States are values, so that they stay in a register.
type splitMix uint64

const splitStep splitMix = 0x9e3779b97f4a7c15

// number is what the generator makes of a state.
func (g splitMix) number() uint64 {
	z := uint64(g)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// point is a strip, and a place in it from −1 to 1.
func (g splitMix) point() (*normalLayer, float64) {
	u := g.number()
	return &ziggurat[u%normalLayers], float64(int64(u)>>11) / (1 << 52)
}

// uniform is a number above 0 and at most 1.
func (g splitMix) uniform() float64 { return float64(g.number()>>11+1) / (1 << 53) }

// edge is the rest of the method, for a place in a strip that may be outside the density; one
// in a hundred is. It returns the state after it.
func (g splitMix) edge(l *normalLayer, f float64) (float64, splitMix) {
	for {
		x := f * l.width
		if math.Abs(f) < l.inner {
			return x, g
		}
		if l == &ziggurat[0] {
			return g.tail(f)
		}
		g += splitStep
		if l.low+g.uniform()*(l.high-l.low) < math.Exp(-x*x/2) {
			return x, g
		}
		g += splitStep
		l, f = g.point()
	}
}

// tail is a draw from what lies beyond normalTail, on the side of f.
func (g splitMix) tail(f float64) (float64, splitMix) {
	for {
		g += splitStep
		x := -math.Log(g.uniform()) / normalTail
		g += splitStep
		if y := -math.Log(g.uniform()); 2*y > x*x {
			return math.Copysign(normalTail+x, f), g
		}
	}
}
