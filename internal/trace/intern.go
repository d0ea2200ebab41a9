package trace

import (
	"fmt"
	"math"
)

// idArena hands out slices of ids from large pieces of memory, so that a million
// requests are not a million allocations.
type idArena struct{ free []uint32 }

const arenaPiece = 64 << 10

func (a *idArena) make(n int) []uint32 {
	if n > len(a.free) {
		if n > arenaPiece/4 {
			return make([]uint32, n)
		}
		a.free = make([]uint32, arenaPiece)
	}
	s := a.free[:n:n]
	a.free = a.free[n:]
	return s
}

// noParent is the predecessor of first blocks; those below it, of first blocks in
// other namespaces.
const noParent = math.MaxUint32

// maxIDs is how many different blocks with an id a trace can have. [Content] needs
// the bit above, and so do predecessors of first blocks.
const maxIDs = 1 << 31

// interner gives dense ids to blocks in order of first appearance. A block is
// known by its id in the file and by its predecessor, so that a file in which an
// id does not stand for all blocks before it claims no sharing that is not there.
// The zero value is ready.
type interner struct {
	first   map[uint64]uint32   // id in the file → block, under the id's first predecessor
	others  map[blockKey]uint32 // under others, in files where there are some
	parents []uint32            // the predecessor of each block
}

type blockKey struct {
	parent uint32
	id     uint64
}

var errTooManyBlocks = fmt.Errorf("more than %d different blocks", maxIDs)

// intern writes the dense ids of a prompt to dst, which is as long as ids. Prompts
// in different namespaces have no block in common.
func (in *interner) intern(dst []uint32, ids []uint64, namespace uint32) error {
	if maxIDs-len(in.parents) < len(ids) {
		return errTooManyBlocks
	}
	if in.first == nil {
		in.first, in.others = make(map[uint64]uint32), make(map[blockKey]uint32)
	}
	parent := noParent - namespace
	for i, id := range ids {
		block, known := in.first[id]
		if !known {
			block = in.add(parent)
			in.first[id] = block
		} else if in.parents[block] != parent {
			key := blockKey{parent, id}
			if block, known = in.others[key]; !known {
				block = in.add(parent)
				in.others[key] = block
			}
		}
		dst[i], parent = block, block
	}
	return nil
}

func (in *interner) add(parent uint32) uint32 {
	in.parents = append(in.parents, parent)
	return uint32(len(in.parents) - 1)
}
