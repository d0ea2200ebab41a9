package hf

import "slices"

// shortWord is the number of symbols up to which the next merge is found by looking
// at all of them. Few words are longer, and those take a heap.
const shortWord = 64

// run merges the symbols of a piece and appends what is left. A long piece of bytes
// is merged in parts, cut where no token has the two bytes side by side.
func (m *bpe) run(dst []uint32, piece []byte, s *state) []uint32 {
	if len(piece) <= shortWord || !m.complete {
		return m.runPart(dst, piece, s)
	}
	start := 0
	for i := 1; i < len(piece); i++ {
		if !m.beside.has(piece[i-1], piece[i]) {
			dst = m.part(dst, piece, start, i, s)
			start = i
		}
	}
	if start == 0 {
		return m.runPart(dst, piece, s)
	}
	return m.part(dst, piece, start, len(piece), s)
}

// part appends the ids of a part of a piece. It is remembered if the piece is not.
func (m *bpe) part(dst []uint32, piece []byte, i, j int, s *state) []uint32 {
	if j-i > maxWordLen || len(piece) <= maxWordLen {
		return m.runPart(dst, piece[i:j], s)
	}
	dst, ok := s.words.get(dst, piece, i, j, part)
	if ok {
		return dst
	}
	n := len(dst)
	dst = m.runPart(dst, piece[i:j], s)
	s.words.put(piece, i, j, part, dst[n:])
	return dst
}

// bytePairs is a set of pairs of bytes.
type bytePairs [256][4]uint64

func (p *bytePairs) has(a, b byte) bool { return p[a][b>>6]>>(b&63)&1 != 0 }

// addAll adds the neighbours in text.
func (p *bytePairs) addAll(text []byte) {
	for i := 1; i < len(text); i++ {
		b := text[i]
		p[text[i-1]][b>>6] |= 1 << (b & 63)
	}
}

// runPart merges the symbols of a piece as one.
func (m *bpe) runPart(dst []uint32, piece []byte, s *state) []uint32 {
	m.symbols(piece, s)
	switch n := len(s.ids); {
	case n < 2:
		return append(dst, s.ids...)
	case n <= shortWord:
		return m.runShort(dst, piece, s)
	default:
		return m.runLong(dst, piece, s)
	}
}

// runShort scans for the best pair again and again. With its symbols next to each
// other in memory this is quicker for words than anything cleverer.
func (m *bpe) runShort(dst []uint32, piece []byte, s *state) []uint32 {
	var best [shortWord]uint64
	ids, starts := s.ids, s.starts
	n := len(ids)
	concat := m.byID
	for i := range n - 1 {
		if concat {
			best[i] = m.joined(piece[starts[i]:starts[i+2]])
		} else {
			best[i] = m.pairs.get(ids[i], ids[i+1])
		}
	}
	for n > 1 {
		at, low := 0, noMerge
		for i, v := range best[:n-1] {
			if v < low {
				at, low = i, v
			}
		}
		if low == noMerge {
			break
		}
		ids[at] = uint32(low)
		n--
		copy(ids[at+1:n], ids[at+2:])
		copy(best[at:n], best[at+1:])
		if concat {
			copy(starts[at+1:n+1], starts[at+2:])
			if at > 0 {
				best[at-1] = m.joined(piece[starts[at-1]:starts[at+1]])
			}
			if at+1 < n {
				best[at] = m.joined(piece[starts[at]:starts[at+2]])
			}
			continue
		}
		if at > 0 {
			best[at-1] = m.pairs.get(ids[at-1], ids[at])
		}
		if at+1 < n {
			best[at] = m.pairs.get(ids[at], ids[at+1])
		}
	}
	return append(dst, ids[:n]...)
}

// joined returns the rank and the id of the token that a text is, where the
// vocabulary is the list of merges.
func (m *bpe) joined(text []byte) uint64 {
	id := m.vocab.lookup(text)
	if id == none {
		return noMerge
	}
	return uint64(id)<<32 | uint64(id)
}

// link is a symbol in a list that symbols are taken out of.
type link struct {
	prev, next int32 // -1 at the ends
	val        uint64
}

const (
	// sweepShare is the share of symbols that a sweep should merge.
	sweepShare = 16
	// idleSweeps is how many may merge less.
	idleSweeps = 4
)

