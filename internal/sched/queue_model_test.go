package sched

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// naiveQueue is a queue as one would write it down: all waiters in a slice, looked
// through for every question, and no tenant ever forgotten while anything waits.
type naiveQueue struct {
	maxJump float64
	classes []naiveClass
	order   int
	cursor  int
	carry   int // -1 for none
}

type naiveClass struct {
	cfg     Class
	deficit int
	waiters []naiveWaiter
	now     int
	turns   int
	tenants map[string]naiveTenant
}

type naiveWaiter struct {
	w           *Waiter
	key         float64
	order, cost int
}

type naiveTenant struct{ start, turn int }

func newNaiveQueue(cfg QueueConfig) *naiveQueue {
	n := &naiveQueue{maxJump: cfg.MaxJump.Seconds(), carry: -1}
	for _, c := range cfg.Classes {
		n.classes = append(n.classes, naiveClass{cfg: c, tenants: make(map[string]naiveTenant)})
	}
	return n
}

func (n *naiveQueue) push(w *Waiter, class, workers int) (LimitKind, bool) {
	c := &n.classes[class]
	var prompt, cached int
	waits := false
	for _, o := range c.waiters {
		prompt += o.w.PromptTokens
		cached += o.w.CachedTokens
		waits = waits || o.w.Tenant == w.Tenant
	}
	switch {
	case c.cfg.MaxRequests != nil && len(c.waiters) >= *c.cfg.MaxRequests*workers:
		return LimitRequests, false
	case c.cfg.MaxPromptTokens != nil && prompt >= *c.cfg.MaxPromptTokens*workers:
		return LimitPromptTokens, false
	case c.cfg.MaxCachedTokens != nil && cached >= *c.cfg.MaxCachedTokens*workers:
		return LimitCachedTokens, false
	}
	jump := w.Jump
	if !(jump > 0) {
		jump = 0
	} else if jump > n.maxJump {
		jump = n.maxJump
	}
	cost := max(1, w.PromptTokens-w.CachedTokens)
	key := jump - w.Arrived.Seconds()
	switch c.cfg.Policy {
	case LCFS:
		key = jump + w.Arrived.Seconds()
	case WSPT:
		key = (1 + jump) / float64(cost)
	}
	if !waits {
		c.tenants[w.Tenant] = naiveTenant{start: max(c.now, c.tenants[w.Tenant].start), turn: c.turns}
		c.turns++
	}
	c.waiters = append(c.waiters, naiveWaiter{w, key, n.order, cost})
	n.order++
	return "", true
}

// head returns the index of the waiter that goes first in a class, -1 if none can.
func (c *naiveClass) head(ready func(*Waiter) bool) int {
	best := -1
	for i, a := range c.waiters {
		if !ready(a.w) {
			continue
		}
		if best < 0 {
			best = i
			continue
		}
		b := c.waiters[best]
		ta, tb := c.tenants[a.w.Tenant], c.tenants[b.w.Tenant]
		if cmp.Or(
			cmp.Compare(ta.start, tb.start), cmp.Compare(ta.turn, tb.turn),
			cmp.Compare(b.w.Tier, a.w.Tier), cmp.Compare(b.key, a.key), cmp.Compare(a.order, b.order),
		) < 0 {
			best = i
		}
	}
	return best
}

func (n *naiveQueue) pop(ready func(*Waiter, int) bool) (*Waiter, int) {
	heads := make([]int, len(n.classes)) // costs, 0 for none
	for i := range n.classes {
		c := &n.classes[i]
		if len(c.waiters) == 0 {
			c.deficit = 0
		}
		if at := c.head(func(w *Waiter) bool { return ready(w, i) }); at >= 0 {
			heads[i] = c.waiters[at].cost
		}
	}
	affordable := func(i int) bool { return heads[i] > 0 && heads[i] <= n.classes[i].deficit }
	if n.carry >= 0 && affordable(n.carry) {
		return n.take(n.carry, ready)
	}
	n.carry = -1
	ring := make([]int, len(n.classes))
	for i := range ring {
		ring[i] = (n.cursor + i) % len(ring)
	}
	for _, i := range ring {
		if heads[i] > 0 && !affordable(i) {
			n.classes[i].deficit += n.classes[i].cfg.Quantum
		}
		if affordable(i) {
			return n.take(i, ready)
		}
	}
	if slices.Max(heads) == 0 {
		return nil, 0
	}
	for { // a round at a time
		for i := range n.classes {
			if heads[i] > 0 {
				n.classes[i].deficit += n.classes[i].cfg.Quantum
			}
		}
		for _, i := range ring {
			if affordable(i) {
				return n.take(i, ready)
			}
		}
	}
}

