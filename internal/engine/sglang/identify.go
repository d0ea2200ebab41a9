package sglang

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/eventsocket"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
)

// serverInfo is what /server_info tells of how a server was started.
type serverInfo struct {
	Version          string         `json:"version"`
	ContextLength    openaihttp.Int `json:"context_length"`
	PageSize         openaihttp.Int `json:"page_size"`
	Ranks            openaihttp.Int `json:"dp_size"`
	MaxTokens        openaihttp.Int `json:"max_total_num_tokens"` // of one rank
	ChunkedPrefill   openaihttp.Int `json:"chunked_prefill_size"`
	MaxPrefill       openaihttp.Int `json:"max_prefill_tokens"`
	MaxRunning       openaihttp.Int `json:"max_running_requests"`
	RandomSeed       openaihttp.Int `json:"random_seed"`
	DisableRadix     bool           `json:"disable_radix_cache"`
	Mode             string         `json:"disaggregation_mode"`
	DecodeRadix      bool           `json:"disaggregation_decode_enable_radix_cache"`
	CacheReport      *bool          `json:"enable_cache_report"`
	Metrics          *bool          `json:"enable_metrics"`
	LoRA             bool           `json:"enable_lora"`
	Priority         *bool          `json:"enable_priority_scheduling"`
	LowPriorityFirst bool           `json:"schedule_low_priority_values_first"`
	Usage            bool           `json:"stream_response_default_include_usage"`
	EventsConfig     string         `json:"kv_events_config"`
	Events           *struct {
		Publisher string         `json:"publisher"`
		Host      string         `json:"endpoint_host"`
		Port      openaihttp.Int `json:"endpoint_port_base"`
		Topic     string         `json:"topic"`
		BlockSize openaihttp.Int `json:"block_size"`
	} `json:"kv_events"`
	States []struct {
		MaxRunning openaihttp.Int `json:"effective_max_running_requests_per_dp"`
		Memory     struct {
			Tokens openaihttp.Int `json:"token_capacity"`
		} `json:"memory_usage"`
	} `json:"internal_states"`
}

// Identify implements [engine.Engine].
func (e *Engine) Identify(ctx context.Context) (*engine.Info, error) {
	return e.IdentifyWith(ctx, e.Describe)
}

// Describe is Identify for who has the model list already. It takes a few seconds at
// most, whatever the server does not answer; that is taken to be as it was.
func (e *Engine) Describe(ctx context.Context, cards []openaihttp.Card) *engine.Info {
	s, _ := e.info.Ask(ctx, e.Engine, openaihttp.JSON[serverInfo], "/server_info", "/get_server_info")
	told := s != nil
	if !told {
		s = new(serverInfo)
	}
	e.noLoads.Store(false)
	size := s.blockSize()
	ranks := max(openaihttp.Ranks(s.Ranks), 1)
	info := &engine.Info{Kind: engine.SGLang, Version: s.Version, Models: openaihttp.Models(cards)}
	for i := range info.Models {
		m := &info.Models[i]
		m.BlockSize, m.Ranks = size, ranks
		m.ContextLength = cmp.Or(m.ContextLength, int(max(s.ContextLength, 0)))
		if size > 0 {
			m.TotalBlocks = int(max(s.tokens(), 0)) / size
		}
		m.MaxSeqs = s.maxSeqs()
		m.MaxBatchedTokens = int(max(s.ChunkedPrefill, 0))
		if m.MaxBatchedTokens == 0 {
			m.MaxBatchedTokens = int(max(s.MaxPrefill, 0))
		}
	}
	if s.RandomSeed != 0 {
		// Drawn at each start unless the operator has set it.
		info.Life = strconv.FormatInt(int64(s.RandomSeed), 10)
	}
	if s.Priority != nil {
		info.Priority = engine.PriorityIgnored
		if *s.Priority {
			info.Priority = engine.PriorityHonoured
		}
	}
	var announced *eventsocket.Announced
	if told {
		announced = s.announced()
	}
	var warnings []engine.Warning
	info.Streams, warnings = eventsocket.Find(ctx, eventsocket.Query{
		Options: e.opt, Announced: announced, Host: e.Host(), InMemory: e.InMemory(), Ranks: ranks, BlockSize: size,
		Advice: `start SGLang with --kv-events-config '{"publisher":"zmq","endpoint":"tcp://*:5557"}'`,
	})
	openaihttp.Warn(info, append(warnings, s.warnings(info)...)...)
	e.facts.Store(&facts{priority: info.Priority, lowFirst: s.LowPriorityFirst, usage: s.Usage, blockSize: size})
	return info
}

