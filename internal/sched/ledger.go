package sched

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/stator-ai/stator/internal/kv"
)

// Seat is the number of a rank in a ledger: small, and used again when the rank
// has left and nothing is booked on it any more.
type Seat int32

// Ledger is what is booked on the ranks of a pool. The zero value is empty. It is
// not safe for concurrent use.
//
// Prompts that begin alike are kept once for all ranks, as a tree of stretches of
// blocks. One walk down tells how much of a prompt is live on every rank, and
// booking and freeing cost what there are stretches on the way, besides a copy of
// the blocks that are new. Nothing is allocated in the long run.
type Ledger struct {
	seats    []seat
	leaving  int // seats that have left and on which something is booked
	adapters map[string]int

	stretches map[kv.BlockID]*stretch // by their first id
	blocks    int                     // in all stretches
	spares    spares
}

// A seat is the state of one; sums of weights are in parts of [wholeBlock]. It is
// free when it has not joined and has no requests.
type seat struct {
	joined           bool
	requests, tokens int
	blocks, output   int64
}

// Load is what is booked on a rank.
type Load struct {
	// Requests is how many requests there are.
	Requests int
	// PrefillTokens is how many prompt tokens they still have to compute.
	PrefillTokens int
	// Blocks is the weight of their prompts' blocks, those that several of them share
	// counted once, and Output that of the blocks of their answers.
	Blocks, Output float64
}

// Work is what a request brings to a rank. Negative numbers count as 0.
type Work struct {
	// Prompt are the prompt's full blocks, shared with requests that begin alike.
	// The ledger does not keep it.
	Prompt []kv.Block
	// Loose is how many blocks it has besides, shared with nobody.
	Loose int
	// PrefillTokens is how many tokens of the prompt are not in the rank's cache.
	PrefillTokens int
	// Adapter is the adapter it runs with, empty for none.
	Adapter string
}

// Booking is a request on a rank. The zero value is one that is not booked. It
// must not be copied while it is.
type Booking struct {
	seat        Seat
	booked      bool
	prefilled   bool
	tokens      int      // yet to be computed, until prefilled
	last        *stretch // where its prompt ends, nil if it shares none
	loose       int
	looseWeight int64 // of each
	output      int
	outputSum   int64 // of the weights
	adapter     string
}

// Join takes a rank in and returns its seat, the lowest that is free.
func (l *Ledger) Join() Seat {
	s := slices.IndexFunc(l.seats, func(t seat) bool { return !t.joined && t.requests == 0 })
	if s < 0 {
		s = len(l.seats)
		l.seats = append(l.seats, seat{})
	}
	l.seats[s] = seat{joined: true}
	return Seat(s)
}

// Leave gives a seat back. What is booked on it stays until it is freed, and the
// seat is free after that; nothing new can be booked on it. Leaving twice is no
// different from leaving once, as long as nobody else has got the seat.
func (l *Ledger) Leave(s Seat) {
	t := &l.seats[s]
	if t.joined && t.requests > 0 {
		l.leaving++
	}
	t.joined = false
}

// Seats returns a number above that of every seat.
func (l *Ledger) Seats() int { return len(l.seats) }

// Load returns what is booked on a seat, also one that has left. What is 0 is
// exactly 0.
func (l *Ledger) Load(s Seat) Load {
	t := &l.seats[s]
	return Load{
		Requests:      t.requests,
		PrefillTokens: t.tokens,
		Blocks:        float64(t.blocks) / wholeBlock,
		Output:        float64(t.output) / wholeBlock,
	}
}

// Totals is a [Load] in whole blocks.
type Totals struct{ Requests, PrefillTokens, Blocks int }

// Totals returns what is booked on a seat with the blocks of prompts, and of answers
// if output is set, summed and rounded half up.
func (l *Ledger) Totals(s Seat, output bool) Totals {
	t := &l.seats[s]
	sum := t.blocks
	if output {
		sum += t.output
	}
	return Totals{t.requests, t.tokens, int((sum + wholeBlock/2) >> wholeBits)}
}

// Live appends to dst, for every seat, how many of the prompt's leading blocks are
// booked there. It is 0 for seats that have left.
func (l *Ledger) Live(dst []int32, prompt []kv.Block) []int32 {
	base := len(dst)
	dst = slices.Grow(dst, len(l.seats))[:base+len(l.seats)]
	live := dst[base:]
	clear(live)
	var at *stretch
	for d := 0; d < len(prompt); {
		e := l.stretches[prompt[d].ID]
		if e == nil || e.parent != at {
			break
		}
		n := e.agree(prompt[d:])
		d += n
		for i := range e.shares {
			live[e.shares[i].seat] = int32(d)
		}
		if n < e.len() {
			break
		}
		at = e
	}
	if l.leaving > 0 {
		for i := range l.seats {
			if !l.seats[i].joined {
				live[i] = 0
			}
		}
	}
	return dst
}

