package ucd

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
)

// Table returns the set of a general category (Lu, or L for all letters, LC for
// Lu, Ll and Lt), of a script by its full name (Han, Old_Italic; Unknown for what
// belongs to none), or of one of the properties Alphabetic, Lowercase, Uppercase,
// White_Space and Word; nil when there is none of that name. Case, spaces, hyphens
// and underscores in the name do not matter.
//
// Every call builds a new table, which the caller owns.
func Table(name string) *unicode.RangeTable {
	name = fold(name)
	if t := category(name); t != nil {
		return t
	}
	for i, s := range scripts {
		if fold(s) == name {
			return build(scriptRuns[:], func(v uint8) bool { return v == uint8(i) })
		}
	}
	holds := func(v uint8) bool { return v == 1 }
	switch name {
	case "whitespace":
		return build(whiteSpaceRuns[:], holds)
	case "alphabetic":
		return union(category("l"), category("nl"), build(otherAlphabeticRuns[:], holds))
	case "lowercase":
		return union(category("ll"), build(otherLowercaseRuns[:], holds))
	case "uppercase":
		return union(category("lu"), build(otherUppercaseRuns[:], holds))
	case "word":
		return union(Table("Alphabetic"), category("m"), category("nd"), category("pc"))
	}
	return nil
}

// category returns the set of a folded category name, or nil.
func category(name string) *unicode.RangeTable {
	var in [len(categories)]bool
	found := false
	for i, c := range categories {
		c = fold(c)
		if c == name || c[:1] == name || name == "lc" && (c == "lu" || c == "ll" || c == "lt") {
			in[i], found = true, true
		}
	}
	if !found {
		return nil
	}
	return build(categoryRuns[:], func(v uint8) bool { return in[v] })
}

// fold removes from a name what does not distinguish it from others.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == '-' || r == '_' {
			return -1
		}
		return unicode.ToLower(r)
	}, name)
}

// build makes a table of the runs whose value is wanted.
func build(runs []uint32, want func(uint8) bool) *unicode.RangeTable {
	t := new(unicode.RangeTable)
	open := rune(-1)
	for _, run := range runs {
		at := rune(run >> 8)
		switch w := want(uint8(run)); {
		case w && open < 0:
			open = at
		case !w && open >= 0:
			appendRange(t, open, at-1)
			open = -1
		}
	}
	if open >= 0 {
		appendRange(t, open, unicode.MaxRune)
	}
	return t
}

// union makes a table of what is in any of the given ones, which have stride 1.
func union(tables ...*unicode.RangeTable) *unicode.RangeTable {
	var all []unicode.Range32
	for _, t := range tables {
		for _, r := range t.R16 {
			all = append(all, unicode.Range32{Lo: uint32(r.Lo), Hi: uint32(r.Hi)})
		}
		all = append(all, t.R32...)
	}
	slices.SortFunc(all, func(a, b unicode.Range32) int { return cmp.Compare(a.Lo, b.Lo) })
	u := new(unicode.RangeTable)
	for i := 0; i < len(all); {
		lo, hi := all[i].Lo, all[i].Hi
		for i++; i < len(all) && all[i].Lo <= hi+1; i++ {
			hi = max(hi, all[i].Hi)
		}
		appendRange(u, rune(lo), rune(hi))
	}
	return u
}

// appendRange adds lo to hi, which lie behind everything that t has.
func appendRange(t *unicode.RangeTable, lo, hi rune) {
	if lo <= 0xffff {
		t.R16 = append(t.R16, unicode.Range16{Lo: uint16(lo), Hi: uint16(min(hi, 0xffff)), Stride: 1})
		if hi <= unicode.MaxLatin1 {
			t.LatinOffset++
		}
		lo = 0x10000
	}
	if lo <= hi {
		t.R32 = append(t.R32, unicode.Range32{Lo: uint32(lo), Hi: uint32(hi), Stride: 1})
	}
}
