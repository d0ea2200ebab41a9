package detok

import "unicode/utf8"

// byteFallback turns runs of tokens that spell a byte each (<0xE4>) into the text
// of those bytes, or into one U+FFFD for each when they are not UTF-8.
type byteFallback struct{}

func (d byteFallback) push(s *Stream, i int, tok []byte) {
	b, ok := byteToken(tok)
	if !ok {
		d.end(s, i)
		s.piece(i+1, tok)
		return
	}
	st := &s.steps[i]
	if st.broken {
		s.piece(i+1, replacement)
		return
	}
	st.held = append(st.held, b)
	if s.whole || i < len(s.d.steps)-1 {
		// A later step would see a difference between one token and several.
		return
	}
	if !utf8.FullRune(st.held) {
		return
	}
	st.broken = !utf8.Valid(st.held)
	d.release(s, i)
}

func (d byteFallback) end(s *Stream, i int) {
	d.release(s, i)
	s.steps[i].broken = false
}

// release hands over what is held: its text, or what stands for it.
func (byteFallback) release(s *Stream, i int) {
	st := &s.steps[i]
	held, prompt := st.held, st.prompt
	st.held, st.prompt = st.held[:0], 0
	switch {
	case len(held) == 0:
	case utf8.Valid(held):
		s.piece(i+1, held)
	default:
		for range held[prompt:] {
			s.piece(i+1, replacement)
		}
	}
}

// byteToken returns the byte that tok spells. Like the parser that decides this in
// the library it takes two hexadecimal digits of either case, or a plus sign and
// one.
func byteToken(tok []byte) (byte, bool) {
	if len(tok) != 6 || string(tok[:3]) != "<0x" || tok[5] != '>' {
		return 0, false
	}
	high, ok := hexDigit(tok[3])
	if tok[3] == '+' {
		high, ok = 0, true
	}
	low, ok2 := hexDigit(tok[4])
	return high<<4 | low, ok && ok2
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}
