package split

import (
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/ucd"
)

// nextLlama3 splits as Llama 3, GPT-4, Phi-4 and GLM-4 do.
func nextLlama3(text []byte, i int) int { return nextWord(text, i, ucd.Letter, 3) }

// nextQwen2 splits as Qwen 2, 2.5 and 3 do: every digit by itself.
func nextQwen2(text []byte, i int) int { return nextWord(text, i, ucd.Letter, 1) }

// nextQwen35 splits as Qwen 3.5 does: marks belong to words.
func nextQwen35(text []byte, i int) int { return nextWord(text, i, ucd.Letter|ucd.Mark, 1) }

// nextWord returns the end of the piece at i by the rules
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)
//	[^\r\n\p{L}\p{N}]?L+
//	\p{N}{1,digits}
//	 ?[^\s\p{N}L]+[\r\n]*
//	\s*[\r\n]+|\s+(?!\S)|\s+
//
// with L the class letter: Letter, or Letter and Mark.
func nextWord(text []byte, i int, letter ucd.Class, digits int) int {
	c := text[i]
	if isLetter(c) {
		return letters(text, i+1, letter)
	}
	j := i + 1
	k := ucd.Class(0)
	if c < utf8.RuneSelf {
		if j < len(text) && isLetter(text[j]) && c != '\'' && c != '\n' && c != '\r' && c-'0' > 9 {
			return letters(text, j+1, letter)
		}
		if c == '\'' {
			if end := contraction(text, i); end > i {
				return end
			}
		}
		k = ucd.ASCII[c]
	} else {
		r, n := decode(text[i:])
		j, k = i+n, ucd.Of(r)
	}
	if k&letter != 0 {
		return letters(text, j, letter)
	}
	if k&(ucd.NewLine|ucd.Number) == 0 && j < len(text) {
		if k, n := at(text, j); k&letter != 0 {
			return letters(text, j+n, letter)
		}
	}
	return rest(text, i, k, j-i, letter, digits, false)
}
