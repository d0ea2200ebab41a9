package tokenize

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

func TestStopFilter(t *testing.T) {
	for _, tc := range []struct {
		name    string
		stops   []string
		include bool
		pieces  []string
		want    []string // for each piece, then for Flush
		match   int
	}{
		{"no stop string", nil, false, []string{"hi", "there"}, []string{"hi", "there", ""}, -1},
		{"an empty one", []string{""}, false, []string{"hi"}, []string{"hi", ""}, -1},
		{"hidden", []string{"STOP"}, false, []string{"hi", "STOP", "there"}, []string{"hi", "", "", ""}, 0},
		{"included", []string{"STOP"}, true, []string{"hi", "STOP", "there"}, []string{"hi", "STOP", "", ""}, 0},
		{"included over pieces", []string{"STOP"}, true, []string{"hiS", "TO", "Pthere"}, []string{"hiS", "TO", "P", ""}, 0},
		{"included, not complete", []string{"STOP"}, true, []string{"hiS", "TO"}, []string{"hiS", "TO", ""}, -1},
		{"diverges", []string{"END"}, false, []string{"EN", "x"}, []string{"", "ENx", ""}, -1},
		{"completes", []string{"END"}, false, []string{"EN", "D"}, []string{"", "", ""}, 0},
		{"complete with text around it", []string{"END"}, false, []string{"xE", "N", "Dy"}, []string{"x", "", "", ""}, 0},
		{"unfinished at the end", []string{"END"}, false, []string{"xE", "N"}, []string{"x", "", "EN"}, -1},
		{"starts over", []string{"aab"}, false, []string{"a", "a", "a", "b"}, []string{"", "", "a", "", ""}, 0},
		{"overlap with itself", []string{"abac"}, false, []string{"ab", "ab", "ac"}, []string{"", "ab", "", ""}, 0},
		{"the first to be complete", []string{"abcd", "bc"}, false, []string{"xabcd"}, []string{"xa", ""}, 1},
		{"the first to be complete, over pieces", []string{"abcd", "bc"}, false, []string{"xab", "c"}, []string{"x", "a", ""}, 1},
		{"a tie goes to the list", []string{"D", "END"}, false, []string{"xEND"}, []string{"xEN", ""}, 0},
		{"a tie goes to the list, other way", []string{"END", "D"}, false, []string{"xEND"}, []string{"x", ""}, 0},
		{"a beginning of another", []string{"abc", "ab"}, false, []string{"abc"}, []string{"", ""}, 1},
		{"twice in the list", []string{"", "ab", "ab"}, false, []string{"ab"}, []string{"", ""}, 1},
		{"longest end is held", []string{"yz", "xyw"}, false, []string{"xy", "q"}, []string{"", "xyq", ""}, -1},
		{"a shorter beginning goes on", []string{"abcx", "bcy"}, false, []string{"abc", "y"}, []string{"", "a", ""}, 1},
		{"outside ASCII", []string{"né"}, false, []string{"canapé", "né"}, []string{"canapé", "", ""}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := NewStops(tc.stops, tc.include).Filter()
			for range 2 { // the second time after Flush
				var got []string
				match := -1
				for _, p := range tc.pieces {
					var out []byte
					out, match = f.Write(nil, []byte(p))
					got = append(got, string(out))
				}
				got = append(got, string(f.Flush(nil)))
				if diff := cmp.Diff(tc.want, got); diff != "" || match != tc.match {
					t.Errorf("match %d, want %d; pieces (-want +got):\n%s", match, tc.match, diff)
				}
			}
		})
	}
}

func TestStopFilterZero(t *testing.T) {
	var f StopFilter
	out, match := f.Write([]byte("a"), []byte("b"))
	if got := string(f.Flush(out)); got != "ab" || match != -1 {
		t.Errorf("%q, match %d", got, match)
	}
	var s Stops
	f = s.Filter()
	if out, match = f.Write(nil, []byte("b")); string(out) != "b" || match != -1 {
		t.Errorf("%q, match %d", out, match)
	}
}

