package jinja

import (
	"strings"
	"testing"
)

func TestPlain(t *testing.T) {
	slow := func(s string, i int) int {
		for i < len(s) && s[i] >= ' ' && s[i] != '"' && s[i] != '\\' {
			i++
		}
		return i
	}
	for _, stop := range []string{"", `"`, `\`, "\x00", "\x1f", " ", "!", "#", "[", "]", "\x7f", "\x80", "\xa2", "\xdc", "\xff", "é", "日"} {
		for before := range 20 {
			for after := range 10 {
				s := strings.Repeat("a", before) + stop + strings.Repeat("\xff", after)
				for from := range before + 1 {
					if got, want := plain(s, from), slow(s, from); got != want {
						t.Fatalf("plain(%q, %d) = %d, want %d", s, from, got, want)
					}
				}
			}
		}
	}
}
