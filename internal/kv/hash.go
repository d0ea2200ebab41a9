package kv

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// baseSeed is the seed of every hash of blocks.
const baseSeed = 1337

// HashSeed returns the seed of local hashes for an adapter and a cache salt.
// Empty means none. Blocks of the same tokens under different seeds have nothing
// in common.
func HashSeed(lora, salt string) uint64 {
	seed := uint64(baseSeed)
	if lora != "" {
		seed += xxh3.HashStringSeed(lora, 0)
	}
	if salt != "" {
		seed += xxh3.HashStringSeed(salt, 1)
	}
	return seed
}

// HashTokens returns the local hash of one block under a seed from [HashSeed].
// It does not allocate for blocks of up to 128 tokens.
func HashTokens(seed uint64, tokens []uint32) LocalHash {
	var buf [512]byte
	b := buf[:0]
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, t)
	}
	return LocalHash(xxh3.HashSeed(b, seed))
}

// Chain returns the sequence hash of a block: that of its local hash and of all
// blocks before it. For the first block of a prompt it is the local hash itself.
func Chain(parent BlockID, local LocalHash) BlockID {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], uint64(parent))
	binary.LittleEndian.PutUint64(b[8:], uint64(local))
	return BlockID(xxh3.HashSeed(b[:], baseSeed))
}

// AppendBlocks appends the full blocks of a prompt, each with its local hash and
// with its sequence hash as ID. Tokens after the last full block are left out. A
// block size below 1 gives none.
func AppendBlocks(dst []Block, seed uint64, tokens []uint32, blockSize int) []Block {
	return appendBlocks(dst, len(dst), seed, tokens, blockSize)
}

// ExtendBlocks appends the full blocks of a prompt that blocks, which are its first
// ones under the same seed and block size, does not have yet.
func ExtendBlocks(blocks []Block, seed uint64, tokens []uint32, blockSize int) []Block {
	if blockSize < 1 {
		return blocks
	}
	return appendBlocks(blocks, 0, seed, tokens[len(blocks)*blockSize:], blockSize)
}

// appendBlocks appends blocks of a prompt whose first one is dst[first].
func appendBlocks(dst []Block, first int, seed uint64, tokens []uint32, blockSize int) []Block {
	if blockSize < 1 {
		return dst
	}
	for ; len(tokens) >= blockSize; tokens = tokens[blockSize:] {
		local := HashTokens(seed, tokens[:blockSize])
		id := BlockID(local)
		if len(dst) > first {
			id = Chain(dst[len(dst)-1].ID, local)
		}
		dst = append(dst, Block{ID: id, Tokens: local})
	}
	return dst
}
