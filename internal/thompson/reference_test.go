package thompson

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
)

// scripted are the draws of every request of the scripted run.
func scripted() *Script {
	return &Script{
		Norms: []float64{
			0.5, -0.2, 0.1, 0, 0.3, -0.4, 0.2, 0.1, -0.1,
			-0.3, 0.4, 0, 0.2, -0.1, 0.1, 0.3, -0.2, 0.5,
		},
		Betas:    []float64{0.60, 0.30},
		Uniforms: []float64{0.55},
	}
}

// expectedChoice is a choice in the numbers that the run was written down with.
type expectedChoice struct {
	job, outstanding, sample, raw, load, score, p float64
	x                                             [refDim]float64
}

func seen(c *Choice) expectedChoice {
	return expectedChoice{
		job: c.Job, outstanding: c.Outstanding, sample: c.Mean + c.Noise,
		raw:  c.Mean + c.Noise + c.Beta + c.Affinity - c.Switch,
		load: c.Load, score: c.Score, p: c.P, x: c.X,
	}
}

func TestReferenceScriptedRun(t *testing.T) {
	r := newReference(t, nil)
	out := make([]Choice, 2)
	s1, other := NewPrefixID("", "s1"), NewPrefixID("", "other")
	loaded := func(g1, q1, g2, q2, o2 float64) []Arm {
		return []Arm{
			{ID: rank(101), Scraped: true, KVUsage: g1, Queue: q1},
			{ID: rank(202), Scraped: true, KVUsage: g2, Queue: q2, Overlap: o2},
		}
	}
	unexported := cmp.AllowUnexported(expectedChoice{})
	decide := func(name string, at float64, req Request, arms []Arm, temperature float64, want [2]expectedChoice, x5 float64) uint64 {
		t.Helper()
		draws := scripted()
		dec := r.Decide(after(at), draws, &req, arms, out)
		if len(draws.Norms)+len(draws.Betas)+len(draws.Uniforms) != 0 {
			t.Errorf("%s: draws left: %+v", name, draws)
		}
		same(t, name+": temperature", dec.Temperature, temperature)
		for i := range want {
			if d := cmp.Diff(want[i], seen(&out[i]), near, unexported); d != "" {
				t.Errorf("%s, arm %v (-want +got):\n%s", name, arms[i].ID.Worker, d)
			}
		}
		if dec.Chosen != 1 || dec.P != out[1].P {
			t.Errorf("%s: chosen %d with %v", name, dec.Chosen, dec.P)
		}
		learns := r.pending.at(r.pending.get(dec.ID)).x
		same(t, name+": learned x5", learns[4], x5)
		learns[4] = out[1].X[4]
		same(t, name+": the rest of it", learns, out[1].X)
		return dec.ID
	}

	id := decide("R1", 0, Request{PromptTokens: 2048, Prefix: s1, Budget: 3, IAT: Low}, loaded(.40, 2, .10, 0, 0), 0.181818182,
		[2]expectedChoice{
			{4, 0, .104292352, .115201443, .150602410, .017349615, .374141051,
				[refDim]float64{1, .227272727, 0, 0, 0, .666666667, .964027580, 1, .635148952}},
			{4, 0, .134271445, .139725991, .793650794, .110893643, .625858949,
				[refDim]float64{1, .909090909, 0, 0, 0, .666666667, .964027580, 1, .635148952}},
		}, .946806013)
	res, err := r.Feedback(after(1.5), id, Feedback{Latency: 1500 * time.Millisecond, TokensOut: 60})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "R1: result", res, Result{
		Arm: rank(202), Metric: 25, PerToken: true, Baseline: 25, After: 25, Reward: 0.5, Age: 1500 * time.Millisecond,
	})
	a := r.arms[rank(202)]
	m := full(a.model.a[:], refDim)
	var diag [refDim]float64
	for i := range diag {
		diag[i] = m[i][i]
	}
	same(t, "R1: diagonal", diag, [refDim]float64{2, 1.826446281, 1, 1, 1.896441626, 1.444444444, 1.929349175, 2, 1.403414192})
	same(t, "R1: b", a.model.b, [refDim]float64{.5, .454545455, 0, 0, .473403007, .333333333, .482013790, .5, .317574476})
	same(t, "R1: mean", a.model.mean, [refDim]float64{
		.076921944, .069929040, 0, 0, .072830159, .051281296, .074154876, .076921944, .048856892,
	})
	same(t, "R1: Beta", [2]float64{a.alpha, a.beta}, [2]float64{1.5, 1.5})
	same(t, "R1: averages", []average{a.byKind[Medium][High][perToken], a.all[perToken], r.global[perToken]}, []average{25, 25, 25})

	id = decide("R2", 2, Request{PromptTokens: 2112, Prefix: s1, Budget: 2, IAT: Low}, loaded(.40, 1, .20, 1, 128.0/132), 0.25,
		[2]expectedChoice{
			{4.0625, 0, .102948386, -.107051614, .229226361, -.024539052, .389319605,
				[refDim]float64{1, .344827586, 0, 0, 0, .666666667, .968187217, 1, .462117157}},
			{2.0625, 18, .245283272, 1.001268120, .087892771, .088004229, .610680395,
				[refDim]float64{1, .370370370, .969696970, 1, .946806013, .666666667, .062418747, 1, .462117157}},
		}, .550257107)
	same(t, "R2: affinity", out[1].Affinity, 0.748484848)
	same(t, "R2: switch cost", out[0].Switch, 0.225)
	same(t, "R2: weighted Beta", out[1].Beta, 0.025*0.30)
	same(t, "R2: mean", out[1].Mean, 0.310093359)
	same(t, "R2: noise", out[1].Noise, 0.25*-0.259240349)
	var y [refDim]float64
	a.model.whiten(&y, &out[1].X)
	same(t, "R2: variance", dot(y[:], y[:]), 3.135678871)
	if res, err = r.Feedback(after(2.6), id, Feedback{Latency: 600 * time.Millisecond, TokensOut: 48}); err != nil {
		t.Fatal(err)
	}
	same(t, "R2: result", res, Result{
		Arm: rank(202), Metric: 12.5, PerToken: true, Baseline: 25, After: 12.5, Reward: 0.666666667, Age: 600 * time.Millisecond,
	})
	trace, sum, sumB := 0.0, 0.0, 0.0
	for i, row := range full(a.model.a[:], refDim) {
		trace += row[i]
		sumB += a.model.b[i]
		for _, v := range row {
			sum += v
		}
	}
	same(t, "R2: trace, sum of A, sum of b", [3]float64{trace, sum, sumB}, [3]float64{19.514757359, 83.273294462, 7.099917055})
	same(t, "R2: b", a.model.b, [refDim]float64{
		1.164166667, .699186308, .646464646, .666666667, .837874062, .776111111, .521216219, 1.164166667, .624064709,
	})
	same(t, "R2: mean", a.model.mean, [refDim]float64{
		.119225463, .056283344, .093786193, .096717011, .074530360, .079483642, .027735722, .119225463, .058990810,
	})
	same(t, "R2: Beta", [2]float64{a.alpha, a.beta}, [2]float64{2.166666667, 1.833333333})
	averages := []average{r.global[perToken], a.all[perToken], a.byKind[Medium][Low][perToken], a.byKind[Medium][High][perToken]}
	same(t, "R2: averages", averages, []average{22.5, 22.5, 12.5, 25})

	id = decide("R3", 3, Request{PromptTokens: 500, Prefix: other, OSL: High, IAT: High}, loaded(.40, 1, .20, 1, 0), 1,
		[2]expectedChoice{
			{3.48828125, 0, .040401182, .100401182, .240628642, .024159400, .495498169,
				[refDim]float64{1, .344827586, 0, 0, 0, 1, .452851218, .4, 0}},
			{3.48828125, 6.1875, .242446296, .272446296, .154772557, .042167210, .504501831,
				[refDim]float64{1, .370370370, 0, 0, .550257107, 1, .452851218, .4, 0}},
		}, .550257107)
	failed := Feedback{Latency: 900 * time.Millisecond, Failed: true}
	if res, err = r.Feedback(after(4), id, failed); err != nil {
		t.Fatal(err)
	}
	same(t, "R3: result", res, Result{Arm: rank(202), Metric: 900, Baseline: 900, After: 900, Age: time.Second})
	same(t, "R3: Beta", [2]float64{a.alpha, a.beta}, [2]float64{2.166666667, 2.833333333})
	same(t, "R3: averages", []average{r.global[perToken], r.global[whole], a.all[whole]}, []average{22.5, unset, unset})
	if res, err = r.Feedback(after(4), id, failed); !errors.Is(err, ErrUnknown) || res != (Result{}) {
		t.Errorf("R3 again: %+v, %v; want an unknown decision", res, err)
	}
	if s := r.Stats(); s != (ReferenceStats{Arms: 2, Prefixes: 1}) {
		t.Errorf("at the end: %+v", s)
	}
}

