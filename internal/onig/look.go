package onig

import (
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/ucd"
)

// ahead tells whether the text from pos on matches a scope.
func (m *Matcher) ahead(x int32, pos int) bool {
	sc, mem := m.re.scopes[x], &m.memos[x]
	if sc.bits > 0 && mem.set(pos, 0) {
		return mem.has(pos, 1)
	}
	_, ok := m.run(sc, mem, pos, len(m.text))
	if ok && sc.bits > 0 {
		mem.set(pos, 1)
	}
	return ok
}

// behind tells whether some text that ends at pos matches a scope.
func (m *Matcher) behind(x int32, pos int) bool {
	sc, mem := m.re.scopes[x], &m.memos[x]
	if sc.bits > 0 {
		mem.reset(max(0, m.back(pos, sc.max)))
	}
	start := m.back(pos, sc.min)
	for n := sc.min; start >= 0 && n <= sc.max; n++ {
		if n > sc.min {
			if start = m.back(start, 1); start < 0 {
				break
			}
		}
		if _, ok := m.run(sc, mem, start, pos); ok {
			return true
		}
	}
	return false
}

// back returns the position n characters before pos, -1 when there is none.
func (m *Matcher) back(pos, n int) int {
	for ; n > 0; n-- {
		if pos == 0 {
			return -1
		}
		_, size := utf8.DecodeLastRune(m.text[:pos])
		pos -= size
	}
	return pos
}

// assert tells whether a condition holds at pos.
func (m *Matcher) assert(a anchor, pos int) bool {
	text := m.text
	switch a {
	case beginText:
		return pos == 0
	case endText:
		return pos == len(text)
	case endTextOrLine:
		return pos == len(text) || pos == len(text)-1 && text[pos] == '\n'
	case beginLine:
		return pos == 0 || pos < len(text) && text[pos-1] == '\n'
	case endLine:
		return pos == len(text) || text[pos] == '\n'
	}
	ascii := a >= wordBoundaryASCII
	before, after := false, false
	if pos > 0 {
		r, _ := utf8.DecodeLastRune(text[:pos])
		before = isWord(r, ascii)
	}
	if pos < len(text) {
		r, _ := utf8.DecodeRune(text[pos:])
		after = isWord(r, ascii)
	}
	boundary := before != after
	return boundary == (a == wordBoundary || a == wordBoundaryASCII)
}

func isWord(r rune, ascii bool) bool {
	return ucd.Of(r)&ucd.Word != 0 && (!ascii || r < utf8.RuneSelf)
}