// checkStops gives text to a filter in pieces of the given sizes and compares with a
// search over the whole text.
func checkStops(t *testing.T, stops []string, include bool, text string, sizes []byte) {
	t.Helper()
	f := NewStops(stops, include).Filter()
	var got []byte
	match := -1
	for at, i := 0, 0; at < len(text); i++ {
		size := 1
		if len(sizes) > 0 {
			size = int(sizes[i%len(sizes)]%7) + 1
		}
		end := min(at+size, len(text))
		got, match = f.Write(got, []byte(text[at:end]))
		at = end
		if !strings.HasPrefix(text, string(got)) {
			t.Fatalf("stops %q: sent %q of %q", stops, got, text)
		}
		if match >= 0 {
			continue
		}
		if held := text[len(got):end]; held != longestBeginning(stops, text[:end], include) {
			t.Fatalf("stops %q: holds %q of %q", stops, held, text[:end])
		}
	}
	got = f.Flush(got)

	want, wantMatch, end := text, -1, len(text)+1
	for i, s := range stops {
		if at := strings.Index(text, s); s != "" && at >= 0 && at+len(s) < end {
			want, wantMatch, end = text[:at], i, at+len(s)
			if include {
				want = text[:end]
			}
		}
	}
	if string(got) != want || match != wantMatch {
		t.Fatalf("stops %q, include %v, text %q: got %q by %d, want %q by %d", stops, include, text, got, match, want, wantMatch)
	}
}

// longestBeginning returns the longest end of text that begins a stop string.
func longestBeginning(stops []string, text string, include bool) string {
	best := ""
	for _, s := range stops {
		for n := min(len(s)-1, len(text)); n > len(best) && !include; n-- {
			if strings.HasSuffix(text, s[:n]) {
				best = s[:n]
			}
		}
	}
	return best
}

func TestStopFilterRandom(t *testing.T) {
	for seed := range uint64(20000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		letters := 1 + rng.IntN(3)
		word := func(most int) string {
			b := make([]byte, rng.IntN(most))
			for i := range b {
				b[i] = 'a' + byte(rng.IntN(letters))
			}
			return string(b)
		}
		var stops []string
		for range rng.IntN(5) {
			stops = append(stops, word(8))
		}
		checkStops(t, stops, rng.IntN(4) == 0, word(40), []byte(word(4)))
	}
}

func FuzzStopFilter(f *testing.F) {
	f.Add("aabaaabaab", "aab\nba", []byte{0}, false)
	f.Add("xENENDy", "END\nNE\nENEE", []byte{2, 1}, true)
	f.Fuzz(func(t *testing.T, text, stops string, sizes []byte, include bool) {
		if len(text) > 1000 || len(stops) > 1000 {
			return
		}
		checkStops(t, strings.Split(stops, "\n"), include, text, sizes)
	})
}

// TestManyStops bounds what ten thousand stop strings cost.
func TestManyStops(t *testing.T) {
	var list []string
	size := 0
	for i := range 10_000 {
		list = append(list, fmt.Sprintf("<stop number %d of many>", i))
		size += len(list[i])
	}
	s := NewStops(list, false)
	if got, most := cap(s.nodes)*int(unsafe.Sizeof(stopNode{})), 25*size; got > most {
		t.Errorf("%d bytes for strings of %d", got, size)
	}
	text := []byte(strings.Repeat("<stop number 77 of ", 1000))
	f := s.Filter()
	dst := make([]byte, 0, 2*len(text))
	if n := testing.AllocsPerRun(10, func() {
		var match int
		if dst, match = f.Write(dst[:0], text); match >= 0 {
			t.Fatalf("stop string %d found", match)
		}
		dst = f.Flush(dst)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if out, match := f.Write(nil, []byte("it ends <stop number 4711 of many>")); string(out) != "it ends " || match != 4711 {
		t.Errorf("%q, match %d", out, match)
	}
}

// The number of stop strings hardly matters:
//
//	BenchmarkStopFilter/stops=1       ~ 4 ns a byte
//	BenchmarkStopFilter/stops=10000   ~ 4 ns a byte
func BenchmarkStopFilter(b *testing.B) {
	for _, n := range []int{1, 4, 10_000} {
		b.Run(fmt.Sprintf("stops=%d", n), func(b *testing.B) {
			var list []string
			for i := range n {
				list = append(list, fmt.Sprintf("\nstop %d", i))
			}
			f := NewStops(list, false).Filter()
			text := []byte("The quick brown fox jumps over the lazy dog.\n")
			dst := make([]byte, 0, 128)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				dst, _ = f.Write(dst[:0], text)
			}
		})
	}
}
