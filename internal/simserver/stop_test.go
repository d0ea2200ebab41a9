package simserver

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStopFilter(t *testing.T) {
	for _, tc := range []struct {
		name    string
		stops   []string
		include bool
		pieces  []string
		want    []string // per piece, then what is let go at the end
		match   string
	}{
		{"no stop string", nil, false, []string{"hi", "there"}, []string{"hi", "there", ""}, ""},
		{"hidden", []string{"STOP"}, false, []string{"hi", "STOP", "there"}, []string{"hi", ""}, "STOP"},
		{"included", []string{"STOP"}, true, []string{"hi", "STOP", "there"}, []string{"hi", "STOP"}, "STOP"},
		{"included over pieces", []string{"STOP"}, true, []string{"hiS", "TO", "Pthere"}, []string{"hiS", "TO", "P"}, "STOP"},
		{"held back, released on divergence", []string{"END"}, false, []string{"xE", "N", "Q"}, []string{"x", "", "ENQ", ""}, ""},
		{"held back, then complete", []string{"END"}, false, []string{"xE", "N", "Dy"}, []string{"x", "", ""}, "END"},
		{"held back, released at the end", []string{"END"}, false, []string{"xE", "N"}, []string{"x", "", "EN"}, ""},
		{"a match that starts over", []string{"aab"}, false, []string{"a", "a", "a", "b"}, []string{"", "", "a", ""}, "aab"},
		{"overlap with itself", []string{"abac"}, false, []string{"ab", "ab", "ac"}, []string{"", "ab", ""}, "abac"},
		{"the first to complete", []string{"abcd", "bc"}, false, []string{"xabcd"}, []string{"xa"}, "bc"},
		{"a tie goes to the list", []string{"D", "END"}, false, []string{"xEND"}, []string{"xEN"}, "D"},
		{"a tie goes to the list, other way", []string{"END", "D"}, false, []string{"xEND"}, []string{"x"}, "END"},
		{"longest end is held", []string{"yz", "xyw"}, false, []string{"xy", "q"}, []string{"", "xyq", ""}, ""},
		{"outside ASCII", []string{"né"}, false, []string{"canapé", "né"}, []string{"canapé", ""}, "né"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := stopFilter{include: tc.include, at: make([]int, len(tc.stops))}
			for _, s := range tc.stops {
				f.strings = append(f.strings, newStopString(s))
			}
			var got []string
			match := -1
			for _, p := range tc.pieces {
				var out []byte
				out, match = f.write(nil, []byte(p))
				got = append(got, string(out))
				if match >= 0 {
					break
				}
			}
			matched := ""
			if match >= 0 {
				matched = tc.stops[match]
			} else {
				got = append(got, string(f.flush(nil)))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || matched != tc.match {
				t.Errorf("matched %q, want %q; pieces (-want +got):\n%s", matched, tc.match, diff)
			}
		})
	}
}

// FuzzStopFilter compares the filter with a search over the whole text.
func FuzzStopFilter(f *testing.F) {
	f.Add("aabaaabaab", "aab", "ba")
	f.Add("xENENDy", "END", "NE")
	f.Fuzz(func(t *testing.T, text, one, two string) {
		if one == "" || two == "" {
			return
		}
		stops := []string{one, two}
		filter := stopFilter{strings: []stopString{newStopString(one), newStopString(two)}, at: make([]int, 2)}
		var got []byte
		match := -1
		for i := 0; i < len(text) && match < 0; i++ {
			got, match = filter.write(got, []byte{text[i]})
			if !strings.HasPrefix(text, string(got)) {
				t.Fatalf("sent %q of %q", got, text)
			}
			if match < 0 {
				held := text[len(got) : i+1]
				if held != "" && !strings.HasPrefix(one, held) && !strings.HasPrefix(two, held) {
					t.Fatalf("holds %q for nothing", held)
				}
			}
		}
		if match < 0 {
			got = filter.flush(got)
		}

		want, wantMatch, end := text, -1, len(text)+1
		for i, s := range stops {
			if at := strings.Index(text, s); at >= 0 && at+len(s) < end {
				want, wantMatch, end = text[:at], i, at+len(s)
			}
		}
		if string(got) != want || match != wantMatch {
			t.Errorf("text %q, stops %q: got %q by %d, want %q by %d", text, stops, got, match, want, wantMatch)
		}
	})
}

func TestJoiner(t *testing.T) {
	for _, tc := range []struct {
		name   string
		prompt string
		bytes  string
		want   []string // per byte, then at the end
	}{
		{"ASCII", "x", "ab", []string{"a", "b", ""}},
		{"two bytes", "", "\xc3\xa9", []string{"", "é", ""}},
		{"four bytes", "", "\xf0\x9f\x98\x80", []string{"", "", "", "😀", ""}},
		{"broken off", "", "\xc3a", []string{"", "\uFFFDa", ""}},
		{"stray continuation", "", "\xa9a", []string{"\uFFFD", "a", ""}},
		{"unfinished", "", "a\xe2\x82", []string{"a", "", "", "\uFFFD\uFFFD"}},
		{"begun by the prompt", "caf\xc3", "\xa9!", []string{"é", "!", ""}},
		{"three of four by the prompt", "\xf0\x9f\x98", "\x80!", []string{"😀", "!", ""}},
		{"begun by the prompt, not continued", "caf\xc3", "a", []string{"a", ""}},
		{"begun by the prompt, half continued", "\xf0\x9f", "\x98a", []string{"", "\uFFFDa", ""}},
		{"prompt ends in a whole character", "é", "\xa9", []string{"\uFFFD", ""}},
		{"prompt ends in a special token", "\xc3<|im_end|>", "\xa9", []string{"\uFFFD", ""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var j joiner
			j.prime(encode(tc.prompt))
			var got []string
			for _, b := range []byte(tc.bytes) {
				got = append(got, string(j.write(nil, b)))
			}
			got = append(got, string(j.flush(nil)))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
