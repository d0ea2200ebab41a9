package oracletest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Texts makes random texts that are likely to bring differences between tokenizers
// to light. The same source makes the same texts. It is not safe for concurrent
// use.
type Texts struct {
	rng      *rand.Rand
	specials []string
	b        strings.Builder
}

// NewTexts returns a source of texts, in which the specials, the spellings of a
// tokenizer's added tokens, occur now and then.
func NewTexts(seed uint64, specials []string) *Texts {
	return &Texts{rng: rand.New(rand.NewPCG(seed, 0)), specials: specials}
}

// Next returns a text: most have up to 200 characters and many are much shorter,
// one in two thousand has 5000. Half of them are of one flavour, the others change
// it every few characters.
func (t *Texts) Next() string {
	u := t.rng.Float64()
	n := int(200 * u * u * u)
	if t.rng.IntN(2000) == 0 {
		n = 5000
	}
	t.b.Reset()
	flavour := t.flavour()
	mixed := t.rng.IntN(2) == 0
	for left := n; left > 0; {
		before := t.b.Len()
		if mixed && t.rng.IntN(3) == 0 {
			flavour = t.flavour()
		}
		flavour(t)
		left -= max(1, utf8.RuneCountInString(t.b.String()[before:]))
	}
	// The last word may have gone beyond the end.
	text := t.b.String()
	for i := range text {
		if n == 0 {
			return text[:i]
		}
		n--
	}
	return text
}

func (t *Texts) flavour() func(*Texts) { return flavours[t.rng.IntN(len(flavours))] }

// flavours each write a little: a character, a word, a run.
var flavours = []func(*Texts){
	(*Texts).words, (*Texts).words, (*Texts).code, (*Texts).code, (*Texts).space, (*Texts).digits, (*Texts).cjk, (*Texts).hangul,
	(*Texts).emoji, (*Texts).combining, (*Texts).newLetters, (*Texts).cased, (*Texts).controls, (*Texts).markup, (*Texts).special,
	(*Texts).special, (*Texts).contraction, (*Texts).pieces, (*Texts).punctuation, (*Texts).any, (*Texts).repeat,
}

// pick returns one of some strings.
func (t *Texts) pick(of ...string) string { return of[t.rng.IntN(len(of))] }

// within returns a code point of one of some ranges, which come in pairs.
func (t *Texts) within(pairs ...rune) rune {
	i := 2 * t.rng.IntN(len(pairs)/2)
	return pairs[i] + t.rng.Int32N(pairs[i+1]-pairs[i]+1)
}

// of returns a code point of a table.
func (t *Texts) of(table *unicode.RangeTable) rune {
	if n := len(table.R16); n > 0 && (len(table.R32) == 0 || t.rng.IntN(3) > 0) {
		r := table.R16[t.rng.IntN(n)]
		return rune(r.Lo) + rune(r.Stride)*t.rng.Int32N(rune(r.Hi-r.Lo)/rune(r.Stride)+1)
	}
	r := table.R32[t.rng.IntN(len(table.R32))]
	return rune(r.Lo) + rune(r.Stride)*t.rng.Int32N(rune((r.Hi-r.Lo)/r.Stride)+1)
}

// run writes up to n of what next returns.
func (t *Texts) run(n int, next func() rune) {
	for range 1 + t.rng.IntN(n) {
		t.b.WriteRune(next())
	}
}

const common = "the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which one you were " +
	"her all she there would their we him been has when who will more no if out so said what up its about into than them can only other " +
	"Tokenization Internationalization strawberry Größenwahn naïve façade Привет мир здравствуйте января Ελληνικά γλώσσα עברית العربية हिन्दी ไทย Tiếng Việt İstanbul ǅ ŉ ﬁ"

var commonWords = strings.Fields(common)

