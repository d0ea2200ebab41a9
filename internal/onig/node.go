package onig

import "math"

// kind is the kind of a node.
type kind uint8

const (
	kString  kind = iota // runes one after the other; empty matches the empty string
	kClass               // one rune of a set
	kList                // kids one after the other
	kAlt                 // one of kids, the first that leads to a match
	kQuant               // kids[0] between lo and hi times
	kCapture             // (…) and (?<name>…)
	kOption              // (?i:…); the options are already in the nodes within
	kAtomic              // (?>…)
	kAhead               // (?=…) and (?!…)
	kBehind              // (?<=…) and (?<!…)
	kAnchor              // a condition on a position
)

// infinite is the upper bound of a quantifier that has none.
const infinite = math.MaxInt

// node is a part of a parsed pattern.
type node struct {
	kind   kind
	off    int // where it stands in the pattern
	kids   []*node
	runes  []rune // kString
	fold   bool   // kString: without regard to case
	set    set    // kClass
	lo, hi int    // kQuant
	greedy bool   // kQuant
	named  bool   // kCapture
	not    bool   // kAhead, kBehind
	anchor anchor // kAnchor

	newline bool // kAtomic: it is \R
	dot     bool // kClass: it is a dot, \N or \O

	// least and ops keep minLen and opLen, plus one, once they are known.
	least, ops int
}

// anchor is a condition on a position.
type anchor uint8

const (
	beginText anchor = iota
	endText
	endTextOrLine // \Z: also before a line feed at the end
	beginLine
	endLine
	wordBoundary
	notWordBoundary
	wordBoundaryASCII
	notWordBoundaryASCII
)

func (n *node) body() *node { return n.kids[0] }

// unrepeatable tells whether a quantifier may not follow n.
func (n *node) unrepeatable() bool {
	switch n.kind {
	case kAnchor, kAhead, kBehind:
		return true
	case kAlt:
		for _, k := range n.kids {
			if k.unrepeatable() {
				return true
			}
		}
	}
	return false
}

// quantifier returns the number of a quantifier in simplify's table, or -1.
func (n *node) quantifier() int {
	i := -1
	switch {
	case n.lo == 0 && n.hi == 1:
		i = 0
	case n.lo == 0 && n.hi == infinite:
		i = 1
	case n.lo == 1 && n.hi == infinite:
		i = 2
	}
	if i >= 0 && !n.greedy {
		i += 3
	}
	return i
}

// simplified says what becomes of a quantifier of a quantifier.
type simplified uint8

const (
	keepBoth simplified = iota
	keepInner
	makeStar
	makePlus
	makeLazyStar
	makeLazyOptional
	makeLazyOptionalPlus // (?:x+)??
)

// nested is indexed by the inner and the outer quantifier, ? * + ?? *? +? each.
var nested = [6][6]simplified{
	{keepInner, makeStar, makeStar, makeLazyOptional, makeLazyStar, keepBoth},
	{keepInner, keepInner, keepInner, makeLazyOptionalPlus, makeLazyOptionalPlus, keepInner},
	{makeStar, makeStar, keepInner, keepBoth, makeLazyOptionalPlus, keepInner},
	{keepInner, makeLazyStar, makeLazyStar, keepInner, makeLazyStar, makeLazyStar},
	{keepInner, keepInner, keepInner, keepInner, keepInner, keepInner},
	{keepBoth, makeStar, makePlus, makeLazyStar, makeLazyStar, keepInner},
}

// simplify returns what becomes of a quantifier whose body is one as well.
func (n *node) simplify() *node {
	in := n.body()
	outer, inner := n.quantifier(), in.quantifier()
	if outer < 0 || inner < 0 {
		if n.lo == n.hi && in.lo == in.hi {
			n.lo = product(n.lo, in.lo)
			n.hi = n.lo
			n.kids = in.kids
		}
		return n
	}
	set := func(lo, hi int, greedy bool) *node {
		n.lo, n.hi, n.greedy, n.kids = lo, hi, greedy, in.kids
		return n
	}
	switch nested[inner][outer] {
	case keepInner:
		return in
	case makeStar:
		return set(0, infinite, true)
	case makePlus:
		return set(1, infinite, true)
	case makeLazyStar:
		return set(0, infinite, false)
	case makeLazyOptional:
		return set(0, 1, false)
	case makeLazyOptionalPlus:
		n.lo, n.hi, n.greedy = 0, 1, false
		in.lo, in.hi, in.greedy = 1, infinite, true
	}
	return n
}

// product returns a*b, or a number too large for anything when that is large.
func product(a, b int) int {
	const large = math.MaxInt32
	if a == 0 || b == 0 {
		return 0
	}
	if a >= large || b >= large || a*b >= large {
		return large
	}
	return a * b
}

// dropUnnamed returns n without its unnamed capturing groups, which capture nothing
// once there are named ones. What is a quantifier of a quantifier then, is simplified
// as if the group had not been written.
func (n *node) dropUnnamed() *node {
	if n.kind == kCapture && !n.named {
		return n.body().dropUnnamed()
	}
	group := n.kind == kQuant && n.body().kind == kCapture && !n.body().named
	for i, k := range n.kids {
		n.kids[i] = k.dropUnnamed()
	}
	if group && n.body().kind == kQuant {
		return n.simplify()
	}
	return n
}

