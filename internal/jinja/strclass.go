package jinja

import (
	"strings"
	"unicode"
)

// predicate makes a method that asks whether a string is not empty and all its
// characters are of a kind.
func predicate(is func(rune) bool) method {
	return whole(func(s string) bool {
		return s != "" && strings.IndexFunc(s, func(r rune) bool { return !is(r) }) < 0
	})
}

// whole makes a method that asks something about the string.
func whole(is func(string) bool) method {
	return func(st *state, v Value, a callArgs) (Value, error) {
		if err := a.only("this method", 0, 0); err != nil {
			return nil, err
		}
		s, _ := asString(v)
		return is(s), st.walk(len(s))
	}
}

func isAlpha(r rune) bool   { return unicode.IsLetter(r) }
func isDecimal(r rune) bool { return unicode.Is(unicode.Nd, r) }
func isPyDigit(r rune) bool { return isDecimal(r) || unicode.Is(digitChars, r) }

// isNumeric reports whether a character stands for a number: besides those of
// the number categories, some ideographs.
func isNumeric(r rune) bool {
	return unicode.IsNumber(r) || numericIdeographs[r]
}

func notPrintable(r rune) bool { return !unicode.IsPrint(r) }

// digitChars are the digits beyond decimal ones: superscripts, circled digits
// and the like.
var digitChars = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0xB2, 0xB3, 1}, {0xB9, 0xB9, 1}, {0x1369, 0x1371, 1}, {0x19DA, 0x19DA, 1}, {0x2070, 0x2070, 1},
		{0x2074, 0x2079, 1}, {0x2080, 0x2089, 1}, {0x2460, 0x2468, 1}, {0x2474, 0x247C, 1}, {0x2488, 0x2490, 1},
		{0x24EA, 0x24EA, 1}, {0x24F5, 0x24FD, 1}, {0x24FF, 0x24FF, 1}, {0x2776, 0x277E, 1}, {0x2780, 0x2788, 1},
		{0x278A, 0x2792, 1},
	},
	R32: []unicode.Range32{
		{0x10A40, 0x10A43, 1}, {0x10E60, 0x10E68, 1}, {0x11052, 0x1105A, 1}, {0x1F100, 0x1F10A, 1},
	},
	LatinOffset: 2,
}

var numericIdeographs = runeSet("㐅㒃㠪㭍一七万三九二五亖亿什仟仨伍佰億兆兩八六十千卄卅卌叁参參叄四壱壹幺廾廿弌弍弎弐拾捌柒漆玖百肆萬貮貳贰阡陆陌陸零" +
	"\uF96B\uF973\uF978\uF9B2\uF9D1\uF9D3\uF9FD𠀁𠁤𠃢𠄡𠤪𠦃𠦌𠦜𠫪𠫽𠬙𢎐𢦘𣬛𦉭\U0002F890")

func runeSet(s string) map[rune]bool {
	set := map[rune]bool{}
	for _, r := range s {
		set[r] = true
	}
	return set
}

// isIdentifier is Python's str.isidentifier.
func isIdentifier(s string) bool {
	for i, r := range s {
		switch {
		case r == '_' || unicode.In(r, unicode.L, unicode.Nl, unicode.Other_ID_Start):
		case i > 0 && unicode.In(r, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc, unicode.Other_ID_Continue):
		default:
			return false
		}
	}
	return s != ""
}

// isLowerString is Python's str.islower.
func isLowerString(s string) bool {
	cased := false
	for _, r := range s {
		if isUpper(r) || unicode.IsTitle(r) {
			return false
		}
		cased = cased || isLower(r)
	}
	return cased
}

// isUpperString is Python's str.isupper.
func isUpperString(s string) bool {
	cased := false
	for _, r := range s {
		if isLower(r) || unicode.IsTitle(r) {
			return false
		}
		cased = cased || isUpper(r)
	}
	return cased
}

// isTitleString is Python's str.istitle.
func isTitleString(s string) bool {
	cased, inWord := false, false
	for _, r := range s {
		switch {
		case isUpper(r) || unicode.IsTitle(r):
			if inWord {
				return false
			}
			cased, inWord = true, true
		case isLower(r):
			if !inWord {
				return false
			}
			cased = true
		default:
			inWord = false
		}
	}
	return cased
}
