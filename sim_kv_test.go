package stator

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/nvext"
)

// explained asks for a few tokens and for the reasons of the placement.
func explained(system, question string) map[string]any {
	return map[string]any{
		"messages":   []map[string]string{message("system", system), message("user", question)},
		"max_tokens": 4,
		"nvext":      map[string]any{"extra_fields": []string{"routing"}},
	}
}

// essay returns a text of about n words that begins like no other.
func essay(title string, n int) string {
	words := strings.Fields("the engine keeps what it has computed and a request that begins alike need not compute it again")
	var b strings.Builder
	b.WriteString(title)
	for i := range n {
		fmt.Fprintf(&b, " %s%d", words[i%len(words)], i)
	}
	return b.String()
}

// scrape returns the sum of the samples of a family whose labels match.
func scrape(t *testing.T, client *http.Client, family, labels string) float64 {
	t.Helper()
	resp, err := client.Get("http://stator/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^` + family + `(\{.*` + labels + `.*\})? (\S+)$`)
	sum := 0.0
	for line := range strings.Lines(string(all)) {
		if m := want.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			v, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += v
		}
	}
	return sum
}

func TestSimKVRepeatedPrefixesLandWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := inMemory(t, func(c *Config) { c.Sim.Engines, c.Router.Seed = 4, 1 })
		home := make(map[int]uint64)
		for round := range 3 {
			for doc := range 8 {
				got := ask(t, client, explained(essay(fmt.Sprintf("document %d", doc), 300), fmt.Sprintf("question %d?", round)))
				r := got.routing
				if r == nil {
					t.Fatal("no explanation in the answer")
				}
				if r.Mode != "kv" || r.Policy != "cost" || r.PredictedCachedTokens == nil {
					t.Fatalf("mode %q, policy %q, prediction %v", r.Mode, r.Policy, r.PredictedCachedTokens)
				}
				if round == 0 {
					home[doc] = r.Chosen.WorkerID
					if r.OverlapBlocks != 0 || got.cached != 0 {
						t.Errorf("document %d: %d blocks predicted and %d tokens cached before anybody had seen it", doc, r.OverlapBlocks, got.cached)
					}
					continue
				}
				if r.Chosen.WorkerID != home[doc] {
					t.Errorf("document %d went to worker %d, and worker %d has it", doc, r.Chosen.WorkerID, home[doc])
				}
				if r.OverlapBlocks < 50 {
					t.Errorf("document %d: %d of %d blocks predicted", doc, r.OverlapBlocks, r.TotalBlocks)
				}
				if *r.PredictedCachedTokens != got.cached {
					t.Errorf("document %d: %d cached tokens predicted, %d found", doc, *r.PredictedCachedTokens, got.cached)
				}
			}
		}
		spread := make(map[uint64]bool)
		for _, w := range home {
			spread[w] = true
		}
		if len(spread) < 3 {
			t.Errorf("8 documents went to %d of 4 idle workers: %v", len(spread), home)
		}
		for verdict, want := range map[nvext.Verdict]float64{
			nvext.VerdictNoReuse: 8, nvext.VerdictAgreed: 16, nvext.VerdictIndexStale: 0,
			nvext.VerdictTokensDiffer: 0, nvext.VerdictUnknown: 0,
		} {
			if got := scrape(t, client, "stator_cache_verdicts_total", fmt.Sprintf("verdict=%q", verdict)); got != want {
				t.Errorf("%v requests with verdict %s, want %v", got, verdict, want)
			}
		}
		if over := scrape(t, client, "stator_cache_overpredicted_tokens_total", ""); over != 0 {
			t.Errorf("%v tokens predicted and not found", over)
		}
	})
}

func TestSimKVExplanationAddsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := inMemory(t, func(c *Config) { c.Sim.Engines, c.Router.Seed = 4, 1 })
		for i := range 12 {
			r := ask(t, client, explained(essay("shared", 40*(i%3)), fmt.Sprint(i))).routing
			if len(r.Candidates) != 4 || r.Considered != 4 {
				t.Fatalf("%d candidates of %d, want all 4", len(r.Candidates), r.Considered)
			}
			for _, c := range append(slices.Clone(r.Candidates), r.Chosen) {
				if sum := c.TermSum(); len(c.Terms) == 0 || math.Abs(sum-float64(c.Score)) > 1e-9*max(1, math.Abs(sum)) {
					t.Errorf("request %d, worker %d: terms %v sum to %v, the score is %v", i, c.WorkerID, c.Terms, sum, c.Score)
				}
				if c.Score < r.Chosen.Score {
					t.Errorf("request %d: worker %d costs %v, and %d with %v was chosen", i, c.WorkerID, c.Score, r.Chosen.WorkerID, r.Chosen.Score)
				}
			}
		}
		resp, err := client.Get("http://stator/debug/decisions?limit=5")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var got struct {
			Decisions []struct {
				Time    time.Time
				Routing nvext.Routing
			}
		}
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
			t.Fatal(err)
		}
		if len(got.Decisions) != 5 {
			t.Fatalf("%d decisions, want 5", len(got.Decisions))
		}
		for _, d := range got.Decisions {
			if d.Routing.CacheVerdict == "" || d.Routing.ActualCachedTokens == nil || len(d.Routing.Candidates) != 4 {
				t.Errorf("decision of %s: verdict %q, %d candidates", d.Routing.RequestID, d.Routing.CacheVerdict, len(d.Routing.Candidates))
			}
		}
	})
}

