package metrics

import (
	"strconv"
	"strings"
	"sync"
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

func TestRouterDecisions(t *testing.T) {
	const labels = `{dynamo_component="backend",dynamo_namespace="dynamo",model="M",router_id="7"}`
	s := New(Options{RouterID: 7})
	r := s.Router("M", WorkerDecode)
	r.Started()
	r.Started()
	r.Decided("cost")
	s.Router("M", WorkerPrefill).Decided("cost")
	r.Decided("pinned")
	r.OverlapLost(3)
	r.OverlapLost(5)
	r.OverlapLost(0) // nothing lost
	r.OverlapLost(-1)
	r.TextRouted()
	wantSamples(t, s, map[string]float64{
		`dynamo_component_router_requests_started_total` + labels:           2,
		`dynamo_component_router_requests_total` + labels:                   0,
		`stator_router_decisions_total{model="M",reason="cost"}`:            2,
		`stator_router_decisions_total{model="M",reason="pinned"}`:          1,
		`dynamo_component_router_non_max_overlap_selections_total` + labels: 2,
		`dynamo_component_router_overlap_blocks_lost_count` + labels:        2,
		`dynamo_component_router_overlap_blocks_lost_sum` + labels:          8,
		`stator_router_text_routed_total{model="M"}`:                        1,
	})
	wantAbsent(t, s, `stator_router_decisions_total{model="M",reason="random"}`)
	if n := testing.AllocsPerRun(100, func() { r.Decided("cost") }); n != 0 {
		t.Errorf("Decided allocates %v times", n)
	}
}

func TestLedgerSumsOverPools(t *testing.T) {
	const stretches, blocks = `stator_ledger_stretches{model="M"}`, `stator_ledger_blocks{model="M"}`
	s := New(Options{})
	a, b := s.Router("M", WorkerDecode), s.Router("M", WorkerPrefill)
	a.SetLedger(3, 300)
	b.SetLedger(2, 50)
	a.SetLedger(1, 100)
	wantSamples(t, s, map[string]float64{stretches: 3, blocks: 150})
	a.Close()
	a.SetLedger(9, 9)
	wantSamples(t, s, map[string]float64{stretches: 2, blocks: 50})
	b.Close()
	b.Close()
	wantAbsent(t, s, stretches, blocks)
	s.Router("M", WorkerDecode).SetLedger(1, 1)
	wantSamples(t, s, map[string]float64{stretches: 1, blocks: 1})
}

func TestLeases(t *testing.T) {
	s := New(Options{})
	wantSamples(t, s, map[string]float64{"stator_router_leases": 0, "stator_router_leases_expired_total": 0})
	s.SetLeases(4)
	s.SetLeases(3)
	s.LeaseExpired()
	wantSamples(t, s, map[string]float64{"stator_router_leases": 3, "stator_router_leases_expired_total": 1})
}

func TestSetAdapter(t *testing.T) {
	const poet, rest = `stator_adapter_requests{adapter="poet",model="M"}`, `stator_adapter_requests{adapter="other",model="M"}`
	s := New(Options{})
	a, b := s.Router("M", WorkerDecode), s.Router("M", WorkerDecode)
	a.SetAdapter("poet", 3)
	b.SetAdapter("poet", 2)
	a.SetAdapter("", 5)
	wantSamples(t, s, map[string]float64{poet: 5})
	a.SetAdapter("poet", 0)
	wantSamples(t, s, map[string]float64{poet: 2})
	b.SetAdapter("poet", 0)
	wantAbsent(t, s, poet, `stator_adapter_requests{adapter="",model="M"}`)

	for i := range maxAdapters {
		a.SetAdapter("a"+strconv.Itoa(i), 1)
	}
	a.SetAdapter("poet", 3)
	b.SetAdapter("poet", 1)
	b.SetAdapter("other", 1)
	b.SetAdapter("other one", 2)
	wantAbsent(t, s, poet)
	wantSamples(t, s, map[string]float64{rest: 7, `stator_adapter_requests{adapter="a1023",model="M"}`: 1})

	// Room that becomes free is for those that come after.
	a.SetAdapter("a0", 0)
	a.SetAdapter("poet", 2)
	wantSamples(t, s, map[string]float64{rest: 6})
	a.SetAdapter("poet", 0)
	b.SetAdapter("poet", 0)
	b.SetAdapter("poet", 4)
	wantSamples(t, s, map[string]float64{rest: 3, poet: 4})

	b.Close()
	b.SetAdapter("poet", 9)
	wantAbsent(t, s, poet, rest)
	wantSamples(t, s, map[string]float64{`stator_adapter_requests{adapter="a1023",model="M"}`: 1})
	a.Close()
	for series := range samples(t, s) {
		if strings.HasPrefix(series, "stator_adapter_requests") {
			t.Errorf("series left: %s", series)
		}
	}
}

// Pools come and go while others record; in the end only what is counted is left.
func TestCloseConcurrently(t *testing.T) {
	s := New(Options{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 50 {
				r := s.Router("M", WorkerDecode)
				late := make(chan struct{})
				go func() {
					defer close(late)
					r.Class("late").Set(1, 1, 1)
					r.SetAdapter("late", 1)
				}()
				r.Class("default").Set(1, 2, 3)
				r.Class("default").Waited(time.Second)
				r.SetAdapter("poet", i+1)
				r.SetLedger(1, 2)
				r.Close()
				<-late
			}
		})
	}
	wg.Wait()
	got := samples(t, s)
	if n := got[`stator_queue_wait_seconds_count{model="M",policy_class="default"}`]; n != 200 {
		t.Errorf("%v waits, want 200", n)
	}
	for series := range got {
		name, _, _ := strings.Cut(series, "{")
		switch name {
		case "stator_queue_requests", "stator_queue_prompt_tokens", "stator_queue_cached_tokens",
			"stator_ledger_stretches", "stator_ledger_blocks", "stator_adapter_requests":
			t.Errorf("series left: %s %v", series, got[series])
		}
	}
}
