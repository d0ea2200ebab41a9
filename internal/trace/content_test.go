package trace_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/trace"
	"github.com/stator-ai/stator/internal/trace/tracetest"
)

// randomTrace returns requests that share prefixes of all lengths: each is some
// blocks of an earlier one and some new ones. Some have blocks without an id.
func randomTrace(seed uint64, requests, blockSize int) *trace.Trace {
	rng := rand.New(rand.NewPCG(seed, 1))
	tr := &trace.Trace{BlockSize: blockSize}
	var next uint32
	for i := range requests {
		var ids []uint32
		if i > 0 && rng.IntN(4) > 0 {
			from := tr.Requests[rng.IntN(i)].Blocks
			ids = append(ids, from[:rng.IntN(len(from)+1)]...)
		}
		unknown := max(0, rng.IntN(9)-5)
		for n := rng.IntN(4); n > 0 || len(ids)+unknown == 0; n-- {
			ids = append(ids, next)
			next++
		}
		input := (len(ids)+unknown-1)*blockSize + 1 + rng.IntN(blockSize)
		tr.Requests = append(tr.Requests, trace.Request{Input: input, Output: 1 + rng.IntN(9), Blocks: ids})
	}
	return tr
}

// TestContentSharing holds the blocks that are derived from ids against those of
// the tokens: two of them are equal in the one way exactly if they are in the
// other.
func TestContentSharing(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 2))
		traceSize := 1 + rng.IntN(12)
		tr := randomTrace(seed, 30, traceSize)
		for _, size := range []int{1, 2, 3, 4, 5, 7, 8, 12, traceSize, 2 * traceSize, 3*traceSize + 1} {
			name := fmt.Sprintf("seed %d, blocks of %d for %d", seed, traceSize, size)
			ids := newPairing[kv.BlockID](name + ", IDs")
			local := newPairing[kv.LocalHash](name + ", token hashes")
			var tokens []uint32
			for i := range tr.Requests {
				c := tr.Content(i, size)
				tokens = c.Tokens(tokens[:0])
				if len(tokens) != tr.Requests[i].Input {
					t.Fatalf("%s: request %d has %d tokens, want %d", name, i, len(tokens), tr.Requests[i].Input)
				}
				want := kv.AppendBlocks(nil, kv.HashSeed("", ""), tokens, size)
				if c.Full() != len(want) {
					t.Fatalf("%s: request %d has %d full blocks, want %d", name, i, c.Full(), len(want))
				}
				for k := range want {
					got := c.Block(k)
					ids.pair(t, got.ID, want[k].ID)
					local.pair(t, got.Tokens, want[k].Tokens)
				}
			}
		}
	}
}

// named returns the trace with an id for every block.
func named(tr *trace.Trace) *trace.Trace {
	out := *tr
	out.Requests = slices.Clone(tr.Requests)
	var next uint32
	for _, r := range tr.Requests {
		for _, id := range r.Blocks {
			next = max(next, id+1)
		}
	}
	for i := range out.Requests {
		r := &out.Requests[i]
		r.Blocks = slices.Clone(r.Blocks)
		for len(r.Blocks)*tr.BlockSize < r.Input {
			r.Blocks = append(r.Blocks, next)
			next++
		}
	}
	return &out
}

// A block without an id is as good as one with an id that no other has.
func TestBlocksWithoutIDs(t *testing.T) {
	for seed := range uint64(20) {
		tr := randomTrace(seed, 100, 4)
		full := named(tr)
		a, b := trace.Stat(tr), trace.Stat(full)
		if a.Unhashed == 0 || b.Unhashed != 0 {
			t.Fatalf("seed %d: %d prompts without hashes, %d with all ids", seed, a.Unhashed, b.Unhashed)
		}
		if a.Unhashed = 0; a != b {
			t.Fatalf("seed %d: %+v, with all ids %+v", seed, a, b)
		}
		if a.FullBlocks == 0 || a.DistinctBlocks == a.Blocks {
			t.Fatalf("seed %d proves nothing: %+v", seed, a)
		}
		for _, n := range []int{1, 2, 3, 5, 8, 20, 1000} {
			if a, b := trace.LRUHits(tr, n), trace.LRUHits(full, n); a != b {
				t.Errorf("seed %d, LRU of %d: %+v, with all ids %+v", seed, n, a, b)
			}
			if a, b := trace.IdealHits(tr, n), trace.IdealHits(full, n); a != b {
				t.Errorf("seed %d, %d workers: %+v, with all ids %+v", seed, n, a, b)
			}
		}
		for _, size := range []int{4, 8, 12} {
			a, err := tr.WithBlockSize(size)
			if err != nil {
				t.Fatal(err)
			}
			b, err := full.WithBlockSize(size)
			if err != nil {
				t.Fatal(err)
			}
			sa, sb := trace.Stat(a), trace.Stat(b)
			if sa.Unhashed = 0; sa != sb {
				t.Errorf("seed %d, blocks of %d: %+v, with all ids %+v", seed, size, sa, sb)
			}
		}
		for _, size := range []int{1, 3, 4, 7, 16} {
			name := fmt.Sprintf("seed %d, blocks of %d", seed, size)
			ids := newPairing[kv.BlockID](name + ", IDs")
			local := newPairing[kv.LocalHash](name + ", token hashes")
			for i := range tr.Requests {
				a, b := tr.Content(i, size), full.Content(i, size)
				for k := range a.Full() {
					ids.pair(t, a.Block(k).ID, b.Block(k).ID)
					local.pair(t, a.Block(k).Tokens, b.Block(k).Tokens)
				}
			}
		}
		for _, format := range []string{"mooncake", "stator"} {
			got := trace.Stat(rewrite(t, tr, format))
			if got.DistinctBlocks != a.DistinctBlocks || got.OnceBlocks != a.OnceBlocks || got.Blocks != a.Blocks {
				t.Errorf("seed %d, as %s: %+v, want %+v", seed, format, got, a)
			}
		}
	}
}

