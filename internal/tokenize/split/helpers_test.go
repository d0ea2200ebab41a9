package split

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"unicode"

	"github.com/stator-ai/stator/internal/onig"
)

// splitJSON is the JSON of a Split by a regex.
func splitJSON(pattern, behavior string, invert bool) map[string]any {
	return map[string]any{"type": "Split", "pattern": map[string]any{"Regex": pattern}, "behavior": behavior, "invert": invert}
}

func sequence(list ...any) map[string]any {
	return map[string]any{"type": "Sequence", "pretokenizers": append([]any{}, list...)}
}

func byteLevel(prefix, regex bool) map[string]any {
	return map[string]any{"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": regex}
}

func digits(individual bool) map[string]any {
	return map[string]any{"type": "Digits", "individual_digits": individual}
}

// fromJSON parses what v is in JSON.
func fromJSON(tb testing.TB, v any) *Plan {
	tb.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	p, err := Parse(raw)
	if err != nil {
		tb.Fatalf("Parse(%s): %v", raw, err)
	}
	return p
}

// knownJSON are the pre-tokenizers of the families.
func knownJSON() map[string]any {
	isolate := func(pattern string) any {
		return sequence(splitJSON(pattern, "Isolated", false), byteLevel(false, false))
	}
	return map[string]any{
		"llama3":  isolate(patternLlama3),
		"cl100k":  isolate(patternCl100k),
		"qwen2":   isolate(patternQwen2),
		"qwen3.5": isolate(patternQwen35),
		"o200k":   sequence(splitJSON(patternO200k, "Removed", true), byteLevel(false, false)),
		"tekken":  isolate(patternTekken),
		"kimi":    isolate(Kimi),
		"deepseek": sequence(splitJSON(patternDeepSeek1, "Isolated", false), splitJSON(patternDeepSeek2, "Isolated", false),
			splitJSON(patternDeepSeek3, "Isolated", false), byteLevel(false, false)),
		"gpt2":       byteLevel(false, true),
		"gpt2 split": isolate(patternGPT2),
		"command-r":  sequence(digits(true), byteLevel(false, true)),
	}
}

// knownPlans are the plans of the families. All have a scanner.
func knownPlans(tb testing.TB) map[string]*Plan {
	plans := map[string]*Plan{}
	for name, v := range knownJSON() {
		p := fromJSON(tb, v)
		if p.Next() == nil {
			tb.Fatalf("%s has no scanner", name)
		}
		plans[name] = p
	}
	return plans
}

// slow is the plan of v with nothing written by hand: the steps one by one, and all
// patterns on the general engine.
func slow(tb testing.TB, v any) *Plan {
	tb.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	parts, err := parse(nil, raw, 0)
	if err != nil {
		tb.Fatal(err)
	}
	for i, p := range parts {
		if p.byteLevel && p.regex && !p.prefix {
			p = part{pattern: patternGPT2, cut: &cutter{behavior: isolated}}
			parts[i] = p
		}
		if p.pattern != "" {
			re, err := onig.Compile(p.pattern)
			if err != nil {
				tb.Fatalf("%s: %v", p.pattern, err)
			}
			p.cut.finder = regex{re}
		}
	}
	steps, err := compile(parts)
	if err != nil {
		tb.Fatal(err)
	}
	return &Plan{steps: steps}
}

// pieces returns the pieces of text as strings.
func pieces(p *Plan, text string) []string {
	var dst Pieces
	p.Append(&dst, []byte(text), true)
	return texts(&dst)
}

func texts(p *Pieces) []string {
	var out []string
	for _, s := range p.Spans {
		out = append(out, string(p.Text[s.Start:s.End]))
	}
	return out
}

// alphabet are characters that some rule treats in a way of its own.
var alphabet = []rune("aAbBsStTdDmMrReEvVlLxX'''      \t\n\n\r0123456789.,!?-_/()[]{}<>$+=^`~|\"\\ſßİ\u212a’" +
	"中文龥龦〇々ー・゛ゝ\u3099\u3040\u3097ァヿ゠\u0301\u0300\u093e\u20dd\ufe0f\u302a" +
	"\u00a0\u3000\u2028\u2029\u0085\u200b\u200c\u200d\ufeff\u180e\v\f\x7f\x00\x01²½Ⅷ٣①ǅʰª😀❤€«»·éЖя" +
	"\u1c89\ua7cd\U00010d40\U0001ccf0\u0897\U0001171e\u1b4e\U0001fae9\U00011de0\U00016ff4\U00018cff\ue000\u0378")

// randomText returns up to n characters: of the alphabet, of a few of them, or any.
func randomText(rng *rand.Rand, n int) []byte {
	from := alphabet
	if rng.IntN(3) == 0 {
		from = make([]rune, 1+rng.IntN(4))
		for i := range from {
			from[i] = alphabet[rng.IntN(len(alphabet))]
		}
	}
	var out []rune
	for range rng.IntN(n + 1) {
		r := from[rng.IntN(len(from))]
		if rng.IntN(40) == 0 {
			r = rng.Int32N(unicode.MaxRune + 1)
		}
		out = append(out, r)
		for rng.IntN(12) == 0 {
			out = append(out, r)
		}
	}
	return []byte(string(out))
}
