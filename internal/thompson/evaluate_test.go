package thompson

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// baselineRows are four decisions, seen by a policy that always follows the baseline.
var baselineRows = []LoggedRow{
	{P: .8, Reward: .7, Target: 1, Predicted: .65, TargetPredicted: .65, LoggedPredicted: .6},
	{P: .1, Reward: .4, Target: 0, Predicted: .45, TargetPredicted: .6, LoggedPredicted: .61},
	{P: .5, Reward: .6, Target: 1, Predicted: .55, TargetPredicted: .55, LoggedPredicted: .5},
	{P: .9, Reward: .5, Target: 1, Predicted: .5, TargetPredicted: .5, LoggedPredicted: .49},
}

func TestEvaluateExample(t *testing.T) {
	e, err := Evaluate(baselineRows, EvaluateConfig{})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "IPS, SNIPS, DR", [3]float64{e.IPS.Value, e.SNIPS.Value, e.DR.Value}, [3]float64{.657638889, .603184713, .615625})
	// The recorded policy's own terms of DR are .65, .56, .55 and .49.
	same(t, "logged, gain", [2]float64{e.Logged.Value, e.Gain.Value}, [2]float64{.55, .615625 - .5625})
	weights := 1.25 + 2 + 1/.9
	same(t, "weights", [2]float64{e.MeanWeight, e.EffectiveSamples},
		[2]float64{weights / 4, weights * weights / (1.25*1.25 + 4 + 1/.81)})
	// Terms of DR are .7125, .6, .65 and .5.
	half := 1.959963984540054 * math.Sqrt((.096875*.096875+.015625*.015625+.034375*.034375+.115625*.115625)/3/4)
	same(t, "interval of DR", e.DR, Interval{.615625, .615625 - half, .615625 + half, .615625 - half, .615625 + half})
}

// TestEvaluateItself has a target that is the recorded policy: there is nothing between
// them, however far the model is off and wherever weights are bounded.
func TestEvaluateItself(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	rows := make([]LoggedRow, 1000)
	for i := range rows {
		p, predicted := 1e-3+.999*rnd.Float64(), rnd.Float64()
		rows[i] = LoggedRow{P: p, Target: p, Reward: .4 + .01*rnd.Float64(), Predicted: rnd.Float64(), TargetPredicted: predicted, LoggedPredicted: predicted}
	}
	for _, limit := range []float64{0, 1.5} {
		e, err := Evaluate(rows, EvaluateConfig{MaxWeight: limit, Resamples: 20, Rand: rnd})
		if err != nil {
			t.Fatal(err)
		}
		if e.Gain != (Interval{}) {
			t.Errorf("bounded by %v: gain %+v, want exactly 0", limit, e.Gain)
		}
	}
}

