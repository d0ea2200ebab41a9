package kvindex_test

import (
	"cmp"
	"slices"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// naive is an index that is plainly right. It keeps every link that a rank told of
// (this block follows that one) and works out from them what is to be seen. It is
// what the index is held to: the same calls, the same answers.
//
// Some events have no single right outcome, because they depend on an order that
// nobody promised or because the engine gave one name to two blocks. Then naive does
// one thing and says that it is in doubt.
type naive struct {
	clearWorker bool
	// vague says that a name does not stand for one content, or a content has more
	// than one name.
	vague bool

	ranks map[kv.Source]*naiveRank
	naiveCounts
}

type naiveCounts struct {
	applied    [kv.Cleared + 1][kvindex.NumStatus]uint64
	duplicates uint64
}

// naiveRank is what one rank told.
type naiveRank struct {
	tiers      [kv.NumTiers]naiveTier
	epoch, seq uint64
	known      bool

	event   int  // counts events
	adopted int  // links that got their place after they were stored
	blocks  int  // links
	hidden  int  // links that are not seen
	doubt   bool // the events so far could have ended otherwise
	// unsure has names with several places on the device of which nobody knows to which
	// the block came last: that matters once a block follows the name. It says after
	// which event that was so.
	unsure map[kv.BlockID]int
	due    bool // a link waits for one that came
	// awaits has the names and, for links whose place is known, the sequence hashes
	// of the blocks that hidden links follow.
	awaits struct{ names, hashes map[kv.BlockID]bool }
	// news are the links that the present event made visible without storing them.
	news []*naiveLink
}

// naiveTier is what a rank told of a tier.
type naiveTier struct {
	links []*naiveLink // as they were stored; may have some that are gone
	byID  map[kv.BlockID][]*naiveLink
	extra map[kv.BlockID]int  // copies of a block beyond the first
	seen  map[kv.BlockID]bool // sequence hashes that a lookup finds
	stale bool                // seen has to be made again
}

// naiveLink says that a block follows another one.
type naiveLink struct {
	id        kv.BlockID
	local     kv.LocalHash
	parent    kv.BlockID
	hasParent bool
	// after is the sequence hash of the block before it, once that is known. It
	// stays, whatever becomes of the name of that block.
	after  kv.BlockID
	fixed  bool
	seq    kv.BlockID // its own, once fixed or without parent
	seen   bool
	was    bool // seen, before the present event
	gone   bool
	event  int // the last that made it visible without storing it
	stored int // the event that stored it
}

func newNaive(clearWorker, vague bool) *naive {
	return &naive{clearWorker: clearWorker, vague: vague, ranks: map[kv.Source]*naiveRank{}}
}

func (x *naive) rank(src kv.Source) *naiveRank {
	r := x.ranks[src]
	if r == nil {
		r = &naiveRank{}
		r.clear()
		x.ranks[src] = r
	}
	return r
}

func (r *naiveRank) clear() {
	for t := range r.tiers {
		r.tiers[t] = naiveTier{
			byID: map[kv.BlockID][]*naiveLink{}, extra: map[kv.BlockID]int{}, seen: map[kv.BlockID]bool{},
		}
	}
	r.blocks, r.hidden = 0, 0
	r.due = false
	r.unsure = map[kv.BlockID]int{}
	r.awaits.names, r.awaits.hashes = map[kv.BlockID]bool{}, map[kv.BlockID]bool{}
}

// apply takes a batch in and reports whether the rank is in doubt afterwards.
func (x *naive) apply(b *kv.Batch) (doubt bool) {
	r := x.rank(b.Source)
	for i := range b.Events {
		ev := &b.Events[i]
		st := kvindex.OK
		switch ev.Kind {
		case kv.Cleared:
			for src, o := range x.ranks {
				if src == b.Source || x.clearWorker && src.Worker == b.Source.Worker {
					o.clear()
				}
			}
		case kv.Stored:
			st = x.store(r, ev)
		case kv.Removed:
			st = r.remove(ev)
		default:
			continue
		}
		x.applied[ev.Kind][st]++
	}
	r.epoch, r.seq, r.known = b.Epoch, b.Seq, true
	return r.doubt
}

func (x *naive) route(src kv.Source, prompt []kv.Block) (doubt bool) {
	r := x.rank(src)
	known := x.duplicates
	x.store(r, &kv.Event{Kind: kv.Stored, Blocks: prompt})
	x.duplicates = known
	return r.doubt
}

func (x *naive) removeRank(src kv.Source) bool {
	_, ok := x.ranks[src]
	delete(x.ranks, src)
	return ok
}

func (x *naive) removeWorker(w kv.WorkerID) int {
	n := 0
	for src := range x.ranks {
		if src.Worker == w {
			delete(x.ranks, src)
			n++
		}
	}
	return n
}

func (x *naive) clearRank(src kv.Source) {
	if r := x.ranks[src]; r != nil {
		r.clear()
		r.epoch, r.seq, r.known = 0, 0, false
	}
}

// restore replaces a rank by what events store.
func (x *naive) restore(src kv.Source, epoch, seq uint64, events []kv.Event) (doubt bool) {
	r := &naiveRank{epoch: epoch, seq: seq, known: true}
	r.clear()
	for i := range events {
		switch ev := &events[i]; ev.Kind {
		case kv.Stored:
			x.store(r, ev)
		case kv.Removed:
			r.remove(ev)
		case kv.Cleared:
			r.clear()
		}
	}
	x.ranks[src] = r
	return r.doubt
}

func (x *naive) store(r *naiveRank, ev *kv.Event) kvindex.Status {
	r.event++
	names := make(map[kv.BlockID]bool, len(ev.Blocks)+1)
	if ev.HasParent && !ev.HasParentSeq {
		names[ev.Parent] = true
	}
	for _, b := range ev.Blocks {
		if names[b.ID] {
			return kvindex.Invalid
		}
		names[b.ID] = true
	}
	if ev.Bare {
		return x.storeBare(r, ev)
	}
	st := kvindex.OK
	parent, has, above := ev.Parent, ev.HasParent, true
	after, fixed := ev.ParentSeq, ev.HasParent && ev.HasParentSeq
	for i, b := range ev.Blocks {
		l := &naiveLink{id: b.ID, local: b.Tokens, parent: parent, hasParent: has}
		if fixed {
			l.fix(after)
			if i == 0 && ev.Tier == kv.Device && r.strange(l) {
				r.doubt = true
			}
		}
		x.put(r, ev.Tier, l, ev.Counted)
		if i == 0 && !l.seen {
			st = kvindex.ParentNotFound
		}
		if l.seen && !above {
			r.doubt = true // it follows a block that waits, and one of the same name that does not
		}
		parent, has, above, after = b.ID, true, l.seen, l.seq
	}
	r.settleDue()
	return st
}

// storeBare stores copies of blocks that another tier has, each on its own.
func (x *naive) storeBare(r *naiveRank, ev *kv.Event) kvindex.Status {
	st := kvindex.OK
	for _, b := range ev.Blocks {
		var of *naiveLink
		near := kv.Tier(0)
		for ; near < kv.NumTiers; near++ {
			if of = r.last(near, b.ID); of != nil {
				break
			}
		}
		if of == nil {
			st = kvindex.BlockNotFound
			continue
		}
		l := &naiveLink{id: b.ID, local: of.local, parent: of.parent, hasParent: of.hasParent}
		if l.hasParent {
			l.fix(of.after)
			if ev.Tier == kv.Device && near != kv.Device && (r.strange(l) || x.vague) {
				r.doubt = true
			}
		}
		x.put(r, ev.Tier, l, ev.Counted)
		r.settleDue()
	}
	return st
}

// fix gives a link its place.
func (l *naiveLink) fix(after kv.BlockID) {
	l.after, l.fixed, l.seq = after, true, kv.Chain(after, l.local)
}

// strange reports whether the block that a link follows is seen on the device, but
// not under the name that the link has for it.
func (r *naiveRank) strange(l *naiveLink) bool {
	dev := &r.tiers[kv.Device]
	return dev.look()[l.after] &&
		!slices.ContainsFunc(dev.byID[l.parent], func(p *naiveLink) bool { return p.seen && p.seq == l.after })
}

// last returns the link of a block that was stored last among those seen.
func (r *naiveRank) last(t kv.Tier, id kv.BlockID) *naiveLink {
	var last *naiveLink
	places := 0
	for _, l := range r.tiers[t].byID[id] {
		if l.seen {
			last = l
			places++
		}
	}
	if places > 1 && t == kv.Device && last.stored <= r.unsure[id] {
		r.doubt = true
	}
	return last
}

// resolve gives a link its place, if the block before it has one, and reports
// whether it is to be seen there.
func (r *naiveRank) resolve(t kv.Tier, l *naiveLink) bool {
	if !l.hasParent {
		l.seq = kv.BlockID(l.local)
		return true
	}
	if l.fixed {
		return t != kv.Device || r.tiers[t].look()[l.after]
	}
	p := r.last(t, l.parent)
	if t != kv.Device {
		for near := kv.Tier(0); near < kv.NumTiers && p == nil; near++ {
			p = r.last(near, l.parent)
		}
	}
	if p == nil {
		return false
	}
	l.fix(p.seq)
	return true
}

// put stores a block. It takes the place of links of the same block that lie at the
// same place or wait for one, and beyond the device also of one that lies elsewhere.
func (x *naive) put(r *naiveRank, t kv.Tier, l *naiveLink, counted bool) {
	tier := &r.tiers[t]
	l.stored = r.event
	l.seen = r.resolve(t, l)
	old := tier.byID[l.id]
	if len(old) > 0 {
		x.duplicates++
		if counted {
			tier.extra[l.id]++
		}
	}
	keep := make([]*naiveLink, 0, len(old)+1)
	for _, o := range old {
		switch {
		case !o.seen:
			o.gone = true
			r.blocks, r.hidden = r.blocks-1, r.hidden-1
		case l.seen && (o.seq == l.seq || t != kv.Device):
			o.gone = true
			r.blocks--
		default:
			keep = append(keep, o)
			if o.event == r.event {
				r.doubt = true // had it not been adopted before this block came, it would go
			}
		}
	}
	tier.byID[l.id] = append(keep, l)
	tier.links = append(tier.links, l)
	r.blocks++
	switch {
	case !l.seen && l.fixed:
		r.hidden++
		r.awaits.hashes[l.after] = true
	case !l.seen:
		r.hidden++
		r.awaits.names[l.parent] = true
	default:
		if t == kv.Device {
			tier.look()[l.seq] = true // what it took the place of was there, or not seen
		} else {
			tier.stale = true
		}
		r.due = r.due || r.awaits.names[l.id] || r.awaits.hashes[l.seq]
	}
}

// settleDue settles if a link waits for one that came.
func (r *naiveRank) settleDue() {
	if r.due {
		r.settle()
	}
}

func (r *naiveRank) remove(ev *kv.Event) kvindex.Status {
	r.event++
	st := kvindex.OK
	tier := &r.tiers[ev.Tier]
	for _, b := range ev.Blocks {
		if ev.Counted && tier.extra[b.ID] > 0 {
			tier.extra[b.ID]--
			continue
		}
		old := tier.byID[b.ID]
		if len(old) == 0 {
			st = kvindex.BlockNotFound
		}
		for _, o := range old {
			o.gone = true
		}
		delete(tier.byID, b.ID)
		delete(tier.extra, b.ID)
		if ev.Tier == kv.Device {
			delete(r.unsure, b.ID)
		}
	}
	r.settle()
	return st
}

// settle works out what is seen. A block of the device is seen while the blocks
// before it are; one of another tier stays where it was found to belong. Blocks that
// never had a place are adopted by the block they name once it is seen.
func (r *naiveRank) settle() {
	r.due = false
	for t := range r.tiers {
		r.tiers[t].compact()
	}
	r.look()
	r.news = r.news[:0]
	for {
		adopted := len(r.news)
		for t := range r.tiers {
			for _, l := range r.tiers[t].links {
				if !l.seen && !l.fixed && r.resolve(kv.Tier(t), l) {
					r.news = append(r.news, l)
				}
			}
		}
		if len(r.news) == adopted {
			break
		}
		for _, l := range r.news[adopted:] {
			l.seen = true
		}
		r.look()
	}
	for _, l := range r.news {
		r.doubt = r.doubt || r.torn(l)
	}
	// Links that were hidden and now lie with another one of the block.
	for t := range r.tiers {
		for _, l := range r.tiers[t].links {
			if l.seen && !l.was && !l.gone {
				l.event = r.event
				r.adopted++
				r.join(kv.Tier(t), l)
			}
		}
	}
	r.blocks, r.hidden = 0, 0
	clear(r.awaits.names)
	clear(r.awaits.hashes)
	for t := range r.tiers {
		r.tiers[t].compact()
		r.blocks += len(r.tiers[t].links)
		for _, l := range r.tiers[t].links {
			switch {
			case l.seen:
			case l.fixed:
				r.hidden++
				r.awaits.hashes[l.after] = true
			default:
				r.hidden++
				r.awaits.names[l.parent] = true
			}
		}
	}
}

// compact lets go of links that are gone, and notes what was seen of the others.
func (t *naiveTier) compact() {
	t.stale = true
	t.links = slices.DeleteFunc(t.links, func(l *naiveLink) bool {
		l.was = l.seen
		return l.gone
	})
}

// look works out what is seen of the device's links whose place is known.
func (r *naiveRank) look() {
	dev := &r.tiers[kv.Device]
	clear(dev.seen)
	dev.stale = false
	var wait []*naiveLink
	for _, l := range dev.links {
		l.seen = !l.hasParent || l.fixed && dev.seen[l.after]
		if l.seen {
			dev.seen[l.seq] = true
		} else if l.fixed {
			wait = append(wait, l)
		}
	}
	for n := -1; n != len(wait); {
		n = len(wait)
		wait = slices.DeleteFunc(wait, func(l *naiveLink) bool {
			if l.seen = dev.seen[l.after]; l.seen {
				dev.seen[l.seq] = true
			}
			return l.seen
		})
	}
}

// torn reports whether a link that was just adopted by a name could as well lie
// elsewhere.
func (r *naiveRank) torn(l *naiveLink) bool {
	for t := range r.tiers {
		for _, p := range r.tiers[t].byID[l.parent] {
			if p.seen && p.seq != l.after {
				return true
			}
		}
	}
	return false
}

// join makes one of links of a block at the same place, and beyond the device of
// those at any.
func (r *naiveRank) join(t kv.Tier, l *naiveLink) {
	tier := &r.tiers[t]
	for _, o := range tier.byID[l.id] {
		switch {
		case o == l || !o.seen || o.gone:
		case o.seq == l.seq || t != kv.Device:
			o.gone = true
		default:
			r.unsure[l.id] = r.event // which one was stored last?
		}
	}
	tier.byID[l.id] = slices.DeleteFunc(tier.byID[l.id], func(o *naiveLink) bool { return o.gone })
}

// match is Index.Match.
func (x *naive) match(dst []kvindex.Overlap, prompt []kv.Block) []kvindex.Overlap {
	from := len(dst)
	for src, r := range x.ranks {
		o := kvindex.Overlap{Source: src}
		depth := 0
		for t := range r.tiers {
			seen := r.tiers[t].look()
			for depth < len(prompt) && seen[prompt[depth].ID] {
				depth++
			}
			o.Depth[t] = uint32(depth)
		}
		if depth > 0 {
			dst = append(dst, o)
		}
	}
	slices.SortFunc(dst[from:], func(a, b kvindex.Overlap) int { return bySource(a.Source, b.Source) })
	return dst
}

func (t *naiveTier) look() map[kv.BlockID]bool {
	if t.stale {
		t.stale = false
		clear(t.seen)
		for _, l := range t.links {
			if l.seen && !l.gone {
				t.seen[l.seq] = true
			}
		}
	}
	return t.seen
}

// sources returns the ranks that are known, sorted.
func (x *naive) sources() []kv.Source {
	all := make([]kv.Source, 0, len(x.ranks))
	for src := range x.ranks {
		all = append(all, src)
	}
	slices.SortFunc(all, bySource)
	return all
}

func bySource(a, b kv.Source) int {
	return cmp.Or(cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.Rank, b.Rank))
}

// stats is Index.Rank.
func (x *naive) stats(src kv.Source) (kvindex.RankStats, bool) {
	r := x.ranks[src]
	if r == nil {
		return kvindex.RankStats{}, false
	}
	lost := 0
	for t := range r.tiers {
		for _, l := range r.tiers[t].links {
			if !l.gone && !l.seen && !l.fixed {
				lost++
			}
		}
	}
	return kvindex.RankStats{
		Lost: lost, Source: src, Epoch: r.epoch, Seq: r.seq, Known: r.known, Blocks: r.blocks, Orphans: r.hidden,
	}, true
}

// plain reports whether events can tell all that a rank holds: a name has one place,
// or waits in one place.
func (r *naiveRank) plain() bool {
	for t := range r.tiers {
		for _, links := range r.tiers[t].byID {
			if len(links) > 1 {
				return false
			}
		}
	}
	return true
}
