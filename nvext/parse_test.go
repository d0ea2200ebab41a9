package nvext

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// complete has every member this package knows, with ids beyond 2^53.
const complete = `{
	"greed_sampling": true,
	"use_raw_prompt": false,
	"annotations": ["request_id", "query_instance_id:"],
	"backend_instance_id": 18446744073709551615,
	"token_data": [0, 1, 4294967295],
	"max_thinking_tokens": 4294967295,
	"extra_fields": ["timing"],
	"prefill_worker_id": 9007199254740993,
	"decode_worker_id": 0,
	"dp_rank": 3,
	"prefill_dp_rank": 4294967295,
	"agent_hints": {
		"latency_sensitivity": 2.5,
		"osl": 512,
		"priority": -2147483648,
		"strict_priority": 1,
		"speculative_prefill": true,
		"prefix_id": "run42-d1",
		"total_requests": 10,
		"iat": 250
	},
	"request_timestamp_ms": 1.5,
	"session_control": {"session_id": "s", "action": "open", "timeout": 60},
	"cache_control": {"type": "ephemeral", "ttl": "3s"},
	"cache_salt": "tenant-a",
	"metadata_upload": {"url": "http://m"},
	"routing_constraints": {"required_taints": ["a"], "preferred_taints": {"b": 0.5, "c": -1}},
	"router": {"ttft_target": 100, "itl_target": 20.5},
	"router_config_override": {"router_temperature": 0.50},
	"allowed_worker_ids": [1, 18446744073709551615]
}`

func completeExt() *NvExt {
	return &NvExt{
		GreedSampling:     new(true),
		UseRawPrompt:      new(false),
		Annotations:       []string{"request_id", "query_instance_id:"},
		BackendInstanceID: new(uint64(math.MaxUint64)),
		TokenData:         []uint32{0, 1, math.MaxUint32},
		MaxThinkingTokens: new(uint32(math.MaxUint32)),
		ExtraFields:       []string{"timing"},
		PrefillWorkerID:   new(uint64(9007199254740993)),
		DecodeWorkerID:    new(uint64(0)),
		DPRank:            new(uint32(3)),
		PrefillDPRank:     new(uint32(math.MaxUint32)),
		AgentHints: &AgentHints{
			LatencySensitivity: new(2.5),
			OSL:                new(uint32(512)),
			Priority:           new(int32(math.MinInt32)),
			StrictPriority:     new(uint32(1)),
			SpeculativePrefill: new(true),
			PrefixID:           new("run42-d1"),
			TotalRequests:      new(uint64(10)),
			IATMS:              new(uint64(250)),
		},
		RequestTimestampMS: new(1.5),
		SessionControl:     &SessionControl{SessionID: "s", Action: SessionOpen, TimeoutSeconds: 60},
		CacheControl:       &CacheControl{Type: new("ephemeral"), TTL: new("3s")},
		CacheSalt:          new("tenant-a"),
		MetadataUpload:     &MetadataUpload{URL: new("http://m")},
		RoutingConstraints: &RoutingConstraints{
			RequiredTaints:  []string{"a"},
			PreferredTaints: map[string]float64{"b": 0.5, "c": -1},
		},
		Router:               &RouterTargets{TTFTTargetMS: new(100.0), ITLTargetMS: new(20.5)},
		RouterConfigOverride: json.RawMessage(`{"router_temperature": 0.50}`),
		AllowedWorkerIDs:     []uint64{1, math.MaxUint64},
	}
}

func TestParseComplete(t *testing.T) {
	e := mustParse(t, complete)
	if diff := cmp.Diff(completeExt(), e); diff != "" {
		t.Errorf("Parse (-want +got):\n%s", diff)
	}

	// Every field of every struct that has a JSON name must be in the sample, so
	// that none is forgotten in the decoder.
	var check func(v reflect.Value, path string)
	check = func(v reflect.Value, path string) {
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.Tag.Get("json") == "-" {
				continue
			}
			if v.Field(i).IsZero() {
				t.Errorf("%s.%s is not decoded", path, f.Name)
			} else if f.Type.Kind() == reflect.Pointer && f.Type.Elem().Kind() == reflect.Struct {
				check(v.Field(i).Elem(), path+"."+f.Name)
			}
		}
	}
	check(reflect.ValueOf(*e), "NvExt")
}

