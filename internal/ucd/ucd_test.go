package ucd

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"unicode"
)

// TestAgree checks that the two forms of the data, and the derivations of a class
// from categories and properties, say the same about every code point.
func TestAgree(t *testing.T) {
	tests := []struct {
		class  Class
		tables []string
		also   string
	}{
		{Letter, []string{"L"}, ""},
		{Number, []string{"N"}, ""},
		{Space, []string{"White_Space"}, ""},
		{NewLine, nil, "\r\n"},
		{Mark, []string{"M"}, ""},
		{Punct, []string{"P"}, ""},
		{Symbol, []string{"S"}, ""},
		{Upper, []string{"Lu", "Lt", "Lm", "Lo", "M"}, ""},
		{Lower, []string{"Ll", "Lm", "Lo", "M"}, ""},
		{Han, []string{"Han"}, ""},
		{Word, []string{"Word"}, "²³¹¼½¾"},
		{Digit, []string{"Nd"}, ""},
		{Control, []string{"C"}, ""},
	}
	for _, tt := range tests {
		var tables []*unicode.RangeTable
		for _, name := range tt.tables {
			tables = append(tables, Table(name))
		}
		for r := rune(0); r <= unicode.MaxRune; r++ {
			want := unicode.In(r, tables...)
			for _, a := range tt.also {
				want = want || a == r
			}
			if got := Of(r)&tt.class != 0; got != want {
				t.Fatalf("class %#x of %U: %v, want %v as in %v", tt.class, r, got, want, tt.tables)
			}
		}
	}
	for r, c := range ASCII {
		if c != Of(rune(r)) {
			t.Errorf("ASCII[%#x] = %#x, Of = %#x", r, c, Of(rune(r)))
		}
	}
	for _, r := range []rune{-1, unicode.MaxRune + 1, 1 << 30} {
		if c := Of(r); c != 0 {
			t.Errorf("Of(%#x) = %#x, want 0", r, c)
		}
	}
}

// TestVersion looks at code points that tell the version apart, and at sizes of
// sets as Unicode 16.0 has them.
func TestVersion(t *testing.T) {
	for _, tt := range []struct {
		r    rune
		want Class
	}{
		{0x1C89, Letter | Upper | Word},                // Lu of 16.0
		{0xA7CD, Letter | Lower | Word},                // Ll of 16.0
		{0x2EBF0, Letter | Upper | Lower | Han | Word}, // Lo of 15.1
		{0x1CCF0, Number | Digit | Word},               // Nd of 16.0
		{0x0897, Mark | Upper | Lower | Word},          // Mn of 16.0
		{0x1B4E, Punct},                                // Po of 16.0
		{0x1FAE9, Symbol},                              // So of 16.0
		{0x11DE0, Control},                             // Nd of 17.0
		{'ſ', Letter | Lower | Word},                   //
		{'ǅ', Letter | Upper | Word},                   // Lt
		{'Ⅷ', Number | Word},                           // Nl
		{'²', Number | Word},                           // No, Latin-1
		{'⁴', Number},                                  // No
		{'_', Punct | Word},                            // Pc
		{0x85, Space | Control},                        //
		{0x200B, Control},                              // Cf, no space
		{0xFEFF, Control},                              //
		{0x180E, Control},                              //
		{'\u3000', Space},                              //
		{'\n', Space | NewLine | Control},              //
		{0xD800, Control},                              //
		{0xFFFD, Symbol},                               //
		{0x345, Mark | Upper | Lower | Word},           // Mn, Other_Alphabetic
		{0x24B6, Symbol | Word},                        // So, Other_Alphabetic
		{'〇', Number | Word | Han},                     // Nl in Han
		{'々', Letter | Upper | Lower | Word | Han},     // Lm in Han
		{unicode.MaxRune, Control},                     // Cn
		{0x10FFFD, Control},                            // Co
	} {
		if got := Of(tt.r); got != tt.want {
			t.Errorf("Of(%U) = %#b, want %#b", tt.r, got, tt.want)
		}
	}
	for name, want := range map[string]int{
		"L": 141028, "Lu": 1858, "Ll": 2258, "Lt": 31, "Lm": 404, "Lo": 136477,
		"M": 2501, "Mn": 2020, "Mc": 468, "Me": 13, "N": 1911, "Nd": 760, "Nl": 236, "No": 915,
		"P": 855, "S": 8514, "Z": 19, "Cs": 2048, "Co": 137468,
		"Han": 99030, "Latin": 1487, "White_Space": 25, "LC": 4147,
	} {
		if got := size(Table(name)); got != want {
			t.Errorf("size of %s = %d, want %d", name, got, want)
		}
	}
}

func size(t *unicode.RangeTable) int {
	n := 0
	for _, r := range t.R16 {
		n += int(r.Hi-r.Lo)/int(r.Stride) + 1
	}
	for _, r := range t.R32 {
		n += int(r.Hi-r.Lo)/int(r.Stride) + 1
	}
	return n
}

func TestTableNames(t *testing.T) {
	for _, name := range []string{"lu", "LU", "old_italic", "Old Italic", "olditalic", "white space", "Kirat-Rai", "unknown"} {
		if Table(name) == nil {
			t.Errorf("Table(%q) = nil", name)
		}
	}
	for _, name := range []string{"", "Lx", "Letter", "Klingon", "^L"} {
		if Table(name) != nil {
			t.Errorf("Table(%q) is a table", name)
		}
	}
	// unicode.Is relies on order, and on LatinOffset to answer for Latin-1.
	for _, name := range []string{"L", "Word", "Latin", "Cn", "Co", "C"} {
		tab := Table(name)
		last := -2
		for _, r := range tab.R16 {
			if int(r.Lo) <= last+1 || r.Hi < r.Lo {
				t.Errorf("%s: range %x-%x after %x", name, r.Lo, r.Hi, last)
			}
			last = int(r.Hi)
		}
		for i := range tab.LatinOffset {
			if tab.R16[i].Hi > unicode.MaxLatin1 {
				t.Errorf("%s: LatinOffset %d counts %x", name, tab.LatinOffset, tab.R16[i].Hi)
			}
		}
	}
}

// TestGenerated runs the generator again and compares.
func TestGenerated(t *testing.T) {
	if unicode.Version != "15.0.0" {
		t.Skipf("the generator starts from Unicode 15.0.0; this Go has %s", unicode.Version)
	}
	bin := filepath.Join(t.TempDir(), "gen")
	if out, err := exec.Command("go", "build", "-o", bin, "./gen").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	cmd := exec.Command(bin)
	cmd.Dir = t.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("run: %v\n%s", err, out)
	}
	got, err := os.ReadFile(filepath.Join(cmd.Dir, "tables.go"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("tables.go")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("tables.go is not what the generator writes")
	}
}

func BenchmarkOf(b *testing.B) {
	text := []rune("Привет, мир! 你好，世界。 Hello, world.")
	var c Class
	for b.Loop() {
		for _, r := range text {
			c |= Of(r)
		}
	}
	if c == 0 {
		b.Fatal("no class")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(text)), "ns/rune")
}
