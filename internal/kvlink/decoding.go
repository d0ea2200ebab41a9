package kvlink

import (
	"errors"
	"hash/maphash"
	"iter"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// decoding stands between the hub and the target: it decodes batches when they are
// applied, and gives them to the ranks that they are of. The hub calls it for each
// stream from one goroutine at a time.
type decoding struct{ links *Links }

// Apply decodes a batch and applies it. Batches of a rank that is polled are decoded
// already.
func (d decoding) Apply(b *kv.Batch) error {
	s := d.links.stream(b.Source)
	if s == nil {
		return d.links.cfg.Target.Apply(b)
	}
	s.applying(b)
	if b.Payload == nil {
		return nil // it could not be read
	}
	out, err := s.decoder.Decode(b.Seq, b.Payload)
	if err != nil {
		return err
	}
	rank, ok := s.worker.claim(s, out.Source.Rank)
	if !ok {
		s.misplaced.Add(1)
		return nil
	}
	out.Source.Rank, out.Epoch = rank, b.Epoch
	s.events.Add(uint64(len(out.Events)))
	s.learn()
	return d.links.cfg.Target.Apply(out)
}

// learned is what events tell about blocks.
type learned struct {
	size  int
	eagle bool
}

// learn says what the events told about blocks if it is new. It is called by who decodes.
func (s *stream) learn() {
	now := learned{s.decoder.BlockSize(), s.decoder.Eagle()}
	if now == s.learned || now.size == 0 {
		return
	}
	s.learned = now
	if tell := s.links.cfg.Learned; tell != nil {
		tell(s.worker.id, now.size, now.eagle)
	}
}

// applying notes which batch is applied.
func (s *stream) applying(b *kv.Batch) {
	sum := maphash.Bytes(s.links.seed, b.Payload)
	w := s.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	was := s.mu.mark
	s.mu.mark = mark{applied: true, epoch: b.Epoch, seq: b.Seq, whole: b.Payload != nil, sum: sum}
	if was.applied && was.epoch == b.Epoch && b.Seq <= was.seq {
		s.mu.lives++
	}
	if s.mu.doubt {
		s.mu.doubt = false
		gap := was.applied && was.epoch == b.Epoch && b.Seq > was.seq+1
		if !gap { // or else the feed is about to say that its state has changed
			w.refreshLocked()
		}
	}
}

// ClearRank empties the ranks that a stream told of.
func (d decoding) ClearRank(src kv.Source) {
	d.forget(src, d.links.cfg.Target.ClearRank)
}

// RemoveRank forgets them.
func (d decoding) RemoveRank(src kv.Source) (known bool) {
	d.forget(src, func(src kv.Source) { known = d.links.cfg.Target.RemoveRank(src) || known })
	return known
}

// forget has the ranks of a stream forgotten, and what its decoder has learned.
func (d decoding) forget(src kv.Source, forget func(kv.Source)) {
	s := d.links.stream(src)
	if s == nil {
		forget(src)
		return
	}
	s.decoder.Reset()
	for _, rank := range s.worker.claimed(s) {
		forget(kv.Source{Worker: src.Worker, Rank: rank})
	}
	s.worker.release(s)
}

var errDump = errors.New("engines have no dumps")

// Restore is never called: engines have no dumps.
func (decoding) Restore(kv.Source, uint64, uint64, iter.Seq2[*kv.Event, error]) error {
	return errDump
}

// Rank returns what the hub judges by whether a rank is to be trusted: of the ranks
// that a stream tells of, the one with the most blocks that hang in the air.
func (d decoding) Rank(src kv.Source) (worst kvindex.RankStats, ok bool) {
	target, can := d.links.cfg.Target.(interface {
		Rank(kv.Source) (kvindex.RankStats, bool)
	})
	if !can {
		return worst, false
	}
	s := d.links.stream(src)
	if s == nil {
		return target.Rank(src)
	}
	for _, rank := range s.worker.claimed(s) {
		if st, known := target.Rank(kv.Source{Worker: src.Worker, Rank: rank}); known && (!ok || st.Lost > worst.Lost) {
			worst, ok = st, true
		}
	}
	return worst, ok
}
