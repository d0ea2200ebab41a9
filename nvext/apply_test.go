package nvext

import (
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"net/textproto"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// headers is a get function over names in any spelling. It fails the test when
// asked for a name that is not canonical.
func headers(t *testing.T, pairs ...string) func(string) string {
	t.Helper()
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[textproto.CanonicalMIMEHeaderKey(pairs[i])] = pairs[i+1]
	}
	return func(name string) string {
		if c := textproto.CanonicalMIMEHeaderKey(name); c != name {
			t.Errorf("get(%q), want the canonical %q", name, c)
		}
		return m[name]
	}
}

func TestApplyHeaders(t *testing.T) {
	pinned := func(id uint64) *NvExt {
		return &NvExt{BackendInstanceID: &id, DecodeWorkerID: &id}
	}
	long := strings.Repeat("s", MaxIDBytes+1)
	tests := []struct {
		name    string
		body    string
		headers []string
		want    *NvExt
		ignored []Ignored
	}{
		{
			name:    "seed headers",
			headers: []string{"x-worker-instance-id", "123", "x-prefill-instance-id", "456", "x-dp-rank", "3", "x-prefill-dp-rank", "5"},
			want: &NvExt{
				BackendInstanceID: new(uint64(123)), DecodeWorkerID: new(uint64(123)), PrefillWorkerID: new(uint64(456)),
				DPRank: new(uint32(3)), PrefillDPRank: new(uint32(5)),
			},
		},
		{name: "prefill rank sentinel", headers: []string{"x-prefill-dp-rank", "4294967295"}},
		{
			name:    "prefill rank sentinel leaves the body alone",
			body:    `{"prefill_dp_rank":2}`,
			headers: []string{"x-dynamo-prefill-dp-rank", "4294967295"},
			want:    &NvExt{PrefillDPRank: new(uint32(2))},
		},
		{name: "rank has no sentinel", headers: []string{"x-dp-rank", "4294967295"}, want: &NvExt{DPRank: new(uint32(math.MaxUint32))}},
		{
			name: "not a number", headers: []string{"x-worker-instance-id", "abc"},
			ignored: []Ignored{{HeaderWorkerInstanceID, "not an unsigned 64-bit integer"}},
		},
		{name: "header over body", body: `{"decode_worker_id":7}`, headers: []string{"x-worker-instance-id", "9"}, want: pinned(9)},

		{name: "no headers"},
		{name: "no headers, a body", body: `{}`, want: &NvExt{}},
		{name: "full range", headers: []string{"x-worker-instance-id", "18446744073709551615"}, want: pinned(math.MaxUint64)},
		{
			name: "out of range", headers: []string{"x-worker-instance-id", "18446744073709551616", "x-dp-rank", "4294967296", "x-prefill-instance-id", "-1"},
			ignored: []Ignored{
				{HeaderWorkerInstanceID, "not an unsigned 64-bit integer"},
				{HeaderPrefillInstanceID, "not an unsigned 64-bit integer"},
				{HeaderDPRank, "not an unsigned 32-bit integer"},
			},
		},
		{
			name: "canonical names win",
			headers: []string{
				"x-worker-instance-id", "1", "x-dynamo-worker-instance-id", "11",
				"x-prefill-instance-id", "2", "x-dynamo-prefill-instance-id", "12",
				"x-dp-rank", "3", "x-data-parallel-rank", "33", "x-dynamo-dp-rank", "13",
				"x-prefill-dp-rank", "4", "x-dynamo-prefill-dp-rank", "14",
			},
			want: &NvExt{
				BackendInstanceID: new(uint64(11)), DecodeWorkerID: new(uint64(11)), PrefillWorkerID: new(uint64(12)),
				DPRank: new(uint32(13)), PrefillDPRank: new(uint32(14)),
			},
		},
		{
			name: "an alias stands in for a bad canonical", headers: []string{"x-worker-instance-id", "1", "x-dynamo-worker-instance-id", "one"},
			want: pinned(1), ignored: []Ignored{{HeaderDynamoWorkerInstanceID, "not an unsigned 64-bit integer"}},
		},
		{name: "data parallel rank", headers: []string{"x-data-parallel-rank", "2"}, want: &NvExt{DPRank: new(uint32(2))}},
		{
			name: "priorities", body: `{"agent_hints":{"priority":1,"strict_priority":1,"osl":9}}`,
			headers: []string{"x-dynamo-request-priority", " -3 ", "x-dynamo-request-strict-priority", "2"},
			want:    &NvExt{AgentHints: &AgentHints{Priority: new(int32(-3)), StrictPriority: new(uint32(2)), OSL: new(uint32(9))}},
		},
		{
			name: "bad priorities", headers: []string{"x-dynamo-request-priority", "2147483648", "x-dynamo-request-strict-priority", "-1"},
			ignored: []Ignored{{HeaderRequestPriority, "not a signed 32-bit integer"}, {HeaderRequestStrictPriority, "not an unsigned 32-bit integer"}},
		},
		{name: "tenant", body: `{"cache_salt":"a"}`, headers: []string{"x-tenant-id", "b"}, want: &NvExt{CacheSalt: new("b")}},
		{name: "empty tenant", body: `{"cache_salt":"a"}`, headers: []string{"x-tenant-id", ""}, want: &NvExt{CacheSalt: new("a")}},

		{
			name: "session, dynamo", headers: []string{"x-dynamo-session-id", "s", "x-dynamo-parent-session-id", "p", "x-dynamo-session-final", "True"},
			want: &NvExt{Session: &Session{ID: "s", ParentID: "p", Final: true, Source: "dynamo"}},
		},
		{
			name: "session, claude code", headers: []string{"x-claude-code-session-id", "s", "x-claude-code-agent-id", "a", "x-claude-code-parent-agent-id", "p"},
			want: &NvExt{Session: &Session{ID: "s", ParentID: "p", AgentID: "a", Source: "claude-code"}},
		},
		{
			name: "session, codex", headers: []string{"thread-id", "s", "x-codex-parent-thread-id", "p"},
			want: &NvExt{Session: &Session{ID: "s", ParentID: "p", Source: "codex"}},
		},
		{
			name: "session, opencode", headers: []string{"x-session-id", "s", "x-parent-session-id", "p"},
			want: &NvExt{Session: &Session{ID: "s", ParentID: "p", Source: "opencode"}},
		},
		{
			name: "session, ours first", headers: []string{"x-session-id", "o", "thread-id", "c", "x-claude-code-session-id", "cc", "x-dynamo-session-id", "d", "x-dynamo-session-final", "0"},
			want: &NvExt{Session: &Session{ID: "d", Source: "dynamo"}},
		},
		{name: "session, no id", headers: []string{"x-dynamo-parent-session-id", "p", "x-dynamo-session-final", "true"}},
		{
			name: "session, id of 256 bytes", headers: []string{"x-session-id", long[1:]},
			want: &NvExt{Session: &Session{ID: long[1:], Source: "opencode"}},
		},
		{
			name: "session, long ids", headers: []string{"x-dynamo-session-id", long, "x-session-id", "s", "x-parent-session-id", long},
			want:    &NvExt{Session: &Session{ID: "s", Source: "opencode"}},
			ignored: []Ignored{{HeaderSessionID, "id longer than 256 bytes"}, {HeaderOpenCodeParentSessionID, "id longer than 256 bytes"}},
		},
		{
			name: "session, odd flag", headers: []string{"x-dynamo-session-id", "s", "x-dynamo-session-final", "maybe"},
			want:    &NvExt{Session: &Session{ID: "s", Source: "dynamo"}},
			ignored: []Ignored{{HeaderSessionFinal, "not a boolean"}},
		},

		{
			name: "older headers",
			headers: []string{
				"x-prefix-id", "run7", "x-prefix-total-requests", "4", "x-prefix-osl", "512", "x-prefix-iat", "50",
				"x-prefix-latency-sensitivity", "2.5",
			},
			want: &NvExt{AgentHints: &AgentHints{
				PrefixID: new("run7"), TotalRequests: new(uint64(4)), OSL: new(uint32(512)), IATMS: new(uint64(50)), LatencySensitivity: new(2.5),
			}},
		},
		{
			name:    "oldest headers",
			headers: []string{"x-nat-remaining-llm-calls", "3", "x-nat-interarrival-ms", "250.7", "x-nat-expected-output-tokens", "99"},
			want:    &NvExt{AgentHints: &AgentHints{RemainingCalls: new(uint64(3)), OSL: new(uint32(99)), IATMS: new(uint64(250))}},
		},
		{
			name: "categories",
			headers: []string{
				"x-prefix-osl", "low", "x-prefix-iat", "HIGH", "x-prefix-latency-sensitivity", "Medium",
			},
			want: &NvExt{AgentHints: &AgentHints{OSL: new(uint32(128)), IATMS: new(uint64(750)), LatencySensitivity: new(2.0)}},
		},
		{
			name:    "hints, then annotations, then headers",
			body:    `{"agent_hints":{"osl":1},"annotations":["osl:2","iat:2"]}`,
			headers: []string{"x-prefix-osl", "3", "x-prefix-iat", "3", "x-prefix-total-requests", "3", "x-nat-remaining-llm-calls", "9"},
			want: &NvExt{
				Annotations: []string{"osl:2", "iat:2"},
				AgentHints:  &AgentHints{OSL: new(uint32(1)), IATMS: new(uint64(2)), TotalRequests: new(uint64(3))},
			},
		},
		{name: "none remain", headers: []string{"x-nat-remaining-llm-calls", " 0 "}, want: &NvExt{AgentHints: &AgentHints{RemainingCalls: new(uint64(0))}}},
		{
			name: "a total in the body goes before what remains", body: `{"agent_hints":{"total_requests":4}}`,
			headers: []string{"x-nat-remaining-llm-calls", "9"},
			want:    &NvExt{AgentHints: &AgentHints{TotalRequests: new(uint64(4))}},
		},
		{
			name: "a total in an annotation goes before what remains", body: `{"annotations":["total_requests:4"]}`,
			headers: []string{"x-nat-remaining-llm-calls", "9"},
			want:    &NvExt{Annotations: []string{"total_requests:4"}, AgentHints: &AgentHints{TotalRequests: new(uint64(4))}},
		},
		{
			name:    "a total that makes no sense gives way to what remains",
			headers: []string{"x-prefix-total-requests", "x", "x-nat-remaining-llm-calls", "9"},
			want:    &NvExt{AgentHints: &AgentHints{RemainingCalls: new(uint64(9))}},
			ignored: []Ignored{{HeaderPrefixTotalRequests, "not an integer"}},
		},
		{
			name:    "a bad carrier gives way to the next",
			body:    `{"annotations":["osl:abc","iat:","total_requests:2.5","prefix_id:` + long + `"]}`,
			headers: []string{"x-prefix-osl", "def", "x-nat-expected-output-tokens", "7", "x-prefix-iat", "inf", "x-prefix-total-requests", "x", "x-nat-remaining-llm-calls", "-1", "x-prefix-latency-sensitivity", "nan", "x-prefix-id", "p"},
			want: &NvExt{
				Annotations: []string{"osl:abc", "iat:", "total_requests:2.5", "prefix_id:" + long},
				AgentHints:  &AgentHints{OSL: new(uint32(7)), PrefixID: new("p")},
			},
			ignored: []Ignored{
				{"nvext.annotations", "id longer than 256 bytes"},
				{"nvext.annotations", "not an integer"},
				{HeaderPrefixTotalRequests, "not an integer"},
				{HeaderNATRemainingLLMCalls, "not an integer"},
				{"nvext.annotations", "not a number"},
				{HeaderPrefixOSL, "not a number"},
				{HeaderPrefixIAT, "not a number"},
				{HeaderPrefixLatencySensitivity, "not a number"},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var e *NvExt
			if tt.body != "" {
				e = mustParse(t, tt.body)
			}
			got, ignored := ApplyHeaders(e, headers(t, tt.headers...))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.ignored, ignored); diff != "" {
				t.Errorf("ignored (-want +got):\n%s", diff)
			}
			if e != nil && e != got {
				t.Error("a new NvExt where there was one")
			}
		})
	}
}

