package trie

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var at = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

// llm returns the steps of an LLM call in an invocation of a function.
func llm(uuid string, f Invocation, start, end float64, tokens int) []Step {
	return []Step{
		{Type: LLMStart, Time: start, UUID: uuid, ParentID: f.ID, Function: f},
		{Type: LLMEnd, Time: end, Began: &start, UUID: uuid, ParentID: f.ID, Function: f, OutputTokens: tokens},
	}
}

// in returns an invocation of a function below another, one for each pair of names.
func in(parent, name string) Invocation {
	return Invocation{ID: "id-" + name, Name: name, ParentID: "id-" + parent, ParentName: parent}
}

func steps(parts ...[]Step) []Step {
	var all []Step
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func build(o Options, runs ...[]Step) *Trie {
	b := NewBuilder(o)
	for _, run := range runs {
		b.Add(run)
	}
	return b.Build(at)
}

// both runs a test as the builder is and as NeMo Agent Toolkit's is.
func both(t *testing.T, o Options, test func(*testing.T, Options)) {
	for _, compat := range []bool{false, true} {
		o.Compat = compat
		t.Run(fmt.Sprintf("compat=%v", compat), func(t *testing.T) { test(t, o) })
	}
}

func one(v float64) Metrics { return Metrics{1, v, v, v, v} }

func twoCalls() []Step {
	f := Invocation{ID: "w", Name: "my_workflow"}
	return steps(llm("1", f, 1000, 1001, 100), llm("2", f, 1002, 1003, 150))
}

func TestB1(t *testing.T) {
	both(t, Options{Sensitivity: new(DefaultWeights())}, func(t *testing.T, o Options) {
		tr := build(o, twoCalls())
		predictions := func(name string, children ...*Node) *Node {
			return &Node{
				Name: name,
				ByCallIndex: []Indexed{
					{1, Prediction{one(1), one(1000), one(100), new(5)}},
					{2, Prediction{one(0), Metrics{}, one(150), new(1)}},
				},
				AnyIndex: &Prediction{
					Metrics{2, 0.5, 0.5, 0.9, 0.95}, one(1000), Metrics{2, 125, 125, 145, 147.5}, new(3),
				},
				Children: children,
			}
		}
		want := &Trie{"1.0", "2026-03-01T12:00:00.123456+00:00", "unknown", predictions("root", predictions("my_workflow"))}
		if diff := cmp.Diff(want, tr, plain, near); diff != "" {
			t.Errorf("trie (-want +got):\n%s", diff)
		}
	})
}

func TestB2(t *testing.T) {
	both(t, Options{}, func(t *testing.T, o Options) {
		each(build(o, twoCalls()).Root, func(name string, p *Prediction) {
			if p.LatencySensitivity != nil {
				t.Errorf("%s: level %d, want none", name, *p.LatencySensitivity)
			}
		})
	})
}

// each calls do with all predictions below a node.
func each(n *Node, do func(name string, p *Prediction)) {
	for i := range n.ByCallIndex {
		do(fmt.Sprint(n.Name, "#", n.ByCallIndex[i].Index), &n.ByCallIndex[i].Prediction)
	}
	if n.AnyIndex != nil {
		do(n.Name, n.AnyIndex)
	}
	for _, c := range n.Children {
		each(c, do)
	}
}

func checkLevels(t *testing.T, tr *Trie, scale int) {
	t.Helper()
	n := 0
	each(tr.Root, func(name string, p *Prediction) {
		n++
		if l := p.LatencySensitivity; l == nil || *l < 1 || *l > scale {
			t.Errorf("%s: level %v, want one from 1 to %d", name, l, scale)
		}
	})
	if n == 0 {
		t.Error("no predictions")
	}
}

func TestB3(t *testing.T) {
	for _, scale := range []int{1, 3, 5, 100} {
		w := DefaultWeights()
		w.Scale = scale
		both(t, Options{Sensitivity: &w}, func(t *testing.T, o Options) {
			tr := build(o, twoCalls(), twoCalls())
			checkLevels(t, tr, scale)
			if tr.Root.AnyIndex.RemainingCalls.SampleCount != 4 {
				t.Errorf("aggregate of %d calls, want 4", tr.Root.AnyIndex.RemainingCalls.SampleCount)
			}
		})
	}
}

func TestB4(t *testing.T) {
	both(t, Options{Sensitivity: new(DefaultWeights())}, func(t *testing.T, o Options) {
		f := in("wf", "agent")
		tr := build(o, steps(llm("1", f, 0, 1, 10), llm("2", f, 2, 3, 10), llm("3", f, 4, 5, 10)))
		first, _ := tr.Find([]string{"wf", "agent"}, 1)
		last, _ := tr.Find([]string{"wf", "agent"}, 3)
		if *first.LatencySensitivity < *last.LatencySensitivity {
			t.Errorf("levels %d, then %d; want the first at least as high", *first.LatencySensitivity, *last.LatencySensitivity)
		}
	})
}

func TestB7(t *testing.T) {
	w := Weights{Scale: 5, Critical: 0.01, Fanout: 0.01, Position: 0.01, Parallel: 5}
	both(t, Options{Sensitivity: &w}, func(t *testing.T, o Options) {
		f := in("wf", "agent")
		checkLevels(t, build(o, steps(
			llm("1", f, 0, 1, 10), llm("2", f, 0.5, 9, 10), llm("3", f, 10, 11, 10),
			[]Step{{Type: ToolStart, Time: 0, UUID: "t", ParentID: f.ID}, {Type: ToolEnd, Time: 5, UUID: "t", ParentID: f.ID}},
		)), 5)
	})
}

func TestB10(t *testing.T) {
	both(t, Options{}, func(t *testing.T, o Options) {
		react, tool := in("my_workflow", "react_agent"), in("my_workflow", "tool_agent")
		three := steps(llm("1", react, 0, 1, 10), llm("2", react, 2, 3, 10), llm("3", react, 4, 5, 10))
		two := steps(llm("1", tool, 0, 1, 10), llm("2", tool, 2, 3, 10))
		tr := build(o, three, three, two)
		for _, c := range []struct {
			function string
			index    int
			want     float64
		}{{"react_agent", 1, 2}, {"react_agent", 3, 0}, {"tool_agent", 1, 1}} {
			p, ok := tr.Find([]string{"my_workflow", c.function}, c.index)
			if !ok || p.RemainingCalls.Mean != c.want {
				t.Errorf("%s#%d: remaining = %+v, %v; want %v", c.function, c.index, p, ok, c.want)
			}
		}
		if p, ok := tr.Find([]string{"my_workflow", "unknown"}, 1); !ok || p == nil {
			t.Error("nothing for an unknown child")
		}
	})
}

// The vector of four sequential calls.
func TestFourCalls(t *testing.T) {
	both(t, Options{Sensitivity: new(DefaultWeights())}, func(t *testing.T, o Options) {
		agent, tool := in("wf", "agent"), in("wf", "tool_llm")
		agent.ParentID, tool.ParentID = "w", "w"
		tr := build(o, steps(
			llm("1", agent, 0, 2, 100), llm("2", agent, 2.5, 3.5, 40), llm("3", tool, 4, 4.5, 20), llm("4", agent, 5, 10, 300),
		))
		type row struct {
			path                   string
			index                  int
			remaining, remaining90 float64
			out, out90             float64
			arrivals, level        int
		}
		for _, want := range []row{
			{"wf/agent", 1, 3, 3, 100, 100, 1, 5},
			{"wf/agent", 2, 2, 2, 40, 40, 1, 2},
			{"wf/agent", 3, 0, 0, 300, 300, 0, 3},
			{"wf/agent", 0, 1.666667, 2.8, 146.666667, 260, 2, 4},
			{"wf/tool_llm", 1, 1, 1, 20, 20, 1, 1},
			{"wf", 1, 2, 2.8, 60, 92, 2, 3},
			{"wf", 0, 1.5, 2.7, 115, 240, 3, 3},
		} {
			p, ok := tr.Find(strings.Split(want.path, "/"), want.index)
			if !ok {
				t.Fatalf("%s#%d: nothing", want.path, want.index)
			}
			got := row{
				want.path, want.index, p.RemainingCalls.Mean, p.RemainingCalls.P90, p.OutputTokens.Mean, p.OutputTokens.P90,
				p.InterArrivalMS.SampleCount, *p.LatencySensitivity,
			}
			if diff := cmp.Diff(want, got, near, cmp.AllowUnexported(row{})); diff != "" {
				t.Errorf("%s#%d (-want +got):\n%s", want.path, want.index, diff)
			}
		}
		all, _ := tr.Find([]string{"wf"}, 0)
		if diff := cmp.Diff(Metrics{4, 115, 70, 240, 270}, all.OutputTokens, near); diff != "" {
			t.Errorf("wf, output tokens (-want +got):\n%s", diff)
		}
		if p95 := all.RemainingCalls.P95; math.Abs(p95-2.85) > 1e-9 {
			t.Errorf("wf, remaining calls: p95 = %v, want 2.85", p95)
		}
	})
}

func TestStepsThatMakeNoSense(t *testing.T) {
	f := in("wf", "agent")
	run := twoCalls()
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1.7e12, -1e300} {
		run = append(run, Step{Type: LLMEnd, Time: bad, Function: f})
	}
	b := NewBuilder(Options{Sensitivity: new(TunedWeights())})
	b.Add(run)
	b.Add(nil)
	b.Add([]Step{{Type: LLMEnd, Time: math.NaN()}})
	if b.Runs() != 3 || b.Calls() != 2 || b.Skipped() != 6 {
		t.Errorf("runs, calls, skipped = %d, %d, %d; want 3, 2, 6", b.Runs(), b.Calls(), b.Skipped())
	}
	want := build(Options{Sensitivity: new(TunedWeights())}, twoCalls())
	if diff := cmp.Diff(want, b.Build(at), plain); diff != "" {
		t.Errorf("trie (-without them +with them):\n%s", diff)
	}
	empty := NewBuilder(Options{WorkflowName: "w"}).Build(at)
	if diff := cmp.Diff(&Trie{Version, "2026-03-01T12:00:00.123456+00:00", "w", &Node{Name: "root"}}, empty, plain); diff != "" {
		t.Errorf("trie of nothing (-want +got):\n%s", diff)
	}
}

