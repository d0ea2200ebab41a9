package normal

import (
	"sync"
	"unicode/utf8"
)

// mark is a character on its way into a form: the code point in the lower 21
// bits, markCombines if it may compose with one before it, and its combining
// class in the upper byte. A byte that is not UTF-8 has a code point from
// rawByte on.
type mark uint32

const (
	runeMask     mark = 1<<21 - 1
	markCombines mark = 1 << 21
	rawByte           = utf8.MaxRune + 1
)

func (m mark) rune() rune   { return rune(m & runeMask) }
func (m mark) class() uint8 { return uint8(m >> 24) }

// work is the memory that bringing a segment into form needs.
type work struct {
	buf   []mark // taken apart, not yet in order
	spare []mark // for sorting
	out   []byte // in form
}

var workPool = sync.Pool{New: func() any { return new(work) }}

// release gives the memory back.
func (w *work) release() {
	if 4*cap(w.buf)+4*cap(w.spare)+cap(w.out) <= maxPooled {
		workPool.Put(w)
	}
}

// segment brings the text from at up to the next character that does not
// interact with what precedes it into form f. It leaves the result in w.out and
// returns where the segment ends.
func (w *work) segment(f form, src []byte, at int) int {
	w.buf, w.out = w.buf[:0], w.out[:0]
	care := uint16(1) << (formShift + f)
	i := at
	for i < len(src) {
		v, n := lookup(src[i:])
		if i > at && v&care == 0 {
			break
		}
		w.add(f, src[i:i+n], v)
		i += n
	}
	w.flush(f)
	return i
}

// add takes one character apart. Its value in the trie is v.
func (w *work) add(f form, char []byte, v uint16) {
	r, n := utf8.DecodeRune(char)
	if n < len(char) || r == utf8.RuneError && n == 1 {
		for _, b := range char {
			w.push(f, rawByte+rune(b), 0)
		}
		return
	}
	if r >= hangulBase && r < hangulBase+hangulCount {
		w.addHangul(f, r-hangulBase)
		return
	}
	d := records[v&indexMask].decomposition(f)
	if d == "" {
		w.push(f, r, v)
		return
	}
	for _, r := range d {
		w.push(f, r, valueOf(uint32(r)))
	}
}

// push appends a character that stays one. What is before it is finished when it
// starts something new.
func (w *work) push(f form, r rune, v uint16) {
	rec := &records[v&indexMask]
	m := mark(r) | mark(rec.class)<<24
	if rec.flags&flagCombines != 0 {
		m |= markCombines
	}
	if rec.class == 0 && !(f.composes() && m&markCombines != 0) && len(w.buf) > 0 {
		w.flush(f)
	}
	w.buf = append(w.buf, m)
}

// flush moves what is in the buffer to the output, in form.
func (w *work) flush(f form) {
	w.reorder()
	if f.composes() {
		w.compose()
	}
	for _, m := range w.buf {
		if r := m.rune(); r < rawByte {
			w.out = utf8.AppendRune(w.out, r)
		} else {
			w.out = append(w.out, byte(r-rawByte))
		}
	}
	w.buf = w.buf[:0]
}

// reorder sorts every run of characters with a combining class by that class,
// equal ones in the order they came.
func (w *work) reorder() {
	for i := 0; i < len(w.buf); {
		if w.buf[i].class() == 0 {
			i++
			continue
		}
		sorted := true
		j := i + 1
		for ; j < len(w.buf) && w.buf[j].class() != 0; j++ {
			sorted = sorted && w.buf[j-1].class() <= w.buf[j].class()
		}
		if !sorted {
			w.sort(w.buf[i:j])
		}
		i = j
	}
}

// sort sorts by class: by insertion what text has, by counting what an attacker
// sends.
func (w *work) sort(run []mark) {
	if len(run) <= 24 {
		for i := 1; i < len(run); i++ {
			m := run[i]
			j := i
			for ; j > 0 && run[j-1].class() > m.class(); j-- {
				run[j] = run[j-1]
			}
			run[j] = m
		}
		return
	}
	var place [256]int
	for _, m := range run {
		place[m.class()]++
	}
	sum := 0
	for class, n := range place {
		place[class] = sum
		sum += n
	}
	w.spare = append(w.spare[:0], run...)
	for _, m := range w.spare {
		run[place[m.class()]] = m
		place[m.class()]++
	}
}

// compose replaces, in place, a starter and a later character by their composite
// as long as nothing between them is in the way: whatever stands there has a
// lower class than the later character, and one above 0.
func (w *work) compose() {
	starter := -1 // index of the last starter that stays
	between := -1 // class of the last character that stays after it, -1 for none
	kept := 0
	for _, m := range w.buf {
		class := int(m.class())
		if m&markCombines != 0 && starter >= 0 && between < class {
			if c, ok := composite(w.buf[starter].rune(), m.rune()); ok {
				w.buf[starter] = mark(c)
				continue
			}
		}
		if class == 0 {
			starter, between = kept, -1
		} else {
			between = class
		}
		w.buf[kept] = m
		kept++
	}
	w.buf = w.buf[:kept]
}

// composite returns the primary composite of two characters, if there is one.
func composite(first, second rune) (rune, bool) {
	if c, ok := composeHangul(first, second); ok {
		return c, true
	}
	const size = len(pairs)
	key := uint64(first)<<21 | uint64(second)
	for h := key * 0x9E3779B97F4A7C15 >> 53; ; h = (h + 1) % uint64(size) {
		switch p := pairs[h]; {
		case p == 0:
			return 0, false
		case p>>21 == key:
			return rune(p & (1<<21 - 1)), true
		}
	}
}

// Hangul syllables are numbered by their leading consonant, vowel and trailing
// consonant, of which the first is none.
const (
	hangulBase  = 0xAC00
	leadBase    = 0x1100
	vowelBase   = 0x1161
	trailBase   = 0x11A7
	leadCount   = 19
	vowelCount  = 21
	trailCount  = 28
	hangulCount = leadCount * vowelCount * trailCount
)

// addHangul takes a syllable apart, given its number.
func (w *work) addHangul(f form, s rune) {
	for _, r := range [3]rune{
		leadBase + s/(vowelCount*trailCount),
		vowelBase + s/trailCount%vowelCount,
		trailBase + s%trailCount,
	} {
		if r != trailBase {
			w.push(f, r, valueOf(uint32(r)))
		}
	}
}

// composeHangul composes a leading consonant and a vowel, or a syllable without a
// trailing consonant and one.
func composeHangul(first, second rune) (rune, bool) {
	if l, v := first-leadBase, second-vowelBase; 0 <= l && l < leadCount && 0 <= v && v < vowelCount {
		return hangulBase + (l*vowelCount+v)*trailCount, true
	}
	if s, t := first-hangulBase, second-trailBase; 0 <= s && s < hangulCount && s%trailCount == 0 && 0 < t && t < trailCount {
		return first + t, true
	}
	return 0, false
}
