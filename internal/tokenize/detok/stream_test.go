package detok

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// The chains of the families, by what their vocabularies are.
var (
	byteLevel   = chain{Type: "ByteLevel"}
	spaces      = chain{Type: "Replace", Pattern: &match{String: "▁"}, Content: " "}
	gemma       = chain{Type: "Sequence", Decoders: []chain{spaces, {Type: "ByteFallback"}, {Type: "Fuse"}}}
	llama       = chain{Type: "Sequence", Decoders: []chain{spaces, {Type: "ByteFallback"}, {Type: "Fuse"}, {Type: "Strip", Content: " ", Start: 1}}}
	xlmr        = chain{Type: "Metaspace", Replacement: "▁", Scheme: "always"}
	bert        = chain{Type: "WordPiece", Prefix: "##", Cleanup: true}
	openAIGPT   = chain{Type: "BPEDecoder", Suffix: "</w>"}
	noDecoder   = chain{}
	knownChains = []chain{byteLevel, gemma, llama, xlmr, bert, openAIGPT, noDecoder}
)

func mustParse(t testing.TB, c chain) *Decoder {
	t.Helper()
	d, err := Parse(c.spell())
	if err != nil {
		t.Fatalf("%s: %v", c.spell(), err)
	}
	return d
}

// spelled is how a byte-level vocabulary spells bytes.
func spelled(b string) string {
	var out strings.Builder
	for i := range len(b) {
		for r, back := range alphabet {
			if back == int16(b[i]) {
				out.WriteRune(rune(r))
			}
		}
	}
	return out.String()
}