// A hint in the body that makes no sense is as good as none: the next carrier counts.
func TestBadHintGivesWay(t *testing.T) {
	const hints = `{"agent_hints":{"prefix_id":7,"total_requests":[],"osl":"long","iat":"soon"}`
	want := &AgentHints{PrefixID: new("p"), TotalRequests: new(uint64(4)), OSL: new(uint32(128)), IATMS: new(uint64(750))}
	for _, tt := range []struct {
		body    string
		headers []string
	}{
		{hints + `,"annotations":["prefix_id:p","total_requests:4","osl:LOW","iat:HIGH",7]}`, nil},
		{hints + `,"annotations":["prefix_id:p","osl:LOW",null]}`, []string{"x-prefix-id", "q", "x-prefix-total-requests", "4", "x-prefix-iat", "HIGH"}},
		{hints + `,"annotations":"osl:HIGH"}`, []string{"x-prefix-id", "p", "x-prefix-total-requests", "4.0", "x-prefix-osl", "LOW", "x-prefix-iat", "HIGH"}},
	} {
		e, ignored := ApplyHeaders(mustParse(t, tt.body), headers(t, tt.headers...))
		if diff := cmp.Diff(want, e.AgentHints); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.body, diff)
		}
		if len(ignored) != 0 || len(e.Ignored) != 5 {
			t.Errorf("%s: ignored %v and %v", tt.body, e.Ignored, ignored)
		}
	}
}

