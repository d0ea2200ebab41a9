package stator

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/simengine"
	"github.com/stator-ai/stator/internal/simserver"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/qwen3"
	"github.com/stator-ai/stator/nvext"
)

// inMemory runs a server with simulated engines, on pipes instead of sockets, so
// that it works in virtual time.
func inMemory(t *testing.T, change func(*Config)) *http.Client {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Sim.Engines = 1
	change(&cfg)
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.addSims(); err != nil {
		t.Fatal(err)
	}
	srv.router.WaitChecked(t.Context())
	l := simserver.NewMemListener("stator")
	front := &http.Server{Handler: srv.Handler()}
	served := make(chan error, 1)
	go func() { served <- front.Serve(l) }()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		front.Close()
		<-served
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	return &http.Client{Transport: tr}
}

// said is what a client sees of a streamed chat.
type said struct {
	text   string
	first  time.Duration // until the first event
	tokens int
	prompt int
	cached int // -1 when the engine did not say

	routing *nvext.Routing // if it was asked for
}

// chat streams the answer to messages and measures.
func chat(t *testing.T, client *http.Client, messages []map[string]string, maxTokens int) said {
	t.Helper()
	return ask(t, client, map[string]any{"messages": messages, "max_tokens": maxTokens})
}

// ask streams the answer to a chat request and measures.
func ask(t *testing.T, client *http.Client, request map[string]any) said {
	t.Helper()
	request["model"] = "stator-sim"
	return askModel(t, client, request)
}

