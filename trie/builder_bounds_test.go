package trie

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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

// The client in TypeScript shortens names likewise, and is tested with the same file.
func TestLongNamesForClients(t *testing.T) {
	const files = "../clients/typescript/test/testdata/long_names"
	spans, err := os.ReadFile(files + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(files + ".json")
	if err != nil {
		t.Fatal(err)
	}
	runs, err := readAll(ReadSpans, bytes.NewReader(spans))
	if err != nil {
		t.Fatal(err)
	}
	tr := build(Options{WorkflowName: "long_names"}, runs...)
	tr.GeneratedAt = mustParse(t, string(want)).GeneratedAt
	if diff := cmp.Diff(string(want), string(tr.AppendJSON(nil))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
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
