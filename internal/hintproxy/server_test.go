package hintproxy_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/stator-ai/stator"
	"github.com/stator-ai/stator/hints"
	"github.com/stator-ai/stator/internal/hintproxy"
	"github.com/stator-ai/stator/trie"
)

// TestBeforeStator runs an agent's two calls through the proxy to a server with simulated
// engines, learns from the recording, and predicts.
func TestBeforeStator(t *testing.T) {
	dir := t.TempDir()
	rows, spans, file := filepath.Join(dir, "rows.jsonl"), filepath.Join(dir, "spans.jsonl"), filepath.Join(dir, "trie.json")
	cfg := stator.DefaultConfig()
	cfg.Listen, cfg.Sim.Engines, cfg.Sim.Profile, cfg.Trace.Out = "127.0.0.1:0", 1, "instant", rows
	srv, err := stator.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	closed := false
	t.Cleanup(func() {
		if !closed {
			_ = srv.Close()
		}
	})
	agent := func(base, run string) {
		t.Helper()
		client := openai.NewClient(option.WithBaseURL(base+"/v1"), option.WithAPIKey("any"), option.WithMaxRetries(0),
			option.WithHeader(hints.HeaderRun, run), option.WithHeader(hints.HeaderPath, "plan"))
		params := openai.ChatCompletionNewParams{
			Model:     "stator-sim",
			Messages:  []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Plan something.")},
			MaxTokens: openai.Int(7),
		}
		params.SetExtraFields(map[string]any{"ignore_eos": true})
		stream := client.Chat.Completions.NewStreaming(t.Context(), params)
		chunks := 0
		for stream.Next() {
			chunks++
		}
		if err := errors.Join(stream.Err(), stream.Close()); err != nil || chunks < 2 {
			t.Fatalf("stream of %d chunks: %v", chunks, err)
		}
		params.MaxTokens = openai.Int(5)
		answer, err := client.Chat.Completions.New(t.Context(), params)
		if err != nil || answer.Usage.CompletionTokens != 5 {
			t.Fatalf("answer %+v: %v", answer, err)
		}
	}
	start := func() *running {
		return startBefore(t, "http://"+srv.Addr(), func(c *hintproxy.Config) { c.Record, c.Hints.TriePath = spans, file })
	}

	first := start()
	agent(first.url, "one")
	if err := first.server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil { // which writes what was recorded
		t.Fatal(err)
	}
	data, err := os.ReadFile(spans)
	if err != nil {
		t.Fatal(err)
	}
	b := trie.NewBuilder(trie.Options{})
	if err := trie.ReadSpans(bytes.NewReader(data), func(steps []trie.Step) error { b.Add(steps); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := b.Build(time.Now()).Save(file); err != nil {
		t.Fatal(err)
	}
	second := start()
	agent(second.url, "two")
	if s := second.Stats(); s.Hints.Hinted != 2 || s.Hints.Predicted != 2 {
		t.Errorf("stats: %+v", s)
	}
	eventually(t, "second recording", func() bool { return second.Stats().Record.Written == 2 })

	closed = true
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	type hinted struct {
		Prefix string `json:"prefix_id"`
		OSL    int    `json:"osl"`
		Total  int    `json:"total_requests"`
	}
	want := []hinted{{"one-d1", 512, 10}, {"one-d1", 512, 10}, {"two-d1", 7, 2}, {"two-d1", 5, 1}}
	type row struct {
		Arrival int64   `json:"arrival_us"`
		Hints   *hinted `json:"hints"`
	}
	var arrived []row
	text, err := os.ReadFile(rows)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var r row
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		arrived = append(arrived, r)
	}
	slices.SortFunc(arrived, func(a, b row) int { return cmp.Compare(a.Arrival, b.Arrival) })
	var got []hinted
	for _, r := range arrived {
		if r.Hints != nil {
			got = append(got, *r.Hints)
		}
	}
	if d := gocmp.Diff(want, got); d != "" {
		t.Errorf("hints that the server saw (-want +got):\n%s", d)
	}
}
