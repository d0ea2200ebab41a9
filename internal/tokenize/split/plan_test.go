package split

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestBehaviors cuts at a hyphen in all ways, with the pieces of the library.
func TestBehaviors(t *testing.T) {
	const input = "The-final--countdown"
	for _, tt := range []struct {
		behavior, want, inverted string
	}{
		{"Removed", "The|final|countdown", "-|-|-"},
		{"Isolated", "The|-|final|-|-|countdown", "The|-|final|-|-|countdown"},
		{"MergedWithPrevious", "The-|final-|-|countdown", "The|-final|-|-countdown"},
		{"MergedWithNext", "The|-final|-|-countdown", "The-|final-|-|countdown"},
		{"Contiguous", "The|-|final|--|countdown", "The|-|final|--|countdown"},
	} {
		for _, pattern := range []map[string]any{{"String": "-"}, {"Regex": "-"}} {
			for invert, want := range map[bool]string{false: tt.want, true: tt.inverted} {
				p := fromJSON(t, map[string]any{"type": "Split", "pattern": pattern, "behavior": tt.behavior, "invert": invert})
				if got := strings.Join(pieces(p, input), "|"); got != want {
					t.Errorf("%v %s invert %v: %s, want %s", pattern, tt.behavior, invert, got, want)
				}
			}
		}
	}
}

// TestEmptyMatches has patterns that match nothing between characters.
func TestEmptyMatches(t *testing.T) {
	for _, tt := range []struct {
		behavior string
		invert   bool
		want     string // of b* on abbcb
		every    string // of the empty string on aéc
	}{
		{"Removed", false, "a|c", "a|é|c"},
		{"Removed", true, "bb|b", ""},
		{"Isolated", false, "a|bb|c|b", "a|é|c"},
		{"Isolated", true, "a|bb|c|b", "a|é|c"},
		{"MergedWithPrevious", false, "abb|cb", "a|é|c"},
		{"MergedWithPrevious", true, "a|bbc|b", "a|é|c"},
		{"MergedWithNext", false, "a|bbc|b", "a|é|c"},
		{"MergedWithNext", true, "abb|cb", "a|é|c"},
		{"Contiguous", false, "a|bb|c|b", "a|é|c"},
		{"Contiguous", true, "a|bb|c|b", "a|é|c"},
	} {
		p := fromJSON(t, splitJSON("b*", tt.behavior, tt.invert))
		if got := strings.Join(pieces(p, "abbcb"), "|"); got != tt.want {
			t.Errorf("b* %s invert %v: %s, want %s", tt.behavior, tt.invert, got, tt.want)
		}
		p = fromJSON(t, map[string]any{"type": "Split", "pattern": map[string]any{"String": ""}, "behavior": tt.behavior, "invert": tt.invert})
		if got := strings.Join(pieces(p, "aéc"), "|"); got != tt.every {
			t.Errorf("empty string %s invert %v: %s, want %s", tt.behavior, tt.invert, got, tt.every)
		}
	}
}