func (t *Texts) words() {
	if t.rng.IntN(8) > 0 {
		t.b.WriteByte(' ')
	}
	switch t.rng.IntN(6) {
	case 0:
		t.run(12, func() rune { return 'a' + t.rng.Int32N(26) })
	case 1:
		t.run(6, func() rune { return 'A' + t.rng.Int32N(26) })
	default:
		word := t.pick(commonWords...)
		switch t.rng.IntN(5) {
		case 0:
			word = strings.ToUpper(word)
		case 1:
			first, n := utf8.DecodeRuneInString(word)
			word = string(unicode.ToUpper(first)) + word[n:]
		}
		t.b.WriteString(word)
	}
	if t.rng.IntN(5) == 0 {
		t.b.WriteString(t.pick(".", ",", "!", "?", ";", ": ", "...", "\n", ".\n\n", " -", "\"", ")", "’s", "'s"))
	}
}

func (t *Texts) code() {
	t.b.WriteString(t.pick("func ", "return", "if (", ") {\n", "}\n", "\t", "    ", "        ", "\n\n", "// ", "/* ", " */", "#include <", "==", "!=", "=>",
		"->", "::", "x", "i++", "self.", "0x1F", "3.14e-10", "\"str\"", "'c'", "[]", "{}", "();\n", "&&", "||", "\\n", "\r\n", "camelCase", "snake_case",
		"HTTPServer", "</div>\n", "/usr/local/bin", "https://a.b/c?d=e&f=g#h", "a/b", "/\n/", "!\n\n", "$PATH", "@decorator\n", "`", "```go\n", "<<<<", "~/.x", "%d%%"))
}

func (t *Texts) space() {
	switch t.rng.IntN(4) {
	case 0:
		t.run(8, func() rune { return ' ' })
	case 1:
		t.run(6, func() rune { return []rune(" \t\n\r")[t.rng.IntN(4)] })
	case 2:
		t.run(5, func() rune { return t.of(unicode.White_Space) })
	default:
		r := []rune("\n\t ▁")[t.rng.IntN(4)]
		t.run(40, func() rune { return r })
	}
	t.b.WriteString(t.pick("", "", "x", "/", "1", "!", "中", "\u200b", "\ufeff", "\u180e"))
}

func (t *Texts) digits() {
	switch t.rng.IntN(5) {
	case 0, 1:
		t.run(9, func() rune { return '0' + t.rng.Int32N(10) })
	case 2:
		t.run(5, func() rune { return t.of(unicode.Nd) })
	case 3:
		t.run(5, func() rune { return t.of(unicode.N) })
	default:
		t.run(4, func() rune {
			return t.within(0x10D40, 0x10D49, 0x116D0, 0x116E3, 0x11BF0, 0x11BF9, 0x16130, 0x16139, 0x16D70, 0x16D79, 0x1CCF0, 0x1CCF9, 0x1E5F1, 0x1E5FA)
		})
	}
	t.b.WriteString(t.pick("", "", " ", ".", ",", "th", "½", "²", "Ⅷ"))
}

func (t *Texts) cjk() {
	t.run(6, func() rune {
		return t.within(0x4E00, 0x9FFF, 0x4E00, 0x9FA5, 0x3040, 0x309F, 0x30A0, 0x30FF, 0x3000, 0x303F, 0xFF00, 0xFFEF, 0x3400, 0x4DBF,
			0x20000, 0x2A6DF, 0x2EBF0, 0x2EE5D, 0xF900, 0xFAFF, 0x2F800, 0x2FA1F, 0x31F0, 0x31FF, 0x9FA4, 0x9FA7)
	})
	t.b.WriteString(t.pick("", "", "", " ", "。", "，", "的", "是", "日本語", "a"))
}

func (t *Texts) hangul() {
	t.run(4, func() rune {
		return t.within(0xAC00, 0xD7A3, 0xAC00, 0xD7A3, 0x1100, 0x1112, 0x1161, 0x1175, 0x11A8, 0x11C2, 0x1100, 0x11FF, 0xA960, 0xA97C)
	})
}

