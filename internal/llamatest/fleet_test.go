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
	for _, at := range []struct {
		name     string
		parallel bool
	}{{"beside each other", true}, {"one after another", false}} {
		sum := make(map[string]tally)
		for _, mode := range modes {
			t.Run(at.name+"/"+mode.name, func(t *testing.T) {
				for _, i := range fleet {
					i.Restart()
				}
				sum[mode.name] = converse(t, front(t, fleet, mode.router, mode.tokenizer), at.parallel)
			})
		}
		if t.Failed() {
			return
		}
		turns := sum["round-robin"]
		for _, mode := range modes {
			got := sum[mode.name]
			t.Logf("%s, %s: of %d prompt tokens %d were cached (%d %%) and %d computed", mode.name, at.name, got.prompt, got.cached, 100*got.cached/got.prompt, got.computed())
			if mode.router == "kv" && 5*got.computed() > 4*turns.computed() {
				t.Errorf("%s, %s: %d prompt tokens were computed, in turn %d: want a fifth less at least", mode.name, at.name, got.computed(), turns.computed())
			}
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

// talk is a conversation. Its beginning is that of one of three applications.
type talk struct {
	tally
	history []map[string]string
	rng     *rand.Rand
}

func newTalk(number int) *talk {
	rule := fmt.Sprintf("Rule of application %d: be brief. ", number%3)
	return &talk{
		history: []map[string]string{{"role": "system", "content": strings.Repeat(rule, 20)}},
		rng:     rand.New(rand.NewPCG(1, uint64(number))),
	}
}

// turn says something and hears the answer.
func (k *talk) turn(url string) error {
	k.history = append(k.history, map[string]string{"role": "user", "content": words(k.rng, 120)})
	status, body, err := send(url+"/v1/chat/completions", map[string]any{"model": llamatest.Model, "messages": k.history, "max_tokens": 8, "temperature": 0})
	if err != nil {
		return err
	}
	var got answer
	if err := json.Unmarshal(body, &got); err != nil || status != http.StatusOK || got.Usage.cached() < 0 || len(got.Choices) != 1 {
		return fmt.Errorf("got %d %s, %w", status, body, err)
	}
	k.prompt += got.Usage.Prompt
	k.cached += got.Usage.cached()
	k.history = append(k.history, map[string]string{"role": "assistant", "content": got.Choices[0].Message.Content})
	return nil
}

// converse has conversations, beside each other or taking turns.
func converse(t *testing.T, url string, parallel bool) (sum tally) {
	t.Helper()
	const turns = 6
	talks := make([]*talk, 7)
	for i := range talks {
		talks[i] = newTalk(i)
	}
	said := func(k *talk) {
		if err := k.turn(url); err != nil {
			t.Error(err)
		}
	}
	if parallel {
		var all sync.WaitGroup
		for _, k := range talks {
			all.Go(func() {
				for range turns {
					said(k)
				}
			})
		}
		all.Wait()
	} else {
		for range turns {
			for _, k := range talks {
				said(k)
			}
		}
	}
	for _, k := range talks {
		sum.prompt += k.prompt
		sum.cached += k.cached
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
