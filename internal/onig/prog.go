package onig

import "unicode/utf8"

type op uint8

const (
	opMatch  op = iota
	opFail      //
	opByte      // one byte, lo
	opString    // the bytes of strings[x]
	opClass     // one rune of classes[x]
	opJump      // to x
	opSplit     // to x, and if that fails to y
	opMemo      // fails if it was here before
	opStar      // classes[x] as often as possible, less if that fails
	opLazy      // classes[x] as seldom as possible, more if that fails
	opEnter     // begins a round of a loop that may be empty, at depth
	opCheck     // ends it; to x if it was empty
	opAtomic    // begins atomic group x
	opCommit    // ends atomic group x, at bit y of memo points: its choices are final
	opAssert    // anchor
	opAhead     // the text ahead matches scopes[x], or does not
	opBehind    // the text behind matches scopes[x], or does not
	opPeek      // the next rune is in classes[x], or is not
	opPrev      // the rune before is in classes[x], or is not
	opReach     // only at the position where a look-behind stands
)

// inst is an instruction. What is not said to go elsewhere goes on with the next.
type inst struct {
	op     op
	not    bool   // opAhead, opBehind, opPeek, opPrev
	sure   bool   // opStar: what follows cannot fail, so there is no way back
	final  bool   // opStar: there is no way back (possessive)
	anchor anchor // opAssert
	lo     byte
	depth  int16 // opEnter, opCheck
	x, y   int32
	// fx and fy are the sets of bytes that x and y can begin with, as indices into
	// Regexp.bytes; 0 is any, the end of the text included.
	fx, fy int32
	memo   int32 // opMemo, opStar, opLazy: index into scope.memos
}

// memoPoint is an instruction that remembers where it was reached in vain.
type memoPoint struct {
	bit     int32   // the first of its bits
	depth   int32   // of loops around it whose rounds may be empty
	atomics []int32 // groups around it, outermost first
}

// scope is a program of its own: the pattern, or what a look-around contains.
type scope struct {
	insts    []inst
	memos    []memoPoint
	bits     int  // of memory per position
	ahead    bool // a look-ahead: remembers successes too, and results in bits 0 and 1
	min, max int  // of a look-behind, in characters
}

// byteSet is a set of bytes.
type byteSet [4]uint64

func (b *byteSet) add(c byte)      { b[c>>6] |= 1 << (c & 63) }
func (b *byteSet) has(c byte) bool { return b[c>>6]>>(c&63)&1 != 0 }

// class is a set made for matching.
type class struct {
	ascii [2]uint64
	rest  set // from 0x80 on
}

func newClass(s set) *class {
	c := new(class)
	for r := range rune(utf8.RuneSelf) {
		if s.has(r) {
			c.ascii[r>>6] |= 1 << (r & 63)
		}
	}
	c.rest = s.and(set{{utf8.RuneSelf, utf8.MaxRune}})
	return c
}

