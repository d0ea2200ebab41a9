package enginehash

import (
	"bytes"
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
)

var eight = []uint32{1, 2, 3, 4, 5, 6, 7, 1000}

func TestSGLang(t *testing.T) {
	for _, tc := range []struct {
		name   string
		salt   string
		tokens []uint32
		size   int
		bigram bool
		want   []int64
	}{
		{name: "T, page 4", tokens: eight, size: 4, want: []int64{-3488128144981237669, -2657484388657092701}},
		{name: "T, page 4, salted tenant-a", salt: "tenant-a", tokens: eight, size: 4,
			want: []int64{3718046898735569995, 5225448755088897185}},
		{name: "bigram 10..50, page 2", tokens: []uint32{10, 20, 30, 40, 50}, size: 2, bigram: true,
			want: []int64{-8847804484166691499, 4989791362144317498}},
		{name: "bigram 10..40, page 2", tokens: []uint32{10, 20, 30, 40}, size: 2, bigram: true,
			want: []int64{-8847804484166691499}},
		{name: "a partial page is left out", tokens: eight[:7], size: 4, want: []int64{-3488128144981237669}},
		{name: "page size 0", tokens: eight},
		{name: "bigram page size 0", tokens: eight, bigram: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			add := AppendSGLang
			if tc.bigram {
				add = AppendSGLangBigram
			}
			var got []int64
			for _, id := range add(nil, tc.salt, tc.tokens, tc.size) {
				got = append(got, int64(id))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Pages by hand, which need not be full.
func TestSGLangChain(t *testing.T) {
	t.Run("tokens 1..4, then 5", func(t *testing.T) {
		var c SGLang
		got := []int64{int64(c.Page([]uint32{1, 2, 3, 4}).First()), int64(c.Page([]uint32{5}).First())}
		if diff := cmp.Diff([]int64{-3488128144981237669, -3787494577174227566}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("bigram 10..40, page 4", func(t *testing.T) {
		if got := int64(NewSGLang("").BigramPage([]uint32{10, 20, 30, 40}).First()); got != -2735951481331064195 {
			t.Errorf("got %d, want -2735951481331064195", got)
		}
	})
}

// A chain that is taken up after any block goes on as the one that came by it.
func TestFollow(t *testing.T) {
	none := NoneHash("0")
	v, s := NewVLLM(none), NewSGLang("tenant-a")
	v.Follow(NewVLLM(none).Block(eight[:4]))
	s.Follow(NewSGLang("tenant-a").Page(eight[:4]))
	got := []kv.BlockID{v.Block(eight[4:]).Last(), s.Page(eight[4:]).First()}
	if diff := cmp.Diff([]kv.BlockID{10820605813907212068, 5225448755088897185}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNoneHash(t *testing.T) {
	for _, tc := range []struct{ name, seed, prefix, suffix string }{
		{"PYTHONHASHSEED 0", "0", "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e", ""},
		{"default", DefaultNoneSeed, "9bd96a48", "9581eef0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := NoneHash(tc.seed)
			if got := hex.EncodeToString(d[:]); !strings.HasPrefix(got, tc.prefix) || !strings.HasSuffix(got, tc.suffix) {
				t.Errorf("NoneHash(%q) = %s, want %s…%s", tc.seed, got, tc.prefix, tc.suffix)
			}
		})
	}
}

func TestVLLM(t *testing.T) {
	for _, tc := range []struct {
		name, seed, lora, salt string
		want                   []kv.BlockID // of as many blocks as are known
	}{
		{"seed 0", "0", "", "", []kv.BlockID{2164874634404590027, 10820605813907212068}},
		{"seed 0, adapter-a", "0", "adapter-a", "", []kv.BlockID{3096167906432015041}},
		{"seed 0, salt tenant-a", "0", "", "tenant-a", []kv.BlockID{13195198002585232116}},
		{"default seed", DefaultNoneSeed, "", "", []kv.BlockID{9561501211280363793, 10733596529656560593}},
		{"default seed, adapter-a", DefaultNoneSeed, "adapter-a", "", []kv.BlockID{4433429602965675}},
		{"default seed, salt tenant-a", DefaultNoneSeed, "", "tenant-a", []kv.BlockID{14973694308966003349}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tokens := eight[:4*len(tc.want)]
			if diff := cmp.Diff(tc.want, AppendVLLM(nil, NoneHash(tc.seed), tc.lora, tc.salt, tokens, 4)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got := AppendVLLM(nil, Digest{}, "", "", eight, 0); got != nil {
		t.Errorf("a block size of 0 gives %v", got)
	}
}

// The salt is in the first block only, the adapter in all, before the salt.
func TestVLLMExtra(t *testing.T) {
	none := NoneHash("0")
	c := NewVLLM(none)
	want := []kv.BlockID{
		c.Block(eight[:4], Text("adapter-a"), Text("tenant-a")).Last(),
		c.Block(eight[4:], Text("adapter-a")).Last(),
	}
	if diff := cmp.Diff(want, AppendVLLM(nil, none, "adapter-a", "tenant-a", eight, 4)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestVLLMInput(t *testing.T) {
	none := NoneHash("0")
	head := "835820" + hex.EncodeToString(none[:])
	for _, tc := range []struct {
		name   string
		tokens []uint32
		extra  []Extra
		want   string // after the hash of the block before
	}{
		{"tokens 1..4", []uint32{1, 2, 3, 4}, nil, "8401020304f6"},
		{"every length of integer", []uint32{23, 24, 255, 256, 65535, 65536, math.MaxUint32}, nil,
			"8717" + "1818" + "18ff" + "190100" + "19ffff" + "1a00010000" + "1affffffff" + "f6"},
		{"text", []uint32{1}, []Extra{Text("ab")}, "8101" + "81" + "626162"},
		{"items and embeds", []uint32{1}, []Extra{Item{"x", 3}, Item{"y", -1}, Item{"z", -257}, Embeds{0xff}}, "8101" + "84" +
			"82617803" + "82617920" + "82617a390100" + "41ff"},
		{"24 tokens", make([]uint32, 24), nil, "9818" + strings.Repeat("00", 24) + "f6"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := NewVLLM(none)
			c.Block(tc.tokens, tc.extra...)
			if got := hex.EncodeToString(c.buf); got != head+tc.want {
				t.Errorf("hashed %s, want %s", got, head+tc.want)
			}
		})
	}
	long := appendHead(nil, cborUint, math.MaxUint64)
	if want := append([]byte{0x1b}, bytes.Repeat([]byte{0xff}, 8)...); !bytes.Equal(long, want) {
		t.Errorf("the largest integer is %x, want %x", long, want)
	}
}

func TestDigest(t *testing.T) {
	var d Digest
	for i := range d {
		d[i] = byte(i)
	}
	if d.First() != 0x0001020304050607 || d.Last() != 0x18191a1b1c1d1e1f {
		t.Errorf("first %#x, last %#x", d.First(), d.Last())
	}
}
