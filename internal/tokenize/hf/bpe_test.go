package hf

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// toy is a model for tests: a vocabulary in the order of its ids, and merges.
type toy struct {
	vocab  []string
	merges [][2]string
}

// randomToy makes a model by joining random neighbours: byte-level or of
// characters, with ids in the order of the merges or in any.
func randomToy(r *rand.Rand, alphabet []string, n int, shuffled bool) toy {
	var t toy
	have := make(map[string]bool)
	for _, a := range alphabet {
		t.vocab = append(t.vocab, a)
		have[a] = true
	}
	for range n {
		a, b := t.vocab[r.IntN(len(t.vocab))], t.vocab[r.IntN(len(t.vocab))]
		if len(a)+len(b) > 40 {
			continue
		}
		if !have[a+b] {
			t.vocab = append(t.vocab, a+b)
			have[a+b] = true
		}
		if !slices.Contains(t.merges, [2]string{a, b}) {
			t.merges = append(t.merges, [2]string{a, b})
		}
	}
	if shuffled {
		r.Shuffle(len(t.vocab), func(i, j int) { t.vocab[i], t.vocab[j] = t.vocab[j], t.vocab[i] })
	}
	return t
}

// model returns the toy as a model of characters.
func (t toy) model() *bpe {
	m := &bpe{unk: none}
	for i, s := range t.vocab {
		m.vocab.add([]byte(s), uint32(i))
	}
	m.vocab.index()
	m.pairs = newPairTable(1)
	for rank, p := range t.merges {
		m.pairs.add(m.vocab.lookup([]byte(p[0])), m.vocab.lookup([]byte(p[1])), uint32(rank), m.vocab.lookup([]byte(p[0]+p[1])))
	}
	m.finish()
	return m
}

// naive merges by the book: look at all pairs, join the best, the leftmost of
// equals, and begin again.
func (t toy) naive(text string) []uint32 {
	var symbols []string
	for _, r := range text {
		if slices.Contains(t.vocab, string(r)) {
			symbols = append(symbols, string(r))
		}
	}
	for {
		at, best := -1, len(t.merges)
		for i := range len(symbols) - 1 {
			if k := slices.Index(t.merges, [2]string{symbols[i], symbols[i+1]}); k >= 0 && k < best {
				at, best = i, k
			}
		}
		if at < 0 {
			break
		}
		symbols = slices.Replace(symbols, at, at+2, symbols[at]+symbols[at+1])
	}
	var ids []uint32
	for _, s := range symbols {
		ids = append(ids, uint32(slices.Index(t.vocab, s)))
	}
	return ids
}

func randomWord(r *rand.Rand, alphabet []string, n int) string {
	var b strings.Builder
	for range r.IntN(n) {
		b.WriteString(alphabet[r.IntN(len(alphabet))])
	}
	return b.String()
}

// TestNaive compares all ways to merge with the naive one: short words, long words
// with a heap, words cut before marks, and cached ones.
func TestNaive(t *testing.T) {
	alphabet := []string{"a", "b", "c", "é", "中", "▁", ">"}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		toy := randomToy(r, alphabet, 60, seed%2 == 0)
		m := toy.model()
		unknown := toy
		unknown.vocab = append(slices.Clip(toy.vocab), "<unk>")
		cut := unknown.model()
		cut.unk = uint32(len(toy.vocab))
		cut.allowCuts('▁')
		known := unknown
		for b := range 256 { // every character is known by its bytes
			known.vocab = append(slices.Clip(known.vocab), fmt.Sprintf("<0x%02X>", b))
		}
		anywhere := known.model()
		anywhere.unk, anywhere.fallback = cut.unk, true
		anywhere.allowCuts('▁')
		if cut.joins.anywhere || !anywhere.joins.anywhere {
			t.Fatalf("cuts anywhere: %t and %t, expected false and true", cut.joins.anywhere, anywhere.joins.anywhere)
		}
		var s, s2, s3 state
		for range 60 {
			w := randomWord(r, append(alphabet, "x"), 12)
			if r.IntN(6) == 0 {
				w = randomWord(r, alphabet, 3*shortWord)
			}
			want := toy.naive(w)
			if got := m.run(nil, []byte(w), &s); !slices.Equal(got, want) {
				t.Fatalf("seed %d: %q: got %d, want %d", seed, w, got, want)
			}
			for range 2 { // the second comes from the cache
				if got := m.word(nil, []byte(w), 0, len(w), &s); !slices.Equal(got, want) {
					t.Fatalf("seed %d: %q through the cache: got %d, want %d", seed, w, got, want)
				}
			}
			if got := cut.encode(nil, []byte(w), &s2); !strings.Contains(w, "x") && !slices.Equal(got, want) {
				t.Fatalf("seed %d: %q with cuts: got %d, want %d", seed, w, got, want)
			}
			if got := anywhere.encode(nil, []byte(w), &s3); !strings.Contains(w, "x") && !slices.Equal(got, want) {
				t.Fatalf("seed %d: %q with cuts anywhere: got %d, want %d", seed, w, got, want)
			}
		}
	}
}

