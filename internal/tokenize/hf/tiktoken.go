package hf

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/stator-ai/stator/internal/tokenize/detok"
	"github.com/stator-ai/stator/internal/tokenize/split"
)

// ParseTiktoken reads a vocabulary in tiktoken's form: on each line a token in
// base64, a space, and its rank, which is also its id. Such files do not say how
// text is split, so the pattern is given, and so are the special tokens, with their
// ids. The fingerprint covers all three.
func ParseTiktoken(data []byte, pattern string, added []AddedToken) (*Tokenizer, error) {
	m := &bpe{bytes: true, byID: true, unk: none, ignoreMerges: true}
	line := 0
	for rest := data; len(rest) > 0; {
		line++
		var row []byte
		row, rest, _ = bytes.Cut(rest, []byte{'\n'})
		row = bytes.TrimSuffix(row, []byte{'\r'})
		if len(row) == 0 {
			continue
		}
		text, rank, ok := bytes.Cut(row, []byte{' '})
		if !ok {
			return nil, fmt.Errorf("line %d: expected a token in base64, a space and a rank", line)
		}
		token, err := base64.StdEncoding.AppendDecode(nil, text)
		if err != nil || len(token) == 0 {
			return nil, fmt.Errorf("line %d: expected a token in base64, got %q", line, text)
		}
		id, err := strconv.ParseUint(string(rank), 10, 32)
		if err != nil || id > maxID {
			return nil, fmt.Errorf("line %d: expected a rank between 0 and %d, got %q", line, maxID, rank)
		}
		m.vocab.add(token, uint32(id))
	}
	if i, ok := m.vocab.index(); !ok {
		return nil, fmt.Errorf("two tokens have the rank %d", m.vocab.ids[i])
	}
	m.finish()
	if !m.complete {
		return nil, errors.New("expected a token for each of the 256 bytes")
	}
	t := &Tokenizer{vocab: &m.vocab, bpe: m}
	var err error
	if t.plan, err = split.Parse(bytePlan(pattern)); err != nil {
		return nil, fmt.Errorf("pattern: %w", err)
	}
	t.next = t.plan.Next()
	if t.dec, err = detok.Parse([]byte(`{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true}`)); err != nil {
		return nil, err
	}
	added = slices.DeleteFunc(slices.Clone(added), func(a AddedToken) bool { return a.Content == "" })
	for i, a := range added {
		if a.ID > maxID {
			return nil, fmt.Errorf("added token %q: expected an id of at most %d, got %d", a.Content, maxID, a.ID)
		}
		if text, _, ok := t.Token(a.ID); ok && string(text) != a.Content {
			return nil, fmt.Errorf("added token %q: its id %d is another token's", a.Content, a.ID)
		}
		added[i].Normalized = false
	}
	if err := t.setAdded(added, false); err != nil {
		return nil, fmt.Errorf("added token %w", err)
	}
	h := sha256.New()
	h.Write(data)
	if err := json.NewEncoder(h).Encode([]any{pattern, added}); err != nil {
		return nil, err
	}
	t.fingerprint = hex.EncodeToString(h.Sum(nil))
	return t, nil
}

// bytePlan returns the pre_tokenizer that splits by a pattern and looks at bytes.
func bytePlan(pattern string) []byte {
	p, err := json.Marshal(pattern)
	if err != nil {
		panic(err) // strings always marshal
	}
	return fmt.Appendf(nil, `{"type":"Sequence","pretokenizers":[
		{"type":"Split","pattern":{"Regex":%s},"behavior":"Isolated","invert":false},
		{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]}`, p)
}
