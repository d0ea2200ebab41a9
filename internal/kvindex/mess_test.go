package kvindex_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// mess makes up calls that no engine would make in this order: names mean anything, and
// blocks come from everywhere.
type mess struct {
	rng    *rand.Rand
	names  uint64 // how many there are
	locals uint64 // how many contents of blocks
	long   int    // the most blocks of an event
	vague  bool   // one name may stand for many blocks of an event
	ranks  int
}

func (m *mess) one(in int) bool { return m.rng.IntN(in) == 0 }

func (m *mess) name() kv.BlockID { return kv.BlockID(m.rng.Uint64N(m.names)) }

func (m *mess) source() kv.Source {
	return kv.Source{Worker: kv.WorkerID(1 + m.rng.IntN(m.ranks)/2), Rank: m.rng.Uint32N(2)}
}

func (m *mess) blocks() []kv.Block {
	out := make([]kv.Block, m.rng.IntN(m.long+1))
	id, local := m.name(), m.rng.Uint64N(m.locals)
	for i := range out {
		out[i] = kv.Block{ID: id + kv.BlockID(i), Tokens: kv.LocalHash(local + uint64(i))}
		if m.one(20) {
			out[i].Tokens = kv.LocalHash(m.rng.Uint64N(m.locals))
		}
		if m.vague && m.one(4) {
			out[i].ID = m.name()
		}
	}
	return out
}

func (m *mess) event() kv.Event {
	ev := kv.Event{Kind: kv.Removed, Counted: m.one(3)}
	if m.one(4) {
		ev.Tier = kv.Tier(m.rng.IntN(int(kv.NumTiers) + 1))
	}
	switch p := m.rng.IntN(100); {
	case p < 50:
		ev.Kind = kv.Stored
		ev.Blocks = m.blocks()
		if !m.one(3) {
			ev.Parent, ev.HasParent = m.name(), true
			if m.one(10) {
				ev.ParentSeq, ev.HasParentSeq = kv.BlockID(m.rng.Uint64N(m.locals)), true
			}
		}
	case p < 55:
		ev.Kind, ev.Bare = kv.Stored, true
		ev.Blocks = m.blocks()
	case p < 97:
		ev.Blocks = m.blocks()
		if m.one(2) {
			slices.Reverse(ev.Blocks)
		}
	case p < 99:
		ev.Kind = kv.Cleared
	default:
		ev.Kind = kv.Kind(m.rng.IntN(256))
	}
	return ev
}

func (m *mess) events(n int) []kv.Event {
	var all []kv.Event
	for range n {
		all = append(all, m.event())
	}
	return all
}

// call calls an index once and returns the name of the call.
func (m *mess) call(x *kvindex.Index, now time.Time) string {
	src := m.source()
	switch p := m.rng.IntN(100); {
	case p < 80:
		x.Tell(now)
		x.Apply(&kv.Batch{Source: src, Events: m.events(1 + m.rng.IntN(4))})
		return "Apply"
	case p < 84:
		var locals []kv.LocalHash
		first := m.rng.Uint64N(m.locals)
		for i := range uint64(m.rng.IntN(m.long + 1)) {
			locals = append(locals, kv.LocalHash(first+i))
		}
		x.Route(now.Add(-time.Duration(m.rng.IntN(3))*time.Second), src, chain(locals...))
		return "Route"
	case p < 87:
		x.Restore(src, 1, 2, pour(m.events(m.rng.IntN(10)), nil))
		return "Restore"
	case p < 91:
		if d, ok := x.Dump(src); ok {
			x.Restore(kv.Source{Worker: 1000}, d.Epoch, d.Seq, pour(dumped(d), nil))
		}
		return "Restore of a dump"
	case p < 93:
		x.RemoveRank(src)
		return "RemoveRank"
	case p < 94:
		x.ClearRank(src)
		return "ClearRank"
	case p < 97:
		x.Expire(now)
		return "Expire"
	default:
		x.Stats()
		return "Stats"
	}
}

// TestMess calls an index in every way and order, and looks after each call whether it
// still is in order. In the end nothing is left.
func TestMess(t *testing.T) {
	const calls = 400
	seeds := 20
	if raceEnabled {
		seeds = 2
	}
	for seed := range uint64(seeds) {
		if err := messUp(seed, calls); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

func messUp(seed uint64, calls int) (err error) {
	what := "New"
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: panic: %v", what, p)
		}
	}()
	rng := rand.New(rand.NewPCG(seed, 99))
	cfg := kvindex.Config{MaxOrphans: []int{0, 64, 200, 1000}[rng.IntN(4)], ClearWorker: rng.IntN(4) == 0}
	if rng.IntN(2) == 0 {
		cfg.TTL = 50 * time.Second
	}
	if rng.IntN(3) == 0 {
		cfg.MaxBlocks, cfg.PruneRatio = 200+rng.IntN(3000), []float64{0, 0.5, 1}[rng.IntN(3)]
	}
	m := &mess{
		rng: rng, names: 1 << (2 + rng.IntN(12)), locals: 1 << (1 + rng.IntN(8)),
		long: []int{3, 20, 200}[rng.IntN(3)], vague: rng.IntN(2) == 0, ranks: []int{1, 3, 70}[rng.IntN(3)],
	}
	x := kvindex.New(cfg)
	now := time.Unix(1000, 0)
	for i := range calls {
		now = now.Add(time.Duration(rng.IntN(1500)) * time.Millisecond)
		what = m.call(x, now)
		if err := x.Check(); err != nil {
			return fmt.Errorf("call %d, %s: %w", i, what, err)
		}
	}
	what = "RemoveRank of all"
	for _, src := range x.Ranks() {
		x.RemoveRank(src)
	}
	if s := x.Stats(); s.Blocks != 0 || s.Bytes > 1<<20 {
		return fmt.Errorf("%d blocks and %d bytes are left", s.Blocks, s.Bytes)
	}
	return x.Check()
}
