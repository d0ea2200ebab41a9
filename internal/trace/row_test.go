package trace_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/trace"
	"github.com/stator-ai/stator/nvext"
)

// fullRow returns a row with every member set.
func fullRow() *trace.Row {
	routing := &nvext.Routing{
		RequestID: "r-1", Model: "m", Mode: "kv", Policy: "cost", Reason: nvext.ReasonCost, Attempt: 1, Considered: 2,
		Chosen: nvext.Candidate{WorkerID: 1, State: nvext.StateEligible, Score: 2.5},
		Candidates: []nvext.Candidate{
			{WorkerID: 1, State: nvext.StateEligible, Score: 2.5, Terms: []nvext.Term{{Name: "load", Value: 2.5}}},
			{WorkerID: 2, State: nvext.StateInhibited, Score: nvext.Float(math.NaN())},
		},
		Seed:          new(uint64(1 << 60)),
		OverlapBlocks: 1, TotalBlocks: 2, PredictedCachedTokens: new(16),
	}
	return &trace.Row{
		RequestID:          "r-1",
		XRequestID:         "client-1",
		Model:              "m",
		Endpoint:           "chat_completions",
		Stream:             true,
		ArrivalUS:          1767323045000001,
		RequestTimestampMS: new(12.5),
		Key:                "alice",
		SessionID:          "s",
		ParentSessionID:    "p",
		Hints:              trace.HintsOf(fullExt()),
		Inferred: []trace.Inferred{
			{nvext.InferredOSL, 90, nvext.SourceFamily, 32}, {nvext.InferredRemainingCalls, 0, nvext.SourceFamily, 40},
			{nvext.InferredIAT, 120, nvext.SourceSession, 2},
		},
		Constraints:           trace.ConstraintsOf(fullExt(), nvext.Aggregated),
		InputTokens:           40,
		InputGuessed:          true,
		EngineInputTokens:     new(41),
		MaxOutputTokens:       new(100),
		TokenSource:           "local",
		Tokenizer:             "bytes",
		Prompts:               2,
		Choices:               3,
		Adapter:               "lora",
		Salted:                true,
		BlockSize:             16,
		BlockHashes:           trace.Hashes{1, math.MaxUint64},
		Text:                  "<b>\n",
		Attempts:              []trace.Attempt{{PlacedMS: trace.MS(time.Millisecond), Failure: "refused", Status: 503}, {Routing: routing}},
		Worker:                &nvext.WorkerIDs{DecodeWorkerID: new(uint64(1)), DecodeDPRank: new(uint32(0))},
		TokenizedMS:           trace.MS(300 * time.Microsecond),
		PlacedMS:              trace.MS(time.Millisecond),
		SentMS:                trace.MS(1100 * time.Microsecond),
		TTFTMS:                trace.MS(20*time.Millisecond + 400*time.Nanosecond),
		TotalTimeMS:           trace.MS(2 * time.Second),
		AvgITLMS:              trace.MS(9990 * time.Microsecond),
		OutputTokens:          new(200),
		FinishReason:          "stop",
		PredictedCachedTokens: new(16),
		CachedTokens:          new(0),
		Outcome:               trace.OutcomeCompleted,
		ErrorCode:             "none",
		Status:                200,
	}
}

func fullExt() *nvext.NvExt {
	return &nvext.NvExt{
		AgentHints: &nvext.AgentHints{
			LatencySensitivity: new(1.5), OSL: new(uint32(100)), Priority: new(int32(-3)), StrictPriority: new(uint32(2)),
			SpeculativePrefill: new(true), PrefixID: new("prefix"), TotalRequests: new(uint64(7)), IATMS: new(uint64(250)),
			Unknown: []nvext.Member{{Key: "secret_hint", Value: []byte("1")}},
		},
		CacheControl:         &nvext.CacheControl{TTL: new("5m")},
		Router:               &nvext.RouterTargets{TTFTTargetMS: new(100.0), ITLTargetMS: new(20.0)},
		SessionControl:       &nvext.SessionControl{SessionID: "s", Action: nvext.SessionOpen},
		CacheSalt:            new("secret_salt"),
		BackendInstanceID:    new(uint64(1)),
		DPRank:               new(uint32(0)),
		AllowedWorkerIDs:     []uint64{1, 2},
		RoutingConstraints:   &nvext.RoutingConstraints{RequiredTaints: []string{"a"}, PreferredTaints: map[string]float64{"b": 0.5}},
		RouterConfigOverride: json.RawMessage("{\"x\":\n 1}"),
	}
}

