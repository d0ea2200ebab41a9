package onig

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func mustCompile(t testing.TB, pattern string) *Regexp {
	t.Helper()
	re, err := Compile(pattern)
	if err != nil {
		t.Fatalf("Compile(%q): %v", pattern, err)
	}
	return re
}

// matches returns all matches as "start-end start-end …".
func matches(re *Regexp, text string) string {
	var all []string
	re.All([]byte(text), func(start, end int) bool {
		all = append(all, fmt.Sprintf("%d-%d", start, end))
		return true
	})
	return strings.Join(all, " ")
}

// TestMatches compares with what Oniguruma 6.9.10 finds, called as the tokenizers
// library calls it.
func TestMatches(t *testing.T) {
	f, err := os.Open("testdata/matches.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var row struct {
			Name, Pattern string
			Matches       [][2]string
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		name := row.Name
		if name == "" {
			name = row.Pattern
		}
		t.Run(name, func(t *testing.T) {
			re := mustCompile(t, row.Pattern)
			for _, m := range row.Matches {
				if got := matches(re, m[0]); got != m[1] {
					t.Errorf("%s on %q:\n got %s\nwant %s", row.Pattern, m[0], got, m[1])
				}
			}
		})
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

func TestFind(t *testing.T) {
	tests := []struct {
		pattern, text string
		at            int
		start, end    int
		ok            bool
	}{
		{"b+", "abba", 0, 1, 3, true},
		{"b+", "abba", 2, 2, 3, true},
		{"b+", "abba", 3, 0, 0, false},
		{"b+", "abba", 4, 0, 0, false},
		{"b+", "abba", 5, 0, 0, false},
		{"b+", "abba", -1, 0, 0, false},
		{"(?<=a)b", "ab", 1, 1, 2, true},
		{"(?<!a)b", "ab", 1, 0, 0, false},
		{"^b", "ab", 1, 0, 0, false},
		{`\Ab`, "ab", 1, 0, 0, false},
		{"$", "ab", 2, 2, 2, true},
		{"", "", 0, 0, 0, true},
	}
	for _, tt := range tests {
		re := mustCompile(t, tt.pattern)
		start, end, ok := re.Find([]byte(tt.text), tt.at)
		if start != tt.start || end != tt.end || ok != tt.ok {
			t.Errorf("%q.Find(%q, %d) = %d, %d, %v, want %d, %d, %v",
				tt.pattern, tt.text, tt.at, start, end, ok, tt.start, tt.end, tt.ok)
		}
	}
}

func TestAllStops(t *testing.T) {
	n := 0
	mustCompile(t, "a").All([]byte("aaaa"), func(int, int) bool {
		n++
		return n < 2
	})
	if n != 2 {
		t.Errorf("yield was called %d times, want 2", n)
	}
}

// TestMatcherAnyOrder searches from every position, in an order in which nothing that
// was found out before may be used, and compares with searches on their own.
func TestMatcherAnyOrder(t *testing.T) {
	text := []byte(strings.Repeat("aab ab", 60))
	for _, pattern := range []string{"(?:a*b)|a", "(?:a|aa)+b?$", "(?>a+|b)b|a", "(?=a*b)a", "a*(?:ab|b) "} {
		re := mustCompile(t, pattern)
		m := re.Matcher(text)
		for i := range text {
			at := i * 7919 % len(text)
			var got, want [3]any
			got[0], got[1], got[2] = m.Find(at)
			want[0], want[1], want[2] = re.Find(text, at)
			if got != want {
				t.Fatalf("%s from %d: got %v, want %v", pattern, at, got, want)
			}
		}
	}
}

func TestReset(t *testing.T) {
	m := mustCompile(t, "(?:a|aa)+b").Matcher([]byte("aaaa"))
	if _, _, ok := m.Find(0); ok {
		t.Error("match in aaaa")
	}
	m.Reset([]byte("aaab"))
	if start, end, ok := m.Find(1); !ok || start != 1 || end != 4 {
		t.Errorf("Find(1) in aaab = %d, %d, %v, want 1, 4, true", start, end, ok)
	}
}

func TestConcurrent(t *testing.T) {
	re := mustCompile(t, `(?i:'s)|\p{L}+(?=\s)|(?>\s+)|(?<=\d)\d|.`)
	text := strings.Repeat("It's 2025, Straße 12 ", 50)
	want := matches(re, text)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if got := matches(re, text); got != want {
					t.Error(cmp.Diff(want, got))
				}
			}
		})
	}
	wg.Wait()
}

