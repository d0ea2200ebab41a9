package stator_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"

	"github.com/stator-ai/stator"
)

// thompson has the policy of that name decide.
func thompson(mode, state string) func(*stator.Config) {
	return func(c *stator.Config) {
		c.Router.Policy = "thompson"
		c.Router.Thompson.Variant, c.Router.Thompson.State = mode, state
	}
}

// debugThompson returns what the server says about its policies.
func debugThompson(t *testing.T, f *fleet) (out struct {
	Pools []struct {
		Model, Mode string
		Pending     int
		Ranks       []struct {
			Alpha        *float64
			Observations *float64
		}
	}
}) {
	t.Helper()
	resp, err := http.Get(f.url + "/debug/thompson")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if err := json.Unmarshal(text, &out); err != nil || resp.StatusCode != 200 {
		t.Fatalf("status %d, %s: %v", resp.StatusCode, text, err)
	}
	return out
}

func TestThompson(t *testing.T) {
	for _, mode := range []string{"safe", "reference", "shadow"} {
		f := simulatedFleet(t, pace{time.Millisecond, time.Millisecond}, thompson(mode, ""))
		for range 8 {
			stream := f.Chat.Completions.NewStreaming(t.Context(), openai.ChatCompletionNewParams{
				Model: simModel, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello!")}, MaxTokens: openai.Int(4),
			})
			for stream.Next() {
			}
			if err := stream.Err(); err != nil {
				t.Fatal(err)
			}
		}
		got := debugThompson(t, f)
		seen := 0.0
		for _, r := range got.Pools[0].Ranks {
			if r.Observations != nil {
				seen += *r.Observations
			} else if r.Alpha != nil {
				seen += *r.Alpha
			}
		}
		if len(got.Pools) != 1 || got.Pools[0].Mode != mode || len(got.Pools[0].Ranks) != 4 || seen == 0 {
			t.Errorf("%s: %+v", mode, got)
		}
	}
}

func TestThompsonState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "learned.json")
	if err := os.WriteFile(path, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := stator.DefaultConfig()
	cfg.Listen, cfg.Sim.Engines = "127.0.0.1:0", 2
	thompson("safe", path)(&cfg)
	srv, err := stator.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post("http://"+srv.Addr()+"/v1/completions", "application/json", strings.NewReader(`{"model":"stator-sim","prompt":"Hello","max_tokens":2,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	saved, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(saved), "stator-sim") {
		t.Errorf("saved %s, %v", saved, err)
	}
	if bad, _ := os.ReadFile(path + ".bad"); string(bad) != "nonsense" {
		t.Errorf("what could not be used is %q", bad)
	}
	entries, _ := os.ReadDir(filepath.Dir(path))
	if len(entries) != 2 {
		t.Errorf("left behind: %v", entries)
	}
}