func TestReferenceFormulas(t *testing.T) {
	r := newReference(t, nil)
	for _, c := range []struct {
		tokens  int
		overlap float64
		cost    float64
		bin     Level
	}{{500, 0, 0.48828125, Medium}, {2112, 128.0 / 132, 0.0625, Low}, {2048, 0, 2, High}, {768, 0, .75, High}, {256, 0, .25, Medium}} {
		got := r.prefillCost(&Request{PromptTokens: c.tokens}, &Arm{Overlap: c.overlap})
		same(t, "prefill cost", got, c.cost)
		if b := prefillBin(got); b != c.bin {
			t.Errorf("prefill cost %v: %v, want %v", got, b, c.bin)
		}
	}
	avg := average(22.5)
	avg.add(30, 0.2)
	same(t, "average", avg, average(24))

	for _, c := range []struct{ metric, baseline, want float64 }{
		{10, 20, 0.666666667}, {40, 20, 0.333333333}, {0.5, -1, 0.666666667}, {0, 20, 1}, {0, -1, 1},
	} {
		r := newReference(t, nil)
		r.global[perToken] = average(c.baseline)
		dec := r.Decide(start, scripted(), &Request{}, []Arm{{ID: rank(1)}}, make([]Choice, 1))
		res, err := r.Feedback(start, dec.ID, Feedback{Latency: time.Duration(c.metric * 1e7), TokensOut: 10})
		if err != nil {
			t.Fatal(err)
		}
		same(t, "reward", res.Reward, c.want)
	}
}

