package sched

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func anyTime(*Waiter, int) bool { return true }

// push has a waiter wait and fails the test if it may not.
func push(t testing.TB, q *Queue, w *Waiter, class int) {
	t.Helper()
	if err := q.Push(w, class, 1); err != nil {
		t.Fatal(err)
	}
}

// drain pops until nothing is left that can go, and returns the values.
func drain(q *Queue, ready func(*Waiter, int) bool) []string {
	var out []string
	for {
		w, _ := q.Pop(ready)
		if w == nil {
			return out
		}
		out = append(out, fmt.Sprint(w.Value))
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func TestT8QueueKeys(t *testing.T) {
	type request struct {
		arrived, jump float64
	}
	q := mustQueue(t, QueueConfig{})
	for _, r := range []request{{10, 0}, {12, 5}, {3, 0}, {2, 9}, {14, 11.5}} {
		push(t, q, &Waiter{Arrived: seconds(r.arrived), Jump: r.jump, Value: r}, 0)
	}
	want := []string{"{2 9}", "{14 11.5}", "{3 0}", "{12 5}", "{10 0}"}
	if diff := cmp.Diff(want, drain(q, anyTime)); diff != "" {
		t.Errorf("fcfs (-want +got):\n%s", diff)
	}

	for _, tc := range []struct {
		policy Policy
		w      Waiter
		want   float64
	}{
		{WSPT, Waiter{PromptTokens: 1024, CachedTokens: 960}, 1.0 / 64},
		{WSPT, Waiter{PromptTokens: 512, Jump: 5}, 6.0 / 512},
		{WSPT, Waiter{PromptTokens: 512, CachedTokens: 512}, 1},
		{WSPT, Waiter{PromptTokens: 512, CachedTokens: 528}, 1},
		{WSPT, Waiter{}, 1},
		{FCFS, Waiter{Arrived: seconds(10)}, -10},
		{FCFS, Waiter{Arrived: seconds(2), Jump: 9}, 7},
		{FCFS, Waiter{Arrived: seconds(2), Jump: -9}, -2},
		{FCFS, Waiter{Arrived: seconds(2), Jump: 61}, 58},
		{LCFS, Waiter{Arrived: seconds(2), Jump: 9}, 11},
		{FCFS, Waiter{Jump: math.NaN()}, 0},
		{FCFS, Waiter{Jump: math.Inf(1)}, 60},
		{FCFS, Waiter{Jump: math.Inf(-1)}, 0},
		{WSPT, Waiter{Jump: math.Inf(1), PromptTokens: 61}, 1},
		{WSPT, Waiter{Jump: math.NaN(), PromptTokens: 2}, 0.5},
		{WSPT, Waiter{PromptTokens: -5, CachedTokens: -7}, 1},
	} {
		if got := policyKey(tc.policy, &tc.w, 60); got != tc.want {
			t.Errorf("%s key of %+v: %v, want %v", tc.policy, tc.w, got, tc.want)
		}
	}
}

func TestT11DeficitRoundRobin(t *testing.T) {
	class := func(name string, quantum int) Class { return Class{Name: name, Quantum: quantum} }
	fill := func(t *testing.T, q *Queue, class int, costs ...int) {
		name := q.Classes()[class].Name
		for _, n := range costs {
			push(t, q, &Waiter{PromptTokens: n, Value: name}, class)
		}
	}
	t.Run("documented", func(t *testing.T) {
		q := mustQueue(t, QueueConfig{DefaultFamily: "standard", Classes: []Class{class("standard", 1000), class("latency", 2000)}})
		fill(t, q, 0, 7000)
		fill(t, q, 1, 9000, 500)
		for i, want := range []struct {
			class    string
			tokens   int
			deficits [2]int64
		}{{"latency", 9000, [2]int64{5000, 1000}}, {"latency", 500, [2]int64{5000, 0}}, {"standard", 7000, [2]int64{0, 0}}} {
			w, c := q.Pop(anyTime)
			if w == nil || q.Classes()[c].Name != want.class || w.PromptTokens != want.tokens {
				t.Fatalf("pop %d: %+v of class %d, want %d tokens of %s", i, w, c, want.tokens, want.class)
			}
			if got := [2]int64{q.classes[0].deficit, q.classes[1].deficit}; got != want.deficits {
				t.Errorf("pop %d leaves deficits %v, want %v", i, got, want.deficits)
			}
		}
	})
	for _, tc := range []struct {
		name    string
		classes []Class
		cost, n int
		want    string
	}{
		{"premium and regular", []Class{class("p", 512), class("r", 128)}, 512, 8, "p p p p r p p p p r r r r r r r"},
		{"equal", []Class{class("a", 10), class("b", 10)}, 3, 5, "a a a b b b a a b b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := mustQueue(t, QueueConfig{DefaultFamily: tc.classes[0].Name, Classes: tc.classes})
			for i := range tc.classes {
				fill(t, q, i, slices.Repeat([]int{tc.cost}, tc.n)...)
			}
			if got := strings.Join(drain(q, anyTime), " "); got != tc.want {
				t.Errorf("order\n got %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestBlockedClassGetsNoCredit has a class that cannot go while the other does: it
// has no more to spend afterwards than if it had not waited.
func TestBlockedClassGetsNoCredit(t *testing.T) {
	q := mustQueue(t, QueueConfig{DefaultFamily: "a", Classes: []Class{{Name: "a", Quantum: 10}, {Name: "b", Quantum: 10}}})
	for range 20 {
		push(t, q, &Waiter{PromptTokens: 10, Value: "a"}, 0)
		push(t, q, &Waiter{PromptTokens: 10, Value: "b"}, 1)
	}
	for range 10 {
		if w, c := q.Pop(func(_ *Waiter, class int) bool { return class == 0 }); w == nil || c != 0 {
			t.Fatalf("popped %+v of class %d, want one of class 0", w, c)
		}
	}
	if got := q.classes[1].deficit; got != 0 {
		t.Errorf("the class that could not go has %d tokens to spend", got)
	}
	if w, _ := q.Pop(func(*Waiter, int) bool { return false }); w != nil {
		t.Errorf("popped %+v though nothing can go", w)
	}
	if got, want := strings.Join(drain(q, anyTime)[:6], " "), "b a b a b a"; got != want {
		t.Errorf("then %s, want %s", got, want)
	}
}

// TestRemovalForfeitsDeficit has all of a class leave in the middle of its turn.
func TestRemovalForfeitsDeficit(t *testing.T) {
	q := mustQueue(t, QueueConfig{DefaultFamily: "a", Classes: []Class{{Name: "a", Quantum: 100}, {Name: "b", Quantum: 100}}})
	second := &Waiter{PromptTokens: 10}
	push(t, q, &Waiter{PromptTokens: 10}, 0)
	push(t, q, second, 0)
	push(t, q, &Waiter{PromptTokens: 10, Value: "b"}, 1)
	q.Pop(anyTime)
	if q.carry == nil || q.carry.deficit != 90 {
		t.Fatal("the class does not go on with its turn")
	}
	q.Remove(second)
	push(t, q, &Waiter{PromptTokens: 10, Value: "a"}, 0)
	if got, want := strings.Join(drain(q, anyTime), " "), "b a"; got != want {
		t.Errorf("then %s, want %s", got, want)
	}
}

func TestPolicies(t *testing.T) {
	for _, tc := range []struct {
		policy Policy
		want   string
	}{
		{FCFS, "vip first second long"},
		{LCFS, "vip long second first"},
		{WSPT, "vip second first long"},
	} {
		q := mustQueue(t, QueueConfig{Classes: []Class{{Name: "c", Quantum: 1, Policy: tc.policy}}})
		push(t, q, &Waiter{Arrived: seconds(1), PromptTokens: 500, Value: "first"}, 0)
		push(t, q, &Waiter{Arrived: seconds(2), PromptTokens: 500, CachedTokens: 100, Value: "second"}, 0)
		push(t, q, &Waiter{Arrived: seconds(3), PromptTokens: 5000, Value: "long"}, 0)
		push(t, q, &Waiter{Arrived: seconds(2), PromptTokens: 9000, Tier: 1, Value: "vip"}, 0)
		if got := strings.Join(drain(q, anyTime), " "); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.policy, got, tc.want)
		}
	}
}

// TestEqualKeysInOrderOfPush also has keys that are not numbers.
func TestEqualKeysInOrderOfPush(t *testing.T) {
	q := mustQueue(t, QueueConfig{})
	var want []string
	for i := range 100 {
		push(t, q, &Waiter{Jump: []float64{math.NaN(), 0, math.Inf(-1), -1}[i%4], Value: i}, 0)
		want = append(want, fmt.Sprint(i))
	}
	if diff := cmp.Diff(want, drain(q, anyTime)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// TestLanes has requests that cannot go beside others of the same tenant that can.
func TestLanes(t *testing.T) {
	q := mustQueue(t, QueueConfig{})
	const anywhere, full, free = 0, 1, 2
	for i, lane := range []uint64{full, anywhere, full, free, anywhere} {
		push(t, q, &Waiter{Arrived: time.Duration(i), Lane: lane, Value: i}, 0)
	}
	if got := q.Lanes(); got != 3 {
		t.Errorf("%d lanes, want 3", got)
	}
	asked := make(map[uint64]int)
	w, _ := q.Pop(func(w *Waiter, _ int) bool { asked[w.Lane]++; return w.Lane != full })
	if w == nil || w.Value != 1 {
		t.Errorf("popped %+v, want the first that may run anywhere", w)
	}
	for lane, n := range asked {
		if n > 1 {
			t.Errorf("lane %d was asked %d times", lane, n)
		}
	}
	if got := drain(q, func(w *Waiter, _ int) bool { return w.Lane != full }); !slices.Equal(got, []string{"3", "4"}) {
		t.Errorf("then %v, want 3 and 4", got)
	}
	if got := q.Lanes(); got != 1 {
		t.Errorf("%d lanes while one waits, want 1", got)
	}
	if got := drain(q, anyTime); !slices.Equal(got, []string{"0", "2"}) {
		t.Errorf("when the lane is free %v, want 0 and 2", got)
	}
}

func TestLimits(t *testing.T) {
	for _, tc := range []struct {
		name    string
		class   Class
		workers int
		want    int // how many of 500 tokens, 100 of them cached, are taken
		err     LimitError
	}{
		{"requests", Class{MaxRequests: new(2)}, 2, 4, LimitError{"c", LimitRequests, 4, 4}},
		{"prompt tokens", Class{MaxPromptTokens: new(1200)}, 1, 3, LimitError{"c", LimitPromptTokens, 1500, 1200}},
		{"prompt tokens, exactly", Class{MaxPromptTokens: new(500)}, 3, 3, LimitError{"c", LimitPromptTokens, 1500, 1500}},
		{"cached tokens", Class{MaxCachedTokens: new(50)}, 3, 2, LimitError{"c", LimitCachedTokens, 200, 150}},
		{"the first that is reached", Class{MaxRequests: new(9), MaxCachedTokens: new(300)}, 1, 3, LimitError{"c", LimitCachedTokens, 300, 300}},
		{"nothing may wait", Class{MaxRequests: new(0)}, 4, 0, LimitError{"c", LimitRequests, 0, 0}},
		{"no workers", Class{MaxRequests: new(5)}, 0, 0, LimitError{"c", LimitRequests, 0, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.class.Name, tc.class.Quantum = "c", 1
			q := mustQueue(t, QueueConfig{Classes: []Class{tc.class}})
			for i := range tc.want {
				if err := q.Push(&Waiter{PromptTokens: 500, CachedTokens: 100}, 0, tc.workers); err != nil {
					t.Fatalf("push %d: %v", i, err)
				}
			}
			extra := &Waiter{PromptTokens: 500, CachedTokens: 100}
			err := q.Push(extra, 0, tc.workers)
			var limit *LimitError
			if !errors.As(err, &limit) || *limit != tc.err {
				t.Fatalf("error %v, want %v", err, &tc.err)
			}
			if q.Remove(extra) || q.Len() != tc.want {
				t.Errorf("what was refused waits: %d in all, want %d", q.Len(), tc.want)
			}
			if got, want := q.Waiting(0), (Waiting{tc.want, tc.want * 500, tc.want * 100}); got != want {
				t.Errorf("waiting %+v, want %+v", got, want)
			}
			q.Pop(anyTime)
			if err := q.Push(extra, 0, max(tc.workers, 1)*2); tc.want > 0 && err != nil {
				t.Errorf("with more workers: %v", err)
			}
		})
	}
	t.Run("message", func(t *testing.T) {
		err := &LimitError{Class: "batch", Kind: LimitPromptTokens, Current: 1500, Limit: 1200}
		if got, want := err.Error(), "too much waits in class batch: 1500 raw_isl_tokens, the limit is 1200"; got != want {
			t.Errorf("message %q, want %q", got, want)
		}
	})
	t.Run("largest", func(t *testing.T) {
		q := mustQueue(t, QueueConfig{Classes: []Class{{Name: "c", Quantum: 1, MaxRequests: new(math.MaxInt)}}})
		if err := q.Push(&Waiter{}, 0, math.MaxInt); err != nil {
			t.Error(err)
		}
	})
}

func TestRemove(t *testing.T) {
	q := mustQueue(t, matrix())
	var all []*Waiter
	for i := range 200 {
		w := &Waiter{Arrived: time.Duration(i * 37 % 100), Tenant: fmt.Sprint(i % 7), Lane: uint64(i % 5), PromptTokens: i, CachedTokens: i / 2, Value: i}
		push(t, q, w, i%5)
		all = append(all, w)
	}
	seen := make(map[*Waiter]bool)
	for w, class := range q.All() {
		if seen[w] || class != w.Value.(int)%5 {
			t.Errorf("waiter %v seen twice or in class %d", w.Value, class)
		}
		seen[w] = true
	}
	if len(seen) != len(all) {
		t.Errorf("%d waiters seen, want %d", len(seen), len(all))
	}
	for range q.All() {
		break
	}
	for i, w := range all {
		if !q.Remove(w) {
			t.Fatalf("waiter %d was not waiting", i)
		}
		if q.Remove(w) {
			t.Fatalf("waiter %d was removed twice", i)
		}
		checkQueue(t, q)
	}
	if q.Len() != 0 {
		t.Errorf("%d wait", q.Len())
	}
	push(t, q, all[0], 1)
	defer func() {
		if recover() == nil {
			t.Error("a waiter was pushed twice")
		}
	}()
	push(t, q, all[0], 1)
}

// TestRemoveFromTheMiddle has many wait in one place, and leave from anywhere in it.
func TestRemoveFromTheMiddle(t *testing.T) {
	q := mustQueue(t, QueueConfig{})
	r := rand.New(rand.NewPCG(3, 3))
	all := make([]*Waiter, 500)
	for i := range all {
		all[i] = &Waiter{Arrived: time.Duration(r.IntN(10_000)) * time.Millisecond}
		push(t, q, all[i], 0)
	}
	for _, i := range r.Perm(len(all)) {
		q.Remove(all[i])
		checkQueue(t, q)
	}
}

// checkQueue compares everything that a queue keeps twice, and fails if something
// is left of what no longer waits.
func checkQueue(t testing.TB, q *Queue) {
	t.Helper()
	total := 0
	for i := range q.classes {
		c := &q.classes[i]
		var sum Waiting
		cells := 0
		active := make(map[*flow]int)
		for at, l := range c.lanes {
			if l.at != at || c.byLane[l.number] != l || len(l.cells) == 0 {
				t.Fatalf("class %d: lane %d is out of place", i, l.number)
			}
			for at, cl := range l.cells {
				if cl.inLane != at || cl.lane != l || c.cells[cellKey{cl.flow, l.number}] != cl || len(cl.waiters) == 0 || cl.flow.cells[cl.inFlow] != cl {
					t.Fatalf("class %d: the cell of %q in lane %d is out of place", i, cl.flow.tenant, l.number)
				}
				if at > 0 && cl.before(l.cells[(at-1)/2]) {
					t.Fatalf("class %d: the flows of lane %d are out of order", i, l.number)
				}
				cells++
				active[cl.flow]++
				for at, w := range cl.waiters {
					if w.at != at || w.cell != cl || at > 0 && w.before(cl.waiters[(at-1)/2]) {
						t.Fatalf("class %d: the waiters of %q in lane %d are out of order", i, cl.flow.tenant, l.number)
					}
					sum.Requests++
					sum.PromptTokens += countedTokens(w.PromptTokens)
					sum.CachedTokens += countedTokens(w.CachedTokens)
				}
			}
		}
		for f, n := range active {
			if len(f.cells) != n || c.flows[f.tenant] != f {
				t.Fatalf("class %d: flow %q is out of place", i, f.tenant)
			}
		}
		for at, f := range c.away {
			if f.at != at || len(f.cells) != 0 || f.start <= c.now || c.flows[f.tenant] != f || at > 0 && f.before(c.away[(at-1)/2]) {
				t.Fatalf("class %d: flow %q that is away is out of place", i, f.tenant)
			}
		}
		if len(c.byLane) != len(c.lanes) || len(c.cells) != cells || len(c.flows) != len(active)+len(c.away) || len(c.away) > maxAway {
			t.Fatalf("class %d: %d lanes for %d, %d cells for %d, %d flows for %d and %d away",
				i, len(c.byLane), len(c.lanes), len(c.cells), cells, len(c.flows), len(active), len(c.away))
		}
		if sum != c.waiting || sum.Requests == 0 && (len(c.flows) > 0 || c.deficit != 0 || c.now != 0) || c.deficit < 0 {
			t.Fatalf("class %d: %+v wait, counted %+v; %d flows, deficit %d, time %d", i, sum, c.waiting, len(c.flows), c.deficit, c.now)
		}
		total += sum.Requests
	}
	if total != q.Len() {
		t.Fatalf("%d wait, counted %d", total, q.Len())
	}
}
