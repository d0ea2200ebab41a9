package policyeval

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stator-ai/stator/internal/trace"
	"github.com/stator-ai/stator/nvext"
)

func policies(t *testing.T, names ...string) []*Policy {
	t.Helper()
	var out []*Policy
	for _, name := range names {
		p, err := ParsePolicy(name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

// TestEvaluateCovers has a policy with some chance recorded, and looks how often what is
// said about others holds what they really bring.
func TestEvaluateCovers(t *testing.T) {
	const seeds, rows = 100, 1200
	targets := policies(t, "cost", "random", "least-loaded", "cost:overlap_score_credit=2,prefill_load_scale=4")
	truths := newWorld(1000, 0.6).truth(append(policies(t, "logged"), targets...))
	logged, truths := truths[0], truths[1:]
	if !(truths[1] < logged && logged < truths[0]) {
		t.Fatalf("random %v, recorded %v, cost %v: the world is not what it should be", truths[1], logged, truths[0])
	}
	covered := make([]int, len(targets))
	errs := make([][2]float64, len(targets)) // of DR and of IPS
	verdicts := make(map[string]int)
	for seed := range uint64(seeds) {
		l := newWorld(seed, 0.6).log(rows, Options{})
		r, err := l.Evaluate(targets, Config{})
		if err != nil {
			t.Fatal(err)
		}
		for k := range targets {
			p := &r.Policies[k]
			if float64(p.Value.Low) <= truths[k] && truths[k] <= float64(p.Value.High) {
				covered[k]++
			}
			dr, ips := float64(p.Value.Value)-truths[k], float64(p.IPS.Value)-truths[k]
			errs[k][0] += dr * dr
			errs[k][1] += ips * ips
			if p.misfit {
				t.Errorf("seed %d: %s: weights of %v do not fit %v", seed, p.Policy, p.MeanWeight, p.Support)
			}
			verdicts[p.Policy+" "+string(p.Verdict)]++
		}
	}
	for k, p := range targets {
		dr, ips := math.Sqrt(errs[k][0]/seeds), math.Sqrt(errs[k][1]/seeds)
		t.Logf("%s: truth %.4f, held by %d of %d intervals; error of DR %.4f, of IPS %.4f", p, truths[k], covered[k], seeds, dr, ips)
		if covered[k] < 90 {
			t.Errorf("%s: %d of %d intervals hold %.4f", p, covered[k], seeds, truths[k])
		}
		if !(dr < ips/2) {
			t.Errorf("%s: error of DR %.4f, of IPS %.4f: expected less than half", p, dr, ips)
		}
	}
	if verdicts["cost better"] < 90 || verdicts["random worse"] < 90 {
		t.Errorf("verdicts %v: expected that cost is better and random worse", verdicts)
	}
}

// TestEvaluateLogged sees the recorded policy by its own rows.
func TestEvaluateLogged(t *testing.T) {
	for i, m := range Metrics {
		// A bound makes no difference: no choice is less likely than it was.
		r, err := newWorld(3, 0.6).log(500, Options{Metric: m}).Evaluate(policies(t, "logged"), Config{MaxWeight: float64(i)})
		if err != nil {
			t.Fatal(err)
		}
		p := &r.Policies[0]
		if math.Abs(float64(p.IPS.Value/r.Value.Value)-1) > 1e-9 || p.EffectiveSamples != 500 || p.Support < 1-1e-9 || r.Chance != 500 {
			t.Errorf("%s: %+v, recorded %+v", m, p, r.Value)
		}
		if p.Change != (Interval{}) || p.Verdict != Same || len(r.Warnings) != 1 {
			t.Errorf("%s: change %+v, %s, %q", m, p.Change, p.Verdict, r.Warnings)
		}
	}
}

// TestEvaluateSame has a policy that is the recorded one by another name, and computes again
// what was recorded in fewer digits; and one that is nearly so.
func TestEvaluateSame(t *testing.T) {
	w := newWorld(3, 0.6)
	for _, test := range []struct {
		digits, temperature string
		want                bool
	}{{"%.8f", "0.6", true}, {"%.3f", "0.6", false}, {"%.8f", "0.61", false}} {
		l := NewLog(Options{})
		for range 300 {
			row := w.row()
			cands := row.Attempts[0].Routing.Candidates
			last := nvext.Float(1) // so that they still sum to 1
			for i := range cands[:4] {
				p := last
				if i < 3 {
					text := fmt.Sprintf(test.digits, *cands[i].Propensity)
					v, err := strconv.ParseFloat(text, 64)
					if err != nil {
						t.Fatal(err)
					}
					p = nvext.Float(v)
				}
				cands[i].Propensity = &p
				last -= p
			}
			l.Add(row)
		}
		for _, resamples := range []int{0, 100} {
			r, err := l.Evaluate(policies(t, "cost:router_temperature="+test.temperature), Config{Resamples: resamples})
			if err != nil {
				t.Fatal(err)
			}
			p := &r.Policies[0]
			if same := p.Verdict == Same && p.Change == (Interval{}); same != test.want {
				t.Errorf("digits %s, temperature %s: %s, change %+v", test.digits, test.temperature, p.Verdict, p.Change)
			}
		}
	}
}

// TestEvaluateChange looks how often the change holds the true one, and that it says more
// than the two values apart.
func TestEvaluateChange(t *testing.T) {
	const seeds, rows = 100, 600
	targets := policies(t, "cost", "random", "cost:router_temperature=0.5")
	truths := newWorld(1000, 0.6).truth(append(policies(t, "logged"), targets...))
	covered := make([]int, len(targets))
	var width, apart float64 // of the last, which is not far from the recorded one
	for seed := range uint64(seeds) {
		r, err := newWorld(seed, 0.6).log(rows, Options{}).Evaluate(targets, Config{})
		if err != nil {
			t.Fatal(err)
		}
		for k := range targets {
			change := r.Policies[k].Change
			if want := number(truths[k+1] - truths[0]); change.Low <= want && want <= change.High {
				covered[k]++
			}
			width, apart = float64(change.High-change.Low), float64(r.Policies[k].Value.High-r.Policies[k].Value.Low)
		}
	}
	for k, p := range targets {
		if covered[k] < 88 {
			t.Errorf("%s: %d of %d intervals hold a change of %.4f", p, covered[k], seeds, truths[k+1]-truths[0])
		}
	}
	if !(width < apart/5) {
		t.Errorf("the change has an interval of %.4f, and the value one of %.4f", width, apart)
	}
}

// TestEvaluateTimes compares by times, where less is better.
func TestEvaluateTimes(t *testing.T) {
	l := newWorld(5, 0.6).log(2000, Options{Metric: MetricTTFT})
	r, err := l.Evaluate(policies(t, "cost", "random", "logged"), Config{Resamples: 200, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	cost, random, logged := &r.Policies[0], &r.Policies[1], &r.Policies[2]
	if cost.Verdict != Better || random.Verdict != Worse || !(cost.Change.High < 0 && random.Change.Low > 0) {
		t.Errorf("cost %+v, random %+v", cost, random)
	}
	for _, p := range r.Policies[:2] {
		if !(p.Value.Low < p.Value.Value && p.Value.Value < p.Value.High) || !(p.Change.Low < p.Change.Value && p.Change.Value < p.Change.High) {
			t.Errorf("%s: %+v, %+v: out of order", p.Policy, p.Value, p.Change)
		}
		// A change is the ratio of the means, both estimated alike.
		if got, want := float64(p.Change.Value), float64(p.Value.Value/logged.Value.Value)-1; math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: change %v, want %v", p.Policy, got, want)
		}
	}
	// The mean is geometric.
	sum := 0.0
	for i := range l.decisions {
		sum += math.Log(l.decisions[i].value)
	}
	if want := math.Exp(sum / 2000); math.Abs(float64(r.Value.Value)-want) > 1e-9*want {
		t.Errorf("mean of %v, want %v", r.Value.Value, want)
	}
	// The same seed gives the same intervals.
	again, err := l.Evaluate(policies(t, "cost", "random", "logged"), Config{Resamples: 200, Seed: 1})
	if err != nil || again.String() != r.String() {
		t.Errorf("%v\n%v\nthen\n%v", err, r, again)
	}
	other, err := l.Evaluate(policies(t, "cost", "random"), Config{Resamples: 200, Seed: 2})
	if err != nil || other.Policies[0].Value == r.Policies[0].Value {
		t.Errorf("%v, %v: another seed changes nothing", err, other.Policies[0].Value)
	}
}

// TestEvaluateWarns has logs that do not say enough.
func TestEvaluateWarns(t *testing.T) {
	certain := newWorld(1, 0).log(300, Options{})
	liar := newWorld(1, 0)
	liar.lies = true
	failures := newWorld(1, 0.6)
	failing := failures.log(200, Options{})
	for i := range 40 {
		row := failures.row()
		if i%2 == 0 {
			row.Outcome = trace.OutcomeError
		} else {
			row.Attempts = append(row.Attempts, row.Attempts[0])
		}
		failing.Add(row)
	}
	for range 100 { // of which no policy knows, and none could have done better
		row := failures.row()
		row.Outcome, row.Status, row.Attempts = trace.OutcomeRefused, 400, nil
		failing.Add(row)
	}
	for range 10 { // placed and answered, although not to be compared
		row := failures.row()
		row.TTFTMS = nil
		failing.Add(row)
	}
	for _, test := range []struct {
		name    string
		log     *Log
		policy  string
		cfg     Config
		verdict Verdict
		want    []string
	}{
		{"nothing but the recorded choices", certain, "cost", Config{}, Same, []string{"the recorded policy left nothing to chance"}},
		{"nothing to chance", certain, "random", Config{}, Untrusted, []string{
			"the recorded policy left nothing to chance", "random: the recorded policy makes 75.0 % of its choices never, or too rarely to tell"}},
		{"few rows", newWorld(1, 0.6).log(40, Options{}), "random", Config{}, Untrusted, []string{"random: 27 effective samples, of at least 200"}},
		{"wrong probabilities", liar.log(1000, Options{}), "cost", Config{}, Untrusted, []string{
			"cost: weights of 3.998 on average, where 1.000 is expected: the recorded probabilities are not those of the choices"}},
		{"bounded", newWorld(1, 0.6).log(1000, Options{}), "random", Config{MaxWeight: 1}, Untrusted, []string{
			"random: the recorded policy makes 26.5 % of its choices never, or too rarely to tell"}},
		{"failures", failing, "logged", Config{}, Same, []string{"16.0 % of requests that were to be placed were not completed, or placed more than once"}},
	} {
		r, err := test.log.Evaluate(policies(t, test.policy), test.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if v := r.Policies[0].Verdict; v != test.verdict {
			t.Errorf("%s: %s, want %s", test.name, v, test.verdict)
		}
		want := append([]string{oneStep}, test.want...)
		if !slices.EqualFunc(r.Warnings, want, strings.HasPrefix) {
			t.Errorf("%s: warnings\n%s\nwant such that begin\n%s", test.name, strings.Join(r.Warnings, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestEvaluateRefuses(t *testing.T) {
	empty := NewLog(Options{})
	if _, err := empty.Evaluate(policies(t, "cost"), Config{}); !errors.Is(err, ErrEmpty) {
		t.Errorf("got %v", err)
	}
	row := newWorld(1, 0).row()
	row.Outcome = "cancelled"
	empty.Add(row)
	if _, err := empty.Evaluate(policies(t, "cost"), Config{}); !errors.Is(err, ErrEmpty) || err.Error() != "no decisions to evaluate: 1 row left out: not completed" {
		t.Errorf("got %v", err)
	}
	l := newWorld(1, 0).log(10, Options{})
	if _, err := l.Evaluate(policies(t, "cost", "thompson"), Config{}); err == nil || err.Error() != "policy thompson: no row holds what it goes by" {
		t.Errorf("got %v", err)
	}
	if _, err := l.Evaluate(nil, Config{}); err == nil {
		t.Error("no policies, no error")
	}
}

// TestReportVisible has a trace with names that are no names.
func TestReportVisible(t *testing.T) {
	w := newWorld(1, 0.6)
	l := w.log(3, Options{})
	add := func(policy string, rows int) {
		for range rows {
			row := w.row()
			row.Attempts[0].Routing.Policy = policy
			l.Add(row)
		}
	}
	add("\x1b]0;pwn\a\u009b31m\nnext", 2)
	add(strings.Repeat("é", 1000), 2)
	for i := range 50 {
		add(fmt.Sprintf("p%02d", i), 1)
	}
	r, err := l.Evaluate(policies(t, "logged"), Config{})
	if err != nil {
		t.Fatal(err)
	}
	want := "57 decisions, in 57 chance had a part; recorded: cost 3, " + strings.Repeat("é", 64) + "… 2, \uFFFD]0;pwn\uFFFD\uFFFD31m next 2, p00 1, p01 1, 48 more 48"
	if got, _, _ := strings.Cut(r.String(), "\n"); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for name := range r.Recorded {
		if strings.ContainsFunc(name, unicode.IsControl) {
			t.Errorf("%q is recorded", name)
		}
	}
}

// TestEvaluateSameRows leaves out what one of the policies cannot be seen in.
func TestEvaluateSameRows(t *testing.T) {
	w := newWorld(1, 0)
	l := w.log(5, Options{})
	learned := w.row()
	rec := learned.Attempts[0].Routing
	rec.Policy, rec.Reason = "thompson", nvext.ReasonThompson
	for i := range rec.Candidates[:4] {
		rec.Candidates[i].Propensity = new(nvext.Float(0.25))
	}
	l.Add(learned)
	single := w.row()
	rec = single.Attempts[0].Routing
	rec.Candidates, rec.Considered = []nvext.Candidate{rec.Chosen}, 1
	l.Add(single)
	r, err := l.Evaluate(policies(t, "thompson", "cost"), Config{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Rows != 2 || r.Skipped[NotForPolicy] != 5 || l.Skipped().Rows() != 0 || r.Recorded["cost"] != 6 || r.Recorded["thompson"] != 1 {
		t.Errorf("%+v", r)
	}
}
