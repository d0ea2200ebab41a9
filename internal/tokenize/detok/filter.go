package detok

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// filter is what one decoder of a chain does after the tokens were joined: to a text
// that comes in parts, cut between characters. Its state is kept by the stream.
type filter interface {
	// begin prepares the state for a new text.
	begin(st *filterState)
	// write takes more text and appends what has become final to dst.
	write(st *filterState, dst, text []byte) []byte
	// end appends what was held back.
	end(st *filterState, dst []byte) []byte
}

// filterState is the state of one filter in one stream.
type filterState struct {
	n    int // strip: how many may still be cut at the start; search: bytes matched; byteText: 1 past deciding
	tail int // strip: how many are held back at the end
	buf  []byte
	held []byte
}

// search is replace on a text that comes in parts. What it holds back is the
// beginning of the string that is looked for.
type search struct {
	old, content string
	// fail[n] is the length of the longest proper prefix of old that ends
	// old[:n].
	fail []int
}

func newSearch(old, content string) search {
	f := search{old: old, content: content, fail: make([]int, len(old)+1)}
	for n, k := 1, 0; n < len(old); n++ {
		for k > 0 && old[n] != old[k] {
			k = f.fail[k]
		}
		if old[n] == old[k] {
			k++
		}
		f.fail[n+1] = k
	}
	return f
}

func (search) begin(*filterState) {}

func (f search) write(st *filterState, dst, text []byte) []byte {
	for len(text) > 0 {
		if st.n == 0 {
			i := bytes.IndexByte(text, f.old[0])
			if i < 0 {
				return append(dst, text...)
			}
			dst = append(dst, text[:i]...)
			text = text[i:]
		}
		for st.n > 0 && f.old[st.n] != text[0] {
			next := f.fail[st.n]
			dst = append(dst, f.old[:st.n-next]...)
			st.n = next
		}
		switch {
		case f.old[st.n] != text[0]:
			dst = append(dst, text[0])
		case st.n+1 == len(f.old):
			dst = append(dst, f.content...)
			st.n = 0
		default:
			st.n++
		}
		text = text[1:]
	}
	return dst
}

func (f search) end(st *filterState, dst []byte) []byte {
	return append(dst, f.old[:st.n]...)
}

func (d strip) begin(st *filterState) { st.n = d.start }

func (d strip) write(st *filterState, dst, text []byte) []byte {
	for ; st.n > 0 && bytes.HasPrefix(text, []byte(d.char)); st.n-- {
		text = text[len(d.char):]
	}
	if len(text) == 0 {
		return dst
	}
	st.n = 0
	body := text
	tail := 0
	for ; tail < d.stop && bytes.HasSuffix(body, []byte(d.char)); tail++ {
		body = body[:len(body)-len(d.char)]
	}
	if len(body) > 0 { // what was held is not the end
		dst = append(d.appendChars(dst, st.tail), body...)
		st.tail = tail
		return dst
	}
	extra := max(0, st.tail+tail-d.stop)
	st.tail += tail - extra
	return d.appendChars(dst, extra)
}

func (strip) end(_ *filterState, dst []byte) []byte { return dst }

func (d strip) appendChars(dst []byte, n int) []byte {
	for range n {
		dst = append(dst, d.char...)
	}
	return dst
}

// byteText is byteFallback on a joined text: it matters only when the whole text is
// the spelling of a byte.
type byteText struct{}

func (byteText) begin(*filterState) {}

func (byteText) write(st *filterState, dst, text []byte) []byte {
	if st.n == 1 {
		return append(dst, text...)
	}
	st.held = append(st.held, text...)
	if len(st.held) <= len("<0x00>") && strings.HasPrefix("<0x", string(st.held[:min(3, len(st.held))])) {
		return dst
	}
	st.n = 1
	return append(dst, st.held...)
}

func (byteText) end(st *filterState, dst []byte) []byte {
	if st.n == 1 {
		return dst
	}
	b, ok := byteToken(st.held)
	switch {
	case !ok:
		return append(dst, st.held...)
	case b >= utf8.RuneSelf:
		return append(dst, replacement...)
	}
	return append(dst, b)
}

// wholeText applies a mapper that needs all of the text.
type wholeText struct{ mapper }

func (wholeText) begin(*filterState) {}

func (wholeText) write(st *filterState, dst, text []byte) []byte {
	st.held = append(st.held, text...)
	return dst
}

func (f wholeText) end(st *filterState, dst []byte) []byte {
	return f.apply(dst, st.held, true)
}

// byteAlphabetText is the byte alphabet on a joined text.
type byteAlphabetText struct{}

func (byteAlphabetText) apply(dst, text []byte, _ bool) []byte {
	var j joiner
	return j.flush(j.write(dst, AppendBytes(nil, string(text))))
}
