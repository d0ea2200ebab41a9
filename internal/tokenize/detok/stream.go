package detok

// Stream is an incremental decoder: ids go in one at a time, text comes out as soon
// as it is final. What Push and Flush append, put together, is what
// [Decoder.Decode] gives for all ids, and is valid UTF-8 at every point.
//
// One case differs on purpose. A decoder with byte tokens (<0xE4>) judges a whole
// run of them: one wrong byte at its end turns all characters of the run into
// U+FFFD. A stream gives each character when its last byte has come, rather than
// keep a text that is spelled in bytes until it ends; a wrong byte later in the run
// then affects only what follows.
//
// A stream holds back at most three bytes of an unfinished character in the chains
// that tokenizers use. A Stream is not safe for concurrent use.
type Stream struct {
	d    *Decoder
	v    Tokens
	skip bool // leave special tokens out
	// whole says that all of a run of byte tokens is judged at once.
	whole   bool
	steps   []stepState
	filters []filterState
	join    joiner
	buf     []byte // what join gives, on its way to the filters
	out     []byte // destination of the call that is under way
}

// NewStream returns a stream over the tokens of v, which leaves special tokens out
// when skipSpecial is set.
func (d *Decoder) NewStream(v Tokens, skipSpecial bool) *Stream {
	s := &Stream{
		d: d, v: v, skip: skipSpecial,
		steps:   make([]stepState, len(d.steps)),
		filters: make([]filterState, len(d.filters)),
	}
	s.Reset()
	return s
}

// Reset makes s ready for another sequence.
func (s *Stream) Reset() {
	for i := range s.steps {
		st := &s.steps[i]
		*st = stepState{buf: st.buf[:0], held: st.held[:0]}
	}
	for i := range s.filters {
		st := &s.filters[i]
		*st = filterState{buf: st.buf[:0], held: st.held[:0]}
		s.d.filters[i].begin(st)
	}
	s.join = joiner{}
	s.out = nil
}

// Push takes the next id and appends the text that has become final to dst.
func (s *Stream) Push(dst []byte, id uint32) []byte {
	s.out = dst
	s.push(id)
	dst, s.out = s.out, nil
	return dst
}

// Flush ends the sequence: it appends what was held back to dst, and leaves s ready
// for another sequence.
func (s *Stream) Flush(dst []byte) []byte {
	s.out = dst
	for i, st := range s.d.steps {
		st.end(s, i)
	}
	s.buf = s.join.flush(s.buf[:0])
	s.filter(0, s.buf)
	for i, f := range s.d.filters {
		st := &s.filters[i]
		st.buf = f.end(st, st.buf[:0])
		s.filter(i+1, st.buf)
	}
	dst = s.out
	s.Reset()
	return dst
}

// push sends the token with the given id through the chain.
func (s *Stream) push(id uint32) {
	if text, special, ok := s.v.Token(id); ok && !(special && s.skip) {
		s.piece(0, text)
	}
}

// piece hands a token to step i, or to the join after the last step.
func (s *Stream) piece(i int, tok []byte) {
	if i < len(s.d.steps) {
		s.d.steps[i].push(s, i, tok)
		return
	}
	switch {
	case !s.d.bytes:
		s.filter(0, tok)
	case len(s.d.filters) == 0:
		s.out = s.join.write(s.out, tok)
	default:
		s.buf = s.join.write(s.buf[:0], tok)
		s.filter(0, s.buf)
	}
}

// filter hands text to filter i and those after it, and what they let through to
// the caller.
func (s *Stream) filter(i int, text []byte) {
	for ; i < len(s.d.filters) && len(text) > 0; i++ {
		st := &s.filters[i]
		st.buf = s.d.filters[i].write(st, st.buf[:0], text)
		text = st.buf
	}
	s.out = append(s.out, text...)
}
