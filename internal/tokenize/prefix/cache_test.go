package prefix

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/tokenize"
)

// marked is a tokenizer that can be cut after '|' and, softly, before a space that
// a letter follows. An id is a byte, and the first byte after a cut counts double
// if it is the first of the text: a cut that is taken for the beginning shows.
type marked struct {
	tokenize.Bytes
	encoded *atomic.Int64
}

func (m marked) Cuts(dst []tokenize.Cut, text []byte, from, gap int) []tokenize.Cut {
	last := from
	for i := from + 1; i < len(text); i++ {
		c := tokenize.Cut{At: i, Soft: text[i-1] != '|'}
		if i-last >= gap && (!c.Soft || m.Holds(text, c)) {
			dst = append(dst, c)
			last = i
		}
	}
	return dst
}

func (m marked) Holds(text []byte, c tokenize.Cut) bool {
	return !c.Soft || c.At+1 < len(text) && text[c.At] == ' ' && text[c.At+1] != ' '
}

func (m marked) EncodeFrom(dst []uint32, text []byte, from int) ([]uint32, error) {
	m.encoded.Add(int64(len(text) - from))
	for i, b := range text[from:] {
		id := uint32(b)
		if from+i == 0 {
			id += 256
		}
		dst = append(dst, id)
	}
	if i := bytes.IndexByte(text[from:], '!'); i >= 0 {
		return dst, fmt.Errorf("a text that cannot be encoded")
	}
	return dst, nil
}

func (m marked) want(text []byte) []uint32 {
	var n atomic.Int64
	ids, _ := marked{encoded: &n}.EncodeFrom(nil, text, 0)
	return ids
}

// check compares what the cache gives with what the tokenizer gives.
func check(t *testing.T, c *Cache, text string, seed uint64, blockSize int) tokenize.Result {
	t.Helper()
	p, err := c.Encode([]byte(text), tokenize.Hashing{Seed: seed, Size: blockSize})
	if err != nil {
		t.Fatal(err)
	}
	want := marked{}.want([]byte(text))
	if diff := cmp.Diff(want, p.IDs); diff != "" {
		t.Fatalf("ids of %q (-want +got):\n%s", text, diff)
	}
	if diff := cmp.Diff(kv.AppendBlocks(nil, seed, want, blockSize), p.Blocks, cmp.Comparer(func(a, b []kv.Block) bool { return slices.Equal(a, b) })); diff != "" {
		t.Fatalf("blocks of %q (-want +got):\n%s", text, diff)
	}
	return p
}

func TestTurns(t *testing.T) {
	var n atomic.Int64
	c := New(marked{encoded: &n}, 1<<20)
	turn := strings.Repeat("x", 200) + "|"
	for i := 1; i <= 20; i++ {
		n.Store(0)
		p := check(t, c, strings.Repeat(turn, i)+"open", 1, 16)
		if want := (i - 1) * len(turn); p.Cached != want && i > 1 {
			t.Errorf("turn %d: %d ids found, expected %d", i, p.Cached, want)
		}
		if i > 1 && n.Load() != int64(len(turn)+len("open")) {
			t.Errorf("turn %d: %d bytes encoded, expected the new ones, %d", i, n.Load(), len(turn)+len("open"))
		}
	}
	if s := c.Stats(); s.Hits != 19 || s.Misses != 1 || s.Nodes != 20 || s.Cached+s.Uncached == 0 {
		t.Errorf("got %+v", s)
	}
}

func TestOtherSeedsAndSizes(t *testing.T) {
	var n atomic.Int64
	c := New(marked{encoded: &n}, 1<<20)
	text := strings.Repeat(strings.Repeat("y", 150)+"|", 5)
	for _, k := range []tokenize.Hashing{{Seed: 1, Size: 16}, {Seed: 2, Size: 16}, {Seed: 1, Size: 8}, {Seed: 1}, {Seed: 1, Size: 16}, {Seed: 2, Size: 16}} {
		check(t, c, text+"end", k.Seed, k.Size)
		text += strings.Repeat("z", 140) + "|"
	}
}