// The order of steps matters only among those of one time.
func TestOrderOfSteps(t *testing.T) {
	f := in("wf", "agent")
	run := steps(llm("1", f, 0, 2, 1), llm("2", f, 1, 2, 2), llm("3", f, 2, 3, 3))
	shuffled := []Step{run[4], run[5], run[2], run[0], run[1], run[3]}
	o := Options{Sensitivity: new(TunedWeights())}
	if diff := cmp.Diff(build(o, run), build(o, shuffled), plain); diff != "" {
		t.Errorf("trie (-in order +shuffled):\n%s", diff)
	}
	// Of two that end together the first given is the first; a start at that time is not
	// the next one.
	p, _ := build(o, run).Find([]string{"wf", "agent"}, 1)
	if p.OutputTokens.Mean != 1 || p.InterArrivalMS.SampleCount != 0 {
		t.Errorf("first call: %+v", p)
	}
}

// Calls whose invocation nobody named are counted by their path.
func TestIndexWithoutInvocation(t *testing.T) {
	var run []Step
	for i, name := range []string{"d0", "d1", "d0", "d1"} {
		run = append(run, Step{Type: LLMEnd, Time: float64(i), Path: []string{name}, OutputTokens: i})
	}
	tr := build(Options{}, run)
	if p, _ := tr.Find([]string{"d1"}, 2); p.OutputTokens.Mean != 3 || p.OutputTokens.SampleCount != 1 {
		t.Errorf("d1#2 = %+v", p)
	}
	if n := len(tr.Root.ByCallIndex); n != 2 {
		t.Errorf("%d indices, want 2", n)
	}
}

