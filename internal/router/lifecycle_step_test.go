package router

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
)

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
			if p := w.r.pools[poolKey{model: em.ID, blockSize: em.BlockSize, tokenizer: em.Tokenizer}]; p != nil {
				stays[holder{p, kv.Source{Worker: id, Rank: uint32(rank)}}] = true
			}
		}
	}
	for h := range before {
		if !stays[h] {
			delete(w.told, h)
		}
	}
	w.r.admit(worker, &engine.Info{Kind: "stub", Models: models}, true)
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
	q.Whole = rng.IntN(4) == 0
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
			w.answer(l)
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
			w.answer(l)
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
		if rng.IntN(3) == 0 {
			w.answer(l)
			l.pl.Whole(10)
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
		if src.Rank >= worker.ranks.Load() { // nobody looks at what a rank says that there is not
			apply(w.t, w.r, src.Worker, src.Rank, ev)
			return "an event of nobody"
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
		for _, l := range w.order {
			if !l.computed.IsZero() && !l.computed.After(time.Now()) {
				l.prefill = 0
			}
		}
		for _, l := range slices.Clone(w.leases) {
			if !l.leaseEnd.After(time.Now()) {
				w.forget(l)
			}
		}
		return "time"
	}
}
