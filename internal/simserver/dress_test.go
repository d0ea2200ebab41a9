package simserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/simengine"
)

func dressed(t *testing.T, d Dress, change func(*Config)) *Server {
	t.Helper()
	cfg := modelled(Config{Dress: d, Model: "m", Adapters: []string{"tuned"}, Vocabulary: Bytes}, 0, 0)
	if change != nil {
		change(&cfg)
	}
	s := newServer(t, cfg)
	t.Cleanup(s.Close)
	return s
}

// TestDressRoutes asks for what tells engines apart, and for what they must not have.
func TestDressRoutes(t *testing.T) {
	for _, tt := range []struct {
		dress Dress
		get   map[string]string // path → status and what the answer has
	}{
		{DressVLLM, map[string]string{
			"/v1/models":   `200 "owned_by":"vllm".*"max_model_len":32768.*"id":"tuned".*"parent":"m"`,
			"/version":     `200 \{"version":"`,
			"/health":      `200 $`,
			"/ping":        `200 $`,
			"/load":        `200 \{"server_load":0\}`,
			"/metrics":     `200 vllm:cache_config_info\{block_size="16".*engine="0",num_gpu_blocks="16385"\} 1`,
			"/server_info": `404 \{"detail":"Not Found"\}`,
			"/props":       `404 `,
			"/tokenize":    `405 \{"detail":"Method Not Allowed"\}`,
		}},
		{DressSGLang, map[string]string{
			"/v1/models":                       `200 "owned_by":"sglang".*"id":"tuned"`,
			"/ping":                            `200 $`,
			"/model_info":                      `200 "model_path":"m"`,
			"/server_info":                     `200 "page_size":16.*"enable_priority_scheduling":false.*"kv_events":null`,
			"/v1/loads?include=core&dp_rank=0": `200 "loads":\[\{"dp_rank":0,"num_running_reqs":0.*"max_total_num_tokens":262144`,
			"/v1/loads?dp_rank=1":              `400 "object":"error"`,
			"/metrics":                         `200 sglang:num_running_reqs\{model_name="m".*dp_rank="0"\} 0`,
			"/version":                         `404 `,
		}},
		{DressLlamaCpp, map[string]string{
			"/v1/models":     `200 "owned_by":"llamacpp","meta":`,
			"/health":        `200 \{"status":"ok"\}`,
			"/props":         `200 "n_ctx":32768.*"total_slots":4`,
			"/slots":         `200 \[\{"id":0.*"is_processing":false`,
			"/metrics":       `200 llamacpp:requests_processing 0`,
			"/lora-adapters": `200 \[\{"id":0,"path":"tuned","scale":0.0\}\]`,
			"/version":       `404 \{"error":\{"code":404,"message":"File Not Found","type":"not_found_error"\}\}`,
		}},
		{DressTRTLLM, map[string]string{
			"/v1/models":       `200 "owned_by":"tensorrt_llm"\}\]\}$`,
			"/health":          `200 $`,
			"/version":         `200 `,
			"/metrics":         `200 \[\]`,
			"/tokenize":        `404 `,
			"/kv_cache_events": `405 `,
		}},
	} {
		s := dressed(t, tt.dress, nil)
		for path, want := range tt.get {
			w := call(s, "GET", path, "")
			got := fmt.Sprintf("%d %s", w.Code, strings.ReplaceAll(w.Body.String(), "\n", " "))
			status, pattern, _ := strings.Cut(want, " ")
			if !strings.HasPrefix(got, status+" ") || !regexp.MustCompile(pattern).MatchString(got) {
				t.Errorf("%s %s: %.300s, want %s", tt.dress, path, got, want)
			}
		}
		for _, path := range []string{"/v1/models", "/metrics", "/props", "/server_info"} {
			if w := call(s, "GET", path, ""); strings.Contains(w.Body.String(), `"stator":`) {
				t.Errorf("%s %s says what it is: %s", tt.dress, path, w.Body)
			}
		}
	}
}