func (t *Texts) emoji() {
	t.b.WriteRune(t.within(0x1F300, 0x1FAFF, 0x1F600, 0x1F64F, 0x2600, 0x27BF, 0x1F1E6, 0x1F1FF))
	t.b.WriteString(t.pick("", "", "\ufe0f", "\u200d", "\U0001f3fd", "\U0001f3fd\u200d♂\ufe0f", "\u20e3", "\U000e0067\U000e007f", "🏳️‍🌈", "👨‍👩‍👧‍👦", "🇩🇪", "1️⃣", "a", " "))
}

func (t *Texts) combining() {
	t.b.WriteString(t.pick("a", "e", "E", "o", " ", "", "é", "ẛ", "中", "א", "ب", "क", "ก", "가", "Å", "Ω", "1", "'", "\n"))
	n := 3
	if t.rng.IntN(10) == 0 {
		n = 45
	}
	t.run(n, func() rune {
		switch t.rng.IntN(5) {
		case 0, 1:
			return t.within(0x300, 0x36F)
		case 2:
			// Marks that are younger than the library's normalizer.
			return t.within(0x7FD, 0x7FD, 0x898, 0x89F, 0x8CA, 0x8D3, 0x1ABF, 0x1ACE, 0x1DF6, 0x1DFA, 0x10F46, 0x10F50, 0x11D44, 0x11D45, 0x1E130, 0x1E136, 0x1E4EC, 0x1E4EF)
		case 3:
			return t.within(0x897, 0x897, 0x10D69, 0x10D6D, 0x10EFC, 0x10EFC, 0x113B8, 0x113C0, 0x113CC, 0x113D0, 0x1611E, 0x1612F, 0x1E5EE, 0x1E5EF)
		}
		return t.of(unicode.M)
	})
}

// newLetters are the letters of Unicode 16, which Go does not know.
func (t *Texts) newLetters() {
	t.run(4, func() rune {
		return t.within(0x1C89, 0x1C8A, 0xA7CB, 0xA7CD, 0xA7DA, 0xA7DC, 0x105C0, 0x105F3, 0x10D4A, 0x10D65, 0x10D6F, 0x10D85, 0x10EC2, 0x10EC4, 0x11380, 0x113B7,
			0x113D1, 0x113D8, 0x11BC0, 0x11BE1, 0x13460, 0x143FA, 0x16100, 0x1611D, 0x16D40, 0x16D6F, 0x18CFF, 0x18CFF, 0x1E5D0, 0x1E5FF, 0x2427, 0x2429, 0x2FFC, 0x2FFF,
			0x31E4, 0x31EF, 0x1CC00, 0x1CEB3, 0x1F8B2, 0x1F8C1, 0x1FA89, 0x1FAE9, 0x1B4E, 0x1B4F)
	})
	t.b.WriteString(t.pick("", " ", "a", "A", "1", "'s"))
}

func (t *Texts) cased() {
	tables := []*unicode.RangeTable{unicode.Lu, unicode.Ll, unicode.Lt, unicode.Lm, unicode.Lo, unicode.M}
	t.run(6, func() rune {
		switch t.rng.IntN(4) {
		case 0:
			return 'A' + t.rng.Int32N(26)
		case 1:
			return 'a' + t.rng.Int32N(26)
		}
		return t.of(tables[t.rng.IntN(len(tables))])
	})
	t.b.WriteString(t.pick("", "", " ", "'S", "中", "\u0301"))
}

func (t *Texts) controls() {
	t.run(3, func() rune {
		return t.within(0, 0x1F, 0x7F, 0x9F, 0, 0, 0xAD, 0xAD, 0x200B, 0x200F, 0x202A, 0x202E, 0x2060, 0x206F, 0xFEFF, 0xFEFF, 0xFFF9, 0xFFFD, 0xE000, 0xE010, 0xE0001, 0xE007F,
			0xFFFE, 0xFFFF, 0x378, 0x379, 0x10FFFE, 0x10FFFF, 0xF0000, 0xF0010)
	})
	t.b.WriteString(t.pick("", "", "a", " ", "\n"))
}