// TestSteps has the pieces that the library makes of inputs, by pre-tokenizer.
func TestSteps(t *testing.T) {
	metaspace := func(scheme string, split bool) map[string]any {
		return map[string]any{"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}
	}
	whitespaceSplit := map[string]any{"type": "WhitespaceSplit"}
	for _, tt := range []struct {
		name        string
		plan        any
		input, want string
	}{
		{"null", nil, "a b", "a b"},
		{"empty Sequence", sequence(), "a b", "a b"},
		{"ByteLevel without regex", byteLevel(false, false), "a b é", "a b é"},
		{"ByteLevel", byteLevel(false, true), "a b\n\né", "a| b|\n|\n|é"},
		{"ByteLevel with prefix", byteLevel(true, true), "a b", " a| b"},
		{"ByteLevel with prefix, space there", byteLevel(true, true), "  a", " | a"},
		{"ByteLevel with prefix, line end", byteLevel(true, true), "\na", " |\n|a"},
		{"ByteLevel with prefix on every piece", sequence(digits(true), byteLevel(true, true)), "ab12 c", " ab| 1| 2| c"},
		{"single digits", digits(true), "a12Ⅷ½b", "a|1|2|Ⅷ|½|b"},
		{"digits", digits(false), "a12Ⅷ½b", "a|12Ⅷ½|b"},
		{"Metaspace always", metaspace("always", true), "  a  b ", "▁|▁a|▁|▁b|▁"},
		{"Metaspace always, prepends", metaspace("always", true), "a b", "▁a|▁b"},
		{"Metaspace always, has it", metaspace("always", true), "▁a b", "▁a|▁b"},
		{"Metaspace first", metaspace("first", true), "a b", "▁a|▁b"},
		{"Metaspace never", metaspace("never", true), "a b", "a|▁b"},
		{"Metaspace without split", metaspace("always", false), "a  b ", "▁a▁▁b▁"},
		{"Metaspace of words", sequence(whitespaceSplit, metaspace("always", true)), "ab  cd", "▁ab|▁cd"},
		{"Metaspace of the first word", sequence(whitespaceSplit, metaspace("first", true)), "ab  cd", "▁ab|cd"},
		{"Metaspace of no first word", sequence(whitespaceSplit, metaspace("first", true)), "  ab  cd", "ab|cd"},
		{"Metaspace twice", sequence(metaspace("always", true), metaspace("always", true)), "ab cd", "▁ab|▁cd"},
		{"Metaspace, ByteLevel", sequence(metaspace("first", true), byteLevel(false, true)), "a b é", "▁|a|▁|b|▁|é"},
		{"Metaspace with a letter", map[string]any{"type": "Metaspace", "replacement": "x"}, "xa b", "xa|xb"},
		{"Whitespace", map[string]any{"type": "Whitespace"}, "Hey, you! a_b c² x\u200dy .", "Hey|,|you|!|a_b|c|²|x\u200dy|."},
		{"WhitespaceSplit", whitespaceSplit, " a\u3000b\u0085\u200bc\n", "a|b|\u200bc"},
		{"Punctuation", map[string]any{"type": "Punctuation"}, "a$!b«", "a|$|!|b|«"},
		{"Punctuation contiguous", map[string]any{"type": "Punctuation", "behavior": "Contiguous"}, "Hey!! you", "Hey|!!| you"},
		{"BertPreTokenizer", map[string]any{"type": "BertPreTokenizer"}, "Hey, you!  a-b 中文", "Hey|,|you|!|a|-|b|中文"},
		{"CharDelimiterSplit", map[string]any{"type": "CharDelimiterSplit", "delimiter": "x"}, "axbxxc", "a|b|c"},
		{"FixedLength", map[string]any{"type": "FixedLength", "length": 3}, "abécdefg", "abé|cde|fg"},
		{"nested Sequence", sequence(sequence(whitespaceSplit), sequence(sequence(digits(true)))), "a1 b", "a|1|b"},
		{"Gemma", map[string]any{"type": "Split", "pattern": map[string]any{"String": " "}, "behavior": "MergedWithPrevious", "invert": false}, " a b  c", " |a |b | |c"},
		// Behind a ByteLevel, the byte B2 of л and the byte BC of ¼ are the numbers ² and ¼.
		{"Digits behind ByteLevel", sequence(byteLevel(false, true), digits(true)), "ab1 лвf¼", "ab|1| л\xd0|\xb2|f|\xc2|\xbc"},
		{"String behind ByteLevel", sequence(byteLevel(false, false), map[string]any{"type": "Split", "pattern": map[string]any{"String": "Ġ"}, "behavior": "Isolated", "invert": false}), "a b é", "a| |b| |é"},
		{"no white space behind ByteLevel", sequence(byteLevel(false, false), whitespaceSplit), "a b é\u00a0", "a b é\u00a0"},
		{"Falcon", sequence(map[string]any{"type": "Punctuation", "behavior": "Contiguous"}, byteLevel(false, true), digits(false), splitJSON("[0-9][0-9][0-9]", "Isolated", false)),
			"x==12345, 7!", "x|==|123|45|,| |7|!"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := fromJSON(t, tt.plan)
			if got := strings.Join(pieces(p, tt.input), "|"); got != tt.want {
				t.Errorf("%+q: %+q, want %+q", tt.input, got, tt.want)
			}
			if got := pieces(p, ""); got != nil {
				t.Errorf("pieces of nothing: %q", got)
			}
		})
	}
}

