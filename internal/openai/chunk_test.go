package openai

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const testID = "11111111-1111-4111-8111-111111111111"

func TestChatStreamBytes(t *testing.T) {
	base := Chunk{ID: "chatcmpl-" + testID, Model: "m", Created: 1700000000}
	with := func(edit func(*Chunk)) *Chunk {
		c := base
		edit(&c)
		return &c
	}
	chunks := []*Chunk{
		with(func(c *Chunk) { c.Choices = []Choice{{Text: []byte("Hi"), Role: true}} }),
		with(func(c *Chunk) {
			c.Choices = []Choice{{FinishReason: "stop"}}
			c.NVExt = []byte(`{"timing":{"request_received_ms":1700000000123,"ttft_ms":12.5,"total_time_ms":30.0}}`)
		}),
		with(func(c *Chunk) { c.Usage = &Usage{Prompt: 7, Completion: 1} }),
	}
	got := AppendAnnotation(nil, "request_id", []byte(`"`+testID+`"`))
	for _, c := range chunks {
		got = AppendData(got, AppendChatChunk(nil, c))
	}
	got = append(got, Done...)

	want := `event: request_id
: "11111111-1111-4111-8111-111111111111"

data: {"id":"chatcmpl-11111111-1111-4111-8111-111111111111","choices":[{"index":0,"delta":{"content":"Hi","role":"assistant"},"finish_reason":null,"logprobs":null}],"created":1700000000,"model":"m","service_tier":null,"system_fingerprint":null,"object":"chat.completion.chunk","usage":null}

data: {"id":"chatcmpl-11111111-1111-4111-8111-111111111111","choices":[{"index":0,"delta":{},"finish_reason":"stop","logprobs":null}],"created":1700000000,"model":"m","service_tier":null,"system_fingerprint":null,"object":"chat.completion.chunk","usage":null,"nvext":{"timing":{"request_received_ms":1700000000123,"ttft_ms":12.5,"total_time_ms":30.0}}}

data: {"id":"chatcmpl-11111111-1111-4111-8111-111111111111","choices":[],"created":1700000000,"model":"m","service_tier":null,"system_fingerprint":null,"object":"chat.completion.chunk","usage":{"prompt_tokens":7,"completion_tokens":1,"total_tokens":8}}

data: [DONE]

`
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(string(got), "\n")); diff != "" {
		t.Errorf("stream (-want +got):\n%s", diff)
	}
}

