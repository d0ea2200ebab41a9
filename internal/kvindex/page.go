package kvindex

import (
	"sync"

	"github.com/stator-ai/stator/internal/kv"
)

// pageBlocks is the most blocks a page has. Coverage is counted in seven bits, and
// a run marks its blocks in the bits of a word.
const pageBlocks = 64

// page is a stretch of consecutive blocks of a prompt, shared by the ranks of a
// plane. It is found by the sequence hash of its first block. Blocks are only ever
// added at its end, until nobody holds any and the page goes: so what lies before
// the end never changes.
//
// A block of a prompt is in one place only: either it follows the block before it
// in the same page, or it is the first of a page of its own. Therefore a prompt is
// looked up page by page: as many blocks as agree, then the page that begins with
// the block after them.
type page struct {
	head, end kv.BlockID // sequence hashes of the first and last block
	before    kv.BlockID // that of the block before the page, 0 at the beginning of a prompt
	locals    uint32     // piece with the local hashes
	size      uint8      // of the piece
	n         uint8      // blocks
	// lanes has a byte for each rank: how many of the blocks it holds, counted from
	// the first. All that come before the page are held too by a rank that holds
	// any.
	lanes [planeRanks / 8]uint64
}

const laneOnes = 0x0101010101010101

func (p *page) lane(slot int) int {
	return int(p.lanes[slot/8] >> (slot % 8 * 8) & 0xff)
}

func (p *page) setLane(slot, n int) {
	shift := slot % 8 * 8
	w := &p.lanes[slot/8]
	*w = *w&^(0xff<<shift) | uint64(n)<<shift
}

// holders returns the ranks that hold at least n blocks of the page.
func (p *page) holders(n int) uint64 {
	var mask uint64
	for i, w := range p.lanes {
		if w == 0 {
			continue
		}
		// The high bit of each byte stays set where the byte is at least n.
		ge := (w | laneOnes<<7) - laneOnes*uint64(n)
		ge &= laneOnes << 7
		mask |= (ge >> 7 * 0x0102040810204080 >> 56) << (8 * i)
	}
	return mask
}

func (p *page) unheld() bool {
	var any uint64
	for _, w := range p.lanes {
		any |= w
	}
	return any == 0
}

const (
	numShards   = 64
	shardBits   = 6
	chunkPages  = 16
	pageIndexes = 32 - shardBits
)

// pageRef names a page of a plane: its shard and its index there.
type pageRef uint32

func (r pageRef) shard() uint32 { return uint32(r) >> pageIndexes }
func (r pageRef) index() uint32 { return uint32(r) & (1<<pageIndexes - 1) }

// shard is the part of a plane's pages whose first blocks have hashes in common.
// It is locked for a page at a time.
type shard struct {
	mu    sync.RWMutex
	heads table // page indexes by first block
	pages [][]page
	fresh uint32   // pages from here on were never in use
	free  []uint32 // pages that are not in use
	local slabs
	lower [kv.NumTiers]farTable
}

func (s *shard) page(i uint32) *page { return &s.pages[i/chunkPages][i%chunkPages] }

// find returns the index of the page that begins with a block.
func (s *shard) find(tag uint64, head kv.BlockID) (uint32, bool) {
	t := &s.heads
	if t.count == 0 {
		return 0, false
	}
	for i := t.home(tag); t.slots[i] != 0; i = t.next(i) {
		if slot := t.slots[i]; slot>>valueBits == tag {
			if at := uint32(slot&valueMask - 1); s.page(at).head == head {
				return at, true
			}
		}
	}
	return 0, false
}

// locals returns the local hashes of a page's blocks, in a slice with room for as
// many as fit.
func (s *shard) locals(p *page) []uint64 { return s.local[p.size].at(p.locals) }

// create makes a page of one block, with room for more.
func (s *shard) create(tag uint64, head, before kv.BlockID, local kv.LocalHash, room int) uint32 {
	var at uint32
	if n := len(s.free); n > 0 {
		at = s.free[n-1]
		s.free = s.free[:n-1]
	} else {
		if int(s.fresh) == len(s.pages)*chunkPages {
			s.pages = append(s.pages, make([]page, chunkPages))
		}
		at = s.fresh
		s.fresh++
	}
	p := s.page(at)
	*p = page{head: head, end: head, before: before, n: 1, size: sizeFor(room)}
	p.locals = s.local[p.size].get()
	s.locals(p)[0] = uint64(local)
	s.heads.add(tag, uint64(at))
	return at
}

// extend adds as many of the blocks to the end of a page as it takes, and returns
// how many that were.
func (s *shard) extend(p *page, blocks []kv.Block) int {
	blocks = blocks[:min(len(blocks), pageBlocks-int(p.n))]
	if len(blocks) == 0 {
		return 0
	}
	n := int(p.n) + len(blocks)
	if n > pieceSizes[p.size] {
		size := sizeFor(n)
		bigger := s.local[size].get()
		copy(s.local[size].at(bigger), s.locals(p)[:p.n])
		s.local[p.size].put(p.locals)
		p.size, p.locals = size, bigger
	}
	locals := s.locals(p)[p.n:]
	end := p.end
	for i, b := range blocks {
		locals[i] = uint64(b.Tokens)
		end = kv.Chain(end, b.Tokens)
	}
	p.end, p.n = end, uint8(n)
	return len(blocks)
}

// release frees a page that nobody holds. A shard without pages gives its memory
// back.
func (s *shard) release(at uint32) {
	p := s.page(at)
	s.heads.remove(tagOf(mix(uint64(p.head))), uint64(at))
	if s.heads.count == 0 {
		s.heads, s.pages, s.fresh, s.free, s.local = table{}, nil, 0, nil, newSlabs()
		return
	}
	s.local[p.size].put(p.locals)
	s.free = append(s.free, at)
}

func (s *shard) bytes() int {
	n := s.heads.bytes() + s.local.bytes() + 4*cap(s.free) + len(s.pages)*(chunkPages*pageBytes+24)
	for t := range s.lower {
		n += s.lower[t].bytes()
	}
	return n
}

const pageBytes = 96

// hashes appends the sequence hashes of the first n blocks of a page.
func (s *shard) hashes(dst []kv.BlockID, p *page, n int) []kv.BlockID {
	h := p.head
	dst = append(dst, h)
	for _, l := range s.locals(p)[1:n] {
		h = kv.Chain(h, kv.LocalHash(l))
		dst = append(dst, h)
	}
	return dst
}