func TestReferenceTimeout(t *testing.T) {
	r := newReference(t, nil)
	arms, out := []Arm{{ID: rank(1)}}, make([]Choice, 1)
	decide := func(at float64) uint64 { return r.Decide(after(at), scripted(), &Request{}, arms, out).ID }
	id := decide(1000)
	decide(1100)
	decide(1114.9)
	if r.Stats().Timeouts != 0 {
		t.Fatal("timed out early")
	}
	decide(1119.8) // not due: the latest sweep is less than five seconds ago
	decide(1120)
	a := r.arms[rank(1)]
	if got := r.Stats().Timeouts; got != 1 || a.alpha != 1 || a.beta != 2 {
		t.Errorf("%d timeouts, Beta (%v, %v); want 1, (1, 2)", got, a.alpha, a.beta)
	}
	if _, err := r.Feedback(after(1121), id, Feedback{}); !errors.Is(err, ErrUnknown) {
		t.Errorf("feedback after the timeout: %v", err)
	}

	id = decide(2000)
	if n := r.sweep(after(2119.9)); n != 0 || r.pending.get(id) == none {
		t.Errorf("sweep: %d", n)
	}
	if n := r.sweep(after(2120)); n != 1 || r.pending.get(id) != none {
		t.Errorf("sweep without a request: %d", n)
	}
	if a.pending != 0 {
		t.Errorf("pending %d", a.pending)
	}
}

