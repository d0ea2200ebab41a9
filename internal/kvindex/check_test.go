package kvindex

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/stator-ai/stator/internal/kv"
)

// Planes returns how many parts an index has that a lookup asks one after another.
func (x *Index) Planes() int { return len(*x.planes.Load()) }

// Check goes through all that an index is made of and returns what does not fit
// together, what is kept without a use, and what is counted wrongly. Nobody else may
// use the index meanwhile.
func (x *Index) Check() error {
	c := checker{lanes: map[pageKey]int{}, far: map[farKey]uint64{}}
	placed := 0
	var all []error
	for src, r := range x.ranks {
		placed += r.placed
		if r.source != src || r.index != x {
			all = append(all, fmt.Errorf("rank %v calls itself %v", src, r.source))
		}
		if err := c.rank(r); err != nil {
			all = append(all, fmt.Errorf("rank %v: %w", src, err))
		}
	}
	if n := x.placed.Load(); n != int64(placed) {
		all = append(all, fmt.Errorf("%d blocks on devices, counted as %d", placed, n))
	}
	if x.cfg.MaxBlocks > 0 && placed > x.cfg.MaxBlocks {
		all = append(all, fmt.Errorf("%d blocks on devices, of at most %d", placed, x.cfg.MaxBlocks))
	}
	if len(all) > 0 {
		return errors.Join(all...)
	}
	for i, p := range *x.planes.Load() {
		if err := c.plane(p); err != nil {
			all = append(all, fmt.Errorf("plane %d: %w", i, err))
		}
		if err := x.checkMembers(p); err != nil {
			all = append(all, fmt.Errorf("plane %d: %w", i, err))
		}
	}
	if n := len(*x.planes.Load()); n > 1 && (*x.planes.Load())[n-1].taken == 0 {
		all = append(all, fmt.Errorf("the last of %d planes has no rank", n))
	}
	if len(c.lanes) > 0 || len(c.far) > 0 {
		all = append(all, fmt.Errorf("%d runs on pages that are not there, %d far blocks that are not there", len(c.lanes), len(c.far)))
	}
	return errors.Join(all...)
}

// checker notes what ranks say they hold, until it is found in a plane.
type checker struct {
	lanes map[pageKey]int   // blocks
	far   map[farKey]uint64 // slots
}

type pageKey struct {
	plane *plane
	page  pageRef
	slot  int
}

type farKey struct {
	plane *plane
	tier  kv.Tier
	seq   kv.BlockID
}

// checkMembers compares who is seen in a plane with who is there.
func (x *Index) checkMembers(p *plane) error {
	ms := p.members.Load()
	var mask uint64
	for _, m := range ms.list {
		mask |= 1 << m.slot
		if r := x.ranks[m.source]; r == nil || r.plane != p || r.slot != m.slot {
			return fmt.Errorf("slot %d is seen as %v", m.slot, m.source)
		}
	}
	if !slices.IsSortedFunc(ms.list, func(a, b member) int { return compare(a.source, b.source) }) {
		return fmt.Errorf("members are not sorted: %v", ms.list)
	}
	if mask != ms.mask || mask != p.taken {
		return fmt.Errorf("slots %x are seen as %x and taken as %x", mask, ms.mask, p.taken)
	}
	for slot := range p.versions {
		if p.versions[slot].Load()%2 != 0 {
			return fmt.Errorf("slot %d is losing blocks for good", slot)
		}
	}
	return nil
}

