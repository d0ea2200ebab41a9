package onig

import (
	"sync"
	"unicode/utf8"
)

// Regexp is a compiled pattern. It does not change and is safe for concurrent use.
type Regexp struct {
	src     string
	scopes  []*scope // the pattern itself, and its look-arounds
	classes []*class
	sets    []set // the same, to find them
	strings []string
	bytes   []byteSet
	first   int32 // what a match can begin with, in bytes
	atomics int   // number of atomic groups
	size    int   // see maxSize
	trails  bool  // memo points may have more than one bit
	pool    sync.Pool
}

// Compile returns the compiled form of a pattern in Oniguruma syntax. Its error is a
// *SyntaxError, and an ErrUnsupported if Oniguruma would have taken the pattern.
func Compile(pattern string) (re *Regexp, err error) {
	n, err := parse(pattern)
	if err != nil {
		return nil, err
	}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *SyntaxError:
			re, err = nil, e
		default:
			panic(e)
		}
	}()
	re = &Regexp{src: pattern, bytes: make([]byteSet, 1)}
	main := new(scope)
	re.addScope(main)
	re.scope(n, main, false)
	re.first = re.firstOf(main, 0)
	for _, sc := range re.scopes {
		for i := range sc.memos {
			re.trails = re.trails || sc.stride(&sc.memos[i]) > 1
		}
	}
	return re, nil
}

func (re *Regexp) addScope(sc *scope) int32 {
	re.scopes = append(re.scopes, sc)
	return int32(len(re.scopes) - 1)
}

// String returns the pattern.
func (re *Regexp) String() string { return re.src }

// Find returns where the leftmost match lies that begins at at, which must be the
// beginning of a character, or later. Look-behind and anchors see the whole text.
//
// The search remembers nothing for the next one. To find several matches in a text
// use All or a Matcher.
func (re *Regexp) Find(text []byte, at int) (start, end int, ok bool) {
	m := re.get(text)
	start, end, ok = m.Find(at)
	re.put(m)
	return start, end, ok
}

// All calls yield for every match from left to right, until it returns false. The
// matches do not overlap, and an empty one does not begin where the one before ends.
// The time is linear in the text.
func (re *Regexp) All(text []byte, yield func(start, end int) bool) {
	m := re.get(text)
	defer re.put(m)
	last := -1
	for at := 0; at <= len(text); {
		start, end, ok := m.Find(at)
		if !ok {
			return
		}
		if start == end && end == last {
			at += m.width(at)
			continue
		}
		if !yield(start, end) {
			return
		}
		at, last = end, end
	}
}

func (re *Regexp) get(text []byte) *Matcher {
	m, ok := re.pool.Get().(*Matcher)
	if !ok {
		return re.Matcher(text)
	}
	m.Reset(text)
	return m
}

func (re *Regexp) put(m *Matcher) {
	const keep = 1 << 16
	if cap(m.stack) > keep || cap(m.trail) > keep {
		return
	}
	m.text = nil
	re.pool.Put(m)
}

// Matcher finds matches in one text and remembers what it found out about it, so
// that all searches together are linear in the text as long as they go from left to
// right. It is not safe for concurrent use.
type Matcher struct {
	re      *Regexp
	text    []byte
	from    int // memory is right for searches from here on
	page    int // what the memories start with
	memos   []memo
	stack   []frame
	trail   []step
	trailAt []int // the length of the trail at each frame
	marks   []mark
}

// mark is the height of stack and trail where an atomic group began.
type mark struct{ stack, trail int }

// Matcher returns a new Matcher for a text, which must not change while it is used.
func (re *Regexp) Matcher(text []byte) *Matcher {
	m := &Matcher{
		re:    re,
		text:  text,
		memos: make([]memo, len(re.scopes)),
		marks: make([]mark, re.atomics),
	}
	for i, sc := range re.scopes {
		m.memos[i].stride = (sc.bits + 7) / 8
	}
	return m
}

// Reset makes m find matches in another text.
func (m *Matcher) Reset(text []byte) {
	m.text = text
	m.forget(0)
}

// forget drops what is known of the text, for searches from a position on.
func (m *Matcher) forget(at int) {
	m.from, m.page = at, at>>pageShift
	for i := range m.memos {
		m.memos[i].reset(at)
	}
}

// Find is Regexp.Find for the text of m.
func (m *Matcher) Find(at int) (start, end int, ok bool) {
	if at < 0 || at > len(m.text) {
		return 0, 0, false
	}
	if at < m.from {
		m.forget(at)
	}
	re := m.re
	main, mem, first := re.scopes[0], &m.memos[0], &re.bytes[re.first]
	for {
		if re.first != 0 {
			for at < len(m.text) && !first.has(m.text[at]) {
				at += m.width(at)
			}
			if at == len(m.text) {
				return 0, 0, false
			}
		}
		if page := at >> pageShift; page != m.page {
			m.advance(at)
		}
		if end, ok := m.run(main, mem, at, len(m.text)); ok {
			// What led to the match did not fail, so it must not be remembered as
			// if it had. It lies no further than the end of the match.
			if main.bits > 0 {
				mem.clear(end)
			}
			m.from = end
			return at, end, true
		}
		if at == len(m.text) {
			return 0, 0, false
		}
		at += m.width(at)
	}
}

// advance forgets what lies before at.
func (m *Matcher) advance(at int) {
	m.page = at >> pageShift
	for i, sc := range m.re.scopes {
		if sc.bits > 0 && sc.max == 0 {
			m.memos[i].start(at)
		}
	}
}

// width returns the length of the character at a position, 1 at the end.
func (m *Matcher) width(at int) int {
	if at < len(m.text) && m.text[at] >= utf8.RuneSelf {
		_, n := utf8.DecodeRune(m.text[at:])
		return n
	}
	return 1
}
