package router

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/sched"
)

// world is a router and what should be booked in it, kept the plain way: a list of
// requests, and sets of blocks.
type world struct {
	t   *testing.T
	rng *rand.Rand
	r   *Router

	live    map[*life]bool
	order   []*life // those of live, as they came
	parked  map[*Request]bool
	told    map[holder]map[kv.BlockID]bool
	sent    map[holder]map[kv.BlockID]bool
	ids     int
	leases  []*life
	placed  int
	refused int
}

// holder is a rank's cache in the eyes of a pool.
type holder struct {
	pool *pool
	src  kv.Source
}

// life is a request that is booked.
type life struct {
	pl       *Placement
	q        *Request
	slot     *slot
	pool     *pool
	shared   []kv.BlockID
	loose    int
	prefill  int
	prompt   int // tokens
	output   int
	cached   []kv.Block // in the rank's cache once computed, if it does not tell
	computed time.Time  // when the prompt counts as computed by itself; zero for never
	leaseEnd time.Time  // zero for those without a lease
}

func (l *life) outputBlocks() int {
	bs := l.pool.key.blockSize
	if bs == 0 {
		return 0
	}
	up := func(n int) int { return (n + bs - 1) / bs }
	return up(l.prompt+l.output) - up(l.prompt)
}

// depth is how much of a prompt a set has from its beginning.
func depth(set map[kv.BlockID]bool, prompt []kv.Block) int {
	for i, b := range prompt {
		if !set[b.ID] {
			return i
		}
	}
	return len(prompt)
}

// liveOn returns the blocks of requests on a rank that others can share.
func (w *world) liveOn(s *slot) map[kv.BlockID]bool {
	set := make(map[kv.BlockID]bool)
	for l := range w.live {
		if l.slot == s {
			for _, id := range l.shared {
				set[id] = true
			}
		}
	}
	return set
}

// blocksOf hashes a prompt as a pool does.
func (w *world) blocksOf(p *pool, q *Request) (blocks []kv.Block, text bool) {
	switch {
	case len(q.Tokens) > 0:
		return kv.AppendBlocks(nil, q.HashSeed, q.Tokens, p.blockSize()), false
	case len(q.Text) > 0:
		return kv.AppendTextBlocks(nil, q.HashSeed, q.Text, p.blockSize()*bytesPerToken), true
	}
	return nil, false
}

// known returns how much of a prompt each rank is known to have at the moment.
func (w *world) known(q *Request) map[holder]int {
	out := make(map[holder]int)
	for _, p := range q.Model.pools {
		prompt, _ := w.blocksOf(p, q)
		for _, caches := range []map[holder]map[kv.BlockID]bool{w.told, w.sent} {
			for h, blocks := range caches {
				if h.pool == p {
					out[h] = max(out[h], depth(blocks, prompt))
				}
			}
		}
	}
	return out
}

// book notes a placement that was just made.
func (w *world) book(q *Request, pl *Placement, known map[holder]int) *life {
	w.placed++
	if q.QueryOnly {
		return nil
	}
	prompt, text := w.blocksOf(pl.pool, q)
	reuse := q.Override == nil || q.Override.AssumeReuse == nil || *q.Override.AssumeReuse
	l := &life{pl: pl, q: q, slot: pl.slot, pool: pl.pool, prompt: max(q.PromptTokens, 0)}
	h := holder{pl.pool, pl.slot.source()}
	cached := known[h]
	if pl.Last().OverlapBlocks != cached {
		w.t.Fatalf("%v: %d blocks of the prompt, the model has %d", pl.Last().Target, pl.Last().OverlapBlocks, cached)
	}
	if len(prompt) > 0 && reuse {
		cached = max(cached, depth(w.liveOn(l.slot), prompt))
		for _, b := range prompt {
			l.shared = append(l.shared, b.ID)
		}
	} else if l.loose = len(prompt); len(prompt) == 0 {
		l.loose = l.prompt / pl.pool.blockSize()
	}
	if q.Override == nil || q.Override.TrackPrefill == nil || *q.Override.TrackPrefill {
		// What is predicted counts as far as it is trusted.
		trust := pl.slot.trustAt(time.Now())
		l.prefill = max(0, l.prompt-int(math.Round(float64(cached*pl.pool.blockSize())*trust)))
	}
	if text || !pl.slot.worker.Events {
		l.cached = prompt
	}
	if q.Whole && l.prefill > 0 {
		l.computed = time.Now().Add(pl.slot.prefillTime(pl.ahead))
	}
	w.live[l] = true
	w.order = append(w.order, l)
	return l
}

// answer notes that the engine has answered.
func (w *world) answer(l *life) {
	for _, b := range l.cached {
		if slices.Contains(l.pool.slots, l.slot) {
			hold(w.sent, holder{l.pool, l.slot.source()}, b.ID)
		}
	}
	l.cached = nil
}

// hold has a cache hold a block.
func hold(caches map[holder]map[kv.BlockID]bool, h holder, id kv.BlockID) {
	if caches[h] == nil {
		caches[h] = make(map[kv.BlockID]bool)
	}
	caches[h][id] = true
}