// Book books w on a seat. The booking must not be booked and the seat must not have
// left; it panics otherwise.
func (l *Ledger) Book(b *Booking, s Seat, w Work) {
	if b.booked {
		panic(fmt.Sprintf("sched: book on seat %d what is booked on seat %d", s, b.seat))
	}
	t := &l.seats[s]
	if !t.joined {
		panic(fmt.Sprintf("sched: book on seat %d, which has left", s))
	}
	*b = Booking{
		seat:        s,
		booked:      true,
		tokens:      max(w.PrefillTokens, 0),
		loose:       max(w.Loose, 0),
		looseWeight: wholeBlock,
		adapter:     w.Adapter,
	}
	last, booked := l.bookPrompt(s, w.Prompt)
	b.last = last
	b.loose += len(w.Prompt) - booked
	t.requests++
	t.tokens += b.tokens
	t.blocks += int64(b.loose) * b.looseWeight
	if w.Adapter != "" {
		if l.adapters == nil {
			l.adapters = make(map[string]int)
		}
		l.adapters[w.Adapter]++
	}
}

// bookPrompt counts a booking on s in all stretches of the prompt, making those that
// are missing, and returns the last one and how many blocks are in them. These are
// fewer than the prompt has only where an id is known as that of a block after
// another one.
func (l *Ledger) bookPrompt(s Seat, prompt []kv.Block) (last *stretch, booked int) {
	for booked < len(prompt) {
		rest := prompt[booked:]
		e := l.stretches[rest[0].ID]
		switch {
		case e == nil:
			e = l.extend(last, rest)
		case e.parent != last:
			return last, booked
		default:
			if n := e.agree(rest); n < e.len() {
				if e = l.split(e, n); e == nil {
					return last, booked
				}
			}
		}
		if i, ok := e.find(s); ok {
			e.shares[i].refs++
		} else {
			e.shares = slices.Insert(e.shares, i, share{s, 1, wholeBlock})
			l.seats[s].blocks += e.full(wholeBlock)
		}
		last = e
		booked += e.len()
	}
	return last, booked
}

// Booked reports whether b is booked.
func (b *Booking) Booked() bool { return b.booked }

// Seat returns where b is booked, or was last.
func (b *Booking) Seat() Seat { return b.seat }

// Prefilled says that the prompt has been computed and reports whether that was
// news.
func (l *Ledger) Prefilled(b *Booking) bool {
	if !b.booked || b.prefilled {
		return false
	}
	l.seats[b.seat].tokens -= b.tokens
	b.prefilled = true
	return true
}

// Grow adds n blocks to the answer; fewer than none are none. A weight that is not
// negative becomes the weight of all blocks that this booking alone uses on its
// rank, at most 1; those that others share keep theirs. With a negative one the new
// blocks have weight 1. Nothing happens if b is not booked.
func (l *Ledger) Grow(b *Booking, n int, weight float64) {
	if !b.booked {
		return
	}
	n = max(n, 0)
	t := &l.seats[b.seat]
	b.output += n
	if weight < 0 || math.IsNaN(weight) {
		b.outputSum += int64(n) * wholeBlock
		t.output += int64(n) * wholeBlock
		return
	}
	w := int64(math.Round(min(weight, 1) * wholeBlock))
	t.output += int64(b.output)*w - b.outputSum
	b.outputSum = int64(b.output) * w
	t.blocks += int64(b.loose) * (w - b.looseWeight)
	b.looseWeight = w
	var below *stretch
	for e := b.last; e != nil; e = e.parent {
		sh := e.share(b.seat)
		if sh.refs != 1 {
			break
		}
		t.blocks += e.full(w - sh.weight)
		sh.weight = w
		if below != nil && e.children == 1 && l.join(e, below) {
			e = below
		}
		below = e
	}
}

// Free ends the booking and reports whether there was one.
func (l *Ledger) Free(b *Booking) bool {
	if !b.booked {
		return false
	}
	l.Prefilled(b)
	t := &l.seats[b.seat]
	t.requests--
	t.blocks -= int64(b.loose) * b.looseWeight
	t.output -= b.outputSum
	l.freePrompt(b.seat, b.last)
	if b.adapter != "" {
		if n := l.adapters[b.adapter] - 1; n > 0 {
			l.adapters[b.adapter] = n
		} else {
			delete(l.adapters, b.adapter)
		}
	}
	if !t.joined && t.requests == 0 {
		l.leaving--
	}
	*b = Booking{seat: b.seat}
	return true
}

// freePrompt counts a booking on s out of all stretches up from last.
func (l *Ledger) freePrompt(s Seat, last *stretch) {
	lowest := true // of those that stay
	for e := last; e != nil; {
		up := e.parent
		i, _ := e.find(s)
		sh := &e.shares[i]
		sh.refs--
		gone := sh.refs == 0
		if gone {
			l.seats[s].blocks -= e.full(sh.weight)
			e.shares = slices.Delete(e.shares, i, i+1)
		}
		switch {
		case len(e.shares) == 0:
			l.remove(e)
		case lowest || gone:
			l.tidy(e)
			lowest = false
		}
		e = up
	}
}

// Adapters returns how many requests run with each adapter, in no order.
func (l *Ledger) Adapters() iter.Seq2[string, int] { return maps.All(l.adapters) }

// Stats returns how many stretches of prompts the ledger tells apart, and how many
// blocks are in them, however many ranks hold them.
func (l *Ledger) Stats() (stretches, blocks int) { return len(l.stretches), l.blocks }
