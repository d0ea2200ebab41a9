package normal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// parseText parses a normalizer that must be right.
func parseText(t testing.TB, spec string) Normalizer {
	t.Helper()
	n, err := Parse([]byte(spec))
	if err != nil {
		t.Fatalf("Parse(%.200s): %v", spec, err)
	}
	return n
}

// apply normalizes a text. It fails the test if the normalizer writes to the text
// or if the result depends on the buffer that it may use.
func apply(t testing.TB, n Normalizer, text string) string {
	t.Helper()
	if n == nil {
		return text
	}
	src := []byte(text)
	got := string(n.Normalize(nil, src))
	dirty := bytes.Repeat([]byte{0xAA}, 3*len(src)+1)
	if again := string(n.Normalize(dirty[:len(src)/2], src)); again != got {
		t.Errorf("Normalize(%+q) = %+q, with a buffer %+q", text, got, again)
	}
	if string(src) != text {
		t.Errorf("Normalize(%+q) wrote to its input: %+q", text, src)
	}
	return got
}

const (
	bertUncased = `{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":true}`
	bertCased   = `{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":false,"lowercase":false}`
	gemma       = `{"type":"Replace","pattern":{"String":" "},"content":"▁"}`
	llama       = `{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]}`
)

func TestVectors(t *testing.T) {
	form := func(name string) string { return `{"type":"` + name + `"}` }
	for _, tt := range []struct{ name, spec, in, want string }{
		{"NFC composes", form("NFC"), "e\u0301", "é"},
		{"NFC two marks", form("NFC"), "e\u0301\u0323", "\u1EB9\u0301"},
		{"NFC blocked", form("NFC"), "e\u0302\u0301\u0301", "ế\u0301"},
		{"NFC starter between", form("NFC"), "e\u200D\u0301", "e\u200D\u0301"},
		{"NFC excluded", form("NFC"), "\u0958", "\u0915\u093C"},
		{"NFC singleton", form("NFC"), "\u212B\u2126", "\u00C5\u03A9"},
		{"NFC mark first", form("NFC"), "\u0301e", "\u0301e"},
		{"NFC Hangul", form("NFC"), "\u1112\u1161\u11AB\u1100\u1173\u11AF", "한글"},
		{"NFC syllable and trailing consonant", form("NFC"), "하\u11AB", "한"},
		{"NFC no trailing consonant", form("NFC"), "하\u11A7", "하\u11A7"},
		{"NFC mark of Unicode 13 is a starter", form("NFC"), "e\u1ABF\u0301", "e\u1ABF\u0301"},
		{"NFC mark of Unicode 7 is none", form("NFC"), "e\u1AB5\u0301", "é\u1AB5"},
		{"NFC pair of Unicode 13", form("NFC"), "\U00011935\U00011930", "\U00011935\U00011930"},
		{"NFC no joiner in long runs", form("NFC"), "e" + strings.Repeat("\u0316", 40) + "\u0301", "é" + strings.Repeat("\u0316", 40)},
		{"NFD", form("NFD"), "ế한", "e\u0302\u0301\u1112\u1161\u11AB"},
		{"NFD letter of Unicode 13", form("NFD"), "\U00011938", "\U00011938"},
		{"NFKC", form("NFKC"), "ﬁ①ｶﾞ\u00A0", "fi1ガ "},
		{"NFKC character of Unicode 12", form("NFKC"), "\u32FF", "\u32FF"},
		{"NFKD", form("NFKD"), "ﷺ", "\u0635\u0644\u0649 \u0627\u0644\u0644\u0647 \u0639\u0644\u064A\u0647 \u0648\u0633\u0644\u0645"},
		{"Lowercase", form("Lowercase"), "ÀΣ ΑΣ ẞ", "àσ ασ ß"},
		{"Lowercase dotted I", form("Lowercase"), "İI", "i\u0307i"},
		{"Lowercase of Unicode 17", form("Lowercase"), "\U00016EA0\uA7DC", "\U00016EBB\u019B"},
		{"StripAccents leaves composites", form("StripAccents"), "ée\u0301\u0903", "ée"},
		{"StripAccents leaves later marks", form("StripAccents"), "e\u1ABF", "e\u1ABF"},
		{"Strip", `{"type":"Strip","strip_left":true,"strip_right":true}`, "\u00A0\u3000 a b\u2028\n", "a b"},
		{"Strip left", `{"type":"Strip","strip_left":true,"strip_right":false}`, " a ", "a "},
		{"Strip everything", `{"type":"Strip","strip_left":true,"strip_right":true}`, " \t", ""},
		{"Strip keeps zero width", `{"type":"Strip","strip_left":true,"strip_right":true}`, "\u200Ba\uFEFF", "\u200Ba\uFEFF"},
		{"Prepend", `{"type":"Prepend","prepend":"▁"}`, "a", "▁a"},
		{"Prepend to nothing", `{"type":"Prepend","prepend":"▁"}`, "", ""},
		{"Gemma", gemma, " a  bc ", "▁a▁▁bc▁"},
		{"Llama 2", llama, "a b", "▁a▁b"},
		{"Llama 2 nothing", llama, "", ""},
		{"Replace is literal", `{"type":"Replace","pattern":{"String":"a.c"},"content":"$0"}`, "abc a.c", "abc $0"},
		{"Replace nothing", `{"type":"Replace","pattern":{"String":""},"content":"-"}`, "añ", "-a-ñ-"},
		{"Replace regex", `{"type":"Replace","pattern":{"Regex":" {2,}"},"content":"▁"}`, "a  b c   ", "a▁b c▁"},
		{"Replace empty matches", `{"type":"Replace","pattern":{"Regex":"a*"},"content":"x"}`, "baac", "xbxcx"},
		{"Nmt", form("Nmt"), "a\u0001\u200Bb\u008F\u2581c", "a b c"},
		{"ByteLevel", form("ByteLevel"), "aé \n\u00AD", "aÃ©ĠĊÂŃ"},
		{"Bert uncased", bertUncased, "Héllo\tWörld\u0000!", "hello world!"},
		{"Bert cased", bertCased, "Héllo\u0085", "Héllo"},
		{"Bert Chinese", bertCased, "a中\u3042\U00020000\uA000", "a 中 \u3042 \U00020000 \uA000"},
		{"Bert keeps unassigned", bertCased, "a\u0378\uFDD0\uE000\u200D", "a\u0378\uFDD0"},
		{"Bert spaces", bertCased, "\u3000\u2028\r\n\u000B", "    "},
		{"bytes that are not UTF-8", form("NFC"), "\xFFe\u0301\xE4\xB8\xCC\x81\xF0\x9F", "\xFFé\xE4\xB8\u0301\xF0\x9F"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := apply(t, parseText(t, tt.spec), tt.in); got != tt.want {
				t.Errorf("Normalize(%+q)\n got %+q\nwant %+q", tt.in, got, tt.want)
			}
		})
	}
}

