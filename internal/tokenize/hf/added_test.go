package hf

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// naiveMatches finds added tokens by trying each at each place.
func naiveMatches(tokens []AddedToken, text string) []match {
	var out []match
	taken := 0
	for at := 0; at < len(text); {
		best := -1
		for i, a := range tokens {
			if strings.HasPrefix(text[at:], a.Content) && (best < 0 || len(a.Content) > len(tokens[best].Content)) {
				best = i
			}
		}
		if best < 0 {
			at++
			continue
		}
		a := tokens[best]
		m := match{at, at + len(a.Content), best}
		at = m.end
		if a.SingleWord {
			before, _ := utf8.DecodeLastRuneInString(text[:m.start])
			after, _ := utf8.DecodeRuneInString(text[m.end:])
			word := func(r rune) bool {
				return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_')
			}
			if word(before) || word(after) {
				continue
			}
		}
		if a.LStrip {
			m.start = max(len(strings.TrimRightFunc(text[:m.start], unicode.IsSpace)), taken)
		}
		if a.RStrip {
			m.end = len(text) - len(strings.TrimLeftFunc(text[m.end:], unicode.IsSpace))
		}
		if m.start >= m.end {
			continue
		}
		taken = m.end
		out = append(out, m)
	}
	return out
}

func TestAddedTokens(t *testing.T) {
	parts := []string{"<", "a", "b", ">", "\n", " ", "▁", "<a", "<ab>", "é", "x"}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		var tokens []AddedToken
		var spellings []string
		for range 1 + r.IntN(12) {
			var s string
			for range 1 + r.IntN(3) {
				s += parts[r.IntN(len(parts))]
			}
			if slices.Contains(spellings, s) {
				continue
			}
			tokens = append(tokens, AddedToken{Content: s, LStrip: r.IntN(5) == 0, RStrip: r.IntN(5) == 0, SingleWord: r.IntN(5) == 0})
			spellings = append(spellings, s)
		}
		m := newMatcher(tokens, spellings)
		for range 50 {
			var b strings.Builder
			for range r.IntN(20) {
				b.WriteString(parts[r.IntN(len(parts))])
			}
			want := naiveMatches(tokens, b.String())
			if got := m.all(nil, []byte(b.String())); !slices.Equal(got, want) {
				t.Fatalf("seed %d: %q in %q: got %v, want %v", seed, spellings, b.String(), got, want)
			}
		}
	}
}

// cutFile returns a byte-level tokenizer with the given added tokens.
func cutFile(added ...AddedToken) string {
	var vocab []string
	for b := range 256 {
		vocab = append(vocab, fmt.Sprintf("%q: %d", spell(byte(b)), b))
	}
	vocab = append(vocab, `"ab": 256`, `"Ġa": 257`, `"Ġab": 258`)
	var tokens []string
	for i, a := range added {
		tokens = append(tokens, fmt.Sprintf(`{"id":%d,"content":%q,"normalized":%t,"lstrip":%t,"rstrip":%t,"single_word":%t,"special":true}`,
			259+i, a.Content, a.Normalized, a.LStrip, a.RStrip, a.SingleWord))
	}
	return `{"version":"1.0","added_tokens":[` + strings.Join(tokens, ",") + `],"normalizer":null,
		"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},"decoder":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true},
		"model":{"type":"BPE","vocab":{` + strings.Join(vocab, ",") + `},"merges":["a b","Ġ a","Ġ ab"]}}`
}

// spell writes a byte in the byte alphabet.
func spell(b byte) string {
	for r, v := range fromAlphabet {
		if v == int16(b) {
			return string(rune(r))
		}
	}
	panic("not in the alphabet")
}

// TestCuts cuts random texts at every cut, also at those of another text with the
// same beginning, and compares the ids with those of the whole.
func TestCuts(t *testing.T) {
	for name, added := range map[string][]AddedToken{
		"plain":            {{Content: "<a>"}, {Content: "<b>"}},
		"longer":           {{Content: "<a>"}, {Content: "<b>"}, {Content: "<a><b>c"}, {Content: "\n"}, {Content: "\n\n"}},
		"second pass":      {{Content: "<a>"}, {Content: "<b>", Normalized: true}, {Content: ">b", Normalized: true}},
		"overlap":          {{Content: "b><"}, {Content: "<b>", Normalized: true}, {Content: "<a>", Normalized: true}},
		"inside a first":   {{Content: "x<b>y"}, {Content: "<b>", Normalized: true}},
		"space":            {{Content: "<a>", LStrip: true}, {Content: "<b>", RStrip: true}},
		"words":            {{Content: "<a>"}, {Content: "ab", SingleWord: true}},
		"with a space":     {{Content: "b a"}, {Content: "<b>"}},
		"space at the end": {{Content: "b "}, {Content: "<b>"}},
		"line feed first":  {{Content: "\n<x"}, {Content: "<b>"}},
		"taken back":       {{Content: "<a>", LStrip: true}, {Content: "\n", Normalized: true}, {Content: "<b>"}},
	} {
		t.Run(name, func(t *testing.T) {
			tok, err := Parse([]byte(cutFile(added...)))
			if err != nil {
				t.Fatal(err)
			}
			parts := []string{"<a>", "<b>", "<", "a", "b", "c", "x", "y", ">", "\n", " ", "ab", " ab", "é"}
			r := rand.New(rand.NewPCG(5, 5))
			cuts := 0
			for range 2000 {
				var b strings.Builder
				for range r.IntN(10) {
					b.WriteString(parts[r.IntN(len(parts))])
				}
				head := b.Len()
				text := b.String() + parts[r.IntN(len(parts))] + parts[r.IntN(len(parts))]
				other := b.String() + parts[r.IntN(len(parts))] + parts[r.IntN(len(parts))]
				for _, c := range tok.Cuts(nil, []byte(text), 0, 1) {
					cuts++
					checkCut(t, tok, text, c.At)
					if c.At <= head && tok.Holds([]byte(other), c) {
						checkCut(t, tok, other, c.At)
					}
				}
			}
			if cuts == 0 && name != "words" && name != "space" {
				t.Error("no cuts")
			}
		})
	}
}

