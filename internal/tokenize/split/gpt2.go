package split

import (
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/ucd"
)

// nextGPT2 returns the end of the piece at i by the rules of GPT-2:
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func nextGPT2(text []byte, i int) int {
	c := text[i]
	if c == '\'' {
		if end := smallContraction(text, i); end > i {
			return end
		}
	}
	j := i
	if c == ' ' && i+1 < len(text) {
		j++
	}
	k, n := at(text, j)
	switch {
	case k&ucd.Letter != 0:
		return letters(text, j+n, ucd.Letter)
	case k&ucd.Number != 0:
		return run(text, j+n, ucd.Number)
	case k&ucd.Space == 0:
		return runNot(text, j+n, ucd.Space|ucd.Letter|ucd.Number)
	}
	end, last, _ := blanks(text, i)
	if end == len(text) || last == i {
		return end
	}
	return last
}

// nextGPT2Digits is a Digits step with single digits before GPT-2's rules. What lies
// between digits is a text of its own, so white space in front of one is at its end.
func nextGPT2Digits(text []byte, i int) int {
	k, n := digitsAt(text, i)
	if k&ucd.Number != 0 {
		return i + n
	}
	c := text[i]
	if c == '\'' {
		if end := smallContraction(text, i); end > i {
			return end
		}
	}
	j := i
	if c == ' ' && i+1 < len(text) {
		j++
		k, n = digitsAt(text, j)
	}
	switch {
	case k&ucd.Letter != 0:
		return letters(text, j+n, ucd.Letter)
	case k&(ucd.Space|ucd.Number) == 0:
		for j += n; j < len(text); j += n {
			if k, n = digitsAt(text, j); k&(ucd.Space|ucd.Letter|ucd.Number) != 0 {
				break
			}
		}
		return j
	}
	end, last, _ := blanks(text, i)
	if end == len(text) || last == i {
		return end
	}
	if k, _ := digitsAt(text, end); k&ucd.Number != 0 {
		return end
	}
	return last
}

// digitsAt is at, with everything that isNumeric knows in the class Number.
func digitsAt(text []byte, i int) (ucd.Class, int) {
	if c := text[i]; c < utf8.RuneSelf {
		return ucd.ASCII[c], 1
	}
	r, n := decode(text[i:])
	if isNumeric(r) {
		return ucd.Number, n
	}
	return ucd.Of(r), n
}
