package onig

import (
	"slices"
	"unicode/utf8"
)

// maxSize bounds a compiled pattern: its instructions, and the nodes they were made
// of, each as often as it was repeated.
const maxSize = 1 << 16

// maxBits bounds the memory per position of the text.
const maxBits = 1 << 11

// compiler emits the instructions of one scope. Its methods panic with a
// *SyntaxError when there are too many.
type compiler struct {
	re       *Regexp
	sc       *scope
	depth    int     // of loops around whose rounds may be empty
	atomics  []int32 // groups around
	inBehind bool
	off      int // of the node that is being compiled
}

// scope compiles n to a scope of its own.
func (re *Regexp) scope(n *node, sc *scope, inBehind bool) {
	c := &compiler{re: re, sc: sc, inBehind: inBehind}
	c.node(n)
	if inBehind {
		c.emit(inst{op: opReach})
	}
	c.emit(inst{op: opMatch})
	re.finish(sc)
	if sc.bits > maxBits {
		panic(unsupported(n.off, "more choices than fit %d bits per character of the text", maxBits))
	}
}

func (c *compiler) pc() int32 { return int32(len(c.sc.insts)) }

func (c *compiler) emit(in inst) int32 {
	c.grow()
	c.sc.insts = append(c.sc.insts, in)
	return c.pc() - 1
}

// grow counts an instruction or a node, so that nothing grows without bound.
func (c *compiler) grow() {
	if c.re.size++; c.re.size > maxSize {
		panic(unsupported(c.off, "pattern that makes a program too large"))
	}
}

func (c *compiler) jump(to int32) { c.emit(inst{op: opJump, x: to}) }

// memoPoint makes a memo point for the next instruction.
func (c *compiler) memoPoint() int32 {
	c.sc.memos = append(c.sc.memos, memoPoint{depth: int32(c.depth), atomics: slices.Clone(c.atomics)})
	return int32(len(c.sc.memos) - 1)
}

// join marks a place that several ways lead to.
func (c *compiler) join() { c.emit(inst{op: opMemo, memo: c.memoPoint()}) }

// split emits a choice of which one side is the next instruction, the other is set
// later; greedy prefers the next.
func (c *compiler) split() int32 { return c.emit(inst{op: opSplit}) }

func (c *compiler) setSplit(at, next, other int32, greedy bool) {
	in := &c.sc.insts[at]
	if in.x, in.y = next, other; !greedy {
		in.x, in.y = other, next
	}
}

func (c *compiler) node(n *node) {
	outer := c.off
	c.off = n.off
	c.grow()
	defer func() { c.off = outer }()
	if s, ok := c.single(n); ok {
		c.class(s)
		return
	}
	switch n.kind {
	case kString:
		c.string(n)
	case kList:
		for _, k := range n.kids {
			c.node(k)
		}
	case kAlt:
		c.alternatives(len(n.kids), func(i int) { c.node(n.kids[i]) })
	case kQuant:
		c.quantifier(n)
	case kCapture, kOption:
		c.node(n.body())
	case kAtomic:
		c.atomic(n)
	case kAhead:
		c.ahead(n)
	case kBehind:
		c.behind(n)
	case kAnchor:
		c.emit(inst{op: opAssert, anchor: n.anchor})
	}
}

// single returns the set of n if n takes exactly one rune, whatever it is.
func (c *compiler) single(n *node) (set, bool) {
	switch n.kind {
	case kClass:
		return n.set, true
	case kString:
		if len(n.runes) != 1 {
			return nil, false
		}
		if !n.fold {
			return singleton(n.runes[0]), true
		}
		if caseFolds().multi[n.runes[0]] != nil && !c.inBehind {
			return nil, false
		}
		return caseFolds().variants(n.runes[0]), true
	case kCapture, kOption:
		return c.single(n.body())
	case kAlt:
		var all []span
		for _, k := range n.kids {
			s, ok := c.single(k)
			if !ok {
				return nil, false
			}
			all = append(all, s...)
		}
		return newSet(all...), true
	}
	return nil, false
}

// class emits one rune of a set.
func (c *compiler) class(s set) {
	if len(s) == 1 && s[0].lo == s[0].hi && s[0].lo < utf8.RuneSelf {
		c.emit(inst{op: opByte, lo: byte(s[0].lo)})
		return
	}
	c.emit(inst{op: opClass, x: c.classIndex(s)})
}

// classIndex returns the index of the class of a set.
func (c *compiler) classIndex(s set) int32 {
	for i, t := range c.re.sets {
		if slices.Equal(s, t) {
			return int32(i)
		}
	}
	c.re.sets = append(c.re.sets, s)
	c.re.classes = append(c.re.classes, newClass(s))
	return int32(len(c.re.classes) - 1)
}

func (c *compiler) string(n *node) {
	if !n.fold {
		c.literal(n.runes)
		return
	}
	f := caseFolds()
	for rest := n.runes; len(rest) > 0; {
		var m *multiFold
		took := 1
		if !c.inBehind {
			if m, took = f.prefix(rest); m == nil {
				m, took = f.multi[rest[0]], 1
			}
		}
		if m == nil {
			c.class(f.variants(rest[0]))
		} else {
			c.alternatives(2, func(i int) {
				if i == 0 {
					c.class(m.chars)
					return
				}
				for _, s := range m.parts {
					c.class(s)
				}
			})
		}
		rest = rest[took:]
	}
}