// The annotation carrier alone, with the inputs of the reference's parser. A
// nil value is what a policy takes for its default.
func TestAnnotationHints(t *testing.T) {
	u32 := func(n uint32) *AgentHints { return &AgentHints{OSL: &n} }
	iat := func(n uint64) *AgentHints { return &AgentHints{IATMS: &n} }
	total := func(n uint64) *AgentHints { return &AgentHints{TotalRequests: &n} }
	tests := []struct {
		annotations []string
		want        *AgentHints
	}{
		{[]string{"osl:255"}, u32(255)},
		{[]string{"osl:256"}, u32(256)},
		{[]string{"osl:1023.9"}, u32(1023)},
		{[]string{"osl:1024"}, u32(1024)},
		{[]string{"osl: low "}, u32(128)},
		{[]string{"osl:MEDIUM"}, u32(512)},
		{[]string{"osl:HIGH"}, u32(2048)},
		{[]string{"osl:"}, nil},
		{[]string{"osl:abc"}, nil},
		{[]string{"osl:nan"}, nil},
		{[]string{"osl:-5"}, u32(0)},
		{[]string{"osl:1e3"}, u32(1000)},
		{[]string{"osl:1e30"}, u32(math.MaxUint32)},
		{[]string{"iat:99"}, iat(99)},
		{[]string{"iat:500"}, iat(500)},
		{[]string{"iat:LOW"}, iat(50)},
		{[]string{"iat:medium"}, iat(250)},
		{[]string{"total_requests:0"}, total(1)},
		{[]string{"total_requests:-3"}, total(1)},
		{[]string{"total_requests:2.5"}, nil},
		{[]string{"total_requests: 7 "}, total(7)},
		{[]string{"osl:HIGH", "osl:LOW"}, u32(2048)},
		{[]string{"prefix_id:a:b"}, &AgentHints{PrefixID: new("a:b")}},
		{[]string{"prefix_id:"}, nil},
		{[]string{"prefix_id"}, nil},
		{[]string{"prefix_id:run7-d1", "total_requests:4", "osl:512", "iat:50"}, &AgentHints{
			PrefixID: new("run7-d1"), TotalRequests: new(uint64(4)), OSL: new(uint32(512)), IATMS: new(uint64(50)),
		}},
	}
	for _, tt := range tests {
		e, _ := ApplyHeaders(&NvExt{Annotations: tt.annotations}, nil)
		if diff := cmp.Diff(tt.want, e.AgentHints); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.annotations, diff)
		}
	}
}

