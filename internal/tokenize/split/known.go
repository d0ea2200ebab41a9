package split

import "bytes"

const contractions = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`

const (
	spaces   = `\s+(?!\S)|\s+`
	lineEnds = `\s*[\r\n]+|` + spaces

	upperSet = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
	lowerSet = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
	upperHan = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]`
	lowerHan = `[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]`
	prefix   = `[^\r\n\p{L}\p{N}]?`
)

// Kimi is the pattern of the Kimi models. Their files do not have it.
const Kimi = `[\p{Han}]+|` +
	prefix + upperHan + `*` + lowerHan + `+` + contractions + `?|` +
	prefix + upperHan + `+` + lowerHan + `*` + contractions + `?|` +
	`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + lineEnds

// The patterns of the known families, as their files spell them.
const (
	patternGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|` + spaces
	patternLlama3 = contractions + `|` + prefix + `\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + lineEnds
	patternQwen2  = contractions + `|` + prefix + `\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + lineEnds
	patternQwen35 = contractions + `|` + prefix + `[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|` + lineEnds

	patternO200k = prefix + upperSet + `*` + lowerSet + `+` + contractions + `?|` +
		prefix + upperSet + `+` + lowerSet + `*` + contractions + `?|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|` + lineEnds
	patternTekken = prefix + upperSet + `*` + lowerSet + `+|` +
		prefix + upperSet + `+` + lowerSet + `*|` +
		`\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|` + lineEnds

	patternDeepSeek1 = `\p{N}{1,3}`
	patternDeepSeek2 = `[一-龥぀-ゟ゠-ヿ]+`
	patternDeepSeek3 = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|" + spaces

	// tiktoken's own spelling of what Llama 3 has: possessive where it cannot matter.
	patternCl100k = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|` + spaces
)

// family is a pattern that has a scanner.
type family struct {
	pattern string
	next    scanner
	cuts    Cut
}

// families are the patterns whose matches cover every text.
var families = [...]family{
	{patternGPT2, nextGPT2, CutLetterSpaceLetter},
	{patternLlama3, nextLlama3, CutLetterSpaceLetter | CutNewlineNonSpace},
	{patternCl100k, nextLlama3, CutLetterSpaceLetter | CutNewlineNonSpace},
	{patternQwen2, nextQwen2, CutLetterSpaceLetter | CutNewlineNonSpace},
	{patternQwen35, nextQwen35, CutLetterSpaceLetter | CutNewlineNonSpace},
	{patternO200k, nextO200k, CutLetterSpaceLetter | CutNewlineNonSpace | CutNotBeforeSlash},
	{patternTekken, nextTekken, CutLetterSpaceLetter | CutNewlineNonSpace | CutNotBeforeSlash},
	{Kimi, nextKimi, CutLetterSpaceLetter | CutNewlineNonSpace},
}

// known returns the family of a pattern.
func known(pattern string) (family, bool) {
	for _, f := range families {
		if f.pattern == pattern {
			return f, true
		}
	}
	return family{}, false
}

// cover returns one scanner for all the parts, when there is one.
func cover(parts []part) (next func(text []byte, i int) int, cuts Cut) {
	if n := len(parts); n > 0 && parts[n-1].byteLevel && !parts[n-1].regex && !parts[n-1].prefix {
		parts = parts[:n-1] // changes nothing but how pieces are looked at
	}
	switch len(parts) {
	case 0:
		return whole, 0
	case 1:
		switch p := parts[0]; {
		case p.byteLevel && p.regex && !p.prefix:
			return nextGPT2, CutLetterSpaceLetter
		case p.cut == nil:
			return nil, 0
		case p.pattern != "" && p.cut.keeps():
			if f, ok := known(p.pattern); ok {
				return f.next, f.cuts
			}
		default:
			if lit, ok := p.cut.finder.(literal); ok && len(lit) > 0 && !p.cut.invert {
				return lit.cover(p.cut.behavior), 0
			}
		}
	case 2:
		if d, b := parts[0], parts[1]; d.digits && d.cut.behavior == isolated && b.byteLevel && b.regex && !b.prefix {
			return nextGPT2Digits, CutLetterSpaceLetter
		}
	case 3:
		for i, pattern := range []string{patternDeepSeek1, patternDeepSeek2, patternDeepSeek3} {
			if p := parts[i]; p.pattern != pattern || p.cut.behavior != isolated {
				return nil, 0
			}
		}
		return nextDeepSeek, CutLetterSpaceLetter | CutNewlineNonSpace
	}
	return nil, 0
}

// keeps reports whether the pieces of c are the matches, when these cover the text.
func (c *cutter) keeps() bool {
	switch c.behavior {
	case removed:
		return c.invert
	case contiguous:
		return false
	}
	return true
}

// whole is the scanner of a plan that cuts nothing.
func whole(text []byte, _ int) int { return len(text) }

// cover returns the scanner for a cut at f, nil where the pieces do not cover the
// text. A boundary is always the start or the end of a match, so that looking from
// there on finds the same matches.
func (f literal) cover(b behavior) func(text []byte, i int) int {
	// until returns the start of the first match from i on, or the end of the text.
	until := func(text []byte, i int) int {
		if at := bytes.Index(text[i:], f); at >= 0 {
			return i + at
		}
		return len(text)
	}
	switch b {
	case isolated:
		return func(text []byte, i int) int {
			if bytes.HasPrefix(text[i:], f) {
				return i + len(f)
			}
			return until(text, i)
		}
	case mergedWithPrevious:
		return func(text []byte, i int) int { return min(until(text, i)+len(f), len(text)) }
	case mergedWithNext:
		return func(text []byte, i int) int {
			if bytes.HasPrefix(text[i:], f) {
				i += len(f)
			}
			return until(text, i)
		}
	case contiguous:
		return func(text []byte, i int) int {
			if !bytes.HasPrefix(text[i:], f) {
				return until(text, i)
			}
			for bytes.HasPrefix(text[i:], f) {
				i += len(f)
			}
			return i
		}
	}
	return nil
}
