package simserver

import (
	"bytes"
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
	accepted  int
	completed int
	arrival   chan struct{} // closed with the next arrival, if somebody waits for it
	closed    bool
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

// accept lets the clock go on to the arrival of a job and queues it: on its rank,
// or if it has none on the one of its server with the least to do at that time.
// The caller holds the mutex.
func (c *Clock) accept(j *job) {
	j.arrived = max(j.arrived, c.now)
	for c.step(j.arrived) {
	}
	c.now = j.arrived
	if j.anyRank {
		for _, r := range j.rank.server.ranks {
			if r.load() < j.rank.load() || r.load() == j.rank.load() && r.index < j.rank.index {
				j.rank = r
			}
		}
	}
	j.rank.queue(j)
	c.accepted++
	c.wake()
}

// wake lets drains look again. The caller holds the mutex.
func (c *Clock) wake() {
	if c.arrival != nil {
		close(c.arrival)
		c.arrival = nil
	}
}

// Close ends the drains that wait for requests: none will come any more.
func (c *Clock) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.wake()
}

// Drained is where a clock stands after [Clock.Drain].
type Drained struct {
	Now time.Duration
	// Accepted and Completed count requests since the clock began.
	Accepted, Completed int
}

// Drain waits until so many requests have been accepted since the clock began,
// and then lets it go on until none is left. It fails when ctx ends before, or
// while it waits for requests the clock is closed.
func (c *Clock) Drain(ctx context.Context, requests int) (Drained, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	for err == nil && c.accepted < requests {
		if c.closed {
			err = errClosed
			break
		}
		if c.arrival == nil {
			c.arrival = make(chan struct{})
		}
		next := c.arrival
		c.mu.Unlock()
		select {
		case <-next:
		case <-ctx.Done():
			err = ctx.Err()
		}
		c.mu.Lock()
	}
	for err == nil && c.step(maxTime) {
		err = ctx.Err()
	}
	return Drained{Now: c.now, Accepted: c.accepted, Completed: c.completed}, err
}

// ServeDrain answers a request with what [Clock.Drain] returns, the time in
// milliseconds. The query may say how many requests to wait for:
//
//	POST /sim/drain?requests=100
func (c *Clock) ServeDrain(w http.ResponseWriter, r *http.Request) {
	requests := 0
	if v := r.URL.Query().Get("requests"); v != "" {
		var err error
		if requests, err = strconv.Atoi(v); err != nil || requests < 0 {
			writeError(w, badField("requests", "expected a number of requests, got %.40q", v))
			return
		}
	}
	d, err := c.Drain(r.Context(), requests)
	if err != nil {
		writeError(w, &apiError{status: http.StatusServiceUnavailable, message: "not drained: " + err.Error()})
		return
	}
	b := appendMillis([]byte(`{"now_ms":`), d.Now)
	b = append(b, `,"accepted":`...)
	b = strconv.AppendInt(b, int64(d.Accepted), 10)
	b = append(b, `,"completed":`...)
	b = strconv.AppendInt(b, int64(d.Completed), 10)
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
	dst = strconv.AppendInt(dst, int64(d/time.Millisecond), 10)
	rest := d % time.Millisecond
	if rest == 0 {
		return dst
	}
	digits := strconv.AppendInt(nil, int64(time.Millisecond+rest), 10) // with leading zeros, after a 1
	return append(append(dst, '.'), bytes.TrimRight(digits[1:], "0")...)
}