func (c *checker) rank(r *rank) error {
	if r.gone || len(r.leaving) > 0 {
		return fmt.Errorf("gone is %v, %d runs are leaving", r.gone, len(r.leaving))
	}
	placed, err := c.runs(r)
	if err != nil {
		return err
	}
	if placed == 0 && (cap(r.runs) > 0 || r.ids.bytes() > 0 || r.names.bytes() > 0 || r.onPage != nil) {
		return errors.New("memory for blocks on the device, and no block")
	}
	names, err := checkNames(r)
	if err != nil {
		return err
	}
	if placed += names; placed != r.placed || r.counts != (counts{placed: placed}) {
		return fmt.Errorf("%d blocks on the device, counted as %d; still to be told %+v", placed, r.placed, r.counts)
	}
	for t := range r.far {
		f := &r.far[t]
		held := map[kv.BlockID]uint32{}
		for _, l := range f.links {
			held[l.seq]++
			c.far[farKey{r.plane, kv.Tier(t), l.seq}] |= 1 << r.slot
		}
		for seq, n := range f.held {
			if held[seq] != n {
				return fmt.Errorf("tier %d: %x has %d names, counted as %d", t, seq, held[seq], n)
			}
		}
		if len(held) != len(f.held) {
			return fmt.Errorf("tier %d: %d contents, counted as %d", t, len(held), len(f.held))
		}
	}
	if err := checkOrphans(r); err != nil {
		return err
	}
	for t := range r.copies {
		for id, n := range r.copies[t] {
			if n == 0 || !r.knows(kv.Tier(t), id) {
				return fmt.Errorf("%d more copies of block %d in tier %d, which is not there", n, id, t)
			}
		}
	}
	return nil
}

// runs goes through the tree of a rank's runs and returns how many blocks they have.
func (c *checker) runs(r *rank) (blocks int, err error) {
	used := make([]bool, len(r.runs))
	words := make([]bool, r.ids.words)
	if len(r.ids.owner)*granule != len(words) || len(words) > len(r.ids.chunks)*arenaWords {
		return 0, fmt.Errorf("%d words of names in %d chunks have %d owners", len(words), len(r.ids.chunks), len(r.ids.owner))
	}
	siblings := func(first, parent uint32) (all []uint32, err error) {
		prev := none
		for at := first; at != none; at = r.runs[at].next {
			if used[at] || r.runs[at].prev != prev || r.runs[at].parent != parent {
				return nil, fmt.Errorf("run %d is in the tree twice, or its links are wrong", at)
			}
			used[at] = true
			all = append(all, at)
			prev = at
		}
		return all, nil
	}
	tree := 0
	todo, err := siblings(r.roots, none)
	for len(todo) > 0 && err == nil {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if err := c.run(r, at, words); err != nil {
			return 0, fmt.Errorf("run %d: %w", at, err)
		}
		blocks += int(r.runs[at].n)
		tree++
		var below []uint32
		below, err = siblings(r.runs[at].child, at)
		todo = append(todo, below...)
	}
	if err != nil {
		return 0, err
	}
	for at := r.spare; at != none; at = r.runs[at].next {
		if used[at] || r.runs[at].n != 0 {
			return 0, fmt.Errorf("run %d is spare and in use, or spare twice", at)
		}
		used[at] = true
	}
	if at := slices.Index(used, false); at >= 0 {
		return 0, fmt.Errorf("run %d is lost", at)
	}
	if len(r.onPage) > tree {
		return 0, fmt.Errorf("%d runs, listed by page are %d", tree, len(r.onPage))
	}
	for size := range pieceSizes {
		for word := r.ids.free[size]; word != 0; word = uint32(*r.ids.at(word - 1)) {
			if !mark(words[word-1:][:pieceSizes[size]]) {
				return 0, fmt.Errorf("the piece of names at %d is free and in use, or free twice", word-1)
			}
		}
	}
	if at := slices.Index(words, false); at >= 0 {
		return 0, fmt.Errorf("the piece of names at %d is lost", at)
	}
	return blocks, nil
}

// mark sets all, and reports whether none was.
func mark(all []bool) bool {
	for i := range all {
		if all[i] {
			return false
		}
		all[i] = true
	}
	return true
}

