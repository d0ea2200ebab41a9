package dynamo

import (
	"encoding/binary"
	"math/bits"

	"github.com/zeebo/xxh3"

	"github.com/stator-ai/stator/internal/kv"
)

// Seeds of the cuckoo filters: of where a block goes, and of how far its second
// bucket is from its first.
const (
	cuckooSeed  = 0x5DEECE66D1B54A33
	cuckooDelta = cuckooSeed ^ 0x9E3779B97F4A7C15
)

// Buckets returns how many buckets a cuckoo filter for a number of blocks has: a
// power of two, 2 at least, with four places in each and a fifth of them to spare.
func Buckets(blocks uint64) uint64 {
	high, low := bits.Mul64(5, blocks)
	low, carry := bits.Add64(low, 15, 0)
	n, _ := bits.Div64(high+carry, low, 16)
	if n <= 2 {
		return 2
	}
	return 1 << bits.Len64(n-1)
}

// Probe is where a cuckoo filter has a block, if it has it: its fingerprint, never
// zero, lies in one of two buckets, which differ.
type Probe struct {
	Fingerprint uint16
	Buckets     [2]uint64
}

// NewProbe returns where a filter of a number of buckets, which is a power of two
// and not below 2, has the block with a sequence hash.
func NewProbe(id kv.BlockID, buckets uint64) Probe {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(id))
	m := xxh3.HashSeed(b[:], cuckooSeed)
	fingerprint := max(uint16(m), 1)
	binary.LittleEndian.PutUint16(b[:2], fingerprint)
	delta := max(xxh3.HashSeed(b[:2], cuckooDelta)&(buckets-1), 1)
	first := m >> 16 & (buckets - 1)
	return Probe{fingerprint, [2]uint64{first, first ^ delta}}
}

// In says whether a bucket, which is four fingerprints in a word, holds the
// probe's. That a filter holds a fingerprint does not prove that it holds the
// block.
func (p Probe) In(bucket uint64) bool {
	const ones = 0x0001000100010001
	x := bucket ^ uint64(p.Fingerprint)*ones // zero where the fingerprint is
	return (x-ones)&^x&(ones<<15) != 0
}
