package trace

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// DefaultBlockSize is the number of tokens that an id stands for in Mooncake's
// traces.
const DefaultBlockSize = 512

// Trace is traffic to replay. What makes one leaves it sound; one made by hand
// must keep to what is said about [Request].
type Trace struct {
	// BlockSize is the number of tokens that a block id stands for.
	BlockSize int
	// Requests are in the order of the file (Mooncake, where arrivals need not be
	// sorted) or of arrival (recorded requests).
	Requests []Request
	// Format is what the trace was read from: "mooncake", "stator" or "dynamo".
	Format string
	// Skipped counts the rows of a recording that were left out.
	Skipped Skipped
	// Clamped is how many prompts have fewer ids than their length asks for, and
	// were taken to be as long as there are ids (Mooncake).
	Clamped int
}

// Request is one request of a [Trace].
type Request struct {
	// Arrival is when it came, on a clock of the trace: for recorded requests, since
	// the first.
	Arrival time.Duration
	// Input and Output are the numbers of prompt and generated tokens. Input is at
	// least 1.
	Input, Output int
	// Blocks identify the prompt, one id per BlockSize tokens, that of a partial
	// last block included. An id stands for its block and for all before it: where
	// it is equal, so is the whole prompt up to there, and so an id has one place
	// and one predecessor throughout the trace. Blocks that the prompt has beyond
	// these ids are like no other: a recorded prompt without hashes has no ids, and
	// one with hashes of full blocks none for the rest. Ids that [Read] gives are
	// dense, in order of first appearance. The slice is not to be appended to.
	Blocks []uint32
	// Session names the conversation that the request belongs to; empty for a
	// request that stands alone.
	Session string
	// Follows is set when the request waits for the one before it of the same
	// session, and is sent Delay after that has been answered. The time of arrival,
	// which is not before that of the other, is then only what it was when recorded.
	Follows bool
	// Delay is the time between that answer and the request.
	Delay time.Duration
	// DelayKnown is false where Delay is a difference of arrivals, which contains
	// the time that the answer took.
	DelayKnown bool
	// ID and Model name the request and its model, where the trace does.
	ID, Model string
	// Hints is what the client said to expect, nil if nothing.
	Hints *Hints
}

// ErrEmpty is returned for a trace without a request.
var ErrEmpty = errors.New("no requests")

// Previous returns for each request the index of the one that it follows, or -1.
func (t *Trace) Previous() []int {
	previous := make([]int, len(t.Requests))
	last := make(map[string]int)
	for i := range t.Requests {
		r := &t.Requests[i]
		previous[i] = -1
		if r.Session == "" {
			continue
		}
		if j, ok := last[r.Session]; ok && r.Follows {
			previous[i] = j
		}
		last[r.Session] = i
	}
	return previous
}

// Speed makes requests that follow no other arrive arrivals times as fast, and
// shortens what lies between an answer and the request after it by the factor
// delays. The first arrival becomes 0. The order of the requests stays. Both
// factors must be above 0 and finite.
func (t *Trace) Speed(arrivals, delays float64) error {
	for _, r := range []float64{arrivals, delays} {
		if !(r > 0) || math.IsInf(r, 0) {
			return fmt.Errorf("speed: expected a finite factor above 0, got %v", r)
		}
	}
	if len(t.Requests) == 0 {
		return nil
	}
	first := slices.MinFunc(t.Requests, byArrival).Arrival
	previous := t.Previous()
	old := make([]time.Duration, len(t.Requests))
	for i := range t.Requests {
		r := &t.Requests[i]
		old[i] = r.Arrival
		if p := previous[i]; p >= 0 {
			delay := divide(r.Delay, delays)
			// The rest is the answer's own time, which stays.
			r.Arrival = min(t.Requests[p].Arrival+max(0, r.Arrival-old[p]-r.Delay)+delay, maxTime)
			r.Delay = delay
			continue
		}
		r.Arrival = divide(r.Arrival-first, arrivals)
	}
	return nil
}

// divide saturates.
func divide(d time.Duration, by float64) time.Duration {
	q := math.Round(float64(d) / by)
	if q >= float64(maxTime) {
		return maxTime
	}
	return time.Duration(q)
}

// maxTime is the latest time of a trace; a sum of some does not overflow.
const maxTime time.Duration = math.MaxInt64 / 4

// Jitter moves every session by a random time below limit, drawn from seed, and
// sorts the requests by arrival, except that those of a session keep their order:
// who follows whom does not change. Traces whose timestamps are ticks of a coarse
// clock become traffic without bursts in this way.
func (t *Trace) Jitter(limit time.Duration, seed uint64) error {
	if limit < 0 || limit > maxTime {
		return fmt.Errorf("jitter: expected 0 to %v, got %v", maxTime, limit)
	}
	if limit == 0 {
		return nil
	}
	const stream = 0x6a6974746572 // "jitter": other draws from the seed differ
	rng := rand.New(rand.NewPCG(seed, stream))
	type session struct{ moved, latest time.Duration }
	sessions := make(map[string]session)
	type place struct {
		at time.Duration
		Request
	}
	places := make([]place, len(t.Requests))
	for i, r := range t.Requests {
		s, known := sessions[r.Session]
		if !known || r.Session == "" {
			s.moved = time.Duration(rng.Int64N(int64(limit)))
		}
		r.Arrival += s.moved
		places[i] = place{r.Arrival, r}
		if r.Session != "" {
			s.latest = max(s.latest, r.Arrival)
			places[i].at = s.latest
			sessions[r.Session] = s
		}
	}
	slices.SortStableFunc(places, func(a, b place) int { return cmp.Compare(a.at, b.at) })
	for i := range places {
		t.Requests[i] = places[i].Request
	}
	return nil
}

