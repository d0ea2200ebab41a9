package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/trie"
)

// TestRunMaker: runs have the calls and functions that they should, nested in time as in
// who called whom, and the same seed makes the same.
func TestRunMaker(t *testing.T) {
	const runs, shapes = 300, 200
	m, again := newRunMaker(shapes), newRunMaker(shapes)
	functions := map[string]bool{}
	var first []float64
	for i := range runs {
		run := m.next()
		if diff := cmp.Diff(again.next(), run); diff != "" {
			t.Fatalf("run %d differs from its twin\n%s", i, diff)
		}
		begin := map[string]float64{"root": 0}
		callers := map[string]string{}
		for _, s := range run {
			if s.Type == trie.FunctionStart {
				begin[s.UUID], callers[s.UUID] = s.Time, s.Function.ParentID
			}
		}
		calls := 0
		for _, s := range run {
			functions[s.Function.Name] = true
			if s.Time < begin[s.Function.ID] || s.Time < begin[callers[s.Function.ID]] {
				t.Errorf("run %d: a step of %s is before the function begins", i, s.Function.Name)
			}
			if s.Type == trie.LLMEnd {
				calls++
				if !(*s.Began < s.Time) || s.OutputTokens < 1 {
					t.Errorf("run %d: a call from %v to %v with %d tokens", i, *s.Began, s.Time, s.OutputTokens)
				}
			}
		}
		if calls != callsPerRun {
			t.Errorf("run %d: %d calls, want %d", i, calls, callsPerRun)
		}
		if slices.IsSortedFunc(run, func(a, b trie.Step) int { return int(1e6 * (a.Time - b.Time)) }) {
			t.Errorf("run %d: no branch overlaps with another", i)
		}
		if i%shapes == 0 {
			first = append(first, run[len(run)-1].Time)
		}
	}
	if want := 2 + runAgents + runFunctions; len(functions) != want || want != 50 {
		t.Errorf("%d functions, want %d", len(functions), want)
	}
	if first[0] == first[1] {
		t.Error("two runs of a shape take the same time")
	}
}

func TestWideTrie(t *testing.T) {
	s := trieScaleFull
	wide, paths := wideTrie(s)
	if want := s.agents * s.stages * s.functions; len(paths) != want {
		t.Errorf("%d paths, want %d", len(paths), want)
	}
	want := 2 + s.agents*(1+s.stages*(1+s.functions))
	if got := countNodes(wide.Root); got != want {
		t.Errorf("%d nodes, want %d", got, want)
	}
	const key = "workflow/code_agent/mail/rank_search/3"
	got := string(appendPlaceKey(nil, []string{"workflow", "code_agent", "mail", "rank_search"}, 3))
	if got != key {
		t.Errorf("got key %s, want %s", got, key)
	}
	if !slices.ContainsFunc(triePlaces(paths, 1, 5), func(p triePlace) bool { return p.key == key }) {
		t.Errorf("no place is %s", key)
	}
}

func TestTrieRows(t *testing.T) {
	var r report
	s := trieScale{agents: 2, stages: 2, functions: 20, calls: 2, runs: 50, shapes: 10}
	if err := measureTrieOf(t.Context(), options{rounds: 1, log: io.Discard}, &r, s); err != nil {
		t.Fatal(err)
	}
	if len(r.rows) != 7 || len(r.notes) != 2 {
		t.Errorf("%d rows and %d notes", len(r.rows), len(r.notes))
	}
	var out strings.Builder
	if err := r.write(&out); err != nil || strings.Contains(out.String(), "%!") || strings.Contains(out.String(), "NaN") {
		t.Errorf("%v\n%s", err, &out)
	}
}
