package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Learning is held against stator without it, whatever a bare proxy takes.
func TestLearned(t *testing.T) {
	ps := []*process{{name: "stator"}, {name: "stator, learn-hints"}, {name: "bare reverse proxy"}}
	for _, test := range []struct {
		plain, learner, bare time.Duration
		ratio                string
		ok                   bool
	}{
		{100, 124, 40, "1.24", true},
		{100, 127, 200, "1.27", false},
	} {
		rounds := make([][]round, len(ps))
		for i, cpu := range []time.Duration{test.plain, test.learner, test.bare} {
			rounds[i] = []round{{cpu: cpu * time.Microsecond}}
		}
		var r report
		r.learned(&load{name: "request"}, ps, rounds)
		want := []row{{
			what:     "CPU per request",
			baseline: micros(test.plain * time.Microsecond),
			stator:   micros(test.learner * time.Microsecond),
			ratio:    test.ratio,
			spread:   test.ratio + "–" + test.ratio,
			target:   "≤ 1.25×",
			ok:       test.ok,
		}}
		if diff := cmp.Diff(want, r.rows, cmp.AllowUnexported(row{})); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if n := len(r.details); n != len(ps) {
			t.Errorf("%d details, want one for each process", n)
		}
	}
}
