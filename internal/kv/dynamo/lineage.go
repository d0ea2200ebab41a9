package dynamo

import (
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/stator-ai/stator/internal/kv"
)

// Lineage is the positional lineage hash that Dynamo's block manager knows a block
// by, as a big-endian integer of 128 bits: two bits of mode, the block's position
// in its prompt, its sequence hash, and the low bits of the sequence hash before
// it. The mode says how many bits the position takes, at the expense of the last
// part.
type Lineage [16]byte

// positionBits is the width of the position by mode.
var positionBits = [...]uint{8, 16, 24}

// parentBits is the width of the last part in a mode.
func parentBits(mode int) uint { return 62 - positionBits[mode] }

// NewLineage returns the lineage of the block at a position with its sequence hash
// and that of the block before it, which does not count at position 0. Positions
// from 2^24 on are an error.
func NewLineage(position uint64, id, parent kv.BlockID) (Lineage, error) {
	mode := 0
	for mode < len(positionBits) && position >= 1<<positionBits[mode] {
		mode++
	}
	if mode == len(positionBits) {
		return Lineage{}, fmt.Errorf("lineage: position: expected less than 2^24, got %d", position)
	}
	if position == 0 {
		parent = 0
	}
	// The sequence hash lies across the two halves: its low bits begin the second.
	split := parentBits(mode)
	var l Lineage
	high := uint64(mode)<<62 | position<<split | uint64(id)>>(64-split)
	low := uint64(id)<<split | uint64(parent)&(1<<split-1)
	binary.BigEndian.PutUint64(l[:8], high)
	binary.BigEndian.PutUint64(l[8:], low)
	return l, nil
}

// AppendLineage appends the lineage of the blocks of a prompt from its first on,
// whose IDs are sequence hashes.
func AppendLineage(dst []Lineage, blocks []kv.Block) ([]Lineage, error) {
	var parent kv.BlockID
	for i, b := range blocks {
		l, err := NewLineage(uint64(i), b.ID, parent)
		if err != nil {
			return dst, err
		}
		dst, parent = append(dst, l), b.ID
	}
	return dst, nil
}

// LineageParts are the parts of a [Lineage].
type LineageParts struct {
	Position uint64
	ID       kv.BlockID
	// Parent are the low ParentBits bits of the sequence hash before the block.
	Parent     kv.BlockID
	ParentBits int
}

// Parts takes a lineage apart. A mode that does not exist is an error.
func (l Lineage) Parts() (LineageParts, error) {
	high, low := binary.BigEndian.Uint64(l[:8]), binary.BigEndian.Uint64(l[8:])
	mode := int(high >> 62)
	if mode >= len(positionBits) {
		return LineageParts{}, fmt.Errorf("lineage: mode: expected 0, 1 or 2, got %d", mode)
	}
	split := parentBits(mode)
	return LineageParts{
		Position:   high << 2 >> 2 >> split,
		ID:         kv.BlockID(high<<(64-split) | low>>split),
		Parent:     kv.BlockID(low & (1<<split - 1)),
		ParentBits: int(split),
	}, nil
}

// Slot is a place of a block: a token, or a placeholder for a multimodal object.
type Slot struct {
	Token uint32
	// Placeholder says that the slot is number Offset in the run of those that
	// stand for Object, and not a token.
	Placeholder bool
	Object      kv.MMHash
	Offset      uint32
}

// HashSlots returns the local hash that the block manager gives to a block, under a
// seed from [kv.HashSeed]. Without placeholders it is that of the tokens. Otherwise
// every slot is hashed as 13 bytes: a token as 0, itself and eight zeros, a
// placeholder as 1, its offset and the object, with little-endian integers.
func HashSlots(seed uint64, slots []Slot) kv.LocalHash {
	placeholders := false
	for i := range slots {
		placeholders = placeholders || slots[i].Placeholder
	}
	var buf [1024]byte
	b := buf[:0]
	for i := range slots {
		s := &slots[i]
		switch {
		case s.Placeholder:
			b = binary.LittleEndian.AppendUint32(append(b, 1), s.Offset)
			b = binary.LittleEndian.AppendUint64(b, uint64(s.Object))
		case placeholders:
			b = binary.LittleEndian.AppendUint32(append(b, 0), s.Token)
			b = binary.LittleEndian.AppendUint64(b, 0)
		default:
			b = binary.LittleEndian.AppendUint32(b, s.Token)
		}
	}
	return kv.LocalHash(xxh3.HashSeed(b, seed))
}
