package hints

import "sync"

// DefaultMaxPrefixes is how many prefixes a [Transport] counts the calls of at a time.
const DefaultMaxPrefixes = 16384

// place is where a call stands: the how manieth it is, from 1.
type place struct {
	prefix   int // of those with its prefix id
	function int // of those in its invocation of a function
	// Whether it was counted for these just now, and not before.
	newPrefix, newFunction bool
}

// counter counts calls by name. It knows a bounded number of names: the one that was not
// counted for longest makes room and would begin anew. Safe for concurrent use.
type counter struct {
	mu      sync.Mutex
	max     int
	index   map[string]int32
	entries []count // linked, the latest first; entry 0 is the ends of the list
	evicted uint64
}

type count struct {
	name       string
	n          int
	prev, next int32
}

func newCounter(max int) *counter {
	return &counter{max: max, index: map[string]int32{}, entries: make([]count, 1)}
}

// next counts a call and returns its number. With again it is the latest that is sent once
// more, and not counted if that was.
func (c *counter) next(name string, again bool) (n int, counted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.find(name)
	if counted = !again || e.n == 0; counted {
		e.n++
	}
	return e.n, counted
}

// undo takes a call back that was not sent, unless others were counted since.
func (c *counter) undo(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i, ok := c.index[name]; ok && c.entries[i].n == n {
		c.entries[i].n--
	}
}

// find returns the entry of a name, which is the latest from now on.
func (c *counter) find(name string) *count {
	i, ok := c.index[name]
	switch {
	case ok:
		c.unlink(i)
	case len(c.entries) <= c.max:
		i = int32(len(c.entries))
		c.entries = append(c.entries, count{name: name})
		c.index[name] = i
	default:
		i = c.entries[0].prev
		c.unlink(i)
		delete(c.index, c.entries[i].name)
		c.entries[i] = count{name: name}
		c.index[name] = i
		c.evicted++
	}
	first := c.entries[0].next
	c.entries[i].prev, c.entries[i].next = 0, first
	c.entries[first].prev = i
	c.entries[0].next = i
	return &c.entries[i]
}

func (c *counter) unlink(i int32) {
	e := c.entries[i]
	c.entries[e.prev].next = e.next
	c.entries[e.next].prev = e.prev
}

// size returns how many names are known, and how many had to make room.
func (c *counter) size() (n int, evicted uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.index), c.evicted
}
