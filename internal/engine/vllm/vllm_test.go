package vllm

import (
	"context"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/enginetest"
	"github.com/stator-ai/stator/internal/engine/eventsocket"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
	"github.com/stator-ai/stator/internal/kv"
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

const models = `{"object":"list","data":[{"id":"Qwen/Qwen3-8B","object":"model","created":1785261214,"owned_by":"vllm","root":"Qwen/Qwen3-8B","parent":null,"max_model_len":40960,"permission":[{"id":"modelperm-1"}]},{"id":"sql","object":"model","created":1785261214,"owned_by":"vllm","root":"/loras/sql","parent":"Qwen/Qwen3-8B","max_model_len":null}]}`

const metricsText = `# HELP python_info Python platform information.
# TYPE python_info gauge
python_info{implementation="CPython",major="3",minor="12"} 1.0
process_start_time_seconds 1.7852600005e+09
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="Qwen/Qwen3-8B"} 3.0
vllm:num_requests_running{engine="1",model_name="Qwen/Qwen3-8B"} 0.0
vllm:num_requests_waiting{engine="0",model_name="Qwen/Qwen3-8B"} 2.0
vllm:num_requests_waiting{engine="1",model_name="Qwen/Qwen3-8B"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="Qwen/Qwen3-8B",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="Qwen/Qwen3-8B"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="Qwen/Qwen3-8B"} NaN
vllm:prompt_tokens_total{engine="0",model_name="Qwen/Qwen3-8B"} 12345.0
vllm:prompt_tokens_created{engine="0",model_name="Qwen/Qwen3-8B"} 1.7852600109e+09
vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="0",num_gpu_blocks="20001",sliding_window="None"} 1.0
vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="1",num_gpu_blocks="20001",sliding_window="None"} 1.0
`

const devPath = "/server_info?config_format=json"

const devInfo = `{"vllm_config":{"model_config":{"max_model_len":32768},"cache_config":{"block_size":32,"num_gpu_blocks":10001,"enable_prefix_caching":false},
"scheduler_config":{"policy":"fcfs","max_num_seqs":256,"max_num_batched_tokens":8192},
"parallel_config":{"data_parallel_size":2,"data_parallel_rank":0,"data_parallel_external_lb":false},
"kv_events_config":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:1","replay_endpoint":"tcp://*:11","topic":"kv@a@b"}},
"vllm_env":{},"system_env":{}}`

func describe(t *testing.T, opt eventsocket.Options, docs map[string]string) *engine.Info {
	t.Helper()
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
	info := describe(t, eventsocket.Options{Events: "off"}, map[string]string{"/v1/models": models, "/version": `{"version":"0.24.0"}`, "/metrics": metricsText})
	want := &engine.Info{
		Kind: engine.VLLM, Version: "0.24.0", Life: "1785260000.5",
		Models: []engine.Model{
			{ID: "Qwen/Qwen3-8B", ContextLength: 40960, BlockSize: 16, TotalBlocks: 10000, Ranks: 2},
			{ID: "sql", Parent: "Qwen/Qwen3-8B", ContextLength: 40960, BlockSize: 16, TotalBlocks: 10000, Ranks: 2},
		},
	}
	if diff := cmp.Diff(want, info); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestIdentifyInDevelopmentMode(t *testing.T) {
	info := describe(t, eventsocket.Options{}, map[string]string{"/v1/models": models, "/metrics": metricsText, devPath: devInfo})
	want := engine.Model{ID: "Qwen/Qwen3-8B", ContextLength: 40960, BlockSize: 32, TotalBlocks: 5000, Ranks: 2, MaxSeqs: 256, MaxBatchedTokens: 8192}
	if diff := cmp.Diff(want, info.Models[0]); diff != "" {
		t.Errorf("model (-want +got):\n%s", diff)
	}
	streams := []engine.EventStream{
		{Rank: 0, Address: "127.0.0.1:1", Replay: "127.0.0.1:11", Topic: "kv@a@b", Counted: true},
		{Rank: 1, Address: "127.0.0.1:2", Replay: "127.0.0.1:12", Topic: "kv@a@b", Counted: true},
	}
	if diff := cmp.Diff(streams, info.Streams); diff != "" {
		t.Errorf("streams (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"events_unreachable", "prefix_caching_off", "priority_ignored"}, codes(info)); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if info.Priority != engine.PriorityIgnored {
		t.Errorf("priority %s", info.Priority)
	}
}

// TestRanksOfOneServer: a server that reaches some of a deployment's ranks has those,
// counted from 0, with the sockets of what the deployment calls them.
func TestRanksOfOneServer(t *testing.T) {
	rows := []struct {
		name, metrics, parallel string
		ranks                   int
		address                 string
	}{
		{"metrics name one rank of many", strings.NewReplacer(`engine="0"`, `engine="2"`, `engine="1"`, `engine="3"`).Replace(metricsText), "", 2, "127.0.0.1:9002"},
		{"a port for each rank", metricsText, `{"data_parallel_size":8,"data_parallel_rank":5,"data_parallel_external_lb":true}`, 1, "127.0.0.1:9005"},
		{"a port for each node", metricsText, `{"data_parallel_size":8,"data_parallel_size_local":4,"data_parallel_rank":4,"data_parallel_hybrid_lb":true}`, 4, "127.0.0.1:9004"},
		{"one port", metricsText, `{"data_parallel_size":8}`, 8, "127.0.0.1:9000"},
		{"absurd", metricsText, `{"data_parallel_size":1e300}`, 1024, "127.0.0.1:9000"},
	}
	for _, row := range rows {
		docs := map[string]string{"/v1/models": models, "/metrics": row.metrics}
		if row.parallel != "" {
			docs[devPath] = `{"vllm_config":{"parallel_config":` + row.parallel + `}}`
		}
		info := describe(t, eventsocket.Options{Events: ":9000"}, docs)
		if info.Models[0].Ranks != row.ranks || len(info.Streams) != row.ranks || info.Streams[0].Address != row.address {
			t.Errorf("%s: %d ranks, %d streams, the first %+v", row.name, info.Models[0].Ranks, len(info.Streams), info.Streams[0])
		}
	}
}

// TestIdentifyLittle: whatever a server does not answer, or answers oddly, is left out.
func TestIdentifyLittle(t *testing.T) {
	for name, docs := range map[string]map[string]string{
		"nothing":  {},
		"nonsense": {"/version": `[]`, "/metrics": "\x00{", devPath: `{"vllm_config":"VllmConfig(model='x')"}`},
		"mistyped": {"/version": `{"version":7}`, "/metrics": `vllm:cache_config_info{block_size="None",num_gpu_blocks="-1"} 1`,
			devPath: `{"vllm_config":{"cache_config":{"block_size":"x"},"scheduler_config":[],"kv_events_config":null}}`},
	} {
		docs["/v1/models"] = models
		info := describe(t, eventsocket.Options{Events: "off"}, docs)
		want := engine.Model{ID: "Qwen/Qwen3-8B", ContextLength: 40960, Ranks: 1}
		if diff := cmp.Diff(want, info.Models[0]); diff != "" || codes(info)[0] != "no_metrics" {
			t.Errorf("%s: %v, model (-want +got):\n%s", name, codes(info), diff)
		}
	}
}

// pipes is a listener inside the process.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

func (p pipes) dial(context.Context) (net.Conn, error) {
	client, server := net.Pipe()
	p <- server
	return client, nil
}

// TestIdentifySlow: a server has longer for its configuration, which it makes the first
// time that it is asked, than for all else, and all is asked at the same time. What it
// does not answer is left out.
func TestIdentifySlow(t *testing.T) {
	docs := map[string]string{"/v1/models": models, "/metrics": metricsText, "/version": `{"version":"0.32.0"}`, devPath: devInfo}
	const never = time.Hour
	rows := []struct {
		name               string
		version, config    time.Duration // to answer
		took               time.Duration
		wantVersion        string
		blockSize, maxSeqs int
	}{
		{"at first", 0, 2700 * time.Millisecond, 2700 * time.Millisecond, "0.32.0", 32, 256},
		{"all late", 1900 * time.Millisecond, 3 * time.Second, 3 * time.Second, "0.32.0", 32, 256},
		{"hanging", never, never, 4 * time.Second, "", 16, 0},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				delays := map[string]time.Duration{"/version": row.version, devPath: row.config}
				srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					path := r.URL.RequestURI()
					select {
					case <-time.After(delays[path]):
					case <-r.Context().Done():
					}
					if docs[path] == "" {
						http.NotFound(w, r)
						return
					}
					io.WriteString(w, docs[path])
				})}
				ln := make(pipes)
				go srv.Serve(ln)
				defer srv.Close()
				base, err := openaihttp.New(openaihttp.Config{URL: "http://engine", Dial: ln.dial})
				if err != nil {
					t.Fatal(err)
				}
				defer base.Close()
				start := time.Now()
				info, err := New(base, eventsocket.Options{}).Identify(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if got := time.Since(start); got != row.took {
					t.Errorf("it took %v, want %v", got, row.took)
				}
				if m := info.Models[0]; info.Version != row.wantVersion || m.BlockSize != row.blockSize || m.MaxSeqs != row.maxSeqs {
					t.Errorf("version %q, %+v", info.Version, m)
				}
			})
		})
	}
}

