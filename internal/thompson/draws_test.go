package thompson

import (
	"math"
	"slices"
	"testing"
)

// TestBetaDistribution compares draws with distributions whose formulas are known: x^a for
// (a, 1), and its mirror image.
func TestBetaDistribution(t *testing.T) {
	d, _ := seeded(11)
	const n = 20_000
	for _, c := range []struct {
		a, b float64
		cdf  func(float64) float64
	}{
		{1, 1, func(x float64) float64 { return x }},
		{2, 1, func(x float64) float64 { return x * x }},
		{1, 5, func(x float64) float64 { return 1 - math.Pow(1-x, 5) }},
		{0.3, 1, func(x float64) float64 { return math.Pow(x, 0.3) }},
		{2, 2, func(x float64) float64 { return x * x * (3 - 2*x) }},
		{0.5, 0.5, func(x float64) float64 { return 2 / math.Pi * math.Asin(math.Sqrt(x)) }},
	} {
		draws := make([]float64, n)
		for i := range draws {
			draws[i] = d.Beta(c.a, c.b)
		}
		slices.Sort(draws)
		far := 0.0
		for i, x := range draws {
			far = max(far, math.Abs(c.cdf(x)-(float64(i)+0.5)/n))
		}
		if far > 1.95/math.Sqrt(n) { // one in a thousand, by Kolmogorov
			t.Errorf("Beta(%v, %v): %v from the distribution", c.a, c.b, far)
		}
	}
}

func TestBetaMoments(t *testing.T) {
	d, _ := seeded(12)
	const n = 20_000
	for _, c := range [][2]float64{{150, 50}, {1e6, 1e6}, {0.01, 0.02}, {1e-300, 3e-300}, {1e300, 1e300}} {
		a, b := c[0], c[1]
		mean, sum, sum2 := 1/(1+b/a), 0.0, 0.0
		for range n {
			x := d.Beta(a, b)
			if !(x >= 0 && x <= 1) {
				t.Fatalf("Beta(%v, %v): %v", a, b, x)
			}
			sum, sum2 = sum+x, sum2+x*x
		}
		got := sum / n
		variance := mean * (1 - mean) / (a + b + 1)
		if math.Abs(got-mean) > 4*math.Sqrt(variance/n)+1e-12 {
			t.Errorf("Beta(%v, %v): mean %v, want %v", a, b, got, mean)
		}
		if v := sum2/n - got*got; variance > 1e-6 && math.Abs(v-variance) > 0.1*variance {
			t.Errorf("Beta(%v, %v): variance %v, want %v", a, b, v, variance)
		}
	}
	for _, bad := range []float64{0, -1, math.NaN()} {
		if x := d.Beta(bad, 1); !(x >= 0 && x <= 1) {
			t.Errorf("Beta(%v, 1): %v", bad, x)
		}
	}
}

func TestScript(t *testing.T) {
	s := &Script{Norms: []float64{1, 2}, Betas: []float64{.5}, Uniforms: []float64{.25}}
	if s.Norm() != 1 || s.Norm() != 2 || s.Beta(1, 1) != .5 || s.Uniform() != .25 {
		t.Error("out of order")
	}
	defer func() {
		if got := recover(); got != "thompson: script has no normal draw left" {
			t.Errorf("recovered %v", got)
		}
	}()
	s.Norm()
}