func TestMarshalComplete(t *testing.T) {
	got, err := json.Marshal(completeExt())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(decode(t, complete), decode(t, string(got))); diff != "" {
		t.Errorf("Marshal (-want +got):\n%s", diff)
	}
}

func TestParseUnset(t *testing.T) {
	for _, in := range []string{"null", " null\n"} {
		if e, err := Parse([]byte(in)); e != nil || err != nil {
			t.Errorf("Parse(%q) = %v, %v, want nil, nil", in, e, err)
		}
	}
	nulls := `{"greed_sampling":null,"use_raw_prompt":null,"annotations":null,"backend_instance_id":null,
		"token_data":null,"max_thinking_tokens":null,"extra_fields":null,"prefill_worker_id":null,
		"decode_worker_id":null,"dp_rank":null,"prefill_dp_rank":null,"agent_hints":null,
		"request_timestamp_ms":null,"session_control":null,"cache_control":null,"cache_salt":null,
		"metadata_upload":null,"routing_constraints":null,"router":null,"router_config_override":null,
		"allowed_worker_ids":null}`
	if diff := cmp.Diff(&NvExt{}, mustParse(t, nulls)); diff != "" {
		t.Errorf("nulls (-want +got):\n%s", diff)
	}
	hints := `{"agent_hints":{"latency_sensitivity":null,"osl":null,"priority":null,"strict_priority":null,
		"speculative_prefill":null,"prefix_id":null,"total_requests":null,"iat":null},"cache_control":{"type":null,"ttl":null}}`
	want := &NvExt{AgentHints: &AgentHints{}, CacheControl: &CacheControl{}}
	if diff := cmp.Diff(want, mustParse(t, hints)); diff != "" {
		t.Errorf("nulls in agent_hints (-want +got):\n%s", diff)
	}
	empty := `{"annotations":[],"token_data":[ ],"allowed_worker_ids":[]}`
	want = &NvExt{Annotations: []string{}, TokenData: []uint32{}, AllowedWorkerIDs: []uint64{}}
	e := mustParse(t, empty)
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("empty lists (-want +got):\n%s", diff)
	}
	if got := marshal(t, e); got != `{"annotations":[],"token_data":[],"allowed_worker_ids":[]}` {
		t.Errorf("empty lists are written as %s", got)
	}
}