func TestErrors(t *testing.T) {
	tests := []struct {
		pattern     string
		offset      int
		unsupported bool
		reason      string
	}{
		{`(a)\1`, 3, true, `back-reference \1`},
		{`(?<x>a)\k<x>`, 7, true, `back-reference \k<…`},
		{`(?<x>a)\g'x'`, 7, true, `subexpression call \g'…`},
		{`(?~ab)`, 0, true, "absent operator"},
		{`a(?(1)b|c)`, 1, true, "conditional"},
		{`(?{x})`, 0, true, "callout"},
		{`(*FAIL)`, 0, true, "callout"},
		{`ab\K`, 2, true, `\K`},
		{`\Ga`, 0, true, `\G`},
		{`\X`, 0, true, `\X`},
		{`\y`, 0, true, `\y`},
		{`(?L)a`, 2, true, "option L"},
		{`(?y{w})a`, 2, true, "option y"},
		{`\x{61 62}`, 0, true, "sequence"},
		{`[\xff]`, 1, true, "not UTF-8"},
		{`a\p{Emoji}`, 1, true, `property "Emoji"`},
		{`(?<=ab*)c`, 0, true, "look-behind of more than 255"},
		{`(?<=\R)a`, 4, true, `\R in a look-behind`},
		{`(?<=\b|a|bc?)d`, 4, true, "word boundary in a look-behind"},
		{`\b.*a`, 0, true, "assertion before .*"},
		{`\x{110000}`, 0, true, "110000"},
		{`(?:a{1000}){1000}`, 3, true, "too large"},
		{`(?:a|bc|){3000}d`, 0, true, "bits per character"},
		{strings.Repeat("(", 600) + strings.Repeat(")", 600), 500, true, "nesting"},
		{strings.Repeat("a", maxPattern+1), maxPattern, true, "pattern longer"},

		{`(a`, 1, false, "closing parenthesis"},
		{`a)`, 1, false, "closing parenthesis without"},
		{`*a`, 0, false, "quantifier without"},
		{`a|*`, 2, false, "quantifier without"},
		{`^*`, 1, false, "quantifier behind an assertion"},
		{`(?=a)*`, 5, false, "quantifier behind an assertion"},
		{`(?:^|a)+`, 7, false, "quantifier behind an assertion"},
		{`a{100001}`, 1, false, "repetition of more than"},
		{`[a`, 2, false, "closing bracket"},
		{`[]`, 0, false, "empty brackets"},
		{`[b-a]`, 3, false, "range that ends before"},
		{`[a-\d]`, 3, false, "range that ends with a class"},
		{`[\d-a]`, 3, false, "range that begins with a class"},
		{`[[:foo:]]`, 1, false, "[:foo:]"},
		{`\p{L`, 0, false, "closing brace"},
		{`\u12`, 0, false, "four hexadecimal digits"},
		{`\x{61`, 0, false, "closing brace"},
		{`\xe4a`, 0, false, "rest of a character"},
		{`a\`, 1, false, "backslash at the end"},
		{`\C`, 0, false, `\C without -`},
		{`(?s)a`, 2, false, "unknown group (?s"},
		{`a(?)`, 1, false, "group without options"},
		{`(?<1a>b)`, 0, false, "bad name"},
		{`(?#a`, 0, false, "comment"},
		{`(?<!(a))b`, 4, false, "not allowed in a look-behind"},
		{`(?<=(?=a))b`, 4, false, "not allowed in a look-behind"},
		{`(?<=a?b?)c`, 0, false, "may all be missing"},
		{"a\xff", 0, false, "invalid UTF-8"},
	}
	for _, tt := range tests {
		_, err := Compile(tt.pattern)
		var se *SyntaxError
		if !errors.As(err, &se) {
			t.Errorf("Compile(%.40q) = %v, want a *SyntaxError", tt.pattern, err)
			continue
		}
		if se.Offset != tt.offset || errors.Is(err, ErrUnsupported) != tt.unsupported || !strings.Contains(se.Reason, tt.reason) {
			t.Errorf("Compile(%.40q): %v; want offset %d, unsupported %v, reason with %q",
				tt.pattern, err, tt.offset, tt.unsupported, tt.reason)
		}
	}
}

// TestLinear runs patterns on texts for which plain backtracking takes quadratic or
// exponential time. Were they not linear, the test would not end.
func TestLinear(t *testing.T) {
	tests := []struct{ pattern, unit string }{
		{`(a*)*b`, "a"},
		{`(a|aa)+$`, "a"},
		{`((((a*)*)*)*)*b`, "a"},
		{`(x+x+)+y`, "x"},
		{`(?:.*.*)=`, "a"},
		{`a*b|a`, "a"},
		{`a*+b|c`, "a"},
		{`.*?b`, "a"},
		{`(?>(?:ab|a)*)c`, "ab"},
		{`(?>(?>a|b)*|x)*y`, "ab"},
		{`(?:(?>a+)|b)*c`, "a"},
		{`(?=.*x)a`, "a"},
		{`(?=(?:ab|a)*x)a`, "ab"},
		{`(?:a(?=(?:aa)*$))+b`, "a"},
		{`(?:a?){20}b`, "a"},
		{`(?:a(?!a*b)){3,}c`, "a"},
		{`(?<=a{1,20}b?)c|a`, "a"},
		{`\s*[\r\n]+|x`, " "},
		{`\s+(?!\S)|\s*\n`, " \u3000"},
	}
	for _, tt := range tests {
		re := mustCompile(t, tt.pattern)
		n := 0
		re.All([]byte(strings.Repeat(tt.unit, 100<<10/len(tt.unit))), func(int, int) bool {
			n++
			return true
		})
		t.Log(tt.pattern, n, "matches")
	}
}

// TestMemory checks that what is remembered of a long text is only that near the
// current position.
func TestMemory(t *testing.T) {
	text := bytes.Repeat([]byte("It's   a text, with\n\n  words and 1234 numbers. "), 1<<14)
	m := mustCompile(t, llama3).Matcher(text)
	for at := 0; ; {
		_, end, ok := m.Find(at)
		if !ok {
			break
		}
		at = end
	}
	pages := 0
	for _, mem := range m.memos {
		pages += len(mem.pages) + len(mem.free)
	}
	if pages > 8 || cap(m.stack) > 64 {
		t.Errorf("%d pages and a stack of %d after a text of %d KB", pages, cap(m.stack), len(text)>>10)
	}
}

func TestNoAllocations(t *testing.T) {
	text := bytes.Repeat([]byte("It's   a text, with\n\n  words and 1234 numbers. "), 100)
	m := mustCompile(t, llama3).Matcher(text)
	n := testing.AllocsPerRun(5, func() {
		m.Reset(text)
		for at := 0; ; {
			_, end, ok := m.Find(at)
			if !ok {
				break
			}
			at = end
		}
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}

const llama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

func BenchmarkAll(b *testing.B) {
	texts := map[string]string{
		"english": "The quick brown fox doesn't jump over the lazy dog; it has 1,234 other things to do.\n",
		"code":    "func (m *Matcher) Find(at int) (start, end int, ok bool) {\n\tif at < 0 {\n\t\treturn 0, 0, false\n\t}\n}\n",
		"cjk":     "日本語のテキスト、中文字符。한국어 문장도 있다。\n",
		"spaces":  "                                \t\n",
	}
	re := mustCompile(b, llama3)
	for name, unit := range texts {
		b.Run(name, func(b *testing.B) {
			text := bytes.Repeat([]byte(unit), 1000)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				re.All(text, func(int, int) bool { return true })
			}
		})
	}
}

func ExampleRegexp_All() {
	re, err := Compile(`\p{L}+|\p{N}{1,3}|[^\s\p{L}\p{N}]+`)
	if err != nil {
		panic(err)
	}
	text := []byte("Größe: 12345 mm")
	re.All(text, func(start, end int) bool {
		fmt.Printf("%q ", text[start:end])
		return true
	})
	// Output: "Größe" ":" "123" "45" "mm"
}
