package openai

import "testing"

func TestLoneSurrogate(t *testing.T) {
	for text, want := range map[string]int{
		``:                      -1,
		`"plain"`:               -1,
		`"\ud83d\ude00"`:        -1,
		`"\uD83D\uDE00 \u00e9"`: -1,
		`"\\ud800"`:             -1, // a backslash, escaped
		`"\ud800"`:              1,
		`"a\udc00"`:             2,
		`"\ud800\ud800\udc00"`:  1,
		`"\\\ud800x"`:           3,
		`"\ud83d\ude00\ude00"`:  13,
		`"\ud800\n"`:            1,
		`\ud800`:                0,
		`\ud8`:                  -1,
		`\`:                     -1,
	} {
		if got := LoneSurrogate([]byte(text)); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}
