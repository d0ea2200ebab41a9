package detect

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/enginetest"
	"github.com/stator-ai/stator/internal/engine/eventsocket"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
)

func detector(t *testing.T, url string, opt Options) *Engine {
	t.Helper()
	e, err := New(openaihttp.Config{URL: url}, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

var quiet = eventsocket.Options{Events: eventsocket.Off}

func open(t *testing.T, url string) engine.Engine { return detector(t, url, Options{Events: quiet}) }

func TestContract(t *testing.T) { enginetest.Run(t, open) }

// TestContractOfKinds: a kind that was said beforehand has its adapter at once.
func TestContractOfKinds(t *testing.T) {
	for _, kind := range []string{engine.VLLM, engine.SGLang, engine.TRTLLM, engine.LlamaCpp, engine.OpenAI} {
		t.Run(kind, func(t *testing.T) {
			enginetest.Run(t, func(t *testing.T, url string) engine.Engine {
				return detector(t, url, Options{Kind: kind, Events: quiet})
			})
		})
	}
}

func models(owner string) string {
	return fmt.Sprintf(`{"object":"list","data":[{"id":"m","object":"model","owned_by":%q,"max_model_len":4096}]}`, owner)
}

func TestIdentify(t *testing.T) {
	rows := []struct {
		name  string
		docs  map[string]string
		kind  string
		typed string
	}{
		{"vLLM", map[string]string{"/v1/models": models("vllm")}, engine.VLLM, "*vllm.Engine"},
		{"SGLang", map[string]string{"/v1/models": models("sglang")}, engine.SGLang, "*sglang.Engine"},
		{"TensorRT-LLM", map[string]string{"/v1/models": models("tensorrt_llm")}, engine.TRTLLM, "*trtllm.Engine"},
		{"llama.cpp", map[string]string{"/v1/models": models("llamacpp")}, engine.LlamaCpp, "*llamacpp.Engine"},
		{"renamed vLLM", map[string]string{"/v1/models": models("me"), "/metrics": "# HELP\nvllm:num_requests_running 1\n"}, engine.VLLM, "*vllm.Engine"},
		{"renamed SGLang", map[string]string{"/v1/models": models(""), "/get_server_info": `{"page_size":1}`}, engine.SGLang, "*sglang.Engine"},
		{"renamed TensorRT-LLM", map[string]string{"/v1/models": models("me"), "/metrics": `[{"iter":1}]`}, engine.TRTLLM, "*trtllm.Engine"},
		{"renamed llama.cpp", map[string]string{"/v1/models": models("me"), "/props": `{"total_slots":4}`}, engine.LlamaCpp, "*llamacpp.Engine"},
		{"another", map[string]string{"/v1/models": models("openai"), "/props": `{"a":1}`, "/server_info": `{"title":"x"}`, "/metrics": "up 1\n"}, engine.OpenAI, "<nil>"},
		{"a simulated engine", map[string]string{"/v1/models": `{"data":[{"id":"m","owned_by":"vllm","stator":{"engine":"sim"}}]}`}, engine.Sim, "<nil>"},
	}
	for _, row := range rows {
		e := open(t, enginetest.NewScript(t, row.docs).URL)
		info, err := e.Identify(t.Context())
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		if typed := fmt.Sprintf("%T", info.Engine); info.Kind != row.kind || typed != row.typed || info.Models[0].ID != "m" {
			t.Errorf("%s: %s with %s, want %s with %s", row.name, info.Kind, typed, row.kind, row.typed)
		}
		again, err := e.Identify(t.Context())
		if err != nil || again.Engine != info.Engine {
			t.Errorf("%s: the adapter was replaced: %v", row.name, err)
		}
	}
	for name, doc := range map[string]string{"no models": `{"data":[]}`, "no JSON": "<html>"} {
		if info, err := open(t, enginetest.NewScript(t, map[string]string{"/v1/models": doc}).URL).Identify(t.Context()); err == nil {
			t.Errorf("%s: %+v, want an error", name, info)
		}
	}
}

// TestTakenOver: an address that another engine takes over gets its adapter, and the
// first one its own when it comes back.
func TestTakenOver(t *testing.T) {
	script := enginetest.NewScript(t, map[string]string{"/v1/chat/completions": `{}`})
	e := open(t, script.URL)
	var first engine.Engine
	for i, row := range []struct{ owner, salt string }{
		{"vllm", "dynamo-cache-salt:s"}, {"sglang", "s"}, {"someone", "s"}, {"vllm", "dynamo-cache-salt:s"},
	} {
		script.Set("/v1/models", models(row.owner))
		info, err := e.Identify(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = info.Engine
		}
		if i == 3 && info.Engine != first {
			t.Error("the adapter was made anew")
		}
		got := script.Sent(t, e, enginetest.Request(t, "/v1/chat/completions", `{}`, engine.Wishes{Salt: "s"}))
		if want := `{"cache_salt":"` + row.salt + `"}`; got.Body != want {
			t.Errorf("%s was sent %s, want %s", row.owner, got.Body, want)
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

// TestUnanswered: a server that is known by its documents stays what it is while it does
// not answer, and becomes another when it does.
func TestUnanswered(t *testing.T) {
	script := enginetest.NewScript(t, map[string]string{"/v1/models": models("someone"), "/get_server_info": `{"page_size":16}`})
	var down atomic.Bool
	e := open(t, faulty(t, script, &down))
	identify := func() *engine.Info {
		t.Helper()
		info, err := e.Identify(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	before := identify()
	down.Store(true)
	script.Set("/v1/models", models("someone else"))
	for range 2 {
		if got := identify(); got.Kind != engine.SGLang || got.Engine != before.Engine || got.Models[0] != before.Models[0] {
			t.Errorf("unanswered: %+v, was %+v", got, before)
		}
	}
	down.Store(false)
	script.Set("/v1/models", models("a third"))
	script.Set("/get_server_info", "")
	if got := identify(); got.Kind != engine.OpenAI {
		t.Errorf("without its documents it is still %s", got.Kind)
	}
}

// TestForgotten: what an engine told is not taken for what the next one at its address
// does not answer, if another kind was there in between.
func TestForgotten(t *testing.T) {
	script := enginetest.NewScript(t, map[string]string{"/server_info": `{"page_size":16,"random_seed":5}`})
	var down atomic.Bool
	e := open(t, faulty(t, script, &down))
	for _, row := range []struct {
		owner string
		down  bool
		life  string
	}{{"sglang", false, "5"}, {"sglang", true, "5"}, {"someone", false, ""}, {"sglang", true, ""}} {
		script.Set("/v1/models", models(row.owner))
		if row.owner == "someone" {
			script.Set("/server_info", "")
		}
		down.Store(row.down)
		info, err := e.Identify(t.Context())
		if err != nil || info.Life != row.life || (info.Models[0].BlockSize == 16) != (row.life != "") {
			t.Errorf("%+v: %+v, %v", row, info, err)
		}
	}
}

// TestTooManyModels: whatever the kind, the operator is told.
func TestTooManyModels(t *testing.T) {
	for _, owner := range []string{"vllm", "sglang", "tensorrt_llm", "llamacpp", "someone"} {
		card := fmt.Sprintf(`{"id":"m","owned_by":%q}`, owner)
		doc := `{"data":[` + strings.Repeat(card+",", openaihttp.MaxListed) + card + `]}`
		info, err := open(t, enginetest.NewScript(t, map[string]string{"/v1/models": doc}).URL).Identify(t.Context())
		if err != nil || len(info.Models) != openaihttp.MaxListed || !slices.Contains(info.Warnings, openaihttp.TooMany) {
			t.Errorf("%s: %v, %+v", owner, err, info.Warnings)
		}
	}
}

// TestLookedOnce: a server of no known kind is not asked for everything each time.
func TestLookedOnce(t *testing.T) {
	script := enginetest.NewScript(t, map[string]string{"/v1/models": models("someone")})
	e := open(t, script.URL)
	for range 3 {
		if _, err := e.Identify(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, a := range script.Asked() {
		if strings.HasSuffix(a.Line, "/props") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// TestCancelled: a caller that has no time left gets what the model list says.
func TestCancelled(t *testing.T) {
	script := enginetest.NewScript(t, map[string]string{"/v1/models": models("someone")})
	for _, path := range []string{"/props", "/server_info", "/get_server_info", "/metrics"} {
		script.Hang(path)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	e := open(t, script.URL)
	got := make(chan *engine.Info, 1)
	go func() {
		info, err := e.Identify(ctx)
		if err != nil {
			t.Error(err)
		}
		got <- info
	}()
	script.Wait(t, 5)
	cancel()
	if info := <-got; info == nil || info.Kind != engine.OpenAI {
		t.Errorf("%+v", info)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{Kind: "triton"}, {Events: eventsocket.Options{Events: "somewhere"}}} {
		if _, err := New(openaihttp.Config{URL: "http://h"}, o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
	if _, err := New(openaihttp.Config{URL: "h"}, Options{Kind: Auto}); err == nil {
		t.Error("no URL: no error")
	}
}

func FuzzKindOfMetrics(f *testing.F) {
	f.Add([]byte("vllm:a 1\n"))
	f.Add([]byte(`[{"iter":1}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if kindOfMetrics(text) == "" {
			t.Error("no kind")
		}
	})
}
