package openai

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Chunks as the engines send them.
func TestParseChunk(t *testing.T) {
	const id = "chatcmpl-1"
	for _, tc := range []struct {
		name, in string
		want     ChunkInfo
	}{
		{"vLLM role", `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1763164800,"model":"Qwen/Qwen3-8B","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning_content":null},"logprobs":null,"finish_reason":null}],"prompt_token_ids":[9707,11]}`,
			ChunkInfo{TokenIDs: -1, ID: Value(id)}},
		{"vLLM content", `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1763164800,"model":"Qwen/Qwen3-8B","choices":[{"index":0,"delta":{"content":"Hello"},"logprobs":null,"finish_reason":null,"token_ids":null}]}`,
			ChunkInfo{Deltas: 1, TokenIDs: -1, ID: Value(id)}},
		{"vLLM content with ids", `{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":" world!"},"logprobs":null,"finish_reason":null,"token_ids":[1879, 0]}]}`,
			ChunkInfo{Deltas: 1, TokenIDs: 2, ID: Value(id)}},
		{"vLLM ids without text yet", `{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":""},"finish_reason":null,"token_ids":[ 195 ]}]}`,
			ChunkInfo{TokenIDs: 1, ID: Value(id)}},
		{"vLLM last content and finish", `{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"."},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":[13]}],"usage":null}`,
			ChunkInfo{Deltas: 1, TokenIDs: 1, Finished: 1, ID: Value(id)}},
		{"vLLM usage", `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1763164800,"model":"m","choices":[],"usage":{"prompt_tokens":17,"total_tokens":27,"completion_tokens":10,"prompt_tokens_details":{"cached_tokens":16}}}`,
			ChunkInfo{NoChoices: true, TokenIDs: -1, ID: Value(id), Usage: &Usage{Prompt: 17, Completion: 10, Cached: 16, HasCached: true}}},
		{"vLLM usage, nothing said about the cache", `{"id":"chatcmpl-1","choices":[],"usage":{"prompt_tokens":17,"total_tokens":27,"completion_tokens":10,"prompt_tokens_details":null}}`,
			ChunkInfo{NoChoices: true, TokenIDs: -1, ID: Value(id), Usage: &Usage{Prompt: 17, Completion: 10}}},
		{"usage details without cached tokens", `{"choices":[],"usage":{"prompt_tokens":17,"completion_tokens":10,"prompt_tokens_details":{"audio_tokens":null,"cached_tokens":null},"completion_tokens_details":{"cached_tokens":5}}}`,
			ChunkInfo{NoChoices: true, TokenIDs: -1, Usage: &Usage{Prompt: 17, Completion: 10}}},
		{"vLLM continuous usage", `{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}],"usage":{"prompt_tokens":17,"total_tokens":18,"completion_tokens":1}}`,
			ChunkInfo{Deltas: 1, TokenIDs: -1, ID: Value(id), Usage: &Usage{Prompt: 17, Completion: 1}}},
		{"vLLM error", `{"error":{"message":"EngineCore died","type":"InternalServerError","param":null,"code":500}}`,
			ChunkInfo{NoChoices: true, TokenIDs: -1, Error: Value(`{"message":"EngineCore died","type":"InternalServerError","param":null,"code":500}`)}},
		{"vLLM reasoning", `{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"reasoning_content":"Let me"},"finish_reason":null}]}`,
			ChunkInfo{Deltas: 1, TokenIDs: -1, ID: Value(id)}},
		{"vLLM reasoning, new name", `{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"reasoning":"Let me"},"finish_reason":null}]}`,
			ChunkInfo{Deltas: 1, TokenIDs: -1, ID: Value(id)}},
		{"vLLM tool call", `{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"tool_calls":[{"id":"call_1","type":"function","index":0,"function":{"name":"f","arguments":""}}]},"finish_reason":null}]}`,
			ChunkInfo{Deltas: 1, TokenIDs: -1, ID: Value(id)}},
		{"vLLM completion", `{"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":" a","logprobs":null,"finish_reason":"length","stop_reason":null,"prompt_token_ids":null,"token_ids":[264]}],"usage":null}`,
			ChunkInfo{Deltas: 1, TokenIDs: 1, Finished: 1, ID: Value("cmpl-1")}},

		{"SGLang role", `{"id":"1f","object":"chat.completion.chunk","created":1763164800,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":null}`,
			ChunkInfo{TokenIDs: -1, ID: Value("1f")}},
		{"SGLang content", `{"id":"1f","choices":[{"index":0,"delta":{"role":null,"content":"Hi","reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":null}`,
			ChunkInfo{Deltas: 1, TokenIDs: -1, ID: Value("1f")}},
		{"SGLang finish", `{"id":"1f","choices":[{"index":0,"delta":{"role":null,"content":null,"reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":"stop","matched_stop":151645}],"usage":null}`,
			ChunkInfo{TokenIDs: -1, Finished: 1, ID: Value("1f")}},
		{"SGLang usage", `{"id":"1f","choices":[],"usage":{"prompt_tokens":9,"total_tokens":11,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0},"reasoning_tokens":0}}`,
			ChunkInfo{NoChoices: true, TokenIDs: -1, ID: Value("1f"), Usage: &Usage{Prompt: 9, Completion: 2, HasCached: true}}},
		{"SGLang error", `{"error":{"object":"error","message":"aborted","type":"BadRequestError","param":null,"code":400}}`,
			ChunkInfo{NoChoices: true, TokenIDs: -1, Error: Value(`{"object":"error","message":"aborted","type":"BadRequestError","param":null,"code":400}`)}},

		{"llama.cpp role", `{"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"created":1763164800,"id":"chatcmpl-1","model":"gpt","system_fingerprint":"b6000","object":"chat.completion.chunk"}`,
			ChunkInfo{TokenIDs: -1, ID: Value(id)}},
		{"llama.cpp content", `{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"Hi"}}],"created":1763164800,"id":"chatcmpl-1","object":"chat.completion.chunk"}`,
			ChunkInfo{Deltas: 1, TokenIDs: -1, ID: Value(id)}},
		{"llama.cpp last", `{"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"id":"chatcmpl-1","object":"chat.completion.chunk","timings":{"cache_n":4,"prompt_n":5,"predicted_ms":12.5}}`,
			ChunkInfo{TokenIDs: -1, Finished: 1, ID: Value(id)}},
		{"llama.cpp usage", `{"choices":[],"id":"chatcmpl-1","usage":{"completion_tokens":2,"prompt_tokens":9,"total_tokens":11,"prompt_tokens_details":{"cached_tokens":4}},"timings":{"cache_n":4}}`,
			ChunkInfo{NoChoices: true, TokenIDs: -1, ID: Value(id), Usage: &Usage{Prompt: 9, Completion: 2, Cached: 4, HasCached: true}}},
		{"llama.cpp error", `{"error":{"code":500,"message":"context shift is disabled","type":"server_error"}}`,
			ChunkInfo{NoChoices: true, TokenIDs: -1, Error: Value(`{"code":500,"message":"context shift is disabled","type":"server_error"}`)}},

		{"TensorRT-LLM first", `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1763164800,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":null,"reasoning_content":null,"tool_calls":[]},"logprobs":null,"finish_reason":null,"stop_reason":null,"token_ids":null}],"usage":null}`,
			ChunkInfo{TokenIDs: -1, ID: Value(id)}},
		{"TensorRT-LLM last", `{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"!","reasoning_content":null,"tool_calls":[ ]},"logprobs":null,"finish_reason":"stop","stop_reason":null}],"usage":null}`,
			ChunkInfo{Deltas: 1, TokenIDs: -1, Finished: 1, ID: Value(id)}},

		{"Dynamo worker's usage", `{"id":"chatcmpl-1","choices":[],"completion_usage":{"prompt_tokens":17,"completion_tokens":10,"prompt_tokens_details":{"cached_tokens":16}}}`,
			ChunkInfo{NoChoices: true, TokenIDs: -1, ID: Value(id), Usage: &Usage{Prompt: 17, Completion: 10, Cached: 16, HasCached: true}}},
		{"both usages", `{"completion_usage":{"prompt_tokens":17},"usage":{"prompt_tokens":9}}`,
			ChunkInfo{NoChoices: true, TokenIDs: -1, Usage: &Usage{Prompt: 17}}},
		{"both usages, the other way round", `{"usage":{"prompt_tokens":9},"completion_usage":{"prompt_tokens":17}}`,
			ChunkInfo{NoChoices: true, TokenIDs: -1, Usage: &Usage{Prompt: 17}}},
		{"both usages, one of no prompt", `{"usage":{"prompt_tokens":9},"completion_usage":{"prompt_tokens":0}}`,
			ChunkInfo{NoChoices: true, TokenIDs: -1, Usage: &Usage{Prompt: 9}}},
		{"one usage null", `{"usage":{"prompt_tokens":9},"completion_usage":null}`,
			ChunkInfo{NoChoices: true, TokenIDs: -1, Usage: &Usage{Prompt: 9}}},
		{"breakdown of cached blocks", `{"usage":{"prompt_tokens":9},"nvext":{"worker_id":{},"cache_hit_breakdown":{"device_blocks":5,"host_blocks":2,"disk_blocks":1,"x":[]}}}`,
			ChunkInfo{NoChoices: true, TokenIDs: -1, Usage: &Usage{Prompt: 9}, Tiers: &TierBlocks{5, 2, 1}}},
		{"breakdown of odd types", `{"nvext":{"cache_hit_breakdown":{"device_blocks":-1,"host_blocks":"2","disk_blocks":null}}}`,
			ChunkInfo{NoChoices: true, TokenIDs: -1, Tiers: &TierBlocks{}}},
		{"no breakdown", `{"nvext":{"cache_hit_breakdown":null,"device_blocks":1}}`, ChunkInfo{NoChoices: true, TokenIDs: -1}},

		{"two choices", `{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null,"token_ids":[1]},{"index":1,"delta":{"content":"b"},"finish_reason":"length","token_ids":[2,3]},{"index":2,"delta":{},"finish_reason":"stop"}]}`,
			ChunkInfo{Deltas: 2, TokenIDs: 3, Finished: 2, ID: Value(id)}},
		{"unary chat", `{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hi","tool_calls":[]},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3},"nvext":{"worker_id":{}}}` + "\n",
			ChunkInfo{Deltas: 1, TokenIDs: -1, Finished: 1, ID: Value(id), Usage: &Usage{Prompt: 1, Completion: 2}}},
		{"refusal", `{"choices":[{"delta":{"content":null,"refusal":"no"}}]}`, ChunkInfo{Deltas: 1, TokenIDs: -1}},
		{"function call", `{"choices":[{"delta":{"function_call":{"name":"f"}}}]}`, ChunkInfo{Deltas: 1, TokenIDs: -1}},
		{"content parts", `{"choices":[{"delta":{"content":[{"type":"text","text":"a"}]}}]}`, ChunkInfo{Deltas: 1, TokenIDs: -1}},
		{"no content parts", `{"choices":[{"delta":{"content":[ ]}}]}`, ChunkInfo{TokenIDs: -1}},
		{"empty finish reason", `{"choices":[{"delta":{},"finish_reason":""}]}`, ChunkInfo{TokenIDs: -1}},
		{"no ids", `{"choices":[{"delta":{},"token_ids":[]}]}`, ChunkInfo{TokenIDs: 0}},
		{"nulls", `{"id":null,"choices":null,"usage":null,"error":null,"nvext":null}`, ChunkInfo{NoChoices: true, TokenIDs: -1}},
		{"odd types", `{"id":5,"choices":[null,1,"x",[],{"delta":"x","message":[],"text":5,"finish_reason":{},"token_ids":{}}],"usage":[],"error":"boom","nvext":1}`,
			ChunkInfo{TokenIDs: -1, Error: Value(`"boom"`)}},
		{"choices as object", `{"choices":{"delta":{"content":"x"}}}`, ChunkInfo{TokenIDs: -1}},
		{"empty object", ` { } `, ChunkInfo{NoChoices: true, TokenIDs: -1}},
		{"space everywhere", " {\n \"id\" : \"a\" ,\n \"choices\" : [ { \"delta\" : { \"content\" : \"x\" } , \"finish_reason\" : \"stop\" , \"token_ids\" : [ 1 , 2 ] } ] ,\n \"usage\" : { \"prompt_tokens\" : 3 , \"prompt_tokens_details\" : { \"cached_tokens\" : 2 } } } ",
			ChunkInfo{Deltas: 1, TokenIDs: 2, Finished: 1, ID: Value("a"), Usage: &Usage{Prompt: 3, Cached: 2, HasCached: true}}},

		{"finish reason inside of content", `{"choices":[{"delta":{"content":"\"finish_reason\":\"stop\",\"usage\":{\"prompt_tokens\":1}"},"finish_reason":null}]}`,
			ChunkInfo{Deltas: 1, TokenIDs: -1}},
		{"usage inside of content", `{"choices":[{"delta":{"content":"}}],\"usage\":{"},"finish_reason":null}],"usage":null}`,
			ChunkInfo{Deltas: 1, TokenIDs: -1}},
		{"error inside of content", `{"choices":[{"delta":{"content":"{\"error\":{\"message\":\"x\"}}\\"},"finish_reason":null}]}`,
			ChunkInfo{Deltas: 1, TokenIDs: -1}},
		{"keys at the wrong level", `{"finish_reason":"stop","delta":{"content":"x"},"token_ids":[1],"choices":[{"usage":{"prompt_tokens":1},"error":{},"content":"x","delta":{"finish_reason":"stop","token_ids":[1],"text":"x"},"logprobs":{"finish_reason":"stop","content":[{"token":"x"}]}}],"timings":{"usage":{},"error":1}}`,
			ChunkInfo{TokenIDs: -1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if !json.Valid([]byte(tc.in)) {
				t.Fatal("the test's input is not JSON")
			}
			// What is left from the chunk before must go.
			info := ChunkInfo{NoChoices: true, Deltas: 9, TokenIDs: 9, Finished: 9, Usage: &Usage{}, Tiers: &TierBlocks{}, Error: Value("1"), ID: Value("1")}
			if err := ParseChunk([]byte(tc.in), &info); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, info); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseChunkRefuses(t *testing.T) {
	const good = `{"id":"a","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop","token_ids":[1,2]}],"usage":{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":1}},"error":null,"completion_usage":{"prompt_tokens":1},"nvext":{"cache_hit_breakdown":{"host_blocks":1},"x":1}}`
	var info ChunkInfo
	if err := ParseChunk([]byte(good), &info); err != nil {
		t.Fatal(err)
	}
	bad := []string{``, ` `, `[]`, `"x"`, `[DONE]`, good + "}", good + good, `{"a":1,}`, `{"choices":[{}{}]}`, `{"choices":[{"delta":{},}]}`,
		`{"choices":[{"delta":{"content":"x" "role":1}}]}`, `{"choices":[{"token_ids":[1 2]}]}`, `{"usage":{"prompt_tokens":01}}`,
		`{"error":{"a":` + strings.Repeat("[", 600) + `}}`}
	for i := range len(good) {
		bad = append(bad, good[:i])
	}
	for _, in := range bad {
		err := ParseChunk([]byte(in), &info)
		var syn *SyntaxError
		if !errors.As(err, &syn) && !errors.Is(err, ErrTooDeep) {
			t.Errorf("%s: err = %v", in, err)
		}
	}
}

func TestParseChunkDoesNotAllocate(t *testing.T) {
	chunks := [][]byte{
		[]byte(benchChunk),
		[]byte(`{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null,"token_ids":[1,2,3]}],"nvext":{"a":1},"usage":null}`),
		[]byte(`{"error":{"message":"x"}}`),
	}
	var info ChunkInfo
	if n := testing.AllocsPerRun(100, func() {
		for _, c := range chunks {
			if err := ParseChunk(c, &info); err != nil {
				t.Fatal(err)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// chunkModel is what encoding/json makes of a chunk.
func chunkModel(data []byte) (info ChunkInfo, ok bool) {
	info.TokenIDs = -1
	var top map[string]json.RawMessage
	if json.Unmarshal(data, &top) != nil || top == nil {
		return info, false
	}
	some := func(raw json.RawMessage) bool {
		var v any
		_ = json.Unmarshal(raw, &v)
		switch v := v.(type) {
		case string:
			return v != ""
		case []any:
			return len(v) > 0
		case map[string]any:
			return len(v) > 0
		}
		return false
	}
	present := func(raw json.RawMessage) Value {
		if string(raw) == "null" {
			return nil
		}
		return Value(raw)
	}
	info.Error = present(top["error"])
	var choices []json.RawMessage
	_ = json.Unmarshal(top["choices"], &choices)
	info.NoChoices = len(top["choices"]) == 0 || string(top["choices"]) == "null" || choices != nil && len(choices) == 0
	for _, raw := range choices {
		var c map[string]json.RawMessage
		if json.Unmarshal(raw, &c) != nil {
			continue
		}
		content := some(c["text"])
		for _, key := range []string{"delta", "message"} {
			var d map[string]json.RawMessage
			_ = json.Unmarshal(c[key], &d)
			for _, key := range []string{"content", "reasoning_content", "reasoning", "refusal", "tool_calls", "function_call"} {
				content = content || some(d[key])
			}
		}
		if content {
			info.Deltas++
		}
		if some(c["finish_reason"]) {
			info.Finished++
		}
		var ids []json.RawMessage
		if json.Unmarshal(c["token_ids"], &ids) == nil && ids != nil {
			info.TokenIDs = max(info.TokenIDs, 0) + len(ids)
		}
	}
	return info, true
}

// plain reports whether no object in data has an escaped or repeated key, which
// the model and ParseChunk, who looks at keys as they are written, see
// differently.
func plain(data []byte) bool {
	if strings.Contains(string(data), `\`) {
		return false
	}
	d := json.NewDecoder(strings.NewReader(string(data)))
	var walk func() bool
	walk = func() bool {
		tok, err := d.Token()
		if err != nil {
			return false
		}
		switch tok {
		case json.Delim('['):
			for d.More() {
				if !walk() {
					return false
				}
			}
			_, err = d.Token()
		case json.Delim('{'):
			keys := map[any]bool{}
			for d.More() {
				key, err := d.Token()
				if err != nil || keys[key] {
					return false
				}
				keys[key] = true
				if !walk() {
					return false
				}
			}
			_, err = d.Token()
		}
		return err == nil
	}
	return walk()
}

func FuzzParseChunk(f *testing.F) {
	for _, s := range []string{
		benchChunk,
		`{"id":"a","choices":[{"text":"x","finish_reason":"stop","token_ids":[1,2]},{"delta":{"tool_calls":[{}]}}],"usage":{"prompt_tokens":1,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3}}}`,
		`{"error":{"message":"x"},"nvext":{"a":[]}}`,
		`{"completion_usage":{"prompt_tokens":1},"nvext":{"cache_hit_breakdown":{"device_blocks":1,"host_blocks":{}}}}`,
		`{"choices":[{"message":{"reasoning":"a","refusal":null}}]}`,
		`{"choices":[{"delta":{"content":"\"finish_reason\":\"stop\""}}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var got ChunkInfo
		err := ParseChunk(in, &got)
		want, ok := chunkModel(in)
		if ok && err != nil {
			if errors.Is(err, ErrTooDeep) {
				return
			}
			t.Fatalf("refused: %v", err)
		}
		if !ok || !plain(in) {
			return
		}
		got.Usage, got.Tiers, got.ID = nil, nil, nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-model +got):\n%s", diff)
		}
	})
}

// TestTimings: what llama.cpp says of its cache counts where its usage does not say.
func TestTimings(t *testing.T) {
	for body, want := range map[string]Usage{
		`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1},"timings":{"prompt_n":2,"cache_n":7}}`:                                        {9, 1, 7, true},
		`{"timings":{"cache_n":7},"usage":{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":3}}}`:                      {9, 1, 3, true},
		`{"timings":{"cache_n":"7"},"usage":{"prompt_tokens":9,"completion_tokens":1}}`:                                                                {9, 1, 0, false},
		`{"timings":null,"usage":{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":4,"other":[1]},"completion_x":{}}}`: {9, 1, 4, true},
	} {
		var info ChunkInfo
		if err := ParseChunk([]byte(body), &info); err != nil || info.Usage == nil || *info.Usage != want {
			t.Errorf("%s: %+v, %v, want %+v", body, info.Usage, err, want)
		}
	}
}
