package split

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/ucd"
)

// TestTricky has inputs on which the families part, with the pieces that the
// tokenizers library makes of them.
func TestTricky(t *testing.T) {
	plans := knownPlans(t)
	order := []string{"llama3", "qwen2", "qwen3.5", "o200k", "tekken", "kimi", "deepseek", "gpt2", "command-r"}
	for _, tt := range []struct {
		name, input string
		want        [9]string
	}{
		{"spaces before a digit", "a   1", [9]string{"a|  | |1", "a|  | |1", "a|  | |1", "a|  | |1", "a|  | |1", "a|  | |1", "a|   |1", "a|  | 1", "a|   |1"}},
		{"digits", "12345", [9]string{"123|45", "1|2|3|4|5", "1|2|3|4|5", "123|45", "1|2|3|4|5", "123|45", "123|45", "12345", "1|2|3|4|5"}},
		{"contractions in capitals", "I'LL'd", [9]string{"I|'LL|'d", "I|'LL|'d", "I|'LL|'d", "I'LL|'d", "I|'LL|'d", "I'LL|'d", "I|'LL|'d", "I|'|LL|'d", "I|'|LL|'d"}},
		{"contraction inside a word", "x'sy", [9]string{"x|'s|y", "x|'s|y", "x|'s|y", "x's|y", "x|'sy", "x's|y", "x|'sy", "x|'s|y", "x|'s|y"}},
		{"long s", "'ſx", [9]string{"'ſ|x", "'ſ|x", "'ſ|x", "'ſx", "'ſx", "'ſx", "'|ſx", "'|ſx", "'|ſx"}},
		{"slashes around a line end", "a/\n/b", [9]string{"a|/\n|/b", "a|/\n|/b", "a|/\n|/b", "a|/\n/|b", "a|/\n/|b", "a|/\n|/b", "a|/\n|/b", "a|/|\n|/|b", "a|/|\n|/|b"}},
		{"letters without case", "ABCdef中文ABC", [9]string{"ABCdef中文ABC", "ABCdef中文ABC", "ABCdef中文ABC", "ABCdef中文|ABC", "ABCdef中文|ABC", "ABCdef|中文|ABC", "ABCdef|中文|ABC", "ABCdef中文ABC", "ABCdef中文ABC"}},
		{"mark before capitals", "\u0301AB", [9]string{"\u0301AB", "\u0301AB", "\u0301AB", "\u0301|AB", "\u0301|AB", "\u0301|AB", "\u0301AB", "\u0301|AB", "\u0301|AB"}},
		{"mark inside a word", "e\u0301a", [9]string{"e|\u0301a", "e|\u0301a", "e\u0301a", "e\u0301a", "e\u0301a", "e\u0301a", "e\u0301a", "e|\u0301|a", "e|\u0301|a"}},
		{"line end in white space", "  \n  x", [9]string{"  \n| | x", "  \n| | x", "  \n| | x", "  \n| | x", "  \n| | x", "  \n| | x", "  \n| | x", "  \n | x", "  \n | x"}},
		{"line ends after punctuation", "!\n\nz", [9]string{"!\n\n|z", "!\n\n|z", "!\n\n|z", "!\n\n|z", "!\n\n|z", "!\n\n|z", "!\n\n|z", "!|\n|\n|z", "!|\n|\n|z"}},
		{"controls", "\x00\x01a", [9]string{"\x00\x01|a", "\x00\x01|a", "\x00\x01|a", "\x00\x01|a", "\x00\x01|a", "\x00\x01|a", "\x00|\x01a", "\x00\x01|a", "\x00\x01|a"}},
		{"emoji before a letter", "😀a b", [9]string{"😀a| b", "😀a| b", "😀a| b", "😀a| b", "😀a| b", "😀a| b", "😀|a| b", "😀|a| b", "😀|a| b"}},
		{"no-break space", "\u00a0x", [9]string{"\u00a0x", "\u00a0x", "\u00a0x", "\u00a0x", "\u00a0x", "\u00a0x", "\u00a0x", "\u00a0|x", "\u00a0|x"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i, family := range order {
				got := strings.Join(pieces(plans[family], tt.input), "|")
				if got != tt.want[i] {
					t.Errorf("%s: %q, want %q", family, got, tt.want[i])
				}
			}
		})
	}
}

// TestKnown compares the scanners with their patterns on the general engine, step by
// step.
func TestKnown(t *testing.T) {
	for name, v := range knownJSON() {
		t.Run(name, func(t *testing.T) {
			p, q := fromJSON(t, v), slow(t, v)
			rng := rand.New(rand.NewPCG(7, 11))
			for range 3000 {
				text := string(randomText(rng, 16))
				if want, got := pieces(q, text), pieces(p, text); !slices.Equal(got, want) {
					t.Fatalf("%+q (-pattern +scanner):\n%s", text, cmp.Diff(want, got))
				}
			}
		})
	}
}

