package stator

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/simengine"
	"github.com/stator-ai/stator/internal/simserver"
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
}

// chat streams the answer to messages and measures.
func chat(t *testing.T, client *http.Client, messages []map[string]string, maxTokens int) said {
	t.Helper()
	body, _ := json.Marshal(map[string]any{
		"model": "stator-sim", "messages": messages, "max_tokens": maxTokens,
		"stream": true, "stream_options": map[string]any{"include_usage": true},
	})
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
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		for _, c := range chunk.Choices {
			out.text += c.Delta.Content
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
		messages := []map[string]string{message("system", strings.Repeat("You are a careful assistant. ", 250)), message("user", "Hello!")}
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
			{cold.text, ttft(cold.prompt, 0), 8, cold.prompt, 0},
			{cold.text, ttft(warm.prompt, cached), 8, cold.prompt, cached},
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
