package kv

import (
	"strings"
	"testing"
)

var seq42 = []byte{0, 0, 0, 0, 0, 0, 0, 42}

func TestParseMessage(t *testing.T) {
	topic, seq, payload, err := ParseMessage([][]byte{[]byte("kv@10.0.0.7:8000@m"), seq42, []byte("p")})
	if err != nil || topic != "kv@10.0.0.7:8000@m" || seq != 42 || string(payload) != "p" {
		t.Errorf("got %q, %d, %q, %v", topic, seq, payload, err)
	}
	rows := []struct {
		frames [][]byte
		want   string
	}{
		{nil, "expected 3 frames, got 0"},
		{[][]byte{nil, seq42}, "expected 3 frames, got 2"},
		{[][]byte{nil, nil, seq42, nil}, "expected 3 frames, got 4"},
		{[][]byte{nil, seq42[1:], nil}, "sequence: expected 8 bytes, got 7"},
	}
	for _, row := range rows {
		if _, _, _, err := ParseMessage(row.frames); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%q: got error %v, want one with %q", row.frames, err, row.want)
		}
	}
}

func TestParseReplay(t *testing.T) {
	last := []byte{255, 255, 255, 255, 255, 255, 255, 255}
	rows := []struct {
		name   string
		frames [][]byte
		seq    uint64
		end    bool
		err    string
	}{
		{"vLLM before 0.26 and SGLang", [][]byte{nil, seq42, []byte("p")}, 42, false, ""},
		{"vLLM since 0.26", [][]byte{nil, []byte("topic"), seq42, []byte("p")}, 42, false, ""},
		{"without the empty frame", [][]byte{seq42, []byte("p")}, 42, false, ""},
		{"end, before 0.26", [][]byte{nil, last, nil}, 1<<64 - 1, true, ""},
		{"end, since 0.26", [][]byte{nil, nil, last, {}}, 1<<64 - 1, true, ""},
		{"too few frames", [][]byte{seq42}, 0, false, "frames, got 1"},
		{"too many frames", [][]byte{nil, nil, nil, seq42, nil}, 0, false, "frames, got 5"},
		{"a sequence of another length", [][]byte{nil, nil, []byte("p")}, 0, false, "sequence: expected 8 bytes, got 0"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			seq, payload, end, err := ParseReplay(row.frames)
			if row.err != "" {
				if err == nil || !strings.Contains(err.Error(), row.err) {
					t.Errorf("got error %v, want one with %q", err, row.err)
				}
				return
			}
			if err != nil || seq != row.seq || end != row.end || end == (string(payload) == "p") {
				t.Errorf("got %d, %q, %v, %v", seq, payload, end, err)
			}
		})
	}
}
