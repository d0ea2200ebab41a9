package kvindex

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// Route records that a prompt was sent to a rank, which will therefore soon hold
// its blocks. Each is named by its sequence hash. It is how an index without events
// learns.
func (x *Index) Route(now time.Time, src kv.Source, prompt []kv.Block) {
	if x == nil {
		return
	}
	x.Tell(now)
	x.route(src, prompt)
	x.prune()
}

func (x *Index) route(src kv.Source, prompt []kv.Block) {
	r := x.lock(src)
	defer r.mu.Unlock()
	if len(prompt) > 0 {
		r.put(place{run: none}, prompt, routed)
	}
	r.account()
}

// Tell moves the index's idea of the time on, which events are stamped with. An index
// with a TTL or a bound has to be told; Route and Expire tell it, too.
func (x *Index) Tell(now time.Time) {
	if x == nil {
		return
	}
	for t := now.UnixNano(); ; {
		old := x.now.Load()
		if t <= old || x.now.CompareAndSwap(old, t) {
			return
		}
	}
}

// Expire drops what was last routed or stored Config.TTL ago or longer, and returns
// the number of blocks that went.
func (x *Index) Expire(now time.Time) int {
	if x == nil || x.cfg.TTL <= 0 {
		return 0
	}
	x.Tell(now)
	limit := now.Add(-x.cfg.TTL).UnixNano()
	total := 0
	x.visit(func(r *rank) { total += r.expire(limit) })
	x.expired.Add(uint64(total))
	return total
}

// expire drops the blocks last touched at limit or before.
func (r *rank) expire(limit int64) int {
	before := r.blocks()
	r.each(func(p place, touched int64) {
		if touched <= limit {
			r.leaveAll(p)
		}
	})
	r.settle()
	for t := range r.far {
		for id, l := range r.far[t].links {
			if l.touched <= limit {
				r.removeFar(kv.Tier(t), id)
				delete(r.copies[t], id)
			}
		}
	}
	for s := r.orphans.oldest; s != nil; {
		next := s.next
		if s.since <= limit {
			r.orphans.forget(s)
			r.orphans.forgotten -= uint64(len(s.blocks)) // they expire
		}
		s = next
	}
	return before - r.blocks()
}

// each calls do for every block on the device, with the time it was last touched.
func (r *rank) each(do func(place, int64)) {
	for at := range r.runs {
		u := &r.runs[at]
		if u.n == 0 {
			continue
		}
		times := r.times(u)
		for o := range int(u.n) {
			do(place{uint32(at), uint8(o)}, int64(times[o]))
		}
	}
}

// leaveAll lets a block leave under all its names, and returns how many there were.
func (r *rank) leaveAll(p place) int {
	n := 1
	for ; len(r.aliases[p]) > 0; n++ {
		r.forgo(p, r.aliases[p][0])
	}
	r.forgo(p, r.id(p))
	return n
}

// forgo takes a name from a block at a place, and from no other.
func (r *rank) forgo(p place, id kv.BlockID) {
	if ps := r.places[id]; len(ps) > 1 {
		r.places[id] = slices.DeleteFunc(ps, func(o place) bool { return o == p })
	} else {
		delete(r.places, id)
		delete(r.copies[kv.Device], id)
	}
	r.leave(p, id)
}

// candidate is a block that may be pruned.
type candidate struct {
	source kv.Source
	pos    uint32
	id     kv.BlockID
	place  place
	names  int
}

// prune brings the number of blocks down when there are too many: first those that
// would expire first, of these the ones farthest from the beginning of a prompt,
// then those with the larger name, then those of the larger rank.
func (x *Index) prune() {
	if x.cfg.MaxBlocks <= 0 || x.placed.Load() <= int64(x.cfg.MaxBlocks) || !x.pruning.TryLock() {
		return
	}
	defer x.pruning.Unlock()
	before := x.placed.Load()
	var times []int64
	x.visit(func(r *rank) {
		r.each(func(p place, touched int64) {
			for range 1 + len(r.aliases[p]) {
				times = append(times, touched)
			}
		})
	})
	// A little room is made in any case, or else every block that comes would prune.
	left := min(int(math.Floor(float64(x.cfg.MaxBlocks)*x.cfg.PruneRatio)), x.cfg.MaxBlocks-x.cfg.MaxBlocks/100)
	surplus := len(times) - left
	if surplus <= 0 {
		return
	}
	limit := nth(times, surplus-1)
	var ties []candidate
	x.visit(func(r *rank) {
		r.each(func(p place, touched int64) {
			switch {
			case touched < limit:
				surplus -= r.leaveAll(p)
			case touched == limit:
				ties = append(ties, candidate{r.source, r.runs[p.run].pos + uint32(p.off), r.id(p), p, 1 + len(r.aliases[p])})
			}
		})
		r.settle()
	})
	slices.SortFunc(ties, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.pos, a.pos), cmp.Compare(b.id, a.id), compare(b.source, a.source))
	})
	byRank := map[kv.Source][]candidate{}
	for _, c := range ties {
		if surplus <= 0 {
			break
		}
		surplus -= c.names
		byRank[c.source] = append(byRank[c.source], c)
	}
	x.visit(func(r *rank) {
		for _, c := range byRank[r.source] {
			// The block may have moved or gone since it was seen.
			if int(c.place.run) < len(r.runs) && r.named(c.place, c.id) {
				r.leaveAll(c.place)
			}
		}
		r.settle()
	})
	x.pruned.Add(uint64(max(0, before-x.placed.Load())))
}

// nth returns the value that would be at index n if a were sorted. It reorders a.
func nth(a []int64, n int) int64 {
	for len(a) > 1 {
		pivot := a[len(a)/2]
		lo, hi := 0, len(a)-1
		for lo <= hi {
			for a[lo] < pivot {
				lo++
			}
			for a[hi] > pivot {
				hi--
			}
			if lo <= hi {
				a[lo], a[hi] = a[hi], a[lo]
				lo++
				hi--
			}
		}
		switch {
		case n <= hi:
			a = a[:hi+1]
		case n >= lo:
			a, n = a[lo:], n-lo
		default:
			return a[n]
		}
	}
	return a[0]
}
