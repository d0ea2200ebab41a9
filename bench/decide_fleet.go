package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/router"
)

// decideModel is what the fleet serves, and decideBlock the size of its blocks.
const (
	decideModel = "m"
	decideBlock = 16
)

// decideScale is a fleet and its prompts.
type decideScale struct {
	ranks    int
	blocks   int // of a prompt
	families int // of prompts that begin alike
	prompts  int // to be placed
	live     int // requests that run meanwhile
}

func (s decideScale) tokens() int { return s.blocks * decideBlock }

// decideFleet is a router with workers of one rank each that tell what they hold and
// are busy. Every family of prompts has a text that all of them begin with, each up
// to another place. A rank holds more or less of these texts, what it has computed
// for the requests that run on it, and for some prompts most of the turn before.
type decideFleet struct {
	decideScale
	router *router.Router
	model  *router.Model
	seed   uint64
	asked  []decidePrompt
	held   [][]int      // blocks of a family's text, by family and rank
	steps  []decideStep // that made it what it is
}

// decidePrompt is a prompt to be placed.
type decidePrompt struct {
	tokens []uint32
	family int
	cut    int // full blocks that are the family's
	before int // blocks of the turn before, which the rank holds that ran it
	ran    int // that rank
}

// decideStep is something that happened to the fleet: events, or a request that has
// been placed and runs still.
type decideStep struct {
	batch     *kv.Batch
	blocks    []kv.Block // of the request
	placement *router.Placement
	prefilled bool
}

// stillEngine says what it is, and does nothing else.
type stillEngine struct{ info engine.Info }

func (e *stillEngine) Open(context.Context, engine.Target, *engine.Request) (*engine.Response, error) {
	return nil, errors.New("an engine that opens no requests")
}

func (e *stillEngine) Identify(context.Context) (*engine.Info, error) { return &e.info, nil }
func (e *stillEngine) Probe(context.Context) error                    { return nil }
func (e *stillEngine) Close()                                         {}

