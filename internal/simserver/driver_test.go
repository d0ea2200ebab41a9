package simserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/simengine"
)

// arrival is a prompt with the length of its answer and the time it is sent.
type arrival struct {
	at     time.Duration
	prompt []uint32
	output int
}

// body returns the arrival as a request, which streams.
func (a arrival) body() string {
	ids, _ := json.Marshal(a.prompt)
	return fmt.Sprintf(`{"prompt":%s,"max_tokens":%d,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}`, ids, a.output)
}

// predict runs arrivals, in the order of their times, through an engine of its own
// and returns the times of their tokens and how many prompt tokens each found in
// the cache.
func predict(t *testing.T, cfg Config, arrivals []arrival) (tokens [][]time.Duration, cached []int) {
	t.Helper()
	cfg, err := cfg.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	model, err := cfg.model()
	if err != nil {
		t.Fatal(err)
	}
	e, err := simengine.New(model)
	if err != nil {
		t.Fatal(err)
	}
	requests := make([]simengine.Request, len(arrivals))
	tokens = make([][]time.Duration, len(arrivals))
	var now time.Duration
	for next := 0; next < len(arrivals) || e.Busy(); {
		if !e.Busy() {
			now = max(now, arrivals[next].at)
		}
		for ; next < len(arrivals) && arrivals[next].at <= now; next++ {
			a := arrivals[next]
			whole := slices.Concat(a.prompt, cfg.Vocabulary.load().write(cfg.Seed, a.prompt, a.output, false))
			requests[next] = simengine.Request{Prompt: len(a.prompt), MaxOutput: a.output, Owner: next}
			requests[next].Content = &contents{prompt: kv.AppendBlocks(nil, kv.HashSeed("", ""), whole, cfg.BlockSize)}
			e.Receive(&requests[next])
		}
		p := e.Step()
		now += p.Duration
		for _, o := range p.Outputs {
			i := o.Request.Owner.(int)
			for range o.Tokens {
				tokens[i] = append(tokens[i], now)
			}
		}
	}
	for i := range requests {
		cached = append(cached, requests[i].Cached())
	}
	return tokens, cached
}

// numbers returns n token ids, different ones for every from.
func numbers(from, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32((from + i*i) % 256)
	}
	return out
}

