// Package qwen3 has the tokenizer and the chat template of the Qwen3 models built
// in: the vocabulary of the simulated engine, and a real one to try things on.
//
// tokenizer.bin and chat_template.jinja are made from the files of Qwen/Qwen3-8B,
// which Alibaba Cloud has published under the Apache License 2.0; see LICENSE.
package qwen3

import (
	_ "embed"
	"fmt"
	"sync"

	"github.com/stator-ai/stator/internal/tokenize/chat"
	"github.com/stator-ai/stator/internal/tokenize/hf"
	"github.com/stator-ai/stator/internal/tokenize/local"
)

// The tokens that a chat is made of.
const (
	EndOfText uint32 = 151643
	IMStart   uint32 = 151644
	IMEnd     uint32 = 151645
)

// Fingerprint is that of the tokenizer: the SHA-256 of its tokenizer.json.
const Fingerprint = "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4"

var (
	//go:embed tokenizer.bin
	tokenizer []byte
	//go:embed chat_template.jinja
	template string
)

// Template returns the source of the chat template.
func Template() string { return template }

// Tokenizer returns the tokenizer. It is made at the first call, in a few
// milliseconds.
var Tokenizer = sync.OnceValue(func() *hf.Tokenizer {
	t, err := hf.ReadCompact(tokenizer)
	if err != nil {
		panic(fmt.Sprintf("qwen3: %v", err)) // the file is ours
	}
	return t
})

// Model returns the tokenizer with the template and a prefix cache. All callers
// share it.
var Model = sync.OnceValue(func() *local.Model {
	m, err := Open(local.Options{})
	if err != nil {
		panic(fmt.Sprintf("qwen3: %v", err)) // the files are ours
	}
	return m
})

// Open returns a model of its own with the given options.
func Open(o local.Options) (*local.Model, error) {
	return local.New(Tokenizer(), chat.Config{
		Template:      template,
		SpecialTokens: []chat.SpecialToken{{Name: "eos_token", Text: "<|im_end|>"}, {Name: "pad_token", Text: "<|endoftext|>"}},
	}, o)
}
