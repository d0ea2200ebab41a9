package metrics

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// A weighted observation must read exactly like as many single ones in the
// library's histogram.
func TestHistogramAgainstLibrary(t *testing.T) {
	upper := LogBuckets(0.001, 2, 13)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))

	vec := newHistogramVec("weighted", "Weighted.", upper, nil, "model")
	lib := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "library", Help: "Library.", Buckets: upper})
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(vec, lib)
	h := vec.with("m")
	for range 2000 {
		v := math.Exp(rng.Float64()*12 - 9)
		switch rng.IntN(10) {
		case 0:
			v = 0
		case 1:
			v = upper[rng.IntN(len(upper))] // a bound belongs to its own bucket
		}
		n := 1 + rng.IntN(8)
		h.observe(v, uint64(n))
		for range n {
			lib.Observe(v)
		}
	}

	families, err := reg.Gather()
	if err != nil {
		t.Fatalf("gather: %v", err)
	}
	want, got := families[0].GetMetric()[0].GetHistogram(), families[1].GetMetric()[0].GetHistogram()
	if got.GetSampleCount() != want.GetSampleCount() {
		t.Errorf("count %d, want %d", got.GetSampleCount(), want.GetSampleCount())
	}
	if math.Abs(got.GetSampleSum()-want.GetSampleSum()) > 1e-6*want.GetSampleSum() {
		t.Errorf("sum %v, want %v", got.GetSampleSum(), want.GetSampleSum())
	}
	if len(got.GetBucket()) != len(want.GetBucket()) {
		t.Fatalf("%d buckets, want %d", len(got.GetBucket()), len(want.GetBucket()))
	}
	for i, b := range want.GetBucket() {
		g := got.GetBucket()[i]
		if g.GetUpperBound() != b.GetUpperBound() || g.GetCumulativeCount() != b.GetCumulativeCount() {
			t.Errorf("bucket %d: le %v count %d, want le %v count %d",
				i, g.GetUpperBound(), g.GetCumulativeCount(), b.GetUpperBound(), b.GetCumulativeCount())
		}
	}
}

func TestHistogramConcurrent(t *testing.T) {
	vec := newHistogramVec("weighted", "Weighted.", []float64{0, 1, 2}, nil, "model")
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(vec)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				vec.with("m").observe(1.5, 2)
			}
		})
	}
	for range 20 {
		if _, err := reg.Gather(); err != nil {
			t.Errorf("gather while observing: %v", err)
		}
	}
	wg.Wait()
	families, err := reg.Gather()
	if err != nil {
		t.Fatalf("gather: %v", err)
	}
	h := families[0].GetMetric()[0].GetHistogram()
	if h.GetSampleCount() != 8000 || h.GetSampleSum() != 12000 || h.GetBucket()[2].GetCumulativeCount() != 8000 {
		t.Errorf("got %v, want 8000 observations of 1.5", h)
	}
}
