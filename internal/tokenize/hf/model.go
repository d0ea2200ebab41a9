package hf

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/stator-ai/stator/internal/tokenize/model"
	"github.com/stator-ai/stator/internal/tokenize/split"
)

// read implements reader: it takes the vocabulary and the merges of a BPE model where
// they stand, if the pre_tokenizer came before them, as it does in most files.
func (t *Tokenizer) read(f *file, kind, member string, s *scanner) (bool, error) {
	switch {
	case kind != "BPE" || f.preTokenizer == nil || s.peek() == 'n':
		return false, nil
	case member == "vocab":
		plan, err := split.Parse(f.preTokenizer)
		if err != nil {
			return false, err
		}
		if f.model.read {
			return false, errors.New("vocab: given twice")
		}
		f.model.read = true
		t.bpe = &bpe{bytes: plan.ByteLevel()}
		t.vocab = &t.bpe.vocab
		if err := t.loadVocab(s, t.bpe.bytes); err != nil {
			return false, fmt.Errorf("vocab: %w", err)
		}
		return true, nil
	case !f.model.read:
		return false, nil
	case t.bpe.pairs.slots != nil:
		return false, errors.New("merges: given twice")
	default:
		if err := t.loadMerges(t.bpe, s); err != nil {
			return false, fmt.Errorf("merges: %w", err)
		}
		return true, nil
	}
}

// loadModel makes the model and its vocabulary.
func (t *Tokenizer) loadModel(f *modelFile) error {
	if f.Type != "BPE" || t.bpe == nil {
		t.vocab, t.bpe = new(vocab), nil
	}
	if t.plan.ByteLevel() && f.Type != "BPE" {
		return fmt.Errorf("a %s model with a ByteLevel pre_tokenizer is not supported", f.Type)
	}
	switch f.Type {
	case "BPE":
		return t.loadBPE(f)
	case "Unigram":
		return t.loadUnigram(f)
	case "WordPiece":
		return t.loadWordPiece(f)
	case "WordLevel":
		return t.loadWordLevel(f)
	default:
		return fmt.Errorf("type %q is not supported", f.Type)
	}
}

func (t *Tokenizer) loadBPE(f *modelFile) error {
	switch {
	case f.Dropout != nil && *f.Dropout != 0:
		return errors.New("dropout: ids that depend on chance are not supported")
	case f.Prefix != nil && *f.Prefix != "":
		return errors.New("continuing_subword_prefix is not supported")
	case f.Suffix != nil && *f.Suffix != "":
		return errors.New("end_of_word_suffix is not supported")
	}
	if f.ByteFallback && t.plan.ByteLevel() {
		return errors.New("byte_fallback with a ByteLevel pre_tokenizer is not supported")
	}
	if t.bpe == nil {
		t.bpe = &bpe{bytes: t.plan.ByteLevel()}
		t.vocab = &t.bpe.vocab
		if err := t.loadVocab(&scanner{data: f.vocab}, t.bpe.bytes); err != nil {
			return fmt.Errorf("vocab: %w", err)
		}
	}
	m := t.bpe
	if m.bytes != t.plan.ByteLevel() {
		return errors.New("read with another pre_tokenizer than the last of the file")
	}
	m.fallback, m.fuse, m.ignoreMerges, m.unk = f.ByteFallback, f.FuseUnk, f.IgnoreMerges, none
	if f.UnkToken != nil && *f.UnkToken != "" {
		id, ok := t.modelID(*f.UnkToken)
		if !ok {
			return fmt.Errorf("unk_token: %q is not in the vocabulary", *f.UnkToken)
		}
		m.unk = id
	}
	switch {
	case m.pairs.slots != nil:
	case f.merges == nil:
		return errors.New("merges: expected an array, got nothing")
	default:
		if err := t.loadMerges(m, &scanner{data: f.merges}); err != nil {
			return fmt.Errorf("merges: %w", err)
		}
	}
	m.finish()
	m.allowCuts('▁')
	return nil
}

// loadVocab reads a vocabulary that is an object, turned into bytes if it is
// spelled in the byte alphabet.
func (t *Tokenizer) loadVocab(s *scanner, alphabet bool) error {
	t.vocab.grow(len(s.data)/64, len(s.data)/16)
	var buf []byte
	err := s.vocab(func(token []byte, id uint32) error {
		if !alphabet {
			t.vocab.add(token, id)
			return nil
		}
		var ok bool
		if buf, ok = appendRaw(buf[:0], token); ok {
			t.vocab.add(buf, id)
			return nil
		}
		if t.odd.ids == nil {
			t.odd = oddTokens{make(map[string]uint32), make(map[uint32]string)}
		}
		t.odd.ids[string(token)], t.odd.texts[id] = id, string(token)
		return nil
	})
	if err != nil {
		return err
	}
	if i, ok := t.vocab.index(); !ok {
		return fmt.Errorf("two tokens have the id %d", t.vocab.ids[i])
	}
	if t.vocab.twice {
		return errors.New("a token is given twice")
	}
	return nil
}

