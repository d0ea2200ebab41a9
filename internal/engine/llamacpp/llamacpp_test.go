package llamacpp

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/enginetest"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
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
	models   = `{"models":[{"name":"qwen3"}],"object":"list","data":[{"id":"qwen3","object":"model","created":1785261214,"owned_by":"llamacpp","meta":{"vocab_type":2,"n_vocab":151936,"n_ctx_train":40960}}]}`
	propsDoc = `{"default_generation_settings":{"id":0,"n_ctx":4096,"params":{"n_predict":-1}},"total_slots":2,"model_path":"/models/qwen3.gguf","chat_template":"…","build_info":"b6123-abcdef","is_sleeping":false}`
	slotsDoc = `[{"id":0,"n_ctx":4096,"is_processing":true,"id_task":7,"n_prompt_tokens":1000,"n_prompt_tokens_processed":24,"n_prompt_tokens_cache":976,"next_token":[{"has_next_token":true,"n_decoded":24}]},
{"id":1,"n_ctx":4096,"is_processing":false,"id_task":5,"n_prompt_tokens":500,"next_token":[{"n_decoded":9}]}]`
	metricsDoc = "llamacpp:prompt_tokens_total 1000\nllamacpp:tokens_predicted_total 50\nllamacpp:requests_processing 1\nllamacpp:requests_deferred 3\n"
	loras      = `[{"id":0,"path":"/loras/sql.gguf","scale":0.0},{"id":1,"path":"C:\\loras\\law.gguf","scale":1.0},{"id":2,"path":"/other/sql.gguf","scale":0.0}]`
)

