package kv

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zeebo/xxh3"
)

func count(from, to uint32) []uint32 {
	var out []uint32
	for t := from; t <= to; t++ {
		out = append(out, t)
	}
	return out
}

func repeat(t uint32, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = t
	}
	return out
}

// vector is a row of known hashes.
type vector struct {
	name       string
	tokens     []uint32
	size       int
	lora, salt string
	objects    [][]MMObject
	eagle      bool
	local      []LocalHash
	chain      []BlockID // nil: not stated
}

func (v *vector) blocks() []Block {
	seed := HashSeed(v.lora, v.salt)
	switch {
	case v.eagle:
		return AppendEagleBlocks(nil, seed, v.tokens, v.size)
	case v.objects != nil:
		return AppendBlocksMM(nil, seed, v.tokens, v.size, v.objects)
	default:
		return AppendBlocks(nil, seed, v.tokens, v.size)
	}
}

func objects(hashes ...MMHash) []MMObject {
	var out []MMObject
	for _, h := range hashes {
		out = append(out, MMObject{Hash: h})
	}
	return out
}

func TestHashVectors(t *testing.T) {
	for _, tc := range []vector{
		{name: "tokens 1..12, bs 4", tokens: count(1, 12), size: 4,
			local: []LocalHash{14643705804678351452, 16777012769546811212, 483935686894639516},
			chain: []BlockID{14643705804678351452, 4945711292740353085, 12583592247330656132}},
		{name: "tokens 0..7, bs 4", tokens: count(0, 7), size: 4,
			local: []LocalHash{9143094415614847814, 12124091508212882195},
			chain: []BlockID{9143094415614847814, 9510318385840434533}},
		{name: "tokens 0..31, bs 16", tokens: count(0, 31), size: 16,
			local: []LocalHash{15310707395893867146, 15292316782987903195}},
		{name: "tokens 0..63, bs 64", tokens: count(0, 63), size: 64, local: []LocalHash{3480597578098033343}},
		{name: "lora adapter-a", tokens: count(0, 7), size: 4, lora: "adapter-a",
			local: []LocalHash{6665157333201000639, 11721812545976571723},
			chain: []BlockID{6665157333201000639, 13351519314849170528}},
		{name: "lora adapter-b", tokens: count(0, 7), size: 4, lora: "adapter-b",
			local: []LocalHash{10757640529385508180, 17960115892113142382}},
		{name: "lora my-adapter", tokens: count(0, 7), size: 4, lora: "my-adapter",
			local: []LocalHash{13692202469334984872, 14659540909498545450}},
		{name: "lora tenant-a", tokens: count(0, 3), size: 4, lora: "tenant-a", local: []LocalHash{582854293518545300}},
		{name: "salt tenant-a", tokens: count(0, 3), size: 4, salt: "tenant-a", local: []LocalHash{17009624042690211646}},
		{name: "salt tenant-a, lora adapter-a", tokens: count(0, 3), size: 4, salt: "tenant-a", lora: "adapter-a",
			local: []LocalHash{8269515957840517240}},
		{name: "tokens 0..3, bs 2, mm 42 in block 0", tokens: count(0, 3), size: 2, objects: [][]MMObject{objects(42)},
			local: []LocalHash{6100948656312251355, 10731123482949079648},
			chain: []BlockID{6100948656312251355, 1446685509019147680}},
		{name: "tokens 0..3, bs 2, without mm", tokens: count(0, 3), size: 2,
			local: []LocalHash{10918435022357402928, 10731123482949079648}},
		{name: "tokens 0..3, bs 2, mm without objects", tokens: count(0, 3), size: 2, objects: [][]MMObject{nil, {}, objects(1)},
			local: []LocalHash{10918435022357402928, 10731123482949079648}},
		{name: "tokens 0..1, bs 2, mm 42 7", tokens: count(0, 1), size: 2, objects: [][]MMObject{objects(42, 7)},
			local: []LocalHash{14276852609691940483}},
		{name: "tokens 0..1, bs 2, mm 7 42", tokens: count(0, 1), size: 2, objects: [][]MMObject{objects(7, 42)},
			local: []LocalHash{14276852609691940483}},
		{name: "eagle tokens 0..5, bs 2", tokens: count(0, 5), size: 2, eagle: true,
			local: []LocalHash{11646242937812223497, 9948816348502404300}},
		{name: "tokens 0..5, bs 2, default third", tokens: count(0, 5), size: 2,
			local: []LocalHash{10918435022357402928, 10731123482949079648, 12189426826560619506}},
		{name: "id 0 sixteen times", tokens: repeat(0, 16), size: 16, local: []LocalHash{5523182284766269584}},
		{name: "id 1 sixteen times", tokens: repeat(1, 16), size: 16, local: []LocalHash{13518392937921988335}},
		{name: "id 7 sixteen times", tokens: repeat(7, 16), size: 16, local: []LocalHash{8771127959296939342}},
		{name: "id 0 512 times", tokens: repeat(0, 512), size: 512, local: []LocalHash{16456450638077811066}},
		{name: "id 1 512 times", tokens: repeat(1, 512), size: 512, local: []LocalHash{10716031498429279048}},
		{name: "id 7 512 times", tokens: repeat(7, 512), size: 512, local: []LocalHash{10964166776106543217}},
		{name: "padded tokens", tokens: []uint32{10, 20, 49115154, 49115154}, size: 4, local: []LocalHash{71881790567603244}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var local []LocalHash
			var chain []BlockID
			for _, b := range tc.blocks() {
				local, chain = append(local, b.Tokens), append(chain, b.ID)
			}
			if diff := cmp.Diff(tc.local, local); diff != "" {
				t.Errorf("local (-want +got):\n%s", diff)
			}
			if tc.chain == nil {
				return
			}
			if diff := cmp.Diff(tc.chain, chain); diff != "" {
				t.Errorf("chain (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBlockCount(t *testing.T) {
	for _, tc := range []struct {
		name            string
		tokens          uint32
		size            int
		blocks, windows int
	}{
		{"tokens 0..10, bs 4", 11, 4, 2, 2},
		{"a full last block", 12, 4, 3, 2},
		{"eagle tokens 0..5, bs 2", 6, 2, 3, 2},
		{"one token", 1, 1, 1, 0},
		{"no tokens", 0, 4, 0, 0},
		{"block size 0", 11, 0, 0, 0},
		{"block size -1", 11, -1, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tokens := count(1, tc.tokens)
			got := [4]int{
				len(AppendBlocks(nil, baseSeed, tokens, tc.size)),
				len(AppendBlocksMM(nil, baseSeed, tokens, tc.size, [][]MMObject{objects(1)})),
				len(AppendEagleBlocks(nil, baseSeed, tokens, tc.size)),
				len(AppendEagleBlocksMM(nil, baseSeed, tokens, tc.size, [][]MMObject{objects(1)})),
			}
			if want := [4]int{tc.blocks, tc.blocks, tc.windows, tc.windows}; got != want {
				t.Errorf("plain, mm, eagle, eagle mm: got %v blocks, want %v", got, want)
			}
		})
	}
}

// TestBlockArithmetic has a prompt of 100 tokens and an answer of 30, in blocks of 16.
// The last token of an answer is never computed, and neither is the last of a prompt
// taken from a cache.
func TestBlockArithmetic(t *testing.T) {
	const prompt, answer, size = 100, 30, 16
	tokens := count(1, prompt+answer)
	cached := AppendBlocks(nil, baseSeed, tokens[:prompt+answer-1], size)
	hit := func(n int) (blocks int) {
		for i, b := range AppendBlocks(nil, baseSeed, tokens[:n-1], size) {
			if i < len(cached) && cached[i] == b {
				blocks++
			}
		}
		return blocks * size
	}
	for _, tc := range []struct {
		name      string
		got, want int
	}{
		{"blocks after prefill", len(AppendBlocks(nil, baseSeed, tokens[:prompt], size)), 6},
		{"blocks at the end", len(cached), 8},
		{"tokens hit by the same prompt", hit(prompt), 96},
		{"tokens hit by a prompt of 96", hit(96), 80},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.got != tc.want {
				t.Errorf("got %d, want %d", tc.got, tc.want)
			}
		})
	}
}

func TestHashSeeds(t *testing.T) {
	for _, tc := range []struct {
		lora, salt string
		want       uint64
	}{
		{"", "", 1337},
		{"adapter-a", "", 8842669519798868182},
		{"", "tenant-a", 1948188790972764086},
		{"adapter-a", "tenant-a", 10790858310771630931},
		{"adapter-a", "dynamo-cache-salt:tenant-a", 10790858310771630931},
		{"", "dynamo-cache-salt:", 1337},
		{"dynamo-cache-salt:", "", 1337 + xxh3.HashString("dynamo-cache-salt:")},
		{"", "dynamo-cache-salt:dynamo-cache-salt:a", 1337 + xxh3.HashStringSeed("dynamo-cache-salt:a", 1)},
	} {
		t.Run(fmt.Sprintf("lora %q, salt %q", tc.lora, tc.salt), func(t *testing.T) {
			if got := HashSeed(tc.lora, tc.salt); got != tc.want {
				t.Errorf("HashSeed(%q, %q) = %d, want %d", tc.lora, tc.salt, got, tc.want)
			}
		})
	}
}

func TestXXH3(t *testing.T) {
	for _, tc := range []struct {
		name      string
		got, want uint64
	}{
		{"test data, 1337", xxh3.HashStringSeed("test data", baseSeed), 13226331709069118873},
		{"adapter-a, 0", xxh3.HashStringSeed("adapter-a", 0), 8842669519798866845},
		{"tenant-a, 1", xxh3.HashStringSeed("tenant-a", 1), 1948188790972762749},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.got != tc.want {
				t.Errorf("got %d, want %d", tc.got, tc.want)
			}
		})
	}
}

