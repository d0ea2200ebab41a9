package hf

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// The compact form of a byte-level tokenizer leaves out the merges, which can be
// told from the vocabulary where ids are in the order of their ranks, and needs no
// decoding. It begins with this line; lengths are varints:
//
//	header   length, JSON
//	lengths  of the tokens 0, 1, 2, …
//	text     of the tokens, one after another
const compactMagic = "stator tokenizer 1\n"

type compactHeader struct {
	Fingerprint   string          `json:"fingerprint"`
	Normalizer    json.RawMessage `json:"normalizer,omitempty"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor,omitempty"`
	Decoder       json.RawMessage `json:"decoder"`
	Added         []AddedToken    `json:"added_tokens"`
	Tokens        int             `json:"tokens"`
}

// Compact returns the compact form of a tokenizer.json. Not every tokenizer has
// one; the error says why this has none. It takes a while, since it makes sure that
// both forms give the same ids.
func Compact(data []byte) ([]byte, error) {
	t, err := Parse(data)
	if err != nil {
		return nil, err
	}
	if err := t.rankedByID(); err != nil {
		return nil, err
	}
	f, err := parseFile(data, nil)
	if err != nil {
		return nil, err
	}
	h := compactHeader{
		Fingerprint:   t.fingerprint,
		Normalizer:    f.normalizer,
		PreTokenizer:  f.preTokenizer,
		PostProcessor: f.postProcessor,
		Decoder:       f.decoder,
		Added:         f.added,
		Tokens:        t.vocab.len(),
	}
	header, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	out := []byte(compactMagic)
	out = binary.AppendUvarint(out, uint64(len(header)))
	out = append(out, header...)
	for id := range uint32(t.vocab.len()) {
		text, _ := t.vocab.token(id)
		out = binary.AppendUvarint(out, uint64(len(text)))
	}
	for id := range uint32(t.vocab.len()) {
		text, _ := t.vocab.token(id)
		out = append(out, text...)
	}
	return out, nil
}

// rankedByID makes sure that merging by id is merging by rank. Merges lead to ids
// in their order, and each token is what its own text is merged to. So two
// neighbours that make up a token always have a merge: without one, the text of
// that token would end as those two.
func (t *Tokenizer) rankedByID() error {
	m := t.bpe
	if m == nil || !m.complete || m.unk != none || m.ignoreMerges || len(t.odd.ids) > 0 {
		return errors.New("not a byte-level BPE model with all bytes and without unk_token and ignore_merges")
	}
	if m.vocab.size() != m.vocab.len() {
		return errors.New("ids have gaps")
	}
	merges := make([]uint64, 0, m.pairs.n)
	for _, p := range m.pairs.slots {
		if p.key != 0 {
			merges = append(merges, p.val)
		}
	}
	slices.Sort(merges)
	last := uint32(0)
	for _, v := range merges {
		if id := uint32(v); id <= last {
			return fmt.Errorf("token %d is made by a later merge than token %d", id, last)
		}
		last = uint32(v)
	}
	var s state
	var ids []uint32
	for id := range uint32(m.vocab.len()) {
		text, _ := m.vocab.token(id)
		if ids = m.run(ids[:0], text, &s); len(ids) != 1 || ids[0] != id {
			return fmt.Errorf("the text of token %d, %q, is merged to %d", id, text, ids)
		}
	}
	return nil
}

// ReadCompact reads what [Compact] has made. The tokenizer refers to data, which
// must not be changed.
func ReadCompact(data []byte) (*Tokenizer, error) {
	rest, ok := bytes.CutPrefix(data, []byte(compactMagic))
	if !ok {
		return nil, errors.New("not a tokenizer in compact form")
	}
	size, n := binary.Uvarint(rest)
	if n <= 0 || size > uint64(len(rest)-n) {
		return nil, errors.New("header: cut short")
	}
	var h compactHeader
	if err := json.Unmarshal(rest[n:n+int(size)], &h); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	rest = rest[n+int(size):]
	if _, err := hex.DecodeString(h.Fingerprint); err != nil || h.Tokens < 0 || h.Tokens > len(rest) {
		return nil, errors.New("header: not one of this form")
	}
	m := &bpe{bytes: true, byID: true, unk: none}
	m.vocab.ends = make([]uint32, h.Tokens)
	end := uint64(0)
	for i := range m.vocab.ends {
		size, n := binary.Uvarint(rest)
		if n <= 0 || size > uint64(len(data)) {
			return nil, errors.New("lengths: cut short")
		}
		rest = rest[n:]
		end += size
		m.vocab.ends[i] = uint32(end)
	}
	if end != uint64(len(rest)) {
		return nil, fmt.Errorf("text: expected %d bytes, got %d", end, len(rest))
	}
	m.vocab.text = rest
	m.vocab.index()
	m.finish()
	if !m.complete {
		return nil, errors.New("text: expected a token for each of the 256 bytes")
	}
	t := &Tokenizer{fingerprint: h.Fingerprint, vocab: &m.vocab, bpe: m}
	err := t.components(&file{
		normalizer:    h.Normalizer,
		preTokenizer:  h.PreTokenizer,
		postProcessor: h.PostProcessor,
		decoder:       h.Decoder,
	})
	if err != nil {
		return nil, err
	}
	if err := t.setAdded(t.giveIDs(h.Added, len(h.Added)), t.plan.ByteLevel()); err != nil {
		return nil, fmt.Errorf("header: added_tokens: %w", err)
	}
	return t, nil
}
