package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// file is a tokenizer.json, its members checked but not yet understood.
type file struct {
	added         []AddedToken
	normalizer    []byte
	preTokenizer  []byte
	postProcessor []byte
	decoder       []byte
	model         modelFile
}

// modelFile is the model member. Vocabulary and merges are left as they are.
type modelFile struct {
	Type          string   `json:"type"`
	Dropout       *float64 `json:"dropout"`
	UnkToken      *string  `json:"unk_token"`
	UnkID         *int     `json:"unk_id"`
	Prefix        *string  `json:"continuing_subword_prefix"`
	Suffix        *string  `json:"end_of_word_suffix"`
	FuseUnk       bool     `json:"fuse_unk"`
	ByteFallback  bool     `json:"byte_fallback"`
	IgnoreMerges  bool     `json:"ignore_merges"`
	MaxInputChars *int     `json:"max_input_chars_per_word"`

	vocab, merges []byte // nil when they have been read already
	read          bool   // the vocabulary has
}

// reader reads the large members of a model, vocab and merges, as they are met. It
// returns false if it cannot yet, for want of something that comes later.
type reader func(f *file, kind, member string, s *scanner) (bool, error)

// parseFile takes a tokenizer.json apart. The result refers to data. Large members are
// given to read, if it is not nil, so that they are gone through once.
func parseFile(data []byte, read reader) (*file, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	s := scanner{data: data}
	var f file
	found := false
	err := s.object(func(key []byte) error {
		var err error
		switch name := string(key); name {
		case "version":
			var version string
			if err = s.value(&version); err == nil && version != "1.0" {
				err = fmt.Errorf("expected \"1.0\", got %q", version)
			}
		case "added_tokens":
			err = s.addedTokens(&f.added)
		case "normalizer":
			f.normalizer, err = s.raw()
		case "pre_tokenizer":
			f.preTokenizer, err = s.raw()
		case "post_processor":
			f.postProcessor, err = s.raw()
		case "decoder":
			f.decoder, err = s.raw()
		case "model":
			found = true
			err = f.parseModel(&s, read)
		default: // truncation and padding too: they clip prompts
			return s.skip(1)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	})
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, errors.New("model: expected an object, got nothing")
	}
	return &f, nil
}

func (s *scanner) addedTokens(dst *[]AddedToken) error {
	if s.peek() == 'n' {
		return s.skip(1)
	}
	return s.array(func(i int) error {
		var t AddedToken
		if err := s.value(&t); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
		if t.ID > maxID {
			return fmt.Errorf("[%d].id: expected at most %d, got %d", i, maxID, t.ID)
		}
		*dst = append(*dst, t)
		return nil
	})
}

// parseModel takes the model member apart.
func (f *file) parseModel(s *scanner, read reader) error {
	m := &f.model
	small := []byte{'{'}
	err := s.object(func(key []byte) error {
		name := string(key)
		large := name == "vocab" || name == "merges"
		if large && read != nil {
			var head struct {
				Type string `json:"type"`
			}
			if json.Unmarshal(append(slices.Clip(small), '}'), &head) == nil {
				if done, err := read(f, head.Type, name, s); done || err != nil {
					return err
				}
			}
		}
		raw, err := s.raw()
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		case name == "vocab":
			m.vocab = raw
		case name == "merges":
			m.merges = raw
		default:
			if len(small) > 1 {
				small = append(small, ',')
			}
			small = append(small, mustJSON(name)...)
			small = append(append(small, ':'), raw...)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := json.Unmarshal(append(small, '}'), m); err != nil {
		return err
	}
	if m.vocab == nil && !m.read {
		if !slices.Contains([]string{"", "BPE", "Unigram", "WordPiece", "WordLevel"}, m.Type) {
			return fmt.Errorf("type %q is not supported", m.Type)
		}
		return errors.New("vocab: expected an object, got nothing")
	}
	if m.read && m.Type != "BPE" {
		return errors.New("type: given twice")
	}
	if m.Type == "" { // old files leave it out
		switch {
		case m.merges != nil:
			m.Type = "BPE"
		case m.vocab[0] == '[':
			m.Type = "Unigram"
		case m.Prefix != nil || m.MaxInputChars != nil:
			m.Type = "WordPiece"
		default:
			m.Type = "WordLevel"
		}
	}
	return nil
}

func mustJSON(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings always marshal
	}
	return b
}

// vocab calls add for each token of a vocabulary that is an object.
func (s *scanner) vocab(add func(token []byte, id uint32) error) error {
	return s.object(func(key []byte) error {
		// Keys with escapes lie in a buffer that the id does not touch.
		id, err := s.id()
		if err != nil {
			return err
		}
		return add(key, id)
	})
}

// merges calls add for each merge, which is written as "a b" or as ["a", "b"].
func (s *scanner) merges(add func(rank int, left, right []byte) error) error {
	var left []byte
	rank := 0
	return s.array(func(i int) error {
		if s.peek() == '[' {
			err := s.array(func(k int) error {
				part, err := s.str()
				if err != nil {
					return err
				}
				switch k {
				case 0:
					left = append(left[:0], part...)
				case 1:
					if err := add(rank, left, part); err != nil {
						return fmt.Errorf("[%d]: %w", i, err)
					}
					rank++
				default:
					return fmt.Errorf("[%d]: expected two tokens, got more", i)
				}
				return nil
			})
			if err == nil && rank != i+1 {
				return fmt.Errorf("[%d]: expected two tokens", i)
			}
			return err
		}
		line, err := s.str()
		if err != nil {
			return err
		}
		if bytes.HasPrefix(line, []byte("#version")) {
			return nil
		}
		a, b, ok := bytes.Cut(line, []byte{' '})
		if !ok || bytes.IndexByte(b, ' ') >= 0 {
			return fmt.Errorf("[%d]: expected two tokens with a space between, got %.100q", i, line)
		}
		if err := add(rank, a, b); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
		rank++
		return nil
	})
}