func TestChain(t *testing.T) {
	for _, tc := range []struct {
		name  string
		local []LocalHash
		want  []BlockID
	}{
		{"L=[1,2,3]", []LocalHash{1, 2, 3}, []BlockID{1, 16740963408272063728, 5417695437591212399}},
		{"L=[11,22,33]", []LocalHash{11, 22, 33}, []BlockID{11, 750553365844651409, 3257565445809651757}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := []BlockID{BlockID(tc.local[0])}
			for i, l := range tc.local[1:] {
				got = append(got, Chain(got[i], l))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The hash that is written out, and the one of tokens where they lie, are those of
// the library over the bytes they stand for.
func TestHashEqualsLibrary(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		parent, local := rng.Uint64(), rng.Uint64()
		var b [16]byte
		binary.LittleEndian.PutUint64(b[:], parent)
		binary.LittleEndian.PutUint64(b[8:], local)
		if got, want := Chain(BlockID(parent), LocalHash(local)), xxh3.HashSeed(b[:], baseSeed); got != BlockID(want) {
			t.Fatalf("Chain(%d, %d) = %d, want %d", parent, local, got, want)
		}
	}
	tokens := make([]uint32, 600)
	for i := range tokens {
		tokens[i] = rng.Uint32()
	}
	for n := range tokens {
		seed := rng.Uint64()
		if got, want := HashTokens(seed, tokens[:n]), hashCopy(seed, tokens[:n]); got != want {
			t.Fatalf("HashTokens(%d, %d tokens) = %d, want %d", seed, n, got, want)
		}
	}
	if got, want := HashTokens(5, nil), LocalHash(xxh3.HashSeed(nil, 5)); got != want {
		t.Errorf("HashTokens of no tokens = %d, want %d", got, want)
	}
}

// A prompt that grew has the blocks of the whole, in a slice that holds others too.
func TestExtendBlocks(t *testing.T) {
	tokens := count(1, 100)
	want := AppendBlocks(nil, baseSeed, tokens, 16)
	for n := range tokens {
		got := ExtendBlocks(AppendBlocks(nil, baseSeed, tokens[:n], 16), baseSeed, tokens, 16)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("extended from %d tokens (-want +got):\n%s", n, diff)
		}
	}
	other := Block{ID: 1, Tokens: 2}
	if diff := cmp.Diff(append([]Block{other}, want...), AppendBlocks([]Block{other}, baseSeed, tokens, 16)); diff != "" {
		t.Errorf("appended to another block (-want +got):\n%s", diff)
	}
	if got := ExtendBlocks(nil, baseSeed, tokens, 0); got != nil {
		t.Errorf("a block size of 0 gives %v", got)
	}
}

func TestHashAllocs(t *testing.T) {
	tokens, dst := count(0, 4095), make([]Block, 0, 256)
	images := [][]MMObject{objects(3, 1, 2), objects(7)}
	full := [][]MMObject{objects(16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1)}
	for name, run := range map[string]func(){
		"16 tokens":        func() { dst = AppendBlocks(dst[:0], HashSeed("a", "b"), tokens, 16) },
		"1024 tokens":      func() { dst = AppendBlocks(dst[:0], HashSeed("a", "b"), tokens, 1024) },
		"16 tokens, mm":    func() { dst = AppendBlocksMM(dst[:0], baseSeed, tokens, 16, images) },
		"96 tokens, mm":    func() { dst = AppendBlocksMM(dst[:0], baseSeed, tokens, 96, full) },
		"16 tokens, eagle": func() { dst = AppendEagleBlocks(dst[:0], baseSeed, tokens, 16) },
	} {
		if n := testing.AllocsPerRun(10, run); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// An 8,192-token prompt on a Xeon (Emerald Rapids):
//
//	AppendBlocks/size=16     5.3 µs    10 ns/block    0 allocs
//	AppendBlocks/size=64     5.3 µs    41 ns/block    0 allocs
//	AppendBlocks/size=512    1.3 µs    78 ns/block    0 allocs
//
// With a copy of the tokens before each hash: 27, 14 and 30 µs.
func BenchmarkAppendBlocks(b *testing.B) {
	for _, size := range []int{16, 64, 512} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			tokens := count(1, 8192)
			dst := make([]Block, 0, len(tokens)/size)
			b.ReportAllocs()
			b.SetBytes(int64(4 * len(tokens)))
			for b.Loop() {
				dst = AppendBlocks(dst[:0], baseSeed, tokens, size)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(dst)), "ns/block")
		})
	}
}

// 5.2 ns, each waiting for the one before; 6.2 ns through the library.
func BenchmarkChain(b *testing.B) {
	id := BlockID(1)
	for b.Loop() {
		id = Chain(id, 7)
	}
}
