package kvlink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvfeed"
	"github.com/stator-ai/stator/internal/zmtp"
)

const (
	// replayIdle is how long an engine may be silent in the middle of an answer. It
	// answers between two batches, and a step of the engine may come first.
	replayIdle = 5 * time.Second
	// replayBytes bounds the payloads of one answer. What is beyond is asked for when
	// these are applied.
	replayBytes = 16 << 20
	// replayBatches bounds their number, of which those that cannot be read have no
	// payload.
	replayBatches = 4096
)

var (
	errRestarted = errors.New("replay: the engine has begun anew")
	errUnknown   = errors.New("replay: rank is not followed")
	errSilent    = errors.New("replay: no answer in time")
)

// replaying asks engines for what they said before.
type replaying struct{ links *Links }

// Recover implements [kvfeed.Recoverer].
func (r replaying) Recover(ctx context.Context, src kv.Source, from uint64, full bool) (kvfeed.Answer, error) {
	s := r.links.stream(src)
	if s == nil {
		return kvfeed.Answer{}, errUnknown
	}
	return s.recall(ctx, from, full)
}

// recall asks once for all batches from a number on. The socket of an engine drops
// what it cannot send fast enough, possibly the end marker too, so that an answer may
// end early: then what there is of it counts, and the rest is to be asked for.
//
// Before what is asked for comes the last batch that was applied, if it is known, to see
// whether it is still the same.
func (s *stream) recall(ctx context.Context, from uint64, full bool) (kvfeed.Answer, error) {
	s.worker.mu.Lock()
	epoch, mark := s.mu.epoch, s.mu.mark
	s.worker.mu.Unlock()
	if full {
		from = 0
	}
	h := history{stream: s, epoch: epoch, next: from}
	ask, check := from, !full && mark.applied && mark.whole && mark.epoch == epoch && mark.seq+1 == from
	if check {
		ask--
	}
	restarted := false
	ended, err := s.links.fetch(ctx, s.spec.Replay, ask, func(seq uint64, payload []byte) bool {
		switch {
		case seq < ask:
			return true // not asked for
		case check && seq == ask:
			restarted = maphash.Bytes(s.links.seed, payload) != mark.sum
			check, h.begun = false, true
			return !restarted
		case check: // whether the engine began anew cannot be seen any more
			check, h.gone = false, true
		}
		return h.take(seq, payload)
	})
	switch {
	case restarted, ended && check:
		s.worker.mu.Lock()
		if s.mu.epoch == epoch {
			s.renewLocked()
		}
		s.worker.mu.Unlock()
		return kvfeed.Answer{}, errRestarted
	case err != nil && len(h.batches) == 0:
		return kvfeed.Answer{}, err
	}
	a := kvfeed.Answer{Kind: kvfeed.Events, Batches: h.batches, More: !ended}
	if h.gone {
		a.Kind = kvfeed.Gone
	}
	return a, nil
}

// history is an answer as it comes in.
type history struct {
	stream  *stream
	epoch   uint64
	next    uint64 // expected
	begun   bool   // one came, if only the one before what was asked for
	gone    bool   // what was asked for is not there any more
	batches []*kv.Batch
	bytes   int
}

// take takes the next batch and reports whether another is wanted.
func (h *history) take(seq uint64, payload []byte) bool {
	switch {
	case seq < h.next:
		return true // it came before
	case seq > h.next && h.begun:
		return false // some were dropped
	case seq > h.next:
		h.gone = h.next > 0 || seq > 1 || h.stream.zero.Load() // engines begin at 0 or 1
	}
	h.stream.numbered(seq)
	h.begun, h.next = true, seq+1
	head, err := kv.Peek(payload)
	if err != nil {
		// It will not be another the next time.
		h.stream.malformed.Add(1)
		h.batches = append(h.batches, &kv.Batch{Source: h.stream.src, Epoch: h.epoch, Seq: seq})
		return len(h.batches) < replayBatches
	}
	if head.Clears { // nothing before it matters
		h.batches, h.bytes, h.gone = nil, 0, false
	}
	h.batches = append(h.batches, undecoded(h.stream.src, h.epoch, seq, payload, head))
	h.bytes += len(payload)
	return h.bytes < replayBytes && len(h.batches) < replayBatches
}

// fetch asks the replay socket at addr for the batches from a number on and hands each
// to take, until that reports false. It reports whether the end marker came.
func (l *Links) fetch(ctx context.Context, addr string, from uint64, take func(seq uint64, payload []byte) bool) (ended bool, err error) {
	dial, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := l.cfg.DialReplay(dial, addr)
	if err != nil {
		return false, fmt.Errorf("replay: %w", err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	var late atomic.Bool
	idle := time.AfterFunc(replayIdle, func() {
		late.Store(true)
		c.Close()
	})
	defer idle.Stop()
	failed := func(err error) error {
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("replay: %w", ctx.Err())
		case late.Load():
			return errSilent
		}
		return fmt.Errorf("replay: %w", err)
	}
	if err := c.Send(nil, binary.BigEndian.AppendUint64(nil, from)); err != nil {
		return false, failed(err)
	}
	for m := (zmtp.Message)(nil); ; {
		if m, err = c.Recv(m); err != nil {
			return false, failed(err)
		}
		idle.Reset(replayIdle)
		seq, payload, end, err := kv.ParseReplay(m)
		switch {
		case err != nil:
			return false, err
		case end:
			return true, nil
		case !take(seq, payload):
			return false, nil
		}
	}
}
