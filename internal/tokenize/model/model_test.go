package model

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestUnigram(t *testing.T) {
	hex := func(pieces ...Piece) []Piece {
		for b := range 256 {
			pieces = append(pieces, Piece{fmt.Sprintf("<0x%02X>", b), 0})
		}
		return pieces
	}
	unk := Piece{"<unk>", 0}
	for _, tc := range []struct {
		name     string
		pieces   []Piece
		unk      int
		fallback bool
		text     string
		want     []uint32
		err      error
	}{
		{name: "empty", pieces: []Piece{unk}, text: ""},
		{name: "best sum", pieces: []Piece{unk, {"a", -1}, {"b", -1}, {"ab", -1.5}}, text: "abab", want: []uint32{3, 3}},
		{name: "parts are better", pieces: []Piece{unk, {"a", -1}, {"b", -1}, {"ab", -2.5}}, text: "ab", want: []uint32{1, 2}},
		{name: "a tie goes to the longer last piece", pieces: []Piece{unk, {"a", -1}, {"ab", -1}, {"bc", -1}, {"c", -1}}, text: "abc", want: []uint32{1, 3}},
		{name: "neighbouring unknowns are one", pieces: []Piece{unk, {"a", -1}}, text: "axya", want: []uint32{1, 0, 1}},
		{name: "spelling of the unknown token", pieces: []Piece{unk, {"a", -1}}, text: "a<unk>", want: []uint32{1, 0}},
		{name: "unknowns that are a piece together", pieces: []Piece{unk, {"xy", -1}, {"z", 40}}, unk: 0, text: "xyz", want: []uint32{1, 2}},
		{name: "bytes", pieces: hex(unk, Piece{"a", -1}), fallback: true, text: "aéa", want: []uint32{1, 2 + 0xC3, 2 + 0xA9, 1}},
		{name: "bytes that are not all there", pieces: []Piece{unk, {"<0xC3>", 0}}, fallback: true, text: "é", want: []uint32{0}},
		{name: "fallback needs an unknown token", pieces: hex(), unk: -1, fallback: true, text: "é", err: ErrNoUnknown},
		{name: "nothing known", unk: -1, text: "a", err: ErrNoUnknown},
		{name: "no need for an unknown token", pieces: []Piece{{"a", -1}}, unk: -1, text: "aa", want: []uint32{0, 0}},
		{name: "the last of equal texts", pieces: []Piece{unk, {"a", -1}, {"a", -9}}, text: "a", want: []uint32{2}},
		{name: "not UTF-8", pieces: []Piece{unk, {"a", -1}}, text: "\xffa\xc3", want: []uint32{0, 1, 0}},
		{name: "not UTF-8 as bytes", pieces: hex(unk), fallback: true, text: "\xff", want: []uint32{1 + 0xFF}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := NewUnigram(tc.pieces, tc.unk, tc.fallback)
			if err != nil {
				t.Fatal(err)
			}
			got, err := m.Encode(nil, []byte(tc.text))
			if !errors.Is(err, tc.err) {
				t.Errorf("error %v, want %v", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%q: (-want +got)\n%s", tc.text, diff)
			}
		})
	}
}

func TestNewErrors(t *testing.T) {
	for _, unk := range []int{-2, 1, 0} {
		pieces := []Piece{{"a", 0}}
		if unk == 0 {
			pieces = nil
		}
		if _, err := NewUnigram(pieces, unk, false); err == nil || !strings.HasPrefix(err.Error(), "unk_id: ") {
			t.Errorf("unk %d of %d: error %v", unk, len(pieces), err)
		}
	}
	if _, err := NewWordPiece([]string{"a"}, nil, "a", "##", 100); err == nil {
		t.Error("a token without an id: no error")
	}
	if _, err := NewWordPiece([]string{"a"}, []uint32{1 << 31}, "a", "##", 100); err == nil {
		t.Error("an id that is too large: no error")
	}
}

