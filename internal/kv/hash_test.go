package kv

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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

func TestHashVectors(t *testing.T) {
	for _, tc := range []struct {
		name       string
		tokens     []uint32
		size       int
		lora, salt string
		local      []LocalHash
		chain      []BlockID // nil: not stated
	}{
		{name: "tokens 1..12", tokens: count(1, 12), size: 4,
			local: []LocalHash{14643705804678351452, 16777012769546811212, 483935686894639516},
			chain: []BlockID{14643705804678351452, 4945711292740353085, 12583592247330656132}},
		{name: "tokens 0..7", tokens: count(0, 7), size: 4,
			local: []LocalHash{9143094415614847814, 12124091508212882195},
			chain: []BlockID{9143094415614847814, 9510318385840434533}},
		{name: "tokens 0..31", tokens: count(0, 31), size: 16,
			local: []LocalHash{15310707395893867146, 15292316782987903195}},
		{name: "tokens 0..63", tokens: count(0, 63), size: 64, local: []LocalHash{3480597578098033343}},
		{name: "adapter-a", tokens: count(0, 7), size: 4, lora: "adapter-a",
			local: []LocalHash{6665157333201000639, 11721812545976571723},
			chain: []BlockID{6665157333201000639, 13351519314849170528}},
		{name: "adapter-b", tokens: count(0, 7), size: 4, lora: "adapter-b",
			local: []LocalHash{10757640529385508180, 17960115892113142382}},
		{name: "my-adapter", tokens: count(0, 7), size: 4, lora: "my-adapter",
			local: []LocalHash{13692202469334984872, 14659540909498545450}},
		{name: "lora tenant-a", tokens: count(0, 3), size: 4, lora: "tenant-a", local: []LocalHash{582854293518545300}},
		{name: "salt tenant-a", tokens: count(0, 3), size: 4, salt: "tenant-a", local: []LocalHash{17009624042690211646}},
		{name: "salt and lora", tokens: count(0, 3), size: 4, salt: "tenant-a", lora: "adapter-a", local: []LocalHash{8269515957840517240}},
		{name: "id 7 sixteen times", tokens: repeat(7, 16), size: 16, local: []LocalHash{8771127959296939342}},
		{name: "id 0 512 times", tokens: repeat(0, 512), size: 512, local: []LocalHash{16456450638077811066}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var local []LocalHash
			var chain []BlockID
			for _, b := range AppendBlocks(nil, HashSeed(tc.lora, tc.salt), tc.tokens, tc.size) {
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
	if n := len(AppendBlocks(nil, HashSeed("", ""), count(0, 10), 4)); n != 2 {
		t.Errorf("11 tokens have %d blocks of 4, want 2", n)
	}
	if n := len(AppendBlocks(nil, HashSeed("", ""), count(0, 10), 0)); n != 0 {
		t.Errorf("a block size of 0 gives %d blocks", n)
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
	} {
		if got := HashSeed(tc.lora, tc.salt); got != tc.want {
			t.Errorf("HashSeed(%q, %q) = %d, want %d", tc.lora, tc.salt, got, tc.want)
		}
	}
}

func TestHashAllocs(t *testing.T) {
	tokens, dst := count(0, 1023), make([]Block, 0, 64)
	if n := testing.AllocsPerRun(10, func() { dst = AppendBlocks(dst[:0], HashSeed("", ""), tokens, 16) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
