package metrics

import (
	"math"
	"strconv"
)

// maxBuckets bounds a configured histogram; every model pays for each bucket.
const maxBuckets = 512

// BucketRange describes log-spaced histogram buckets as LogBuckets takes them.
// The zero value, like any other invalid range, stands for the default.
type BucketRange struct {
	Min, Max float64
	Count    int
}

// Buckets holds the bucket ranges that may be configured. A range left zero or
// invalid keeps the default of its histogram. InputSequence also shapes the
// cached-tokens histogram.
type Buckets struct {
	RequestDuration BucketRange // seconds, default 1, 512, 10
	InputSequence   BucketRange // tokens, default 50, 128000, 12
	OutputSequence  BucketRange // tokens, default 50, 32000, 10
	TTFT            BucketRange // seconds, default 0.001, 480, 18
	ITL             BucketRange // seconds, default 0.001, 2, 13
}

var (
	defaultRequestDuration = BucketRange{1, 512, 10}
	defaultInputSequence   = BucketRange{50, 128000, 12}
	defaultOutputSequence  = BucketRange{50, 32000, 10}
	defaultTTFT            = BucketRange{0.001, 480, 18}
	defaultITL             = BucketRange{0.001, 2, 13}
)

// LogBuckets returns histogram bounds that start at 0 and then follow count
// points spaced evenly in the logarithm from min to max, without min itself,
// each rounded to two significant figures; equal neighbours are merged. It
// returns nil unless 0 < min < max < +Inf and 1 <= count <= 512.
func LogBuckets(min, max float64, count int) []float64 {
	if !(min > 0 && min < max && !math.IsInf(max, 1)) || count < 1 || count > maxBuckets {
		return nil
	}
	bounds := make([]float64, 1, count)
	lo, span := math.Log(min), math.Log(max)-math.Log(min)
	for i := 1; i < count; i++ {
		// The exponential may end a hair above max, beyond the largest float.
		v := round2(math.Min(max, math.Exp(lo+span*float64(i)/float64(count-1))))
		if v != bounds[len(bounds)-1] {
			bounds = append(bounds, v)
		}
	}
	return bounds
}

// round2 rounds to two significant figures by way of the decimal text, which
// gives the float nearest to that decimal; scaling by a power of ten would
// leave bounds such as 0.0067000000000000002 in the exposition.
func round2(v float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'e', 1, 64), 64)
	if err != nil || r == 0 {
		return v // at the edge of the float range
	}
	return r
}

// bounds returns the bounds of r, or those of def where r is invalid.
func (r BucketRange) bounds(def BucketRange) []float64 {
	if b := LogBuckets(r.Min, r.Max, r.Count); b != nil {
		return b
	}
	return LogBuckets(def.Min, def.Max, def.Count)
}