// TestSoftCuts cuts long texts between words, also where another text has gone on
// differently.
func TestSoftCuts(t *testing.T) {
	const llama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`
	bytePlan := `{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"` + llama3 + `"},"behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]}`
	marks := func(pre string, added ...AddedToken) string {
		var tokens []string
		for i, a := range added {
			tokens = append(tokens, fmt.Sprintf(`{"id":%d,"content":%q,"normalized":%t}`, 10+i, a.Content, a.Normalized))
		}
		return `{"version":"1.0","added_tokens":[` + strings.Join(tokens, ",") + `],"normalizer":{"type":"Replace","pattern":{"String":" "},"content":"▁"},"pre_tokenizer":` + pre + `,"decoder":null,
			"model":{"type":"BPE","unk_token":"<unk>","vocab":{"<unk>":0,"▁":1,"a":2,"b":3,"ab":4,"▁a":5,"▁ab":6,"\n":7,">":8,">▁a":9},"merges":["a b","▁ a","▁ ab","> ▁a"]}}`
	}
	bytes := func(added ...AddedToken) string {
		return strings.Replace(cutFile(added...), `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}`, bytePlan, 1)
	}
	whole := `{"type":"Split","pattern":{"String":" "},"behavior":"MergedWithPrevious","invert":false}`
	for _, tc := range []struct {
		name, file string
		none       bool // no soft cuts are expected
	}{
		{"bytes", bytes(AddedToken{Content: "<b>"}), false},
		{"taken along", bytes(AddedToken{Content: "<b>", LStrip: true}), true},
		{"taken along after", bytes(AddedToken{Content: "ab<", RStrip: true}), true},
		{"line feed first", bytes(AddedToken{Content: "\n<b>"}), true},
		{"line feed last", bytes(AddedToken{Content: "<b>\n"}), false},
		{"space inside", bytes(AddedToken{Content: "a ab"}), true},
		{"marks", marks(whole, AddedToken{Content: "<b>"}), false},
		{"marks, second pass", marks(whole, AddedToken{Content: "a▁b", Normalized: true}), true},
		{"marks, pieces of three", marks(`{"type":"FixedLength","length":3}`, AddedToken{Content: "<b>"}), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tok, err := Parse([]byte(tc.file))
			if err != nil {
				t.Fatal(err)
			}
			parts := []string{" ab", " a", "\n", "ab", " ", "\nab", ", ", "<b>", ">", "\n\n"}
			r := rand.New(rand.NewPCG(9, 9))
			cuts := 0
			for range 6 {
				var b strings.Builder
				for b.Len() < 2*softGap+r.IntN(softGap) {
					b.WriteString(parts[r.IntN(7)])
				}
				text := b.String()
				for _, c := range tok.Cuts(nil, []byte(text), 0, 100) {
					if c.Soft {
						cuts++
					}
					checkCut(t, tok, text, c.At)
					for _, end := range []string{"<b>", " <b>", "\n<b>", "ab", " ab", "  ab", "b<b>", "< a", "/", "1"} {
						if other := text[:c.At] + end; tok.Holds([]byte(other), c) {
							checkCut(t, tok, other, c.At)
						}
					}
				}
			}
			if (cuts == 0) != tc.none {
				t.Errorf("%d soft cuts", cuts)
			}
		})
	}
}

func checkCut(t *testing.T, tok *Tokenizer, text string, at int) {
	t.Helper()
	want, err := tok.Encode(nil, []byte(text), true)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := tok.EncodeFrom(nil, []byte(text[:at]), 0)
	if got, err = tok.EncodeFrom(got, []byte(text), at); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%q cut at %d: got %d, want %d", text, at, got, want)
	}
}

// TestSpecialOff shows that without special, what is spelled in a text is text.
func TestSpecialOff(t *testing.T) {
	tok, err := Parse([]byte(cutFile(AddedToken{Content: "<a>"}, AddedToken{Content: "\n\n"})))
	if err != nil {
		t.Fatal(err)
	}
	on, _ := tok.Encode(nil, []byte("x<a>\n\n"), true)
	off, _ := tok.Encode(nil, []byte("x<a>\n\n"), false)
	if want := []uint32{'x', 259, 260}; !slices.Equal(on, want) {
		t.Errorf("got %d, want %d", on, want)
	}
	if want := []uint32{'x', '<', 'a', '>', 260}; !slices.Equal(off, want) {
		t.Errorf("got %d, want %d: white space is white space, whoever wrote it", off, want)
	}
}
