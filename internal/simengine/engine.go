package simengine

import (
	"math"
	"slices"
	"time"
)

// Engine is one rank. It is not safe for concurrent use.
type Engine struct {
	cfg      Config
	sched    scheduler
	pass     Pass
	count    int        // requests received and not done
	rejected []*Request // among them, to be told with the next pass
	arrivals uint64     // requests received ever
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
	// clear empties the cache, which no request uses.
	clear()
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
	case cfg.Kind == LlamaCpp:
		e.sched = newLlamaCpp(&e.cfg)
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
		Priority: r.Priority, Fresh: r.Fresh, Slot: r.Slot,
		blocks: r.blocks[:0], arrival: e.arrivals,
	}
	e.arrivals++
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

// Clear empties the cache and reports whether it could: requests that wait or run
// stand in the way. The next pass tells of it.
func (e *Engine) Clear() bool {
	if e.count > 0 {
		return false
	}
	e.sched.clear()
	return true
}

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
