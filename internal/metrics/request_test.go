package metrics

import (
	"sync"
	"testing"
	"time"
)

// at returns a fixed instant, s seconds after an arbitrary start.
func at(s float64) time.Time {
	return time.Unix(1700000000, 0).Add(time.Duration(s * float64(time.Second)))
}

func TestVector16TTFTAndITL(t *testing.T) {
	s := New(Options{})
	r := s.Model("m").Start(at(-1), EndpointChatCompletions, true)
	r.Ready(at(0))
	r.Tokens(at(0.10), 2)
	r.Tokens(at(0.16), 3)
	wantSamples(t, s, map[string]float64{
		`dynamo_frontend_time_to_first_token_seconds_count{model="m"}`:             1,
		`dynamo_frontend_time_to_first_token_seconds_sum{model="m"}`:               0.10,
		`dynamo_frontend_inter_token_latency_seconds_count{model="m"}`:             3,
		`dynamo_frontend_inter_token_latency_seconds_sum{model="m"}`:               0.06,
		`dynamo_frontend_inter_token_latency_seconds_bucket{model="m",le="0.013"}`: 0,
		`dynamo_frontend_inter_token_latency_seconds_bucket{model="m",le="0.024"}`: 3,
		`dynamo_frontend_output_tokens_total{model="m"}`:                           5,
	})
}

func TestRequestLifecycle(t *testing.T) {
	const (
		inflight = `dynamo_frontend_inflight_requests{model="m"}`
		active   = `dynamo_frontend_active_requests{model="m"}`
		queued   = `dynamo_frontend_queued_requests{model="m"}`
		started  = `dynamo_frontend_requests_started_total{endpoint="completions",model="m",request_type="stream"}`
		success  = `dynamo_frontend_requests_total{endpoint="completions",error_type="",model="m",request_type="stream",status="success"}`
		duration = `dynamo_frontend_request_duration_seconds_count{model="m"}`
		osl      = `dynamo_frontend_output_sequence_tokens_sum{model="m"}`
	)
	s := New(Options{})
	r := s.Model("m").Start(at(0), EndpointCompletions, true)
	wantSamples(t, s, map[string]float64{inflight: 1, active: 1, queued: 1, started: 1, duration: 0})
	r.Tokens(at(1), 1)
	wantSamples(t, s, map[string]float64{inflight: 1, active: 1, queued: 0})
	r.End(at(2), ErrNone)
	after := map[string]float64{inflight: 0, active: 0, queued: 0, started: 1, success: 1, duration: 1, osl: 1}
	wantSamples(t, s, after)

	// Nothing counts after the end.
	r.End(at(3), ErrInternal)
	r.Tokens(at(3), 5)
	r.CorrectTokens(5)
	r.Prompt(5)
	r.Cached(5)
	r.Cancelled()
	r.Rejected()
	wantSamples(t, s, after)
	wantSamples(t, s, map[string]float64{
		`dynamo_frontend_output_tokens_total{model="m"}`:         1,
		`dynamo_frontend_input_sequence_tokens_count{model="m"}`: 0,
		`dynamo_frontend_cached_tokens_count{model="m"}`:         0,
		`dynamo_frontend_disconnected_clients`:                   0,
	})
	wantAbsent(t, s,
		`dynamo_frontend_requests_total{endpoint="completions",error_type="internal",model="m",request_type="stream",status="error"}`,
		`dynamo_frontend_model_cancellation_total{endpoint="completions",model="m",request_type="stream"}`,
		`dynamo_frontend_model_rejection_total{endpoint="completions",model="m"}`)
}

func TestEndBeforeFirstToken(t *testing.T) {
	s := New(Options{})
	r := s.Model("m").Start(at(0), EndpointChatCompletions, false)
	r.Prompt(100)
	r.Rejected()
	r.Rejected()
	r.End(at(0.5), ErrOverload)
	wantSamples(t, s, map[string]float64{
		`dynamo_frontend_inflight_requests{model="m"}`:                                                                                    0,
		`dynamo_frontend_queued_requests{model="m"}`:                                                                                      0,
		`dynamo_frontend_request_duration_seconds_sum{model="m"}`:                                                                         0.5,
		`dynamo_frontend_output_sequence_tokens_count{model="m"}`:                                                                         0,
		`dynamo_frontend_input_sequence_tokens_count{model="m"}`:                                                                          0,
		`dynamo_frontend_model_rejection_total{endpoint="chat_completions",model="m"}`:                                                    1,
		`dynamo_frontend_requests_total{endpoint="chat_completions",error_type="overload",model="m",request_type="unary",status="error"}`: 1,
	})
}

