package vllmtest_test

import (
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kv/enginehash"
	"github.com/stator-ai/stator/internal/vllmtest"
)

// The cache that tests have: so small that what they do pushes blocks out. One block
// is vLLM's own. 32 tokens are the smallest block of its attention on processors.
const (
	blockSize = 32
	blocks    = 160
)

// saltTag marks a salt as one, see the adapter.
const saltTag = "dynamo-cache-salt:"

// testEvents shows that what is told of a cache is what is in it: before each request
// the index knows how many tokens the server will find.
func testEvents(t *testing.T, s *vllmtest.Instance) {
	f := follow(t, s)
	p := &prompts{rng: rand.New(rand.NewPCG(1, 2))}
	hits := 0
	for n := range 300 {
		prompt, salt := p.next(), p.salt()
		want := reusable(f.held(prompt, salt), len(prompt))
		tag := salt
		if tag != "" {
			tag = saltTag + salt
		}
		c := complete(t, s, prompt, p.tokens(), tag)
		if c.cached != want {
			t.Fatalf("request %d of %d tokens, salt %q: %d are cached, want %d", n, len(prompt), salt, c.cached, want)
		}
		if c.cached > 0 {
			hits++
		}
		// The last token has been sampled and not computed.
		whole := slices.Concat(prompt, c.output[:len(c.output)-1])
		f.await(whole, salt)
		p.remember(whole)
	}
	f.check()
	if got := f.dec.BlockSize(); got != blockSize {
		t.Errorf("block size %d, want %d", got, blockSize)
	}
	if !f.dec.TellsExtraKeys() {
		t.Error("extra keys are not told")
	}
	if held := f.index.Held(source).Load(); held > blocks-1 || held < blocks/2 {
		t.Errorf("the index has %d blocks, want at most %d and most of them", held, blocks-1)
	}
	if hits < 100 || f.kinds[kv.Removed] < 1000 {
		t.Errorf("%d requests had something cached and %d blocks were removed, want 100 and 1000 at least", hits, f.kinds[kv.Removed])
	}
	t.Logf("%d messages, %d stored, %d removed; %d of 300 requests had something cached", f.next, f.kinds[kv.Stored], f.kinds[kv.Removed], hits)

	t.Run("many at a time", func(t *testing.T) { testBurst(t, s, f, p) })
	t.Run("replay", func(t *testing.T) { testReplay(t, s, f) })
}

// reusable is what a server takes from its cache of a prompt: it computes at least the
// last token.
func reusable(held, tokens int) int { return min(held, (tokens-1)/blockSize) * blockSize }

// testBurst shows the same when requests share the cache while they run.
func testBurst(t *testing.T, s *vllmtest.Instance, f *follower, p *prompts) {
	f.t = t
	var sent [][]uint32
	for round := range uint32(10) {
		var wg sync.WaitGroup
		for range 6 {
			prompt, tokens := p.next(), p.tokens()
			sent = append(sent, prompt)
			wg.Go(func() { complete(t, s, prompt, tokens, "") })
		}
		wg.Wait()
		// All that was said about them comes before what is said about a later one.
		last := unique(1000 + round)
		complete(t, s, last, 1, "")
		f.await(last, "")
	}
	f.check()
	for _, prompt := range sent[len(sent)-20:] {
		want := reusable(f.held(prompt, ""), len(prompt))
		if c := complete(t, s, prompt, 1, ""); c.cached != want {
			t.Fatalf("a prompt of %d tokens: %d are cached, want %d", len(prompt), c.cached, want)
		}
		f.await(prompt, "")
	}
}

// testReplay shows that who asks for all that was said knows as much as who has heard.
func testReplay(t *testing.T, s *vllmtest.Instance, f *follower) {
	last := unique(2000)
	f.t = t
	complete(t, s, last, 1, "")
	f.await(last, "")
	late := newFollower(t, source)
	late.replay(s.Replay, math.MaxUint64)
	late.check()
	if late.next != f.next {
		t.Errorf("%d messages are replayed, want %d", late.next, f.next)
	}
	if diff := cmp.Diff(contents(t, f), contents(t, late)); diff != "" {
		t.Errorf("(-heard +replayed):\n%s", diff)
	}
}

