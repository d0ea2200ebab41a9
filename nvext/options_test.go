package nvext

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestNew(t *testing.T) {
	tests := []struct {
		name    string
		options []Option
		want    string
	}{
		{"nothing", nil, `{}`},
		{"priority", []Option{Priority(-1), Priority(5)}, `{"agent_hints":{"priority":5}}`},
		{"strict priority", []Option{StrictPriority(2)}, `{"agent_hints":{"strict_priority":2}}`},
		{"sensitivity", []Option{LatencySensitivity(2.5)}, `{"agent_hints":{"latency_sensitivity":2.5}}`},
		{"sensitivity, not a number", []Option{LatencySensitivity(math.NaN())}, `{"agent_hints":{}}`},
		{"osl", []Option{OSL(256)}, `{"agent_hints":{"osl":256}}`},
		{"speculative prefill", []Option{SpeculativePrefill()}, `{"agent_hints":{"speculative_prefill":true}}`},
		{"prefix", []Option{PrefixID("agent-1")}, `{"agent_hints":{"prefix_id":"agent-1"}}`},
		{"remaining", []Option{Remaining(4)}, `{"agent_hints":{"total_requests":5}}`},
		{"last call", []Option{Remaining(0)}, `{"agent_hints":{"total_requests":1}}`},
		{"remaining, saturated", []Option{Remaining(math.MaxUint64)}, `{"agent_hints":{"total_requests":18446744073709551615}}`},
		{"total", []Option{TotalRequests(4)}, `{"agent_hints":{"total_requests":4}}`},
		{"inter-arrival", []Option{InterArrival(250 * time.Millisecond)}, `{"agent_hints":{"iat":250}}`},
		{"inter-arrival, rounded", []Option{InterArrival(3999999 * time.Nanosecond)}, `{"agent_hints":{"iat":4}}`},
		{"inter-arrival, below a millisecond", []Option{InterArrival(time.Microsecond)}, `{"agent_hints":{"iat":1}}`},
		{"inter-arrival, negative", []Option{InterArrival(-time.Hour)}, `{"agent_hints":{"iat":1}}`},
		{"cache", []Option{CacheTTL(2 * time.Minute)}, `{"cache_control":{"type":"ephemeral","ttl":"2m"}}`},
		{"lists grow", []Option{Extra("timing"), Extra("worker_id"), Annotate("request_id", "a:b")}, `{"annotations":["request_id","a:b"],"extra_fields":["timing","worker_id"]}`},
		{"pins", []Option{PinWorker(math.MaxUint64), PinRank(1), PinPrefill(2), PinPrefillRank(3), PinDecode(4)},
			`{"backend_instance_id":18446744073709551615,"prefill_worker_id":2,"decode_worker_id":4,"dp_rank":1,"prefill_dp_rank":3}`},
		{"allow", []Option{AllowWorkers(1, 2), AllowWorkers(3)}, `{"allowed_worker_ids":[1,2,3]}`},
		{"allow none", []Option{AllowWorkers()}, `{"allowed_worker_ids":[]}`},
		{"taints", []Option{RequireTaints("a"), PreferTaint("b", 0.5), PreferTaint("c", math.Inf(1)), RequireTaints("d")},
			`{"routing_constraints":{"required_taints":["a","d"],"preferred_taints":{"b":0.5}}}`},
		{"targets", []Option{LatencyTargets(100*time.Millisecond, 20500*time.Microsecond)}, `{"router":{"ttft_target":100,"itl_target":20.5}}`},
		{"one target", []Option{LatencyTargets(time.Second, 0)}, `{"router":{"ttft_target":1000}}`},
		{"override", []Option{RouterOverride(json.RawMessage(`{"router_temperature":0.5}`))}, `{"router_config_override":{"router_temperature":0.5}}`},
		{"tenant", []Option{Tenant("t")}, `{"cache_salt":"t"}`},
		{"open", []Option{OpenSession("s", 0)}, `{"session_control":{"session_id":"s","action":"open","timeout":300}}`},
		{"open, idle", []Option{OpenSession("s", 1500*time.Millisecond)}, `{"session_control":{"session_id":"s","action":"open","timeout":2}}`},
		{"open, whole seconds", []Option{OpenSession("s", time.Minute)}, `{"session_control":{"session_id":"s","action":"open","timeout":60}}`},
		{"continue", []Option{ContinueSession("s")}, `{"session_control":{"session_id":"s","timeout":300}}`},
		{"close", []Option{CloseSession("s")}, `{"session_control":{"session_id":"s","action":"close","timeout":300}}`},
		{"the rest", []Option{Greedy(), MaxThinkingTokens(9), TokenData([]uint32{1})}, `{"greed_sampling":true,"token_data":[1],"max_thinking_tokens":9}`},
	}
	for _, tt := range tests {
		got := marshal(t, New(tt.options...))
		if got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
		e := mustParse(t, got)
		if len(e.Ignored) > 0 || len(e.Unknown) > 0 {
			t.Errorf("%s: the server does not take %s: %v %v", tt.name, got, e.Ignored, e.Unknown)
		}
	}
}

// An option can be used for many requests without tying them together.
func TestOptionsShareNothing(t *testing.T) {
	options := []Option{Priority(1), PinWorker(2), PrefixID("p"), AllowWorkers(1), RequireTaints("a"), Extra("timing")}
	a, b := New(options...), New(options...)
	*a.AgentHints.Priority, *a.BackendInstanceID, *a.AgentHints.PrefixID = 9, 9, "x"
	a.AllowedWorkerIDs[0], a.RoutingConstraints.RequiredTaints[0], a.ExtraFields[0] = 9, "x", "x"
	if got, want := marshal(t, b), marshal(t, New(options...)); got != want {
		t.Errorf("changed through another request:\n got %s\nwant %s", got, want)
	}
}

// The package is part of the core: plain data, no network, no log.
func TestImports(t *testing.T) {
	allowed := map[string]bool{
		"bytes": true, "encoding/json": true, "errors": true, "fmt": true, "iter": true, "math": true,
		"math/bits": true, "slices": true, "strconv": true, "strings": true, "time": true, "unicode/utf8": true,
	}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := file.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range f.Imports {
			if path, err := strconv.Unquote(spec.Path.Value); err != nil || !allowed[path] {
				t.Errorf("%s imports %s", name, spec.Path.Value)
			}
		}
	}
}
