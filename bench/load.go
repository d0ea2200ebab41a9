package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// load is a kind of traffic, measured per unit.
type load struct {
	name string // what it is
	unit string // what is counted: requests, chunks
	// each is how many units one exchange has.
	each int
	// conns is the number of connections, each with one exchange at a time.
	conns int
	// client returns what one connection does in an exchange, with buffers of
	// its own. An answer that is not what the engine says itself is an error.
	client func(i int) func(c *conn) error
}

// round is what one run of a load showed.
type round struct {
	cpu   time.Duration // of the process under test, per unit
	took  time.Duration // median time of an exchange, per unit
	wall  time.Duration
	units int
	reads float64 // reads of the client's socket per unit
}

// run makes n exchanges on each connection, one after another, and waits for
// them.
func (l *load) run(ctx context.Context, addr string, n int) (round, error) {
	took := make([]time.Duration, l.conns*n)
	reads := make([]int, l.conns)
	g, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for i := range l.conns {
		g.Go(func() error {
			c, err := dial(ctx, addr)
			if err != nil {
				return err
			}
			defer c.close()
			defer context.AfterFunc(ctx, c.close)()
			exchange := l.client(i)
			for k := range n {
				start := time.Now()
				if err := exchange(c); err != nil {
					return fmt.Errorf("%s: %w", l.name, err)
				}
				took[i*n+k] = time.Since(start) / time.Duration(l.each)
			}
			reads[i] = c.reads
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return round{}, err
	}
	r := round{wall: time.Since(began), took: median(took), units: l.units(n)}
	for _, n := range reads {
		r.reads += float64(n)
	}
	r.reads /= float64(r.units)
	return r, nil
}

// units returns how many units a run with n exchanges per connection has.
func (l *load) units(n int) int { return n * l.conns * l.each }

// measure runs the load against a process and reads its CPU clock. What trails
// behind the last answer is counted too.
func (l *load) measure(ctx context.Context, p *process, n int) (round, error) {
	const settle = 100 * time.Millisecond
	before, err := cpuTime(p.pid())
	if err != nil {
		return round{}, err
	}
	r, err := l.run(ctx, p.addr, n)
	if err != nil {
		return round{}, p.failure(err)
	}
	if err := pause(ctx, settle); err != nil {
		return round{}, err
	}
	after, err := cpuTime(p.pid())
	if err != nil {
		return round{}, err
	}
	r.cpu = (after - before) / time.Duration(l.units(n))
	return r, nil
}

// calibrate warms a process up and returns how many exchanges per connection fill
// the given time.
func (l *load) calibrate(ctx context.Context, p *process, fill time.Duration) (int, error) {
	const enough = 500 * time.Millisecond
	for n := 1; ; n *= 2 {
		r, err := l.run(ctx, p.addr, n)
		if err != nil {
			return 0, p.failure(err)
		}
		if r.wall >= min(enough, fill) {
			return max(1, int(math.Round(float64(n)*float64(fill)/float64(r.wall)))), nil
		}
	}
}

// side is one of those that are compared: a process under a load.
type side struct {
	load    *load
	process *process
}

// compare measures processes under the same load. The answer holds the rounds of each.
func (l *load) compare(ctx context.Context, o options, ps []*process) ([][]round, error) {
	sides := make([]side, len(ps))
	for i, p := range ps {
		sides[i] = side{l, p}
	}
	return compareSides(ctx, o, l.name, sides)
}

// compareSides measures loads of equally many connections and units with the same
// number of exchanges. The first side is the baseline.
func compareSides(ctx context.Context, o options, name string, sides []side) ([][]round, error) {
	var n int
	for _, s := range slices.Backward(sides) { // the baseline, last, decides
		fits, err := s.load.calibrate(ctx, s.process, o.round)
		if err != nil {
			return nil, err
		}
		n = fits
	}
	l := sides[0].load
	o.progress("%s: %d rounds of %d %s, %d connections", name, o.rounds, l.units(n), l.unit, l.conns)
	return takeTurns(ctx, o, sides, slices.Repeat([]int{n}, len(sides)))
}

// takeTurns measures sides that are warm: several rounds in which each has its turn,
// back to back, with so many exchanges on a connection. The order turns around from
// round to round, so that a machine that gets slower or faster favours none. The
// answer holds the rounds of each side.
func takeTurns(ctx context.Context, o options, sides []side, exchanges []int) ([][]round, error) {
	out := make([][]round, len(sides))
	for k := range o.rounds {
		for i := range sides {
			if k%2 == 1 {
				i = len(sides) - 1 - i
			}
			r, err := sides[i].load.measure(ctx, sides[i].process, exchanges[i])
			if err != nil {
				return nil, err
			}
			out[i] = append(out[i], r)
		}
	}
	return out, nil
}

// ratios returns round by round how a compares with b in CPU time.
func ratios(a, b []round) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = float64(a[i].cpu) / float64(b[i].cpu)
	}
	return out
}

// number is what medians are taken of.
type number interface {
	~int64 | ~float64
}

// median returns the middle of the values, or of an even number of them the mean
// of the two in the middle. There must be a value.
func median[T number](values []T) T {
	s := slices.Sorted(slices.Values(values))
	m := len(s) / 2
	if len(s)%2 == 0 {
		return (s[m-1] + s[m]) / 2
	}
	return s[m]
}

// medianOf returns the median of a figure over rounds.
func medianOf[T number](rs []round, figure func(round) T) T {
	out := make([]T, len(rs))
	for i, r := range rs {
		out[i] = figure(r)
	}
	return median(out)
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
