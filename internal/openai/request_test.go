package openai

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const minimalChat = `"model":"m","messages":[{"role":"user","content":"hi"}]`

func TestParseRequest(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		endpoint Endpoint
		want     Request
	}{
		{"chat", `{` + minimalChat + `}`, Chat,
			Request{Model: "m", N: 1, Messages: Value(`[{"role":"user","content":"hi"}]`)}},
		{"chat with everything", `{"n":3,"nvext":{"agent_hints":{}},"max_tokens":5,"max_completion_tokens":7,"stream_options":{"include_usage":true},"stream":true,` + minimalChat + `,"unknown":{"a":[1]}}`, Chat,
			Request{Model: "m", N: 3, Stream: true, IncludeUsage: true, MaxTokens: 7,
				Messages: Value(`[{"role":"user","content":"hi"}]`), NvExt: Value(`{"agent_hints":{}}`)}},
		{"chat, nulls", `{` + minimalChat + `,"n":null,"nvext":null,"max_tokens":null,"max_completion_tokens":null,"stream":null,"stream_options":null}`, Chat,
			Request{Model: "m", N: 1, Messages: Value(`[{"role":"user","content":"hi"}]`)}},
		{"chat, no usage", `{` + minimalChat + `,"stream":true,"stream_options":{"include_usage":false}}`, Chat,
			Request{Model: "m", N: 1, Stream: true, Messages: Value(`[{"role":"user","content":"hi"}]`)}},
		{"chat, empty stream options", `{` + minimalChat + `,"stream":true,"stream_options":{}}`, Chat,
			Request{Model: "m", N: 1, Stream: true, Messages: Value(`[{"role":"user","content":"hi"}]`)}},
		{"last of duplicates", `{"model":"x",` + minimalChat + `,"max_tokens":1,"max_tokens":2,"stream":true,"stream":false}`, Chat,
			Request{Model: "m", N: 1, MaxTokens: 2, Messages: Value(`[{"role":"user","content":"hi"}]`)}},
		{"escaped keys and model", `{"\u006dodel":"qwen\/3\u0020b","messages":[{}],"\u006e":2}`, Chat,
			Request{Model: "qwen/3 b", N: 2, Messages: Value(`[{}]`)}},
		{"no limit", `{` + minimalChat + `,"max_tokens":-1}`, Chat,
			Request{Model: "m", N: 1, Messages: Value(`[{"role":"user","content":"hi"}]`)}},
		{"prompt string", `{"model":"m","prompt":"hi","max_tokens":16}`, Completions,
			Request{Endpoint: Completions, Model: "m", N: 1, MaxTokens: 16, Prompt: Value(`"hi"`)}},
		{"prompt strings", `{"model":"m","prompt":["a","b"]}`, Completions,
			Request{Endpoint: Completions, Model: "m", N: 1, Prompt: Value(`["a","b"]`)}},
		{"prompt ids", `{"model":"m","prompt":[0,1,4294967295]}`, Completions,
			Request{Endpoint: Completions, Model: "m", N: 1, Prompt: Value(`[0,1,4294967295]`)}},
		{"prompts of ids", `{"model":"m","prompt":[[1],[2,3]]}`, Completions,
			Request{Endpoint: Completions, Model: "m", N: 1, Prompt: Value(`[[1],[2,3]]`)}},
		{"embeds instead of a prompt", `{"model":"m","prompt":null,"prompt_embeds":"AAAA"}`, Completions,
			Request{Endpoint: Completions, Model: "m", N: 1}},
		{"completions have no max_completion_tokens", `{"model":"m","prompt":"hi","max_tokens":4,"max_completion_tokens":"x"}`, Completions,
			Request{Endpoint: Completions, Model: "m", N: 1, MaxTokens: 4, Prompt: Value(`"hi"`)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ParseRequest(tc.endpoint, []byte(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, *got, cmpopts.IgnoreFields(Request{}, "Object")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if string(got.Raw()) != tc.in {
				t.Errorf("Raw() = %s", got.Raw())
			}
		})
	}
}

func TestParseRequestErrors(t *testing.T) {
	const (
		strs = "a string, an array of strings, an array of token ids, or an array of arrays of token ids"
		id   = "a token id (an unsigned 32-bit integer)"
	)
	for _, tc := range []struct {
		name, in string
		endpoint Endpoint
		code     Code
		param    string
		message  string
	}{
		{"empty body", ``, Chat, CodeInvalidJSON, "", "the request body must be a JSON object"},
		{"array", `[]`, Chat, CodeInvalidJSON, "", "the request body must be a JSON object"},
		{"byte order mark", "\ufeff{}", Chat, CodeInvalidJSON, "", "the request body must be a JSON object"},
		{"cut short", `{"model":"m","messages":[{"role":`, Chat, CodeInvalidJSON, "", "malformed JSON at byte 33: expected a value"},
		{"trailing garbage", `{` + minimalChat + `}}`, Chat, CodeInvalidJSON, "", "malformed JSON at byte 57: expected end of input"},
		{"too deep", `{"a":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`, Chat, CodeInvalidJSON, "", "JSON is nested deeper than 512 levels"},

		{"no model", `{"messages":[{}]}`, Chat, CodeMissing, "model", "model: missing, expected a non-empty string"},
		{"model null", `{"model":null,"messages":[{}]}`, Chat, CodeMissing, "model", "model: missing, expected a non-empty string"},
		{"model blank", `{"model":" \t","messages":[{}]}`, Chat, CodeInvalidValue, "model", "model: expected a non-empty string"},
		{"model number", `{"model":5,"messages":[{}]}`, Chat, CodeInvalidType, "model", "model: expected a string, got a number (5)"},
		{"model with a bad escape", `{"model":"\x","messages":[{}]}`, Chat, CodeInvalidJSON, "model", "model: expected a string with valid escapes"},

		{"no messages", `{"model":"m"}`, Chat, CodeMissing, "messages", "messages: missing, expected an array with at least one message"},
		{"messages null", `{"model":"m","messages":null}`, Chat, CodeMissing, "messages", "messages: missing, expected an array with at least one message"},
		{"messages string", `{"model":"m","messages":"hi"}`, Chat, CodeInvalidType, "messages", "messages: expected an array, got a string"},
		{"messages empty", `{"model":"m","messages":[ ]}`, Chat, CodeInvalidValue, "messages", "The 'messages' field cannot be empty. At least one message is required."},

		{"no prompt", `{"model":"m"}`, Completions, CodeMissing, "prompt", "prompt: missing, expected " + strs},
		{"prompt null", `{"model":"m","prompt":null,"prompt_embeds":null}`, Completions, CodeMissing, "prompt", "prompt: missing, expected " + strs},
		{"prompt object", `{"model":"m","prompt":{}}`, Completions, CodeInvalidType, "prompt", "prompt: expected " + strs + ", got an object"},
		{"prompt number", `{"model":"m","prompt":12}`, Completions, CodeInvalidType, "prompt", "prompt: expected " + strs + ", got a number (12)"},
		{"prompt empty array", `{"model":"m","prompt":[]}`, Completions, CodeInvalidValue, "prompt", "prompt: expected at least one element, got an empty array"},
		{"prompt of booleans", `{"model":"m","prompt":[true]}`, Completions, CodeInvalidType, "prompt[0]", "prompt[0]: expected a string, a token id or an array of token ids, got a boolean (true)"},
		{"prompt mixed", `{"model":"m","prompt":["a",1]}`, Completions, CodeInvalidType, "prompt[1]", "prompt[1]: expected the type of the elements before it, got a number (1)"},
		{"prompt with null", `{"model":"m","prompt":[1,null]}`, Completions, CodeInvalidType, "prompt[1]", "prompt[1]: expected a string, a token id or an array of token ids, got null"},
		{"negative id", `{"model":"m","prompt":[1,-1]}`, Completions, CodeInvalidType, "prompt[1]", "prompt[1]: expected " + id + ", got a number (-1)"},
		{"fractional id", `{"model":"m","prompt":[1.5]}`, Completions, CodeInvalidType, "prompt[0]", "prompt[0]: expected " + id + ", got a number (1.5)"},
		{"large id", `{"model":"m","prompt":[4294967296]}`, Completions, CodeInvalidType, "prompt[0]", "prompt[0]: expected " + id + ", got a number (4294967296)"},
		{"inner empty", `{"model":"m","prompt":[[1],[]]}`, Completions, CodeInvalidValue, "prompt[1]", "prompt[1]: expected at least one token id"},
		{"inner string", `{"model":"m","prompt":[[1,"a"]]}`, Completions, CodeInvalidType, "prompt[0][1]", "prompt[0][1]: expected " + id + ", got a string"},
		{"inner array", `{"model":"m","prompt":[[1],[[1]]]}`, Completions, CodeInvalidType, "prompt[1][0]", "prompt[1][0]: expected " + id + ", got an array"},

		{"stream string", `{` + minimalChat + `,"stream":"yes"}`, Chat, CodeInvalidType, "stream", "stream: expected a boolean, got a string"},
		{"stream number", `{` + minimalChat + `,"stream":1}`, Chat, CodeInvalidType, "stream", "stream: expected a boolean, got a number (1)"},
		{"stream_options without stream", `{` + minimalChat + `,"stream_options":{"include_usage":true}}`, Chat, CodeInvalidValue, "stream_options", "The 'stream_options' field is only allowed when 'stream' is set to true."},
		{"stream_options array", `{` + minimalChat + `,"stream":true,"stream_options":[]}`, Chat, CodeInvalidType, "stream_options", "stream_options: expected an object, got an array"},
		{"include_usage string", `{` + minimalChat + `,"stream":true,"stream_options":{"include_usage":"x"}}`, Chat, CodeInvalidType, "stream_options.include_usage", "stream_options.include_usage: expected a boolean, got a string"},
		{"max_tokens negative", `{` + minimalChat + `,"max_tokens":-2}`, Chat, CodeInvalidType, "max_tokens", "max_tokens: expected a non-negative integer, got a number (-2)"},
		{"max_tokens fraction", `{` + minimalChat + `,"max_tokens":1.5}`, Chat, CodeInvalidType, "max_tokens", "max_tokens: expected a non-negative integer, got a number (1.5)"},
		{"max_tokens string", `{"model":"m","prompt":"x","max_tokens":"5"}`, Completions, CodeInvalidType, "max_tokens", "max_tokens: expected a non-negative integer, got a string"},
		{"max_completion_tokens object", `{` + minimalChat + `,"max_completion_tokens":{}}`, Chat, CodeInvalidType, "max_completion_tokens", "max_completion_tokens: expected a non-negative integer, got an object"},
		{"n zero", `{` + minimalChat + `,"n":0}`, Chat, CodeInvalidValue, "n", "n: expected at least 1, got 0"},
		{"n negative", `{` + minimalChat + `,"n":-3}`, Chat, CodeInvalidType, "n", "n: expected a positive integer, got a number (-3)"},
		{"long number is not repeated", `{` + minimalChat + `,"n":` + strings.Repeat("9", 500) + `}`, Chat, CodeInvalidType, "n", "n: expected a positive integer, got a number"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ParseRequest(tc.endpoint, []byte(tc.in))
			var got *Error
			if !errors.As(err, &got) {
				t.Fatalf("got %v, want an *Error", err)
			}
			want := &Error{Code: tc.code, Param: tc.param, Message: tc.message}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Error{}, "Err")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got.HTTPStatus() != 400 {
				t.Errorf("status %d", got.HTTPStatus())
			}
			var syn *SyntaxError
			if strings.HasPrefix(tc.message, "malformed") && !errors.As(err, &syn) {
				t.Error("the syntax error is not in the chain")
			}
		})
	}
}

