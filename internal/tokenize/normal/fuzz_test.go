package normal

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// seeds are texts for which most normalizers have something to do.
var seeds = []string{
	"", "plain", "e\u0301\u0323", "\u1112\u1161\u11AB", "ﬁ①\u00A0İ", " \t中\u0000", "\u0915\u094D\u0915", "👨\u200D👩", "\xFF\xE4\xB8",
	"a\u0316\u0301\u1ABF\u0334", "\u0958\u0F73\u0344", "\r\n", strings.Repeat("\u0323\u0301", 30),
}

func FuzzForms(f *testing.F) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			for _, form := range []form{nfc, nfd, nfkc, nfkd} {
				apply(t, form, text)
			}
			return
		}
		results := make(map[form]string)
		for _, form := range []form{nfc, nfd, nfkc, nfkd} {
			once := apply(t, form, text)
			results[form] = once
			if !utf8.ValidString(once) {
				t.Errorf("form %d of %+q is not UTF-8: %+q", form, text, once)
			}
			if twice := form.Normalize(nil, []byte(once)); string(twice) != once {
				t.Errorf("form %d of %+q: %+q, and of that %+q", form, text, once, twice)
			}
		}
		for _, tt := range []struct{ first, then, same form }{
			{nfc, nfd, nfd}, {nfd, nfc, nfc}, {nfkd, nfkc, nfkc}, {nfkc, nfkd, nfkd}, {nfd, nfkc, nfkc}, {nfc, nfkd, nfkd},
		} {
			if got := apply(t, tt.then, results[tt.first]); got != results[tt.same] {
				t.Errorf("form %d of form %d of %+q: %+q, want %+q", tt.then, tt.first, text, got, results[tt.same])
			}
		}
	})
}

func FuzzNormalizers(f *testing.F) {
	var all []Normalizer
	for _, spec := range []string{
		`{"type":"Lowercase"}`, `{"type":"StripAccents"}`, `{"type":"Nmt"}`, `{"type":"ByteLevel"}`,
		`{"type":"Strip","strip_left":true,"strip_right":true}`, gemma, llama, bertUncased, bertCased,
		`{"type":"Replace","pattern":{"String":"a"},"content":""}`, `{"type":"Replace","pattern":{"String":""},"content":"é"}`,
		`{"type":"Replace","pattern":{"Regex":"\\s+|(?<=a)."},"content":"▁"}`,
		`{"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"Lowercase"},{"type":"NFD"},{"type":"StripAccents"}]}`,
		precompiledSpec(map[string]string{"a": "é", "e\u0301": "", "\u0915": "k", "\r": " ", "👨": "man"}),
	} {
		all = append(all, parseText(f, spec))
	}
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for i, n := range all {
			if got := apply(t, n, text); utf8.ValidString(text) && !utf8.ValidString(got) {
				t.Errorf("normalizer %d makes %+q of %+q", i, got, text)
			}
		}
		if got := apply(t, newReplaceByte('a', "bcd"), text); got != strings.ReplaceAll(text, "a", "bcd") {
			t.Errorf("replacing a by bcd in %+q gives %+q", text, got)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, spec := range []string{
		"null", gemma, llama, bertUncased, `{"type":"Strip","strip_left":true,"strip_right":true}`,
		`{"type":"Precompiled","precompiled_charsmap":"BAAAAAAAAAA="}`, `{"type":"Replace","pattern":{"Regex":"a|b*"},"content":"x"}`,
	} {
		f.Add([]byte(spec), "text")
	}
	f.Fuzz(func(t *testing.T, spec []byte, text string) {
		if n, err := Parse(spec); err == nil {
			apply(t, n, text)
		}
	})
}

func FuzzCharsMap(f *testing.F) {
	for _, s := range seeds {
		f.Add(charsMap(map[string]string{"a": "b", "e\u0301": "é"}), s)
	}
	f.Fuzz(func(t *testing.T, blob []byte, text string) {
		n, err := newPrecompiled(blob)
		if err != nil {
			return
		}
		if got := apply(t, n, text); utf8.ValidString(text) && !utf8.ValidString(got) {
			t.Errorf("%+q becomes %+q", text, got)
		}
	})
}

// TestFormsAgainstText compares with the forms of golang.org/x/text, on texts
// without characters that came after Unicode 9 and without runs of marks so long
// that they are broken up there.
func TestFormsAgainstText(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	var kinds [4][]rune // marks, decomposing, parts, anything else
	for r := rune(0x20); r < formsEnd; r++ {
		c := string(r)
		v := valueOf(uint32(r))
		switch {
		case !utf8.ValidRune(r) || string(nfkd.Normalize(nil, []byte(c))) != norm.NFKD.String(c) || records[v&indexMask].class != norm.NFD.PropertiesString(c).CCC():
			// Came later.
		case records[v&indexMask].class != 0:
			kinds[0] = append(kinds[0], r)
		case !norm.NFKD.IsNormalString(c):
			kinds[1] = append(kinds[1], r)
		case records[v&indexMask].flags&flagCombines != 0 || r >= 0x1100 && r < 0x1120:
			kinds[2] = append(kinds[2], r)
		case r < 0x3000:
			kinds[3] = append(kinds[3], r)
		}
	}
	for range 5_000 {
		var b strings.Builder
		for range 1 + rng.IntN(20) {
			kind := kinds[rng.IntN(4)]
			b.WriteRune(kind[rng.IntN(len(kind))])
		}
		text := b.String()
		for _, tt := range []struct {
			ours   form
			theirs norm.Form
		}{{nfc, norm.NFC}, {nfd, norm.NFD}, {nfkc, norm.NFKC}, {nfkd, norm.NFKD}} {
			if got, want := apply(t, tt.ours, text), tt.theirs.String(text); got != want {
				t.Fatalf("seed %d: form %d of %+q\n got %+q\nwant %+q", seed, tt.ours, text, got, want)
			}
		}
	}
}
