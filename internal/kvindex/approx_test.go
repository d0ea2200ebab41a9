package kvindex_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

var noon = time.Unix(1_700_000_000, 0)

// depthOn returns how many blocks of a prompt a rank has on its device.
func depthOn(x *kvindex.Index, src kv.Source, prompt []kv.Block) int {
	for _, o := range x.Match(nil, prompt) {
		if o.Source == src {
			return int(o.Depth[kv.Device])
		}
	}
	return 0
}

func TestRoute(t *testing.T) {
	x := kvindex.New(kvindex.Config{TTL: time.Minute})
	a, b := rank0(workerA), rank0(workerB)
	x.Route(noon, a, chain(1, 2, 3))
	x.Route(noon, b, chain(1, 9))
	x.Route(noon, b, nil)
	for _, tc := range []struct {
		src    kv.Source
		prompt []kv.Block
		want   int
	}{
		{a, chain(1, 2, 3, 4), 3},
		{a, chain(1, 9), 1},
		{b, chain(1, 9), 2},
		{b, chain(9), 0},
	} {
		if got := depthOn(x, tc.src, tc.prompt); got != tc.want {
			t.Errorf("%v has %d of %s, want %d", tc.src, got, blocksString(tc.prompt), tc.want)
		}
	}
	if s, ok := x.Rank(a); !ok || s.Known || s.Blocks != 3 {
		t.Errorf("rank is %+v, %v; a routed prompt is not a batch", s, ok)
	}
	// What an engine then says about the same names counts.
	x.Apply(&kv.Batch{Source: a, Seq: 5, Events: []kv.Event{{Kind: kv.Removed, Blocks: chain(1, 2, 3)[2:]}}})
	if got := depthOn(x, a, chain(1, 2, 3)); got != 2 {
		t.Errorf("after a removal %d blocks, want 2", got)
	}
	if s, _ := x.Rank(a); !s.Known || s.Seq != 5 {
		t.Errorf("rank is %+v", s)
	}
}

func TestExpire(t *testing.T) {
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	x := kvindex.New(kvindex.Config{TTL: 100 * time.Second})
	a, b := rank0(workerA), rank0(workerB)
	x.Route(at(0), a, chain(1, 2, 3, 4))
	x.Route(at(30), b, chain(1, 2, 3))
	x.Route(at(60), a, chain(1, 2)) // refreshed
	for _, tc := range []struct {
		seconds    int
		gone       int
		inA, inB   int
		sumExpired uint64
	}{
		{99, 0, 4, 3, 0},
		{101, 2, 2, 3, 2},
		{129, 0, 2, 3, 2},
		{131, 3, 2, 0, 5},
		{161, 2, 0, 0, 7},
		{1000, 0, 0, 0, 7},
	} {
		if gone := x.Expire(at(tc.seconds)); gone != tc.gone {
			t.Errorf("at %d s %d blocks went, want %d", tc.seconds, gone, tc.gone)
		}
		if inA, inB := depthOn(x, a, chain(1, 2, 3, 4)), depthOn(x, b, chain(1, 2, 3)); inA != tc.inA || inB != tc.inB {
			t.Errorf("at %d s A has %d and B %d, want %d and %d", tc.seconds, inA, inB, tc.inA, tc.inB)
		}
		if s := x.Stats(); s.Expired != tc.sumExpired || s.Orphans != 0 {
			t.Errorf("at %d s %d expired, %d orphans, want %d and 0", tc.seconds, s.Expired, s.Orphans, tc.sumExpired)
		}
	}
	if n := len(x.Ranks()); n != 2 {
		t.Errorf("%d ranks are known, want 2", n)
	}
}

