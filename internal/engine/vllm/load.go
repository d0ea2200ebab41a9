package vllm

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
	"github.com/stator-ai/stator/internal/engine/promtext"
)

// metrics are what /metrics says.
type metrics struct {
	engines   map[int]*engine.Load // by the number of the rank in the deployment
	blockSize int
	blocks    int    // of all ranks that the server reaches
	caching   string // whether prefixes are cached, as Python writes it; empty if not said
	life      string
}

// names are the series that are read, of all releases since 0.9.
var names = map[string]bool{
	"vllm:num_requests_running":    true,
	"vllm:num_requests_waiting":    true,
	"vllm:kv_cache_usage_perc":     true,
	"vllm:gpu_cache_usage_perc":    true, // before 0.9.2
	"vllm:cache_config_info":       true,
	"process_start_time_seconds":   true,
	"vllm:prompt_tokens_created":   true,
	"vllm:num_preemptions_created": true,
}

// maxRank is more than any deployment has.
const maxRank = 4096

// readMetrics reads what there is.
func readMetrics(text []byte) *metrics {
	m := &metrics{engines: make(map[int]*engine.Load)}
	var started, created float64
	var configured []string // ranks
	for s := range promtext.Samples(text, names) {
		switch s.Name {
		case "process_start_time_seconds":
			started = s.Value
		case "vllm:prompt_tokens_created", "vllm:num_preemptions_created":
			if created == 0 || s.Value < created {
				created = s.Value
			}
		case "vllm:cache_config_info":
			m.blockSize = positive(s.Labels["block_size"])
			m.blocks = positive(s.Labels["num_gpu_blocks"])
			m.caching = s.Labels["enable_prefix_caching"]
			configured = append(configured, s.Labels["engine"])
		default:
			m.add(s)
		}
	}
	// Servers of several processes have no series of a rank before their first request.
	if len(m.engines) == 0 {
		for _, label := range configured {
			if label != "" {
				m.rank(label)
			}
		}
	}
	// Counters are as old as the process, for servers that leave its own age out.
	if started == 0 || math.IsNaN(started) {
		started = created
	}
	if started > 0 {
		m.life = strconv.FormatFloat(started, 'f', -1, 64)
	}
	return m
}

// rank returns the load of the rank that a label names, nil if it names none.
func (m *metrics) rank(label string) *engine.Load {
	rank, err := strconv.Atoi(label) // earlier releases had one rank and no label
	if err != nil && label != "" || rank < 0 || rank >= maxRank {
		return nil
	}
	l := m.engines[rank]
	if l == nil {
		l = new(engine.Load)
		m.engines[rank] = l
	}
	return l
}

// add takes in a sample of one rank.
func (m *metrics) add(s promtext.Sample) {
	l := m.rank(s.Labels["engine"])
	if l == nil {
		return
	}
	switch s.Name {
	case "vllm:num_requests_running":
		l.Running = max(l.Running, openaihttp.Count(s.Value))
	case "vllm:num_requests_waiting":
		l.Waiting = max(l.Waiting, openaihttp.Count(s.Value))
	default:
		l.Usage = max(l.Usage, openaihttp.Share(s.Value))
	}
}

// span returns the lowest of some ranks and how many there are from it to the highest.
func span(ranks []int) (first, n int) {
	first = slices.Min(ranks)
	return first, min(slices.Max(ranks)-first+1, openaihttp.Ranks(maxRank))
}

// positive returns the number in a label, 0 for None.
func positive(label string) int { return int(max(openaihttp.ParseInt(label), 0)) }

// Load implements [engine.Loader] by /metrics. Usage is of blocks that requests hold;
// what is only cached counts as free.
func (e *Engine) Load(ctx context.Context) ([]engine.Load, error) {
	status, text, err := e.Get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("load %s: /metrics answered status %d", e.URL(), status)
	}
	m := readMetrics(text)
	if len(m.engines) == 0 {
		return nil, fmt.Errorf("load %s: /metrics has no series of vLLM", e.URL())
	}
	ranks := slices.Sorted(maps.Keys(m.engines))
	first, n := span(ranks)
	loads := make([]engine.Load, 0, len(ranks))
	for _, rank := range ranks {
		l := *m.engines[rank]
		l.Rank = uint32(rank - first)
		l.TotalBlocks = m.blocks / n
		l.UsedBlocks = int(math.Round(l.Usage * float64(l.TotalBlocks)))
		loads = append(loads, l)
	}
	return loads, nil
}
