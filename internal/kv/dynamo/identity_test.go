package dynamo

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
)

func TestLineage(t *testing.T) {
	t.Run("tokens 1..12, bs 4", func(t *testing.T) {
		tokens := []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
		lineage, err := AppendLineage(nil, kv.AppendBlocks(nil, kv.HashSeed("", ""), tokens, 4))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range lineage {
			got = append(got, hex.EncodeToString(l[:]))
		}
		want := []string{"0032ce3935fecb729700000000000000", "005128ac8de75b4f0f78e4d7fb2dca5c", "00aba8799e9b2033e122b2379d6d3c3d"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	rng := rand.New(rand.NewPCG(1, 2))
	for _, tc := range []struct {
		position uint64
		bits     int
	}{{0, 54}, {1, 54}, {255, 54}, {256, 46}, {65535, 46}, {65536, 38}, {1<<24 - 1, 38}} {
		t.Run(fmt.Sprintf("position %d", tc.position), func(t *testing.T) {
			id, parent := kv.BlockID(rng.Uint64()|1<<63), kv.BlockID(rng.Uint64()|1<<63)
			l, err := NewLineage(tc.position, id, parent)
			if err != nil {
				t.Fatal(err)
			}
			got, err := l.Parts()
			if err != nil {
				t.Fatal(err)
			}
			want := LineageParts{tc.position, id, parent & (1<<tc.bits - 1), tc.bits}
			if tc.position == 0 {
				want.Parent = 0
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for _, position := range []uint64{1 << 24, math.MaxUint64} {
		if l, err := NewLineage(position, 1, 2); err == nil {
			t.Errorf("position %d: got %x, want an error", position, l)
		}
	}
	if got, err := (Lineage{0: 0xc0}).Parts(); err == nil {
		t.Errorf("mode 3: got %v, want an error", got)
	}
}

func TestHashSlots(t *testing.T) {
	seed := kv.HashSeed("", "")
	slots := []Slot{{Token: 4}, {Token: 5}, {Placeholder: true, Object: 0xAA}, {Placeholder: true, Object: 0xAA, Offset: 1}}
	t.Run("tokens 4,5 real, then mm 0xAA run offsets 0,1", func(t *testing.T) {
		if got := HashSlots(seed, slots); got != 7664776633422348022 {
			t.Errorf("got %d, want 7664776633422348022", got)
		}
	})
	t.Run("no placeholder", func(t *testing.T) {
		if got, want := HashSlots(seed, slots[:2]), kv.HashTokens(seed, []uint32{4, 5}); got != want {
			t.Errorf("got %d, want %d as of the tokens", got, want)
		}
	})
}

func TestBuckets(t *testing.T) {
	for _, tc := range []struct{ blocks, want uint64 }{
		{1, 2}, {1000, 512}, {1000000, 524288},
		{0, 2}, {6, 2}, {7, 4}, {math.MaxUint64, 1 << 63},
	} {
		t.Run(fmt.Sprintf("%d blocks", tc.blocks), func(t *testing.T) {
			if got := Buckets(tc.blocks); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestProbe(t *testing.T) {
	t.Run("2^19 buckets, hash 17", func(t *testing.T) {
		if diff := cmp.Diff(Probe{38339, [2]uint64{434051, 444702}}, NewProbe(17, 1<<19)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	// With few buckets and many blocks, zeros come up that have to be avoided.
	for id := range kv.BlockID(200_000) {
		p := NewProbe(id, 2)
		if p.Fingerprint == 0 || p.Buckets[0] == p.Buckets[1] || max(p.Buckets[0], p.Buckets[1]) > 1 {
			t.Fatalf("NewProbe(%d, 2) = %v", id, p)
		}
	}
}

func TestProbeIn(t *testing.T) {
	words := []uint16{0, 1, 2, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		var bucket uint64
		holds := make(map[uint16]bool)
		for lane := range 4 {
			w := words[rng.IntN(len(words))]
			bucket |= uint64(w) << (16 * lane)
			holds[w] = true
		}
		for _, w := range words[1:] {
			if got := (Probe{Fingerprint: w}).In(bucket); got != holds[w] {
				t.Fatalf("fingerprint %#x in %#016x: got %v", w, bucket, got)
			}
		}
	}
}
