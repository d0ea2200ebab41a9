package stator

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/sched"
)

type selectFunc func(*Decision) int

func (f selectFunc) Select(d *Decision) int { return f(d) }

// TestSelectionSurvivesItsSelector: a selector may sort, cut and score its candidates as
// it likes.
func TestSelectionSurvivesItsSelector(t *testing.T) {
	score := func(d *Decision) {
		for i := range d.Candidates {
			d.Candidates[i].Score = float64(10 * d.Candidates[i].Worker)
		}
	}
	for _, row := range []struct {
		name   string
		choose selectFunc
		want   int
		scores []float64 // NaN where there is none
	}{
		{"plain", func(d *Decision) int { score(d); return 1 }, 1, []float64{10, 20, 30}},
		{"sorted", func(d *Decision) int {
			score(d)
			slices.Reverse(d.Candidates)
			return 0
		}, 2, []float64{10, 20, 30}},
		{"cut", func(d *Decision) int {
			score(d)
			d.Candidates = slices.DeleteFunc(d.Candidates, func(c Candidate) bool { return c.Worker == 2 })
			return 1
		}, 2, []float64{10, math.NaN(), 30}},
		{"emptied", func(d *Decision) int { d.Candidates = nil; return 0 }, 0, []float64{math.NaN(), math.NaN(), math.NaN()}},
		{"out of range", func(*Decision) int { return 99 }, 2, []float64{math.NaN(), math.NaN(), math.NaN()}},
		{"strangers", func(d *Decision) int { d.Candidates = []Candidate{{Worker: 77}}; return 0 }, 0, []float64{math.NaN(), math.NaN(), math.NaN()}},
	} {
		d := sched.Decision{PromptTokens: 100, BlockSize: 16, Rand: rand.New(rand.NewPCG(1, 1))}
		for w := range 3 {
			d.Candidates = append(d.Candidates, sched.Candidate{Worker: kv.WorkerID(w + 1), Trust: 1, Taint: 1, Warmth: 1, Score: math.NaN()})
		}
		if got := (selection{row.choose}).Select(&d); got != row.want {
			t.Errorf("%s: %d chosen, want %d", row.name, got, row.want)
		}
		for i, want := range row.scores {
			if got := d.Candidates[i].Score; got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
				t.Errorf("%s: score of worker %d is %v, want %v", row.name, i+1, got, want)
			}
		}
	}
}