func TestFieldErrors(t *testing.T) {
	tests := []struct{ in, path, want, got string }{
		{`[]`, "nvext", "an object", "an array"},
		{`"x"`, "nvext", "an object", `string "x"`},
		{`{"greed_sampling":1}`, "nvext.greed_sampling", "a boolean", "number 1"},
		{`{"use_raw_prompt":"true"}`, "nvext.use_raw_prompt", "a boolean", `string "true"`},
		{`{"backend_instance_id":18446744073709551616}`, "nvext.backend_instance_id", "an unsigned 64-bit integer", "number 18446744073709551616"},
		{`{"backend_instance_id":-1}`, "nvext.backend_instance_id", "an unsigned 64-bit integer", "number -1"},
		{`{"backend_instance_id":1.0}`, "nvext.backend_instance_id", "an unsigned 64-bit integer", "number 1.0"},
		{`{"backend_instance_id":1e3}`, "nvext.backend_instance_id", "an unsigned 64-bit integer", "number 1e3"},
		{`{"token_data":[1,2,4294967296]}`, "nvext.token_data[2]", "an unsigned 32-bit integer", "number 4294967296"},
		{`{"token_data":{}}`, "nvext.token_data", "an array", "an object"},
		{`{"max_thinking_tokens":false}`, "nvext.max_thinking_tokens", "an unsigned 32-bit integer", "boolean false"},
		{`{"extra_fields":"timing"}`, "nvext.extra_fields", "an array", `string "timing"`},
		{`{"extra_fields":["a",null]}`, "nvext.extra_fields[1]", "a string", "null"},
		{`{"extra_fields":[[]]}`, "nvext.extra_fields[0]", "a string", "an array"},
		{`{"prefill_worker_id":"1"}`, "nvext.prefill_worker_id", "an unsigned 64-bit integer", `string "1"`},
		{`{"decode_worker_id":[]}`, "nvext.decode_worker_id", "an unsigned 64-bit integer", "an array"},
		{`{"dp_rank":4294967296}`, "nvext.dp_rank", "an unsigned 32-bit integer", "number 4294967296"},
		{`{"prefill_dp_rank":-0}`, "nvext.prefill_dp_rank", "an unsigned 32-bit integer", "number -0"},
		{`{"agent_hints":[]}`, "nvext.agent_hints", "an object", "an array"},
		{`{"agent_hints":{"priority":2147483648}}`, "nvext.agent_hints.priority", "a signed 32-bit integer", "number 2147483648"},
		{`{"agent_hints":{"priority":-2147483649}}`, "nvext.agent_hints.priority", "a signed 32-bit integer", "number -2147483649"},
		{`{"agent_hints":{"latency_sensitivity":"2"}}`, "nvext.agent_hints.latency_sensitivity", "a 64-bit floating point number", `string "2"`},
		{`{"agent_hints":{"latency_sensitivity":1e400}}`, "nvext.agent_hints.latency_sensitivity", "a 64-bit floating point number", "number 1e400"},
		{`{"agent_hints":{"strict_priority":-1}}`, "nvext.agent_hints.strict_priority", "an unsigned 32-bit integer", "number -1"},
		{`{"agent_hints":{"speculative_prefill":0}}`, "nvext.agent_hints.speculative_prefill", "a boolean", "number 0"},
		{`{"request_timestamp_ms":"now"}`, "nvext.request_timestamp_ms", "a 64-bit floating point number", `string "now"`},
		{`{"session_control":{}}`, "nvext.session_control.session_id", "a string", ""},
		{`{"session_control":{"session_id":null}}`, "nvext.session_control.session_id", "a string", ""},
		{`{"session_control":{"session_id":5}}`, "nvext.session_control.session_id", "a string", "number 5"},
		{`{"session_control":{"session_id":"s","action":"pause"}}`, "nvext.session_control.action", `"open" or "close"`, `string "pause"`},
		{`{"session_control":{"session_id":"s","action":1}}`, "nvext.session_control.action", `"open" or "close"`, "number 1"},
		{`{"session_control":{"session_id":"s","timeout":-1}}`, "nvext.session_control.timeout", "an unsigned 64-bit integer", "number -1"},
		{`{"cache_salt":1}`, "nvext.cache_salt", "a string", "number 1"},
		{`{"metadata_upload":"http://m"}`, "nvext.metadata_upload", "an object", `string "http://m"`},
		{`{"metadata_upload":{"url":1}}`, "nvext.metadata_upload.url", "a string", "number 1"},
		{`{"routing_constraints":{"required_taints":[1]}}`, "nvext.routing_constraints.required_taints[0]", "a string", "number 1"},
		{`{"routing_constraints":{"preferred_taints":{"gpu":"big"}}}`, "nvext.routing_constraints.preferred_taints.gpu", "a 64-bit floating point number", `string "big"`},
		{`{"routing_constraints":{"preferred_taints":["gpu"]}}`, "nvext.routing_constraints.preferred_taints", "an object", "an array"},
		{`{"router":{"ttft_target":true}}`, "nvext.router.ttft_target", "a 64-bit floating point number", "boolean true"},
		{`{"router":{"itl_target":{}}}`, "nvext.router.itl_target", "a 64-bit floating point number", "an object"},
		{`{"router_config_override":[]}`, "nvext.router_config_override", "an object", "an array"},
		{`{"allowed_worker_ids":[1,"2"]}`, "nvext.allowed_worker_ids[1]", "an unsigned 64-bit integer", `string "2"`},
		{`{"cache_salt":1,"dp_rank":"first error wins"}`, "nvext.cache_salt", "a string", "number 1"},
	}
	for _, tt := range tests {
		e, err := Parse([]byte(tt.in))
		var fe *FieldError
		if e != nil || !errors.As(err, &fe) {
			t.Errorf("Parse(%s) = %v, %v, want a FieldError", tt.in, e, err)
			continue
		}
		if diff := cmp.Diff(&FieldError{Path: tt.path, Want: tt.want, Got: tt.got}, fe); diff != "" {
			t.Errorf("Parse(%s) (-want +got):\n%s", tt.in, diff)
		}
	}
}

