package thompson

import (
	"math"
	"time"
)

// How long a conversation is remembered that says nothing, at least and at most.
const (
	minPrefixTTL = time.Minute
	maxPrefixTTL = time.Hour
)

// PrefixConfig configures [Prefixes]. The zero value has working defaults.
type PrefixConfig struct {
	// Max is how many conversations are remembered; 0 means [DefaultMaxPrefixes].
	Max int
	// Compat forgets a conversation with its last expected request, as the NeMo Agent
	// Toolkit does: one more request begins it anew. Otherwise nothing more is expected
	// after that.
	Compat bool
}

// Prefixes counts the requests of conversations, to tell how many are still to come.
type Prefixes struct {
	compat bool
	known  *table[progress]
}

type progress struct{ total, processed int }

// NewPrefixes returns one that has seen nothing.
func NewPrefixes(cfg PrefixConfig) *Prefixes {
	if cfg.Max <= 0 {
		cfg.Max = DefaultMaxPrefixes
	}
	return &Prefixes{compat: cfg.Compat, known: newTable[progress](cfg.Max, nil)}
}

// Expectation is what a client says about the requests of its conversation.
type Expectation struct {
	// Total is how many requests the conversation has, at least 1. The largest that was
	// said counts.
	Total int
	// Remaining says that Total is how many come after this one instead, which may be 0.
	Remaining bool
	// Gap is the time between two of them.
	Gap time.Duration
}

// Next counts a request of a conversation. It returns how many are expected after it and
// how long the conversation is worth remembering. Nothing is expected of one without a
// name, except with Compat, which takes the client by its word.
func (p *Prefixes) Next(now time.Time, id PrefixID, e Expectation) (budget int, ttl time.Duration) {
	after := max(e.Total, 0) // as the client says
	if !e.Remaining {
		e.Total = max(e.Total, 1)
		after = e.Total - 1
	}
	ttl = prefixTTL(e)
	if id == (PrefixID{}) {
		if p.compat {
			return after, ttl
		}
		return 0, ttl
	}
	p.known.get(now, id) // forgets it if it has expired
	s := p.known.put(now, id, ttl)
	s.total = max(s.total, e.Total)
	if s.processed < math.MaxInt32 {
		s.processed++
	}
	budget = max(s.total-s.processed, 0)
	if e.Remaining {
		budget = max(budget, after)
	}
	if budget == 0 && p.compat {
		p.known.remove(id)
	}
	return budget, ttl
}

// Len returns how many conversations are remembered.
func (p *Prefixes) Len() int { return p.known.len() }

// prefixTTL is four times what the whole conversation should take.
func prefixTTL(e Expectation) time.Duration {
	long := 4 * float64(e.Total) * float64(max(e.Gap, 0))
	return time.Duration(min(max(long, float64(minPrefixTTL)), float64(maxPrefixTTL)))
}
