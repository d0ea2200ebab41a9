package onig

import (
	"strings"

	"github.com/stator-ai/stator/internal/ucd"
)

// options are the flags in force at a place of the pattern.
type options uint8

const (
	ignoreCase options = 1 << iota
	dotNewline         // (?m): the dot takes line feeds
	extended           // (?x): white space and comments in the pattern
	asciiWord
	asciiDigit
	asciiSpace
	asciiPosix
)

var asciiSet = set{{0, 0x7f}}

// ctype is a kind of character that has a name in brackets and an escape or both.
type ctype uint8

const (
	ctAlnum ctype = iota
	ctAlpha
	ctASCII
	ctBlank
	ctCntrl
	ctDigit
	ctGraph
	ctLower
	ctPrint
	ctPunct
	ctSpace
	ctUpper
	ctWord
	ctXDigit
)

var ctypes = map[string]ctype{
	"alnum": ctAlnum, "alpha": ctAlpha, "ascii": ctASCII, "blank": ctBlank,
	"cntrl": ctCntrl, "digit": ctDigit, "graph": ctGraph, "lower": ctLower,
	"print": ctPrint, "punct": ctPunct, "space": ctSpace, "upper": ctUpper,
	"word": ctWord, "xdigit": ctXDigit,
}

// ascii tells whether only ASCII characters count as of type c.
func (o options) ascii(c ctype) bool {
	switch {
	case o&asciiPosix != 0 && c != ctASCII:
		return true
	case c == ctWord:
		return o&asciiWord != 0
	case c == ctDigit:
		return o&asciiDigit != 0
	case c == ctSpace:
		return o&asciiSpace != 0
	}
	return false
}

// longCategories are the long names of general categories.
var longCategories = map[string]string{
	"other": "C", "control": "Cc", "format": "Cf", "unassigned": "Cn",
	"privateuse": "Co", "surrogate": "Cs", "letter": "L", "casedletter": "LC",
	"lowercaseletter": "Ll", "modifierletter": "Lm", "otherletter": "Lo",
	"titlecaseletter": "Lt", "uppercaseletter": "Lu", "mark": "M",
	"combiningmark": "M", "spacingmark": "Mc", "enclosingmark": "Me",
	"nonspacingmark": "Mn", "number": "N", "decimalnumber": "Nd",
	"letternumber": "Nl", "othernumber": "No", "punctuation": "P", "punct": "P",
	"connectorpunctuation": "Pc", "dashpunctuation": "Pd", "closepunctuation": "Pe",
	"finalpunctuation": "Pf", "initialpunctuation": "Pi", "otherpunctuation": "Po",
	"openpunctuation": "Ps", "symbol": "S", "currencysymbol": "Sc",
	"modifiersymbol": "Sk", "mathsymbol": "Sm", "othersymbol": "So",
	"separator": "Z", "lineseparator": "Zl", "paragraphseparator": "Zp",
	"spaceseparator": "Zs",
}

// tables makes sets of names and keeps them, for patterns repeat themselves.
type tables map[string]set

// ucd returns the set of a category, script or property that package ucd knows, and
// whether it does.
func (t tables) ucd(name string) (set, bool) {
	if s, ok := t[name]; ok {
		return s, true
	}
	table := ucd.Table(name)
	if table == nil {
		return nil, false
	}
	s := tableSet(table)
	t[name] = s
	return s, true
}

// must is ucd for names that exist.
func (t tables) must(name string) set {
	s, ok := t.ucd(name)
	if !ok {
		panic("onig: no table of " + name)
	}
	return s
}

// ctype returns the characters of type c, as a class has them.
func (t tables) ctype(c ctype, o options) set {
	s := t.unicodeType(c)
	if o.ascii(c) {
		s = s.and(asciiSet)
	}
	return s
}

func (t tables) unicodeType(c ctype) set {
	switch c {
	case ctAlnum:
		return t.must("Alphabetic").or(t.must("Nd"))
	case ctAlpha:
		return t.must("Alphabetic")
	case ctASCII:
		return asciiSet
	case ctBlank:
		return t.must("Zs").or(singleton('\t'))
	case ctCntrl:
		return t.must("Cc")
	case ctDigit:
		return t.must("Nd")
	case ctGraph, ctPrint:
		hidden := t.must("White_Space").or(t.must("Cc")).or(t.must("Cn")).or(t.must("Cs"))
		s := hidden.not()
		if c == ctPrint {
			s = s.or(t.must("Zs"))
		}
		return s
	case ctLower:
		return t.must("Lowercase")
	case ctPunct:
		return t.must("P").or(t.must("S"))
	case ctSpace:
		return t.must("White_Space")
	case ctUpper:
		return t.must("Uppercase")
	case ctXDigit:
		return set{{'0', '9'}, {'A', 'F'}, {'a', 'f'}}
	default:
		return t.must("Word")
	}
}

// word returns what \w outside of brackets matches.
func (t tables) word(o options) set {
	s := t.must("Word").or(set{{0xb2, 0xb3}, {0xb9, 0xb9}, {0xbc, 0xbe}})
	if o.ascii(ctWord) {
		s = s.and(asciiSet)
	}
	return s
}

// property returns the set of a name in \p{…}; inBrackets matters to Word alone.
func (t tables) property(name string, o options, inBrackets bool) (set, bool) {
	name = strings.ToLower(strings.NewReplacer(" ", "", "-", "", "_", "").Replace(name))
	if c, ok := ctypes[name]; ok && c != ctPunct { // \p{Punct} is not [[:punct:]]
		if c == ctWord && !inBrackets {
			return t.word(o), true
		}
		return t.ctype(c, o), true
	}
	if short, ok := longCategories[name]; ok {
		return t.ucd(short)
	}
	switch name {
	case "any":
		return everything, true
	case "assigned":
		return t.must("Cn").not(), true
	}
	return t.ucd(name)
}
