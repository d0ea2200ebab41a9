package main

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

// piece is a token for a painter.
type piece struct {
	text    string
	special bool
}

func paint(t *testing.T, pieces []piece) string {
	t.Helper()
	var out bytes.Buffer
	w := bufio.NewWriter(&out)
	p := painter{w: w}
	for _, x := range pieces {
		p.token([]byte(x.text), x.special)
	}
	p.end()
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// legible names the styles in what a painter has written.
var legible = strings.NewReplacer(
	tokenStyles[0], "{0}", tokenStyles[1], "{1}", tokenStyles[2], "{2}", tokenStyles[3], "{3}", tokenStyles[4], "{4}",
	specialStyle, "{s}", plainStyle, "{}",
)

func TestPainter(t *testing.T) {
	for _, tt := range []struct {
		name   string
		pieces []piece
		want   string
	}{
		{"nothing", nil, ""},
		{"by turns", []piece{{"a", false}, {"b", false}, {"c", false}, {"d", false}, {"e", false}, {"f", false}}, "{0}a{1}b{2}c{3}d{4}e{0}f{}\n"},
		{"special", []piece{{"<s>", true}, {"a", false}, {"<e>", true}, {"b", false}}, "{s}<s>{0}a{s}<e>{1}b{}\n"},
		{"part of a character takes no turn", []piece{{"a", false}, {"", false}, {"", false}, {"🤖", false}}, "{0}a{1}🤖{}\n"},
		{"lines", []piece{{"a\n\nb", false}, {"c", false}}, "{0}a⏎{}\n{0}⏎{}\n{0}b{1}c{}\n"},
		{"line at the end", []piece{{"a", false}, {"\n", false}}, "{0}a{1}⏎{}\n"},
		{"special with lines", []piece{{"<\n>", true}}, "{s}<⏎{}\n{s}>{}\n"},
		{"tab", []piece{{"\ta\t", false}}, "{0}→\ta→\t{}\n"},
		{"controls", []piece{{"\x1b[0m\r\x00\x7f", false}}, "{0}␛[0m␍␀␡{}\n"},
		{"further controls", []piece{{"\u009b1m\u202e\u200b\U000e0041", false}}, "{0}<U+009B>1m<U+202E><U+200B><U+E0041>{}\n"},
		{"no UTF-8", []piece{{"\xf0\x9fa", false}}, "{0}<0xF0><0x9F>a{}\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := legible.Replace(paint(t, tt.pieces)); got != tt.want {
				t.Errorf("%+v:\n got %q\nwant %q", tt.pieces, got, tt.want)
			}
		})
	}
}

// FuzzPainter checks that a terminal hears nothing but colours, line ends and
// tabs, and that all styles are undone.
func FuzzPainter(f *testing.F) {
	f.Add("Hello,\t\x1b]0;title\a world", uint8(3), true)
	f.Add("\u009b2J\n\n\xc2\x9b\xff", uint8(1), false)
	colors := regexp.MustCompile("\x1b\\[0(;(1|[34]8;5;[0-9]+))*m")
	f.Fuzz(func(t *testing.T, text string, size uint8, special bool) {
		var pieces []piece
		for rest := text; rest != ""; {
			n := min(int(size)+1, len(rest))
			pieces = append(pieces, piece{rest[:n], special && len(pieces)%2 == 0})
			rest = rest[n:]
		}
		got := paint(t, pieces)
		shown := colors.ReplaceAllString(got, "")
		for _, r := range shown {
			if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Cf, r) {
				t.Fatalf("%q: %U reaches the terminal: %q", text, r, got)
			}
		}
		if text != "" && !strings.HasSuffix(got, plainStyle+"\n") {
			t.Fatalf("%q: ends in colours: %q", text, got)
		}
		if lines := strings.Count(text, "\n"); strings.Count(shown, "⏎\n") < lines || strings.Count(shown, "\n") > lines+1 {
			t.Fatalf("%q: expected %d lines: %q", text, lines, got)
		}
	})
}