// askModel is ask for a request that names its model.
func askModel(t *testing.T, client *http.Client, request map[string]any) said {
	t.Helper()
	request["stream"] = true
	request["stream_options"] = map[string]any{"include_usage": true}
	body, _ := json.Marshal(request)
	start := time.Now()
	resp, err := client.Post("http://stator/v1/chat/completions", "application/json", strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out := said{cached: -1}
	for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
		data, ok := strings.CutPrefix(sc.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		if out.first == 0 {
			out.first = time.Since(start)
		}
		var chunk struct {
			Choices []struct {
				Delta struct{ Content string }
			}
			Usage *struct {
				Prompt     int `json:"prompt_tokens"`
				Completion int `json:"completion_tokens"`
				Details    *struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
			NVExt struct{ Routing *nvext.Routing }
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		for _, c := range chunk.Choices {
			out.text += c.Delta.Content
		}
		if r := chunk.NVExt.Routing; r != nil {
			out.routing = r
		}
		if u := chunk.Usage; u != nil {
			out.prompt, out.tokens = u.Prompt, u.Completion
			if u.Details != nil {
				out.cached = u.Details.Cached
			}
		}
	}
	return out
}

func message(role, content string) map[string]string {
	return map[string]string{"role": role, "content": content}
}

// TestWarmPrefix asks a simulated engine the same thing twice. The times to the
// first token are those of the profile, to the nanosecond, and so is their ratio.
func TestWarmPrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := inMemory(t, func(*Config) {})
		messages := []map[string]string{message("system", strings.Repeat("You are a careful assistant. ", 1300)), message("user", "Hello!")}
		cold, warm := chat(t, client, messages, 8), chat(t, client, messages, 8)

		// The first token comes with the pass that computes the last of the prompt.
		ttft := func(prompt, cached int) time.Duration {
			prefill := simengine.Linear.Prefill(&simengine.Batch{Prompts: 1, Prefix: cached, Tokens: prompt})
			decode := simengine.Linear.Decode(&simengine.Batch{Decodes: 1, Context: prompt})
			return nanoseconds(prefill) + nanoseconds(decode)
		}
		if cold.prompt < 7000 || cold.prompt > 8192 {
			t.Fatalf("the prompt has %d tokens, which is not about what fits into a pass", cold.prompt)
		}
		cached := (warm.prompt - 1) / 16 * 16 // the last token is computed in any case
		want := []said{
			{text: cold.text, first: ttft(cold.prompt, 0), tokens: 8, prompt: cold.prompt},
			{text: cold.text, first: ttft(warm.prompt, cached), tokens: 8, prompt: cold.prompt, cached: cached},
		}
		if diff := cmp.Diff(want, []said{cold, warm}, cmp.AllowUnexported(said{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		t.Logf("TTFT cold %v, warm %v: %.2f×", cold.first, warm.first, float64(cold.first)/float64(warm.first))
		if ratio := float64(cold.first) / float64(warm.first); ratio < 5 {
			t.Errorf("a warm prefix is %.2f times as fast as a cold one, want at least 5", ratio)
		}

		// The next turn has the first answer in it, which the engine generated and
		// need not compute again.
		first := chat(t, client, messages, 300)
		next := append(messages, message("assistant", first.text), message("user", "Go on."))
		second := chat(t, client, next, 8)
		if got, want := second.cached, (first.prompt+first.tokens-1)/16*16; got != want || want <= first.prompt {
			t.Errorf("the second turn found %d tokens in the cache, want %d: the prompt's %d and the answer's", got, want, first.prompt)
		}
		if want := ttft(second.prompt, second.cached); second.first != want {
			t.Errorf("the second turn took %v to the first token, want %v", second.first, want)
		}
	})
}

// TestTwoTurns holds a conversation with one of four engines. Its second turn finds
// the blocks there that the tokenizer says it has in common with the first turn and
// its answer; another engine has none of them.
func TestTwoTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := inMemory(t, func(c *Config) { c.Sim.Engines = 4 })
		on := func(worker uint64, messages []map[string]string) said {
			return ask(t, client, map[string]any{"messages": messages, "nvext": map[string]any{"backend_instance_id": worker}})
		}
		h := tokenize.Hashing{Seed: kv.HashSeed("", ""), Size: 16}
		prompt := func(messages []map[string]string) tokenize.Result {
			raw, _ := json.Marshal(messages)
			r, err := qwen3.Model().Chat(tokenize.Chat{Messages: raw}, h)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}

		messages := []map[string]string{message("system", "You know the coast, its harbours and its lights."), message("user", "Tell me about one of them.")}
		before := prompt(messages)
		first := on(3, messages)
		messages = append(messages, message("assistant", first.text), message("user", "And what is north of it?"))
		after := prompt(messages)

		answer, err := qwen3.Tokenizer().Encode(nil, []byte(first.text), false /* special */)
		if err != nil {
			t.Fatal(err)
		}
		// The end of turn is the last token of the answer, and is never computed.
		computed := kv.AppendBlocks(nil, h.Seed, slices.Concat(before.IDs, answer), h.Size)
		shared := 0
		for shared < len(computed) && computed[shared] == after.Blocks[shared] {
			shared++
		}
		if shared != len(computed) || shared <= len(before.Blocks) {
			t.Fatalf("%d blocks are shared of the %d that were computed, of which the prompt has %d", shared, len(computed), len(before.Blocks))
		}
		type usage struct{ Prompt, Completion, Cached int }
		elsewhere, second := on(2, messages), on(3, messages)
		want := []usage{{len(before.IDs), len(answer) + 1, 0}, {len(after.IDs), second.tokens, 0}, {len(after.IDs), second.tokens, shared * h.Size}}
		var got []usage
		for _, s := range []said{first, elsewhere, second} {
			got = append(got, usage{s.prompt, s.tokens, s.cached})
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("first turn, second turn elsewhere, second turn (-want +got):\n%s", diff)
		}
		if second.text != elsewhere.text {
			t.Errorf("two engines give different answers:\n%s\n%s", second.text, elsewhere.text)
		}
	})
}

// nanoseconds makes milliseconds into whole nanoseconds.
func nanoseconds(ms float64) time.Duration { return time.Duration(ms*1e6 + 0.5) }

