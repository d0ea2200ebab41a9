package simserver

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/simengine"
	"github.com/stator-ai/stator/internal/tokenize/qwen3"
)

func TestConfigErrors(t *testing.T) {
	for _, tc := range []struct {
		cfg  Config
		want string
	}{
		{Config{ContextLength: 1}, "simserver: context length: expected at least 2, got 1"},
		{Config{BlockSize: -1}, "simserver: block size: expected at least 1, got -1"},
		{Config{TotalBlocks: -1}, "simserver: total blocks: expected at least 1, got -1"},
		{Config{MaxBatchedTokens: -1}, "simserver: max batched tokens: expected at least 1, got -1"},
		{Config{Ranks: -1}, "simserver: ranks: expected at least 1, got -1"},
		{Config{TTFT: -time.Second}, "simserver: time to first token: expected no negative duration, got -1s"},
		{Config{ITL: -time.Second}, "simserver: inter-token latency: expected no negative duration, got -1s"},
		{Config{Vocabulary: "gpt2"}, `simserver: vocabulary: expected qwen3 or bytes, got "gpt2"`},
		{Config{Kind: "trtllm"}, `simserver: kind: expected vllm or sglang, got "trtllm"`},
		{Config{Adapters: []string{"a", "a"}}, `simserver: adapters[1]: expected a name of its own, got "a"`},
		{Config{Model: "m", Adapters: []string{"m"}}, `simserver: adapters[0]: expected a name of its own, got "m"`},
		{Config{Clock: new(Clock)}, "simserver: clock: expected an engine model with virtual time"},
		{Config{ITL: 1, Engine: &simengine.Config{}}, "simserver: time to first token, inter-token latency: expected none with an engine model, which has its own"},
		{Config{Engine: &simengine.Config{Blocks: 5}}, "simserver: engine: expected kind, blocks, block size, max batched tokens, chunked prefill size, max model length and seed in the server's configuration only"},
		{Config{Engine: &simengine.Config{Role: simengine.Decode}}, `simserver: engine: role: expected aggregated, got "decode"`},
		{Config{Engine: &simengine.Config{MaxSeqs: -1}}, "simserver: simengine: max seqs: expected at least 1, got -1"},
	} {
		if _, err := New(tc.cfg); err == nil || err.Error() != tc.want {
			t.Errorf("New(%+v) = %v, want %q", tc.cfg, err, tc.want)
		}
	}
}

func TestRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Config{Vocabulary: Bytes})
		qwen := newServer(t, Config{})
		big := newServer(t, Config{Model: `a "b"`, Worker: 3, ContextLength: 4096, BlockSize: 64, TotalBlocks: 100, MaxBatchedTokens: 2048, Ranks: 2})
		sglang := newServer(t, Config{Vocabulary: Bytes, Kind: simengine.SGLang, Adapters: []string{"tuned"}, TotalBlocks: 100, MaxBatchedTokens: 1000})
		time.Sleep(time.Minute) // created stays
		for _, tc := range []struct {
			s                  *Server
			method, path, body string
			status             int
			want               string
		}{
			{s, "GET", "/health", "", 200, ""},
			{s, "HEAD", "/health", "", 200, ""},
			{s, "GET", "/version", "", 200, `{"version":"0.0.0-sim"}`},
			{s, "GET", "/v1/models", "", 200, `{"object":"list","data":[{"id":"stator-sim","object":"model","created":946684800,"owned_by":"stator","max_model_len":32768,"stator":{"engine":"sim","tokenizer":"bytes","block_size":16,"total_kv_blocks":16384,"max_num_batched_tokens":8192,"ranks":1}}]}`},
			{big, "GET", "/v1/models", "", 200, `{"object":"list","data":[{"id":"a \"b\"","object":"model","created":946684800,"owned_by":"stator","max_model_len":4096,"stator":{"engine":"sim","tokenizer":"` + qwen3.Fingerprint + `","block_size":64,"total_kv_blocks":100,"max_num_batched_tokens":2048,"ranks":2,"worker":3}}]}`},
			{s, "GET", "/ping", "", 200, ""},
			{s, "GET", "/server_info", "", 404, `{"error":{"message":"no such route: /server_info","type":"NotFoundError","param":null,"code":404}}`},
			{sglang, "GET", "/v1/models", "", 200, `{"object":"list","data":[{"id":"stator-sim","object":"model","created":946684800,"owned_by":"stator","max_model_len":32768,"stator":{"engine":"sim","tokenizer":"bytes","block_size":16,"total_kv_blocks":100,"max_num_batched_tokens":1000,"ranks":1}},{"id":"tuned","object":"model","created":946684800,"owned_by":"stator","root":"tuned","parent":"stator-sim","max_model_len":32768,"stator":{"engine":"sim","tokenizer":"bytes","block_size":16,"total_kv_blocks":100,"max_num_batched_tokens":1000,"ranks":1}}]}`},
			{sglang, "GET", "/health_generate", "", 200, ""},
			{sglang, "GET", "/get_server_info", "", 200, `{"served_model_name":"stator-sim","version":"0.0.0-sim","context_length":32768,"page_size":16,"max_total_num_tokens":1600,"chunked_prefill_size":992,"dp_size":1}`},
			{sglang, "POST", "/server_info", "", 405, `{"error":{"message":"/server_info: expected GET, got POST","type":"MethodNotAllowedError","param":null,"code":405}}`},
			{s, "POST", "/tokenize", `{"prompt":"é<|im_end|>"}`, 200, `{"count":3,"max_model_len":32768,"tokens":[195,169,259],"token_strs":null}`},
			{s, "POST", "/tokenize", `{"prompt":"","return_token_strs":true}`, 200, `{"count":0,"max_model_len":32768,"tokens":[],"token_strs":[]}`},
			{s, "POST", "/tokenize", `{"messages":[{"role":"user","content":"<|eos|>"}],"add_generation_prompt":false,"return_token_strs":true}`, 200, `{"count":15,"max_model_len":32768,"tokens":[258,117,115,101,114,10,60,124,101,111,115,124,62,259,10],"token_strs":["<|im_start|>","u","s","e","r","\n","<","|","e","o","s","|",">","<|im_end|>","\n"]}`},
			{s, "POST", "/detokenize", `{"tokens":[195,169,259]}`, 200, `{"prompt":"é<|im_end|>"}`},
			{s, "POST", "/detokenize", `{"tokens":[]}`, 200, `{"prompt":""}`},
			{qwen, "POST", "/tokenize", `{"prompt":"naïve é<|im_end|>\n\u0000","return_token_strs":true}`, 200, `{"count":7,"max_model_len":32768,"tokens":[3376,37572,586,3958,151645,198,188],"token_strs":["na","Ã¯","ve","ĠÃ©","<|im_end|>","Ċ","Ā"]}`},
			{qwen, "POST", "/tokenize", `{"prompt":"Hello","add_special_tokens":false}`, 200, `{"count":1,"max_model_len":32768,"tokens":[9707],"token_strs":null}`},
			{qwen, "POST", "/tokenize", `{"messages":[{"role":"user","content":"<|im_end|>"}],"chat_template_kwargs":{"enable_thinking":false},"return_token_strs":true}`, 200, `{"count":13,"max_model_len":32768,"tokens":[151644,872,198,151645,151645,198,151644,77091,198,151667,271,151668,271],"token_strs":["<|im_start|>","user","Ċ","<|im_end|>","<|im_end|>","Ċ","<|im_start|>","assistant","Ċ","<think>","ĊĊ","</think>","ĊĊ"]}`},
			{qwen, "POST", "/tokenize", `{"messages":[{"role":"user","content":"Hi"}],"add_generation_prompt":false}`, 200, `{"count":6,"max_model_len":32768,"tokens":[151644,872,198,13048,151645,198],"token_strs":null}`},
			{qwen, "POST", "/detokenize", `{"tokens":[9707,127,151645,102]}`, 200, `{"prompt":"Hello�<|im_end|>�"}`},
			{qwen, "POST", "/detokenize", `{"tokens":[151668,151669]}`, 400, `{"error":{"message":"tokens[1]: expected a token id below 151669, got 151669","type":"BadRequestError","param":"tokens[1]","code":400}}`},
			{qwen, "POST", "/tokenize", `{"prompt":"x","add_special_tokens":"no"}`, 400, `{"error":{"message":"add_special_tokens: expected a boolean, got a string","type":"BadRequestError","param":"add_special_tokens","code":400}}`},
			{qwen, "POST", "/tokenize", `{"prompt":"\ud83d\ude00 \\ud800 \ud800"}`, 400, `{"error":{"message":"body: half a surrogate pair at byte 32, which is no character","type":"BadRequestError","param":null,"code":400}}`},

			{s, "GET", "/nowhere", "", 404, `{"error":{"message":"no such route: /nowhere","type":"NotFoundError","param":null,"code":404}}`},
			{s, "GET", "/v1/completions", "", 405, `{"error":{"message":"/v1/completions: expected POST, got GET","type":"MethodNotAllowedError","param":null,"code":405}}`},
			{s, "POST", "/v1/models", "", 405, `{"error":{"message":"/v1/models: expected GET, got POST","type":"MethodNotAllowedError","param":null,"code":405}}`},
			{s, "POST", "/tokenize", `{"prompt":7}`, 400, `{"error":{"message":"prompt: expected a string, got 7","type":"BadRequestError","param":"prompt","code":400}}`},
			{s, "POST", "/tokenize", `{"messages":[]}`, 400, `{"error":{"message":"messages: expected at least one message","type":"BadRequestError","param":"messages","code":400}}`},
			{s, "POST", "/tokenize", `{"prompt":"x","model":"y"}`, 404, "{\"error\":{\"message\":\"The model `y` does not exist.\",\"type\":\"NotFoundError\",\"param\":\"model\",\"code\":404}}"},
			{s, "POST", "/detokenize", `{"tokens":[1,260]}`, 400, `{"error":{"message":"tokens[1]: expected a token id below 260, got 260","type":"BadRequestError","param":"tokens[1]","code":400}}`},
			{s, "POST", "/detokenize", `{}`, 400, `{"error":{"message":"tokens: expected token ids, got nothing","type":"BadRequestError","param":"tokens","code":400}}`},
		} {
			w := call(tc.s, tc.method, tc.path, tc.body)
			if w.Code != tc.status {
				t.Errorf("%s %s: status %d, want %d", tc.method, tc.path, w.Code, tc.status)
			}
			if diff := cmp.Diff(tc.want, w.Body.String()); diff != "" {
				t.Errorf("%s %s %s (-want +got):\n%s", tc.method, tc.path, tc.body, diff)
			}
		}
	})
}