// newDecideFleet makes a fleet, the same each time for a scale; close ends it. Mode,
// seed and probes of the configuration do not count.
func newDecideFleet(ctx context.Context, s decideScale, cfg router.Config) (*decideFleet, error) {
	cfg.Mode, cfg.Seed, cfg.ProbeInterval = router.KV, 1, time.Hour
	f := &decideFleet{decideScale: s, router: router.New(cfg), seed: kv.HashSeed("", "")}
	err := f.join(ctx)
	if err == nil {
		err = f.fill(ctx, rand.New(rand.NewPCG(5, 6)))
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *decideFleet) close() {
	for _, s := range f.steps {
		if s.placement != nil {
			s.placement.Done(router.Completed)
		}
	}
	f.router.Close()
}

// join adds the workers, whose ids are 1 and up.
func (f *decideFleet) join(ctx context.Context) (err error) {
	e := &stillEngine{engine.Info{Kind: "still", Models: []engine.Model{{
		ID: decideModel, BlockSize: decideBlock, TotalBlocks: 1 << 20, MaxBatchedTokens: 8192, Ranks: 1,
	}}}}
	for k := range f.ranks {
		spec := router.Spec{ID: f.source(k).Worker, Name: fmt.Sprintf("still-%d", k+1), Engine: e, Events: true}
		if err := f.router.Add(spec); err != nil {
			return err
		}
	}
	f.router.WaitChecked(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	f.model, err = f.router.Lookup(decideModel)
	return err
}

// source is rank k as events name it.
func (f *decideFleet) source(k int) kv.Source { return kv.Source{Worker: kv.WorkerID(k + 1)} }

// rank is the rank on which a request was placed.
func (f *decideFleet) rank(p *router.Placement) int { return int(p.Last().Target.Worker) - 1 }

// fill makes the prompts, has ranks hold what they do, and places the requests that
// run.
func (f *decideFleet) fill(ctx context.Context, rng *rand.Rand) error {
	texts := make([][]uint32, f.families)
	for i := range texts {
		texts[i] = randomTokens(nil, rng, f.tokens())
		blocks := kv.AppendBlocks(nil, f.seed, texts[i], decideBlock)
		f.held = append(f.held, make([]int, f.ranks))
		for k, d := range rng.Perm(f.ranks) {
			f.held[i][k] = (d + 1) * f.blocks / f.ranks
			if err := f.tell(storing(f.source(k), blocks, 0, f.held[i][k])); err != nil {
				return err
			}
		}
	}
	prompt := func(dst []uint32) (tokens []uint32, family, cut int) {
		family, cut = rng.IntN(f.families), 1+rng.IntN(f.tokens()-1)
		return randomTokens(append(dst, texts[family][:cut]...), rng, f.tokens()-cut), family, cut / decideBlock
	}
	for i := range f.prompts {
		p := decidePrompt{ran: i % f.ranks}
		p.tokens, p.family, p.cut = prompt(nil)
		p.before = max(p.cut, f.blocks-f.blocks/16)
		f.asked = append(f.asked, p)
		from := min(p.cut, f.held[p.family][p.ran])
		blocks := kv.AppendBlocks(nil, f.seed, p.tokens, decideBlock)
		if err := f.tell(storing(f.source(p.ran), blocks, from, p.before)); err != nil {
			return err
		}
	}
	var tokens []uint32
	for i := range f.live {
		if err := ctx.Err(); err != nil {
			return err
		}
		var family, cut int
		tokens, family, cut = prompt(tokens[:0])
		step := decideStep{blocks: kv.AppendBlocks(nil, f.seed, tokens, decideBlock), prefilled: i%8 > 0}
		pl, err := f.router.Place(ctx, f.request(step.blocks, nil))
		if err != nil {
			return err
		}
		step.placement = pl
		f.steps = append(f.steps, step)
		if !step.prefilled {
			continue // it has nothing in the cache yet
		}
		pl.FirstToken()
		k := f.rank(pl)
		if err := f.tell(storing(f.source(k), step.blocks, min(cut, f.held[family][k]), f.blocks)); err != nil {
			return err
		}
	}
	return nil
}

// tell gives a batch to the router.
func (f *decideFleet) tell(b *kv.Batch) error {
	f.steps = append(f.steps, decideStep{batch: b})
	return f.router.Apply(b)
}

// request returns a request with these blocks, whose placement is made of into if
// that is not nil.
func (f *decideFleet) request(blocks []kv.Block, into *router.Placement) *router.Request {
	return &router.Request{
		Model: f.model, ID: "decide", PromptTokens: f.tokens(),
		HashSeed: f.seed, Blocks: blocks, BlockSize: decideBlock, Into: into,
	}
}

// randomTokens appends n tokens.
func randomTokens(dst []uint32, rng *rand.Rand, n int) []uint32 {
	for range n {
		dst = append(dst, rng.Uint32N(150_000))
	}
	return dst
}

// storing returns what an engine says that has computed the blocks of a prompt from
// one up to another, and holds those before.
func storing(src kv.Source, prompt []kv.Block, from, to int) *kv.Batch {
	ev := kv.Event{Kind: kv.Stored, Counted: true}
	if from > 0 {
		ev.Parent, ev.HasParent = engineName(src, prompt[from-1].ID), true
	}
	for _, b := range prompt[from:max(from, to)] {
		ev.Blocks = append(ev.Blocks, kv.Block{ID: engineName(src, b.ID), Tokens: b.Tokens})
	}
	if len(ev.Blocks) == 0 {
		return &kv.Batch{Source: src}
	}
	return &kv.Batch{Source: src, Events: []kv.Event{ev}}
}

// removing returns what an engine says that gives up what it has stored with batch,
// the last block first, in an event per block.
func removing(stored *kv.Batch) *kv.Batch {
	out := &kv.Batch{Source: stored.Source}
	for _, ev := range stored.Events {
		for i := len(ev.Blocks) - 1; i >= 0; i-- {
			out.Events = append(out.Events, kv.Event{Kind: kv.Removed, Counted: true, Blocks: []kv.Block{{ID: ev.Blocks[i].ID}}})
		}
	}
	return out
}

// asker places requests, one at a time, in memory that it uses again.
type asker struct {
	fleet     *decideFleet
	next      int // prompt
	blocks    []kv.Block
	request   *router.Request
	placement router.Placement
}

// asker returns one that begins with prompt first.
func (f *decideFleet) asker(first int) *asker {
	a := &asker{fleet: f, next: first % len(f.asked), blocks: make([]kv.Block, 0, f.blocks)}
	a.request = f.request(nil, &a.placement)
	return a
}

// hash hashes the next prompt.
func (a *asker) hash() {
	f := a.fleet
	a.blocks = kv.AppendBlocks(a.blocks[:0], f.seed, f.asked[a.next].tokens, decideBlock)
	if a.next++; a.next == len(f.asked) {
		a.next = 0
	}
}

// place places the prompt that was hashed last and gives the booking back.
func (a *asker) place(ctx context.Context) error {
	a.request.Blocks = a.blocks
	pl, err := a.fleet.router.Place(ctx, a.request)
	if err != nil {
		return err
	}
	pl.Done(router.Completed)
	return nil
}

// decide hashes and places the next prompt.
func (a *asker) decide(ctx context.Context) error {
	a.hash()
	return a.place(ctx)
}

// hashOnly hashes the next prompt.
func (a *asker) hashOnly() error {
	a.hash()
	return nil
}
