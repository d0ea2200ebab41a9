package simengine

import (
	"fmt"
	"math"
)

// Kind is the engine whose scheduler is modelled.
type Kind string

// The kinds.
const (
	VLLM   Kind = "vllm"
	SGLang Kind = "sglang"
	// LlamaCpp has slots in place of a cache of shared blocks: each runs a request
	// at a time and keeps what it computed for the next one that begins alike.
	LlamaCpp Kind = "llamacpp"
)

// Rules selects between how engines schedule today and how NVIDIA Dynamo's mock
// engine does, flaws included, for comparison with numbers obtained there.
type Rules string

// The rules.
const (
	// Current is how vLLM and SGLang schedule.
	Current Rules = "current"
	// Mocker is Dynamo's mock engine, release 1.1.0: a waiting request may take
	// blocks from running ones, blocks are shared before they are computed, and a
	// prompt found in the cache as a whole costs nothing.
	Mocker Rules = "mocker"
	// MockerGated is Mocker, except that a request waits until there is room for
	// it.
	MockerGated Rules = "mocker-gated"
)

// Role is the part of a request that an engine does.
type Role string

// The roles.
const (
	Aggregated Role = "aggregated"
	// Prefill computes prompts. A request ends with its first token, whose
	// Output says how long handing the cache over takes.
	Prefill Role = "prefill"
	// Decode gets computed prompts from elsewhere: they take up budget and
	// blocks, but no time. It tells nobody about its cache.
	Decode Role = "decode"
)

// Victim is the running request that gives way when blocks are short.
type Victim string

// The victims.
const (
	Newest Victim = "lifo" // the one admitted last
	Oldest Victim = "fifo" // the one admitted first
)

// Unlimited stands for no limit where one can be set.
const Unlimited = math.MaxInt

// Config describes one rank. The zero value is a vLLM engine with its defaults;
// a field that is 0 or empty takes the default named.
type Config struct {
	// Kind is the engine modelled; default VLLM.
	Kind Kind
	// Rules are the scheduler's; default Current.
	Rules Rules
	// Role is what part of a request it does; default Aggregated.
	Role Role
	// Blocks is the number of KV blocks; default 16384.
	Blocks int
	// BlockSize is the number of tokens in a block, for SGLang in a page;
	// default 64 for vLLM and 1 for SGLang. LlamaCpp has 1.
	BlockSize int
	// MaxSeqs bounds the requests in a pass; default 256. For LlamaCpp it is the
	// number of slots, default 4, which share the blocks in equal parts.
	MaxSeqs int
	// MaxBatchedTokens bounds the tokens in a pass; default 8192.
	MaxBatchedTokens int
	// MaxModelLen bounds prompt and answer together; default Unlimited. A
	// prompt that leaves no room for an answer is rejected.
	MaxModelLen int
	// NoPrefixCaching turns the reuse of blocks off, and with it KV events.
	NoPrefixCaching bool
	// NoChunkedPrefill makes a prompt wait until it fits into a pass.
	NoChunkedPrefill bool
	// Watermark is the share of blocks that admission leaves free, below 1;
	// default 0.
	Watermark float64
	// Victim is who gives way; default Newest. SGLang always takes the request
	// with the shortest answer so far.
	Victim Victim
	// Priority has requests with more of it admitted first, in the order of their
	// arrival where it is the same; vLLM and SGLang with the rules Current only. With
	// vLLM the one with the least gives way, whatever Victim says.
	Priority bool
	// Timing says how long a pass takes; default Linear.
	Timing Timing
	// Speedup divides the time of a pass and DecodeSpeedup that of its decode
	// part once more; at least a millionth, default 1.
	Speedup, DecodeSpeedup float64
	// KVBytesPerToken and TransferBandwidth, in GB/s (10^9 bytes), give the time
	// a Prefill engine takes to hand a prompt over. Either 0 means no time.
	KVBytesPerToken   int
	TransferBandwidth float64
	// Draft is the number of tokens speculated in each decode step, up to 5;
	// default 0.
	Draft int
	// Accept is the probability that a speculated token is right if those before
	// it were; default 0.85, 0.3, 0, 0, 0.
	Accept []float64
	// Seed decides which speculated tokens are right.
	Seed uint64
	// SGLang holds what only SGLang has.
	SGLang SGLangConfig
}

