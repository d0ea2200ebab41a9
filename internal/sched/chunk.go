package sched

import (
	"math/bits"

	"github.com/stator-ai/stator/internal/kv"
)

// A chunk is the memory of one or more stretches: the ids of consecutive blocks of
// a prompt. Stretches that were cut apart go on using the same chunk. The ids do
// not change while anybody uses it.
type chunk struct {
	ids   []kv.BlockID
	users int
}

const (
	minChunk = 8        // the least that a chunk has room for
	maxSpare = 32 << 20 // bytes that are kept to be used again

	stretchBytes = 96 // about what a stretch takes, without its shares
	shareBytes   = 16
)

// spares are chunks and stretches that nobody uses. They make booking and freeing
// allocate nothing once there has been as much before.
type spares struct {
	chunks    [bits.UintSize][]*chunk // by the logarithm of their capacity
	stretches []*stretch
	bytes     int
}

// chunk returns one with room for n ids, none in it and one user.
func (sp *spares) chunk(n int) *chunk {
	class := bits.Len(uint(max(n, minChunk) - 1))
	list := sp.chunks[class]
	if len(list) == 0 {
		return &chunk{ids: make([]kv.BlockID, 0, 1<<class), users: 1}
	}
	c := list[len(list)-1]
	sp.chunks[class] = list[:len(list)-1]
	sp.bytes -= 8 << class
	c.users = 1
	return c
}

// release gives up one use of c.
func (sp *spares) release(c *chunk) {
	if c.users--; c.users > 0 {
		return
	}
	n := 8 * cap(c.ids)
	if sp.bytes+n > maxSpare {
		return
	}
	sp.bytes += n
	c.ids = c.ids[:0]
	class := bits.Len(uint(cap(c.ids) - 1))
	sp.chunks[class] = append(sp.chunks[class], c)
}

// stretch returns one that is empty but for the memory of its shares.
func (sp *spares) stretch() *stretch {
	n := len(sp.stretches)
	if n == 0 {
		return new(stretch)
	}
	e := sp.stretches[n-1]
	sp.stretches = sp.stretches[:n-1]
	sp.bytes -= stretchBytes + shareBytes*cap(e.shares)
	return e
}

// drop gives up e and its use of a chunk.
func (sp *spares) drop(e *stretch) {
	sp.release(e.chunk)
	*e = stretch{shares: e.shares[:0]}
	if n := stretchBytes + shareBytes*cap(e.shares); sp.bytes+n <= maxSpare {
		sp.bytes += n
		sp.stretches = append(sp.stretches, e)
	}
}
