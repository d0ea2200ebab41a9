package stator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/detect"
	"github.com/stator-ai/stator/internal/engine/enginetest"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/simengine"
	"github.com/stator-ai/stator/internal/simserver"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/qwen3"
)

// found opens an engine whose kind nobody says.
func found(t testing.TB, url string) engine.Engine {
	t.Helper()
	e, err := detect.New(openaihttp.Config{URL: url}, detect.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// TestEngineContract runs the contract of adapters over each dress, and compares what
// is found out about it with what it is.
func TestEngineContract(t *testing.T) {
	const blocks, context = 512, 8192
	want := map[simserver.Dress]engine.Info{
		simserver.DressVLLM: {
			Kind: engine.VLLM, Version: "0.26.0+sim", Priority: engine.PriorityHonoured,
			// One block is never used and is in the number.
			Models: []engine.Model{{ID: dressedModel, ContextLength: context, BlockSize: 16, TotalBlocks: blocks + 1, MaxBatchedTokens: 8192, MaxSeqs: 256, Ranks: 2}},
		},
		simserver.DressSGLang: {
			Kind: engine.SGLang, Version: "0.5.18+sim", Priority: engine.PriorityHonoured,
			Models: []engine.Model{{ID: dressedModel, ContextLength: context, BlockSize: 16, TotalBlocks: blocks, MaxBatchedTokens: 8192, MaxSeqs: 256, Ranks: 2}},
		},
		simserver.DressTRTLLM: { // once it has run something
			Kind: engine.TRTLLM, Version: "1.2.0+sim",
			Models: []engine.Model{{ID: dressedModel, BlockSize: 16, TotalBlocks: blocks, Ranks: 1}},
		},
		simserver.DressLlamaCpp: {
			Kind: engine.LlamaCpp, Version: "b6700-sim", Priority: engine.PriorityIgnored, Slots: 4,
			Models: []engine.Model{{ID: dressedModel, ContextLength: context, BlockSize: 16, TotalBlocks: 4 * context / 16, MaxSeqs: 4, Ranks: 1}},
		},
	}
	forDresses(t, func(t *testing.T, d simserver.Dress) {
		e := dress(t, d, func(c *simserver.Config) {
			c.PriorityScheduling = d != simserver.DressLlamaCpp
			if want[d].Models[0].Ranks > 1 {
				c.Ranks = want[d].Models[0].Ranks
			}
		})
		enginetest.Dressed(t, func(t *testing.T, url string) engine.Engine { return found(t, url) }, e.url())
		seen := found(t, e.url())
		if d == simserver.DressTRTLLM {
			if _, err := seen.Identify(t.Context()); err != nil { // its numbers are read away
				t.Fatal(err)
			}
			if got := post(http.DefaultClient, e.url()+"/v1/completions", map[string]any{"model": dressedModel, "prompt": "a", "max_tokens": 1}); !got.whole() {
				t.Fatal(got)
			}
		}
		info, err := seen.Identify(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := *info
		publish, replay := e.sim.EventAddrs()
		var streams []engine.EventStream
		for rank := range publish {
			streams = append(streams, engine.EventStream{
				Rank: uint32(rank), Address: here(publish[rank]), Replay: here(replay[rank]), Counted: d == simserver.DressVLLM,
			})
			if d == simserver.DressSGLang {
				streams[rank].BlockSize = 16
			}
		}
		if diff := cmp.Diff(streams, got.Streams); diff != "" {
			t.Errorf("streams (-want +got):\n%s", diff)
		}
		if d != simserver.DressTRTLLM && got.Life == "" {
			t.Error("it could not be told when it is started anew")
		}
		got.Engine, got.Streams, got.Life, got.Warnings = nil, nil, "", nil
		if diff := cmp.Diff(want[d], got); diff != "" {
			t.Errorf("identified (-want +got):\n%s", diff)
		}
	})
}

// here returns an address on all interfaces as one on this machine.
func here(addr string) string {
	return "127.0.0.1" + addr[strings.LastIndexByte(addr, ':'):]
}

// TestTransparent compares what a client sees with what the engine itself would have
// answered, but for what is another each time.
func TestTransparent(t *testing.T) {
	forDresses(t, func(t *testing.T, d simserver.Dress) {
		e := dress(t, d, nil)
		f := fleetOf(t, nil, e)
		for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
			for _, stream := range []bool{false, true} {
				for _, usage := range []string{"", "true", "false"} {
					if usage != "" && !stream {
						continue
					}
					q := map[string]any{"model": dressedModel, "max_tokens": 5, "seed": 7, "ignore_eos": true}
					if strings.Contains(path, "chat") {
						q["messages"] = []map[string]string{message("user", "Tell me a tale.")}
					} else {
						q["prompt"] = "Once upon a time"
					}
					if stream {
						q["stream"] = true
					}
					if usage != "" {
						q["stream_options"] = map[string]bool{"include_usage": usage == "true"}
					}
					post(http.DefaultClient, e.url()+path, q) // what it caches, it has cached
					direct := q
					if d == simserver.DressTRTLLM && stream && usage == "" {
						// It sends what nobody asked for.
						direct = map[string]any{"stream_options": map[string]bool{"include_usage": false}}
						for k, v := range q {
							direct[k] = v
						}
					}
					want, got := post(http.DefaultClient, e.url()+path, direct), f.ask(path, q)
					if !want.whole() || !got.whole() {
						t.Fatalf("%v\nwant %v\ngot %v", q, want, got)
					}
					// It tells the usage at the end of a completion, asked or not.
					hidden := d == simserver.DressLlamaCpp && stream && usage != "true" && q["prompt"] != nil
					if diff := cmp.Diff(steady(t, want, hidden), steady(t, got, hidden)); diff != "" {
						t.Errorf("%s stream %t usage %q (-engine +client):\n%s", path, stream, usage, diff)
					}
					if stream && usage != "true" && got.usage != nil && want.usage == nil {
						t.Errorf("%s: a usage that the client did not ask for: %s", path, got.body)
					}
				}
			}
		}
		f.settle()
		if n := scrape(t, f.client, "stator_cache_verdicts_total", `verdict="unknown"`); n != 0 {
			t.Errorf("of %v requests it is not known what was cached", n)
		}
		if n := scrape(t, f.client, "stator_cache_verdicts_total", `verdict="tokens_differ"`); n != 0 {
			t.Errorf("the tokens of %v requests differ", n)
		}
	})
}

// steady returns the documents of an answer without what changes from one to the next,
// and without the usage where that is to be hidden.
func steady(t *testing.T, h *heard, hidden bool) (out []map[string]any) {
	t.Helper()
	docs := h.events
	if docs == nil {
		docs = []string{h.body}
	}
	for _, text := range docs {
		if text == "[DONE]" {
			out = append(out, nil)
			continue
		}
		var doc map[string]any
		if err := json.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		for _, key := range []string{"id", "created"} {
			if doc[key] == nil {
				t.Errorf("no %s: %s", key, text)
			}
			delete(doc, key)
		}
		if timings, ok := doc["timings"].(map[string]any); ok {
			for key := range timings {
				if !strings.HasSuffix(key, "_n") {
					delete(timings, key)
				}
			}
		}
		if hidden {
			delete(doc, "usage")
		}
		out = append(out, doc)
	}
	return out
}

// TestTenantsShareNothing has two tenants send the same prompt. What one of them left
// in the cache the other does not find, and each finds its own again, where the engine
// can keep them apart; elsewhere nobody finds anything.
func TestTenantsShareNothing(t *testing.T) {
	forDresses(t, func(t *testing.T, d simserver.Dress) {
		f := fleetOf(t, nil, dress(t, d, nil))
		of := func(tenant string) func(map[string]any) {
			return both(streamed, func(q map[string]any) { nvextOf(q)["cache_salt"] = tenant })
		}
		for i, row := range []struct {
			tenant string
			warm   bool
		}{{"red", false}, {"blue", false}, {"red", true}, {"blue", true}, {"green", false}} {
			got := f.chat("shared", "?", of(row.tenant))
			if !got.whole() || got.routing == nil {
				t.Fatal(got)
			}
			warm := row.warm && d != simserver.DressLlamaCpp
			if (got.cached() > 0) != warm || got.cached() < 0 {
				t.Errorf("request %d, of %s: %d tokens cached, want some: %t", i, row.tenant, got.cached(), warm)
			}
			if n := *got.routing.PredictedCachedTokens; d != simserver.DressLlamaCpp && n != got.cached() {
				t.Errorf("request %d, of %s: %d tokens predicted, %d cached", i, row.tenant, n, got.cached())
			}
			f.settle()
		}
	})
}

// TestAdapters sends requests for an adapter by the name that each engine has for it.
func TestAdapters(t *testing.T) {
	forDresses(t, func(t *testing.T, d simserver.Dress) {
		e := dress(t, d, func(c *simserver.Config) { c.Adapters = []string{"coder", "poet"} })
		f := fleetOf(t, nil, e)
		if d == simserver.DressTRTLLM { // which does not say what it has
			if got := f.chat("x", "?", func(q map[string]any) { q["model"] = "poet" }); got.status != http.StatusNotFound {
				t.Errorf("an adapter that nobody lists: %v", got)
			}
			return
		}
		for i, row := range []struct {
			model string
			warm  bool
		}{{dressedModel, false}, {"poet", false}, {dressedModel + ":poet", true}, {dressedModel, true}, {"coder", false}} {
			got := f.chat("shared", "?", both(streamed, func(q map[string]any) { q["model"] = row.model }))
			if !got.whole() {
				t.Fatal(got)
			}
			if (got.cached() > 0) != row.warm {
				t.Errorf("request %d, to %s: %d tokens cached, want some: %t", i, row.model, got.cached(), row.warm)
			}
			if n := *got.routing.PredictedCachedTokens; d == simserver.DressVLLM && n != got.cached() {
				t.Errorf("request %d, to %s: %d tokens predicted, %d cached", i, row.model, n, got.cached())
			}
			asked := e.last(t)
			name, adapter := asked.member("model"), asked.member("lora")
			want, scale := strconv.Quote(row.model), ""
			_, lora, found := strings.Cut(row.model, ":")
			switch {
			case d == simserver.DressVLLM && found:
				want = strconv.Quote(lora)
			case d == simserver.DressSGLang && row.model != dressedModel && !found:
				want = strconv.Quote(dressedModel + ":" + row.model)
			case d == simserver.DressLlamaCpp:
				want = strconv.Quote(dressedModel)
				switch row.model {
				case "coder":
					scale = `[{"id":0,"scale":1}]`
				case "poet", dressedModel + ":poet":
					scale = `[{"id":1,"scale":1}]`
				}
			}
			if name != want || adapter != scale {
				t.Errorf("request %d, to %s: the engine was asked for %s with %q, want %s with %q", i, row.model, name, adapter, want, scale)
			}
			if d != simserver.DressSGLang { // whose events do not tell adapters apart
				f.settle()
			}
		}
	})
}

// TestPriorityReachesTheEngine has urgent requests overtake others that wait at the
// engine, in whichever direction that counts.
func TestPriorityReachesTheEngine(t *testing.T) {
	forDresses(t, func(t *testing.T, d simserver.Dress) {
		e := dress(t, d, func(c *simserver.Config) {
			if d != simserver.DressLlamaCpp {
				c.PriorityScheduling = true
				c.Engine.MaxSeqs = 1
			}
			c.Engine.Timing = simengine.Fixed{PrefillTime: time.Millisecond, DecodeTime: 5 * time.Millisecond}
		})
		f := fleetOf(t, nil, e)
		urgency := func(p int) func(map[string]any) {
			return func(q map[string]any) { nvextOf(q)["agent_hints"] = map[string]any{"priority": p} }
		}
		for p, want := range map[int]map[simserver.Dress]string{
			7:    {simserver.DressVLLM: "-7", simserver.DressSGLang: "7", simserver.DressTRTLLM: "0.5035"},
			-3:   {simserver.DressVLLM: "3", simserver.DressSGLang: "-3", simserver.DressTRTLLM: "0.4985"},
			5000: {simserver.DressVLLM: "-5000", simserver.DressSGLang: "5000", simserver.DressTRTLLM: "1"},
		} {
			if got := f.chat("x", "?", urgency(p)); !got.whole() {
				t.Fatal(got)
			}
			asked := e.last(t)
			if got := asked.member("priority"); got != want[d] {
				t.Errorf("priority %d became %q, want %q", p, got, want[d])
			}
		}
		if d == simserver.DressLlamaCpp {
			return
		}
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		q := explained("first", "?")
		q["model"], q["max_tokens"], q["ignore_eos"] = dressedModel, 8000, true
		streamed(q)
		body, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://stator/v1/chat/completions", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := f.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var tokens eventCounter
		left := make(chan struct{})
		go func() {
			defer close(left)
			defer resp.Body.Close()
			io.Copy(&tokens, resp.Body)
		}()
		ended := make(chan string, 2)
		loader := f.status(1).Info.Engine.(engine.Loader)
		for i, p := range []int{1, 9} {
			go func() {
				got := f.chat(fmt.Sprint("document", p), "?", both(urgency(p), func(q map[string]any) { q["max_tokens"], q["ignore_eos"] = 12, true }))
				if !got.whole() {
					t.Error(got)
				}
				ended <- fmt.Sprint("of priority ", p)
			}()
			await(t, "the request waits at the engine", func() error {
				if n := e.sim.Inflight(); n != i+2 {
					return fmt.Errorf("%d requests are there", n)
				}
				if d == simserver.DressTRTLLM {
					return nil // whose numbers are read by the router
				}
				loads, err := loader.Load(t.Context())
				if err == nil && (len(loads) != 1 || loads[0].Waiting != i+1) {
					err = fmt.Errorf("loads %+v", loads)
				}
				return err
			})
		}
		// What came during a step of the engine is seen by the next.
		seen := tokens.n.Load()
		await(t, "some more steps", func() error {
			if n := tokens.n.Load() - seen; n < 10 {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
		leave()
		<-left
		if a, b := <-ended, <-ended; a != "of priority 9" || b != "of priority 1" {
			t.Errorf("first came the one %s, then the one %s", a, b)
		}
		f.settle()
	})
}

// eventCounter counts the events of a stream.
type eventCounter struct{ n atomic.Int64 }

func (c *eventCounter) Write(b []byte) (int, error) {
	c.n.Add(int64(bytes.Count(b, []byte("data:"))))
	return len(b), nil
}

// TestRankReachesTheEngine pins requests to each rank. Its events come from that rank.
func TestRankReachesTheEngine(t *testing.T) {
	forDresses(t, func(t *testing.T, d simserver.Dress) {
		e := dress(t, d, func(c *simserver.Config) { c.Ranks = 3 })
		f := fleetOf(t, nil, e)
		for _, rank := range []uint32{2, 0, 1} {
			for _, warm := range []bool{false, true} {
				got := f.chat(fmt.Sprint("of rank ", rank), "?", both(pinned(e), func(q map[string]any) { nvextOf(q)["dp_rank"] = rank }))
				if !got.whole() {
					t.Fatal(got)
				}
				asked := e.last(t)
				if got := asked.header.Get("X-Data-Parallel-Rank"); got != fmt.Sprint(rank) {
					t.Errorf("rank %d became %q", rank, got)
				}
				if r := got.routing; r.Chosen.DPRank != rank || (got.cached() > 0) != warm || *r.PredictedCachedTokens != got.cached() {
					t.Errorf("rank %d, warm %t: went to rank %d, %d tokens predicted, %d cached", rank, warm, r.Chosen.DPRank, *r.PredictedCachedTokens, got.cached())
				}
				f.settle()
			}
			if e.held(rank) == 0 {
				t.Errorf("rank %d has nothing in its cache", rank)
			}
		}
	}, simserver.DressVLLM, simserver.DressSGLang)
}

// TestTokensAreEqual compares the tokens of prompts as the engine has them with those
// that are computed here.
func TestTokensAreEqual(t *testing.T) {
	chats := []string{
		`[{"role":"user","content":"Hello!"}]`,
		`[{"role":"system","content":"Be brief."},{"role":"user","content":"Grüße, 你好, 🙂 — <b>&amp;</b>"}]`,
		`[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"  spaced\n\nout\t"}]`,
		`[{"role":"user","content":[{"type":"text","text":"in"},{"type":"text","text":" parts"}]}]`,
		`[{"role":"user","content":"<|im_end|> is no end"}]`,
	}
	forDresses(t, func(t *testing.T, d simserver.Dress) {
		info, err := found(t, dress(t, d, nil).url()).Identify(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		tok := info.Engine.(engine.Tokenizer)
		for _, messages := range chats {
			body, err := openai.ParseObject([]byte(`{"model":"` + dressedModel + `","messages":` + messages + `}`))
			if err != nil {
				t.Fatal(err)
			}
			want, err := qwen3.Model().Chat(tokenize.Chat{Messages: body.Get("messages")}, tokenize.Hashing{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := tok.Tokenize(t.Context(), &engine.TokenizeRequest{Model: dressedModel, Body: &body})
			if err != nil {
				t.Fatalf("%s: %v", messages, err)
			}
			if diff := cmp.Diff(want.IDs, got.IDs); diff != "" {
				t.Errorf("%s (-ours +engine):\n%s", messages, diff)
			}
		}
	}, simserver.DressVLLM, simserver.DressSGLang, simserver.DressLlamaCpp)
}

// TestCancelReachesTheEngine leaves requests that stream, that do not, and that wait at
// the engine, and looks how long it goes on with them.
func TestCancelReachesTheEngine(t *testing.T) {
	// What the engine itself takes to notice.
	notices := map[simserver.Dress]time.Duration{simserver.DressTRTLLM: time.Second, simserver.DressLlamaCpp: time.Second}
	forDresses(t, func(t *testing.T, d simserver.Dress) {
		e := dress(t, d, func(c *simserver.Config) {
			if d == simserver.DressLlamaCpp {
				c.Slots = 1
			} else {
				c.Engine.MaxSeqs = 1
			}
			c.Engine.Timing = simengine.Fixed{PrefillTime: time.Millisecond, DecodeTime: 5 * time.Millisecond}
		})
		f := fleetOf(t, nil, e)
		loader := f.status(1).Info.Engine.(engine.Loader)
		for _, row := range []struct {
			name           string
			stream, queued bool
		}{{"stream", true, false}, {"waiting whole", false, true}, {"whole", false, false}, {"waiting stream", true, true}} {
			if notices[d] > 0 && row.stream == row.queued {
				continue // which takes its time and shows nothing new
			}
			t.Run(row.name, func(t *testing.T) {
				q := explained("endless", "?")
				q["model"], q["max_tokens"], q["ignore_eos"], q["stream"] = dressedModel, 6000, true, row.stream
				var leave []context.CancelFunc
				n := 1
				if row.queued {
					n = 2
				}
				left := make(chan struct{}, n)
				for i := range n {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					leave = append(leave, cancel)
					go func() {
						postContext(ctx, f.client, "http://stator/v1/chat/completions", q, nil)
						left <- struct{}{}
					}()
					await(t, "the request at the engine", func() error {
						if got := e.sim.Inflight(); got != i+1 {
							return fmt.Errorf("%d requests", got)
						}
						return nil
					})
				}
				began := time.Now()
				if row.queued { // the one that waits goes first
					leave[1]()
					await(t, "one request left", func() error {
						if got := e.sim.Inflight(); got != 1 {
							return fmt.Errorf("%d requests", got)
						}
						return nil
					})
				}
				leave[0]()
				for range n {
					<-left
				}
				await(t, "nothing left at the engine", func() error {
					if got := e.sim.Inflight(); got != 0 {
						return fmt.Errorf("%d requests", got)
					}
					if d == simserver.DressTRTLLM {
						return nil // whose numbers are read by the router
					}
					loads, err := loader.Load(t.Context())
					for _, l := range loads {
						if l.Running+l.Waiting > 0 {
							err = fmt.Errorf("%d running, %d waiting", l.Running, l.Waiting)
						}
					}
					return err
				})
				if took, most := time.Since(began), time.Duration(n)*notices[d]+4*time.Second; took > most {
					t.Errorf("the engine went on for %v", took)
				}
				f.settle()
			})
		}
		if d == simserver.DressSGLang {
			texts, aborts := e.calls("/v1/chat/completions"), e.calls("/abort_request")
			if len(aborts) != len(texts) {
				t.Fatalf("%d requests were left and %d aborted", len(texts), len(aborts))
			}
			rids := make(map[string]bool)
			for _, a := range texts {
				rids[a.member("rid")] = true
			}
			for _, a := range aborts {
				if !rids[a.member("rid")] {
					t.Errorf("aborted %s, which was not asked for", a.body)
				}
			}
		}
	})
}

// TestEngineOfAnyKind places requests on a server that is none of the known, by load
// and by what was sent.
func TestEngineOfAnyKind(t *testing.T) {
	watchLeaks(t)
	e := dress(t, simserver.Plain, nil)
	plain := newHTTPServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/models":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model","owned_by":"somebody"}]}`, dressedModel)
		case "/v1/chat/completions", "/health":
			e.ServeHTTP(w, r)
		default:
			http.NotFound(w, r)
		}
	}))
	f := fleetOf(t, func(c *Config) { c.Engines = []EngineConfig{{URL: plain.URL, ID: 1}} })
	f.engines = []*dressed{e}
	e.id = 1
	f.settle()
	if st := f.status(1); st.Info.Kind != engine.OpenAI || len(st.Info.Streams) != 0 {
		t.Fatalf("identified as %+v", st.Info)
	}
	for _, warm := range []bool{false, true} {
		got := f.chat("shared", "?", streamed)
		if !got.whole() || (*got.routing.PredictedCachedTokens > 0) != warm || (got.cached() > 0) != warm {
			t.Errorf("warm %t: predicted %d, cached %d: %v", warm, *got.routing.PredictedCachedTokens, got.cached(), got)
		}
		f.settle()
	}
}

// TestEngineUp has the metrics tell which of the configured engines can be used, also of
// one that never was there.
func TestEngineUp(t *testing.T) {
	e := dress(t, simserver.DressVLLM, nil)
	f := fleetOf(t, func(c *Config) {
		c.Engines = append(c.Engines, EngineConfig{URL: "http://127.0.0.1:1", ID: 9})
	}, e)
	up := func() map[uint64]bool {
		out := make(map[uint64]bool)
		for _, s := range f.srv.sampleEngines() {
			out[s.Worker] = s.Up
		}
		return out
	}
	if diff := cmp.Diff(map[uint64]bool{1: true, 9: false}, up()); diff != "" {
		t.Errorf("up (-want +got):\n%s", diff)
	}
	e.kill()
	await(t, "the engine is down", func() error {
		if up()[1] {
			return fmt.Errorf("it is up")
		}
		return nil
	})
	e.revive()
	await(t, "the engine is up", func() error {
		if !up()[1] {
			return fmt.Errorf("it is down")
		}
		return nil
	})
}
