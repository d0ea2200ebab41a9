package simengine

import (
	"sort"

	"github.com/stator-ai/stator/internal/kv"
)

// none is no block.
const none int32 = -1

// cache is the blocks of a rank. A block is free, or active while requests use
// it, or cached: nobody uses it, but what it holds may be wanted again. Cached
// blocks are given up in the order in which they were let go. A request lets its
// blocks go from the last to the first, so the beginning of a prompt, which more
// requests share, stays longest.
type cache struct {
	blocks []block
	free   []int32 // a stack
	byID   map[kv.BlockID]int32
	oldest int32 // of the cached
	newest int32
	active int
	cached int
	// relief counts what can make room for a waiting request: blocks that ceased
	// to be active, and blocks that came to be known by their content.
	relief int
	silent bool // no events
}

// block is one block of the cache.
type block struct {
	id    kv.BlockID
	known bool  // its content has an id and can be found by it
	refs  int32 // requests that use it
	prev  int32 // while cached: the one let go before
	next  int32 // and after
	// Blocks with the same content form a ring, in the order in which it became
	// known of them, and the last is followed by the first.
	sameNext, samePrev int32
}

func newCache(n int, silent bool) cache {
	c := cache{
		blocks: make([]block, n),
		free:   make([]int32, n),
		byID:   make(map[kv.BlockID]int32, n),
		oldest: none,
		newest: none,
		silent: silent,
	}
	for i := range c.free {
		c.free[i] = int32(n - 1 - i) // the first is taken first
	}
	return c
}

// available returns how many blocks could be taken.
func (c *cache) available() int { return len(c.free) + c.cached }

// find returns a block with that content, or none.
func (c *cache) find(id kv.BlockID) int32 {
	if b, ok := c.byID[id]; ok {
		return b
	}
	return none
}

// use adds a user to a block with content.
func (c *cache) use(b int32) {
	bl := &c.blocks[b]
	if bl.refs == 0 {
		c.unlink(bl)
		c.cached--
		c.active++
	}
	bl.refs++
}

// take returns an empty block with one user, giving up the oldest cached one if
// no other is left. It returns none when all are active.
func (c *cache) take(p *Pass) int32 {
	var b int32
	if n := len(c.free); n > 0 {
		b = c.free[n-1]
		c.free = c.free[:n-1]
	} else if b = c.oldest; b != none {
		bl := &c.blocks[b]
		c.unlink(bl)
		c.cached--
		c.forget(b)
		if !c.silent {
			p.removed(bl.id)
		}
	} else {
		return none
	}
	c.blocks[b].refs = 1
	c.active++
	return b
}

// name makes the content of an active block known. Several blocks may hold the
// same: two requests with one prompt that run side by side each compute it. The
// one that has held it longest is found.
func (c *cache) name(b int32, id kv.BlockID) {
	bl := &c.blocks[b]
	bl.id, bl.known = id, true
	c.relief++
	first, ok := c.byID[id]
	if !ok {
		bl.sameNext, bl.samePrev = b, b
		c.byID[id] = b
		return
	}
	last := c.blocks[first].samePrev
	bl.sameNext, bl.samePrev = first, last
	c.blocks[first].samePrev, c.blocks[last].sameNext = b, b
}

// forget makes a block's content unknown.
func (c *cache) forget(b int32) {
	bl := &c.blocks[b]
	bl.known = false
	if bl.sameNext == b {
		delete(c.byID, bl.id)
		return
	}
	c.blocks[bl.sameNext].samePrev, c.blocks[bl.samePrev].sameNext = bl.samePrev, bl.sameNext
	if c.byID[bl.id] == b {
		c.byID[bl.id] = bl.sameNext
	}
}

// letGo takes a user away.
func (c *cache) letGo(b int32) {
	bl := &c.blocks[b]
	if bl.refs--; bl.refs > 0 {
		return
	}
	c.active--
	c.relief++
	if !bl.known {
		c.free = append(c.free, b)
		return
	}
	c.cached++
	bl.prev, bl.next = c.newest, none
	if c.newest != none {
		c.blocks[c.newest].next = b
	} else {
		c.oldest = b
	}
	c.newest = b
}

// letGoAll takes a user away from each of a request's blocks.
func (c *cache) letGoAll(blocks []int32) {
	for i := len(blocks) - 1; i >= 0; i-- {
		c.letGo(blocks[i])
	}
}

// unlink takes a cached block out of their order.
func (c *cache) unlink(bl *block) {
	if bl.prev != none {
		c.blocks[bl.prev].next = bl.next
	} else {
		c.oldest = bl.next
	}
	if bl.next != none {
		c.blocks[bl.next].prev = bl.prev
	} else {
		c.newest = bl.prev
	}
}

// queue is the requests that wait, in order.
type queue struct {
	items []*Request
	head  int
}

func (q *queue) len() int { return len(q.items) - q.head }

// first returns the request at the front, nil when there is none.
func (q *queue) first() *Request {
	if q.len() == 0 {
		return nil
	}
	return q.items[q.head]
}

func (q *queue) push(r *Request) {
	if q.head > 0 && len(q.items) == cap(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, r)
}

func (q *queue) pushFront(r *Request) {
	if q.head == 0 {
		room := q.len()/2 + 4
		grown := make([]*Request, room+q.len(), 2*(room+q.len()))
		copy(grown[room:], q.items)
		q.items, q.head = grown, room
	}
	q.head--
	q.items[q.head] = r
}

// insert puts a request where its priority has it go.
func (q *queue) insert(r *Request) {
	q.push(r)
	at := q.head + sort.Search(q.len()-1, func(i int) bool { return r.before(q.items[q.head+i]) })
	copy(q.items[at+1:], q.items[at:])
	q.items[at] = r
}

func (q *queue) pop() *Request {
	r := q.items[q.head]
	q.items[q.head] = nil
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return r
}

// remove takes a request out, wherever it is.
func (q *queue) remove(r *Request) {
	if q.first() == r {
		q.pop()
		return
	}
	for i := q.head; i < len(q.items); i++ {
		if q.items[i] == r {
			copy(q.items[i:], q.items[i+1:])
			q.items[len(q.items)-1] = nil
			q.items = q.items[:len(q.items)-1]
			return
		}
	}
}
