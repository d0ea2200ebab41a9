package simserver

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Clock is virtual time, shared by the servers that have it in their
// configuration. It starts at 0 and stands still until it is allowed to go on.
//
// A request that names the time of its arrival allows it to go on to that time:
// everything before has then happened, and what happens at that time waits for a
// later arrival or for [Clock.Drain]. A request that comes too late arrives now,
// as does one that names no time. Nothing sleeps: what the clock has to pass is
// computed at once, by whoever allowed it, in the order of virtual time. What
// comes of a set of requests thus depends on their times and on nothing else, as
// long as they are sent in the order of their times; requests with the same time
// count in the order of their receipt.
//
// The zero Clock is ready. It is safe for concurrent use.
type Clock struct {
	mu        sync.Mutex
	now       time.Duration
	ranks     []*rank
	completed int
}

func (c *Clock) add(ranks []*rank) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ranks = append(c.ranks, ranks...)
}

func (c *Clock) remove(ranks []*rank) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ranks = slices.DeleteFunc(c.ranks, func(r *rank) bool { return slices.Contains(ranks, r) })
}

// accept queues a job and lets the clock go on to its arrival. The caller holds
// the mutex.
func (c *Clock) accept(r *rank, j *job) {
	j.arrived = max(j.arrived, c.now)
	r.queue(j)
	for c.step(j.arrived) {
	}
	c.now = j.arrived
}

// Drain lets the clock go on until no request is left, or until ctx ends, whose
// error it then returns. It returns the time, and how many requests have been
// completed since the clock began.
func (c *Clock) Drain(ctx context.Context) (now time.Duration, completed int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for err == nil && c.step(maxTime) {
		err = ctx.Err()
	}
	return c.now, c.completed, err
}

// ServeDrain answers a request with what [Clock.Drain] returns, the time in
// milliseconds.
func (c *Clock) ServeDrain(w http.ResponseWriter, r *http.Request) {
	now, completed, err := c.Drain(r.Context())
	if err != nil {
		return // nobody listens
	}
	b := appendMillis([]byte(`{"now_ms":`), now)
	b = append(b, `,"completed":`...)
	b = strconv.AppendInt(b, int64(completed), 10)
	writeJSON(w, http.StatusOK, append(b, '}'))
}

// maxTime is later than anything.
const maxTime = time.Duration(1<<63 - 1)

// step makes the next thing happen if it does so before the limit, and reports
// whether there was one. Of things at the same time, passes end before others
// begin, and ranks have their turn in the order of their making.
func (c *Clock) step(limit time.Duration) bool {
	var next *rank
	var when time.Duration
	for _, r := range c.ranks {
		at, ok := r.next()
		if !ok || at >= limit || r.server.life.Err() != nil {
			continue
		}
		if next == nil || at < when || at == when && r.pass != nil && next.pass == nil {
			next, when = r, at
		}
	}
	if next == nil {
		return false
	}
	c.now = max(c.now, when)
	early := next.server.cfg.EarlyEvents
	if p := next.pass; p == nil {
		if p = next.begin(when); early {
			next.publish(p)
		}
	} else {
		if !early {
			next.publish(p)
		}
		next.finish(when)
	}
	return true
}

// appendMillis appends a time in milliseconds, to the nanosecond.
func appendMillis(dst []byte, d time.Duration) []byte {
	return strconv.AppendFloat(dst, float64(d)/float64(time.Millisecond), 'f', -1, 64)
}
