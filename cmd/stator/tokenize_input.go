package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/hf"
)

// maxTokenizeInput bounds what is read, so that an endless input ends.
const maxTokenizeInput = 1 << 30

// textInput is what is to be tokenized. The bytes are UTF-8.
type textInput struct {
	name string // for errors
	data []byte
}

// error returns err with the name of the input before it.
func (in *textInput) error(err error) error { return fmt.Errorf("%s: %w", in.name, err) }

// read returns the input that arguments and flags name.
func (f *tokenizeFlags) read(stdin io.Reader, stderr io.Writer, args []string) (*textInput, error) {
	in := new(textInput)
	var err error
	switch {
	case len(args) > 0 && (len(args) > 1 || args[0] != "-"):
		in.name, in.data = "TEXT", []byte(strings.Join(args, " "))
	case f.file != "" && f.file != "-":
		in.name = f.file
		in.data, err = readTokenizeFile(f.file)
	default:
		in.name = "standard input"
		if isTerminal(stdin) {
			fmt.Fprintln(stderr, "reading the standard input; Ctrl-D on a line of its own ends it")
		}
		if in.data, err = readAll(stdin); err != nil {
			err = in.error(err)
		}
	}
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(in.data) {
		return nil, in.error(&hf.TextError{Offset: validPrefix(in.data)})
	}
	return in, nil
}

func readTokenizeFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := readAll(file)
	if errors.Is(err, errTooLong) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, err
}

var errTooLong = fmt.Errorf("expected at most %d bytes", maxTokenizeInput)

func readAll(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxTokenizeInput+1))
	if err == nil && len(data) > maxTokenizeInput {
		err = errTooLong
	}
	return data, err
}

// validPrefix returns the length of the longest beginning of b that is UTF-8.
func validPrefix(b []byte) int {
	n := 0
	for n < len(b) {
		r, size := utf8.DecodeRune(b[n:])
		if r == utf8.RuneError && size <= 1 {
			break
		}
		n += size
	}
	return n
}

// isTerminal reports whether f is a terminal, as far as that can be told without
// asking it.
func isTerminal(f any) bool {
	file, ok := f.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// jsonSpace is what may stand around JSON.
const jsonSpace = " \t\r\n"

// isChat says whether the input is a chat: by the flag, or else by its look.
func (f *tokenizeFlags) isChat(data []byte) bool {
	if f.chatGiven {
		return f.chat
	}
	if !bytes.HasPrefix(bytes.TrimLeft(data, jsonSpace), []byte("{")) {
		return false
	}
	o, err := openai.ParseObject(data)
	return err == nil && o.Get("messages").Kind() == '['
}

// parseChat reads a chat request or an array of messages.
func (f *tokenizeFlags) parseChat(data []byte) (tokenize.Chat, error) {
	trimmed := bytes.Trim(data, jsonSpace)
	if at := openai.LoneSurrogate(data); at >= 0 {
		return tokenize.Chat{}, fmt.Errorf("expected characters, got half a surrogate pair at byte %d", at)
	}
	switch {
	case len(trimmed) > 0 && trimmed[0] == '[':
		return tokenize.Chat{Messages: trimmed, NoGenerationPrompt: f.noGeneration}, nil
	case len(trimmed) == 0 || trimmed[0] != '{':
		return tokenize.Chat{}, errors.New("expected a chat request, which is a JSON object, or an array of messages")
	}
	o, err := openai.ParseObject(data)
	if err != nil {
		return tokenize.Chat{}, err
	}
	generation, err := member(&o, "add_generation_prompt", true)
	if err != nil {
		return tokenize.Chat{}, err
	}
	continued, err := member(&o, "continue_final_message", false)
	if err != nil {
		return tokenize.Chat{}, err
	}
	special, err := member(&o, "add_special_tokens", false)
	if err != nil {
		return tokenize.Chat{}, err
	}
	if special {
		return tokenize.Chat{}, errors.New("add_special_tokens: expected false, because a chat's template writes all tokens itself")
	}
	return tokenize.Chat{
		Messages:           o.Get("messages"),
		Tools:              o.Get("tools"),
		NoGenerationPrompt: f.noGeneration || !generation,
		ContinueFinal:      continued,
		ToolChoice:         o.Get("tool_choice"),
		Documents:          o.Get("documents"),
		ReasoningEffort:    o.Get("reasoning_effort"),
		Kwargs:             o.Get("chat_template_kwargs"),
		Template:           o.Get("chat_template"),
	}, nil
}

// member returns a boolean of a request, or what it is when it is absent or null.
func member(o *openai.Object, name string, absent bool) (bool, error) {
	v := o.Get(name)
	switch {
	case !v.Present():
		return absent, nil
	case v.Kind() != 't':
		return false, fmt.Errorf("%s: expected a boolean, got %s", name, v.TypeName())
	}
	return v.True(), nil
}

// parseIDs reads token ids: a JSON array, or numbers with white space or commas
// between them.
func parseIDs(data []byte) ([]uint32, error) {
	data = bytes.TrimSpace(data)
	ids := make([]uint32, 0, len(data)/6)
	var bad error
	add := func(text []byte) bool {
		n, err := strconv.ParseUint(string(text), 10, 64)
		if err != nil || n > math.MaxUint32 {
			bad = fmt.Errorf("index %d: expected a token id, got %.40q", len(ids), text)
			return false
		}
		ids = append(ids, uint32(n))
		return true
	}
	if len(data) > 0 && data[0] == '[' {
		err := openai.Value(data).Elements(func(v openai.Value) bool { return add(v) })
		return ids, errors.Join(bad, err)
	}
	for field := range bytes.FieldsFuncSeq(data, func(r rune) bool {
		return r == ' ' || r == ',' || r >= '\t' && r <= '\r'
	}) {
		if !add(field) {
			return nil, bad
		}
	}
	return ids, nil
}

// checkIDs returns an error about the first id that the vocabulary does not have.
func checkIDs(t *hf.Tokenizer, ids []uint32) error {
	for i, id := range ids {
		if _, _, ok := t.Token(id); !ok {
			return &tokenize.UnknownIDError{ID: id, Index: i}
		}
	}
	return nil
}
