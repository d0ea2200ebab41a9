// Package dynamo reads and writes what Dynamo's own components exchange about KV
// caches, so that Stator can stand beside them: the envelope that an event travels
// in and its frame on ZMQ, the names of streams and subjects, the snapshot of an
// index as version 1.0 stores it, and the identifiers of its block manager and of
// its filters across data centres. The events themselves are read and written by
// package kv.
//
// Readers take bytes from outside: they check every length before they allocate for
// it and never panic.
package dynamo

import (
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"
)

// EventTopic is the topic of KV events.
const EventTopic = "kv-events"

// Envelope is a message of the event plane. Receivers drop those whose topic is not
// theirs.
type Envelope struct {
	Publisher       uint64
	Sequence        uint64 // of the publisher, from 0
	PublishedMillis uint64 // since the Unix epoch
	Topic           string
	Payload         []byte // MessagePack of one event or of an array of events
}

var errTrailing = errors.New("bytes after its end")

// AppendMsg appends the MessagePack form: a map with the fields by name.
func (e *Envelope) AppendMsg(dst []byte) []byte {
	dst = msgp.AppendMapHeader(dst, uint32(len(envelopeFields)))
	dst = msgp.AppendUint64(msgp.AppendString(dst, envelopeFields[0]), e.Publisher)
	dst = msgp.AppendUint64(msgp.AppendString(dst, envelopeFields[1]), e.Sequence)
	dst = msgp.AppendUint64(msgp.AppendString(dst, envelopeFields[2]), e.PublishedMillis)
	dst = msgp.AppendString(msgp.AppendString(dst, envelopeFields[3]), e.Topic)
	return msgp.AppendBytes(msgp.AppendString(dst, envelopeFields[4]), e.Payload)
}

// envelopeFields are the names of the fields, in the order of an array of them.
var envelopeFields = [...]string{"publisher_id", "sequence", "published_at", "topic", "payload"}

// ParseEnvelope reads an envelope that is a map, or an array of the fields in their
// order. Fields that it does not know are ignored; all that it knows have to be
// there. The payload is part of b.
func ParseEnvelope(b []byte) (Envelope, error) {
	e, rest, err := readEnvelope(b)
	if err == nil && len(rest) > 0 {
		err = errTrailing
	}
	if err != nil {
		return Envelope{}, fmt.Errorf("event envelope: %w", err)
	}
	return e, nil
}

func readEnvelope(b []byte) (e Envelope, rest []byte, err error) {
	if msgp.NextType(b) == msgp.ArrayType {
		n, b, err := msgp.ReadArrayHeaderBytes(b)
		if err != nil {
			return e, b, err
		}
		if int64(n) < int64(len(envelopeFields)) {
			return e, b, fmt.Errorf("expected an array of at least %d elements, got %d", len(envelopeFields), n)
		}
		for i := range n {
			if b, err = e.readField(int(min(i, uint32(len(envelopeFields)))), b); err != nil {
				return e, b, err
			}
		}
		return e, b, nil
	}
	n, b, err := msgp.ReadMapHeaderBytes(b)
	if err != nil {
		return e, b, err
	}
	var seen [len(envelopeFields) + 1]bool
	for range n {
		var key []byte
		if key, b, err = msgp.ReadMapKeyZC(b); err != nil {
			return e, b, fmt.Errorf("key: %w", err)
		}
		i := 0
		for i < len(envelopeFields) && envelopeFields[i] != string(key) {
			i++
		}
		if b, err = e.readField(i, b); err != nil {
			return e, b, err
		}
		seen[i] = true
	}
	for i, name := range envelopeFields {
		if !seen[i] {
			return e, b, fmt.Errorf("%s: expected a value, it is missing", name)
		}
	}
	return e, b, nil
}

// readField reads field i, or skips it when i is none.
func (e *Envelope) readField(i int, b []byte) (rest []byte, err error) {
	switch i {
	case 0:
		e.Publisher, rest, err = msgp.ReadUint64Bytes(b)
	case 1:
		e.Sequence, rest, err = msgp.ReadUint64Bytes(b)
	case 2:
		e.PublishedMillis, rest, err = msgp.ReadUint64Bytes(b)
	case 3:
		e.Topic, rest, err = msgp.ReadStringBytes(b)
	case 4:
		e.Payload, rest, err = msgp.ReadBytesZC(b)
	default:
		if rest, err = msgp.Skip(b); err != nil {
			return rest, fmt.Errorf("unknown field: %w", err)
		}
		return rest, nil
	}
	if err != nil {
		return rest, fmt.Errorf("%s: %w", envelopeFields[i], err)
	}
	return rest, nil
}