// TestVirtualTime has a request wait until the clock is let go.
func TestVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		client := inMemory(t, func(c *Config) { c.Sim.Engines, c.Sim.VirtualTime = 2, true })
		answered := make(chan string, 1)
		go func() {
			resp, err := client.Post("http://stator/v1/completions", "application/json", strings.NewReader(`{"model":"stator-sim","prompt":"x","max_tokens":2,"nvext":{"request_timestamp_ms":250.5}}`))
			if err != nil {
				answered <- err.Error()
				return
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			answered <- string(body)
		}()
		synctest.Wait()
		if len(answered) > 0 {
			t.Fatalf("it was answered: %s", <-answered)
		}
		resp, err := client.Post("http://stator/sim/drain", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		drained, _ := io.ReadAll(resp.Body)
		// 16.516604 ms for the prompt, 4.426039 and 4.426069 for the tokens.
		if want := `{"now_ms":275.868712,"accepted":1,"completed":1}`; string(drained) != want {
			t.Errorf("drained: %s, want %s", drained, want)
		}
		if got, want := <-answered, `"stator":{"arrival_ms":250.5,"first_token_ms":271.442643,"end_ms":275.868712}`; !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("it took %v", d)
		}
	})
}

// TestSimSettingsReachTheEngine changes one setting after the other and looks at
// what the simulated engines are told. Each is one that an engine can be made
// with.
func TestSimSettingsReachTheEngine(t *testing.T) {
	modelled := func(change func(*simserver.Config)) simserver.Config {
		cfg := simserver.Config{
			Model: "stator-sim", Kind: simengine.VLLM, Vocabulary: simserver.Qwen3,
			ContextLength: 32768, BlockSize: 16, TotalBlocks: 16384, MaxBatchedTokens: 8192, Ranks: 1,
			Engine: &simengine.Config{
				Timing: simengine.Linear, Speedup: 1, DecodeSpeedup: 1, MaxSeqs: 256,
				Rules: simengine.Current, Victim: simengine.Newest, Accept: []float64{0.85, 0.3, 0, 0, 0},
			},
		}
		change(&cfg)
		return cfg
	}
	sglang := func(change func(*simengine.SGLangConfig)) simserver.Config {
		return modelled(func(c *simserver.Config) {
			c.Kind = simengine.SGLang
			c.Engine.SGLang = simengine.SGLangConfig{
				Policy: simengine.FIFO, MaxPrefillTokens: 16384, ClipMaxNewTokens: 4096, Conservativeness: 1,
			}
			change(&c.Engine.SGLang)
		})
	}
	bare := func(change func(*simserver.Config)) simserver.Config {
		return modelled(func(c *simserver.Config) {
			c.Engine = nil
			change(c)
		})
	}
	for _, tt := range []struct {
		name   string
		change func(*SimConfig)
		want   simserver.Config
	}{
		{"model", func(c *SimConfig) { c.Model = "m" }, modelled(func(c *simserver.Config) { c.Model = "m" })},
		{"adapters", func(c *SimConfig) { c.Adapters = []string{"a"} }, modelled(func(c *simserver.Config) { c.Adapters = []string{"a"} })},
		{"kind", func(c *SimConfig) { c.Kind = "sglang" }, sglang(func(*simengine.SGLangConfig) {})},
		{"tokenizer", func(c *SimConfig) { c.Tokenizer = "bytes" }, modelled(func(c *simserver.Config) { c.Vocabulary = simserver.Bytes })},
		{"seed", func(c *SimConfig) { c.Seed = 7 }, modelled(func(c *simserver.Config) { c.Seed = 7 })},
		{"profile", func(c *SimConfig) { c.Profile = "polynomial" }, modelled(func(c *simserver.Config) { c.Engine.Timing = simengine.Polynomial })},
		{"speedup", func(c *SimConfig) { c.Speedup = 2 }, modelled(func(c *simserver.Config) { c.Engine.Speedup = 2 })},
		{"no delay", func(c *SimConfig) { c.Speedup = 0 }, modelled(func(c *simserver.Config) {
			c.Engine.Timing, c.Engine.Speedup = simengine.Fixed{}, 0
		})},
		{"decode_speedup", func(c *SimConfig) { c.DecodeSpeedup = 3 }, modelled(func(c *simserver.Config) { c.Engine.DecodeSpeedup = 3 })},
		{"ttft", func(c *SimConfig) { c.Profile, c.TTFT = "fixed", new(time.Second) }, bare(func(c *simserver.Config) {
			c.TTFT, c.ITL = time.Second, 5*time.Millisecond
		})},
		{"itl", func(c *SimConfig) { c.Profile, c.ITL = "fixed", new(time.Duration(0)) }, bare(func(c *simserver.Config) {
			c.TTFT = 50 * time.Millisecond
		})},
		{"instant", func(c *SimConfig) { c.Profile = "instant" }, bare(func(*simserver.Config) {})},
		{"context_length", func(c *SimConfig) { c.ContextLength = 99 }, modelled(func(c *simserver.Config) { c.ContextLength = 99 })},
		{"block_size", func(c *SimConfig) { c.BlockSize = 32 }, modelled(func(c *simserver.Config) { c.BlockSize = 32 })},
		{"total_kv_blocks", func(c *SimConfig) { c.TotalKVBlocks = 99 }, modelled(func(c *simserver.Config) { c.TotalBlocks = 99 })},
		{"max_num_batched_tokens", func(c *SimConfig) { c.MaxNumBatchedTokens = 99 }, modelled(func(c *simserver.Config) { c.MaxBatchedTokens = 99 })},
		{"max_num_seqs", func(c *SimConfig) { c.MaxNumSeqs = 9 }, modelled(func(c *simserver.Config) { c.Engine.MaxSeqs = 9 })},
		{"ranks", func(c *SimConfig) { c.Ranks = 2 }, modelled(func(c *simserver.Config) { c.Ranks = 2 })},
		{"prefix_caching", func(c *SimConfig) { c.PrefixCaching = false }, modelled(func(c *simserver.Config) { c.Engine.NoPrefixCaching = true })},
		{"chunked_prefill", func(c *SimConfig) { c.ChunkedPrefill = false }, modelled(func(c *simserver.Config) { c.Engine.NoChunkedPrefill = true })},
		{"watermark", func(c *SimConfig) { c.Watermark = 0.5 }, modelled(func(c *simserver.Config) { c.Engine.Watermark = 0.5 })},
		{"preemption", func(c *SimConfig) { c.Preemption = "fifo" }, modelled(func(c *simserver.Config) { c.Engine.Victim = simengine.Oldest })},
		{"draft_tokens", func(c *SimConfig) { c.DraftTokens = 5 }, modelled(func(c *simserver.Config) { c.Engine.Draft = 5 })},
		{"draft_acceptance", func(c *SimConfig) { c.DraftTokens, c.DraftAcceptance = 1, []float64{1} }, modelled(func(c *simserver.Config) {
			c.Engine.Draft, c.Engine.Accept = 1, []float64{1}
		})},
		{"rules mocker", func(c *SimConfig) { c.Rules = "mocker" }, modelled(func(c *simserver.Config) { c.Engine.Rules = simengine.Mocker })},
		{"rules mocker-gated", func(c *SimConfig) { c.Rules = "mocker-gated" }, modelled(func(c *simserver.Config) { c.Engine.Rules = simengine.MockerGated })},
		{"schedule_policy fcfs", func(c *SimConfig) { c.Kind, c.SchedulePolicy = "sglang", "fcfs" },
			sglang(func(c *simengine.SGLangConfig) { c.Policy = simengine.FCFS })},
		{"schedule_policy lpm", func(c *SimConfig) { c.Kind, c.SchedulePolicy = "sglang", "lpm" },
			sglang(func(c *simengine.SGLangConfig) { c.Policy = simengine.LPM })},
		{"max_prefill_tokens", func(c *SimConfig) { c.Kind, c.MaxPrefillTokens = "sglang", 9 },
			sglang(func(c *simengine.SGLangConfig) { c.MaxPrefillTokens = 9 })},
		{"clip_max_new_tokens", func(c *SimConfig) { c.Kind, c.ClipMaxNewTokens = "sglang", 9 },
			sglang(func(c *simengine.SGLangConfig) { c.ClipMaxNewTokens = 9 })},
		{"schedule_conservativeness", func(c *SimConfig) { c.Kind, c.ScheduleConservativeness = "sglang", 0.25 },
			sglang(func(c *simengine.SGLangConfig) { c.Conservativeness = 0.25 })},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := DefaultConfig()
			tt.change(&cfg.Sim)
			if err := cfg.Validate(); err != nil {
				t.Fatal(err)
			}
			got, err := cfg.Sim.server()
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			server, err := simserver.New(got)
			if err != nil {
				t.Fatal(err)
			}
			server.Close()
		})
	}
}