// has tells whether r, not ASCII, is in the class.
func (c *class) has(r rune) bool {
	lo, hi := 0, len(c.rest)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if c.rest[mid].hi < r {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo < len(c.rest) && c.rest[lo].lo <= r
}

// match returns the length of the rune at the beginning of text if it is in the
// class, else 0. A byte that is not UTF-8 counts as U+FFFD.
func (c *class) match(text []byte) int {
	if len(text) == 0 {
		return 0
	}
	if b := text[0]; b < utf8.RuneSelf {
		return int(c.ascii[b>>6] >> (b & 63) & 1)
	}
	r, n := utf8.DecodeRune(text)
	if !c.has(r) {
		return 0
	}
	return n
}

// run returns the end of the runes of the class that text has from pos on.
func (c *class) run(text []byte, pos int) int {
	for pos < len(text) {
		b := text[pos]
		if b < utf8.RuneSelf {
			if c.ascii[b>>6]>>(b&63)&1 == 0 {
				break
			}
			pos++
			continue
		}
		r, n := utf8.DecodeRune(text[pos:])
		if !c.has(r) {
			break
		}
		pos += n
	}
	return pos
}

// first adds the bytes that runes of the class begin with.
func (c *class) first(b *byteSet) {
	b[0] |= c.ascii[0]
	b[1] |= c.ascii[1]
	if len(c.rest) > 0 {
		b[2], b[3] = ^uint64(0), ^uint64(0)
	}
}

// finish makes what is known only of the whole program: where nothing can fail any
// more, and what alternatives begin with.
func (re *Regexp) finish(sc *scope) {
	sure := newSureness(sc)
	for pc := range sc.insts {
		in := &sc.insts[pc]
		next := int32(pc + 1)
		switch in.op {
		case opMemo:
			if sure.at(next) {
				*in = inst{op: opJump, x: next}
			}
		case opStar:
			in.sure = sure.at(next)
		case opSplit:
			if sure.at(in.x) {
				*in = inst{op: opJump, x: in.x}
			}
		}
	}
	for pc := range sc.insts {
		if in := &sc.insts[pc]; in.op == opSplit {
			in.fx = re.firstOf(sc, in.x)
			in.fy = re.firstOf(sc, in.y)
		}
	}
	sc.layout()
}

// layout gives bits to the memo points that are still used.
func (sc *scope) layout() {
	sc.bits = 0
	used := false
	if sc.ahead {
		sc.bits = 2
	}
	for _, in := range sc.insts {
		switch in.op {
		case opStar:
			if in.sure {
				continue
			}
		case opMemo, opLazy:
		default:
			continue
		}
		used = true
		m := &sc.memos[in.memo]
		m.bit = int32(sc.bits)
		sc.bits = min(sc.bits+int(m.depth+1)*sc.stride(m), maxBits+1)
	}
	if !used {
		sc.bits = 0
	}
}

// stride returns how many bits a memo point has for each depth of progress: was
// here; with that, the look-ahead succeeds; with that, the atomic group ends and
// what follows fails, for each group.
func (sc *scope) stride(m *memoPoint) int {
	n := 1 + len(m.atomics)
	if sc.ahead {
		n++
	}
	return n
}

// sureness finds the instructions from which the program cannot fail.
type sureness struct {
	insts []inst
	known []int8 // 0 unknown, 1 yes, -1 no or under way
}

func newSureness(sc *scope) *sureness {
	s := &sureness{sc.insts, make([]int8, len(sc.insts))}
	// From the back, so that recursion stays shallow.
	for pc := len(sc.insts) - 1; pc >= 0; pc-- {
		s.at(int32(pc))
	}
	return s
}

func (s *sureness) at(pc int32) bool {
	if s.known[pc] == 0 {
		s.known[pc] = -1
		if s.find(pc) {
			s.known[pc] = 1
		}
	}
	return s.known[pc] > 0
}

func (s *sureness) find(pc int32) bool {
	switch in := &s.insts[pc]; in.op {
	case opMatch:
		return true
	case opJump:
		return s.at(in.x)
	case opSplit:
		return s.at(in.x) || s.at(in.y)
	case opMemo, opStar, opLazy, opEnter, opAtomic, opCommit:
		return s.at(pc + 1)
	case opCheck:
		return s.at(in.x) && s.at(pc+1)
	}
	return false
}

// firstOf returns an index into re.bytes: the set of bytes that what matches from pc
// on can begin with. It gives up, with 0, where that is not soon clear.
func (re *Regexp) firstOf(sc *scope, pc int32) int32 {
	const effort = 64
	var b byteSet
	seen := make(map[int32]bool)
	todo := []int32{pc}
	for len(todo) > 0 {
		pc := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[pc] {
			continue
		}
		if seen[pc] = true; len(seen) > effort {
			return 0
		}
		switch in := &sc.insts[pc]; in.op {
		case opMatch, opReach:
			return 0
		case opCommit:
			// To fail behind it is not the same as to fail before.
			return 0
		case opFail:
		case opByte:
			b.add(in.lo)
		case opString:
			b.add(re.strings[in.x][0])
		case opClass:
			re.classes[in.x].first(&b)
		case opStar, opLazy:
			re.classes[in.x].first(&b)
			todo = append(todo, pc+1)
		case opJump:
			todo = append(todo, in.x)
		case opSplit:
			todo = append(todo, in.x, in.y)
		case opCheck:
			todo = append(todo, in.x, pc+1)
		default:
			todo = append(todo, pc+1)
		}
	}
	re.bytes = append(re.bytes, b)
	return int32(len(re.bytes) - 1)
}