// joinStrings makes one string of strings that follow each other in a list and are
// alike. Only then can the two s of s(?:s) be an ß.
func (n *node) joinStrings() {
	if n.kind == kList {
		var kids []*node
		for _, k := range n.kids {
			if last := len(kids) - 1; last >= 0 && k.kind == kString &&
				kids[last].kind == kString && kids[last].fold == k.fold {
				kids[last].runes = append(kids[last].runes[:len(kids[last].runes):len(kids[last].runes)], k.runes...)
				continue
			}
			kids = append(kids, k)
		}
		n.kids = kids
	}
	for _, k := range n.kids {
		k.joinStrings()
	}
}

// minLen returns the least number of runes that n takes, up to a bound. What it
// cannot know to be more is 0.
func (n *node) minLen() int {
	if n.least == 0 {
		n.least = 1 + n.findMinLen()
	}
	return n.least - 1
}

func (n *node) findMinLen() int {
	const bound = math.MaxInt32
	switch n.kind {
	case kString:
		return len(n.runes)
	case kClass:
		return 1
	case kList:
		sum := 0
		for _, k := range n.kids {
			sum = min(bound, sum+k.minLen())
		}
		return sum
	case kAlt:
		least := bound
		for _, k := range n.kids {
			least = min(least, k.minLen())
		}
		return least
	case kQuant:
		if n.lo == 0 {
			return 0
		}
		return product(n.lo, n.body().minLen())
	case kCapture, kOption, kAtomic:
		return n.body().minLen()
	}
	return 0
}

// opLen returns how many instructions Oniguruma compiles n to, exactly as long as
// that is few and n can match the empty string. It unrolls a counted repetition of
// few instructions and counts the others, and leaves a counted one as soon as an
// iteration is empty.
func (n *node) opLen() int {
	if n.ops == 0 {
		n.ops = 1 + n.findOpLen()
	}
	return n.ops - 1
}

func (n *node) findOpLen() int {
	switch n.kind {
	case kString:
		if n.fold {
			return n.foldedOpLen()
		}
		ops, last := 0, 0
		for _, r := range n.runes {
			if l := encodedLen(r); l != last {
				ops++
				last = l
			}
		}
		return ops
	case kList, kAlt:
		ops := 0
		for _, k := range n.kids {
			ops = min(ops+k.opLen(), math.MaxInt32)
		}
		if n.kind == kAlt {
			ops += 2 * (len(n.kids) - 1)
		}
		return ops
	case kQuant:
		return n.quantOpLen()
	case kCapture:
		return 2 + n.body().opLen()
	case kOption:
		return n.body().opLen()
	case kAtomic:
		if q := n.body(); q.kind == kQuant && q.hi == infinite && q.lo <= 1 && q.greedy && q.body().solid() {
			return (q.lo+1)*q.body().opLen() + 3
		}
		return 2 + n.body().opLen()
	case kAhead:
		if n.not {
			return 5 + n.body().opLen()
		}
		return 2 + n.body().opLen()
	case kBehind:
		return 3 + n.body().opLen()
	}
	return 1
}

// foldedOpLen is opLen of a string without regard to case.
func (n *node) foldedOpLen() int {
	f := caseFolds()
	ops, plain := 0, 0 // plain: how long the runes are encoded that the last one stands with
	for rest := n.runes; len(rest) > 0; {
		m, took := f.prefix(rest)
		if m == nil {
			m, took = f.multi[rest[0]], 1
		}
		switch {
		case m != nil:
			return unrollLimit + 1 // an alternative of a dozen strings
		case len(f.variants(rest[0])) > 1 || f.variants(rest[0])[0].lo != f.variants(rest[0])[0].hi:
			ops, plain = ops+1, 0
		case encodedLen(rest[0]) != plain:
			ops, plain = ops+1, encodedLen(rest[0])
		}
		rest = rest[took:]
	}
	return ops
}

func encodedLen(r rune) int {
	switch {
	case r < 0x80:
		return 1
	case r < 0x800:
		return 2
	case r < 0x10000:
		return 3
	}
	return 4
}

// solid tells whether n is a string or class that takes at least one rune.
func (n *node) solid() bool {
	return n.kind == kClass || n.kind == kString && len(n.runes) > 0
}

// unrollLimit is up to how many instructions a repetition is unrolled.
const unrollLimit = 10

func (n *node) quantOpLen() int {
	ops := n.body().opLen()
	if ops == 0 || n.hi == 0 {
		return 0
	}
	checked := ops
	if n.body().minLen() == 0 {
		checked += 2
	}
	switch {
	case n.hi == infinite && n.unrolled():
		if n.greedy && n.body().dot {
			return 1 + product(ops, n.lo)
		}
		if n.lo == 1 && ops > unrollLimit {
			return 1 + 2 + checked
		}
		return product(ops, n.lo) + 2 + checked
	case n.hi != infinite && n.unrolled():
		if !n.greedy {
			return 2 + ops
		}
		return product(ops, n.lo) + product(ops+1, n.hi-n.lo)
	}
	return 2 + checked
}

// unrolled tells whether Oniguruma unrolls a repetition instead of counting.
func (n *node) unrolled() bool {
	ops := n.body().opLen()
	switch {
	case n.hi == infinite:
		return n.lo <= 1 || product(ops, n.lo) <= unrollLimit
	case n.greedy:
		return n.hi == 1 || product(ops+1, n.hi) <= unrollLimit
	}
	return n.lo == 0 && n.hi == 1
}
