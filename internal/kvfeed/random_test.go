package kvfeed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// held is a block as an engine holds it.
type held struct {
	ID, Parent kv.BlockID
	HasParent  bool
	Tokens     kv.LocalHash
}

// model is an engine's rank: a cache that changes at random and says so, and the
// companion that hears everything.
type model struct {
	rng    *rand.Rand
	src    kv.Source
	epochs bool // a restart has a new epoch
	first  uint64

	epoch, seq uint64
	cache      map[kv.BlockID]held
	companion  *Local
}

func newModel(rng *rand.Rand, src kv.Source, epochs bool) *model {
	m := &model{
		rng: rng, src: src, epochs: epochs, first: rng.Uint64N(2),
		companion: NewLocal(src.Worker, kvindex.New(kvindex.Config{}), 1+rng.IntN(24)),
	}
	m.restart()
	return m
}

func (m *model) restart() {
	m.cache = map[kv.BlockID]held{}
	m.seq = m.first
	if m.epochs {
		m.epoch++
	}
	m.companion.ClearRank(m.src)
}

// step changes the cache and returns what the engine says about it.
func (m *model) step() *kv.Batch {
	b := &kv.Batch{Source: m.src, Epoch: m.epoch, Seq: m.seq}
	m.seq++
	for range m.rng.IntN(4) {
		switch n := m.rng.IntN(100); {
		case n < 2:
			clear(m.cache)
			b.Events = append(b.Events, kv.Event{Kind: kv.Cleared})
		case n < 55:
			b.Events = append(b.Events, m.store())
		default:
			if ev, ok := m.evict(); ok {
				b.Events = append(b.Events, ev)
			}
		}
	}
	if err := m.companion.Apply(b); err != nil {
		panic(err)
	}
	return b
}

// store adds some blocks at the end of a prefix that is held. A block is named
// after its content and what is before it, so that one that was evicted comes back
// under its old name.
func (m *model) store() kv.Event {
	ev := kv.Event{Kind: kv.Stored}
	var parent kv.BlockID
	for m.rng.IntN(3) > 0 {
		id := child(parent, kv.LocalHash(m.rng.IntN(3)))
		if _, ok := m.cache[id]; !ok {
			break
		}
		parent = id
	}
	ev.Parent, ev.HasParent = parent, parent != 0
	for range 1 + m.rng.IntN(3) {
		local := kv.LocalHash(m.rng.IntN(3))
		id := child(parent, local)
		ev.Blocks = append(ev.Blocks, kv.Block{ID: id, Tokens: local})
		m.cache[id] = held{id, parent, parent != 0, local}
		parent = id
	}
	return ev
}

func child(parent kv.BlockID, local kv.LocalHash) kv.BlockID { return parent*4 + kv.BlockID(local) + 1 }

// evict removes a block that no other follows.
func (m *model) evict() (kv.Event, bool) {
	var leaf kv.BlockID
	for id := range m.cache { // always the same one, so that a run can be repeated
		leafy := true
		for local := range kv.LocalHash(3) {
			if _, ok := m.cache[child(id, local)]; ok {
				leafy = false
			}
		}
		if leafy && (leaf == 0 || mix(id) < mix(leaf)) {
			leaf = id
		}
	}
	if leaf == 0 {
		return kv.Event{}, false
	}
	delete(m.cache, leaf)
	return kv.Event{Kind: kv.Removed, Blocks: []kv.Block{{ID: leaf}}}, true
}

func mix(id kv.BlockID) uint64 { return uint64(id) * 0x9E3779B97F4A7C15 }

// answer is the companion's, sometimes by way of its JSON form.
func (m *model) answer(from uint64, full bool) Answer {
	q := Request{Worker: m.src.Worker, Rank: &m.src.Rank, Start: &from}
	if full {
		q.Start = nil
	}
	a := m.companion.Query(q)
	if m.rng.IntN(3) == 0 {
		var buf bytes.Buffer
		if err := a.Encode(&buf, q); err != nil {
			return Answer{Err: err}
		}
		parsed, err := ParseAnswer(buf.Bytes(), m.src)
		if err != nil {
			panic(fmt.Errorf("%s: %w", buf.Bytes(), err))
		}
		a = parsed
	}
	return a
}

// broken makes a dump of an answer end too early.
func broken(a Answer) Answer {
	if a.Kind != Dump {
		return Answer{Err: errors.New("refused")}
	}
	all := a.Dump
	a.Dump = func(yield func(*kv.Event, error) bool) {
		for ev := range all {
			if !yield(ev, nil) {
				return
			}
			break
		}
		yield(nil, errors.New("connection lost"))
	}
	return a
}

