package sglang

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
	"github.com/stator-ai/stator/internal/engine/promtext"
)

// loadsPath has the loads as they are when it is asked.
const loadsPath = "/v1/loads?include=core"

// Load implements [engine.Loader] by /v1/loads. Servers without it are asked for their
// metrics, which are up to half a minute old.
func (e *Engine) Load(ctx context.Context) ([]engine.Load, error) {
	size := max(e.known().blockSize, 1)
	if !e.noLoads.Load() {
		status, body, err := e.Get(ctx, loadsPath)
		switch {
		case err != nil:
			return nil, err
		case status == http.StatusOK:
			return readLoads(body, size)
		case status != http.StatusNotFound:
			return nil, fmt.Errorf("load %s: /v1/loads answered status %d", e.URL(), status)
		}
		e.noLoads.Store(true)
	}
	status, text, err := e.Get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("load %s: /metrics answered status %d", e.URL(), status)
	}
	loads := readMetrics(text, size)
	if len(loads) == 0 {
		return nil, fmt.Errorf("load %s: /metrics has no series of SGLang", e.URL())
	}
	return loads, nil
}

// readLoads reads an answer of /v1/loads, for blocks of so many tokens.
func readLoads(body []byte, size int) ([]engine.Load, error) {
	var doc struct {
		Loads []struct {
			Rank      openaihttp.Int `json:"dp_rank"`
			Running   openaihttp.Int `json:"num_running_reqs"`
			Waiting   openaihttp.Int `json:"num_waiting_reqs"`
			Used      openaihttp.Int `json:"num_used_tokens"`
			MaxTokens openaihttp.Int `json:"max_total_num_tokens"`
			Usage     float64        `json:"token_usage"`
		} `json:"loads"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, fmt.Errorf("/v1/loads: %w", err)
	}
	byRank := make(map[uint32]engine.Load, len(doc.Loads))
	for _, l := range doc.Loads {
		if l.Rank < 0 || l.Rank >= maxRank {
			continue
		}
		byRank[uint32(l.Rank)] = engine.Load{
			Rank: uint32(l.Rank), Usage: openaihttp.Share(l.Usage),
			Running: openaihttp.Count(float64(l.Running)), Waiting: openaihttp.Count(float64(l.Waiting)),
			UsedBlocks:  openaihttp.Count(float64(l.Used)) / size,
			TotalBlocks: openaihttp.Count(float64(l.MaxTokens)) / size,
		}
	}
	return sorted(byRank), nil
}

// names are the series that are read.
var names = map[string]bool{
	"sglang:num_running_reqs":     true,
	"sglang:num_queue_reqs":       true,
	"sglang:token_usage":          true,
	"sglang:num_used_tokens":      true,
	"sglang:max_total_num_tokens": true,
}

// maxRank is more than any deployment has.
const maxRank = 1024

// readMetrics reads the loads that /metrics tells. Each process of a rank tells the
// same; a series with a priority is a part of the one without.
func readMetrics(text []byte, size int) []engine.Load {
	byRank := make(map[uint32]engine.Load)
	for s := range promtext.Samples(text, names) {
		rank, err := strconv.ParseUint(s.Labels["dp_rank"], 10, 32)
		if err != nil && s.Labels["dp_rank"] != "" || rank >= maxRank || s.Labels["priority"] != "" {
			continue
		}
		l := byRank[uint32(rank)]
		l.Rank = uint32(rank)
		switch s.Name {
		case "sglang:num_running_reqs":
			l.Running = max(l.Running, openaihttp.Count(s.Value))
		case "sglang:num_queue_reqs":
			l.Waiting = max(l.Waiting, openaihttp.Count(s.Value))
		case "sglang:token_usage":
			l.Usage = max(l.Usage, openaihttp.Share(s.Value))
		case "sglang:num_used_tokens":
			l.UsedBlocks = max(l.UsedBlocks, openaihttp.Count(s.Value)/size)
		default:
			l.TotalBlocks = max(l.TotalBlocks, openaihttp.Count(s.Value)/size)
		}
		byRank[uint32(rank)] = l
	}
	return sorted(byRank)
}

func sorted(byRank map[uint32]engine.Load) []engine.Load {
	loads := make([]engine.Load, 0, len(byRank))
	for _, rank := range slices.Sorted(maps.Keys(byRank)) {
		loads = append(loads, byRank[rank])
	}
	return loads
}
