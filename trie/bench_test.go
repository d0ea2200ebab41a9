package trie

import (
	"fmt"
	"strconv"
	"testing"
)

// BenchmarkFind looks up in a trie of 20 functions below 20 others, with five indices each,
// next to one access of a map with the path as its key.
//
//	BenchmarkFind/whole_path    208.9 ns/op    0 allocs/op
//	BenchmarkFind/suffix        296.0 ns/op    0 allocs/op
//	BenchmarkFind/unknown       189.3 ns/op    0 allocs/op
//	BenchmarkFind/map            39.2 ns/op
//
// on two busy cores.
func BenchmarkFind(b *testing.B) {
	tr := &Trie{Root: &Node{Name: rootName, AnyIndex: predicting(1)}}
	byPath := make(map[string]*Prediction)
	for i := range 20 {
		outer := &Node{Name: "function_" + strconv.Itoa(i), AnyIndex: predicting(2)}
		for j := range 20 {
			inner := &Node{Name: "step_" + strconv.Itoa(j), AnyIndex: predicting(3)}
			for index := range 5 {
				inner.addIndexed(indexed(index+1, float64(index)))
			}
			outer.addChild(inner)
			byPath[outer.Name+"/"+inner.Name] = inner.AnyIndex
		}
		tr.Root.addChild(outer)
	}
	for name, path := range map[string][]string{
		"whole path": {"function_7", "step_13"},
		"suffix":     {"entry", "agent", "function_7", "step_13"},
		"unknown":    {"entry", "agent", "function_7", "other"},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := tr.Find(path, 3); !ok {
					b.Fatal("not found")
				}
			}
		})
	}
	b.Run("map", func(b *testing.B) {
		key := "function_7/step_13"
		for b.Loop() {
			if byPath[key] == nil {
				b.Fatal("not found")
			}
		}
	})
}

// BenchmarkBuild adds and builds a million calls.
//
//	BenchmarkBuild/1_runs                       1493 ns/call
//	BenchmarkBuild/1_runs_with_slack            4182 ns/call
//	BenchmarkBuild/100000_runs                   731 ns/call
//	BenchmarkBuild/100000_runs_with_slack       1484 ns/call
//
// on two cores.
func BenchmarkBuild(b *testing.B) {
	for _, c := range []struct{ runs, calls int }{{1, 1_000_000}, {100_000, 10}} {
		name := fmt.Sprint(c.runs, " runs")
		run := longRun(c.calls)
		for _, parallel := range []bool{false, true} {
			w := DefaultWeights()
			if parallel {
				w, name = TunedWeights(), name+" with slack"
			}
			b.Run(name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					bld := NewBuilder(Options{Sensitivity: &w})
					for range c.runs {
						bld.Add(run)
					}
					if tr := bld.Build(at); tr.Root.AnyIndex.RemainingCalls.SampleCount != 1_000_000 {
						b.Fatal("calls were lost")
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e6, "ns/call")
			})
		}
	}
}

// longRun returns a run of n calls in functions that make ten each; all overlap with the
// next few.
func longRun(n int) []Step {
	var run []Step
	for i := range n {
		id := strconv.Itoa(i / 10)
		f := Invocation{ID: "f" + id, Name: "step_" + strconv.Itoa(i/10%7), ParentID: "w", ParentName: "<workflow>"}
		start := 1.7e9 + float64(i)
		run = append(run, llm(strconv.Itoa(i), f, start, start+2.5, i%500)...)
	}
	return run
}
