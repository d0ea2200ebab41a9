package kv

import (
	"bytes"
	"slices"
	"testing"
)

func TestAppendTextBlocks(t *testing.T) {
	text := bytes.Repeat([]byte("the quick brown fox "), 20) // 400 bytes
	seed := HashSeed("", "")
	blocks := AppendTextBlocks(nil, seed, text, 64)
	if len(blocks) != 6 {
		t.Fatalf("%d blocks of 64 bytes in 400, want 6", len(blocks))
	}
	longer := AppendTextBlocks(nil, seed, append(slices.Clone(text), "and so on, for another block or two of it all"...), 64)
	if !slices.Equal(blocks, longer[:6]) {
		t.Error("a text that goes on has other blocks at its beginning")
	}
	changed := slices.Clone(text)
	changed[70] ^= 1
	other := AppendTextBlocks(nil, seed, changed, 64)
	if other[0] != blocks[0] || other[1] == blocks[1] || other[2].ID == blocks[2].ID || other[2].Tokens != blocks[2].Tokens {
		t.Error("a changed byte must change its block and the sequence hashes after it, and no more")
	}
	if salted := AppendTextBlocks(nil, HashSeed("", "tenant"), text, 64); salted[0] == blocks[0] {
		t.Error("another tenant's text has the same blocks")
	}
	tokens := AppendBlocks(nil, seed, make([]uint32, 64), 16)
	if zeros := AppendTextBlocks(nil, seed, make([]byte, 256), 64); zeros[0] == tokens[0] {
		t.Error("text and tokens of the same bytes have the same blocks")
	}
	if got := AppendTextBlocks(nil, seed, text, 0); got != nil {
		t.Errorf("blocks of no bytes: %v", got)
	}
}
