package onig

import (
	"math"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/ucd"
)

// frame is a choice to come back to: an instruction, a position, and how many of the
// loops around, from the outermost, have taken something in their current round. A
// loop over a class has two frames: its first position, and with a complemented
// instruction the last one still to be tried.
type frame struct {
	pc       int32
	progress int32
	pos      int
}

// allProgressed is the progress after taking something.
const allProgressed = math.MaxInt32

// step is a memo point that the current attempt has passed, at a position or, if it
// is a loop over a class, at all between two.
type step struct {
	bit    int32
	lo, hi int
}

// run runs a scope from a position and returns where it ends. It reads up to right.
//
// A memo point that is reached a second time fails at once: it failed before, or
// would still be running, and then a loop would have to have come round without
// taking anything, which opCheck prevents. For look-aheads, where some of the points
// did not fail but lead to success, and for atomic groups, where some lead out of the
// group for good, the points passed are kept in a trail and marked so when that
// happens.
func (m *Matcher) run(sc *scope, mem *memo, pos, right int) (end int, ok bool) {
	base, trail := len(m.stack), len(m.trail)
	end, ok = m.exec(sc, mem, pos, right)
	m.stack = m.stack[:base]
	m.trail = m.trail[:trail]
	return end, ok
}

func (m *Matcher) exec(sc *scope, mem *memo, pos, right int) (end int, ok bool) {
	text, re := m.text, m.re
	base, trail := len(m.stack), len(m.trail)
	insts := sc.insts
	var pc, progress int32
	for {
		in := &insts[pc]
		switch in.op {
		case opMatch:
			if sc.ahead {
				m.markTrail(mem, trail, 1)
			}
			return pos, true

		case opByte:
			if pos < right && text[pos] == in.lo {
				pos++
				progress = allProgressed
				pc++
				continue
			}

		case opString:
			s := re.strings[in.x]
			if right-pos >= len(s) && string(text[pos:pos+len(s)]) == s {
				pos += len(s)
				progress = allProgressed
				pc++
				continue
			}

		case opClass:
			if n := re.classes[in.x].match(text[pos:right]); n > 0 {
				pos += n
				progress = allProgressed
				pc++
				continue
			}

		case opJump:
			pc = in.x
			continue

		case opSplit:
			x := in.fx == 0 || pos < right && re.bytes[in.fx].has(text[pos])
			y := in.fy == 0 || pos < right && re.bytes[in.fy].has(text[pos])
			if x {
				if y {
					m.push(frame{in.y, progress, pos})
				}
				pc = in.x
				continue
			}
			if y {
				pc = in.y
				continue
			}

		case opMemo:
			switch m.visit(sc, mem, in.memo, pos, progress, trail) {
			case fresh:
				pc++
				continue
			case succeeds:
				return 0, true
			}

		case opStar:
			if in.sure {
				if last := re.classes[in.x].run(text[:right], pos); last > pos {
					pos = last
					progress = allProgressed
				}
				pc++
				continue
			}
			last, v := m.star(sc, mem, in, pos, right, progress, trail)
			switch v {
			case fresh:
				if last > pos && !in.final {
					_, n := utf8.DecodeLastRune(text[pos:last])
					m.push(frame{0, progress, pos})
					m.push(frame{^pc, 0, last - n})
				}
				if last > pos {
					progress = allProgressed
				}
				pos = last
				pc++
				continue
			case succeeds:
				return 0, true
			}

		case opLazy:
			switch m.visit(sc, mem, in.memo, pos, progress, trail) {
			case fresh:
				m.push(frame{^pc, progress, pos})
				pc++
				continue
			case succeeds:
				return 0, true
			}

		case opEnter:
			progress = min(progress, int32(in.depth)-1)
			pc++
			continue

		case opCheck:
			if progress < int32(in.depth) {
				pc = in.x
			} else {
				pc++
			}
			continue

		case opAtomic:
			m.marks[in.x] = mark{len(m.stack), len(m.trail)}
			pc++
			continue

		case opCommit:
			mk := m.marks[in.x]
			m.stack = m.stack[:mk.stack]
			m.markTrail(mem, mk.trail, int(in.y))
			if in.y == 1 {
				m.trail = m.trail[:mk.trail]
			}
			pc++
			continue

		case opAssert:
			if m.assert(in.anchor, pos) {
				pc++
				continue
			}

		case opAhead:
			if m.ahead(in.x, pos) != in.not {
				pc++
				continue
			}

		case opBehind:
			if m.behind(in.x, pos) != in.not {
				pc++
				continue
			}

		case opPeek:
			if (re.classes[in.x].match(text[pos:]) > 0) != in.not {
				pc++
				continue
			}

		case opPrev:
			found := false
			if pos > 0 {
				_, n := utf8.DecodeLastRune(text[:pos])
				found = re.classes[in.x].match(text[pos-n:pos]) > 0
			}
			if found != in.not {
				pc++
				continue
			}

		case opReach:
			if pos == right {
				pc++
				continue
			}
		}

		// Failed: go back to the last choice.
		for {
			top := len(m.stack) - 1
			if top < base {
				return 0, false
			}
			f := &m.stack[top]
			m.rewind(top)
			if f.pc >= 0 {
				pc, progress, pos = f.pc, f.progress, f.pos
				m.stack = m.stack[:top]
				break
			}
			pc = ^f.pc
			in := &insts[pc]
			pos = f.pos
			if in.op == opLazy {
				m.stack = m.stack[:top]
				n := re.classes[in.x].match(text[pos:right])
				if n == 0 {
					continue
				}
				pos += n
				progress = allProgressed
				break // to the same instruction
			}
			first := m.stack[top-1]
			if pos > first.pos {
				_, n := utf8.DecodeLastRune(text[first.pos:pos])
				f.pos = pos - n
				progress = allProgressed
			} else {
				progress = first.progress
				m.stack = m.stack[:top-1]
			}
			if sc.stride(&sc.memos[in.memo]) > 1 {
				m.shorten(pos)
			}
			pc++
			break
		}
	}
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

// ahead tells whether the text from pos on matches a scope.
func (m *Matcher) ahead(x int32, pos int) bool {
	sc, mem := m.re.scopes[x], &m.memos[x]
	if sc.bits > 0 && mem.set(pos, 0) {
		return mem.has(pos, 1)
	}
	_, ok := m.run(sc, mem, pos, len(m.text))
	if ok && sc.bits > 0 {
		mem.set(pos, 1)
	}
	return ok
}

// behind tells whether some text that ends at pos matches a scope.
func (m *Matcher) behind(x int32, pos int) bool {
	sc, mem := m.re.scopes[x], &m.memos[x]
	if sc.bits > 0 {
		mem.reset(max(0, m.back(pos, sc.max)))
	}
	start := m.back(pos, sc.min)
	for n := sc.min; start >= 0 && n <= sc.max; n++ {
		if n > sc.min {
			if start = m.back(start, 1); start < 0 {
				break
			}
		}
		if _, ok := m.run(sc, mem, start, pos); ok {
			return true
		}
	}
	return false
}

// back returns the position n characters before pos, -1 when there is none.
func (m *Matcher) back(pos, n int) int {
	for ; n > 0; n-- {
		if pos == 0 {
			return -1
		}
		_, size := utf8.DecodeLastRune(m.text[:pos])
		pos -= size
	}
	return pos
}

// assert tells whether a condition holds at pos.
func (m *Matcher) assert(a anchor, pos int) bool {
	text := m.text
	switch a {
	case beginText:
		return pos == 0
	case endText:
		return pos == len(text)
	case endTextOrLine:
		return pos == len(text) || pos == len(text)-1 && text[pos] == '\n'
	case beginLine:
		return pos == 0 || pos < len(text) && text[pos-1] == '\n'
	case endLine:
		return pos == len(text) || text[pos] == '\n'
	}
	ascii := a >= wordBoundaryASCII
	before, after := false, false
	if pos > 0 {
		r, _ := utf8.DecodeLastRune(text[:pos])
		before = isWord(r, ascii)
	}
	if pos < len(text) {
		r, _ := utf8.DecodeRune(text[pos:])
		after = isWord(r, ascii)
	}
	boundary := before != after
	return boundary == (a == wordBoundary || a == wordBoundaryASCII)
}

func isWord(r rune, ascii bool) bool {
	return ucd.Of(r)&ucd.Word != 0 && (!ascii || r < utf8.RuneSelf)
}
