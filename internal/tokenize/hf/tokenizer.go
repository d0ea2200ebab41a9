// Package hf gives the ids that Hugging Face's tokenizers library gives for a
// tokenizer.json: not ids that are nearly right, the same ones. What a file asks
// for and this package does not do is an error when the file is read.
//
// A text goes through the steps of the file in their order: added tokens are found
// in it, what lies between them is normalized, more added tokens are found, what is
// left is split into pieces, and the model makes ids of each piece. Vocabularies
// are kept as bytes in two flat arrays with a hash table over them; splitting is
// done by hand-written scanners where the pattern is a known one; pieces that were
// seen before are found in a cache that belongs to one goroutine at a time.
package hf

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/detok"
	"github.com/stator-ai/stator/internal/tokenize/split"
)

// Tokenizer is a tokenizer.json made ready. Immutable and safe for concurrent use.
type Tokenizer struct {
	normalization
	formless *normalization // without normal forms, nil where that is the same

	fingerprint string
	vocab       *vocab
	odd         oddTokens
	bpe         *bpe // the model, or
	model       pieceModel
	plan        *split.Plan
	unknown     *unknowns                    // characters without a class to the plan, nil for none
	next        func(text []byte, i int) int // the plan as a scanner, where it is one
	dec         *detok.Decoder
	frame       frame
	added       map[uint32]addedText
	low, high   uint32 // the added tokens have ids from low up to high

	// The added tokens that are looked for before and after normalization; all of
	// them, and those that are nothing but white space, which is not a message
	// from anyone to anyone.
	passes, blank [2]*matcher
	cuts          [2][]bool // tokens after which a text can be cut
	soft          split.Cut // where it can be cut besides, 0 for nowhere
	whole         bool      // a segment without spaces is one piece

	warnings []string
	states   states
}

// oddTokens are the tokens of a byte-level vocabulary that are not spelled in its
// alphabet. No text leads to them, but added tokens may have their ids.
type oddTokens struct {
	ids   map[string]uint32
	texts map[uint32]string
}

// addedText is an added token as decoders see it.
type addedText struct {
	text    []byte
	special bool
}

// pieceModel is a model that is not byte-pair encoding.
type pieceModel interface {
	Encode(dst []uint32, piece []byte) ([]uint32, error)
}

var _ tokenize.Cutter = (*Tokenizer)(nil)

// Open reads a tokenizer.json, or the one in a directory.
func Open(path string) (*Tokenizer, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "tokenizer.json")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// Parse reads a tokenizer.json. Extra are added tokens that other files declare;
// those that this one has already do not count. Errors name the member at fault. The
// fingerprint is the SHA-256 of data, and of the extra tokens if there are any.
func Parse(data []byte, extra ...AddedToken) (*Tokenizer, error) {
	h := sha256.New()
	var hashed sync.WaitGroup
	hashed.Go(func() { h.Write(data) })
	defer hashed.Wait()
	t := new(Tokenizer)
	f, err := parseFile(data, t.read)
	if err != nil {
		return nil, err
	}
	have := make(map[string]bool, len(f.added))
	for _, a := range f.added {
		have[a.Content] = true
	}
	extra = slices.DeleteFunc(slices.Clone(extra), func(e AddedToken) bool { return have[e.Content] })
	f.added = append(f.added, extra...)
	if err := t.components(f); err != nil {
		return nil, err
	}
	if err := t.loadModel(&f.model); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if err := t.setAdded(t.giveIDs(f.added, len(f.added)-len(extra)), t.plan.ByteLevel()); err != nil {
		return nil, fmt.Errorf("added_tokens: %w", err)
	}
	hashed.Wait()
	if len(extra) > 0 {
		if err := json.NewEncoder(h).Encode(extra); err != nil {
			return nil, err
		}
	}
	t.fingerprint = hex.EncodeToString(h.Sum(nil))
	return t, nil
}

// components makes everything but the model and the added tokens.
func (t *Tokenizer) components(f *file) error {
	var err error
	if t.normalization, err = parseNormalization(f.normalizer); err != nil {
		return err
	}
	if raw := withoutForms(f.normalizer); raw != nil {
		n, err := parseNormalization(raw)
		if err != nil {
			return err
		}
		t.formless = &n
	}
	t.whole = keepsWhole(f.preTokenizer)
	if err := checkFirst(f); err != nil {
		return err
	}
	if t.plan, err = split.Parse(f.preTokenizer); err != nil {
		return err
	}
	t.next = t.plan.Next()
	if t.frame, err = parsePost(f.postProcessor); err != nil {
		return fmt.Errorf("post_processor: %w", err)
	}
	if t.dec, err = detok.Parse(f.decoder); err != nil {
		return err
	}
	if t.dec.ByteLevel() != t.plan.ByteLevel() {
		return errors.New("decoder: a pre_tokenizer and a decoder of which only one is ByteLevel are not supported")
	}
	return nil
}

