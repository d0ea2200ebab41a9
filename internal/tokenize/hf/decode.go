package hf

import (
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/detok"
)

// Token returns the text of a token: for a byte-level vocabulary the bytes it
// stands for, otherwise its spelling in the file. The bytes must not be changed.
func (t *Tokenizer) Token(id uint32) (text []byte, special, ok bool) {
	if t.low <= id && id <= t.high {
		if a, ok := t.added[id]; ok {
			return a.text, a.special, true
		}
	}
	if text, ok = t.vocab.token(id); ok {
		return text, false, true
	}
	if odd, ok := t.odd.texts[id]; ok {
		return []byte(odd), false, true
	}
	return nil, false, false
}

// Size returns one more than the largest token id. There may be gaps below it.
func (t *Tokenizer) Size() int {
	n := uint32(t.vocab.size())
	if len(t.added) > 0 {
		n = max(n, t.high+1)
	}
	for id := range t.odd.texts {
		n = max(n, id+1)
	}
	return int(n)
}

// Decode implements [tokenize.Tokenizer]: special tokens are spelled out and bytes
// are left as they are.
func (t *Tokenizer) Decode(dst []byte, ids []uint32) ([]byte, error) {
	at := len(dst)
	for i, id := range ids {
		if _, _, ok := t.Token(id); !ok {
			return dst[:at], &tokenize.UnknownIDError{ID: id, Index: i}
		}
	}
	if t.dec.ByteLevel() {
		for _, id := range ids {
			text, _, _ := t.Token(id)
			dst = append(dst, text...)
		}
		return dst, nil
	}
	return t.dec.Decode(dst, t, ids, false), nil
}

// DecodeText appends the text of ids as engines print it: valid UTF-8, with U+FFFD
// for what is none, unknown ids left out and special tokens too if skipSpecial is
// set.
func (t *Tokenizer) DecodeText(dst []byte, ids []uint32, skipSpecial bool) []byte {
	return t.dec.Decode(dst, t, ids, skipSpecial)
}

// NewStream returns a detokenizer for the tokens of one answer.
func (t *Tokenizer) NewStream(skipSpecial bool) *detok.Stream {
	return t.dec.NewStream(t, skipSpecial)
}
