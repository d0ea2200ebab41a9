package trie

import (
	"math"
	"math/bits"
	"slices"
)

// samples are values to sum up. Up to a limit all are kept; beyond it, a sample of them in
// which each value is as likely as any other. Which ones depends on nothing but how many
// came, so that the same values in the same order give the same metrics.
type samples struct {
	mean mean
	kept []float64 // none while there is one value: it is the mean's sum
}

// add counts one more value, and keeps at most limit of them.
func (s *samples) add(v float64, limit int) {
	switch n := s.mean.n; {
	case n == 0:
	case n == 1 && limit > 1:
		s.kept = append(s.kept, s.mean.sum, v)
	case n < limit:
		s.kept = append(s.kept, v)
	default:
		if len(s.kept) == 0 { // the limit is 1
			s.kept = append(s.kept, s.mean.sum)
		}
		if i := draw(n + 1); i < limit {
			s.kept[i] = v
		}
	}
	s.mean.add(v)
}

// draw returns a number below n that looks random and depends on n alone.
func draw(n int) int {
	// The finalizer of SplitMix64.
	x := uint64(n) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	hi, _ := bits.Mul64(x, uint64(n))
	return int(hi)
}

// metrics sums the values up. It sorts in scratch, which it returns for the next to use.
func (s *samples) metrics(scratch []float64) (Metrics, []float64) {
	switch s.mean.n {
	case 0:
		return Metrics{}, scratch
	case 1:
		v := s.mean.sum
		return Metrics{SampleCount: 1, Mean: v, P50: v, P90: v, P95: v}, scratch
	}
	scratch = append(scratch[:0], s.kept...)
	slices.Sort(scratch)
	return Metrics{
		SampleCount: s.mean.n,
		Mean:        s.mean.value(),
		P50:         percentile(scratch, 50),
		P90:         percentile(scratch, 90),
		P95:         percentile(scratch, 95),
	}, scratch
}

// percentile interpolates linearly between the two values of ascending ones that are
// nearest to the qth percentile.
func percentile(ascending []float64, q float64) float64 {
	k := float64(len(ascending)-1) * q / 100
	below, above := int(math.Floor(k)), int(math.Ceil(k))
	if below == above {
		return ascending[below]
	}
	// The conversion keeps a processor from fusing product and sum.
	return ascending[below] + float64((ascending[above]-ascending[below])*(k-float64(below)))
}

// mean is the mean of values, summed in the order in which they came with Neumaier's
// compensation, as Python's sum does: ten times 0.1 has the mean 0.1.
type mean struct {
	n         int
	sum, lost float64
}

func (m *mean) add(v float64) {
	m.n++
	sum := m.sum + v
	if math.Abs(m.sum) >= math.Abs(v) {
		m.lost += (m.sum - sum) + v
	} else {
		m.lost += (v - sum) + m.sum
	}
	m.sum = sum
}

// value returns the mean, 0 of nothing.
func (m *mean) value() float64 {
	if m.n == 0 {
		return 0
	}
	return (m.sum + m.lost) / float64(m.n)
}
