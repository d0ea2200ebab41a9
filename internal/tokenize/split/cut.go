package split

import (
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/ucd"
)

// Cut is a set of rules that say where a text may be cut in two such that the pieces
// of the two parts are the pieces of the whole.
type Cut uint8

const (
	// CutLetterSpaceLetter allows to cut before an ASCII space that has a letter on
	// both sides.
	CutLetterSpaceLetter Cut = 1 << iota
	// CutNewlineNonSpace allows to cut after an LF that no white space follows.
	CutNewlineNonSpace
	// CutNotBeforeSlash takes from CutNewlineNonSpace the places where a slash
	// follows: the pattern lets it continue the piece of the LF.
	CutNotBeforeSlash
)

// SafeCuts returns the rules by which a text may be cut; none for a plan that knows
// of no such places.
func (p *Plan) SafeCuts() Cut { return p.cuts }

// At reports whether the rules allow to cut text before its i-th byte, so that both
// parts are not empty. It looks at the characters beside the cut alone.
func (c Cut) At(text []byte, i int) bool {
	if i <= 0 || i >= len(text) {
		return false
	}
	if text[i] == ' ' && c&CutLetterSpaceLetter != 0 && i+1 < len(text) {
		before, _ := utf8.DecodeLastRune(text[:i])
		if after, _ := at(text, i+1); ucd.Of(before)&after&ucd.Letter != 0 {
			return true
		}
	}
	if text[i-1] == '\n' && c&CutNewlineNonSpace != 0 {
		k, _ := at(text, i)
		return k&ucd.Space == 0 && (text[i] != '/' || c&CutNotBeforeSlash == 0)
	}
	return false
}