func TestFieldErrorText(t *testing.T) {
	tests := []struct{ in, want string }{
		{`{"agent_hints":{"priority":"abc"}}`, `nvext.agent_hints.priority must be a signed 32-bit integer, got string "abc"`},
		{`{"session_control":{"action":"open"}}`, `nvext.session_control.session_id is required and must be a string`},
		{`{"dp_rank":"` + strings.Repeat("é", 5000) + `"}`, `nvext.dp_rank must be an unsigned 32-bit integer, got string "éééééééééééééééé…"`},
		{`{"dp_rank":1` + strings.Repeat("0", 5000) + `}`, `nvext.dp_rank must be an unsigned 32-bit integer, got number 1` + strings.Repeat("0", 31) + "…"},
		{`{"routing_constraints":{"preferred_taints":{"` + strings.Repeat("k", 5000) + `":null}}}`,
			`nvext.routing_constraints.preferred_taints.` + strings.Repeat("k", 32) + `… must be a 64-bit floating point number, got null`},
	}
	for _, tt := range tests {
		_, err := Parse([]byte(tt.in))
		if err == nil || err.Error() != tt.want {
			t.Errorf("Parse(%.60s…)\n got %v\nwant %s", tt.in, err, tt.want)
		}
	}
}

// Hints that can be done without: dropped and noted, never refused.
func TestIgnored(t *testing.T) {
	long := strings.Repeat("x", MaxIDBytes+1)
	tests := []struct {
		in      string
		want    *NvExt
		ignored []Ignored
	}{
		{
			in:      `{"agent_hints":{"prefix_id":7,"total_requests":"many","iat":[],"osl":5}}`,
			want:    &NvExt{AgentHints: &AgentHints{OSL: new(uint32(5))}},
			ignored: []Ignored{{"nvext.agent_hints.prefix_id", "not a string"}, {"nvext.agent_hints.total_requests", "not an integer"}, {"nvext.agent_hints.iat", "not a number"}},
		},
		{
			in:      `{"agent_hints":{"prefix_id":"","total_requests":2.5,"iat":"soon"}}`,
			want:    &NvExt{AgentHints: &AgentHints{}},
			ignored: []Ignored{{"nvext.agent_hints.prefix_id", "empty id"}, {"nvext.agent_hints.total_requests", "not an integer"}, {"nvext.agent_hints.iat", "not a number"}},
		},
		{
			in:      `{"agent_hints":{"prefix_id":"` + long + `","total_requests":{},"iat":"nan"}}`,
			want:    &NvExt{AgentHints: &AgentHints{}},
			ignored: []Ignored{{"nvext.agent_hints.prefix_id", "id longer than 256 bytes"}, {"nvext.agent_hints.total_requests", "not an integer"}, {"nvext.agent_hints.iat", "not a number"}},
		},
		{
			in:   `{"agent_hints":{"prefix_id":"` + long[1:] + `","total_requests":" 7 ","iat":"HIGH"}}`,
			want: &NvExt{AgentHints: &AgentHints{PrefixID: new(long[1:]), TotalRequests: new(uint64(7)), IATMS: new(uint64(750))}},
		},
		{
			in:   `{"agent_hints":{"total_requests":0,"iat":12.9}}`,
			want: &NvExt{AgentHints: &AgentHints{TotalRequests: new(uint64(1)), IATMS: new(uint64(12))}},
		},
		{
			in:   `{"agent_hints":{"total_requests":-3,"iat":-4}}`,
			want: &NvExt{AgentHints: &AgentHints{TotalRequests: new(uint64(1)), IATMS: new(uint64(0))}},
		},
		{
			in:   `{"agent_hints":{"total_requests":18446744073709551615,"iat":1e300}}`,
			want: &NvExt{AgentHints: &AgentHints{TotalRequests: new(uint64(math.MaxUint64)), IATMS: new(uint64(math.MaxUint64))}},
		},
		{
			in:   `{"agent_hints":{"total_requests":4.0,"osl":512.0,"iat":250.0}}`,
			want: &NvExt{AgentHints: &AgentHints{TotalRequests: new(uint64(4)), OSL: new(uint32(512)), IATMS: new(uint64(250))}},
		},
		{
			in:   `{"agent_hints":{"total_requests":"1e1","osl":"512","iat":"250"}}`,
			want: &NvExt{AgentHints: &AgentHints{TotalRequests: new(uint64(10)), OSL: new(uint32(512)), IATMS: new(uint64(250))}},
		},
		{
			in:   `{"agent_hints":{"total_requests":1e30,"osl":1e30}}`,
			want: &NvExt{AgentHints: &AgentHints{TotalRequests: new(uint64(math.MaxUint64)), OSL: new(uint32(math.MaxUint32))}},
		},
		{in: `{"agent_hints":{"osl":"LOW"}}`, want: &NvExt{AgentHints: &AgentHints{OSL: new(uint32(128))}}},
		{in: `{"agent_hints":{"osl":" medium "}}`, want: &NvExt{AgentHints: &AgentHints{OSL: new(uint32(512))}}},
		{in: `{"agent_hints":{"osl":"High"}}`, want: &NvExt{AgentHints: &AgentHints{OSL: new(uint32(2048))}}},
		{in: `{"agent_hints":{"osl":4294967296}}`, want: &NvExt{AgentHints: &AgentHints{OSL: new(uint32(math.MaxUint32))}}},
		{in: `{"agent_hints":{"osl":"4294967295"}}`, want: &NvExt{AgentHints: &AgentHints{OSL: new(uint32(math.MaxUint32))}}},
		{in: `{"agent_hints":{"osl":1.5}}`, want: &NvExt{AgentHints: &AgentHints{OSL: new(uint32(1))}}},
		{in: `{"agent_hints":{"osl":-5}}`, want: &NvExt{AgentHints: &AgentHints{OSL: new(uint32(0))}}},
		{
			in:      `{"agent_hints":{"osl":"long","priority":7}}`,
			want:    &NvExt{AgentHints: &AgentHints{Priority: new(int32(7))}},
			ignored: []Ignored{{"nvext.agent_hints.osl", "not a number"}},
		},
		{
			in:      `{"agent_hints":{"osl":[512]}}`,
			want:    &NvExt{AgentHints: &AgentHints{}},
			ignored: []Ignored{{"nvext.agent_hints.osl", "not a number"}},
		},
		{
			in:      `{"agent_hints":{"osl":true,"total_requests":false}}`,
			want:    &NvExt{AgentHints: &AgentHints{}},
			ignored: []Ignored{{"nvext.agent_hints.osl", "not a number"}, {"nvext.agent_hints.total_requests", "not an integer"}},
		},
		{
			in:      `{"agent_hints":{"osl":"","iat":"1e400","total_requests":"inf"}}`,
			want:    &NvExt{AgentHints: &AgentHints{}},
			ignored: []Ignored{{"nvext.agent_hints.osl", "not a number"}, {"nvext.agent_hints.iat", "not a number"}, {"nvext.agent_hints.total_requests", "not an integer"}},
		},
		{
			in:      `{"annotations":["osl:LOW",7]}`,
			want:    &NvExt{Annotations: []string{"osl:LOW"}},
			ignored: []Ignored{{"nvext.annotations", "not a string"}},
		},
		{ // noted once, so that a long list of nonsense stays short
			in:      `{"annotations":[null,"a",["b"],{"c":"d"},true,"e"]}`,
			want:    &NvExt{Annotations: []string{"a", "e"}},
			ignored: []Ignored{{"nvext.annotations", "not a string"}},
		},
		{
			in:      `{"annotations":[7]}`,
			want:    &NvExt{Annotations: []string{}},
			ignored: []Ignored{{"nvext.annotations", "not a string"}},
		},
		{
			in:      `{"annotations":"osl:LOW","dp_rank":1}`,
			want:    &NvExt{DPRank: new(uint32(1))},
			ignored: []Ignored{{"nvext.annotations", "not an array"}},
		},
		{
			in:      `{"annotations":{"osl":"LOW"}}`,
			want:    &NvExt{},
			ignored: []Ignored{{"nvext.annotations", "not an array"}},
		},
		{
			in:      `{"cache_control":"ephemeral"}`,
			want:    &NvExt{},
			ignored: []Ignored{{"nvext.cache_control", "not an object"}},
		},
		{
			in:      `{"cache_control":{"type":1,"ttl":true}}`,
			want:    &NvExt{CacheControl: &CacheControl{}},
			ignored: []Ignored{{"nvext.cache_control.type", "not a string"}, {"nvext.cache_control.ttl", "not a string"}},
		},
		{ // a meaning we do not know is noted, and kept for others
			in:      `{"cache_control":{"type":"forever","ttl":"until tuesday"}}`,
			want:    &NvExt{CacheControl: &CacheControl{Type: new("forever"), TTL: new("until tuesday")}},
			ignored: []Ignored{{"nvext.cache_control.type", "unknown type"}, {"nvext.cache_control.ttl", "not a duration"}},
		},
		{
			in:   `{"cache_control":{"type":"ephemeral","ttl":600}}`,
			want: &NvExt{CacheControl: &CacheControl{Type: new("ephemeral"), TTL: new("600")}},
		},
	}
	for _, tt := range tests {
		tt.want.Ignored = tt.ignored
		if diff := cmp.Diff(tt.want, mustParse(t, tt.in)); diff != "" {
			t.Errorf("Parse(%.80s) (-want +got):\n%s", tt.in, diff)
		}
	}
}

