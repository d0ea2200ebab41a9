package trie

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func ptr[T any](v T) *T { return &v }

// natRun is what the sample files say of the request that began at a time.
func natRun(request int, t float64) []Step {
	workflow := Invocation{"W", "<workflow>", "root", "root"}
	agent := Invocation{"F1", "agent", "W", "<workflow>"}
	id := func(name string) string { return fmt.Sprint(name, request) }
	return []Step{
		{Type: "WORKFLOW_START", Time: t, UUID: id("w"), ParentID: "root", Function: workflow},
		{Type: LLMStart, Time: t + 0.5, UUID: id("a"), ParentID: "F1", Function: agent},
		{Type: "LLM_NEW_TOKEN", Time: t + 1, UUID: id("a"), ParentID: "F1", Function: agent},
		{Type: LLMEnd, Time: t + 1.5, Began: ptr(t + 0.5), UUID: id("a"), ParentID: "F1", Function: agent, OutputTokens: 100},
		{Type: ToolStart, Time: t + 1.5, UUID: id("t"), ParentID: "F1", Function: agent},
		{Type: ToolEnd, Time: t + 2, Began: ptr(t + 1.5), UUID: id("t"), ParentID: "F1", Function: agent},
		{Type: LLMStart, Time: t + 2.5, UUID: id("b"), ParentID: "F1", Function: agent},
		{Type: LLMEnd, Time: t + 3.5, Began: ptr(t + 2.5), UUID: id("b"), ParentID: "F1", Function: agent, OutputTokens: 40},
		{Type: "WORKFLOW_END", Time: t + 4, Began: &t, UUID: id("w"), ParentID: "root", Function: workflow},
	}
}

type reader func(io.Reader, func([]Step) error) error

func readAll(read reader, r io.Reader) ([][]Step, error) {
	var runs [][]Step
	err := read(r, func(steps []Step) error {
		runs = append(runs, steps)
		return nil
	})
	return runs, err
}

