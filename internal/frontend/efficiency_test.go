package frontend

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/internal/metrics"
)

// series returns what /metrics says now.
func (rg *rig) series(t testing.TB) map[string]float64 {
	t.Helper()
	resp, text := rg.get(t, "/metrics")
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("/metrics: %d", resp.StatusCode)
	}
	out := make(map[string]float64)
	for line := range strings.Lines(text) {
		if i := strings.LastIndexByte(line, ' '); line[0] != '#' {
			v, err := strconv.ParseFloat(strings.TrimSpace(line[i+1:]), 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			out[line[:i]] = v
		}
	}
	return out
}

// wantSeries checks the value of each series in want; one that is not there is 0.
func (rg *rig) wantSeries(t testing.TB, want map[string]float64) {
	t.Helper()
	got := rg.series(t)
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%s = %v, want %v", name, got[name], w)
		}
	}
}

// checkIdle checks that no component is still at work.
func checkIdle(t testing.TB, set *metrics.Set) {
	t.Helper()
	families, err := set.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if n := f.GetName(); n != "dynamo_component_inflight_requests" && n != "dynamo_component_thompson_active_requests" {
			continue
		}
		for _, m := range f.GetMetric() {
			if v := m.GetGauge().GetValue(); v != 0 {
				t.Errorf("%s%v = %v, want 0", f.GetName(), m.GetLabel(), v)
			}
		}
	}
}

const (
	processor = "dynamo_component_thompson_"
	missing   = `stator_kve_missing_usage_total{model="stator-sim",worker_id="1"}`
)

func kve(what, prefix string) string {
	return `stator_kve_` + what + `_tokens_total{model="stator-sim",prefix="` + prefix + `",worker_id="1"}`
}

// TestKVEfficiency: what engines say about their caches, in all the ways they say it.
func TestKVEfficiency(t *testing.T) {
	const (
		content = `data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}` + "\n\n"
		finish  = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
		done    = "data: [DONE]\n\n"
		unary   = `{"id":"a","choices":[{"index":0,"message":{"content":"x"},"text":"x","finish_reason":"stop"}]`
	)
	usage := func(key, more string) string {
		return `"` + key + `":{"prompt_tokens":70,"completion_tokens":2` + more + `}`
	}
	last := func(member string) string { return `data: {"choices":[],` + member + "}\n\n" }
	const cached = `,"prompt_tokens_details":{"cached_tokens":40}`
	for _, tc := range []struct {
		name, path, engine    string
		prompt, cached, lacks float64
		blocks                [3]float64
	}{
		{"stream", "chat/completions", content + finish + last(usage("usage", cached)) + done, 70, 40, 0, [3]float64{}},
		{"stream, a Dynamo worker's", "chat/completions", content + finish + last(usage("completion_usage", cached)) + done, 70, 40, 0, [3]float64{}},
		{"stream, nothing said about the cache", "chat/completions", content + finish + last(usage("usage", "")) + done, 70, 0, 0, [3]float64{}},
		{"stream, details null", "chat/completions", content + finish + last(usage("usage", `,"prompt_tokens_details":null`)) + done, 70, 0, 0, [3]float64{}},
		{"stream, in each chunk", "chat/completions",
			`data: {"choices":[{"index":0,"delta":{"content":"x"}}],"usage":{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":9}}}` + "\n\n" +
				finish + last(usage("usage", cached)) + last(`"usage":{"prompt_tokens":0}`) + done, 70, 40, 0, [3]float64{}},
		{"stream without usage", "chat/completions", content + finish + done, 0, 0, 1, [3]float64{}},
		{"stream of an engine that stops there", "chat/completions", content + finish + last(usage("usage", cached)), 70, 40, 0, [3]float64{}},
		{"stream with tiers", "chat/completions",
			content + finish + last(usage("usage", cached)+`,"nvext":{"cache_hit_breakdown":{"device_blocks":3,"host_blocks":2,"disk_blocks":1}}`) + done,
			70, 40, 0, [3]float64{3, 2, 1}},
		{"stream with absurd tiers", "chat/completions",
			content + finish + last(usage("usage", cached)+`,"nvext":{"cache_hit_breakdown":{"device_blocks":99999999999}}`) + done, 70, 40, 0, [3]float64{}},
		{"more cached than there is", "chat/completions", content + finish + last(usage("usage", `,"prompt_tokens_details":{"cached_tokens":400}`)) + done, 70, 70, 0, [3]float64{}},
		{"absurd", "chat/completions", content + finish + last(`"usage":{"prompt_tokens":99999999999}`) + done, 0, 0, 1, [3]float64{}},
		{"completion stream", "completions", `data: {"choices":[{"index":0,"text":"x","finish_reason":"stop"}],` + usage("usage", cached) + "}\n\n" + done, 70, 40, 0, [3]float64{}},
		{"unary", "chat/completions", unary + `,` + usage("usage", cached) + `}`, 70, 40, 0, [3]float64{}},
		{"unary, a Dynamo worker's", "chat/completions", unary + `,"usage":null,` + usage("completion_usage", cached) + `}`, 70, 40, 0, [3]float64{}},
		{"unary with tiers", "completions", unary + `,` + usage("usage", "") + `,"nvext":{"cache_hit_breakdown":{"host_blocks":2}}}`, 70, 0, 0, [3]float64{0, 2, 0}},
		{"unary without usage", "completions", unary + `}`, 0, 0, 1, [3]float64{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stream := strings.HasPrefix(tc.engine, "data:")
			rg := newRig(t, rigConfig{fault: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
				io.Copy(io.Discard, r.Body)
				if stream {
					sendStream(w, tc.engine, false)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, tc.engine)
			}})
			body := `{"model":"stator-sim","stream":` + strconv.FormatBool(stream) + `,"messages":[{"role":"user","content":"hi"}],"prompt":"hi","max_tokens":3}`
			for range 2 {
				if resp, got := rg.post(t, "/v1/"+tc.path, body); resp.StatusCode != 200 {
					t.Fatalf("status %d: %s", resp.StatusCode, got)
				}
			}
			rg.wantSeries(t, map[string]float64{
				processor + "requests_total":                         2,
				processor + "active_requests":                        0,
				processor + "request_latency_seconds_count":          2,
				processor + `routing_decisions_total{worker_id="1"}`: 2,
				processor + "kve_prompt_tokens_total":                2 * tc.prompt,
				processor + "kve_cached_tokens_total":                2 * tc.cached,
				processor + "kve_device_blocks_total":                2 * tc.blocks[0],
				processor + "kve_host_blocks_total":                  2 * tc.blocks[1],
				processor + "kve_disk_blocks_total":                  2 * tc.blocks[2],
				kve("prompt", "none"):                                2 * tc.prompt,
				kve("cached", "none"):                                2 * tc.cached,
				missing:                                              2 * tc.lacks,
			})
			checkIdle(t, rg.metrics)
		})
	}
}