// shape tells a stream apart: what is in each of its events.
func shape(t *testing.T, s *Server, path, body string) []string {
	t.Helper()
	w := call(s, "POST", path, body)
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	var out []string
	for line := range strings.Lines(w.Body.String()) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			out = append(out, "done")
			continue
		}
		var e map[string]any
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		var parts []string
		choices, _ := e["choices"].([]any)
		for _, c := range choices {
			c := c.(map[string]any)
			if d, ok := c["delta"].(map[string]any); ok {
				if _, ok := d["role"]; ok {
					parts = append(parts, "role")
				}
				if text, ok := d["content"]; ok {
					parts = append(parts, fmt.Sprintf("%q", text))
				}
			}
			if text, ok := c["text"]; ok {
				parts = append(parts, fmt.Sprintf("%q", text))
			}
			if f := c["finish_reason"]; f != nil {
				parts = append(parts, fmt.Sprint(f))
			}
			for _, key := range []string{"stop_reason", "matched_stop", "token_ids"} {
				if v, ok := c[key]; ok {
					parts = append(parts, fmt.Sprint(key, "=", v))
				}
			}
		}
		if e["prompt_token_ids"] != nil {
			parts = append(parts, "prompt")
		}
		if u, ok := e["usage"].(map[string]any); ok {
			parts = append(parts, fmt.Sprint("usage=", u["completion_tokens"]))
		}
		if e["timings"] != nil {
			parts = append(parts, "timings")
		}
		out = append(out, strings.Join(parts, " "))
	}
	return out
}

