package metrics

import (
	"math"
	"strings"
	"testing"
	"time"
)

// The names, and what is there before anything was recorded.
func TestThompsonFromTheStart(t *testing.T) {
	s := New(Options{})
	want := make(map[string]float64)
	for _, name := range []string{
		"pending_decisions", "prefix_state_size", "timeout_penalties_total", "sticky_decisions_total", "switch_decisions_total",
		"safe_fallbacks_total", "reuse_budget_count", `reuse_budget_bucket{le="0"}`, `reuse_budget_bucket{le="100"}`,
		`tokens_per_request_bucket{le="32"}`, `tokens_per_request_bucket{le="8192"}`,
	} {
		want["thompson_router_"+name] = 0
	}
	wantSamples(t, s, want)
	s.Worker(1, 0)
	for series := range samples(t, s) {
		if strings.HasPrefix(series, "thompson_router") && strings.Contains(series, "worker_id") {
			t.Errorf("%s before anything is known of the worker", series)
		}
	}
}

func TestThompson(t *testing.T) {
	const id = 7301554400123456789
	const label = `{worker_id="7301554400123456789"}`
	s := New(Options{})
	s.Worker(id, 0)
	b := s.Thompson()
	if s.Thompson() != b {
		t.Error("a second call returned another recorder")
	}
	b.Decision(id, 0.25, 2048, 3, NoPrevious)
	b.Decision(id, 0.75, 2048, 2, Stayed)
	b.Decision(id, 0.5, -1, -1, Switched)
	wantAbsent(t, s, "thompson_router_reward"+label, "thompson_router_beta_alpha"+label)
	b.Feedback(id, 1500*time.Millisecond, 0.5)
	b.Feedback(id, -time.Second, 0.75)
	b.Beta(id, 1.5, 2)
	b.Timeouts(3)
	b.Timeouts(-1)
	b.Fallback()
	wantSamples(t, s, map[string]float64{
		"thompson_router_decisions_total" + label:                            3,
		"thompson_router_kv_overlap" + label:                                 0.5,
		"thompson_router_feedback_latency_seconds_count" + label:             2,
		"thompson_router_feedback_latency_seconds_sum" + label:               1.5,
		"thompson_router_reward" + label:                                     0.75,
		"thompson_router_beta_alpha" + label:                                 1.5,
		"thompson_router_beta_beta" + label:                                  2,
		"thompson_router_sticky_decisions_total":                             1,
		"thompson_router_switch_decisions_total":                             1,
		"thompson_router_timeout_penalties_total":                            3,
		"thompson_router_safe_fallbacks_total":                               1,
		"thompson_router_reuse_budget_sum":                                   5,
		`thompson_router_reuse_budget_bucket{le="0"}`:                        1,
		"thompson_router_tokens_per_request_sum":                             4096,
		`thompson_router_tokens_per_request_bucket{le="2048"}`:               3,
		`thompson_router_tokens_per_request_bucket{le="1024"}`:               1,
		`dynamo_component_thompson_routing_decisions_total` + label:          0, // others count that
		`dynamo_component_requests_total` + findWorkerLabels:                 0,
		`dynamo_component_thompson_requests_total`:                           0,
		`dynamo_component_thompson_kve_prompt_tokens_total`:                  0,
		`dynamo_component_thompson_request_latency_seconds_count`:            0,
		`dynamo_component_thompson_active_requests`:                          0,
		`dynamo_component_request_duration_seconds_count` + findWorkerLabels: 0,
	})
}

const findWorkerLabels = `{dynamo_component="router",dynamo_endpoint="find_worker",dynamo_namespace="dynamo",worker_id=""}`

func TestThompsonGaugesSumOverPools(t *testing.T) {
	s := New(Options{})
	b := s.Thompson()
	check := func(pending, prefixes float64) {
		t.Helper()
		wantSamples(t, s, map[string]float64{"thompson_router_pending_decisions": pending, "thompson_router_prefix_state_size": prefixes})
	}
	b.Gauges("a", 3, 10)
	b.Gauges("b", 1, 5)
	check(4, 15)
	b.Gauges("a", 2, 11)
	check(3, 16)
	b.Gauges("a", 0, 0)
	b.Gauges("a", 0, 0)
	check(1, 5)
	if len(b.pools) != 1 {
		t.Errorf("%d pools are remembered, want 1", len(b.pools))
	}
}

// Only workers that are there have series, so that no late word brings one back.
func TestThompsonOfWorkersThatAreThere(t *testing.T) {
	s := New(Options{})
	b := s.Thompson()
	use := func() {
		b.Decision(5, 1, 10, 0, Stayed)
		b.Feedback(5, time.Second, 1)
		b.Beta(5, 1, 1)
	}
	left := func() (n int) {
		for series := range samples(t, s) {
			if strings.Contains(series, `worker_id="5"`) && strings.HasPrefix(series, "thompson_router") {
				n++
			}
		}
		return n
	}
	use()
	if n := left(); n != 0 {
		t.Errorf("%d series of a worker that nobody knows", n)
	}
	s.Worker(5, 0)
	use()
	if left() == 0 {
		t.Error("no series of a worker that is there")
	}
	wantSamples(t, s, map[string]float64{`thompson_router_decisions_total{worker_id="5"}`: 1})
	s.DropWorker(5)
	use()
	if n := left(); n != 0 {
		t.Errorf("%d series of a worker that has left", n)
	}
	wantSamples(t, s, map[string]float64{"thompson_router_sticky_decisions_total": 3}) // whoever it was
}

func TestThompsonDoesNotAllocate(t *testing.T) {
	s := New(Options{})
	s.Worker(1, 0)
	b := s.Thompson()
	run := func() {
		b.Decision(1, math.Pi/4, 100, 2, Stayed)
		b.Feedback(1, time.Second, 0.5)
		b.Beta(1, 1, 2)
		b.Gauges("pool", 1, 2)
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
