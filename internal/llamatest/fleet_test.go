package llamatest_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stator-ai/stator"
	"github.com/stator-ai/stator/internal/llamatest"
)

// TestFleet runs the same conversations over two servers, placed by what is in their
// caches and in turn, with the tokens from here and from the servers. What counts is
// what the servers say they found.
func TestFleet(t *testing.T) {
	fleet := []*llamatest.Instance{llamatest.Start(t, fleetArgs...), llamatest.Start(t, fleetArgs...)}
	sum := make(map[string]tally)
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			for _, i := range fleet {
				i.Restart()
			}
			sum[mode.name] = converse(t, front(t, fleet, mode.router, mode.tokenizer))
		})
	}
	if t.Failed() {
		return
	}
	turns := sum["round-robin"]
	for _, mode := range modes {
		got := sum[mode.name]
		t.Logf("%s: of %d prompt tokens %d were cached (%d %%) and %d computed", mode.name, got.prompt, got.cached, 100*got.cached/got.prompt, got.computed())
		if mode.router == "kv" && 5*got.computed() > 4*turns.computed() {
			t.Errorf("%s: %d prompt tokens were computed, in turn %d: want a fifth less at least", mode.name, got.computed(), turns.computed())
		}
	}
}

// modes are the ways in which the conversations are placed.
var modes = []struct{ name, router, tokenizer string }{
	{"round-robin", "round-robin", "qwen3"},
	{"kv", "kv", "qwen3"},
	{"kv, tokens from the servers", "kv", "engine"},
}

// fleetArgs give each server a slot for each conversation that it should have, and no
// memory for prompts beside them.
var fleetArgs = []string{"--parallel", "4", "--ctx-size", "32768", "--cache-ram", "0"}

// front starts a Stator before the servers and returns its URL.
func front(t *testing.T, fleet []*llamatest.Instance, mode, tokenizer string) string {
	t.Helper()
	cfg := stator.DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	cfg.Router.Mode = mode
	cfg.Router.Seed = 1
	cfg.Models = []stator.ModelConfig{{Name: llamatest.Model, Tokenizer: tokenizer}}
	for _, i := range fleet {
		cfg.Engines = append(cfg.Engines, stator.EngineConfig{URL: i.URL})
	}
	srv, err := stator.New(cfg, stator.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	h := httptest.NewServer(srv.Handler())
	t.Cleanup(h.Close)
	eventually(t, patience, "both servers are found", often, func() bool {
		found, all := srv.Workers()
		return found == all && all == len(fleet)
	})
	return h.URL
}

// tally counts prompt tokens.
type tally struct{ prompt, cached int }

func (t tally) computed() int { return t.prompt - t.cached }

// converse has conversations beside each other, each a turn after the other. Their
// beginnings are those of three applications.
func converse(t *testing.T, url string) tally {
	t.Helper()
	const talks, turns = 7, 6
	sums := make([]tally, talks)
	var all sync.WaitGroup
	for talk := range talks {
		all.Go(func() {
			app := talk % 3
			history := []map[string]string{{"role": "system", "content": strings.Repeat(fmt.Sprintf("Rule of application %d: be brief. ", app), 20)}}
			rng := rand.New(rand.NewPCG(1, uint64(talk)))
			for range turns {
				history = append(history, map[string]string{"role": "user", "content": words(rng, 120)})
				status, body, err := send(url+"/v1/chat/completions", map[string]any{"model": llamatest.Model, "messages": history, "max_tokens": 8, "temperature": 0})
				if err != nil {
					t.Error(err)
					return
				}
				var got answer
				if err := json.Unmarshal(body, &got); err != nil || status != http.StatusOK || got.Usage.cached() < 0 || len(got.Choices) != 1 {
					t.Errorf("got %d %s, %v", status, body, err)
					return
				}
				sums[talk].prompt += got.Usage.Prompt
				sums[talk].cached += got.Usage.cached()
				history = append(history, map[string]string{"role": "assistant", "content": got.Choices[0].Message.Content})
			}
		})
	}
	all.Wait()
	var sum tally
	for _, s := range sums {
		sum.prompt += s.prompt
		sum.cached += s.cached
	}
	return sum
}

// words returns n of them at random.
func words(rng *rand.Rand, n int) string {
	list := strings.Fields("the cache of a server holds what was said before and every turn of a talk begins with all that came so far")
	var b strings.Builder
	for range n {
		b.WriteString(list[rng.IntN(len(list))] + " ")
	}
	return strings.TrimSpace(b.String())
}
