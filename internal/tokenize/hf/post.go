package hf

import (
	"encoding/json"
	"errors"
	"fmt"
)

// maxProcessors bounds the nesting of sequences.
const maxProcessors = 32

// frame is what a post-processor puts around a single text.
type frame struct{ before, after []uint32 }

// parsePost reads the post_processor member. What it does to offsets and to pairs
// of texts is of no concern here.
func parsePost(raw []byte) (frame, error) { return parsePostIn(raw, 0) }

func parsePostIn(raw []byte, depth int) (frame, error) {
	var p struct {
		Type       string            `json:"type"`
		Processors []json.RawMessage `json:"processors"`
		Single     []struct {
			SpecialToken *struct {
				ID string `json:"id"`
			}
			Sequence *struct {
				ID string `json:"id"`
			}
		} `json:"single"`
		SpecialTokens map[string]struct {
			IDs []uint32 `json:"ids"`
		} `json:"special_tokens"`
		CLS tokenAndID `json:"cls"`
		SEP tokenAndID `json:"sep"`
	}
	if len(raw) == 0 || string(raw) == "null" {
		return frame{}, nil
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return frame{}, err
	}
	switch p.Type {
	case "ByteLevel":
		return frame{}, nil
	case "BertProcessing", "RobertaProcessing":
		return frame{[]uint32{p.CLS.id}, []uint32{p.SEP.id}}, nil
	case "Sequence":
		if depth >= maxProcessors {
			return frame{}, fmt.Errorf("nested more than %d deep", maxProcessors)
		}
		var f frame
		for i, raw := range p.Processors {
			inner, err := parsePostIn(raw, depth+1)
			switch {
			case err != nil:
				return frame{}, fmt.Errorf("processors[%d]: %w", i, err)
			case len(inner.before)+len(inner.after) == 0:
			case len(f.before)+len(f.after) > 0:
				return frame{}, fmt.Errorf("processors[%d]: a second one that adds tokens is not supported", i)
			default:
				f = inner
			}
		}
		return f, nil
	case "TemplateProcessing":
		var f frame
		seen := false
		for i, piece := range p.Single {
			switch {
			case piece.Sequence != nil:
				if seen || piece.Sequence.ID != "A" {
					return frame{}, fmt.Errorf("single[%d]: expected the sequence A once", i)
				}
				seen = true
			case piece.SpecialToken != nil:
				t, ok := p.SpecialTokens[piece.SpecialToken.ID]
				if !ok {
					return frame{}, fmt.Errorf("single[%d]: %q is not in special_tokens", i, piece.SpecialToken.ID)
				}
				if seen {
					f.after = append(f.after, t.IDs...)
				} else {
					f.before = append(f.before, t.IDs...)
				}
			default:
				return frame{}, fmt.Errorf("single[%d]: expected SpecialToken or Sequence", i)
			}
		}
		if !seen {
			return frame{}, errors.New("single: expected the sequence A")
		}
		return f, nil
	default:
		return frame{}, fmt.Errorf("type %q is not supported", p.Type)
	}
}

// tokenAndID is a token written as a pair of its text and its id.
type tokenAndID struct{ id uint32 }

// UnmarshalJSON implements [json.Unmarshaler].
func (t *tokenAndID) UnmarshalJSON(raw []byte) error {
	var text string
	return json.Unmarshal(raw, &[]any{&text, &t.id})
}
