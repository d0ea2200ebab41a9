package sched

import (
	"iter"
	"time"
)

// Waiter is a request that waits. The caller fills in the exported fields before
// Push and does not change them while it waits, nor copies it.
type Waiter struct {
	// Arrived is when it came, after an instant that the caller chose for the queue.
	Arrived time.Duration
	// Jump is its head start in seconds. What is negative or not a number is none.
	Jump float64
	// Tier goes before all lower ones of the same tenant and class.
	Tier uint32
	// PromptTokens is the length of the prompt, CachedTokens how much of it the rank
	// that has most of it has.
	PromptTokens, CachedTokens int
	// Tenant is whose it is. Tenants of a class share it evenly.
	Tenant string
	// Lane stands for what it may run on: requests with the same lane can go, or
	// cannot, together.
	Lane uint64
	// Value is the caller's.
	Value any

	cell  *cell // nil while it does not wait
	at    int   // its index there
	key   float64
	order uint64 // of pushes
	cost  int64
}

// Queue holds requests back and says which goes next.
//
// Classes take turns by deficit round robin: each may spend its quantum of tokens a
// round and keeps what it did not spend while it has requests that could go. In a
// class, the tenant goes next that has been given the fewest tokens. Of a tenant's
// requests that could go, the one with the highest tier goes, then the one that the
// class's policy prefers. A request costs the tokens of its prompt that were in no
// cache when it was pushed.
//
// The same calls give the same answers. A queue is not safe for concurrent use.
type Queue struct {
	config  []Class
	find    *classifier
	maxJump float64 // seconds
	classes []class
	waiting int
	order   uint64 // of the next push
	call    uint64 // of Pop, to tell what was asked in it
	cursor  int    // the class whose turn is next
	carry   *class // the class that has not used up its turn, or nil
}

// NewQueue returns an empty queue. The error joins a *[QueueConfigError] for each
// field at fault.
func NewQueue(cfg QueueConfig) (*Queue, error) {
	config, find, err := cfg.resolve()
	if err != nil {
		return nil, err
	}
	if cfg.MaxJump == 0 {
		cfg.MaxJump = defaultMaxJump
	}
	q := &Queue{config: config, find: find, maxJump: cfg.MaxJump.Seconds(), classes: make([]class, len(config))}
	for i := range q.classes {
		q.classes[i] = class{
			number:  i,
			quantum: int64(config[i].Quantum),
			flows:   make(map[string]*flow),
			cells:   make(map[cellKey]*cell),
			byLane:  make(map[uint64]*lane),
		}
	}
	return q, nil
}

// Classify returns the number of the class for a request that names one (a family
// or a class, or nothing) and of whose prompt so many tokens are in no cache. A
// class that belongs to a family cannot be named, only the family.
func (q *Queue) Classify(name string, uncached int) int { return q.find.class(name, uncached) }

// Classes returns the classes, by number, with their defaults filled in. The caller
// does not change them.
func (q *Queue) Classes() []Class { return q.config }

// Push has w wait in a class. workers is how many there are. The error is a
// *[LimitError] if too much waits there already. It panics if w waits already.
func (q *Queue) Push(w *Waiter, class, workers int) error {
	if w.cell != nil {
		panic("sched: push of a request that waits already")
	}
	c, cfg := &q.classes[class], &q.config[class]
	if err := cfg.check(c.waiting, workers); err != nil {
		return err
	}
	w.key = policyKey(cfg.Policy, w, q.maxJump)
	w.cost = int64(w.uncached())
	w.order = q.order
	q.order++
	q.waiting++
	c.push(w)
	return nil
}

// Pop takes out the waiter that goes next and returns it with the number of its
// class, or nil if none can. Ready reports whether a waiter could go now; what it
// says of one holds for all with the same class and lane during the call, and it is
// asked no more than once about them. It must not change the queue.
func (q *Queue) Pop(ready func(w *Waiter, class int) bool) (*Waiter, int) {
	if q.waiting == 0 {
		return nil, 0
	}
	q.call++
	c := q.turn(ready)
	if c == nil {
		return nil, 0
	}
	w := c.head
	q.waiting--
	q.cursor = (c.number + 1) % len(q.classes)
	c.deficit -= w.cost
	c.serve(w)
	q.carry = nil
	if c.deficit > 0 {
		q.carry = c
	}
	return w, c.number
}

// turn returns the class whose head goes next, nil if no head can go. What a class
// may spend covers its head then.
func (q *Queue) turn(ready func(*Waiter, int) bool) *class {
	if c := q.carry; c != nil {
		if h := q.headOf(c, ready); h != nil && h.cost <= c.deficit {
			return c
		}
		q.carry = nil
	}
	for i := range q.classes {
		c := q.fromCursor(i)
		h := q.headOf(c, ready)
		if h == nil {
			continue
		}
		if h.cost > c.deficit {
			c.deficit += c.quantum
		}
		if h.cost <= c.deficit {
			return c
		}
	}
	// Nobody can afford its head after one round: have all the rounds at once that
	// the first one needs.
	var rounds int64
	for i := range q.classes {
		c := &q.classes[i]
		if h := q.headOf(c, ready); h != nil {
			need := (h.cost - c.deficit + c.quantum - 1) / c.quantum
			if rounds == 0 || need < rounds {
				rounds = need
			}
		}
	}
	var first *class
	for i := range q.classes {
		c := q.fromCursor(i)
		if h := q.headOf(c, ready); h != nil {
			c.deficit += c.quantum * rounds
			if first == nil && h.cost <= c.deficit {
				first = c
			}
		}
	}
	return first
}

func (q *Queue) fromCursor(i int) *class { return &q.classes[(q.cursor+i)%len(q.classes)] }

// headOf returns the waiter of a class that goes first among those that can, nil if
// none can. It is found once in a call of Pop.
func (q *Queue) headOf(c *class, ready func(*Waiter, int) bool) *Waiter {
	if c.call != q.call {
		c.call = q.call
		c.head = c.find(ready)
	}
	return c.head
}

// Remove takes w out and reports whether it was waiting.
func (q *Queue) Remove(w *Waiter) bool {
	if w.cell == nil {
		return false
	}
	w.cell.flow.class.remove(w)
	q.waiting--
	return true
}

// Len returns how many wait.
func (q *Queue) Len() int { return q.waiting }

// Lanes returns in how many lanes somebody waits. One that stands in several classes
// counts once for each.
func (q *Queue) Lanes() int {
	n := 0
	for i := range q.classes {
		n += len(q.classes[i].lanes)
	}
	return n
}

// Waiting is what waits in a class.
type Waiting struct{ Requests, PromptTokens, CachedTokens int }

// Waiting returns what waits in a class.
func (q *Queue) Waiting(class int) Waiting { return q.classes[class].waiting }

// All returns the waiters with the numbers of their classes, in no order. The
// queue must not be changed meanwhile.
func (q *Queue) All() iter.Seq2[*Waiter, int] {
	return func(yield func(*Waiter, int) bool) {
		for i := range q.classes {
			for _, l := range q.classes[i].lanes {
				for _, cl := range l.cells {
					for _, w := range cl.waiters {
						if !yield(w, i) {
							return
						}
					}
				}
			}
		}
	}
}