// A builder may go on after Build, and shares nothing with what it returned.
func TestBuildAgain(t *testing.T) {
	b := NewBuilder(Options{MaxSamples: 3})
	b.Add(twoCalls())
	first := b.Build(at)
	before := string(first.AppendJSON(nil))
	for range 10 {
		b.Add(twoCalls())
	}
	if string(first.AppendJSON(nil)) != before {
		t.Error("the first trie changed")
	}
	if n := b.Build(at).Root.AnyIndex.OutputTokens.SampleCount; n != 22 {
		t.Errorf("%d samples in the second, want 22", n)
	}
}

// TestUnknownLength: an answer whose length nobody said is no answer of 0 tokens, but for the
// toolkit, and for all else a call like others.
func TestUnknownLength(t *testing.T) {
	f := in("wf", "agent")
	run := steps(llm("1", f, 0, 1, 100), llm("2", f, 1, 2, -1), llm("3", f, 2, 3, 0))
	p, _ := build(Options{}, run).Find([]string{"wf", "agent"}, 9)
	if p.OutputTokens.SampleCount != 2 || p.OutputTokens.Mean != 50 || p.RemainingCalls.SampleCount != 3 {
		t.Errorf("%+v", p)
	}
	p, _ = build(Options{}, run).Find([]string{"wf", "agent"}, 2)
	if p.OutputTokens != (Metrics{}) || p.RemainingCalls.SampleCount != 1 {
		t.Errorf("the call alone: %+v", p)
	}
	p, _ = build(Options{Compat: true}, run).Find([]string{"wf", "agent"}, 2)
	if p.OutputTokens != (Metrics{SampleCount: 1}) {
		t.Errorf("as the toolkit does: %+v", p)
	}
}

// TestRunsAlike: what is kept from one run to the next changes nothing, also after one that
// is much larger.
func TestRunsAlike(t *testing.T) {
	large := longRun(20_000)
	small := steps(llm("1", in("wf", "agent"), 0, 2, 1), llm("2", in("wf", "agent"), 1, 2, 2))
	o := Options{Sensitivity: new(TunedWeights())}
	one := NewBuilder(o)
	for _, run := range [][]Step{small, large, small} {
		one.Add(run)
	}
	for _, m := range []int{len(one.indices), len(one.slack.spans), len(one.slack.groups), len(one.slack.ends)} {
		if m != 0 {
			t.Errorf("%d entries are left", m)
		}
	}
	// A finder of its own for each run.
	many := NewBuilder(o)
	for _, run := range [][]Step{small, large, small} {
		many.slack, many.indices = slackFinder{}, make(map[string]int)
		many.Add(run)
	}
	if diff := cmp.Diff(many.Build(at), one.Build(at), plain); diff != "" {
		t.Errorf("-apart +together:\n%s", diff)
	}
}
