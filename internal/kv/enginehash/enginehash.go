// Package enginehash computes the names that engines give to blocks of their KV
// caches, for those whose names are a function of the tokens: SGLang, and vLLM with
// the hash algorithm sha256_cbor.
//
// The index does not need it, since it takes any name. It is for what has to know
// a name before an engine says it: checks of a running engine, and simulated
// engines that dress as real ones.
package enginehash

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/stator-ai/stator/internal/kv"
)

// Digest is the full hash of a block, of which engines show 64 bits.
type Digest [sha256.Size]byte

// First returns the first 64 bits, which SGLang shows as a signed integer.
func (d Digest) First() kv.BlockID { return kv.BlockID(binary.BigEndian.Uint64(d[:8])) }

// Last returns the last 64 bits, which vLLM shows.
func (d Digest) Last() kv.BlockID { return kv.BlockID(binary.BigEndian.Uint64(d[len(d)-8:])) }