// holds returns what an index says that a rank holds.
func holds(x *kvindex.Index, src kv.Source) map[kv.BlockID]held {
	all := map[kv.BlockID]held{}
	d, ok := x.Dump(src)
	if !ok {
		return all
	}
	for ev := range d.All() {
		parent, has := ev.Parent, ev.HasParent
		for _, b := range ev.Blocks {
			all[b.ID] = held{b.ID, parent, has, b.Tokens}
			parent, has = b.ID, true
		}
	}
	return all
}

// world is a feed with everything around it, in steps instead of time.
type world struct {
	*model
	t     *testing.T
	feed  *Feed
	index *kvindex.Index
	wire  []*kv.Batch // on their way
	calm  bool        // nothing is lost or fails any more

	asked   Recovery
	waiting int     // steps until the question arrives
	reply   *Answer // to it, once it was answered
	sure    int     // batches from now on that are not lost
}

func (w *world) do(acts []Action) {
	for i := 0; i < len(acts); i++ {
		switch a := acts[i]; a.Do {
		case Clear:
			w.index.ClearRank(w.src)
		case Apply:
			if err := w.index.Apply(a.Batch); err != nil {
				w.t.Fatal(err)
			}
		case Restore:
			err := w.index.Restore(w.src, a.Dump.Epoch, a.Dump.Last, a.Dump.Dump)
			acts, i = w.feed.Restored(err), -1
		case Recover:
			w.asked, w.waiting, w.reply = a.Recovery, w.rng.IntN(20), nil
		}
	}
}

func (w *world) say() {
	b := w.step()
	if w.sure > 0 {
		w.sure--
	} else if !w.calm && w.rng.IntN(8) == 0 {
		return
	}
	w.wire = append(w.wire, b)
	if !w.feed.opt.Ordered && !w.calm && w.rng.IntN(8) == 0 {
		w.wire = append(w.wire, b)
	}
}

func (w *world) deliver() {
	if len(w.wire) == 0 {
		return
	}
	i := 0
	if !w.feed.opt.Ordered && w.rng.IntN(2) == 0 {
		i = w.rng.IntN(min(len(w.wire), 6))
	}
	b := w.wire[i]
	w.wire = append(w.wire[:i], w.wire[i+1:]...)
	if !w.calm && !w.shows(b) && w.rng.IntN(30) == 0 {
		if len(w.wire) == 0 {
			w.do(w.feed.Lost(b.Epoch, b.Seq))
		}
		return
	}
	w.do(w.feed.Batch(b))
}

// shows reports whether b may be the only one to show that the engine restarted.
func (w *world) shows(b *kv.Batch) bool { return w.feed.opt.Ordered && b.Seq == w.first }

func (w *world) recovery() {
	if w.feed.Recovery() == 0 || w.asked.ID != w.feed.Recovery() {
		return
	}
	if w.waiting--; w.waiting > 0 {
		return
	}
	if w.reply == nil {
		a := w.answer(w.asked.From, w.asked.Full)
		if !w.calm {
			switch w.rng.IntN(6) {
			case 0:
				a = Answer{Err: errors.New("refused")}
			case 1:
				a = broken(a)
			}
		}
		w.reply, w.waiting = &a, w.rng.IntN(20)
		return
	}
	a := *w.reply
	w.reply = nil
	w.do(w.feed.Answer(w.asked.ID, a))
}