func (n *naiveQueue) take(class int, ready func(*Waiter, int) bool) (*Waiter, int) {
	c := &n.classes[class]
	at := c.head(func(w *Waiter) bool { return ready(w, class) })
	taken := c.waiters[at]
	t := c.tenants[taken.w.Tenant]
	c.now = max(c.now, t.start)
	t.start = c.now + taken.cost
	c.tenants[taken.w.Tenant] = t
	n.cursor = (class + 1) % len(n.classes)
	c.deficit -= taken.cost
	n.remove(taken.w, class)
	n.carry = -1
	if c.deficit > 0 {
		n.carry = class
	}
	return taken.w, class
}

func (n *naiveQueue) remove(w *Waiter, class int) {
	c := &n.classes[class]
	c.waiters = slices.DeleteFunc(c.waiters, func(o naiveWaiter) bool { return o.w == w })
	if len(c.waiters) == 0 {
		c.deficit, c.now, c.turns = 0, 0, 0
		clear(c.tenants)
	}
}

func modelConfig() QueueConfig {
	return QueueConfig{
		DefaultFamily: "a",
		MaxJump:       20 * time.Second,
		Classes: []Class{
			{Name: "a", Quantum: 50, Policy: FCFS},
			{Name: "b", Quantum: 7, Policy: WSPT, MaxRequests: new(10), MaxPromptTokens: new(900)},
			{Name: "c", Quantum: 400, Policy: LCFS, MaxCachedTokens: new(150)},
		},
	}
}

// againstModel reads operations from script and does them on a queue and on the
// model, which must agree.
func againstModel(t testing.TB, script []byte) {
	next := func() int {
		if len(script) == 0 {
			return 0
		}
		b := script[0]
		script = script[1:]
		return int(b)
	}
	type entry struct {
		w     *Waiter
		class int
	}
	cfg := modelConfig()
	q, n := mustQueue(t, cfg), newNaiveQueue(cfg)
	var waiting []entry
	drop := func(w *Waiter) {
		waiting = slices.DeleteFunc(waiting, func(e entry) bool { return e.w == w })
	}
	for step := 0; len(script) > 0; step++ {
		switch op := next(); {
		case op < 130:
			w := &Waiter{
				Arrived:      time.Duration(next()) * time.Second / 4,
				Jump:         []float64{0, 0, 0, 5, 19.5, 1000, -3, math.NaN(), math.Inf(1), math.Inf(-1)}[next()%10],
				Tier:         uint32(max(0, next()%8-5)),
				PromptTokens: next() * 2,
				Tenant:       string(rune('A' + next()%6)),
				Lane:         uint64(next() % 4),
				Value:        step,
			}
			w.CachedTokens = next() % (w.PromptTokens + 2)
			class, workers := next()%len(cfg.Classes), 1+next()%3
			kind, ok := n.push(w, class, workers)
			err := q.Push(w, class, workers)
			if (err == nil) != ok {
				t.Fatalf("step %d: push says %v, the model %q", step, err, kind)
			}
			if !ok {
				if limit := err.(*LimitError); limit.Kind != kind {
					t.Fatalf("step %d: push says %v, the model %q", step, err, kind)
				}
				continue
			}
			waiting = append(waiting, entry{w, class})
		case op < 235:
			// A bit for each class and lane; more often than not most can go.
			blocked := next() | next()<<8
			if next()%3 > 0 {
				blocked &= next() | next()<<8
			}
			ready := func(w *Waiter, class int) bool { return blocked>>(class*4+int(w.Lane))&1 == 0 }
			asked := make(map[[2]int]bool)
			got, gotClass := q.Pop(func(w *Waiter, class int) bool {
				key := [2]int{class, int(w.Lane)}
				if asked[key] {
					t.Fatalf("step %d: asked twice about class %d lane %d", step, class, w.Lane)
				}
				asked[key] = true
				return ready(w, class)
			})
			want, wantClass := n.pop(ready)
			if got != want || gotClass != wantClass {
				t.Fatalf("step %d: popped %+v of class %d, the model %+v of class %d", step, got, gotClass, want, wantClass)
			}
			drop(got)
		default:
			if len(waiting) == 0 {
				continue
			}
			e := waiting[next()%len(waiting)]
			if !q.Remove(e.w) {
				t.Fatalf("step %d: %+v was not waiting", step, e.w)
			}
			n.remove(e.w, e.class)
			drop(e.w)
		}
		checkQueue(t, q)
		if q.Len() != len(waiting) {
			t.Fatalf("step %d: %d wait, want %d", step, q.Len(), len(waiting))
		}
		for i := range n.classes {
			if got, want := q.classes[i].deficit, n.classes[i].deficit; got != int64(want) {
				t.Fatalf("step %d: class %d may spend %d, in the model %d", step, i, got, want)
			}
		}
	}
}

func TestQueueAgainstModel(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 6))
		script := make([]byte, 8000)
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		againstModel(t, script)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzQueue(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 20, 300, 2000} {
		script := make([]byte, n)
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		againstModel(t, script[:min(len(script), 4000)])
	})
}