// severalProcesses is what vLLM 0.32 with two ranks, and so with two processes that
// answer, says before its first request.
const severalProcesses = `# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:estimated_flops_per_gpu_total{engine="0",model_name="tiny"} 0.0
# TYPE vllm:kv_cache_usage_perc gauge
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="32",enable_prefix_caching="True",engine="0",num_gpu_blocks="262144"} 1.0
vllm:cache_config_info{block_size="32",enable_prefix_caching="True",engine="1",num_gpu_blocks="262144"} 1.0
`

const sourcesPath = "/kv_event_sources"

// source is what vLLM says about the sockets of a rank.
func source(events, replay string) string {
	return `{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"` + events + `","replay_endpoint":` + replay + `,"buffer_steps":10000,"hwm":100000,"max_queue_size":100000,"topic":""}`
}

// TestSources: where a server says that its ranks publish is where they are looked for,
// and as many ranks it has, without development mode and before its first request.
func TestSources(t *testing.T) {
	two := `{"1":` + source("tcp://*:2", `"tcp://*:12"`) + `,"0":` + source("tcp://*:7", `"tcp://*:17"`) + `}`
	streams := []engine.EventStream{
		{Rank: 0, Address: "127.0.0.1:7", Replay: "127.0.0.1:17", Counted: true},
		{Rank: 1, Address: "127.0.0.1:2", Replay: "127.0.0.1:12", Counted: true},
	}
	rows := []struct {
		name    string
		docs    map[string]string
		ranks   int
		blocks  int
		streams []engine.EventStream
		codes   []string
	}{
		{"two ranks", map[string]string{sourcesPath: two, "/metrics": severalProcesses}, 2, 131072, streams, []string{"events_unreachable"}},
		{"no metrics", map[string]string{sourcesPath: two}, 2, 0, streams, []string{"events_unreachable", "no_metrics"}},
		{"rather than how it was told", map[string]string{sourcesPath: two, devPath: devInfo, "/metrics": metricsText}, 2, 5000, streams,
			[]string{"events_unreachable", "prefix_caching_off", "priority_ignored"}},
		{"a later node", map[string]string{sourcesPath: `{"5":` + source("tcp://*:9", `null`) + `}`}, 1, 0,
			[]engine.EventStream{{First: 5, Address: "127.0.0.1:9", Counted: true}}, []string{"events_unreachable", "no_metrics"}},
		{"nothing is published", map[string]string{sourcesPath: `{}`, "/metrics": severalProcesses}, 2, 131072, nil, []string{"no_events"}},
		{"to nobody", map[string]string{sourcesPath: `{"0":{"enable_kv_cache_events":true,"publisher":"null","endpoint":"tcp://*:1"}}`, "/metrics": severalProcesses}, 2, 131072, nil, []string{"no_events"}},
	}
	for _, row := range rows {
		row.docs["/v1/models"] = models
		info := describe(t, eventsocket.Options{}, row.docs)
		if m := info.Models[0]; m.Ranks != row.ranks || m.TotalBlocks != row.blocks {
			t.Errorf("%s: %+v, want %d ranks of %d blocks", row.name, m, row.ranks, row.blocks)
		}
		if diff := cmp.Diff(row.streams, info.Streams); diff != "" {
			t.Errorf("%s: streams (-want +got):\n%s", row.name, diff)
		}
		if diff := cmp.Diff(row.codes, codes(info)); diff != "" {
			t.Errorf("%s: warnings (-want +got):\n%s", row.name, diff)
		}
	}
	for _, doc := range []string{`null`, `[]`, `{"detail":"Not Found"}`, `{"detail":{}}`, `{"-1":{}}`, `{"99999999999999999999":{}}`} {
		info := describe(t, eventsocket.Options{}, map[string]string{"/v1/models": models, sourcesPath: doc, devPath: devInfo})
		if len(info.Streams) != 2 || info.Streams[0].Address != "127.0.0.1:1" {
			t.Errorf("%s: streams %+v, want what the configuration says", doc, info.Streams)
		}
	}
}

