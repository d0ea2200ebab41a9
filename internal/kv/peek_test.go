package kv

import (
	"encoding/hex"
	"strings"
	"testing"
)

func TestPeek(t *testing.T) {
	for _, row := range payloads {
		t.Run(row.name, func(t *testing.T) {
			payload, err := hex.DecodeString(row.hex)
			if err != nil {
				t.Fatal(err)
			}
			want := Head{Time: 1700000000.5}
			if !strings.Contains(row.hex, "cb41d954fc40200000") {
				want.Time = 1.5
			}
			for _, ev := range row.want {
				want.Clears = want.Clears || ev.Kind == Cleared
			}
			if got, err := Peek(payload); err != nil || got != want {
				t.Errorf("got %+v, %v; want %+v", got, err, want)
			}
			for n := range payload {
				if _, err := Peek(payload[:n]); err == nil {
					t.Errorf("the first %d bytes of %d are a batch", n, len(payload))
				}
			}
		})
	}
}

// What is decoded later can be decoded, and a batch that clears is known as one.
func FuzzPeek(f *testing.F) {
	for _, row := range payloads {
		payload, err := hex.DecodeString(row.hex)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(payload)
	}
	f.Add([]byte{0x93, 0x01, 0x91, 0x91, 0xb0, 'A'})
	f.Fuzz(func(t *testing.T, payload []byte) {
		head, err := Peek(payload)
		b, decodeErr := NewDecoder(DecoderConfig{Source: Source{Worker: 7}}).Decode(3, payload)
		if (err == nil) != (decodeErr == nil) {
			t.Fatalf("Peek: %v, Decode: %v", err, decodeErr)
		}
		if err != nil {
			return
		}
		clears := false
		for _, ev := range b.Events {
			clears = clears || ev.Kind == Cleared
		}
		if head.Clears && !clears {
			t.Fatal("a batch that clears nothing seems to")
		}
	})
}
