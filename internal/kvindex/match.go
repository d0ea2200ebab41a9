package kvindex

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/stator-ai/stator/internal/kv"
)

// Match appends to dst how much of a prompt each rank holds, ranks that hold
// nothing of it left out, sorted by worker and rank. It allocates nothing when dst
// has room.
func (x *Index) Match(dst []Overlap, prompt []kv.Block) []Overlap {
	if x == nil || len(prompt) == 0 {
		return dst
	}
	begin := len(dst)
	planes := *x.planes.Load()
	for _, p := range planes {
		dst = p.match(dst, prompt)
	}
	if len(planes) > 1 {
		dst = dst[:begin+once(dst[begin:])]
	}
	return dst
}

// once sorts overlaps and leaves one of each rank. A rank that moves from one plane
// to another may have been seen in both: each time as it was.
func once(all []Overlap) int {
	slices.SortFunc(all, func(a, b Overlap) int {
		if c := compare(a.Source, b.Source); c != 0 {
			return c
		}
		return cmp.Compare(b.Depth[kv.External], a.Depth[kv.External])
	})
	return len(slices.CompactFunc(all, func(a, b Overlap) bool { return a.Source == b.Source }))
}

// depths is a number of blocks for each slot of a plane.
type depths [planeRanks]uint32

func (p *plane) match(dst []Overlap, prompt []kv.Block) []Overlap {
	seen := p.members.Load()
	if seen.mask == 0 {
		return dst
	}
	far := p.far[kv.Host].Load()|p.far[kv.Disk].Load()|p.far[kv.External].Load() != 0
	var versions [planeRanks]uint64
	if far {
		for _, m := range seen.list {
			versions[m.slot] = p.versions[m.slot].Load()
		}
	}
	var device depths
	p.walk(&device, seen.mask, prompt)
	var beyond [kv.NumTiers]depths
	if far {
		beyond[kv.Device] = device
		for t := kv.Host; t < kv.NumTiers; t++ {
			beyond[t] = beyond[t-1]
			if p.far[t].Load() != 0 {
				p.walkFar(t, &beyond[t], seen, prompt)
			}
		}
	}
	// What was read counts for a rank that was there all the time.
	now := p.members.Load()
	for _, m := range seen.list {
		o := Overlap{Source: m.source}
		for t := range o.Depth {
			o.Depth[t] = device[m.slot]
		}
		if far && beyond[kv.External][m.slot] > device[m.slot] {
			// Tiers were read one after another: together they are true only if the
			// rank lost nothing meanwhile.
			if v := versions[m.slot]; v%2 == 0 && v == p.versions[m.slot].Load() {
				for t := range o.Depth {
					o.Depth[t] = beyond[t][m.slot]
				}
			}
		}
		if o.Depth[kv.External] == 0 || now != seen && !now.has(m) {
			continue
		}
		dst = append(dst, o)
	}
	return dst
}

func (ms *members) has(m member) bool {
	i, ok := slices.BinarySearchFunc(ms.list, m, func(a, b member) int { return compare(a.source, b.source) })
	return ok && ms.list[i] == m
}

// walk sets how many blocks of a prompt each of some slots holds. A slot that is
// seen to hold a block holds all blocks before it at that moment, so that it does
// not matter what has become of them since they were read.
func (p *plane) walk(out *depths, active uint64, prompt []kv.Block) {
	depth := 0
	before := kv.BlockID(0)
	for depth < len(prompt) {
		rest := prompt[depth:]
		h := mix(uint64(rest[0].ID))
		s, _ := p.at(h)
		s.mu.RLock()
		at, ok := s.find(tagOf(h), rest[0].ID)
		if !ok {
			s.mu.RUnlock()
			break
		}
		pg := s.page(at)
		n := s.agree(pg, before, rest)
		if n == 0 { // two contents with one hash
			s.mu.RUnlock()
			break
		}
		on := active & pg.holders(n)
		for off := active &^ on; off != 0; off &= off - 1 {
			slot := bits.TrailingZeros64(off)
			out[slot] = uint32(depth + pg.lane(slot))
		}
		s.mu.RUnlock()
		active = on
		if active == 0 {
			return
		}
		depth += n
		before = prompt[depth-1].ID
	}
	for ; active != 0; active &= active - 1 {
		out[bits.TrailingZeros64(active)] = uint32(depth)
	}
}

// agree returns how many blocks of a page are those that a prompt goes on with after
// before. The first sequence hashes are equal; if the last ones are, and the page
// follows the same block, so is all between them.
func (s *shard) agree(pg *page, before kv.BlockID, rest []kv.Block) int {
	n := int(pg.n)
	if n <= len(rest) && rest[n-1].ID == pg.end && pg.before == before {
		return n
	}
	locals := s.locals(pg)[:min(n, len(rest))]
	n = 0
	for n < len(locals) && locals[n] == uint64(rest[n].Tokens) {
		n++
	}
	return n
}

// walkFar goes on from the depth of each slot through the blocks that follow it in
// a tier.
func (p *plane) walkFar(t kv.Tier, out *depths, ms *members, prompt []kv.Block) {
	var order [planeRanks]uint8 // slots by depth
	n := 0
	for _, m := range ms.list {
		i := n
		for ; i > 0 && out[order[i-1]] > out[m.slot]; i-- {
			order[i] = order[i-1]
		}
		order[i] = uint8(m.slot)
		n++
	}
	var active uint64
	next := 0
	for depth := 0; depth < len(prompt); depth++ {
		if active == 0 {
			if next == n {
				return
			}
			depth = int(out[order[next]])
			if depth >= len(prompt) {
				return
			}
		}
		for ; next < n && int(out[order[next]]) == depth; next++ {
			active |= 1 << order[next]
		}
		active &= p.farHolders(t, prompt[depth].ID)
		for on := active; on != 0; on &= on - 1 {
			out[bits.TrailingZeros64(on)] = uint32(depth + 1)
		}
	}
}

func (p *plane) farHolders(t kv.Tier, seq kv.BlockID) uint64 {
	s, _ := p.at(mix(uint64(seq)))
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.lower[t].get(seq)
}
