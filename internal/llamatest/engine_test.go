package llamatest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/llamacpp"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
	"github.com/stator-ai/stator/internal/llamatest"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/chat"
	"github.com/stator-ai/stator/internal/tokenize/qwen3"
)

// adapters are those that a llama.cpp can be reached with.
var adapters = []struct {
	name string
	over func(*openaihttp.Engine) engine.Engine
	kind string
}{
	{"openaihttp", func(e *openaihttp.Engine) engine.Engine { return e }, engine.OpenAI},
	{"llamacpp", func(e *openaihttp.Engine) engine.Engine { return llamacpp.New(e) }, engine.LlamaCpp},
}

func open(t *testing.T, i *llamatest.Instance, over func(*openaihttp.Engine) engine.Engine) engine.Engine {
	t.Helper()
	base, err := openaihttp.New(openaihttp.Config{URL: i.URL})
	if err != nil {
		t.Fatal(err)
	}
	e := over(base)
	t.Cleanup(e.Close)
	return e
}

// TestEngine checks what both adapters promise against a server that nobody made for
// the occasion.
func TestEngine(t *testing.T) {
	i := llamatest.Start(t, "--parallel", "2", "--ctx-size", "32768")
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			e := open(t, i, a.over)
			t.Run("identify", func(t *testing.T) { identify(t, e, a.kind) })
			t.Run("stream", func(t *testing.T) { stream(t, e) })
			t.Run("unary", func(t *testing.T) { unary(t, e) })
			t.Run("cached", func(t *testing.T) { cached(t, e, a.name) })
			t.Run("refused", func(t *testing.T) { refusals(t, e) })
			t.Run("cancel", func(t *testing.T) { cancel(t, e, i) })
			t.Run("tokenize", func(t *testing.T) { tokenized(t, e) })
			t.Run("load", func(t *testing.T) { load(t, e, i) })
			t.Run("canary", func(t *testing.T) {
				if c, ok := e.(engine.Canary); ok {
					if err := c.Canary(t.Context(), llamatest.Model); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

func identify(t *testing.T, e engine.Engine, kind string) {
	if err := e.Probe(t.Context()); err != nil {
		t.Errorf("probe: %v", err)
	}
	info, err := e.Identify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.Kind != kind || len(info.Models) != 1 || info.Models[0].ID != llamatest.Model {
		t.Errorf("got %+v, want kind %s with the model %s", info, kind, llamatest.Model)
	}
	if kind == engine.LlamaCpp && (info.Slots != 2 || info.Models[0].ContextLength == 0 || info.Version == "") {
		t.Errorf("got %+v, want 2 slots, a context and a version", info)
	}
}

// request makes a request of members, which come in the order of their names.
func request(t *testing.T, ep openai.Endpoint, members map[string]any) *engine.Request {
	t.Helper()
	body, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	o, err := openai.ParseObject(body)
	if err != nil {
		t.Fatal(err)
	}
	return &engine.Request{Path: ep.Path(), Body: &o, Wishes: engine.Wishes{ID: "req-0123456789abcdef"}}
}

func messages(texts ...string) []map[string]string {
	out := make([]map[string]string, len(texts))
	for i, text := range texts {
		role := "user"
		if i%2 == 1 {
			role = "assistant"
		}
		out[i] = map[string]string{"role": role, "content": text}
	}
	return out
}

// answer is what is looked at of answers and of the chunks of streams.
type answer struct {
	Choices []struct {
		Message, Delta struct {
			Content   string
			Reasoning string `json:"reasoning_content"`
		}
		Finish string `json:"finish_reason"`
	}
	Usage   *usage
	Timings *timings
	Error   *struct {
		Code    int
		Message string
		Type    string
	}
}

// ask opens a request and reads its answer.
func ask(t *testing.T, e engine.Engine, r *engine.Request) (int, *answer) {
	t.Helper()
	resp, err := e.Open(t.Context(), engine.Target{Worker: 1}, r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out answer
	decode(t, body, &out)
	return resp.Status, &out
}

func promptTokens(t *testing.T, list []map[string]string) int {
	t.Helper()
	r, err := qwen3.Model().Chat(tokenize.Chat{Messages: marshal(list)}, tokenize.Hashing{})
	if err != nil {
		t.Fatal(err)
	}
	return len(r.IDs)
}

func stream(t *testing.T, e engine.Engine) {
	list := messages("Count to ten.")
	r := request(t, openai.Chat, map[string]any{"model": llamatest.Model, "messages": list, "max_tokens": 12, "ignore_eos": true, "stream": true})
	r.Usage = true
	resp, err := e.Open(t.Context(), engine.Target{Worker: 1}, r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Status != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		t.Fatalf("got %d %v", resp.Status, resp.Header)
	}
	var text, finish string
	var counted *usage
	done := false
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			done = true
			continue
		}
		var chunk answer
		decode(t, []byte(data), &chunk)
		for _, c := range chunk.Choices {
			text += c.Delta.Content + c.Delta.Reasoning
			finish += c.Finish
		}
		if chunk.Usage != nil {
			counted = chunk.Usage
		}
	}
	if text == "" || finish != "length" || !done {
		t.Errorf("text %q, finish %q, done %t", text, finish, done)
	}
	if counted == nil || counted.Prompt != promptTokens(t, list) || counted.Completion != 12 || counted.cached() < 0 {
		t.Errorf("usage %+v, want %d and 12 tokens, and how many were cached", counted, promptTokens(t, list))
	}
}

func unary(t *testing.T, e engine.Engine) {
	list := messages("Name a colour.", "Blue.", "Another one.")
	status, got := ask(t, e, request(t, openai.Chat, map[string]any{"model": llamatest.Model, "messages": list, "max_tokens": 5, "ignore_eos": true}))
	if status != http.StatusOK || len(got.Choices) != 1 || got.Choices[0].Finish != "length" {
		t.Fatalf("got %d %+v", status, got)
	}
	if u := got.Usage; u == nil || u.Prompt != promptTokens(t, list) || u.Completion != 5 || u.Total != u.Prompt+5 {
		t.Errorf("usage %+v, want %d and 5 tokens", u, promptTokens(t, list))
	}
	status, got = ask(t, e, request(t, openai.Completions, map[string]any{"model": llamatest.Model, "prompt": []int{9707, 11, 1879}, "max_tokens": 2, "ignore_eos": true}))
	if status != http.StatusOK || got.Usage == nil || got.Usage.Prompt != 3 {
		t.Errorf("a prompt of three tokens: got %d %+v", status, got.Usage)
	}
}

// cached sends a prompt twice, and one that begins like it.
func cached(t *testing.T, e engine.Engine, name string) {
	long := name + strings.Repeat(" The quick brown fox jumps over the lazy dog.", 40)
	send := func(text string) *answer {
		t.Helper()
		status, got := ask(t, e, request(t, openai.Chat, map[string]any{"model": llamatest.Model, "messages": messages(text), "max_tokens": 1}))
		if status != http.StatusOK || got.Usage == nil || got.Timings == nil {
			t.Fatalf("got %d %+v, want usage and timings", status, got)
		}
		if got.Usage.cached() != got.Timings.Cached || got.Timings.Cached+got.Timings.Prompt != got.Usage.Prompt {
			t.Errorf("usage says %d of %d tokens were cached, timings %+v", got.Usage.cached(), got.Usage.Prompt, got.Timings)
		}
		return got
	}
	first := send(long)
	if n := first.Usage.cached(); n > 20 {
		t.Errorf("%d tokens of the first prompt were cached", n)
	}
	again := send(long)
	if n := again.Usage.cached(); n != again.Usage.Prompt-1 {
		t.Errorf("%d tokens of %d were cached when the prompt came again, want all but one", n, again.Usage.Prompt)
	}
	// What follows the common beginning is the end of a message and the opening of an
	// answer in one, and some more words in the other.
	longer := send(long + " What does it say?")
	if n := longer.Usage.cached(); n < first.Usage.Prompt-6 || n >= longer.Usage.Prompt {
		t.Errorf("%d tokens of the longer prompt were cached, want about %d", n, first.Usage.Prompt)
	}
}

func refusals(t *testing.T, e engine.Engine) {
	rows := []struct {
		name   string
		body   map[string]any
		status int
		kind   string
	}{
		{"no messages", map[string]any{"model": llamatest.Model}, 400, "invalid_request_error"},
		{"a role that is a number", map[string]any{"model": llamatest.Model, "messages": []any{map[string]any{"role": 1, "content": "x"}}}, 500, "server_error"},
		{"a prompt that is too long", map[string]any{"model": llamatest.Model, "messages": messages(strings.Repeat("word ", 17000))}, 400, "exceed_context_size_error"},
	}
	for _, row := range rows {
		status, got := ask(t, e, request(t, openai.Chat, row.body))
		if status != row.status || got.Error == nil || got.Error.Code != row.status || got.Error.Type != row.kind || got.Error.Message == "" {
			t.Errorf("%s: got %d %+v, want %d %s", row.name, status, got.Error, row.status, row.kind)
		}
	}
}

// running returns how many slots are at work.
func running(t *testing.T, i *llamatest.Instance) int {
	t.Helper()
	_, body := get(t, i.URL+"/slots")
	var slots []struct {
		Processing bool `json:"is_processing"`
	}
	decode(t, body, &slots)
	n := 0
	for _, s := range slots {
		if s.Processing {
			n++
		}
	}
	return n
}

// endless is a request that takes longer than any test.
func endless(t *testing.T, streamed bool) *engine.Request {
	t.Helper()
	return request(t, openai.Chat, map[string]any{
		"model": llamatest.Model, "messages": messages("Tell me everything."), "max_tokens": 16000, "ignore_eos": true, "stream": streamed,
	})
}

// cancel leaves requests that run, and one that waits. A stream is noticed at once. For
// other answers the server looks whether the client is there only after a second in
// which nothing came of any request: a stream beside, or somebody who asks for its slots
// or metrics, keep it from looking. So here it is asked rarely.
func cancel(t *testing.T, e engine.Engine, i *llamatest.Instance) {
	resp, err := e.Open(t.Context(), engine.Target{Worker: 1}, endless(t, true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if n := running(t, i); n != 1 {
		t.Errorf("%d slots at work, want 1", n)
	}
	resp.Body.Close()
	eventually(t, time.Second, "a stream that was closed is not computed", often, func() bool { return running(t, i) == 0 })

	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	failed := make(chan error, 1)
	go func() {
		_, err := e.Open(ctx, engine.Target{Worker: 1}, endless(t, false))
		failed <- err
	}()
	eventually(t, patience, "the request runs", often, func() bool { return running(t, i) == 1 })
	leave()
	wantFailure(t, <-failed, engine.FailCancelled)
	eventually(t, 5*time.Second, "an answer that nobody waits for is not computed", rarely, func() bool { return running(t, i) == 0 })

	var open []io.Closer
	for range 2 {
		resp, err := e.Open(t.Context(), engine.Target{Worker: 1}, endless(t, true))
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, resp.Body)
	}
	ctx, leave = context.WithCancel(t.Context())
	defer leave()
	go func() {
		_, err := e.Open(ctx, engine.Target{Worker: 1}, endless(t, false))
		failed <- err
	}()
	eventually(t, patience, "two run and one waits", often, func() bool { return running(t, i) == 2 && deferred(t, i) == 1 })
	leave()
	wantFailure(t, <-failed, engine.FailCancelled)
	for _, body := range open {
		body.Close()
	}
	eventually(t, 5*time.Second, "one that waited is not computed", rarely, func() bool { return running(t, i)+deferred(t, i) == 0 })
}

// deferred returns how many requests wait for a slot.
func deferred(t *testing.T, i *llamatest.Instance) int {
	t.Helper()
	_, body := get(t, i.URL+"/metrics")
	for line := range strings.Lines(string(body)) {
		if n, ok := strings.CutPrefix(line, "llamacpp:requests_deferred "); ok {
			var v float64
			decode(t, []byte(n), &v)
			return int(v)
		}
	}
	t.Fatalf("llamacpp:requests_deferred is not in %s", body)
	return 0
}

func wantFailure(t *testing.T, err error, want engine.Failure) {
	t.Helper()
	var open *engine.OpenError
	if !errors.As(err, &open) || open.Failure != want {
		t.Errorf("got error %v, want one of kind %s", err, want)
	}
}

func tokenized(t *testing.T, e engine.Engine) {
	c := newComposer(3)
	for n := range 20 {
		conv := c.conversation(n)
		body := chatBody(conv)
		body["model"] = llamatest.Model
		r := request(t, openai.Chat, body)
		got, err := e.(engine.Tokenizer).Tokenize(t.Context(), &engine.TokenizeRequest{Model: llamatest.Model, Body: r.Body})
		if err != nil {
			t.Fatal(err)
		}
		want, err := ours(t).Chat(chatOf(conv), tokenize.Hashing{})
		if errors.Is(err, chat.ErrInexact) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.IDs, want.IDs) {
			t.Errorf("%s:\n got %d\nwant %d", conv.Messages, got.IDs, want.IDs)
		}
	}
}

func load(t *testing.T, e engine.Engine, i *llamatest.Instance) {
	l, ok := e.(engine.Loader)
	if !ok {
		t.Skip("the adapter knows no load")
	}
	resp, err := e.Open(t.Context(), engine.Target{Worker: 1}, endless(t, true))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	eventually(t, patience, "the request runs", often, func() bool { return running(t, i) == 1 })
	got, err := l.Load(t.Context())
	if err != nil || len(got) != 1 || got[0].Running != 1 || got[0].Waiting != 0 {
		t.Errorf("got %+v, %v, want one rank with one request", got, err)
	}
}

// TestLoading looks at a server that is not ready yet.
func TestLoading(t *testing.T) {
	i := llamatest.Launch(t)
	e := open(t, i, adapters[1].over)
	var status int
	var body []byte
	eventually(t, patience, "the server listens", often, func() bool {
		resp, err := http.Get(i.URL + "/health")
		if err != nil {
			return false
		}
		status, body, err = read(resp)
		return err == nil
	})
	var got answer
	decode(t, body, &got)
	if status != http.StatusServiceUnavailable || got.Error == nil || got.Error.Code != 503 || got.Error.Message != "Loading model" {
		t.Fatalf("got %d %s, want 503 and that the model is loaded", status, body)
	}
	eventually(t, patience, "the adapter finds the server well", often, func() bool { return e.Probe(t.Context()) == nil })
	i.Wait()
}

// TestFaults kills, restarts and stops a server.
func TestFaults(t *testing.T) {
	i := llamatest.Start(t)
	e := open(t, i, adapters[1].over)
	short := func() *engine.Request {
		return request(t, openai.Chat, map[string]any{"model": llamatest.Model, "messages": messages("Hello"), "max_tokens": 1})
	}

	resp, err := e.Open(t.Context(), engine.Target{Worker: 1}, endless(t, true))
	if err != nil {
		t.Fatal(err)
	}
	i.Kill()
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("a stream of a server that was killed ended well")
	}
	resp.Body.Close()
	_, err = e.Open(t.Context(), engine.Target{Worker: 1}, short())
	wantFailure(t, err, engine.FailConnect)

	i.Restart()
	status, got := ask(t, e, short())
	if status != http.StatusOK || got.Usage.cached() != 0 {
		t.Errorf("after a restart: got %d %+v, want an answer without anything cached", status, got.Usage)
	}

	i.Pause()
	ctx, idle := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { idle(engine.ErrIdle) })
	_, err = e.Open(ctx, engine.Target{Worker: 1}, short())
	wantFailure(t, err, engine.FailTimeout)
	i.Resume()
	if status, _ := ask(t, e, short()); status != http.StatusOK {
		t.Errorf("after a pause: got %d", status)
	}
}
