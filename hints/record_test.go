package hints

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/stator-ai/stator/trie"
)

// spans reads what was recorded.
func spans(t *testing.T, text string) []trie.Span {
	t.Helper()
	var out []trie.Span
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		var span trie.Span
		if err := json.Unmarshal(s.Bytes(), &span); err != nil {
			t.Fatalf("%s: %v", s.Text(), err)
		}
		out = append(out, span)
	}
	return out
}

// answers is a base transport that gives the same answer to all.
func answers(status int, contentType, body string) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		io.Copy(io.Discard, req.Body)
		req.Body.Close()
		h := http.Header{"Content-Type": {contentType}}
		return &http.Response{StatusCode: status, Header: h, ContentLength: -1, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
	})
}

const (
	sse      = "text/event-stream"
	jsonType = "application/json"
)

func TestRecordedUsage(t *testing.T) {
	const delta = `data: {"choices":[{"index":0,"delta":{"content":"a"}}]}` + "\n\n"
	for _, c := range []struct {
		name                       string
		contentType, body          string
		prompt, completion, cached any
	}{
		{"chat", jsonType, `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":8}}}`, 10, 3, 8},
		{"chat without details", jsonType, `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":3}}`, 10, 3, nil},
		{"stream", sse, delta + delta + `data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5}}` + "\n\ndata: [DONE]\n\n", 10, 5, nil},
		{"stream without usage", sse, delta + delta + delta + "data: [DONE]\n\n", nil, 3, nil},
		{"responses", jsonType, `{"usage":{"input_tokens":10,"output_tokens":3,"input_tokens_details":{"cached_tokens":0}}}`, 10, 3, 0},
		{"responses stream", sse, "event: response.completed\ndata: {\"response\":{\"usage\":{\"input_tokens\":10,\"output_tokens\":3}}}\n\n", 10, 3, nil},
		{"messages", jsonType, `{"usage":{"input_tokens":10,"cache_read_input_tokens":90,"cache_creation_input_tokens":5,"output_tokens":3}}`, 105, 3, 90},
		{"messages stream", sse, "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\n\n" +
			"event: message_delta\ndata: {\"usage\":{\"output_tokens\":7}}\n\nevent: message_stop\ndata: {}\n\n", 10, 7, nil},
		{"not JSON", jsonType, `{"usage":`, nil, nil, nil},
		{"nonsense", jsonType, `{"usage":{"prompt_tokens":-1,"completion_tokens":"x"}}`, nil, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			tr := NewTransport(answers(200, c.contentType, c.body), quiet, WithRecording(NewRecorder(&out)))
			req, _ := http.NewRequestWithContext(WithRun(t.Context(), "r"), http.MethodPost, chatURL, strings.NewReader(`{"model":"m"}`))
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			// One byte at a time: nothing may depend on where reads end.
			var got strings.Builder
			for b := make([]byte, 1); ; {
				n, err := resp.Body.Read(b)
				got.Write(b[:n])
				if err != nil {
					break
				}
			}
			resp.Body.Close()
			if got.String() != c.body {
				t.Errorf("the answer was changed to %q", got.String())
			}
			s := spans(t, out.String())
			if len(s) != 1 {
				t.Fatalf("recorded %d spans:\n%s", len(s), out.String())
			}
			show := func(p *int) any {
				if p == nil {
					return nil
				}
				return *p
			}
			if p, o, k := show(s[0].PromptTokens), show(s[0].CompletionTokens), show(s[0].CachedTokens); p != c.prompt || o != c.completion || k != c.cached {
				t.Errorf("prompt %v, completion %v, cached %v; want %v, %v, %v", p, o, k, c.prompt, c.completion, c.cached)
			}
			if s[0].Status != "ok" || s[0].Name != "m" || s[0].PrefixID != "r-d0" || s[0].RunID != "r" || s[0].TTFTMS == nil || s[0].End.Before(s[0].Start) {
				t.Errorf("%+v", s[0])
			}
		})
	}
}

func TestRecordedEnds(t *testing.T) {
	chat := `{"usage":{"completion_tokens":3}}`
	read := func(n int) func(*http.Response) {
		return func(r *http.Response) { io.ReadFull(r.Body, make([]byte, n)); r.Body.Close(); r.Body.Close() }
	}
	for _, c := range []struct {
		name string
		base http.RoundTripper
		use  func(*http.Response)
		want string
	}{
		{"left after the end", answers(200, jsonType, chat), read(len(chat)), "ok"},
		{"left in the middle", answers(200, jsonType, chat), read(5), "cancelled"},
		{"left unread", answers(200, jsonType, chat), read(0), "cancelled"},
		{"stream left at its end", answers(200, sse, "data: [DONE]\n\n more"), read(14), "ok"},
		{"stream left before", answers(200, sse, "data: {}\n\ndata: [DONE]\n\n"), read(10), "cancelled"},
		{"stream broken after its end", roundTripper(func(*http.Request) (*http.Response, error) {
			body := io.MultiReader(strings.NewReader("data: [DONE]\n\n"), broken{})
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {sse}}, ContentLength: -1, Body: io.NopCloser(body)}, nil
		}), func(r *http.Response) { io.ReadAll(r.Body); r.Body.Close() }, "ok"},
		{"refused", answers(500, jsonType, `{"error":{}}`), func(r *http.Response) { io.Copy(io.Discard, r.Body); r.Body.Close() }, "error"},
		{"unreachable", roundTripper(func(*http.Request) (*http.Response, error) { return nil, errBroken }), nil, "error"},
		{"cancelled", roundTripper(func(*http.Request) (*http.Response, error) { return nil, fmt.Errorf("post: %w", context.Canceled) }), nil, "cancelled"},
		{"broken", roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{}, ContentLength: -1, Body: io.NopCloser(broken{})}, nil
		}), func(r *http.Response) { io.ReadAll(r.Body); r.Body.Close() }, "error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			tr := NewTransport(c.base, quiet)
			ctx := WithRecorder(WithRun(t.Context(), "r"), NewRecorder(&out))
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, chatURL, strings.NewReader(`{}`))
			resp, err := tr.RoundTrip(req)
			if err == nil {
				c.use(resp)
			}
			s := spans(t, out.String())
			if len(s) != 1 || s[0].Status != c.want {
				t.Errorf("recorded %s, want one %s", out.String(), c.want)
			}
		})
	}
}