func TestReadNATFile(t *testing.T) {
	data, err := os.ReadFile("testdata/readers/all_requests_profiler_traces.json")
	if err != nil {
		t.Fatal(err)
	}
	want := [][]Step{natRun(0, 1000), natRun(1, 2000)}
	for name, r := range map[string]io.Reader{
		"whole":             bytes.NewReader(data),
		"a byte at a time":  iotest.OneByteReader(bytes.NewReader(data)),
		"end with the last": iotest.DataErrReader(bytes.NewReader(data)),
		"a byte order mark": io.MultiReader(strings.NewReader("\ufeff"), bytes.NewReader(data)),
	} {
		got, err := readAll(ReadNAT, r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
	if got := Sniff(data[:200]); got != FormatNAT {
		t.Errorf("Sniff = %q", got)
	}
}

func TestReadNATCSVFile(t *testing.T) {
	data, err := os.ReadFile("testdata/readers/standardized_data_all.csv")
	if err != nil {
		t.Fatal(err)
	}
	want := [][]Step{natRun(0, 1000), natRun(1, 2000)}
	got, err := readAll(ReadNATCSV, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Step{}, "ParentID")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, run := range got {
		for _, s := range run {
			if s.ParentID != "" {
				t.Fatalf("ParentID %q, which no column has", s.ParentID)
			}
		}
	}
	if got := Sniff(data[:300]); got != FormatNATCSV {
		t.Errorf("Sniff = %q", got)
	}
}

func TestReadNATShapes(t *testing.T) {
	const (
		step = `{"payload":{"event_type":"LLM_END","event_timestamp":2}}`
		one  = `{"intermediate_steps":[` + step + `]}`
	)
	bare := []Step{{Type: LLMEnd, Time: 2, OutputTokens: -1}}
	for _, tt := range []struct {
		name, in string
		want     [][]Step
	}{
		{"nothing", "", nil},
		{"empty list", "[]", nil},
		{"no steps", `[{"request_number":0,"intermediate_steps":[]}]`, [][]Step{nil}},
		{"one request alone", one, [][]Step{bare}},
		{"lines", one + "\n" + one + "\n", [][]Step{bare, bare}},
		{"two files", "[" + one + "]\n[" + one + "," + one + "]", [][]Step{bare, bare, bare}},
		{"nulls", `[{"intermediate_steps":[{"parent_id":null,"function_ancestry":null,"payload":{"event_type":"LLM_END","event_timestamp":2,"span_event_timestamp":null,"usage_info":null,"UUID":null}}]}]`, [][]Step{bare}},
		{"null usage", `[{"intermediate_steps":[{"payload":{"event_type":"LLM_END","event_timestamp":2,"usage_info":{"token_usage":null}}},{"payload":{"event_type":"LLM_END","event_timestamp":2,"usage_info":{"token_usage":{"completion_tokens":null}}}}]}]`, [][]Step{{bare[0], bare[0]}}},
		{"usage without tokens", `[{"intermediate_steps":[{"payload":{"event_type":"LLM_END","event_timestamp":2,"usage_info":{"num_llm_calls":1,"token_usage":{"prompt_tokens":3}}}}]}]`, [][]Step{bare}},
		{"no tokens", `[{"intermediate_steps":[{"payload":{"usage_info":{"token_usage":{"completion_tokens":0}},"event_type":"LLM_END","event_timestamp":2}}]}]`,
			[][]Step{{{Type: LLMEnd, Time: 2}}}},
		{"usage before the type", `[{"intermediate_steps":[{"payload":{"usage_info":null,"event_timestamp":2,"event_type":"LLM_END"}}]}]`, [][]Step{bare}},
		{"null usage of a tool", `[{"intermediate_steps":[{"payload":{"event_type":"TOOL_END","event_timestamp":2,"usage_info":null}}]}]`,
			[][]Step{{{Type: ToolEnd, Time: 2}}}},
		{"null parent", `[{"intermediate_steps":[{"function_ancestry":{"function_id":"f","function_name":"n","parent_id":null,"parent_name":null},"payload":{"event_type":"X","event_timestamp":2e0}}]}]`,
			[][]Step{{{Type: "X", Time: 2, Function: Invocation{ID: "f", Name: "n"}}}}},
		{"last of a name", `[{"intermediate_steps":[` + step + `,` + step + `],"intermediate_steps":[` + step + `]}]`, [][]Step{bare}},
		{"escapes", `[{"intermediate_steps":[{"payload":{"event_type":"\u004cLM\u005fEND","event_timestamp":2,"UUID":"\ud83d\ude00\ud800\n\/\udc00\ud800x"}}]}]`,
			[][]Step{{{Type: LLMEnd, Time: 2, UUID: "😀\ufffd\n/\ufffd\ufffdx", OutputTokens: -1}}}},
		{"numbers of Python", `[{"intermediate_steps":[{"payload":{"event_type":"A","event_timestamp":NaN,"span_event_timestamp":-Infinity,"x":[Infinity,-1.5E+3,1e999]}}]}]`,
			[][]Step{{{Type: "A", Time: math.NaN(), Began: ptr(math.Inf(-1))}}}},
		{"deep elsewhere", `[{"metadata":` + strings.Repeat("[", 900) + strings.Repeat("]", 900) + `,"intermediate_steps":[` + step + `]}]`, [][]Step{bare}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := readAll(ReadNAT, iotest.OneByteReader(strings.NewReader(tt.in)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateNaNs()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestReadNATErrors(t *testing.T) {
	payload := func(members string) string {
		return `[{"request_number":7,"intermediate_steps":[` +
			`{"payload":{"event_type":"A","event_timestamp":1}},` + "\n" + `{"payload":{` + members + `}}]}]`
	}
	for _, tt := range []struct{ in, want string }{
		{`3`, `line 1: request 0: expected an object, got a number`},
		{`[[]]`, `line 1: request 0: expected an object, got an array`},
		{`[{}]`, `line 1: request 0: intermediate_steps: expected an array, got nothing`},
		{`[{"intermediate_steps":null}]`, `line 1: request 0: intermediate_steps: expected an array, got null`},
		{"[{\"intermediate_steps\":[]},\n{\"intermediate_steps\":[3]}]", `line 2: request 1: intermediate_steps[0]: expected an object, got a number`},
		{`{"request_number":2,"intermediate_steps":[{}]}`, `line 1: request 2: intermediate_steps[0].payload: expected an object, got nothing`},
		{payload(`"event_timestamp":1`), `line 2: request 7: intermediate_steps[1].payload.event_type: expected a string, got nothing`},
		{payload(`"event_type":"A"`), `line 2: request 7: intermediate_steps[1].payload.event_timestamp: expected a number, got nothing`},
		{payload(`"event_type":"A","event_timestamp":"1"`), `line 2: request 7: intermediate_steps[1].payload.event_timestamp: expected a number, got a string`},
		{payload(`"event_type":7`), `line 2: request 7: intermediate_steps[1].payload.event_type: expected a string, got a number`},
		{payload(`"UUID":true`), `line 2: request 7: intermediate_steps[1].payload.UUID: expected a string, got a boolean`},
		{payload(`"span_event_timestamp":{}`), `line 2: request 7: intermediate_steps[1].payload.span_event_timestamp: expected a number, got an object`},
		{payload(`"usage_info":{"token_usage":{"completion_tokens":1.5}}`), `line 2: request 7: intermediate_steps[1].payload.usage_info.token_usage.completion_tokens: expected a whole number from 0 to 2147483647, got 1.5`},
		{payload(`"usage_info":{"token_usage":{"completion_tokens":-1}}`), `line 2: request 7: intermediate_steps[1].payload.usage_info.token_usage.completion_tokens: expected a whole number from 0 to 2147483647, got -1`},
		{payload(`"usage_info":[]`), `line 2: request 7: intermediate_steps[1].payload.usage_info: expected an object, got an array`},
		{`[{"intermediate_steps":[{"function_ancestry":{"parent_name":[]}}]}]`, `line 1: request 0: intermediate_steps[0].function_ancestry.parent_name: expected a string, got an array`},
		{`[{"intermediate_steps":[{"parent_id":1}]}]`, `line 1: request 0: intermediate_steps[0].parent_id: expected a string, got a number`},
		{payload(`"UUID":"` + strings.Repeat("x", maxKept+1) + `"`), `line 2: request 7: intermediate_steps[1].payload.UUID: expected at most 65536 bytes`},
		{`[{"x":` + strings.Repeat("[", 1001), `line 1: request 0: expected at most 1000 levels`},
		{`[{"x" 1}]`, `line 1: request 0: expected a colon after the name of a member, got '1'`},
		{`[{"x":1,}]`, `line 1: request 0: expected another value after a comma, got '}'`},
		{`[{"x":1 "y":2}]`, `line 1: request 0: expected a comma or '}', got '"'`},
		{`[{x:1}]`, `line 1: request 0: expected the name of a member, got 'x'`},
		{`[{"x":nul}]`, `line 1: request 0: expected null, got '}' in it`},
		{`[{"x":Nope}]`, `line 1: request 0: expected a value, got "Nope"`},
		{`[{"x":1a}]`, `line 1: request 0: expected a value, got "1a"`},
		{`[{"x":"\x"}]`, `line 1: request 0: expected an escape such as \n, got \x`},
		{`[{"x":"\u00g0"}]`, `line 1: request 0: expected four hexadecimal digits after \u, got 'g'`},
		{"[{\"x\":\"a\nb\"}]", `line 2: request 0: expected an escape in a string, got the control character '\n'`},
	} {
		for _, r := range []io.Reader{strings.NewReader(tt.in), iotest.OneByteReader(strings.NewReader(tt.in))} {
			if _, err := readAll(ReadNAT, r); err == nil || err.Error() != tt.want {
				t.Errorf("%.80s\n got %v\nwant %s", tt.in, err, tt.want)
			}
		}
	}
}

func TestReadNATCutOff(t *testing.T) {
	data, err := os.ReadFile("testdata/readers/all_requests_profiler_traces.json")
	if err != nil {
		t.Fatal(err)
	}
	cut := bytes.Index(data, []byte(`"UUID": "b1"`)) + 4
	runs, err := readAll(ReadNAT, bytes.NewReader(data[:cut]))
	want := fmt.Sprintf("line %d: request 1: intermediate_steps[6].payload: cut off: the input ends here, at byte %d", bytes.Count(data[:cut], []byte("\n"))+1, cut)
	if len(runs) != 1 || !errors.Is(err, io.ErrUnexpectedEOF) || err.Error() != want {
		t.Errorf("%d runs, %v\nwant %s", len(runs), err, want)
	}
	for i := range data[:2000] {
		if _, err := readAll(ReadNAT, bytes.NewReader(data[:i])); i > 0 && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%d bytes: %v", i, err)
		}
	}
	broken := errors.New("disk on fire")
	if _, err := readAll(ReadNAT, io.MultiReader(bytes.NewReader(data[:cut]), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

// TestReadErrorOfRun: what run returns is returned.
func TestReadErrorOfRun(t *testing.T) {
	enough := errors.New("enough")
	for name, tt := range map[string]struct {
		read reader
		in   string
	}{
		"nat":   {ReadNAT, `[{"intermediate_steps":[]}]`},
		"csv":   {ReadNATCSV, "event_type,event_timestamp\nA,1\n"},
		"spans": {ReadSpans, `{"run_id":"r","kind":"llm","start":1,"end":2}`},
	} {
		err := tt.read(strings.NewReader(tt.in), func([]Step) error { return enough })
		if err != enough {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// endless is a prompt without end.
type endless struct{ left int }

func (e *endless) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), e.left)
	for i := range p[:n] {
		p[i] = 'x'
	}
	e.left -= n
	return n, nil
}

// TestReadNATLargePrompt: what is not kept takes no memory.
func TestReadNATLargePrompt(t *testing.T) {
	const head, tail = `[{"intermediate_steps":[{"payload":{"data":{"input":"`, `"},"event_type":"A","event_timestamp":1}}]}]`
	in := io.MultiReader(strings.NewReader(head), &endless{64 << 20}, strings.NewReader(tail))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := ReadNAT(in, func([]Step) error { return nil }); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	allocated := after.TotalAlloc - before.TotalAlloc
	if allocated > 1<<20 {
		t.Errorf("%d bytes for a prompt of 64 MiB", allocated)
	}
}

func TestReadNATCSVRows(t *testing.T) {
	const header = "event_type,event_timestamp,example_number,completion_tokens,function_name,function_id,UUID,more\n"
	agent := Invocation{ID: "f", Name: "agent"}
	for _, tt := range []struct {
		name, in string
		want     [][]Step
	}{
		{"header alone", header, nil},
		{"few columns", "event_timestamp,event_type\n1,LLM_END\n2,LLM_START\n", [][]Step{{{Type: LLMEnd, Time: 1, OutputTokens: -1}, {Type: LLMStart, Time: 2}}}},
		{"by turns", header + "LLM_START,1,0,,agent,f,u,\nLLM_START,1.5,1,,agent,f,u,\nLLM_END,2,0,7.0,agent,f,u,\nLLM_END,3,1,nan,agent,f,u,\n", [][]Step{
			{{Type: LLMStart, Time: 1, UUID: "u", Function: agent}, {Type: LLMEnd, Time: 2, Began: ptr(1.0), UUID: "u", Function: agent, OutputTokens: 7}},
			{{Type: LLMStart, Time: 1.5, UUID: "u", Function: agent}, {Type: LLMEnd, Time: 3, Began: ptr(1.5), UUID: "u", Function: agent, OutputTokens: -1}},
		}},
		{"lengths", header + "LLM_END,1,0,,agent,f,u,\nLLM_END,2,0,0,agent,f,v,\nTOOL_END,3,0,NaN,agent,f,w,\n", [][]Step{{
			{Type: LLMEnd, Time: 1, UUID: "u", Function: agent, OutputTokens: -1},
			{Type: LLMEnd, Time: 2, UUID: "v", Function: agent},
			{Type: ToolEnd, Time: 3, UUID: "w", Function: agent},
		}}},
		{"ends before starts", header + "LLM_END,2,0,7,agent,f,u,\nTOOL_START,1,0,,agent,f,u,\n", [][]Step{
			{{Type: LLMEnd, Time: 2, UUID: "u", Function: agent, OutputTokens: 7}, {Type: ToolStart, Time: 1, UUID: "u", Function: agent}},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := readAll(ReadNATCSV, strings.NewReader(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	for _, tt := range []struct{ in, want string }{
		{"", "line 1: expected a header with event_type and event_timestamp, got nothing"},
		{"event_type,time\n", "line 1: event_timestamp: expected a column of that name, got none"},
		{"event_timestamp\n", "line 1: event_type: expected a column of that name, got none"},
		{header + ",1,0,,,,,\n", "line 2: event_type: expected the type of an event, got nothing"},
		{header + "A,1,0,,\"a\nb\",,,\nA,yesterday,0,,,,,\n", `line 4: event_timestamp: expected seconds, got "yesterday"`},
		{header + "A,1,0,many,,,,\n", `line 2: completion_tokens: expected a whole number that is not negative, got "many"`},
		{header + "A,1,0\n", "record on line 2: wrong number of fields"},
		{header + "A,1,0,\"", "parse error on line 2, column 8: extraneous or missing \" in quoted-field"},
	} {
		if _, err := readAll(ReadNATCSV, strings.NewReader(tt.in)); err == nil || err.Error() != tt.want {
			t.Errorf("%q\n got %v\nwant %s", tt.in, err, tt.want)
		}
	}
}

// TestGroupsBound: what is held is bounded, except for the run that goes on.
func TestGroupsBound(t *testing.T) {
	var got []string
	g := newGroups(3, func(items []string) error {
		got = append(got, strings.Join(items, ""))
		return nil
	})
	for _, item := range strings.Fields("a1 b1 a2 c1 c2 c3 c4 c5 a3 d1") {
		if err := g.add(item[:1], item); err != nil {
			t.Fatalf("%s: %v", item, err)
		}
	}
	// With a3 there were six of others, of which b had waited for longest.
	if diff := cmp.Diff([]string{"b1", "c1c2c3c4c5"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var late *endedError
	if err := g.add("b", "b2"); !errors.As(err, &late) {
		t.Errorf("got %v", err)
	}
	if err := g.close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"b1", "c1c2c3c4c5", "a1a2a3", "d1"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestSniff(t *testing.T) {
	for _, tt := range []struct {
		head string
		want Format
	}{
		{"", FormatUnknown},
		{"  []\n", FormatNAT},
		{"\ufeff[\n  {\n    \"request_number\": 0,\n", FormatNAT},
		{`{"intermediate_steps": [`, FormatNAT},
		{`{"x": {"run_id": 1}, "span_id"`, FormatUnknown}, // cut off before the colon
		{`{"x": {"run_id": 1}, "span_id": "`, FormatSpans},
		{`[{"run_id": "r"}]`, FormatUnknown},
		{`{"schema":"stator.request.trace.v1"}`, FormatUnknown},
		{`{"version": "1.0", "root": {"name": "root"}}`, FormatUnknown},
		{"UUID,event_type,event_timestamp\r\n", FormatNATCSV},
		{"timestamp;type\n", FormatUnknown},
		{`"event_type`, FormatUnknown},
	} {
		if got := Sniff([]byte(tt.head)); got != tt.want {
			t.Errorf("Sniff(%q) = %q, want %q", tt.head, got, tt.want)
		}
	}
}