// pairing checks that two names for things are names for the same things.
type pairing[T comparable] struct {
	what    string
	forward map[T]T
	back    map[T]T
}

func newPairing[T comparable](what string) *pairing[T] {
	return &pairing[T]{what, make(map[T]T), make(map[T]T)}
}

func (p *pairing[T]) pair(t *testing.T, got, want T) {
	t.Helper()
	if w, ok := p.forward[got]; ok && w != want {
		t.Fatalf("%s: %v stands for %v and %v", p.what, got, w, want)
	}
	if g, ok := p.back[want]; ok && g != got {
		t.Fatalf("%s: %v has the names %v and %v", p.what, want, g, got)
	}
	p.forward[got], p.back[want] = want, got
}

// Blocks with a generated token are like no other, in one request and in all.
func TestContentGenerated(t *testing.T) {
	tr := randomTrace(3, 50, 8)
	ids := make(map[kv.BlockID]bool)
	local := make(map[kv.LocalHash]bool)
	prompts := make(map[kv.BlockID]bool)
	for i := range tr.Requests {
		c := tr.Content(i, 4)
		for k := range c.Full() {
			prompts[c.Block(k).ID] = true
		}
	}
	n := 0
	for i := range tr.Requests {
		c := tr.Content(i, 4)
		for k := c.Full(); k < c.Full()+20; k++ {
			b := c.Block(k)
			if b != c.Block(k) {
				t.Fatalf("request %d, block %d changes", i, k)
			}
			if prompts[b.ID] {
				t.Fatalf("request %d, block %d has the ID of a prompt's", i, k)
			}
			ids[b.ID], local[b.Tokens] = true, true
			n++
		}
	}
	if len(ids) != n || len(local) != n {
		t.Errorf("%d generated blocks have %d IDs and %d token hashes", n, len(ids), len(local))
	}
}

// A trace block of 512 tokens is eight blocks of 64 with the same tokens and
// different prefixes.
func TestContentOfConversation(t *testing.T) {
	tr := tracetest.Conversation(t)
	c := tr.Content(0, 64)
	if want := tr.Requests[0].Input / 64; c.Full() != want {
		t.Fatalf("%d full blocks, want %d", c.Full(), want)
	}
	first := c.Block(0)
	seen := make(map[kv.BlockID]bool)
	for k := range 8 {
		b := c.Block(k)
		if b.Tokens != first.Tokens {
			t.Errorf("block %d: token hash %x, want %x", k, b.Tokens, first.Tokens)
		}
		seen[b.ID] = true
	}
	if len(seen) != 8 {
		t.Errorf("8 blocks have %d IDs", len(seen))
	}
	if c.Block(8).Tokens == first.Tokens {
		t.Error("two trace blocks have the same tokens")
	}
	other := tr.Content(1, 64)
	for k := range 9 {
		if same := c.Block(k) == other.Block(k); same != (k < 8) {
			t.Errorf("block %d shared: %v", k, same)
		}
	}
}

func TestContentAllocates(t *testing.T) {
	tr := tracetest.Conversation(t)
	c := tr.Content(5, 96)
	var sum kv.BlockID
	if n := testing.AllocsPerRun(100, func() {
		for k := range c.Full() + 3 {
			sum += c.Block(k).ID
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// On 2 cores of a shared machine:
//
//	16, 64  16 ns/op
//	768     21 ns/op
func BenchmarkContentBlock(b *testing.B) {
	tr := tracetest.Conversation(b)
	for _, size := range []int{16, 64, 768} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.ReportAllocs()
			c := tr.Content(0, size)
			full := c.Full()
			k := 0
			for b.Loop() {
				c.Block(k)
				if k++; k == full {
					k = 0
				}
			}
		})
	}
}