func TestStream(t *testing.T) {
	for _, tc := range []struct {
		name   string
		chain  chain
		prompt []string
		tokens []string
		want   []string // the last is what Flush gives
	}{
		{"rare character of bytes", gemma, nil, []string{"<0xF0>", "<0xA0>", "<0xAE>", "<0xB7>", "野", "▁ok"}, []string{"", "", "", "𠮷", "野", " ok", ""}},
		{"flag", byteLevel, nil, []string{"日本", "語", "\xF0\x9F", "\x8F", "\xB3", "\uFE0F", "\u200D", "\xF0\x9F", "\x8C", "\x88"},
			[]string{"日本", "語", "", "", "🏳", "\uFE0F", "\u200D", "", "", "🌈", ""}},
		{"three bytes of four", byteLevel, nil, []string{"\xF0\x9F", "\x8F", "."}, []string{"", "", "\uFFFD.", ""}},
		{"unfinished at the end", byteLevel, nil, []string{"a\xF0\x9F", "\x8F"}, []string{"a", "", "\uFFFD"}},
		{"text before an unfinished character", byteLevel, nil, []string{"x\xF0\x9F", "\x8F\xB3y"}, []string{"x", "🏳y", ""}},
		{"bytes that begin nothing", byteLevel, nil, []string{"\xFF\x80a", "\xED\xA0\x80"}, []string{"\uFFFD\uFFFDa", "\uFFFD\uFFFD\uFFFD", ""}},
		{"a beginning after a beginning", byteLevel, nil, []string{"\xE4\xBD", "\xE4\xBD", "\xA0"}, []string{"", "\uFFFD", "你", ""}},
		{"replacement character of the model", byteLevel, nil, []string{"\uFFFD", "a"}, []string{"\uFFFD", "a", ""}},
		{"byte tokens that end early", gemma, nil, []string{"<0xF0>", "<0xA0>", "Hi"}, []string{"", "", "\uFFFD\uFFFDHi", ""}},
		{"byte tokens that cannot go on", gemma, nil, []string{"<0xFF>", "<0x41>", "a", "<0x41>"}, []string{"\uFFFD", "\uFFFD", "a", "A", ""}},
		{"wrong byte after a character", gemma, nil, []string{"<0x41>", "<0xFF>", "<0x41>"}, []string{"A", "\uFFFD", "\uFFFD", ""}},
		{"byte tokens unfinished", gemma, nil, []string{"<0xE4>", "<0xBD>"}, []string{"", "", "\uFFFD\uFFFD"}},
		{"leading space", llama, nil, []string{"▁world"}, []string{"world", ""}},
		{"space inside", llama, nil, []string{"▁Hello", "▁world"}, []string{"Hello", " world", ""}},
		{"one leading space only", llama, nil, []string{"▁", "▁world"}, []string{"", " world", ""}},
		{"space after a prompt", llama, []string{"▁Hello"}, []string{"▁world"}, []string{" world", ""}},
		{"leading space is the prompt's", llama, []string{"▁"}, []string{"▁world"}, []string{" world", ""}},
		{"first token", xlmr, nil, []string{"▁a▁b", "▁c"}, []string{"ab", " c", ""}},
		{"first token is the prompt's", xlmr, []string{"▁a"}, []string{"▁b"}, []string{" b", ""}},
		{"words", bert, nil, []string{"do", "##n", "'t", "stop", ",", "it", "'s"}, []string{"do", "n", " 't", " stop", ",", " it", "'s", ""}},
		{"cleaned inside a token", bert, nil, []string{"I do not", "a ' b n't"}, []string{"I don't", " a'bn't", ""}},
		{"words after a prompt", bert, []string{"say"}, []string{"hi", "##s"}, []string{" hi", "s", ""}},
		{"end of words", openAIGPT, nil, []string{"lo", "w</w>", "er</w>"}, []string{"lo", "w", " er", ""}},
		{"end of words after a prompt", openAIGPT, []string{"low</w>"}, []string{"er</w>"}, []string{" er", ""}},
		{"no decoder", noDecoder, nil, []string{"a", "b"}, []string{"a", " b", ""}},
		{"character begun by the prompt", byteLevel, []string{"a\xF0\x9F"}, []string{"\x8F\xB3b"}, []string{"🏳b", ""}},
		{"character begun by three tokens of the prompt", byteLevel, []string{"a", "\xF0", "\x9F", "\x8F"}, []string{"\xB3"}, []string{"🏳", ""}},
		{"the prompt's stray bytes", byteLevel, []string{"a\xF0\x9F"}, []string{"b"}, []string{"b", ""}},
		{"stray bytes of both", byteLevel, []string{"a\xF0\x9F"}, []string{"\x8F", "b"}, []string{"", "\uFFFDb", ""}},
		{"no answer to stray bytes", byteLevel, []string{"a\xF0\x9F"}, nil, []string{""}},
		{"byte tokens begun by the prompt", gemma, []string{"a", "<0xE4>", "<0xBD>"}, []string{"<0xA0>"}, []string{"你", ""}},
		{"the prompt's stray byte tokens", gemma, []string{"a", "<0xE4>", "<0xBD>"}, []string{"b"}, []string{"b", ""}},
		{"stray byte tokens of both", gemma, []string{"<0xE4>"}, []string{"<0xBD>", "b"}, []string{"", "\uFFFDb", ""}},
		{"a broken run goes on", gemma, []string{"<0xFF>"}, []string{"<0x41>", "b"}, []string{"\uFFFD", "b", ""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := mustParse(t, tc.chain)
			tokens := append(append([]string{}, tc.prompt...), tc.tokens...)
			if d.ByteLevel() {
				for i, tok := range tokens {
					tokens[i] = spelled(tok)
				}
			}
			v := newVocab(d, tokens)
			var prompt []uint32
			for i := range tc.prompt {
				prompt = append(prompt, uint32(i))
			}
			s := d.NewStream(v, true)
			for range 2 { // the second time on a used stream
				s.Prime(prompt)
				var got []string
				for i := range tc.tokens {
					got = append(got, string(s.Push(nil, uint32(len(prompt)+i))))
				}
				got = append(got, string(s.Flush(nil)))
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("tokens %q: (-want +got)\n%s", tokens, diff)
				}
			}
		})
	}
}

// source makes choices out of bytes: of a fuzzer, or of a seed.
type source struct{ next func(n int) int }

