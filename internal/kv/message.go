package kv

import (
	"encoding/binary"
	"fmt"
)

// ParseMessage takes a message of an engine's event socket apart: its topic, which
// may be empty, its sequence number and its payload for [Decoder.Decode], which is
// part of frames. Anything but three frames is an error.
func ParseMessage(frames [][]byte) (topic string, seq uint64, payload []byte, err error) {
	if len(frames) != 3 {
		return "", 0, nil, fmt.Errorf("kv message: expected 3 frames, got %d", len(frames))
	}
	if seq, err = parseSeq(frames[1]); err != nil {
		return "", 0, nil, fmt.Errorf("kv message: %w", err)
	}
	return string(frames[0]), seq, frames[2], nil
}

// ParseReplay takes one answer of an engine's replay socket apart. It reads from
// the back, because vLLM sends the topic before the sequence number since 0.26 and
// earlier ones and SGLang do not; the empty frame before both may be there or not. An
// empty payload is the end marker: end is true and seq means nothing.
func ParseReplay(frames [][]byte) (seq uint64, payload []byte, end bool, err error) {
	n := len(frames)
	if n < 2 || n > 4 {
		return 0, nil, false, fmt.Errorf("kv replay: expected 2 to 4 frames, got %d", n)
	}
	if seq, err = parseSeq(frames[n-2]); err != nil {
		return 0, nil, false, fmt.Errorf("kv replay: %w", err)
	}
	payload = frames[n-1]
	return seq, payload, len(payload) == 0, nil
}

func parseSeq(frame []byte) (uint64, error) {
	if len(frame) != 8 {
		return 0, fmt.Errorf("sequence: expected 8 bytes, got %d", len(frame))
	}
	return binary.BigEndian.Uint64(frame), nil
}