// TestSimDefaults compares the defaults that are written down here with those of
// the engine model.
func TestSimDefaults(t *testing.T) {
	for _, kind := range []simengine.Kind{simengine.VLLM, simengine.SGLang} {
		sim := DefaultConfig().Sim
		sim.Kind = string(kind)
		cfg, err := sim.server()
		if err != nil {
			t.Fatal(err)
		}
		cfg.Engine.Kind, cfg.Engine.Blocks, cfg.Engine.BlockSize = kind, 8, 16
		ours, err := simengine.New(*cfg.Engine)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := simengine.New(simengine.Config{Kind: kind, Blocks: 8, BlockSize: 16})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(theirs.Config(), ours.Config()); d != "" {
			t.Errorf("%s (-model +here):\n%s", kind, d)
		}
	}
}

// TestNoDelay has the cache and the batches of a modelled engine, and none of its
// time.
func TestNoDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := inMemory(t, func(c *Config) { c.Sim.Speedup = 0 })
		messages := []map[string]string{message("user", strings.Repeat("Go on. ", 100))}
		start := time.Now()
		cold, warm := chat(t, client, messages, 40), chat(t, client, messages, 40)
		if d := time.Since(start); d != 0 {
			t.Errorf("it took %v", d)
		}
		if cold.tokens != 40 || cold.cached != 0 || warm.cached != (warm.prompt-1)/16*16 || warm.text != cold.text {
			t.Errorf("cold: %+v\nwarm: %+v", cold, warm)
		}
	})
}

