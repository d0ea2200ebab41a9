package simserver

import (
	"sync"
	"time"
)

// lateWindow is how long a late token is remembered, at least; it is forgotten
// after twice that.
const lateWindow = 5 * time.Second

// lateness is how much later than modelled things happened lately, at worst. It is
// safe for concurrent use.
type lateness struct {
	mu          sync.Mutex
	since       time.Duration // when the current window began
	now, before time.Duration // at worst in it, and in the one before
}

// note takes in that something was late at some time.
func (l *lateness) note(at, late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn(at)
	l.now = max(l.now, late)
}

// worst returns how late anything was, as seen at some time.
func (l *lateness) worst(at time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn(at)
	return max(l.now, l.before)
}

// turn begins a new window when the current is over.
func (l *lateness) turn(at time.Duration) {
	switch past := at - l.since; {
	case past >= 2*lateWindow:
		l.since, l.now, l.before = at, 0, 0
	case past >= lateWindow:
		l.since, l.now, l.before = at, 0, l.now
	}
}
