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

func TestPaths(t *testing.T) {
	entry := Invocation{"W", "<workflow>", "root", "root"}
	agent := Invocation{"A", "agent", "W", "<workflow>"}
	tool := Invocation{"T", "tool", "A", "agent"}
	end := func(f Invocation, path ...string) Step { return Step{Type: LLMEnd, Time: 1, Function: f, Path: path} }
	about := func(f Invocation) Step { return Step{Type: FunctionStart, Function: f} }
	long := make([]string, MaxDepth+5)
	for i := range long {
		long[i] = fmt.Sprint("f", i)
	}
	for _, c := range []struct {
		name       string
		run        []Step
		full, pair string
	}{
		{"entry", []Step{end(entry)}, "<workflow>", "root/<workflow>"},
		{"two", []Step{about(entry), end(agent)}, "<workflow>/agent", "<workflow>/agent"},
		{"two, the entry not known", []Step{end(agent)}, "<workflow>/agent", "<workflow>/agent"},
		{"three", []Step{end(tool), about(agent), about(entry)}, "<workflow>/agent/tool", "agent/tool"},
		{"three, the top not known", []Step{about(agent), end(tool)}, "<workflow>/agent/tool", "agent/tool"},
		{"three, the middle not known", []Step{about(entry), end(tool)}, "agent/tool", "agent/tool"},
		{"no parent", []Step{end(Invocation{ID: "x", Name: "f"})}, "f", "f"},
		{"a parent by name", []Step{end(Invocation{ID: "x", Name: "f", ParentName: "p"})}, "p/f", "p/f"},
		{"root by name", []Step{end(Invocation{"x", "f", "some-id", "root"})}, "f", "root/f"},
		{"no function", []Step{end(Invocation{})}, "", ""},
		{"circle", []Step{about(Invocation{"P", "p", "X", "f"}), end(Invocation{"X", "f", "P", "p"})}, "p/f", "p/f"},
		{"itself", []Step{end(Invocation{"X", "f", "X", "f"})}, "f/f", "f/f"},
		{"circle without names", []Step{end(Invocation{"X", "", "X", ""})}, "", ""},
		{"a path", []Step{end(tool, "wf", "agent", "tool")}, "wf/agent/tool", "agent/tool"},
		{"a path from root", []Step{end(tool, "root", "wf", "tool")}, "wf/tool", "agent/tool"},
		{"a path alone", []Step{end(Invocation{}, "wf", "agent", "tool")}, "wf/agent/tool", "agent/tool"},
		{"outside of any function", []Step{end(Invocation{}, []string{}...)}, "", ""},
		{"too long a path", []Step{end(Invocation{}, long...)}, "f259/f260", "f259/f260"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := onlyPath(build(Options{}, c.run)); got != c.full {
				t.Errorf("full path = %q, want %q", got, c.full)
			}
			if got := onlyPath(build(Options{PathMode: PairPath}, c.run)); got != c.pair {
				t.Errorf("pair = %q, want %q", got, c.pair)
			}
			if got := onlyPath(build(Options{Compat: true}, c.run)); got != c.pair {
				t.Errorf("pair in compat = %q, want %q", got, c.pair)
			}
		})
	}
}

// onlyPath returns the names down a trie that does not branch.
func onlyPath(t *Trie) string {
	var names []string
	for n := t.Root; len(n.Children) > 0; {
		n = n.Children[0]
		names = append(names, n.Name)
	}
	return strings.Join(names, "/")
}

