package onig

import (
	"testing"
	"unicode/utf8"
)

// FuzzAll checks of any pattern and text that nothing panics or hangs, that matches
// lie in the text, in order, and between characters, and that searches which remember
// nothing find the same.
func FuzzAll(f *testing.F) {
	for _, p := range []string{
		llama3, `(a*)*b`, `(?>a|ab)*+c`, `(?=(?:a|b)*c)[^\s\p{L}&&[a-z]]`, `(?i)(?<=ss?)ß{2,3}?`,
		`(?x) (?<n> \R ) | [[:^alpha:]\x{4e2d}-\u4eff] # c`, `(?:|a){2,}?(?!b)\b$`, `a{3,1}(?<!x|yz)`,
	} {
		f.Add(p, "aab It's\r\n 12345 ßss 中文\xff")
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if len(text) > 1<<10 {
			text = text[:1<<10]
		}
		re, err := Compile(pattern)
		if err != nil {
			return
		}
		valid := utf8.ValidString(text)
		last := 0
		re.All([]byte(text), func(start, end int) bool {
			if start < last || end < start || end > len(text) {
				t.Fatalf("%q on %q: match %d-%d behind %d", pattern, text, start, end, last)
			}
			if valid && (!boundary(text, start) || !boundary(text, end)) {
				t.Fatalf("%q on %q: match %d-%d within a character", pattern, text, start, end)
			}
			if s, e, ok := re.Find([]byte(text), start); !ok || s != start || e != end {
				t.Fatalf("%q on %q: match %d-%d, alone %d-%d, %v", pattern, text, start, end, s, e, ok)
			}
			last = end
			return true
		})
	})
}

func boundary(text string, at int) bool { return at == len(text) || utf8.RuneStart(text[at]) }
