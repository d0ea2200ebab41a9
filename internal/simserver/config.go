package simserver

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/simengine"
)

// Config describes the engine to simulate. The zero value is usable; fields that
// are 0 take the default named.
type Config struct {
	// Model is the name it serves; default "stator-sim".
	Model string
	// Adapters are the LoRA adapters it serves, each under its own name. They
	// have no part in the text, but keep their blocks in the cache apart.
	Adapters []string
	// Worker is the engine's id in its fleet, told by the models route unless
	// 0 and by its events. It has no part in the text.
	Worker kv.WorkerID
	// Seed decides the text, and which speculated tokens are right.
	Seed uint64
	// Vocabulary is what its tokens are; default [Qwen3].
	Vocabulary Vocabulary
	// Dress is the engine that it looks like; default [Plain].
	Dress Dress
	// DevMode has a dressed vLLM answer the routes of its development mode.
	DevMode bool
	// PriorityScheduling has the engine go by the priorities of requests: a dressed
	// one by what its requests say, in its own way. It needs Engine.
	PriorityScheduling bool
	// Slots is how many requests a dressed llama.cpp runs at a time, each with
	// ContextLength tokens to itself; default 4. It has blocks of one token, as many
	// as that takes.
	Slots int
	// Faults are what goes wrong from the start, see [Server.Fault].
	Faults []Fault
	// Kind is the engine whose metrics and scheduler it has, vLLM or SGLang; default
	// that of Dress, or [simengine.VLLM].
	Kind simengine.Kind
	// Engine is the model that says when tokens come and what the KV cache
	// holds, one per rank. Its Kind, Blocks, BlockSize, MaxBatchedTokens (and
	// SGLang's ChunkedPrefillSize), MaxModelLen and Seed are those of this Config
	// and must be left out.
	//
	// Nil means no model: every request has its tokens at the times that TTFT
	// and ITL say, whatever else runs, and nothing is cached.
	Engine *simengine.Config
	// TTFT is the time from the request to the first token and ITL the time
	// from one token to the next. 0 means at once. Without Engine only.
	TTFT, ITL time.Duration
	// ContextLength bounds prompt and answer together, in tokens; default
	// 32768. A longer answer ends there, a longer prompt is refused.
	ContextLength int
	// BlockSize is the number of tokens in a KV block (default 16), TotalBlocks
	// the number of blocks of a rank (default 16384), and MaxBatchedTokens the
	// number of tokens in a pass (default 8192).
	BlockSize, TotalBlocks, MaxBatchedTokens int
	// Ranks is the number of data-parallel ranks; default 1.
	Ranks int
	// Clock makes time virtual: passes take no time, and the clock of the model
	// goes as far as requests and drains let it. It needs Engine. Nil is the
	// wall clock.
	Clock *Clock
	// Events gets the changes of the caches, a batch for each pass that has any,
	// in the order of each rank; different ranks may call it at the same time.
	// The batch is the receiver's. It must not call the server.
	Events func(*kv.Batch)
	// Publish has the changes of the caches published besides, as the engine that is
	// simulated does; nil for not at all. It needs Engine.
	Publish *PublishConfig
	// EarlyEvents publishes what a pass changes when it begins, as older mock
	// engines do, and not at its end, before the tokens.
	EarlyEvents bool
	// Epoch is that of the batches. A server that takes the place of another
	// begins with an empty cache and needs a new one.
	Epoch uint64
}

// What a server may be told. The bounds are far above any real engine, and keep a
// slip of the pen from taking all memory.
const (
	// MaxRanks bounds Config.Ranks.
	MaxRanks = 1024
	// MaxBlocks bounds Config.TotalBlocks.
	MaxBlocks = 1 << 24
	// MaxAllBlocks bounds the blocks of all ranks together, where engines are
	// modelled: each block takes some 40 bytes from the start.
	MaxAllBlocks = 1 << 26
	// MaxBlockSize bounds Config.BlockSize.
	MaxBlockSize = 1 << 16
	// MaxTokens bounds Config.ContextLength and Config.MaxBatchedTokens.
	MaxTokens = 1 << 30
	// MaxSeqs bounds the requests in a pass of Config.Engine.
	MaxSeqs = 1 << 30
	// MaxAdapters bounds the length of Config.Adapters.
	MaxAdapters = 1024
)

