package sched

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
)

// idleRank is a rank with nothing booked and nothing cached.
func idleRank() Candidate { return Candidate{Trust: 1, Taint: 1, Warmth: 1} }

// scored returns candidates with these scores.
func scored(scores ...float64) []Candidate {
	cands := make([]Candidate, len(scores))
	for i, x := range scores {
		cands[i] = idleRank()
		cands[i].Worker, cands[i].Score = kv.WorkerID(i+1), x
	}
	return cands
}

func scores(cands []Candidate) []float64 {
	s := make([]float64, len(cands))
	for i := range cands {
		s[i] = cands[i].Score
	}
	return s
}

func chance(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance }

// checkFrequencies fails if counts are not what draws with these probabilities give.
// The bound on chi-square lies beyond its mean by six standard deviations.
func checkFrequencies(t *testing.T, counts []int, p []float64) {
	t.Helper()
	n, free := 0, -1
	for i := range counts {
		n += counts[i]
		if p[i] > 0 {
			free++
		} else if counts[i] > 0 {
			t.Errorf("candidate %d chosen %d times, want never", i, counts[i])
		}
	}
	chi2 := 0.0
	for i := range counts {
		if p[i] > 0 {
			want := p[i] * float64(n)
			chi2 += (float64(counts[i]) - want) * (float64(counts[i]) - want) / want
		}
	}
	if limit := float64(free) + 6*math.Sqrt(2*float64(free)); chi2 > limit {
		t.Errorf("counts %v for probabilities %v: chi-square %.1f, want at most %.1f", counts, p, chi2, limit)
	}
}