func (t *Texts) markup() {
	t.b.WriteString(t.pick("<td>", "</td>", "<b>", "</b>", "<s>", "</s>", "<table>\n", "> </", "> </b", "<h1>", "<", ">", "</", "<unused7>", "<pad>", "<unk>", "<bos>", "<mask>",
		"{\"a\": 1}", "**bold**", "# Title\n", "- item\n", "| a | b |\n", "&amp;", "<!-- ", " -->", "<think>", "</think>\n\n", "[INST]", "[/INST]", "<tool_call>\n", "<|", "|>", "<｜", "｜>"))
}

// special writes the spelling of an added token, or a part of one, or two of them
// into each other.
func (t *Texts) special() {
	if len(t.specials) == 0 {
		t.markup()
		return
	}
	s := t.pick(t.specials...)
	if t.rng.IntN(3) > 0 { // most lists are full of reserved ones
		s = t.pick(t.specials[:min(24, len(t.specials))]...)
	}
	switch t.rng.IntN(6) {
	case 0:
		t.b.WriteString(t.fragment(s))
	case 1:
		t.b.WriteString(t.fragment(s) + s)
	case 2:
		t.b.WriteString(t.pick(" ", "  ", "\n", "\t") + s + t.pick(" ", "  ", "\n", "\t"))
	case 3:
		t.b.WriteString(s + s)
	default:
		t.b.WriteString(s)
	}
}

// fragment returns a part of a string.
func (t *Texts) fragment(s string) string {
	r := []rune(s)
	from := t.rng.IntN(len(r) + 1)
	to := from + t.rng.IntN(len(r)-from+1)
	return string(r[from:to])
}

func (t *Texts) contraction() {
	t.b.WriteString(t.pick("I", "x", "don", "", " ", "X", "中", "1", "é", "\u0301", "'", "I'"))
	t.b.WriteString(t.pick("'", "'", "'", "’", " '"))
	t.b.WriteString(t.pick("s", "t", "re", "ve", "m", "ll", "d", "S", "T", "RE", "Ve", "vE", "M", "LL", "lL", "D", "ſ", "ſ", "ſx", "K", "l", "r", "v", "x", "sx", "llx", ""))
}

// pieces are what vocabularies spell in a way of their own.
func (t *Texts) pieces() {
	switch t.rng.IntN(4) {
	case 0:
		t.b.WriteString(fmt.Sprintf("<0x%02X>", t.rng.IntN(256)))
	case 1:
		t.run(4, func() rune { return '▁' })
	case 2:
		t.b.WriteString(t.pick("▁the", "a▁b", ">▁</", "▁</", "> </", "Ġ", "Ċ", "ĠĠ", "##ing", "</w>", "<0x", "<0xZZ>", "▁▁▁▁ "))
	default:
		t.b.WriteRune(0x100 + t.rng.Int32N(68)) // as which bytes are written
	}
}

func (t *Texts) punctuation() {
	switch t.rng.IntN(3) {
	case 0:
		t.run(6, func() rune { return t.of(unicode.P) })
	case 1:
		t.run(4, func() rune { return t.of(unicode.S) })
	default:
		t.run(6, func() rune { return rune("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"[t.rng.IntN(32)]) })
	}
	t.b.WriteString(t.pick("", "", "\n", "\r\n", "/", "a", "B", " ", "1"))
}

// any writes any characters at all.
func (t *Texts) any() {
	t.run(4, func() rune {
		r := t.within(0, 0x7FF, 0x800, 0xFFFF, 0x10000, 0x1FFFF, 0x10000, 0x10FFFF)
		if utf8.ValidRune(r) {
			return r
		}
		return utf8.RuneError
	})
}

// repeat writes the same a number of times.
func (t *Texts) repeat() {
	s := t.pick("a", "ab", "=", "-", "\n", " ", "0", "12", "中", "😀", "\u0301", "!", "/", "A", "xyz ", "▁", "\t", "ſ", "'s", "的", "....", "#", "é")
	for range 1 + t.rng.IntN(70) {
		t.b.WriteString(s)
	}
}
