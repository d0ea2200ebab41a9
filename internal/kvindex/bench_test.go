package kvindex_test

import (
	"testing"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// ownPrompt returns the blocks of a prompt of its own.
func ownPrompt(seed uint32, n int) []kv.Block {
	tokens := make([]uint32, n*16)
	for i := range tokens {
		tokens[i] = seed*1000003 + uint32(i)
	}
	return kv.AppendBlocks(nil, kv.HashSeed("", ""), tokens, 16)
}

func storeAll(x *kvindex.Index, src kv.Source, blocks []kv.Block) {
	x.Apply(&kv.Batch{Source: src, Events: []kv.Event{{Kind: kv.Stored, Counted: true, Blocks: blocks}}})
}

// BenchmarkMatch looks a prompt of 8192 blocks up, which 64 ranks hold to different
// depths.
func BenchmarkMatch(b *testing.B) {
	x := kvindex.New(kvindex.Config{})
	prompt := ownPrompt(1, 8192)
	for i := range 64 {
		storeAll(x, kv.Source{Worker: kv.WorkerID(i + 1)}, prompt[:(i+1)*128])
	}
	for i := range 5000 {
		storeAll(x, kv.Source{Worker: kv.WorkerID(i%64 + 1)}, ownPrompt(uint32(i+2), 200))
	}
	dst := make([]kvindex.Overlap, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		dst = x.Match(dst[:0], prompt)
	}
	if len(dst) != 64 {
		b.Fatal(len(dst))
	}
}

// BenchmarkHash makes the blocks of a prompt of the same length.
func BenchmarkHash(b *testing.B) {
	tokens := make([]uint32, 8192*16)
	var dst []kv.Block
	for b.Loop() {
		dst = kv.AppendBlocks(dst[:0], 1337, tokens, 16)
	}
}

// BenchmarkChurn stores and removes prompts of 200 blocks, of which 2000 stay.
func BenchmarkChurn(b *testing.B) {
	x := kvindex.New(kvindex.Config{})
	src := kv.Source{Worker: 1}
	var prompts [][]kv.Block
	for i := range 4000 {
		prompts = append(prompts, ownPrompt(uint32(i), 200))
	}
	for i := range 2000 {
		storeAll(x, src, prompts[i])
	}
	i := 2000
	one := make([]kv.Event, 200)
	blocks := 0
	for b.Loop() {
		storeAll(x, src, prompts[i%4000])
		old := prompts[(i-2000)%4000]
		for k := range one {
			one[k] = kv.Event{Kind: kv.Removed, Counted: true, Blocks: old[199-k : 200-k]}
		}
		x.Apply(&kv.Batch{Source: src, Events: one})
		i++
		blocks += 400
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(blocks), "ns/block")
	if s := x.Stats(); s.Blocks != 400000 {
		b.Fatal(s.Blocks)
	}
}
