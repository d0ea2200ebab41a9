package trie

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReadSpansRuns(t *testing.T) {
	// In the order in which they end, two runs by turns, times in both forms.
	const in = `{"run_id":"r","span_id":"1","parent_span_id":"0","kind":"llm","name":"m","path":["<workflow>","agent"],"function_id":"F","parent_function_id":"W","start":1000.25,"end":1001.5,"prompt_tokens":10,"completion_tokens":100,"status":"ok","more":[{}]}
{"run_id":"s","span_id":"1","kind":"llm","name":"m","path":null,"start":"2026-03-01T12:00:00.000001Z","end":"2026-03-01T13:00:01+01:00","completion_tokens":null}

{"run_id":"r","span_id":"2","parent_span_id":"0","kind":"llm","name":"m","path":["a","b"],"start":1001.5,"end":1002,"completion_tokens":7,"status":"error"}
{"run_id":"r","span_id":"3","parent_span_id":"0","kind":"tool","name":"search","path":[],"start":1002,"end":1001}
{"run_id":"r","span_id":"0","kind":"function","name":"<workflow>","path":["<workflow>"],"function_id":"W","start":1000,"end":1003,"status":"error"}
{"run_id":"r","span_id":"4","kind":"retriever","start":1000,"end":1000.5}
`
	agent := Invocation{"F", "agent", "W", "<workflow>"}
	workflow := Invocation{ID: "W", Name: "<workflow>"}
	pair := Invocation{Name: "b", ParentName: "a"}
	want := [][]Step{
		{
			{Type: LLMStart, Time: 0.25, UUID: "1", ParentID: "0", Function: agent, Path: []string{"<workflow>", "agent"}},
			{Type: LLMEnd, Time: 1.5, Began: ptr(0.25), UUID: "1", ParentID: "0", Function: agent, Path: []string{"<workflow>", "agent"}, OutputTokens: 100},
			{Type: SpanStart, Time: 1.5, UUID: "2", ParentID: "0", Function: pair, Path: []string{"a", "b"}},
			{Type: SpanEnd, Time: 2, Began: ptr(1.5), UUID: "2", ParentID: "0", Function: pair, Path: []string{"a", "b"}},
			{Type: ToolStart, Time: 2, UUID: "3", ParentID: "0", Path: []string{}},
			{Type: ToolEnd, Time: 2, Began: ptr(2.0), UUID: "3", ParentID: "0", Path: []string{}},
			{Type: FunctionStart, UUID: "0", Function: workflow, Path: []string{"<workflow>"}},
			{Type: FunctionEnd, Time: 3, Began: ptr(0.0), UUID: "0", Function: workflow, Path: []string{"<workflow>"}},
			{Type: SpanStart, UUID: "4"},
			{Type: SpanEnd, Time: 0.5, Began: ptr(0.0), UUID: "4"},
		},
		{
			{Type: LLMStart, UUID: "1"},
			{Type: LLMEnd, Time: 0.999999, Began: ptr(0.0), UUID: "1", OutputTokens: -1},
		},
	}
	got, err := readAll(ReadSpans, strings.NewReader(in))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	// The same from several inputs, two spans not written to their end.
	got = nil
	c := NewCollector(func(steps []Step) error {
		got = append(got, steps)
		return nil
	})
	for line := range strings.Lines(in) {
		if err := c.AddLines(strings.NewReader(line)); err != nil {
			t.Fatal(err)
		}
	}
	const x = `{"run_id":"s","kind":"x","start":1772366400,"end":1772366400}` + "\r\n"
	if err := c.AddLines(strings.NewReader("\ufeff" + x + `{"run_id":"s","ki` + "\n" + x + `{"run_id":"s",` + "\n")); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || len(got[0]) != len(want[0]) || len(got[1]) != 6 {
		t.Errorf("got %v", got)
	}
	if c.Unanswered() != 1 || c.CutOff() != 2 {
		t.Errorf("%d unanswered, %d cut off", c.Unanswered(), c.CutOff())
	}
}

