package model

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// WordPiece cuts a word into the longest token it begins with, the longest
// continuation the rest begins with, and so on. A word that cannot be cut like this
// to its end is unknown as a whole. It does not change and is safe for concurrent
// use.
type WordPiece struct {
	words    trie
	rest     trie // continuations, without their prefix
	unk      int32
	maxChars int
}

// NewWordPiece returns a model with the given vocabulary: tokens[i] has ids[i], and
// of equal tokens the last counts. A token that begins with prefix is a continuation,
// besides being what it is. Words of more than maxChars characters are unknown. An
// unk that is not among the tokens matters only to text that needs it. An error says
// that tokens and ids do not go together. Tokens and ids are not kept.
func NewWordPiece(tokens []string, ids []uint32, unk, prefix string, maxChars int) (*WordPiece, error) {
	if len(tokens) != len(ids) {
		return nil, fmt.Errorf("vocab: expected as many ids as tokens, got %d and %d", len(ids), len(tokens))
	}
	var rest []string
	var restIDs []uint32
	for i, t := range tokens {
		if int32(ids[i]) < 0 {
			return nil, fmt.Errorf("vocab: %q: expected an id below 2^31, got %d", t, ids[i])
		}
		if r, ok := strings.CutPrefix(t, prefix); ok {
			rest = append(rest, r)
			restIDs = append(restIDs, ids[i])
		}
	}
	m := &WordPiece{words: newTrie(tokens, ids), rest: newTrie(rest, restIDs), unk: none, maxChars: maxChars}
	for i, t := range tokens {
		if t == unk {
			m.unk = int32(ids[i])
		}
	}
	return m, nil
}

// Encode appends the ids of word to dst. The error is [ErrNoUnknown], with dst
// returned as it came. Word is read only and not kept.
func (m *WordPiece) Encode(dst []uint32, word []byte) ([]uint32, error) {
	at := len(dst)
	if m.tooLong(word) {
		return m.unknown(dst)
	}
	t := m.words
	for len(word) > 0 {
		id, size := t.longest(word)
		if size == 0 {
			return m.unknown(dst[:at])
		}
		dst = append(dst, uint32(id))
		word = word[size:]
		t = m.rest
	}
	return dst, nil
}

func (m *WordPiece) unknown(dst []uint32) ([]uint32, error) {
	if m.unk == none {
		return dst, ErrNoUnknown
	}
	return append(dst, uint32(m.unk)), nil
}

// tooLong reports whether word has more than the allowed number of characters.
func (m *WordPiece) tooLong(word []byte) bool {
	return len(word) > m.maxChars && (len(word) > utf8.UTFMax*m.maxChars || utf8.RuneCount(word) > m.maxChars)
}