// TestSimScheduling sees settings of the scheduler in what clients see.
func TestSimScheduling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The prompt is full blocks, so that its last token makes a difference.
		text := strings.Repeat("Go on, ", 100) + "go"
		first := chat(t, inMemory(t, func(*Config) {}), []map[string]string{message("user", text)}, 1)
		messages := []map[string]string{message("user", text+strings.Repeat(" on", 16-first.prompt%16))}
		twice := func(change func(*SimConfig)) (took time.Duration, second said) {
			client := inMemory(t, func(c *Config) { change(&c.Sim) })
			start := time.Now()
			chat(t, client, messages, 40)
			second = chat(t, client, messages, 40)
			return time.Since(start), second
		}
		usual, _ := twice(func(*SimConfig) {})
		if _, got := twice(func(c *SimConfig) { c.PrefixCaching = false }); got.cached != 0 {
			t.Errorf("without a cache %d tokens were found in it", got.cached)
		}
		if got, _ := twice(func(c *SimConfig) { c.DraftTokens, c.DraftAcceptance = 1, []float64{1} }); got > usual*2/3 {
			t.Errorf("two tokens at a time took %v, one %v", got, usual)
		}
		if got, _ := twice(func(c *SimConfig) { c.DecodeSpeedup = 4 }); got > usual*2/3 {
			t.Errorf("decoding four times as fast took %v instead of %v", got, usual)
		}
		// Engines compute the last token of a prompt in any case, the mocker does not.
		if _, got := twice(func(c *SimConfig) { c.Rules = "mocker" }); got.cached != got.prompt || got.prompt%16 != 0 {
			t.Errorf("the mocker found %d tokens of %d", got.cached, got.prompt)
		}
	})
}
