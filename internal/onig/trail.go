package onig

// step is a memo point that the current attempt has passed, at a position or, if it
// is a loop over a class, at all between two.
type step struct {
	bit    int32
	lo, hi int
}

// push adds a choice.
func (m *Matcher) push(f frame) {
	if m.re.trails {
		m.trailAt = append(m.trailAt[:len(m.stack)], len(m.trail))
	}
	m.stack = append(m.stack, f)
}

// rewind takes the trail back to where it was at a choice.
func (m *Matcher) rewind(choice int) {
	if m.re.trails {
		m.trail = m.trail[:m.trailAt[choice]]
	}
}

// shorten takes back the last step of the trail, that of a loop over a class, to a
// position.
func (m *Matcher) shorten(pos int) {
	last := len(m.trail) - 1
	if m.trail[last].lo > pos {
		m.trail = m.trail[:last]
	} else {
		m.trail[last].hi = pos
	}
}

// verdict is what is known of a memo point.
type verdict uint8

const (
	fresh    verdict = iota // nothing: go on
	failed                  // it fails
	leaves                  // it leaves an atomic group and fails; the choices within are dropped
	succeeds                // the look-ahead around it succeeds
)

// visit notes that a memo point is reached.
func (m *Matcher) visit(sc *scope, mem *memo, point int32, pos int, progress int32, trail int) verdict {
	p := &sc.memos[point]
	stride := sc.stride(p)
	bit := int(p.bit) + int(min(progress, p.depth))*stride
	if !mem.set(pos, bit) {
		if stride > 1 {
			m.trail = append(m.trail, step{int32(bit), pos, pos})
		}
		return fresh
	}
	if stride == 1 {
		return failed
	}
	return m.known(sc, mem, p, pos, bit, trail)
}

// known returns the verdict on a memo point with more than one bit that was reached
// before.
func (m *Matcher) known(sc *scope, mem *memo, p *memoPoint, pos, bit, trail int) verdict {
	level := 1
	if sc.ahead {
		if mem.has(pos, bit+1) {
			m.markTrail(mem, trail, 1)
			return succeeds
		}
		level = 2
	}
	for i, id := range p.atomics {
		if mem.has(pos, bit+level+i) {
			mk := m.marks[id]
			m.markTrail(mem, mk.trail, level+i)
			m.stack = m.stack[:mk.stack]
			return leaves
		}
	}
	return failed
}

// markTrail sets a bit of all memo points that were passed since from.
func (m *Matcher) markTrail(mem *memo, from, level int) {
	for _, s := range m.trail[from:] {
		for pos := s.lo; pos <= s.hi; pos++ {
			mem.set(pos, int(s.bit)+level)
		}
	}
}

// star takes as many runes of a class as there are, up to where it is known to fail
// from there on, and returns where it stopped.
func (m *Matcher) star(sc *scope, mem *memo, in *inst, pos, right int, progress int32, trail int) (last int, v verdict) {
	if v := m.visit(sc, mem, in.memo, pos, progress, trail); v != fresh {
		return 0, v
	}
	c, p := m.re.classes[in.x], &sc.memos[in.memo]
	stride := sc.stride(p)
	bit := int(p.bit) + int(p.depth)*stride // of everything but the first position
	for {
		n := c.match(m.text[pos:right])
		if n == 0 {
			return pos, fresh
		}
		if mem.set(pos+n, bit) {
			if stride > 1 {
				if v := m.known(sc, mem, p, pos+n, bit, trail); v != failed {
					return 0, v
				}
			}
			if in.final {
				return 0, failed // there is no stopping before
			}
			return pos, fresh
		}
		pos += n
		if stride == 1 {
			continue
		}
		if t := &m.trail[len(m.trail)-1]; int(t.bit) == bit {
			t.hi = pos
		} else {
			m.trail = append(m.trail, step{int32(bit), pos, pos})
		}
	}
}