func TestSimKVHotPrefixSpreadsUnderLoad(t *testing.T) {
	for name, own := range map[string]int{"long questions": 60, "short questions": 1} {
		t.Run(name, func(t *testing.T) { hotPrefixSpreads(t, own) })
	}
}

// hotPrefixSpreads has requests share a prefix that one worker has, each with a
// question of so many words of its own.
func hotPrefixSpreads(t *testing.T, own int) {
	synctest.Test(t, func(t *testing.T) {
		client := inMemory(t, func(c *Config) { c.Sim.Engines, c.Router.Seed = 4, 1 })
		hot := essay("hot", 400)
		ask(t, client, explained(hot, "warm up"))
		var mu sync.Mutex
		served := make(map[uint64]int)
		var wg sync.WaitGroup
		for i := range 80 {
			wg.Go(func() {
				q := explained(hot, essay(fmt.Sprintf("question %d", i), own))
				q["max_tokens"] = 64
				r := ask(t, client, q).routing
				mu.Lock()
				defer mu.Unlock()
				served[r.Chosen.WorkerID]++
			})
		}
		wg.Wait()
		for w := range uint64(4) {
			if n := served[w+1]; n < 10 || n > 40 {
				t.Errorf("80 requests with one prefix went %v, want 10 to 40 to each of 4 workers", served)
				break
			}
		}
	})
}

// contended runs requests against one engine behind a queue that lets one prompt at
// a time through, and returns the order in which their first tokens came.
func contended(t *testing.T, requests []map[string]any) (order []int) {
	client := inMemory(t, func(c *Config) {
		c.Router.Queue.Threshold = new(0.0)
		c.Router.Seed = 1
	})
	type end struct {
		i  int
		at time.Time
	}
	ends := make([]end, len(requests))
	var wg sync.WaitGroup
	for i, q := range requests {
		q["messages"] = []map[string]string{message("user", essay(fmt.Sprintf("request %d", i), 600))}
		q["max_tokens"] = 1
		wg.Go(func() {
			ask(t, client, q)
			ends[i] = end{i, time.Now()}
		})
		synctest.Wait() // they come one after another
	}
	wg.Wait()
	slices.SortFunc(ends, func(a, b end) int { return a.at.Compare(b.at) })
	for _, e := range ends {
		order = append(order, e.i)
	}
	return order
}

func TestSimKVPrioritiesReorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hints := func(h map[string]any) map[string]any {
			return map[string]any{"nvext": map[string]any{"agent_hints": h}}
		}
		order := contended(t, []map[string]any{
			{}, // goes at once
			hints(map[string]any{}),
			hints(map[string]any{"priority": 5}),
			hints(map[string]any{"priority": 9}),
			hints(map[string]any{"strict_priority": 1}),
		})
		if want := []int{0, 4, 3, 2, 1}; !slices.Equal(order, want) {
			t.Errorf("first tokens came in the order %v, want %v", order, want)
		}
	})
}

func TestSimKVTenantsShareFairly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tenant := func(name string) map[string]any {
			return map[string]any{"nvext": map[string]any{"cache_salt": name}}
		}
		var requests []map[string]any
		for range 12 {
			requests = append(requests, tenant("greedy"))
		}
		for range 3 {
			requests = append(requests, tenant("modest"))
		}
		order := contended(t, requests)
		last := 0
		for at, i := range order {
			if i >= 12 {
				last = at
			}
		}
		// One of the greedy goes before anybody waits; then they take turns.
		if last > 7 {
			t.Errorf("first tokens came in the order %v: the modest tenant's last was number %d, behind those that came before", order, last+1)
		}
	})
}

// TestSimKVAdapters: adapters share the load and the index of their model, not its
// cached blocks, and go by two names.
func TestSimKVAdapters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := inMemory(t, func(c *Config) {
			c.Sim.Engines, c.Router.Seed = 2, 1
			c.Sim.Adapters = []string{"coder", "poet"}
		})
		doc := essay("shared", 200)
		for i, row := range []struct {
			model string
			warm  bool
		}{{"stator-sim", false}, {"poet", false}, {"stator-sim:poet", true}, {"stator-sim", true}, {"coder", false}} {
			q := explained(doc, "?")
			q["model"] = row.model
			got := askModel(t, client, q)
			if got.routing == nil || (got.routing.OverlapBlocks > 0) != row.warm || (got.cached > 0) != row.warm {
				t.Errorf("request %d to %s: %d tokens cached, want some: %v; %+v", i, row.model, got.cached, row.warm, got.routing)
			}
		}
		resp, err := client.Get("http://stator/v1/models")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var list struct{ Data []struct{ ID string } }
		if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
			t.Fatal(err)
		}
		if len(list.Data) != 3 || list.Data[0].ID != "stator-sim" {
			t.Errorf("models %v, want the model before its adapters", list.Data)
		}
	})
}
