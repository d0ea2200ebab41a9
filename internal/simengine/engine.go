package simengine

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// Kind is the engine whose scheduler is modelled.
type Kind string

// The kinds.
const (
	VLLM   Kind = "vllm"
	SGLang Kind = "sglang"
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
	// default 64 for vLLM and 1 for SGLang.
	BlockSize int
	// MaxSeqs bounds the requests in a pass; default 256.
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
	if err := oneOf("kind", &c.Kind, VLLM, SGLang); err != nil {
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
	size, least := 64, 2
	if c.Kind == SGLang {
		size, least = 1, 1
	}
	for _, f := range []struct {
		name     string
		value    *int
		def, min int
	}{
		{"blocks", &c.Blocks, 16384, 1},
		{"block size", &c.BlockSize, size, least},
		{"max seqs", &c.MaxSeqs, 256, 1},
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
	var err error
	c.SGLang, err = c.SGLang.withDefaults(&c)
	return c, err
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

// Engine is one rank. It is not safe for concurrent use.
type Engine struct {
	cfg      Config
	sched    scheduler
	pass     Pass
	count    int        // requests received and not done
	rejected []*Request // among them, to be told with the next pass
}

// scheduler decides what a pass computes.
type scheduler interface {
	receive(*Request)
	// drop forgets a request that is waiting or running and gives back what it
	// holds.
	drop(*Request)
	// step fills in the pass, apart from its duration.
	step(*Pass)
	// news reports whether the cache has changed since the last pass, so that
	// one without requests would have something to tell.
	news() bool
	load() Load
}

// New returns an engine with an empty cache.
func New(cfg Config) (*Engine, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg}
	switch {
	case cfg.Kind == SGLang:
		e.sched = newSGLang(&e.cfg)
	case cfg.Rules == Current:
		e.sched = newVLLM(&e.cfg)
	default:
		e.sched = newMocker(&e.cfg)
	}
	return e, nil
}

// Config returns the configuration with its defaults filled in.
func (e *Engine) Config() Config { return e.cfg }

// Receive queues a request. A request that can never run, because it is empty or
// does not fit into the cache or the context, comes back as rejected with the
// next pass. The request belongs to the engine until a pass says that it is done
// or rejected, or until it is dropped; giving it a second time before that
// panics.
func (e *Engine) Receive(r *Request) {
	if r.state != idle {
		panic("simengine: request received twice")
	}
	*r = Request{
		ID: r.ID, Prompt: r.Prompt, MaxOutput: r.MaxOutput, Content: r.Content, WarmUp: r.WarmUp, Owner: r.Owner,
		blocks: r.blocks[:0],
	}
	r.limit = r.MaxOutput
	if e.cfg.Role == Prefill {
		r.limit = min(r.limit, 1)
	}
	r.limit = min(r.limit, e.cfg.room()-r.Prompt, e.cfg.MaxModelLen-r.Prompt)
	if r.WarmUp {
		r.limit = 0
	}
	r.state = waiting
	e.count++
	if e.cfg.impossible(r) {
		e.rejected = append(e.rejected, r)
	} else {
		e.sched.receive(r)
	}
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

// Drop takes a request back, wherever it is: its client is gone, or its text has
// come to an end that only the client can see. What it computed stays in the
// cache. A request that is not the engine's is left alone.
func (e *Engine) Drop(r *Request) {
	if r.state == idle {
		return
	}
	if i := slices.Index(e.rejected, r); i >= 0 {
		e.rejected = slices.Delete(e.rejected, i, i+1)
	} else {
		e.sched.drop(r)
	}
	r.state = idle
	e.count--
}

// Busy reports whether a pass would find anything to do, or to tell: blocks can
// enter the cache when a request is dropped.
func (e *Engine) Busy() bool { return e.count > 0 || e.sched.news() }

// Requests returns how many requests the engine has.
func (e *Engine) Requests() int { return e.count }

// Load returns what the engine has to do at the moment, between two passes.
func (e *Engine) Load() Load { return e.sched.load() }

// Load is how busy a rank is.
type Load struct {
	// Running and Waiting count requests. A request that lost its blocks waits.
	Running, Waiting int
	// ActiveBlocks hold what running requests need, CachedBlocks only what might
	// be used again, and TotalBlocks is how many there are.
	ActiveBlocks, CachedBlocks, TotalBlocks int
}

// Usage is the share of blocks in use.
func (l *Load) Usage() float64 { return float64(l.ActiveBlocks) / float64(l.TotalBlocks) }

// Step runs one pass and returns what came of it; the Pass is overwritten by the
// next Step. All of it is true at the end of the pass: whoever drives the engine
// waits for its Duration before anybody hears of tokens or blocks. What is
// received while a pass is under way has to wait for the next one.
//
// A pass without work has Duration 0 and is empty. Where there is work, each pass
// moves it on: it computes tokens, ends a request, or takes blocks from one.
func (e *Engine) Step() *Pass {
	p := &e.pass
	p.reset()
	if !e.Busy() {
		return p
	}
	p.Batch.Kind = e.cfg.Kind
	p.Rejected = append(p.Rejected, e.rejected...)
	e.rejected = e.rejected[:0]
	e.sched.step(p)
	p.Prefill = e.duration(e.prefillMS(&p.Batch), e.cfg.Speedup)
	p.Decode = e.duration(e.decodeMS(&p.Batch), e.cfg.Speedup*e.cfg.DecodeSpeedup)
	p.Duration = p.Prefill + p.Decode
	for i := range p.Outputs {
		o := &p.Outputs[i]
		if !o.Done {
			continue
		}
		o.Request.state = idle
		e.count--
		if e.cfg.Role == Prefill && !o.Request.WarmUp {
			o.Transfer = e.transfer(o.Request.Prompt)
		}
	}
	for _, r := range p.Rejected {
		r.state = idle
		e.count--
	}
	return p
}

func (e *Engine) prefillMS(b *Batch) float64 {
	if b.NewTokens() == 0 || e.cfg.Role == Decode {
		return 0
	}
	return e.cfg.Timing.Prefill(b)
}

func (e *Engine) decodeMS(b *Batch) float64 {
	if b.Decodes == 0 || e.cfg.Role == Prefill {
		return 0
	}
	return e.cfg.Timing.Decode(b)
}

// duration makes milliseconds, sped up, into whole nanoseconds.
func (e *Engine) duration(ms, speedup float64) time.Duration {
	return wholeNanoseconds(ms / speedup * 1e6)
}

// wholeNanoseconds rounds, and bounds what makes no sense as a time.
func wholeNanoseconds(ns float64) time.Duration {
	if !(ns > 0) {
		return 0
	}
	return time.Duration(math.Round(min(ns, maxDuration)))
}

// transfer returns how long handing a computed prompt over takes.
func (e *Engine) transfer(prompt int) time.Duration {
	if e.cfg.TransferBandwidth == 0 {
		return 0
	}
	bytes := float64(prompt) * float64(e.cfg.KVBytesPerToken)
	return wholeNanoseconds(bytes / e.cfg.TransferBandwidth) // bytes per ns
}

// Pass is what one forward pass did.
type Pass struct {
	// Duration is how long it took: Prefill for prompts and Decode for answers.
	Duration, Prefill, Decode time.Duration
	// Outputs are the requests that got tokens or ended, in the order in which
	// they run.
	Outputs []Output
	// Admissions are the requests that began to run.
	Admissions []Admission
	// Rejected are the requests that can never run.
	Rejected []*Request
	// Preempted counts the requests that lost their blocks and wait again.
	Preempted int
	// Events are the changes of the cache, in order. Their blocks are
	// overwritten by the next Step, too.
	Events []kv.Event
	// Batch is the work, as Timing saw it.
	Batch Batch

	blocks []kv.Block // behind Events
}

// Output is what a pass did for a request.
type Output struct {
	Request *Request
	// Tokens is the number of tokens it got; 0 for the end of a warm-up.
	Tokens int
	// Done says that it has ended, and is the caller's again.
	Done bool
	// Transfer is the time until a Decode engine can have it; 0 except at the end
	// of a request on a Prefill engine.
	Transfer time.Duration
}

// Admission is a request that began to run, with the prompt tokens that it found
// in the cache. Again marks one that had lost its blocks before: what it finds
// then is mostly its own.
type Admission struct {
	Request *Request
	Cached  int
	Again   bool
}

func (p *Pass) reset() {
	*p = Pass{
		Outputs:    p.Outputs[:0],
		Admissions: p.Admissions[:0],
		Rejected:   p.Rejected[:0],
		Events:     p.Events[:0],
		blocks:     p.blocks[:0],
	}
}

// stored records blocks that entered the cache behind parent, which is nil at the
// start of a prompt. Blocks that follow those stored last make one event with
// them.
func (p *Pass) stored(parent *kv.Block, blocks ...kv.Block) {
	p.blocks = append(p.blocks, blocks...)
	end := len(p.blocks)
	if n := len(p.Events); n > 0 && parent != nil {
		// The blocks of the last event are the last ones.
		ev := &p.Events[n-1]
		if ev.Kind == kv.Stored && ev.Blocks[len(ev.Blocks)-1].ID == parent.ID {
			ev.Blocks = p.blocks[end-len(blocks)-len(ev.Blocks) : end : end]
			return
		}
	}
	ev := kv.Event{Kind: kv.Stored, Blocks: p.blocks[end-len(blocks) : end : end]}
	if parent != nil {
		ev.Parent, ev.HasParent = parent.ID, true
	}
	p.Events = append(p.Events, ev)
}

// removed records a block that left the cache.
func (p *Pass) removed(id kv.BlockID) {
	at := len(p.blocks)
	p.blocks = append(p.blocks, kv.Block{ID: id})
	p.Events = append(p.Events, kv.Event{Kind: kv.Removed, Blocks: p.blocks[at : at+1 : at+1]})
}