// TestUnknownStaysUnknown: that an engine says nothing about its cache counts as nothing
// found, and is no verdict on what was predicted.
func TestUnknownStaysUnknown(t *testing.T) {
	const answer = `{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":70,"completion_tokens":1}}`
	rg := newRig(t, rigConfig{fault: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, answer)
	}})
	rg.post(t, "/v1/chat/completions", hello)
	rg.wantSeries(t, map[string]float64{
		processor + "kve_prompt_tokens_total":                                                 70,
		processor + "kve_cached_tokens_total":                                                 0,
		`dynamo_frontend_cached_tokens_count{model="stator-sim"}`:                             0,
		`stator_cache_verdicts_total{model="stator-sim",verdict="index_stale",worker_id="1"}`: 0,
		`stator_cache_actual_tokens_total{model="stator-sim",worker_id="1"}`:                  0,
	})
}

// TestPrefixClass: who names a prefix in any way is hinted, who names a session is not.
func TestPrefixClass(t *testing.T) {
	for _, tc := range []struct {
		name, ext string
		header    []string
		class     string
	}{
		{"nothing", ``, nil, "none"},
		{"other hints", `{"agent_hints":{"osl":5}}`, nil, "none"},
		{"hint", `{"agent_hints":{"prefix_id":"run7-d1"}}`, nil, "hinted"},
		{"annotation", `{"annotations":["prefix_id:run7-d1"]}`, nil, "hinted"},
		{"older header", ``, []string{"x-prefix-id", "run7-d1"}, "hinted"},
		{"session header", ``, []string{"x-dynamo-session-id", "s1"}, "session"},
		{"hint and session", `{"agent_hints":{"prefix_id":"p"}}`, []string{"x-dynamo-session-id", "s1"}, "hinted"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rg := newRig(t, rigConfig{})
			body := hello
			if tc.ext != "" {
				body = strings.Replace(hello, `{`, `{"nvext":`+tc.ext+`,`, 1)
			}
			if resp, got := rg.post(t, "/v1/chat/completions", body, tc.header...); resp.StatusCode != 200 {
				t.Fatalf("status %d: %s", resp.StatusCode, got)
			}
			got := rg.series(t)
			for _, class := range []string{"none", "hinted", "session"} {
				if counted := got[kve("prompt", class)] > 0; counted != (class == tc.class) {
					t.Errorf("counted as %s: %v, want %s", class, counted, tc.class)
				}
			}
		})
	}
}

