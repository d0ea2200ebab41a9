package hints

import (
	"log/slog"
	"sync/atomic"
)

// Reason is why a request got no hints.
type Reason uint8

const (
	// Unmatched: the matcher did not choose it.
	Unmatched Reason = iota
	// Empty: it has no body.
	Empty
	// Sealed: its body is compressed, or a header holds only for the body as it is.
	Sealed
	// Streamed: its body is not in memory.
	Streamed
	// Large: its body, or the nvext in it, is longer than those that hints are added to.
	Large
	// Unreadable: its body could not be had a second time.
	Unreadable
	// NotJSON: its body is no JSON object.
	NotJSON

	reasons
	hinted // none: it gets them
)

// String returns the reason's name.
func (r Reason) String() string {
	switch r {
	case Unmatched:
		return "unmatched"
	case Empty:
		return "empty"
	case Sealed:
		return "sealed"
	case Streamed:
		return "streamed"
	case Large:
		return "large"
	case Unreadable:
		return "unreadable"
	case NotJSON:
		return "not_json"
	}
	return "unknown"
}

// Stats is what a [Transport] has done so far.
type Stats struct {
	// Hinted is how many requests got hints.
	Hinted uint64 `json:"hinted"`
	// Untouched is how many got none, by the name of their [Reason].
	Untouched map[string]uint64 `json:"untouched"`
	// Retried is how many requests were sent before and kept their number.
	Retried uint64 `json:"retried"`
	// WithoutRun is how many calls belonged to no run and had no prefix id of their own.
	WithoutRun uint64 `json:"without_run"`
	// Predicted and Unpredicted are how many calls had a prediction, and how many had none
	// where there is a lookup. LookupFailures is how often that panicked.
	Predicted      uint64 `json:"predicted"`
	Unpredicted    uint64 `json:"unpredicted"`
	LookupFailures uint64 `json:"lookup_failures"`
	// Clamped is how many values were out of bounds, and Absurd how many predictions were
	// no number that one could send.
	Clamped uint64 `json:"clamped"`
	Absurd  uint64 `json:"absurd"`
	// Prefixes is how many prefixes are counted at present, and Evicted how many had to
	// make room for others.
	Prefixes int    `json:"prefixes"`
	Evicted  uint64 `json:"evicted"`
}

type counts struct {
	hinted, retried, clamped, absurd     atomic.Uint64
	runless                              atomic.Uint64
	predicted, unpredicted, lookupFailed atomic.Uint64
	untouched                            [reasons]atomic.Uint64
}

// Stats returns what the transport has done so far.
func (t *Transport) Stats() Stats {
	s := Stats{
		Hinted:         t.stats.hinted.Load(),
		Untouched:      map[string]uint64{},
		Retried:        t.stats.retried.Load(),
		WithoutRun:     t.stats.runless.Load(),
		Predicted:      t.stats.predicted.Load(),
		Unpredicted:    t.stats.unpredicted.Load(),
		LookupFailures: t.stats.lookupFailed.Load(),
		Clamped:        t.stats.clamped.Load(),
		Absurd:         t.stats.absurd.Load(),
	}
	for r := range reasons {
		if n := t.stats.untouched[r].Load(); n > 0 {
			s.Untouched[r.String()] = n
		}
	}
	s.Prefixes, s.Evicted = t.prefixes.size()
	return s
}

// warn says, once for each hint, that it was out of bounds.
func (t *Transport) warn(name string, n, low, high int) {
	t.warnOnce(name, "a hint was out of bounds and has been changed",
		slog.String("hint", name), slog.Int("value", n), slog.Int("min", low), slog.Int("max", high))
}