// TestExpireEvents shows that what engines told expires too: a time after the time
// that was last told when it came.
func TestExpireEvents(t *testing.T) {
	x := kvindex.New(kvindex.Config{TTL: 100 * time.Second})
	a, b := rank0(workerA), rank0(workerB)
	x.Route(noon, a, chain(1))
	blocks := chain(1, 2, 3)
	x.Apply(&kv.Batch{Source: b, Events: []kv.Event{
		{Kind: kv.Stored, Counted: true, Blocks: blocks[:2]},
		{Kind: kv.Stored, Counted: true, Blocks: blocks[:2]},
		{Kind: kv.Stored, Tier: kv.Host, Parent: blocks[1].ID, HasParent: true, Blocks: blocks[2:]},
		{Kind: kv.Stored, Parent: 777, HasParent: true, Blocks: []kv.Block{{ID: 888, Tokens: 8}}},
	}})
	if gone := x.Expire(noon.Add(50 * time.Second)); gone != 0 {
		t.Errorf("%d blocks went after half the time", gone)
	}
	if gone := x.Expire(noon.Add(150 * time.Second)); gone != 5 {
		t.Errorf("%d blocks went, want 5", gone)
	}
	if s := x.Stats(); s.Blocks != 0 || s.Orphans != 0 {
		t.Errorf("%d blocks, %d orphans left", s.Blocks, s.Orphans)
	}
	// Copies went with the block: one removal ends it.
	x.Apply(&kv.Batch{Source: b, Events: []kv.Event{
		{Kind: kv.Stored, Counted: true, Blocks: blocks},
		{Kind: kv.Removed, Counted: true, Blocks: blocks[:1]},
	}})
	if got := depthOn(x, b, blocks); got != 0 {
		t.Errorf("%d blocks, want 0", got)
	}
}

func TestNoTTL(t *testing.T) {
	x := kvindex.New(kvindex.Config{})
	x.Route(noon, rank0(workerA), chain(1, 2))
	if gone := x.Expire(noon.AddDate(10, 0, 0)); gone != 0 || depthOn(x, rank0(workerA), chain(1, 2)) != 2 {
		t.Errorf("%d blocks went without a TTL", gone)
	}
}

// TestPruneOrder shows what goes first among blocks that would expire at once.
func TestPruneOrder(t *testing.T) {
	second := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }
	type has map[kv.WorkerID]int
	for _, tc := range []struct {
		name   string
		max    int
		ratio  float64
		fill   func(x *kvindex.Index)
		prompt []kv.Block
		want   has
	}{
		{"earliest first", 6, 0.5, func(x *kvindex.Index) {
			x.Route(second(2), rank0(workerA), chain(1, 2))
			x.Route(second(1), rank0(workerB), chain(1, 2))
			x.Route(second(3), rank0(workerC), chain(1, 2, 3))
		}, chain(1, 2, 3), has{workerC: 3}},
		{"refreshed last", 6, 0.5, func(x *kvindex.Index) {
			x.Route(second(1), rank0(workerA), chain(1, 2, 3))
			x.Route(second(2), rank0(workerB), chain(1, 2, 3))
			x.Route(second(3), rank0(workerA), chain(1, 2))
			x.Route(second(4), rank0(workerC), chain(1))
		}, chain(1, 2, 3), has{workerA: 2, workerC: 1}},
		{"then the larger position", 5, 0.8, func(x *kvindex.Index) {
			x.Route(second(1), rank0(workerA), chain(1, 2, 3))
			x.Route(second(1), rank0(workerB), chain(1, 2, 3))
		}, chain(1, 2, 3), has{workerA: 2, workerB: 2}},
		{"then the larger worker", 5, 1, func(x *kvindex.Index) {
			x.Route(second(1), rank0(workerB), chain(1, 2, 3))
			x.Route(second(1), rank0(workerA), chain(1, 2, 3))
		}, chain(1, 2, 3), has{workerA: 3, workerB: 2}},
		{"the larger hash before the larger worker", 3, 0.67, func(x *kvindex.Index) {
			x.Route(second(1), rank0(workerB), chain(1))
			x.Route(second(1), rank0(workerC), chain(1))
			x.Route(second(1), rank0(workerA), chain(8))
			x.Route(second(1), rank0(workerA), chain(9))
		}, chain(1), has{workerB: 1, workerC: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x := kvindex.New(kvindex.Config{TTL: time.Hour, MaxBlocks: tc.max, PruneRatio: tc.ratio})
			tc.fill(x)
			for _, w := range []kv.WorkerID{workerA, workerB, workerC} {
				if got := depthOn(x, rank0(w), tc.prompt); got != tc.want[w] {
					t.Errorf("worker %d has %d, want %d", w, got, tc.want[w])
				}
			}
		})
	}
}