// TestNotFirst has the one thing that depends on where a segment lies.
func TestNotFirst(t *testing.T) {
	p := fromJSON(t, map[string]any{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"})
	var dst Pieces
	p.Append(&dst, []byte("a b"), true)
	p.Append(&dst, []byte("c d"), false)
	if diff := cmp.Diff([]string{"▁a", "▁b", "c", "▁d"}, texts(&dst)); diff != "" {
		t.Error(diff)
	}
}

// TestByteAlphabet counts the characters that stand for bytes.
func TestByteAlphabet(t *testing.T) {
	seen := map[rune]bool{}
	for b := range 256 {
		seen[byteRune(byte(b))] = true
	}
	if len(seen) != 256 {
		t.Errorf("%d characters for 256 bytes", len(seen))
	}
	for b, want := range map[byte]rune{0x00: 'Ā', ' ': 'Ġ', '\n': 'Ċ', '!': '!', '~': '~', 0x7f: 'ġ', 0xa0: 'ł', 0xa1: '¡', 0xad: 'Ń', 0xff: 'ÿ'} {
		if got := byteRune(b); got != want {
			t.Errorf("byte %#x is %c, want %c", b, got, want)
		}
	}
}

// TestScannersOfLiterals compares the scanners for strings with the step they stand
// for.
func TestScannersOfLiterals(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	for _, s := range []string{" ", "a", "aa", "aba", "é"} {
		for name, b := range behaviors {
			c := &cutter{finder: literal(s), behavior: b}
			fast := &Plan{next: literal(s).cover(b)}
			if (fast.next == nil) != (b == removed) {
				t.Fatalf("%s: has a scanner: %v", name, fast.next != nil)
			}
			if fast.next == nil {
				continue
			}
			for range 2000 {
				var text []byte
				for range rng.IntN(12) {
					text = append(text, []string{"a", "b", " ", "é", "a"}[rng.IntN(5)]...)
				}
				want, got := pieces(&Plan{steps: []step{c}}, string(text)), pieces(fast, string(text))
				if !slices.Equal(got, want) {
					t.Fatalf("%q %s on %q (-step +scanner):\n%s", s, name, text, cmp.Diff(want, got))
				}
			}
		}
	}
}

// TestReuse checks that a Pieces that has grown once does not grow again.
func TestReuse(t *testing.T) {
	text := bytes.Repeat([]byte("Hello, wide world! 123\n"), 40)
	for name, p := range knownPlans(t) {
		var dst Pieces
		got := testing.AllocsPerRun(20, func() {
			dst.Reset()
			p.Append(&dst, text, true)
		})
		if got != 0 {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
	p := fromJSON(t, map[string]any{"type": "BertPreTokenizer"})
	var dst Pieces
	if got := testing.AllocsPerRun(20, func() { dst.Reset(); p.Append(&dst, text, true) }); got > 10 {
		t.Errorf("BertPreTokenizer: %v allocations for %d pieces", got, len(dst.Spans))
	}
}

// TestConcurrent uses one plan of every kind of step from several goroutines.
func TestConcurrent(t *testing.T) {
	text := strings.Repeat("Hello, wide world! 123 л\n", 20)
	plans := []*Plan{
		fromJSON(t, sequence(splitJSON(`\d+|\s`, "Isolated", false), map[string]any{"type": "Metaspace", "replacement": "▁"})),
		fromJSON(t, sequence(byteLevel(true, true), digits(true))),
		knownPlans(t)["o200k"],
	}
	var wg sync.WaitGroup
	for _, p := range plans {
		want := pieces(p, text)
		for range 4 {
			wg.Go(func() {
				for range 10 {
					if got := pieces(p, text); !slices.Equal(got, want) {
						t.Errorf("pieces %q, want %q", got, want)
						return
					}
				}
			})
		}
	}
	wg.Wait()
}
