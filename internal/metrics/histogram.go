package metrics

import (
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// histogram counts observations with a weight: a chunk that carries n tokens
// yields n equal latencies, recorded at the price of one. The library's
// histogram takes one observation at a time.
//
// The exposed count is the sum of the exposed buckets, so these always agree;
// the exposed sum may lag or lead them by observations under way at the time.
type histogram struct {
	upper  []float64       // ascending, shared by all histograms of a family
	counts []atomic.Uint64 // one more than upper: the last is above all bounds
	sum    atomic.Uint64   // bits of a float64
}

func newHistogram(upper []float64) *histogram {
	return &histogram{upper: upper, counts: make([]atomic.Uint64, len(upper)+1)}
}

// observe records v as if it had been observed n times.
func (h *histogram) observe(v float64, n uint64) {
	// Bounds are few and small values frequent: a scan beats a binary search.
	i := 0
	for i < len(h.upper) && v > h.upper[i] {
		i++
	}
	h.counts[i].Add(n)
	for add := v * float64(n); ; {
		old := h.sum.Load()
		if h.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+add)) {
			return
		}
	}
}

// metric returns the histogram's present state under the given labels.
func (h *histogram) metric(desc *prometheus.Desc, labels []string) prometheus.Metric {
	sum := math.Float64frombits(h.sum.Load())
	buckets := make(map[float64]uint64, len(h.upper))
	var count uint64
	for i := range h.counts {
		count += h.counts[i].Load()
		if i < len(h.upper) {
			buckets[h.upper[i]] = count
		}
	}
	return prometheus.MustNewConstHistogram(desc, count, sum, buckets, labels...)
}

// histogramVec is a family of weighted histograms told apart by labels.
type histogramVec struct {
	desc  *prometheus.Desc
	upper []float64

	mu       sync.Mutex
	children map[string]*labelledHistogram
}

type labelledHistogram struct {
	histogram *histogram
	labels    []string
}

var _ prometheus.Collector = (*histogramVec)(nil)

func newHistogramVec(name, help string, upper []float64, constant prometheus.Labels, labels ...string) *histogramVec {
	return &histogramVec{
		desc:     prometheus.NewDesc(name, help, labels, constant),
		upper:    upper,
		children: make(map[string]*labelledHistogram),
	}
}

// with returns the child with these label values, which must be valid UTF-8,
// as many as the family has labels.
func (v *histogramVec) with(labels ...string) *histogram {
	key := histogramKey(labels)
	v.mu.Lock()
	defer v.mu.Unlock()
	c := v.children[key]
	if c == nil {
		c = &labelledHistogram{newHistogram(v.upper), slices.Clone(labels)}
		v.children[key] = c
	}
	return c.histogram
}

// drop removes the child with these label values.
func (v *histogramVec) drop(labels ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.children, histogramKey(labels))
}

func histogramKey(labels []string) string {
	return strings.Join(labels, "\xff") // no byte of valid UTF-8
}

// Describe implements prometheus.Collector.
func (v *histogramVec) Describe(ch chan<- *prometheus.Desc) { ch <- v.desc }

// Collect implements prometheus.Collector.
func (v *histogramVec) Collect(ch chan<- prometheus.Metric) {
	v.mu.Lock()
	children := make([]*labelledHistogram, 0, len(v.children))
	for _, c := range v.children {
		children = append(children, c)
	}
	v.mu.Unlock()
	for _, c := range children {
		ch <- c.histogram.metric(v.desc, c.labels)
	}
}