func TestBatch(t *testing.T) {
	for in, want := range map[string][]string{
		`"a"`:           {`"a"`},
		`["a"]`:         {`"a"`},
		`["a", "b"]`:    {`"a"`, `"b"`},
		`[1, 2]`:        {`[1, 2]`},
		`[[1], [2, 3]]`: {`[1]`, `[2, 3]`},
	} {
		r, err := ParseRequest(Completions, []byte(`{"model":"m","prompt":`+in+`}`))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range r.Batch() {
			got = append(got, string(p))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", in, diff)
		}
	}
	r, err := ParseRequest(Chat, []byte(`{`+minimalChat+`}`))
	if err != nil || len(r.Batch()) != 1 {
		t.Errorf("chat: %v, %v", r.Batch(), err)
	}
}

func TestEndpointPath(t *testing.T) {
	if Chat.Path() != "/v1/chat/completions" || Completions.Path() != "/v1/completions" {
		t.Errorf("%s %s", Chat.Path(), Completions.Path())
	}
}

// Anything that is not linear takes minutes.
func TestParseRequestIsLinear(t *testing.T) {
	repeat := func(s string) string { return strings.Repeat(s, 1<<20/len(s)) }
	for name, tc := range map[string]struct {
		endpoint Endpoint
		body     string
	}{
		"10 MB":          {Chat, `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("word ", 2<<20) + `"}]}`},
		"not ASCII":      {Chat, `{"model":"m","messages":[{"role":"user","content":"` + repeat("東京") + `"}]}`},
		"many messages":  {Chat, `{"model":"m","messages":[{}` + repeat(`,{"role":"user"}`) + `]}`},
		"many ids":       {Completions, `{"model":"m","prompt":[1` + repeat(",12345") + `]}`},
		"many keys":      {Chat, `{` + minimalChat + strings.Repeat(`,"k":0`, MaxMembers-2) + `}`},
		"many prompts":   {Completions, `{"model":"m","prompt":[[1]` + strings.Repeat(",[12,34]", MaxPrompts-1) + `]}`},
		"escapes":        {Chat, `{"model":"m","messages":[{"role":"user","content":"` + repeat(`\"`) + `"}]}`},
		"many backslash": {Chat, `{"model":"m","messages":[{"role":"user","content":"` + repeat(`\\`) + `"}]}`},
	} {
		start := time.Now()
		r, err := ParseRequest(tc.endpoint, []byte(tc.body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r.Batch()
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("%s: took %s", name, d)
		}
	}
}

func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		`{` + minimalChat + `}`,
		`{` + minimalChat + `,"stream":true,"stream_options":{"include_usage":true},"max_tokens":5,"n":2,"nvext":{}}`,
		`{` + minimalChat + `,"temperature":-3,"stop":["a"],"tools":[{"type":"function","function":{"name":"f"}}],"logit_bias":{"5":1}}`,
		`{"model":"m","prompt":[[1,2],[3]],"best_of":2,"suffix":"x","prompt_embeds":"AAAA"}`,
		`{"model":"m","prompt":["a","b"],"guided_grammar":"((","response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{}}}}`,
	} {
		f.Add(true, []byte(s))
		f.Add(false, []byte(s))
	}
	f.Fuzz(func(t *testing.T, chat bool, in []byte) {
		ep := Completions
		if chat {
			ep = Chat
		}
		r, err := ParseRequest(ep, in)
		if err == nil {
			if r.Model == "" || r.N == 0 || len(r.Batch()) == 0 || chat && r.Messages.Kind() != '[' {
				t.Fatalf("%+v", r)
			}
			err = r.Strict()
		}
		if err == nil {
			return
		}
		var e *Error
		if !errors.As(err, &e) || e.Message == "" {
			t.Fatalf("%#v is no *Error", err)
		}
		if s := e.HTTPStatus(); s != 400 && s != 501 {
			t.Fatalf("status %d", s)
		}
		if _, err := ParseObject(e.AppendJSON(nil, FormatOpenAI)); err != nil {
			t.Fatal(fmt.Errorf("error body: %w", err))
		}
	})
}

