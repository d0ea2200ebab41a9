package simengine

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
)

var naiveSeeds = flag.Int("naive.seeds", naiveFloorSeeds, "how many random loads TestNaive runs")

// naiveFloorSeeds is how many loads naiveFloors is about.
const naiveFloorSeeds = 300

// naiveFloors says how often each thing happens at least, about half of what is
// seen. If it were rarer, equal passes would say little.
var naiveFloors = map[string]int{
	"passes":                                 120_000,
	"rejected":                               3000,
	"preempted":                              1200,
	"gave up its own blocks":                 400,
	"lost what was planned":                  150,
	"copied":                                 5000,
	"evicted one of several copies":          5000,
	"evicted another copy than the oldest":   2500,
	"right drafts":                           20_000,
	"warm-up gave its place":                 45,
	"warm-up gave its place in vain":         3,
	"warm-up gave room":                      100,
	"warm-up gave blocks":                    40,
	"warm-up found no block":                 25,
	"warm-up kept out by a preemption alone": 1,
}

// TestNaive runs random loads on random engines beside the model, and compares
// every pass.
func TestNaive(t *testing.T) {
	seen := map[string]int{}
	ran, failed := 0, 0
	for seed := range uint64(*naiveSeeds) {
		ok := t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			ran++
			newNaiveLoad(t, seed, seen).run()
		})
		if !ok {
			failed++
		}
		if failed == 3 {
			t.Fatal("three loads failed; the rest was not run")
		}
	}
	for _, what := range slices.Sorted(maps.Keys(naiveFloors)) {
		t.Logf("%s: %d", what, seen[what])
		floor := naiveFloors[what] * ran / naiveFloorSeeds
		if seen[what] < floor && failed == 0 && ran >= naiveFloorSeeds {
			t.Errorf("%s: %d, want at least %d", what, seen[what], floor)
		}
	}
}

// naiveLoad drives an engine and the model with the same requests.
type naiveLoad struct {
	t      *testing.T
	seed   uint64
	rng    *rand.Rand
	cfg    Config // as it was drawn
	engine *Engine
	model  *naive
	seen   map[string]int

	depth  int // requests at a time
	gap    int // passes between two of them, about
	drops  int // passes after which a request is dropped, about
	output int // tokens that one wants at most, as a rule
	groups int // different prompts
	warm   int // warm-ups in a dozen requests

	passes  int
	quiet   int         // passes since a request ended
	left    int         // requests to come
	sent    uint64      // requests that came
	pending []*naiveAsk // those that have not ended, in the order of arrival
	ended   []*Request  // to be used anew
}

// naiveAsk is a request that the engine and the model have.
type naiveAsk struct {
	*Request
	model *naiveRequest
	text  *naiveText // nil: shares nothing
}

// naiveText is content that sees what it is asked for.
type naiveText struct {
	text
	got   int  // generated tokens returned
	early bool // a block was asked for that nobody could know
}

// Block implements Content.
func (c *naiveText) Block(i int) kv.Block {
	if (i+1)*c.size > c.prompt+c.got {
		c.early = true
	}
	return c.text.Block(i)
}