// naiveApprox is an index that learns from routing only: when each block of each
// rank was last routed.
type naiveApprox struct {
	cfg             kvindex.Config
	blocks          map[approxKey]approxBlock
	expired, pruned uint64
}

type approxKey struct {
	src kv.Source
	id  kv.BlockID
}

type approxBlock struct {
	approxKey
	touched time.Time
	pos     int
}

func (x *naiveApprox) route(now time.Time, src kv.Source, prompt []kv.Block) {
	for i, b := range prompt {
		k := approxKey{src, b.ID}
		x.blocks[k] = approxBlock{k, now, i}
	}
	if len(x.blocks) <= x.cfg.MaxBlocks {
		return
	}
	var all []approxBlock
	for _, b := range x.blocks {
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b approxBlock) int {
		return cmp.Or(a.touched.Compare(b.touched), cmp.Compare(b.pos, a.pos), cmp.Compare(b.id, a.id), bySource(b.src, a.src))
	})
	for _, b := range all[:len(all)-int(float64(x.cfg.MaxBlocks)*x.cfg.PruneRatio)] {
		delete(x.blocks, b.approxKey)
		x.pruned++
	}
}

func (x *naiveApprox) expire(now time.Time) int {
	n := 0
	for k, b := range x.blocks {
		if now.Sub(b.touched) >= x.cfg.TTL {
			delete(x.blocks, k)
			n++
		}
	}
	x.expired += uint64(n)
	return n
}

func (x *naiveApprox) drop(src kv.Source) {
	for k := range x.blocks {
		if k.src == src {
			delete(x.blocks, k)
		}
	}
}

func (x *naiveApprox) depth(src kv.Source, prompt []kv.Block) int {
	for i, b := range prompt {
		if _, ok := x.blocks[approxKey{src, b.ID}]; !ok {
			return i
		}
	}
	return len(prompt)
}

// TestApproxProperty routes random prompts with a TTL and a bound and compares with
// naiveApprox.
func TestApproxProperty(t *testing.T) {
	const n = 60
	for seed := range uint64(n) {
		rng := rand.New(rand.NewPCG(seed, 9))
		cfg := kvindex.Config{TTL: 40 * time.Second, MaxBlocks: 20 + rng.IntN(40), PruneRatio: []float64{0.25, 0.5, 0.75, 1}[rng.IntN(4)]}
		u := newUniverse(shape{workers: 3, ranks: 2, nodes: 40, locals: 9, long: 70, names: own}, seed)
		real, model := kvindex.New(cfg), &naiveApprox{cfg: cfg, blocks: map[approxKey]approxBlock{}}
		now := noon
		for i := range 400 {
			src := u.source()
			switch p := rng.IntN(100); {
			case p < 70:
				prompt := u.prompts[rng.IntN(len(u.prompts))]
				real.Route(now, src, prompt)
				model.route(now, src, prompt)
			case p < 80:
				now = now.Add(time.Duration(1+rng.IntN(9)) * time.Second)
			case p < 96:
				if got, want := real.Expire(now), model.expire(now); got != want {
					t.Fatalf("seed %d, step %d: %d blocks expired, want %d", seed, i, got, want)
				}
			case p < 98:
				real.ClearRank(src)
				model.drop(src)
			default:
				real.RemoveRank(src)
				model.drop(src)
			}
			prompt := u.prompts[rng.IntN(len(u.prompts))]
			for w := range kv.WorkerID(u.workers) {
				for r := range uint32(u.ranks) {
					src := kv.Source{Worker: w + 1, Rank: r}
					if got, want := depthOn(real, src, prompt), model.depth(src, prompt); got != want {
						t.Fatalf("seed %d, step %d: %v has %d of %s, want %d", seed, i, src, got, blocksString(prompt), want)
					}
				}
			}
			s := real.Stats()
			if s.Blocks != len(model.blocks) || s.Orphans != 0 || s.Expired != model.expired || s.Pruned != model.pruned {
				t.Fatalf("seed %d, step %d: %d blocks, %d orphans, %d expired, %d pruned; want %d, 0, %d, %d", seed, i,
					s.Blocks, s.Orphans, s.Expired, s.Pruned, len(model.blocks), model.expired, model.pruned)
			}
		}
		if seed == n-1 && model.pruned == 0 {
			t.Error("nothing was ever pruned")
		}
	}
}

