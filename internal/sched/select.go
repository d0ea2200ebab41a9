package sched

import (
	"math"
	"math/rand/v2"

	"github.com/stator-ai/stator/internal/kv"
)

// Candidate is a rank that could take a request, at the moment of choice.
type Candidate struct {
	Worker kv.WorkerID
	Rank   uint32
	// Requests is how many requests are booked on it, PrefillTokens how many prompt
	// tokens they still have to compute, and Blocks how many KV blocks they hold.
	Requests      int
	PrefillTokens int
	Blocks        int
	// NewBlocks is how many blocks of the prompt none of these requests holds.
	NewBlocks int
	// Depth is how many of the prompt's leading blocks are in its cache, by tier: those
	// on the device, those on the device and in the host's memory behind them, and
	// so on.
	Depth [kv.NumTiers]uint32
	// Live is how many of them belong to requests under way, which hold them or
	// will when they have been computed.
	Live int
	// Held is how many blocks its cache holds, as far as known. Among ranks that cost
	// the same and have some of the prompt, the one with the least in its cache is
	// chosen; one that has nothing of the prompt counts as empty.
	Held int
	// Trust is how much of what is predicted to be in its cache has been found there
	// of late, from 0 to 1.
	Trust float64
	// Taint is what the request's preferences make of the cost; 1 without any. See
	// [TaintFactor].
	Taint float64
	// Warmth is below 1, and above 0, for a rank that has just come.
	Warmth float64

	// Score is the selector's measure, the lower the better. NaN where it has none.
	Score float64
}

// Cached is how many of the prompt's leading blocks the rank can take from its
// cache by tier, each block counted in the nearest only. With live set, those of
// requests under way count as if they were on the device.
func (c *Candidate) Cached(live bool) (device, host, disk, shared float64) {
	at, all := c.near(live)
	device = float64(at)
	if all {
		return device, 0, 0, 0
	}
	next := func(t kv.Tier) float64 {
		d := max(uint64(c.Depth[t]), at)
		n := d - at
		at = d
		return float64(n)
	}
	host, disk, shared = next(kv.Host), next(kv.Disk), next(kv.External)
	return device, host, disk, shared
}

// near returns how many of them count as on the device, and whether there are no others.
func (c *Candidate) near(live bool) (at uint64, all bool) {
	at = uint64(c.Depth[kv.Device])
	if live {
		at = max(at, uint64(max(c.Live, 0)))
	}
	return at, at >= uint64(max(c.Depth[kv.Host], c.Depth[kv.Disk], c.Depth[kv.External]))
}

// Decision is what a selector chooses by.
type Decision struct {
	// PromptTokens is the length of the prompt and BlockSize the number of tokens in a
	// block; both are at least 1.
	PromptTokens int
	BlockSize    int
	// ExpectedOutput is how many tokens the answer is expected to have, 0 if unknown.
	ExpectedOutput int
	// Candidates are sorted by worker and rank; there is at least one. The selector
	// sets their scores.
	Candidates []Candidate
	// Rand is where chance comes from, seeded for this decision.
	Rand *rand.Rand

	// Tied is set by the selector to how many candidates shared the best score, if
	// more than one did and chance or a rule for ties decided between them, and to 0
	// otherwise.
	Tied int
}

// Selector chooses a rank.
type Selector interface {
	// Select returns the index of the chosen candidate. It keeps nothing of d.
	Select(d *Decision) int
}

// TaintFactor is what preferences for taints make of a rank's cost: the sum of the
// weights of those that it has, squeezed so that no sum makes more than a factor of
// e of it. Positive weights attract.
func TaintFactor(preferred map[string]float64, taints []string) float64 {
	if len(preferred) == 0 {
		return 1
	}
	sum := 0.0
	for _, t := range taints {
		sum += preferred[t]
	}
	if math.IsNaN(sum) {
		return 1
	}
	return math.Exp(-math.Tanh(sum))
}

// fill is how much the cache holds for the purpose of breaking ties.
func (c *Candidate) fill() int {
	if c.Depth[kv.NumTiers-1] == 0 {
		return 0
	}
	return c.Held
}

// least returns the index of the lowest score. Of several that are equal, those
// with the least in their caches are left, and chance decides between these.
func (d *Decision) least() int {
	best, tied := 0, 1
	for i := 1; i < len(d.Candidates); i++ {
		switch c, b := &d.Candidates[i], &d.Candidates[best]; {
		case c.Score < b.Score:
			best, tied = i, 1
		case c.Score == b.Score:
			tied++
			if c.fill() < b.fill() {
				best = i
			}
		}
	}
	if tied == 1 {
		d.Tied = 0
		return best
	}
	d.Tied = tied
	score, fill := d.Candidates[best].Score, d.Candidates[best].fill()
	seen := 0
	for i := range d.Candidates {
		if c := &d.Candidates[i]; c.Score == score && c.fill() == fill {
			if seen++; seen > 1 && d.Rand.IntN(seen) == 0 || seen == 1 {
				best = i
			}
		}
	}
	return best
}

// Softmax is a choice by chance in which a lower score is more likely.
type Softmax struct {
	// Temperature is above 0; the higher, the less scores matter.
	Temperature float64
	// Absolute takes differences of scores as they are. Otherwise they are fractions
	// of the difference between the highest and the lowest.
	Absolute bool
}

// scale is what makes weights of scores. The difference to the lowest is divided by
// the span first and by the temperature then, since their product may be too small
// for a number other than 0.
type scale struct{ low, span, temperature float64 }

func (s Softmax) scale(cands []Candidate) scale {
	low, high := cands[0].Score, cands[0].Score
	for i := range cands {
		low, high = min(low, cands[i].Score), max(high, cands[i].Score)
	}
	span := 1.0
	if !s.Absolute && high > low {
		span = high - low
	}
	return scale{low, span, s.Temperature}
}

func (s *scale) weight(score float64) float64 {
	return math.Exp(-(score - s.low) / s.span / s.temperature)
}

func (s *scale) sum(cands []Candidate) float64 {
	sum := 0.0
	for i := range cands {
		sum += s.weight(cands[i].Score)
	}
	return sum
}

// Propensities appends the probability of each candidate, of which there is at least
// one. Their scores are finite, and so is the difference between any two.
func (s Softmax) Propensities(dst []float64, cands []Candidate) []float64 {
	by := s.scale(cands)
	sum := by.sum(cands)
	for i := range cands {
		dst = append(dst, by.weight(cands[i].Score)/sum)
	}
	return dst
}

// pick returns the index of the candidate in whose share of 0 to 1 u falls. With u
// below 1 it is never one whose share is 0.
func (s Softmax) pick(cands []Candidate, u float64) int {
	by := s.scale(cands)
	u *= by.sum(cands)
	sum := 0.0
	for i := range cands {
		if sum += by.weight(cands[i].Score); sum > u {
			return i
		}
	}
	return len(cands) - 1
}
