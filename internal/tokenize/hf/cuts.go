package hf

import (
	"strings"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/split"
)

// findCuts marks the added tokens after which a text can be cut: the ids of both
// sides, encoded apart, are the ids of the whole, whatever follows the cut.
func (t *Tokenizer) findCuts() {
	var lstrip, rstrip bool
	for _, m := range t.passes {
		if m == nil {
			continue
		}
		for _, a := range m.tokens {
			if a.SingleWord { // looks at what stands before it
				return
			}
			lstrip, rstrip = lstrip || a.LStrip, rstrip || a.RStrip
		}
	}
	if !lstrip && !rstrip { // these take white space along that a soft cut is beside
		t.soft = t.softRules()
	}
	for pass, m := range t.passes {
		// A token of the first pass may take white space along that is one of the
		// second.
		if m == nil || pass == 1 && (t.norm != nil || lstrip) {
			continue
		}
		cuts := make([]bool, len(m.tokens))
		for i, a := range m.tokens {
			cuts[i] = !a.LStrip && !a.RStrip
		}
		if pass == 1 && t.passes[0] != nil {
			begins := t.passes[0].beginnings()
			for i, a := range m.tokens {
				cuts[i] = cuts[i] && !overlapped(a.Content, begins)
			}
		}
		// Where a longer token has another inside, what follows decides which
		// of them it is.
		for _, longer := range t.passes[:pass+1] {
			if longer == nil {
				continue
			}
			for _, a := range longer.tokens {
				m.inside(a.Content, func(token int) { cuts[token] = false })
			}
		}
		t.cuts[pass] = cuts
	}
}

// softRules returns the rules by which a text can be cut between two words: those of
// the plan, if the normalizer looks at characters one by one or at what combines with
// a letter, and no added token has such a place inside.
func (t *Tokenizer) softRules() split.Cut {
	if !t.plain || t.norm != nil && t.passes[1] != nil {
		return 0
	}
	if m := t.passes[0]; m != nil && !m.cutsApart() {
		return 0
	}
	if m := t.passes[1]; m != nil && !m.cutsApart() {
		return 0
	}
	if t.marksSpaces {
		if t.bpe != nil && t.bpe.joins != nil && t.whole { // pieces are cut before marks anyway
			return split.CutLetterSpaceLetter
		}
		return 0
	}
	return t.plan.SafeCuts()
}

// cutsApart reports whether no token has a space after something or something after
// a line feed.
func (m *matcher) cutsApart() bool {
	for _, a := range m.tokens {
		if c := a.Content; strings.Contains(c[1:], " ") || strings.Contains(c[:len(c)-1], "\n") {
			return false
		}
	}
	return true
}

// softAt reports whether text can be cut before its i-th byte, by the rules.
func (t *Tokenizer) softAt(text []byte, i int) bool {
	if !t.soft.At(text, i) || t.unknown != nil && t.unknown.beside(text, i) {
		return false
	}
	if t.bpe == nil || t.bpe.joins == nil {
		return true
	}
	before, _ := utf8.DecodeLastRune(text[:i])
	return t.bpe.joins.cuts(before, t.bpe.joins.mark)
}

// beginnings returns what tokens begin with and do not end with.
func (m *matcher) beginnings() map[string]bool {
	out := make(map[string]bool)
	for _, a := range m.tokens {
		for n := 1; n < len(a.Content); n++ {
			out[a.Content[:n]] = true
		}
	}
	return out
}

// overlapped reports whether a token with one of the beginnings can begin inside s
// and end after it. It would take its place, depending on what follows.
func overlapped(s string, begins map[string]bool) bool {
	for i := range len(s) {
		if begins[s[i:]] {
			return true
		}
	}
	return false
}

// softGap is how far soft cuts are apart at least. They are for long messages; most
// are cheaper to encode than to be looked up in parts.
const softGap = 4096

// Cuts implements [tokenize.Cutter]. Cuts come after added tokens, and where a
// message is long also between two words.
func (t *Tokenizer) Cuts(dst []tokenize.Cut, text []byte, from, gap int) []tokenize.Cut {
	s := t.states.get()
	defer t.states.put(s)
	at, last := from, from // the segment begins at the one, the other is the last cut
	hard := func(end int) {
		if end-last >= gap && end < len(text) {
			dst = append(dst, tokenize.Cut{At: end})
			last = end
		}
	}
	plain := func(end int) { // text between added tokens
		for i := max(at, last+softGap); t.soft != 0 && i+softGap < end; i++ {
			if t.softAt(text[:end], i) {
				dst = append(dst, tokenize.Cut{At: i, Soft: true})
				last = i
				i += softGap
			}
		}
		at = end
	}
	segment := func(end int) { // text between added tokens of the first pass
		if t.cuts[1] != nil && at < end {
			start := at
			s.matches[1] = t.passes[1].all(s.matches[1][:0], text[start:end])
			for _, m := range s.matches[1] {
				plain(start + m.start)
				at = start + m.end
				if t.cuts[1][m.token] {
					hard(at)
				}
			}
		}
		plain(end)
	}
	if m := t.passes[0]; m != nil {
		s.matches[0] = m.all(s.matches[0][:0], text[from:])
		for _, f := range s.matches[0] {
			segment(from + f.start)
			at = from + f.end
			if t.cuts[0] != nil && t.cuts[0][f.token] {
				hard(at)
			}
		}
	}
	segment(len(text))
	return dst
}

// Holds implements [tokenize.Cutter].
func (t *Tokenizer) Holds(text []byte, c tokenize.Cut) bool {
	return !c.Soft || t.softAt(text, c.At)
}
