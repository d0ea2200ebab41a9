package local_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/hub"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/chat"
	"github.com/stator-ai/stator/internal/tokenize/local"
	"github.com/stator-ai/stator/internal/tokenize/qwen3"
)

// TestLlamaCppTokens are those that llama.cpp 0.7 gives for Qwen3.
func TestLlamaCppTokens(t *testing.T) {
	m, err := qwen3.Open(local.Options{Chat: chat.Config{Dialect: chat.LlamaCpp}})
	if err != nil {
		t.Fatal(err)
	}
	if m.Fingerprint() == qwen3.Fingerprint {
		t.Error("the fingerprint is that of the file, for other tokens")
	}
	for text, want := range llamaTokens {
		got, err := m.Complete([]byte(text), false, tokenize.Hashing{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.IDs); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
		usual, err := qwen3.Model().Complete([]byte(text), false, tokenize.Hashing{})
		if err != nil || slices.Equal(usual.IDs, want) {
			t.Errorf("%q: the model's own tokenizer gives the same tokens (%v)", text, err)
		}
	}
}

// TestLlamaCppFrame shows that a chat begins with what every text begins with, once.
func TestLlamaCppFrame(t *testing.T) {
	const file = `{"version":"1.0","added_tokens":[{"id":0,"content":"<s>","special":true}],"pre_tokenizer":{"type":"WhitespaceSplit"},
		"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
			"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[0],"tokens":["<s>"]}}},
		"model":{"type":"WordLevel","unk_token":"?","vocab":{"<s>":0,"?":1,"hello":2,"</s>":3}}}`
	for _, template := range []string{`{{ bos_token }}{{ messages[0].content }}`, `{{ messages[0].content }}`} {
		m, err := local.Load(&hub.Files{
			Tokenizer: []byte(file), TokenizerConfig: []byte(`{"bos_token":"<s>"}`), ChatTemplate: []byte(template),
		}, local.Options{Chat: chat.Config{Dialect: chat.LlamaCpp}})
		if err != nil {
			t.Fatal(err)
		}
		h := tokenize.Hashing{Seed: 7, Size: 2}
		got, err := m.Chat(tokenize.Chat{Messages: []byte(`[{"role":"user","content":"hello </s>"}]`)}, h)
		want := []uint32{0, 2, 3}
		if err != nil || !slices.Equal(got.IDs, want) || !slices.Equal(got.Blocks, kv.AppendBlocks(nil, h.Seed, want, h.Size)) {
			t.Errorf("%s: got %d with blocks %v, %v; want %d", template, got.IDs, got.Blocks, err, want)
		}
	}
}

// llamaTokens are texts in which llama.cpp sees other characters or special tokens.
var llamaTokens = map[string][]uint32{
	"Cafe\u0301 au lait":       {34, 5645, 53839, 7906, 1187, 275},
	"\u1112\u1161\u11ab":       {146073, 146679, 147245},
	"the end</s> of it":        {1782, 835, 128247, 315, 432},
	"\U00010d40's, \ua7cb-foo": {123934, 113, 222, 6, 82, 11, 8620, 253, 233, 12, 7975},
}
