package sched

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

const benchWaiting = 10_000

// benchQueue is a queue in which benchWaiting requests wait.
func benchQueue(tb testing.TB, tenants, lanes int) *Queue {
	q := mustQueue(tb, matrix())
	r := rand.New(rand.NewPCG(1, 1))
	for i := range benchWaiting {
		push(tb, q, &Waiter{
			Arrived:      time.Duration(i) * time.Millisecond,
			PromptTokens: 1 + r.IntN(8192),
			Tenant:       fmt.Sprint("tenant-", i%tenants),
			Lane:         uint64(i / 3 % lanes),
		}, i%5)
	}
	return q
}

// BenchmarkQueue10k takes one of 10,000 waiting requests out and has it wait again.
// With full lanes, only requests that may run anywhere can go; with all lanes full,
// nothing can, which is found out by asking.
//
// On two cores of a virtual machine:
//
//	tenants=1/lanes=1                   0.7 µs   0 allocs
//	tenants=100/lanes=1                 0.6 µs   0
//	tenants=10000/lanes=1               1.6 µs   2
//	tenants=100/lanes=65                5.4 µs   0
//	tenants=100/lanes=65/full          10   µs   0
//	tenants=10000/lanes=1025/full      24   µs   2
//	tenants=1/lanes=10000              34   µs   4
//	tenants=1/lanes=10000/full        240   µs   4
//	tenants=10000/lanes=65/all-full     2.3 µs   0
func BenchmarkQueue10k(b *testing.B) {
	anywhere := func(w *Waiter, _ int) bool { return w.Lane == 0 }
	for _, bc := range []struct {
		name           string
		tenants, lanes int
		ready          func(*Waiter, int) bool
	}{
		{"tenants=1/lanes=1", 1, 1, anyTime},
		{"tenants=100/lanes=1", 100, 1, anyTime},
		{"tenants=10000/lanes=1", 10_000, 1, anyTime},
		{"tenants=100/lanes=65", 100, 65, anyTime},
		{"tenants=100/lanes=65/full", 100, 65, anywhere},
		{"tenants=10000/lanes=1025/full", 10_000, 1025, anywhere},
		{"tenants=1/lanes=10000", 1, 10_000, anyTime},
		{"tenants=1/lanes=10000/full", 1, 10_000, anywhere},
		{"tenants=10000/lanes=65/all-full", 10_000, 65, func(*Waiter, int) bool { return false }},
	} {
		b.Run(bc.name, func(b *testing.B) {
			q := benchQueue(b, bc.tenants, bc.lanes)
			tick := benchWaiting * time.Millisecond
			b.ReportAllocs()
			for b.Loop() {
				w, class := q.Pop(bc.ready)
				if w == nil {
					continue
				}
				tick += time.Millisecond
				w.Arrived = tick
				if err := q.Push(w, class, 1); err != nil {
					b.Fatal(err)
				}
			}
			if q.Len() != benchWaiting {
				b.Fatalf("%d wait", q.Len())
			}
		})
	}
}

// TestQueueAllocates nothing as long as tenants and lanes stay the same.
func TestQueueAllocates(t *testing.T) {
	q := benchQueue(t, 100, 65)
	ready := func(w *Waiter, _ int) bool { return w.Lane%2 == 0 }
	if n := testing.AllocsPerRun(100, func() {
		w, class := q.Pop(ready)
		if err := q.Push(w, class, 1); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations for a pop and a push, want 0", n)
	}
}
