package onig

import (
	"cmp"
	"slices"
	"unicode"
)

// span is a range of code points, both ends included.
type span struct{ lo, hi rune }

// set is a set of code points: spans in ascending order that neither overlap nor
// touch. Sets are never changed once made, so they may be shared.
type set []span

var everything = set{{0, unicode.MaxRune}}

// newSet makes a set of spans given in any order.
func newSet(spans ...span) set {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	var s set
	for _, r := range spans {
		if n := len(s); n > 0 && r.lo <= s[n-1].hi+1 {
			s[n-1].hi = max(s[n-1].hi, r.hi)
		} else {
			s = append(s, r)
		}
	}
	return s
}

func singleton(r rune) set { return set{{r, r}} }

// tableSet makes a set of a table of package unicode.
func tableSet(t *unicode.RangeTable) set {
	var spans []span
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			spans = append(spans, span{lo, hi})
			return
		}
		for r := lo; r <= hi; r += stride {
			spans = append(spans, span{r, r})
		}
	}
	for _, r := range t.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range t.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return newSet(spans...)
}

func (s set) has(r rune) bool {
	_, ok := slices.BinarySearchFunc(s, r, func(e span, r rune) int {
		switch {
		case e.hi < r:
			return -1
		case e.lo > r:
			return 1
		}
		return 0
	})
	return ok
}

// hasSome tells whether s has some of few, a set of few code points.
func (s set) hasSome(few set) bool {
	for _, r := range few {
		for c := r.lo; c <= r.hi; c++ {
			if s.has(c) {
				return true
			}
		}
	}
	return false
}

// hasAll tells whether s has all of few, a set of few code points.
func (s set) hasAll(few set) bool {
	for _, r := range few {
		for c := r.lo; c <= r.hi; c++ {
			if !s.has(c) {
				return false
			}
		}
	}
	return true
}

// or returns the union.
func (s set) or(t set) set {
	switch {
	case len(s) == 0:
		return t
	case len(t) == 0:
		return s
	}
	return newSet(append(slices.Clone(s), t...)...)
}

// and returns the intersection.
func (s set) and(t set) set {
	var u set
	for len(s) > 0 && len(t) > 0 {
		if lo, hi := max(s[0].lo, t[0].lo), min(s[0].hi, t[0].hi); lo <= hi {
			u = append(u, span{lo, hi})
		}
		if s[0].hi < t[0].hi {
			s = s[1:]
		} else {
			t = t[1:]
		}
	}
	return u
}

// not returns the complement.
func (s set) not() set {
	var u set
	next := rune(0)
	for _, r := range s {
		if next < r.lo {
			u = append(u, span{next, r.lo - 1})
		}
		next = r.hi + 1
	}
	if next <= unicode.MaxRune {
		u = append(u, span{next, unicode.MaxRune})
	}
	return u
}
