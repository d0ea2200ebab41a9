package main

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/sched"
)

// TestMoments: policies see what the cost selector sees, and the cases are what they say.
func TestMoments(t *testing.T) {
	cost := sched.DefaultCost()
	few := 0
	for _, pc := range []policyCase{evenLoad, mixedLoad} {
		for i, m := range pc.moments(20, 16) {
			before := m.request.Baseline
			if got := cost.Select(&m.decision); m.decision.Tied == 0 && got != before {
				t.Errorf("%s, moment %d: the cost chooses %d, the policy is told %d", pc.name, i, got, before)
			}
			within := 0
			base := m.arms[before].Cost
			for k, arm := range m.arms {
				c := &m.decision.Candidates[k]
				if arm.ID.Worker != c.Worker || arm.Cost != c.Score || arm.InFlight != c.Requests || arm.KVTokens != c.Blocks*decideBlock {
					t.Errorf("%s, moment %d: arm %+v of candidate %+v", pc.name, i, arm, c)
				}
				if !(m.ttft[k] > 0 && m.itl[k] > 0) {
					t.Errorf("%s, moment %d, rank %d: %v and %v", pc.name, i, k, m.ttft[k], m.itl[k])
				}
				if arm.Cost <= 1.05*base {
					within++
				}
			}
			if pc.name == evenLoad.name && within < len(m.arms) {
				t.Errorf("moment %d: %d of %d cost about as much", i, within, len(m.arms))
			}
			if within < 4 {
				few++
			}
		}
	}
	if few == 0 {
		t.Error("with mixed load, ranks always cost about as much")
	}
}

// TestLearner: as many decisions wait for feedback after learning as should, and the policy
// has something to choose from.
func TestLearner(t *testing.T) {
	for _, name := range policyNames {
		l, err := newLearner(name, evenLoad.moments(8, 5))
		if err != nil {
			t.Fatal(err)
		}
		chose, among, err := l.learn(300, 40)
		if err != nil || chose != 1 || among != 5 || len(l.flights) != 40 {
			t.Errorf("%s: a choice in %v, between %v, %d under way: %v", name, chose, among, len(l.flights), err)
		}
		f := l.flights[0]
		if err := l.hear(1); err != nil {
			t.Fatal(err)
		}
		if err := l.feedback(l.now, f); err == nil {
			t.Errorf("%s: feedback twice", name)
		}
	}
}

// TestPolicyFigures: ratios are of rounds, and the slowest policy decides the other rows.
func TestPolicyFigures(t *testing.T) {
	const µs = 1e-6
	figures := []policyFigures{
		{
			name: "safe", chose: 1, among: 64, decide: []float64{10 * µs, 16 * µs}, feedback: []float64{6 * µs, 6 * µs},
			cost: []float64{0.5 * µs, 0.8 * µs}, p99: []float64{20 * µs, 40 * µs},
		}, {
			name: "reference", chose: 1, among: 64, decide: []float64{25 * µs, 40 * µs}, feedback: []float64{µs, µs},
			cost: []float64{0.5 * µs, 0.8 * µs}, p99: []float64{100 * µs, 300 * µs}, allocations: 2,
		},
	}
	var r report
	if err := r.policies(64, figures); err != nil {
		t.Fatal(err)
	}
	want := []row{
		{"deciding by policy safe, 64 ranks, all admissible, to the cost", "650.0 ns", "13.0 µs", "20.00", "20.00–20.00", "≤ 48.0×", true},
		{"deciding by policy reference, 64 ranks, all admissible, to the cost", "650.0 ns", "32.5 µs", "50.00", "50.00–50.00", "≤ 48.0×", false},
		{what: "single decision, 64 ranks, all admissible, p99", stator: "200.0 µs (reference)", target: "≤ 150 µs"},
		{what: "feedback, 64 ranks", stator: "6.0 µs (safe)", target: "≤ 5 µs"},
		{what: "allocations per decision of a policy, 64 ranks, all admissible", stator: "2", target: "0"},
	}
	if diff := cmp.Diff(want, r.rows, cmp.AllowUnexported(row{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	figures[0].among = 63
	if err := r.policies(64, figures); err == nil {
		t.Error("no error with a rank that is not admissible")
	}
}

func TestPolicyRows(t *testing.T) {
	var r report
	err := measurePolicies(t.Context(), options{rounds: 2, log: io.Discard}, &r, policyScale{
		ranks: []int{2, 9}, moments: 4, learned: 50, calls: 16, singles: 20,
		fleet: decideScale{blocks: 20, families: 2, prompts: 8, live: 2},
	})
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, w := range r.rows {
		rows = append(rows, w.what)
	}
	var want []string
	for _, ranks := range []string{"2 ranks", "9 ranks"} {
		for _, p := range policyNames {
			want = append(want, "deciding by policy "+p+", "+ranks+", all admissible, to the cost")
		}
		want = append(want,
			"single decision, "+ranks+", all admissible, p99",
			"feedback, "+ranks,
			"allocations per decision of a policy, "+ranks+", all admissible")
	}
	for _, ranks := range []string{"320 tokens × 2 ranks", "320 tokens × 9 ranks"} {
		for _, p := range policyNames {
			want = append(want, "placement by policy "+p+", "+ranks+", to one by cost")
		}
		want = append(want,
			"allocations per placement by a policy, "+ranks,
			"lock held by a placement by a policy, "+ranks+", p50, to one by cost")
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("rows (-want +got)\n%s", diff)
	}
	if len(r.tables) != 1 || len(r.tables[0]) != 1+2*2*3 || len(r.notes) != 6 {
		t.Errorf("%d tables, %d notes", len(r.tables), len(r.notes))
	}
	var out strings.Builder
	if err := r.write(&out); err != nil || strings.Contains(out.String(), "%!") || strings.Contains(out.String(), "NaN") {
		t.Errorf("%v\n%s", err, &out)
	}
}

// TestPolicyFleet: policies decide about placements and hear of them, and time passes.
func TestPolicyFleet(t *testing.T) {
	s := policyScale{learned: 200, fleet: decideScale{blocks: 20, families: 2, prompts: 8, live: 2}}
	for _, name := range []string{"cost", "safe", "shadow", "reference"} {
		f, err := s.newPolicyFleet(t.Context(), name, 3)
		if err != nil {
			t.Fatal(err)
		}
		sampled, err := f.sampled(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if decides := name == "safe" || name == "reference"; decides != (sampled > 0) {
			t.Errorf("%s: decides %v of the placements", name, sampled)
		}
		policies := f.router.Bandits()
		if name == "cost" {
			if len(policies) != 0 {
				t.Errorf("cost: %+v", policies)
			}
		} else if len(policies) != 1 || policies[0].Mode != name || policies[0].Pending > f.live {
			t.Errorf("%s: %+v with %d requests", name, policies, f.live)
		}
		p50, p99, err := f.locked(t.Context())
		if err != nil || p50 <= 0 || p99 < p50 {
			t.Errorf("%s: lock held for %v, p99 %v: %v", name, p50, p99, err)
		}
		f.close()
	}
}