func TestUseColor(t *testing.T) {
	for _, tt := range []struct {
		word     string
		terminal bool
		env      map[string]string
		want     bool
	}{
		{"auto", true, nil, true},
		{"auto", false, nil, false},
		{"auto", true, map[string]string{"NO_COLOR": "1"}, false},
		{"auto", true, map[string]string{"TERM": "dumb"}, false},
		{"auto", true, map[string]string{"TERM": "xterm"}, true},
		{"always", false, map[string]string{"NO_COLOR": "1"}, true},
		{"never", true, nil, false},
	} {
		if got := useColor(tt.word, tt.terminal, func(name string) string { return tt.env[name] }); got != tt.want {
			t.Errorf("%s, terminal %v, %v: %v, want %v", tt.word, tt.terminal, tt.env, got, tt.want)
		}
	}
}

func TestPlainText(t *testing.T) {
	for _, tt := range []struct {
		terminal   bool
		text, want string
	}{
		{false, "a\x1b[m\tb", "a\x1b[m\tb"},
		{true, "a\x1b[m\tb\nc", "a␛[m\tb\nc\n"},
		{true, "a\n", "a\n"},
		{true, "", "\n"},
	} {
		var out bytes.Buffer
		o := tokenOutput{w: bufio.NewWriter(&out), terminal: tt.terminal}
		if err := o.plainText([]byte(tt.text)); err != nil || out.String() != tt.want {
			t.Errorf("%q, terminal %v: %q, %v, want %q", tt.text, tt.terminal, &out, err, tt.want)
		}
	}
}

func TestTokenSummary(t *testing.T) {
	for _, tt := range []struct {
		tokens tokens
		want   string
	}{
		{tokens{}, "0 tokens, 0 characters, 0 bytes\n"},
		{tokens{[]uint32{1}, []byte("a")}, "1 token, 1 character, 1 byte, 1.00 bytes per token\n"},
		{tokens{[]uint32{1, 2, 3}, []byte("äöü!")}, "3 tokens, 4 characters, 7 bytes, 2.33 bytes per token\n"},
	} {
		if diff := cmp.Diff(tt.want, string(appendSummary(nil, tt.tokens))); diff != "" {
			t.Error(diff)
		}
	}
}

// TestTokenizeLarge sends 10 MB to ids and back.
func TestTokenizeLarge(t *testing.T) {
	line := "The quick brown fox, 漢字 and 🤖: func main() { return 12345 }\n\n\t<|im_end|> "
	text := strings.Repeat(line, 10_000_000/len(line)+1)
	dir := t.TempDir()
	in, ids := filepath.Join(dir, "text"), filepath.Join(dir, "ids")
	if err := os.WriteFile(in, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if code := run([]string{"tokenize", "--ids", "--file", in}, &stdout, &stderr); code != exitOK {
		t.Fatalf("code %d: %s", code, &stderr)
	}
	if err := os.WriteFile(ids, stdout.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout.Reset()
	if code := run([]string{"tokenize", "--decode", "--file", ids}, &stdout, &stderr); code != exitOK {
		t.Fatalf("code %d: %s", code, &stderr)
	}
	if stdout.String() != text {
		t.Errorf("%d bytes came back of %d, or others", stdout.Len(), len(text))
	}
}

func TestTokenizeExitCodes(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want int
	}{
		{[]string{"a"}, exitOK},
		{[]string{"--file", "/does/not/exist"}, exitFailure},
		{[]string{"--model", "/does/not/exist", "a"}, exitFailure},
		{[]string{"--decode", "4000000000"}, exitFailure},
		{[]string{"--decode", "x"}, exitFailure},
		{[]string{"\xff"}, exitFailure},
		{[]string{"--chat", "a"}, exitFailure},
		{[]string{"a", "b"}, exitUsage},
		{[]string{"--render", "a"}, exitUsage},
		{[]string{"--count", "--ids", "a"}, exitUsage},
		{[]string{"--color", "x", "a"}, exitUsage},
		{[]string{"--no-such-flag"}, exitUsage},
	} {
		var stdout, stderr bytes.Buffer
		if got := run(append([]string{"tokenize"}, tt.args...), &stdout, &stderr); got != tt.want {
			t.Errorf("%q: code %d, want %d\n%s", tt.args, got, tt.want, &stderr)
		}
		if tt.want != exitOK && stdout.Len() > 0 {
			t.Errorf("%q: printed %q", tt.args, &stdout)
		}
	}
}
