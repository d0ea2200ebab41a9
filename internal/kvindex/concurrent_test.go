package kvindex_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// depths is how much of a prompt a rank holds, by tier.
type depths [kv.NumTiers]uint32

// within reports whether d is nowhere more than o.
func (d depths) within(o depths) bool {
	for t := range d {
		if d[t] > o[t] {
			return false
		}
	}
	return true
}

// life is what a rank goes through, over and over: its last step leaves nothing.
// Step k makes version k+1 of version k.
type life struct {
	src   kv.Source
	steps []step
	truth [][]depths // of each prompt, by the number of steps done

	// A lookup sees a version between done, read before it, and begun, read after.
	begun, done atomic.Int64
}

// newLife works out what a rank holds after each step.
func newLife(src kv.Source, steps []step, prompts [][]kv.Block) *life {
	l := &life{src: src, steps: append(steps, step{do: dropRank, src: src})}
	x := newNaive(false, false)
	for _, s := range l.steps {
		l.truth = append(l.truth, x.depths(src, prompts))
		switch s.do {
		case apply:
			x.apply(&kv.Batch{Source: src, Epoch: s.epoch, Seq: s.seq, Events: s.events})
		case restore:
			x.restore(src, s.epoch, s.seq, s.events)
		case clearRank:
			x.clearRank(src)
		case dropRank:
			x.removeRank(src)
		}
	}
	return l
}

// depths returns how much of each prompt a rank holds.
func (x *naive) depths(src kv.Source, prompts [][]kv.Block) []depths {
	all := make([]depths, len(prompts))
	var space []kvindex.Overlap
	for i, p := range prompts {
		for _, o := range x.match(space[:0], p) {
			if o.Source == src {
				all[i] = o.Depth
			}
		}
	}
	return all
}

// at returns the truth about a prompt at a version.
func (l *life) at(version int64, prompt int) depths {
	return l.truth[version%int64(len(l.truth))][prompt]
}

// may reports whether an answer is the truth of a version of some, or less.
func (l *life) may(got depths, prompt int, from, to int64) bool {
	for v := from; v <= min(to, from+int64(len(l.truth))); v++ {
		if got.within(l.at(v, prompt)) {
			return true
		}
	}
	return false
}

// do does the next step.
func (l *life) do(x *kvindex.Index) error {
	k := l.begun.Add(1)
	defer l.done.Store(k)
	switch s := &l.steps[(k-1)%int64(len(l.steps))]; s.do {
	case apply:
		return x.Apply(&kv.Batch{Source: l.src, Epoch: s.epoch, Seq: s.seq, Events: s.events})
	case restore:
		return x.Restore(l.src, s.epoch, s.seq, pour(s.events, nil))
	case clearRank:
		x.ClearRank(l.src)
	case dropRank:
		x.RemoveRank(l.src)
	}
	return nil
}

// watch runs lives, each writer a few of them one after another, while readers look
// prompts up, until enough steps were done, and checks every answer.
func watch(t *testing.T, x *kvindex.Index, prompts [][]kv.Block, writers [][]*life, enough int64) {
	t.Helper()
	byRank := map[kv.Source]*life{}
	var lives []*life
	for _, ls := range writers {
		for _, l := range ls {
			byRank[l.src] = l
			lives = append(lives, l)
		}
	}
	var (
		stop             atomic.Bool
		steps            atomic.Int64
		writing, reading sync.WaitGroup
		exact, less      atomic.Int64
		busy, quiet      atomic.Int64
		mu               sync.Mutex
		faults           []string
	)
	fault := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		if len(faults) < 5 {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
		stop.Store(true)
	}
	for _, ls := range writers {
		writing.Go(func() {
			for i := 0; !stop.Load(); i++ {
				l := ls[i%len(ls)]
				for range l.steps {
					if err := l.do(x); err != nil {
						fault("rank %v: %v", l.src, err)
					}
					if steps.Add(1) >= enough {
						stop.Store(true)
					}
					if stop.Load() {
						return
					}
					runtime.Gosched()
				}
			}
		})
	}
	const readers = 3
	for reader := range readers {
		reading.Go(func() {
			from, to := make([]int64, len(lives)), make([]int64, len(lives))
			var got []kvindex.Overlap
			for n := 0; !stop.Load(); n++ {
				i := (n*7 + reader) % len(prompts)
				for k, l := range lives {
					from[k] = l.done.Load()
				}
				got = x.Match(got[:0], prompts[i])
				for k, l := range lives {
					to[k] = l.begun.Load()
				}
				if !slices.IsSortedFunc(got, func(a, b kvindex.Overlap) int { return bySource(a.Source, b.Source) }) {
					fault("answer is not sorted: %v", got)
				}
				still := slices.Equal(from, to)
				for k, l := range lives {
					at := slices.IndexFunc(got, func(o kvindex.Overlap) bool { return o.Source == l.src })
					var d depths
					if at >= 0 {
						d = got[at].Depth
						got[at].Source = kv.Source{} // named once
					}
					switch {
					case !l.may(d, i, from[k], to[k]):
						fault("rank %v holds %v of prompt %d, where versions %d to %d held %v", l.src, d, i, from[k], to[k], l.history(i, from[k], to[k]))
					case still && d != l.at(from[k], i):
						fault("rank %v holds %v of prompt %d, want %v; nothing happened meanwhile", l.src, d, i, l.at(from[k], i))
					case from[k] == to[k] && d == l.at(from[k], i):
						exact.Add(1)
					case from[k] == to[k]:
						less.Add(1)
					}
				}
				if still {
					quiet.Add(1)
				} else {
					busy.Add(1)
				}
				runtime.Gosched()
				for _, o := range got {
					if o.Source.Worker != 0 {
						fault("answer has rank %v twice or from nowhere", o.Source)
					}
				}
			}
		})
	}
	writing.Wait()
	reading.Wait()
	for _, f := range faults {
		t.Error(f)
	}
	for i, p := range prompts {
		want := []kvindex.Overlap{}
		for _, l := range lives {
			if d := l.at(l.done.Load(), i); d != (depths{}) {
				want = append(want, kvindex.Overlap{Source: l.src, Depth: d})
			}
		}
		slices.SortFunc(want, func(a, b kvindex.Overlap) int { return bySource(a.Source, b.Source) })
		if got := x.Match(nil, p); !slices.Equal(got, want) && !t.Failed() {
			t.Errorf("when all is done, of prompt %d\n got %v\nwant %v", i, got, want)
		}
	}
	if err := x.Check(); err != nil {
		t.Error(err)
	}
	t.Logf("%d steps, %d lookups among them, %d in silence; of ranks that did not change %d answers exact, %d less",
		steps.Load(), busy.Load(), quiet.Load(), exact.Load(), less.Load())
	if less.Load() > exact.Load() {
		t.Errorf("%d answers were less than the truth about ranks that did not change, %d exact", less.Load(), exact.Load())
	}
}

