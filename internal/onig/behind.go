package onig

import "math"

// maxBehind is how many characters a look-behind may reach back. It is tried from
// every one of them.
const maxBehind = 255

// checkBehinds refuses what may not stand in look-behinds.
func (p *parser) checkBehinds(n *node) {
	if n.kind == kBehind {
		p.checkBehind(n.body(), n.not)
		if off, ok := n.boundary(); ok && !n.steady() {
			// At the beginning of the text it would see the end of the text there.
			p.unsupported(off, "word boundary in a look-behind of varying length")
		}
		if !n.shortenBehind() {
			p.fail(n.off, "look-behind of parts that may all be missing")
		}
		l := n.body().chars()
		switch {
		case l.min == 0 && l.sure:
		case l.max > maxBehind:
			p.unsupported(n.off, "look-behind of more than %d characters", maxBehind)
		}
	}
	for _, k := range n.kids {
		p.checkBehinds(k)
	}
}

// checkBehind refuses in a look-behind: look-ahead, the ends of the text, within a
// positive one a negative one, and within a negative one capturing groups.
func (p *parser) checkBehind(n *node, not bool) {
	bad := false
	switch n.kind {
	case kAtomic:
		if n.newline {
			// Oniguruma takes it for \r\n there, in some places.
			p.unsupported(n.off, `\R in a look-behind`)
		}
	case kCapture:
		bad = not
	case kAhead:
		bad = true
	case kBehind:
		bad = n.not && !not
	case kAnchor:
		bad = n.anchor == endText || n.anchor == endTextOrLine
	}
	if bad {
		p.fail(n.off, "not allowed in a look-behind")
	}
	for _, k := range n.kids {
		p.checkBehind(k, not)
	}
}

// boundary returns the offset of a word boundary in n.
func (n *node) boundary() (off int, ok bool) {
	if n.kind == kAnchor && n.anchor >= wordBoundary {
		return n.off, true
	}
	for _, k := range n.kids {
		if off, ok := k.boundary(); ok {
			return off, true
		}
	}
	return 0, false
}

// steady tells whether a look-behind, or each of its alternatives, always takes the
// same number of characters.
func (n *node) steady() bool {
	parts := []*node{n.body()}
	if n.body().kind == kAlt {
		parts = n.body().kids
	}
	for _, p := range parts {
		if l := p.chars(); l.min != l.max {
			return false
		}
	}
	return true
}

// shortenBehind lets what stands first in a look-behind repeat no more often than it
// must: more changes nothing, as what comes before it is arbitrary. It returns false if
// that leaves nothing of several parts, which Oniguruma refuses.
func (n *node) shortenBehind() bool {
	branches := []*node{n.body()}
	if n.body().kind == kAlt {
		branches = n.body().kids
	}
	for _, b := range branches {
		items := []*node{b}
		if b.kind == kList {
			items = b.kids
		}
		gone := 0
		for _, it := range items {
			if it.kind != kQuant || it.body().kind != kClass && !it.body().becomesSingle() && !it.body().becomesString() {
				break
			}
			it.hi = it.lo
			if it.hi > 0 {
				break
			}
			gone++
		}
		if b.kind == kList && gone == len(items) {
			return false
		}
	}
	return true
}

// becomesSingle tells whether n is one character.
func (n *node) becomesSingle() bool { return n.kind == kString && len(n.runes) == 1 }

// becomesString tells whether n is compared as a string, and a short one if it is
// repeated.
func (n *node) becomesString() bool {
	const longest = 100
	switch n.kind {
	case kString:
		if n.fold {
			for _, r := range n.runes {
				if s := caseFolds().variants(r); len(s) > 1 || s[0].lo != s[0].hi {
					return false
				}
			}
		}
		return true
	case kQuant:
		return n.lo == n.hi && n.lo > 1 && n.body().kind == kString && n.body().becomesString() &&
			product(n.lo, len(string(n.body().runes))) <= longest
	}
	return false
}

// charLen is how many characters something takes. sure is false if the least may
// come with a condition.
type charLen struct {
	min, max int
	sure     bool
}

// chars returns how many characters n takes in a look-behind, where case folding is
// from one character to one.
func (n *node) chars() charLen {
	switch n.kind {
	case kString:
		return charLen{len(n.runes), len(n.runes), true}
	case kClass:
		return charLen{1, 1, true}
	case kList:
		sum := charLen{0, 0, true}
		for _, k := range n.kids {
			l := k.chars()
			sum = charLen{sumLen(sum.min, l.min), sumLen(sum.max, l.max), sum.sure && l.sure}
		}
		return sum
	case kAlt:
		all := n.kids[0].chars()
		for _, k := range n.kids[1:] {
			l := k.chars()
			switch {
			case l.min < all.min:
				all.min, all.sure = l.min, l.sure
			case l.min == all.min:
				all.sure = all.sure || l.sure
			}
			all.max = max(all.max, l.max)
		}
		return all
	case kQuant:
		if n.hi == 0 {
			return charLen{0, 0, true}
		}
		l := n.body().chars()
		l.min = product(l.min, n.lo)
		if n.hi == infinite {
			l.max = math.MaxInt32
		} else {
			l.max = product(l.max, n.hi)
		}
		return l
	case kCapture:
		l := n.body().chars()
		l.sure = false
		return l
	case kOption, kAtomic:
		return n.body().chars()
	case kBehind:
		// What is known to hold or to fail is dropped before its length is asked.
		if l := n.body().chars(); l.min == 0 && l.sure {
			return charLen{0, 0, true}
		}
	}
	return charLen{0, 0, false}
}

func sumLen(a, b int) int { return min(a+b, math.MaxInt32) }
