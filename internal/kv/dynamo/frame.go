package dynamo

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A frame is a byte with the version, the length of the content as a big-endian
// uint32, and the content.
const (
	frameVersion = 1
	frameHeader  = 1 + 4
)

// Message is what the event plane sends over ZMQ, in four frames.
type Message struct {
	Topic     string
	Publisher uint64
	Sequence  uint64
	Envelope  []byte // in its MessagePack form
}

// Frames returns the frames that m is sent in. It fails only for an envelope of
// 4 GiB and more.
func (m *Message) Frames() ([][]byte, error) {
	if uint64(len(m.Envelope)) > math.MaxUint32 {
		return nil, fmt.Errorf("event message: envelope: expected fewer than 2^32 bytes, got %d", len(m.Envelope))
	}
	frame := make([]byte, 0, frameHeader+len(m.Envelope))
	frame = binary.BigEndian.AppendUint32(append(frame, frameVersion), uint32(len(m.Envelope)))
	return [][]byte{
		[]byte(m.Topic),
		binary.BigEndian.AppendUint64(nil, m.Publisher),
		binary.BigEndian.AppendUint64(nil, m.Sequence),
		append(frame, m.Envelope...),
	}, nil
}

// ParseMessage reads the frames of a message. The envelope is part of the last one
// and has not been looked at.
func ParseMessage(frames [][]byte) (Message, error) {
	if len(frames) != 4 {
		return Message{}, fmt.Errorf("event message: expected 4 frames, got %d", len(frames))
	}
	publisher, sequence := frames[1], frames[2]
	if len(publisher) != 8 {
		return Message{}, fmt.Errorf("event message: publisher: expected 8 bytes, got %d", len(publisher))
	}
	if len(sequence) != 8 {
		return Message{}, fmt.Errorf("event message: sequence: expected 8 bytes, got %d", len(sequence))
	}
	envelope, err := parseFrame(frames[3])
	if err != nil {
		return Message{}, fmt.Errorf("event message: %w", err)
	}
	return Message{
		Topic:     string(frames[0]),
		Publisher: binary.BigEndian.Uint64(publisher),
		Sequence:  binary.BigEndian.Uint64(sequence),
		Envelope:  envelope,
	}, nil
}

func parseFrame(b []byte) ([]byte, error) {
	if len(b) < frameHeader {
		return nil, fmt.Errorf("frame: expected a header of %d bytes, got %d", frameHeader, len(b))
	}
	if b[0] != frameVersion {
		return nil, fmt.Errorf("frame: expected version %d, got %d", frameVersion, b[0])
	}
	n, content := binary.BigEndian.Uint32(b[1:]), b[frameHeader:]
	if uint64(n) != uint64(len(content)) {
		return nil, fmt.Errorf("frame: expected %d bytes as its header says, got %d", n, len(content))
	}
	return content, nil
}
