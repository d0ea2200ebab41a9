package vllm

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/eventsocket"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
)

// config is what a server in development mode says about itself.
type config struct {
	Model struct {
		MaxModelLen openaihttp.Int `json:"max_model_len"`
	} `json:"model_config"`
	Cache struct {
		BlockSize     openaihttp.Int `json:"block_size"`
		NumGPUBlocks  openaihttp.Int `json:"num_gpu_blocks"`
		PrefixCaching *bool          `json:"enable_prefix_caching"`
	} `json:"cache_config"`
	Scheduler struct {
		Policy           string         `json:"policy"`
		MaxSeqs          openaihttp.Int `json:"max_num_seqs"`
		MaxBatchedTokens openaihttp.Int `json:"max_num_batched_tokens"`
	} `json:"scheduler_config"`
	Parallel struct {
		Size       openaihttp.Int `json:"data_parallel_size"`
		SizeLocal  openaihttp.Int `json:"data_parallel_size_local"`
		Rank       openaihttp.Int `json:"data_parallel_rank"`
		ExternalLB bool           `json:"data_parallel_external_lb"`
		HybridLB   bool           `json:"data_parallel_hybrid_lb"`
	} `json:"parallel_config"`
	Events *events `json:"kv_events_config"`
}

// events are how a server, or one of its ranks, publishes what becomes of its cache.
type events struct {
	Enabled   bool   `json:"enable_kv_cache_events"`
	Publisher string `json:"publisher"`
	Endpoint  string `json:"endpoint"`
	Replay    string `json:"replay_endpoint"`
	Topic     string `json:"topic"`
}

func (ev *events) on() bool { return ev.Enabled && ev.Publisher != "null" }

// answers are all that a server was asked for, with what it does not tell left empty.
type answers struct {
	version string
	metrics *metrics // nil if there are none
	config  *config  // nil outside of development mode
	// sources are the sockets of each rank, by its number in the deployment; nil from
	// servers that do not say, and empty from those that publish nothing.
	sources map[int]eventsocket.Sockets
}

// configTimeout is how long a server may take over its configuration: the first time it
// looks at the machine for two or three seconds, and goes on with that for the next time
// if nobody waits any more. An identification has five seconds, and trying sockets takes
// milliseconds where there are any.
const configTimeout = 4 * time.Second

// Identify implements [engine.Engine].
func (e *Engine) Identify(ctx context.Context) (*engine.Info, error) {
	return e.IdentifyWith(ctx, e.Describe)
}

// Describe is Identify for who has the model list already. It takes five seconds at
// most, whatever the server does not answer.
func (e *Engine) Describe(ctx context.Context, cards []openaihttp.Card) *engine.Info {
	a := e.ask(ctx)
	d := a.deployment()
	info := &engine.Info{Kind: engine.VLLM, Version: a.version, Models: openaihttp.Models(cards)}
	for i := range info.Models {
		a.describe(&info.Models[i], d)
	}
	if a.metrics != nil {
		info.Life = a.metrics.life
	}
	if c := a.config; c != nil {
		info.Priority = engine.PriorityIgnored
		if c.Scheduler.Policy == "priority" {
			info.Priority = engine.PriorityHonoured
		}
	}
	var warnings []engine.Warning
	info.Streams, warnings = eventsocket.Find(ctx, eventsocket.Query{
		Options: e.opt, Announced: a.announced(), Host: e.Host(), InMemory: e.InMemory(),
		Ranks: d.ranks, First: d.first, Counted: true,
		Advice: `start vLLM with --kv-events-config '{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557"}'`,
	})
	info.Warnings = append(warnings, a.warnings(info)...)
	slices.SortFunc(info.Warnings, func(x, y engine.Warning) int { return cmp.Or(cmp.Compare(x.Code, y.Code), cmp.Compare(x.Text, y.Text)) })
	if f := e.facts.Load(); f == nil || f.life != info.Life {
		e.unbounded.Store(false)
	}
	e.facts.Store(&facts{priority: info.Priority, life: info.Life})
	return info
}

// ask asks for all that a server may tell, at once.
func (e *Engine) ask(ctx context.Context) (a answers) {
	var wg sync.WaitGroup
	wg.Go(func() {
		if v, _ := e.version.Ask(ctx, e.Engine, openaihttp.JSON[about], "/version"); v != nil {
			a.version = v.Version
		}
	})
	wg.Go(func() { a.metrics, _ = e.metrics.Ask(ctx, e.Engine, seriesOf, "/metrics") })
	wg.Go(func() {
		s, _ := e.config.AskWithin(ctx, configTimeout, e.Engine, openaihttp.JSON[serverInfo], "/server_info?config_format=json")
		if s != nil {
			a.config = s.Config
		}
	})
	wg.Go(func() {
		if s, _ := e.sources.Ask(ctx, e.Engine, openaihttp.JSON[map[string]*events], "/kv_event_sources"); s != nil && *s != nil {
			a.sources = sources(*s)
		}
	})
	wg.Wait()
	return a
}