// TestReferenceClockBack sets the time back with a decision pending: those after it still
// time out, when they are due.
func TestReferenceClockBack(t *testing.T) {
	r := newReference(t, nil)
	arms, out := []Arm{{ID: rank(1)}}, make([]Choice, 1)
	decide := func(at float64) uint64 { return r.Decide(after(at), scripted(), &Request{}, arms, out).ID }
	ahead, id := decide(1000), decide(0)
	decide(110)
	if r.Stats().Timeouts != 0 {
		t.Error("timed out early")
	}
	young := decide(120)
	if r.Stats().Timeouts != 1 || r.pending.get(id) != none || r.pending.get(young) == none || r.pending.get(ahead) == none {
		t.Errorf("%+v, want the second decision to have timed out", r.Stats())
	}
	if n := r.sweep(after(1120)); n != 3 || r.Stats().Pending != 0 {
		t.Errorf("sweep: %d, %+v", n, r.Stats())
	}
}

func TestReferencePendingIsLoad(t *testing.T) {
	r := newReference(t, nil)
	d, _ := seeded(1)
	arms, out := []Arm{{ID: rank(1)}}, make([]Choice, 1)
	var first uint64
	for i := range 30 {
		dec := r.Decide(start, d, &Request{}, arms, out)
		if i == 0 {
			first = dec.ID
		}
		g, q := min(1, float64(i)/20), float64(i)
		same(t, "x2", out[0].X[1], 1/(1+g+1.5*q))
	}
	if !r.Drop(first) || r.Drop(first) {
		t.Error("a decision is dropped once")
	}
	r.Decide(start, d, &Request{}, arms, out)
	same(t, "after a drop", out[0].X[1], 1/(1+1+1.5*29))
	arms[0].Scraped, arms[0].Queue, arms[0].KVUsage = true, 40, .5
	r.Decide(start, d, &Request{}, arms, out)
	same(t, "scraped", out[0].X[1], 1/(1+.5+1.5*40))
	arms[0].Queue = 3
	r.Decide(start, d, &Request{}, arms, out)
	same(t, "pending beyond the queue", out[0].X[1], 1/(1+.5+1.5*31))
}

func TestReferencePreviousRankLeft(t *testing.T) {
	r := newReference(t, nil)
	d, _ := seeded(1)
	req := &Request{Prefix: NewPrefixID("", "s"), Budget: 2}
	out := make([]Choice, 2)
	r.Decide(start, d, req, []Arm{{ID: rank(1)}}, out)
	arms := []Arm{{ID: rank(2)}, {ID: rank(3)}}
	dec := r.Decide(start, d, req, arms, out)
	if !dec.Known || dec.Previous != rank(1) || out[0].Switch == 0 || out[1].Switch == 0 {
		t.Errorf("%+v, switch costs %v and %v", dec, out[0].Switch, out[1].Switch)
	}
	r.Forget(arms[dec.Chosen].ID)
	if _, err := r.Feedback(start, dec.ID, Feedback{}); !errors.Is(err, ErrUnknown) {
		t.Errorf("feedback for a forgotten rank: %v", err)
	}
	if dec = r.Decide(start, d, req, arms, out); dec.Known {
		t.Errorf("%+v, want no previous rank", dec)
	}
	checkSums(t, r)
}

// TestReferenceSampleIsExact compares cached factors and means with the formula, worked out
// from the precision each time.
func TestReferenceSampleIsExact(t *testing.T) {
	d, rnd := seeded(3)
	var m linearModel
	diagonal(m.a[:], refDim, 1)
	m.refresh()
	for step := range 2000 {
		var x [refDim]float64
		for i := range x {
			x[i] = rnd.Float64()
		}
		x[0] = 1
		z := make([]float64, refDim)
		for i := range z {
			z[i] = d.Norm()
		}
		mean, noise := m.sample(&Script{Norms: z}, 0.25, &x)
		wantMean, wantNoise := plainSample(&m, z, 0.25, x[:])
		if math.Abs(mean-wantMean) > 1e-9 || math.Abs(noise-wantNoise) > 1e-9 {
			t.Fatalf("step %d: got %v and %v, want %v and %v", step, mean, noise, wantMean, wantNoise)
		}
		m.learn(&x, rnd.Float64(), 0.995, 1)
	}
}

