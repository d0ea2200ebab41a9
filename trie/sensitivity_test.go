package trie

import (
	"math"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func callsOf(spans ...[2]float64) []call {
	var calls []call
	for _, s := range spans {
		calls = append(calls, call{start: s[0], end: s[1], dur: s[1] - s[0]})
	}
	return calls
}

func TestB8(t *testing.T) {
	for _, c := range []struct {
		name  string
		spans [][2]float64
		want  []int
		sizes []int
	}{
		{"one inside of which all are", [][2]float64{{1, 3}, {4, 6}, {0, 10}}, []int{0, 0, 0}, []int{3}},
		{"one after the other", [][2]float64{{0, 1}, {2, 3}, {4, 5}}, []int{0, 1, 2}, []int{1, 1, 1}},
		{"two and two", [][2]float64{{1, 4}, {0, 5}, {11, 14}, {10, 15}}, []int{0, 0, 1, 1}, []int{2, 2}},
		{"touching", [][2]float64{{0, 1}, {1, 2}}, []int{0, 1}, []int{1, 1}},
		{"none", nil, []int{}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, sizes := positions(callsOf(c.spans...))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("positions (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.sizes, sizes); diff != "" {
				t.Errorf("sizes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLevel(t *testing.T) {
	for score, want := range map[float64]int{
		0: 1, .125: 1, .126: 2, .25: 2, .375: 3, .5: 3, .625: 3, .75: 4, .875: 5, 1: 5,
	} {
		if got := level(score, 5); got != want {
			t.Errorf("level(%v) = %d, want %d", score, got, want)
		}
	}
	for _, scale := range []int{1, 2, 1000} {
		if lo, hi := level(0, scale), level(1, scale); lo != 1 || hi != scale {
			t.Errorf("scale %d: levels from %d to %d", scale, lo, hi)
		}
	}
}

// fanOut is a workflow that classifies, asks four specialists at once, drafts and reviews.
func fanOut() []Step {
	call := func(name string, start, end float64) []Step {
		return llm(name, Invocation{"id-" + name, name, "w", "wf"}, start, end, 10)
	}
	return steps(
		call("classify", 0, 0.2),
		call("research", 0.204, 9.204), call("policy", 0.205, 10.205),
		call("compliance", 0.206, 9.606), call("sentiment", 0.207, 9.507),
		call("draft", 10.21, 19.71), call("review", 19.72, 20.52),
	)
}

func TestFanOut(t *testing.T) {
	names := []string{"classify", "research", "sentiment", "compliance", "policy", "draft", "review"} // by their ends
	for _, c := range []struct {
		name    string
		weights Weights
		scores  []float64
		levels  []int
	}{
		{"tuned", TunedWeights(), []float64{1, 0, .020140, .026853, .067133, .574758, .449890}, []int{5, 1, 1, 1, 1, 3, 3}},
		{"default", DefaultWeights(), []float64{.798255, .931843, .952290, .959106, 1, .686205, 0}, []int{4, 5, 5, 5, 5, 4, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, Options{Sensitivity: &c.weights}, func(t *testing.T, o Options) {
				b := NewBuilder(o)
				run := fanOut()
				b.order(run)
				b.collect(nil)
				var slack []float64
				if o.Sensitivity.Parallel > 0 {
					slack = new(slackFinder).find(b.steps, b.run, b.invocations(), o.Compat)
				}
				o.Sensitivity.rate(b.run, 20.52, slack, o.Compat)
				var scores []float64
				for _, c := range b.run {
					scores = append(scores, c.score)
				}
				// Those of the vector are without function spans, in which all calls that run at
				// once are of another place.
				if diff := cmp.Diff(c.scores, scores, near); diff != "" {
					t.Errorf("scores (-want +got):\n%s", diff)
				}

				tr := build(o, run)
				for i, name := range names {
					p, _ := tr.Find([]string{"wf", name}, 1)
					if got := *p.LatencySensitivity; got != c.levels[i] {
						t.Errorf("%s: level %d, want %d", name, got, c.levels[i])
					}
					if got := p.RemainingCalls.Mean; got != float64(6-i) {
						t.Errorf("%s: %v remaining, want %d", name, got, 6-i)
					}
					next := []float64{4, 1006, 703, 604, 5, 10, 0}[i]
					if got := p.InterArrivalMS.Mean; math.Abs(got-next) > 1e-6 {
						t.Errorf("%s: next after %v ms, want %v", name, got, next)
					}
				}
			})
		})
	}
}

// slackOf returns the slack of the run's calls.
func slackOf(run []Step, compat bool) []float64 {
	b := NewBuilder(Options{Sensitivity: new(TunedWeights()), Compat: compat})
	b.order(run)
	known := b.invocations()
	b.collect(known)
	return new(slackFinder).find(b.steps, b.run, known, compat)
}

func thing(start, end EventType, uuid, parent string, from, to float64) []Step {
	return []Step{
		{Type: start, Time: from, UUID: uuid, ParentID: parent},
		{Type: end, Time: to, UUID: uuid, ParentID: parent},
	}
}

func TestB5(t *testing.T) {
	f := Invocation{ID: "F", Name: "agent"}
	for _, c := range []struct {
		name string
		run  []Step
		want float64
	}{
		{"1 s beside 5 s", steps(llm("l", f, 0, 1, 1), thing(ToolStart, ToolEnd, "t", "F", 0, 5)), 0.8},
		{"the longest", steps(llm("l", f, 0, 10, 1), thing(ToolStart, ToolEnd, "t", "F", 0, 5)), 0},
		{"one after the other", steps(llm("l", f, 0, 1, 1), thing(ToolStart, ToolEnd, "t", "F", 1, 6)), 0},
		{"begins when the other ends", steps(llm("l", f, 5, 6, 1), thing(ToolStart, ToolEnd, "t", "F", 0, 5)), 0},
		{"begins later", steps(llm("l", f, 0, 1, 1), thing(ToolStart, ToolEnd, "t", "F", 0.5, 5.5)), 0.8},
		{"ends sooner", steps(llm("l", f, 4, 6, 1), thing(SpanStart, SpanEnd, "t", "F", 1, 5)), 0.5},
		{"of several the longest", steps(llm("l", f, 0, 1, 1), thing(ToolStart, ToolEnd, "t", "F", 0, 2), thing(ToolStart, ToolEnd, "u", "F", 0, 4)), 0.75},
		{"somewhere else", steps(llm("l", f, 0, 1, 1), thing(ToolStart, ToolEnd, "t", "G", 0, 5)), 0},
		{"without an end", steps(llm("l", f, 0, 1, 1), thing(ToolStart, ToolEnd, "t", "F", 0, 5)[:1]), 0},
		{"alone", llm("l", f, 0, 1, 1), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, compat := range []bool{false, true} {
				if got := slackOf(c.run, compat); len(got) != 1 || math.Abs(got[0]-c.want) > 1e-12 {
					t.Errorf("compat=%v: slack = %v, want %v", compat, got, c.want)
				}
			}
		})
	}
	t.Run("weight 0", func(t *testing.T) {
		// Without a weight the 5 s beside it change nothing.
		f := Invocation{ID: "F", Name: "agent"}
		calls := steps(llm("l", f, 0, 1, 1), llm("m", f, 5, 7, 1), thing(ToolStart, ToolEnd, "x", "G", 0, 7))
		beside := steps(calls, thing(ToolStart, ToolEnd, "t", "F", 0, 5))
		for weight, same := range map[float64]bool{0: true, 0.3: false} {
			w := DefaultWeights()
			w.Scale, w.Parallel = 1000, weight
			third := llm("n", f, 1, 5, 1)
			a := build(Options{Sensitivity: &w}, steps(calls, third))
			b := build(Options{Sensitivity: &w}, steps(beside, third))
			if got := cmp.Equal(a, b, plain); got != same {
				t.Errorf("weight %v: equal = %v, want %v", weight, got, same)
			}
		}
	})
}

// The function that a call is made in runs beside it only for NeMo Agent Toolkit.
func TestSlackWithoutAncestors(t *testing.T) {
	f := Invocation{ID: "F", Name: "agent", ParentID: "W", ParentName: "wf"}
	function := thing(FunctionStart, FunctionEnd, "F", "W", 0, 10)
	call := llm("l", f, 0, 2, 1)
	for _, c := range []struct {
		name         string
		run          []Step
		want, compat float64
	}{
		{"alone in its function", steps(function, call), 0, 0.8},
		{"beside another function", steps(function, call, thing(FunctionStart, FunctionEnd, "G", "W", 1, 6)), 0.6, 0.8},
		{"beside a tool in its function", steps(function, call, thing(ToolStart, ToolEnd, "t", "F", 0, 4)), 0.5, 0.8},
		{"in a span of its function", steps(function,
			thing(SpanStart, SpanEnd, "S", "F", 0, 9),
			[]Step{
				{Type: LLMStart, Time: 0, UUID: "l", ParentID: "S", Function: f},
				{Type: LLMEnd, Time: 2, Began: new(0.0), UUID: "l", ParentID: "S", Function: f},
			}), 0, 0.8},
	} {
		t.Run(c.name, func(t *testing.T) {
			for compat, want := range map[bool]float64{false: c.want, true: c.compat} {
				if got := slackOf(c.run, compat); len(got) != 1 || math.Abs(got[0]-want) > 1e-12 {
					t.Errorf("compat=%v: slack = %v, want %v", compat, got, want)
				}
			}
		})
	}
}

// An end may be given before its start. For the toolkit they still belong together, so that
// something began where the call's function did, and nobody looks where the call itself did.
func TestSlackEndFirst(t *testing.T) {
	f := in("wf", "agent")
	run := steps(llm("l", f, 0, 1, 1), thing(ToolStart, ToolEnd, "t", f.ID, 0, 5))
	instant := thing(SpanStart, SpanEnd, "s", f.ParentID, 0.5, 0.5)
	backwards := thing(SpanStart, SpanEnd, "s", f.ParentID, 0.5, 0.4)
	for _, c := range []struct {
		name         string
		run          []Step
		want, compat float64
	}{
		{"nothing there", run, 0.8, 0.8},
		{"start and end", steps(run, instant), 0, 0},
		{"end and start", steps(run, instant[1:], instant[:1]), 0.8, 0},
		{"an earlier end", steps(run, backwards), 0.8, 0},
		{"end alone", steps(run, instant[1:]), 0.8, 0.8},
	} {
		for compat, want := range map[bool]float64{false: c.want, true: c.compat} {
			if got := slackOf(c.run, compat); len(got) != 1 || math.Abs(got[0]-want) > 1e-12 {
				t.Errorf("%s, compat=%v: slack = %v, want %v", c.name, compat, got, want)
			}
		}
	}
}

// A run in which everything is beside everything takes no longer than sorting it.
func TestManyBesideEachOther(t *testing.T) {
	const n = 50_000
	f := Invocation{ID: "F", Name: "agent"}
	var run []Step
	for i := range n {
		run = append(run, llm(strconv.Itoa(i), f, float64(i), n+float64(i%2*n), 1)...)
	}
	// The first of those that take until 2n is the longest of all, and beside it the next.
	slack := slackOf(run, false)
	for i, c := range callsByEnd(run) {
		longest := 2.0*n - 1
		if want := max(0, 1-c.dur/longest); math.Abs(slack[i]-want) > 1e-12 {
			t.Fatalf("call %d from %v to %v: slack %v, want %v", i, c.start, c.end, slack[i], want)
		}
	}
}

// callsByEnd returns the calls of a run in the order of their ends.
func callsByEnd(run []Step) []call {
	b := NewBuilder(Options{})
	b.order(run)
	b.collect(nil)
	return b.run
}

// Calls that differ by no more than the rounding of arithmetic are alike, except for NeMo
// Agent Toolkit, which makes one of them the least and another the most urgent.
func TestAlikeCalls(t *testing.T) {
	w := Weights{Scale: 5, Critical: 1}
	scores := func(compat bool) (lowest, highest float64) {
		calls := callsOf([2]float64{0, 0.7}, [2]float64{1, 1.7}, [2]float64{2, 2.7})
		w.rate(calls, 3, nil, compat)
		lowest, highest = 1, 0
		for _, c := range calls {
			lowest, highest = min(lowest, c.score), max(highest, c.score)
		}
		return lowest, highest
	}
	if lo, hi := scores(false); lo != 0.5 || hi != 0.5 {
		t.Errorf("scores from %v to %v, want all 0.5", lo, hi)
	}
	if lo, hi := scores(true); lo != 0 || hi != 1 {
		t.Errorf("compat: scores from %v to %v, want 0 to 1", lo, hi)
	}
	both(t, Options{Sensitivity: &w}, func(t *testing.T, o Options) {
		p, _ := build(o, llm("1", in("wf", "agent"), 1, 2, 3)).Find(nil, 1)
		if *p.LatencySensitivity != 3 {
			t.Errorf("level of a single call = %d, want 3", *p.LatencySensitivity)
		}
	})
}

// Calls that are nearly alike get levels that are: a twentieth of the weights is what the
// lowest and the highest level need between them.
func TestNearlyAlikeCalls(t *testing.T) {
	parallel := func(step float64) []Step {
		var run []Step
		for i, name := range []string{"a", "b", "c", "d"} {
			run = append(run, llm(name, in("wf", name), 10, 11+step*float64(i), 5)...)
		}
		return run
	}
	levels := func(tr *Trie) (got []int) {
		for _, name := range []string{"a", "b", "c", "d"} {
			p, _ := tr.Find([]string{"wf", name}, 1)
			got = append(got, *p.LatencySensitivity)
		}
		return got
	}
	for _, c := range []struct {
		name   string
		o      Options
		step   float64
		levels []int
	}{
		{"default", Options{Sensitivity: new(DefaultWeights())}, 0.001, []int{3, 3, 3, 3}},
		{"tuned", Options{Sensitivity: new(TunedWeights())}, 0.001, []int{3, 3, 3, 3}},
		{"compat", Options{Sensitivity: new(DefaultWeights()), Compat: true}, 0.001, []int{1, 2, 4, 5}},
		{"half of it", Options{Sensitivity: &Weights{Scale: 101, Critical: 1}}, 0.025 / 3 / 0.975, []int{26, 43, 59, 76}},
		{"more", Options{Sensitivity: new(DefaultWeights())}, 0.2, []int{1, 2, 4, 5}},
		{"negative weights", Options{Sensitivity: &Weights{Scale: 5, Critical: -1}}, 0.001, []int{3, 3, 3, 3}},
	} {
		if diff := cmp.Diff(c.levels, levels(build(c.o, parallel(c.step)))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// What a weight counts, by the scores of a run.
func TestScores(t *testing.T) {
	f := in("wf", "agent")
	flat := func(run []Step) []Step { // as in a table, which does not say what ran in what
		for i := range run {
			run[i].ParentID = ""
		}
		return run
	}
	withPath := func(run []Step) []Step {
		for i := range run {
			run[i].Path = []string{"wf", "agent"}
		}
		return run
	}
	beside := func() []Step {
		return steps(llm("1", f, 0, 1, 1), llm("2", f, 0, 2, 1), llm("3", f, 3, 4, 1))
	}
	// The tool is beside the first call, with a slack of 0.75, and beside no other.
	slack := func() []Step {
		return steps(llm("1", f, 0, 1, 1), llm("2", f, 5, 6, 1), llm("3", f, 5.5, 6.5, 1), thing(ToolStart, ToolEnd, "t", f.ParentID, 0, 4))
	}
	for _, c := range []struct {
		name   string
		w      Weights
		run    []Step
		scores []float64
	}{
		{"began before the first event", Weights{Critical: 1}, steps(
			[]Step{{Type: LLMEnd, Time: 0, Began: new(-30.0), UUID: "0", ParentID: "p"}}, llm("1", f, 0, 1, 1), llm("2", f, 2, 4, 1),
		), []float64{1, 0, 1.0 / 3}},
		{"no slack without a weight above 0", Weights{Parallel: -1}, slack(), []float64{0, 1, 1}},
		{"slack", Weights{Parallel: 1}, slack(), []float64{0, 1, 1}},
		{"calls at once", Weights{Parallel: 1}, beside(), []float64{0, 0.5, 1}},
		{"calls at once in a table", Weights{Parallel: 1}, flat(beside()), []float64{0.5, 0.5, 0.5}},
		{"calls at once at the top of spans", Weights{Parallel: 1}, withPath(flat(beside())), []float64{0, 0, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, Options{}, func(t *testing.T, o Options) {
				o.Sensitivity = &c.w
				b := NewBuilder(o)
				b.order(c.run)
				known := b.invocations()
				b.collect(known)
				b.rate(c.w, known)
				var got []float64
				for _, c := range b.run {
					got = append(got, c.score)
				}
				if diff := cmp.Diff(c.scores, got, near); diff != "" {
					t.Errorf("scores (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestMissingBeginning(t *testing.T) {
	f := in("wf", "agent")
	strip := func(run []Step, starts bool) []Step {
		var out []Step
		for _, s := range run {
			if s.UUID == "3" {
				s.Began = nil
				if s.Type == LLMStart && !starts {
					continue
				}
			}
			out = append(out, s)
		}
		return out
	}
	run := steps(llm("1", f, 100, 101, 1), llm("2", f, 102, 103, 1), llm("3", f, 104, 109, 1))
	starts := func(run []Step, compat bool) (out []float64) {
		b := NewBuilder(Options{Compat: compat})
		b.order(run)
		b.collect(nil)
		for _, c := range b.run {
			out = append(out, c.start, c.dur)
		}
		return out
	}
	for _, c := range []struct {
		name   string
		run    []Step
		compat bool
		want   []float64
	}{
		{"the start says it", strip(run, true), false, []float64{100, 1, 102, 1, 104, 5}},
		{"nobody says it", strip(run, false), false, []float64{100, 1, 102, 1, 109, 0}},
		{"compat", strip(run, true), true, []float64{100, 1, 102, 1, 0, 0}},
	} {
		if diff := cmp.Diff(c.want, starts(c.run, c.compat)); diff != "" {
			t.Errorf("%s: starts and durations (-want +got):\n%s", c.name, diff)
		}
	}
	for _, began := range []float64{math.NaN(), math.Inf(-1), 1e300, 200} {
		late := strip(run, true)
		late[len(late)-1].Began = &began
		if diff := cmp.Diff([]float64{100, 1, 102, 1, 104, 5}, starts(late, false)); diff != "" {
			t.Errorf("began at %v (-want +got):\n%s", began, diff)
		}
	}
}

func TestWeightsThatAreNotNumbers(t *testing.T) {
	for _, w := range []Weights{
		{Critical: math.NaN()}, {Fanout: math.Inf(1)}, {Position: math.MaxFloat64, Parallel: -math.MaxFloat64}, {Scale: -3}, {},
	} {
		both(t, Options{Sensitivity: &w}, func(t *testing.T, o Options) { checkLevels(t, build(o, fanOut()), 5) })
	}
}
