package policyeval

import (
	"math"

	"github.com/stator-ai/stator/internal/kv"
)

// dim is the number of features that all ranks share a weight for.
const dim = 7

// The penalties of the regression: on weights, and on the offset of a rank, so that one
// with few rows stays near the others. The intercept has next to none.
const (
	weightPenalty    = 1.0
	offsetPenalty    = 4.0
	interceptPenalty = 1e-6
)

// model predicts the reward of a candidate: a ridge regression on what was known when the
// choice was made, with an offset for each rank.
type model struct {
	mean      float64 // of the rewards that it was fitted on
	low, high float64 // the least and the most of them, beyond which it predicts nothing
	weights   [dim]float64
	offsets   map[kv.Source]float64
}

// rankSums are what the rows of one rank sum to.
type rankSums struct {
	source kv.Source
	n, y   float64
	x      [dim]float64
}

// features are what the reward of a candidate may depend on: how much of the prompt it
// held, how many tokens it had to compute before the first of the answer, how much it was
// doing, and how long prompt and answer are. The length of the answer does not depend on
// who gives it.
func (d *decision) features(i int) [dim]float64 {
	c := &d.cands[i]
	block := float64(d.blockSize)
	if block < 1 {
		block = 16 // that of most engines, where the record does not say
	}
	prompt := float64(d.promptTokens)
	device, host, disk, shared := c.Cached(true)
	cached := min(block*(device+host+disk+shared), prompt)
	return [dim]float64{
		1,
		cached / prompt,
		math.Log1p((float64(c.PrefillTokens) + prompt - cached) / 1024),
		math.Log1p(float64(c.Blocks) * block / 16384),
		math.Log1p(float64(c.Requests)),
		math.Log1p(prompt / 1024),
		math.Log1p(float64(d.outputTokens) / 256),
	}
}

// fitModel fits a model to the rewards of the decisions of the given parity.
func fitModel(decisions []*decision, rewards []float64, parity int) *model {
	m := &model{low: math.Inf(1), high: math.Inf(-1), offsets: make(map[kv.Source]float64)}
	n := 0.0
	for i := parity; i < len(decisions); i += 2 {
		n++
		m.mean += (rewards[i] - m.mean) / n
		m.low, m.high = min(m.low, rewards[i]), max(m.high, rewards[i])
	}
	if n == 0 {
		m.low, m.high = 0, 0
		return m
	}
	var a [dim][dim]float64
	var b [dim]float64
	ranks := make(map[kv.Source]int)
	var sums []rankSums // in the order of their first rows, so that sums come out the same
	for i := parity; i < len(decisions); i += 2 {
		d := decisions[i]
		c := &d.cands[d.chosen]
		source := kv.Source{Worker: c.Worker, Rank: c.Rank}
		at, ok := ranks[source]
		if !ok {
			at = len(sums)
			ranks[source] = at
			sums = append(sums, rankSums{source: source})
		}
		x, y := d.features(d.chosen), rewards[i]-m.mean
		s := &sums[at]
		s.n++
		s.y += y
		for j := range x {
			s.x[j] += x[j]
			b[j] += x[j] * y
			for k := range j + 1 {
				a[j][k] += x[j] * x[k]
			}
		}
	}
	a[0][0] += interceptPenalty
	for j := 1; j < dim; j++ {
		a[j][j] += weightPenalty
	}
	// A row has one rank, so that ranks can be eliminated one by one, however many there
	// are.
	for i := range sums {
		s := &sums[i]
		for j := range dim {
			b[j] -= s.x[j] * s.y / (s.n + offsetPenalty)
			for k := range j + 1 {
				a[j][k] -= s.x[j] * s.x[k] / (s.n + offsetPenalty)
			}
		}
	}
	m.weights = solve(&a, b)
	for i := range sums {
		s := &sums[i]
		m.offsets[s.source] = (s.y - dot(&s.x, &m.weights)) / (s.n + offsetPenalty)
	}
	return m
}

// predict returns the reward that is expected of a candidate.
func (m *model) predict(d *decision, i int) float64 {
	x := d.features(i)
	c := &d.cands[i]
	y := m.mean + dot(&x, &m.weights) + m.offsets[kv.Source{Worker: c.Worker, Rank: c.Rank}]
	return min(max(y, m.low), m.high)
}

func dot(a, b *[dim]float64) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// solve returns x of a·x = b for a symmetric positive definite matrix, of which only the
// lower half is read, and overwritten with its Cholesky factor.
func solve(a *[dim][dim]float64, b [dim]float64) [dim]float64 {
	for j := range dim {
		for k := range j {
			a[j][j] -= a[j][k] * a[j][k]
		}
		// Rounding may leave nothing where the penalty is small against the sums.
		a[j][j] = math.Sqrt(max(a[j][j], 1e-12))
		for i := j + 1; i < dim; i++ {
			for k := range j {
				a[i][j] -= a[i][k] * a[j][k]
			}
			a[i][j] /= a[j][j]
		}
	}
	x := b
	for i := range dim {
		for k := range i {
			x[i] -= a[i][k] * x[k]
		}
		x[i] /= a[i][i]
	}
	for i := dim - 1; i >= 0; i-- {
		for k := i + 1; k < dim; k++ {
			x[i] -= a[k][i] * x[k]
		}
		x[i] /= a[i][i]
	}
	return x
}
