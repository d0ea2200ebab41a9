package trie

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// predicting returns a prediction that is told by its remaining calls.
func predicting(n float64) *Prediction {
	return &Prediction{RemainingCalls: Metrics{SampleCount: 1, Mean: n}}
}

func indexed(index int, n float64) Indexed { return Indexed{index, *predicting(n)} }

// lookupTrie has calls filed by full paths, and at its top some by pairs.
func lookupTrie() *Trie {
	return &Trie{Root: &Node{
		Name: "root", AnyIndex: predicting(1), ByCallIndex: []Indexed{indexed(1, 2)},
		Children: []*Node{
			{Name: "wf", AnyIndex: predicting(10), Children: []*Node{
				{Name: "agent", AnyIndex: predicting(20), ByCallIndex: []Indexed{indexed(2, 22), indexed(1, 21)}, Children: []*Node{
					{Name: "silent", Children: []*Node{{Name: "deeper"}}},
				}},
			}},
			{Name: "root", AnyIndex: predicting(30), Children: []*Node{
				{Name: "<workflow>", AnyIndex: predicting(31)},
				{Name: "mute"},
			}},
			{Name: "<workflow>", AnyIndex: predicting(40), Children: []*Node{{Name: "tool", AnyIndex: predicting(41)}}},
			{Name: "mute", AnyIndex: predicting(50)},
		},
	}}
}