// sources returns the sockets of the ranks that publish; nil if what is told is no list
// of ranks.
func sources(told map[string]*events) map[int]eventsocket.Sockets {
	out := make(map[int]eventsocket.Sockets)
	for key, ev := range told {
		rank, err := strconv.Atoi(key)
		if err != nil || rank < 0 || rank >= maxRank {
			return nil
		}
		if ev != nil && ev.on() {
			out[rank] = eventsocket.Sockets{Endpoint: ev.Endpoint, Replay: ev.Replay, Topic: ev.Topic}
		}
	}
	return out
}

// deployment is how the ranks of a model are shared out among servers.
type deployment struct {
	ranks int // that this server reaches
	first int // what the deployment calls the first of them
}

// deployment of a server that balances among all ranks begins at 0. One that has a
// port for each node or each rank (hybrid or external balancing) reaches its own only.
func (a *answers) deployment() deployment {
	d := deployment{ranks: 1}
	ranks := slices.Collect(maps.Keys(a.sources))
	if m := a.metrics; m != nil {
		ranks = slices.AppendSeq(ranks, maps.Keys(m.engines))
	}
	if len(ranks) > 0 {
		d.first, d.ranks = span(ranks)
	}
	if c := a.config; c != nil && c.Parallel.Size > 0 {
		switch p := c.Parallel; {
		case p.ExternalLB:
			d.first, d.ranks = openaihttp.Ranks(p.Rank), 1
		case p.HybridLB && p.SizeLocal > 0:
			d.first, d.ranks = openaihttp.Ranks(p.Rank), openaihttp.Ranks(p.SizeLocal)
		default:
			d.first, d.ranks = 0, openaihttp.Ranks(p.Size)
		}
	}
	return d
}

// describe completes a model by what is known of the server.
func (a *answers) describe(m *engine.Model, d deployment) {
	m.Ranks = d.ranks
	blocks := 0
	if a.metrics != nil {
		m.BlockSize, blocks = a.metrics.blockSize, a.metrics.blocks
	}
	if c := a.config; c != nil {
		m.BlockSize = cmp.Or(int(max(c.Cache.BlockSize, 0)), m.BlockSize)
		blocks = cmp.Or(int(max(c.Cache.NumGPUBlocks, 0)), blocks)
		m.ContextLength = cmp.Or(m.ContextLength, int(max(c.Model.MaxModelLen, 0)))
		m.MaxSeqs = int(max(c.Scheduler.MaxSeqs, 0))
		m.MaxBatchedTokens = int(max(c.Scheduler.MaxBatchedTokens, 0))
	}
	m.TotalBlocks = blocks / d.ranks // what is told is the sum
}

// announced is what a server says about its event sockets: where they are, as vLLM 0.32
// does, or in development mode how it was told to make them.
func (a *answers) announced() *eventsocket.Announced {
	c := a.config
	switch {
	case a.sources != nil:
		return &eventsocket.Announced{On: len(a.sources) > 0, Ranks: a.sources}
	case c == nil:
		return nil
	case c.Events == nil:
		return &eventsocket.Announced{}
	}
	ev := c.Events
	return &eventsocket.Announced{
		On:       ev.on(),
		Endpoint: cmp.Or(ev.Endpoint, "tcp://*:5557"), Replay: ev.Replay, Topic: ev.Topic,
	}
}

// warnings say what about the server stands in the way, apart from its events.
func (a *answers) warnings(info *engine.Info) (out []engine.Warning) {
	if a.metrics == nil {
		out = append(out, engine.Warning{Code: "no_metrics", Text: "/metrics has no series of vLLM: its load, block size and restarts are not known; start vLLM without --disable-log-stats"})
	}
	caching := ""
	if a.metrics != nil {
		caching = a.metrics.caching
	}
	if c := a.config; strings.EqualFold(caching, "false") || c != nil && c.Cache.PrefixCaching != nil && !*c.Cache.PrefixCaching {
		out = append(out, engine.Warning{Code: "prefix_caching_off", Text: "nothing of a prompt is kept for the next; start vLLM with --enable-prefix-caching"})
	}
	if info.Priority == engine.PriorityIgnored {
		out = append(out, engine.Warning{Code: "priority_ignored", Text: "the engine takes requests in the order they come; start vLLM with --scheduling-policy priority"})
	}
	return out
}

// about is what /version tells.
type about struct {
	Version string `json:"version"`
}

// serverInfo is what /server_info tells in development mode.
type serverInfo struct {
	Config *config `json:"vllm_config"`
}

// seriesOf reads a page of metrics, nil for one that has none of the engine's.
func seriesOf(text []byte) *metrics {
	if m := readMetrics(text); len(m.engines) > 0 || m.blockSize > 0 {
		return m
	}
	return nil
}

// Forget forgets what the server told of itself, for an address that another engine has
// taken over.
func (e *Engine) Forget() {
	e.version.Forget()
	e.metrics.Forget()
	e.config.Forget()
	e.sources.Forget()
}