// Forget drops what the server has told, for one that may have become another.
func (e *Engine) Forget() { e.info.Forget() }

// blockSize returns the tokens in a block as events have it, 0 if unknown.
func (s *serverInfo) blockSize() int {
	if s.Events != nil && s.Events.BlockSize > 0 {
		return int(s.Events.BlockSize)
	}
	return int(max(s.PageSize, 0))
}

// tokens returns how many a rank's cache holds.
func (s *serverInfo) tokens() openaihttp.Int {
	if s.MaxTokens <= 0 && len(s.States) > 0 {
		return s.States[0].Memory.Tokens
	}
	return s.MaxTokens
}

// maxSeqs returns how many requests a rank runs at a time, 0 if unknown.
func (s *serverInfo) maxSeqs() int {
	if len(s.States) > 0 && s.States[0].MaxRunning > 0 {
		return int(s.States[0].MaxRunning)
	}
	return int(max(s.MaxRunning, 0)) / max(openaihttp.Ranks(s.Ranks), 1)
}

// announced is what the server says about its event sockets: where they are, since
// 0.5.13, and how it was told to make them.
func (s *serverInfo) announced() *eventsocket.Announced {
	var config struct {
		Publisher string `json:"publisher"`
		Endpoint  string `json:"endpoint"`
		Replay    string `json:"replay_endpoint"`
		Topic     string `json:"topic"`
	}
	configured := s.EventsConfig != "" && json.Unmarshal([]byte(s.EventsConfig), &config) == nil
	a := &eventsocket.Announced{
		On:       configured && config.Publisher == "zmq",
		Endpoint: cmp.Or(config.Endpoint, "tcp://*:5557"), Replay: config.Replay, Topic: config.Topic, ZeroBinds: true,
	}
	if ev := s.Events; ev != nil && ev.Port > 0 {
		a.On, a.Topic = ev.Publisher == "zmq", ev.Topic
		a.Endpoint = "tcp://" + net.JoinHostPort(ev.Host, strconv.FormatInt(int64(ev.Port), 10))
	}
	return a
}

// warnings say what about the server stands in the way, apart from whether its events
// can be had.
func (s *serverInfo) warnings(info *engine.Info) (out []engine.Warning) {
	add := func(code, format string, args ...any) {
		out = append(out, engine.Warning{Code: code, Text: fmt.Sprintf(format, args...)})
	}
	if s.blockSize() == 1 {
		add("page_size_1", "a block is one token, so that each token is an event and an entry of the index; start SGLang with --page-size 16 or more")
	}
	if s.DisableRadix || s.Mode == "decode" && !s.DecodeRadix {
		add("prefix_caching_off", "nothing of a prompt is kept for the next: the radix cache is off")
	}
	if info.Priority == engine.PriorityIgnored {
		add("priority_ignored", "the engine takes requests in the order they come; start SGLang with --enable-priority-scheduling")
	}
	if s.CacheReport != nil && !*s.CacheReport {
		add("no_cached_tokens", "answers do not say how much of the prompt was cached; start SGLang with --enable-cache-report")
	}
	if s.Metrics != nil && !*s.Metrics && len(info.Streams) > 0 {
		add("no_metrics", "without metrics some ranks publish KV events only when idle; start SGLang with --enable-metrics")
	}
	if len(info.Streams) > 0 && (s.LoRA || slices.ContainsFunc(info.Models, func(m engine.Model) bool { return m.Parent != "" })) {
		add("adapters_not_told", "KV events do not say which adapter a block is of: what is known of the cache is approximate for all adapters")
	}
	return out
}
