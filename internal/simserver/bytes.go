package simserver

import (
	"fmt"

	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/detok"
)

// byteTokens is [tokenize.Bytes] with its tokens one by one.
type byteTokens struct {
	tokenize.Bytes
	texts   [tokenize.BytesVocab][]byte
	decoder *detok.Decoder
}

var _ tokens = (*byteTokens)(nil)

func newByteTokens() *byteTokens {
	t := new(byteTokens)
	for id := range t.texts {
		t.texts[id], _ = t.Decode(nil, []uint32{uint32(id)})
	}
	var err error
	if t.decoder, err = detok.Parse([]byte(`{"type":"ByteLevel"}`)); err != nil {
		panic(fmt.Sprintf("simserver: %v", err)) // there is such a decoder
	}
	return t
}

// Token implements [detok.Tokens].
func (t *byteTokens) Token(id uint32) (text []byte, special, ok bool) {
	if id >= tokenize.BytesVocab {
		return nil, false, false
	}
	return t.texts[id], id >= tokenize.BOS, true
}

func (t *byteTokens) DecodeText(dst []byte, ids []uint32, skipSpecial bool) []byte {
	return t.decoder.Decode(dst, t, ids, skipSpecial)
}

func (t *byteTokens) NewStream(skipSpecial bool) *detok.Stream {
	return t.decoder.NewStream(t, skipSpecial)
}