// run looks at one run, and notes the words of names that it has.
func (c *checker) run(r *rank, at uint32, words []bool) error {
	u := &r.runs[at]
	if u.n == 0 || int(u.n) > pieceSizes[u.size] || u.dead != 0 {
		return fmt.Errorf("%d blocks in a piece for %d, leaving %x", u.n, pieceSizes[u.size], u.dead)
	}
	if !mark(words[u.ids:][:pieceSizes[u.size]]) {
		return errors.New("another run has the same piece of names")
	}
	for g := u.ids / granule; g < (u.ids+uint32(pieceSizes[u.size]))/granule; g++ {
		if r.ids.owner[g] != at {
			return fmt.Errorf("its names belong to run %d", r.ids.owner[g])
		}
	}
	key := pageKey{r.plane, u.page, r.slot}
	if c.lanes[key] != 0 {
		return errors.New("the rank has another run on the page")
	}
	c.lanes[key] = int(u.n)
	s := &r.plane.shards[u.page.shard()]
	pg := s.page(u.page.index())
	local := s.locals(pg)[0]
	if on, ok := r.onPage[u.page]; r.onPage != nil && (!ok || on != at) {
		return fmt.Errorf("its page leads to run %d, %v", on, ok)
	}
	if u.parent == none {
		if u.pos != 0 || uint64(pg.head) != local || pg.before != 0 {
			return fmt.Errorf("the first block of a prompt is at %d and has hash %x, content %x, and %x before it", u.pos, pg.head, local, pg.before)
		}
	} else {
		over := &r.runs[u.parent]
		if u.off == 0 || u.off > over.n || u.off > over.reach || u.pos != over.pos+uint32(u.off) {
			return fmt.Errorf("behind %d of %d blocks, at %d after %d", u.off, over.n, u.pos, over.pos)
		}
		locals, hashes := r.plane.contents(over.page, int(over.n), nil, []kv.BlockID{})
		if pg.before != hashes[u.off-1] || pg.head != kv.Chain(pg.before, kv.LocalHash(local)) {
			return fmt.Errorf("its page begins with %x behind %x, and the block before is %x", pg.head, pg.before, hashes[u.off-1])
		}
		if int(u.off) < len(locals) && uint64(locals[u.off]) == local {
			return errors.New("its first block has a place in the page before, too")
		}
	}
	for o, id := range r.piece(u)[:u.n] {
		p := place{at, uint8(o)}
		own, ok := r.own(kv.BlockID(id))
		if ps := r.places[kv.BlockID(id)]; !ok || own != p && len(ps) == 0 || len(ps) > 0 && !slices.Contains(ps, p) {
			return fmt.Errorf("name %d of block %d leads to %v, %v and to %v", id, o, own, ok, r.places[kv.BlockID(id)])
		}
	}
	return nil
}

// checkNames looks at the names of a rank's blocks on the device and returns how many
// there are beyond one for each block.
func checkNames(r *rank) (more int, err error) {
	there := func(p place) bool { return int(p.run) < len(r.runs) && p.off < r.runs[p.run].n }
	for p, ids := range r.aliases {
		more += len(ids)
		if !there(p) || len(ids) == 0 {
			return 0, fmt.Errorf("%d more names of a block at %v that is not there", len(ids), p)
		}
		for i, id := range ids {
			if id == r.id(p) || slices.Contains(ids[:i], id) || !slices.Contains(r.places[id], p) {
				return 0, fmt.Errorf("name %d of the block at %v, which is called %d and %v, leads to %v", id, p, r.id(p), ids, r.places[id])
			}
		}
	}
	for id, ps := range r.places {
		for i, p := range ps {
			if !there(p) || slices.Contains(ps[:i], p) || r.id(p) != id && !slices.Contains(r.aliases[p], id) {
				return 0, fmt.Errorf("name %d leads to %v, of which %v does not have it", id, ps, p)
			}
		}
		if len(ps) == 0 {
			return 0, fmt.Errorf("name %d leads nowhere", id)
		}
	}
	used := 0
	for _, slot := range r.names.slots {
		if slot != 0 {
			used++
		}
	}
	n := len(r.names.slots)
	if used != r.names.used || 4*used > 3*n {
		return 0, fmt.Errorf("%d of %d slots for names are in use, counted as %d", used, n, r.names.used)
	}
	if n > 16*minNames && n > 16*r.placed {
		return 0, fmt.Errorf("%d slots for %d names", n, r.placed)
	}
	return more, nil
}

