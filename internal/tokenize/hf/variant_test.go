package hf

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode"
)

func variant(t *testing.T, file string, v Variant) (plain, other *Tokenizer) {
	t.Helper()
	plain, err := Parse([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	if other, err = plain.Variant(v); err != nil {
		t.Fatal(err)
	}
	return plain, other
}

func wantIDs(t *testing.T, tok *Tokenizer, text string, want ...uint32) {
	t.Helper()
	if got, err := tok.Encode(nil, []byte(text), true /* special */); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
	}
}

func TestVariantWithoutForms(t *testing.T) {
	const file = `{"version":"1.0","normalizer":NORM,"model":{"vocab":{"e":0,"\u0301":1,"\u00e9":2,"E":3},"merges":[]}}`
	for norm, want := range map[string][]uint32{
		`{"type":"NFC"}`: {3, 0, 1},
		`{"type":"Sequence","normalizers":[{"type":"NFKC"}]}`:                                                         {3, 0, 1},
		`{"type":"Sequence","normalizers":[{"type":"Sequence","normalizers":[{"type":"NFC"}]},{"type":"Lowercase"}]}`: {0, 0, 1},
	} {
		plain, other := variant(t, strings.Replace(file, "NORM", norm, 1), Variant{NoForms: true})
		wantIDs(t, plain, "Ee\u0301", want[0], 2)
		wantIDs(t, other, "Ee\u0301", want...)
		if plain.Fingerprint() == other.Fingerprint() {
			t.Errorf("%s: both have the fingerprint %s", norm, plain.Fingerprint())
		}
		if again, err := other.Variant(Variant{NoForms: true}); err != nil || again != other {
			t.Errorf("%s: a variant without forms has one without them: %v", norm, err)
		}
	}
	for _, norm := range []string{"null", `{"type":"Lowercase"}`, `{"type":"Sequence","normalizers":[]}`} {
		if plain, other := variant(t, strings.Replace(file, "NORM", norm, 1), Variant{NoForms: true}); plain != other {
			t.Errorf("%s: got another tokenizer, want the same", norm)
		}
	}
}

func TestVariantWithSpecialTokens(t *testing.T) {
	file := cutFile(AddedToken{Content: "<a>"})
	plain, other := variant(t, file, Variant{Special: []string{"ab", "not a token", "<a>"}})
	wantIDs(t, plain, "<a> ab", 259, 258)
	wantIDs(t, other, "<a> ab", 259, ' ', 256)
	if text, special, ok := other.Token(256); string(text) != "ab" || !special || !ok {
		t.Errorf("got %q, %v, %v, want a special token", text, special, ok)
	}
	if plain, other := variant(t, file, Variant{Special: []string{"not a token", "<a>"}}); plain != other {
		t.Error("got another tokenizer, want the same")
	}
}

func TestVariantWithUnknownCharacters(t *testing.T) {
	file := strings.NewReplacer(`"Ġab": 258`, `"Ġab": 258, "'s": 259`, `"merges":[`, `"merges":["' s",`).Replace(cutFile())
	v := Variant{Unknown: &unicode.RangeTable{
		R16: []unicode.Range16{{'a', 'z', 1}, {'é', 'é', 1}, {'あ', 'い', 1}},
		R32: []unicode.Range32{{0x10400, 0x10400, 1}},
	}}
	plain, other := variant(t, file, v)
	for _, r := range "éあい\U00010400" {
		bytes := make([]uint32, 0, 4)
		for _, b := range []byte(string(r)) {
			bytes = append(bytes, uint32(b))
		}
		wantIDs(t, plain, string(r)+"'s", append(bytes, 259)...)
		wantIDs(t, other, string(r)+"'s", append(bytes, '\'', 's')...)
	}
	wantIDs(t, other, "è's", 0xc3, 0xa8, 259)
	wantIDs(t, other, "ab's", 256, 259)

	// A cut does not depend on what they are.
	text := strings.Repeat("ab é's ab ab é ab ", 2000)
	cuts := other.Cuts(nil, []byte(text), 0, 1)
	if len(cuts) == 0 {
		t.Error("no cuts")
	}
	for _, c := range cuts {
		checkCut(t, other, text, c.At)
	}
	if other.Holds([]byte("é ab"), cuts[0]) {
		t.Error("a cut holds beside a character that is not known")
	}
}

func TestUnknownCharactersInRewrittenText(t *testing.T) {
	_, other := variant(t, `{"version":"1.0","pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true},
		"model":{"vocab":{"a":0,"▁":1,"é":2},"merges":[]}}`, Variant{Unknown: &unicode.RangeTable{R16: []unicode.Range16{{'é', 'é', 1}}}})
	wantIDs(t, other, "a", 1, 0)
	if _, err := other.Encode(nil, []byte("é"), true); !errors.Is(err, ErrUnknown) {
		t.Errorf("err = %v, want %v", err, ErrUnknown)
	}
}