// plainSample is θ = μ + v·L⁻ᵀz, times x.
func plainSample(m *linearModel, z []float64, v float64, x []float64) (mean, noise float64) {
	a := full(m.a[:], refDim)
	l := make([][]float64, refDim)
	for i := range a {
		a[i][i] += 1e-9
		l[i] = make([]float64, refDim)
	}
	for i := range l {
		for j := range i + 1 {
			s := a[i][j]
			for k := range j {
				s -= l[i][k] * l[j][k]
			}
			if i == j {
				l[i][i] = math.Sqrt(s)
			} else {
				l[i][j] = s / l[j][j]
			}
		}
	}
	upper := make([][]float64, refDim)
	for i := range upper {
		upper[i] = make([]float64, refDim)
		for j := range l {
			upper[i][j] = l[j][i]
		}
	}
	return dot(solve(a, m.b[:]), x), v * dot(solve(upper, z), x)
}

func TestModelStaysPositiveDefinite(t *testing.T) {
	_, rnd := seeded(4)
	var m linearModel
	diagonal(m.a[:], refDim, 1)
	m.refresh()
	x := [refDim]float64{1}
	n := 1_000_000
	if raceDetector {
		n = 100_000
	}
	for range n {
		for i := 1; i < refDim; i++ {
			x[i] = rnd.Float64()
		}
		x[6] = x[5] // as collinear as features get
		m.learn(&x, 0.5, 0.995, 1)
		if m.whitening != nil {
			t.Fatal("no factor")
		}
	}
	values, _ := eigen(m.a[:], refDim)
	for _, v := range values {
		if v < 1-1e-6 || v > 200*refDim {
			t.Errorf("eigenvalue %v: want at least the ridge and at most what is remembered", v)
		}
	}
	for _, v := range m.mean {
		if !isNumber(v) {
			t.Errorf("mean %v", m.mean)
		}
	}
}

func TestModelWithoutFactor(t *testing.T) {
	var m linearModel
	diagonal(m.a[:], refDim, 1)
	m.a[size(2)+2] = -4 // no precision is negative
	m.a[size(1)] = 0.5
	for i := range m.b {
		m.b[i] = float64(i)
	}
	m.refresh()
	if m.whitening == nil {
		t.Fatal("a factor of what has none")
	}
	want := solve(full(m.a[:], refDim), m.b[:])
	if d := cmp.Diff(want, m.mean[:], near); d != "" {
		t.Errorf("mean (-want +got):\n%s", d)
	}
	x, y := [refDim]float64{3: 1}, [refDim]float64{}
	m.whiten(&y, &x)
	same(t, "variance where there is one", dot(y[:], y[:]), 1.0)
	x = [refDim]float64{2: 1}
	m.whiten(&y, &x)
	if v := dot(y[:], y[:]); math.Abs(v-1e10) > 1 {
		t.Errorf("variance %v, want that of the floor", v)
	}
}

func TestEigen(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		a := make([]float64, size(refDim))
		for i := range a {
			a[i] = r.NormFloat64()
		}
		values, vectors := eigen(a, refDim)
		m := full(a, refDim)
		for i, v := range vectors {
			for j, w := range vectors {
				want := 0.0
				if i == j {
					want = 1
				}
				if math.Abs(dot(v, w)-want) > 1e-9 {
					t.Fatalf("vectors %d and %d: product %v", i, j, dot(v, w))
				}
			}
			for k := range m {
				if math.Abs(dot(m[k], v)-values[i]*v[k]) > 1e-9 {
					t.Fatalf("vector %d is none", i)
				}
			}
		}
	}
}