func TestLookup(t *testing.T) {
	for _, c := range []struct {
		name  string
		path  string
		index int
		want  float64
		at    string
		exact bool
		way   Way
	}{
		{"L1 index", "wf/agent", 1, 21, "wf/agent", true, WholePath},
		{"L1 aggregate", "wf/agent", 99, 20, "wf/agent", false, WholePath},
		{"L2 part", "wf/agent/unknown/more", 2, 22, "wf/agent", true, PartOfPath},
		{"L2 root", "unknown/path", 7, 1, "", false, AtRoot},

		{"", "wf/agent", 2, 22, "wf/agent", true, WholePath}, // in a file's order, not that of indices
		{"", "wf/agent", 0, 20, "wf/agent", false, WholePath},
		{"", "wf/agent", -1, 20, "wf/agent", false, WholePath},
		{"", "wf", 1, 10, "wf", false, WholePath}, // a deep aggregate beats a shallow index
		{"", "wf/agent/silent/deeper", 2, 22, "wf/agent", true, WholePath},

		{"", "wf/unknown", 1, 10, "wf", false, PartOfPath},
		{"", "unknown/path", 1, 2, "", true, AtRoot},
		{"", "unknown", 7, 1, "", false, AtRoot},
		{"", "", 1, 2, "", true, AtRoot},
		{"", "", 3, 1, "", false, AtRoot},

		{"", "root/wf/agent", 1, 21, "wf/agent", true, WholePath},
		{"", "root/wf/unknown", 1, 10, "wf", false, PartOfPath},
		{"", "root/unknown", 7, 30, "root", false, PartOfPath},
		{"", "root", 7, 30, "root", false, WholePath},
		{"", "root/<workflow>", 7, 31, "root/<workflow>", false, WholePath},

		{"", "<workflow>", 1, 31, "root/<workflow>", false, Suffix}, // the entry's own calls, not its callees'
		{"", "mute", 1, 50, "mute", false, WholePath},               // root/mute says nothing
		{"", "a/b/<workflow>/tool", 1, 41, "<workflow>/tool", false, Suffix},
		{"", "a/b/wf/agent", 2, 22, "wf/agent", true, Suffix},
		{"", "a/b/wf/silent", 7, 1, "", false, AtRoot},                 // only one of the two is there
		{"", "wf/agent/wf/tool", 7, 20, "wf/agent", false, PartOfPath}, // nor here
		{"", "wf/a/<workflow>/tool", 1, 41, "<workflow>/tool", false, Suffix},
	} {
		t.Run(strings.TrimPrefix(fmt.Sprint(c.name, " ", c.path, "#", c.index), " "), func(t *testing.T) {
			var path, at []string
			if c.path != "" {
				path = strings.Split(c.path, "/")
			}
			if c.at != "" {
				at = strings.Split(c.at, "/")
			}
			tr := lookupTrie()
			m := tr.Lookup(path, c.index)
			p, ok := tr.Find(path, c.index)
			if !ok || p != m.Prediction {
				t.Fatalf("Find = %p, %v; Lookup = %p", p, ok, m.Prediction)
			}
			got := Match{predicting(p.RemainingCalls.Mean), append([]string(nil), m.Path...), m.Exact, m.Way}
			if diff := cmp.Diff(Match{predicting(c.want), at, c.exact, c.way}, got); diff != "" {
				t.Errorf("Lookup (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLookupFindsNothing(t *testing.T) {
	for name, tr := range map[string]*Trie{
		"nil":      nil,
		"no root":  {},
		"all null": {Root: &Node{Name: "root", Children: []*Node{{Name: "a"}, {Name: "root", Children: []*Node{{Name: "a"}}}}}},
	} {
		for _, path := range [][]string{nil, {"a"}, {"a", "b", "c"}, {"root", "a"}} {
			if p, ok := tr.Find(path, 1); p != nil || ok {
				t.Errorf("%s: Find(%q) = %v, %v", name, path, p, ok)
			}
			if diff := cmp.Diff(Match{}, tr.Lookup(path, 1)); diff != "" {
				t.Errorf("%s: Lookup(%q) (-want +got):\n%s", name, path, diff)
			}
		}
	}
	// A shallow prediction is there only for calls of its index.
	tr := &Trie{Root: &Node{Name: "root", ByCallIndex: []Indexed{indexed(3, 1)}}}
	if _, ok := tr.Find([]string{"x"}, 1); ok {
		t.Error("found a prediction for another index")
	}
}

func TestFindPlain(t *testing.T) {
	entry := Invocation{"W", "<workflow>", "root", "root"}
	agent := Invocation{"A", "agent", "W", "<workflow>"}
	pairs := build(Options{PathMode: PairPath}, steps(llm("1", entry, 0, 1, 1), llm("2", agent, 2, 3, 2), llm("3", entry, 4, 5, 3)))
	for _, c := range []struct {
		path         string
		index        int
		plain, found float64 // output tokens; the aggregate over all is 2
	}{
		{"<workflow>", 1, 2, 1}, // its callees', not its own
		{"<workflow>", 2, 2, 3},
		{"<workflow>/agent", 1, 2, 2},
		{"<workflow>/other", 9, 2, 2},
		{"root/<workflow>", 2, 3, 3},
		{"a/b/root/<workflow>", 2, 3, 3},
		{"a/b/root/<workflow>", 1, 1.5, 1},
		{"", 1, 1.5, 1.5},
	} {
		var path []string
		if c.path != "" {
			path = strings.Split(c.path, "/")
		}
		plain, ok := pairs.FindPlain(path, c.index)
		found, _ := pairs.Find(path, c.index)
		if !ok || plain.OutputTokens.Mean != c.plain || found.OutputTokens.Mean != c.found {
			t.Errorf("%s#%d: %v, %+v; found %+v; want %v, %v", c.path, c.index, ok, plain, found, c.plain, c.found)
		}
	}
	for _, tr := range []*Trie{nil, {}, {Root: &Node{Children: []*Node{nil}}}} {
		if p, ok := tr.FindPlain([]string{"a"}, 1); ok || p != nil {
			t.Errorf("found %v", p)
		}
	}
}

// A nil child in a trie put together by hand is none.
func TestNilChildren(t *testing.T) {
	tr := &Trie{Root: &Node{Name: "root", Children: []*Node{nil, {Name: "a", AnyIndex: predicting(1)}, nil, {Name: "b", Children: []*Node{nil}}}}}
	if p, ok := tr.Find([]string{"a"}, 1); !ok || p.RemainingCalls.Mean != 1 {
		t.Errorf("found %v, %v", p, ok)
	}
	if _, ok := tr.Find([]string{"b", "c"}, 1); ok {
		t.Error("found something that is not there")
	}
	read := mustParse(t, string(tr.AppendJSON(nil)))
	if len(read.Root.Children) != 2 || len(read.Root.child("b").Children) != 0 {
		t.Errorf("%s", tr.AppendJSON(nil))
	}
}

// A node with many children and indices answers from tables, and the same.
func TestLookupInWideNodes(t *testing.T) {
	tr := &Trie{Root: &Node{Name: "root"}}
	for i := 200; i > 0; i -= 2 {
		tr.Root.Children = append(tr.Root.Children, &Node{Name: fmt.Sprint("f", i), AnyIndex: predicting(float64(i))})
		tr.Root.ByCallIndex = append(tr.Root.ByCallIndex, indexed(i, float64(-i)))
	}
	parsed := mustParse(t, string(tr.AppendJSON(nil)))
	if parsed.Root.byName == nil || parsed.Root.byIndex == nil || tr.Root.byName != nil {
		t.Fatal("the tables are not where they should be")
	}
	for i := range 210 {
		for _, path := range [][]string{nil, {fmt.Sprint("f", i)}} {
			want, got := tr.Lookup(path, i), parsed.Lookup(path, i)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%q#%d (-by hand +parsed):\n%s", path, i, diff)
			}
		}
	}
}

func TestFindAllocatesNothing(t *testing.T) {
	tr := lookupTrie()
	paths := [][]string{nil, {"wf", "agent"}, {"<workflow>"}, {"a", "b", "wf", "agent"}, {"root", "wf", "agent"}, {"x", "y", "z"}}
	paths = append(paths, []string{"wf", strings.Repeat("x", 1000)})
	if n := testing.AllocsPerRun(100, func() {
		for _, path := range paths {
			_, ok := tr.Find(path, 2)
			_, plain := tr.FindPlain(path, 2)
			if !ok || !plain {
				t.Fatal("not found")
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
