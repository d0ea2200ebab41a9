package sched

import (
	"slices"

	"github.com/stator-ai/stator/internal/kv"
)

// A stretch is a run of consecutive blocks of a prompt, from where it parted from
// another or an earlier booking ended to where the next one does. Stretches are the
// edges of a tree, whose every path from the top is the beginning of a booked
// prompt.
//
// The id of a block stands for all blocks up to it. So the first id of a stretch
// names it in the whole tree, and two stretches that agree in a place agree before
// it. Ids can be made up to break that; then blocks are counted wrongly for as long
// as those requests live, and nothing else happens.
type stretch struct {
	chunk  *chunk
	lo, hi int // its blocks are chunk.ids[lo:hi], at least one
	parent *stretch
	// children is how many stretches go on from here, and firsts the exclusive or of
	// their first ids: the id itself when there is one.
	children int
	firsts   kv.BlockID
	// shares say who holds the blocks, by seat. There is at least one. A seat that
	// holds a stretch holds its parent, at least as often.
	shares []share
}

// A share is what a seat has in a stretch: how many of its bookings go through all
// of it, and the weight of each block there, in parts of [wholeBlock].
type share struct {
	seat   Seat
	refs   uint32
	weight int64
}

// wholeBlock is the weight 1. Weights and their sums are whole numbers of parts, so
// that totals are exact and do not depend on what was booked before.
const (
	wholeBits  = 32
	wholeBlock = 1 << wholeBits
)

// joinCopy is up to how many blocks two stretches are copied together. It keeps
// prompts that grow while they are booked from falling into ever more pieces.
const joinCopy = 128

func (e *stretch) len() int              { return e.hi - e.lo }
func (e *stretch) ids() []kv.BlockID     { return e.chunk.ids[e.lo:e.hi] }
func (e *stretch) id(i int) kv.BlockID   { return e.chunk.ids[e.lo+i] }
func (e *stretch) first() kv.BlockID     { return e.chunk.ids[e.lo] }
func (e *stretch) full(w int64) int64    { return int64(e.len()) * w }
func (e *stretch) share(s Seat) *share   { i, _ := e.find(s); return &e.shares[i] }
func (e *stretch) adopt(id kv.BlockID)   { e.children++; e.firsts ^= id }
func (e *stretch) abandon(id kv.BlockID) { e.children--; e.firsts ^= id }

// find returns where the share of s is, or would be.
func (e *stretch) find(s Seat) (int, bool) {
	lo, hi := 0, len(e.shares)
	for lo < hi {
		if mid := (lo + hi) / 2; e.shares[mid].seat < s {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(e.shares) && e.shares[lo].seat == s
}

// agree returns how many leading blocks of prompt are those of e. The first is.
func (e *stretch) agree(prompt []kv.Block) int {
	n := min(e.len(), len(prompt))
	ids := e.ids()[:n]
	if ids[n-1] == prompt[n-1].ID {
		return n
	}
	lo, hi := 1, n-1 // lo blocks agree, more than hi do not
	for lo < hi {
		if mid := (lo + hi + 1) / 2; ids[mid-1] == prompt[mid-1].ID {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

// extend makes a stretch of the prompt's blocks that goes on from parent, which is
// nil at the top. No stretch has its first id.
func (l *Ledger) extend(parent *stretch, prompt []kv.Block) *stretch {
	c := l.spares.chunk(len(prompt))
	ids := c.ids[:len(prompt)]
	for i := range prompt {
		ids[i] = prompt[i].ID
	}
	c.ids = ids
	e := l.spares.stretch()
	e.chunk, e.lo, e.hi, e.parent = c, 0, len(ids), parent
	if parent != nil {
		parent.adopt(ids[0])
	}
	if l.stretches == nil {
		l.stretches = make(map[kv.BlockID]*stretch)
	}
	l.stretches[ids[0]] = e
	l.blocks += len(ids)
	return e
}

// split cuts e after n blocks, fewer than it has, and returns the new stretch in
// front; e is what comes after, so that bookings that end there still do. It returns
// nil if another stretch begins with the id behind the cut.
func (l *Ledger) split(e *stretch, n int) *stretch {
	id := e.id(n)
	if _, taken := l.stretches[id]; taken {
		return nil
	}
	front := l.spares.stretch()
	front.chunk, front.lo, front.hi, front.parent = e.chunk, e.lo, e.lo+n, e.parent
	front.shares = append(front.shares, e.shares...)
	front.adopt(id)
	e.chunk.users++
	l.stretches[e.first()] = front
	e.lo, e.parent = front.hi, front
	l.stretches[id] = e
	return front
}

// tidy puts e, of which a booking has gone, together with the stretch behind it if
// nothing tells them apart any more. Otherwise it gives up memory that e alone uses
// and mostly does not need.
func (l *Ledger) tidy(e *stretch) {
	if e.children == 1 && l.join(e, l.stretches[e.firsts]) {
		return
	}
	if c := e.chunk; c.users == 1 && cap(c.ids) > minChunk && 4*e.len() <= cap(c.ids) {
		l.move(e, e.len())
	}
}

// join makes e, whose only child next is, a part of it, if all that go through e go
// through next, with equal weights. It reports whether it did.
func (l *Ledger) join(e, next *stretch) bool {
	if !slices.Equal(e.shares, next.shares) {
		return false
	}
	first, after := e.first(), next.first()
	switch {
	case e.chunk == next.chunk && e.hi == next.lo:
		next.lo = e.lo
	case e.len()+next.len() <= joinCopy:
		l.move(e, e.len()+next.len())
		c := e.chunk
		c.ids = append(c.ids, next.ids()...)
		c.users++
		l.spares.release(next.chunk)
		next.chunk, next.lo, next.hi = c, 0, len(c.ids)
	default:
		return false
	}
	next.parent = e.parent
	delete(l.stretches, after)
	l.stretches[first] = next
	l.spares.drop(e)
	return true
}

// move gives e a chunk of its own with room for n ids.
func (l *Ledger) move(e *stretch, n int) {
	c := l.spares.chunk(n)
	c.ids = append(c.ids, e.ids()...)
	l.spares.release(e.chunk)
	e.chunk, e.lo, e.hi = c, 0, len(c.ids)
}

// remove takes out e, which nobody holds.
func (l *Ledger) remove(e *stretch) {
	id := e.first()
	if e.parent != nil {
		e.parent.abandon(id)
	}
	delete(l.stretches, id)
	l.blocks -= e.len()
	l.spares.drop(e)
}
