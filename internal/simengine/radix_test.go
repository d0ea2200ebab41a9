package simengine

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
)

// sglContent is text whose tokens are a function of their position. It fails the
// test when it is asked for a block of tokens that nobody has seen yet.
type sglContent struct {
	t      testing.TB
	page   int
	known  int // tokens
	token  func(i int) uint32
	blocks []kv.Block
}

func (c *sglContent) Block(i int) kv.Block {
	if (i+1)*c.page > c.known {
		c.t.Errorf("block %d of %d tokens asked for when %d tokens are known", i, c.page, c.known)
	}
	for j := len(c.blocks); j <= i; j++ {
		tokens := make([]uint32, c.page)
		for k := range tokens {
			tokens[k] = c.token(j*c.page + k)
		}
		b := kv.Block{Tokens: kv.HashTokens(kv.HashSeed("", ""), tokens)}
		b.ID = kv.BlockID(b.Tokens)
		if j > 0 {
			b.ID = kv.Chain(c.blocks[j-1].ID, b.Tokens)
		}
		c.blocks = append(c.blocks, b)
	}
	return c.blocks[i]
}

// sglWord is a content with one token per letter.
func sglWord(t testing.TB, page int, text string) *sglContent {
	return &sglContent{t: t, page: page, known: len(text), token: func(i int) uint32 { return uint32(text[i]) }}
}

// sglHeld is what a listener to events believes the cache holds: each block with
// the one before it.
type sglHeld map[kv.BlockID]kv.BlockID

func (h sglHeld) has(id kv.BlockID) bool {
	_, ok := h[id]
	return ok
}

func (h sglHeld) apply(t testing.TB, events []kv.Event) {
	t.Helper()
	for _, ev := range events {
		if len(ev.Blocks) == 0 {
			t.Error("an event without blocks")
		}
		parent := ev.Parent
		for i, b := range ev.Blocks {
			if ev.Kind == kv.Removed {
				if !h.has(b.ID) {
					t.Errorf("block %x removed, but not held", b.ID)
				}
				delete(h, b.ID)
				continue
			}
			if h.has(b.ID) {
				t.Errorf("block %x stored twice", b.ID)
			}
			if (i > 0 || ev.HasParent) && !h.has(parent) {
				t.Errorf("block %x stored after %x, which is not held", b.ID, parent)
			}
			h[b.ID] = parent
			parent = b.ID
		}
	}
}

// sameAs fails the test unless the tree holds just that.
func (h sglHeld) sameAs(t testing.TB, tree *radix) {
	t.Helper()
	if got := sglTreeIDs(tree); !maps.Equal(got, h) {
		t.Fatalf("events (-tree +events):\n%s", cmp.Diff(got, h))
	}
}

// sglTreeIDs returns what the tree holds, in the form of sglHeld.
func sglTreeIDs(tree *radix) sglHeld {
	held := sglHeld{}
	for _, n := range tree.byFirst {
		var parent kv.BlockID
		if n.parent != tree.root {
			parent = n.parent.ids[len(n.parent.ids)-1]
		}
		for _, id := range n.ids {
			held[id] = parent
			parent = id
		}
	}
	return held
}

