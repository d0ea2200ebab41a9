package hints

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stator-ai/stator/nvext"
)

func TestHeaderNames(t *testing.T) {
	for name, want := range map[string]string{
		HeaderRun: "X-Stator-Run", HeaderWorkflowRun: "Workflow-Run-Id", HeaderPath: "X-Stator-Path",
		HeaderFunctionID: "X-Stator-Function-Id", HeaderBranch: "X-Stator-Branch", HeaderRemaining: "X-Nat-Remaining-Llm-Calls",
	} {
		if name != want || name != http.CanonicalHeaderKey(name) {
			t.Errorf("%s, want %s", name, want)
		}
	}
}

func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

func TestFromHeader(t *testing.T) {
	long := strings.Repeat("x", nvext.MaxIDBytes+1)
	for _, c := range []struct {
		name    string
		header  http.Header
		id      string
		path    []string
		ignored []string
	}{
		{"run", header("x-stator-run", "r1"), "r1-d0", nil, nil},
		{"NAT's run", header("workflow-run-id", "r1"), "r1-d0", nil, nil},
		{"both", header("workflow-run-id", "r1", "x-stator-run", "r2"), "r2-d0", nil, nil},
		{"Dynamo session", header("x-dynamo-session-id", "s1"), "s1-d0", nil, nil},
		{"Claude Code", header("x-claude-code-session-id", "s1", "x-claude-code-agent-id", "a1"), "s1/a1-d0", nil, nil},
		{"path", header("x-stator-run", "r", "x-stator-path", "planner/a%2Fb"), "r-d2", []string{"planner", "a/b"}, nil},
		{"branch", header("x-stator-run", "r", "x-stator-branch", "left"), "r-d0/left", nil, nil},
		{"prefix", header("x-stator-run", "r", "x-prefix-id", "p"), "p", nil, nil},
		{"long run", header("x-stator-run", long, "workflow-run-id", "r"), "r-d0", nil, []string{"X-Stator-Run"}},
		{"bad path", header("x-stator-run", "r", "x-stator-path", "a/%zz"), "r-d0", nil, []string{"X-Stator-Path"}},
		{"empty name", header("x-stator-run", "r", "x-stator-path", "a//b"), "r-d0", nil, []string{"X-Stator-Path"}},
		{"long path", header("x-stator-run", "r", "x-stator-path", strings.Repeat("a", 5000)), "r-d0", nil, []string{"X-Stator-Path"}},
		{"function of no path", header("x-stator-run", "r", "x-stator-function-id", "f"), "r-d0", nil, []string{"X-Stator-Function-Id"}},
		{"no tokens", header("x-stator-run", "r", "x-prefix-osl", "0"), "r-d0", nil, []string{"X-Prefix-Osl"}},
		{"absurd tokens", header("x-stator-run", "r", "x-prefix-osl", "99999999999999999999"), "r-d0", nil, []string{"X-Prefix-Osl"}},
		{"no time", header("x-stator-run", "r", "x-prefix-iat", "-1"), "r-d0", nil, []string{"X-Prefix-Iat"}},
		{"absurd remaining", header("x-stator-run", "r", "x-nat-remaining-llm-calls", "99999999999"), "r-d0", nil, []string{"X-Nat-Remaining-Llm-Calls"}},
		{"deep path", header("x-stator-run", "r", "x-stator-path", strings.Repeat("a/", 100)), "r-d0", nil, []string{"X-Stator-Path"}},
	} {
		ctx, ignored := FromHeader(t.Context(), c.header)
		if got := PrefixID(ctx); got != c.id {
			t.Errorf("%s: prefix id %q, want %q", c.name, got, c.id)
		}
		if got := FunctionPath(ctx); !slices.Equal(got, c.path) {
			t.Errorf("%s: path %q, want %q", c.name, got, c.path)
		}
		if !slices.Equal(ignored, c.ignored) {
			t.Errorf("%s: ignored %q, want %q", c.name, ignored, c.ignored)
		}
	}
}

