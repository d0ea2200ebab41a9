package metrics

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

func TestLogBuckets(t *testing.T) {
	tests := []struct {
		name     string
		min, max float64
		count    int
		want     []float64
	}{
		{"request_duration", 1, 512, 10, []float64{0, 2, 4, 8, 16, 32, 64, 130, 260, 510}},
		{"input_sequence, cached_tokens", 50, 128000, 12, []float64{0, 100, 210, 430, 870, 1800, 3600, 7400, 15000, 31000, 63000, 130000}},
		{"output_sequence", 50, 32000, 10, []float64{0, 100, 210, 430, 880, 1800, 3700, 7600, 16000, 32000}},
		{"ttft", 0.001, 480, 18, []float64{0, 0.0022, 0.0047, 0.01, 0.022, 0.047, 0.1, 0.22, 0.47, 1, 2.2, 4.7, 10, 22, 48, 100, 220, 480}},
		{"itl", 0.001, 2, 13, []float64{0, 0.0019, 0.0035, 0.0067, 0.013, 0.024, 0.045, 0.084, 0.16, 0.3, 0.56, 1.1, 2}},
		{"kv_transfer", 0.001, 10, 15, []float64{0, 0.0019, 0.0037, 0.0072, 0.014, 0.027, 0.052, 0.1, 0.19, 0.37, 0.72, 1.4, 2.7, 5.2, 10}},
		{"equal neighbours merge", 1, 1.2, 5, []float64{0, 1, 1.1, 1.2}},
		{"one", 1, 2, 1, []float64{0}},
		{"two", 1, 2, 2, []float64{0, 2}},

		{"min 0", 0, 2, 3, nil},
		{"min negative", -1, 2, 3, nil},
		{"min equals max", 2, 2, 3, nil},
		{"min above max", 3, 2, 3, nil},
		{"min NaN", math.NaN(), 2, 3, nil},
		{"max NaN", 1, math.NaN(), 3, nil},
		{"max infinite", 1, math.Inf(1), 3, nil},
		{"count 0", 1, 2, 0, nil},
		{"count 513", 1, 2, 513, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := LogBuckets(tt.min, tt.max, tt.count)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("LogBuckets(%v, %v, %d) (-want +got):\n%s", tt.min, tt.max, tt.count, diff)
			}
		})
	}
}

// Bounds that do not ascend make the library panic at registration.
func FuzzLogBuckets(f *testing.F) {
	f.Add(0.001, 480.0, 18)
	f.Add(5e-324, 1e-323, 512)
	f.Add(1.0, math.MaxFloat64, 512)
	f.Add(math.NaN(), 1.0, 3)
	f.Fuzz(func(t *testing.T, min, max float64, count int) {
		b := LogBuckets(min, max, count)
		if b == nil {
			return
		}
		if b[0] != 0 || len(b) > count {
			t.Fatalf("LogBuckets(%v, %v, %d) = %v", min, max, count, b)
		}
		for i := 1; i < len(b); i++ {
			if !(b[i] > b[i-1]) || math.IsInf(b[i], 1) {
				t.Fatalf("LogBuckets(%v, %v, %d): bound %d is %v after %v", min, max, count, i, b[i], b[i-1])
			}
		}
	})
}

func TestOverheadBuckets(t *testing.T) {
	s := New(Options{})
	hashing := []float64{0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384}
	placing := make([]float64, 17)
	for i := range placing {
		placing[i] = 0.01 * math.Pow(3, float64(i))
	}
	for name, want := range map[string][]float64{
		"dynamo_router_overhead_block_hashing_ms":        hashing,
		"dynamo_router_overhead_seq_hashing_ms":          hashing,
		"dynamo_router_overhead_indexer_find_matches_ms": placing,
		"dynamo_router_overhead_scheduling_ms":           placing,
		"dynamo_router_overhead_total_ms":                placing,
	} {
		near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(a) })
		if diff := cmp.Diff(want, bounds(t, s, name), near); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestOverlapLostBuckets(t *testing.T) {
	s := New(Options{})
	s.Router("m", WorkerDecode)
	want := []float64{0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192}
	if diff := cmp.Diff(want, bounds(t, s, "dynamo_component_router_overlap_blocks_lost")); diff != "" {
		t.Errorf("overlap_blocks_lost (-want +got):\n%s", diff)
	}
}

func TestBucketsOptions(t *testing.T) {
	const prefix = "dynamo_frontend_"
	s := New(Options{Buckets: Buckets{
		RequestDuration: BucketRange{1, 100, 3},
		InputSequence:   BucketRange{10, 1000, 3},
		OutputSequence:  BucketRange{5, 4, 10}, // min above max
		TTFT:            BucketRange{0.1, 10, 600},
	}})
	s.Model("m")
	for name, want := range map[string][]float64{
		"request_duration_seconds":    {0, 10, 100},
		"input_sequence_tokens":       {0, 100, 1000},
		"cached_tokens":               {0, 100, 1000},
		"output_sequence_tokens":      LogBuckets(50, 32000, 10),
		"time_to_first_token_seconds": LogBuckets(0.001, 480, 18),
		"inter_token_latency_seconds": LogBuckets(0.001, 2, 13),
	} {
		if diff := cmp.Diff(want, bounds(t, s, prefix+name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// bounds returns the finite bucket bounds of a histogram family's first series.
func bounds(t *testing.T, s *Set, name string) []float64 {
	t.Helper()
	families, err := prometheus.Gatherer(s.Registry()).Gather()
	if err != nil {
		t.Fatalf("gather: %v", err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		var b []float64
		for _, bucket := range f.GetMetric()[0].GetHistogram().GetBucket() {
			b = append(b, bucket.GetUpperBound())
		}
		return b
	}
	t.Fatalf("no family %s", name)
	return nil
}
