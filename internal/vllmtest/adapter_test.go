package vllmtest_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/detect"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/vllmtest"
)

// identify asks a server what it is, with nothing known beforehand.
func identify(t *testing.T, s *vllmtest.Instance) *engine.Info {
	t.Helper()
	d, err := detect.New(openaihttp.Config{URL: s.URL}, detect.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	info, err := d.Identify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// testAdapter shows that a server is found to be what it is, and is used as one.
func testAdapter(t *testing.T, s *vllmtest.Instance) {
	info := identify(t, s)
	if info.Kind != engine.VLLM || info.Version == "" || info.Life == "" {
		t.Errorf("kind %q, version %q, life %q, want vllm and something", info.Kind, info.Version, info.Life)
	}
	models := []engine.Model{{ID: vllmtest.Model, ContextLength: vllmtest.ContextLength, BlockSize: blockSize, TotalBlocks: blocks, Ranks: 1}}
	if diff := cmp.Diff(models, info.Models); diff != "" {
		t.Errorf("models (-want +got):\n%s", diff)
	}
	streams := []engine.EventStream{{Address: s.Events, Replay: s.Replay, Counted: true}}
	if diff := cmp.Diff(streams, info.Streams); diff != "" {
		t.Errorf("streams (-want +got):\n%s", diff)
	}
	for _, w := range info.Warnings {
		t.Errorf("warning %s: %s", w.Code, w.Text)
	}
	if info.Engine == nil {
		t.Fatal("no adapter")
	}
	t.Run("wishes", func(t *testing.T) { testWishes(t, info.Engine) })
	t.Run("closing a stream ends the request", func(t *testing.T) { testCancel(t, info.Engine) })
}

// open sends a chat.
func open(t *testing.T, e engine.Engine, body string, w engine.Wishes) *engine.Response {
	t.Helper()
	return send(t, e, engine.Target{Worker: 1}, body, &engine.Request{Path: "/v1/chat/completions", Wishes: w})
}

// send sends a request with a body.
func send(t *testing.T, e engine.Engine, to engine.Target, body string, r *engine.Request) *engine.Response {
	t.Helper()
	obj, err := openai.ParseObject([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Body = &obj
	resp, err := e.Open(t.Context(), to, r)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Status != http.StatusOK {
		answer, _ := io.ReadAll(resp.Body)
		t.Fatalf("%d %s", resp.Status, answer)
	}
	return resp
}

// testWishes shows that a server takes all that a request may wish.
func testWishes(t *testing.T, e engine.Engine) {
	priority := int32(7)
	resp := open(t, e, `{"model":"x","stream":true,"max_tokens":3,"messages":[{"role":"user","content":"Hello"}]}`,
		engine.Wishes{ID: "wish-1", Model: vllmtest.Model, Priority: &priority, Salt: "tenant-a", Greedy: true, Usage: true})
	defer resp.Body.Close()
	stream, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"id":"chatcmpl-wish-1"`, `"finish_reason":"length"`, `"choices":[],"usage":{"prompt_tokens":9,`, "data: [DONE]\n\n"} {
		if !strings.Contains(string(stream), want) {
			t.Errorf("no %s in %s", want, stream)
		}
	}
}

// testCancel shows that nothing goes on for a client that has left.
func testCancel(t *testing.T, e engine.Engine) {
	load := func() engine.Load {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		all, err := e.(engine.Loader).Load(ctx)
		if err != nil || len(all) != 1 {
			t.Fatalf("load %+v, %v", all, err)
		}
		return all[0]
	}
	running := func(want int) {
		t.Helper()
		for start := time.Now(); load().Running != want; {
			if time.Since(start) > patience {
				t.Fatalf("%d requests run after %v, want %d", load().Running, patience, want)
			}
		}
	}
	running(0)
	resp := open(t, e, `{"model":"`+vllmtest.Model+`","stream":true,"ignore_eos":true,"max_tokens":4000,"messages":[{"role":"user","content":"Hello"}]}`, engine.Wishes{})
	if _, err := io.ReadFull(resp.Body, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	running(1)
	resp.Body.Close()
	running(0)
}

// testConfiguration shows what a server in development mode says about itself. On a busy
// machine it takes longer over its first answer than is waited for, and has it ready soon
// after.
func testConfiguration(t *testing.T, s *vllmtest.Instance) {
	info := identify(t, s)
	for start := time.Now(); info.Priority == engine.PriorityUnknown && time.Since(start) < patience; {
		t.Log("the configuration was not told in time")
		info = identify(t, s)
	}
	models := []engine.Model{{
		ID: vllmtest.Model, ContextLength: vllmtest.ContextLength, BlockSize: blockSize, TotalBlocks: blocks, Ranks: 1,
		MaxSeqs: 128, MaxBatchedTokens: 2048, // as vLLM has them on processors
	}}
	if diff := cmp.Diff(models, info.Models); diff != "" {
		t.Errorf("models (-want +got):\n%s", diff)
	}
	streams := []engine.EventStream{{Address: s.Events, Replay: s.Replay, Counted: true}}
	if diff := cmp.Diff(streams, info.Streams); diff != "" {
		t.Errorf("streams (-want +got):\n%s", diff)
	}
	if info.Priority != engine.PriorityIgnored {
		t.Errorf("priority is %v, want ignored", info.Priority)
	}
}