// TestReadSpansMarshalled: what encoding/json makes of spans is read.
func TestReadSpansMarshalled(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.FixedZone("", 3600))
	data, err := json.Marshal(Span{
		RunID: "r", SpanID: "1", Kind: KindLLM, Name: "m", Path: []string{"wörk"},
		FunctionID: "F", ParentFunctionID: "W", Start: start, End: start.Add(1500 * time.Millisecond),
		PrefixID: "r-d1", PromptTokens: ptr(3), CompletionTokens: ptr(4), CachedTokens: ptr(0), TTFTMS: ptr(1.5), Status: "ok",
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := readAll(ReadSpans, strings.NewReader(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	f := Invocation{ID: "F", Name: "wörk", ParentID: "W"}
	want := [][]Step{{
		{Type: LLMStart, UUID: "1", Function: f, Path: []string{"wörk"}},
		{Type: LLMEnd, Time: 1.5, Began: ptr(0.0), UUID: "1", Function: f, Path: []string{"wörk"}, OutputTokens: 4},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestReadSpansErrors(t *testing.T) {
	const good = `{"run_id":"r","kind":"llm","start":1,"end":2}` + "\n"
	for _, tt := range []struct{ in, want string }{
		{`[]`, `line 1: expected an object, got an array`},
		{good + `7`, `line 2: expected an object, got a number`},
		{good + `{"kind":"llm","start":1,"end":2}`, `line 2: run_id: expected a string, got nothing`},
		{good + `{"run_id":null}`, `line 2: run_id: expected a string, got null`},
		{good + `{"run_id":"r","start":1,"end":2}`, `line 2: kind: expected llm, tool or function, got nothing`},
		{good + `{"run_id":"r","kind":"llm","end":2}`, `line 2: start: expected a time, got nothing`},
		{good + `{"run_id":"r","kind":"llm","start":1}`, `line 2: end: expected a time, got nothing`},
		{good + `{"start":null}`, `line 2: start: expected a time in RFC 3339 or seconds since 1970, got null`},
		{good + `{"start":"noon"}`, `line 2: start: expected a time in RFC 3339 or seconds since 1970, got "noon"`},
		{good + `{"end":1e300}`, `line 2: end: expected a time in RFC 3339 or seconds since 1970, got 1e300`},
		{good + `{"end":NaN}`, `line 2: end: expected a time in RFC 3339 or seconds since 1970, got NaN`},
		{good + `{"path":"a/b"}`, `line 2: path: expected an array, got a string`},
		{good + `{"path":["a",1]}`, `line 2: path[1]: expected a string, got a number`},
		{good + `{"completion_tokens":"5"}`, `line 2: completion_tokens: expected a number, got a string`},
		{good + `{"run_id":"r","kind":"llm","start":1,"end":2} {`, `line 2: expected one span on a line, got '{' after it`},
		{good + strings.Repeat(" ", maxSpanLine+1), `line 2: expected at most 16 MiB`},
		{`{"run_id":"r"`, `line 1: cut off: the input ends here, at byte 13`},
	} {
		if _, err := readAll(ReadSpans, strings.NewReader(tt.in)); err == nil || err.Error() != tt.want {
			t.Errorf("%s\n got %v\nwant %s", tt.in, err, tt.want)
		}
	}
	if err := NewCollector(nil).Add(Span{}); err == nil || !strings.HasPrefix(err.Error(), "run_id: ") {
		t.Errorf("got %v", err)
	}
}

// TestCollectorLate: a run that was handed over does not begin anew.
func TestCollectorLate(t *testing.T) {
	runs := 0
	c := NewCollector(func([]Step) error { runs++; return nil })
	c.runs.most = 1
	const in = `{"run_id":"a","kind":"llm","start":1,"end":2}
{"run_id":"b","kind":"llm","start":1,"end":2}
{"run_id":"c","kind":"llm","start":1,"end":2}
{"run_id":"a","kind":"llm","start":1,"end":2}
`
	err := c.AddLines(strings.NewReader(in))
	var late *endedError
	if !errors.As(err, &late) || !strings.HasPrefix(err.Error(), `line 4: expected all of run "a" closer together`) || runs != 1 {
		t.Errorf("%d runs, %v", runs, err)
	}
}

// TestCollectorAgain: after Close a run begins anew.
func TestCollectorAgain(t *testing.T) {
	runs := 0
	c := NewCollector(func([]Step) error { runs++; return nil })
	for i := range 2 {
		if err := c.AddLines(strings.NewReader(`{"run_id":"a","kind":"llm","start":1,"end":2}`)); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil || runs != i+1 {
			t.Fatalf("%d runs, %v", runs, err)
		}
	}
}