// TestHashesAreReused counts the blocks that are hashed: each once for those who hash
// alike, whether or not somebody came before who did not hash at all.
func TestHashesAreReused(t *testing.T) {
	var n atomic.Int64
	c := New(marked{encoded: &n}, 1<<20)
	text := strings.Repeat(strings.Repeat("u", 159)+"|", 10)
	check(t, c, text+"x", 1, 0)
	for _, want := range []uint64{100, 100, 100} { // the last piece, an x, fills no block
		check(t, c, text+"x", 1, 16)
		if got := c.Stats().Hashed; got != want {
			t.Fatalf("%d blocks hashed, expected %d", got, want)
		}
	}
	check(t, c, text+text+"x", 1, 16)
	if got := c.Stats().Hashed; got != 200 {
		t.Errorf("%d blocks hashed after another turn, expected 200", got)
	}
	if s := c.Stats(); s.Bytes <= int64(2*len(text)) {
		t.Errorf("%d bytes counted", s.Bytes)
	}
	for _, want := range []uint64{300, 300} { // another takes them over
		check(t, c, text+"x", 2, 16)
		if got := c.Stats().Hashed; got != want {
			t.Errorf("%d blocks hashed, expected %d", got, want)
		}
	}
	check(t, c, text+text+"x", 1, 16)
}

func TestSoftCutsDependOnWhatFollows(t *testing.T) {
	var n atomic.Int64
	c := New(marked{encoded: &n}, 1<<20)
	head := strings.Repeat("w", 130)
	check(t, c, head+" tail", 0, 0)
	if p := check(t, c, head+" other", 0, 0); p.Cached != len(head) {
		t.Errorf("%d ids found, expected %d", p.Cached, len(head))
	}
	if p := check(t, c, head+"  wide", 0, 0); p.Cached != 0 {
		t.Errorf("%d ids found over a place that is no cut here", p.Cached)
	}
}

func TestErrorsAreNotRemembered(t *testing.T) {
	var n atomic.Int64
	c := New(marked{encoded: &n}, 1<<20)
	text := []byte(strings.Repeat("v", 130) + "|" + strings.Repeat("v", 130) + "!|more")
	for range 2 {
		if p, err := c.Encode(text, tokenize.Hashing{}); err == nil || p.IDs != nil {
			t.Fatalf("got %v, %v, expected an error", p, err)
		}
	}
	if s := c.Stats(); s != (Stats{}) {
		t.Errorf("got %+v after errors only", s)
	}
}

// TestRandom compares random texts that share beginnings with the tokenizer, in a
// cache that is too small for them, from several goroutines.
func TestRandom(t *testing.T) {
	const limit = 20_000
	c := New(marked{encoded: new(atomic.Int64)}, limit)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range 2000 {
				var b []byte
				for range r.IntN(12) {
					b = append(b, strings.Repeat(string(rune('a'+r.IntN(2))), 100+r.IntN(2)*50)...)
					b = append(b, "| !"[r.IntN(2)])
				}
				k := tokenize.Hashing{Seed: uint64(r.IntN(2)), Size: 16 * r.IntN(2)}
				p, err := c.Encode(b, k)
				if err != nil {
					t.Error(err)
					return
				}
				want := marked{}.want(b)
				if !slices.Equal(p.IDs, want) || !slices.Equal(p.Blocks, kv.AppendBlocks(nil, k.Seed, want, k.Size)) {
					t.Errorf("%q: got %d ids and %d blocks", b, len(p.IDs), len(p.Blocks))
					return
				}
			}
		})
	}
	wg.Wait()
	s := c.Stats()
	if s.Bytes > limit || s.Hits == 0 || s.Misses == 0 || s.Nodes == 0 {
		t.Errorf("got %+v", s)
	}
	count := 0
	for n := c.ring.next; n != &c.ring; n = n.next {
		count++
		if n.gone || n.parent.gone {
			t.Error("a node that was dropped is still in use")
		}
	}
	if count != s.Nodes {
		t.Errorf("%d nodes, counted as %d", count, s.Nodes)
	}
}
