package sched

// class is what waits in a class.
//
// Tenants share it by start-time fair queueing. A flow is a tenant, and its start is
// how many tokens it has been given, on a clock that all flows read: the class's
// virtual time, which is the start of the flow that was served last. The flow with
// the least goes next. One that comes takes the present time for its start, so that
// having been away is no credit, and one that leaves ahead of time is remembered
// until time has caught up, so that leaving is none either.
//
// Waiters stand in cells, one for each flow and lane. Whether a lane can go is only
// known when somebody asks, and may be expensive to know. So every lane has its
// flows in order: a lane that cannot go costs one question, however many wait in it.
type class struct {
	number  int
	quantum int64
	deficit int64 // tokens it may spend; 0 if nothing waits

	waiting Waiting
	now     uint64           // virtual time, in tokens
	turns   uint64           // how many flows have come, to order those of one start
	flows   map[string]*flow // by tenant, also those that are away
	away    []*flow          // heap of flows ahead of time in which nothing waits
	cells   map[cellKey]*cell
	lanes   []*lane // those in which something waits
	byLane  map[uint64]*lane

	call uint64 // of Pop, in which head was found
	head *Waiter
}

// maxAway bounds how many tenants are remembered that have nothing waiting, in case
// there is no end of new ones. Of more than that, those least ahead are forgotten.
const maxAway = 1 << 14

// flow is a tenant in a class.
type flow struct {
	class  *class
	tenant string
	start  uint64 // the virtual time at which it is served next
	turn   uint64 // between flows with one start
	cells  []*cell
	at     int // its index in class.away, if there are no cells
}

func (f *flow) before(o *flow) bool {
	return f.start < o.start || f.start == o.start && f.turn < o.turn
}

func (f *flow) moved(i int) { f.at = i }

// lane is those waiters of a class that can go, or cannot, together.
type lane struct {
	number uint64
	at     int     // its index in class.lanes
	cells  []*cell // heap by flow, never empty
	call   uint64  // of Pop, in which it was asked
	ready  bool    // the answer
}

// cell is the waiters of a flow in a lane.
type cell struct {
	flow           *flow
	lane           *lane
	inFlow, inLane int       // its indices there
	waiters        []*Waiter // heap, never empty
}

func (c *cell) before(o *cell) bool { return c.flow.before(o.flow) }

func (c *cell) moved(i int) { c.inLane = i }

type cellKey struct {
	flow *flow
	lane uint64
}

// push adds w, whose key, cost and order are set.
func (c *class) push(w *Waiter) {
	f := c.arrive(w.Tenant)
	key := cellKey{f, w.Lane}
	cl := c.cells[key]
	if cl == nil {
		cl = &cell{flow: f, lane: c.open(w.Lane), inFlow: len(f.cells)}
		c.cells[key] = cl
		f.cells = append(f.cells, cl)
		cl.lane.cells = heapPush(cl.lane.cells, cl)
	}
	w.cell = cl
	cl.waiters = heapPush(cl.waiters, w)
	c.count(w, 1)
}

// arrive returns the flow of a tenant in which something is about to wait.
func (c *class) arrive(tenant string) *flow {
	f := c.flows[tenant]
	switch {
	case f == nil:
		f = &flow{class: c, tenant: tenant, start: c.now}
		c.flows[tenant] = f
	case len(f.cells) == 0:
		c.away = heapRemove(c.away, f.at)
	default:
		return f
	}
	f.turn = c.turns
	c.turns++
	return f
}

// open returns a lane in which something is about to wait.
func (c *class) open(number uint64) *lane {
	l := c.byLane[number]
	if l == nil {
		l = &lane{number: number, at: len(c.lanes)}
		c.byLane[number] = l
		c.lanes = append(c.lanes, l)
	}
	return l
}

// find returns the waiter that goes first among those that can, nil if none can.
// It asks about a lane only if its first flow would go before the best found yet.
func (c *class) find(ready func(*Waiter, int) bool) *Waiter {
	var first *flow
	for _, l := range c.lanes {
		top := l.cells[0]
		if (first == nil || top.flow.before(first)) && c.ask(top, ready) {
			first = top.flow
		}
	}
	if first == nil {
		return nil
	}
	var head *Waiter
	for _, cl := range first.cells {
		if w := cl.waiters[0]; (head == nil || w.before(head)) && c.ask(cl, ready) {
			head = w
		}
	}
	return head
}

// ask reports whether the lane of a cell can go. The caller has set c.call.
func (c *class) ask(cl *cell, ready func(*Waiter, int) bool) bool {
	l := cl.lane
	if l.call != c.call {
		l.call = c.call
		l.ready = ready(cl.waiters[0], c.number)
	}
	return l.ready
}

// serve takes w out and charges its flow. A flow that could not go while others
// went is charged from now on, not from when it was left behind: it goes first once,
// and has nothing else to catch up on.
func (c *class) serve(w *Waiter) {
	f := w.cell.flow
	c.now = max(c.now, f.start)
	f.start = c.now + uint64(w.cost)
	c.remove(w)
	for _, cl := range f.cells {
		heapDown(cl.lane.cells, cl.inLane)
	}
	for len(c.away) > 0 && c.away[0].start <= c.now {
		c.forget(c.away[0])
	}
}

// remove takes w out.
func (c *class) remove(w *Waiter) {
	cl := w.cell
	w.cell = nil
	cl.waiters = heapRemove(cl.waiters, w.at)
	c.count(w, -1)
	if w == c.head {
		c.head = nil
	}
	if len(cl.waiters) == 0 {
		c.close(cl)
	}
	if c.waiting.Requests == 0 {
		c.rest()
	}
}

// close takes an empty cell out, and with it a lane and a flow that are empty now.
func (c *class) close(cl *cell) {
	f, l := cl.flow, cl.lane
	delete(c.cells, cellKey{f, l.number})

	l.cells = heapRemove(l.cells, cl.inLane)
	if len(l.cells) == 0 {
		delete(c.byLane, l.number)
		c.lanes = cut(c.lanes, l.at)
		if l.at < len(c.lanes) {
			c.lanes[l.at].at = l.at
		}
	}

	f.cells = cut(f.cells, cl.inFlow)
	if cl.inFlow < len(f.cells) {
		f.cells[cl.inFlow].inFlow = cl.inFlow
	}
	if len(f.cells) > 0 {
		return
	}
	if f.start <= c.now {
		delete(c.flows, f.tenant)
		return
	}
	c.away = heapPush(c.away, f)
	if len(c.away) > maxAway {
		c.forget(c.away[0])
	}
}

// forget drops a flow that is away.
func (c *class) forget(f *flow) {
	c.away = heapRemove(c.away, f.at)
	delete(c.flows, f.tenant)
}

// rest forgets everything: where nothing waits, nobody is ahead of anybody.
func (c *class) rest() {
	if len(c.flows) > 1<<10 { // clearing a map takes as long as it was ever large
		c.flows = make(map[string]*flow)
	}
	clear(c.flows)
	c.away, c.now, c.turns, c.deficit = nil, 0, 0, 0
}

func (c *class) count(w *Waiter, sign int) {
	c.waiting.Requests += sign
	c.waiting.PromptTokens += sign * countedTokens(w.PromptTokens)
	c.waiting.CachedTokens += sign * countedTokens(w.CachedTokens)
}

// cut removes an element and puts the last in its place.
func cut[T any](s []T, i int) []T {
	last := len(s) - 1
	s[i] = s[last]
	var zero T
	s[last] = zero
	return s[:last]
}
