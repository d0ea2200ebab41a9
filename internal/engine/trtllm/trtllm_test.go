package trtllm

import (
	"math"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/enginetest"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
	"github.com/stator-ai/stator/internal/openai"
)

func open(t *testing.T, url string) engine.Engine {
	t.Helper()
	base, err := openaihttp.New(openaihttp.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(base.Close)
	return New(base)
}

func TestContract(t *testing.T) { enginetest.Run(t, open) }

const (
	models     = `{"object":"list","data":[{"id":"Qwen3-8B","object":"model","created":1785261214,"owned_by":"tensorrt_llm"}]}`
	iterations = `[{"iter":41,"iterLatencyMS":12.5,"numActiveRequests":9,"numQueuedRequests":4,"attentionDpRank":0,"kvCacheStats":{"usedNumBlocks":10,"maxNumBlocks":1000,"tokensPerBlock":32}},
{"iter":42,"numActiveRequests":3,"numQueuedRequests":2,"attentionDpRank":0,"kvCacheStats":{"usedNumBlocks":250,"maxNumBlocks":1000,"freeNumBlocks":750,"tokensPerBlock":32},"inflightBatchingStats":{"numContextRequests":1}},
{"iter":42,"numActiveRequests":1,"attentionDpRank":1,"kvCacheStats":{"usedNumBlocks":0,"maxNumBlocks":1000,"tokensPerBlock":32}}]`
)

func identify(t *testing.T, e engine.Engine) *engine.Info {
	t.Helper()
	info, err := e.Identify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range info.Warnings {
		info.Warnings[i].Text = ""
	}
	return info
}

func TestIdentify(t *testing.T) {
	script := enginetest.NewScript(t, map[string]string{
		"/v1/models": models, "/version": `{"version":"1.2.0"}`, "/metrics": iterations, "/prometheus/metrics": "process_start_time_seconds 1.5e+09\n",
	})
	e := open(t, script.URL)
	want := &engine.Info{
		Kind: engine.TRTLLM, Version: "1.2.0", Life: "1500000000",
		Models:   []engine.Model{{ID: "Qwen3-8B", BlockSize: 32, TotalBlocks: 1000, Ranks: 2}},
		Warnings: []engine.Warning{{Code: "no_cache_salt"}, {Code: "ranks_not_chosen"}},
	}
	if diff := cmp.Diff(want, identify(t, e)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// What was told once stays, although it is told only once.
	script.Set("/metrics", "[]")
	if diff := cmp.Diff(want, identify(t, e)); diff != "" {
		t.Errorf("again (-want +got):\n%s", diff)
	}
	want = &engine.Info{
		Kind: engine.TRTLLM, Models: []engine.Model{{ID: "Qwen3-8B", Ranks: 1}},
		Warnings: []engine.Warning{{Code: "no_cache_salt"}, {Code: "no_metrics"}},
	}
	for _, metrics := range []string{"", "{}", "up 1\n"} {
		e := open(t, enginetest.NewScript(t, map[string]string{"/v1/models": models, "/metrics": metrics}).URL)
		if diff := cmp.Diff(want, identify(t, e)); diff != "" {
			t.Errorf("metrics %q (-want +got):\n%s", metrics, diff)
		}
	}
}

// faulty serves a script that answers nothing but its model list while down is set.
func faulty(t *testing.T, script *enginetest.Script, down *atomic.Bool) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() && r.URL.Path != "/v1/models" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		script.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// TestUnanswered: a server that does not answer for a while is as it was, and one that
// tells nothing any more is not.
func TestUnanswered(t *testing.T) {
	script := enginetest.NewScript(t, map[string]string{
		"/v1/models": models, "/version": `{"version":"1.2.0"}`, "/metrics": iterations, "/prometheus/metrics": "process_start_time_seconds 1.5e+09\n",
	})
	var down atomic.Bool
	e := open(t, faulty(t, script, &down))
	before := identify(t, e)
	down.Store(true)
	if diff := cmp.Diff(before, identify(t, e)); diff != "" {
		t.Errorf("unanswered (-before +after):\n%s", diff)
	}
	down.Store(false)
	for _, path := range []string{"/version", "/metrics", "/prometheus/metrics"} {
		script.Set(path, "")
	}
	want := &engine.Info{
		Kind: engine.TRTLLM, Models: []engine.Model{{ID: "Qwen3-8B", Ranks: 1}},
		Warnings: []engine.Warning{{Code: "no_cache_salt"}, {Code: "no_metrics"}},
	}
	if diff := cmp.Diff(want, identify(t, e)); diff != "" {
		t.Errorf("nothing is told any more (-want +got):\n%s", diff)
	}
}

// TestUsageUnasked: stream options that leave usage open have it included.
func TestUsageUnasked(t *testing.T) {
	const chat = "/v1/chat/completions"
	e := open(t, enginetest.NewScript(t, map[string]string{chat: `{}`}).URL)
	for body, want := range map[string]bool{
		`{}`: false, `{"stream_options":null}`: false, `{"stream_options":{}}`: true,
		`{"stream_options":{"include_usage":false}}`: false, `{"stream_options":{"include_usage":null}}`: false,
	} {
		resp, err := e.Open(t.Context(), engine.Target{Worker: 1}, enginetest.Request(t, chat, body, engine.Wishes{Usage: true}))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.UsageUnasked != want {
			t.Errorf("%s: unasked %t", body, resp.UsageUnasked)
		}
	}
}

func TestLoad(t *testing.T) {
	rows := map[string][]engine.Load{
		iterations: {
			{Rank: 0, Usage: 0.25, UsedBlocks: 250, TotalBlocks: 1000, Running: 3, Waiting: 2},
			{Rank: 1, TotalBlocks: 1000, Running: 1},
		},
		`[]`: {},
		`[{"numActiveRequests":1e300,"attentionDpRank":-1},{"numActiveRequests":1e300,"kvCacheStats":null}]`: {{Running: math.MaxInt32}},
	}
	for doc, want := range rows {
		got, err := open(t, enginetest.NewScript(t, map[string]string{"/metrics": doc}).URL).(*Engine).Load(t.Context())
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", doc, diff)
		}
	}
	for _, doc := range []string{"", "up 1\n"} {
		if got, err := open(t, enginetest.NewScript(t, map[string]string{"/metrics": doc}).URL).(*Engine).Load(t.Context()); err == nil {
			t.Errorf("%q: %v, want an error", doc, got)
		}
	}
}

func ptr[T any](v T) *T { return &v }

func TestWishes(t *testing.T) {
	const chat = "/v1/chat/completions"
	rows := []struct {
		name, path, body string
		wishes           engine.Wishes
		want             string
	}{
		{"none", chat, `{"model":"m"}`, engine.Wishes{ID: "x"}, `{"model":"m"}`},
		{"what is foreign goes", chat, `{"nvext":{},"messages":[],"metadata":{},"store":true,"rid":"1","return_token_ids":true,"functions":[]}`, engine.Wishes{}, `{"messages":[],"functions":[]}`},
		{"each time", chat, `{"rid":"1","a":1,"rid":"2"}`, engine.Wishes{}, `{"a":1}`},
		{"the limit has its older name", chat, `{"max_completion_tokens":7,"max_tokens":9}`, engine.Wishes{}, `{"max_tokens":7}`},
		{"if there is one", chat, `{"max_completion_tokens":null,"max_tokens":9}`, engine.Wishes{}, `{"max_tokens":9}`},
		{"an adapter by its path", chat, `{"model":"/loras/sql"}`, engine.Wishes{Model: "/loras/sql", Parent: "m"}, `{"model":"m","lora_request":{"lora_name":"/loras/sql","lora_int_id":1598946113,"lora_path":"/loras/sql"}}`},
		{"or the request's own", chat, `{"lora_request":{"lora_name":"a"}}`, engine.Wishes{Model: "a", Parent: "m"}, `{"lora_request":{"lora_name":"a"},"model":"m"}`},
		{"urgent", chat, `{}`, engine.Wishes{Priority: ptr[int32](100)}, `{"priority":0.55}`},
		{"most urgent", chat, `{}`, engine.Wishes{Priority: ptr[int32](math.MaxInt32)}, `{"priority":1}`},
		{"least urgent", chat, `{}`, engine.Wishes{Priority: ptr[int32](math.MinInt32)}, `{"priority":0}`},
		{"a salt", chat, `{}`, engine.Wishes{Salt: "tenant"}, `{"cache_salt":"tenant"}`},
		{"rather refused than shared", "/v1/completions", `{}`, engine.Wishes{Salt: "tenant"}, `{"cache_salt":"tenant"}`},
		{"greedy", chat, `{}`, engine.Wishes{Greedy: true}, `{"temperature":0,"top_p":1}`},
		{"a bound on reasoning", chat, `{}`, engine.Wishes{MaxThinking: ptr[uint32](64)}, `{"thinking_token_budget":64}`},
		{"usage", chat, `{}`, engine.Wishes{Usage: true}, `{"stream_options":{"include_usage":true,"continuous_usage_stats":false}}`},
		{"usage that was declined", chat, `{"stream_options":{"include_usage":false}}`, engine.Wishes{Usage: true}, `{"stream_options":{"include_usage":true,"continuous_usage_stats":false}}`},
		{"usage that comes anyway", chat, `{"stream_options":{}}`, engine.Wishes{Usage: true}, `{"stream_options":{}}`},
	}
	for _, row := range rows {
		script := enginetest.NewScript(t, map[string]string{row.path: `{}`})
		r := enginetest.Request(t, row.path, row.body, row.wishes)
		r.Ranked = true
		got := script.Sent(t, open(t, script.URL), r)
		if got.Body != row.want || got.Header.Get("X-Data-Parallel-Rank") != "" {
			t.Errorf("%s: header %v\n got %s\nwant %s", row.name, got.Header, got.Body, row.want)
		}
	}
	// An edit of the limit counts, not what it replaces.
	script := enginetest.NewScript(t, map[string]string{chat: `{}`})
	r := enginetest.Request(t, chat, `{"max_completion_tokens":7}`, engine.Wishes{}, openai.Edit{Key: "max_completion_tokens", Value: []byte("3")})
	if got := script.Sent(t, open(t, script.URL), r).Body; got != `{"max_tokens":3}` {
		t.Errorf("an edited limit: %s", got)
	}
}

func TestTokenize(t *testing.T) {
	script := enginetest.NewScript(t, map[string]string{"/_internal/tokenize": `{"count":2,"tokens":[5,6]}`})
	e := open(t, script.URL).(*Engine)
	got, err := e.Tokenize(t.Context(), &engine.TokenizeRequest{Prompt: openai.Value(`"a\n"`)})
	if diff := cmp.Diff(&engine.TokenizeResult{IDs: []uint32{5, 6}}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if body := script.Asked()[0].Body; body != `{"prompt":"a\n"}` {
		t.Errorf("asked for %s", body)
	}
	if _, err := e.Tokenize(t.Context(), &engine.TokenizeRequest{}); err == nil || len(script.Asked()) != 1 {
		t.Errorf("a chat: %v", err)
	}
	script.Set("/_internal/tokenize", `{"count":2}`)
	if _, err := e.Tokenize(t.Context(), &engine.TokenizeRequest{Prompt: openai.Value(`"a"`)}); err == nil {
		t.Error("no tokens: no error")
	}
	script.Set("/_internal/tokenize", "")
	n := len(script.Asked())
	for range 2 {
		if _, err := e.Tokenize(t.Context(), &engine.TokenizeRequest{Prompt: openai.Value(`"a"`)}); err == nil {
			t.Error("no route: no error")
		}
	}
	if asked := len(script.Asked()) - n; asked != 1 {
		t.Errorf("a server without the route was asked %d times", asked)
	}
}
