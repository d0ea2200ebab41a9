package metrics

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// BenchmarkTokens is the cost of a streamed chunk. Beside BenchmarkTokensNaive
// on two shared cores, per chunk:
//
//	n=1      66 ns   naive    177 ns
//	n=8      53 ns   naive   1351 ns
//	n=1000   66 ns   naive 130357 ns
func BenchmarkTokens(b *testing.B) {
	for _, n := range []int{1, 8, 1000} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			r := New(Options{}).Model("m").Start(at(0), EndpointChatCompletions, true)
			now := at(1)
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Millisecond)
				r.Tokens(now, n)
			}
		})
	}
}

// BenchmarkTokensNaive is the straightforward way: labels looked up for every
// chunk, a latency observed for every token.
func BenchmarkTokensNaive(b *testing.B) {
	for _, n := range []int{1, 8, 1000} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			itl := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "itl", Buckets: LogBuckets(0.001, 2, 13)}, []string{"model"})
			total := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "total"}, []string{"model"})
			last, now := at(0), at(1)
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Millisecond)
				v := now.Sub(last).Seconds() / float64(n)
				last = now
				for range n {
					itl.WithLabelValues("m").Observe(v)
				}
				total.WithLabelValues("m").Add(float64(n))
			}
		})
	}
}

// BenchmarkTokensParallel has every stream of a model on the same counters.
func BenchmarkTokensParallel(b *testing.B) {
	m := New(Options{}).Model("m")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		r := m.Start(at(0), EndpointChatCompletions, true)
		now := at(1)
		for pb.Next() {
			now = now.Add(time.Millisecond)
			r.Tokens(now, 1)
		}
	})
}

// BenchmarkRequest is all of a request but its chunks after the first.
func BenchmarkRequest(b *testing.B) {
	s := New(Options{})
	start, ready, first, end := at(0), at(0.01), at(0.1), at(1)
	b.ReportAllocs()
	for b.Loop() {
		r := s.Model("m").Start(start, EndpointChatCompletions, true)
		r.Ready(ready)
		r.Prompt(1000)
		r.Tokens(first, 1)
		r.Cached(512)
		r.CorrectTokens(1)
		r.End(end, ErrNone)
	}
}

// BenchmarkPlacement is the router's share of a request.
func BenchmarkPlacement(b *testing.B) {
	r := New(Options{}).Router("m", WorkerDecode)
	o := Overhead{10 * time.Microsecond, 3 * time.Microsecond, 25 * time.Microsecond, 8 * time.Microsecond, 46 * time.Microsecond}
	b.ReportAllocs()
	for b.Loop() {
		r.Overhead(o)
		r.Placed(1000, 16, 40)
		r.SetQueue(1, 1000)
		r.SetQueue(0, 0)
	}
}

// BenchmarkGather is a scrape of a fleet with 4 models and 64 ranks, while
// nothing else goes on.
func BenchmarkGather(b *testing.B) {
	s := New(Options{})
	for i := range 4 {
		name := fmt.Sprintf("model-%d", i)
		useAll(s, s.Model(name), s.Router(name, WorkerDecode))
	}
	var wg sync.WaitGroup
	for id := range uint64(64) {
		wg.Go(func() { s.Worker(id+1, 0).SetLoad(1, 1) })
	}
	wg.Wait()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Registry().Gather(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDropModel is a model of 2,000 that leaves and comes back, while nobody uses
// any: 0.4 ms on two shared cores.
func BenchmarkDropModel(b *testing.B) {
	const models = 2000
	s := New(Options{})
	enter := func(i int) {
		name := fmt.Sprintf("model-%d", i)
		s.Model(name).SetWorkers(WorkerCounts{})
		s.Router(name, WorkerDecode).Close()
		s.Truth(name, uint64(i%10))
	}
	for i := range models {
		enter(i)
	}
	for i := 0; b.Loop(); i = (i + 1) % models {
		s.DropModel(fmt.Sprintf("model-%d", i))
		enter(i)
	}
}
