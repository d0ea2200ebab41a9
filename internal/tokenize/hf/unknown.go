package hf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"unicode"
	"unicode/utf8"
)

// ErrUnknown is returned for a text with characters that are unknown in a [Variant], by
// a tokenizer that rewrites text before it is split.
var ErrUnknown = errors.New("the text has characters that are to be unknown, and is rewritten before it is split")

// unknowns are characters that are split as if they had no class. Immutable and safe
// for concurrent use.
type unknowns struct {
	table  *unicode.RangeTable
	begins [256]bool // the bytes that they begin with
}

func newUnknowns(table *unicode.RangeTable) *unknowns {
	u := &unknowns{table: table}
	mark := func(lo, hi, stride rune) {
		for r := lo; r <= hi; r += stride {
			u.begins[utf8.AppendRune(nil, r)[0]] = true
		}
	}
	for _, r := range table.R16 {
		mark(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range table.R32 {
		mark(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return u
}

// standIns are characters without a class that take as many bytes as their index.
var standIns = [...]string{2: "\u0378", 3: "\ue000", 4: "\U000f0000"}

// hide returns text with a character without a class in place of each that is not
// known: text itself if there are none, else a copy in dst.
func (u *unknowns) hide(dst, text []byte) []byte {
	out := text
	for i := 0; i < len(text); {
		if i+8 <= len(text) && binary.LittleEndian.Uint64(text[i:])&0x8080808080808080 == 0 {
			i += 8
			continue
		}
		if !u.begins[text[i]] {
			i++
			continue
		}
		r, n := utf8.DecodeRune(text[i:])
		if n >= 2 && u.is(r) {
			if &out[0] == &text[0] {
				out = append(dst[:0], text...)
			}
			copy(out[i:], standIns[n])
		}
		i += n
	}
	return out
}

func (u *unknowns) is(r rune) bool { return r >= utf8.RuneSelf && unicode.Is(u.table, r) }

// beside reports whether one of them is before the i-th byte of text, or behind the
// character there.
func (u *unknowns) beside(text []byte, i int) bool {
	before, _ := utf8.DecodeLastRune(text[:i])
	_, n := utf8.DecodeRune(text[i:])
	after, _ := utf8.DecodeRune(text[i+n:])
	return u.is(before) || u.is(after)
}

// hiddenPieces is pieces for a text with characters that are not known, which hidden
// does not have.
func (t *Tokenizer) hiddenPieces(dst []uint32, text, hidden []byte, first bool, s *state) []uint32 {
	s.pieces.Reset()
	t.plan.Append(&s.pieces, hidden, first)
	if !bytes.Equal(s.pieces.Text, hidden) {
		s.err = ErrUnknown
		return dst
	}
	for _, p := range s.pieces.Spans {
		piece := text[p.Start:p.End]
		if t.bpe != nil {
			dst = t.bpe.encode(dst, piece, s)
		} else if dst, s.err = t.model.Encode(dst, piece); s.err != nil {
			break
		}
	}
	return dst
}