// newNaiveLoad draws an engine that is short of something, mostly of blocks.
func newNaiveLoad(t *testing.T, seed uint64, seen map[string]int) *naiveLoad {
	rng := rand.New(rand.NewPCG(seed, 99))
	cfg := Config{
		Role:             naivePick(rng, Aggregated, Aggregated, Aggregated, Prefill, Decode),
		Blocks:           naivePick(rng, 1, 2, 3, 5, 8, 8, 10, 13, 13, 16, 20, 20, 30, 40),
		BlockSize:        naivePick(rng, 2, 2, 3, 4, 4, 7, 16, 64),
		MaxSeqs:          naivePick(rng, 1, 2, 3, 5, 8, 16, 256, 256, Unlimited),
		MaxBatchedTokens: naivePick(rng, 1, 3, 5, 8, 17, 33, 256, Unlimited),
		MaxModelLen:      naivePick(rng, 0, 0, 0, 0, 0, 0, 2, 30, Unlimited),
		NoPrefixCaching:  rng.IntN(10) == 0,
		NoChunkedPrefill: rng.IntN(6) == 0,
		Watermark:        naivePick(rng, 0, 0, 0, 0, 0, 0, 0.1, 0.3, 0.99),
		Victim:           naivePick(rng, Newest, Oldest),
		Draft:            naivePick(rng, 0, 0, 0, 1, 3, 5),
		Accept:           naivePick(rng, nil, []float64{1, 1, 1, 1, 1}, []float64{0.5, 0.5, 0.5, 0.5, 0.5}),
		Seed:             seed,
	}
	output, groups, warm := naivePick(rng, 3, 30, 100), 1+rng.IntN(4), naivePick(rng, 0, 1, 4)
	if rng.IntN(2) == 0 {
		// Warm-ups that take many passes, beside requests that need the same blocks.
		cfg.MaxBatchedTokens, cfg.MaxSeqs = naivePick(rng, 2, 3, 5, 8, 17), naivePick(rng, 2, 2, 3, 256, 256)
		output, groups, warm = naivePick(rng, 8, 30, 60), 1, 6
	}
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &naiveLoad{
		t: t, seed: seed, rng: rng, cfg: cfg, engine: e, model: newNaive(e.Config(), seen), seen: seen,
		left:   50 + rng.IntN(200),
		depth:  naivePick(rng, 2, 4, 8, 20, 200),
		gap:    naivePick(rng, 2, 5, 20),
		drops:  naivePick(rng, 60, 1000, 20_000),
		output: output,
		groups: groups,
		warm:   warm,
	}
}

func naivePick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// run goes on until the last request has ended.
func (l *naiveLoad) run() {
	for l.left > 0 || len(l.pending) > 0 {
		for l.left > 0 && (len(l.pending) == 0 || len(l.pending) < l.depth && l.rng.IntN(l.gap) == 0) {
			l.left--
			l.send()
		}
		for _, a := range slices.Clone(l.pending) {
			if l.rng.IntN(l.drops) == 0 {
				l.engine.Drop(a.Request)
				l.model.drop(a.model)
				l.end(a)
			}
		}
		l.compareLoad("before the pass")
		l.step()
		l.compareLoad("after the pass")
	}
}

// fail ends the test with all that is needed to see it again.
func (l *naiveLoad) fail(format string, args ...any) {
	l.t.Helper()
	l.t.Fatalf("seed %d, pass %d, %+v: %s", l.seed, l.passes, l.cfg, fmt.Sprintf(format, args...))
}

// send draws a request and hands it to both.
func (l *naiveLoad) send() {
	l.sent++
	r := &Request{}
	if n := len(l.ended); n > 0 && l.rng.IntN(2) == 0 {
		r, l.ended = l.ended[n-1], l.ended[:n-1]
	}
	capacity := l.cfg.Blocks * l.cfg.BlockSize
	r.ID = l.sent
	r.Prompt = 1 + l.rng.IntN(min(capacity, 80))/naivePick(l.rng, 1, 2, 4)
	r.MaxOutput = 1 + l.rng.IntN(l.output)
	r.WarmUp = l.rng.IntN(12) < l.warm
	if r.WarmUp && l.rng.IntN(2) == 0 {
		r.Prompt = 1 + l.rng.IntN(capacity)
	}
	r.Content = nil
	switch l.rng.IntN(30) {
	case 0:
		r.Prompt = capacity
	case 1:
		r.Prompt = 1 + l.rng.IntN(capacity*5/4+1)
	case 2:
		r.MaxOutput = Unlimited // for as long as there is room
		if capacity > 400 {
			r.MaxOutput = 100
		}
	case 3:
		r.Prompt = naivePick(l.rng, 0, 1, Unlimited)
	case 4:
		r.MaxOutput = l.rng.IntN(2)
	}
	a := &naiveAsk{Request: r, model: &naiveRequest{id: r.ID, prompt: r.Prompt, warm: r.WarmUp}}
	if l.rng.IntN(12) > 0 {
		a.text = &naiveText{text: text{size: l.cfg.BlockSize, prompt: r.Prompt, own: r.ID}}
		for range capacity/512 + 1 {
			a.text.ids = append(a.text.ids, uint64(l.rng.IntN(l.groups)))
		}
		if l.rng.IntN(3) == 0 {
			a.text.own = 0 // equal answers to equal prompts
		}
		r.Content, a.model.content = a.text, &a.text.text
	}
	l.pending = append(l.pending, a)
	l.engine.Receive(r)
	l.model.receive(a.model, r.MaxOutput)
}