func TestCancelled(t *testing.T) {
	s := New(Options{})
	r := s.Model("M").Start(at(0), EndpointResponses, true)
	r.Tokens(at(1), 4)
	r.Cancelled()
	r.Cancelled()
	r.End(at(2), ErrInternal)
	wantSamples(t, s, map[string]float64{
		`dynamo_frontend_disconnected_clients`: 1,
		`dynamo_frontend_model_cancellation_total{endpoint="responses",model="M",request_type="stream"}`:                             1,
		`dynamo_frontend_output_sequence_tokens_sum{model="m"}`:                                                                      4,
		`dynamo_frontend_requests_total{endpoint="responses",error_type="cancelled",model="m",request_type="stream",status="error"}`: 1,
	})
}

func TestPromptIsRecordedOnce(t *testing.T) {
	tests := []struct {
		name  string
		run   func(*Request)
		count float64
		sum   float64
	}{
		{"known at first token", func(r *Request) { r.Prompt(7); r.Tokens(at(1), 1); r.Prompt(9); r.End(at(2), ErrNone) }, 1, 7},
		{"last statement before first token", func(r *Request) { r.Prompt(7); r.Prompt(9); r.Tokens(at(1), 1); r.End(at(2), ErrNone) }, 1, 9},
		{"known after first token", func(r *Request) { r.Tokens(at(1), 1); r.Prompt(9); r.Tokens(at(2), 1); r.End(at(2), ErrNone) }, 1, 9},
		{"late, then failed", func(r *Request) { r.Tokens(at(1), 1); r.Prompt(9); r.End(at(2), ErrInternal) }, 1, 9},
		{"success without tokens", func(r *Request) { r.Prompt(9); r.End(at(2), ErrNone) }, 1, 9},
		{"failure without tokens", func(r *Request) { r.Prompt(9); r.End(at(2), ErrValidation) }, 0, 0},
		{"cancelled without tokens", func(r *Request) { r.Prompt(9); r.Cancelled(); r.End(at(2), ErrNone) }, 0, 0},
		{"empty prompt", func(r *Request) { r.Prompt(0); r.Tokens(at(1), 1); r.End(at(2), ErrNone) }, 1, 0},
		{"unknown", func(r *Request) { r.Prompt(-1); r.Tokens(at(1), 1); r.End(at(2), ErrNone) }, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := New(Options{})
			tt.run(s.Model("m").Start(at(0), EndpointChatCompletions, true))
			wantSamples(t, s, map[string]float64{
				`dynamo_frontend_input_sequence_tokens_count{model="m"}`: tt.count,
				`dynamo_frontend_input_sequence_tokens_sum{model="m"}`:   tt.sum,
			})
		})
	}
}

func TestCachedIsRecordedOnce(t *testing.T) {
	s := New(Options{})
	r := s.Model("m").Start(at(0), EndpointChatCompletions, true)
	r.Cached(-1)
	r.Cached(0)
	r.Cached(64)
	wantSamples(t, s, map[string]float64{
		`dynamo_frontend_cached_tokens_count{model="m"}`: 1,
		`dynamo_frontend_cached_tokens_sum{model="m"}`:   0,
	})
}

func TestCorrectTokens(t *testing.T) {
	const (
		total = `dynamo_frontend_output_tokens_total{model="m"}`
		sum   = `dynamo_frontend_output_sequence_tokens_sum{model="m"}`
		count = `dynamo_frontend_output_sequence_tokens_count{model="m"}`
		ttft  = `dynamo_frontend_time_to_first_token_seconds_count{model="m"}`
		queue = `dynamo_frontend_queued_requests{model="m"}`
	)
	s := New(Options{})
	m := s.Model("m")

	// The engine generated more than there were items.
	r := m.Start(at(0), EndpointChatCompletions, true)
	r.Tokens(at(1), 3)
	r.CorrectTokens(2)
	r.End(at(2), ErrNone)
	wantSamples(t, s, map[string]float64{total: 5, sum: 5})

	// It generated fewer: the total stays, and the difference is withheld from
	// the next increments, of this request or another.
	r = m.Start(at(0), EndpointChatCompletions, true)
	r.Tokens(at(1), 10)
	r.CorrectTokens(-4)
	wantSamples(t, s, map[string]float64{total: 15})
	r.Tokens(at(1), 1)
	wantSamples(t, s, map[string]float64{total: 15})
	r.End(at(2), ErrNone)
	wantSamples(t, s, map[string]float64{sum: 12})
	r = m.Start(at(0), EndpointChatCompletions, true)
	r.Tokens(at(1), 5)
	wantSamples(t, s, map[string]float64{total: 17})
	r.Tokens(at(2), 5)
	r.End(at(3), ErrNone)
	wantSamples(t, s, map[string]float64{total: 22, sum: 22, count: 3})

	// A request never has fewer than no tokens.
	r = m.Start(at(0), EndpointChatCompletions, true)
	r.Tokens(at(1), 2)
	r.CorrectTokens(-50)
	r.End(at(2), ErrNone)
	wantSamples(t, s, map[string]float64{total: 24, sum: 22, count: 3})

	// A count without items says nothing about latency.
	r = m.Start(at(0), EndpointChatCompletions, false)
	r.CorrectTokens(8)
	wantSamples(t, s, map[string]float64{total: 30, ttft: 4, queue: 1})
	r.End(at(1), ErrNone)
	wantSamples(t, s, map[string]float64{total: 30, sum: 30, count: 4, ttft: 4, queue: 0})
}