func TestLoad(t *testing.T) {
	rows := map[string]struct {
		text string
		want []engine.Load
	}{
		"two ranks": {metricsText, []engine.Load{
			{Rank: 0, Usage: 0.25, UsedBlocks: 2500, Running: 3, Waiting: 2, TotalBlocks: 10000},
			{Rank: 1, TotalBlocks: 10000},
		}},
		"0.9.0":                    {"vllm:num_requests_running{model_name=\"m\"} 1.0\nvllm:gpu_cache_usage_perc{model_name=\"m\"} 0.5\n", []engine.Load{{Usage: 0.5, Running: 1}}},
		"the second node":          {"vllm:num_requests_running{engine=\"4\"} 1\nvllm:num_requests_running{engine=\"5\"} 2\n", []engine.Load{{Rank: 0, Running: 1}, {Rank: 1, Running: 2}}},
		"before the first request": {severalProcesses, []engine.Load{{Rank: 0, TotalBlocks: 131072}, {Rank: 1, TotalBlocks: 131072}}},
		"absurd":                   {"vllm:num_requests_running{engine=\"99999999999\"} 1\nvllm:num_requests_running{engine=\"0\"} 1e300\nvllm:kv_cache_usage_perc{engine=\"0\"} -3\n", []engine.Load{{Running: math.MaxInt32}}},
	}
	for name, row := range rows {
		e := adapter(t, enginetest.NewScript(t, map[string]string{"/metrics": row.text}).URL, eventsocket.Options{})
		got, err := e.Load(t.Context())
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for name, docs := range map[string]map[string]string{"no route": {}, "no series": {"/metrics": "up 1\n"}} {
		if loads, err := adapter(t, enginetest.NewScript(t, docs).URL, eventsocket.Options{}).Load(t.Context()); err == nil {
			t.Errorf("%s: %v, want an error", name, loads)
		}
	}
}

func ptr[T any](v T) *T { return &v }

func TestWishes(t *testing.T) {
	const chat = `{"model":"m", "messages":[],"priority":9,"cache_salt":"mine","stream":true}`
	rows := []struct {
		name, body string
		wishes     engine.Wishes
		want       string
	}{
		{"none", chat, engine.Wishes{}, chat},
		{"an adapter is a model", chat, engine.Wishes{Model: "sql", Parent: "m"}, `{"model":"sql", "messages":[],"priority":9,"cache_salt":"mine","stream":true}`},
		{"the lowest priority goes first", chat, engine.Wishes{Priority: ptr[int32](5)}, `{"model":"m", "messages":[],"priority":-5,"cache_salt":"mine","stream":true}`},
		{"the least urgent", `{}`, engine.Wishes{Priority: ptr[int32](math.MinInt32)}, `{"priority":2147483648}`},
		{"a salt is tagged", chat, engine.Wishes{Salt: "tenant"}, `{"model":"m", "messages":[],"priority":9,"cache_salt":"dynamo-cache-salt:tenant","stream":true}`},
		{"once", `{}`, engine.Wishes{Salt: "dynamo-cache-salt:tenant"}, `{"cache_salt":"dynamo-cache-salt:tenant"}`},
		{"a salt that does not count", chat, engine.Wishes{Unsalted: true}, `{"model":"m", "messages":[],"priority":9,"stream":true}`},
		{"greedy", `{"top_k":40,"temperature":1}`, engine.Wishes{Greedy: true}, `{"temperature":0,"top_p":1}`},
		{"usage", `{"stream_options":{"continuous_usage_stats":true}}`, engine.Wishes{Usage: true}, `{"stream_options":{"continuous_usage_stats":true,"include_usage":true}}`},
		{"a bound on reasoning", `{}`, engine.Wishes{MaxThinking: ptr[uint32](64)}, `{"thinking_token_budget":64}`},
		{"of duplicates ours is left", `{"priority":1,"cache_salt":"x","priority":2,"cache_salt":"y"}`, engine.Wishes{Priority: ptr[int32](3), Salt: "z"}, `{"priority":-3,"cache_salt":"dynamo-cache-salt:z"}`},
	}
	for _, row := range rows {
		script := enginetest.NewScript(t, map[string]string{"/v1/chat/completions": `{}`})
		row.wishes.ID = "id-1"
		r := enginetest.Request(t, "/v1/chat/completions", row.body, row.wishes)
		r.Ranked, r.Header = true, http.Header{"X-Request-Id": {"the-client's", "second"}}
		got := script.Sent(t, open(t, script.URL), r)
		if got.Body != row.want {
			t.Errorf("%s:\n got %s\nwant %s", row.name, got.Body, row.want)
		}
		if id := got.Header["X-Request-Id"]; len(id) != 1 || id[0] != "id-1" || got.Header.Get("X-Data-Parallel-Rank") != "1" {
			t.Errorf("%s: header %v", row.name, got.Header)
		}
	}
}

// TestSaltTag: blocks are found under the salt that events tell.
func TestSaltTag(t *testing.T) {
	if kv.HashSeed("", saltTag+"tenant") != kv.HashSeed("", "tenant") {
		t.Error("a salt with the tag is another salt")
	}
}

// TestPriorityIgnored: a server that does not heed priorities is not sent ours.
func TestPriorityIgnored(t *testing.T) {
	script := enginetest.NewScript(t, map[string]string{"/v1/models": models, devPath: devInfo, "/v1/chat/completions": `{}`})
	e := adapter(t, script.URL, eventsocket.Options{Events: "off"})
	if _, err := e.Identify(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := script.Sent(t, e, enginetest.Request(t, "/v1/chat/completions", `{}`, engine.Wishes{Priority: ptr[int32](5)}))
	if got.Body != `{}` {
		t.Errorf("sent %s", got.Body)
	}
}

// TestRefusedBound: a server without a reasoning parser refuses a bound once.
func TestRefusedBound(t *testing.T) {
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, string(body))
		switch {
		case r.URL.Path == "/v1/completions":
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, "no such thing")
		case strings.Contains(string(body), "thinking_token_budget"):
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"error":{"message":"thinking_token_budget is set but reasoning_config is not configured.","type":"BadRequestError","code":400}}`)
		}
	}))
	defer srv.Close()
	e := open(t, srv.URL).(*Engine)
	wishes := engine.Wishes{MaxThinking: ptr[uint32](8)}
	for range 2 {
		resp, err := e.Open(t.Context(), engine.Target{}, enginetest.Request(t, "/v1/chat/completions", `{"a":1}`, wishes))
		if err != nil || resp.Status != 200 {
			t.Fatalf("%+v, %v", resp, err)
		}
		resp.Body.Close()
	}
	if diff := cmp.Diff([]string{`{"a":1,"thinking_token_budget":8}`, `{"a":1}`, `{"a":1}`}, asked); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	e.unbounded.Store(false)
	resp, err := e.Open(t.Context(), engine.Target{}, enginetest.Request(t, "/v1/completions", `{}`, wishes))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); string(body) != "no such thing" || err != nil || e.unbounded.Load() {
		t.Errorf("another error: %q, %v", body, err)
	}
}

func TestCanary(t *testing.T) {
	script := enginetest.NewScript(t, map[string]string{"/v1/completions": `{}`})
	if err := open(t, script.URL).(*Engine).Canary(t.Context(), "a/b"); err != nil {
		t.Error(err)
	}
	if got := script.Asked()[0].Body; got != `{"model":"a/b","prompt":"a","max_tokens":1,"temperature":0}` {
		t.Errorf("asked for %s", got)
	}
}

func FuzzMetrics(f *testing.F) {
	f.Add([]byte(metricsText))
	f.Fuzz(func(t *testing.T, text []byte) {
		m := readMetrics(text)
		if len(m.engines) > 0 {
			if first, n := span(slices.Collect(maps.Keys(m.engines))); first < 0 || n < 1 {
				t.Errorf("ranks from %d, %d of them", first, n)
			}
		}
		for rank, l := range m.engines {
			if rank < 0 || l.Running < 0 || l.Waiting < 0 || !(l.Usage >= 0 && l.Usage <= 1) {
				t.Errorf("rank %d: %+v", rank, l)
			}
		}
	})
}