// A level of urgency is a whole number, wherever it is declared.
func TestS4NoWholeNumber(t *testing.T) {
	for value, want := range map[string]int{"7": 7, "HIGH": 3, "low": 1, "2.5": 0, "x": 0, "-1": 0, "NaN": 0} {
		ctx, ignored := FromHeader(t.Context(), header("x-prefix-latency-sensitivity", value))
		n, manual := Sensitivity(ctx)
		if want == 0 && (manual || n != DefaultSensitivity) || want != 0 && n != want {
			t.Errorf("%s: %d, %t", value, n, manual)
		}
		if refused := value == "2.5" || value == "x" || value == "NaN"; (len(ignored) > 0) != refused {
			t.Errorf("%s: ignored %q", value, ignored)
		}
	}
}

// Without an id for the invocation, the calls of one run and path are counted together.
func TestHeaderInvocations(t *testing.T) {
	w := new(wire)
	tr := NewTransport(w, quiet, WithLookup(numbered{}))
	from := func(pairs ...string) context.Context {
		ctx, _ := FromHeader(t.Context(), header(pairs...))
		return ctx
	}
	for _, c := range []struct {
		ctx  context.Context
		call int
	}{
		{from("x-stator-run", "r", "x-stator-path", "a/b"), 1},
		{from("x-stator-run", "r", "x-stator-path", "a/b"), 2},
		{from("x-stator-run", "q", "x-stator-path", "a/b"), 1},
		{from("x-stator-run", "r", "x-stator-path", "a/c"), 1},
		{from("x-stator-run", "r", "x-stator-path", "a/b", "x-stator-function-id", "f1"), 1},
		{from("x-stator-run", "r", "x-stator-path", "a/b", "x-stator-function-id", "f1"), 2},
		{from("x-stator-run", "r"), 1},
		{from("x-stator-run", "q", "x-stator-path", "a/b", "x-stator-function-id", "f1"), 1}, // ids count within their run and path
		{from("x-stator-run", "r", "x-stator-path", "a/c", "x-stator-function-id", "f1"), 1},
		{from("x-stator-run", "f1"), 1},
	} {
		contains(t, post(t, tr, w, c.ctx, `{}`), fmt.Sprintf(`"osl":%d,`, c.call))
	}
}

// Whatever is said in headers, what is kept of it is short.
func TestHeaderStateIsBounded(t *testing.T) {
	w := new(wire)
	tr := NewTransport(w, quiet, WithLookup(numbered{}))
	for i := range 3 {
		ctx, _ := FromHeader(t.Context(), header("x-stator-run", strings.Repeat("r", 256), "x-stator-path", strings.Repeat("a", 4090)+fmt.Sprint(i)))
		post(t, tr, w, ctx, `{}`)
		post(t, tr, w, WithRun(t.Context(), strings.Repeat("r", 1<<20)), `{}`)
	}
	for _, c := range []*counter{tr.prefixes, tr.functions} {
		for name := range c.index {
			if len(name) > nvext.MaxIDBytes+16 {
				t.Errorf("a name of %d bytes is kept", len(name))
			}
		}
	}
	if n, _ := tr.functions.size(); n != 4 {
		t.Errorf("%d functions are told apart, want 4", n)
	}
}

func TestToHeader(t *testing.T) {
	empty := http.Header{}
	ToHeader(t.Context(), empty)
	if len(empty) != 0 {
		t.Errorf("nothing is known, and %v was written", empty)
	}
	ctx := WithBranch(EnterFunction(EnterFunction(WithRun(t.Context(), "r"), "a/b"), "ü"), "left")
	ctx = WithLatencySensitivity(WithPrefixID(ctx, "p"), 9)
	ctx = WithInterArrival(WithOutputTokens(WithRemainingCalls(ctx, 0), 77), time.Second)
	h := http.Header{}
	ToHeader(ctx, h)
	got, ignored := FromHeader(t.Context(), h)
	if len(ignored) > 0 {
		t.Errorf("ignored %q", ignored)
	}
	a, b := *scopeOf(ctx), *scopeOf(got)
	a.caller, a.counted, b.counted = "", "", "" // what headers do not say
	a.expect.total, b.expect.total = 0, 0       // and say twice
	if !reflect.DeepEqual(a, b) {
		t.Errorf("got %+v\nwant %+v", b, a)
	}
	again := http.Header{}
	ToHeader(got, again)
	if fmt.Sprint(h) != fmt.Sprint(again) {
		t.Errorf("once %v\ntwice %v", h, again)
	}
}