func (c *compiler) literal(runes []rune) {
	text := string(runes)
	switch len(text) {
	case 0:
	case 1:
		c.emit(inst{op: opByte, lo: text[0]})
	default:
		c.re.strings = append(c.re.strings, text)
		c.emit(inst{op: opString, x: int32(len(c.re.strings) - 1)})
	}
}

// alternatives emits n alternatives.
func (c *compiler) alternatives(n int, emit func(int)) {
	var ends []int32
	for i := range n {
		if i == n-1 {
			emit(i)
			break
		}
		at := c.split()
		emit(i)
		ends = append(ends, c.emit(inst{op: opJump}))
		c.setSplit(at, at+1, c.pc(), true)
	}
	for _, at := range ends {
		c.sc.insts[at].x = c.pc()
	}
	c.join()
}

func (c *compiler) quantifier(n *node) {
	body := n.body()
	if n.hi == 0 || body.opLen() == 0 {
		return
	}
	if s, ok := c.single(body); ok && n.hi == infinite {
		for range n.lo {
			c.class(s)
		}
		c.loop(s, n.greedy, false)
		return
	}
	empty := body.minLen() == 0
	if n.hi == infinite {
		c.endless(n, empty)
		return
	}
	c.bounded(n, empty && !n.unrolled())
}

// loop emits any number of runes of s.
func (c *compiler) loop(s set, greedy, final bool) {
	in := inst{op: opLazy, x: c.classIndex(s), final: final, memo: c.memoPoint()}
	if greedy {
		in.op = opStar
	}
	c.emit(in)
}

// round emits a body once. If check is set and it takes nothing, the loop is left:
// the index returned is that of the instruction that needs to know where to.
func (c *compiler) round(body *node, check bool) (exit int32) {
	if !check {
		c.node(body)
		return -1
	}
	c.depth++
	c.emit(inst{op: opEnter, depth: int16(c.depth)})
	c.node(body)
	exit = c.emit(inst{op: opCheck, depth: int16(c.depth)})
	c.depth--
	return exit
}

// endless emits a repetition without upper bound.
func (c *compiler) endless(n *node, empty bool) {
	var exits []int32
	round := func(check bool) {
		if at := c.round(n.body(), check); at >= 0 {
			exits = append(exits, at)
		}
	}
	first := n.lo // rounds ahead of the loop
	if n.lo > 0 && !(empty && n.lo > 1 && n.unrolled()) {
		first-- // the loop itself makes the last of them
	}
	for range first {
		round(empty && !n.unrolled())
	}
	if first == n.lo {
		// Before each round, the choice to leave.
		start := c.pc()
		c.join()
		at := c.split()
		round(empty)
		c.jump(start)
		c.setSplit(at, at+1, c.pc(), n.greedy)
	} else {
		start := c.pc()
		round(empty)
		c.join()
		at := c.split()
		c.setSplit(at, start, c.pc(), n.greedy)
	}
	c.leave(exits, false)
}

// bounded emits a repetition with an upper bound.
func (c *compiler) bounded(n *node, check bool) {
	var exits, splits []int32
	for i := range n.hi {
		if i >= n.lo {
			splits = append(splits, c.split())
		}
		if at := c.round(n.body(), check); at >= 0 {
			exits = append(exits, at)
		}
	}
	for _, at := range splits {
		c.setSplit(at, at+1, c.pc(), n.greedy)
	}
	c.leave(exits, len(splits) > 0)
}

// leave ends a loop: that is where its empty rounds lead to. It is a join if those,
// or other ways, meet here.
func (c *compiler) leave(emptyRounds []int32, others bool) {
	for _, at := range emptyRounds {
		c.sc.insts[at].x = c.pc()
	}
	if len(emptyRounds) > 0 || others {
		c.join()
	}
}

func (c *compiler) atomic(n *node) {
	body := n.body()
	if body.kind == kQuant && body.hi == infinite && body.greedy {
		if s, ok := c.single(body.body()); ok {
			for range body.lo {
				c.class(s)
			}
			c.loop(s, true, true)
			return
		}
	}
	id := int32(c.re.atomics)
	c.re.atomics++
	c.emit(inst{op: opAtomic, x: id})
	c.atomics = append(c.atomics, id)
	c.node(body)
	c.atomics = c.atomics[:len(c.atomics)-1]
	level := int32(len(c.atomics) + 1)
	if c.sc.ahead {
		level++
	}
	c.emit(inst{op: opCommit, x: id, y: level})
}

func (c *compiler) ahead(n *node) {
	if s, ok := c.single(n.body()); ok {
		c.emit(inst{op: opPeek, not: n.not, x: c.classIndex(s)})
		return
	}
	sc := &scope{ahead: true}
	x := c.re.addScope(sc)
	c.re.scope(n.body(), sc, false)
	c.emit(inst{op: opAhead, not: n.not, x: x})
}

func (c *compiler) behind(n *node) {
	inBehind := c.inBehind
	c.inBehind = true
	s, ok := c.single(n.body())
	c.inBehind = inBehind
	if ok {
		c.emit(inst{op: opPrev, not: n.not, x: c.classIndex(s)})
		return
	}
	l := n.body().chars()
	if l.min == 0 && l.sure {
		if n.not {
			c.emit(inst{op: opFail})
		}
		return
	}
	sc := &scope{min: l.min, max: l.max}
	x := c.re.addScope(sc)
	c.re.scope(n.body(), sc, true)
	c.emit(inst{op: opBehind, not: n.not, x: x})
}