// step has both run a pass and compares.
func (l *naiveLoad) step() {
	l.passes++
	l.quiet++
	if l.quiet > 20*(100+l.cfg.Blocks*l.cfg.BlockSize) {
		l.fail("no request has ended in %d passes; %+v", l.quiet, l.engine.Load())
	}
	l.seen["passes"]++
	busy := l.engine.Requests() > 0
	got, want := naiveView(l.engine.Step()), l.model.step()
	if !reflect.DeepEqual(got, want) {
		l.fail("(-model +engine)\n%s", cmp.Diff(want, got))
	}
	if busy && len(got.Outputs)+len(got.Rejected)+got.Preempted == 0 && got.Batch.NewTokens() == 0 {
		l.fail("nothing moved; %+v", l.engine.Load())
	}
	over := map[uint64]bool{}
	for _, id := range got.Rejected {
		over[id] = true
	}
	tokens := map[uint64]int{}
	for _, o := range got.Outputs {
		tokens[o.ID], over[o.ID] = o.Tokens, o.Done
	}
	for _, a := range slices.Clone(l.pending) {
		if a.text != nil {
			a.text.got += tokens[a.ID]
		}
		if g, c := a.Generated(), a.Cached(); g != a.model.generated || c != a.model.cached {
			l.fail("request %d counts %d tokens and %d cached, want %d and %d", a.ID, g, c, a.model.generated, a.model.cached)
		}
		if over[a.ID] {
			l.end(a)
		}
	}
}

// end takes note of a request that is done, rejected or dropped.
func (l *naiveLoad) end(a *naiveAsk) {
	if a.text != nil && a.text.early {
		l.fail("request %d: a block was asked for before its last token was there", a.ID)
	}
	l.quiet = 0
	l.pending = naiveWithout(l.pending, a)
	l.ended = append(l.ended, a.Request)
}

// compareLoad compares what both say between passes.
func (l *naiveLoad) compareLoad(when string) {
	l.t.Helper()
	if got, want := l.engine.Load(), l.model.load(); got != want {
		l.fail("load %s: %+v, want %+v", when, got, want)
	}
	if got, want := l.engine.Requests(), l.model.requests(); got != want || l.engine.Busy() != (want > 0) {
		l.fail("%d requests %s, busy %v, want %d", got, when, l.engine.Busy(), want)
	}
}

// naiveView is a pass as the model tells it.
func naiveView(p *Pass) *naivePass {
	v := &naivePass{Preempted: p.Preempted, Batch: p.Batch}
	for _, o := range p.Outputs {
		v.Outputs = append(v.Outputs, naiveOutput{o.Request.ID, o.Tokens, o.Done})
	}
	for _, a := range p.Admissions {
		v.Admissions = append(v.Admissions, naiveAdmission{a.Request.ID, a.Cached, a.Again})
	}
	for _, r := range p.Rejected {
		v.Rejected = append(v.Rejected, r.ID)
	}
	v.Events = append(v.Events, p.Events...)
	return v
}