// sweep merges all places of the best pair in one go, from left to right, as long as
// that shortens the piece a good deal. It is what a run of one character needs, and
// each sweep takes a share off, so that all of them together are linear.
func (m *bpe) sweep(piece []byte, s *state) {
	ids, starts := s.ids, s.starts
	n := len(ids)
	concat := m.byID
	value := func(left, right uint32, start, end int) uint64 {
		if concat {
			return m.joined(piece[starts[start]:starts[end]])
		}
		return m.pairs.get(left, right)
	}
	s.heap = slices.Grow(s.heap[:0], n)[:n]
	vals := s.heap // of each symbol with the next
	for i := range n - 1 {
		vals[i] = value(ids[i], ids[i+1], i, i+2)
	}
	vals[n-1] = noMerge
	for idle := 0; ; {
		best := slices.Min(vals[:n])
		if best == noMerge {
			break
		}
		to, before := 0, n
		for from := 0; from < before; to++ {
			if vals[from] != best {
				ids[to], vals[to] = ids[from], vals[from]
				if concat {
					starts[to] = starts[from]
				}
				from++
				continue
			}
			ids[to], vals[to] = uint32(best), noMerge
			if concat {
				starts[to] = starts[from]
			}
			from += 2
			n--
			next := best
			if to > 0 {
				vals[to-1] = value(ids[to-1], ids[to], to-1, from)
				next = min(next, vals[to-1])
			}
			if from < before {
				vals[to] = value(ids[to], ids[from], to, from+1)
				next = min(next, vals[to])
			}
			if next < best { // the new token has a pair that comes first
				best = noMerge - 1
			}
		}
		if concat {
			starts[n] = starts[before]
		}
		if before-n < before/sweepShare {
			idle++
		}
		if n < 2 || idle > idleSweeps {
			break
		}
	}
	s.ids = ids[:n]
	if concat {
		s.starts = starts[:n+1]
	}
}

// runLong keeps the candidates in a heap: n log n for any text.
func (m *bpe) runLong(dst []uint32, piece []byte, s *state) []uint32 {
	m.sweep(piece, s)
	ids, starts := s.ids, s.starts
	n := len(ids)
	concat := m.byID
	s.links = slices.Grow(s.links[:0], n)[:n]
	links := s.links
	value := func(i int32) uint64 {
		j := links[i].next
		if j < 0 {
			return noMerge
		}
		if !concat {
			return m.pairs.get(ids[i], ids[j])
		}
		end := uint32(len(piece))
		if k := links[j].next; k >= 0 {
			end = starts[k]
		}
		return m.joined(piece[starts[i]:end])
	}
	for i := range links {
		links[i] = link{prev: int32(i) - 1, next: int32(i) + 1}
	}
	links[n-1].next = -1
	h := s.heap[:0]
	for i := range links {
		v := value(int32(i))
		links[i].val = v
		if v != noMerge {
			h = append(h, v&^(1<<32-1)|uint64(i))
		}
	}
	for i := len(h)/2 - 1; i >= 0; i-- {
		down(h, i)
	}
	pop := func() {
		last := len(h) - 1
		h[0] = h[last]
		h = h[:last]
		down(h, 0)
	}
	for len(h) > 0 {
		top := h[0]
		i := int32(uint32(top))
		l := &links[i]
		if l.val == noMerge || l.val>>32 != top>>32 { // merged since, or with another
			pop()
			continue
		}
		ids[i] = uint32(l.val)
		gone := l.next
		links[gone].val = noMerge
		l.next = links[gone].next
		if l.next >= 0 {
			links[l.next].prev = i
		}
		if l.val = value(i); l.val == noMerge {
			pop()
		} else { // takes the place of the one that is done
			h[0] = l.val&^(1<<32-1) | uint64(i)
			down(h, 0)
		}
		if l.prev >= 0 {
			v := value(l.prev)
			links[l.prev].val = v
			if v != noMerge {
				h = append(h, v&^(1<<32-1)|uint64(l.prev))
				up(h)
			}
		}
	}
	s.heap = h
	for i := int32(0); i >= 0; i = links[i].next {
		dst = append(dst, ids[i])
	}
	return dst
}

// up moves the last element of a heap to its place, the smallest being first.
func up(h []uint64) {
	i := len(h) - 1
	for v := h[i]; i > 0; {
		parent := (i - 1) / 2
		if h[parent] <= v {
			break
		}
		h[i], h[parent] = h[parent], v
		i = parent
	}
}

// down moves the i-th element to its place.
func down(h []uint64, i int) {
	if i >= len(h) {
		return
	}
	v := h[i]
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		low := h[child]
		if child+1 < len(h) && h[child+1] < low {
			child++
			low = h[child]
		}
		if v <= low {
			break
		}
		h[i] = low
		i = child
	}
	h[i] = v
}