func TestApplyHeadersAllocs(t *testing.T) {
	h := map[string]string{"Content-Type": "application/json", "User-Agent": "test", "Authorization": "Bearer x"}
	get := func(name string) string { return h[name] }
	if n := testing.AllocsPerRun(100, func() {
		if e, ignored := ApplyHeaders(nil, get); e != nil || ignored != nil {
			t.Fatal("something out of nothing")
		}
	}); n != 0 {
		t.Errorf("%v allocations for a request without our headers, want 0", n)
	}
}

func BenchmarkApplyHeaders(b *testing.B) {
	h := map[string]string{"Content-Type": "application/json", "User-Agent": "test", "Authorization": "Bearer x"}
	get := func(name string) string { return h[name] }
	b.ReportAllocs()
	for b.Loop() {
		ApplyHeaders(nil, get)
	}
}

// TestHeaderNames pins every exported header name.
func TestHeaderNames(t *testing.T) {
	want := map[string]string{
		"HeaderDynamoWorkerInstanceID":   "x-dynamo-worker-instance-id",
		"HeaderWorkerInstanceID":         "x-worker-instance-id",
		"HeaderDynamoPrefillInstanceID":  "x-dynamo-prefill-instance-id",
		"HeaderPrefillInstanceID":        "x-prefill-instance-id",
		"HeaderDynamoDPRank":             "x-dynamo-dp-rank",
		"HeaderDPRank":                   "x-dp-rank",
		"HeaderDataParallelRank":         "x-data-parallel-rank",
		"HeaderDynamoPrefillDPRank":      "x-dynamo-prefill-dp-rank",
		"HeaderPrefillDPRank":            "x-prefill-dp-rank",
		"HeaderRequestPriority":          "x-dynamo-request-priority",
		"HeaderRequestStrictPriority":    "x-dynamo-request-strict-priority",
		"HeaderTenantID":                 "x-tenant-id",
		"HeaderMetaPrefix":               "x-dynamo-meta-",
		"HeaderSessionID":                "x-dynamo-session-id",
		"HeaderParentSessionID":          "x-dynamo-parent-session-id",
		"HeaderSessionFinal":             "x-dynamo-session-final",
		"HeaderClaudeCodeSessionID":      "x-claude-code-session-id",
		"HeaderClaudeCodeAgentID":        "x-claude-code-agent-id",
		"HeaderClaudeCodeParentAgentID":  "x-claude-code-parent-agent-id",
		"HeaderCodexThreadID":            "thread-id",
		"HeaderCodexParentThreadID":      "x-codex-parent-thread-id",
		"HeaderOpenCodeSessionID":        "x-session-id",
		"HeaderOpenCodeParentSessionID":  "x-parent-session-id",
		"HeaderPrefixID":                 "x-prefix-id",
		"HeaderPrefixTotalRequests":      "x-prefix-total-requests",
		"HeaderPrefixOSL":                "x-prefix-osl",
		"HeaderPrefixIAT":                "x-prefix-iat",
		"HeaderPrefixLatencySensitivity": "x-prefix-latency-sensitivity",
		"HeaderNATRemainingLLMCalls":     "x-nat-remaining-llm-calls",
		"HeaderNATInterArrivalMS":        "x-nat-interarrival-ms",
		"HeaderNATExpectedOutputTokens":  "x-nat-expected-output-tokens",
	}
	got := map[string]string{}
	for name, value := range stringConstants(t, "headers.go") {
		if c := textproto.CanonicalMIMEHeaderKey(value); c != value {
			t.Errorf("%s = %q is not canonical: %q", name, value, c)
		}
		if !IsHeader(value) {
			t.Errorf("IsHeader(%q) is false", value)
		}
		got[name] = strings.ToLower(value)
	}
	for _, other := range []string{"", "Accept", "X-Request-Id", "X-Stainless-Lang", "X-Dynamo-Meta"} {
		if IsHeader(other) {
			t.Errorf("IsHeader(%q) is true", other)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// stringConstants are the constants that a file of this package declares.
func stringConstants(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	consts := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			s, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			consts[v.Names[0].Name] = s
		}
		return true
	})
	return consts
}