// sglCheckTree recounts all that the tree keeps count of. The holders are the
// nodes that somebody holds, as often as it is held.
func sglCheckTree(t testing.TB, tree *radix, holders []*radixNode) {
	t.Helper()
	locks, children := map[*radixNode]int{}, map[*radixNode]int{}
	for _, n := range holders {
		for ; n != tree.root; n = n.parent {
			locks[n]++
		}
	}
	for _, n := range tree.byFirst {
		children[n.parent]++
	}
	var pages, locked, loose, leaves int
	for first, n := range tree.byFirst {
		size := len(n.ids)
		if size == 0 || n.ids[0] != first {
			t.Fatalf("node of block %x begins with %x", first, n.ids)
		}
		if n.parent != tree.root && tree.byFirst[n.parent.ids[0]] != n.parent {
			t.Errorf("parent of %x is not in the tree", first)
		}
		if n.locks != locks[n] || n.children != children[n] {
			t.Errorf("node %x has %d locks and %d children, want %d and %d", first, n.locks, n.children, locks[n], children[n])
		}
		if n.parent != tree.root && n.parent.used < n.used {
			t.Errorf("node %x was used after its parent", first)
		}
		pages += size
		leaf := n.locks == 0 && n.children == 0
		if n.locks > 0 {
			locked += size
		}
		if leaf {
			loose += size
			leaves++
		}
		if leaf != (n.at >= 0) || leaf && tree.leaves[n.at] != n {
			t.Errorf("node %x at %d of the leaves; is an unlocked leaf: %v", first, n.at, leaf)
		}
	}
	if len(sglTreeIDs(tree)) != pages {
		t.Errorf("a block is in the tree twice")
	}
	got := [...]int{tree.pages, tree.locked, tree.loose, len(tree.leaves), tree.root.children}
	want := [...]int{pages, locked, loose, leaves, children[tree.root]}
	if got != want {
		t.Errorf("pages, locked, loose, leaves, roots: %v, want %v", got, want)
	}
	for i := 1; i < len(tree.leaves); i++ {
		if tree.leaves[i].used <= tree.leaves[(i-1)/2].used {
			t.Errorf("leaf %d is not younger than the one above it", i)
		}
	}
}

// sglPut makes a text known and lets go of it.
func sglPut(tree *radix, p *Pass, c *sglContent) (added int) {
	n, added := tree.extend(p, c, tree.root, 0, c.known/c.page)
	tree.release(n)
	return added
}

func TestRadixFind(t *testing.T) {
	for _, page := range []int{1, 2, 4} {
		t.Run(fmt.Sprintf("page %d", page), func(t *testing.T) {
			tree, p, held := newRadix(false), &Pass{}, sglHeld{}
			for _, text := range []string{"the quick brown fox jumps", "the quick red fox", "the quick", "a dog"} {
				sglPut(&tree, p, sglWord(t, page, text))
				sglCheckTree(t, &tree, nil)
			}
			held.apply(t, p.Events)
			held.sameAs(t, &tree)
			for _, tc := range []struct {
				text        string
				limit, want int // tokens
			}{
				{"the quick brown fox jumps", 25, 25},
				{"the quick brown fox jumps over", 30, 25},
				{"the quick brown fox jumps", 12, 12},
				{"the quick brown bear", 20, 16},
				{"the quick red fox", 16, 16},
				{"the quickest", 12, 9},
				{"that", 4, 2},
				{"a dog", 5, 5},
				{"b", 1, 0},
				{"", 0, 0},
			} {
				_, _, end := tree.find(sglWord(t, page, tc.text), tree.root, 0, tc.limit/page)
				if want := tc.want / page; end != want {
					t.Errorf("%q: found %d pages, want %d", tc.text, end, want)
				}
			}
			if got := sglPut(&tree, p, sglWord(t, page, "the quick brown fox")); got != 0 {
				t.Errorf("a prefix of what is there added %d pages", got)
			}
		})
	}
}

