package trtllm

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
	"github.com/stator-ai/stator/internal/engine/promtext"
)

// iteration is one entry of /metrics.
type iteration struct {
	Active openaihttp.Int `json:"numActiveRequests"`
	Queued openaihttp.Int `json:"numQueuedRequests"`
	Rank   openaihttp.Int `json:"attentionDpRank"`
	Cache  struct {
		Used      openaihttp.Int `json:"usedNumBlocks"`
		Max       openaihttp.Int `json:"maxNumBlocks"`
		BlockSize openaihttp.Int `json:"tokensPerBlock"`
	} `json:"kvCacheStats"`
}

// seen is what iterations and events have told of a server so far. It is not changed;
// each new fact makes a new one.
type seen struct {
	blockSize, blocks, ranks int
}

// note takes in what was told; zeros were not.
func (e *Engine) note(s seen) {
	for {
		old := e.seen.Load()
		now := seen{
			blockSize: cmp.Or(s.blockSize, old.blockSize), blocks: cmp.Or(s.blocks, old.blocks), ranks: max(s.ranks, old.ranks),
		}
		if now == *old || e.seen.CompareAndSwap(old, &now) {
			return
		}
	}
}

// maxRank is more than any deployment has.
const maxRank = 1024

// readIterations returns the load of each rank by its latest iteration.
func readIterations(body []byte) ([]engine.Load, seen, error) {
	var list []iteration
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, seen{}, fmt.Errorf("/metrics: expected a list of iterations: %w", err)
	}
	var s seen
	byRank := make(map[uint32]engine.Load)
	for _, it := range list {
		if it.Rank < 0 || it.Rank >= maxRank {
			continue
		}
		l := engine.Load{
			Rank: uint32(it.Rank), Running: openaihttp.Count(float64(it.Active)), Waiting: openaihttp.Count(float64(it.Queued)),
			UsedBlocks: openaihttp.Count(float64(it.Cache.Used)), TotalBlocks: openaihttp.Count(float64(it.Cache.Max)),
		}
		if l.TotalBlocks > 0 {
			l.Usage = openaihttp.Share(float64(l.UsedBlocks) / float64(l.TotalBlocks))
		}
		byRank[l.Rank] = l
		s.ranks = max(s.ranks, int(l.Rank)+1)
		s.blocks = cmp.Or(l.TotalBlocks, s.blocks)
		s.blockSize = cmp.Or(openaihttp.Count(float64(it.Cache.BlockSize)), s.blockSize)
	}
	loads := make([]engine.Load, 0, len(byRank))
	for _, rank := range slices.Sorted(maps.Keys(byRank)) {
		loads = append(loads, byRank[rank])
	}
	return loads, s, nil
}

// Load implements [engine.Loader] by /metrics, which has the iterations since it was
// read last, by whomever. Without any there is nothing to say: an engine that is idle
// has none, and one in the middle of a long one neither.
func (e *Engine) Load(ctx context.Context) ([]engine.Load, error) {
	status, body, err := e.Get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("load %s: /metrics answered status %d", e.URL(), status)
	}
	loads, s, err := readIterations(body)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", e.URL(), err)
	}
	e.note(s)
	return loads, nil
}

// Identify implements [engine.Engine].
func (e *Engine) Identify(ctx context.Context) (*engine.Info, error) {
	return e.IdentifyWith(ctx, e.Describe)
}

// about is what /version tells.
type about struct {
	Version string `json:"version"`
}

// Describe is Identify for who has the model list already. The server says little of
// itself; its block size, blocks and ranks are known once it has run something. What it
// does not answer is taken to be as it was.
func (e *Engine) Describe(ctx context.Context, cards []openaihttp.Card) *engine.Info {
	var (
		version *about
		started *string
		wg      sync.WaitGroup
	)
	wg.Go(func() { version, _ = e.version.Ask(ctx, e.Engine, openaihttp.JSON[about], "/version") })
	wg.Go(func() { started, _ = e.started.Ask(ctx, e.Engine, startTime, "/prometheus/metrics") })
	wg.Go(func() { e.measure(ctx) })
	wg.Wait()
	e.noTokens.Store(false)
	s := e.seen.Load()
	info := &engine.Info{Kind: engine.TRTLLM, Models: openaihttp.Models(cards)}
	if version != nil {
		info.Version = version.Version
	}
	if started != nil {
		info.Life = *started
	}
	for i := range info.Models {
		m := &info.Models[i]
		m.BlockSize, m.TotalBlocks, m.Ranks = s.blockSize, s.blocks, max(s.ranks, 1)
	}
	info.Warnings = []engine.Warning{{
		Code: "no_cache_salt", Text: "only chats have cache salts: the server refuses completions with one",
	}}
	if !e.measured.Load() {
		info.Warnings = append(info.Warnings, engine.Warning{
			Code: "no_metrics", Text: "/metrics has no iterations: the engine's load and block size are not known; set enable_iter_perf_stats",
		})
	}
	if s.ranks > 1 {
		info.Warnings = append(info.Warnings, engine.Warning{
			Code: "ranks_not_chosen", Text: "the server chooses the rank of a request itself: what a rank has cached is found by chance only",
		})
	}
	return info
}

// measure takes in the iterations since they were read last. A server that has none any
// more is another than the one that told.
func (e *Engine) measure(ctx context.Context) {
	body, answer := e.AskFor(ctx, "/metrics")
	if answer == openaihttp.Unanswered {
		return
	}
	if answer == openaihttp.Told {
		if _, s, err := readIterations(body); err == nil {
			e.note(s)
			e.measured.Store(true)
			return
		}
	}
	if e.measured.Swap(false) {
		e.seen.Store(&seen{})
	}
}

// Forget drops what the server has told, for one that may have become another.
func (e *Engine) Forget() {
	e.version.Forget()
	e.started.Forget()
	e.measured.Store(false)
	e.unbounded.Store(false)
	e.seen.Store(&seen{})
}

// startTime returns when the process was started, as its metrics have it; nil if they
// do not.
func startTime(text []byte) *string {
	for s := range promtext.Samples(text, map[string]bool{"process_start_time_seconds": true}) {
		if s.Value > 0 {
			started := strconv.FormatFloat(s.Value, 'f', -1, 64)
			return &started
		}
	}
	return nil
}