func all() map[string]string {
	return map[string]string{"/v1/models": models, "/props": propsDoc, "/slots": slotsDoc, "/metrics": metricsDoc, "/lora-adapters": loras}
}

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
	info := identify(t, open(t, enginetest.NewScript(t, all()).URL))
	m := engine.Model{ID: "qwen3", ContextLength: 4096, BlockSize: 16, TotalBlocks: 512, MaxSeqs: 2, Ranks: 1}
	sql, law := m, m
	sql.ID, sql.Parent, law.ID, law.Parent = "sql", "qwen3", "law", "qwen3"
	want := &engine.Info{
		Kind: engine.LlamaCpp, Version: "b6123-abcdef", Priority: engine.PriorityIgnored, Slots: 2, Life: "0",
		Models:   []engine.Model{m, sql, law},
		Warnings: []engine.Warning{{Code: "no_cache_salt"}, {Code: "no_events"}},
	}
	if diff := cmp.Diff(want, info); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestIdentifyLittle(t *testing.T) {
	for name, docs := range map[string]map[string]string{
		"nothing":  {},
		"nonsense": {"/props": `[]`, "/slots": `{}`, "/lora-adapters": `{}`},
		"absurd":   {"/props": `{"total_slots":-5,"default_generation_settings":{"n_ctx":-1}}`, "/slots": `[]`, "/lora-adapters": `[{"id":-1,"path":"x"},{}]`},
	} {
		docs["/v1/models"] = models
		info := identify(t, open(t, enginetest.NewScript(t, docs).URL))
		want := &engine.Info{
			Kind: engine.LlamaCpp, Priority: engine.PriorityIgnored,
			Models:   []engine.Model{{ID: "qwen3", BlockSize: 16, Ranks: 1}},
			Warnings: []engine.Warning{{Code: "no_cache_salt"}, {Code: "no_events"}, {Code: "no_metrics"}},
		}
		if diff := cmp.Diff(want, info); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	docs := map[string]string{"/v1/models": models, "/props": `{"total_slots":1e18,"default_generation_settings":{"n_ctx":1e18}}`}
	if m := identify(t, open(t, enginetest.NewScript(t, docs).URL)).Models[0]; m.TotalBlocks != math.MaxInt32/16 || m.MaxSeqs != maxSlots {
		t.Errorf("too much of everything: %+v", m)
	}
}

// TestLife: a server whose numbers begin anew was started anew.
func TestLife(t *testing.T) {
	unknown := math.NaN()
	var l life
	for i, row := range []struct {
		tasks, computed float64
		want            string
	}{
		{unknown, unknown, ""},
		{unknown, 100, "0"},
		{7, 200, "0"},
		{unknown, unknown, "0"},
		{9, unknown, "0"},
		{unknown, 10, "1"},
		{2, 20, "1"},
		{1, unknown, "2"},
		{1, 20, "2"},
	} {
		if got := l.observe(row.tasks, row.computed); got != row.want {
			t.Errorf("%d: life %q, want %q", i, got, row.want)
		}
	}
}

func TestRestart(t *testing.T) {
	script := enginetest.NewScript(t, all())
	e := open(t, script.URL)
	first := identify(t, e).Life
	script.Set("/metrics", strings.ReplaceAll(metricsDoc, "1000", "9"))
	if second := identify(t, e).Life; first == second {
		t.Errorf("both lives are %q", first)
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
	script := enginetest.NewScript(t, all())
	var down atomic.Bool
	e := open(t, faulty(t, script, &down)).(*Engine)
	before := identify(t, e)
	if _, err := e.Load(t.Context()); err != nil {
		t.Error(err)
	}
	down.Store(true)
	if diff := cmp.Diff(before, identify(t, e)); diff != "" {
		t.Errorf("unanswered (-before +after):\n%s", diff)
	}
	if got, err := e.Load(t.Context()); err == nil {
		t.Errorf("unanswered: load %+v, want an error", got)
	}
	down.Store(false)
	if loads, err := e.Load(t.Context()); err != nil || loads[0].Waiting != 3 {
		t.Errorf("answered again: %+v, %v: metrics are not asked for any more", loads, err)
	}
	for _, path := range []string{"/props", "/slots", "/lora-adapters", "/metrics"} {
		script.Set(path, "")
	}
	want := &engine.Info{
		Kind: engine.LlamaCpp, Priority: engine.PriorityIgnored, Life: before.Life,
		Models:   []engine.Model{{ID: "qwen3", BlockSize: 16, Ranks: 1}},
		Warnings: []engine.Warning{{Code: "no_cache_salt"}, {Code: "no_events"}, {Code: "no_metrics"}},
	}
	if diff := cmp.Diff(want, identify(t, e)); diff != "" {
		t.Errorf("nothing is told any more (-want +got):\n%s", diff)
	}
}

// TestForget: what comes back after another engine had the address is a new server.
func TestForget(t *testing.T) {
	var down atomic.Bool
	e := open(t, faulty(t, enginetest.NewScript(t, all()), &down)).(*Engine)
	before := identify(t, e)
	e.Forget()
	down.Store(true)
	if info := identify(t, e); info.Slots != 0 || info.Life != "" || len(info.Models) != 1 {
		t.Errorf("forgotten, and yet %+v", info)
	}
	down.Store(false)
	if after := identify(t, e).Life; after == before.Life {
		t.Errorf("both lives are %q", after)
	}
}

// TestOverlap: numbers that were asked for while others came in may be older than those
// and are no restart, whichever question was asked first.
func TestOverlap(t *testing.T) {
	var tokens atomic.Int64
	var hold atomic.Bool
	held, release := make(chan struct{}), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/models":
			io.WriteString(w, models)
		case "/slots":
			io.WriteString(w, `[{"is_processing":false}]`)
		case "/metrics":
			doc := fmt.Sprintf("llamacpp:prompt_tokens_total %d\n", tokens.Add(100))
			if hold.CompareAndSwap(true, false) {
				held <- struct{}{}
				<-release
			}
			io.WriteString(w, doc)
		default:
			http.NotFound(w, r)
		}
	}))
	defer srv.Close()
	e := open(t, srv.URL).(*Engine)
	ask := map[string]func(){
		"identify": func() { identify(t, e) },
		"load": func() {
			if _, err := e.Load(t.Context()); err != nil {
				t.Error(err)
			}
		},
	}
	want := identify(t, e).Life
	for first, slow := range ask {
		for second, quick := range ask {
			hold.Store(true)
			done := make(chan struct{})
			go func() { defer close(done); slow() }()
			<-held
			quick()
			release <- struct{}{}
			<-done
			if got := identify(t, e).Life; got != want || want == "" {
				t.Errorf("%s during %s: life %q, was %q", second, first, got, want)
			}
		}
	}
	tokens.Store(0)
	if got := identify(t, e).Life; got == want {
		t.Error("a restart is not seen any more")
	}
}

// TestOverlapEarlier: of two questions, the second one asked may have the older numbers.
func TestOverlapEarlier(t *testing.T) {
	e := open(t, "http://127.0.0.1:1").(*Engine)
	first, second := e.begin(), e.begin()
	if a, b := e.observe(first, nil, &metrics{computed: 300}), e.observe(second, nil, &metrics{computed: 200}); a != b || a == "" {
		t.Errorf("lives %q and %q", a, b)
	}
}

// TestManyAdapters: models and adapters together are bounded.
func TestManyAdapters(t *testing.T) {
	var list strings.Builder
	for i := range 2 * openaihttp.MaxListed {
		fmt.Fprintf(&list, `,{"id":%d,"path":"/loras/%d.gguf"}`, i, i)
	}
	docs := all()
	docs["/lora-adapters"] = "[" + list.String()[1:] + "]"
	info := identify(t, open(t, enginetest.NewScript(t, docs).URL))
	if n := len(info.Models); n != openaihttp.MaxListed || info.Warnings[len(info.Warnings)-1].Code != openaihttp.TooMany.Code {
		t.Errorf("%d models, %+v", n, info.Warnings)
	}
}