// contents returns the hashes of the blocks in an index.
func contents(t *testing.T, f *follower) []kv.Block {
	t.Helper()
	d, ok := f.index.Dump(source)
	if !ok {
		t.Fatal("the index has nothing")
	}
	var out []kv.Block
	for ev := range d.All() {
		out = append(out, ev.Blocks...)
	}
	slices.SortFunc(out, func(a, b kv.Block) int {
		switch {
		case a.ID < b.ID:
			return -1
		case a.ID > b.ID:
			return 1
		}
		return 0
	})
	return out
}

// testNames compares the names of blocks with those that we would give them.
func testNames(t *testing.T, s *vllmtest.Instance) {
	f := follow(t, s)
	prompt := make([]uint32, 3*blockSize)
	for i := range prompt {
		prompt[i] = 140000 + uint32(i*i%9000)
	}
	complete(t, s, prompt, 1, "")
	f.await(prompt, "")
	d, _ := f.index.Dump(source)
	names := make(map[kv.BlockID]bool)
	for ev := range d.All() {
		for _, b := range ev.Blocks {
			names[b.ID] = true
		}
	}
	for i, id := range enginehash.AppendVLLM(nil, enginehash.NoneHash(enginehash.DefaultNoneSeed), "", "", prompt, blockSize) {
		if !names[id] {
			t.Errorf("block %d is not called %d", i, id)
		}
	}
}

// prompts makes up prompts that begin as earlier ones did.
type prompts struct {
	rng     *rand.Rand
	earlier [][]uint32
}

// next returns a prompt of up to a quarter of the cache.
func (p *prompts) next() []uint32 {
	var out []uint32
	if len(p.earlier) > 0 && p.rng.IntN(4) > 0 {
		// Of the latest ones something is left in the cache.
		from := p.earlier[len(p.earlier)-1-p.rng.IntN(min(len(p.earlier), 12))]
		out = slices.Clone(from[:p.rng.IntN(len(from)+1)])
		if p.rng.IntN(4) == 0 {
			out = slices.Clone(from[:len(from)/blockSize*blockSize]) // ends with a block
		}
	}
	if most := blocks / 4 * blockSize; len(out) > most/2 {
		out = out[:most/2]
	}
	for n := p.rng.IntN(blocks / 8 * blockSize); n > 0 || len(out) == 0; n-- {
		out = append(out, p.rng.Uint32N(100000))
	}
	return out
}

// salt returns one of two salts now and then, and mostly none.
func (p *prompts) salt() string {
	switch p.rng.IntN(8) {
	case 0:
		return "tenant-a"
	case 1:
		return "tenant-b"
	}
	return ""
}

// tokens returns how many are to be generated: mostly few.
func (p *prompts) tokens() int {
	if p.rng.IntN(5) == 0 {
		return 1 + p.rng.IntN(blockSize+8)
	}
	return 1 + p.rng.IntN(3)
}

func (p *prompts) remember(prompt []uint32) { p.earlier = append(p.earlier, prompt) }

// testCleared shows that a cache which was emptied is told of before what comes into it
// next, and not earlier.
func testCleared(t *testing.T, s *vllmtest.Instance) {
	f := follow(t, s)
	before, after := unique(3000), unique(3001)
	complete(t, s, before, 1, "")
	f.await(before, "")
	if status, answer := post(t, s.URL+"/reset_prefix_cache", nil); status != http.StatusOK {
		t.Fatalf("%d %s", status, answer)
	}
	if got := f.held(before, ""); got != 2 {
		t.Errorf("%d blocks before a word was said, want 2", got)
	}
	complete(t, s, after, 1, "")
	f.await(after, "")
	if got := f.held(before, ""); got != 0 || f.kinds[kv.Cleared] != 1 {
		t.Errorf("%d blocks after %d words that all is gone, want 0 after 1", got, f.kinds[kv.Cleared])
	}
	if c := complete(t, s, before, 1, ""); c.cached != 0 {
		t.Errorf("%d tokens are cached, want 0", c.cached)
	}
	f.check()
}