func TestWordPiece(t *testing.T) {
	tokens := []string{"[UNK]", "un", "##aff", "##able", "##a", "a", "##", "##日", "日"}
	ids := []uint32{100, 1, 2, 3, 4, 5, 6, 7, 8}
	for _, tc := range []struct {
		name     string
		unk      string
		maxChars int
		word     string
		want     []uint32
		err      error
	}{
		{name: "unaffable", word: "unaffable", want: []uint32{1, 2, 3}},
		{name: "empty", word: ""},
		{name: "fails in the middle", word: "unax", want: []uint32{100}},
		{name: "fails at the start", word: "xun", want: []uint32{100}},
		{name: "a word that looks like a continuation", word: "##a", want: []uint32{4}},
		{name: "greedy does not go back", word: "##", want: []uint32{6}},
		{name: "as long as allowed", maxChars: 3, word: "日日日", want: []uint32{8, 7, 7}},
		{name: "one too long", maxChars: 3, word: "日日日日", want: []uint32{100}},
		{name: "no unknown token", unk: "[NONE]", word: "x", err: ErrNoUnknown},
		{name: "no unknown token needed", unk: "[NONE]", word: "un", want: []uint32{1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.unk == "" {
				tc.unk = "[UNK]"
			}
			if tc.maxChars == 0 {
				tc.maxChars = 100
			}
			m, err := NewWordPiece(tokens, ids, tc.unk, "##", tc.maxChars)
			if err != nil {
				t.Fatal(err)
			}
			got, err := m.Encode(nil, []byte(tc.word))
			if !errors.Is(err, tc.err) {
				t.Errorf("error %v, want %v", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.Transformer("empty", func(s []uint32) []uint32 { return append([]uint32{}, s...) })); diff != "" {
				t.Errorf("%q: (-want +got)\n%s", tc.word, diff)
			}
		})
	}
}

// TestTrie compares a trie with a map.
func TestTrie(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		letters := 1 + rng.IntN(256)
		word := func() string {
			b := make([]byte, rng.IntN(8))
			for i := range b {
				b[i] = byte(rng.IntN(letters) * 97)
			}
			return string(b)
		}
		var keys []string
		var values []uint32
		want := map[string]int32{}
		for i := range rng.IntN(400) {
			k := word()
			keys = append(keys, k)
			values = append(values, uint32(i))
			if k != "" {
				want[k] = int32(i)
			}
		}
		tr := newTrie(keys, values)
		for range 400 {
			keys = append(keys, word())
		}
		for _, k := range keys {
			value, ok := want[k]
			if !ok {
				value = none
			}
			if got := tr.get([]byte(k)); got != value {
				t.Fatalf("seed %d: %q: %d, want %d", seed, k, got, value)
			}
			text := []byte(k + word())
			size := len(text)
			for size > 0 && want[string(text[:size])] == 0 && !contains(want, text[:size]) {
				size--
			}
			v, n := tr.longest(text)
			if n != size || size > 0 && v != want[string(text[:size])] {
				t.Fatalf("seed %d: longest of %q: %d bytes, want %d", seed, text, n, size)
			}
		}
	}
}

func contains(m map[string]int32, key []byte) bool {
	_, ok := m[string(key)]
	return ok
}

// naiveUnigram is the definition of the model without the machinery: a table of the
// best sums, over strings.
func naiveUnigram(pieces []Piece, unk int, fallback bool, text string) []uint32 {
	ids := map[string]int{}
	low := pieces[0].Score
	for i, p := range pieces {
		ids[p.Text] = i
		low = min(low, p.Score)
	}
	type way struct {
		score float64
		from  int
		id    int
	}
	best := map[int]way{0: {}}
	try := func(from, to int, score float64, id int) {
		if w, ok := best[to]; !ok || score > w.score {
			best[to] = way{score, from, id}
		}
	}
	for at := 0; at < len(text); {
		_, char := utf8.DecodeRuneInString(text[at:])
		for to := at + 1; to <= len(text); to++ {
			if id, ok := ids[text[at:to]]; ok {
				try(at, to, pieces[id].Score+best[at].score, id)
			}
		}
		if _, ok := ids[text[at:at+char]]; !ok {
			try(at, at+char, low-10+best[at].score, unk)
		}
		at += char
	}
	var parts []string
	var unknown []bool
	for to := len(text); to > 0; to = best[to].from {
		part := text[best[to].from:to]
		isUnk := best[to].id == unk
		if n := len(parts); isUnk && n > 0 && unknown[n-1] {
			parts[n-1] = part + parts[n-1]
			continue
		}
		parts, unknown = append(parts, part), append(unknown, isUnk)
	}
	var out []uint32
	for i := len(parts) - 1; i >= 0; i-- {
		if id, ok := ids[parts[i]]; ok {
			out = append(out, uint32(id))
			continue
		}
		var spelled []uint32
		for _, b := range []byte(parts[i]) {
			if id, ok := ids[fmt.Sprintf("<0x%02X>", b)]; ok && fallback {
				spelled = append(spelled, uint32(id))
			}
		}
		if len(spelled) != len(parts[i]) {
			spelled = []uint32{uint32(unk)}
		}
		out = append(out, spelled...)
	}
	return out
}

