package simserver

import "unicode/utf8"

// stopString is a stop string made ready for matching byte by byte.
type stopString struct {
	text string
	// fail[n] is the length of the longest proper prefix of text that ends
	// text[:n]: where a match that has come n bytes far can go on.
	fail []int
}

func newStopString(s string) stopString {
	p := stopString{text: s, fail: make([]int, len(s)+1)}
	for n, k := 1, 0; n < len(s); n++ {
		for k > 0 && s[n] != s[k] {
			k = p.fail[k]
		}
		if s[n] == s[k] {
			k++
		}
		p.fail[n+1] = k
	}
	return p
}

// step returns how far a match has come after b when it was at n.
func (p *stopString) step(n int, b byte) int {
	for n > 0 && (n == len(p.text) || p.text[n] != b) {
		n = p.fail[n]
	}
	if p.text[n] == b {
		n++
	}
	return n
}

// stopFilter looks for stop strings in the text of one choice. It holds back the
// longest end of the text that is the beginning of a stop string, since what has
// been sent cannot be taken back.
type stopFilter struct {
	strings []stopString
	include bool  // a stop string is part of the output: nothing needs holding
	at      []int // how far each string has come
	held    []byte
}

// write takes more text and appends what can be sent to dst. When a stop string
// is complete it returns its index and drops the rest, otherwise -1. Of two that
// complete at the same byte the first in the list counts.
func (f *stopFilter) write(dst, text []byte) ([]byte, int) {
	if len(f.strings) == 0 {
		return append(dst, text...), -1
	}
	for _, b := range text {
		f.held = append(f.held, b)
		keep := 0
		for i := range f.strings {
			s := &f.strings[i]
			f.at[i] = s.step(f.at[i], b)
			if f.at[i] == len(s.text) {
				n := len(f.held)
				if !f.include {
					n -= len(s.text)
				}
				return append(dst, f.held[:n]...), i
			}
			keep = max(keep, f.at[i])
		}
		if f.include {
			keep = 0
		}
		free := len(f.held) - keep
		dst = append(dst, f.held[:free]...)
		f.held = f.held[:copy(f.held, f.held[free:])]
	}
	return dst, -1
}

// flush appends what was held back.
func (f *stopFilter) flush(dst []byte) []byte {
	dst = append(dst, f.held...)
	f.held = f.held[:0]
	return dst
}

// joiner puts bytes together to characters. The first byte of an answer may
// complete a character that the prompt began; the answer then has all of it,
// since nobody has printed it yet.
type joiner struct {
	pending [utf8.UTFMax]byte
	n       int
	prompt  int // how many of the pending bytes are the prompt's
}

// prime takes over the character that the prompt left unfinished.
func (j *joiner) prime(prompt []uint32) {
	*j = joiner{}
	var tail []byte
	for _, id := range prompt[max(0, len(prompt)-utf8.UTFMax+1):] {
		if id >= 256 {
			tail = tail[:0]
			continue
		}
		tail = append(tail, byte(id))
	}
	for i, b := range tail {
		if utf8.RuneStart(b) && b >= utf8.RuneSelf && !utf8.FullRune(tail[i:]) {
			j.n = copy(j.pending[:], tail[i:])
			j.prompt = j.n
			return
		}
	}
}

// write takes one more byte and appends the characters that are complete to dst.
// What cannot become one is U+FFFD.
func (j *joiner) write(dst []byte, b byte) []byte {
	if j.n == 0 && b < utf8.RuneSelf {
		return append(dst, b)
	}
	j.pending[j.n] = b
	j.n++
	for j.n > 0 && utf8.FullRune(j.pending[:j.n]) {
		_, size := utf8.DecodeRune(j.pending[:j.n])
		dst = j.take(dst, size)
	}
	return dst
}

// flush appends what is left when no more bytes come.
func (j *joiner) flush(dst []byte) []byte {
	for j.n > 0 {
		dst = j.take(dst, 1)
	}
	return dst
}

// take appends the first size pending bytes, a character or an invalid byte.
func (j *joiner) take(dst []byte, size int) []byte {
	whole := j.pending[:size]
	switch {
	case utf8.Valid(whole):
		dst = append(dst, whole...)
	case j.prompt == 0: // the prompt's own stray bytes are not the answer's
		dst = utf8.AppendRune(dst, utf8.RuneError)
	}
	j.n = copy(j.pending[:], j.pending[size:j.n])
	j.prompt = max(0, j.prompt-size)
	return dst
}