// TestModelTimes sends requests over HTTP and compares the times at which their
// tokens come with those of the model, to the nanosecond.
func TestModelTimes(t *testing.T) {
	const s = time.Second
	prompt := numbers(1, 2000)
	for _, tc := range []struct {
		name     string
		cfg      Config
		arrivals []arrival
	}{
		{"one request", Config{}, []arrival{{0, prompt, 5}}},
		{"the same prompt again", Config{}, []arrival{{0, prompt, 5}, {1 * s, prompt, 5}}},
		{"part of the prompt again", Config{}, []arrival{{0, prompt, 5}, {1 * s, slices.Concat(prompt[:999], numbers(3, 50)), 5}}},
		{"side by side", Config{}, []arrival{{0, prompt, 40}, {50 * time.Millisecond, numbers(2, 700), 40}, {51 * time.Millisecond, numbers(5, 9000), 3}, {70 * time.Millisecond, prompt, 40}}},
		{"more than fit", Config{TotalBlocks: 200, MaxBatchedTokens: 512}, []arrival{{0, prompt, 300}, {1, numbers(2, 1100), 300}, {2, numbers(5, 900), 300}}},
		{"one at a time", Config{Engine: &simengine.Config{MaxSeqs: 1}}, []arrival{{0, prompt, 30}, {1, numbers(2, 1100), 30}, {2, prompt, 30}}},
		{"twice as fast", Config{Engine: &simengine.Config{Speedup: 2, Timing: simengine.Polynomial}}, []arrival{{0, prompt, 30}, {3, prompt, 30}}},
		{"speculative", Config{Engine: &simengine.Config{Draft: 2}}, []arrival{{0, prompt, 30}, {3, prompt, 30}}},
		{"no time at all", modelled(Config{}, 0, 0), []arrival{{0, prompt, 30}, {3, prompt, 30}}},
		{"sglang", Config{Kind: simengine.SGLang}, []arrival{{0, prompt, 40}, {50 * time.Millisecond, numbers(2, 700), 40}, {5 * s, prompt, 40}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.cfg.Engine == nil {
				tc.cfg.Engine = &simengine.Config{}
			}
			want, wantCached := predict(t, tc.cfg, tc.arrivals)
			synctest.Test(t, func(t *testing.T) {
				srv := newServer(t, tc.cfg)
				_, client := serve(t, srv)
				start := time.Now()
				got, cached := make([][]time.Duration, len(want)), make([]int, len(want))
				done := make(chan int)
				for i, a := range tc.arrivals {
					go func() {
						defer func() { done <- i }()
						time.Sleep(a.at)
						resp, err := client.Post("http://sim/v1/completions", "application/json", strings.NewReader(a.body()))
						if err != nil {
							t.Error(err)
							return
						}
						defer resp.Body.Close()
						if since := time.Since(start); since != a.at {
							t.Errorf("the header came after %v", since)
						}
						var last string
						got[i], last = eventTimes(t, resp.Body, start)
						var r response
						if err := json.Unmarshal([]byte(last), &r); err != nil || r.Usage == nil || r.Usage.Details == nil {
							t.Errorf("%v in %s", err, last)
							return
						}
						cached[i] = r.Usage.Details.Cached
					}()
				}
				for range tc.arrivals {
					<-done
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("times (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(wantCached, cached); diff != "" {
					t.Errorf("cached tokens (-want +got):\n%s", diff)
				}
				synctest.Wait()
				if r := srv.ranks[0]; r.driven || r.engine.Busy() {
					t.Error("the rank is driven without work")
				}
			})
		})
	}
}

// eventTimes reads a stream and returns when each token came, and the last object.
func eventTimes(t *testing.T, body io.Reader, start time.Time) (tokens []time.Duration, last string) {
	t.Helper()
	buf := make([]byte, 1<<20)
	var rest string
	for {
		n, err := body.Read(buf)
		rest += string(buf[:n])
		for {
			event, after, ok := strings.Cut(rest, "\n\n")
			if !ok {
				break
			}
			rest = after
			switch data := strings.TrimPrefix(event, "data: "); {
			case data == "[DONE]":
			case strings.Contains(data, `"choices":[]`):
				last = data
			default:
				tokens, last = append(tokens, time.Since(start)), data
			}
		}
		if err != nil {
			if err != io.EOF {
				t.Error(err)
			}
			return tokens, last
		}
	}
}

// TestCachedTokens follows what the cache has of a prompt from request to request,
// in both forms of an answer.
func TestCachedTokens(t *testing.T) {
	for _, kind := range []simengine.Kind{simengine.VLLM, simengine.SGLang} {
		t.Run(string(kind), func(t *testing.T) { testCachedTokens(t, kind) })
	}
}

func testCachedTokens(t *testing.T, kind simengine.Kind) {
	cfg := modelled(Config{Kind: kind, Adapters: []string{"tuned", "other"}, Ranks: 2}, 0, 0)
	s := newServer(t, cfg)
	ids, _ := json.Marshal(numbers(1, 200))
	for _, tc := range []struct {
		name, members string
		want          int
		headers       []string
	}{
		{name: "cold", members: ``, want: 0},
		{name: "warm", members: ``, want: 192},
		{name: "another rank", want: 0, headers: []string{"X-Data-Parallel-Rank: 1"}},
		{name: "salt, cold", members: `,"cache_salt":"a"`, want: 0},
		{name: "salt, warm", members: `,"cache_salt":"a"`, want: 192},
		{name: "other salt", members: `,"cache_salt":"b"`, want: 0},
		{name: "adapter, cold", members: `,"model":"tuned"`, want: 0},
		{name: "adapter, warm", members: `,"model":"tuned"`, want: 192},
		{name: "other adapter", members: `,"model":"other"`, want: 0},
		{name: "adapter and salt", members: `,"model":"tuned","cache_salt":"a"`, want: 0},
		{name: "the model by name", members: `,"model":"stator-sim"`, want: 192},
		{name: "several choices", members: `,"n":3`, want: 192},
	} {
		headers := append([]string{"X-Data-Parallel-Rank: 0"}, tc.headers...)
		body := fmt.Sprintf(`{"prompt":%s,"max_tokens":4%s`, ids, tc.members)
		if tc.want == 0 { // it leaves no trace, except by way of the other form
			if strings.Contains(tc.name, "cold") {
				r := unary(t, s, textPath, body+`}`, headers...)
				if r.Usage.Details == nil || r.Usage.Details.Cached != 0 {
					t.Errorf("%s: usage %+v", tc.name, r.Usage)
				}
				continue
			}
		} else if r := unary(t, s, textPath, body+`}`, headers...); r.Usage.Details == nil || r.Usage.Details.Cached != tc.want {
			t.Errorf("%s: usage %+v, want %d cached", tc.name, r.Usage, tc.want)
		}
		chunks := stream(t, s, textPath, body+`,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`, headers...)
		for i, c := range chunks {
			if c.Usage.Details == nil || c.Usage.Details.Cached != tc.want {
				t.Errorf("%s: chunk %d: usage %+v, want %d cached", tc.name, i, c.Usage, tc.want)
			}
		}
	}
	two, _ := json.Marshal([][]uint32{numbers(1, 200), numbers(9, 50)})
	if r := unary(t, s, textPath, fmt.Sprintf(`{"prompt":%s}`, two), "X-Data-Parallel-Rank: 0"); r.Usage.Details.Cached != 192 {
		t.Errorf("one prompt of two: %d cached, want 192", r.Usage.Details.Cached)
	}
	if r := unary(t, s, textPath, fmt.Sprintf(`{"prompt":%s}`, two), "X-Data-Parallel-Rank: 0"); r.Usage.Details.Cached != 192+48 {
		t.Errorf("both prompts: %d cached, want 240", r.Usage.Details.Cached)
	}
	if r := unary(t, newServer(t, Config{}), textPath, `{"prompt":"x"}`); r.Usage.Details != nil {
		t.Errorf("without a model the usage tells of a cache: %+v", r.Usage.Details)
	}
}

// TestSecondTurn holds a conversation: what the engine has generated is found in
// the cache when it comes back as part of the next prompt.
func TestSecondTurn(t *testing.T) {
	s := newServer(t, modelled(Config{Seed: 1}, 0, 0))
	first := unary(t, s, chatPath, `{`+hello+`,"return_token_ids":true}`)
	text, _ := json.Marshal(content(first, 0))
	second := unary(t, s, chatPath, `{"messages":[{"role":"user","content":"Hello"},{"role":"assistant","content":`+string(text)+`},{"role":"user","content":"Go on."}],"return_token_ids":true}`)
	whole := slices.Concat(first.Prompt, first.Choices[0].TokenID)
	if got := second.Prompt[:len(whole)]; !slices.Equal(got, whole) {
		t.Fatalf("the second prompt does not begin with the first turn:\n%v\n%v", got, whole)
	}
	// The last token of an answer is not computed.
	want := (len(whole) - 1) / 16 * 16
	if got := second.Usage.Details.Cached; got != want || want <= len(first.Prompt) {
		t.Errorf("%d cached, want %d, of which the first prompt has %d", got, want, len(first.Prompt))
	}
}

func TestAdapters(t *testing.T) {
	s := newServer(t, modelled(Config{Model: "base", Adapters: []string{"tuned"}, Seed: 3}, 0, 0))
	var models struct {
		Data []struct{ ID, Parent, Root string }
	}
	if err := json.Unmarshal(call(s, "GET", "/v1/models", "").Body.Bytes(), &models); err != nil {
		t.Fatal(err)
	}
	want := []struct{ ID, Parent, Root string }{{"base", "", ""}, {"tuned", "base", "tuned"}}
	if diff := cmp.Diff(want, models.Data); diff != "" {
		t.Errorf("models (-want +got):\n%s", diff)
	}
	base, tuned := unary(t, s, textPath, `{"prompt":"x"}`), unary(t, s, textPath, `{"prompt":"x","model":"tuned"}`)
	if base.Model != "base" || tuned.Model != "tuned" || base.Choices[0].Text != tuned.Choices[0].Text {
		t.Errorf("%+v\n%+v", base, tuned)
	}
	if w := call(s, "POST", textPath, `{"prompt":"x","model":"base:tuned"}`); w.Code != 404 {
		t.Errorf("base:tuned on vLLM: status %d", w.Code)
	}
	sglang := newServer(t, modelled(Config{Kind: simengine.SGLang, Model: "base", Adapters: []string{"tuned"}}, 0, 0))
	if r := unary(t, sglang, textPath, `{"prompt":"x","model":"base:tuned"}`); r.Model != "base:tuned" {
		t.Errorf("base:tuned on SGLang answers as %q", r.Model)
	}
}

// TestTooLarge refuses prompts that the cache can never hold, and ends answers
// where it is full.
func TestTooLarge(t *testing.T) {
	s := newServer(t, modelled(Config{Vocabulary: Bytes, TotalBlocks: 4}, 0, 0))
	const want = `{"error":{"message":"The KV cache of this engine holds 64 tokens. However, your messages resulted in 65 tokens. Please reduce the length of the messages.","type":"BadRequestError","param":null,"code":400}}`
	for _, stream := range []string{"", `,"stream":true`} {
		if w := call(s, "POST", textPath, `{"prompt":"`+strings.Repeat("x", 65)+`"`+stream+`}`); w.Code != 400 || w.Body.String() != want {
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
	}
	for n, answer := range map[int]int{64: 1, 63: 2, 1: 64} {
		r := unary(t, s, textPath, `{"prompt":"`+strings.Repeat("x", n)+`","max_tokens":100,"ignore_eos":true}`)
		if r.Usage.Completion != answer || r.Choices[0].Finish != "length" {
			t.Errorf("prompt of %d: %d tokens, finish %q, want %d, length", n, r.Usage.Completion, r.Choices[0].Finish, answer)
		}
	}
}

// TestRejected pretends that an engine refuses what the server let pass.
func TestRejected(t *testing.T) {
	s := newServer(t, modelled(Config{Vocabulary: Bytes}, 0, 0))
	e, err := simengine.New(simengine.Config{Blocks: 4, BlockSize: 16})
	if err != nil {
		t.Fatal(err)
	}
	s.ranks[0].engine = e
	body := `{"prompt":"` + strings.Repeat("x", 65) + `"`
	if w := call(s, "POST", textPath, body+`}`); w.Code != 400 || !strings.Contains(w.Body.String(), "resulted in 65 tokens") {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	w := call(s, "POST", textPath, body+`,"stream":true}`)
	if got := w.Body.String(); !strings.HasPrefix(got, `data: {"error":{"message":"The KV cache`) || !strings.HasSuffix(got, "}}\n\ndata: [DONE]\n\n") {
		t.Errorf("stream %q", got)
	}
}

// TestEvents sees that the cache's changes come out in order, at the right time
// and for good.
func TestEvents(t *testing.T) {
	type heard struct {
		At     time.Duration
		Source kv.Source
		Epoch  uint64
		Seq    uint64
		Blocks []kv.Block
		Parent kv.BlockID
	}
	prompt := numbers(1, 40)
	generated := Qwen3.load().write(0, prompt, 20, false)
	blocks := kv.AppendBlocks(nil, kv.HashSeed("", ""), slices.Concat(prompt, generated), 16)
	const ms = time.Millisecond
	for _, early := range []bool{false, true} {
		t.Run(fmt.Sprint("early ", early), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []heard
				var batches []*kv.Batch
				cfg := modelled(Config{Worker: 7, Ranks: 2, Epoch: 5, EarlyEvents: early}, 90*ms, 10*ms)
				start := time.Now()
				cfg.Events = func(b *kv.Batch) {
					batches = append(batches, b)
					for _, e := range b.Events {
						got = append(got, heard{time.Since(start), b.Source, b.Epoch, b.Seq, e.Blocks, e.Parent})
					}
				}
				_, client := serve(t, newServer(t, cfg))
				req, _ := http.NewRequest("POST", "http://sim/v1/completions", strings.NewReader(arrival{0, prompt, 20}.body()))
				req.Header.Set("X-Data-Parallel-Rank", "1")
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				io.Copy(io.Discard, resp.Body)
				source := kv.Source{Worker: 7, Rank: 1}
				// Two blocks of the prompt; a third is full when the eighth token
				// of the answer is computed, by the pass that gives the ninth.
				want := []heard{
					{100 * ms, source, 5, 0, blocks[:2], 0},
					{180 * ms, source, 5, 1, blocks[2:3], blocks[1].ID},
				}
				if early {
					want[0].At, want[1].At = 0, 170*ms
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				if len(batches) != 2 {
					t.Errorf("%d batches, want 2", len(batches))
				}
			})
		})
	}
}

// TestLag makes the driver late, by a receiver of events that takes its time. The
// lag shows, and the tokens after it keep the modelled times.
func TestLag(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		cfg := modelled(Config{}, 90*ms, 10*ms)
		cfg.Events = func(*kv.Batch) { time.Sleep(35 * ms) }
		s := newServer(t, cfg)
		_, client := serve(t, s)
		start := time.Now()
		resp, err := client.Post("http://sim/v1/completions", "application/json", strings.NewReader(arrival{0, numbers(1, 32), 8}.body()))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		first := make([]byte, 1)
		if _, err := resp.Body.Read(first); err != nil {
			t.Fatal(err)
		}
		if since := time.Since(start); since != 135*ms {
			t.Errorf("the first token came after %v", since)
		}
		synctest.Wait()
		if text := call(s, "GET", "/metrics", "").Body.String(); !strings.Contains(text, "stator_sim_lag_seconds{engine=\"0\",model_name=\"stator-sim\"} 0.035\n") {
			t.Errorf("the lag is not 35 ms:\n%s", grep(text, "lag"))
		}
		got, _ := eventTimes(t, resp.Body, start)
		want := []time.Duration{135 * ms, 135 * ms, 135 * ms, 135 * ms, 140 * ms, 150 * ms, 160 * ms, 170 * ms}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("times (-want +got):\n%s", diff)
		}
		time.Sleep(2 * lateWindow)
		if text := call(s, "GET", "/metrics", "").Body.String(); !strings.Contains(text, "stator_sim_lag_seconds{engine=\"0\",model_name=\"stator-sim\"} 0\n") {
			t.Errorf("it is not forgotten:\n%s", grep(text, "lag"))
		}
	})
}

