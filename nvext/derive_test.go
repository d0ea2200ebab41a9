package nvext

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPin(t *testing.T) {
	none := (*uint32)(nil)
	rank := func(r uint32) *uint32 { return &r }
	tests := []struct {
		name   string
		phase  Phase
		in     string
		worker uint64
		rank   *uint32
		ok     bool
	}{
		{"prefill", Prefill, `{"backend_instance_id":1,"prefill_worker_id":2,"dp_rank":3,"prefill_dp_rank":4}`, 2, rank(4), true},
		{"decode", Decode, `{"backend_instance_id":1,"decode_worker_id":5,"dp_rank":6}`, 5, rank(6), true},
		{"aggregated", Aggregated, `{"backend_instance_id":9,"dp_rank":7}`, 9, rank(7), true},
		{"aggregated with only decode", Aggregated, `{"decode_worker_id":5,"dp_rank":1}`, 0, none, false},
		{"aggregated ignores phase pins", Aggregated, `{"backend_instance_id":1,"decode_worker_id":5,"prefill_worker_id":6,"prefill_dp_rank":2}`, 1, none, true},
		{"prefill falls back", Prefill, `{"backend_instance_id":1,"dp_rank":3}`, 1, rank(3), true},
		{"decode falls back", Decode, `{"backend_instance_id":1,"prefill_dp_rank":3}`, 1, none, true},
		{"rank alone", Prefill, `{"dp_rank":3,"prefill_dp_rank":4}`, 0, none, false},
		{"worker 0", Aggregated, `{"backend_instance_id":0}`, 0, none, true},
		{"nil", Aggregated, `null`, 0, none, false},
	}
	for _, tt := range tests {
		worker, rank, ok := mustParse(t, tt.in).Pin(tt.phase)
		if worker != tt.worker || ok != tt.ok || !cmp.Equal(rank, tt.rank) {
			t.Errorf("%s: %d, %v, %t", tt.name, worker, rank, ok)
		}
	}
}

func TestPinPath(t *testing.T) {
	for in, want := range map[string]string{
		`null`:                                  "",
		`{}`:                                    "",
		`{"cache_salt":"a","token_data":[1]}`:   "",
		`{"dp_rank":0,"backend_instance_id":1}`: "nvext.backend_instance_id",
		`{"prefill_worker_id":1}`:               "nvext.prefill_worker_id",
		`{"decode_worker_id":1}`:                "nvext.decode_worker_id",
		`{"dp_rank":0}`:                         "nvext.dp_rank",
		`{"prefill_dp_rank":0}`:                 "nvext.prefill_dp_rank",
		`{"allowed_worker_ids":[]}`:             "nvext.allowed_worker_ids",
		`{"allowed_worker_ids":[],"prefill_dp_rank":0}`: "nvext.prefill_dp_rank",
	} {
		if got := mustParse(t, in).PinPath(); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

func TestPriority(t *testing.T) {
	tests := []struct {
		in     string
		jump   float64
		prefer float64 // with preferSensitivity
		engine int32
		ok     bool
	}{
		{`{"priority":5}`, 5, 5, 5, true},
		{`{"priority":-3}`, 0, 0, -3, true},
		{`{"latency_sensitivity":2.5}`, 2.5, 2.5, 0, false},
		{`{"priority":0,"latency_sensitivity":9}`, 0, 9, 0, true},
		{`{}`, 0, 0, 0, false},
		{`null`, 0, 0, 0, false},
		{`{"latency_sensitivity":-1}`, -1, -1, 0, false},
		// An older client that counts down from 1000.
		{`{"priority":100,"latency_sensitivity":900.0}`, 100, 900, 100, true},
		{`{"priority":900,"latency_sensitivity":100.0}`, 900, 100, 900, true},
	}
	for _, tt := range tests {
		h := mustParse(t, `{"agent_hints":`+tt.in+`}`).AgentHints
		if got := h.PriorityJump(false); got != tt.jump {
			t.Errorf("%s: jump %v, want %v", tt.in, got, tt.jump)
		}
		if got := h.PriorityJump(true); got != tt.prefer {
			t.Errorf("%s: jump by sensitivity %v, want %v", tt.in, got, tt.prefer)
		}
		if got, ok := h.EnginePriority(); got != tt.engine || ok != tt.ok {
			t.Errorf("%s: engine priority %d, %t, want %d, %t", tt.in, got, ok, tt.engine, tt.ok)
		}
	}
}

// Query-only needs the colon.
func TestAnnotationsAndExtraFields(t *testing.T) {
	tests := []struct {
		in              string
		query, id, want bool
	}{
		{`null`, false, false, false},
		{`{}`, false, false, false},
		{`{"annotations":["query_instance_id"]}`, false, false, false},
		{`{"annotations":["query_instance_id:"]}`, true, false, false},
		{`{"annotations":["request_id","query_instance_id:x"]}`, true, true, false},
		{`{"annotations":["request_id:"],"extra_fields":["timings"]}`, false, false, false},
		{`{"extra_fields":["nonsense","timing"]}`, false, false, true},
	}
	for _, tt := range tests {
		e := mustParse(t, tt.in)
		if q, id, w := e.QueryOnly(), e.HasAnnotation("request_id"), e.Wants("timing"); q != tt.query || id != tt.id || w != tt.want {
			t.Errorf("%s: query-only %t, request_id %t, timing %t", tt.in, q, id, w)
		}
	}
}