func TestRequestErrors(t *testing.T) {
	s := newServer(t, Config{Vocabulary: Bytes, ContextLength: 64, Ranks: 2})
	const chat, text = "/v1/chat/completions", "/v1/completions"
	const hi = `"messages":[{"role":"user","content":"hi"}]`
	long := strings.Repeat("x", 64)
	for _, tc := range []struct {
		path, body string
		status     int
		param      string
		message    string
	}{
		{chat, `{`, 400, "", "body: malformed JSON at byte 1: expected a key in double quotes"},
		{chat, `[]`, 400, "", "body: malformed JSON at byte 0: expected an object"},
		{chat, ``, 400, "", "body: malformed JSON at byte 0: expected an object"},
		{chat, `{"model":"other",` + hi + `}`, 404, "model", "The model `other` does not exist."},
		{chat, `{"model":1,` + hi + `}`, 400, "model", "model: expected a string, got 1"},
		{chat, `{}`, 400, "messages", "messages: expected at least one message"},
		{chat, `{"messages":"hi"}`, 400, "messages", "messages: expected an array, got a string"},
		{chat, `{"messages":[{"role":"user","content":1}]}`, 400, "messages", "messages[0].content: expected a string or an array of parts, got a number"},
		{chat, `{"tools":1,` + hi + `}`, 400, "tools", "tools: expected an array, got a number"},
		{chat, `{"stream":"yes",` + hi + `}`, 400, "stream", "stream: expected a boolean, got a string"},
		{chat, `{"stream_options":{"include_usage":true},` + hi + `}`, 400, "stream_options", "stream_options: expected stream to be true with it"},
		{chat, `{"stream":true,"stream_options":1,` + hi + `}`, 400, "stream_options", "stream_options: expected an object, got 1"},
		{chat, `{"stream":true,"stream_options":{"include_usage":1},` + hi + `}`, 400, "stream_options.include_usage", "stream_options.include_usage: expected a boolean, got 1"},
		{chat, `{"max_tokens":0,` + hi + `}`, 400, "max_tokens", "max_tokens: expected an integer of at least 1, got 0"},
		{chat, `{"max_completion_tokens":1.5,` + hi + `}`, 400, "max_completion_tokens", "max_completion_tokens: expected an integer of at least 1, got 1.5"},
		{chat, `{"min_tokens":-1,` + hi + `}`, 400, "min_tokens", "min_tokens: expected an integer of at least 0, got -1"},
		{chat, `{"min_tokens":5,"max_tokens":4,` + hi + `}`, 400, "min_tokens", "min_tokens: expected at most as many as max_tokens, 4, got 5"},
		{text, `{"min_tokens":17,"prompt":"x"}`, 400, "min_tokens", "min_tokens: expected at most as many as max_tokens, 16, got 17"},
		{chat, `{"n":0,` + hi + `}`, 400, "n", "n: expected an integer from 1 to 128, got 0"},
		{chat, `{"n":"1",` + hi + `}`, 400, "n", "n: expected an integer from 1 to 128, got a string"},
		{chat, `{"seed":1.5,` + hi + `}`, 400, "seed", "seed: expected an integer, got 1.5"},
		{chat, `{"stop":1,` + hi + `}`, 400, "stop", "stop: expected a non-empty string or an array of them, got 1"},
		{chat, `{"stop":["a",null],` + hi + `}`, 400, "stop", "stop: expected a non-empty string or an array of them, got null"},
		{chat, `{"stop":"",` + hi + `}`, 400, "stop", "stop: expected a non-empty string or an array of them, got an empty one"},
		{chat, `{"logprobs":2,` + hi + `}`, 400, "logprobs", "logprobs: expected a boolean, got 2"},
		{chat, `{"logprobs":true,"top_logprobs":25,` + hi + `}`, 400, "top_logprobs", "top_logprobs: expected an integer from 0 to 20, got 25"},
		{chat, `{"top_logprobs":2,` + hi + `}`, 400, "top_logprobs", "top_logprobs: expected logprobs to be true with it"},
		{chat, `{"continue_final_message":true,` + hi + `}`, 400, "continue_final_message", "continue_final_message: needs add_generation_prompt to be false"},
		{chat, `{"kv_transfer_params":{"prompt_token_ids":[999]},` + hi + `}`, 400, "kv_transfer_params.prompt_token_ids[0]", "kv_transfer_params.prompt_token_ids[0]: expected a token id below 260, got 999"},
		{text, `{}`, 400, "prompt", "prompt: expected a string, strings, token ids or lists of token ids, got nothing"},
		{text, `{"prompt":""}`, 400, "prompt", "prompt: expected at least one token"},
		{text, `{"prompt":[]}`, 400, "prompt", "prompt: expected at least one prompt"},
		{text, `{"prompt":[[1],[]]}`, 400, "prompt[1]", "prompt[1]: expected at least one token"},
		{text, `{"prompt":["a",1]}`, 400, "prompt[1]", "prompt[1]: expected a string or token ids, got 1"},
		{text, `{"prompt":[1,"a"]}`, 400, "prompt[1]", "prompt[1]: expected a token id below 260, got a string"},
		{text, `{"prompt":[1,-1]}`, 400, "prompt[1]", "prompt[1]: expected a token id below 260, got -1"},
		{text, `{"prompt":[true]}`, 400, "prompt[0]", "prompt[0]: expected a string or token ids, got a boolean"},
		{text, `{"prompt":["a","b"],"n":65}`, 400, "n", "n: expected at most 128 choices, got 2 prompts with n = 65"},
		{text, `{"prompt":"x","cache_salt":""}`, 400, "cache_salt", "cache_salt: expected a string that is not empty"},
		{text, `{"prompt":"x","cache_salt":7}`, 400, "cache_salt", "cache_salt: expected a string, got 7"},
		{text, `{"prompt":"x","logprobs":true}`, 400, "logprobs", "logprobs: expected an integer from 0 to 20, got a boolean"},
		{text, `{"prompt":"` + long + `"}`, 400, "", "This model's maximum context length is 64 tokens. However, your messages resulted in 64 tokens. Please reduce the length of the messages."},
	} {
		t.Run(tc.path+tc.body, func(t *testing.T) {
			w := call(s, "POST", tc.path, tc.body)
			var got struct {
				Error struct {
					Message, Type string
					Param         *string
					Code          int
				}
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatalf("%v in %s", err, w.Body)
			}
			param := ""
			if got.Error.Param != nil {
				param = *got.Error.Param
			}
			if w.Code != tc.status || got.Error.Code != tc.status || got.Error.Message != tc.message || param != tc.param {
				t.Errorf("status %d, code %d, param %q, message\n%s\nwant %d, param %q\n%s", w.Code, got.Error.Code, param, got.Error.Message, tc.status, tc.param, tc.message)
			}
		})
	}
	if w := call(s, "POST", text, `{"prompt":"`+long[:63]+`"}`); w.Code != 200 {
		t.Errorf("one token below the context length: status %d", w.Code)
	}
	for rank, want := range map[string]int{"0": 200, "1": 200, "2": 400, "-1": 400, "99999999999999999999": 400, "first": 200, "": 200} {
		if w := call(s, "POST", text, `{"prompt":"x"}`, "X-Data-Parallel-Rank: "+rank); w.Code != want {
			t.Errorf("rank %q: status %d, want %d", rank, w.Code, want)
		}
	}
	if n := s.Inflight(); n != 0 {
		t.Errorf("%d requests in flight", n)
	}
}

func TestRanks(t *testing.T) {
	s := newServer(t, Config{Ranks: 3})
	var answers [6]answer
	for i, tc := range []struct{ ask, want int }{{-1, 0}, {-1, 1}, {1, 1}, {-1, 2}, {-1, 0}, {-1, 2}} {
		if got := s.begin(tc.ask, &answers[i]); got != s.ranks[tc.want] {
			t.Errorf("begin(%d) = %+v, want rank %d", tc.ask, got, tc.want)
		}
	}
	w := call(s, "GET", "/metrics", "")
	for rank := range 3 {
		if want := fmt.Sprintf("vllm:num_requests_running{engine=\"%d\",model_name=\"stator-sim\"} 2\n", rank); !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %q in\n%s", want, w.Body)
		}
	}
	if n := s.Inflight(); n != 6 {
		t.Errorf("%d requests in flight, want 6", n)
	}
	for i, rank := range slices.Repeat(s.ranks, 2) {
		s.end(rank, &answers[i])
	}
}
