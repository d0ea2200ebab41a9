package kv

import (
	"fmt"

	"github.com/tinylib/msgp/msgp"
)

// Head is what can be seen of an engine's batch before it is decoded.
type Head struct {
	// Time is when the engine made the batch, in seconds since 1970 by its clock; 0
	// when it does not say.
	Time float64
	// Clears is whether one of the events empties the cache.
	Clears bool
}

// Peek looks at the payload of one message, see [ParseMessage], without decoding its
// events, which depend on those before. It returns an error exactly when
// [Decoder.Decode] does: when the payload as a whole cannot be read.
func Peek(payload []byte) (h Head, err error) {
	n, b, err := msgp.ReadArrayHeaderBytes(payload)
	if err != nil {
		return h, fmt.Errorf("kv batch: %w", err)
	}
	if n < 2 {
		return h, fmt.Errorf("kv batch: expected time, events and rank, got %d elements", n)
	}
	rest, err := skipValue(b)
	if err != nil {
		return h, fmt.Errorf("kv batch: time: %w", err)
	}
	if at, _, err := msgp.ReadFloat64Bytes(b); err == nil {
		h.Time = at
	}
	events, b, err := msgp.ReadArrayHeaderBytes(rest)
	if err != nil {
		return h, fmt.Errorf("kv batch: events: %w", err)
	}
	for i := range events {
		h.Clears = h.Clears || peekKind(b) == Cleared
		if b, err = skipValue(b); err != nil {
			return h, fmt.Errorf("kv batch: events: [%d]: %w", i, err)
		}
	}
	for i := uint32(2); i < n; i++ {
		if b, err = skipValue(b); err != nil {
			return h, fmt.Errorf("kv batch: element %d: %w", i, err)
		}
	}
	return h, nil
}

// peekKind returns the kind of an event, 0 if that cannot be read.
func peekKind(b []byte) (kind Kind) {
	switch msgp.NextType(b) {
	case msgp.MapType:
		if n, b, err := msgp.ReadMapHeaderBytes(b); err == nil {
			kind, _ = findKind(n, b)
		}
	case msgp.ArrayType:
		if n, b, err := msgp.ReadArrayHeaderBytes(b); err == nil && n > 0 {
			kind, _, _ = readKind(b)
		}
	}
	return kind
}
