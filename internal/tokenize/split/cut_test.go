package split

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSafeCut cuts random texts wherever a plan says it may and compares the pieces
// of the two parts with those of the whole.
func TestSafeCut(t *testing.T) {
	for name, p := range knownPlans(t) {
		rng := rand.New(rand.NewPCG(13, 17))
		cuts := 0
		for range 5000 {
			text := cutText(rng)
			whole := pieces(p, string(text))
			for near := len(text); near > 0; near-- {
				at := lastCut(p, text, near)
				if at == 0 {
					break
				}
				if at > near || at >= len(text) {
					t.Fatalf("%s: cut %+q at %d, near %d", name, text, at, near)
				}
				near = at
				cuts++
				parts := slices.Concat(pieces(p, string(text[:at])), pieces(p, string(text[at:])))
				if !slices.Equal(whole, parts) {
					t.Fatalf("%s: %+q cut at %d (-whole +parts):\n%s", name, text, at, cmp.Diff(whole, parts))
				}
			}
		}
		if cuts < 1000 {
			t.Errorf("%s: only %d cuts tried", name, cuts)
		}
	}
}

// lastCut returns the last place up to near where the plan allows to cut, 0 if there
// is none.
func lastCut(p *Plan, text []byte, near int) int {
	for i := min(near, len(text)); i > 0; i-- {
		if p.SafeCuts().At(text, i) {
			return i
		}
	}
	return 0
}

// cutText returns text with many places that look like cuts.
func cutText(rng *rand.Rand) []byte {
	var text []byte
	for range 1 + rng.IntN(4) {
		text = append(text, randomText(rng, 4)...)
		text = append(text, []string{"a b", "\n", " \nx", "é 中", "\n/", "'s ", "\r\n", "\n1", "x y\n!", "\n\n(", "A ", " a"}[rng.IntN(12)]...)
	}
	return text
}

func TestSafeCutPlaces(t *testing.T) {
	plans := knownPlans(t)
	for _, tt := range []struct {
		family, text string
		near, want   int
	}{
		{"llama3", "Hello wide world", 100, 10},
		{"llama3", "Hello wide world", 10, 10},
		{"llama3", "Hello wide world", 9, 5},
		{"llama3", "Hello wide world", 4, 0},
		{"llama3", "Hello  wide, 1 (x) 'y", 100, 0},
		{"llama3", "a, \n/x", 100, 4},
		{"o200k", "a, \n/x", 100, 0},
		{"tekken", "a, \nx", 100, 4},
		{"gpt2", "a, \nx", 100, 0},
		{"llama3", "a\n\n b", 100, 0},
		{"llama3", "", 0, 0},
		{"llama3", " a", 1, 0},
		{"llama3", "a ", 1, 0},
		{"deepseek", "你 好", 100, 3},
	} {
		if got := lastCut(plans[tt.family], []byte(tt.text), tt.near); got != tt.want {
			t.Errorf("%s: last cut in %q up to %d is %d, want %d", tt.family, tt.text, tt.near, got, tt.want)
		}
	}
	p := fromJSON(t, map[string]any{"type": "WhitespaceSplit"})
	if p.SafeCuts() != 0 || lastCut(p, []byte("a b"), 2) != 0 {
		t.Error("WhitespaceSplit has cuts")
	}
}