// plane looks at what all ranks of a plane have in common.
func (c *checker) plane(p *plane) error {
	var far [kv.NumTiers]int64
	for i := range p.shards {
		if err := c.shard(p, uint32(i), &far); err != nil {
			return fmt.Errorf("shard %d: %w", i, err)
		}
	}
	for t, n := range far {
		if got := p.far[t].Load(); got != n {
			return fmt.Errorf("%d far blocks of tier %d, counted as %d", n, t, got)
		}
	}
	return nil
}

func (c *checker) shard(p *plane, number uint32, far *[kv.NumTiers]int64) error {
	s := &p.shards[number]
	unused := make([]bool, s.fresh)
	for _, at := range s.free {
		if !mark(unused[at:][:1]) {
			return fmt.Errorf("page %d is free twice", at)
		}
	}
	var pieces [len(pieceSizes)][]bool
	for size := range s.local {
		sl := &s.local[size]
		pieces[size] = make([]bool, sl.fresh)
		for at := sl.free; at != 0; at = uint32(sl.at(at - 1)[0]) {
			if !mark(pieces[size][at-1:][:1]) {
				return fmt.Errorf("piece %d of size %d is free twice", at-1, size)
			}
		}
	}
	pages := 0
	for at := range s.fresh {
		if unused[at] {
			continue
		}
		pages++
		pg := s.page(at)
		if !mark(pieces[pg.size][pg.locals:][:1]) {
			return fmt.Errorf("the piece of page %d is in use or free", at)
		}
		if err := c.page(p, number, at); err != nil {
			return fmt.Errorf("page %d: %w", at, err)
		}
	}
	for size := range pieces {
		if at := slices.Index(pieces[size], false); at >= 0 {
			return fmt.Errorf("piece %d of size %d is lost", at, size)
		}
	}
	if n := len(s.heads.slots); s.heads.count != pages || n > 4*minTable && n > 5*pages {
		return fmt.Errorf("%d pages, counted as %d in %d slots", pages, s.heads.count, n)
	}
	if pages == 0 && (s.pages != nil || s.heads.slots != nil || s.free != nil || s.local.bytes() > 0) {
		return errors.New("memory for pages, and no page")
	}
	for t := range s.lower {
		if err := c.farTable(p, kv.Tier(t), &s.lower[t], &far[t]); err != nil {
			return fmt.Errorf("tier %d: %w", t, err)
		}
	}
	return nil
}

// page looks at a page that is in use.
func (c *checker) page(p *plane, number, at uint32) error {
	s := &p.shards[number]
	pg := s.page(at)
	if pg.unheld() || pg.n == 0 || int(pg.n) > pieceSizes[pg.size] {
		return fmt.Errorf("%d blocks in a piece for %d, held as %x", pg.n, pieceSizes[pg.size], pg.lanes)
	}
	for slot := range planeRanks {
		key := pageKey{p, pageRef(number<<pageIndexes | at), slot}
		if pg.lane(slot) != c.lanes[key] || pg.lane(slot) > int(pg.n) {
			return fmt.Errorf("slot %d holds %d of %d blocks, and says %d", slot, pg.lane(slot), pg.n, c.lanes[key])
		}
		delete(c.lanes, key)
	}
	if hashes := s.hashes(nil, pg, int(pg.n)); hashes[len(hashes)-1] != pg.end {
		return fmt.Errorf("ends with %x, and says %x", hashes[len(hashes)-1], pg.end)
	}
	h := mix(uint64(pg.head))
	if got, ok := s.find(tagOf(h), pg.head); !ok || got != at {
		return fmt.Errorf("%x leads to page %d, %v", pg.head, got, ok)
	}
	if _, n := p.at(h); n != number {
		return fmt.Errorf("%x belongs to shard %d", pg.head, n)
	}
	return nil
}