// TestLinear gives much of what is hard on scanners that look ahead; one that
// looks at a run again for each of its pieces does not come to an end.
func TestLinear(t *testing.T) {
	size := 1 << 20
	if raceDetector {
		size = 1 << 14 // many times slower, and nothing here is concurrent
	}
	inputs := map[string][]byte{}
	for i, s := range []string{
		" ", "\n", "\r\n", "\u00a0", " \n", "\n ", " !", "'", "a", "A", "1", "!", "\u0301", "中", "・", "\x00", "/\n",
		" a", "  a", " 1", "'s", "A中", "\u0301A", "中A中a", "\x00a", "!a", "Aa", "!\n", "\xff", "\xe4\xb8",
	} {
		tails := []string{"x"}
		if i < 7 {
			tails = []string{"", "x", "1"} // what white space does depends on what follows
		}
		for _, tail := range tails {
			inputs[fmt.Sprintf("%+q repeated, %q", s, tail)] = append(bytes.Repeat([]byte(s), size/len(s)), tail...)
		}
	}
	inputs["Han, then capitals"] = append([]byte("中"), bytes.Repeat([]byte("A"), size)...)
	inputs["white space, then line ends"] = append(bytes.Repeat([]byte(" "), size), bytes.Repeat([]byte("\n"), size)...)
	inputs["line ends, then white space"] = append(append(bytes.Repeat([]byte("\n"), size), bytes.Repeat([]byte(" "), size)...), 'x')
	for name, p := range knownPlans(t) {
		next := p.Next()
		for input, text := range inputs {
			for i := 0; i < len(text); {
				end := next(text, i)
				if end <= i || end > len(text) {
					t.Fatalf("%s: %s: piece from %d to %d of %d", name, input, i, end, len(text))
				}
				i = end
			}
		}
	}
}

// TestKinds compares sizes and sums of the sets that are not from the class table
// with those of the library, where they were taken from code point by code point.
func TestKinds(t *testing.T) {
	for _, tt := range []struct {
		name  string
		is    func(rune) bool
		count int
		sum   uint32
	}{
		{"isNumeric", isNumeric, 1924, 0x4292a1d1},
		{"isPunct", isPunct, 726, 0xc715f353},
		{"IsWord", IsWord, 144667, 0x57a77c64},
	} {
		count, sum := 0, uint32(0)
		for r := rune(0); r <= unicode.MaxRune; r++ {
			if tt.is(r) {
				count++
				sum = sum*31 + uint32(r)
			}
		}
		if count != tt.count || sum != tt.sum {
			t.Errorf("%s holds for %d code points, sum %#x; want %d, %#x", tt.name, count, sum, tt.count, tt.sum)
		}
	}
}

// TestEight compares what looks at eight bytes at once with what looks at one.
func TestEight(t *testing.T) {
	for c := range 256 {
		for at := range 8 {
			x := uint64('q') * each &^ (0xff << (8 * at))
			x |= uint64(c) << (8 * at)
			mask := uint64(0x80) << (8 * at)
			want := mask
			if isLetter(byte(c)) {
				want = 0
			}
			if got := nonLetters(x); got != want {
				t.Errorf("nonLetters(%#x) = %#x, want %#x", x, got, want)
			}
			if 'a' > c || c > 'z' {
				want = mask
			}
			if got := nonLower(x); got != want {
				t.Errorf("nonLower(%#x) = %#x, want %#x", x, got, want)
			}
		}
	}
}

// TestDecode compares decode with the standard library's on all short sequences
// that do not begin with ASCII.
func TestDecode(t *testing.T) {
	tails := []byte{0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff}
	for c := 0x80; c < 0x100; c++ {
		for d := range 256 {
			for _, e := range tails {
				for _, text := range [][]byte{{byte(c)}, {byte(c), byte(d)}, {byte(c), byte(d), e}, {byte(c), byte(d), e, 0x80}} {
					r, n := decode(text)
					want := []rune(string(text))[0]
					size := 1
					if want != unicode.ReplacementChar || bytes.HasPrefix(text, []byte("\uFFFD")) {
						size = len(string(want))
					}
					if r != want || n != size {
						t.Fatalf("decode(%x) = %U, %d, want %U, %d", text, r, n, want, size)
					}
				}
			}
		}
	}
}

// FuzzKnown checks on any bytes that the pieces of every known family cover the
// text, and on text that the general engine finds the same.
func FuzzKnown(f *testing.F) {
	for _, s := range []string{"", "Hello, world!\n  x 12345", "I'LL don't", "中文ABC é\u0301", "\xff\xfe\xe4\xb8 a", "a/\n/b"} {
		f.Add([]byte(s))
	}
	plans := knownPlans(f)
	patterns := map[string]*Plan{}
	for name, v := range knownJSON() {
		patterns[name] = slow(f, v)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for name, p := range plans {
			var got Pieces
			p.Append(&got, text, true)
			last := 0
			for _, s := range got.Spans {
				if s.Start != last || s.End <= s.Start {
					t.Fatalf("%s: piece %v after %d", name, s, last)
				}
				last = s.End
			}
			if last != len(text) || !bytes.Equal(got.Text, text) {
				t.Fatalf("%s: pieces end at %d of %d", name, last, len(text))
			}
			if !bytes.Equal(bytes.ToValidUTF8(text, nil), text) {
				continue
			}
			var want Pieces
			patterns[name].Append(&want, text, true)
			if diff := cmp.Diff(want.Spans, got.Spans); diff != "" {
				t.Fatalf("%s: (-pattern +scanner):\n%s", name, diff)
			}
		}
	})
}

// TestInvalid gives bytes that are not UTF-8: each counts as a symbol.
func TestInvalid(t *testing.T) {
	if k, n := at([]byte("\xe4\xb8"), 0); k != ucd.Of(unicode.ReplacementChar) || n != 1 {
		t.Errorf("a cut sequence has classes %#x and length %d", k, n)
	}
	for name, p := range knownPlans(t) {
		for _, text := range []string{"a\xffb", "\xe4\xb8", " \xf0\x9f\x98", "\xc5\xbf'\xc5", "'\xe5\xbf"} {
			want := pieces(p, strings.ReplaceAll(string([]rune(text)), "\uFFFD", "□"))
			got := pieces(p, text)
			if len(got) != len(want) || strings.Join(got, "") != text {
				t.Errorf("%s: %+q: pieces %+q, want as many as %+q", name, text, got, want)
			}
		}
	}
}