// After everything has calmed down the index holds what the engine holds, whatever
// was lost, came twice, late or not at all.
func TestFeedRandom(t *testing.T) {
	rounds := 400
	if testing.Short() {
		rounds = 50
	}
	var total Counts
	states := map[State]int{}
	for round := range rounds {
		rng := rand.New(rand.NewPCG(uint64(round), 5))
		opt := Options{Ordered: round%2 == 0, Recoverable: true, Buffer: 2 + rng.IntN(12), Attempts: 1 + rng.IntN(4)}
		epochs := !opt.Ordered || rng.IntN(2) == 0
		w := &world{model: newModel(rng, testSource, epochs), t: t, index: kvindex.New(kvindex.Config{})}
		for range rng.IntN(20) {
			w.step() // before anyone listens
		}
		w.feed = NewFeed(testSource, opt)
		w.do(w.feed.Start())
		for range 600 {
			switch n := rng.IntN(100); {
			case n < 1:
				w.restart()
				w.sure = 1
			case n < 35:
				w.say()
			case n < 75:
				w.deliver()
			default:
				w.recovery()
			}
			states[w.feed.State()]++
		}
		w.calm = true
		w.say() // shows what was lost before
		for i := 0; len(w.wire) > 0 || w.feed.Recovery() != 0; i++ {
			if i == 10_000 {
				t.Fatalf("round %d: no rest: %v, %d on their way", round, w.feed.State(), len(w.wire))
			}
			w.deliver()
			w.recovery()
		}
		if diff := cmp.Diff(w.cache, holds(w.index, testSource)); diff != "" {
			t.Fatalf("round %d, %+v: engine and index differ (-engine +index):\n%s", round, opt, diff)
		}
		if st := w.feed.State(); st != Live {
			t.Errorf("round %d: %v, want live", round, st)
		}
		n := w.feed.Counts()
		total.Stale += n.Stale
		total.Gaps += n.Gaps
		total.Restarts += n.Restarts
		total.Overflowed += n.Overflowed
		for o := range n.Recoveries {
			total.Recoveries[o] += n.Recoveries[o]
		}
	}
	// The test is worth something only if all of it happened.
	if total.Stale == 0 || total.Gaps == 0 || total.Restarts == 0 || total.Overflowed == 0 {
		t.Errorf("%+v: something never happened", total)
	}
	for o, n := range total.Recoveries {
		if n == 0 && Outcome(o) != GotGone {
			t.Errorf("no recovery ended as %v", Outcome(o))
		}
	}
	for _, s := range []State{Syncing, Live, Degraded} {
		if states[s] == 0 {
			t.Errorf("never %v", s)
		}
	}
}

// The same with goroutines, small queues, and many ranks at once.
func TestHubRandom(t *testing.T) {
	for round := range 5 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { hubRound(t, uint64(round)) })
		})
	}
}

func hubRound(t *testing.T, round uint64) {
	const ranks = 12
	models := make([]*model, ranks)
	var mu sync.Mutex // of the models and what they draw
	calm := false
	x := kvindex.New(kvindex.Config{})
	h := Open(Config{
		Target: x, Queue: 4, Recoveries: 3, Timeout: time.Second, Now: clock,
		Recoverer: recoverFunc(func(ctx context.Context, src kv.Source, from uint64, full bool) (Answer, error) {
			m := models[src.Rank]
			mu.Lock()
			a, fate, wait := m.answer(from, full), m.rng.IntN(6), time.Duration(m.rng.IntN(400))*time.Millisecond
			if calm {
				fate = -1
			}
			mu.Unlock()
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return Answer{}, ctx.Err()
			}
			switch fate {
			case 0:
				return Answer{}, errors.New("refused")
			case 1:
				return broken(a), nil
			case 2:
				return never(ctx, src, from, full)
			}
			return a, nil
		}),
	})
	defer h.Close()
	var wg sync.WaitGroup
	for i := range models {
		m := newModel(rand.New(rand.NewPCG(round, uint64(i))), kv.Source{Worker: 7, Rank: uint32(i)}, true)
		models[i] = m
		add(t, h, Options{Ordered: i%2 == 0, Recoverable: true, Buffer: 8, Attempts: 3}, m.src)
		wg.Go(func() {
			for range 300 {
				mu.Lock()
				if m.rng.IntN(60) == 0 {
					m.restart()
				}
				b, lose, twice := m.step(), m.rng.IntN(10) == 0, i%2 == 1 && m.rng.IntN(10) == 0
				wait := time.Duration(m.rng.IntN(3)) * 20 * time.Millisecond
				mu.Unlock()
				if !lose {
					_ = h.Apply(b) // a full queue is one more way to lose it
				}
				if twice {
					again := *b
					_ = h.Apply(&again)
				}
				time.Sleep(wait)
			}
		})
	}
	for range 100 {
		time.Sleep(100 * time.Millisecond)
		h.Stats()
	}
	wg.Wait()
	mu.Lock()
	calm = true
	mu.Unlock()
	for _, m := range models {
		mu.Lock()
		b := m.step()
		mu.Unlock()
		push(t, h, b)
	}
	if err := h.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Minute) // degraded ranks heal
	for i, st := range h.Stats() {
		if st.State != Live || st.Queued != 0 || st.Held != 0 {
			t.Errorf("rank %d: %+v, want live", i, st)
		}
		if diff := cmp.Diff(models[i].cache, holds(x, models[i].src)); diff != "" {
			t.Errorf("rank %d: engine and index differ (-engine +index):\n%s", i, diff)
		}
	}
}
