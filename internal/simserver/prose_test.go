package simserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/tokenize"
)

func encode(s string) []uint32 {
	ids, _ := tokenize.Bytes{}.Encode(nil, []byte(s), true /* special */)
	return ids
}

func decode(t *testing.T, ids []uint32) string {
	t.Helper()
	b, err := tokenize.Bytes{}.Decode(nil, ids)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// write returns up to n tokens after prompt, the end token included.
func write(seed uint64, prompt []uint32, n int, mayEnd bool) []uint32 {
	var p prose
	p.prime(seed, prompt)
	var out []uint32
	for len(out) < n {
		id := p.next(mayEnd)
		out = append(out, id)
		if id == endToken {
			break
		}
		p.push(id)
	}
	return out
}

func TestProseSample(t *testing.T) {
	got := decode(t, write(1, encode("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"), 400, true))
	t.Logf("%s", got)
	if !strings.HasSuffix(got, ".<|im_end|>") && !strings.HasSuffix(got, "?<|im_end|>") {
		t.Errorf("answer does not end after a sentence: %q", got)
	}
	if c := got[0]; c < 'A' || c > 'Z' {
		t.Errorf("answer does not start with a capital: %q", got)
	}
}

var prosePrompts = []string{
	"<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
	"Once upon a time",
	"A sentence.",
	"A sentence. ",
	"several   spaces  ",
	"caf\xc3",
	"x",
}

// TestProseContinues cuts answers everywhere and lets another writer go on.
func TestProseContinues(t *testing.T) {
	for _, text := range prosePrompts {
		for seed := range uint64(4) {
			prompt := encode(text)
			whole := write(seed, prompt, 700, false)
			for cut := range whole {
				rest := write(seed, slices.Concat(prompt, whole[:cut]), len(whole)-cut, false)
				if !slices.Equal(rest, whole[cut:]) {
					t.Fatalf("prompt %q, seed %d, cut at %d:\nwhole %q\nrest  %q", text, seed, cut, decode(t, whole), decode(t, rest))
				}
			}
			ended := write(seed, prompt, 5000, true)
			for cut := range ended {
				rest := write(seed, slices.Concat(prompt, ended[:cut]), 5000, true)
				if !slices.Equal(rest, ended[cut:]) {
					t.Fatalf("prompt %q, seed %d, cut at %d: the end is not the same", text, seed, cut)
				}
			}
		}
	}
}

// TestProseRun writes texts with run as far as it goes, and compares.
func TestProseRun(t *testing.T) {
	for _, text := range prosePrompts {
		for seed := range uint64(20) {
			for _, most := range []int{1, 2, 7, 1000} {
				want := decode(t, write(seed, encode(text), 700, true))
				var p prose
				p.prime(seed, encode(text))
				var got []byte
				for len(got) < len(want) {
					before := len(got)
					if got = p.run(got, min(most, len(want)-before)); len(got) > before {
						continue
					}
					id := p.next(true)
					if id == endToken {
						got = append(got, "<|im_end|>"...)
						break
					}
					got = append(got, byte(id))
					p.push(id)
				}
				if string(got) != want {
					t.Fatalf("prompt %q, seed %d, %d at a time:\n got %q\nwant %q", text, seed, most, got, want)
				}
			}
		}
	}
}

func TestProseDiffers(t *testing.T) {
	seen := map[string]string{}
	for seed := range uint64(50) {
		for i := range 50 {
			key := fmt.Sprintf("seed %d, prompt %d", seed, i)
			got := decode(t, write(seed, encode(fmt.Sprintf("<|im_start|>user\nprompt %d<|im_end|>\n", i)), 60, false))
			if other, ok := seen[got]; ok {
				t.Errorf("%s and %s both give %q", key, other, got)
			}
			seen[got] = key
		}
	}
}

// TestProseLength checks the promise on the length of answers and that all of
// them are text.
func TestProseLength(t *testing.T) {
	total, answers := 0, 4000
	for seed := range uint64(answers) {
		ids := write(seed, encode("<|im_start|>assistant\n"), 1<<20, true)
		s := decode(t, ids[:len(ids)-1])
		if !utf8.ValidString(s) {
			t.Errorf("seed %d: not UTF-8: %q", seed, s)
		}
		total += len(s)
	}
	mean := float64(total) / float64(answers)
	t.Logf("answers have %.0f bytes on average", mean)
	if mean < 180 || mean > 220 {
		t.Errorf("answers have %.0f bytes on average, want about 200", mean)
	}
}

func TestLexicon(t *testing.T) {
	words := 0
	for class, list := range lexicon {
		seen := map[string]bool{}
		for _, w := range list {
			words++
			if len(w)+1 > longestUnit {
				t.Errorf("%s: %q does not fit into a unit", class, w)
			}
			if w[0] < 'a' || w[0] > 'z' {
				t.Errorf("%s: %q cannot be made a capital", class, w)
			}
			if seen[w] {
				t.Errorf("%s: %q twice", class, w)
			}
			seen[w] = true
		}
	}
	t.Logf("%d words", words)
	for i, s := range sentences {
		for j, sl := range s {
			if len(sl.words) == 0 {
				t.Errorf("sentence %d: word %d names no class", i, j)
			}
		}
		if m := s[len(s)-1].mark; m != '.' && m != '?' {
			t.Errorf("sentence %d has no end", i)
		}
	}
}

func TestProseAllocs(t *testing.T) {
	prompt := encode(prosePrompts[0])
	var p prose
	if n := testing.AllocsPerRun(100, func() {
		p.prime(1, prompt)
		for range 200 {
			p.push(p.next(false))
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkProseToken(b *testing.B) {
	var p prose
	p.prime(1, encode(prosePrompts[0]))
	b.ReportAllocs()
	for b.Loop() {
		p.push(p.next(false))
	}
}
