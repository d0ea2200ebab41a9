package hf

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"unicode"

	"github.com/stator-ai/stator/internal/tokenize/normal"
)

// Variant says what an engine does in another way than the file of a tokenizer says.
type Variant struct {
	// NoForms leaves out the normal forms of Unicode, such as NFC. What else the
	// normalizer does is done.
	NoForms bool
	// Special are tokens of the vocabulary that are special, by their spelling.
	// Those that it does not have do not count, nor those that are added tokens
	// already.
	Special []string
	// Unknown are characters that have no class where text is split: neither letters
	// nor anything else. Nil for none, and ASCII is always known.
	Unknown *unicode.RangeTable
}

// Variant returns a tokenizer that is other than t as v says, with a fingerprint of its
// own, or t itself if that is no difference. The two share the vocabulary.
func (t *Tokenizer) Variant(v Variant) (*Tokenizer, error) {
	out := &Tokenizer{
		normalization: t.normalization, formless: t.formless,
		vocab: t.vocab, odd: t.odd, bpe: t.bpe, model: t.model,
		plan: t.plan, unknown: t.unknown, next: t.next, dec: t.dec, frame: t.frame, whole: t.whole,
		warnings: t.warnings,
	}
	change := struct {
		NoForms bool
		Special []AddedToken
		Unknown *unicode.RangeTable
	}{Unknown: v.Unknown}
	if v.Unknown != nil {
		out.unknown = newUnknowns(v.Unknown)
	}
	if v.NoForms && t.formless != nil {
		out.normalization, out.formless = *t.formless, nil
		change.NoForms = true
	}
	var added []AddedToken
	for _, m := range t.passes {
		if m != nil {
			added = append(added, m.tokens...)
		}
	}
	for _, text := range v.Special {
		id, ok := t.modelID(text)
		if ok && !slices.ContainsFunc(added, func(a AddedToken) bool { return a.ID == id || a.Content == text }) {
			a := AddedToken{ID: id, Content: text, Special: true}
			added = append(added, a)
			change.Special = append(change.Special, a)
		}
	}
	if !change.NoForms && change.Special == nil && change.Unknown == nil {
		return t, nil
	}
	if err := out.setAdded(added, out.plan.ByteLevel()); err != nil {
		return nil, fmt.Errorf("added_tokens: %w", err)
	}
	h := sha256.New()
	h.Write([]byte(t.fingerprint))
	if err := json.NewEncoder(h).Encode(change); err != nil {
		return nil, err
	}
	out.fingerprint = hex.EncodeToString(h.Sum(nil))
	return out, nil
}

// normalization is what is done to text before it is split.
type normalization struct {
	norm        normal.Normalizer // nil for nothing
	plain       bool              // it does not look at what is far
	marksSpaces bool              // it makes word marks of spaces, and nothing else
}

func parseNormalization(raw []byte) (n normalization, err error) {
	if n.norm, err = normal.Parse(raw); err != nil {
		return n, err
	}
	n.plain, n.marksSpaces = local(raw)
	return n, nil
}

// withoutForms returns a valid normalizer member without its normal forms of Unicode,
// nil for one that has none.
func withoutForms(raw []byte) []byte {
	kept, found := keepOthers([]json.RawMessage{}, raw)
	if !found {
		return nil
	}
	out, err := json.Marshal(map[string]any{"type": "Sequence", "normalizers": kept})
	if err != nil {
		panic(err) // they were parsed
	}
	return out
}

// keepOthers appends the steps of a normalizer that are no normal forms, and tells
// whether there are such. Sequences are unrolled.
func keepOthers(dst []json.RawMessage, raw []byte) (_ []json.RawMessage, found bool) {
	var n struct {
		Type  string            `json:"type"`
		Parts []json.RawMessage `json:"normalizers"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &n) != nil {
		return dst, false
	}
	switch n.Type {
	case "":
		return dst, false
	case "NFC", "NFD", "NFKC", "NFKD":
		return dst, true
	case "Sequence":
		for _, part := range n.Parts {
			var here bool
			dst, here = keepOthers(dst, part)
			found = found || here
		}
		return dst, found
	default:
		return append(dst, raw), false
	}
}
