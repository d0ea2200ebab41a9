package stator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/stator-ai/stator"
)

// warmest sends a request to the rank that has most of its prompt in its cache, and
// of several to the one with the fewest requests, whatever else runs there.
type warmest struct{}

func (warmest) Select(d *stator.Decision) int {
	best := 0
	for i := range d.Candidates {
		c := &d.Candidates[i]
		c.Score = float64(c.Requests - c.CachedTokens)
		if c.Score < d.Candidates[best].Score {
			best = i
		}
	}
	return best
}

// A program that embeds the server can choose the ranks itself.
func ExampleWithSelector() {
	cfg := stator.DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	cfg.Sim.Engines = 4
	cfg.Sim.Speedup = 0 // answers take no time
	srv, err := stator.New(cfg, stator.WithSelector("warmest", warmest{}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer srv.Close()
	if err := srv.Start(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	body := `{"model": "stator-sim", "max_tokens": 1, "nvext": {"extra_fields": ["routing"]},
		"messages": [{"role": "user", "content": "` + strings.Repeat("Tell me more. ", 20) + `"}]}`
	for range 2 {
		resp, err := http.Post("http://"+srv.Addr()+"/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			fmt.Println(err)
			return
		}
		var answer struct {
			NVExt struct {
				Routing struct {
					Policy        string `json:"policy"`
					OverlapBlocks int    `json:"overlap_blocks"`
				} `json:"routing"`
			} `json:"nvext"`
		}
		err = json.NewDecoder(resp.Body).Decode(&answer)
		resp.Body.Close()
		if err != nil {
			fmt.Println(err)
			return
		}
		r := answer.NVExt.Routing
		fmt.Printf("chosen by %s, which knew of %d blocks\n", r.Policy, r.OverlapBlocks)
	}
	// Output:
	// chosen by warmest, which knew of 0 blocks
	// chosen by warmest, which knew of 5 blocks
}