func seeded(seed uint64) source {
	return source{rand.New(rand.NewPCG(seed, 1)).IntN}
}

func fromBytes(b []byte) source {
	return source{func(n int) int {
		if len(b) == 0 {
			return 0
		}
		c := int(b[0]) % n
		b = b[1:]
		return c
	}}
}

func pick[T any](s source, list ...T) T { return list[s.next(len(list))] }

// sequence is a made-up decoder with a vocabulary and ids.
type sequence struct {
	chain   chain
	tokens  []string
	special []int
	ids     []uint32
}

func (s source) sequence() sequence {
	q := sequence{chain: s.chain()}
	for range 1 + s.next(9) {
		q.tokens = append(q.tokens, s.token())
	}
	if s.next(2) == 1 {
		q.special = []int{s.next(len(q.tokens))}
	}
	for range s.next(24) {
		q.ids = append(q.ids, uint32(s.next(len(q.tokens)+1))) // one outside
	}
	return q
}

func (s source) chain() chain {
	if s.next(2) == 0 {
		return pick(s, knownChains...)
	}
	c := chain{Type: "Sequence", Decoders: []chain{}}
	for range s.next(6) {
		c.Decoders = append(c.Decoders, s.decoder())
	}
	return c
}

func (s source) decoder() chain {
	c := chain{Type: pick(s, "Fuse", "ByteFallback", "ByteLevel", "Replace", "Replace", "Strip", "Metaspace", "WordPiece", "BPEDecoder", "CTC")}
	switch c.Type {
	case "Replace":
		c.Pattern = &match{String: pick(s, "▁", " ", "a", "aa", "aab", "aba", "##", "é")}
		if s.next(4) == 0 {
			c.Pattern = &match{Regex: pick(s, "a+", "[ ▁]", "b*", "^a", "(a|b)b?$")}
		}
		c.Content = pick(s, "", " ", "x", "▁", "ab", "<0x41>")
	case "Strip":
		c.Content, c.Start, c.Stop = pick(s, " ", "▁", "a", "é"), s.next(3), s.next(3)
	case "Metaspace":
		c.Replacement, c.Scheme = pick(s, "▁", "a"), pick(s, "always", "first", "never")
	case "WordPiece":
		c.Prefix, c.Cleanup = pick(s, "##", "a", ""), s.next(2) == 0
	case "BPEDecoder":
		c.Suffix = pick(s, "</w>", "a")
	case "CTC":
		c.Pad, c.Delimiter, c.Cleanup = pick(s, "a", "##", ""), "|", s.next(2) == 0
	}
	return c
}

func (s source) token() string {
	switch s.next(4) {
	case 0:
		return fmt.Sprintf("<0x%02X>", "A\xF0\xA0\xAE\xB7\xE4\xBD\xA0\xC3\xA9\xFF\x80"[s.next(12)])
	case 1:
		text := pick(s, "日本", "🏳️‍🌈", " é", "a\nb", "\xFF\xED\xA0\xF4\x90")
		i := s.next(len(text))
		return spelled(text[i:min(len(text), i+1+s.next(4))])
	}
	var out strings.Builder
	for range s.next(5) {
		out.WriteString(pick(s, " ", "▁", "#", ".", "'", "s", "a", "b", "|", "é", "日", "\uFFFD", "</w>", "<0x", "##", "Ġ"))
	}
	return out.String()
}