func TestUnknownKeysAreKept(t *testing.T) {
	in := `{"zeta":1.50e+2, "dp_rank":1,"alpha":{"b":1,"a":[ ]},
		"agent_hints":{"y":null,"osl":2,"x":"\u00e9"},
		"session_control":{"k":1,"session_id":"s"},
		"cache_control":{"k":2,"ttl":"1s"},
		"metadata_upload":{"k":3},
		"routing_constraints":{"k":4},
		"router":{"k":5},
		"é":true}`
	want := `{"dp_rank":1,` +
		`"agent_hints":{"osl":2,"y":null,"x":"\u00e9"},` +
		`"session_control":{"session_id":"s","timeout":300,"k":1},` +
		`"cache_control":{"ttl":"1s","k":2},` +
		`"metadata_upload":{"k":3},` +
		`"routing_constraints":{"k":4},` +
		`"router":{"k":5},` +
		`"zeta":1.50e+2,"alpha":{"b":1,"a":[]},"é":true}`
	raw := []byte(in)
	e, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	clear(raw) // the result must not depend on the input's memory
	if got := marshal(t, e); got != want {
		t.Errorf("Marshal\n got %s\nwant %s", got, want)
	}
	if diff := cmp.Diff([]Member{
		{"zeta", json.RawMessage(`1.50e+2`)},
		{"alpha", json.RawMessage(`{"b":1,"a":[ ]}`)},
		{"é", json.RawMessage(`true`)},
	}, e.Unknown); diff != "" {
		t.Errorf("Unknown (-want +got):\n%s", diff)
	}
}

