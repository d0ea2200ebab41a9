package metrics

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/nvext"
)

func TestErrorTypeOf(t *testing.T) {
	tests := []struct {
		status int
		want   ErrorType
	}{
		{200, ErrNone}, {204, ErrNone}, {304, ErrNone},
		{400, ErrValidation}, {401, ErrValidation}, {403, ErrValidation},
		{404, ErrNotFound},
		{405, ErrValidation}, {408, ErrValidation}, {413, ErrValidation},
		{415, ErrValidation}, {422, ErrValidation}, {431, ErrValidation},
		{429, ErrOverload}, {503, ErrOverload}, {529, ErrOverload},
		{499, ErrCancelled},
		{501, ErrNotImplemented},
		{504, ErrResponseTimeout},
		{500, ErrInternal}, {502, ErrInternal}, {599, ErrInternal},
		{0, ErrInternal}, {100, ErrInternal}, {-1, ErrInternal}, {600, ErrInternal},
	}
	for _, tt := range tests {
		if got := ErrorTypeOf(tt.status); got != tt.want {
			t.Errorf("ErrorTypeOf(%d) = %q, want %q", tt.status, got, tt.want)
		}
	}
}

func TestHintField(t *testing.T) {
	for in, want := range map[string]string{
		"nvext.agent_hints.prefix_id": "agent_hints.prefix_id",
		"agent_hints.osl":             "agent_hints.osl",
		"nvext.cache_control.ttl":     "cache_control.ttl",
		"X-Worker-Instance-Id":        "header",
		"x-prefill-dp-rank":           "header",
		"nvext.agent_hints.made_up":   "other",
		"nvext.":                      "other",
		"x":                           "other",
		"":                            "other",
		"other":                       "other",
	} {
		if got := hintField(in); got != want {
			t.Errorf("hintField(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestSanitizePrefix(t *testing.T) {
	for in, want := range map[string]string{
		"":                        "dynamo_frontend",
		"my_frontend":             "my_frontend",
		"my-frontend.eu":          "my_frontend_eu",
		"9lives":                  "_lives",
		"f9":                      "f9",
		"a:b":                     "a:b",
		"é":                       "__",
		"dynamo_component_router": "dynamo_frontend",
		"dynamo_component-router": "dynamo_frontend",
		"stator-queue":            "dynamo_frontend",
	} {
		if got := sanitizePrefix(in); got != want {
			t.Errorf("sanitizePrefix(%q) = %q, want %q", in, got, want)
		}
		New(Options{Prefix: in}) // would panic on a clash of names
	}
}

// No prefix brings two families to one name.
func TestTakenPrefixes(t *testing.T) {
	const prefix = "a_prefix"
	var fixed, prefixed []string
	for _, name := range familyNames(New(Options{Prefix: prefix})) {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			prefixed = append(prefixed, rest)
		} else {
			fixed = append(fixed, name)
		}
	}
	taken := make(map[string]bool)
	for _, name := range fixed {
		for _, rest := range prefixed {
			if p, ok := strings.CutSuffix(name, rest); ok && p != "" {
				taken[p] = true
			}
		}
	}
	if diff := cmp.Diff(takenPrefixes, slices.Sorted(maps.Keys(taken))); diff != "" {
		t.Errorf("taken prefixes (-listed +found):\n%s", diff)
	}
	for p := range taken {
		New(Options{Prefix: p}) // would panic on a clash of names
	}
}

// Reports and metrics call what decided, and what came of predictions, by the same
// names.
func TestRoutingWords(t *testing.T) {
	for _, r := range []nvext.Reason{
		nvext.ReasonPinned, nvext.ReasonSession, nvext.ReasonOnly, nvext.ReasonRoundRobin, nvext.ReasonRandom,
		nvext.ReasonLeastLoaded, nvext.ReasonCost, nvext.ReasonThompson, nvext.ReasonSelector,
	} {
		if !slices.Contains(decisionReasons, string(r)) {
			t.Errorf("reason %q is not listed", r)
		}
	}
	for _, v := range []nvext.Verdict{
		nvext.VerdictAgreed, nvext.VerdictTokensDiffer, nvext.VerdictNoReuse, nvext.VerdictIndexStale,
		nvext.VerdictTraded, nvext.VerdictUnknown,
	} {
		if !slices.Contains(verdicts[:], Verdict(v)) {
			t.Errorf("verdict %q is not listed", v)
		}
	}
}

func TestPrefixCoversRequestsAndModelsOnly(t *testing.T) {
	s := New(Options{Prefix: "edge"})
	s.Model("m").Start(time.Time{}, EndpointChatCompletions, false)
	s.Worker(1, 0)
	got := samples(t, s)
	for _, series := range []string{
		`edge_inflight_requests{model="m"}`,
		`edge_tokenizer_latency_ms_count{operation="tokenize"}`,
		`dynamo_frontend_worker_active_decode_blocks{dp_rank="0",worker_id="1",worker_type="decode"}`,
		`dynamo_frontend_tokenize_seconds_count`,
		`dynamo_router_overhead_total_ms_count{router_id="0"}`,
	} {
		if _, ok := got[series]; !ok {
			t.Errorf("no series %s", series)
		}
	}
}

// Values that are not on a list share one series, so that no caller can make
// the number of series grow.
func TestUnlistedLabelValues(t *testing.T) {
	s := New(Options{})
	m := s.Model("m")
	for _, v := range []string{"made", "up"} {
		r := m.Start(time.Time{}, Endpoint(v), false)
		r.End(time.Time{}, ErrorType(v))
		m.Retry(RetryReason(v))
		m.Shed(ShedReason(v))
		m.EngineError(EngineErrorKind(v))
		s.HintIgnored(v)
		rt := s.Router("m", WorkerType(v))
		rt.Placed(10, 16, 0)
		rt.Decided(v)
		rt.Class("default").Left(QueueEnd(v))
		rt.Class("default").Rejected(QueueLimit(v))
		s.Truth("m", 1).Record(Verdict(v), 1, 1)
	}
	got := samples(t, s)
	for _, series := range []string{
		`dynamo_frontend_requests_started_total{endpoint="other",model="m",request_type="unary"}`,
		`dynamo_frontend_requests_total{endpoint="other",error_type="internal",model="m",request_type="unary",status="error"}`,
		`stator_retries_total{model="m",reason="other"}`,
		`stator_shed_total{model="m",reason="other"}`,
		`stator_engine_errors_total{kind="other",model="m"}`,
		`stator_hints_ignored_total{field="other"}`,
		`dynamo_component_router_requests_total{dynamo_component="backend",dynamo_namespace="dynamo",model="m",router_id="0"}`,
		`stator_router_decisions_total{model="m",reason="other"}`,
		`stator_queue_left_total{model="m",policy_class="default",reason="other"}`,
		`dynamo_frontend_router_queue_backpressure_total{model="m",policy_class="default",reason="other",worker_type="decode"}`,
		`stator_cache_verdicts_total{model="m",verdict="unknown",worker_id="1"}`,
	} {
		if got[series] != 2 {
			t.Errorf("%s = %v, want 2", series, got[series])
		}
	}
}