func (c *checker) farTable(p *plane, t kv.Tier, table *farTable, held *int64) error {
	count := 0
	for _, e := range table.entries {
		if e.mask == 0 {
			continue
		}
		count++
		*held += int64(bits.OnesCount64(e.mask))
		key := farKey{p, t, e.seq}
		if c.far[key] != e.mask || table.get(e.seq) != e.mask {
			return fmt.Errorf("%x is held by %x, in the table by %x, and found by %x", e.seq, c.far[key], e.mask, table.get(e.seq))
		}
		delete(c.far, key)
	}
	if n := len(table.entries); count != table.count || n > 4*minTable && n > 5*count {
		return fmt.Errorf("%d entries, counted as %d in %d places", count, table.count, n)
	}
	return nil
}

// checkOrphans looks at the blocks that wait.
func checkOrphans(r *rank) error {
	o := &r.orphans
	count, lost, stretches, names, hashes := 0, 0, 0, 0, 0
	var prev *stretch
	for s := o.oldest; s != nil; prev, s = s, s.next {
		if s.prev != prev || len(s.blocks) == 0 || cap(s.blocks) > 2*stretchBlocks || !s.from.has {
			return fmt.Errorf("a stretch of %d blocks after %+v is linked wrongly", len(s.blocks), s.from)
		}
		count += len(s.blocks)
		stretches++
		first := o.byHash[s.from.seq]
		if s.from.anchored {
			hashes++
		} else {
			names++
			lost += len(s.blocks)
			first = o.byName[tierName{s.tier, s.from.parent}]
		}
		if first == nil || s.before == nil || s.before.after != s || s.after.before != s {
			return fmt.Errorf("a stretch after %+v is not known to wait", s.from)
		}
		for _, b := range s.blocks {
			if !slices.Contains(o.at[tierName{s.tier, b.ID}], s) {
				return fmt.Errorf("block %d waits and is not known to", b.ID)
			}
		}
	}
	if prev != o.newest || count != o.count || lost != o.lost || stretches != o.stretches || count > o.max || o.forgotten != 0 {
		return fmt.Errorf("%d orphans of at most %d in %d stretches, %d lost, counted as %d, %d and %d; still to be told %d",
			count, o.max, stretches, lost, o.count, o.stretches, o.lost, o.forgotten)
	}
	if n := inRings(o.byName, func(k tierName, s *stretch) bool { return k == tierName{s.tier, s.from.parent} && !s.from.anchored }); n != names {
		return fmt.Errorf("%d stretches wait for names, listed are %d", names, n)
	}
	if n := inRings(o.byHash, func(k kv.BlockID, s *stretch) bool { return k == s.from.seq && s.from.anchored }); n != hashes {
		return fmt.Errorf("%d stretches wait for hashes, listed are %d", hashes, n)
	}
	listed := 0
	for k, list := range o.at {
		if listed += len(list); len(list) == 0 {
			return fmt.Errorf("block %d waits nowhere", k.id)
		}
	}
	if listed != count {
		return fmt.Errorf("%d orphans, listed are %d", count, listed)
	}
	return nil
}

// inRings counts the stretches in the rings of a map. One that does not belong to its
// key makes it -1.
func inRings[K comparable](rings map[K]*stretch, belongs func(K, *stretch) bool) int {
	n := 0
	for k, first := range rings {
		for s := first; ; {
			if !belongs(k, s) {
				return -1
			}
			n++
			if s = s.after; s == first {
				break
			}
		}
	}
	return n
}
