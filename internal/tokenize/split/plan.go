package split

import "unicode/utf8"

// Span is a piece: the bytes from Start up to End of a text.
type Span struct{ Start, End int }

// Pieces are the pieces of one or more segments. The zero value is empty and ready;
// one value serves many texts without allocating anew. Not safe for concurrent use.
type Pieces struct {
	// Text is what the spans index: the segments as the steps have rewritten them,
	// one behind the other, possibly with text that is in no piece.
	Text []byte
	// Spans are the pieces in order; none is empty.
	Spans []Span

	spans  []Span // of the step before
	text   []byte // of the step before
	mapped []byte // a piece in the byte alphabet
	origin []int  // where a byte of mapped comes from
}

// Reset empties p and keeps its memory.
func (p *Pieces) Reset() { p.Text, p.Spans = p.Text[:0], p.Spans[:0] }

// Plan is a compiled pre-tokenizer. It is immutable and safe for concurrent use.
type Plan struct {
	steps     []step
	next      func(text []byte, i int) int
	cuts      Cut
	byteLevel bool
}

// ByteLevel reports whether the pieces are to be looked at as bytes, because the
// plan has a ByteLevel step: the vocabulary of the model is then in the byte
// alphabet. Pieces are the original bytes all the same.
func (p *Plan) ByteLevel() bool { return p.byteLevel }

// Next returns a function that gives the end of the piece that starts at i, for i
// below len(text): 0, or the end of the piece before. It is nil unless the pieces of
// a segment cover it, in order and without change; all known byte-level families
// have one. The function keeps no state and is safe for concurrent use.
func (p *Plan) Next() func(text []byte, i int) int { return p.next }

// Append appends the pieces of one segment to dst. first says that the segment
// begins where the whole input begins. It works for every plan; text is not kept.
func (p *Plan) Append(dst *Pieces, text []byte, first bool) {
	if len(text) == 0 {
		return
	}
	base, from := len(dst.Text), len(dst.Spans)
	dst.Text = append(dst.Text, text...)
	if p.next != nil {
		for i := 0; i < len(text); {
			end := p.next(text, i)
			dst.Spans = append(dst.Spans, Span{base + i, base + end})
			i = end
		}
		return
	}
	dst.Spans = append(dst.Spans, Span{base, len(dst.Text)})
	for _, s := range p.steps {
		s.run(dst, base, from, first)
	}
}

// A step works on the pieces from span from on, whose text begins at base.
type step interface {
	run(p *Pieces, base, from int, first bool)
}

// begin moves the pieces that a step is to work on out of the way.
func (p *Pieces) begin(from int) []Span {
	p.spans = append(p.spans[:0], p.Spans[from:]...)
	p.Spans = p.Spans[:from]
	return p.spans
}

func (c *cutter) run(p *Pieces, _, from int, _ bool) {
	base := 0
	m := merger{behavior: c.behavior, invert: c.invert, emit: func(start, end int) {
		p.Spans = append(p.Spans, Span{base + start, base + end})
	}}
	found := m.found
	for _, s := range p.begin(from) {
		base = s.Start
		c.all(p.Text[s.Start:s.End], found)
		m.finish(s.End - s.Start)
	}
}

// mapped is a cutter that comes after a ByteLevel step and so sees every byte as a
// character of the byte alphabet.
type mapped struct{ cutter }

func (c *mapped) run(p *Pieces, _, from int, _ bool) {
	m := merger{behavior: c.behavior, invert: c.invert, emit: func(start, end int) {
		p.Spans = append(p.Spans, Span{p.origin[start], p.origin[end]})
	}}
	found := m.found
	for _, s := range p.begin(from) {
		p.mapped, p.origin = p.mapped[:0], p.origin[:0]
		for i, b := range p.Text[s.Start:s.End] {
			p.mapped = utf8.AppendRune(p.mapped, byteRune(b))
			for len(p.origin) < len(p.mapped) {
				p.origin = append(p.origin, s.Start+i)
			}
		}
		p.origin = append(p.origin, s.End)
		c.all(p.mapped, found)
		m.finish(len(p.mapped))
	}
}

// byteRune returns the character that stands for b in the byte alphabet: b itself
// where that is a visible character of Latin-1, else the next free one from U+0100.
func byteRune(b byte) rune {
	switch {
	case b <= 0x20:
		return 0x100 + rune(b)
	case b >= 0x7F && b <= 0xA0:
		return 0x121 + rune(b) - 0x7F
	case b == 0xAD:
		return 0x143
	}
	return rune(b)
}

// rewrite replaces the text of the pieces: f appends what a piece becomes to dst.
// zero says that the piece begins where the whole input does.
func (p *Pieces) rewrite(base, from int, first bool, f func(dst, piece []byte, zero bool) []byte) {
	p.text = append(p.text[:0], p.Text[base:]...)
	p.Text = p.Text[:base]
	for _, s := range p.begin(from) {
		start := len(p.Text)
		p.Text = f(p.Text, p.text[s.Start-base:s.End-base], first && s.Start == base)
		p.Spans = append(p.Spans, Span{start, len(p.Text)})
	}
}

// prefixSpace puts a space before every piece that does not begin with one.
type prefixSpace struct{}

func (prefixSpace) run(p *Pieces, base, from int, first bool) {
	p.rewrite(base, from, first, func(dst, piece []byte, _ bool) []byte {
		if piece[0] != ' ' {
			dst = append(dst, ' ')
		}
		return append(dst, piece...)
	})
}