func TestCached(t *testing.T) {
	type tiers struct{ Device, Host, Disk, Shared float64 }
	depth := func(device, host, disk, shared uint32) (d [kv.NumTiers]uint32) {
		d[kv.Device], d[kv.Host], d[kv.Disk], d[kv.External] = device, host, disk, shared
		return d
	}
	for _, tt := range []struct {
		name        string
		depth       [kv.NumTiers]uint32
		live        int
		want, known tiers // with what is under way, and without
	}{
		{"nothing", depth(0, 0, 0, 0), 0, tiers{}, tiers{}},
		{"device", depth(4, 4, 4, 4), 0, tiers{4, 0, 0, 0}, tiers{4, 0, 0, 0}},
		{"each behind the one before", depth(4, 8, 10, 13), 0, tiers{4, 4, 2, 3}, tiers{4, 4, 2, 3}},
		{"host only", depth(0, 5, 5, 5), 0, tiers{0, 5, 0, 0}, tiers{0, 5, 0, 0}},
		{"shared only", depth(0, 0, 0, 7), 0, tiers{0, 0, 0, 7}, tiers{0, 0, 0, 7}},
		{"a tier that ends before the one before", depth(6, 2, 8, 0), 0, tiers{6, 0, 2, 0}, tiers{6, 0, 2, 0}},
		{"live behind the device", depth(4, 8, 10, 13), 2, tiers{4, 4, 2, 3}, tiers{4, 4, 2, 3}},
		{"live into the host's", depth(4, 8, 10, 13), 6, tiers{6, 2, 2, 3}, tiers{4, 4, 2, 3}},
		{"live past all", depth(4, 8, 10, 13), 20, tiers{20, 0, 0, 0}, tiers{4, 4, 2, 3}},
		{"live only", depth(0, 0, 0, 0), 3, tiers{3, 0, 0, 0}, tiers{}},
		{"live below zero", depth(1, 1, 1, 1), -3, tiers{1, 0, 0, 0}, tiers{1, 0, 0, 0}},
		{"live without end", depth(1, 1, 1, 1), math.MaxInt, tiers{math.MaxInt, 0, 0, 0}, tiers{1, 0, 0, 0}},
		{"as deep as can be", depth(0, 0, math.MaxUint32, 0), math.MaxInt32, tiers{math.MaxInt32, 0, 1 << 31, 0}, tiers{0, 0, math.MaxUint32, 0}},
	} {
		c := Candidate{Depth: tt.depth, Live: tt.live}
		var got tiers
		got.Device, got.Host, got.Disk, got.Shared = c.Cached(true)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s, with live (-want +got):\n%s", tt.name, diff)
		}
		got.Device, got.Host, got.Disk, got.Shared = c.Cached(false)
		if diff := cmp.Diff(tt.known, got); diff != "" {
			t.Errorf("%s, without live (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestT13Taint(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, tt := range []struct {
		name      string
		preferred map[string]float64
		taints    []string
		want      float64
	}{
		{".85", map[string]float64{"ssd": .85}, []string{"ssd"}, .501040},
		{"1", map[string]float64{"ssd": 1}, []string{"ssd"}, .466921},
		{"-1", map[string]float64{"ssd": -1}, []string{"ssd"}, 2.141688},
		{"sum", map[string]float64{"a": .6, "b": .25, "c": 9}, []string{"b", "x", "a"}, .501040},
		{"opposites", map[string]float64{"a": 2, "b": -2}, []string{"a", "b"}, 1},
		{"no match", map[string]float64{"ssd": 1}, []string{"hdd"}, 1},
		{"no taints", map[string]float64{"ssd": 1}, nil, 1},
		{"no preference", nil, []string{"ssd"}, 1},
		{"huge", map[string]float64{"a": 1e300, "b": 1e308}, []string{"a", "b"}, 1 / math.E},
		{"hugely against", map[string]float64{"a": -1e308, "b": -1e308}, []string{"a", "b"}, math.E},
		{"infinite", map[string]float64{"a": inf}, []string{"a"}, 1 / math.E},
		{"infinite both ways", map[string]float64{"a": inf, "b": -inf}, []string{"a", "b"}, 1},
		{"not a number", map[string]float64{"a": nan, "b": 1}, []string{"a", "b"}, 1},
		{"not a number, no match", map[string]float64{"a": nan, "b": 1}, []string{"b"}, .466921},
	} {
		if got := TaintFactor(tt.preferred, tt.taints); !near(got, tt.want, 5e-7) {
			t.Errorf("%s: factor %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestT7Softmax(t *testing.T) {
	for _, tt := range []struct {
		scores      []float64
		temperature float64
		want        []float64
	}{
		{[]float64{18, 10, 11}, 1, []float64{.163475, .444370, .392155}},
		{[]float64{18, 10, 11}, .5, []float64{.070703, .522429, .406868}},
		{[]float64{18, 10, 11}, .1, []float64{.0000353, .777272, .222692}},
		{[]float64{0, 3, 9}, 1, []float64{.479752, .343757, .176491}},
		{[]float64{100, 103, 109}, 1, []float64{.479752, .343757, .176491}},
		{[]float64{0, 3e9, 9e9}, 1, []float64{.479752, .343757, .176491}},
		{[]float64{7, 7, 7, 7}, 1, []float64{.25, .25, .25, .25}},
		{[]float64{7, 7, 7, 7}, 1e-9, []float64{.25, .25, .25, .25}},
		{[]float64{7}, 1, []float64{1}},
	} {
		cands := scored(tt.scores...)
		got := Softmax{Temperature: tt.temperature}.Propensities([]float64{-1}, cands)
		if diff := cmp.Diff(append([]float64{-1}, tt.want...), got, cmp.Comparer(func(a, b float64) bool { return near(a, b, 6e-7) })); diff != "" {
			t.Errorf("scores %v at %v (-want +got):\n%s", tt.scores, tt.temperature, diff)
		}
	}
}

func TestT7SoftmaxDraw(t *testing.T) {
	s := Softmax{Temperature: 1}
	for _, tt := range []struct {
		u    float64
		want int
	}{
		{0, 0}, {.4797, 0}, {.4798, 1}, {.5, 1}, {.8235, 1}, {.8236, 2}, {math.Nextafter(1, 0), 2},
	} {
		for _, x := range [][]float64{{0, 3, 9}, {100, 103, 109}} {
			if got := s.pick(scored(x...), tt.u); got != tt.want {
				t.Errorf("scores %v, u = %v: chose %d, want %d", x, tt.u, got, tt.want)
			}
		}
	}
}

// TestSoftmaxNoShare shows that a candidate too bad to have a share is not chosen,
// not even by a draw at an end.
func TestSoftmaxNoShare(t *testing.T) {
	s := Softmax{Temperature: 1, Absolute: true}
	cands := scored(1e6, 3, 2e6, 3, 1e9)
	for u, want := range map[float64]int{0: 1, .25: 1, .75: 3, math.Nextafter(1, 0): 3} {
		if got := s.pick(cands, u); got != want {
			t.Errorf("u = %v: chose %d, want %d", u, got, want)
		}
	}
}

// TestSoftmaxOfTwo shows what taking scores as fractions of their range does: of two
// candidates the better has the same probability however small the difference.
func TestSoftmaxOfTwo(t *testing.T) {
	for _, temperature := range []float64{.1, .5, 1, 2, 10} {
		want := 1 / (1 + math.Exp(-1/temperature))
		for _, gap := range []float64{1e-9, .5, 1, 300, 1e12} {
			got := Softmax{Temperature: temperature}.Propensities(nil, scored(gap, 0))
			if !near(got[1], want, 1e-12) || !near(got[0], 1-want, 1e-12) {
				t.Errorf("gap %v at %v: %v, want %v for the better", gap, temperature, got, want)
			}
		}
	}
	if got := (Softmax{Temperature: 1}).Propensities(nil, scored(5, 4))[1]; !near(got, .7311, 5e-5) {
		t.Errorf("%v for the better of two at 1, want .7311", got)
	}
}

// TestSoftmaxOutlier shows the difference that the absolute scale makes: one rank
// with a great load does not make the others the same.
func TestSoftmaxOutlier(t *testing.T) {
	cands := scored(0, 10, 1e6)
	p := Softmax{Temperature: 5}.Propensities(nil, cands)
	if ratio := p[0] / p[1]; !near(ratio, 1, 1e-3) {
		t.Errorf("of the range: the first is %v times as likely as the second, want about once", ratio)
	}
	p = Softmax{Temperature: 5, Absolute: true}.Propensities(nil, cands)
	if ratio := p[0] / p[1]; !near(ratio, math.Exp(2), 1e-9) || p[2] != 0 {
		t.Errorf("absolute: the first is %v times as likely as the second, want %v; the last %v, want 0", ratio, math.Exp(2), p[2])
	}
}

func TestSoftmaxAbsolute(t *testing.T) {
	for _, temperature := range []float64{.5, 1, 16} {
		s := Softmax{Temperature: temperature, Absolute: true}
		for _, gap := range []float64{0, .25, 1, 40} {
			want := 1 / (1 + math.Exp(-gap/temperature))
			for _, at := range []float64{0, 3, 1e6} {
				if got := s.Propensities(nil, scored(at, at+gap))[0]; !near(got, want, 1e-9) {
					t.Errorf("%v and %v more at %v: %v for the better, want %v", at, gap, temperature, got, want)
				}
			}
		}
	}
}

// TestSoftmaxExtremes has temperatures and ranges whose products are no numbers.
func TestSoftmaxExtremes(t *testing.T) {
	const tiny = math.SmallestNonzeroFloat64
	for _, absolute := range []bool{false, true} {
		for _, temperature := range []float64{tiny, 1e-200, 1, 1e200, math.MaxFloat64, math.Inf(1)} {
			for _, cands := range [][]Candidate{
				scored(tiny, 0, tiny), scored(.3, .1, .2), scored(1e300, 0, 1), scored(math.MaxFloat64, 0, math.MaxFloat64),
				scored(math.MaxFloat64, math.MaxFloat64, math.MaxFloat64),
			} {
				s := Softmax{Temperature: temperature, Absolute: absolute}
				name := fmt.Sprintf("%+v of %v", s, scores(cands))
				p := s.Propensities(nil, cands)
				sum := 0.0
				for i := range p {
					sum += p[i]
					if !(p[i] >= 0 && p[i] <= p[1]) {
						t.Errorf("%s: probabilities %v, want none above that of the best", name, p)
					}
				}
				if !near(sum, 1, 1e-12) {
					t.Errorf("%s: probabilities %v sum to %v", name, p, sum)
				}
				for _, u := range []float64{0, .5, math.Nextafter(1, 0)} {
					if i := s.pick(cands, u); p[i] == 0 {
						t.Errorf("%s: u = %v chose %d, which has no share in %v", name, u, i, p)
					}
				}
			}
		}
	}
}

func TestLeast(t *testing.T) {
	for _, tt := range []struct {
		name   string
		scores []float64
		held   []int
		chosen []int // every one of them, by chance, and no other
		tied   int
		cold   []int // those that have nothing of the prompt
	}{
		{"one", []float64{3}, []int{5}, []int{0}, 0, nil},
		{"lowest", []float64{3, 1, 2}, []int{0, 9, 0}, []int{1}, 0, nil},
		{"last is lowest", []float64{3, 3, 2}, []int{0, 0, 9}, []int{2}, 0, nil},
		{"fewest held", []float64{1, 1, 2, 1}, []int{7, 4, 0, 9}, []int{1}, 3, nil},
		{"fewest held is last", []float64{1, 1, 1}, []int{7, 4, 0}, []int{2}, 3, nil},
		{"fewest held, several", []float64{1, 1, 1, 1}, []int{7, 4, 4, 9}, []int{1, 2}, 4, nil},
		{"all the same", []float64{1, 1, 1, 1, 1}, []int{2, 2, 2, 2, 2}, []int{0, 1, 2, 3, 4}, 5, nil},
		{"better after ties", []float64{2, 2, 1, 1, 2}, []int{0, 0, 3, 3, 0}, []int{2, 3}, 2, nil},
		{"none costs anything", []float64{0, 0, 0}, []int{0, 1, 0}, []int{0, 2}, 3, nil},
		{"cold, however full", []float64{1, 1, 1}, []int{7, 4, 0}, []int{0, 1, 2}, 3, []int{0, 1, 2}},
		{"one that has nothing counts as empty", []float64{1, 1, 1}, []int{7, 50, 4}, []int{1}, 3, []int{1}},
		{"nothing, and nothing but the prompt", []float64{1, 1, 1}, []int{0, 50, 4}, []int{0, 1}, 3, []int{1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := Decision{Candidates: scored(tt.scores...), Rand: chance(1), Tied: 99}
			for i, held := range tt.held {
				d.Candidates[i].Held = held
				if !slices.Contains(tt.cold, i) { // in whichever tier
					d.Candidates[i].Depth[kv.External] = 1
				}
			}
			p := make([]float64, len(tt.scores))
			for _, i := range tt.chosen {
				p[i] = 1 / float64(len(tt.chosen))
			}
			counts := make([]int, len(tt.scores))
			for range 10_000 {
				counts[d.least()]++
			}
			checkFrequencies(t, counts, p)
			if d.Tied != tt.tied {
				t.Errorf("%d tied, want %d", d.Tied, tt.tied)
			}
		})
	}
}