func TestRadixEvictsLongestUnused(t *testing.T) {
	tree, p := newRadix(false), &Pass{}
	for _, text := range []string{"system one", "system two", "other", "third"} {
		sglPut(&tree, p, sglWord(t, 1, text))
	}
	// A use keeps all of its path.
	sglPut(&tree, p, sglWord(t, 1, "system one"))
	locked, _ := tree.extend(p, sglWord(t, 1, "other"), tree.root, 0, 5)

	p.reset()
	var sizes []int
	for len(tree.leaves) > 0 {
		sizes = append(sizes, tree.evict(p))
		sglCheckTree(t, &tree, []*radixNode{locked})
	}
	// "two", "third", "one" and, a leaf by then, the "system " of both.
	if diff := cmp.Diff([]int{3, 5, 3, 7}, sizes); diff != "" {
		t.Errorf("pages evicted (-want +got):\n%s", diff)
	}
	// The last page of a leaf leaves first.
	two := sglWord(t, 1, "system two")
	var want []kv.BlockID
	for i := 9; i >= 7; i-- {
		want = append(want, two.Block(i).ID)
	}
	var got []kv.BlockID
	for _, ev := range p.Events[:3] {
		got = append(got, ev.Blocks[0].ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	if tree.pages != 5 || tree.locked != 5 {
		t.Errorf("%d pages and %d locked are left, want the 5 in use", tree.pages, tree.locked)
	}
}

func TestRadixSplitKeepsHolds(t *testing.T) {
	tree, p := newRadix(true), &Pass{}
	long, _ := tree.extend(p, sglWord(t, 1, "abcdefgh"), tree.root, 0, 8)
	short, _ := tree.extend(p, sglWord(t, 1, "abcxy"), tree.root, 0, 5)
	sglCheckTree(t, &tree, []*radixNode{long, short})
	if long.parent != short.parent || len(long.parent.ids) != 3 || long.parent.locks != 2 {
		t.Errorf("the edge is not split where the texts part")
	}
	tree.release(long)
	sglCheckTree(t, &tree, []*radixNode{short})
	if tree.locked != 5 || tree.evictable() != 5 {
		t.Errorf("locked %d and evictable %d, want 5 and 5", tree.locked, tree.evictable())
	}
	tree.release(short)
	sglCheckTree(t, &tree, nil)
	if len(p.Events) != 0 {
		t.Errorf("a silent tree has %d events", len(p.Events))
	}
}

// TestRadixAgainstSet compares the tree with a set of blocks under random use.
func TestRadixAgainstSet(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		tree, p, held := newRadix(false), &Pass{}, sglHeld{}
		var holders []*radixNode
		word := func() *sglContent {
			text := make([]byte, 1+rng.IntN(24))
			for i := range text {
				text[i] = 'a'
				if rng.IntN(4) == 0 {
					text[i] += byte(rng.IntN(3))
				}
			}
			return sglWord(t, 1, string(text))
		}
		for range 150 {
			p.reset()
			switch rng.IntN(5) {
			case 0, 1:
				c := word()
				known := 0
				for known < c.known && held.has(c.Block(known).ID) {
					known++
				}
				// First what is there, then the rest, as a prompt in two parts.
				n, in, end := tree.find(c, tree.root, 0, c.known)
				if end != known {
					t.Fatalf("seed %d: found %d blocks, want %d", seed, end, known)
				}
				n = tree.cut(n, in)
				tree.hold(n, tree.root)
				n, added := tree.extend(p, c, n, end, c.known)
				if added != c.known-known {
					t.Fatalf("seed %d: added %d blocks, want %d", seed, added, c.known-known)
				}
				holders = append(holders, n)
			case 2, 3:
				if len(holders) > 0 {
					i := rng.IntN(len(holders))
					tree.release(holders[i])
					holders = slices.Delete(holders, i, i+1)
				}
			case 4:
				if len(tree.leaves) > 0 {
					tree.evict(p)
				}
			}
			held.apply(t, p.Events)
			sglCheckTree(t, &tree, holders)
			held.sameAs(t, &tree)
		}
		for _, n := range holders {
			tree.release(n)
		}
		for len(tree.leaves) > 0 {
			tree.evict(p)
		}
		if tree.pages != 0 || tree.locked != 0 || tree.loose != 0 || len(tree.byFirst) != 0 {
			t.Fatalf("seed %d: %d pages are left", seed, tree.pages)
		}
	}
}

func TestRadixAllocs(t *testing.T) {
	tree, p := newRadix(false), &Pass{}
	texts := []*sglContent{sglWord(t, 1, "one text and another"), sglWord(t, 1, "one text and a third"), sglWord(t, 1, "else")}
	if n := testing.AllocsPerRun(100, func() {
		p.reset()
		for _, c := range texts {
			sglPut(&tree, p, c)
		}
		for len(tree.leaves) > 0 {
			tree.evict(p)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
