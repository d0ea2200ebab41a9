package tokenize

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/stator-ai/stator/internal/kv"
)

// The special tokens of [Bytes]. Ids below 256 are the bytes themselves.
const (
	BOS uint32 = 256 + iota
	EOS
	IMStart
	IMEnd

	// BytesVocab is the size of the vocabulary.
	BytesVocab = 256 + iota
)

// spellings of the special tokens, in the order of their ids. None is a prefix
// of another.
var spellings = [...]string{"<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>"}

// Bytes is the byte-level tokenizer: one token per byte and four special ones.
// Every text round-trips exactly. The zero value is ready, holds nothing and is
// safe for concurrent use.
type Bytes struct{}

var _ Tokenizer = Bytes{}

// Fingerprint returns "bytes".
func (Bytes) Fingerprint() string { return "bytes" }

// Encode appends one id per byte, or with special set one per special token
// spelled out. It allocates only to grow dst and returns no error.
func (Bytes) Encode(dst []uint32, text []byte, special bool) ([]uint32, error) {
	dst = slices.Grow(dst, len(text))
	for special {
		i := bytes.Index(text, []byte("<|"))
		if i < 0 {
			break
		}
		id, n := specialAt(text[i:])
		if n == 0 { // no token starts here: the two bytes are themselves
			n = 2
			dst = appendBytes(dst, text[:i+n])
		} else {
			dst = appendBytes(dst, text[:i])
			dst = append(dst, id)
		}
		text = text[i+n:]
	}
	return appendBytes(dst, text), nil
}

// specialAt returns the special token that text starts with and the length of
// its spelling, 0 when there is none.
func specialAt(text []byte) (uint32, int) {
	for i, s := range spellings {
		if len(text) >= len(s) && string(text[:len(s)]) == s {
			return BOS + uint32(i), len(s)
		}
	}
	return 0, 0
}

func appendBytes(dst []uint32, text []byte) []uint32 {
	at := len(dst)
	dst = dst[:at+len(text)] // Encode has grown it
	for i, b := range text {
		dst[at+i] = uint32(b)
	}
	return dst
}

// Decode appends the bytes of ids, special tokens by their spelling. It
// allocates only to grow dst.
func (Bytes) Decode(dst []byte, ids []uint32) ([]byte, error) {
	at := len(dst)
	dst = slices.Grow(dst, len(ids))
	for i, id := range ids {
		switch {
		case id < 256:
			dst = append(dst, byte(id))
		case id < BytesVocab:
			dst = append(dst, spellings[id-BOS]...)
		default:
			return dst[:at], &UnknownIDError{ID: id, Index: i}
		}
	}
	return dst, nil
}

// ByteModel is [Bytes] and [ChatML] as a [Model]. Nothing stands around a text, so
// that one is the same bare or not. The zero value is ready.
type ByteModel struct{}

var _ Model = ByteModel{}

// Fingerprint returns that of [Bytes].
func (ByteModel) Fingerprint() string { return Bytes{}.Fingerprint() }

// Chat implements [Model].
func (m ByteModel) Chat(c Chat, h Hashing) (Result, error) {
	var p Prompt
	if err := (ChatML{}).Render(&p, c); err != nil {
		return Result{}, err
	}
	ids, err := p.AppendIDs(nil, Bytes{})
	if err != nil {
		return Result{}, fmt.Errorf("messages: %w", err)
	}
	return m.result(ids, p.Text, h), nil
}

// Complete implements [Model]. It returns no error.
func (m ByteModel) Complete(text []byte, _ bool, h Hashing) (Result, error) {
	ids, err := Bytes{}.Encode(nil, text, true /* special */)
	return m.result(ids, text, h), err
}

func (m ByteModel) result(ids []uint32, text []byte, h Hashing) Result {
	return Result{
		IDs: ids, Text: text, Fingerprint: m.Fingerprint(), Source: Local,
		Blocks: kv.AppendBlocks(nil, h.Seed, ids, h.Size),
	}
}