func (w *world) forget(l *life) {
	delete(w.live, l)
	w.order = slices.DeleteFunc(w.order, func(o *life) bool { return o == l })
	w.leases = slices.DeleteFunc(w.leases, func(o *life) bool { return o == l })
}

// check compares what is booked on every rank with the model.
func (w *world) check(after string) {
	w.t.Helper()
	type sums struct{ requests, prefill, blocks int }
	want := make(map[*slot]sums)
	pools := make(map[*slot]*pool)
	shared := make(map[*slot]map[kv.BlockID]bool)
	for l := range w.live {
		s := want[l.slot]
		s.requests++
		s.prefill += l.prefill
		s.blocks += l.loose + l.outputBlocks()
		want[l.slot], pools[l.slot] = s, l.pool
		if shared[l.slot] == nil {
			shared[l.slot] = make(map[kv.BlockID]bool)
		}
		for _, id := range l.shared {
			shared[l.slot][id] = true
		}
	}
	waiting := 0
	for _, p := range w.r.pools {
		p.mu.Lock()
		for _, s := range p.slots {
			pools[s] = p
		}
		n, _ := p.line.pending()
		waiting += n
		p.mu.Unlock()
	}
	for s, p := range pools {
		expect := want[s]
		expect.blocks += len(shared[s])
		p.mu.Lock()
		l := p.load(s)
		p.mu.Unlock()
		if got := (sums{l.inflight, l.prefillTokens, l.activeBlocks}); got != expect {
			w.t.Fatalf("after %s: %v has %+v, the model %+v", after, s.target, got, expect)
		}
	}
	if waiting != len(w.parked) {
		w.t.Fatalf("after %s: %d wait, in the model %d", after, waiting, len(w.parked))
	}
}

// TestLifecycle does thousands of random things and compares, after each, what is
// booked with a plain model. In the end nothing is.
func TestLifecycle(t *testing.T) {
	steps := 4000
	if testing.Short() || raceEnabled {
		steps = 800
	}
	for _, queue := range []bool{false, true} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("queue=%v/%d", queue, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { lifecycle(t, queue, seed, steps) })
			})
		}
	}
}

func lifecycle(t *testing.T, queue bool, seed uint64, steps int) {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 99)),
		live: make(map[*life]bool), parked: make(map[*Request]bool),
		told: make(map[holder]map[kv.BlockID]bool), sent: make(map[holder]map[kv.BlockID]bool),
	}
	cfg := Config{KV: KVConfig{TTL: -1}, Decisions: 64, ProbeInterval: 1000 * time.Hour}
	if queue {
		cfg.Queue = queueOf(150)
		cfg.Queue.RefreshAfter = -1
	}
	var specs []Spec
	for i := range 6 {
		s := Spec{Events: i%3 != 0, Engine: &stubEngine{models: []engine.Model{{ID: "m", BlockSize: 16, Ranks: 1 + i%2}}}}
		if i%2 == 0 {
			s.Taints = []string{"even"}
		}
		specs = append(specs, s)
	}
	w.r, _ = crew(t, cfg, specs...)
	synctest.Wait()
	for range steps {
		w.check(w.step(queue))
	}
	// Nobody need wait for engines that say of themselves that they are full, or that
	// rest.
	if m, err := w.r.Lookup("m"); err == nil {
		m.SetThresholds(Thresholds{DecodeBlocks: ptr(1e6)})
	}
	for _, worker := range w.r.workers {
		worker.inhibitedUntil.Store(0)
		w.r.wake(worker)
	}
	for len(w.order) > 0 || len(w.parked) > 0 {
		if len(w.order) == 0 {
			t.Fatalf("%d wait while nothing runs", len(w.parked))
		}
		l := w.order[0]
		w.forget(l)
		if l.leaseEnd.IsZero() {
			l.pl.Done(Completed)
		} else {
			w.r.Release(l.q.Model.ID, l.q.ID)
		}
		w.check("the end of one")
	}
	for _, p := range w.r.pools {
		empty(t, p)
	}
	if w.placed < steps/8 || w.refused == 0 {
		t.Errorf("%d placed, %d refused: too little happened", w.placed, w.refused)
	}
}

// empty fails unless nothing is booked on any seat of a pool, also those that have
// left, and nothing waits.
func empty(t *testing.T, p *pool) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.ledger.Seats() {
		if got := p.ledger.Load(sched.Seat(s)); got != (sched.Load{}) {
			t.Errorf("seat %d still has %+v", s, got)
		}
	}
	if s, b := p.ledger.Stats(); s != 0 || b != 0 {
		t.Errorf("%d blocks in %d stretches are left", b, s)
	}
	for name, n := range p.ledger.Adapters() {
		t.Errorf("adapter %s still has %d requests", name, n)
	}
	if n, tokens := p.line.pending(); n != 0 || tokens != 0 {
		t.Errorf("%d wait, with %d tokens", n, tokens)
	}
}