// history returns the truths of versions.
func (l *life) history(prompt int, from, to int64) []depths {
	var all []depths
	for v := from; v <= min(to, from+9); v++ {
		all = append(all, l.at(v, prompt))
	}
	return all
}

// TestConcurrent lets many ranks come, change and go under lookups.
func TestConcurrent(t *testing.T) {
	for _, tc := range []struct {
		shape
		writers, lives int
		enough         int64
	}{
		{shape{name: "few ranks", nodes: 40, locals: 9, long: 80, run: 12, tiers: 1, mess: 10, steps: 60}, 3, 2, 60_000},
		{shape{name: "tiers", nodes: 30, locals: 9, long: 85, run: 12, tiers: 3, mess: 10, steps: 60}, 4, 2, 60_000},
		{shape{name: "more than a plane", nodes: 40, locals: 9, long: 80, run: 12, tiers: 2, mess: 10, steps: 30}, 75, 2, 60_000},
		{shape{name: "long chains", nodes: 500, locals: 1 << 40, long: 99, run: 200, tiers: 2, mess: 5, steps: 40}, 4, 2, 6_000},
		{shape{name: "short lives", nodes: 12, locals: 9, long: 60, run: 12, tiers: 2, mess: 0, steps: 2}, 6, 3, 60_000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if raceEnabled {
				tc.enough /= 10
			}
			u := newUniverse(tc.shape, 7)
			var writers [][]*life
			for w := range tc.writers {
				var ls []*life
				for k := range tc.lives {
					src := kv.Source{Worker: kv.WorkerID(1 + w), Rank: uint32(k)}
					ls = append(ls, newLife(src, u.lifeSteps(src), u.prompts))
				}
				writers = append(writers, ls)
			}
			watch(t, kvindex.New(tc.config()), u.prompts, writers, tc.enough)
		})
	}
}

// lifeSteps makes up the life of a rank, one event at a time, so that everything on the
// way from a version to the next is in one of them.
func (u *universe) lifeSteps(src kv.Source) []step {
	x := newNaive(false, false)
	var steps []step
	for range u.steps {
		s := step{src: src}
		switch p := u.rng.IntN(100); {
		case p < 4:
			s.do = clearRank
			x.clearRank(src)
		case p < 10:
			s.do = restore
			s.events = u.history(x, src)
			x.restore(src, 0, 0, s.events)
		default:
			s.do = apply
			s.events = []kv.Event{u.event(x, src)}
			x.apply(&kv.Batch{Source: src, Events: s.events})
		}
		steps = append(steps, s)
	}
	return steps
}