func byArrival(a, b Request) int { return cmp.Compare(a.Arrival, b.Arrival) }

// WithBlockSize returns the trace with blocks of another size, a multiple or a
// divisor of its own; it shares everything else with t. Which full blocks are
// shared is what [Trace.Content] says for that size: two prompts share a larger
// block if they share all of it, and the parts of a block where they share the
// block, as far as both have them. What two prompts share of a block that is not
// the same is not known, and counts as nothing. Ids are dense.
//
// Smaller blocks take memory for each id of each request. More of them than a
// trace can have different ids are an error.
func (t *Trace) WithBlockSize(tokens int) (*Trace, error) {
	if tokens < 1 || tokens > maxBlockSize {
		return nil, fmt.Errorf("block size: expected 1 to %d, got %d", maxBlockSize, tokens)
	}
	out := *t
	out.BlockSize = tokens
	out.Requests = slices.Clone(t.Requests)
	switch {
	case tokens%t.BlockSize == 0:
		out.merge(t)
	case t.BlockSize%tokens == 0:
		if err := out.split(t); err != nil {
			return nil, fmt.Errorf("block size %d: %w", tokens, err)
		}
	default:
		return nil, fmt.Errorf("block size %d: expected a multiple or a divisor of %d, the trace's own", tokens, t.BlockSize)
	}
	return &out, nil
}

// merge gives the requests the blocks that they have in from, several as one.
func (t *Trace) merge(from *Trace) {
	merge := t.BlockSize / from.BlockSize
	// A block's id says all that comes before it, so the last of those merged
	// stands for them all.
	fresh := make([]uint32, from.idBound())
	var next uint32
	var arena idArena
	for i := range t.Requests {
		r := &t.Requests[i]
		known := len(r.Blocks) / merge
		if from.unknown(r) == 0 {
			known = blocksOf(r.Input, t.BlockSize)
		}
		ids := arena.make(known)
		for k := range ids {
			last := r.Blocks[min((k+1)*merge, len(r.Blocks))-1]
			if fresh[last] == 0 {
				next++
				fresh[last] = next
			}
			ids[k] = fresh[last] - 1
		}
		r.Blocks = ids
	}
}

// split gives the requests the blocks that they have in from, in parts, of which
// a partial last block has only as many as it has tokens for.
func (t *Trace) split(from *Trace) error {
	parts := from.BlockSize / t.BlockSize
	known := func(r *Request) int { return min(len(r.Blocks)*parts, blocksOf(r.Input, t.BlockSize)) }
	// The parts of a block have successive ids: as many as the prompt has that
	// holds most of it.
	first := make([]uint32, from.idBound())
	for i := range t.Requests {
		r := &t.Requests[i]
		n := known(r)
		for k, id := range r.Blocks {
			first[id] = max(first[id], uint32(min(parts, n-k*parts)))
		}
	}
	next := 0
	for id, n := range first {
		if next+int(n) > maxIDs {
			return errTooManyBlocks
		}
		first[id] = uint32(next)
		next += int(n)
	}
	var arena idArena
	for i := range t.Requests {
		r := &t.Requests[i]
		ids := arena.make(known(r))
		for k := range ids {
			ids[k] = first[r.Blocks[k/parts]] + uint32(k%parts)
		}
		r.Blocks = ids
	}
	return nil
}

// unknown returns how many blocks of a request have no id.
func (t *Trace) unknown(r *Request) int { return blocksOf(r.Input, t.BlockSize) - len(r.Blocks) }

func blocksOf(tokens, size int) int { return (tokens + size - 1) / size }

// idBound returns a number above every block id.
func (t *Trace) idBound() int {
	bound := 0
	for i := range t.Requests {
		for _, id := range t.Requests[i].Blocks {
			bound = max(bound, int(id)+1)
		}
	}
	return bound
}

// chains returns the session of each request under names for which every request
// but the first follows the one before: a format that knows nothing else can hold
// the trace then. A request that is in a session without following starts a chain
// of another name.
func (t *Trace) chains() []string {
	taken := make(naming)
	for i := range t.Requests {
		taken.take(t.Requests[i].Session)
	}
	names := make([]string, len(t.Requests))
	current := make(map[string]string)
	for i := range t.Requests {
		r := &t.Requests[i]
		if r.Session == "" {
			continue
		}
		name, begun := current[r.Session]
		switch {
		case !begun:
			name = r.Session
		case !r.Follows:
			name = taken.another(r.Session)
		}
		names[i], current[r.Session] = name, name
	}
	return names
}

// naming finds names that are not taken. Under each that is, it holds the number
// that makes the next one like it.
type naming map[string]int

func (n naming) take(name string) {
	if _, taken := n[name]; !taken {
		n[name] = 2
	}
}

// another takes and returns a name like one that is taken.
func (n naming) another(name string) string {
	for {
		like := fmt.Sprintf("%s#%d", name, n[name])
		n[name]++
		if _, taken := n[like]; !taken {
			n.take(like)
			return like
		}
	}
}