// TestDressStreams compares the shapes of streams.
func TestDressStreams(t *testing.T) {
	const (
		chat  = `{"messages":[{"role":"user","content":"Hi"}],"stream":true,`
		usage = `"stream_options":{"include_usage":true},`
		text  = `{"prompt":"Hi","stream":true,`
	)
	for _, tt := range []struct {
		name, body string
		dress      Dress
		want       []string
	}{
		{"chat", chat + `"max_tokens":2}`, DressVLLM, []string{`role ""`, `"T"`, `"o" length stop_reason=<nil>`, "done"}},
		{"chat, usage", chat + usage + `"max_tokens":1}`, DressVLLM, []string{`role ""`, `"T" length stop_reason=<nil>`, "usage=1", "done"}},
		{"chat, stop", chat + `"stop":"o"}`, DressVLLM, []string{`role ""`, `"T"`, `stop stop_reason=o`, "done"}},
		{"chat, ids", chat + `"max_tokens":1,"return_token_ids":true}`, DressVLLM, []string{`role "" prompt`, `"T" length stop_reason=<nil> token_ids=[84]`, "done"}},
		{"text", text + `"max_tokens":1}`, DressVLLM, []string{`" " length stop_reason=<nil>`, "done"}},
		{"chat", chat + usage + `"max_tokens":2}`, DressSGLang, []string{`role ""`, `"T"`, `"o"`, `length matched_stop=<nil>`, "usage=2", "done"}},
		{"chat, stop", chat + `"stop":"o"}`, DressSGLang, []string{`role ""`, `"T"`, `stop matched_stop=o`, "done"}},
		{"text", text + `"max_tokens":1}`, DressSGLang, []string{`" " length matched_stop=<nil>`, "done"}},
		{"chat", chat + `"max_tokens":1}`, DressLlamaCpp, []string{`role %!q(<nil>)`, `"T"`, "length timings", "done"}},
		{"chat, usage", chat + usage + `"max_tokens":1}`, DressLlamaCpp, []string{`role %!q(<nil>)`, `"T"`, "length", "usage=1 timings", "done"}},
		{"text", text + `"max_tokens":1}`, DressLlamaCpp, []string{`" "`, `"" length usage=1 timings`, "done"}},
		{"chat", chat + `"max_tokens":2}`, DressTRTLLM, []string{`role "T"`, `"o" length stop_reason=<nil>`, "usage=2", "done"}},
		{"chat, no usage", chat + `"stream_options":{"include_usage":false},"max_tokens":1}`, DressTRTLLM, []string{`role "T" length stop_reason=<nil>`, "done"}},
	} {
		t.Run(string(tt.dress)+" "+tt.name, func(t *testing.T) {
			path := "/v1/chat/completions"
			if strings.HasPrefix(tt.body, text) {
				path = "/v1/completions"
			}
			if diff := cmp.Diff(tt.want, shape(t, dressed(t, tt.dress, nil), path, tt.body)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestDressText compares what is said, streamed and whole, with the plain server: the
// dress changes no word of it.
func TestDressText(t *testing.T) {
	want := unary(t, dressed(t, Plain, nil), "/v1/chat/completions", chatBody+`}`)
	for _, d := range Dresses() {
		s := dressed(t, Dress(d), nil)
		got := unary(t, s, "/v1/chat/completions", chatBody+`}`)
		if *got.Choices[0].Message.Content != *want.Choices[0].Message.Content || got.Usage.Prompt != want.Usage.Prompt || got.Usage.Completion != want.Usage.Completion {
			t.Errorf("%s: %+v, want %+v", d, got, want)
		}
		var text string
		for _, c := range stream(t, s, "/v1/chat/completions", chatBody+`,"stream":true}`) {
			if len(c.Choices) > 0 && c.Choices[0].Delta.Content != nil {
				text += *c.Choices[0].Delta.Content
			}
		}
		if text != *want.Choices[0].Message.Content {
			t.Errorf("%s: streamed %q", d, text)
		}
	}
}

// TestDressErrors compares the bodies of errors.
func TestDressErrors(t *testing.T) {
	for _, tt := range []struct {
		dress        Dress
		body         string
		header, want string
	}{
		{DressVLLM, `{"prompt":"x","n":0}`, "", `400 {"error":{"message":"n: expected an integer from 1 to 128, got 0","type":"BadRequestError","param":"n","code":400}}`},
		{DressSGLang, `{"prompt":"x","n":0}`, "", `400 {"object":"error","message":"n: expected an integer from 1 to 128, got 0","type":"BadRequestError","param":"n","code":400}`},
		{DressLlamaCpp, `{"prompt":"x","n":0}`, "", `400 {"error":{"code":400,"message":"n: expected an integer from 1 to 128, got 0","type":"invalid_request_error"}}`},
		{DressTRTLLM, `{"prompt":"x","n":0}`, "", `400 {"error":"n: expected an integer from 1 to 128, got 0"}`},
		{DressTRTLLM, `{"prompt":"x","nvext":{}}`, "", `400 {"error":"nvext: Extra inputs are not permitted"}`},
		{DressTRTLLM, `{"prompt":"x","max_completion_tokens":3}`, "", `400 {"error":"max_completion_tokens: Extra inputs are not permitted"}`},
		{DressTRTLLM, `{"prompt":"x","priority":2}`, "", `400 {"error":"priority: expected a number from 0 to 1, got 2"}`},
		{DressVLLM, `{"prompt":"x"}`, "X-Data-Parallel-Rank: 2", `400 {"error":{"message":"X-Data-Parallel-Rank: expected a rank from 0 to 1, got 2"`},
		{DressVLLM, `{"prompt":"x"}`, "X-Data-Parallel-Rank: x", `200 `},
		{DressSGLang, `{"prompt":"x"}`, "X-Data-Parallel-Rank: x", `400 `},
		{DressSGLang, `{"prompt":"x","routed_dp_rank":2}`, "", `400 `},
		{DressSGLang, `{"prompt":"x","routed_dp_rank":2}`, "X-Data-Parallel-Rank: 1", `200 `},
		{DressTRTLLM, `{"prompt":"x"}`, "X-Data-Parallel-Rank: 7", `200 `},
		{DressVLLM, `{"prompt":"x","model":"other"}`, "", `404 {"error":{"message":"The model`},
		{DressLlamaCpp, `{"prompt":"x","model":"other","cache_salt":"a","nvext":{}}`, "", `200 `},
		{DressVLLM, `{"prompt":"x","nvext":{}}`, "", `200 `},
		{DressLlamaCpp, `{"prompt":"0123456789012345678901234567890123456789"}`, "", `400 {"error":{"code":400,"message":"This model's maximum context length is 40`},
	} {
		s := dressed(t, tt.dress, func(c *Config) {
			c.ContextLength = 40
			if tt.dress != DressLlamaCpp {
				c.Ranks = 2
			}
		})
		var headers []string
		if tt.header != "" {
			headers = []string{tt.header}
		}
		w := call(s, "POST", "/v1/completions", tt.body, headers...)
		if got := fmt.Sprintf("%d %s", w.Code, w.Body); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s %s: %s, want %s", tt.dress, tt.body, got, tt.want)
		}
	}
}

// TestDressTokenize compares the tokens that an engine gives with those it computes.
func TestDressTokenize(t *testing.T) {
	const messages = `[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}]`
	for _, d := range []Dress{DressVLLM, DressSGLang, DressLlamaCpp} {
		s := dressed(t, d, func(c *Config) { c.Vocabulary = Qwen3 })
		want := unary(t, s, "/v1/chat/completions", `{"messages":`+messages+`,"max_tokens":1}`).Usage.Prompt
		body := `{"messages":` + messages + `}`
		if d == DressLlamaCpp {
			var out struct{ Prompt string }
			w := call(s, "POST", "/apply-template", body)
			if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || !strings.Contains(out.Prompt, "Be brief.") {
				t.Fatalf("%s: %s", d, w.Body)
			}
			quoted, _ := json.Marshal(out.Prompt)
			body = `{"content":` + string(quoted) + `}`
		}
		var out struct{ Tokens []int }
		w := call(s, "POST", "/tokenize", body)
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || len(out.Tokens) != want {
			t.Errorf("%s: %s, want %d tokens", d, w.Body, want)
		}
		key := map[Dress]string{DressVLLM: "prompt", DressSGLang: "text", DressLlamaCpp: "content"}[d]
		if w := call(s, "POST", "/detokenize", `{"tokens":[9707]}`); w.Body.String() != `{"`+key+`":"Hello"}` {
			t.Errorf("%s: %s", d, w.Body)
		}
	}
	s := dressed(t, DressLlamaCpp, nil)
	if w := call(s, "POST", "/tokenize", `{"content":"Hi","with_pieces":true}`); w.Body.String() != `{"tokens":[{"id":72,"piece":"H"},{"id":105,"piece":"i"}]}` {
		t.Errorf("pieces: %s", w.Body)
	}
}

// TestDressIDs looks at whose ids answers have.
func TestDressIDs(t *testing.T) {
	for _, tt := range []struct {
		dress            Dress
		path, body, want string
	}{
		{DressVLLM, "/v1/completions", `{"prompt":"x"}`, "cmpl-abc"},
		{DressVLLM, "/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"max_tokens":1,"request_id":"no"}`, "chatcmpl-abc"},
		{DressSGLang, "/v1/completions", `{"prompt":"x","rid":"r-17"}`, "r-17"},
	} {
		if r := unary(t, dressed(t, tt.dress, nil), tt.path, tt.body, "X-Request-Id: abc"); r.ID != tt.want {
			t.Errorf("%s %s: id %s, want %s", tt.dress, tt.body, r.ID, tt.want)
		}
	}
}

// TestDressAdapters names an adapter in each engine's way: its blocks are its own.
func TestDressAdapters(t *testing.T) {
	for d, ask := range map[Dress]string{
		DressVLLM:     `"model":"tuned"`,
		DressSGLang:   `"model":"m:tuned"`,
		DressTRTLLM:   `"lora_request":{"lora_name":"tuned","lora_int_id":1}`,
		DressLlamaCpp: `"lora":[{"id":0,"scale":1.0}]`,
	} {
		s := dressed(t, d, nil)
		prompt := `{"prompt":"` + strings.Repeat("x", 40) + `","max_tokens":1`
		cached := func(more string) int { return unary(t, s, "/v1/completions", prompt+more+`}`).Usage.Details.Cached }
		cached("")
		if n := cached("," + ask); n != 0 {
			t.Errorf("%s: %d tokens shared with the adapter", d, n)
		}
		if n := cached("," + ask); n < 32 {
			t.Errorf("%s: %d tokens of its own", d, n)
		}
	}
	s := dressed(t, DressSGLang, nil)
	if w := call(s, "POST", "/v1/completions", `{"prompt":"x","lora_path":"tuned"}`); w.Code != 200 {
		t.Errorf("lora_path: %s", w.Body)
	}
}

// TestDressCancel has clients go away and looks, in virtual time, when the engine lets go
// of their requests.
func TestDressCancel(t *testing.T) {
	for _, tt := range []struct {
		dress  Dress
		stream bool
		want   time.Duration
	}{
		{DressVLLM, true, 0}, {DressVLLM, false, 0},
		{DressSGLang, true, 2 * time.Second}, {DressSGLang, false, 4 * time.Second},
		{DressTRTLLM, true, time.Second}, {DressTRTLLM, false, time.Second},
		{DressLlamaCpp, true, 500 * time.Millisecond}, // with the next token
	} {
		t.Run(fmt.Sprint(tt.dress, tt.stream), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := modelled(Config{Dress: tt.dress}, 0, time.Second)
				s := newServer(t, cfg)
				_, client := serve(t, s)
				ctx, cancel := context.WithCancel(t.Context())
				req, _ := http.NewRequestWithContext(ctx, "POST", "http://sim/v1/chat/completions", strings.NewReader(chatBody+fmt.Sprintf(`,"stream":%t}`, tt.stream)))
				done := make(chan struct{})
				go func() {
					defer close(done)
					if resp, err := client.Do(req); err == nil {
						io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
				}()
				time.Sleep(3500 * time.Millisecond)
				cancel()
				<-done
				gone := time.Now()
				synctest.Wait()
				for s.Inflight() > 0 {
					time.Sleep(50 * time.Millisecond)
					synctest.Wait()
				}
				if got := time.Since(gone); got < tt.want || got > tt.want+100*time.Millisecond {
					t.Errorf("let go after %v, want %v", got, tt.want)
				}
			})
		})
	}
}

// TestDressAbort ends requests by their ids, at once.
func TestDressAbort(t *testing.T) {
	for _, tt := range []struct {
		dress              Dress
		path, abort, other string
	}{
		{DressSGLang, "/abort_request", `{"rid":"a-1"}`, `{"rid":"b"}`},
		{DressSGLang, "/abort_request", `{"rid":"","abort_all":true}`, `{"rid":""}`},
		{DressSGLang, "/abort_request", `{"rid":"a-"}`, `{}`}, // it goes by how ids begin
		{DressVLLM, "/abort_requests", `{"request_ids":["x","a-1"]}`, `{"request_ids":["a-"]}`},
	} {
		for _, stream := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, modelled(Config{Dress: tt.dress, DevMode: tt.dress == DressVLLM}, 0, time.Second))
				_, client := serve(t, s)
				body := chatBody + fmt.Sprintf(`,"rid":"a-1","stream":%t,"stream_options":null}`, stream)
				var answer string
				start := time.Now()
				done := make(chan time.Duration)
				go func() {
					req, _ := http.NewRequest("POST", "http://sim/v1/chat/completions", strings.NewReader(body))
					req.Header.Set("X-Request-Id", "a-1")
					if resp, err := client.Do(req); err == nil {
						all, _ := io.ReadAll(resp.Body)
						resp.Body.Close()
						answer = string(all)
					}
					done <- time.Since(start)
				}()
				time.Sleep(2500 * time.Millisecond)
				if w := call(s, "POST", tt.path, tt.other); w.Code != 200 {
					t.Errorf("%s: %d %s", tt.other, w.Code, w.Body)
				}
				synctest.Wait()
				if s.Inflight() != 1 {
					t.Errorf("%s ended it", tt.other)
				}
				if w := call(s, "POST", tt.path, tt.abort); w.Code != 200 {
					t.Errorf("%s: %d %s", tt.abort, w.Code, w.Body)
				}
				if after := <-done; after != 2500*time.Millisecond || !strings.Contains(answer, `"finish_reason":"abort"`) || stream && !strings.HasSuffix(answer, "data: [DONE]\n\n") {
					t.Errorf("%s %s after %v: %s", tt.dress, tt.abort, after, answer)
				}
				synctest.Wait()
				if s.Inflight() != 0 {
					t.Error("still in flight")
				}
			})
		}
	}
}

