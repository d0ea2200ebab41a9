package frontend

import (
	"maps"
	"slices"
	"strings"

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
// the built-in tokenizer that their engines name, if they do, and otherwise those that
// their engines give when asked, if they are of a kind that does. SetTokens keeps the
// map; it is called before the first request.
func (s *Server) SetTokens(byModel map[string]Tokens) {
	s.tokens = byModel
	s.unproven.Store(len(byModel) > 0)
}

// checkTokens warns once of entries that no served model uses. It waits until all
// engines have said what they serve.
func (s *Server) checkTokens() {
	if !s.unproven.Load() {
		return
	}
	if found, all := s.router.Workers(); found < all || !s.unproven.CompareAndSwap(true, false) {
		return
	}
	used := make(map[string]bool)
	for _, st := range s.router.Status() {
		used[s.entryOf(st.Model)] = true
	}
	var unused []string
	for _, name := range slices.Sorted(maps.Keys(s.tokens)) {
		if !used[name] {
			unused = append(unused, name)
		}
	}
	if len(unused) > 0 {
		s.log.Warn("no engine serves a model for these tokenizers", "models", strings.Join(unused, ", "))
	}
}

// entryOf returns the name under which the entry of a model is found, empty if it
// has none.
func (s *Server) entryOf(m *router.Model) string {
	for _, name := range []string{m.ID, m.Parent, OtherModels} {
		if _, ok := s.tokens[name]; ok {
			return name
		}
	}
	return ""
}

// tokensOf returns where the tokens of a model come from.
func (s *Server) tokensOf(m *router.Model) Tokens {
	if name := s.entryOf(m); name != "" {
		return s.tokens[name]
	}
	switch m.Tokenizer {
	case tokenize.ByteModel{}.Fingerprint():
		return Tokens{Local: tokenize.ByteModel{}}
	case qwen3.Fingerprint:
		s.qwen3.Store(true)
		return Tokens{Local: qwen3.Model()}
	default:
		return Tokens{Engine: m.EngineTokens}
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
