package frontend

import (
	"maps"
	"slices"

	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/hf"
	"github.com/stator-ai/stator/internal/tokenize/local"
	"github.com/stator-ai/stator/internal/tokenize/prefix"
	"github.com/stator-ai/stator/internal/tokenize/qwen3"
)

// Tokens says where the tokens of a model's prompts come from. The zero value is
// nowhere: requests are placed by their length in bytes.
type Tokens struct {
	// Local makes them in this process; nil means that it does not.
	Local tokenize.Model
	// Engine asks an engine of the model. It does not go with Local.
	Engine bool
}

// OtherModels is the name that stands for all models without an entry of their own.
const OtherModels = "*"

// SetTokens says where the tokens of models come from, by the names they are served
// under. An adapter without an entry has that of its model. Models without one have
// the built-in tokenizer that their engines name, if they do. SetTokens keeps the
// map; it is called before the first request.
func (s *Server) SetTokens(byModel map[string]Tokens) { s.tokens = byModel }

// tokensOf returns where the tokens of a model come from.
func (s *Server) tokensOf(m *router.Model) Tokens {
	for _, name := range []string{m.ID, m.Parent, OtherModels} {
		if t, ok := s.tokens[name]; ok {
			return t
		}
	}
	switch m.Tokenizer {
	case tokenize.ByteModel{}.Fingerprint():
		return Tokens{Local: tokenize.ByteModel{}}
	case qwen3.Fingerprint:
		s.qwen3.Store(true)
		return Tokens{Local: qwen3.Model()}
	default:
		return Tokens{}
	}
}

// knows reports whether all ids are in the vocabulary, as far as that is known.
func (t Tokens) knows(ids []uint32) bool {
	var vocabulary tokenize.Tokenizer
	switch m := t.Local.(type) {
	case tokenize.ByteModel:
		vocabulary = tokenize.Bytes{}
	case interface{ Tokenizer() *hf.Tokenizer }:
		vocabulary = m.Tokenizer()
	default:
		return true
	}
	_, err := vocabulary.Decode(nil, ids)
	return err == nil
}

// countTokenCaches publishes what the tokenizer caches hold. It is meant to be
// called when somebody looks.
func (s *Server) countTokenCaches() {
	used := slices.Collect(maps.Values(s.tokens))
	if s.qwen3.Load() {
		used = append(used, Tokens{Local: qwen3.Model()})
	}
	var sum int64
	seen := make(map[tokenize.Model]bool)
	for _, t := range used {
		if m, ok := t.Local.(interface{ Stats() prefix.Stats }); ok && !seen[t.Local] {
			seen[t.Local] = true
			sum += m.Stats().Bytes
		}
	}
	s.metrics.SetTokenizerCacheBytes(sum)
}

var _ interface {
	tokenize.Model
	stepwise
	Tokenizer() *hf.Tokenizer
	Stats() prefix.Stats
} = (*local.Model)(nil)
