package kv

import (
	"encoding/binary"
	"math/bits"
	"strings"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// baseSeed is the seed of every hash of blocks.
const baseSeed = 1337

// saltTag marks a cache salt among the extra keys of a block, where an engine
// otherwise tells strings of several meanings apart by nothing.
const saltTag = "dynamo-cache-salt:"

// HashSeed returns the seed of local hashes for an adapter and a cache salt, as the
// engine is given it. Empty means none, and a salt is the same with and without one
// "dynamo-cache-salt:" before it. Blocks of the same tokens under different seeds have
// nothing in common.
func HashSeed(lora, salt string) uint64 {
	seed := uint64(baseSeed)
	salt = strings.TrimPrefix(salt, saltTag)
	if lora != "" {
		seed += xxh3.HashStringSeed(lora, 0)
	}
	if salt != "" {
		seed += xxh3.HashStringSeed(salt, 1)
	}
	return seed
}

// HashTokens returns the local hash of one block under a seed from [HashSeed]:
// the XXH3 of its tokens as little-endian uint32. It does not allocate on
// machines of that byte order, nor on others for up to 128 tokens.
func HashTokens(seed uint64, tokens []uint32) LocalHash {
	if littleEndian {
		return LocalHash(xxh3.HashSeed(inPlace(tokens), seed))
	}
	return hashCopy(seed, tokens)
}

// littleEndian says that tokens lie in memory as they are hashed.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// inPlace returns the memory of tokens.
func inPlace(tokens []uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(tokens))), 4*len(tokens))
}

func hashCopy(seed uint64, tokens []uint32) LocalHash {
	var buf [512]byte
	return LocalHash(xxh3.HashSeed(appendTokens(buf[:0], tokens), seed))
}

func appendTokens(dst []byte, tokens []uint32) []byte {
	for _, t := range tokens {
		dst = binary.LittleEndian.AppendUint32(dst, t)
	}
	return dst
}

// The two words that XXH3 mixes into an input of 16 bytes: words 3 and 4, and words
// 5 and 6, of its secret combined, with the seed added or taken away.
const (
	flipLow  = (0x1f67b3b7a4a44072 ^ 0x78e5c0cc4ee679cb) + baseSeed
	flipHigh = (0x2172ffcc7dd05a82 ^ 0x8e2443f7744608b8) - baseSeed
)

// Chain returns the sequence hash of a block: that of its local hash and of all
// blocks before it. For the first block of a prompt it is the local hash itself.
//
// It is the XXH3 of the two as little-endian uint64, written out for this one
// length and seed so that it is compiled into its callers.
func Chain(parent BlockID, local LocalHash) BlockID {
	low, high := uint64(parent)^flipLow, uint64(local)^flipHigh
	top, bottom := bits.Mul64(low, high)
	h := 16 + bits.ReverseBytes64(low) + high + (top ^ bottom)
	h = (h ^ h>>37) * 0x165667919e3779f9
	return BlockID(h ^ h>>32)
}

// AppendBlocks appends the full blocks of a prompt, each with its local hash and
// with its sequence hash as ID. Tokens after the last full block are left out. A
// block size below 1 gives none.
func AppendBlocks(dst []Block, seed uint64, tokens []uint32, blockSize int) []Block {
	return appendBlocks(dst, len(dst), seed, tokens, blockSize, blockSize)
}

// ExtendBlocks appends the full blocks of a prompt that blocks, which are its first
// ones under the same seed and block size, does not have yet.
func ExtendBlocks(blocks []Block, seed uint64, tokens []uint32, blockSize int) []Block {
	if blockSize < 1 {
		return blocks
	}
	return appendBlocks(blocks, 0, seed, tokens[len(blocks)*blockSize:], blockSize, blockSize)
}

// AppendEagleBlocks is [AppendBlocks] for engines that speculate with EAGLE: the
// cache of a block depends on the token after it too, so each is hashed with the
// first token of the next, and a prompt that ends with a block has one block less.
func AppendEagleBlocks(dst []Block, seed uint64, tokens []uint32, blockSize int) []Block {
	return appendBlocks(dst, len(dst), seed, tokens, blockSize, blockSize+1)
}

// textSeed keeps the hashes of text apart from those of tokens.
const textSeed = 0x9e3779b97f4a7c15

// AppendTextBlocks is [AppendBlocks] for a prompt whose tokens are not known: a block
// is so many bytes of its text. Its hashes have nothing in common with those of
// tokens.
func AppendTextBlocks(dst []Block, seed uint64, text []byte, bytes int) []Block {
	if bytes < 1 {
		return dst
	}
	first := len(dst)
	for ; len(text) >= bytes; text = text[bytes:] {
		dst = appendBlock(dst, first, LocalHash(xxh3.HashSeed(text[:bytes], seed^textSeed)))
	}
	return dst
}

// appendBlocks appends blocks of a prompt whose first one is dst[first]: one for
// each stride tokens that begin a window of tokens.
func appendBlocks(dst []Block, first int, seed uint64, tokens []uint32, stride, window int) []Block {
	if stride < 1 {
		return dst
	}
	for ; len(tokens) >= window; tokens = tokens[stride:] {
		dst = appendBlock(dst, first, HashTokens(seed, tokens[:window]))
	}
	return dst
}

func appendBlock(dst []Block, first int, local LocalHash) []Block {
	id := BlockID(local)
	if len(dst) > first {
		id = Chain(dst[len(dst)-1].ID, local)
	}
	return append(dst, Block{ID: id, Tokens: local})
}