// withDefaults fills in defaults and checks the rest.
func (c Config) withDefaults() (Config, error) {
	if err := oneOf("kind", &c.Kind, VLLM, SGLang, LlamaCpp); err != nil {
		return c, err
	}
	if err := oneOf("rules", &c.Rules, Current, Mocker, MockerGated); err != nil {
		return c, err
	}
	if err := oneOf("role", &c.Role, Aggregated, Prefill, Decode); err != nil {
		return c, err
	}
	if err := oneOf("victim", &c.Victim, Newest, Oldest); err != nil {
		return c, err
	}
	size, least, seqs := 64, 2, 256
	switch c.Kind {
	case SGLang:
		size, least = 1, 1
	case LlamaCpp:
		size, least, seqs = 1, 1, 4
	}
	for _, f := range []struct {
		name     string
		value    *int
		def, min int
	}{
		{"blocks", &c.Blocks, 16384, 1},
		{"block size", &c.BlockSize, size, least},
		{"max seqs", &c.MaxSeqs, seqs, 1},
		{"max batched tokens", &c.MaxBatchedTokens, 8192, 1},
		{"max model length", &c.MaxModelLen, Unlimited, 2},
		{"KV bytes per token", &c.KVBytesPerToken, 0, 0},
		{"draft", &c.Draft, 0, 0},
	} {
		if *f.value == 0 {
			*f.value = f.def
		}
		if *f.value < f.min {
			return c, fmt.Errorf("simengine: %s: expected at least %d, got %d", f.name, f.min, *f.value)
		}
	}
	if c.Blocks > maxCapacity/c.BlockSize {
		return c, fmt.Errorf("simengine: blocks: expected at most %d of %d tokens each, got %d", maxCapacity/c.BlockSize, c.BlockSize, c.Blocks)
	}
	for _, f := range []struct {
		name     string
		value    *float64
		def, min float64
	}{
		{"speedup", &c.Speedup, 1, 1e-6},
		{"decode speedup", &c.DecodeSpeedup, 1, 1e-6},
		{"transfer bandwidth", &c.TransferBandwidth, 0, 0},
	} {
		if *f.value == 0 {
			*f.value = f.def
		}
		if !(*f.value >= f.min) || math.IsInf(*f.value, 0) {
			return c, fmt.Errorf("simengine: %s: expected a number of at least %v, got %v", f.name, f.min, *f.value)
		}
	}
	if !(c.Watermark >= 0 && c.Watermark < 1) {
		return c, fmt.Errorf("simengine: watermark: expected a share from 0 to below 1, got %v", c.Watermark)
	}
	if c.Draft > maxDraft {
		return c, fmt.Errorf("simengine: draft: expected at most %d, got %d", maxDraft, c.Draft)
	}
	if c.Draft > 0 && (c.Rules != Current || c.Kind != VLLM) {
		return c, fmt.Errorf("simengine: draft: expected 0 unless kind is %s with rules %s", VLLM, Current)
	}
	if c.Accept == nil {
		c.Accept = []float64{0.85, 0.3, 0, 0, 0}
	}
	for i, p := range c.Accept {
		if !(p >= 0 && p <= 1) {
			return c, fmt.Errorf("simengine: accept[%d]: expected a probability, got %v", i, p)
		}
	}
	if len(c.Accept) < c.Draft {
		return c, fmt.Errorf("simengine: accept: expected %d probabilities, got %d", c.Draft, len(c.Accept))
	}
	if c.Timing == nil {
		c.Timing = Linear
	}
	if err := c.checkKind(); err != nil {
		return c, err
	}
	var err error
	c.SGLang, err = c.SGLang.withDefaults(&c)
	return c, err
}

// checkKind refuses what the kind of engine cannot do.
func (c *Config) checkKind() error {
	if c.Priority && (c.Kind == LlamaCpp || c.Rules != Current || c.SGLang.Policy == LPM) {
		return fmt.Errorf("simengine: priority: expected %s or %s with rules %s and without policy %s", VLLM, SGLang, Current, LPM)
	}
	if c.Kind != LlamaCpp {
		return nil
	}
	switch {
	case c.Rules != Current || c.Role != Aggregated:
		return fmt.Errorf("simengine: kind %s: expected rules %s and role %s", c.Kind, Current, Aggregated)
	case c.BlockSize != 1:
		return fmt.Errorf("simengine: block size: expected 1 for %s, got %d", c.Kind, c.BlockSize)
	case c.Blocks < 2*c.MaxSeqs:
		return fmt.Errorf("simengine: blocks: expected at least 2 for each of %d slots, got %d", c.MaxSeqs, c.Blocks)
	}
	c.MaxModelLen = min(c.MaxModelLen, c.Blocks/c.MaxSeqs)
	return nil
}

const (
	// maxDraft bounds the tokens speculated in a step.
	maxDraft = 5
	// maxCapacity bounds the tokens that a cache can hold, so that sums of them
	// are far from overflowing.
	maxCapacity = 1 << 40
	// maxDuration bounds each part of a pass: thirty years.
	maxDuration = 1e18
)

// oneOf checks that v is one of the words, the first when it is empty.
func oneOf[T ~string](name string, v *T, words ...T) error {
	if *v == "" {
		*v = words[0]
	}
	for _, w := range words {
		if *v == w {
			return nil
		}
	}
	return fmt.Errorf("simengine: %s: expected one of %q, got %q", name, words, *v)
}

// room is how many tokens one request can have if it is alone.
func (c *Config) room() int {
	n := c.Blocks * c.BlockSize
	if c.Rules == Current {
		n++ // the last token of an answer is never computed
	}
	return n
}

// impossible reports whether r can never run.
func (c *Config) impossible(r *Request) bool {
	return r.Prompt < 1 || r.Prompt > c.Blocks*c.BlockSize || r.Prompt >= c.MaxModelLen || r.limit < 1 && !r.WarmUp
}