// lines calls f for every line of a file of testdata, read into a T.
func lines[T any](t *testing.T, name string, f func(T)) {
	t.Helper()
	file, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	n := 0
	s := bufio.NewScanner(file)
	s.Buffer(nil, 1<<20)
	for ; s.Scan(); n++ {
		var v T
		if err := json.Unmarshal(s.Bytes(), &v); err != nil {
			t.Fatalf("%s:%d: %v", name, n+1, err)
		}
		f(v)
	}
	if err := s.Err(); err != nil || n == 0 {
		t.Fatalf("%s: %d lines, %v", name, n, err)
	}
}

// The files of testdata are what the tokenizers library says; golden.py made them.

func TestGolden(t *testing.T) {
	type line struct {
		Normalizer json.RawMessage
		Rows       [][2]string
	}
	lines(t, "golden.jsonl", func(l line) {
		n := parseText(t, string(l.Normalizer))
		for _, row := range l.Rows {
			if got := apply(t, n, row[0]); got != row[1] {
				t.Errorf("%.120s\n  in %+q\n got %+q\nwant %+q", l.Normalizer, row[0], got, row[1])
			}
		}
	})
}

// TestBlocks normalizes every code point with properties in some surroundings.
func TestBlocks(t *testing.T) {
	const size = 0x1000
	texts := make(map[string][]byte)
	text := func(block string) []byte {
		if texts[block] == nil {
			first, err := strconv.ParseUint(block, 16, 21)
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			for r := rune(first); r < rune(first)+size; r++ {
				if utf8.ValidRune(r) {
					c := string(r)
					b.WriteString(c + "|e\u0323" + c + "\u0316\u0301|" + c + "a\u0915" + c + "\u200d" + c + "\u0301\n")
				}
			}
			texts[block] = b.Bytes()
		}
		return texts[block]
	}
	type line struct {
		Normalizer json.RawMessage
		CRC32      map[string]string
	}
	lines(t, "blocks.jsonl", func(l line) {
		n := parseText(t, string(l.Normalizer))
		var dst []byte
		for block, want := range l.CRC32 {
			if raceEnabled && len(block) > 4 {
				continue // nothing here is concurrent; the BMP has to do
			}
			src := text(block)
			out := n.Normalize(dst, src)
			if got := fmt.Sprintf("%08x", crc32.ChecksumIEEE(out)); got != want {
				t.Errorf("%.60s: differs in the %d code points from U+%s on", l.Normalizer, size, block)
			}
			if !same(out, src) {
				dst = out
			}
		}
	})
}

