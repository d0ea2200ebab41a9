package trace

import (
	"bytes"
	"compress/gzip"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/trie"
)

func TestSplitPrefix(t *testing.T) {
	for _, tt := range []struct{ id, run, depth string }{
		{"run42-d1", "run42", "d1"},
		{"run42-d1/research", "run42", "d1"},
		{"run42-d12/a/b-d3", "run42", "d12"},
		{"run-d2x-d0", "run-d2x", "d0"},
		{"5f0c-d123-4e-d7", "5f0c-d123-4e", "d7"},
		{"run42", "run42", "d0"},
		{"run42-d", "run42-d", "d0"},
		{"run42-d1x", "run42-d1x", "d0"},
		{"-d3", "-d3", "d0"},
	} {
		if run, depth := splitPrefix(tt.id); run != tt.run || depth != tt.depth {
			t.Errorf("%s: run %q, depth %q; want %q, %q", tt.id, run, depth, tt.run, tt.depth)
		}
	}
}

func TestRowSpan(t *testing.T) {
	ptr := func(n int) *int { return &n }
	prefix := func(id string) *Hints { return &Hints{PrefixID: &id} }
	row := func(change func(*Row)) Row {
		r := Row{
			RequestID: "q", Model: "m", ArrivalUS: 1_767_323_045_000_001, InputTokens: 40, OutputTokens: ptr(9),
			TTFTMS: MS(250 * time.Millisecond), TotalTimeMS: MS(1500 * time.Millisecond), CachedTokens: ptr(32), Outcome: OutcomeCompleted,
		}
		change(&r)
		return r
	}
	start := time.UnixMicro(1_767_323_045_000_001).UTC()
	ttft := 250.0
	span := func(run, path, function, prefix string) trie.Span {
		return trie.Span{
			RunID: run, SpanID: "q", Kind: trie.KindLLM, Name: "m", Path: []string{path}, FunctionID: function, PrefixID: prefix,
			Start: start, End: start.Add(1500 * time.Millisecond),
			PromptTokens: ptr(40), CompletionTokens: ptr(9), CachedTokens: ptr(32), TTFTMS: &ttft, Status: "ok",
		}
	}
	unknown := span("s", "d0", "s", "")
	unknown.CompletionTokens = nil
	several := span("s", "d0", "s", "")
	several.CompletionTokens, several.PromptTokens = ptr(3), ptr(41)
	for _, tt := range []struct {
		name string
		row  Row
		want trie.Span
		why  notSpan
	}{
		{"prefix", row(func(r *Row) { r.Hints = prefix("run42-d1/research"); r.SessionID = "s" }), span("run42", "d1", "run42-d1/research", "run42-d1/research"), ""},
		{"session", row(func(r *Row) { r.SessionID = "s"; r.Hints = &Hints{} }), span("s", "d0", "s", ""), ""},
		{"empty prefix", row(func(r *Row) { r.SessionID = "s"; r.Hints = prefix("") }), span("s", "d0", "s", ""), ""},
		{"key", row(func(r *Row) { r.SessionID = "s"; r.Key = "alice" }), span("alice:s", "d0", "s", ""), ""},
		{"several answers", row(func(r *Row) { r.SessionID = "s"; r.Choices = 3; r.EngineInputTokens = ptr(41) }), several, ""},
		{"length not known", row(func(r *Row) { r.SessionID = "s"; r.OutputTokens = nil }), unknown, ""},
		{"neither", row(func(r *Row) { r.Hints = &Hints{} }), trie.Span{}, withoutRun},
		{"cancelled", row(func(r *Row) { r.SessionID = "s"; r.Outcome = OutcomeCancelled }), trie.Span{}, notCompleted},
		{"no end", row(func(r *Row) { r.SessionID = "s"; r.TotalTimeMS = nil }), trie.Span{}, withoutEnd},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := tt.row.Span()
			if diff := cmp.Diff(tt.want, got); diff != "" || ok != (tt.why == "") {
				t.Errorf("%v, -want +got:\n%s", ok, diff)
			}
			if _, why := tt.row.span(); why != tt.why {
				t.Errorf("got %q, want %q", why, tt.why)
			}
		})
	}
}

// TestReadSpansRows: what is read of a row makes the span that the row itself makes.
func TestReadSpansRows(t *testing.T) {
	id, output, cached := "run42-d1", 7, 16
	row := Row{
		RequestID: "q", Model: "m", Key: "alice", ArrivalUS: 1_767_323_045_000_001, Hints: &Hints{PrefixID: &id}, InputTokens: 40, Choices: 2,
		OutputTokens: &output, CachedTokens: &cached, TTFTMS: MS(250 * time.Millisecond), TotalTimeMS: MS(1500 * time.Millisecond), Outcome: OutcomeCompleted,
	}
	want, _ := row.Span()
	line, err := row.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	var in bytes.Buffer
	z := gzip.NewWriter(&in)
	z.Write(line)
	z.Write([]byte(`{"schema":"stator.request.trace.v1","outcome":"refused","arrival_us":"?"}` + "\n\n"))
	z.Write([]byte(`{"schema":"stator.request.trace.v1","outcome":"completed","arrival_us":1,"total_time_ms":1}` + "\n"))
	z.Write([]byte(`{"schema":"stator.request.trace.v1","outcome":"completed","arrival_us":1,"session_id":"s"}` + "\n"))
	z.Write(line[:50]) // cut off, and another file after it
	z.Write(line)
	z.Write(line[:50])
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	var got []trie.Span
	n, err := ReadSpans(&in, func(s trie.Span) error { got = append(got, s); return nil })
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]trie.Span{want, want}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(SpanRows{Spans: 2, NotCompleted: 1, WithoutRun: 1, WithoutEnd: 1, CutOff: 2}, n); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestReadSpansRefuses(t *testing.T) {
	const row = `{"schema":"stator.request.trace.v1","outcome":"completed","session_id":"s",`
	for _, tt := range []struct{ in, want string }{
		{`{"timestamp":1,"input_length":2,"output_length":3,"hash_ids":[1]}`, "line 1: expected rows of stator serve, got Mooncake's format, which does not say which requests make a run"},
		{`{"event":{}}`, "line 1: expected rows of stator serve, got those of dynamo, from which runs are not read"},
		{`{"schema":"x"}`, `line 1: schema: expected stator.request.trace.v1 or dynamo.request.trace.v1, got "x"`},
		{row + `"arrival_us":-1}`, "line 1: arrival_us: expected a whole number, the time since 1970, got -1"},
		{row + `"arrival_us":1,"total_time_ms":"1"}`, `line 1: total_time_ms: expected a number of milliseconds that is not negative, got "1"`},
		{row + `"arrival_us":1,"output_tokens":1.5}`, "line 1: output_tokens: expected a whole number from 0 to 2147483647, got 1.5"},
		{row + `"hints":{"prefix_id":5}}`, "line 1: hints.prefix_id: expected a string in UTF-8, got 5"},
		{row + `"hints":[]}`, "line 1: hints: expected an object, got an array"},
		{`{"schema":"stator.request.trace.v1","model":}` + "\n", "line 1: malformed JSON at byte 44: expected a value"},
	} {
		_, err := ReadSpans(strings.NewReader(tt.in), func(trie.Span) error { return nil })
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s\n got %v\nwant %s", tt.in, err, tt.want)
		}
	}
	enough := errors.New("enough")
	if _, err := ReadSpans(strings.NewReader(row+`"arrival_us":1,"total_time_ms":1}`), func(trie.Span) error { return enough }); err != enough {
		t.Errorf("got %v", err)
	}
}