func TestEvaluateClips(t *testing.T) {
	rows := []LoggedRow{{P: .001, Reward: 1, Target: 1}, {P: .02, Reward: 1, Target: 1}, {P: .001, Reward: 1}}
	e, err := Evaluate(rows, EvaluateConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(e.IPS.Value-100.0/3) > 1e-9 {
		t.Errorf("IPS %v; want 33.3", e.IPS.Value)
	}
	if e, err = Evaluate(rows, EvaluateConfig{MaxWeight: 2}); err != nil || math.Abs(e.IPS.Value-4.0/3) > 1e-9 {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestEvaluateRefuses(t *testing.T) {
	for want, rows := range map[string][]LoggedRow{
		"no rows to evaluate": nil,
		"row 1: probability 0: expected above 0 and at most 1":                         {{P: 1}, {}},
		"row 0: probability 1.5: expected above 0 and at most 1":                       {{P: 1.5}},
		"row 0: target probability NaN: expected from 0 to 1":                          {{P: 1, Target: math.NaN()}},
		"row 0: reward +Inf: expected a finite number":                                 {{P: 1, Reward: math.Inf(1)}},
		"row 0: predicted reward NaN: expected a finite number":                        {{P: 1, Predicted: math.NaN()}},
		"row 0: predicted reward of the recorded policy NaN: expected a finite number": {{P: 1, LoggedPredicted: math.NaN()}},
	} {
		if _, err := Evaluate(rows, EvaluateConfig{}); message(err) != want {
			t.Errorf("got %q, want %q", message(err), want)
		}
	}
}

// TestEvaluateNothingInCommon has a target that never does what was recorded.
func TestEvaluateNothingInCommon(t *testing.T) {
	e, err := Evaluate([]LoggedRow{{P: .5, Reward: 1, TargetPredicted: .3}, {P: .5, TargetPredicted: .3}}, EvaluateConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if e.EffectiveSamples != 0 || e.IPS.Value != 0 || e.DR.Value != .3 || !math.IsInf(e.SNIPS.High, 1) {
		t.Errorf("%+v", e)
	}
}

// TestEvaluateCovers draws decisions from a policy among three actions, and looks how often
// the intervals hold what another one would have brought.
func TestEvaluateCovers(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	logging, target := [3]float64{.6, .3, .1}, [3]float64{.1, .3, .6}
	mean, model := [3]float64{.2, .5, .7}, [3]float64{.3, .4, .6} // the model is wrong
	want, predicted, logged, loggedPredicted := 0.0, 0.0, 0.0, 0.0
	for a := range mean {
		want += target[a] * mean[a]
		predicted += target[a] * model[a]
		logged += logging[a] * mean[a]
		loggedPredicted += logging[a] * model[a]
	}
	const runs = 300
	var held [6]int
	width := [2]float64{}
	for range runs {
		rows := make([]LoggedRow, 400)
		for i := range rows {
			a, u := 0, rnd.Float64()
			for u >= logging[a] && a < 2 {
				u -= logging[a]
				a++
			}
			reward := 0.0
			if rnd.Float64() < mean[a] {
				reward = 1
			}
			rows[i] = LoggedRow{
				P: logging[a], Reward: reward, Target: target[a],
				Predicted: model[a], TargetPredicted: predicted, LoggedPredicted: loggedPredicted,
			}
		}
		e, err := Evaluate(rows, EvaluateConfig{Resamples: 200, Rand: rnd})
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(e.MeanWeight-1) > .5 {
			t.Errorf("mean weight %v", e.MeanWeight)
		}
		for i, h := range []bool{
			e.IPS.Low <= want && want <= e.IPS.High,
			e.SNIPS.Low <= want && want <= e.SNIPS.High,
			e.DR.Low <= want && want <= e.DR.High,
			e.DR.BootstrapLow <= want && want <= e.DR.BootstrapHigh,
			e.Logged.Low <= logged && logged <= e.Logged.High,
			e.Gain.Low <= want-logged && want-logged <= e.Gain.High,
		} {
			if h {
				held[i]++
			}
		}
		width[0] += e.IPS.High - e.IPS.Low
		width[1] += e.DR.High - e.DR.Low
	}
	for i, n := range held {
		if n < runs*90/100 || n > runs*99/100 {
			t.Errorf("interval %d held the truth %d times of %d, want about 95 %%", i, n, runs)
		}
	}
	if width[1] >= width[0] {
		t.Errorf("DR's intervals are %v wide and IPS's %v: the model is of no use", width[1]/runs, width[0]/runs)
	}
}

func TestReward(t *testing.T) {
	for _, c := range []struct {
		kve       float64
		ttft, itl time.Duration
		want      float64
	}{
		{1, 0, 0, 1},
		{0, 500 * time.Millisecond, 50 * time.Millisecond, .3},
		{.5, 250 * time.Millisecond, 10 * time.Millisecond, .2 + .4/1.5 + .2/1.2},
		{math.NaN(), -1, -1, .6},
	} {
		same(t, "reward", Reward(c.kve, c.ttft, c.itl), c.want)
	}
}
