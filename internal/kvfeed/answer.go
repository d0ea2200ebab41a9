package kvfeed

import (
	"context"
	"iter"

	"github.com/stator-ai/stator/internal/kv"
)

// Kind is the kind of an answer.
type Kind uint8

// The kinds of answers.
const (
	// Failed is no answer. Err says why.
	Failed Kind = iota
	// Events are batches from the one asked for on, to the newest. Those before a
	// batch that clears the cache may be left out.
	Events
	// Dump is all that the rank holds.
	Dump
	// TooNew means that the source has not got as far as what was asked for.
	TooNew
	// Gone means that what was asked for cannot be had any more, from anyone.
	// Batches are what is left, the newest of the history.
	Gone
	// InvalidRange means that the question ends before it starts.
	InvalidRange
	// DumpFailed means that a dump could not be made. Err says why. It must not be
	// taken for an empty cache.
	DumpFailed
)

// Answer is what a source, or someone on its behalf, says about its past. The zero
// value is an answer that failed.
type Answer struct {
	Kind Kind
	// Batches of Events and Gone are in order. They belong to the receiver, which
	// may share them with others and changes nothing in them.
	Batches []*kv.Batch
	// More says that Events or Gone end before the newest batch, and that the rest is
	// to be asked for. Events of no batches with more to come are no answer.
	More bool
	// Dump yields the events that make an empty rank hold what this one holds,
	// parents before children. An error ends it and makes the whole worthless. An
	// event is valid until the next.
	Dump iter.Seq2[*kv.Event, error]
	// Last is the newest batch that a Dump or Events know of, of Epoch; batches have
	// their own, which is the same. Known is whether there is such a batch and its
	// number was told.
	Epoch, Last uint64
	Known       bool
	// Start and End are those of the question, for TooNew and InvalidRange, and
	// Newest is the newest batch there is, for TooNew.
	Start, End *uint64
	Newest     uint64
	// Err is why there is no answer, for Failed and DumpFailed.
	Err error
}

// Recoverer asks sources about their past. Recover is called by many goroutines,
// by one at a time for each source. It returns when ctx ends; a Dump that it
// returned may depend on ctx, which lasts until the dump has been read.
type Recoverer interface {
	// Recover asks for what src said, beginning with batch from. With full set
	// nothing is known of the source, and what is asked for is everything: a dump,
	// or all batches from the first one on. An error is the same as the answer
	// Failed.
	Recover(ctx context.Context, src kv.Source, from uint64, full bool) (Answer, error)
}

// Outcome is how a recovery ended.
type Outcome uint8

// The outcomes.
const (
	GotEvents   Outcome = iota // batches were applied
	GotDump                    // the rank was replaced
	GotTooNew                  // the source had not got so far
	GotGone                    // the history was lost
	GotNothing                 // it failed
	Superseded                 // the source was cleared or may have restarted meanwhile
	Exhausted                  // the last attempt did not succeed; the rank was cleared
	NumOutcomes = 7            // how many there are
)

// String returns the name of the outcome, as metrics show it.
func (o Outcome) String() string {
	return name(outcomeNames[:], int(o))
}

var outcomeNames = [NumOutcomes]string{
	"events", "dump", "too_new", "gone", "failed", "superseded", "exhausted",
}
