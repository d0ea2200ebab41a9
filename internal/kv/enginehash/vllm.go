package enginehash

import (
	"crypto/sha256"
	"encoding/binary"
	"math"

	"github.com/stator-ai/stator/internal/kv"
)

// DefaultNoneSeed is what vLLM begins with where PYTHONHASHSEED is not set, in
// versions in which the beginning is not random then.
const DefaultNoneSeed = "vllm-none-hash"

// NoneHash returns the hash that vLLM has for the block before the first one,
// given the value of PYTHONHASHSEED or [DefaultNoneSeed].
func NoneHash(seed string) Digest { return sha256.Sum256(appendText(nil, seed)) }

// VLLM hashes the blocks of one prompt after another as vLLM does with sha256_cbor:
// each is the SHA-256 of a CBOR array of the hash before it, the tokens and the
// extra keys.
type VLLM struct {
	last Digest
	buf  []byte
}

// NewVLLM returns a chain at the beginning of a prompt. none comes from [NoneHash],
// or from an engine whose beginning is random.
func NewVLLM(none Digest) *VLLM { return &VLLM{last: none} }

// Follow has the next block come after the one with that hash.
func (c *VLLM) Follow(last Digest) { c.last = last }

// Block adds a block and returns its hash. extra are what the block depends on
// besides its tokens, in vLLM's order: the adapter's [Text], an [Item] for each
// multimodal object, the cache salt's Text in the first block of a prompt, and
// [Embeds].
func (c *VLLM) Block(tokens []uint32, extra ...Extra) Digest {
	b := appendHead(c.buf[:0], cborArray, 3)
	b = appendHead(b, cborBytes, uint64(len(c.last)))
	b = append(b, c.last[:]...)
	b = appendHead(b, cborArray, uint64(len(tokens)))
	for _, t := range tokens {
		b = appendHead(b, cborUint, uint64(t))
	}
	if len(extra) == 0 {
		b = append(b, cborNull)
	} else {
		b = appendHead(b, cborArray, uint64(len(extra)))
		for _, e := range extra {
			b = e.appendCBOR(b)
		}
	}
	c.buf, c.last = b, sha256.Sum256(b)
	return c.last
}

// AppendVLLM appends the names that vLLM gives to the full blocks of a prompt for an
// adapter and a cache salt, where empty means none. A block size below 1 gives
// none.
func AppendVLLM(dst []kv.BlockID, none Digest, lora, salt string, tokens []uint32, blockSize int) []kv.BlockID {
	if blockSize < 1 {
		return dst
	}
	c := NewVLLM(none)
	var extra []Extra
	if lora != "" {
		extra = append(extra, Text(lora))
	}
	first := extra
	if salt != "" {
		first = append(first, Text(salt))
	}
	for ; len(tokens) >= blockSize; tokens, first = tokens[blockSize:], extra {
		dst = append(dst, c.Block(tokens[:blockSize], first...).Last())
	}
	return dst
}

// Extra is an extra key of a block: a [Text], an [Item] or [Embeds].
type Extra interface{ appendCBOR([]byte) []byte }

// Text is the name of an adapter, a cache salt, or the identifier of a multimodal
// object as vLLM up to 0.18 has it.
type Text string

// Item is a multimodal object as vLLM 0.19 and later have it.
type Item struct {
	ID     string
	Offset int64 // where the object begins, from the block's first token; negative if before it
}

// Embeds is the hash of a block's prompt embeddings.
type Embeds []byte

func (t Text) appendCBOR(b []byte) []byte { return appendText(b, string(t)) }

func (i Item) appendCBOR(b []byte) []byte {
	b = appendText(appendHead(b, cborArray, 2), i.ID)
	if i.Offset < 0 {
		return appendHead(b, cborNegative, uint64(-1-i.Offset))
	}
	return appendHead(b, cborUint, uint64(i.Offset))
}

func (e Embeds) appendCBOR(b []byte) []byte {
	return append(appendHead(b, cborBytes, uint64(len(e))), e...)
}

func appendText(b []byte, s string) []byte {
	return append(appendHead(b, cborText, uint64(len(s))), s...)
}

// The kinds of CBOR items, as the upper bits of their first byte, and null.
const (
	cborUint     = 0 << 5
	cborNegative = 1 << 5
	cborBytes    = 2 << 5
	cborText     = 3 << 5
	cborArray    = 4 << 5
	cborNull     = 0xf6
)

// appendHead appends the beginning of an item, with n in its shortest form.
func appendHead(b []byte, kind byte, n uint64) []byte {
	switch {
	case n < 24:
		return append(b, kind|byte(n))
	case n <= math.MaxUint8:
		return append(b, kind|24, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, kind|25), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, kind|26), uint32(n))
	default:
		return binary.BigEndian.AppendUint64(append(b, kind|27), n)
	}
}

var (
	_ Extra = Text("")
	_ Extra = Item{}
	_ Extra = Embeds(nil)
)
