package kvfeed

import (
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// Answer takes what came of a recovery. One that has been replaced meanwhile is
// ignored.
func (f *Feed) Answer(id uint64, a Answer) []Action {
	f.reset()
	if id == 0 || id != f.rec.ID {
		return nil
	}
	if f.early(a) {
		f.n.Recoveries[Superseded]++
		f.ask(0)
		return f.acts
	}
	f.heard = f.heard || len(a.Batches) > 0 || a.Kind == Dump && a.Known || a.Kind == TooNew || a.Kind == Gone
	switch a.Kind {
	case Events:
		f.events(a)
	case Dump:
		if epoch, known := f.cur.Epoch(); a.Dump == nil || known && a.Known && a.Epoch < epoch {
			f.fail(GotNothing)
			break
		}
		f.dump = a
		if !a.Known {
			f.dump.Dump = f.unmarked(a.Dump)
		}
		f.acts = append(f.acts, Action{Do: Restore, Dump: &f.dump})
	case TooNew:
		f.tooNew(a)
	case Gone:
		f.n.Recoveries[GotGone]++
		f.retry = false
		if f.healing {
			f.settle()
			break
		}
		f.startOver(a.Batches, a.More)
	default:
		f.fail(GotNothing)
	}
	return f.acts
}

// early reports whether an answer about everything may be of a life of an ordered
// source that ended while the answer was on its way: what arrived since it was asked
// for lies before its end, and nothing had arrived before.
func (f *Feed) early(a Answer) bool {
	last := a.Last
	if n := len(a.Batches); n > 0 {
		last = a.Batches[n-1].Seq
	}
	return f.opt.Ordered && f.rec.Full && f.blind && f.cur.seen && f.cur.last < last
}

// Restored takes what came of the action Restore. With an error the rank is as it
// was before. It must be called before anything else is.
func (f *Feed) Restored(err error) []Action {
	f.reset()
	a := f.dump
	f.dump = Answer{}
	if err != nil {
		f.fail(GotNothing)
		return f.acts
	}
	f.n.Recoveries[GotDump]++
	healing := f.healing
	if a.Known {
		f.compare(a.Last)
	}
	f.replaced()
	switch {
	case a.Known:
		if epoch, known := f.cur.Epoch(); known && epoch != a.Epoch {
			f.n.Restarts++
		}
		f.cur.Place(a.Epoch, a.Last)
	case f.blank:
		f.none()
	default:
		// Which of the batches held back the dump knows was not told. Applying all of
		// them ends in the same set of blocks. Whether one is missing before the first
		// of them cannot be seen, but when healing they go back to before the question,
		// unless there were too many.
		f.heard, f.dirty = true, !healing || f.spilled
		if !healing || len(f.held) > 0 {
			f.cur.Lift()
		}
		_, placed := f.cur.Next()
		f.open = !placed && len(f.held) == 0
	}
	f.drain()
	return f.acts
}

var errBlank = errors.New("dump: nothing is known of a source that has said something")

// unmarked passes a dump on that does not say which batches it knows. One that is
// empty knows nothing, which is an empty cache only if the source said nothing.
func (f *Feed) unmarked(dump iter.Seq2[*kv.Event, error]) iter.Seq2[*kv.Event, error] {
	f.blank = true
	return func(yield func(*kv.Event, error) bool) {
		for ev, err := range dump {
			f.blank = false
			if !yield(ev, err) {
				return
			}
		}
		if f.blank && f.heard {
			yield(nil, errBlank)
		}
	}
}

// none takes it that the source has said nothing yet. What it says first need not
// be the first to arrive, so it is asked again then, unless that is batch 0.
func (f *Feed) none() {
	f.clear()
	f.cur.Lift()
	f.silent = true
}

func (f *Feed) events(a Answer) {
	epoch, known := f.cur.Epoch()
	bs := a.Batches
	for _, b := range bs {
		if b.Source != f.src || b.Epoch != bs[0].Epoch || known && b.Epoch < epoch {
			f.fail(GotNothing)
			return
		}
	}
	switch {
	case len(bs) == 0 && a.More:
		f.fail(GotNothing)
		return
	case len(bs) == 0 && f.rec.Full:
		if f.heard {
			f.fail(GotNothing)
			return
		}
		f.replaced()
		f.none()
	case len(bs) > 0 && known && bs[0].Epoch != epoch && !f.rec.Full:
		// The source lives on in another epoch, of which this is not the beginning.
		f.n.Recoveries[GotEvents]++
		f.cur = Cursor{Ordered: f.opt.Ordered}
		f.restart()
		f.recover()
		return
	case f.rec.Full:
		if known && bs[0].Epoch != epoch {
			f.n.Restarts++
		}
		if !a.More {
			f.compare(bs[len(bs)-1].Seq)
		}
		f.replaced()
		f.clear()
		f.cur.Lift()
	}
	f.n.Recoveries[GotEvents]++
	if f.follow(bs) == len(bs) && len(bs) > 0 {
		if a.More {
			f.rest()
			return
		}
		if next, _ := f.cur.Next(); a.Known && a.Last >= next {
			f.cur.Place(bs[0].Epoch, a.Last)
		}
	}
	f.drain()
}

// rest asks for what follows an answer that did not go to the end.
func (f *Feed) rest() {
	next, _ := f.cur.Next()
	if !f.rec.Full && next <= f.reached {
		f.again()
		return
	}
	f.attempt, f.reached, f.full = 0, next, false
	f.ask(0)
}

func (f *Feed) tooNew(a Answer) {
	f.n.Recoveries[GotTooNew]++
	switch {
	case f.rec.Full:
		f.again()
	case a.Newest+1 == f.rec.From && len(f.held) == 0 && !f.cur.Behind():
		f.settle() // nothing was missing
	default:
		if a.Newest < f.rec.From-1 {
			// It does not know what it once said: it restarted, or another answers for
			// it. What the rank holds may be of a life that is over.
			f.full = true
		}
		f.again()
	}
}

// replaced notes that the rank was replaced by what the source holds.
func (f *Feed) replaced() {
	f.full, f.open, f.dirty, f.degraded = false, false, false, false
	if f.healing {
		f.healing, f.attempt, f.reached = false, 0, 0
	}
}

// compare notes whether an answer about everything, whose last batch is given, ends
// before the position, or before what arrived long ago. Either the answer lags or
// the source restarted.
func (f *Feed) compare(last uint64) {
	next, placed := f.cur.Next()
	behind := placed && last+1 < next
	behind = behind || f.healing && len(f.held) == 0 && f.cur.seen && last < f.cur.last
	f.back = f.back || f.opt.Ordered && behind
}

// follow applies batches up to the first hole and returns how many of them are
// done with. Without a position the first is taken as it comes.
func (f *Feed) follow(bs []*kv.Batch) int {
	for i, b := range bs {
		next, placed := f.cur.Next()
		epoch, known := f.cur.Epoch()
		switch {
		case known && b.Epoch < epoch, placed && b.Epoch == epoch && b.Seq < next:
			continue
		case placed && b.Epoch == epoch && b.Seq > next && !clears(b):
			return i
		}
		f.apply(b)
	}
	return len(bs)
}

// drain applies what was held back. A hole that is left is recovered.
func (f *Feed) drain() {
	f.held = slices.Delete(f.held, 0, f.follow(f.held))
	next, _ := f.cur.Next()
	switch {
	case len(f.held) == 0 && !(f.opt.Recoverable && f.cur.Behind()):
		f.settle()
	case f.rec.ID == 0:
		f.recover()
	case next > f.reached:
		f.attempt, f.reached, f.full = 0, next, false
		f.ask(0)
	default:
		f.again()
	}
}

// settle goes on live.
func (f *Feed) settle() {
	f.rec, f.held = Recovery{}, nil
	f.attempt, f.full, f.healing, f.back = 0, false, false, false
	if f.opt.Recoverable && (f.dirty || f.degraded && f.retry) {
		f.healing, f.full = true, true
		f.ask(f.opt.Retry)
	}
}

// recover starts a recovery at the position, or a full one where there is none.
func (f *Feed) recover() {
	f.supersede()
	f.attempt, f.full, f.back = 0, false, false
	f.reached, _ = f.cur.Next()
	f.ask(0)
}

// supersede ends the recovery under way, if there is one.
func (f *Feed) supersede() {
	if f.syncing() {
		f.n.Recoveries[Superseded]++
	}
	f.rec, f.healing = Recovery{}, false
}

func (f *Feed) ask(after time.Duration) {
	f.lastID++
	f.blind, f.spilled = !f.cur.seen, false
	next, placed := f.cur.Next()
	f.rec = Recovery{ID: f.lastID, From: next, Full: f.full || !placed, Attempt: f.attempt + 1, After: after}
	if f.rec.Full {
		f.rec.From = 0
	}
	f.acts = append(f.acts, Action{Do: Recover, Recovery: f.rec})
}

func (f *Feed) fail(o Outcome) {
	f.n.Recoveries[o]++
	f.again()
}

// again tries once more, or gives up.
func (f *Feed) again() {
	if f.healing {
		f.held = nil
		f.ask(f.opt.Retry)
		return
	}
	f.attempt++
	if f.attempt < f.opt.Attempts {
		f.ask(f.opt.Backoff << min(f.attempt-1, 16))
		return
	}
	if f.back && !f.full {
		// The rank is what the source said, which has not got any further since and
		// of which nothing arrived: what arrived before is of a life that is over.
		f.held = nil
		f.cur.forget()
		f.settle()
		return
	}
	f.n.Recoveries[Exhausted]++
	f.retry = true
	f.startOver(nil, false)
}

// startOver gives the past up: the rank begins empty, with the batches that are
// left of the past and those held back, however many are missing between them. If
// there is more of the past, that comes first.
func (f *Feed) startOver(left []*kv.Batch, more bool) {
	f.clear()
	f.cur.Lift()
	f.open, f.dirty, f.degraded = true, false, true
	f.applyAll(left)
	if _, placed := f.cur.Next(); more && placed {
		f.reached = 0
		f.rest()
		return
	}
	f.applyAll(f.held)
	f.settle()
}

// applyAll applies those of some batches that were not applied before.
func (f *Feed) applyAll(bs []*kv.Batch) {
	for _, b := range bs {
		next, placed := f.cur.Next()
		epoch, known := f.cur.Epoch()
		if b.Source != f.src || known && b.Epoch < epoch || placed && b.Epoch == epoch && b.Seq < next {
			continue
		}
		f.apply(b)
	}
}
