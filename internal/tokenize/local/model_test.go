package local

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/chat"
)

// wordFile is a tokenizer of whole words, with a token that begins a sequence.
const wordFile = `{"version":"1.0","added_tokens":[
		{"id":0,"content":"<s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},
		{"id":1,"content":"</s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
	"pre_tokenizer":{"type":"WhitespaceSplit"},
	"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
		"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[0],"tokens":["<s>"]}}},
	"model":{"type":"WordLevel","unk_token":"?","vocab":{"<s>":0,"</s>":1,"?":2,"user":3,"assistant":4,"hello":5,"you":6}}}`

const wordTemplate = `{% for m in messages %}{{ bos_token if loop.first }}{{ m.role }} {{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}assistant{% endif %}`

// dir writes files into a new directory.
func dir(t *testing.T, files map[string]string) string {
	t.Helper()
	d := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(d, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func open(t *testing.T, files map[string]string, o Options) *Model {
	t.Helper()
	m, err := Open(context.Background(), dir(t, files), nil, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestChat(t *testing.T) {
	m := open(t, map[string]string{
		"tokenizer.json":        wordFile,
		"tokenizer_config.json": `{"bos_token":"<s>","eos_token":{"content":"</s>"},"chat_template":"unused"}`,
		"chat_template.jinja":   wordTemplate,
	}, Options{})
	r, err := m.Chat(tokenize.Chat{Messages: []byte(`[{"role":"user","content":"hello you"}]`)}, tokenize.Hashing{Seed: 7, Size: 2})
	if err != nil {
		t.Fatal(err)
	}
	want := []uint32{0, 3, 5, 6, 1, 4}
	if !slices.Equal(r.IDs, want) || string(r.Text) != "<s>user hello you</s>assistant" || r.Source != tokenize.Local || r.Fingerprint != m.Fingerprint() {
		t.Errorf("got %d, %q, %v", r.IDs, r.Text, r.Source)
	}
	if !slices.Equal(r.Blocks, kv.AppendBlocks(nil, 7, want, 2)) {
		t.Errorf("got %v", r.Blocks)
	}
	if m.ChatError() != nil {
		t.Error(m.ChatError())
	}
}

func TestTemplateFromOptions(t *testing.T) {
	files := map[string]string{"tokenizer.json": wordFile, "tokenizer_config.json": `{"chat_template":[{"name":"default","template":"a"},{"name":"tool_use","template":"b"}]}`}
	m := open(t, files, Options{Template: "{{ messages[0].content }}", Chat: chat.Config{Dialect: chat.HF}})
	r, err := m.Chat(tokenize.Chat{Messages: []byte(`[{"role":"user","content":"you"}]`), Tools: []byte(`[{"type":"function","function":{"name":"f"}}]`)}, tokenize.Hashing{})
	if err != nil || string(r.Text) != "you" {
		t.Errorf("got %q, %v", r.Text, err)
	}
}

func TestWithoutTemplate(t *testing.T) {
	m := open(t, map[string]string{"tokenizer.json": wordFile}, Options{CacheBytes: -1})
	if _, err := m.Chat(tokenize.Chat{Messages: []byte(`[{"role":"user","content":"x"}]`)}, tokenize.Hashing{}); !errors.Is(err, chat.ErrNoTemplate) || !strings.HasPrefix(err.Error(), "messages: ") {
		t.Errorf("got %v", err)
	}
	if r, err := m.Complete([]byte("hello"), true, tokenize.Hashing{}); err != nil || !slices.Equal(r.IDs, []uint32{5}) {
		t.Errorf("got %d, %v", r.IDs, err)
	}
}

// TestFrame puts tokens around a text: those of tokenizer.json, or those of the
// flags that some classes of tokenizers have.
func TestFrame(t *testing.T) {
	for _, tc := range []struct {
		config string
		want   []uint32
	}{
		{`{}`, []uint32{0, 5}},
		{`{"tokenizer_class":"PreTrainedTokenizerFast","add_bos_token":false,"bos_token":"<s>"}`, []uint32{0, 5}},
		{`{"tokenizer_class":"LlamaTokenizerFast","bos_token":"<s>"}`, []uint32{0, 5}},
		{`{"tokenizer_class":"LlamaTokenizerFast","bos_token":"<s>","add_bos_token":false}`, []uint32{5}},
		{`{"tokenizer_class":"GemmaTokenizer","bos_token":{"content":"<s>"},"eos_token":"</s>","add_eos_token":true}`, []uint32{0, 5, 1}},
		{`{"tokenizer_class":"LlamaTokenizer","bos_token":null}`, []uint32{5}},
	} {
		m := open(t, map[string]string{"tokenizer.json": wordFile, "tokenizer_config.json": tc.config}, Options{})
		r, err := m.Complete([]byte("hello"), false, tokenize.Hashing{Size: 1})
		if err != nil || !slices.Equal(r.IDs, tc.want) || len(r.Blocks) != len(tc.want) {
			t.Errorf("%s: got %d with %d blocks, %v, want %d", tc.config, r.IDs, len(r.Blocks), err, tc.want)
		}
		if r, err = m.Complete([]byte("hello"), true, tokenize.Hashing{}); err != nil || !slices.Equal(r.IDs, []uint32{5}) {
			t.Errorf("%s: bare: got %d, %v", tc.config, r.IDs, err)
		}
	}
}

func TestTokensOfTheConfig(t *testing.T) {
	m := open(t, map[string]string{
		"tokenizer.json":        wordFile,
		"tokenizer_config.json": `{"added_tokens_decoder":{"7":{"content":"<tool>","special":true},"0":{"content":"<s>","special":true}}}`,
	}, Options{})
	if r, err := m.Complete([]byte("you<tool>you"), true, tokenize.Hashing{}); err != nil || !slices.Equal(r.IDs, []uint32{6, 7, 6}) {
		t.Errorf("got %d, %v", r.IDs, err)
	}
	if plain := open(t, map[string]string{"tokenizer.json": wordFile}, Options{}); plain.Fingerprint() == m.Fingerprint() {
		t.Error("another token, and the fingerprint is the same")
	}
}

func TestTiktokenFile(t *testing.T) {
	var ranks strings.Builder
	for b := range 256 {
		fmt.Fprintf(&ranks, "%s %d\n", base64.StdEncoding.EncodeToString([]byte{byte(b)}), b)
	}
	files := map[string]string{"tiktoken.model": ranks.String(), "tokenizer_config.json": `{"tokenizer_class":"TikTokenTokenizer","added_tokens_decoder":{"300":{"content":"[EOS]","special":true}}}`}
	m := open(t, files, Options{})
	if r, err := m.Complete([]byte("a[EOS]"), false, tokenize.Hashing{}); err != nil || !slices.Equal(r.IDs, []uint32{'a', 300}) {
		t.Errorf("got %d, %v", r.IDs, err)
	}
	files["tokenizer_config.json"] = `{}`
	if _, err := Open(context.Background(), dir(t, files), nil, Options{}); err == nil || !strings.Contains(err.Error(), "give the pattern") {
		t.Errorf("got %v", err)
	}
	if m := open(t, files, Options{Pattern: `[\s\S]`}); m.Fingerprint() == "" {
		t.Error("no fingerprint")
	}
}

func TestOpenErrors(t *testing.T) {
	for _, tc := range []struct {
		ref  string
		want string
	}{
		{"/no/such/path", "neither a path that exists nor the name of a repository"},
		{"qwen", "neither a path that exists nor the name of a repository"},
		{"../x/y/z", "neither a path that exists nor the name of a repository"},
		{"org/name", `"org/name" is not a path that exists`},
		{dir(t, map[string]string{"tokenizer.json": "{"}), "tokenizer.json: "},
		{dir(t, map[string]string{"tokenizer.json": wordFile, "tokenizer_config.json": "["}), "tokenizer_config.json: "},
		{dir(t, map[string]string{"tokenizer.json": wordFile, "chat_template.jinja": "{% for %}"}), "template"},
		{dir(t, map[string]string{"tokenizer.json": wordFile, "tokenizer_config.json": `{"tokenizer_class":"LlamaTokenizer","bos_token":"two words"}`}), `bos_token: "two words" is not one token`},
		{dir(t, nil), "no tokenizer.json"},
	} {
		if _, err := Open(context.Background(), tc.ref, nil, Options{}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", tc.ref, err, tc.want)
		}
	}
}
