package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/openai"
)

// Dressed checks an adapter against a server that runs: it is identified and healthy,
// answers as a stream and as a whole, says what it used, stops when nobody listens, and
// does what its adapter says it can. The server must be idle, and stay so otherwise.
func Dressed(t *testing.T, open func(t *testing.T, url string) engine.Engine, url string) {
	e := open(t, url)
	t.Cleanup(e.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	info, err := e.Identify(ctx)
	if err != nil {
		t.Fatalf("identify: %v", err)
	}
	if info.Engine != nil {
		e = info.Engine
	}
	if info.Kind == "" || len(info.Models) == 0 || info.Models[0].ID == "" {
		t.Fatalf("identified as %+v", info)
	}
	t.Logf("%s %s: %+v", info.Kind, info.Version, info)
	d := &dressed{e: e, model: info.Models[0].ID}

	t.Run("probe", func(t *testing.T) {
		if err := e.Probe(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("unary", d.unary)
	t.Run("stream", d.stream)
	t.Run("cancel", d.cancel)
	if c, ok := e.(engine.Canary); ok {
		t.Run("canary", func(t *testing.T) {
			if err := c.Canary(t.Context(), d.model); err != nil {
				t.Error(err)
			}
		})
	}
	if tok, ok := e.(engine.Tokenizer); ok {
		t.Run("tokenize", func(t *testing.T) { d.tokenize(t, tok, info.Kind != engine.TRTLLM) })
	}
	if a, ok := e.(engine.Aborter); ok {
		t.Run("abort", func(t *testing.T) { d.abort(t, a) })
	}
}

// dressed is a server under test.
type dressed struct {
	e     engine.Engine
	model string
	n     int
}

// request is a chat that ends after so many tokens.
func (d *dressed) request(t *testing.T, tokens int, stream bool) *engine.Request {
	t.Helper()
	d.n++
	body := `{"model":` + string(openai.AppendString(nil, d.model)) + `,"stream":` + strconv.FormatBool(stream) + `,"max_tokens":` + strconv.Itoa(tokens) +
		`,"ignore_eos":true,"messages":[{"role":"user","content":"Count to ten."}]}`
	return Request(t, openai.Chat.Path(), body, engine.Wishes{
		ID: "dressed-" + strconv.Itoa(1000+d.n), Model: d.model, Greedy: true, Usage: stream,
	})
}

func (d *dressed) unary(t *testing.T) {
	resp := mustOpen(t, d.e, engine.Target{Worker: 1}, d.request(t, 4, false))
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.Status != 200 {
		t.Fatalf("status %d, %v: %s", resp.Status, err, body)
	}
	var answer struct {
		Choices []struct {
			Finish string `json:"finish_reason"`
		} `json:"choices"`
		Usage struct {
			Prompt int `json:"prompt_tokens"`
			Output int `json:"completion_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || len(answer.Choices) != 1 || answer.Choices[0].Finish == "" {
		t.Errorf("answer %s, %v", body, err)
	}
	if answer.Usage.Prompt < 1 || answer.Usage.Output < 1 || answer.Usage.Output > 4 {
		t.Errorf("usage %+v", answer.Usage)
	}
}

func (d *dressed) stream(t *testing.T) {
	resp := mustOpen(t, d.e, engine.Target{Worker: 1}, d.request(t, 4, true))
	defer resp.Body.Close()
	if resp.Status != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		t.Fatalf("status %d, %v", resp.Status, resp.Header)
	}
	var finished, used, done bool
	s := openai.NewScanner(nil, 1<<20)
	for err := error(nil); err == nil; {
		if err = s.Fill(resp.Body); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		for ev, ok := s.Next(); ok; ev, ok = s.Next() {
			if ev.IsDone() {
				done = true
				continue
			}
			if ev.Data == nil {
				continue
			}
			var chunk struct {
				Error   json.RawMessage `json:"error"`
				Choices []struct {
					Finish string `json:"finish_reason"`
				} `json:"choices"`
				Usage *struct {
					Prompt int `json:"prompt_tokens"`
				} `json:"usage"`
			}
			if err := json.Unmarshal(ev.Data, &chunk); err != nil || chunk.Error != nil {
				t.Fatalf("chunk %s: %v", ev.Data, err)
			}
			finished = finished || len(chunk.Choices) > 0 && chunk.Choices[0].Finish != ""
			used = used || chunk.Usage != nil && chunk.Usage.Prompt > 0
		}
	}
	if !finished || !used || !done {
		t.Errorf("the stream had a finish %t, usage %t, an end %t", finished, used, done)
	}
}

// cancel leaves a stream and waits for the engine to notice, where it tells.
func (d *dressed) cancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp, err := d.e.Open(ctx, engine.Target{Worker: 1}, d.request(t, 1000, true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	cancel()
	resp.Body.Close()
	d.idle(t)
}

// idle waits until the engine says that it runs nothing.
func (d *dressed) idle(t *testing.T) {
	t.Helper()
	l, ok := d.e.(engine.Loader)
	if !ok {
		return
	}
	eventually(t, "idle", func() (bool, error) {
		loads, err := l.Load(t.Context())
		for _, load := range loads {
			if load.Running > 0 || load.Waiting > 0 {
				return false, err
			}
		}
		return err == nil, err
	})
}

func (d *dressed) tokenize(t *testing.T, tok engine.Tokenizer, chats bool) {
	body := `{"model":` + string(openai.AppendString(nil, d.model)) + `,"messages":[{"role":"user","content":"Count to ten."}]}`
	o, err := openai.ParseObject([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	text, err := tok.Tokenize(t.Context(), &engine.TokenizeRequest{Model: d.model, Body: &o, Prompt: openai.Value(`"Count to ten."`)})
	switch {
	case err != nil && !chats: // TensorRT-LLM has the route in later releases only
		text = &engine.TokenizeResult{}
	case err != nil || len(text.IDs) == 0:
		t.Fatalf("text: %v, %v", text, err)
	}
	chat, err := tok.Tokenize(t.Context(), &engine.TokenizeRequest{Model: d.model, Body: &o})
	switch {
	case !chats:
		if err == nil {
			t.Errorf("a chat: %v, want an error", chat)
		}
	case err != nil || len(chat.IDs) <= len(text.IDs):
		t.Errorf("a chat: %v, %v; its text alone has %d tokens", chat, err, len(text.IDs))
	}
}

// abort ends a request by its id, and one that is not there.
func (d *dressed) abort(t *testing.T, a engine.Aborter) {
	if err := a.Abort(t.Context(), "dressed-0000"); err != nil {
		t.Errorf("a request that is not there: %v", err)
	}
	r := d.request(t, 1000, true)
	resp := mustOpen(t, d.e, engine.Target{Worker: 1}, r)
	defer resp.Body.Close()
	if err := a.Abort(t.Context(), r.ID); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{}, 1)
	go func() {
		io.Copy(io.Discard, resp.Body)
		ended <- struct{}{}
	}()
	receive(t, ended)
	d.idle(t)
}
