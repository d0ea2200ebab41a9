package trie

import (
	"cmp"
	"math"
	"slices"
)

// Weights say what makes a run wait for a call. Each run's calls are scored by the weighted
// sum of four properties, the scores of the run are spread from 0 to 1, and the mean score
// of the calls that a prediction is for becomes its level, from 1 to Scale. Scores that
// differ by less than a twentieth of the weights' sum are spread less, around 0.5. Calls
// that overlap in time share a position in the run.
//
// Weights need not add up to anything. They are taken as they are, negative ones included.
type Weights struct {
	// Scale is the highest level; below 1 it is that of [DefaultWeights].
	Scale int
	// Critical weighs the share of the run's time that the call took.
	Critical float64
	// Fanout weighs how much of the run is still to come: 1 at the first position, 0 at
	// the last.
	Fanout float64
	// Position weighs how near the call is to the beginning or the end of the run: 1 at
	// both, one half in the middle.
	Position float64
	// Parallel weighs, against the call, how little it matters among what runs beside it:
	// how much sooner than the longest of these it ends, and how many share its position.
	// In a run of which no step has a ParentID or a Path it counts as 0.
	Parallel float64
}

// DefaultWeights returns the weights that NeMo Agent Toolkit uses by default. They rate
// long and early calls highest.
func DefaultWeights() Weights {
	return Weights{Scale: 5, Critical: 0.5, Fanout: 0.3, Position: 0.2}
}

// TunedWeights returns weights for workflows that fan out: they rate the calls where a
// person waits for the first or the last answer above those that run side by side.
func TunedWeights() Weights {
	return Weights{Scale: 5, Critical: 0.35, Fanout: 0.15, Position: 0.5, Parallel: 0.5}
}

// leastSpread is which part of the weights' sum the raw scores of a run are spread over at
// least, so that calls that are nearly alike get levels that are.
const leastSpread = 0.05

// rate scores the calls of a run that took total seconds. slack is that of each call, nil
// for none.
func (w *Weights) rate(calls []call, total float64, slack []float64, compat bool) {
	position, sizes := positions(calls)
	last := float64(len(sizes) - 1)
	lowest, highest := math.Inf(1), math.Inf(-1)
	for i := range calls {
		critical, fanout, place, parallel := 1.0, 0.0, 1.0, 0.0
		if total > 0 {
			critical = min(calls[i].dur/total, 1)
		}
		if last > 0 {
			at := float64(position[i])
			fanout = (last - at) / last
			place = max(1-at/last, at/last)
		}
		if slack != nil {
			parallel = slack[i]
		}
		if size := float64(sizes[position[i]]); size > 1 {
			parallel = (parallel + (size-1)/size) / 2
		}
		// The conversions keep a processor from fusing a product and a sum, so that a trie is
		// the same on all of them.
		raw := float64(w.Critical*critical) + float64(w.Fanout*fanout) + float64(w.Position*place) - float64(w.Parallel*parallel)
		calls[i].score = raw
		lowest, highest = min(lowest, raw), max(highest, raw)
	}
	spread := highest - lowest
	alike := spread == 0
	if !compat {
		// Less than this is the rounding of the arithmetic above.
		alike = spread <= 1e-9*max(math.Abs(lowest), math.Abs(highest))
		sum := math.Abs(w.Critical) + math.Abs(w.Fanout) + math.Abs(w.Position) + math.Abs(w.Parallel)
		if least := float64(leastSpread * sum); spread < least {
			lowest -= (least - spread) / 2
			spread = least
		}
	}
	for i := range calls {
		score := (calls[i].score - lowest) / spread
		if alike || !(score >= 0 && score <= 1) { // not a number: the weights are not finite
			score = 0.5
		}
		calls[i].score = score
	}
}

// positions returns each call's position in the run, and how many calls share each. A call
// that begins before all earlier ones have ended shares their position. The calls are in
// the order of their ends.
func positions(calls []call) (position, sizes []int) {
	byStart := make([]int, len(calls))
	for i := range byStart {
		byStart[i] = i
	}
	slices.SortStableFunc(byStart, func(a, b int) int { return cmp.Compare(calls[a].start, calls[b].start) })
	position = make([]int, len(calls))
	end := math.Inf(-1)
	for _, i := range byStart {
		if len(sizes) > 0 && calls[i].start < end {
			sizes[len(sizes)-1]++
		} else {
			sizes = append(sizes, 1)
			end = math.Inf(-1)
		}
		end = max(end, calls[i].end)
		position[i] = len(sizes) - 1
	}
	return position, sizes
}

// level returns the level, from 1 to scale, for a mean score from 0 to 1.
func level(score float64, scale int) int {
	at := math.RoundToEven(score * float64(scale-1))
	return int(min(max(at+1, 1), float64(scale)))
}