func TestParseNothing(t *testing.T) {
	for _, spec := range []string{
		"", " ", "null", " null\n", `{"type":"Sequence","normalizers":[]}`,
		`{"type":"Sequence","normalizers":[{"type":"Sequence","normalizers":[]}]}`,
		`{"type":"Prepend","prepend":""}`, `{"type":"Strip","strip_left":false,"strip_right":false}`,
		`{"type":"BertNormalizer","clean_text":false,"handle_chinese_chars":false,"lowercase":false}`,
	} {
		if n := parseText(t, spec); n != nil {
			t.Errorf("Parse(%q) = %T, want nil", spec, n)
		}
	}
}

func TestParseErrors(t *testing.T) {
	deep := strings.Repeat(`{"type":"Sequence","normalizers":[`, 40) + strings.Repeat(`]}`, 40)
	for _, tt := range []struct{ spec, want string }{
		{`[]`, "normalizer: expected an object"},
		{`"NFC"`, "normalizer: expected an object"},
		{`{`, "normalizer: expected an object"},
		{`{}`, "normalizer: type: missing, expected a string"},
		{`{"Type":"NFC"}`, "normalizer: type: missing, expected a string"},
		{`{"type":null}`, "normalizer: type: expected a string, found null"},
		{`{"type":3}`, "normalizer: type: expected a string: "},
		{`{"type":"Metaspace"}`, "normalizer: Metaspace: type of normalizer not supported"},
		{`{"type":"Sequence"}`, "normalizer: normalizers: missing, expected a list"},
		{`{"type":"Sequence","normalizers":[{"type":"NFC"},null]}`, "normalizer: normalizers[1]: expected an object, found null"},
		{`{"type":"Sequence","normalizers":[{"type":"Strip"}]}`, "normalizer: normalizers[0]: Strip: strip_left: missing, expected a boolean"},
		{deep, "sequences nested more than 32 deep"},
		{`{"type":"Strip","strip_left":true,"strip_right":"no"}`, "normalizer: Strip: strip_right: expected a boolean: "},
		{`{"type":"Prepend"}`, "normalizer: Prepend: prepend: missing, expected a string"},
		{`{"type":"Replace","pattern":{"String":"a"}}`, "normalizer: Replace: content: missing, expected a string"},
		{`{"type":"Replace","content":"a"}`, "normalizer: Replace: pattern: missing, expected an object"},
		{`{"type":"Replace","pattern":"a","content":""}`, "normalizer: Replace: pattern: expected an object: "},
		{`{"type":"Replace","pattern":{},"content":""}`, "normalizer: Replace: pattern: expected one of String and Regex, found 0 members"},
		{`{"type":"Replace","pattern":{"Char":"a"},"content":""}`, "normalizer: Replace: pattern: expected String or Regex"},
		{`{"type":"Replace","pattern":{"String":1},"content":""}`, "normalizer: Replace: pattern: String: expected a string: "},
		{`{"type":"Replace","pattern":{"Regex":"a("},"content":""}`, "normalizer: Replace: pattern: Regex: "},
		{`{"type":"BertNormalizer"}`, "normalizer: BertNormalizer: clean_text: missing, expected a boolean"},
		{`{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":1,"lowercase":true}`, "normalizer: BertNormalizer: strip_accents: expected a boolean: "},
		{`{"type":"Precompiled"}`, "normalizer: Precompiled: precompiled_charsmap: missing, expected a string"},
		{`{"type":"Precompiled","precompiled_charsmap":null}`, "normalizer: Precompiled: precompiled_charsmap: expected a string, found null"},
		{`{"type":"Precompiled","precompiled_charsmap":"!!"}`, "normalizer: Precompiled: precompiled_charsmap: illegal base64 data"},
		{`{"type":"Precompiled","precompiled_charsmap":""}`, "normalizer: Precompiled: precompiled_charsmap: 0 bytes, expected the length of a trie"},
		{`{"type":"Precompiled","precompiled_charsmap":"CAAAAAAAAAA="}`, "normalizer: Precompiled: precompiled_charsmap: trie of 8 bytes, expected a multiple of 4 and at most 4"},
		{`{"type":"Precompiled","precompiled_charsmap":"AAAAAP8="}`, "normalizer: Precompiled: precompiled_charsmap: replacements are not UTF-8"},
	} {
		_, err := Parse([]byte(tt.spec))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Parse(%.100s)\n got %v\nwant %s", tt.spec, err, tt.want)
		}
	}
}

