package detok

import "unicode/utf8"

// Tokens is a vocabulary as a decoder sees it. A Tokens used by several streams is
// safe for concurrent use.
type Tokens interface {
	// Token returns the token with the given id: its text, or its raw bytes
	// when the decoder's ByteLevel method says so (see [AppendBytes]). Special says
	// that it is flagged special; ok is false when there is no such id. The
	// decoder neither changes nor keeps text.
	Token(id uint32) (text []byte, special, ok bool)
}

// Decoder is the decoder of a tokenizer file. It does not change and is safe for
// concurrent use.
type Decoder struct {
	steps   []step   // before the join
	bytes   bool     // the join is of bytes, which are made valid UTF-8
	filters []filter // after the join
	raw     bool     // the first step is ByteLevel: tokens come as raw bytes
	short   bool     // the end of a long sequence is enough to continue it
}

// ByteLevel reports whether tokens are to be given as raw bytes, mapped back from
// the byte alphabet by [AppendBytes], rather than by their spelling.
func (d *Decoder) ByteLevel() bool { return d.raw }

// Decode appends the text of ids to dst. Ids outside the vocabulary are left out,
// as are special tokens when skipSpecial is set. Bytes of a byte-level vocabulary
// that are not UTF-8 become one U+FFFD for each longest part that could begin a
// character; a run of byte tokens (<0xFF>) that is not UTF-8 becomes one for each.
//
// Where the library panics (Strip on a token that is too short to be cut from both
// ends) the token becomes empty.
func (d *Decoder) Decode(dst []byte, v Tokens, ids []uint32, skipSpecial bool) []byte {
	if d.raw && len(d.filters) == 0 {
		return decodeBytes(dst, v, ids, skipSpecial)
	}
	s := d.NewStream(v, skipSpecial)
	s.whole = true
	s.out = dst
	for _, id := range ids {
		s.push(id)
	}
	return s.Flush(s.out)
}

// decodeBytes is Decode when bytes are all there is.
func decodeBytes(dst []byte, v Tokens, ids []uint32, skipSpecial bool) []byte {
	at := len(dst)
	for _, id := range ids {
		if text, special, ok := v.Token(id); ok && !(special && skipSpecial) {
			dst = append(dst, text...)
		}
	}
	if utf8.Valid(dst[at:]) {
		return dst
	}
	broken := append([]byte(nil), dst[at:]...)
	var j joiner
	return j.flush(j.write(dst[:at], broken))
}

// seal derives what depends on the whole chain.
func (d *Decoder) seal() {
	d.short = !d.bytes || d.raw
	for i, st := range d.steps {
		switch st.(type) {
		case each:
		case byteFallback:
			d.short = d.short && i == len(d.steps)-1
		default:
			d.short = false
		}
	}
	for _, f := range d.filters {
		strip, ok := f.(strip)
		d.short = d.short && ok && strip.stop == 0
	}
}