// check compares Decode, and a stream over the same ids, with the reference, and a
// stream that takes the first ids as its prompt with one that does not.
func (q sequence) check(t *testing.T) {
	t.Helper()
	d := mustParse(t, q.chain)
	v := newVocab(d, q.tokens, q.special...)
	for _, skip := range []bool{false, true} {
		kept := row{Tokens: q.tokens, Special: q.special, IDs: q.ids}.kept(skip)
		if got, want := string(d.Decode([]byte("dst "), v, q.ids, skip)), "dst "+q.chain.decode(kept, false); got != want {
			t.Fatalf("%s\ntokens %q\nDecode %q\n  want %q", q.chain.spell(), kept, got, want)
		}
		s := d.NewStream(v, skip)
		want := q.chain.decode(kept, true)
		if got := stream(s, q.ids); got != want {
			t.Fatalf("%s\ntokens %q\nStream %q\n  want %q", q.chain.spell(), kept, got, want)
		}
		if !utf8.ValidString(want) {
			t.Fatalf("%s\ntokens %q\nnot UTF-8: %q", q.chain.spell(), kept, want)
		}
		q.checkPrime(t, d, v, skip)
	}
}

// checkPrime compares a primed stream with one that was given the whole prompt.
func (q sequence) checkPrime(t *testing.T, d *Decoder, v *vocab, skip bool) {
	t.Helper()
	long := *d
	long.short = false
	for n := range len(q.ids) + 1 {
		s, all := d.NewStream(v, skip), long.NewStream(v, skip)
		s.Prime(q.ids[:n])
		all.Prime(q.ids[:n])
		if got, want := stream(s, q.ids[n:]), stream(all, q.ids[n:]); got != want {
			t.Fatalf("%s\ntokens %q ids %d\nprimed with %d %q\n        want %q", q.chain.spell(), q.tokens, q.ids, n, got, want)
		}
	}
}

func TestStreamEqualsDecode(t *testing.T) {
	for seed := range uint64(3000) {
		seeded(seed).sequence().check(t)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzStream(f *testing.F) {
	for seed := range uint64(16) {
		rng := rand.New(rand.NewPCG(seed, 2))
		b := make([]byte, 96)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { fromBytes(b).sequence().check(t) })
}

// TestStreamHolds shows how little the known chains keep back.
func TestStreamHolds(t *testing.T) {
	for _, c := range []chain{byteLevel, gemma, llama} {
		d := mustParse(t, c)
		for seed := range uint64(200) {
			src := seeded(seed)
			var tokens []string
			var ids []uint32
			for i := range 40 {
				tokens = append(tokens, src.token())
				ids = append(ids, uint32(i))
			}
			v := newVocab(d, tokens)
			s := d.NewStream(v, false)
			got := 0
			for i, id := range ids {
				got += len(s.Push(nil, id))
				want := c.decode(tokens[:i+1], true)
				if held := len(want) - got; held > 3*len("\uFFFD") {
					t.Fatalf("%s: tokens %q: %d bytes held back", c.spell(), tokens[:i+1], held)
				}
			}
		}
	}
}

func TestPushAllocates(t *testing.T) {
	for _, c := range knownChains {
		d := mustParse(t, c)
		v := newVocab(d, []string{"▁the", "##ing", "<0xE4>", "<0xBD>", "<0xA0>", spelled("\xE4\xBD"), "."})
		s := d.NewStream(v, false)
		dst := make([]byte, 0, 1024)
		if n := testing.AllocsPerRun(100, func() {
			dst = dst[:0]
			for id := range uint32(7) {
				dst = s.Push(dst, id)
			}
			dst = s.Flush(dst)
		}); n > 0 {
			t.Errorf("%s: %v allocations per sequence", c.spell(), n)
		}
	}
}

// On one core of a shared Xeon VM:
//
//	BenchmarkPush/ByteLevel   ~ 80 ns/op
//	BenchmarkPush/Sequence    ~ 160 ns/op
func BenchmarkPush(b *testing.B) {
	for _, c := range []chain{byteLevel, llama, xlmr, bert} {
		b.Run(c.Type, func(b *testing.B) {
			d := mustParse(b, c)
			v := newVocab(d, []string{"▁the", "##ing", "<0xE4>", "<0xBD>", "<0xA0>", spelled(" quick"), "."})
			s := d.NewStream(v, false)
			dst := make([]byte, 0, 64)
			b.ReportAllocs()
			for i := uint32(0); b.Loop(); i++ {
				dst = s.Push(dst[:0], i%7)
			}
		})
	}
}
