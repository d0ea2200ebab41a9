package detok

import "bytes"

// step is what one decoder of a chain does before the tokens are joined. Its state
// is kept by the stream.
type step interface {
	// push takes a token and hands what becomes of it to s.piece(i+1, …), now
	// or later. The token is only valid during the call.
	push(s *Stream, i int, tok []byte)
	// end hands over what was held back: no more tokens come.
	end(s *Stream, i int)
}

// stepState is the state of one step in one stream.
type stepState struct {
	seen   bool   // a token has come
	buf    []byte // scratch
	words  []byte // ctc: scratch
	held   []byte // wordSuffix: a token; ctc: the last token; byteFallback: a run of bytes
	broken bool   // byteFallback: the run cannot be UTF-8 any more
	prompt int    // byteFallback: how many of the held bytes are the prompt's
}

// each is a step that turns every token into another by itself.
type each struct {
	mapper
	positional bool // the first token is treated differently
}

type mapper interface {
	// apply appends what tok becomes to dst. First says that it is the first
	// token the step sees.
	apply(dst, tok []byte, first bool) []byte
}

func (e each) push(s *Stream, i int, tok []byte) {
	st := &s.steps[i]
	st.buf = e.apply(st.buf[:0], tok, !st.seen)
	st.seen = true
	s.piece(i+1, st.buf)
}

func (each) end(*Stream, int) {}

// spaced puts a space between tokens, which is what having no decoder means.
type spaced struct{}

func (spaced) apply(dst, tok []byte, first bool) []byte {
	if !first {
		dst = append(dst, ' ')
	}
	return append(dst, tok...)
}

// byteAlphabet maps tokens to the bytes they stand for.
type byteAlphabet struct{}

func (byteAlphabet) apply(dst, tok []byte, _ bool) []byte {
	return AppendBytes(dst, string(tok))
}

// replace puts content in the place of a string that is not empty.
type replace struct{ old, content string }

func (r replace) apply(dst, tok []byte, _ bool) []byte {
	return appendReplaced(dst, tok, r.old, r.content)
}

func appendReplaced(dst, text []byte, old, content string) []byte {
	for {
		i := bytes.Index(text, []byte(old))
		if i < 0 {
			return append(dst, text...)
		}
		dst = append(dst, text[:i]...)
		dst = append(dst, content...)
		text = text[i+len(old):]
	}
}

// strip cuts a character off both ends, up to start and stop times.
type strip struct {
	char        string
	start, stop int
}

func (d strip) apply(dst, tok []byte, _ bool) []byte {
	for n := 0; n < d.start && bytes.HasPrefix(tok, []byte(d.char)); n++ {
		tok = tok[len(d.char):]
	}
	for n := 0; n < d.stop && bytes.HasSuffix(tok, []byte(d.char)); n++ {
		tok = tok[:len(tok)-len(d.char)]
	}
	return append(dst, tok...)
}

// metaspace turns a character into a space, or into nothing in the first token
// unless keep is set.
type metaspace struct {
	char string
	keep bool
}

func (d metaspace) apply(dst, tok []byte, first bool) []byte {
	return appendReplaced(dst, tok, d.char, d.space(first))
}

func (d metaspace) space(first bool) string {
	if first && !d.keep {
		return ""
	}
	return " "
}

// wordPiece separates words by spaces and glues what starts with prefix to what is
// before it.
type wordPiece struct {
	prefix  string
	cleanup bool
}

func (d wordPiece) apply(dst, tok []byte, first bool) []byte {
	at := len(dst)
	switch {
	case first:
		dst = append(dst, tok...)
	case bytes.HasPrefix(tok, []byte(d.prefix)):
		dst = append(dst, tok[len(d.prefix):]...)
	default:
		dst = append(append(dst, ' '), tok...)
	}
	if d.cleanup {
		dst = dst[:at+len(cleanUp(dst[at:]))]
	}
	return dst
}

// clean is what cleaning up English text means, in order. No replacement is longer
// than what it replaces.
var clean = [...]replace{
	{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"},
	{" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
}

// cleanUp returns text cleaned, in the same memory.
func cleanUp(text []byte) []byte {
	if !unclean(text) {
		return text
	}
	for _, r := range clean {
		if bytes.Contains(text, []byte(r.old)) {
			text = appendReplaced(text[:0], text, r.old, r.content)
		}
	}
	return text
}

// unclean reports whether there is a space in text with the second character of one
// of the strings to be replaced behind it.
func unclean(text []byte) bool {
	for i := 1; i < len(text); i++ {
		if text[i-1] != ' ' {
			continue
		}
		switch text[i] {
		case '.', '?', '!', ',', '\'', 'n', 'd':
			return true
		}
	}
	return false
}

// wordSuffix turns the suffix that ends a word into a space, and into nothing in
// the last token.
type wordSuffix struct{ suffix string }

func (d wordSuffix) push(s *Stream, i int, tok []byte) {
	d.release(s, i, " ")
	st := &s.steps[i]
	if i == len(s.d.steps)-1 { // the join follows, a token can go there in parts
		if cut := bytes.Index(tok, []byte(d.suffix)); cut < 0 {
			s.piece(i+1, tok)
			return
		} else if cut > 0 {
			s.piece(i+1, tok[:cut])
			tok = tok[cut:]
		}
	}
	st.held = append(st.held, tok...)
	st.seen = true
}

func (d wordSuffix) end(s *Stream, i int) { d.release(s, i, "") }

func (d wordSuffix) release(s *Stream, i int, space string) {
	st := &s.steps[i]
	if !st.seen {
		return
	}
	st.buf = appendReplaced(st.buf[:0], st.held, d.suffix, space)
	st.held, st.seen = st.held[:0], false
	s.piece(i+1, st.buf)
}

// ctc collapses repeated tokens and removes padding, as for the output of speech
// models.
type ctc struct {
	pad, delimiter string
	cleanup        bool
}

func (d ctc) push(s *Stream, i int, tok []byte) {
	st := &s.steps[i]
	if st.seen && bytes.Equal(st.held, tok) {
		return
	}
	st.seen = true
	st.held = append(st.held[:0], tok...)
	if d.pad == "" {
		st.buf = append(st.buf[:0], tok...)
	} else {
		st.buf = appendReplaced(st.buf[:0], tok, d.pad, "")
	}
	text := st.buf
	if d.cleanup {
		text = cleanUp(text)
		st.words = appendReplaced(st.words[:0], text, d.delimiter, " ")
		text = st.words
	}
	if len(text) > 0 {
		s.piece(i+1, text)
	}
}

func (ctc) end(*Stream, int) {}
