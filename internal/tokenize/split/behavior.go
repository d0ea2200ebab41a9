package split

import (
	"bytes"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/onig"
)

// A finder yields the matches of a pattern in a text: in order, without overlap,
// possibly empty, until yield returns false.
type finder interface {
	all(text []byte, yield func(start, end int) bool)
}

// regex finds what a regular expression matches.
type regex struct{ re *onig.Regexp }

func (f regex) all(text []byte, yield func(start, end int) bool) { f.re.All(text, yield) }

// scanner finds one match after the other; there is nothing between them.
type scanner func(text []byte, i int) int

func (f scanner) all(text []byte, yield func(start, end int) bool) {
	for i := 0; i < len(text); {
		end := f(text, i)
		if !yield(i, end) {
			return
		}
		i = end
	}
}

// literal finds a string. The empty string is at every boundary of a rune.
type literal []byte

func (f literal) all(text []byte, yield func(start, end int) bool) {
	for i := 0; i <= len(text); {
		at := bytes.Index(text[i:], f)
		if at < 0 || !yield(i+at, i+at+len(f)) {
			return
		}
		i += at + len(f)
		if len(f) > 0 {
			continue
		}
		if i == len(text) {
			return
		}
		_, n := utf8.DecodeRune(text[i:])
		i += n
	}
}

// runes finds every rune of a kind, each by itself.
type runes func(r rune) bool

func (f runes) all(text []byte, yield func(start, end int) bool) {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if f(r) && !yield(i, i+n) {
			return
		}
		i += n
	}
}

// words finds runs of word characters, and runs of what is neither of them nor
// white space.
type words struct{}

func (words) all(text []byte, yield func(start, end int) bool) {
	const none, word, other = 0, 1, 2
	start, kind := 0, none
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		k := other
		if IsWord(r) {
			k = word
		} else if isSpace(r) {
			k = none
		}
		if k != kind {
			if kind != none && !yield(start, i) {
				return
			}
			start, kind = i, k
		}
		i += n
	}
	if kind != none {
		yield(start, len(text))
	}
}

// behavior says what becomes of matches and of the text between them.
type behavior uint8

const (
	removed            behavior = iota // matches are left out
	isolated                           // every match is a piece
	mergedWithPrevious                 // a match is the end of the piece before it
	mergedWithNext                     // a match is the start of the piece after it
	contiguous                         // neighbouring matches are one piece
)

// behaviors has the names that files use.
var behaviors = map[string]behavior{
	"Removed":            removed,
	"Isolated":           isolated,
	"MergedWithPrevious": mergedWithPrevious,
	"MergedWithNext":     mergedWithNext,
	"Contiguous":         contiguous,
}

// cutter cuts pieces at what finder finds in them. With invert, the matches are what
// lies between.
type cutter struct {
	finder
	behavior
	invert bool
}

// merger makes pieces of the matches in a text and of what lies between them.
type merger struct {
	behavior
	invert bool
	emit   func(start, end int) // takes the pieces, none of them empty

	seen       int  // the text up to here has been added
	start, end int  // the piece that is open
	open       bool // there is one
	match      bool // the last part was a match
}

// found takes the next match.
func (m *merger) found(start, end int) bool {
	if m.seen < start {
		m.add(m.seen, start, m.invert)
	}
	m.add(start, end, !m.invert)
	m.seen = end
	return true
}

// finish takes the end of the text and makes ready for another.
func (m *merger) finish(end int) {
	if m.seen < end {
		m.add(m.seen, end, m.invert)
	}
	m.flush()
	m.seen, m.match = 0, false
}

// add takes the next part of the text.
func (m *merger) add(start, end int, match bool) {
	join := false
	switch m.behavior {
	case removed:
		if !match && start < end {
			m.emit(start, end)
		}
		return
	case mergedWithPrevious:
		join = m.open && match && !m.match
	case mergedWithNext:
		join = m.open && !match && m.match
	case contiguous:
		join = m.open && match == m.match
	}
	if !join {
		m.flush()
		m.start, m.open = start, true
	}
	m.end, m.match = end, match
}

// flush closes the piece that is open.
func (m *merger) flush() {
	if m.open && m.start < m.end {
		m.emit(m.start, m.end)
	}
	m.open = false
}