func grep(text, word string) string {
	var out []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// TestManyStreams runs thousands of streams at a time, in real time, and counts
// what comes. A few clients go away in the middle.
func TestManyStreams(t *testing.T) {
	const streams, tokens = 2000, 24
	cfg := modelled(Config{Ranks: 2, TotalBlocks: 1 << 16}, 2*time.Millisecond, 2*time.Millisecond)
	cfg.Engine.MaxSeqs = streams
	s := newServer(t, cfg)
	_, client := serve(t, s)
	client.Transport.(*http.Transport).MaxIdleConnsPerHost = streams
	body := fmt.Sprintf(`{"prompt":"%%d","max_tokens":%d,"ignore_eos":true,"stream":true}`, tokens)
	results := make(chan error, streams)
	for i := range streams {
		go func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, "POST", "http://sim/v1/completions", strings.NewReader(fmt.Sprintf(body, i)))
			resp, err := client.Do(req)
			if err != nil {
				results <- err
				return
			}
			defer resp.Body.Close()
			if i%10 == 0 {
				_, err = io.ReadFull(resp.Body, make([]byte, 300))
				results <- err
				return
			}
			all, err := io.ReadAll(resp.Body)
			if n := strings.Count(string(all), "data: {"); err == nil && n != tokens {
				err = fmt.Errorf("%d events, want %d", n, tokens)
			}
			results <- err
		}()
	}
	for range streams {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	for _, r := range s.ranks {
		if r.engine.Load().ActiveBlocks != 0 && !r.engine.Busy() {
			t.Errorf("%+v is left", r.engine.Load())
		}
	}
}