// TestTiersCross lets two tiers of a rank hold parts of a prompt that never make up a
// whole: whoever reads the one early and the other late sees one.
func TestTiersCross(t *testing.T) {
	const part = 100
	blocks := chain(to(3 * part)...)
	one := func(kind kv.Kind, tier kv.Tier, from, to int) kv.Event {
		ev := kv.Event{Kind: kind, Tier: tier, Blocks: blocks[from:to]}
		if kind == kv.Stored && from > 0 {
			ev.Parent, ev.HasParent = blocks[from-1].ID, true
			ev.ParentSeq, ev.HasParentSeq = blocks[from-1].ID, tier != kv.Device
		}
		return ev
	}
	for _, tc := range []struct {
		name  string
		first []kv.Event
		turns [][]kv.Event
	}{
		{"device and host", []kv.Event{one(kv.Stored, kv.Device, 0, 2*part)}, [][]kv.Event{
			{one(kv.Removed, kv.Device, part, 2*part)},
			{one(kv.Stored, kv.Host, 2*part, 3*part)},
			{one(kv.Removed, kv.Host, 2*part, 3*part)},
			{one(kv.Stored, kv.Device, part, 2*part)},
		}},
		{"host and disk", []kv.Event{one(kv.Stored, kv.Device, 0, part), one(kv.Stored, kv.Host, part, 2*part)}, [][]kv.Event{
			// One block at the beginning of what is read of the host is enough.
			{one(kv.Removed, kv.Host, part, part+1), one(kv.Stored, kv.Disk, 2*part, 3*part)},
			{one(kv.Removed, kv.Disk, 2*part, 3*part), one(kv.Stored, kv.Host, part, part+1)},
		}},
		// The rank begins anew, in the same slot, and loses nothing on the way.
		{"device, and host after a clear", nil, [][]kv.Event{
			{{Kind: kv.Cleared}, one(kv.Stored, kv.Device, 0, 2*part)},
			{{Kind: kv.Cleared}, one(kv.Stored, kv.Host, 2*part, 3*part)},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			enough := int64(12_000)
			if raceEnabled {
				enough /= 10
			}
			prompts := [][]kv.Block{blocks}
			var writers [][]*life
			for w := range 3 {
				src := rank0(kv.WorkerID(1 + w))
				steps := []step{{do: apply, src: src, events: tc.first}}
				for range 10 {
					for _, events := range tc.turns {
						steps = append(steps, step{do: apply, src: src, events: events})
					}
				}
				l := newLife(src, steps, prompts)
				for v := range l.truth {
					if l.truth[v][0][kv.External] > 2*part {
						t.Fatalf("version %d holds %v", v, l.truth[v][0])
					}
				}
				writers = append(writers, []*life{l})
			}
			watch(t, kvindex.New(kvindex.Config{}), prompts, writers, enough)
		})
	}
}

// TestConcurrentCalls lets everything run against everything. It is for the race
// detector, and for what must hold when all is over.
func TestConcurrentCalls(t *testing.T) {
	x := kvindex.New(kvindex.Config{TTL: time.Minute, MaxBlocks: 400, MaxOrphans: 50})
	u := newUniverse(shape{nodes: 40, locals: 9, long: 80, run: 12, tiers: 3, mess: 30, steps: 150}, 3)
	start := time.Unix(1_700_000_000, 0)
	sources := make([]kv.Source, 8)
	lives := make([][]step, len(sources))
	for i := range sources {
		sources[i] = kv.Source{Worker: kv.WorkerID(1 + i/2), Rank: uint32(i % 2)}
		lives[i] = u.lifeSteps(sources[i])
	}
	var all sync.WaitGroup
	for i, src := range sources {
		all.Go(func() {
			l := life{src: src, steps: lives[i]}
			for k := range lives[i] {
				l.do(x)
				x.Route(start.Add(time.Duration(k)*time.Second), src, u.prompts[k%len(u.prompts)])
			}
		})
		all.Go(func() {
			for k := range 100 {
				x.Match(nil, u.prompts[k%len(u.prompts)])
				switch (k + i) % 8 {
				case 0:
					x.RemoveWorker(sources[(i+k)%len(sources)].Worker)
				case 1:
					x.Stats()
				case 2:
					x.Expire(start.Add(time.Duration(k) * time.Second))
				case 3:
					x.Rank(src)
				case 4:
					if d, ok := x.Dump(src); ok {
						x.Restore(kv.Source{Worker: 100, Rank: uint32(i)}, d.Epoch, d.Seq, pour(dumped(d), nil))
					}
				case 5:
					x.RemoveRank(src)
				case 6:
					x.ClearRank(src)
				case 7:
					x.Ranks()
				}
			}
		})
	}
	all.Wait()
	if err := x.Check(); err != nil {
		t.Error(err)
	}
	for _, src := range x.Ranks() {
		x.RemoveRank(src)
	}
	if err := x.Check(); err != nil {
		t.Error(err)
	}
	if s := x.Stats(); s.Ranks != 0 || s.Blocks != 0 || s.Orphans != 0 {
		t.Errorf("%d ranks, %d blocks, %d orphans left", s.Ranks, s.Blocks, s.Orphans)
	}
	for _, p := range u.prompts {
		if got := x.Match(nil, p); len(got) > 0 {
			t.Errorf("left: %v", got)
		}
	}
}
