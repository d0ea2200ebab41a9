package onig

// What stands before the first character of a match.
type leading uint8

const (
	leadText  leading = 1 << iota // \A
	leadLine                      // ^
	leadPast                      // (?<=…)
	leadNot                       // (?!…)
	leadOther                     // any other assertion, or one that need not hold
	leadDot                       // .* and the like
	leadAny                       // the same that takes line feeds
)

const assertions = leadText | leadLine | leadPast | leadNot | leadOther

// checkLead refuses patterns for which Oniguruma misses matches: when .* comes first
// and fails, it goes on with the next line or not at all. That is right unless an
// assertion comes before and might hold further on.
func (p *parser) checkLead(n *node) {
	l, _ := n.lead(true)
	switch {
	case l&(leadDot|leadAny) == 0, l&assertions == 0, l&(leadText|leadPast) != 0:
		return
	case l&leadAny == 0 && (l&assertions == leadLine || l&leadNot != 0):
		return
	}
	p.unsupported(n.off, "assertion before .* at the beginning")
}

// lead returns what n begins with. first tells whether nothing can have been taken
// before it; the result of that name, whether n takes nothing.
func (n *node) lead(first bool) (l leading, empty bool) {
	switch n.kind {
	case kString:
		return 0, len(n.runes) == 0
	case kClass:
		return 0, false
	case kList:
		empty = true
		for _, k := range n.kids {
			kl, ke := k.lead(first && empty)
			if empty {
				l |= kl
			}
			empty = empty && ke
		}
		return l, empty
	case kAlt:
		l, empty = n.kids[0].lead(first)
		for _, k := range n.kids[1:] {
			kl, ke := k.lead(first)
			if some := (l | kl) & assertions; some != l&kl&assertions {
				l = l&kl | leadOther
			} else {
				l &= kl
			}
			empty = empty && ke
		}
		return l, empty
	case kQuant:
		if n.hi == 0 {
			return 0, true
		}
		l, empty = n.body().lead(first)
		if n.lo == 0 {
			if l&assertions != 0 {
				l = leadOther
			} else {
				l = 0
			}
		}
		if b := n.body(); n.hi == infinite && n.greedy && first && b.kind == kClass && b.dot {
			if len(b.set) == 1 {
				l |= leadAny
			} else {
				l |= leadDot
			}
		}
		return l, empty
	case kCapture, kOption, kAtomic:
		return n.body().lead(first)
	case kAhead:
		if n.not {
			return leadNot, true
		}
	case kBehind:
		if !n.not {
			return leadPast, true
		}
	case kAnchor:
		switch n.anchor {
		case beginText:
			return leadText, true
		case beginLine:
			return leadLine, true
		}
	}
	return leadOther, true
}