func TestLastKeyWins(t *testing.T) {
	many := `{"dp_rank":"wrong","k":1,"dp_rank":2,"k":3`
	for i := range 40 { // enough for the map
		many += fmt.Sprintf(`,"u%d":%d`, i%20, i)
	}
	many += `,"dp_rank":5,"k":4}`
	e := mustParse(t, many)
	if e.DPRank == nil || *e.DPRank != 5 {
		t.Errorf("DPRank = %v, want 5", e.DPRank)
	}
	if len(e.Unknown) != 21 || string(e.Unknown[0].Value) != "4" || string(e.Unknown[20].Value) != "39" {
		t.Errorf("Unknown = %s", e.Unknown)
	}
	for in, want := range map[string]*NvExt{
		`{"dp_rank":"wrong","dp_rank":2}`:          {DPRank: new(uint32(2))},
		`{"dp_rank":2,"dp_rank":null}`:             {},
		`{"dp_rank":2,"dp_\u0072ank":3}`:           {DPRank: new(uint32(3))},
		`{"DP_RANK":2}`:                            {Unknown: []Member{{"DP_RANK", json.RawMessage("2")}}},
		`{"a":1,"b":2,"a":3}`:                      {Unknown: []Member{{"a", json.RawMessage("3")}, {"b", json.RawMessage("2")}}},
		`{"cache_control":1,"cache_control":null}`: {},
	} {
		if diff := cmp.Diff(want, mustParse(t, in)); diff != "" {
			t.Errorf("Parse(%s) (-want +got):\n%s", in, diff)
		}
	}
}

