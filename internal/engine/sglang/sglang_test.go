package sglang

import (
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/enginetest"
	"github.com/stator-ai/stator/internal/engine/eventsocket"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
)

func open(t *testing.T, url string) engine.Engine {
	return adapter(t, url, eventsocket.Options{Events: "off"})
}

func adapter(t *testing.T, url string, opt eventsocket.Options) *Engine {
	t.Helper()
	base, err := openaihttp.New(openaihttp.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(base.Close)
	return New(base, opt)
}

func TestContract(t *testing.T) { enginetest.Run(t, open) }

const models = `{"object":"list","data":[{"id":"Qwen/Qwen3-8B","object":"model","created":1785261214,"owned_by":"sglang","root":"Qwen/Qwen3-8B","parent":null,"max_model_len":40960}]}`

// info is a shortened /server_info of 0.5.13 or later.
const info = `{"model_path":"Qwen/Qwen3-8B","served_model_name":"Qwen/Qwen3-8B","context_length":null,"page_size":16,"dp_size":2,"tp_size":1,
"max_total_num_tokens":160000,"chunked_prefill_size":8192,"max_prefill_tokens":16384,"max_running_requests":null,"random_seed":482934821,
"disable_radix_cache":false,"disaggregation_mode":"null","enable_cache_report":true,"enable_metrics":true,"enable_lora":false,
"enable_priority_scheduling":false,"schedule_low_priority_values_first":false,"speculative_algorithm":null,
"kv_events_config":"{\"publisher\":\"zmq\",\"endpoint\":\"tcp://*:1\",\"replay_endpoint\":\"tcp://*:11\",\"topic\":\"kv\"}",
"kv_events":{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":1,"topic":"kv","block_size":16,"dp_size":2},
"internal_states":[{"memory_usage":{"token_capacity":160000},"effective_max_running_requests_per_dp":128},{"effective_max_running_requests_per_dp":128}],"version":"0.5.15"}`

func describe(t *testing.T, opt eventsocket.Options, docs map[string]string) *engine.Info {
	t.Helper()
	docs["/v1/models"] = models
	info, err := adapter(t, enginetest.NewScript(t, docs).URL, opt).Identify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func codes(info *engine.Info) (out []string) {
	for _, w := range info.Warnings {
		out = append(out, w.Code)
	}
	return out
}

func TestIdentify(t *testing.T) {
	got := describe(t, eventsocket.Options{}, map[string]string{"/server_info": info})
	for i := range got.Warnings {
		got.Warnings[i].Text = ""
	}
	want := &engine.Info{
		Kind: engine.SGLang, Version: "0.5.15", Life: "482934821", Priority: engine.PriorityIgnored,
		Models: []engine.Model{{ID: "Qwen/Qwen3-8B", ContextLength: 40960, BlockSize: 16, TotalBlocks: 10000, MaxBatchedTokens: 8192, MaxSeqs: 128, Ranks: 2}},
		Streams: []engine.EventStream{
			{Rank: 0, Address: "127.0.0.1:1", Replay: "127.0.0.1:11", Topic: "kv", BlockSize: 16},
			{Rank: 1, Address: "127.0.0.1:2", Replay: "127.0.0.1:12", Topic: "kv", BlockSize: 16},
		},
		Warnings: []engine.Warning{{Code: "events_unreachable"}, {Code: "priority_ignored"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestIdentifyOthers(t *testing.T) {
	rows := []struct {
		name     string
		path     string
		edit     *strings.Replacer
		events   string
		model    engine.Model
		warnings []string
		streams  int
	}{
		{"an older server", "/get_server_info", strings.NewReplacer(`"kv_events":{`, `"ignored":{`), "auto",
			engine.Model{BlockSize: 16, TotalBlocks: 10000, MaxBatchedTokens: 8192, MaxSeqs: 128, Ranks: 2}, []string{"events_unreachable", "priority_ignored"}, 2},
		{"a block for each token", "/server_info", strings.NewReplacer(`"page_size":16`, `"page_size":1`, `"block_size":16`, `"block_size":1`), "off",
			engine.Model{BlockSize: 1, TotalBlocks: 160000, MaxBatchedTokens: 8192, MaxSeqs: 128, Ranks: 2}, []string{"page_size_1", "priority_ignored"}, 0},
		{"no events", "/server_info", strings.NewReplacer(`"kv_events":{`, `"ignored":{`, `"kv_events_config":"`, `"ignored":"`), "auto",
			engine.Model{BlockSize: 16, TotalBlocks: 10000, MaxBatchedTokens: 8192, MaxSeqs: 128, Ranks: 2}, []string{"no_events", "priority_ignored"}, 0},
		{"little is told", "/server_info", strings.NewReplacer(`"enable_metrics":true,"enable_lora":false`, `"enable_metrics":false,"enable_lora":true`,
			`"enable_cache_report":true`, `"enable_cache_report":false`, `"disable_radix_cache":false`, `"disable_radix_cache":true`, `"enable_priority_scheduling":false`, `"enable_priority_scheduling":true`), "auto",
			engine.Model{BlockSize: 16, TotalBlocks: 10000, MaxBatchedTokens: 8192, MaxSeqs: 128, Ranks: 2},
			[]string{"adapters_not_told", "events_unreachable", "no_cached_tokens", "no_metrics", "prefix_caching_off"}, 2},
		{"odd types", "/server_info", strings.NewReplacer(`"page_size":16`, `"page_size":[]`, `"block_size":16`, `"block_size":-3`, `"dp_size":2`, `"dp_size":"two"`,
			`"version":"0.5.15"`, `"version":5`, `"internal_states":[`, `"internal_states":[7,`), "off",
			engine.Model{MaxBatchedTokens: 8192, Ranks: 1}, []string{"priority_ignored"}, 0},
		{"nothing is told", "/other", strings.NewReplacer(), "off", engine.Model{Ranks: 1}, nil, 0},
	}
	for _, row := range rows {
		got := describe(t, eventsocket.Options{Events: row.events}, map[string]string{row.path: row.edit.Replace(info)})
		row.model.ID, row.model.ContextLength = "Qwen/Qwen3-8B", 40960
		if diff := cmp.Diff(row.model, got.Models[0]); diff != "" {
			t.Errorf("%s: model (-want +got):\n%s", row.name, diff)
		}
		if diff := cmp.Diff(row.warnings, codes(got)); diff != "" || len(got.Streams) != row.streams {
			t.Errorf("%s: %d streams, warnings (-want +got):\n%s", row.name, len(got.Streams), diff)
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
	on := strings.NewReplacer(`"enable_priority_scheduling":false`, `"enable_priority_scheduling":true`, `"enable_metrics":true`, `"enable_metrics":false`).Replace(info)
	script := enginetest.NewScript(t, map[string]string{"/v1/models": models, "/get_server_info": on, chat: `{}`})
	var down atomic.Bool
	e := adapter(t, faulty(t, script, &down), eventsocket.Options{})
	identify := func() *engine.Info {
		t.Helper()
		got, err := e.Identify(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	before := identify()
	down.Store(true)
	if diff := cmp.Diff(before, identify()); diff != "" || before.Life == "" || len(before.Streams) != 2 {
		t.Errorf("unanswered (-before +after):\n%s", diff)
	}
	down.Store(false)
	if got := script.Sent(t, e, enginetest.Request(t, chat, `{}`, engine.Wishes{})); got.Body != `{"priority":0}` {
		t.Errorf("sent %s", got.Body)
	}
	script.Set("/get_server_info", "")
	want := []engine.Model{{ID: "Qwen/Qwen3-8B", ContextLength: 40960, Ranks: 1}}
	after := identify()
	if diff := cmp.Diff(want, after.Models); diff != "" || after.Life != "" || after.Priority != engine.PriorityUnknown {
		t.Errorf("nothing is told any more: %+v (-want +got):\n%s", after, diff)
	}
}

// TestUsageUnasked: a server that gives usage anyway is not asked for it.
func TestUsageUnasked(t *testing.T) {
	always := strings.Replace(info, `"enable_lora":false`, `"enable_lora":false,"stream_response_default_include_usage":true`, 1)
	for _, row := range []struct {
		info, want string
		unasked    bool
	}{
		{info, `{"stream_options":{"include_usage":true}}`, false},
		{always, `{}`, true},
	} {
		script := enginetest.NewScript(t, map[string]string{"/v1/models": models, "/server_info": row.info, chat: `{}`})
		e := open(t, script.URL)
		if _, err := e.Identify(t.Context()); err != nil {
			t.Fatal(err)
		}
		resp, err := e.Open(t.Context(), engine.Target{Worker: 1}, enginetest.Request(t, chat, `{}`, engine.Wishes{Usage: true}))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		asked := script.Asked()
		if got := asked[len(asked)-1].Body; got != row.want || resp.UsageUnasked != row.unasked {
			t.Errorf("sent %s, want %s; unasked %t", got, row.want, resp.UsageUnasked)
		}
	}
}

func ptr[T any](v T) *T { return &v }

const chat = "/v1/chat/completions"

func TestWishes(t *testing.T) {
	on := strings.Replace(info, `"enable_priority_scheduling":false`, `"enable_priority_scheduling":true`, 1)
	reversed := strings.Replace(on, `"schedule_low_priority_values_first":false`, `"schedule_low_priority_values_first":true`, 1)
	rows := []struct {
		name, info, path, body string
		wishes                 engine.Wishes
		want                   string
	}{
		{"none", "", chat, `{"model":"m"}`, engine.Wishes{Model: "m"}, `{"model":"m"}`},
		{"an adapter follows its model", "", chat, `{"model":"sql"}`, engine.Wishes{Model: "sql", Parent: "m"}, `{"model":"m:sql"}`},
		{"once", "", chat, `{"model":"m:sql"}`, engine.Wishes{Model: "m:sql", Parent: "m"}, `{"model":"m:sql"}`},
		{"the highest priority goes first", "", chat, `{}`, engine.Wishes{Priority: ptr[int32](5)}, `{"priority":5}`},
		{"as it is known to", on, chat, `{"priority":1}`, engine.Wishes{Priority: ptr[int32](5)}, `{"priority":5}`},
		{"or the lowest", reversed, chat, `{}`, engine.Wishes{Priority: ptr[int32](math.MinInt32)}, `{"priority":2147483648}`},
		{"each request has one", on, chat, `{}`, engine.Wishes{}, `{"priority":0}`},
		{"its own if there is", on, chat, `{"priority":3}`, engine.Wishes{}, `{"priority":3}`},
		{"none where they are off", info, chat, `{}`, engine.Wishes{Priority: ptr[int32](5)}, `{}`},
		{"other routes have none", on, "/v1/embeddings", `{}`, engine.Wishes{ID: "x"}, `{}`},
		{"a salt", "", chat, `{"cache_salt":"mine"}`, engine.Wishes{Salt: "tenant"}, `{"cache_salt":"tenant"}`},
		{"greedy", "", chat, `{}`, engine.Wishes{Greedy: true}, `{"temperature":0,"top_p":1}`},
		{"usage", "", chat, `{}`, engine.Wishes{Usage: true}, `{"stream_options":{"include_usage":true}}`},
		{"a bound on reasoning", "", chat, `{}`, engine.Wishes{MaxThinking: ptr[uint32](64)}, `{"custom_params":{"thinking_budget":64}}`},
		{"among others", "", chat, `{"custom_params":{"a":1,"thinking_budget":9}}`, engine.Wishes{MaxThinking: ptr[uint32](64)}, `{"custom_params":{"a":1,"thinking_budget":64}}`},
		{"an id", "", chat, `{"rid":"mine"}`, engine.Wishes{ID: "req-1"}, `{"rid":"` + rid("req-1") + `"}`},
		{"an id for tokens", "", "/v1/completions", `{"prompt":[1,2]}`, engine.Wishes{ID: "req-1"}, `{"prompt":[1,2],"rid":"` + rid("req-1") + `"}`},
		{"none for several prompts", "", "/v1/completions", `{"prompt":["a","b"]}`, engine.Wishes{ID: "req-1"}, `{"prompt":["a","b"]}`},
		{"none for several prompts of tokens", "", "/v1/completions", `{"prompt":[[1],[2]]}`, engine.Wishes{ID: "req-1"}, `{"prompt":[[1],[2]]}`},
		{"none for several answers", "", chat, `{"n":2}`, engine.Wishes{ID: "req-1"}, `{"n":2}`},
	}
	for _, row := range rows {
		script := enginetest.NewScript(t, map[string]string{"/v1/models": models, "/server_info": row.info, row.path: `{}`})
		e := open(t, script.URL)
		if row.info != "" {
			if _, err := e.Identify(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		r := enginetest.Request(t, row.path, row.body, row.wishes)
		r.Ranked = true
		got := script.Sent(t, e, r)
		if got.Body != row.want || got.Header.Get("X-Data-Parallel-Rank") != "1" {
			t.Errorf("%s: header %v\n got %s\nwant %s", row.name, got.Header, got.Body, row.want)
		}
	}
}

// TestAbort: ids are equally long, since aborting one aborts all that begin with it.
func TestAbort(t *testing.T) {
	script := enginetest.NewScript(t, map[string]string{"/abort_request": "ok"})
	e := open(t, script.URL).(*Engine)
	for _, id := range []string{"req-1", "req-10"} {
		if err := e.Abort(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	for i, id := range []string{"req-1", "req-10"} {
		if got := script.Asked()[i].Body; got != `{"rid":"`+rid(id)+`"}` || len(rid(id)) != 32 {
			t.Errorf("asked for %s", got)
		}
	}
	script.Set("/abort_request", "")
	if err := e.Abort(t.Context(), "req-1"); err == nil {
		t.Error("a server without the route: no error")
	}
}

const loads = `{"timestamp":"2026-08-01T00:00:00","version":"0.5.15","dp_rank_count":2,"loads":[
{"dp_rank":1,"num_running_reqs":0,"num_waiting_reqs":0,"num_used_tokens":0,"max_total_num_tokens":160000,"token_usage":0.0,"max_running_requests":128},
{"dp_rank":0,"num_running_reqs":3,"num_waiting_reqs":2,"num_waiting_uncached_tokens":900,"num_used_tokens":40000,"num_total_tokens":41000,"max_total_num_tokens":160000,"token_usage":0.25}]}`

const metricsText = `sglang:num_running_reqs{dp_rank="0",engine_type="unified",model_name="m",priority="",tp_rank="0"} 3.0
sglang:num_running_reqs{dp_rank="0",engine_type="unified",model_name="m",priority="5",tp_rank="0"} 2.0
sglang:num_running_reqs{dp_rank="1",engine_type="unified",model_name="m",priority="",tp_rank="0"} 0.0
sglang:num_running_reqs{dp_rank="0",engine_type="unified",model_name="m",priority="",tp_rank="1"} 3.0
sglang:num_queue_reqs{dp_rank="0",model_name="m",tp_rank="0"} 2.0
sglang:token_usage{dp_rank="0",model_name="m",tp_rank="0"} 0.25
sglang:num_used_tokens{dp_rank="0",model_name="m",tp_rank="0"} 40000.0
sglang:max_total_num_tokens{dp_rank="0",model_name="m",tp_rank="0"} 160000.0
sglang:max_total_num_tokens{dp_rank="1",model_name="m",tp_rank="0"} 160000.0
`

func TestLoad(t *testing.T) {
	want := []engine.Load{
		{Rank: 0, Usage: 0.25, UsedBlocks: 2500, Running: 3, Waiting: 2, TotalBlocks: 10000},
		{Rank: 1, TotalBlocks: 10000},
	}
	for name, docs := range map[string]map[string]string{
		"loads":   {"/v1/loads?include=core": loads, "/metrics": "nothing"},
		"metrics": {"/metrics": metricsText},
	} {
		docs["/v1/models"], docs["/server_info"] = models, info
		script := enginetest.NewScript(t, docs)
		e := open(t, script.URL).(*Engine)
		if _, err := e.Identify(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got, err := e.Load(t.Context())
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	}
	for name, docs := range map[string]map[string]string{"no route": {}, "no series": {"/metrics": "up 1\n"}, "no JSON": {"/v1/loads?include=core": "{"}} {
		if loads, err := open(t, enginetest.NewScript(t, docs).URL).(*Engine).Load(t.Context()); err == nil {
			t.Errorf("%s: %v, want an error", name, loads)
		}
	}
}

// TestProbe: the route that runs a token is never asked.
func TestProbe(t *testing.T) {
	for name, docs := range map[string]map[string]string{
		"loads": {loadsPath: loads}, "ping": {"/ping": "ok"}, "models": {"/v1/models": models},
	} {
		script := enginetest.NewScript(t, docs)
		e := open(t, script.URL)
		for range 2 {
			if err := e.Probe(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for i, a := range script.Asked() {
			if strings.Contains(a.Line, "health") || i > 2 && strings.Contains(a.Line, "loads") && name != "loads" {
				t.Errorf("%s: asked %s", name, a.Line)
			}
		}
	}
	script := enginetest.NewScript(t, map[string]string{"/health": "ok"})
	if err := open(t, script.URL).Probe(t.Context()); err == nil {
		t.Error("a server with neither: no error")
	}
}

func FuzzLoads(f *testing.F) {
	f.Add([]byte(loads), 16)
	f.Add([]byte(metricsText), 1)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		size = max(size, 1)
		got, _ := readLoads(b, size)
		for _, l := range append(got, readMetrics(b, size)...) {
			if l.Running < 0 || l.Waiting < 0 || l.UsedBlocks < 0 || l.TotalBlocks < 0 || !(l.Usage >= 0 && l.Usage <= 1) || l.Rank >= maxRank {
				t.Errorf("%+v", l)
			}
		}
	})
}
