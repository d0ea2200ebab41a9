package sched

import (
	"fmt"
	"math"
)

// LimitKind is what there is too much of.
type LimitKind string

// The kinds of limits.
const (
	LimitRequests     LimitKind = "requests"
	LimitPromptTokens LimitKind = "raw_isl_tokens"
	LimitCachedTokens LimitKind = "cached_tokens"
)

// LimitError says that too much waits in a class.
type LimitError struct {
	Class string
	Kind  LimitKind
	// Current is how much waits, Limit how much there must be for the next request to
	// be refused, over all workers.
	Current, Limit int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("too much waits in class %s: %d %s, the limit is %d", e.Class, e.Current, e.Kind, e.Limit)
}

// check returns a *LimitError if what waits has reached a limit of the class. The
// request that goes beyond is taken, the next is not: so a prompt longer than the
// limit can wait too.
func (c *Class) check(now Waiting, workers int) error {
	for _, l := range [...]struct {
		kind      LimitKind
		current   int
		perWorker *int
	}{
		{LimitRequests, now.Requests, c.MaxRequests},
		{LimitPromptTokens, now.PromptTokens, c.MaxPromptTokens},
		{LimitCachedTokens, now.CachedTokens, c.MaxCachedTokens},
	} {
		if l.perWorker == nil {
			continue
		}
		if limit := times(*l.perWorker, workers); l.current >= limit {
			return &LimitError{Class: c.Name, Kind: l.kind, Current: l.current, Limit: limit}
		}
	}
	return nil
}

// times multiplies what is not negative; a product that is too large is the
// largest number.
func times(a, b int) int {
	if a <= 0 || b <= 0 {
		return 0
	}
	if a > math.MaxInt/b {
		return math.MaxInt
	}
	return a * b
}
