package kv

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zeebo/xxh3"
)

func TestParseMMHash(t *testing.T) {
	digits := "0123456789abcdef" + strings.Repeat("0", 48)
	for _, tc := range []struct {
		name, key string
		want      MMHash
		ok        bool
	}{
		{"64 hex digits", digits, 0x0123456789abcdef, true},
		{"upper case", strings.ToUpper(digits), 0x0123456789abcdef, true},
		{"all ones", strings.Repeat("f", 64), 1<<64 - 1, true},
		{"63 digits", digits[1:], 0, false},
		{"65 digits", digits + "0", 0, false},
		{"a letter that is no digit, in the part that is read", "g" + digits[1:], 0, false},
		{"a letter that is no digit, after it", digits[:63] + "g", 0, false},
		{"a sign", "+" + digits[1:], 0, false},
		{"underscores", "0_" + digits[2:], 0, false},
		{"control bytes that fold to digits", strings.Repeat("\x10", 64), 0, false},
		{"adapter", "adapter-a", 0, false},
		{"nothing", "", 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, ok := ParseMMHash(tc.key); got != tc.want || ok != tc.ok {
				t.Errorf("ParseMMHash(%q) = %#x, %v, want %#x, %v", tc.key, got, ok, tc.want, tc.ok)
			}
		})
	}
}

func TestIdentifierHash(t *testing.T) {
	digits := "0123456789abcdef" + strings.Repeat("0", 48)
	if got := IdentifierHash(digits); got != 0x0123456789abcdef {
		t.Errorf("a hash gives %#x", got)
	}
	if a, b := IdentifierHash("photo.png"), IdentifierHash("other.png"); a == b || a != MMHash(xxh3.HashString("photo.png")) {
		t.Errorf("names give %#x and %#x", a, b)
	}
}

// An object given twice is another block than one given once; order does not
// matter, and the caller's slice stays as it was.
func TestHashTokensMM(t *testing.T) {
	tokens := count(0, 1)
	twice, once := HashTokensMM(baseSeed, tokens, objects(42, 42)), HashTokensMM(baseSeed, tokens, objects(42))
	if twice == once {
		t.Errorf("an object given twice hashes as one given once: %d", once)
	}
	many := objects(9, 8, 7, 6, 5, 4, 3, 2, 1, 10, 11, 12, 13, 14, 15, 16, 18, 17)
	sorted := objects(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18)
	if got, want := HashTokensMM(baseSeed, tokens, many), HashTokensMM(baseSeed, tokens, sorted); got != want {
		t.Errorf("hash of objects out of order %d, in order %d", got, want)
	}
	if many[0].Hash != 9 {
		t.Errorf("the caller's objects were sorted: %v", many)
	}
}

// A window of EAGLE carries the objects of its block.
func TestAppendEagleBlocksMM(t *testing.T) {
	tokens := count(0, 5)
	want := []Block{{Tokens: HashTokensMM(baseSeed, tokens[0:3], objects(42))}, {Tokens: HashTokens(baseSeed, tokens[2:5])}}
	want[0].ID = BlockID(want[0].Tokens)
	want[1].ID = Chain(want[0].ID, want[1].Tokens)
	if diff := cmp.Diff(want, AppendEagleBlocksMM(nil, baseSeed, tokens, 2, [][]MMObject{objects(42)})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMMBlocks(t *testing.T) {
	const maxInt = int(^uint(0) >> 1)
	object := func(h MMHash, ranges ...MMRange) MMObject { return MMObject{h, ranges} }
	for _, tc := range []struct {
		name        string
		objects     []MMObject
		size, total int
		want        [][]MMObject
	}{
		{"bs 4, total 10, mm 9 range (2,6)", []MMObject{object(9, MMRange{2, 6})}, 4, 10,
			[][]MMObject{{object(9, MMRange{2, 4})}, {object(9, MMRange{0, 2})}, nil}},
		{"total 0", []MMObject{object(9, MMRange{0, 6})}, 4, 0, nil},
		{"total below 0", []MMObject{object(9, MMRange{0, 6})}, 4, -1, nil},
		{"block size 0", []MMObject{object(9, MMRange{0, 6})}, 0, 10, nil},
		{"one object twice in a block", []MMObject{object(9, MMRange{0, 1}), object(3, MMRange{1, 2}), object(9, MMRange{2, 3})}, 4, 4,
			[][]MMObject{{object(9, MMRange{0, 1}, MMRange{2, 3}), object(3, MMRange{1, 2})}}},
		{"two ranges of one object", []MMObject{object(9, MMRange{0, 1}, MMRange{3, 5})}, 4, 8,
			[][]MMObject{{object(9, MMRange{0, 1}, MMRange{3, 4})}, {object(9, MMRange{0, 1})}}},
		{"beyond the prompt", []MMObject{object(9, MMRange{5, maxInt}), object(3, MMRange{100, 200})}, 4, 6,
			[][]MMObject{nil, {object(9, MMRange{1, 2})}}},
		{"before the prompt", []MMObject{object(9, MMRange{-maxInt, 1})}, 4, 4, [][]MMObject{{object(9, MMRange{0, 1})}}},
		{"empty and reversed ranges", []MMObject{object(9, MMRange{2, 2}, MMRange{3, 1})}, 4, 4, [][]MMObject{nil}},
		{"a block larger than the prompt", []MMObject{object(9, MMRange{1, 4})}, maxInt, 4, [][]MMObject{{object(9, MMRange{1, 4})}}},
		{"no objects", nil, 4, 10, [][]MMObject{nil, nil, nil}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, MMBlocks(tc.objects, tc.size, tc.total)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPadValue(t *testing.T) {
	for _, tc := range []struct {
		name string
		hash MMHash
		want uint32
	}{
		{"0", 0, 1000000},
		{"9533257059414191570", 9533257059414191570, 49115154},
		{"(1<<30)|0xCAFE", 1<<30 | 0xCAFE, 1051966},
		{"all ones", 1<<64 - 1, 1_000_000 + 1<<30 - 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := PadValue(tc.hash); got != tc.want {
				t.Errorf("PadValue(%d) = %d, want %d", tc.hash, got, tc.want)
			}
		})
	}
}

func TestAppendPadded(t *testing.T) {
	const image = 7
	a, b := PadValue(1), PadValue(2)
	for _, tc := range []struct {
		name    string
		tokens  []uint32
		objects []MMObject
		want    []uint32
		runs    int
	}{
		{"10 20 image image", []uint32{10, 20, image, image}, objects(9533257059414191570), []uint32{10, 20, 49115154, 49115154}, 1},
		{"a run each", []uint32{image, image, 5, image}, objects(1, 2), []uint32{a, a, 5, b}, 2},
		{"more runs than objects", []uint32{image, 5, image, 5, image}, objects(1, 2), []uint32{a, 5, b, 5, b}, 3},
		{"more objects than runs", []uint32{image, image, 5}, objects(1, 2), []uint32{a, a, 5}, 1},
		{"no run", []uint32{5, 6}, objects(1), []uint32{5, 6}, 0},
		{"no objects", []uint32{image, 5, image}, nil, []uint32{image, 5, image}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, runs := AppendPadded([]uint32{99}, tc.tokens, image, tc.objects)
			if diff := cmp.Diff(append([]uint32{99}, tc.want...), got); diff != "" || runs != tc.runs {
				t.Errorf("%d runs, want %d; tokens (-want +got):\n%s", runs, tc.runs, diff)
			}
		})
	}
}