func TestReferenceSets(t *testing.T) {
	type set struct{ Reuse, Floor, Switch, SwitchReuse, SwitchIAT, Queue, Forget float64 }
	for name, want := range map[string]set{
		SetConfigYAML: {0.08, 0.01, 0.10, 0.04, 0.03, 1.5, 0.995},
		SetBuiltIn:    {0.15, 0.01, 0.20, 0.08, 0.05, 0.5, 0.995},
		SetMissingKey: {0.15, 0.70, 0.20, 0.08, 0.05, 0.5, 0.995},
		SetLegacy:     {0.15, 0.70, 0.20, 0.08, 0.05, 0.5, 0.7},
	} {
		c, err := ReferenceSet(name)
		if err != nil {
			t.Fatal(err)
		}
		got := set{c.AffinityReuse, c.StickyLoadFloor, c.SwitchBase, c.SwitchReuse, c.SwitchIAT, c.QueueWeight, c.ForgetRate}
		if got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
		if _, err := NewReference(c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ReferenceSet("defaults"); err == nil {
		t.Error("no error for a set that is none")
	}
}

func TestReferenceConfig(t *testing.T) {
	c, err := ReferenceSet(SetConfigYAML)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range c.fields() {
		if err := c.Override(f.key, 0.125); err != nil || *f.value != 0.125 {
			t.Errorf("%s: %v, %v", f.key, *f.value, err)
		}
	}
	if err := c.Override("feedback.timeout_seconds", 1.5); err != nil || c.Timeout != 1500*time.Millisecond {
		t.Errorf("timeout %v, %v", c.Timeout, err)
	}
	for _, bad := range []string{"lints", "", "feedback.timeout"} {
		if err := c.Override(bad, 1); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}

	for _, cse := range []struct {
		key   string
		value float64
		want  string
	}{
		{"lints.forget_rate", 2, ""}, {"lints.forget_rate", -1, ""}, {"feedback.timeout_reward", 7, ""},
		{"lints.forget_rate", math.NaN(), "reference policy: lints.forget_rate: NaN: expected a number of at least 1e-06 and at most 0.999999"},
		{"lints.lambda", 0, "reference policy: lints.lambda: 0: expected a number above 0 and at most 1e+09"},
		{"affinity.base", -1, "reference policy: affinity.base: -1: expected a number of at least 0 and at most 1e+09"},
		{"affinity.sticky_load_floor", 1.5, "reference policy: affinity.sticky_load_floor: 1.5: expected a number of at least 0 and at most 1"},
		{"exploration.temperature.min", 3, "reference policy: exploration.temperature: min 3 is above max 2"},
		{"feedback.timeout_seconds", 0, "reference policy: feedback.timeout_seconds: 0: expected more than 0"},
		{"prefill.token_scale", math.Inf(1), "reference policy: prefill.token_scale: +Inf: expected a number above 0 and at most 1e+09"},
	} {
		c, _ := ReferenceSet(SetConfigYAML)
		if err := c.Override(cse.key, cse.value); err != nil {
			t.Fatal(err)
		}
		r, err := NewReference(c)
		if got := message(err); got != cse.want {
			t.Errorf("%s = %v: got %q, want %q", cse.key, cse.value, got, cse.want)
		}
		if err == nil && (r.cfg.ForgetRate < 1e-6 || r.cfg.ForgetRate > 0.999999 || r.cfg.TimeoutReward > 1) {
			t.Errorf("%s = %v: not clamped", cse.key, cse.value)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestReferenceNobodyThere(t *testing.T) {
	r := newReference(t, nil)
	if dec := r.Decide(start, scripted(), &Request{}, nil, nil); dec != (Decision{Chosen: -1}) {
		t.Errorf("%+v", dec)
	}
	if _, err := r.Feedback(start, 0, Feedback{}); !errors.Is(err, ErrUnknown) {
		t.Errorf("feedback for nothing: %v", err)
	}
}

func TestReferenceForgetsRanksThatLeft(t *testing.T) {
	r := newReference(t, nil)
	d, _ := seeded(1)
	out := make([]Choice, 2)
	both := []Arm{{ID: rank(1)}, {ID: rank(2)}}
	r.Decide(start, d, &Request{}, both, out)
	if r.sweep(after(48 * 3600)); r.Stats().Arms != 2 {
		t.Errorf("%d ranks after two quiet days, want 2", r.Stats().Arms)
	}
	r.Decide(after(48*3600), d, &Request{}, both[:1], out)
	if r.sweep(after(48*3600 + 1)); r.Stats().Arms != 1 {
		t.Errorf("%d ranks, want 1", r.Stats().Arms)
	}
}

// A rank that leaves takes its conversations with it, and nothing else.
func TestReferenceLeave(t *testing.T) {
	r := newReference(t, nil)
	d, _ := seeded(1)
	out := make([]Choice, 2)
	at := make(map[kv.Source]int)
	arms := []Arm{{ID: rank(1)}, {ID: rank(2)}}
	for i := range 20 {
		dec := r.Decide(start, d, &Request{Prefix: PrefixID{1, byte(i)}, Budget: 3, TTL: time.Hour}, arms, out)
		at[arms[dec.Chosen].ID]++
		if i%2 == 0 {
			if _, err := r.Feedback(start, dec.ID, Feedback{Latency: time.Second}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if at[rank(1)] == 0 || at[rank(2)] == 0 {
		t.Fatalf("decided for %v", at)
	}
	before, _ := r.Learned(rank(2))
	st := r.Stats()
	r.Leave(rank(2))
	r.Leave(rank(3)) // which there is not
	want := before
	want.Outstanding = 0
	if got, ok := r.Learned(rank(2)); !ok || got != want {
		t.Errorf("learned %+v, want %+v", got, want)
	}
	st.Prefixes = at[rank(1)]
	if got := r.Stats(); got != st {
		t.Errorf("%+v, want %+v", got, st)
	}
}

// What is expected of a conversation is what its latest request said, for as long as it is
// remembered.
func TestReferenceExpects(t *testing.T) {
	r := newReference(t, nil)
	d, _ := seeded(1)
	arms, out, id := []Arm{{ID: rank(1)}}, make([]Choice, 1), NewPrefixID("", "s")
	expects := func(at float64, budget int, ttl time.Duration) {
		t.Helper()
		if b, got := r.Expects(after(at), id); b != budget || got != ttl {
			t.Errorf("after %v s: %d for %v, want %d for %v", at, b, got, budget, ttl)
		}
	}
	expects(0, 0, 0)
	r.Decide(start, d, &Request{Prefix: id, Budget: 3, TTL: 2 * time.Minute}, arms, out)
	expects(119, 3, 2*time.Minute)
	expects(120, 0, 0)
	r.Decide(after(200), d, &Request{Prefix: id, Budget: 2, TTL: 2 * time.Minute}, arms, out)
	expects(201, 2, 2*time.Minute)
	r.Decide(after(202), d, &Request{Prefix: id, TTL: 2 * time.Minute}, arms, out)
	expects(202, 0, 0)
	expects(0, 0, 0)
}

// Between two sweeps there is the configured time, whoever asks.
func TestReferenceTick(t *testing.T) {
	r := newReference(t, func(c *ReferenceConfig) { c.Timeout, c.SweepInterval = time.Second, 5*time.Second })
	d, _ := seeded(1)
	r.Decide(start, d, &Request{}, []Arm{{ID: rank(1)}}, make([]Choice, 1))
	for _, c := range []struct {
		at   float64
		want uint64
	}{{1, 0}, {4.999, 0}, {5, 1}, {6, 1}, {20, 1}} {
		if r.Tick(after(c.at)); r.Stats().Timeouts != c.want {
			t.Errorf("after %v s: %d timeouts, want %d", c.at, r.Stats().Timeouts, c.want)
		}
	}
}