func TestChunkShapes(t *testing.T) {
	logprobs := []TokenLogprob{
		{Logprob: Logprob{[]byte("a"), -0.5}, Top: []Logprob{{[]byte("a"), -0.5}, {[]byte("\xc3"), -2}}, Offset: 4},
		{Logprob: Logprob{[]byte("\xa9"), math.NaN()}, Offset: 5},
	}
	for _, tc := range []struct {
		name   string
		append func([]byte, *Chunk) []byte
		chunk  Chunk
		want   string
	}{{
		name:   "chat chunk, role alone",
		append: AppendChatChunk,
		chunk:  Chunk{Choices: []Choice{{Index: 3, Role: true}}},
		want:   `{"id":"","choices":[{"index":3,"delta":{"role":"assistant"},"finish_reason":null,"logprobs":null}],"created":0,"model":"","service_tier":null,"system_fingerprint":null,"object":"chat.completion.chunk","usage":null}`,
	}, {
		name:   "chat chunk, empty content, ids",
		append: AppendChatChunk,
		chunk:  Chunk{Choices: []Choice{{Text: []byte{}, TokenIDs: []uint32{69, 78}}}, PromptTokenIDs: []uint32{1, 4294967295}},
		want:   `{"id":"","choices":[{"index":0,"delta":{"content":""},"finish_reason":null,"logprobs":null,"token_ids":[69,78]}],"created":0,"model":"","service_tier":null,"system_fingerprint":null,"object":"chat.completion.chunk","usage":null,"prompt_token_ids":[1,4294967295]}`,
	}, {
		name:   "chat chunk, stop reason and logprobs",
		append: AppendChatChunk,
		chunk:  Chunk{Choices: []Choice{{FinishReason: "stop", StopReason: "\nEND", Logprobs: logprobs}}},
		want:   `{"id":"","choices":[{"index":0,"delta":{},"finish_reason":"stop","stop_reason":"\nEND","logprobs":{"content":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[{"token":"a","logprob":-0.5,"bytes":[97]},{"token":"�","logprob":-2,"bytes":[195]}]},{"token":"�","logprob":null,"bytes":[169],"top_logprobs":[]}],"refusal":null}}],"created":0,"model":"","service_tier":null,"system_fingerprint":null,"object":"chat.completion.chunk","usage":null}`,
	}, {
		name:   "chat body",
		append: AppendChat,
		chunk: Chunk{
			ID: "chatcmpl-1", Model: "m", Created: 5,
			Choices: []Choice{{Text: []byte("Hi"), FinishReason: "stop"}, {Index: 1, FinishReason: "length", Logprobs: []TokenLogprob{}}},
			Usage:   &Usage{Prompt: 9, Completion: 3, Cached: 7, HasCached: true},
		},
		want: `{"id":"chatcmpl-1","choices":[{"index":0,"message":{"content":"Hi","role":"assistant","reasoning_content":null},"finish_reason":"stop","logprobs":null},{"index":1,"message":{"role":"assistant","reasoning_content":null},"finish_reason":"length","logprobs":{"content":[],"refusal":null}}],"created":5,"model":"m","service_tier":null,"system_fingerprint":null,"object":"chat.completion","usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,"prompt_tokens_details":{"audio_tokens":null,"cached_tokens":7}}}`,
	}, {
		name:   "completion chunk",
		append: AppendCompletion,
		chunk:  Chunk{ID: "cmpl-1", Model: "m", Choices: []Choice{{Index: 2}}},
		want:   `{"id":"cmpl-1","choices":[{"text":"","index":2}],"created":0,"model":"m","system_fingerprint":null,"object":"text_completion","usage":null}`,
	}, {
		name:   "completion body, all keys",
		append: AppendCompletion,
		chunk: Chunk{
			ID: "cmpl-1", Model: "m", NVExt: []byte(`{}`),
			Choices: []Choice{
				{Text: []byte("x"), FinishReason: "stop", StopReason: "y", Logprobs: logprobs, TokenIDs: []uint32{120}, PromptTokenIDs: []uint32{}},
				{Index: 1, Text: []byte("z"), Logprobs: logprobs[1:]},
			},
		},
		want: `{"id":"cmpl-1","choices":[{"text":"x","index":0,"logprobs":{"text_offset":[4,5],"token_logprobs":[-0.5,null],"tokens":["a","bytes:\\xa9"],"top_logprobs":[{"a":-0.5,"bytes:\\xc3":-2},null]},"finish_reason":"stop","stop_reason":"y","token_ids":[120],"prompt_token_ids":[]},{"text":"z","index":1,"logprobs":{"text_offset":[5],"token_logprobs":[null],"tokens":["bytes:\\xa9"],"top_logprobs":null}}],"created":0,"model":"m","system_fingerprint":null,"object":"text_completion","usage":null,"nvext":{}}`,
	}} {
		t.Run(tc.name, func(t *testing.T) {
			got := tc.append([]byte("before "), &tc.chunk)
			if diff := cmp.Diff("before "+tc.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !json.Valid(got[len("before "):]) {
				t.Errorf("not JSON: %s", got)
			}
		})
	}
}

func TestChunkAllocs(t *testing.T) {
	c := Chunk{
		ID: "chatcmpl-" + testID, Model: "stator-sim", Created: 1700000000,
		Choices: []Choice{{Text: []byte("é"), Role: true, TokenIDs: []uint32{195, 169}}},
		Usage:   &Usage{Prompt: 7, Completion: 1},
	}
	buf := make([]byte, 0, 1024)
	for name, build := range map[string]func([]byte, *Chunk) []byte{
		"AppendChatChunk": AppendChatChunk, "AppendChat": AppendChat, "AppendCompletion": AppendCompletion,
	} {
		if n := testing.AllocsPerRun(100, func() { build(buf, &c) }); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

// FuzzChunk checks that whatever the fields hold, the result is JSON that the
// standard library reads back to the same values.
func FuzzChunk(f *testing.F) {
	f.Add("chatcmpl-1", "m", []byte("Hi"), "stop", "END", []byte("a"), -0.5)
	f.Add("\x00\x1f\x7f", "\"\\/\u2028\u2029", []byte("\xff\xc3(\xed\xa0\x80"), "", "", []byte("\xa9"), math.Inf(-1))
	f.Fuzz(func(t *testing.T, id, model string, text []byte, finish, stop string, token []byte, logprob float64) {
		c := Chunk{
			ID: id, Model: model,
			Choices: []Choice{{
				Text: text, FinishReason: finish, StopReason: stop,
				Logprobs: []TokenLogprob{{Logprob: Logprob{token, logprob}, Top: []Logprob{{token, logprob}}}},
			}},
		}
		type choice struct {
			Text    string
			Delta   struct{ Content string }
			Message struct{ Content string }
			Finish  string `json:"finish_reason"`
			Stop    string `json:"stop_reason"`
		}
		type object struct {
			ID, Model string
			Choices   []choice
		}
		utf8 := func(s string) string { return string([]rune(s)) }
		want := object{ID: utf8(id), Model: utf8(model)}
		for name, build := range map[string]func([]byte, *Chunk) []byte{
			"chunk": AppendChatChunk, "chat": AppendChat, "completion": AppendCompletion,
		} {
			ch := choice{Finish: utf8(finish), Stop: utf8(stop)}
			switch name {
			case "chunk":
				ch.Delta.Content = utf8(string(text))
			case "chat":
				ch.Message.Content = utf8(string(text))
			default:
				ch.Text = utf8(string(text))
			}
			want.Choices = []choice{ch}
			b := build(nil, &c)
			var got object
			if err := json.Unmarshal(b, &got); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, b)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			if strings.ContainsAny(string(b), "\r\n") {
				t.Errorf("%s: line break in %q", name, b)
			}
		}
	})
}

func BenchmarkAppendChatChunk(b *testing.B) {
	c := Chunk{
		ID: "chatcmpl-" + testID, Model: "stator-sim", Created: 1700000000,
		Choices: []Choice{{Text: []byte("Hi")}},
	}
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendChatChunk(buf[:0], &c)
	}
}
