package simengine

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// single is an engine that serves one request at a time, each in the same time.
func single(t *testing.T) (e *Engine, service time.Duration) {
	t.Helper()
	e, err := New(Config{MaxSeqs: 1, Blocks: 64})
	if err != nil {
		t.Fatal(err)
	}
	e.Receive(&Request{Prompt: 1000, MaxOutput: 3})
	for e.Busy() {
		service += e.Step().Duration
	}
	return e, service
}

// job is a request and when it came.
type job struct {
	Request
	at time.Duration
}

// wait returns the mean time that n requests wait in the engine's queue, with the
// given gaps between arrivals.
func wait(e *Engine, n int, gap func() time.Duration) time.Duration {
	var now, total time.Duration
	var free []*job
	next := gap()
	for admitted := 0; admitted < n; {
		if !e.Busy() {
			now = max(now, next)
		}
		for ; next <= now; next += gap() {
			if len(free) == 0 {
				j := &job{Request: Request{Prompt: 1000, MaxOutput: 3}}
				j.Owner = j
				free = append(free, j)
			}
			j := free[len(free)-1]
			free = free[:len(free)-1]
			j.at = next
			e.Receive(&j.Request)
		}
		p := e.Step()
		for _, a := range p.Admissions {
			if admitted < n {
				total += now - a.Request.Owner.(*job).at
				admitted++
			}
		}
		now += p.Duration
		for _, o := range p.Outputs {
			if o.Done {
				free = append(free, o.Request.Owner.(*job))
			}
		}
	}
	return total / time.Duration(n)
}

func fresh(t *testing.T) *Engine {
	e, _ := single(t)
	return e
}

// TestDD1 has requests come at equal distances. While they come slower than they
// are served nobody waits; when they come faster each waits longer than the one
// before by the same time.
func TestDD1(t *testing.T) {
	_, service := single(t)
	every := func(gap time.Duration) func() time.Duration { return func() time.Duration { return gap } }
	const n = 1001
	if got := wait(fresh(t), n, every(service)); got != 0 {
		t.Errorf("at the rate of service: mean wait %v, want none", got)
	}
	short := 7 * time.Microsecond
	// Waits of 0, short, 2·short … (n-1)·short.
	if got, want := wait(fresh(t), n, every(service-short)), (n-1)*short/2; got != want {
		t.Errorf("%v too fast: mean wait %v, want %v", short, got, want)
	}
}

// TestMD1 has requests come at random and compares the mean wait with the
// formula of Pollaczek and Khinchine: ρ·D / 2(1-ρ).
func TestMD1(t *testing.T) {
	for _, rho := range []float64{0.3, 0.5, 0.7} {
		e, service := single(t)
		rng := rand.New(rand.NewPCG(7, uint64(rho*100)))
		mean := float64(service) / rho
		got := wait(e, 600_000, func() time.Duration { return time.Duration(rng.ExpFloat64() * mean) })
		want := rho * float64(service) / (2 * (1 - rho))
		off := float64(got)/want - 1
		t.Logf("ρ = %v: mean wait %v, theory %v, %+.2f %%", rho, got, time.Duration(want), 100*off)
		if math.Abs(off) > 0.02 {
			t.Errorf("ρ = %v: mean wait %v is %+.1f %% off %v", rho, got, 100*off, time.Duration(want))
		}
	}
}
