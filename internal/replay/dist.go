package replay

import (
	"math"
	"slices"
	"time"
)

// Dist describes a set of durations, in milliseconds. A percentile is the value
// of nearest rank, (n-1)·p rounded, without interpolation; Std is that of the
// whole population. All is 0 for an empty set.
type Dist struct {
	Mean, Std, Min, Median, P75, P90, P95, P99, Max float64
}

// percentiles are those of a Dist.
var percentiles = [...]float64{50, 75, 90, 95, 99}

// rank returns the index of a percentile among n sorted values.
func rank(n int, percent float64) int { return int(math.Round(float64(n-1) * percent / 100)) }

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Describe returns the distribution of values. It sorts them.
func Describe(values []time.Duration) Dist {
	if len(values) == 0 {
		return Dist{}
	}
	slices.Sort(values)
	var s moments
	for _, v := range values {
		s.add(float64(v))
	}
	var at [len(percentiles)]float64
	for i, p := range percentiles {
		at[i] = ms(values[rank(len(values), p)])
	}
	return s.dist(at, values[0], values[len(values)-1])
}

// moments are mean and variance, by Welford's method: no sum of squares that
// loses its digits.
type moments struct {
	n        int
	mean, m2 float64
}

func (s *moments) add(v float64) {
	s.n++
	d := v - s.mean
	s.mean += d / float64(s.n)
	s.m2 += d * (v - s.mean)
}

func (s *moments) dist(at [len(percentiles)]float64, least, most time.Duration) Dist {
	const unit = float64(time.Millisecond)
	return Dist{
		Mean: s.mean / unit, Std: math.Sqrt(s.m2/float64(s.n)) / unit,
		Min: ms(least), Median: at[0], P75: at[1], P90: at[2], P95: at[3], P99: at[4], Max: ms(most),
	}
}

// sketch collects more durations than one wants to keep: 4 million gaps between
// tokens come from an hour of traffic. Values within 0.1 % of each other share a
// bucket, whose mean stands for them.
type sketch struct {
	moments
	least, most time.Duration
	counts      []int64
	sums        []float64
}

// sketchBits is how many bits below the leading one tell buckets apart.
const sketchBits = 10

func (s *sketch) add(d time.Duration) {
	if s.counts == nil {
		// The exponents of 0 to 2^63, with sketchBits of the fraction.
		s.counts = make([]int64, 65<<sketchBits)
		s.sums = make([]float64, 65<<sketchBits)
		s.least = d
	}
	s.least, s.most = min(s.least, d), max(s.most, d)
	v := float64(max(d, 0))
	s.moments.add(v)
	i := bucket(v)
	s.counts[i]++
	s.sums[i] += v
}

// bucket takes the exponent and the first bits of the fraction.
func bucket(v float64) int {
	if v < 1 {
		return 0
	}
	const one = 1023 << sketchBits // of 1.0
	return int(math.Float64bits(v)>>(52-sketchBits)) - one + 1<<sketchBits
}

func (s *sketch) dist() Dist {
	if s.n == 0 {
		return Dist{}
	}
	var at [len(percentiles)]float64
	next, seen := 0, 0
	for i, n := range s.counts {
		if n == 0 {
			continue
		}
		seen += int(n)
		for next < len(percentiles) && rank(s.n, percentiles[next]) < seen {
			at[next] = s.sums[i] / float64(n) / float64(time.Millisecond)
			next++
		}
	}
	return s.moments.dist(at, s.least, s.most)
}