// TestDressPriority has requests wait for the only place: each engine goes by priority
// in its own way, if it is told to.
func TestDressPriority(t *testing.T) {
	for _, tt := range []struct {
		dress      Dress
		on         bool
		priorities []string
		want       []int // order of their ends
	}{
		{DressVLLM, false, []string{"5", "-3", "1"}, []int{0, 1, 2}},
		{DressVLLM, true, []string{"5", "-3", "null"}, []int{1, 2, 0}},
		{DressSGLang, true, []string{"null", "-3", "7"}, []int{2, 1, 0}},
		{DressTRTLLM, true, []string{"0.4", "null", "0.9"}, []int{2, 1, 0}},
	} {
		t.Run(fmt.Sprint(tt.dress, tt.on), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := modelled(Config{Dress: tt.dress, PriorityScheduling: tt.on}, 0, time.Second)
				cfg.Engine.MaxSeqs = 1
				s := newServer(t, cfg)
				defer s.Close()
				ends := make(chan int, 4)
				ask := func(i int, priority string) {
					go func() {
						call(s, "POST", "/v1/completions", `{"prompt":"x","max_tokens":2,"ignore_eos":true,"priority":`+priority+`}`)
						ends <- i
					}()
					synctest.Wait()
				}
				ask(-1, "null") // takes the place
				time.Sleep(100 * time.Millisecond)
				for i, p := range tt.priorities {
					ask(i, p)
				}
				var got []int
				for range 1 + len(tt.priorities) {
					got = append(got, <-ends)
				}
				if diff := cmp.Diff(append([]int{-1}, tt.want...), got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestDressLlama tries what only llama.cpp has.
func TestDressLlama(t *testing.T) {
	s := dressed(t, DressLlamaCpp, func(c *Config) { c.Slots = 2 })
	cached := func(prompt, more string) int {
		t.Helper()
		w := call(s, "POST", "/v1/completions", `{"prompt":"`+prompt+`","max_tokens":1`+more+`}`)
		var out struct {
			Usage struct {
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
			Timings struct {
				Cached int `json:"cache_n"`
				Prompt int `json:"prompt_n"`
			}
		}
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Code != 200 {
			t.Fatalf("%d %s: %v", w.Code, w.Body, err)
		}
		if out.Timings.Cached != out.Usage.Details.Cached || out.Timings.Cached+out.Timings.Prompt != len(prompt) {
			t.Errorf("usage and timings differ: %s", w.Body)
		}
		return out.Timings.Cached
	}
	for _, tt := range []struct {
		prompt, more string
		want         int
	}{
		{"the quick brown fox", "", 0},
		{"abcdefghijklmnopqrstuvwxyz", "", 0},
		{"the quick brown dog", "", 16},
		{"the quick brown dog", `,"cache_prompt":false`, 0},
		{"the quick brown dog", `,"cache_salt":"tenant"`, 18},
		{"abcdefghij", `,"id_slot":0`, 0},
		{"abcdefghij", `,"id_slot":1`, 9},
	} {
		if got := cached(tt.prompt, tt.more); got != tt.want {
			t.Errorf("%s%s: %d tokens cached, want %d", tt.prompt, tt.more, got, tt.want)
		}
	}
	w := call(s, "GET", "/slots?fail_on_no_slot=1", "")
	var slots []struct {
		ID     int
		Busy   bool `json:"is_processing"`
		Prompt int  `json:"n_prompt_tokens"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &slots); err != nil || len(slots) != 2 || slots[1].Busy || slots[1].Prompt != 10 {
		t.Errorf("slots %s", w.Body)
	}
	// A last message of the assistant's is gone on with.
	chat := func(tail string) string {
		w := call(s, "POST", "/apply-template", `{"messages":[{"role":"user","content":"Hi"}`+tail+`]}`)
		return w.Body.String()
	}
	if got := chat(`,{"role":"assistant","content":"Well"}`); !strings.HasSuffix(got, `Well"}`) {
		t.Errorf("prefill: %s", got)
	}
	if got := chat(`,{"role":"assistant","content":"a"},{"role":"assistant","content":"b"}`); !strings.Contains(got, "2 or more assistant messages") {
		t.Errorf("two of them: %s", got)
	}
}

// TestDressLlamaBusy fills all slots.
func TestDressLlamaBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, modelled(Config{Dress: DressLlamaCpp, Slots: 1}, 0, time.Second))
		defer s.Close()
		for range 2 {
			go call(s, "POST", "/v1/completions", `{"prompt":"Hello","max_tokens":3,"ignore_eos":true}`)
		}
		time.Sleep(1500 * time.Millisecond)
		if w := call(s, "GET", "/slots?fail_on_no_slot=1", ""); w.Code != 503 || !strings.Contains(w.Body.String(), "no slot available") {
			t.Errorf("no slot: %d %s", w.Code, w.Body)
		}
		if w := call(s, "GET", "/slots", ""); !strings.Contains(w.Body.String(), `"is_processing":true`) || !strings.Contains(w.Body.String(), `"n_decoded":2`) {
			t.Errorf("slots: %s", w.Body)
		}
		if w := call(s, "GET", "/metrics", ""); !strings.Contains(w.Body.String(), "llamacpp:requests_processing 1\n") || !strings.Contains(w.Body.String(), "llamacpp:requests_deferred 1\n") {
			t.Errorf("metrics: %s", w.Body)
		}
	})
}

// TestDressLlamaPings waits for the first token of a stream for more than a minute.
func TestDressLlamaPings(t *testing.T) {
	for name, cfg := range map[string]Config{
		"fixed":    {Dress: DressLlamaCpp, TTFT: 70 * time.Second},
		"modelled": modelled(Config{Dress: DressLlamaCpp}, 70*time.Second, 0),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, cfg)
				defer s.Close()
				w := call(s, "POST", "/v1/completions", `{"prompt":"Hello","max_tokens":3,"stream":true}`)
				if got := w.Body.String(); !strings.HasPrefix(got, ":\n\n:\n\ndata: ") || strings.Count(got, ":\n\n") != 2 || !strings.HasSuffix(got, "data: [DONE]\n\n") {
					t.Errorf("stream %q", got)
				}
			})
		})
	}
}