// withDefaults fills in defaults and checks the rest.
func (c Config) withDefaults() (Config, error) {
	if c.Model == "" {
		c.Model = "stator-sim"
	}
	if err := c.dressed(); err != nil {
		return c, err
	}
	switch {
	case c.Kind == "":
		c.Kind = simengine.VLLM
	case c.Kind == simengine.VLLM, c.Kind == simengine.SGLang, c.Dress == DressLlamaCpp:
	default:
		return c, fmt.Errorf("simserver: kind: expected %s or %s, got %q", simengine.VLLM, simengine.SGLang, c.Kind)
	}
	if c.Vocabulary == "" {
		c.Vocabulary = Qwen3
	}
	if err := c.Vocabulary.Check(); err != nil {
		return c, fmt.Errorf("simserver: vocabulary: %w", err)
	}
	if n := len(c.Adapters); n > MaxAdapters {
		return c, fmt.Errorf("simserver: adapters: expected at most %d, got %d", MaxAdapters, n)
	}
	for i, name := range c.Adapters {
		if name == "" || name == c.Model || slices.Contains(c.Adapters[:i], name) {
			return c, fmt.Errorf("simserver: adapters[%d]: expected a name of its own, got %q", i, name)
		}
	}
	for _, f := range []struct {
		name           string
		value          *int
		def, low, high int
	}{
		{"context length", &c.ContextLength, defaultContext, 2, MaxTokens},
		{"block size", &c.BlockSize, 16, 1, MaxBlockSize},
		{"total blocks", &c.TotalBlocks, 16384, 1, MaxBlocks},
		{"max batched tokens", &c.MaxBatchedTokens, 8192, 1, MaxTokens},
		{"ranks", &c.Ranks, 1, 1, MaxRanks},
	} {
		if *f.value == 0 {
			*f.value = f.def
		}
		if *f.value < f.low {
			return c, fmt.Errorf("simserver: %s: expected at least %d, got %d", f.name, f.low, *f.value)
		}
		if *f.value > f.high {
			return c, fmt.Errorf("simserver: %s: expected at most %d, got %d", f.name, f.high, *f.value)
		}
	}
	if c.Engine != nil {
		if most := MaxAllBlocks / c.Ranks; c.TotalBlocks > most {
			return c, fmt.Errorf("simserver: total blocks: expected at most %d with %d ranks, got %d", most, c.Ranks, c.TotalBlocks)
		}
		if n := c.Engine.MaxSeqs; n > MaxSeqs {
			return c, fmt.Errorf("simserver: engine: max seqs: expected at most %d, got %d", MaxSeqs, n)
		}
	}
	if c.Publish != nil {
		p, err := c.Publish.withDefaults(&c)
		if err != nil {
			return c, err
		}
		c.Publish = &p
	}
	if c.TTFT < 0 {
		return c, fmt.Errorf("simserver: time to first token: expected no negative duration, got %v", c.TTFT)
	}
	if c.ITL < 0 {
		return c, fmt.Errorf("simserver: inter-token latency: expected no negative duration, got %v", c.ITL)
	}
	switch {
	case c.Engine == nil && c.Clock != nil:
		return c, errors.New("simserver: clock: expected an engine model with virtual time")
	case c.Engine == nil && c.PriorityScheduling:
		return c, errors.New("simserver: priority scheduling: expected an engine model with it")
	case c.Engine != nil && (c.TTFT != 0 || c.ITL != 0):
		return c, errors.New("simserver: time to first token, inter-token latency: expected none with an engine model, which has its own")
	}
	return c, nil
}

// model returns the configuration of a rank's engine.
func (c *Config) model() (simengine.Config, error) {
	e := *c.Engine
	if e.Kind != "" || e.Blocks != 0 || e.BlockSize != 0 || e.MaxBatchedTokens != 0 || e.SGLang.ChunkedPrefillSize != 0 || e.MaxModelLen != 0 || e.Seed != 0 {
		return e, errors.New("simserver: engine: expected kind, blocks, block size, max batched tokens, chunked prefill size, max model length and seed in the server's configuration only")
	}
	if e.Role != "" && e.Role != simengine.Aggregated {
		return e, fmt.Errorf("simserver: engine: role: expected %s, got %q", simengine.Aggregated, e.Role)
	}
	e.Kind = c.Kind
	e.Blocks = c.TotalBlocks
	e.BlockSize = c.BlockSize
	e.MaxBatchedTokens = c.MaxBatchedTokens
	if c.Kind == simengine.SGLang {
		e.SGLang.ChunkedPrefillSize = c.chunk()
	}
	if c.Dress == DressLlamaCpp {
		e.MaxSeqs = c.Slots
	}
	e.Priority = c.PriorityScheduling
	e.MaxModelLen = c.ContextLength
	e.Seed = c.Seed
	return e, nil
}

// chunk returns the number of prompt tokens in a pass of SGLang, in full pages.
func (c *Config) chunk() int { return max(c.MaxBatchedTokens/c.BlockSize, 1) * c.BlockSize }

// room returns how many tokens, prompt and answer together, one request can have.
func (c *Config) room() int {
	if c.Engine == nil {
		return c.ContextLength
	}
	room := c.TotalBlocks * c.BlockSize
	if r := c.Engine.Rules; r == "" || r == simengine.Current {
		room++ // the last token of an answer is never computed and needs no block
	}
	return min(c.ContextLength, room)
}