// TestConcat compares merging by ids with merging by ranks where the ids are in the
// order of the ranks and each token is what its own text is merged to.
func TestConcat(t *testing.T) {
	alphabet := []string{"a", "b", "c", "d"}
	tried := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		toy := randomToy(r, alphabet, 12, false)
		m := toy.model()
		m.bytes = true
		m.complete, m.beside = true, new(bytePairs)
		for _, v := range toy.vocab {
			m.beside.addAll([]byte(v))
		}
		for b := range m.byteID {
			m.byteID[b] = m.vocab.lookup([]byte{byte(b)})
		}
		if (&Tokenizer{bpe: m}).rankedByID() != nil {
			continue
		}
		tried++
		c := *m
		c.pairs, c.byID = pairTable{}, true
		var s state
		for range 50 {
			w := randomWord(r, alphabet, 2*shortWord)
			want := toy.naive(w)
			if got := m.run(nil, []byte(w), &s); !slices.Equal(got, want) {
				t.Fatalf("seed %d: %q by ranks: got %d, want %d", seed, w, got, want)
			}
			if got := c.run(nil, []byte(w), &s); !slices.Equal(got, want) {
				t.Fatalf("seed %d: %q: got %d, want %d", seed, w, got, want)
			}
		}
	}
	if tried < 20 {
		t.Errorf("only %d models can be merged by ids", tried)
	}
}

// TestStandInsThatMerge has tokens that join what stands in for a character with the
// mark after it: then nothing can be cut.
func TestStandInsThatMerge(t *testing.T) {
	m := toy{[]string{"<unk>", "▁", "a", "<unk>▁"}, [][2]string{{"<unk>", "▁"}}}.model()
	m.unk = 0
	m.allowCuts('▁')
	if got, want := m.encode(nil, []byte("aZ▁a"), new(state)), []uint32{2, 3, 2}; !slices.Equal(got, want) {
		t.Errorf("got %d, want %d", got, want)
	}
}

func TestUnknownCharacters(t *testing.T) {
	base := []string{"<unk>", "a", "b", "ab", "<0xC3>", "<0xA9>", "<0xC3><0xA9>"}
	for _, tc := range []struct {
		name     string
		fallback bool
		unk      uint32
		fuse     bool
		text     string
		want     []uint32
	}{
		{"dropped", false, none, false, "axxb", []uint32{3}}, // what is left are neighbours
		{"one each", false, 0, false, "axxb", []uint32{1, 0, 0, 2}},
		{"one for all", false, 0, true, "axxbx", []uint32{1, 0, 2, 0}},
		{"bytes, which merge", true, 0, true, "aéb", []uint32{1, 6, 2}},
		{"not all bytes are there", true, 0, true, "a中b", []uint32{1, 0, 2}},
		{"an unknown one goes after the bytes that follow it", true, 0, true, "中éb", []uint32{6, 0, 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := toy{base, [][2]string{{"a", "b"}, {"<0xC3>", "<0xA9>"}}}.model()
			m.fallback, m.unk, m.fuse = tc.fallback, tc.unk, tc.fuse
			if got := m.word(nil, []byte(tc.text), 0, len(tc.text), new(state)); !slices.Equal(got, tc.want) {
				t.Errorf("%q: got %d, want %d", tc.text, got, tc.want)
			}
		})
	}
}

// TestWordCacheIsBounded fills the cache with more words than it holds and finds
// each one's own ids all the time.
func TestWordCacheIsBounded(t *testing.T) {
	var c wordCache
	for i := range 3 * maxWords {
		w := fmt.Appendf(nil, "word number %d", i%(maxWords+7))
		if i%5 == 0 {
			w = append(w, strings.Repeat("-", 1+i%40)...)
		}
		want := []uint32{uint32(len(w)), uint32(i % (maxWords + 7))}[:1+i%2]
		text := slices.Concat([]byte("x"), w, []byte("a longer tail than sixteen"))[:1+len(w)+i%30%27]
		tag := i % 2 * part
		want[0] += uint32(tag)
		ids, ok := c.get(nil, text, 1, 1+len(w), tag)
		if !ok {
			c.put(text, 1, 1+len(w), tag, want)
			continue
		}
		if ids[0] != uint32(len(w)+tag) {
			t.Fatalf("%q: got %d", w, ids)
		}
	}
	if len(c.words) > maxWords || len(c.ids) > 2*maxWordIDs || len(c.keys) > 2*maxKeys {
		t.Errorf("%d words, %d ids, %d bytes", len(c.words), len(c.ids), len(c.keys))
	}
}

// TestLongWordsAreNotQuadratic encodes what has no place to be cut, more than a
// quadratic algorithm would get through.
func TestLongWordsAreNotQuadratic(t *testing.T) {
	toy := randomToy(rand.New(rand.NewPCG(7, 7)), []string{"a", "b"}, 40, false)
	m := toy.model()
	for _, w := range []string{strings.Repeat("a", 1<<18), strings.Repeat("ab", 1<<17), strings.Repeat("aab", 1<<17)} {
		ids := m.word(nil, []byte(w), 0, len(w), new(state))
		n := 0
		for _, id := range ids {
			text, _ := m.vocab.token(id)
			n += len(text)
		}
		if n != len(w) || utf8.RuneCountInString(w) < len(ids) {
			t.Errorf("%d ids of %d bytes for %d bytes", len(ids), n, len(w))
		}
	}
}
