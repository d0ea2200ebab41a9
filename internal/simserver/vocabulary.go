package simserver

import (
	"fmt"
	"sync"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/detok"
	"github.com/stator-ai/stator/internal/tokenize/local"
	"github.com/stator-ai/stator/internal/tokenize/qwen3"
)

// Vocabulary names the tokens that prompts and answers are made of, and with them
// the template that makes a prompt of a chat.
type Vocabulary string

// The vocabularies.
const (
	// Qwen3 is that of the Qwen3 models, and is the default.
	Qwen3 Vocabulary = "qwen3"
	// Bytes has one token per byte and four special ones, see [tokenize.Bytes] and
	// [tokenize.ChatML]: tokens are as easy to count as characters.
	Bytes Vocabulary = "bytes"
)

// Check reports a vocabulary that there is not.
func (v Vocabulary) Check() error {
	if v != Qwen3 && v != Bytes {
		return fmt.Errorf("expected %s or %s, got %q", Qwen3, Bytes, string(v))
	}
	return nil
}

// load returns the vocabulary made ready. All servers share it, and what it
// remembers of prompts.
func (v Vocabulary) load() *vocabulary {
	if v == Bytes {
		return bytesVocabulary()
	}
	return qwen3Vocabulary()
}

// vocabulary is what a server knows about its tokens. It does not change and is
// safe for concurrent use.
type vocabulary struct {
	model   tokenize.Model
	memo    *memo // of its chats
	tokens  tokens
	size    int    // one more than the largest id
	special uint32 // ids from here on are not text
	// end is the token that ends an answer. It is what a chat turn ends with, so
	// that an answer sent back as a message continues the same token sequence.
	end uint32
	// endPermille is how often an answer ends after a sentence. Answers have
	// about 200 tokens.
	endPermille int
	// alphabet has the character that each byte of a token is spelled with where
	// tokens are named, nil for the byte itself.
	alphabet *[256]rune

	sentences []sentence
	others    []uint32 // tokens to name as alternatives
}

// tokens is a tokenizer that also knows its tokens one by one.
type tokens interface {
	tokenize.Tokenizer
	detok.Tokens
	// DecodeText appends the text of ids as engines print it.
	DecodeText(dst []byte, ids []uint32, skipSpecial bool) []byte
	// NewStream returns a detokenizer for one text.
	NewStream(skipSpecial bool) *detok.Stream
}

var qwen3Vocabulary = sync.OnceValue(func() *vocabulary {
	// A model of its own: a frontend in the same process is not to find in its cache
	// what an engine has put there.
	model, err := qwen3.Open(local.Options{})
	if err != nil {
		panic(fmt.Sprintf("simserver: %v", err)) // the files are built in
	}
	v := &vocabulary{
		model:       model,
		tokens:      qwen3.Tokenizer(),
		size:        qwen3.Tokenizer().Size(),
		special:     qwen3.EndOfText,
		end:         qwen3.IMEnd,
		endPermille: 56,
		memo:        newMemo(),
		alphabet:    byteAlphabet(),
	}
	v.learn()
	return v
})

var bytesVocabulary = sync.OnceValue(func() *vocabulary {
	v := &vocabulary{
		model:       tokenize.ByteModel{},
		tokens:      newByteTokens(),
		size:        tokenize.BytesVocab,
		special:     tokenize.BOS,
		end:         tokenize.IMEnd,
		endPermille: 280,
		memo:        newMemo(),
	}
	v.learn()
	return v
})

// byteAlphabet returns the characters that byte-level vocabularies are spelled
// with.
func byteAlphabet() *[256]rune {
	var out [256]rune
	// From the last: what is not in the alphabet, such as the space, stands for
	// itself, too.
	for r := rune(0x1ff); r >= 0; r-- {
		if b := detok.AppendBytes(nil, string(r)); len(b) == 1 && out[b[0]] == 0 {
			out[b[0]] = r
		}
	}
	return &out
}

// text returns the bytes of a token. They must not be changed.
func (v *vocabulary) text(id uint32) []byte {
	text, _, _ := v.tokens.Token(id)
	return text
}

// appendSpelling appends a token as lists of tokens name it.
func (v *vocabulary) appendSpelling(dst []byte, id uint32) []byte {
	text := v.text(id)
	if v.alphabet == nil || id >= v.special {
		return append(dst, text...)
	}
	for _, b := range text {
		dst = utf8.AppendRune(dst, v.alphabet[b])
	}
	return dst
}

// kind is what a token means to whoever goes on with a text.
type kind uint8

const (
	inside    kind = iota // nothing
	opens                 // it begins with a space, and a word with it
	ends                  // it ends a sentence
	breaksOff             // it ends everything: a line, or a turn
)

// kind returns what a token is.
func (v *vocabulary) kind(id uint32) kind {
	if id >= v.special {
		return breaksOff
	}
	text := v.text(id)
	if len(text) == 0 {
		return inside
	}
	switch text[len(text)-1] {
	case '\n':
		return breaksOff
	case '.', '?', '!':
		return ends
	}
	if text[0] == ' ' {
		return opens
	}
	return inside
}

// characters returns how many characters begin in a text.
func characters(text []byte) int {
	n := 0
	for _, b := range text {
		if utf8.RuneStart(b) {
			n++
		}
	}
	return n
}