// TestParseRequestTooMany: a view takes memory per member and per prompt, so there
// is a limit to both.
func TestParseRequestTooMany(t *testing.T) {
	rows := []struct {
		endpoint   Endpoint
		body, want string
	}{
		{Chat, `{` + minimalChat + strings.Repeat(`,"":0`, MaxMembers-1) + `}`, "more than 4096 members"},
		{Completions, `{"model":"m","prompt":[""` + strings.Repeat(`,""`, MaxPrompts) + `]}`, "at most 4096 prompts"},
		{Completions, `{"model":"m","prompt":[[1]` + strings.Repeat(`,[1]`, MaxPrompts) + `]}`, "at most 4096 prompts"},
	}
	for _, row := range rows {
		_, err := ParseRequest(row.endpoint, []byte(row.body))
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%.40s…: got %v, want %q", row.body, err, row.want)
		}
	}
}

// TestParseRequestSaysWhatItRead: an error later in the body leaves the model
// known.
func TestParseRequestSaysWhatItRead(t *testing.T) {
	r, err := ParseRequest(Chat, []byte(`{"stream":true,"messages":[],"model":"m"}`))
	if err == nil || r == nil || r.Model != "m" {
		t.Errorf("got %+v, %v", r, err)
	}
	if r, err := ParseRequest(Chat, []byte(`{`)); err == nil || r != nil {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestCheckUTF8(t *testing.T) {
	rows := []struct{ content, want string }{
		{"plain, é, 東京, 😀", ""},
		{"\xff", "the request body is not valid UTF-8 (first bad byte at offset 37)"},
		{"é\xe6\x9d", "the request body is not valid UTF-8 (first bad byte at offset 39)"},
	}
	for _, row := range rows {
		r, err := ParseRequest(Chat, []byte(`{"model":"m","messages":[{"content":"`+row.content+`"}]}`))
		if err != nil {
			t.Fatalf("%q: %v", row.content, err)
		}
		got := ""
		if err := r.CheckUTF8(); err != nil {
			got = err.Error()
		}
		if got != row.want {
			t.Errorf("%q: got %q, want %q", row.content, got, row.want)
		}
	}
}
