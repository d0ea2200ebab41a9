package trie

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// near compares numbers as the vectors give them, with six digits or so.
var near = cmpopts.EquateApprox(0, 1e-6)

func metricsOf(limit int, values ...float64) Metrics {
	var s samples
	for _, v := range values {
		s.add(v, limit)
	}
	m, _ := s.metrics(nil)
	return m
}

func TestA1(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []float64
		want   Metrics
	}{
		{"1 to 10", []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, Metrics{10, 5.5, 5.5, 9.1, 9.55}},
		{"in any order", []float64{7, 10, 1, 2, 9, 3, 6, 5, 4, 8}, Metrics{10, 5.5, 5.5, 9.1, 9.55}},
		{"single", []float64{10}, Metrics{1, 10, 10, 10, 10}},
		{"none", nil, Metrics{}},
		{"four", []float64{120, 80, 200, 160}, Metrics{4, 140, 140, 188, 194}},
		{"two", []float64{1, 0}, Metrics{2, 0.5, 0.5, 0.9, 0.95}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, metricsOf(DefaultMaxSamples, c.values...), cmpopts.EquateApprox(0, 1e-12)); diff != "" {
				t.Errorf("metrics (-want +got):\n%s", diff)
			}
		})
	}
}

// The mean is that of exact arithmetic, as Python's sum has it: plain addition of ten times
// 0.1 gives 0.09999999999999999.
func TestMeanCompensates(t *testing.T) {
	var m mean
	for range 10 {
		m.add(0.1)
	}
	if got := m.value(); got != 0.1 {
		t.Errorf("mean of ten times 0.1 = %v, want 0.1", got)
	}
}

func TestSamplesBeyondTheLimit(t *testing.T) {
	const n, limit = 100_000, 2000
	var s samples
	for i := range n {
		s.add(float64(i), limit)
	}
	if len(s.kept) != limit {
		t.Errorf("kept %d samples, want %d", len(s.kept), limit)
	}
	m, _ := s.metrics(nil)
	if m.SampleCount != n || m.Mean != (n-1)/2.0 {
		t.Errorf("count and mean = %d, %v; want %d, %v: exact over all", m.SampleCount, m.Mean, n, (n-1)/2.0)
	}
	for _, c := range []struct{ got, want float64 }{{m.P50, 0.5 * n}, {m.P90, 0.9 * n}, {m.P95, 0.95 * n}} {
		if math.Abs(c.got-c.want) > 0.03*n {
			t.Errorf("percentile = %v, want about %v", c.got, c.want)
		}
	}
	if one := metricsOf(1, 1, 2, 3); one.SampleCount != 3 || one.Mean != 2 || one.P50 != one.P95 {
		t.Errorf("metrics with a limit of 1 = %+v", one)
	}
}
