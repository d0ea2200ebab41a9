package split

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/ucd"
)

// nextO200k splits as GPT-4o, gpt-oss and Llama 4 do.
func nextO200k(text []byte, i int) int {
	return nextCased(text, i, 0, 3, true /* contract */, true /* slash */)
}

// nextTekken splits as Mistral Nemo and its successors do.
func nextTekken(text []byte, i int) int {
	return nextCased(text, i, 0, 1, false /* contract */, true /* slash */)
}

// nextKimi splits as Kimi K2 does: runs of Han stand alone.
func nextKimi(text []byte, i int) int {
	if text[i] >= utf8.RuneSelf {
		if end := run(text, i, ucd.Han); end > i {
			return end
		}
	}
	return nextCased(text, i, ucd.Han, 3, true /* contract */, false /* slash */)
}

// nextCased returns the end of the piece at i by the rules
//
//	[^\r\n\p{L}\p{N}]?U*W+C?
//	[^\r\n\p{L}\p{N}]?U+W*C?
//	\p{N}{1,digits}
//	 ?[^\s\p{L}\p{N}]+[\r\n]*
//	\s*[\r\n]+|\s+(?!\S)|\s+
//
// with U the class Upper and W the class Lower without runes of not, C an optional
// contraction if wanted, and [\r\n/]* in place of [\r\n]* if slash.
//
// U and W overlap in what has no case, so U* has to give back for W+ to match: it
// gives back to the last rune of its run that is in W too.
func nextCased(text []byte, i int, not ucd.Class, digits int, contract, slash bool) int {
	k, n := at(text, i)
	from := i
	if k&(ucd.NewLine|ucd.Letter|ucd.Number) == 0 {
		from = i + n
	}
	if from < len(text) && text[from]-'a' < 26 {
		end := lowers(text, from+1, not)
		if contract && end < len(text) && text[end] == '\'' {
			return contraction(text, end)
		}
		return end
	}
	upper, shared := from, 0 // end of the run of U, and of its last rune in W
	after := ucd.Class(0)    // classes of the rune behind the run
	for upper < len(text) {
		kk, nn := at(text, upper)
		if kk&not != 0 {
			break
		}
		if kk&ucd.Upper == 0 {
			after = kk
			break
		}
		upper += nn
		if kk&ucd.Lower != 0 {
			shared = upper
		}
	}
	var end int
	switch {
	case after&ucd.Lower != 0:
		end = lowers(text, upper, not)
	case shared > 0:
		end = shared
	case from > i && k&ucd.Mark != 0:
		end = from // the mark is no prefix then, but a word
	case upper > from:
		end = upper
	default:
		return rest(text, i, k, n, ucd.Letter, digits, slash)
	}
	if contract {
		return contraction(text, end)
	}
	return end
}

// lowers returns the end of the run from i of runes in Lower and not in not.
func lowers(text []byte, i int, not ucd.Class) int {
	for {
		i = asciiLowers(text, i)
		if i == len(text) || text[i] < utf8.RuneSelf {
			return i
		}
		for i < len(text) && text[i] >= utf8.RuneSelf {
			r, n := decode(text[i:])
			if k := ucd.Of(r); k&ucd.Lower == 0 || k&not != 0 {
				return i
			}
			i += n
		}
	}
}

// asciiLowers returns the end of the run of a-z from i.
func asciiLowers(text []byte, i int) int {
	for ; len(text)-i >= 8; i += 8 {
		if m := nonLower(binary.LittleEndian.Uint64(text[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	for i < len(text) && text[i]-'a' < 26 {
		i++
	}
	return i
}
