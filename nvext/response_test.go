package nvext

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFloat(t *testing.T) {
	tests := []struct {
		in   float64
		want string
	}{
		{30, "30.0"}, {12.5, "12.5"}, {0, "0.0"}, {math.Copysign(0, -1), "-0.0"}, {-7, "-7.0"}, {0.3, "0.3"},
		{5.0 / 7, "0.7142857142857143"}, {1700000000123, "1700000000123.0"}, {1e15, "1000000000000000.0"},
		{0.00001, "0.00001"}, {123456.789, "123456.789"}, {1e16, "1e+16"}, {1e-6, "1e-06"}, {math.MaxFloat64, "1.7976931348623157e+308"},
		{math.NaN(), "null"}, {math.Inf(1), "null"}, {math.Inf(-1), "null"},
	}
	for _, tt := range tests {
		got := marshal(t, Float(tt.in))
		if got != tt.want {
			t.Errorf("%v is written %s, want %s", tt.in, got, tt.want)
		}
		var back Float
		if err := json.Unmarshal([]byte(got), &back); err != nil {
			t.Errorf("%s: %v", got, err)
		}
		if got == "null" && !math.IsNaN(float64(back)) || got != "null" && float64(back) != tt.in {
			t.Errorf("%s is read as %v", got, back)
		}
	}
	var f Float
	if err := json.Unmarshal([]byte(`"1"`), &f); err == nil {
		t.Error("a string is read as a Float")
	}
}

func completeResponse() *Response {
	return &Response{
		WorkerID: &WorkerIDs{PrefillWorkerID: new(uint64(math.MaxUint64)), PrefillDPRank: new(uint32(0)), DecodeWorkerID: new(uint64(2)), DecodeDPRank: new(uint32(1))},
		Timing: &Timing{
			RequestReceivedMS: 1700000000123, PrefillWaitTimeMS: new(Float(0.5)), PrefillTimeMS: new(Float(12)), TTFTMS: new(Float(12.5)),
			TotalTimeMS: new(Float(30)), KVHitRate: new(Float(0.3)), RouterQueueDepth: new(uint64(4)), KVTransferEstimatedLatencyMS: new(Float(0)),
		},
		TokenIDs:           []uint32{1, 2, math.MaxUint32},
		RoutedExperts:      json.RawMessage(`[[1, 2]]`),
		EngineData:         json.RawMessage("{\n\"a\": \"<b>\"}"),
		StopReason:         json.RawMessage(`"STOP"`),
		CompletionTokenIDs: json.RawMessage(`[7]`),
		PromptLogprobs:     json.RawMessage(`null`),
		Routing:            sampleRouting(),
	}
}

func TestAppendJSON(t *testing.T) {
	tests := []struct {
		name string
		r    *Response
		want string // "" where json.Marshal is all there is to compare with
	}{
		{"nil", nil, "null"},
		{"empty", &Response{}, "{}"},
		{"finish chunk", &Response{Timing: &Timing{RequestReceivedMS: 1700000000123, TTFTMS: new(Float(12.5)), TotalTimeMS: new(Float(30))}},
			`{"timing":{"request_received_ms":1700000000123,"ttft_ms":12.5,"total_time_ms":30.0}}`},
		{"query-only", &Response{
			WorkerID: &WorkerIDs{PrefillWorkerID: new(uint64(7)), PrefillDPRank: new(uint32(0)), DecodeWorkerID: new(uint64(7)), DecodeDPRank: new(uint32(0))},
			TokenIDs: []uint32{1, 2, 3},
		}, `{"worker_id":{"prefill_worker_id":7,"prefill_dp_rank":0,"decode_worker_id":7,"decode_dp_rank":0},"token_ids":[1,2,3]}`},
		{"no tokens", &Response{WorkerID: &WorkerIDs{}, TokenIDs: []uint32{}}, `{"worker_id":{},"token_ids":[]}`},
		{"not a number", &Response{Timing: &Timing{KVHitRate: new(Float(math.NaN()))}}, `{"timing":{"request_received_ms":0,"kv_hit_rate":null}}`},
		{"timing in order", &Response{Timing: completeResponse().Timing},
			`{"timing":{"request_received_ms":1700000000123,"prefill_wait_time_ms":0.5,"prefill_time_ms":12.0,"ttft_ms":12.5,"total_time_ms":30.0,"kv_hit_rate":0.3,"router_queue_depth":4,"kv_transfer_estimated_latency_ms":0.0}}`},
		{"complete", completeResponse(), ""},
	}
	for _, tt := range tests {
		got := string(tt.r.AppendJSON([]byte("data: ")))
		got, ok := strings.CutPrefix(got, "data: ")
		if !ok {
			t.Errorf("%s: dst is lost", tt.name)
		}
		if want := marshal(t, tt.r); got != want {
			t.Errorf("%s: AppendJSON\n%s\njson.Marshal\n%s", tt.name, got, want)
		}
		if tt.want != "" && got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
		if strings.ContainsAny(got, "\r\n") {
			t.Errorf("%s: more than one line: %q", tt.name, got)
		}
	}
	if got := string((&Response{EngineData: json.RawMessage("{")}).AppendJSON(nil)); got != `{"engine_data":null}` {
		t.Errorf("invalid raw member: %s", got)
	}
}

func TestAppendJSONRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		r := completeResponse()
		drop := rng.Uint32()
		maybe := func(bit int, f func()) {
			if drop>>bit&1 == 1 {
				f()
			}
		}
		maybe(0, func() { r.WorkerID = nil })
		maybe(1, func() { r.TokenIDs = nil })
		maybe(2, func() { r.Routing = nil })
		maybe(3, func() { r.RoutedExperts = nil })
		maybe(4, func() { r.EngineData = nil })
		maybe(5, func() { r.StopReason = nil })
		maybe(6, func() { r.CompletionTokenIDs = nil })
		maybe(7, func() { r.PromptLogprobs = nil })
		maybe(8, func() { r.Timing.PrefillWaitTimeMS = nil })
		maybe(9, func() { r.Timing.RouterQueueDepth = nil })
		r.Timing.TTFTMS = new(Float(math.Float64frombits(rng.Uint64())))
		if got, want := string(r.AppendJSON(nil)), marshal(t, r); got != want {
			t.Fatalf("AppendJSON\n%s\njson.Marshal\n%s", got, want)
		}
	}
}

func TestResponseRoundTrip(t *testing.T) {
	want := completeResponse()
	var got Response
	if err := json.Unmarshal(want.AppendJSON(nil), &got); err != nil {
		t.Fatal(err)
	}
	if a, b := marshal(t, want), marshal(t, &got); a != b {
		t.Errorf("(-want +got):\n%s", cmp.Diff(a, b))
	}
}

func TestEmpty(t *testing.T) {
	if !(*Response)(nil).Empty() || !(&Response{}).Empty() {
		t.Error("nothing is not empty")
	}
	for i, r := range []*Response{
		{WorkerID: &WorkerIDs{}}, {Timing: &Timing{}}, {TokenIDs: []uint32{}}, {RoutedExperts: json.RawMessage("0")},
		{EngineData: json.RawMessage("0")}, {StopReason: json.RawMessage("0")}, {CompletionTokenIDs: json.RawMessage("0")},
		{PromptLogprobs: json.RawMessage("0")}, {Routing: &Routing{}},
	} {
		if r.Empty() || string(r.AppendJSON(nil)) == "{}" {
			t.Errorf("response %d is empty", i)
		}
	}
}

func TestRecord(t *testing.T) {
	var w WorkerIDs
	w.Record(Prefill, 1, new(uint32(10)))
	w.Record(Decode, 2, nil)
	w.Record(Aggregated, 3, new(uint32(30))) // the first record stays
	if got := marshal(t, w); got != `{"prefill_worker_id":1,"prefill_dp_rank":10,"decode_worker_id":2}` {
		t.Errorf("two phases: %s", got)
	}
	var a WorkerIDs
	a.Record(Aggregated, 3, new(uint32(0)))
	if got := marshal(t, a); got != `{"prefill_worker_id":3,"prefill_dp_rank":0,"decode_worker_id":3,"decode_dp_rank":0}` {
		t.Errorf("aggregated: %s", got)
	}
}

func TestAppendJSONAllocs(t *testing.T) {
	r := completeResponse()
	r = &Response{WorkerID: r.WorkerID, Timing: r.Timing, TokenIDs: r.TokenIDs}
	buf := make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() { buf = r.AppendJSON(buf[:0]) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// BenchmarkAppendJSON writes the common members, beside encoding/json.
func BenchmarkAppendJSON(b *testing.B) {
	r := completeResponse()
	r = &Response{WorkerID: r.WorkerID, Timing: r.Timing}
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		var buf []byte
		for b.Loop() {
			buf = r.AppendJSON(buf[:0])
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := json.Marshal(r); err != nil {
				b.Fatal(err)
			}
		}
	})
}
