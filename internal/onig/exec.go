package onig

import (
	"math"
	"unicode/utf8"
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