// TestUsageUnasked: the streams of completions have usage anyway.
func TestUsageUnasked(t *testing.T) {
	for path, want := range map[string]string{"/v1/chat/completions": `{"stream_options":{"include_usage":true}}`, "/v1/completions": `{}`} {
		script := enginetest.NewScript(t, map[string]string{path: `{}`})
		resp, err := open(t, script.URL).Open(t.Context(), engine.Target{Worker: 1}, enginetest.Request(t, path, `{}`, engine.Wishes{Usage: true}))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := script.Asked()[0].Body; got != want || resp.UsageUnasked != (path == "/v1/completions") {
			t.Errorf("%s: sent %s, unasked %t", path, got, resp.UsageUnasked)
		}
	}
}

func TestLoad(t *testing.T) {
	rows := map[string]struct {
		docs map[string]string
		want engine.Load
	}{
		"all":           {all(), engine.Load{Usage: 0.125, UsedBlocks: 64, TotalBlocks: 512, Running: 1, Waiting: 3}},
		"no metrics":    {map[string]string{"/slots": slotsDoc}, engine.Load{Usage: 0.125, UsedBlocks: 64, TotalBlocks: 512, Running: 1}},
		"no slots":      {map[string]string{"/metrics": metricsDoc}, engine.Load{Running: 1, Waiting: 3}},
		"earlier build": {map[string]string{"/slots": strings.NewReplacer("[{\"has", "{\"has", "24}]", "24}").Replace(slotsDoc)}, engine.Load{Usage: 0.125, UsedBlocks: 64, TotalBlocks: 512, Running: 1}},
		"absurd":        {map[string]string{"/slots": `[{"is_processing":true,"n_ctx":1e300,"n_prompt_tokens":-4,"next_token":7}]`}, engine.Load{TotalBlocks: math.MaxInt32 / 16, Running: 1}},
	}
	for name, row := range rows {
		e := open(t, enginetest.NewScript(t, row.docs).URL).(*Engine)
		got, err := e.Load(t.Context())
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff([]engine.Load{row.want}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	e := open(t, enginetest.NewScript(t, map[string]string{"/v1/models": models}).URL).(*Engine)
	identify(t, e)
	if got, err := e.Load(t.Context()); err == nil {
		t.Errorf("a server that tells nothing: %v, want an error", got)
	}
}

func ptr[T any](v T) *T { return &v }

func TestWishes(t *testing.T) {
	const chat = "/v1/chat/completions"
	rows := []struct {
		name, body string
		wishes     engine.Wishes
		want       string
	}{
		{"none", `{"priority":1}`, engine.Wishes{ID: "x", Priority: ptr[int32](5)}, `{"priority":1}`},
		{"an adapter by its number", `{"model":"law"}`, engine.Wishes{Model: "law", Parent: "qwen3"}, `{"model":"qwen3","lora":[{"id":1,"scale":1}]}`},
		{"a salt keeps out of the cache", `{"cache_salt":"a","cache_prompt":true}`, engine.Wishes{Salt: "b"}, `{"cache_prompt":false}`},
		{"of duplicates ours is left", `{"cache_prompt":true,"cache_prompt":true}`, engine.Wishes{Salt: "b"}, `{"cache_prompt":false}`},
		{"one that does not count", `{"cache_salt":"a"}`, engine.Wishes{Unsalted: true}, `{}`},
		{"greedy", `{}`, engine.Wishes{Greedy: true}, `{"temperature":0,"top_p":1}`},
		{"a bound on reasoning", `{}`, engine.Wishes{MaxThinking: ptr[uint32](0)}, `{"thinking_budget_tokens":0}`},
		{"usage", `{}`, engine.Wishes{Usage: true}, `{"stream_options":{"include_usage":true}}`},
	}
	for _, row := range rows {
		docs := all()
		docs[chat] = `{}`
		script := enginetest.NewScript(t, docs)
		e := open(t, script.URL)
		identify(t, e)
		r := enginetest.Request(t, chat, row.body, row.wishes)
		r.Header = http.Header{"X-Conversation-Id": {"c"}}
		got := script.Sent(t, e, r)
		if got.Body != row.want || got.Header.Get("X-Conversation-Id") != "" {
			t.Errorf("%s: header %v\n got %s\nwant %s", row.name, got.Header, got.Body, row.want)
		}
	}
}
