package hf

import (
	"fmt"
	"strings"
)

// giveIDs returns the added tokens with their ids. The library does not look at the
// ids in the file, so neither does this. The first own tokens are the file's.
func (t *Tokenizer) giveIDs(tokens []AddedToken, own int) []AddedToken {
	at := make(map[string]int, len(tokens)) // in kept, by content
	size := uint32(t.vocab.len() + len(t.odd.ids))
	next := size
	kept := make([]AddedToken, 0, len(tokens))
	for i, a := range tokens {
		if i == own { // those that follow are added later, behind the largest
			for _, k := range kept {
				if k.ID >= size {
					next = max(next, k.ID+1)
				}
			}
		}
		if a.Content == "" {
			continue
		}
		known, again := at[a.Content]
		id, ok := uint32(0), again
		if again {
			id = kept[known].ID
		} else if id, ok = t.modelID(a.Content); !ok {
			id = next
			next++
		}
		if id != a.ID {
			t.warnings = append(t.warnings, fmt.Sprintf(
				"added_tokens[%d]: %q has id %d in the file, but the library gives it %d", i, a.Content, a.ID, id))
			a.ID = id
		}
		if again {
			a.Special = a.Special || kept[known].Special
			kept[known] = a
			continue
		}
		at[a.Content] = len(kept)
		kept = append(kept, a)
	}
	return kept
}

// maxAdded bounds the length of an added token: finding one takes time in proportion
// to it.
const maxAdded = 1024

// setAdded takes the added tokens over and makes the matchers. With alphabet set,
// decoders see the spelling of a token as that of any other, in the byte alphabet.
func (t *Tokenizer) setAdded(tokens []AddedToken, alphabet bool) error {
	t.added = make(map[uint32]addedText, len(tokens))
	t.low, t.high = none, 0
	special := make(map[string]bool)
	for _, a := range tokens {
		if a.Special {
			special[a.Content] = true
		}
	}
	for pass := range t.passes {
		var all, blank []AddedToken
		var spellings, blanks []string
		seen := make(map[string]string)
		for _, a := range tokens {
			if a.Normalized != (pass == 1) {
				continue
			}
			spelling := a.Content
			if pass == 1 && t.norm != nil {
				spelling = string(t.norm.Normalize(nil, []byte(spelling)))
			}
			other, twice := seen[spelling]
			_, taken := t.added[a.ID]
			switch {
			case len(a.Content) > maxAdded || len(spelling) > maxAdded:
				return fmt.Errorf("%.40q…: expected at most %d bytes, got %d", a.Content, maxAdded, max(len(a.Content), len(spelling)))
			case spelling == "":
				return fmt.Errorf("%q: nothing is left of it when it is normalized", a.Content)
			case twice:
				return fmt.Errorf("%q and %q are the same when they are normalized", other, a.Content)
			case taken:
				return fmt.Errorf("%q: its id %d is that of another", a.Content, a.ID)
			}
			seen[spelling] = a.Content
			all, spellings = append(all, a), append(spellings, spelling)
			if strings.Trim(a.Content, " \t\r\n▁") == "" {
				blank, blanks = append(blank, a), append(blanks, spelling)
			}
			// Decoders see what is looked for, and whether that is special.
			text := []byte(spelling)
			if alphabet {
				if raw, ok := appendRaw(nil, text); ok {
					text = raw
				}
			}
			t.added[a.ID] = addedText{text, special[spelling]}
			t.low, t.high = min(t.low, a.ID), max(t.high, a.ID)
		}
		t.passes[pass] = newMatcher(all, spellings)
		t.blank[pass] = newMatcher(blank, blanks)
	}
	t.findCuts()
	return nil
}

// modelID returns the id of a token of the model, spelled as in the file.
func (t *Tokenizer) modelID(token string) (uint32, bool) {
	text := []byte(token)
	if t.plan.ByteLevel() {
		raw, ok := appendRaw(nil, text)
		if !ok {
			id, ok := t.odd.ids[token]
			return id, ok
		}
		text = raw
	}
	id := t.vocab.lookup(text)
	return id, id != none
}
