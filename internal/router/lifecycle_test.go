package router

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
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
	leaseEnd time.Time // zero for those without a lease
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
		l.prefill = max(0, l.prompt-cached*pl.pool.blockSize())
	}
	if len(prompt) > 0 && (text || !pl.slot.worker.Events) {
		for _, b := range prompt {
			hold(w.sent, h, b.ID)
		}
	}
	w.live[l] = true
	w.order = append(w.order, l)
	return l
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

// shapes are what a worker may serve from time to time.
func shapes(rng *rand.Rand) []engine.Model {
	m := engine.Model{ID: "m", BlockSize: 16, Ranks: 1 + rng.IntN(3), TotalBlocks: 300}
	n := engine.Model{ID: "n", BlockSize: 16, Ranks: 1 + rng.IntN(2)}
	lora := engine.Model{ID: "n:a", Parent: "n"}
	switch rng.IntN(6) {
	case 0, 1:
		return []engine.Model{m}
	case 2:
		m.BlockSize = 32
		return []engine.Model{m}
	case 3:
		return []engine.Model{n}
	case 4:
		return []engine.Model{m, n, lora}
	default:
		return []engine.Model{n, lora}
	}
}

// admit has a worker serve something.
func (w *world) admit(id kv.WorkerID, models []engine.Model) {
	worker := w.r.workers[id]
	before := make(map[holder]bool)
	for _, p := range w.r.pools {
		for _, s := range p.slots {
			if s.worker == worker {
				before[holder{p, s.source()}] = true
			}
		}
	}
	for h := range w.sent {
		if h.src.Worker == id {
			delete(w.sent, h)
		}
	}
	// What left is forgotten before those who wait are told.
	stays := make(map[holder]bool)
	for _, em := range models {
		if em.Parent != "" {
			continue
		}
		for rank := range max(1, em.Ranks) {
			if p := w.r.pools[poolKey{em.ID, em.BlockSize, em.Tokenizer}]; p != nil {
				stays[holder{p, kv.Source{Worker: id, Rank: uint32(rank)}}] = true
			}
		}
	}
	for h := range before {
		if !stays[h] {
			delete(w.told, h)
		}
	}
	w.r.admit(worker, &engine.Info{Kind: "stub", Models: models})
}

// request makes one up.
func (w *world) request() *Request {
	rng := w.rng
	name := []string{"m", "m", "n", "n:a"}[rng.IntN(4)]
	m, err := w.r.Lookup(name)
	if err != nil {
		return nil
	}
	w.ids++
	q := &Request{Model: m, ID: fmt.Sprint(w.ids), Tenant: fmt.Sprint(rng.IntN(3)), Tier: uint32(rng.IntN(2)), Jump: float64(rng.IntN(5))}
	seed := ""
	if name == "n:a" {
		seed = name
	}
	q.HashSeed = kv.HashSeed(seed, "")
	switch rng.IntN(8) {
	case 0:
		q.PromptTokens = rng.IntN(300)
	case 1:
		text := fmt.Sprintf("%0*d", 64*rng.IntN(12), rng.IntN(3))
		q.Text, q.PromptTokens, q.Guess = []byte(text), len(text)/4, true
	case 2: // nothing at all
	default:
		q.Tokens = append(tokensOf(1+rng.IntN(4), 16*rng.IntN(20)), tokensOf(5+rng.IntN(40), rng.IntN(40))...)
		q.PromptTokens = len(q.Tokens)
	}
	if rng.IntN(4) == 0 {
		q.Pinned, q.Pin = true, kv.WorkerID(1+rng.IntN(6))
		if rng.IntN(2) == 0 {
			q.PinRank = ptr(uint32(rng.IntN(3)))
		}
	}
	if rng.IntN(6) == 0 {
		q.Allowed = []uint64{uint64(1 + rng.IntN(6)), uint64(1 + rng.IntN(6))}
	}
	if rng.IntN(6) == 0 {
		q.Exclude = []kv.WorkerID{kv.WorkerID(1 + rng.IntN(6))}
	}
	if rng.IntN(10) == 0 {
		q.RequiredTaints = []string{"even"}
	}
	if rng.IntN(5) == 0 {
		q.Override = &Override{AssumeReuse: ptr(rng.IntN(2) == 0), TrackPrefill: ptr(rng.IntN(2) == 0), Temperature: ptr(rng.Float64())}
	}
	q.QueryOnly = rng.IntN(8) == 0
	q.Explain = rng.IntN(4) == 0
	q.ExpectedOutput = rng.IntN(2) * rng.IntN(200)
	return q
}

