package kvfeed

import (
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
	switch a.Kind {
	case Events:
		f.events(a)
	case Dump:
		if epoch, known := f.cur.Epoch(); a.Dump == nil || known && a.Known && a.Epoch < epoch {
			f.fail(GotNothing)
			break
		}
		f.dump = a
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
		f.startOver(a.Batches)
	default:
		f.fail(GotNothing)
	}
	return f.acts
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
	f.replaced()
	if a.Known {
		if epoch, known := f.cur.Epoch(); known && epoch != a.Epoch {
			f.n.Restarts++
		}
		f.cur.Place(a.Epoch, a.Last)
	} else {
		// Which of the batches held back the dump knows was not told, or it knows of
		// none because there was none. Applying all of them ends in the same set of
		// blocks; whether one is missing before the first of them cannot be seen.
		f.cur.Lift()
		f.open = len(f.held) == 0
		f.dirty = len(f.held) > 0 && f.held[0].Seq > 1
	}
	f.drain()
	return f.acts
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
	case len(bs) == 0 && f.rec.Full:
		if len(f.held) > 0 || f.healing {
			f.fail(GotNothing) // it has said something
			return
		}
		f.clear()
		f.cur.Lift()
		f.open = true
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
		f.clear()
		f.cur.Lift()
	}
	f.n.Recoveries[GotEvents]++
	if f.rec.Full {
		f.replaced()
	}
	if f.follow(bs) == len(bs) && len(bs) > 0 && a.Known {
		if next, _ := f.cur.Next(); a.Last >= next {
			f.cur.Place(bs[0].Epoch, a.Last)
		}
	}
	f.drain()
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
	f.full, f.dirty, f.degraded = false, false, false
	if f.healing {
		f.healing, f.attempt, f.reached = false, 0, 0
	}
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
	f.attempt, f.full, f.healing = 0, false, false
	if f.degraded && f.retry {
		f.healing, f.full = true, true
		f.ask(f.opt.Retry)
	}
}

// recover starts a recovery at the position, or a full one where there is none.
func (f *Feed) recover() {
	f.supersede()
	f.attempt, f.full = 0, false
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
	f.n.Recoveries[Exhausted]++
	f.retry = true
	f.startOver(nil)
}

// startOver gives the past up: the rank begins empty, with the batches that are
// left of the past and those held back, however many are missing between them.
func (f *Feed) startOver(left []*kv.Batch) {
	f.clear()
	f.cur.Lift()
	f.open, f.dirty, f.degraded = true, false, true
	for _, bs := range [][]*kv.Batch{left, f.held} {
		for _, b := range bs {
			next, placed := f.cur.Next()
			epoch, known := f.cur.Epoch()
			if b.Source != f.src || known && b.Epoch < epoch || placed && b.Epoch == epoch && b.Seq < next {
				continue
			}
			f.apply(b)
		}
	}
	f.settle()
}
