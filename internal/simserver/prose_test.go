package simserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stator-ai/stator/internal/tokenize"
)

// eachVocabulary runs a test with every vocabulary.
func eachVocabulary(t *testing.T, test func(t *testing.T, v *vocabulary)) {
	for _, v := range []Vocabulary{Qwen3, Bytes} {
		t.Run(string(v), func(t *testing.T) { test(t, v.load()) })
	}
}

// encode returns the tokens of a text, special ones included. Bytes that are no
// text are tokens of their own where tokens are bytes, and left out otherwise.
func (v *vocabulary) encode(t testing.TB, text string) []uint32 {
	t.Helper()
	if v.size != tokenize.BytesVocab {
		text = strings.ToValidUTF8(text, "")
	}
	ids, err := v.tokens.Encode(nil, []byte(text), true /* special */)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func (v *vocabulary) decode(t testing.TB, ids []uint32) string {
	t.Helper()
	b, err := v.tokens.Decode(nil, ids)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// write returns up to n tokens after prompt, the end token included.
func (v *vocabulary) write(seed uint64, prompt []uint32, n int, mayEnd bool) []uint32 {
	var p prose
	p.prime(v, seed, prompt)
	var out []uint32
	for len(out) < n {
		id := p.next(mayEnd)
		out = append(out, id)
		if id == v.end {
			break
		}
		p.push(id)
	}
	return out
}

const chatStart = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"

var prosePrompts = []string{
	chatStart,
	chatStart + "<think>\n\n</think>\n\n",
	"Once upon a time",
	"Once upon a time, in a far away land beyond the seas and the mountains and the forests, there was a",
	"A sentence.",
	"A sentence. ",
	"A sentence. Th",
	"several   spaces  ",
	"no words: 東京 {}; x = 1\n\t",
	"caf\xc3",
	"x",
	"",
}

func TestProseSample(t *testing.T) {
	eachVocabulary(t, func(t *testing.T, v *vocabulary) {
		for _, p := range prosePrompts {
			t.Logf("%q → %q", p, v.decode(t, v.write(1, v.encode(t, p), 30, false)))
		}
		got := v.decode(t, v.write(1, v.encode(t, chatStart), 4000, true))
		t.Logf("%s", got)
		if !strings.HasSuffix(got, ".<|im_end|>") && !strings.HasSuffix(got, "?<|im_end|>") {
			t.Errorf("answer does not end after a sentence: %q", got)
		}
		if c := got[0]; c < 'A' || c > 'Z' {
			t.Errorf("answer does not start with a capital: %q", got)
		}
	})
}

// TestProseRoundTrips has the tokenizer make tokens of the text of answers, as it
// does when an answer comes back as a message: they are those that were written.
func TestProseRoundTrips(t *testing.T) {
	eachVocabulary(t, func(t *testing.T, v *vocabulary) {
		for seed := range uint64(500) {
			prompt := v.encode(t, chatStart)
			ids := v.write(seed, prompt, 1<<20, true)
			text := v.decode(t, ids)
			if again := v.encode(t, text); !slices.Equal(again, ids) {
				t.Fatalf("seed %d: %q has the tokens\n%d, written were\n%d", seed, text, again, ids)
			}
			whole := slices.Concat(prompt, ids)
			if again := v.encode(t, chatStart+text); !slices.Equal(again, whole) {
				t.Fatalf("seed %d: the chat with %q has the tokens\n%d, written were\n%d", seed, text, again, whole)
			}
		}
	})
}

// TestProseContinues cuts answers everywhere and lets another writer go on.
func TestProseContinues(t *testing.T) {
	eachVocabulary(t, func(t *testing.T, v *vocabulary) {
		for _, text := range prosePrompts {
			for seed := range uint64(3) {
				prompt := v.encode(t, text)
				whole := v.write(seed, prompt, 200, false)
				for cut := range whole {
					rest := v.write(seed, slices.Concat(prompt, whole[:cut]), len(whole)-cut, false)
					if !slices.Equal(rest, whole[cut:]) {
						t.Fatalf("prompt %q, seed %d, cut at %d:\nwhole %q\nrest  %q", text, seed, cut, v.decode(t, whole), v.decode(t, rest))
					}
				}
				ended := v.write(seed, prompt, 5000, true)
				for cut := range ended {
					rest := v.write(seed, slices.Concat(prompt, ended[:cut]), 5000, true)
					if !slices.Equal(rest, ended[cut:]) {
						t.Fatalf("prompt %q, seed %d, cut at %d: the end is not the same", text, seed, cut)
					}
				}
			}
		}
	})
}

// TestProseRun writes texts with run as far as it goes, and compares.
func TestProseRun(t *testing.T) {
	eachVocabulary(t, func(t *testing.T, v *vocabulary) {
		for _, text := range prosePrompts {
			for seed := range uint64(20) {
				for _, most := range []int{1, 2, 7, 1000} {
					prompt := v.encode(t, text)
					ids := v.write(seed, prompt, 700, true)
					want := v.decode(t, ids)
					var p prose
					p.prime(v, seed, prompt)
					var got []byte
					for n := 0; n < len(ids); {
						var tokens int
						if got, tokens = p.run(got, min(most, len(ids)-n)); tokens > 0 {
							n += tokens
							continue
						}
						id := p.next(true)
						got = append(got, v.text(id)...)
						n++
						if id == v.end {
							break
						}
						p.push(id)
					}
					if string(got) != want {
						t.Fatalf("prompt %q, seed %d, %d at a time:\n got %q\nwant %q", text, seed, most, got, want)
					}
				}
			}
		}
	})
}

func TestProseDiffers(t *testing.T) {
	eachVocabulary(t, func(t *testing.T, v *vocabulary) {
		seen := map[string]string{}
		for seed := range uint64(50) {
			for i := range 50 {
				key := fmt.Sprintf("seed %d, prompt %d", seed, i)
				got := v.decode(t, v.write(seed, v.encode(t, fmt.Sprintf("<|im_start|>user\nprompt %d<|im_end|>\n", i)), 60, false))
				if other, ok := seen[got]; ok {
					t.Errorf("%s and %s both give %q", key, other, got)
				}
				seen[got] = key
			}
		}
	})
}

// TestProseLength checks the promise on the length of answers.
func TestProseLength(t *testing.T) {
	eachVocabulary(t, func(t *testing.T, v *vocabulary) {
		total, answers := 0, 4000
		for seed := range uint64(answers) {
			total += len(v.write(seed, v.encode(t, chatStart), 1<<20, true))
		}
		mean := float64(total) / float64(answers)
		t.Logf("answers have %.0f tokens on average", mean)
		if mean < 180 || mean > 220 {
			t.Errorf("answers have %.0f tokens on average, want about 200", mean)
		}
	})
}

// TestLexicon checks what prose relies on: where words and sentences begin and end
// can be told from their tokens.
func TestLexicon(t *testing.T) {
	for class, list := range lexicon {
		seen := map[string]bool{}
		for _, w := range list {
			if w[0] < 'a' || w[0] > 'z' {
				t.Errorf("%s: %q cannot be made a capital", class, w)
			}
			if seen[w] {
				t.Errorf("%s: %q twice", class, w)
			}
			seen[w] = true
		}
	}
	eachVocabulary(t, func(t *testing.T, v *vocabulary) {
		check := func(units []unit, space, last bool) {
			if len(units) == 0 {
				t.Error("a class without words")
			}
			for _, u := range units {
				if got := v.decode(t, u.ids); got != u.text {
					t.Errorf("the tokens of %q are %q", u.text, got)
				}
				for i, id := range u.ids {
					want := inside
					if i == 0 && space {
						want = opens
					} else if i == len(u.ids)-1 && last {
						want = ends
					}
					if got := v.kind(id); got != want {
						t.Errorf("token %d of %q, %q, is of kind %d, want %d", i, u.text, v.text(id), got, want)
					}
				}
			}
		}
		for _, s := range v.sentences {
			check(s.first, false, false)
			for i, units := range s.words {
				check(units, true, i == len(s.words)-1)
			}
		}
		if n := len(v.others); n <= maxTop || n%otherStep == 0 {
			t.Errorf("%d tokens to name as alternatives", n)
		}
		t.Logf("%d sentences, %d alternatives", len(v.sentences), len(v.others))
	})
}

func TestProseAllocs(t *testing.T) {
	eachVocabulary(t, func(t *testing.T, v *vocabulary) {
		prompt := v.encode(t, chatStart)
		var p prose
		if n := testing.AllocsPerRun(100, func() {
			p.prime(v, 1, prompt)
			for range 200 {
				p.push(p.next(false))
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

// BenchmarkProseToken is the cost of a token. On two cores of a Xeon: 25 ns.
func BenchmarkProseToken(b *testing.B) {
	v := Qwen3.load()
	var p prose
	p.prime(v, 1, v.encode(b, chatStart))
	b.ReportAllocs()
	for b.Loop() {
		p.push(p.next(false))
	}
}

// BenchmarkPrime is the cost of a prompt of 100,000 tokens.
func BenchmarkPrime(b *testing.B) {
	v := Qwen3.load()
	prompt := v.encode(b, strings.Repeat("The quick brown fox jumps over the lazy dog. ", 10000))
	var p prose
	b.ReportAllocs()
	for b.Loop() {
		p.prime(v, 1, prompt)
	}
}