// Whatever paths a trie was built by, a call is found by its whole path.
func TestLookupOfWhatWasBuilt(t *testing.T) {
	entry := Invocation{"W", "<workflow>", "root", "root"}
	agent := Invocation{"A", "agent", "W", "<workflow>"}
	tool := Invocation{"T", "tool", "A", "agent"}
	run := steps(llm("1", entry, 0, 1, 1), llm("2", agent, 2, 3, 2), llm("3", tool, 4, 5, 3), llm("4", entry, 6, 7, 4))
	both(t, Options{}, func(t *testing.T, o Options) {
		tr := build(o, run)
		for _, c := range []struct {
			path  []string
			index int
			want  float64
		}{
			{[]string{"<workflow>", "agent", "tool"}, 1, 3},
			{[]string{"<workflow>", "agent"}, 1, 2},
			{[]string{"<workflow>"}, 1, 1},
			{[]string{"<workflow>"}, 2, 4},
		} {
			if m := tr.Lookup(c.path, c.index); !m.Exact || m.Prediction.OutputTokens.Mean != c.want {
				t.Errorf("%q#%d: %+v; want %v tokens", c.path, c.index, m, c.want)
			}
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

// Predictions by index are of a function's own calls, where it has some; aggregates are of
// all that is below it.
func TestOwnCalls(t *testing.T) {
	end := func(at float64, f string, path ...string) Step {
		return Step{Type: LLMEnd, Time: at, Function: Invocation{ID: f}, Path: path}
	}
	run := []Step{ // the agent's calls come before and after those of its tool
		end(0, "T", "wf", "agent", "tool"), end(1, "A", "wf", "agent"),
		end(2, "T", "wf", "agent", "tool"), end(3, "A", "wf", "agent"), end(4, "T", "wf", "agent", "tool"),
	}
	remaining := func(tr *Trie, path ...string) (any Metrics, byIndex []float64) {
		n := tr.Root
		for _, name := range path {
			n = n.child(name)
		}
		for _, p := range n.ByCallIndex {
			byIndex = append(byIndex, p.RemainingCalls.Mean)
		}
		return n.AnyIndex.RemainingCalls, byIndex
	}
	tr := build(Options{}, run, run)
	for _, c := range []struct {
		path  []string
		calls int
		want  []float64
	}{
		{[]string{"wf", "agent", "tool"}, 6, []float64{4, 2, 0}},
		{[]string{"wf", "agent"}, 10, []float64{3, 1}},
		{[]string{"wf"}, 10, []float64{3.5, 1.5, 0}},
		{nil, 10, []float64{3.5, 1.5, 0}},
	} {
		any, got := remaining(tr, c.path...)
		if diff := cmp.Diff(c.want, got); diff != "" || any.SampleCount != c.calls || any.Mean != map[int]float64{10: 2, 6: 2}[c.calls] {
			t.Errorf("%q: %+v; by index (-want +got):\n%s", c.path, any, diff)
		}
	}
	// Pairs are as NeMo Agent Toolkit has them.
	for _, o := range []Options{{PathMode: PairPath}, {Compat: true}} {
		both := append([]Step{end(-1, "W", "a", "wf"), end(-1, "X", "wf", "agent")}, run...)
		if _, got := remaining(build(o, both), "wf"); len(got) != 2 || got[0] != 4 {
			t.Errorf("%+v: by index %v", o, got)
		}
	}
	// Calls outside of any function are the root's own.
	tr = build(Options{}, run, []Step{end(0, "")})
	if any, got := remaining(tr); any.SampleCount != 6 || len(got) != 1 || got[0] != 0 {
		t.Errorf("root: %+v, by index %v", any, got)
	}
}

// What a run can add is bounded, except as the toolkit does it.
func TestBuilderBounds(t *testing.T) {
	t.Run("indices", func(t *testing.T) {
		both(t, Options{}, func(t *testing.T, o Options) {
			var run []Step
			for i := range 1000 {
				run = append(run, Step{Type: LLMEnd, Time: float64(i), Function: in("wf", "agent")})
			}
			n := build(o, run).Root.child("wf").child("agent")
			want := 256
			if o.Compat {
				want = 1000
			}
			if got := len(n.ByCallIndex); got != want || n.AnyIndex.RemainingCalls.SampleCount != 1000 {
				t.Errorf("%d indices, want %d; %+v", got, want, n.AnyIndex)
			}
		})
	})
	t.Run("children", func(t *testing.T) {
		both(t, Options{}, func(t *testing.T, o Options) {
			b := NewBuilder(o)
			for i := range 5000 {
				b.Add([]Step{{Type: LLMEnd, Function: in("wf", fmt.Sprint(i))}})
			}
			b.Add([]Step{{Type: LLMEnd, Function: in("wf", "0")}}) // which is there
			wf := b.Build(at).Root.child("wf")
			want := 4096
			if o.Compat {
				want = 5000
			}
			if len(wf.Children) != want || b.FiledHigher() != 5000-want || wf.AnyIndex.RemainingCalls.SampleCount != 5001 {
				t.Errorf("%d children, want %d; %d filed higher; %+v", len(wf.Children), want, b.FiledHigher(), wf.AnyIndex)
			}
			if p, _ := b.Build(at).Find([]string{"wf", "0"}, 1); p.RemainingCalls.SampleCount != 2 {
				t.Errorf("the first: %+v", p)
			}
		})
	})
	t.Run("nodes", func(t *testing.T) {
		b := NewBuilder(Options{})
		path := make([]string, 100)
		for i := range 700 {
			for k := range path {
				path[k] = fmt.Sprint(i, "-", k)
			}
			b.Add([]Step{{Type: LLMEnd, Path: path}})
		}
		if got := nodes(b.Build(at).Root); got != 1+65_536 || b.FiledHigher() != 700-65_536/100 {
			t.Errorf("%d nodes, %d calls filed higher", got, b.FiledHigher())
		}
	})
}

func nodes(n *Node) int {
	sum := 1
	for _, c := range n.Children {
		sum += nodes(c)
	}
	return sum
}

// Long names are shortened so that what is written can be read, and are found.
func TestLongNames(t *testing.T) {
	both(t, Options{WorkflowName: strings.Repeat("w", 70_000)}, func(t *testing.T, o Options) {
		for _, c := range []struct {
			name   string
			length int
			compat int
		}{
			{strings.Repeat("n", 256), 256, 256},
			{strings.Repeat("n", 257), 256, 257},
			{strings.Repeat("é", 200) + "1", 255, 401},
			{strings.Repeat("é", 200) + "2", 255, 401},
			{strings.Repeat("n", 70_000), 256, 256},
			{strings.Repeat("\xff", 30_000), 0, 0},
		} {
			tr := build(o, []Step{{Type: LLMEnd, Function: in("wf", c.name)}}, []Step{{Type: LLMEnd, Function: in("wf", c.name+"x")}})
			read := mustParse(t, string(tr.AppendJSON(nil)))
			wf := read.Root.child("wf")
			if wf == nil || len(wf.Children) != 2 {
				t.Fatalf("%.20q…: not two names", c.name)
			}
			want := c.length
			if o.Compat {
				want = c.compat
			}
			if got := len(tr.Root.child("wf").Children[0].Name); want > 0 && got != want {
				t.Errorf("%.20q…: %d bytes, want %d", c.name, got, want)
			}
			if m := tr.Lookup([]string{"wf", c.name}, 1); len(m.Path) != 2 || m.Prediction.RemainingCalls.SampleCount != 1 {
				t.Errorf("%.20q…: found %d names, %+v", c.name, len(m.Path), m.Prediction)
			}
			if len(read.WorkflowName) != 256 {
				t.Errorf("workflow name of %d bytes", len(read.WorkflowName))
			}
		}
	})
}

// As the toolkit does it, percentiles are exact unless a limit is asked for.
func TestSampled(t *testing.T) {
	run := make([]Step, DefaultMaxSamples+1)
	for i := range run {
		run[i] = Step{Type: LLMEnd, Time: float64(i)}
	}
	for _, c := range []struct {
		o    Options
		want bool
	}{
		{Options{}, true}, {Options{Compat: true}, false},
		{Options{Compat: true, MaxSamples: DefaultMaxSamples}, true}, {Options{MaxSamples: DefaultMaxSamples + 1}, false},
	} {
		b := NewBuilder(c.o)
		b.Add(run)
		p50 := b.Build(at).Root.AnyIndex.RemainingCalls.P50
		if b.Sampled() != c.want || !c.want && p50 != DefaultMaxSamples/2 {
			t.Errorf("%+v: sampled = %v, want %v; median %v", c.o, b.Sampled(), c.want, p50)
		}
	}
}

// A function may have an empty name for the toolkit.
func TestEmptyName(t *testing.T) {
	run := []Step{{Type: LLMEnd, Function: Invocation{ID: "F", ParentID: "W", ParentName: "wf"}}, {Type: LLMEnd}}
	for _, c := range []struct {
		o    Options
		want int // children of wf
	}{{Options{}, 0}, {Options{PathMode: PairPath}, 0}, {Options{Compat: true}, 1}} {
		tr := build(c.o, run)
		wf := tr.Root.child("wf")
		if len(tr.Root.Children) != 1 || len(wf.Children) != c.want {
			t.Errorf("%+v: %s", c.o, tr.AppendJSON(nil))
		}
		if c.want > 0 && (wf.Children[0].Name != "" || mustParse(t, string(tr.AppendJSON(nil))).Root.child("wf").child("") == nil) {
			t.Errorf("%+v: %s", c.o, tr.AppendJSON(nil))
		}
	}
}
