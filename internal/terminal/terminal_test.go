package terminal

import "testing"

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "",
		"Qwen/Qwen3-8B, ü 東京":   "Qwen/Qwen3-8B, ü 東京",
		"two\nlines\tand\r":     "two lines and ",
		"\x1b]0;title\x07 \x7f": "\ufffd]0;title\ufffd \ufffd",
		"\xff\u202e":            "\ufffd\ufffd",
	} {
		if got := Line(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