func TestNestingBomb(t *testing.T) {
	for _, pair := range []string{"[]", `{}`} {
		open := pair[:1]
		if open == "{" {
			open = `{"a":`
		}
		deep := func(n int) string {
			return `{"x":` + strings.Repeat(open, n) + "0" + strings.Repeat(pair[1:], n) + "}"
		}
		if _, err := Parse([]byte(deep(maxDepth - 1))); err != nil {
			t.Errorf("%d levels: %v", maxDepth, err)
		}
		if _, err := Parse([]byte(deep(maxDepth))); !errors.Is(err, ErrTooDeep) {
			t.Errorf("%d levels: %v, want ErrTooDeep", maxDepth+1, err)
		}
		if _, err := Parse([]byte(strings.Repeat(open, 1<<20))); !errors.Is(err, ErrTooDeep) {
			t.Errorf("a million levels: %v, want ErrTooDeep", err)
		}
	}
}

// An open, a close and a plain turn, with the defaults of each.
func TestSessionControl(t *testing.T) {
	tests := []struct {
		in     string
		want   SessionControl
		worker uint64
	}{
		{`{"session_id":"sub-1","action":"open","timeout":60}`, SessionControl{SessionID: "sub-1", Action: SessionOpen, TimeoutSeconds: 60}, 90},
		{`{"session_id":"sub-1","action":"close"}`, SessionControl{SessionID: "sub-1", Action: SessionClose, TimeoutSeconds: 300}, 330},
		{`{"session_id":"sub-1"}`, SessionControl{SessionID: "sub-1", TimeoutSeconds: 300}, 330},
		{`{"session_id":"sub-1","timeout":18446744073709551615}`, SessionControl{SessionID: "sub-1", TimeoutSeconds: math.MaxUint64}, math.MaxUint64},
		{`{"session_id":"sub-1","timeout":null,"action":null}`, SessionControl{SessionID: "sub-1", TimeoutSeconds: 300}, 330},
	}
	for _, tt := range tests {
		got := mustParse(t, `{"session_control":`+tt.in+`}`).SessionControl
		if diff := cmp.Diff(&tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.in, diff)
		}
		if w := got.WorkerTimeoutSeconds(); w != tt.worker {
			t.Errorf("%s: worker timeout %d, want %d", tt.in, w, tt.worker)
		}
	}
}

