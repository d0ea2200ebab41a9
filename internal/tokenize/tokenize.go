// Package tokenize turns requests into the token ids an engine sees.
//
// Two steps, kept apart: a [Renderer] writes the messages of a chat into a
// [Prompt], which is text that remembers which parts the template wrote and
// which the client did; a [Tokenizer] turns text into ids. [Prompt.AppendIDs]
// joins them. A [Model] is both, as one served model has them. The tokenizers and
// templates of real models are in the packages below this one.
//
// Engines take a special token that is spelled in a message for that token, and so do
// the templates that follow them. [ChatML] does not: what it writes of a message is
// letters. With [Bytes] it makes a model that needs no files and whose tokens are
// easy to count.
package tokenize

import (
	"fmt"

	"github.com/stator-ai/stator/internal/kv"
)

// Tokenizer turns text into token ids and back. Implementations are safe for
// concurrent use.
type Tokenizer interface {
	// Encode appends the ids of text to dst. With special set, the spellings
	// of special tokens become those tokens; otherwise they are ordinary text.
	// Text is read only and not kept.
	Encode(dst []uint32, text []byte, special bool) ([]uint32, error)
	// Decode appends the bytes of ids to dst, special tokens by their
	// spelling. The bytes need not be valid UTF-8: a character can be spread
	// over several tokens. An id outside the vocabulary is an *[UnknownIDError],
	// with dst returned as it came.
	Decode(dst []byte, ids []uint32) ([]byte, error)
	// Fingerprint names the vocabulary and its rules: two tokenizers with the
	// same fingerprint give the same ids for every text.
	Fingerprint() string
}

// Model makes prompts into tokens as the engines of one served model do: its
// tokenizer and its chat template. Implementations are safe for concurrent use.
type Model interface {
	// Chat renders and encodes a chat. Errors name the field of the request at
	// fault.
	Chat(c Chat, h Hashing) (Result, error)
	// Complete encodes a prompt that is text. With bare set, it is encoded
	// without the tokens that the model's tokenizer puts around a text, such as
	// the one that begins a sequence.
	Complete(text []byte, bare bool, h Hashing) (Result, error)
	// Fingerprint names the tokenizer, as [Tokenizer] does.
	Fingerprint() string
}

// Hashing asks for the hashes of a prompt's blocks.
type Hashing struct {
	Seed uint64 // of [kv.HashSeed]
	Size int    // of a block, in tokens; 0 asks for none
}

// Cutter is a [Tokenizer] that knows where a text can be cut, so that the ids of
// its beginning, once known, need not be made again.
type Cutter interface {
	Tokenizer
	// Cuts appends places after from to dst, each at least gap bytes after the
	// one before, in ascending order. From is 0 or a cut.
	Cuts(dst []Cut, text []byte, from, gap int) []Cut
	// Holds reports whether a cut that was found in another text with the same
	// bytes before it is one in this text too.
	Holds(text []byte, c Cut) bool
	// EncodeFrom appends the ids of text[from:], special tokens included. With
	// from a cut, those of text[:from] and of text[from:] are those of text.
	EncodeFrom(dst []uint32, text []byte, from int) ([]uint32, error)
}

// Cut is a place in a text where it can be encoded in two parts.
type Cut struct {
	At int // the offset of the second part
	// Soft says that it depends on what follows. Other cuts hold in every text
	// that is equal up to them.
	Soft bool
}

// UnknownIDError is returned when an id is not in the vocabulary.
type UnknownIDError struct {
	ID    uint32
	Index int // where in the ids it stands
}

func (e *UnknownIDError) Error() string {
	return fmt.Sprintf("token id %d at index %d is not in the vocabulary", e.ID, e.Index)
}

// Source says where the ids of a [Result] come from.
type Source uint8

// The sources. None means that there are no ids, only text.
const (
	None   Source = iota
	Local         // a tokenizer in this process
	Engine        // the engine's own tokenize route
	Client        // the request brought them along
)

// String returns the source in lower case, as it appears in labels and traces.
func (s Source) String() string {
	switch s {
	case None:
		return "none"
	case Local:
		return "local"
	case Engine:
		return "engine"
	case Client:
		return "client"
	default:
		return fmt.Sprintf("source(%d)", uint8(s))
	}
}

// Result is a tokenized prompt.
type Result struct {
	IDs         []uint32
	Text        []byte // the formatted prompt, nil when not known
	Fingerprint string // of the tokenizer that made the ids, empty when not known
	Source      Source
	Blocks      []kv.Block // of the ids, where they were asked for
	Cached      int        // how many of the ids did not have to be made
}
