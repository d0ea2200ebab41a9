package kvfeed

import (
	"fmt"
	"iter"
	"sync"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

const defaultRing = 1024

// Local is what a companion beside an engine keeps of it, so that others can
// recover: an index of the worker's ranks and the last batches of each. It is a
// [Target], to be fed by a hub or directly. Batches of one rank must come one after
// another; apart from that its methods are safe for concurrent use.
type Local struct {
	worker kv.WorkerID
	index  *kvindex.Index
	ring   int
	dump   func(kv.Source) (*kvindex.Dump, bool)

	mu struct {
		sync.Mutex
		ranks map[uint32]*localRank
	}
}

// localRank is the recent past of a rank.
type localRank struct {
	ring    []*kv.Batch // without a hole; the oldest is at head once it is full
	head    int
	epoch   uint64
	last    uint64 // the number of the last batch, or of the dump
	applied bool   // the index knows of the rank
	dumping *flight
}

// flight is a dump that is being made. Whoever wants one meanwhile waits for it.
type flight struct {
	done chan struct{}
	Answer
}

// NewLocal returns the memory of one worker, which keeps the last ring batches of
// each rank beside the index. 0 means 1024.
func NewLocal(worker kv.WorkerID, index *kvindex.Index, ring int) *Local {
	if ring <= 0 {
		ring = defaultRing
	}
	l := &Local{worker: worker, index: index, ring: ring, dump: index.Dump}
	l.mu.ranks = map[uint32]*localRank{}
	return l
}

// Apply records a batch, which then belongs to Local, and applies it to the index.
// A batch of the same epoch that is not newer than the last is ignored, and one of
// another epoch begins with an empty rank. After a hole the past before it is
// forgotten, so that whoever asks for it gets a dump. It returns an error for a
// batch of another worker.
func (l *Local) Apply(b *kv.Batch) error {
	if err := l.check(b.Source); err != nil {
		return err
	}
	r, stale, restarted := l.record(b)
	if stale {
		return nil
	}
	if restarted {
		l.index.RemoveRank(b.Source)
	}
	if err := l.index.Apply(b); err != nil {
		return err
	}
	l.mu.Lock()
	r.applied = true
	l.mu.Unlock()
	return nil
}

func (l *Local) record(b *kv.Batch) (r *localRank, stale, restarted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r = l.mu.ranks[b.Source.Rank]
	switch {
	case r == nil:
		r = l.begin(b)
	case b.Epoch != r.epoch:
		restarted = true
		r = l.begin(b)
	case b.Seq <= r.last:
		return r, true, false
	case b.Seq != r.last+1:
		r.forget()
	}
	r.last = b.Seq
	if len(r.ring) < l.ring {
		r.ring = append(r.ring, b)
	} else {
		r.ring[r.head] = b
		r.head = (r.head + 1) % l.ring
	}
	return r, false, restarted
}

// begin makes a rank that begins with b. The lock is held.
func (l *Local) begin(b *kv.Batch) *localRank {
	r := &localRank{epoch: b.Epoch}
	l.mu.ranks[b.Source.Rank] = r
	return r
}

func (r *localRank) forget() { r.ring, r.head = nil, 0 }

// ClearRank forgets all about a rank of the worker, its past included: what it says
// next is its beginning.
func (l *Local) ClearRank(src kv.Source) { l.RemoveRank(src) }

// RemoveRank does the same, and reports whether the rank was known.
func (l *Local) RemoveRank(src kv.Source) bool {
	if l.check(src) != nil {
		return false
	}
	l.mu.Lock()
	delete(l.mu.ranks, src.Rank)
	l.mu.Unlock()
	return l.index.RemoveRank(src)
}

// Restore replaces a rank by what a dump says. Its past begins after that.
func (l *Local) Restore(src kv.Source, epoch, seq uint64, events iter.Seq2[*kv.Event, error]) error {
	if err := l.check(src); err != nil {
		return err
	}
	if err := l.index.Restore(src, epoch, seq, events); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.ranks[src.Rank] = &localRank{epoch: epoch, last: seq, applied: true}
	return nil
}

func (l *Local) check(src kv.Source) error {
	if src.Worker != l.worker {
		return fmt.Errorf("worker_id: expected %d, got %d", l.worker, src.Worker)
	}
	return nil
}

// Query answers a question about the past of a rank. Start and End are both
// inclusive. It answers, in this order,
//
//  1. InvalidRange, if End is before Start;
//  2. Dump, without a Start;
//  3. Dump, if no batch is kept, or DumpFailed, if nothing is known of the rank and
//     Start is not 0: whoever asks so knows more;
//  4. TooNew, if Start is after the last batch;
//  5. Dump, if Start is before the first batch that is kept;
//  6. Events, from Start to End or to the last batch, whichever comes first.
//
// A question about another worker fails. A dump of a rank that has said nothing is
// empty and knows of no batch. Dumps of one rank are made one at a time,
// and questions that wait for the same one share it.
func (l *Local) Query(q Request) Answer {
	src := q.Source()
	if err := l.check(src); err != nil {
		return Answer{Err: err}
	}
	if q.Start != nil && q.End != nil && *q.End < *q.Start {
		return Answer{Kind: InvalidRange, Start: q.Start, End: q.End}
	}
	if q.Start == nil {
		return l.dumped(src, 0)
	}
	if a, ok := l.recent(src.Rank, q); ok {
		return a
	}
	return l.dumped(src, *q.Start)
}

// recent answers without a dump, where it can.
func (l *Local) recent(rank uint32, q Request) (Answer, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.mu.ranks[rank]
	if r == nil || len(r.ring) == 0 {
		return Answer{}, false
	}
	first := r.last + 1 - uint64(len(r.ring))
	switch {
	case *q.Start > r.last:
		return Answer{Kind: TooNew, Start: q.Start, End: q.End, Newest: r.last}, true
	case *q.Start < first:
		return Answer{}, false
	}
	end := r.last
	if q.End != nil {
		end = min(end, *q.End)
	}
	a := Answer{Kind: Events, Epoch: r.epoch, Last: end, Known: true}
	for seq := *q.Start; ; seq++ {
		at := (r.head + int(seq-first)) % len(r.ring)
		a.Batches = append(a.Batches, r.ring[at])
		if seq == end {
			return a, true
		}
	}
}

// dumped answers with a dump. One that was begun before and does not reach as far
// as the batch before start is not good enough.
func (l *Local) dumped(src kv.Source, start uint64) Answer {
	fl, own := l.fly(src, start)
	if !own {
		<-fl.done
		if fl.Known && fl.Last+1 < start {
			fl, own = l.fly(src, start)
		}
	}
	if own {
		l.land(src, fl)
	}
	<-fl.done
	return fl.Answer
}

// fly returns the dump of a rank that is being made, or one that the caller has to
// make.
func (l *Local) fly(src kv.Source, start uint64) (fl *flight, own bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fl = &flight{done: make(chan struct{})}
	r := l.mu.ranks[src.Rank]
	switch {
	case r == nil || !r.applied:
		fl.Answer = Answer{Kind: Dump, Dump: func(func(*kv.Event, error) bool) {}}
		if start > 0 {
			fl.Answer = Answer{Kind: DumpFailed, Err: fmt.Errorf("rank %d: nothing is known of it", src.Rank)}
		}
		close(fl.done)
		return fl, false
	case r.dumping != nil:
		return r.dumping, false
	}
	r.dumping = fl
	fl.Last = r.last
	return fl, true
}

func (l *Local) land(src kv.Source, fl *flight) {
	defer func() {
		l.mu.Lock()
		if r := l.mu.ranks[src.Rank]; r != nil && r.dumping == fl {
			r.dumping = nil
		}
		l.mu.Unlock()
		close(fl.done)
	}()
	d, ok := l.dump(src)
	if !ok || !d.Known {
		fl.Kind, fl.Err = DumpFailed, fmt.Errorf("rank %d: not in the index", src.Rank)
		return
	}
	fl.Answer = Answer{
		Kind: Dump, Epoch: d.Epoch, Last: d.Seq, Known: true,
		Dump: func(yield func(*kv.Event, error) bool) {
			for ev := range d.All() {
				if !yield(ev, nil) {
					return
				}
			}
		},
	}
}