// TestBoundOfEvents: what engines tell is bounded too, by the time it was told, and a
// block counts as told when one behind it is.
func TestBoundOfEvents(t *testing.T) {
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	src := rank0(workerA)
	tell := func(x *kvindex.Index, seconds int, ev kv.Event) {
		x.Tell(at(seconds))
		x.Apply(&kv.Batch{Source: src, Events: []kv.Event{ev}})
	}
	t.Run("the oldest go", func(t *testing.T) {
		x := kvindex.New(kvindex.Config{MaxBlocks: 10, PruneRatio: 0.5})
		for i := range 17 {
			tell(x, i, kv.Event{Kind: kv.Stored, Blocks: chain(kv.LocalHash(1000 + i))})
		}
		for i := range 17 {
			want := 0
			if i >= 12 { // twice 11 blocks became 5
				want = 1
			}
			if got := depthOn(x, src, chain(kv.LocalHash(1000+i))); got != want {
				t.Errorf("block %d is held %d times, want %d", i, got, want)
			}
		}
		if s := x.Stats(); s.Pruned != 12 || s.Blocks != 5 {
			t.Errorf("%d pruned and %d blocks left, want 12 and 5", s.Pruned, s.Blocks)
		}
	})
	t.Run("a beginning stays with its end", func(t *testing.T) {
		x := kvindex.New(kvindex.Config{TTL: 10 * time.Second})
		long := chain(1, 2, 3)
		tell(x, 0, kv.Event{Kind: kv.Stored, Blocks: long[:2]})
		tell(x, 8, kv.Event{Kind: kv.Stored, HasParent: true, Parent: long[1].ID, Blocks: long[2:]})
		if n := x.Expire(at(12)); n != 0 {
			t.Errorf("%d blocks expired before the last behind them", n)
		}
		if n := x.Expire(at(18)); n != 3 {
			t.Errorf("%d blocks expired with the last, want 3", n)
		}
	})
	t.Run("names count", func(t *testing.T) {
		x := kvindex.New(kvindex.Config{MaxBlocks: 100})
		for i := range 1000 {
			tell(x, i, kv.Event{Kind: kv.Stored, Blocks: []kv.Block{{ID: kv.BlockID(i + 1), Tokens: kv.LocalHash(i % 7)}}})
		}
		if s := x.Stats(); s.Blocks > 100 {
			t.Errorf("%d names of 7 blocks, want 100 at most", s.Blocks)
		}
	})
	t.Run("so does a dump", func(t *testing.T) {
		from := kvindex.New(kvindex.Config{})
		long := chain(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
		from.Apply(&kv.Batch{Source: src, Events: []kv.Event{{Kind: kv.Stored, Blocks: long}}})
		d, _ := from.Dump(src)
		x := kvindex.New(kvindex.Config{MaxBlocks: 5, PruneRatio: 0.8})
		err := x.Restore(src, 0, 0, func(yield func(*kv.Event, error) bool) {
			for ev := range d.All() {
				if !yield(ev, nil) {
					return
				}
			}
		})
		if got := depthOn(x, src, long); err != nil || got != 4 {
			t.Errorf("%d blocks after a dump of 10, and %v; want 4", got, err)
		}
	})
}