// The members of a row, their order, and what is left out of an empty one.
func TestRowJSON(t *testing.T) {
	var out []byte
	for _, r := range []*trace.Row{fullRow(), {RequestID: "r-2", Model: "m", Endpoint: "completions", TokenSource: "none", Outcome: trace.OutcomeRefused, Status: 503}} {
		var err error
		if out, err = r.AppendJSON(out); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(string(out), "\n"); n != 2 {
		t.Errorf("2 rows are %d lines", n)
	}
	if strings.Contains(string(out), "secret") {
		t.Error("a salt or an unknown hint is in the row")
	}
	golden(t, "rows.jsonl", string(out))
}

func TestRowReadsBack(t *testing.T) {
	want := fullRow()
	routing := want.Attempts[1].Routing
	routing.PolicyDecision = &nvext.PolicyDecision{
		Variant: "safe", Why: "budget", P: 1, Would: &nvext.Rank{WorkerID: 1}, Budget: new(nvext.Float(-0.5)), Limit: new(nvext.Float(3.125)),
		Features: []string{"one", "overlap"},
	}
	routing.Candidates[0].PolicyX = []nvext.Float{1, 0.5}
	line, err := want.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	var got trace.Row
	if err := json.Unmarshal(line, &got); err != nil {
		t.Fatal(err)
	}
	want.Constraints.RouterConfigOverride = json.RawMessage(`{"x":1}`)
	nan := cmp.Comparer(func(a, b nvext.Float) bool { return a == b || a != a && b != b })
	if diff := cmp.Diff(want, &got, nan); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestRowJSONError(t *testing.T) {
	r := trace.Row{RequestID: "r-1", Constraints: &trace.Constraints{RouterConfigOverride: json.RawMessage("{")}}
	out, err := r.AppendJSON([]byte("before"))
	if err == nil || !strings.Contains(err.Error(), "r-1") || string(out) != "before" {
		t.Errorf("AppendJSON = %q, %v", out, err)
	}
}

func TestHintsOfNothing(t *testing.T) {
	for _, ext := range []*nvext.NvExt{nil, {}, {AgentHints: &nvext.AgentHints{}, CacheSalt: new("x")}} {
		if h := trace.HintsOf(ext); h != nil {
			t.Errorf("HintsOf(%+v) = %+v", ext, h)
		}
		if c := trace.ConstraintsOf(ext, nvext.Aggregated); c != nil {
			t.Errorf("ConstraintsOf(%+v) = %+v", ext, c)
		}
	}
	// A list that allows nobody is a constraint.
	if c := trace.ConstraintsOf(&nvext.NvExt{AllowedWorkerIDs: []uint64{}}, nvext.Decode); c == nil || c.AllowedWorkerIDs == nil {
		t.Errorf("an empty list is lost: %+v", c)
	}
}

// What the client said itself was not inferred.
func TestInferredOf(t *testing.T) {
	for _, e := range []*nvext.Expected{nil, {}, {OSL: new(uint32(5)), IATMS: new(uint64(7))}} {
		if got := trace.InferredOf(e); got != nil {
			t.Errorf("InferredOf(%+v) = %+v", e, got)
		}
	}
	e := &nvext.Expected{
		OSL: new(uint32(5)), RemainingCalls: new(uint64(6)), IATMS: new(uint64(7)),
		Inferred: []nvext.Inferred{
			{Field: nvext.InferredRemainingCalls, Source: nvext.SourceFamily, Samples: 8},
			{Field: nvext.InferredIAT, Source: nvext.SourceSession, Samples: 3},
		},
	}
	want := []trace.Inferred{
		{nvext.InferredRemainingCalls, 6, nvext.SourceFamily, 8},
		{nvext.InferredIAT, 7, nvext.SourceSession, 3},
	}
	if diff := cmp.Diff(want, trace.InferredOf(e)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// An override is a hint of some words, not a place to keep files.
func TestConstraintsLeaveOutLongOverride(t *testing.T) {
	override := func(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", n-2) + `"`) }
	if c := trace.ConstraintsOf(&nvext.NvExt{RouterConfigOverride: override(4096)}, nvext.Decode); c == nil || len(c.RouterConfigOverride) != 4096 {
		t.Errorf("4096 bytes: %+v", c)
	}
	if c := trace.ConstraintsOf(&nvext.NvExt{RouterConfigOverride: override(4097)}, nvext.Decode); c != nil {
		t.Errorf("4097 bytes: %+v", c)
	}
	if c := trace.ConstraintsOf(&nvext.NvExt{RouterConfigOverride: override(4097), AllowedWorkerIDs: []uint64{1}}, nvext.Decode); c == nil || c.RouterConfigOverride != nil {
		t.Errorf("4097 bytes and a list: %+v", c)
	}
}

func TestHashesJSON(t *testing.T) {
	in := trace.Hashes{0, 0x0123456789abcdef, math.MaxUint64}
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if want := `["0000000000000000","0123456789abcdef","ffffffffffffffff"]`; string(raw) != want {
		t.Errorf("got %s, want %s", raw, want)
	}
	var out trace.Hashes
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]kv.BlockID(in), []kv.BlockID(out)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, bad := range []string{`["1"]`, `["000000000000000g"]`, `[1]`, `["00000000000000000"]`} {
		if err := json.Unmarshal([]byte(bad), &out); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
}