func TestTokensOddInput(t *testing.T) {
	s := New(Options{})
	r := s.Model("m").Start(at(0), EndpointChatCompletions, true)
	r.Ready(at(1))
	r.Tokens(at(2), 0)
	r.Tokens(at(2), -3)
	wantSamples(t, s, map[string]float64{`dynamo_frontend_time_to_first_token_seconds_count{model="m"}`: 0})
	r.Tokens(at(0.5), 1) // before Ready
	r.Tokens(at(0.4), 1) // before the item before
	r.Tokens(at(1.4), 1<<40)
	wantSamples(t, s, map[string]float64{
		`dynamo_frontend_time_to_first_token_seconds_count{model="m"}`: 1,
		`dynamo_frontend_time_to_first_token_seconds_sum{model="m"}`:   0,
		`dynamo_frontend_inter_token_latency_seconds_count{model="m"}`: 1<<40 + 1,
		`dynamo_frontend_inter_token_latency_seconds_sum{model="m"}`:   1,
		`dynamo_frontend_output_tokens_total{model="m"}`:               1<<40 + 2,
	})
}

func TestTokensAllocatesNothing(t *testing.T) {
	r := New(Options{}).Model("m").Start(at(0), EndpointChatCompletions, true)
	r.Prompt(10)
	now := at(1)
	if n := testing.AllocsPerRun(1000, func() {
		now = now.Add(time.Millisecond)
		r.Tokens(now, 3)
	}); n != 0 {
		t.Errorf("Tokens allocates %v times", n)
	}
}

func TestRequestAllocatesOnlyItself(t *testing.T) {
	s := New(Options{})
	if n := testing.AllocsPerRun(1000, func() {
		r := s.Model("m").Start(at(0), EndpointChatCompletions, true)
		r.Ready(at(0))
		r.Prompt(100)
		r.Tokens(at(1), 1)
		r.Cached(64)
		r.CorrectTokens(1)
		r.End(at(2), ErrNone)
	}); n > 1 {
		t.Errorf("a request allocates %v times, want at most 1", n)
	}
}

// Requests of many goroutines, some of which overcount, while the exposition is
// read: gauges return to zero and totals come out exact.
func TestConcurrentRequests(t *testing.T) {
	const goroutines, each = 8, 200
	s := New(Options{})
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for i := range each {
				r := s.Model("m").Start(at(0), EndpointChatCompletions, i%2 == 0)
				r.Tokens(at(1), 4)
				r.CorrectTokens(-1)
				r.Tokens(at(2), 4)
				r.End(at(3), ErrorTypeOf(200+i%3*100))
			}
		})
	}
	for range 10 {
		samples(t, s)
	}
	wg.Wait()

	r := s.Model("m").Start(at(0), EndpointChatCompletions, true)
	r.Tokens(at(1), goroutines*each) // pays back whatever is still overcounted
	r.End(at(2), ErrNone)
	wantSamples(t, s, map[string]float64{
		`dynamo_frontend_inflight_requests{model="m"}`:          0,
		`dynamo_frontend_active_requests{model="m"}`:            0,
		`dynamo_frontend_queued_requests{model="m"}`:            0,
		`dynamo_frontend_output_tokens_total{model="m"}`:        goroutines * each * 8,
		`dynamo_frontend_output_sequence_tokens_sum{model="m"}`: goroutines * each * 8,
	})
}