func FuzzUnigram(f *testing.F) {
	f.Add([]byte{0x21, 0x42, 0x13, 0x07, 0x99}, "abab日x", true)
	f.Add([]byte("abcdefghijkl"), "<unk>aab\xffé", false)
	f.Fuzz(func(t *testing.T, vocab []byte, text string, fallback bool) {
		if len(vocab) > 200 || len(text) > 500 {
			return
		}
		pieces := []Piece{{"<unk>", 0}}
		letters := []string{"a", "b", "é", "日", "ab", "<unk>", "x", "\uFFFD"}
		for i, c := range vocab { // two letters and one of four scores each
			p := letters[c&7] + letters[c>>3&7]
			if i%3 == 0 {
				p = letters[c&7]
			}
			pieces = append(pieces, Piece{p, -float64(c >> 6)})
		}
		for _, b := range []byte("ab日x") {
			pieces = append(pieces, Piece{fmt.Sprintf("<0x%02X>", b), 0})
		}
		m, err := NewUnigram(pieces, 0, fallback)
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.Encode(nil, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(naiveUnigram(pieces, 0, fallback, text), got); diff != "" {
			t.Errorf("%q with %v: (-want +got)\n%s", text, pieces, diff)
		}
	})
}

// prose is a vocabulary of syllables and words made of them, and text in it.
func prose() (pieces []Piece, text string) {
	rng := rand.New(rand.NewPCG(4, 4))
	pieces = []Piece{{"<unk>", 0}}
	var words []string
	for _, c := range "bcdfghklmnprstvw" {
		for _, v := range "aeiou" {
			words = append(words, string(c)+string(v))
			pieces = append(pieces, Piece{string(c), -9}, Piece{string(v), -8})
		}
	}
	for range 2000 {
		words = append(words, words[rng.IntN(80)]+words[rng.IntN(80)]+words[rng.IntN(80)])
	}
	for _, w := range words {
		pieces = append(pieces, Piece{w, -4 - float64(rng.IntN(5))})
	}
	var b strings.Builder
	for b.Len() < 1<<16 {
		b.WriteString(words[rng.IntN(len(words))])
	}
	return pieces, b.String()
}

// TestLongPieces makes sure that time grows with the length of a piece and not with
// its square, which would take hours here.
func TestLongPieces(t *testing.T) {
	pieces, text := prose()
	m, err := NewUnigram(append(pieces, Piece{strings.Repeat("a", 16), -5}), 0, false)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for _, long := range []string{strings.Repeat(text, 16), strings.Repeat("a", 1<<20), strings.Repeat("?", 1<<20)} {
		if _, err := m.Encode(nil, []byte(long)); err != nil {
			t.Fatal(err)
		}
	}
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("three pieces of 1 MiB took %v", d)
	}
}

func TestEncodeAllocates(t *testing.T) {
	pieces, text := prose()
	m, err := NewUnigram(pieces, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]uint32, 0, len(text))
	piece := []byte(text[:1000])
	if n := testing.AllocsPerRun(100, func() {
		if _, err := m.Encode(dst, piece); err != nil {
			t.Fatal(err)
		}
	}); n > 4 { // for hundreds of tokens; a pool may be emptied once in a while
		t.Errorf("%v allocations", n)
	}
}

func TestEncodeConcurrently(t *testing.T) {
	pieces, text := prose()
	m, err := NewUnigram(pieces, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 4 {
		part := []byte(text[i*1000 : i*1000+3000])
		want, err := m.Encode(nil, part)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			wg.Go(func() {
				for range 20 {
					got, err := m.Encode(nil, part)
					if err != nil || !cmp.Equal(got, want) {
						t.Errorf("part %d: not what it was before, error %v", i, err)
					}
				}
			})
		}
	}
	wg.Wait()
}

func BenchmarkUnigram(b *testing.B) {
	pieces, text := prose()
	m, err := NewUnigram(pieces, 0, false)
	if err != nil {
		b.Fatal(err)
	}
	for _, size := range []int{8, 64, 1 << 16} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			dst := make([]uint32, 0, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.Encode(dst, []byte(text)[:size]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkNewUnigram builds a vocabulary of the size that multilingual models have.
func BenchmarkNewUnigram(b *testing.B) {
	rng := rand.New(rand.NewPCG(5, 5))
	pieces := []Piece{{"<unk>", 0}}
	for range 250_000 {
		var w strings.Builder
		if rng.IntN(2) == 0 {
			w.WriteString("▁")
		}
		first := []rune{'a', 'a', 'a', 'а', 'ء', 'ก', '一', '一', 'ㄱ'}[rng.IntN(9)]
		for range 1 + rng.IntN(7) {
			n := 30
			if first == '一' {
				n = 20000
			}
			w.WriteRune(first + rune(rng.ExpFloat64()*float64(n)/5)%rune(n))
		}
		pieces = append(pieces, Piece{w.String(), -rng.Float64()})
	}
	b.ReportAllocs()
	for b.Loop() {
		m, err := NewUnigram(pieces, 0, false)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(m.trie.slots)), "slots")
		used := 0
		for _, s := range m.trie.slots {
			if s.parent >= none {
				used++
			}
		}
		b.ReportMetric(float64(used)/float64(len(m.trie.slots)), "used/slot")
	}
}
