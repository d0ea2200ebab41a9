package kvindex

// The sizes of the pieces in which pages and runs keep their blocks. A piece that
// is full is replaced by the next larger one.
var pieceSizes = [...]int{4, 16, pageBlocks}

// sizeFor returns the smallest size with room for n blocks, as an index into
// pieceSizes.
func sizeFor(n int) uint8 {
	for i, s := range pieceSizes[:len(pieceSizes)-1] {
		if n <= s {
			return uint8(i)
		}
	}
	return uint8(len(pieceSizes) - 1)
}

const slabChunk = 16 // pieces allocated at once

// slab gives out pieces of equal width. They have no pointers, and what is given
// back is given out again. The zero value with a width is empty.
type slab struct {
	width  int
	chunks [][]uint64
	fresh  uint32 // pieces from here on were never given out
	free   uint32 // the piece given back last, plus one; its first word names the next
}

func (s *slab) at(i uint32) []uint64 {
	c := s.chunks[i/slabChunk]
	o := int(i%slabChunk) * s.width
	return c[o : o+s.width : o+s.width]
}

func (s *slab) get() uint32 {
	if s.free != 0 {
		i := s.free - 1
		s.free = uint32(s.at(i)[0])
		return i
	}
	if int(s.fresh) == len(s.chunks)*slabChunk {
		s.chunks = append(s.chunks, make([]uint64, slabChunk*s.width))
	}
	s.fresh++
	return s.fresh - 1
}

func (s *slab) put(i uint32) {
	s.at(i)[0] = uint64(s.free)
	s.free = i + 1
}

func (s *slab) bytes() int { return len(s.chunks) * (slabChunk*s.width*8 + 24) }

// slabs is a slab for each size of pieces.
type slabs [len(pieceSizes)]slab

func newSlabs() (s slabs) {
	for i := range s {
		s[i].width = pieceSizes[i]
	}
	return s
}

func (s *slabs) bytes() (n int) {
	for i := range s {
		n += s[i].bytes()
	}
	return n
}