// Where a call was sent on to, or turned into something else, there is no answer.
func TestNothingRecorded(t *testing.T) {
	for _, status := range []int{101, 307} {
		var out strings.Builder
		body := io.NopCloser(strings.NewReader(""))
		base := roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: body}, nil
		})
		tr := NewTransport(base, quiet, WithRecording(NewRecorder(&out)))
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, chatURL, strings.NewReader(`{}`))
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if out.Len() > 0 || resp.Body != body {
			t.Errorf("%d: recorded %s", status, out.String())
		}
	}
}

// Calls that belong to no run are not one.
func TestRecordedWithoutRun(t *testing.T) {
	var out strings.Builder
	ctx := WithRecorder(t.Context(), NewRecorder(&out))
	tr := NewTransport(answers(200, jsonType, `{}`), quiet)
	f := EnterFunction(ctx, "f")
	for _, ctx := range []context.Context{ctx, ctx, f, EnterFunction(f, "g")} {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, chatURL, strings.NewReader(`{}`))
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	Leave(f)
	s := spans(t, out.String())
	if len(s) != 5 || s[0].RunID == s[1].RunID || s[1].RunID == s[2].RunID || s[2].RunID != s[3].RunID || s[3].RunID != s[4].RunID {
		t.Errorf("recorded\n%s", out.String())
	}
}

type panicky struct{}

func (panicky) Write([]byte) (int, error) { panic("no") }

// Whatever becomes of the recording, an answer can be closed.
func TestRecorderPanics(t *testing.T) {
	tr := NewTransport(answers(200, jsonType, `{}`), quiet, WithRecording(NewRecorder(panicky{})))
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, chatURL, strings.NewReader(`{}`))
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { recover() }()
		resp.Body.Close()
	}()
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
}

func TestRecordedCompressed(t *testing.T) {
	var out strings.Builder
	base := roundTripper(func(*http.Request) (*http.Response, error) {
		h := http.Header{"Content-Type": {jsonType}, "Content-Encoding": {"gzip"}}
		return &http.Response{StatusCode: 200, Header: h, ContentLength: -1, Body: io.NopCloser(strings.NewReader("\x1f\x8b"))}, nil
	})
	tr := NewTransport(base, quiet, WithRecording(NewRecorder(&out)))
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, chatURL, strings.NewReader(`{}`))
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	io.ReadAll(resp.Body)
	resp.Body.Close()
	if s := spans(t, out.String()); len(s) != 1 || s[0].CompletionTokens != nil || s[0].Status != "ok" {
		t.Errorf("recorded %s", out.String())
	}
}

func TestRecordedTree(t *testing.T) {
	var out strings.Builder
	ctx := WithRecorder(WithRun(t.Context(), "r"), NewRecorder(&out))
	tr := NewTransport(answers(200, jsonType, `{}`), quiet, WithRecording(NewRecorder(io.Discard)))
	agent := EnterFunction(ctx, "agent")
	tool := EnterTool(agent, "search")
	req, _ := http.NewRequestWithContext(tool, http.MethodPost, chatURL, strings.NewReader(`{"model":"m"}`))
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	Leave(tool)
	Leave(tool) // says nothing new
	Leave(agent)
	Leave(ctx)         // nothing was entered
	Leave(t.Context()) // nor is anything recorded

	got := spans(t, out.String())
	if len(got) != 3 {
		t.Fatalf("recorded\n%s", out.String())
	}
	id := got[2].SpanID // of the function
	want := []trie.Span{
		{RunID: "r", Kind: "llm", Name: "m", Path: []string{"agent"}, FunctionID: id, ParentSpanID: got[1].SpanID, PrefixID: "r-d1", Status: "ok"},
		{RunID: "r", Kind: "tool", Name: "search", Path: []string{"agent"}, FunctionID: id, ParentSpanID: id, Status: "ok"},
		{RunID: "r", Kind: "function", Name: "agent", Path: []string{"agent"}, FunctionID: id, Status: "ok"},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(trie.Span{}, "SpanID", "Start", "End", "TTFTMS")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

type fullDisk struct{ n int }

func (d *fullDisk) Write(p []byte) (int, error) {
	d.n++
	return 0, errBroken
}

func TestRecorderStopsAfterAnError(t *testing.T) {
	d := new(fullDisk)
	r := NewRecorder(d)
	for range 3 {
		if err := r.Record(new(trie.Span)); !errors.Is(err, errBroken) {
			t.Errorf("error %v", err)
		}
	}
	if d.n != 1 || !errors.Is(r.Err(), errBroken) {
		t.Errorf("%d writes, %v", d.n, r.Err())
	}
}
