package router

import (
	"maps"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/thompson"
)

// stays is where conversations ran last: of as many as their requests are counted of, and
// for as long. Where there are too many, any one is forgotten.
type stays struct {
	known map[thompson.PrefixID]stay
	max   int
}

type stay struct {
	rank  kv.Source
	until time.Time
}

// newStays returns stays of no more than so many conversations; 0 means
// [thompson.DefaultMaxPrefixes].
func newStays(limit int) stays {
	if limit <= 0 {
		limit = thompson.DefaultMaxPrefixes
	}
	return stays{make(map[thompson.PrefixID]stay), limit}
}

// move notes that a conversation is on a rank now, and says whether that is the same as
// before. It is remembered for ttl or, if that is 0, for as long as it would have been.
func (s *stays) move(now time.Time, id thompson.PrefixID, ttl time.Duration, rank kv.Source) metrics.Stick {
	was, known := s.known[id]
	is := stay{rank, was.until}
	if ttl > 0 {
		is.until = now.Add(ttl)
	}
	if !known && len(s.known) >= s.max {
		for other := range s.known {
			delete(s.known, other)
			break
		}
	}
	s.known[id] = is
	switch {
	case !known || !now.Before(was.until):
		return metrics.NoPrevious
	case was.rank == rank:
		return metrics.Stayed
	}
	return metrics.Switched
}

// leave forgets the conversations on a rank, which has left.
func (s *stays) leave(rank kv.Source) {
	maps.DeleteFunc(s.known, func(_ thompson.PrefixID, at stay) bool { return at.rank == rank })
}

// stay notes where the conversation of a request runs from now on, whoever has decided
// that. The reference policy keeps those that it has placed itself.
func (b *bandit) stay(c *choice) {
	if r := &b.request; b.reference == nil && r.Prefix != (thompson.PrefixID{}) {
		c.bandit.stick = b.stays.move(c.at, r.Prefix, r.TTL, c.slots[c.chosen].source())
	}
}
