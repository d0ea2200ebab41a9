package split

import (
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/ucd"
)

// nextDeepSeek returns the end of the piece at i by the three splits of DeepSeek V3,
// each of which cuts what the one before left:
//
//	\p{N}{1,3}
//	[一-龥぀-ゟ゠-ヿ]+
//	[ASCII punctuation][A-Za-z]+
//	    |[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
//	    | ?[\p{P}\p{S}]+[\r\n]*
//	    |\s*[\r\n]+|\s+(?!\S)|\s+
//
// A number and a run of the second pattern's characters are texts of their own for
// the third. The rune at i tells in which text it lies, and the text ends where a
// rune of another begins: ideograph(r) != han, or a number.
func nextDeepSeek(text []byte, i int) int {
	c := text[i]
	if isLetter(c) {
		return deepLetters(text, i+1, false)
	}
	if c == ' ' && i+1 < len(text) && isLetter(text[i+1]) {
		return deepLetters(text, i+2, false)
	}
	han := false
	k, n := ucd.Class(0), 1
	if c < utf8.RuneSelf {
		k = ucd.ASCII[c]
	} else {
		var r rune
		r, n = decode(text[i:])
		k, han = ucd.Of(r), ideograph(r)
	}
	const word, mark = ucd.Letter | ucd.Mark, ucd.Punct | ucd.Symbol
	j := i + n
	next, size := deepAt(text, j, han) // no class at the end of the text
	switch {
	case k&ucd.Number != 0:
		return upTo(text, j, 2, ucd.Number)
	case k&word != 0:
		return deepLetters(text, j, han)
	case k&mark != 0:
		if c < utf8.RuneSelf && j < len(text) && isLetter(text[j]) {
			return asciiLetters(text, j+1)
		}
		return deepMarks(text, j, han)
	case next&word != 0 && k&ucd.NewLine == 0:
		return deepLetters(text, j+size, han)
	case c == ' ' && next&mark != 0:
		return deepMarks(text, j+size, han)
	case k&ucd.Space != 0:
		end, last, line := blanks(text, i)
		switch {
		case line > 0:
			return line
		case last == i:
			return end
		}
		if k, _ := deepAt(text, end, han); k == 0 {
			return end
		}
		return last
	}
	// Nothing matches at i. What lies between matches is one piece: look for the
	// next rune that a match begins with, by itself or as the prefix of a word.
	for next != 0 && next&(word|mark|ucd.Space) == 0 {
		after, n := deepAt(text, j+size, han)
		if after&word != 0 {
			break
		}
		j += size
		next, size = after, n
	}
	return j
}

// ideograph reports whether r is in the second pattern of DeepSeek V3.
func ideograph(r rune) bool {
	return r >= 0x4E00 && r <= 0x9FA5 || r >= 0x3040 && r <= 0x30FF
}

// deepAt returns the classes and the length of the rune at i; no class where the
// text that the third pattern sees ends.
func deepAt(text []byte, i int, han bool) (ucd.Class, int) {
	if i >= len(text) {
		return 0, 0
	}
	if c := text[i]; c < utf8.RuneSelf {
		if han || c-'0' <= 9 {
			return 0, 0
		}
		return ucd.ASCII[c], 1
	}
	r, n := decode(text[i:])
	k := ucd.Of(r)
	if k&ucd.Number != 0 || ideograph(r) != han {
		return 0, 0
	}
	return k, n
}

// deepLetters returns the end of the run of letters and marks from i.
func deepLetters(text []byte, i int, han bool) int {
	for {
		if !han {
			i = asciiLetters(text, i)
		}
		k, n := deepAt(text, i, han)
		if k&(ucd.Letter|ucd.Mark) == 0 {
			return i
		}
		i += n
	}
}

// deepMarks returns the end of the run of punctuation and symbols from i and of the
// line ends behind it.
func deepMarks(text []byte, i int, han bool) int {
	for {
		k, n := deepAt(text, i, han)
		if k&(ucd.Punct|ucd.Symbol) == 0 {
			break
		}
		i += n
	}
	if han {
		return i
	}
	return lines(text, i, false)
}