// TestUnchanged: a text in form comes back as it is, and costs no memory.
func TestUnchanged(t *testing.T) {
	const text = "Plain text, ünïcödé, Tất cả, 中文かな한글 с ударе\u0301нием और हिन्दी"
	for _, tt := range []struct{ spec, text string }{
		{`{"type":"NFC"}`, text},
		{`{"type":"NFC"}`, "q\u0316\u0301\u0301 q\u0323\u0301"},
		{`{"type":"NFD"}`, "a\u0316\u0301 中文 u\u0308"},
		{`{"type":"NFKC"}`, text},
		{`{"type":"NFKD"}`, "a\u0316\u0301 中文 u\u0308"},
		{`{"type":"Lowercase"}`, strings.ToLower(text)},
		{`{"type":"StripAccents"}`, "é中文"},
		{`{"type":"Strip","strip_left":true,"strip_right":true}`, text},
		{`{"type":"Nmt"}`, text},
		{`{"type":"ByteLevel"}`, "visible"},
		{gemma, "no-space"},
		{`{"type":"Replace","pattern":{"String":"xyz"},"content":""}`, text},
		{bertUncased, "hello world, это кот"},
		{precompiledSpec(map[string]string{"z": "s", "\u0302": ""}), text},
	} {
		n := parseText(t, tt.spec)
		src := []byte(tt.text)
		if got := n.Normalize(nil, src); !same(got, src) {
			t.Errorf("%.60s: Normalize(%+q) = %+q, want the input itself", tt.spec, tt.text, got)
		}
		if raceEnabled {
			continue
		}
		if allocs := testing.AllocsPerRun(100, func() { n.Normalize(nil, src) }); allocs != 0 {
			t.Errorf("%.60s: %v allocations for a text in form", tt.spec, allocs)
		}
	}
}

// TestReuse: with a buffer of the right size there is nothing to allocate, and
// the result is in the buffer.
func TestReuse(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector drops pooled buffers at random")
	}
	src := []byte("  Cafe\u0301 中 ")
	for _, spec := range []string{
		`{"type":"NFC"}`, `{"type":"NFD"}`, `{"type":"Lowercase"}`, `{"type":"ByteLevel"}`, gemma, llama, bertUncased,
		`{"type":"Strip","strip_left":true,"strip_right":true}`, precompiledSpec(map[string]string{"C": "see"}),
	} {
		n := parseText(t, spec)
		dst := make([]byte, 0, 256)
		var out []byte
		if allocs := testing.AllocsPerRun(100, func() { out = n.Normalize(dst, src) }); allocs != 0 {
			t.Errorf("%.60s: %v allocations", spec, allocs)
		}
		if len(out) > 0 && !same(src, out) && &out[0] != &dst[:1][0] {
			t.Errorf("%.60s: result is not in the buffer", spec)
		}
	}
}

// TestLongRuns: texts that are a single segment, too long for anything that is
// not linear.
func TestLongRuns(t *testing.T) {
	const n = 100_000
	for _, tt := range []struct {
		name     string
		form     form
		in, want string
	}{
		{"two classes", nfc, strings.Repeat("\u0301\u0323", n), strings.Repeat("\u0323", n) + strings.Repeat("\u0301", n)},
		{"on a letter", nfc, "a" + strings.Repeat("\u0301\u0323", n), "\u1EA1" + strings.Repeat("\u0323", n-1) + strings.Repeat("\u0301", n)},
		{"backwards", nfd, "a" + strings.Repeat("\u0301", n) + strings.Repeat("\u0334", n), "a" + strings.Repeat("\u0334", n) + strings.Repeat("\u0301", n)},
		{"decomposing letters", nfc, strings.Repeat("\u0958", n), strings.Repeat("\u0915\u093C", n)},
		{"vowels", nfc, strings.Repeat("\u1161", n), strings.Repeat("\u1161", n)},
		{"syllables", nfc, strings.Repeat("\u1100\u1161\u11A8", n), strings.Repeat("각", n)},
		{"phrases", nfkd, strings.Repeat("\uFDFB", n/10), strings.Repeat("\u062C\u0644 \u062C\u0644\u0627\u0644\u0647", n/10)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(tt.form.Normalize(nil, []byte(tt.in))); got != tt.want {
				t.Errorf("got %d bytes, want %d; first difference at %d", len(got), len(tt.want), difference(got, tt.want))
			}
		})
	}
}

// difference returns the first index at which two texts differ.
func difference(a, b string) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	return i
}

// TestConcurrent: a normalizer is shared by all requests.
func TestConcurrent(t *testing.T) {
	n := parseText(t, `{"type":"Sequence","normalizers":[{"type":"NFD"},{"type":"StripAccents"},`+llama+`,`+bertUncased+`]}`)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			var dst []byte
			for i := range 500 {
				in := strings.Repeat(fmt.Sprintf("É%d 中 ", g), i%7+1)
				want := strings.Repeat(fmt.Sprintf("e%d▁ 中 ▁", g), i%7+1)
				dst = n.Normalize(dst, []byte(in))
				if diff := cmp.Diff("▁"+want, string(dst)); diff != "" {
					t.Errorf("Normalize(%q) (-want +got):\n%s", in, diff)
					return
				}
			}
		})
	}
	wg.Wait()
}