// TestProcessorOutcomes: what is counted of requests that do not go well, or are none.
func TestProcessorOutcomes(t *testing.T) {
	status := func(code int, body string) func(http.ResponseWriter, *http.Request, http.Handler) {
		return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			io.WriteString(w, body)
		}
	}
	const chat = "/v1/chat/completions"
	usage := `"usage":{"prompt_tokens":7,"completion_tokens":1}`
	for _, tc := range []struct {
		name, path, body string
		engines          int
		fault            func(http.ResponseWriter, *http.Request, http.Handler)
		want             map[string]float64 // besides 0
	}{
		{"refused by all", chat, hello, 3, status(503, `{}`), map[string]float64{
			"requests_total": 1, "engine_errors_total": 3, `routing_decisions_total{worker_id="1"}`: 1,
			`routing_decisions_total{worker_id="2"}`: 1, `routing_decisions_total{worker_id="3"}`: 1}},
		{"an error of the engine", chat, hello, 1, status(500, `{"error":{"message":"m"}}`), map[string]float64{
			"requests_total": 1, "engine_errors_total": 1, `routing_decisions_total{worker_id="1"}`: 1}},
		{"an error of the client", chat, hello, 1, status(400, `{"error":{"message":"m"}}`), map[string]float64{
			"requests_total": 1, `routing_decisions_total{worker_id="1"}`: 1}},
		{"an error inside a stream", chat, helloStream, 1, func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			sendStream(w, `data: {"choices":[{"index":0,"delta":{"content":"x"}}],`+usage+"}\n\n"+`data: {"error":{"message":"m"}}`+"\n\ndata: [DONE]\n\n", false)
		}, map[string]float64{"requests_total": 1, "engine_errors_total": 1, `routing_decisions_total{worker_id="1"}`: 1}},
		{"a stream that breaks off", chat, helloStream, 1, func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			sendStream(w, `data: {"choices":[{"index":0,"delta":{"content":"x"}}],`+usage+"}\n\n", false)
		}, map[string]float64{"requests_total": 1, "engine_errors_total": 1, `routing_decisions_total{worker_id="1"}`: 1}},
		{"a question", chat, strings.Replace(hello, `{`, `{"nvext":{"annotations":["query_instance_id:"]},`, 1), 1, nil, map[string]float64{}},
		{"a pin on nobody", chat, strings.Replace(hello, `{`, `{"nvext":{"backend_instance_id":77},`, 1), 1, nil, map[string]float64{"requests_total": 1}},
		{"no model", chat, `{"model":"x","messages":[]}`, 1, nil, map[string]float64{}},
		{"an embedding", "/v1/embeddings", `{"model":"stator-sim","input":"x"}`, 1, status(200, `{"data":[],`+usage+`}`), map[string]float64{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rg := newRig(t, rigConfig{engines: tc.engines, fault: tc.fault})
			rg.post(t, tc.path, tc.body)
			for name, v := range rg.series(t) {
				short, ok := strings.CutPrefix(name, processor)
				if ok && v != tc.want[short] {
					t.Errorf("%s = %v, want %v", name, v, tc.want[short])
				}
				if strings.HasPrefix(name, "stator_kve") {
					t.Errorf("%s = %v, want no such series", name, v)
				}
			}
			checkIdle(t, rg.metrics)
		})
	}
}

// TestRouterErrors: nobody is found because all are busy.
func TestRouterErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rg := newBusyRig(t)
		const work = `{dynamo_component="backend",dynamo_endpoint="generate",dynamo_namespace=`
		rg.post(t, "/v1/chat/completions", hello)
		rg.wantSeries(t, map[string]float64{
			processor + "requests_total":                                             2,
			processor + "active_requests":                                            1,
			processor + "router_errors_total":                                        1,
			processor + "engine_errors_total":                                        0,
			"dynamo_component_requests_total" + work + `"dynamo",worker_id=""}`:      2,
			"dynamo_component_inflight_requests" + work + `"dynamo",worker_id=""}`:   1,
			"dynamo_component_requests_total" + work + `"workers",worker_id="1"}`:    1,
			"dynamo_component_inflight_requests" + work + `"workers",worker_id="1"}`: 1,
			`dynamo_component_requests_total{dynamo_component="router",dynamo_endpoint="find_worker",dynamo_namespace="dynamo",worker_id=""}`: 2,
			`dynamo_component_requests_total{dynamo_component="router",dynamo_endpoint="feedback",dynamo_namespace="dynamo",worker_id=""}`:    0,
		})
		time.Sleep(2 * time.Minute)
		rg.wantSeries(t, map[string]float64{
			"dynamo_component_request_duration_seconds_count" + work + `"workers",worker_id="1"}`:                                          1,
			`dynamo_component_requests_total{dynamo_component="router",dynamo_endpoint="feedback",dynamo_namespace="dynamo",worker_id=""}`: 1,
		})
		checkIdle(t, rg.metrics)
		rg.stop()
	})
}

// TestRouterServiceFindsWorkers: whoever sends requests itself asks for a worker as well.
func TestRouterServiceFindsWorkers(t *testing.T) {
	rg := newRig(t, rigConfig{})
	for _, body := range []string{`{"method":"new","request_id":"r1","tokens":[1,2,3]}`, `{"method":"mark_free","request_id":"r1"}`} {
		if resp, got := rg.post(t, "/router", body); resp.StatusCode != 200 {
			t.Fatalf("status %d: %s", resp.StatusCode, got)
		}
	}
	rg.wantSeries(t, map[string]float64{
		`dynamo_component_requests_total{dynamo_component="router",dynamo_endpoint="find_worker",dynamo_namespace="dynamo",worker_id=""}`: 1,
		`dynamo_component_requests_total{dynamo_component="router",dynamo_endpoint="feedback",dynamo_namespace="dynamo",worker_id=""}`:    1,
		processor + "requests_total": 0,
	})
	checkIdle(t, rg.metrics)
}
