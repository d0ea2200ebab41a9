package dynamo

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/stator-ai/stator/internal/kv"
)

// RouterEvent is an event as Dynamo's routers keep it, with its origin and number.
type RouterEvent struct {
	Source kv.Source
	ID     uint64
	Event  kv.Event
}

// A snapshot is a list of events in bincode 1: little-endian integers of fixed
// size, uint64 lengths, uint32 variants, and a byte before what may be absent.
const (
	variantStored = iota
	variantRemoved
	variantCleared
)

// The fewest bytes that things take in a snapshot.
const (
	minEvent  = 8 + 8 + 4 + 4
	minBlock  = 8 + 8 + 1
	minHash   = 8
	minObject = 8 + 8
	minRange  = 8 + 8
)

// Snapshot is a list of events that is being written. The zero value is empty.
type Snapshot struct {
	buf []byte
	n   uint64
}

// Add appends an event. A snapshot holds what is in the memory of devices: an event
// of another tier, or one without the hashes of tokens, is an error and leaves the
// snapshot as it was.
func (s *Snapshot) Add(e *RouterEvent) error {
	ev := &e.Event
	switch {
	case ev.Kind != kv.Cleared && ev.Tier != kv.Device:
		return fmt.Errorf("snapshot event %d: tier: expected the device's, got tier %d", e.ID, ev.Tier)
	case ev.Bare:
		return fmt.Errorf("snapshot event %d: blocks: expected hashes of tokens, got ids alone", e.ID)
	case ev.Kind < kv.Stored || ev.Kind > kv.Cleared:
		return fmt.Errorf("snapshot event %d: kind: expected stored, removed or cleared, got kind %d", e.ID, ev.Kind)
	}
	b := s.grow()
	b = binary.LittleEndian.AppendUint64(b, uint64(e.Source.Worker))
	b = binary.LittleEndian.AppendUint64(b, e.ID)
	switch ev.Kind {
	case kv.Stored:
		b = binary.LittleEndian.AppendUint32(b, variantStored)
		if ev.HasParent {
			b = binary.LittleEndian.AppendUint64(append(b, 1), uint64(ev.Parent))
		} else {
			b = append(b, 0)
		}
		b = binary.LittleEndian.AppendUint64(b, uint64(len(ev.Blocks)))
		for _, block := range ev.Blocks {
			b = binary.LittleEndian.AppendUint64(b, uint64(block.ID))
			b = binary.LittleEndian.AppendUint64(b, uint64(block.Tokens))
			b = append(b, 0)
		}
	case kv.Removed:
		b = binary.LittleEndian.AppendUint32(b, variantRemoved)
		b = binary.LittleEndian.AppendUint64(b, uint64(len(ev.Blocks)))
		for _, block := range ev.Blocks {
			b = binary.LittleEndian.AppendUint64(b, uint64(block.ID))
		}
	case kv.Cleared:
		b = binary.LittleEndian.AppendUint32(b, variantCleared)
	}
	s.buf = binary.LittleEndian.AppendUint32(b, e.Source.Rank)
	s.n++
	return nil
}

// Bytes returns the snapshot. It is valid until the next Add.
func (s *Snapshot) Bytes() []byte {
	b := s.grow()
	binary.LittleEndian.PutUint64(b, s.n)
	return b
}

// grow returns the buffer with room for the count at its beginning.
func (s *Snapshot) grow() []byte {
	if s.buf == nil {
		s.buf = make([]byte, 8)
	}
	return s.buf
}

// ReadSnapshot yields the events of a snapshot in order. An error is the last thing
// it yields; the events before it may have been used by then. Multimodal objects
// are passed over, since they are part of the hashes of tokens. The caller owns
// the events.
func ReadSnapshot(b []byte) iter.Seq2[RouterEvent, error] {
	return func(yield func(RouterEvent, error) bool) {
		r := reader{b: b}
		n := r.count(minEvent)
		if r.err != nil {
			yield(RouterEvent{}, fmt.Errorf("snapshot: number of events: %w", r.err))
			return
		}
		for i := range n {
			e := r.event()
			if r.err != nil {
				yield(RouterEvent{}, fmt.Errorf("snapshot: event %d of %d: %w", i, n, r.err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
		if len(r.b) > 0 {
			yield(RouterEvent{}, fmt.Errorf("snapshot: %w", errTrailing))
		}
	}
}

// reader reads bincode until something is wrong; then it gives zeros.
type reader struct {
	b   []byte
	err error
}

func (r *reader) event() RouterEvent {
	e := RouterEvent{Source: kv.Source{Worker: kv.WorkerID(r.uint64())}, ID: r.uint64()}
	switch variant := r.uint32(); variant {
	case variantStored:
		e.Event.Kind = kv.Stored
		if e.Event.HasParent = r.option(); e.Event.HasParent {
			e.Event.Parent = kv.BlockID(r.uint64())
		}
		e.Event.Blocks = make([]kv.Block, r.count(minBlock))
		for i := range e.Event.Blocks {
			e.Event.Blocks[i] = kv.Block{ID: kv.BlockID(r.uint64()), Tokens: kv.LocalHash(r.uint64())}
			if r.option() {
				r.skipObjects()
			}
		}
	case variantRemoved:
		e.Event.Kind = kv.Removed
		e.Event.Blocks = make([]kv.Block, r.count(minHash))
		for i := range e.Event.Blocks {
			e.Event.Blocks[i].ID = kv.BlockID(r.uint64())
		}
	case variantCleared:
		e.Event.Kind = kv.Cleared
	default:
		r.fail(fmt.Errorf("data: expected variant 0, 1 or 2, got %d", variant))
	}
	e.Source.Rank = r.uint32()
	if e.Source.Worker == 0 {
		r.fail(errors.New("worker_id: expected a worker, 0 is none"))
	}
	return e
}

func (r *reader) skipObjects() {
	for range r.count(minObject) {
		r.take(8)
		r.take(minRange * r.count(minRange))
		if r.err != nil {
			return
		}
	}
}

// count reads the length of a list whose elements take size bytes at least, and
// fails when they cannot all be there.
func (r *reader) count(size int) int {
	n := r.uint64()
	if n > uint64(len(r.b)/size) {
		r.fail(fmt.Errorf("length: expected at most %d elements in %d bytes, got %d", len(r.b)/size, len(r.b), n))
		return 0
	}
	return int(n)
}

func (r *reader) option() bool {
	b := r.take(1)
	if b == nil {
		return false
	}
	if b[0] > 1 {
		r.fail(fmt.Errorf("option: expected 0 or 1, got %d", b[0]))
	}
	return b[0] == 1
}

func (r *reader) uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// take returns the next n bytes, or nil when there are fewer.
func (r *reader) take(n int) []byte {
	if r.err != nil || n > len(r.b) {
		r.fail(io.ErrUnexpectedEOF)
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

// fail keeps the first error.
func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}