// BenchmarkStreams is the cost of a token when 1000 streams run at a time, over
// connections in memory. The passes take no time, so that the machine decides. On
// two cores of a Xeon: 4.1 µs/token, nearly all of it for the pipes.
func BenchmarkStreams(b *testing.B) {
	const streams, tokens = 1000, 100
	cfg := modelled(Config{TotalBlocks: 1 << 16}, 0, 0)
	cfg.Engine.MaxSeqs = streams
	s := newServer(b, cfg)
	_, client := serve(b, s)
	client.Transport.(*http.Transport).MaxIdleConnsPerHost = streams
	body := fmt.Sprintf(`{"prompt":"x","max_tokens":%d,"ignore_eos":true,"stream":true}`, tokens)
	for b.Loop() {
		done := make(chan error, streams)
		for range streams {
			go func() {
				resp, err := client.Post("http://sim/v1/completions", "application/json", strings.NewReader(body))
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				done <- err
			}()
		}
		for range streams {
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*streams*tokens), "ns/token")
}

// TestTimeless has requests come while an engine that takes no time is busy: they
// join its passes, and nothing counts as late but what is.
func TestTimeless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := modelled(Config{}, 0, 0)
		busy := make(chan struct{})
		cfg.Events = func(*kv.Batch) { time.Sleep(time.Millisecond); <-busy } // a pass takes a while after all
		s := newServer(t, cfg)
		done := make(chan int, 2)
		for i := range 2 {
			go func() {
				call(s, "POST", textPath, arrival{0, numbers(i, 32), 40 - 30*i}.body())
				done <- i
			}()
			time.Sleep(10 * time.Millisecond)
		}
		close(busy)
		if first := <-done; first != 1 {
			t.Error("the second request, which is shorter, waited for the first")
		}
		<-done
	})
}
