package onig

import (
	"slices"
	"sync"
	"unicode"
)

// folds is what case-insensitive matching takes as equal. Characters that fold to
// several (ß to ss) are kept apart from those that fold to one: ß equals ẞ only
// because both fold to ss.
type folds struct {
	// classes are the sets of two or more characters with the same fold.
	classes []set
	class   map[rune]set // by member
	fold    map[rune]rune
	multi   map[rune]*multiFold // by character that folds to several
	seq     map[string]*multiFold
	multis  []*multiFold // in the order of multiFolds
}

// multiFold is a sequence of two or three characters and what is equal to it.
type multiFold struct {
	chars set   // characters that fold to the sequence
	parts []set // for every place the characters that may stand there
}

// caseFolds returns the tables. They are made on first use, for most patterns are
// case-sensitive.
var caseFolds = sync.OnceValue(func() *folds {
	f := &folds{
		class: make(map[rune]set),
		fold:  make(map[rune]rune),
		multi: make(map[rune]*multiFold),
		seq:   make(map[string]*multiFold),
	}
	for _, m := range multiFolds {
		for _, r := range m.from {
			f.multi[r] = nil
		}
	}
	f.simple()
	for _, m := range multiFolds {
		mf := new(multiFold)
		for _, r := range m.from {
			mf.chars = mf.chars.or(singleton(r))
			f.multi[r] = mf
		}
		for _, r := range m.folded {
			mf.parts = append(mf.parts, f.variants(r))
		}
		f.seq[m.folded] = mf
		f.multis = append(f.multis, mf)
	}
	return f
})

// simple fills in the classes of characters that fold to one character.
func (f *folds) simple() {
	orbits := make(map[rune][]rune)
	link := func(a, b rune) {
		all := append(orbits[a], orbits[b]...)
		all = append(all, a, b)
		slices.Sort(all)
		all = slices.Compact(all)
		for _, r := range all {
			orbits[r] = all
		}
	}
	for _, c := range unicode.CaseRanges {
		for r := rune(c.Lo); r <= rune(c.Hi); r++ {
			next := unicode.SimpleFold(r)
			_, a := f.multi[r]
			_, b := f.multi[next]
			if next != r && !a && !b {
				link(r, next)
			}
		}
	}
	for _, n := range newFolds {
		for i := range n.count {
			link(n.upper+i, n.lower+i)
		}
	}
	for r, members := range orbits {
		if r != members[0] {
			continue
		}
		var s set
		for _, m := range members {
			s = s.or(singleton(m))
		}
		for _, m := range members {
			f.class[m] = s
			f.fold[m] = foldOf(members)
		}
		f.classes = append(f.classes, s)
	}
}

// foldOf returns the member that the sequences in multiFolds are written with.
func foldOf(members []rune) rune {
	for _, m := range multiFolds {
		for _, r := range m.folded {
			if slices.Contains(members, r) {
				return r
			}
		}
	}
	return members[0]
}

// variants returns r and what equals it as a single character.
func (f *folds) variants(r rune) set {
	if m := f.multi[r]; m != nil {
		return m.chars
	}
	if s, ok := f.class[r]; ok {
		return s
	}
	return singleton(r)
}

// closure returns s with everything that equals one of its members as a single
// character.
func (f *folds) closure(s set) set {
	add := slices.Clone(s)
	for _, c := range f.classes {
		if s.hasSome(c) && !s.hasAll(c) {
			add = append(add, c...)
		}
	}
	for _, m := range f.multis {
		if s.hasSome(m.chars) && !s.hasAll(m.chars) {
			add = append(add, m.chars...)
		}
	}
	return newSet(add...)
}

// prefix returns the sequence that text begins with, if it begins with one, and how
// many characters of text it takes; the longest wins.
func (f *folds) prefix(text []rune) (*multiFold, int) {
	for n := min(3, len(text)); n > 1; n-- {
		key := make([]rune, n)
		for i, r := range text[:n] {
			key[i] = r
			if to, ok := f.fold[r]; ok {
				key[i] = to
			}
		}
		if m := f.seq[string(key)]; m != nil {
			return m, n
		}
	}
	return nil, 0
}
