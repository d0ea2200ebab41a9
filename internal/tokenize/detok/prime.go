package detok

// Prime takes the ids that come before the sequence, the prompt of an answer, so
// that the answer is decoded as its continuation: "▁world" keeps its space, a
// character that the prompt began is finished. It is called before Push.
//
// Text that was not final at the end of the prompt belongs to the answer, except
// that bytes of the prompt alone never become a U+FFFD of the answer. Nothing of
// the prompt is kept but an unfinished end. For the chains that tokenizers use the
// cost does not depend on the prompt's length.
func (s *Stream) Prime(prompt []uint32) {
	if s.d.short {
		for len(prompt) > 0 && !s.settled() {
			s.push(prompt[0])
			prompt = prompt[1:]
		}
		prompt = prompt[s.tail(prompt):]
	}
	for _, id := range prompt {
		s.out = s.out[:0]
		s.push(id)
	}
	s.out = nil
	s.join.prompt = s.join.n
	for i := range s.steps {
		s.steps[i].prompt = len(s.steps[i].held)
	}
}

// settled reports whether the beginning of the sequence has lost its influence on
// what comes.
func (s *Stream) settled() bool {
	for i, st := range s.d.steps {
		if e, ok := st.(each); ok && e.positional && !s.steps[i].seen {
			return false
		}
	}
	for i := range s.filters {
		if s.filters[i].n > 0 { // strip still has something to cut
			return false
		}
	}
	return true
}

// tail returns where the ids begin that decide what is held back at their end,
// whatever is held back now.
func (s *Stream) tail(ids []uint32) int {
	last := len(s.d.steps) - 1
	fallback := false
	if last >= 0 {
		_, fallback = s.d.steps[last].(byteFallback)
	}
	if !fallback && !s.d.bytes {
		return len(ids)
	}
	n := 0 // bytes seen
	for i := len(ids) - 1; i >= 0; i-- {
		tok, special, ok := s.v.Token(ids[i])
		if !ok || special && s.skip {
			continue
		}
		if s.d.bytes {
			// An unfinished character has at most three bytes, and a byte that
			// begins a character never continues another.
			if n += len(tok); n >= 3 {
				return i
			}
			continue
		}
		for k := range last {
			st := &s.steps[k]
			st.buf = s.d.steps[k].(each).apply(st.buf[:0], tok, false)
			tok = st.buf
		}
		if _, ok := byteToken(tok); !ok {
			return i
		}
	}
	return 0
}