func TestUnmarshalJSON(t *testing.T) {
	var body struct {
		Model string
		NvExt *NvExt
	}
	if err := json.Unmarshal([]byte(`{"model":"m","nvext":{"dp_rank":1,"zz":2}}`), &body); err != nil {
		t.Fatal(err)
	}
	want := &NvExt{DPRank: new(uint32(1)), Unknown: []Member{{"zz", json.RawMessage("2")}}}
	if diff := cmp.Diff(want, body.NvExt); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var fe *FieldError
	if err := json.Unmarshal([]byte(`{"nvext":{"dp_rank":"x"}}`), &body); !errors.As(err, &fe) {
		t.Errorf("wrong type: %v, want a FieldError", err)
	}

	// The parts decode on their own by the same rules.
	e := completeExt()
	for _, part := range []any{e.AgentHints, e.SessionControl, e.CacheControl, e.MetadataUpload, e.RoutingConstraints, e.Router} {
		b, err := json.Marshal(part)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b[:len(b)-1], `,"zz":0}`...)
		got := reflect.New(reflect.TypeOf(part).Elem())
		if err := json.Unmarshal(b, got.Interface()); err != nil {
			t.Errorf("%T: %v", part, err)
			continue
		}
		again, err := json.Marshal(got.Interface())
		if err != nil || string(again) != string(b) {
			t.Errorf("%T: %s became %s, %v", part, b, again, err)
		}
		if _, hint := part.(*CacheControl); hint {
			continue // never refused
		}
		if err := json.Unmarshal([]byte("[]"), got.Interface()); err == nil {
			t.Errorf("%T takes an array", part)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		complete, "null", "{}", "[]", `{"a":1,"a":2}`, `{"agent_hints":{"iat":"LOW","total_requests":"0"}}`,
		`{"agent_hints":{"osl":"HIGH","total_requests":4.0}}`, `{"agent_hints":{"osl":5e9,"prefix_id":[]}}`,
		`{"annotations":["osl:LOW",7,[[]]]}`, `{"annotations":"osl:LOW"}`,
		`{"cache_control":{"ttl":300,"type":""}}`, `{"session_control":{"session_id":"\ud800"}}`,
		"{\"x\":\"\xff<&\u2028\"}", `{"token_data":[1,2`, `{"é":1e400}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := Parse(raw)
		if err != nil {
			if e != nil {
				t.Fatalf("both a value and an error: %v", err)
			}
			if len(err.Error()) > 400 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if e == nil {
			return
		}
		first, err := json.Marshal(e)
		if err != nil {
			t.Fatalf("marshal: %v", err)
		}
		again, err := Parse(first)
		if err != nil {
			t.Fatalf("parse of %s: %v", first, err)
		}
		second, err := json.Marshal(again)
		if err != nil {
			t.Fatalf("marshal again: %v", err)
		}
		if string(first) != string(second) {
			t.Fatalf("not stable:\n%s\n%s", first, second)
		}
		if len(again.Ignored) > len(e.Ignored) {
			t.Fatalf("%s: what was read of it has no effect when it is sent: %v", first, again.Ignored)
		}
		ApplyHeaders(e, nil)
	})
}

func BenchmarkParse(b *testing.B) {
	ids := make([]string, 8192)
	for i := range ids {
		ids[i] = fmt.Sprint(i * 17)
	}
	for _, bb := range []struct{ name, in string }{
		{"nat", `{"agent_hints":{"latency_sensitivity":2.0,"osl":512,"priority":998,"prefix_id":"run42-d1","total_requests":10,"iat":250},"cache_control":{"type":"ephemeral","ttl":"3s"}}`},
		{"tokens=8192", `{"token_data":[` + strings.Join(ids, ",") + `],"backend_instance_id":7}`},
	} {
		b.Run(bb.name, func(b *testing.B) {
			raw := []byte(bb.in)
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(bb.name+"/encoding-json", func(b *testing.B) { // the baseline: same fields, no checks
			type plain NvExt
			raw := []byte(bb.in)
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if err := json.Unmarshal(raw, new(plain)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func mustParse(t *testing.T, in string) *NvExt {
	t.Helper()
	e, err := Parse([]byte(in))
	if err != nil {
		t.Fatalf("Parse(%.80s): %v", in, err)
	}
	return e
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// decode is the value of JSON text with numbers kept exact.
func decode(t *testing.T, s string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, s)
	}
	return v
}
