package thompson

import (
	"math"
	"testing"
)

// TestZiggurat: strips have the same area, each begins where the one below ends, and the
// highest ends at the top of the density.
func TestZiggurat(t *testing.T) {
	area := ziggurat[0].width * math.Exp(-normalTail*normalTail/2)
	for i, l := range ziggurat[1:] {
		got := l.width * (l.high - l.low)
		if math.Abs(got/area-1) > 1e-9 {
			t.Errorf("strip %d: area %v, want %v", i+1, got, area)
		}
		if want := math.Exp(-l.width * l.width / 2); math.Abs(l.low-want) > 1e-12 {
			t.Errorf("strip %d: density %v at its outer edge, want %v", i+1, l.low, want)
		}
		if end := l.inner * l.width; i+2 < normalLayers && math.Abs(ziggurat[i+2].width-end) > 1e-15 {
			t.Errorf("strip %d: ends at %v, the next begins at %v", i+1, end, ziggurat[i+2].width)
		}
	}
	top := ziggurat[normalLayers-1]
	if top.inner != 0 || math.Abs(top.high-1) > 1e-9 {
		t.Errorf("the highest strip is %+v", top)
	}
}

// TestNormals compares draws with the distribution: shares of bins in the middle and in the
// tails, and moments.
func TestNormals(t *testing.T) {
	const n, batch = 4 << 20, 74
	_, r := seeded(81)
	edges := []float64{-4.5, -normalTail, -3, -2, -1, -0.5, -0.1, 0, 0.1, 0.5, 1, 2, 3, normalTail, 4.5, math.Inf(1)}
	counts := make([]int, len(edges))
	var sums [4]float64
	buf := make([]float64, batch)
	for drawn := 0; drawn < n; drawn += batch {
		normals(r, buf)
		for _, x := range buf {
			k := 0
			for x > edges[k] {
				k++
			}
			counts[k]++
			for p, y := 0, 1.0; p < len(sums); p++ {
				y *= x
				sums[p] += y
			}
		}
	}
	total := float64((n + batch - 1) / batch * batch)
	below := 0.0
	for k, e := range edges {
		to := math.Erfc(-e/math.Sqrt2) / 2
		p := to - below
		below = to
		if z := (float64(counts[k]) - total*p) / math.Sqrt(total*p*(1-p)); math.Abs(z) > 4 {
			t.Errorf("%d of %.0f up to %v, want %.0f: %.1f standard deviations away", counts[k], total, e, total*p, z)
		}
	}
	for p, want := range []struct{ mean, variance float64 }{{0, 1}, {1, 2}, {0, 15}, {3, 96}} {
		if z := (sums[p] - total*want.mean) / math.Sqrt(total*want.variance); math.Abs(z) > 4 {
			t.Errorf("moment %d: %v, want %v: %.1f standard deviations away", p+1, sums[p]/total, want.mean, z)
		}
	}
}

// TestNormalsRepeat: the same source makes the same draws, and each call others.
func TestNormalsRepeat(t *testing.T) {
	_, a := seeded(82)
	_, b := seeded(82)
	var x, y [2][5]float64
	for i := range x {
		normals(a, x[i][:])
		normals(b, y[i][:])
	}
	if x != y {
		t.Errorf("%v and then %v", x, y)
	}
	if x[0] == x[1] {
		t.Errorf("%v twice", x[0])
	}
}
