package enginehash

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/stator-ai/stator/internal/kv"
)

// SGLang hashes the pages of one prompt after another: each is the SHA-256 of the
// page before it and of its tokens as little-endian uint32. The zero value stands
// at the beginning of a prompt without a salt. Adapters do not enter.
type SGLang struct {
	last  Digest
	begun bool // there is a page, or a salt, before the next page
	buf   []byte
}

// NewSGLang returns a chain at the beginning of a prompt with a cache salt, where
// empty means none.
func NewSGLang(salt string) *SGLang {
	c := new(SGLang)
	if salt != "" {
		c.last, c.begun = sha256.Sum256([]byte("sglang-cache-salt-v1\x00"+salt)), true
	}
	return c
}

// Follow has the next page come after the one with that hash.
func (c *SGLang) Follow(last Digest) { c.last, c.begun = last, true }

// Page adds a page and returns its hash. The page may be shorter than others,
// though engines speak of full ones only.
func (c *SGLang) Page(tokens []uint32) Digest {
	b := c.begin()
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, t)
	}
	return c.end(b)
}

// BigramPage adds a page of an engine that speculates with EAGLE, where each token
// counts together with the next: a page of n consists of n+1 tokens, the last of
// which is the first of the next page. Fewer than two tokens are an empty page.
func (c *SGLang) BigramPage(tokens []uint32) Digest {
	b := c.begin()
	for i := 1; i < len(tokens); i++ {
		b = binary.LittleEndian.AppendUint32(b, tokens[i-1])
		b = binary.LittleEndian.AppendUint32(b, tokens[i])
	}
	return c.end(b)
}

func (c *SGLang) begin() []byte {
	if !c.begun {
		return c.buf[:0]
	}
	return append(c.buf[:0], c.last[:]...)
}

func (c *SGLang) end(b []byte) Digest {
	c.buf, c.last, c.begun = b, sha256.Sum256(b), true
	return c.last
}

// AppendSGLang appends the names that SGLang gives to the full pages of a prompt. A
// page size below 1 gives none.
func AppendSGLang(dst []kv.BlockID, salt string, tokens []uint32, pageSize int) []kv.BlockID {
	if pageSize < 1 {
		return dst
	}
	c := NewSGLang(salt)
	for ; len(tokens) >= pageSize; tokens = tokens[pageSize:] {
		dst = append(dst, c.Page(tokens[:pageSize]).First())
	}
	return dst
}

// AppendSGLangBigram is [AppendSGLang] for pages as [SGLang.BigramPage] has them.
func AppendSGLangBigram(dst []kv.BlockID, salt string, tokens []uint32, pageSize int) []kv.BlockID {
	if pageSize < 1 {
		return dst
	}
	c := NewSGLang(salt)
	for ; len(tokens) > pageSize; tokens = tokens[pageSize:] {
		dst = append(dst, c.BigramPage(tokens[:pageSize+1]).First())
	}
	return dst
}