// Fingerprint implements [tokenize.Tokenizer]: two files with the same bytes have
// the same.
func (t *Tokenizer) Fingerprint() string { return t.fingerprint }

// Warnings returns what is strange about the file, one sentence each. It does not
// keep the file from being used.
func (t *Tokenizer) Warnings() []string { return t.warnings }

// Frame returns the ids that the file puts before and after a text that stands by
// itself, such as the beginning-of-sequence token. They are not part of what Encode
// returns. The slices must not be changed.
func (t *Tokenizer) Frame() (before, after []uint32) { return t.frame.before, t.frame.after }

// TextError says that a text is not valid UTF-8, which no tokenizer has an answer
// to.
type TextError struct {
	Offset int // of the first byte that is wrong
}

func (e *TextError) Error() string {
	return fmt.Sprintf("the text is not valid UTF-8 at byte %d", e.Offset)
}

// Encode implements [tokenize.Tokenizer]. With special set it does what engines do:
// every added token that is spelled out in the text is that token, no matter who
// wrote it. Without, only added tokens that are white space are. Text that is not
// UTF-8 is a *[TextError].
func (t *Tokenizer) Encode(dst []uint32, text []byte, special bool) ([]uint32, error) {
	passes := &t.passes
	if !special {
		passes = &t.blank
	}
	return t.encode(dst, text, 0, passes)
}

// EncodeFrom implements [tokenize.Cutter].
func (t *Tokenizer) EncodeFrom(dst []uint32, text []byte, from int) ([]uint32, error) {
	return t.encode(dst, text, from, &t.passes)
}

func (t *Tokenizer) encode(dst []uint32, text []byte, from int, passes *[2]*matcher) ([]uint32, error) {
	if !utf8.Valid(text[from:]) {
		return dst, &TextError{from + invalidAt(text[from:])}
	}
	s := t.states.get()
	defer t.states.put(s)
	dst = slices.Grow(dst, (len(text)-from)/4)
	n := len(dst)
	dst = t.segments(dst, text, from, passes, s)
	if err := s.err; err != nil {
		s.err = nil
		return dst[:n], err
	}
	return dst, nil
}

// segments encodes text[from:]: the added tokens of the first pass and what lies
// between them.
func (t *Tokenizer) segments(dst []uint32, text []byte, from int, passes *[2]*matcher, s *state) []uint32 {
	if passes[0] == nil {
		return t.segment(dst, text[from:], from == 0, passes[1], s)
	}
	s.matches[0] = passes[0].all(s.matches[0][:0], text[from:])
	at := from
	for _, m := range s.matches[0] {
		if start := from + m.start; at < start {
			dst = t.segment(dst, text[at:start], at == 0, passes[1], s)
		}
		dst = append(dst, passes[0].tokens[m.token].ID)
		at = from + m.end
	}
	return t.segment(dst, text[at:], at == 0, passes[1], s)
}

func invalidAt(text []byte) int {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(text)
}

// segment encodes text between two added tokens of the first pass.
func (t *Tokenizer) segment(dst []uint32, text []byte, first bool, pass *matcher, s *state) []uint32 {
	if len(text) == 0 {
		return dst
	}
	if t.norm != nil {
		out := t.norm.Normalize(s.norm, text)
		if len(out) > 0 && (len(text) != len(out) || &out[0] != &text[0]) {
			s.norm = out
		}
		text = out
	}
	if pass == nil {
		return t.pieces(dst, text, first, s)
	}
	s.matches[1] = pass.all(s.matches[1][:0], text)
	at := 0
	for _, m := range s.matches[1] {
		if at < m.start {
			dst = t.pieces(dst, text[at:m.start], first && at == 0, s)
		}
		dst = append(dst, pass.tokens[m.token].ID)
		at = m.end
	}
	return t.pieces(dst, text[at:], first && at == 0, s)
}

// pieces splits text and encodes each piece.
func (t *Tokenizer) pieces(dst []uint32, text []byte, first bool, s *state) []uint32 {
	if len(text) == 0 || s.err != nil {
		return dst
	}
	if t.unknown != nil {
		if hidden := t.unknown.hide(s.hidden, text); &hidden[0] != &text[0] {
			s.hidden = hidden
			return t.hiddenPieces(dst, text, hidden, first, s)
		}
	}
	if t.next != nil && t.bpe != nil {
		for i := 0; i < len(text); {
			j := t.next(text, i)
			if t.bpe.joins == nil {
				dst = t.bpe.word(dst, text, i, j, s)
			} else {
				dst = t.bpe.encode(dst, text[i:j], s)
			}
			i = j
		}
		return dst
	}
	s.pieces.Reset()
	t.plan.Append(&s.pieces, text, first)
	for _, p := range s.pieces.Spans {
		piece := s.pieces.Text[p.Start:p.End]
		if t.bpe != nil {
			dst = t.bpe.encode(dst, piece, s)
		} else if dst, s.err = t.model.Encode(dst, piece); s.err != nil {
			break
		}
	}
	return dst
}
