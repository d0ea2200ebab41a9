package metrics

import (
	"testing"
	"time"
)

func TestVector17KVHitRate(t *testing.T) {
	tests := []struct {
		name                             string
		promptTokens, blockSize, overlap int
		count, sum                       float64
	}{
		{"3 of 10 blocks", 160, 16, 3, 1, 0.3},
		{"0 blocks", 0, 16, 0, 0, 0},
		{"100 tokens in blocks of 16, 5 of 7", 100, 16, 5, 1, 5.0 / 7},
		{"one token", 1, 16, 0, 1, 0},
		{"more overlap than blocks", 16, 16, 3, 1, 1},
		{"negative overlap", 16, 16, -1, 1, 0},
		{"unknown block size", 100, 0, 0, 0, 0},
	}
	const labels = `{dynamo_component="backend",dynamo_namespace="dynamo",model="M",router_id="7"}`
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := New(Options{RouterID: 7})
			s.Router("M", WorkerDecode).Placed(tt.promptTokens, tt.blockSize, tt.overlap)
			wantSamples(t, s, map[string]float64{
				`dynamo_component_router_requests_total` + labels:            1,
				`dynamo_component_router_input_sequence_tokens_sum` + labels: float64(tt.promptTokens),
				`dynamo_component_router_kv_hit_rate_count` + labels:         tt.count,
				`dynamo_component_router_kv_hit_rate_sum` + labels:           tt.sum,
			})
		})
	}
}

func TestRouterLatencies(t *testing.T) {
	const labels = `{dynamo_component="prefill",dynamo_namespace="prod",model="M",router_id="0"}`
	s := New(Options{Namespace: "prod"})
	r := s.Router("M", WorkerPrefill)
	r.FirstToken(300 * time.Millisecond)
	r.Tokens(160*time.Millisecond, 16)
	r.Tokens(time.Second, 0)
	r.Done(17)
	wantSamples(t, s, map[string]float64{
		`dynamo_component_router_time_to_first_token_seconds_sum` + labels:   0.3,
		`dynamo_component_router_inter_token_latency_seconds_count` + labels: 16,
		`dynamo_component_router_inter_token_latency_seconds_sum` + labels:   0.16,
		`dynamo_component_router_output_sequence_tokens_sum` + labels:        17,
	})
}

func TestOverhead(t *testing.T) {
	s := New(Options{RouterID: 7})
	s.Router("M", WorkerDecode).Overhead(Overhead{
		BlockHashing: 5 * time.Microsecond,
		SeqHashing:   -time.Microsecond,
		FindMatches:  20 * time.Microsecond,
		Scheduling:   30 * time.Microsecond,
		Total:        2 * time.Millisecond,
	})
	wantSamples(t, s, map[string]float64{
		`dynamo_router_overhead_block_hashing_ms_sum{router_id="7"}`:        0.005,
		`dynamo_router_overhead_seq_hashing_ms_sum{router_id="7"}`:          0,
		`dynamo_router_overhead_seq_hashing_ms_count{router_id="7"}`:        0, // not taken
		`dynamo_router_overhead_indexer_find_matches_ms_sum{router_id="7"}`: 0.02,
		`dynamo_router_overhead_scheduling_ms_sum{router_id="7"}`:           0.03,
		`dynamo_router_overhead_total_ms_sum{router_id="7"}`:                2,
	})
}

func TestQueueGaugesSumOverPools(t *testing.T) {
	const (
		requests = `dynamo_frontend_router_queue_pending_requests{worker_type="decode"}`
		tokens   = `dynamo_frontend_router_queue_pending_isl_tokens{worker_type="decode"}`
		prefill  = `dynamo_frontend_router_queue_pending_requests{worker_type="prefill"}`
	)
	s := New(Options{})
	a, b := s.Router("a", WorkerDecode), s.Router("a", WorkerDecode)
	p := s.Router("a", WorkerPrefill)
	a.SetQueue(3, 300)
	b.SetQueue(2, 50)
	p.SetQueue(9, 9)
	wantSamples(t, s, map[string]float64{requests: 5, tokens: 350, prefill: 9})
	a.SetQueue(1, 100)
	wantSamples(t, s, map[string]float64{requests: 3, tokens: 150})
	a.Close()
	a.Close()
	a.SetQueue(4, 4)
	wantSamples(t, s, map[string]float64{requests: 2, tokens: 50, prefill: 9})
}
