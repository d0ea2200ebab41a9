package thompson

import (
	"math"
	"testing"
)

func TestLevels(t *testing.T) {
	for _, c := range []struct {
		parse func(string) Level
		in    string
		want  Level
	}{
		{ParseOSL, "255", Low}, {ParseOSL, "256", Medium}, {ParseOSL, "1023.9", Medium}, {ParseOSL, "1024", High},
		{ParseOSL, " low ", Low}, {ParseOSL, "Medium", Medium}, {ParseOSL, "HIGH\n", High},
		{ParseOSL, "", Medium}, {ParseOSL, "abc", Medium}, {ParseOSL, "-5", Low}, {ParseOSL, "1e3", Medium},
		{ParseOSL, "nan", Medium}, {ParseOSL, "inf", High}, {ParseOSL, "-Infinity", Low},
		{ParseOSL, "1e999", High}, {ParseOSL, "0x10", Medium}, {ParseOSL, "1_000", Medium}, {ParseOSL, "1_0_", Medium},
		{ParseIAT, "99", Low}, {ParseIAT, "100", Medium}, {ParseIAT, "499", Medium}, {ParseIAT, "500", High},
		{ParseIAT, "nan", Medium},
	} {
		if got := c.parse(c.in); got != c.want {
			t.Errorf("%q: got %v, want %v", c.in, got, c.want)
		}
	}
	if OSL(math.NaN()) != Medium || IAT(math.NaN()) != Medium {
		t.Error("what is no number is not MEDIUM")
	}
	for _, l := range []Level{Low, Medium, High} {
		if got := OSL(float64(l.Tokens())); got != l {
			t.Errorf("%d tokens: got %v, want %v", l.Tokens(), got, l)
		}
		if got := IAT(milliseconds(l.Gap())); got != l {
			t.Errorf("%v: got %v, want %v", l.Gap(), got, l)
		}
		if got := ParseOSL(l.String()); got != l {
			t.Errorf("%s: got %v", l, got)
		}
	}
}

func TestParseTotal(t *testing.T) {
	for in, want := range map[string]int{
		"0": 1, "-3": 1, "2.5": 1, " 7 ": 7, "": 1, "many": 1, "+4": 4,
		"99999999999999999999": math.MaxInt32, "-99999999999999999999": 1,
	} {
		if got := ParseTotal(in); got != want {
			t.Errorf("%q: got %d, want %d", in, got, want)
		}
	}
}

func TestAnnotation(t *testing.T) {
	for _, c := range []struct {
		list []string
		key  string
		want string
		ok   bool
	}{
		{[]string{"osl:HIGH", "osl:LOW"}, "osl", "HIGH", true},
		{[]string{"x", "prefix_id:a:b"}, "prefix_id", "a:b", true},
		{[]string{"prefix_id:"}, "prefix_id", "", false},
		{[]string{"prefix_id:", "prefix_id:later"}, "prefix_id", "", false},
		{[]string{"prefix_ids:a"}, "prefix_id", "", false},
		{nil, "osl", "", false},
	} {
		if got, ok := Annotation(c.list, c.key); got != c.want || ok != c.ok {
			t.Errorf("%q of %q: got %q, %v", c.key, c.list, got, ok)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "low", "1e400", "-0", "nan", "0x1p-2", " 12 ", "١"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, l := range []Level{ParseOSL(s), ParseIAT(s)} {
			if l >= numLevels {
				t.Errorf("%q: level %d", s, l)
			}
		}
		if n := ParseTotal(s); n < 1 {
			t.Errorf("%q: total %d", s, n)
		}
		if v, ok := Annotation([]string{s}, "osl"); ok && (v == "" || s != "osl:"+v) {
			t.Errorf("%q: value %q", s, v)
		}
	})
}
