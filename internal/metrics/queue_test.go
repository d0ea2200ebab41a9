package metrics

import (
	"testing"
	"time"
)

func TestQueueClass(t *testing.T) {
	const labels = `{model="M",policy_class="batch"}`
	s := New(Options{})
	r := s.Router("M", WorkerPrefill)
	c := r.Class("batch")
	if r.Class("batch") != c {
		t.Error("a second call returned another QueueClass")
	}
	wantSamples(t, s, map[string]float64{
		`stator_queue_requests` + labels:           0,
		`stator_queue_prompt_tokens` + labels:      0,
		`stator_queue_cached_tokens` + labels:      0,
		`stator_queue_wait_seconds_count` + labels: 0,
	})
	c.Set(3, 3000, 1024)
	c.Set(2, 2000, 512)
	c.Waited(1500 * time.Millisecond)
	c.Waited(-time.Second) // of a clock that went backwards
	c.Left(QueueTimeout)
	c.Left(QueueTimeout)
	c.Left(QueueCancelled)
	c.Left(QueueNoWorkers)
	c.Rejected(QueueLimitRequests)
	c.Rejected(QueueLimitPromptTokens)
	c.Rejected(QueueLimitCachedTokens)
	c.Rejected(QueueLimitCachedTokens)
	wantSamples(t, s, map[string]float64{
		`stator_queue_requests` + labels:                                                                                                     2,
		`stator_queue_prompt_tokens` + labels:                                                                                                2000,
		`stator_queue_cached_tokens` + labels:                                                                                                512,
		`stator_queue_wait_seconds_count` + labels:                                                                                           2,
		`stator_queue_wait_seconds_sum` + labels:                                                                                             1.5,
		`stator_queue_wait_seconds_bucket{model="M",policy_class="batch",le="0.001"}`:                                                        1,
		`stator_queue_wait_seconds_bucket{model="M",policy_class="batch",le="300"}`:                                                          2,
		`stator_queue_left_total{model="M",policy_class="batch",reason="timeout"}`:                                                           2,
		`stator_queue_left_total{model="M",policy_class="batch",reason="cancelled"}`:                                                         1,
		`stator_queue_left_total{model="M",policy_class="batch",reason="no_workers"}`:                                                        1,
		`dynamo_frontend_router_queue_backpressure_total{model="M",policy_class="batch",reason="request_limit",worker_type="prefill"}`:       1,
		`dynamo_frontend_router_queue_backpressure_total{model="M",policy_class="batch",reason="raw_isl_token_limit",worker_type="prefill"}`: 1,
		`dynamo_frontend_router_queue_backpressure_total{model="M",policy_class="batch",reason="cached_token_limit",worker_type="prefill"}`:  2,
	})
	wantAbsent(t, s, `stator_queue_left_total{model="M",policy_class="batch",reason="other"}`)
}

func TestQueueClassSumsOverPools(t *testing.T) {
	const requests, tokens, cached = `stator_queue_requests{model="M",policy_class="default"}`, `stator_queue_prompt_tokens{model="M",policy_class="default"}`, `stator_queue_cached_tokens{model="M",policy_class="default"}`
	s := New(Options{})
	a, b := s.Router("M", WorkerDecode), s.Router("M", WorkerDecode)
	a.Class("default").Set(3, 300, 30)
	b.Class("default").Set(2, 50, 5)
	s.Router("N", WorkerDecode).Class("default").Set(9, 9, 9)
	wantSamples(t, s, map[string]float64{requests: 5, tokens: 350, cached: 35})
	kept := a.Class("default")
	a.Close()
	kept.Set(7, 7, 7)
	wantSamples(t, s, map[string]float64{requests: 2, tokens: 50, cached: 5})
	b.Close()
	wantAbsent(t, s, requests, tokens, cached)

	// The last requests leave because the last pool has gone: that is counted.
	kept.Left(QueueNoWorkers)
	late := b.Class("late")
	late.Set(1, 1, 1)
	late.Left(QueueNoWorkers)
	wantSamples(t, s, map[string]float64{
		`stator_queue_left_total{model="M",policy_class="default",reason="no_workers"}`: 1,
		`stator_queue_left_total{model="M",policy_class="late",reason="no_workers"}`:    1,
		`stator_queue_requests{model="N",policy_class="default"}`:                       9,
	})
	wantAbsent(t, s, requests, `stator_queue_requests{model="M",policy_class="late"}`)

	s.Router("M", WorkerDecode).Class("default").Set(1, 1, 1)
	wantSamples(t, s, map[string]float64{requests: 1, tokens: 1, cached: 1})
}

func TestQueueClassAllocations(t *testing.T) {
	c := New(Options{}).Router("M", WorkerDecode).Class("default")
	n := testing.AllocsPerRun(100, func() {
		c.Set(1, 1000, 16)
		c.Waited(time.Second)
		c.Left(QueueTimeout)
		c.Rejected(QueueLimitRequests)
		c.Set(0, 0, 0)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