func (w *world) pick() *life {
	if len(w.order) == 0 {
		return nil
	}
	return w.order[w.rng.IntN(len(w.order))]
}

// step does something and says what.
func (w *world) step(queue bool) string {
	rng := w.rng
	switch op := rng.IntN(100); {
	case op < 34: // place
		q := w.request()
		if q == nil {
			return "nothing"
		}
		known := w.known(q)
		w.parked[q] = true
		w.r.Submit(q, func(pl *Placement, err error) {
			if !w.parked[q] {
				w.t.Errorf("request %s was called twice", q.ID)
			}
			delete(w.parked, q)
			if err != nil {
				w.refused++
				return
			}
			w.book(q, pl, known)
		})
		return "place"
	case op < 40: // reserve
		q := w.request()
		if queue || q == nil {
			return "nothing"
		}
		q.QueryOnly = false
		known := w.known(q)
		pl, err := w.r.Reserve(w.t.Context(), q, time.Minute)
		if err != nil {
			w.refused++
			return "a reservation refused"
		}
		l := w.book(q, pl, known)
		l.leaseEnd = time.Now().Add(time.Minute)
		w.leases = append(w.leases, l)
		if _, err := w.r.Reserve(w.t.Context(), q, time.Minute); !errors.Is(err, ErrDuplicate) {
			w.t.Errorf("the same again: %v", err)
		}
		return "reserve"
	case op < 44 && len(w.leases) > 0:
		l := w.leases[rng.IntN(len(w.leases))]
		prefilled := rng.IntN(2) == 0
		if prefilled {
			l.prefill = 0
		}
		l.leaseEnd = time.Now().Add(time.Minute)
		if err := w.r.Renew(l.q.Model.ID, l.q.ID, prefilled); err != nil {
			w.t.Error(err)
		}
		return "renew"
	case op < 47 && len(w.leases) > 0:
		l := w.leases[rng.IntN(len(w.leases))]
		w.forget(l)
		if !w.r.Release(l.q.Model.ID, l.q.ID) || w.r.Release(l.q.Model.ID, l.q.ID) {
			w.t.Error("a reservation is released once")
		}
		return "release"
	case op < 58:
		if l := w.pick(); l != nil {
			l.prefill = 0
			l.pl.FirstToken()
		}
		return "first token"
	case op < 68:
		if l := w.pick(); l != nil {
			n := rng.IntN(60) - 2
			l.output += max(n, 0)
			l.pl.Output(n)
		}
		return "output"
	case op < 72:
		if l := w.pick(); l != nil {
			l.pl.Usage(l.prompt, rng.IntN(l.prompt+2)-1)
		}
		return "usage"
	case op < 86:
		l := w.pick()
		if l == nil || !l.leaseEnd.IsZero() {
			return "nothing"
		}
		w.forget(l)
		for range 1 + rng.IntN(2) {
			l.pl.Done([]Outcome{Completed, Cancelled, Refused}[rng.IntN(3)])
		}
		l.pl.FirstToken()
		l.pl.Output(100)
		return "done"
	case op < 91: // events
		id := kv.WorkerID(1 + rng.IntN(6))
		worker := w.r.workers[id]
		src := kv.Source{Worker: id, Rank: uint32(rng.IntN(3))}
		ev := kv.Event{Kind: kv.Stored, Blocks: kv.AppendBlocks(nil, kv.HashSeed("", ""), tokensOf(1+rng.IntN(4), 32*(1+rng.IntN(8))), []int{16, 32}[rng.IntN(2)])}
		if rng.IntN(6) == 0 {
			ev = kv.Event{Kind: kv.Cleared}
		}
		if !worker.Events {
			return "nothing"
		}
		for _, p := range *worker.pools.Load() {
			h := holder{p, src}
			if ev.Kind == kv.Cleared {
				delete(w.told, h)
			}
			for _, b := range ev.Blocks {
				hold(w.told, h, b.ID)
			}
		}
		apply(w.t, w.r, src.Worker, src.Rank, ev)
		return "event"
	case op < 94:
		w.admit(kv.WorkerID(1+rng.IntN(6)), shapes(rng))
		return "a worker that comes back"
	case op < 96:
		worker := w.r.workers[kv.WorkerID(1+rng.IntN(6))]
		if rng.IntN(2) == 0 {
			worker.inhibitedUntil.Store(time.Now().Add(time.Second).UnixNano())
		} else {
			worker.inhibitedUntil.Store(0)
		}
		w.r.wake(worker)
		return "inhibition"
	case op < 98:
		m, err := w.r.Lookup("m")
		if err != nil {
			return "nothing"
		}
		m.SetThresholds(Thresholds{DecodeBlocks: ptr(0.2 + rng.Float64())})
		w.r.Report(kv.WorkerID(1+rng.IntN(6)), []engine.Load{{Rank: uint32(rng.IntN(3)), UsedBlocks: rng.IntN(300)}})
		return "thresholds"
	default:
		if queue {
			return "nothing"
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		for _, l := range slices.Clone(w.leases) {
			if !l.leaseEnd.After(time.Now()) {
				w.forget(l)
			}
		}
		return "time"
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

// TestLifecycleConcurrently does the same things at once, without a model: in the end
// nothing is booked and nobody waits.
func TestLifecycleConcurrently(t *testing.T) {
	cfg := Config{Queue: queueOf(300), Decisions: 64, Inhibit: time.Millisecond, Lease: time.Millisecond}
	cfg.Queue.MaxWait = 5 * time.Millisecond
	var specs []Spec
	for i := range 6 {
		specs = append(specs, Spec{Events: i%3 != 0, Engine: &stubEngine{models: []engine.Model{{ID: "m", BlockSize: 16, Ranks: 1 + i%2}}}})
	}
	r, m := crew(t, cfg, specs...)
	var mu sync.Mutex
	pools := map[*pool]bool{m.pools[0]: true}
	stop := make(chan struct{})
	var disturb, work sync.WaitGroup
	disturb.Go(func() {
		rng := rand.New(rand.NewPCG(1, 77))
		for {
			select {
			case <-stop:
				return
			default:
			}
			r.admit(r.workers[kv.WorkerID(1+rng.IntN(6))], &engine.Info{Models: shapes(rng)})
			r.mu.RLock()
			mu.Lock()
			for _, p := range r.pools {
				pools[p] = true
			}
			mu.Unlock()
			r.mu.RUnlock()
			r.CountWorkers()
			r.Decisions(3, func(string, string, uint64) bool { return true })
			apply(t, r, kv.WorkerID(1+rng.IntN(6)), 0, kv.Event{Kind: kv.Stored, Blocks: kv.AppendBlocks(nil, kv.HashSeed("", ""), tokensOf(1+rng.IntN(4), 160), 16)})
			r.Report(kv.WorkerID(1+rng.IntN(6)), []engine.Load{{UsedBlocks: rng.IntN(100)}})
			m.SetThresholds(Thresholds{DecodeBlocks: ptr(0.2 + rng.Float64())})
		}
	})
	n := 250
	if testing.Short() {
		n = 50
	}
	for g := range 8 {
		work.Go(func() {
			w := &world{t: t, rng: rand.New(rand.NewPCG(uint64(g), 5)), r: r}
			for i := range n {
				q := w.request()
				if q == nil {
					continue
				}
				q.ID = fmt.Sprint(g, "-", i)
				ctx, cancel := context.WithCancel(t.Context())
				end := func(p *Placement) {
					if w.rng.IntN(2) == 0 {
						p.FirstToken()
					}
					p.Output(w.rng.IntN(50))
					p.Usage(q.PromptTokens, w.rng.IntN(100)-1)
					outcome := []Outcome{Completed, Completed, Cancelled, Refused, Broken, Unreachable}[w.rng.IntN(6)]
					var twice sync.WaitGroup
					twice.Go(func() { p.Done(outcome) })
					twice.Go(func() { p.Done(Completed) })
					twice.Wait()
				}
				switch w.rng.IntN(4) {
				case 0:
					go cancel()
					if p, err := r.Place(ctx, q); err == nil {
						end(p)
					}
				case 1:
					called := make(chan *Placement, 1)
					work.Go(func() {
						r.Submit(q, func(p *Placement, err error) { called <- p })
						if p := <-called; p != nil {
							p.FirstToken()
							p.Done(Completed)
						}
					})
				case 2:
					q.QueryOnly = false
					if _, err := r.Reserve(ctx, q, time.Duration(w.rng.IntN(2000))*time.Microsecond); err == nil {
						_ = r.Renew(q.Model.ID, q.ID, true)
						if w.rng.IntN(2) == 0 {
							r.Release(q.Model.ID, q.ID)
						}
					}
				default:
					if p, err := r.Place(ctx, q); err == nil {
						end(p)
					}
				}
				cancel()
			}
		})
	}
	work.Wait()
	close(stop)
	disturb.Wait()
	r.Close()
	for p := range pools {
		empty(t, p)
	}
	if n := r.leases.count(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}