// TestDressTRTLLM drains the metrics and the events.
func TestDressTRTLLM(t *testing.T) {
	s := dressed(t, DressTRTLLM, func(c *Config) { c.Ranks, c.Publish = 2, &PublishConfig{} })
	call(s, "POST", "/v1/completions", `{"prompt":"0123456789abcdef01234567","max_tokens":3}`)
	var rows []struct {
		Iter  int  `json:"iter"`
		Rank  *int `json:"attentionDpRank"`
		Cache struct {
			Max  int `json:"maxNumBlocks"`
			Size int `json:"tokensPerBlock"`
		} `json:"kvCacheStats"`
	}
	w := call(s, "GET", "/metrics", "")
	if err := json.Unmarshal(w.Body.Bytes(), &rows); err != nil || len(rows) != 3 || rows[2].Iter != 3 || rows[0].Rank == nil || rows[0].Cache.Max != 16384 || rows[0].Cache.Size != 16 {
		t.Errorf("metrics %s", w.Body)
	}
	if w := call(s, "GET", "/metrics", ""); w.Body.String() != "[]" {
		t.Errorf("metrics are not drained: %s", w.Body)
	}
	var events []struct {
		ID   int `json:"event_id"`
		Data struct{ Type string }
	}
	w = call(s, "POST", "/kv_cache_events", "")
	if err := json.Unmarshal(w.Body.Bytes(), &events); err != nil || len(events) != 3 || events[2].Data.Type != "stored" {
		t.Errorf("events %s", w.Body)
	}
}

