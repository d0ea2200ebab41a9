package trie

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