func (t *Tokenizer) loadMerges(m *bpe, s *scanner) error {
	// At least two quotes for each, and four where they are lists.
	m.pairs = newPairTable(bytes.Count(s.data[s.at:], []byte{'"'}) / 4)
	var buf []byte
	last := uint32(0) // the index of the token that was made last
	return s.merges(func(rank int, left, right []byte) error {
		buf = buf[:0]
		at := 0
		if m.bytes {
			var ok, ok2 bool
			buf, ok = appendRaw(buf, left)
			at = len(buf)
			buf, ok2 = appendRaw(buf, right)
			if !ok || !ok2 { // no text leads to these
				return nil
			}
		} else {
			buf = append(append(buf, left...), right...)
			at = len(left)
		}
		// Lists follow the vocabulary, so the next token is often the one made.
		l, r, both := m.vocab.lookup(buf[:at]), m.vocab.lookup(buf[at:]), none
		for range 2 {
			if int(last) < m.vocab.len() && string(m.vocab.at(last)) == string(buf) {
				both = m.vocab.id(last)
				break
			}
			last++
		}
		if both == none {
			if last = *m.vocab.slot(buf) - 1; last != none {
				both = m.vocab.id(last)
			}
		}
		switch none {
		case l:
			return fmt.Errorf("%.100q is not in the vocabulary", left)
		case r:
			return fmt.Errorf("%.100q is not in the vocabulary", right)
		case both:
			return fmt.Errorf("%.100q is not in the vocabulary", string(left)+string(right))
		}
		m.pairs.add(l, r, uint32(rank), both)
		return nil
	})
}

func (t *Tokenizer) loadUnigram(f *modelFile) error {
	s := scanner{data: f.vocab}
	var pieces []model.Piece
	err := s.array(func(i int) error {
		var p model.Piece
		if err := s.value(&[]any{&p.Text, &p.Score}); err != nil {
			return fmt.Errorf("[%d]: expected a token and its score: %w", i, err)
		}
		pieces = append(pieces, p)
		t.vocab.add([]byte(p.Text), uint32(i))
		return nil
	})
	if err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	t.vocab.index()
	unk := -1
	if f.UnkID != nil {
		unk = *f.UnkID
	}
	u, err := model.NewUnigram(pieces, unk, f.ByteFallback)
	if err != nil {
		return err
	}
	t.model = u
	return nil
}

func (t *Tokenizer) loadWordPiece(f *modelFile) error {
	if err := t.loadVocab(&scanner{data: f.vocab}, false); err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	unk, prefix, limit := "[UNK]", "##", 100
	if f.UnkToken != nil {
		unk = *f.UnkToken
	}
	if f.Prefix != nil {
		prefix = *f.Prefix
	}
	if f.MaxInputChars != nil {
		limit = *f.MaxInputChars
	}
	texts, ids := make([]string, 0, t.vocab.len()), make([]uint32, 0, t.vocab.len())
	for i := range uint32(t.vocab.len()) {
		texts, ids = append(texts, string(t.vocab.at(i))), append(ids, t.vocab.id(i))
	}
	w, err := model.NewWordPiece(texts, ids, unk, prefix, limit)
	if err != nil {
		return err
	}
	t.model = w
	return nil
}

// wordLevel is the model that knows whole pieces only.
type wordLevel struct {
	vocab *vocab
	unk   uint32
}

// Encode appends the id of the piece, or the unknown token.
func (m wordLevel) Encode(dst []uint32, piece []byte) ([]uint32, error) {
	id := m.vocab.lookup(piece)
	if id == none {
		id = m.unk
	}
	return append(dst, id), nil
}

func (t *Tokenizer) loadWordLevel(f *modelFile) error {
	if err := t.loadVocab(&scanner{data: f.vocab}, false); err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	if f.UnkToken == nil {
		return errors.New("unk_token: expected a token, got nothing")
	}
	unk := t.vocab.lookup([]byte(*f.UnkToken))
	if unk == none {
		return fmt.Errorf("unk_token: %q is not in the vocabulary", *f.UnkToken)
	}
	t.model = wordLevel{t.vocab, unk}
	return nil
}