// TestDressEvents says where events are published, as vLLM and SGLang do.
func TestDressEvents(t *testing.T) {
	publish := &PublishConfig{Listen: "127.0.0.1:0", Replay: "127.0.0.1:0", Topic: "kv"}
	v := dressed(t, DressVLLM, func(c *Config) { c.Publish, c.DevMode = publish, true })
	addrs, replay := v.EventAddrs()
	if w := call(v, "GET", "/server_info?config_format=json", ""); !strings.Contains(w.Body.String(), `"endpoint":"tcp://`+addrs[0]+`","replay_endpoint":"tcp://`+replay[0]+`"`) {
		t.Errorf("vLLM at %v, %v: %s", addrs, replay, w.Body)
	}
	g := dressed(t, DressSGLang, func(c *Config) { c.Publish = publish })
	addrs, _ = g.EventAddrs()
	_, port, _ := strings.Cut(addrs[0], ":")
	w := call(g, "GET", "/server_info", "")
	if !strings.Contains(w.Body.String(), `"kv_events":{"publisher":"zmq","endpoint_host":"127.0.0.1","endpoint_port_base":`+port+`,"topic":"kv","block_size":16,"dp_size":1}`) {
		t.Errorf("SGLang at %v: %s", addrs, w.Body)
	}
	var info struct {
		Config string `json:"kv_events_config"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &info); err != nil || !strings.Contains(info.Config, `"endpoint":"tcp://`+addrs[0]+`"`) {
		t.Errorf("SGLang: %q, %v", info.Config, err)
	}
}

// TestDressEventSources says where each rank publishes, as vLLM does since it can.
func TestDressEventSources(t *testing.T) {
	const rest = `,"buffer_steps":10000,"hwm":100000,"max_queue_size":100000,"topic":"kv"}`
	route := func(s *Server) (int, string) {
		w := call(s, "GET", "/kv_event_sources", "")
		return w.Code, w.Body.String()
	}
	source := func(rank int, events, replay string) string {
		return fmt.Sprintf(`"%d":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"%s","replay_endpoint":%s%s`, rank, events, replay, rest)
	}
	s := dressed(t, DressVLLM, func(c *Config) {
		c.Ranks, c.Publish = 2, &PublishConfig{Listen: "*:0", Replay: "127.0.0.1:0", Topic: "kv"}
	})
	addrs, replay := s.EventAddrs()
	port := func(addr string) string { return addr[strings.LastIndexByte(addr, ':'):] }
	want := "{" + source(0, "tcp://*"+port(addrs[0]), `"tcp://`+replay[0]+`"`) + "," + source(1, "tcp://*"+port(addrs[1]), `"tcp://`+replay[1]+`"`) + "}"
	if code, got := route(s); code != 200 || got != want {
		t.Errorf("%d %s\nwant %s", code, got, want)
	}
	s = dressed(t, DressVLLM, func(c *Config) {
		c.Ranks, c.Publish = 2, &PublishConfig{Connect: "127.0.0.1:1", Format: "bytes", Topic: "kv"}
	})
	want = "{" + source(0, "tcp://127.0.0.1:1", "null") + "," + source(1, "tcp://127.0.0.1:2", "null") + "}"
	if code, got := route(s); code != 200 || got != want {
		t.Errorf("%d %s\nwant %s", code, got, want)
	}
	for name, p := range map[string]*PublishConfig{
		"nothing is published": nil,
		"an earlier release":   {Listen: "127.0.0.1:0", Format: "vllm-0.24"},
		"on no socket":         {Format: "trtllm"},
	} {
		if code, got := route(dressed(t, DressVLLM, func(c *Config) { c.Publish = p })); code != 404 {
			t.Errorf("%s: %d %s", name, code, got)
		}
	}
}

func TestDressConfigErrors(t *testing.T) {
	for _, cfg := range []Config{
		{Dress: "tgi"},
		{Dress: DressVLLM, Kind: simengine.SGLang},
		{Dress: DressVLLM, Slots: 2},
		{Dress: DressLlamaCpp, Slots: 1000},
		{Dress: DressLlamaCpp, BlockSize: 16},
		{Dress: DressLlamaCpp, TotalBlocks: 16},
		{Dress: DressLlamaCpp, Ranks: 2},
		modelled(Config{Dress: DressLlamaCpp, PriorityScheduling: true}, 0, 0),
		{Dress: DressVLLM, PriorityScheduling: true},
		modelled(Config{Dress: DressLlamaCpp, Publish: &PublishConfig{Listen: "127.0.0.1:0"}}, 0, 0),
		{Kind: simengine.LlamaCpp},
		{Faults: []Fault{{Kind: "bang"}}},
		{Faults: []Fault{{Kind: FaultStatus, Status: 200}}},
	} {
		if s, err := New(cfg); err == nil {
			s.Close()
			t.Errorf("%+v: no error", cfg)
		}
	}
}
