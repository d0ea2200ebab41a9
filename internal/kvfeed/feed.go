package kvfeed

import (
	"slices"
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// Options say what a source is like and how it is recovered. The zero value is an
// unordered source that cannot be asked.
type Options struct {
	// Ordered says that batches arrive in order and once; see [Cursor].
	Ordered bool
	// Recoverable says that the source's past can be asked for.
	Recoverable bool
	// ClearOnGap empties the rank at a gap of a source that cannot be asked.
	// Otherwise the rank keeps what it has and is marked dirty.
	ClearOnGap bool
	// Resume says that the rank already holds what the source said up to batch Seq
	// of Epoch, from a dump for example.
	Resume     bool
	Epoch, Seq uint64
	// Buffer is how many batches are held back during a recovery, the oldest going
	// first. 0 means 1024.
	Buffer int
	// BufferBytes bounds them by the sum of their payloads. 0 means 64 MiB.
	BufferBytes int
	// Attempts is how often a recovery is tried before the rank is given up. 0
	// means 8.
	Attempts int
	// Backoff is the time before the second attempt; it doubles from one to the
	// next. 0 means 200 ms.
	Backoff time.Duration
	// Retry is the time between attempts to heal a rank that was given up or is
	// dirty. 0 means 30 s.
	Retry time.Duration
}

const (
	defaultBuffer      = 1024
	defaultBufferBytes = 64 << 20
	defaultAttempts    = 8
	defaultBackoff     = 200 * time.Millisecond
	defaultRetry       = 30 * time.Second
)

// State is how a feed stands.
type State uint8

// The states.
const (
	Idle     State = iota // nothing was heard
	Syncing               // batches are held back until a recovery ends
	Live                  // the rank is what the source said
	Dirty                 // live, but batches are missing: the rank may be wrong
	Degraded              // live, but the past could not be had: the rank started empty
)

// String returns the name of the state in lower case.
func (s State) String() string {
	return name(stateNames[:], int(s))
}

var stateNames = [...]string{"idle", "syncing", "live", "dirty", "degraded"}

// Do is what an action does.
type Do uint8

// The actions.
const (
	Clear   Do = iota + 1 // empty the rank
	Apply                 // apply Action.Batch
	Restore               // replace the rank by Action.Dump, then call Feed.Restored
	Recover               // ask as Action.Recovery says, then call Feed.Answer
)

// Action is a thing to be done to a rank, or for it.
type Action struct {
	Do       Do
	Batch    *kv.Batch
	Dump     *Answer
	Recovery Recovery
}

// Recovery is a question to be asked about the past of a source.
type Recovery struct {
	// ID names the recovery. It is never 0, and there is at most one at a time for
	// each feed: a new one replaces the one before.
	ID uint64
	// From and Full are arguments of [Recoverer].
	From uint64
	Full bool
	// Attempt counts from 1, and After is how long to wait first.
	Attempt int
	After   time.Duration
}

// Counts are what a feed has seen.
type Counts struct {
	// Applied counts batches that were applied, Stale those ignored because they
	// were seen before.
	Applied, Stale uint64
	// Gaps counts gaps in the numbers that arrived, and Missed the batches in
	// them, whether or not they were recovered or came late.
	Gaps, Missed uint64
	// Restarts counts new beginnings of the source.
	Restarts uint64
	// Distrusts counts recoveries because of what the rank looked like.
	Distrusts uint64
	// Overflowed counts batches held back that had to go because there were too
	// many.
	Overflowed uint64
	// Recoveries counts attempts and recoveries by their end.
	Recoveries [NumOutcomes]uint64
}

// Feed follows one source. It decides and does nothing itself: each method returns
// the actions to take, in order, which are valid until the next call. Actions that
// are not taken, or in another order, make the rank wrong. Not safe for concurrent
// use.
type Feed struct {
	src kv.Source
	opt Options
	cur Cursor
	n   Counts

	// held are batches in order that were not applied, or, when healing, that were
	// and may have to be again.
	held []*kv.Batch
	// rec is the recovery under way, ID 0 for none.
	rec     Recovery
	lastID  uint64
	attempt int    // attempts of it that failed
	reached uint64 // the furthest position it came to
	full    bool   // it has to begin from nothing
	healing bool   // batches are applied meanwhile
	spilled bool   // and not all since the question are held
	blind   bool   // nothing had arrived when it was asked
	back    bool   // an answer ended before what arrived, and none arrived since
	dump    Answer // being restored
	blank   bool   // nothing of dump was read yet

	heard    bool // the source is known to have said something
	zero     bool // it has said a batch 0, and so does not begin at 1
	silent   bool // it has not, as it was asked
	open     bool // the next batch is taken as it comes
	dirty    bool
	degraded bool
	retry    bool // being degraded may pass

	acts []Action
}

// NewFeed returns the feed of a source. The first call must be Start.
func NewFeed(src kv.Source, opt Options) *Feed {
	if opt.Buffer <= 0 {
		opt.Buffer = defaultBuffer
	}
	if opt.BufferBytes <= 0 {
		opt.BufferBytes = defaultBufferBytes
	}
	if opt.Attempts <= 0 {
		opt.Attempts = defaultAttempts
	}
	if opt.Backoff <= 0 {
		opt.Backoff = defaultBackoff
	}
	if opt.Retry <= 0 {
		opt.Retry = defaultRetry
	}
	f := &Feed{src: src, opt: opt, cur: Cursor{Ordered: opt.Ordered}, heard: opt.Resume}
	if opt.Resume {
		f.cur.Place(opt.Epoch, opt.Seq)
	}
	return f
}

// Start begins. A source that can be asked is asked at once, so that its rank is
// known before it says anything.
func (f *Feed) Start() []Action {
	f.reset()
	if f.opt.Recoverable {
		f.recover()
	}
	return f.acts
}

// Batch takes a batch that arrived. The feed owns it.
func (f *Feed) Batch(b *kv.Batch) []Action {
	f.reset()
	f.heard, f.back = true, false
	f.zero = f.zero || b.Seq == 0
	v, missed := f.cur.Observe(b.Epoch, b.Seq)
	f.count(missed)
	switch v {
	case Stale:
		f.n.Stale++
		return nil
	case Restart:
		f.restart()
	case Doubtful:
		f.doubt()
	}
	switch {
	case clears(b), f.first(b):
		f.begin(b, v)
	case f.syncing():
		f.hold(b)
	case v == Contiguous, f.open:
		f.apply(b)
		if f.healing {
			f.hold(b)
		}
	case f.opt.Recoverable:
		if f.healing {
			f.held = nil // they are applied
		}
		f.hold(b)
		f.recover()
	default:
		if v == Gap && f.opt.ClearOnGap {
			f.clear()
		}
		f.dirty = f.dirty || v == Gap || b.Seq > 1 || b.Seq == 1 && f.zero // sources begin at 0 or 1
		f.apply(b)
	}
	return f.acts
}

// Lost says that a batch arrived and was thrown away, and that none came after it
// that would show it.
func (f *Feed) Lost(epoch, seq uint64) []Action {
	f.reset()
	f.heard, f.back = true, false
	v, missed := f.cur.Observe(epoch, seq)
	if v == Stale {
		return nil
	}
	f.count(missed + 1)
	switch v {
	case Restart:
		f.restart()
	case Doubtful:
		f.doubt()
	}
	switch {
	case f.syncing():
	case f.opt.Recoverable:
		f.recover()
	default:
		f.dirty = true
	}
	return f.acts
}

// Resync says that the connection to the source was made anew, so that batches may be
// missing with none after them to show it, and which epoch is to come on it. Another
// epoch than before means that the source restarted. A source that can be asked is
// asked at once.
func (f *Feed) Resync(epoch uint64) []Action {
	f.reset()
	if was, known := f.cur.Epoch(); known && was != epoch {
		f.cur = Cursor{Ordered: f.opt.Ordered}
		f.restart()
		f.heard = false
	}
	if f.opt.Recoverable {
		// What is held back and what was heard came by the connection before, and may be
		// of a life that is over. What still counts of it will be in the answer.
		f.held, f.heard = nil, false
		f.cur.forget()
		f.recover()
	}
	return f.acts
}

// Distrust says that the rank shows signs of batches that were lost unnoticed. A
// source that can be asked is asked for everything.
func (f *Feed) Distrust() []Action {
	f.reset()
	if !f.opt.Recoverable || f.rec.ID != 0 {
		return nil
	}
	f.n.Distrusts++
	f.attempt, f.full = 0, true
	f.reached, _ = f.cur.Next()
	f.ask(0)
	return f.acts
}

// State returns how the feed stands.
func (f *Feed) State() State {
	_, known := f.cur.Epoch()
	switch {
	case f.syncing():
		return Syncing
	case f.degraded:
		return Degraded
	case f.dirty:
		return Dirty
	case known || f.open || f.silent:
		return Live
	}
	return Idle
}

// Cursor returns a copy of the feed's cursor.
func (f *Feed) Cursor() Cursor { return f.cur }

// Counts returns what the feed has seen.
func (f *Feed) Counts() Counts { return f.n }

// Held returns how many batches are held back.
func (f *Feed) Held() int {
	if f.healing {
		return 0
	}
	return len(f.held)
}

// Recovery returns the ID of the recovery under way, 0 for none.
func (f *Feed) Recovery() uint64 { return f.rec.ID }

// reset forgets the actions of the call before.
func (f *Feed) reset() {
	clear(f.acts)
	f.acts = f.acts[:0]
}

func (f *Feed) syncing() bool { return f.rec.ID != 0 && !f.healing }

func (f *Feed) count(missed uint64) {
	if missed > 0 {
		f.n.Gaps++
		f.n.Missed += missed
	}
}

// clears reports whether nothing said before b matters any more.
func clears(b *kv.Batch) bool {
	return slices.ContainsFunc(b.Events, func(ev kv.Event) bool { return ev.Kind == kv.Cleared })
}

func (f *Feed) clear() { f.acts = append(f.acts, Action{Do: Clear}) }

func (f *Feed) apply(b *kv.Batch) {
	f.cur.Place(b.Epoch, b.Seq)
	f.open, f.silent = false, false
	f.n.Applied++
	f.acts = append(f.acts, Action{Do: Apply, Batch: b})
}

// restart forgets a life of the source that is over.
func (f *Feed) restart() {
	f.n.Restarts++
	f.supersede()
	f.held = nil
	f.open, f.dirty, f.degraded = false, false, false
	f.clear()
}

// doubt gives a position up that may be of a life that is over. A source that can
// be asked is asked for everything, which is right in either case.
func (f *Feed) doubt() {
	f.cur.Lift()
	switch {
	case !f.opt.Recoverable:
		f.restart()
	case f.syncing() && !f.rec.Full:
		f.recover()
	}
}

// first reports whether b is the first that the source said, and all others are
// still to come. Where they may come in another order, a recovery that was begun
// before may know of some already, and is waited for.
func (f *Feed) first(b *kv.Batch) bool {
	_, placed := f.cur.Next()
	return b.Seq == 0 && !placed && (f.opt.Ordered || f.rec.ID == 0)
}

// begin takes a batch before which there is nothing that matters: it clears the
// cache, or it is the first of all.
func (f *Feed) begin(b *kv.Batch, v Verdict) {
	f.supersede()
	f.dirty, f.degraded = false, false
	if v == Initial {
		f.clear()
	}
	f.apply(b)
	f.drain()
}

// hold keeps a batch for later, in order.
func (f *Feed) hold(b *kv.Batch) {
	at, found := slices.BinarySearchFunc(f.held, b.Seq, func(h *kv.Batch, seq uint64) int {
		switch {
		case h.Seq < seq:
			return -1
		case h.Seq > seq:
			return 1
		}
		return 0
	})
	if found {
		f.n.Stale++
		return
	}
	f.held = slices.Insert(f.held, at, b)
	for len(f.held) > f.opt.Buffer || len(f.held) > 1 && weight(f.held) > f.opt.BufferBytes {
		f.held = slices.Delete(f.held, 0, 1)
		if f.healing {
			f.spilled = true
		} else {
			f.n.Overflowed++
		}
	}
}

// weight returns the sum of the payloads of batches.
func weight(bs []*kv.Batch) (n int) {
	for _, b := range bs {
		n += len(b.Payload)
	}
	return n
}
