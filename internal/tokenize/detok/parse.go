package detok

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/onig"
)

// maxDepth bounds how deep sequences may be nested.
const maxDepth = 32

// Parse reads the decoder member of a tokenizer file. Null, or nothing, means tokens
// joined with spaces. An error names the member at fault: a type or a field that is
// not known, a value that makes no sense.
func Parse(raw []byte) (*Decoder, error) {
	b := builder{d: &Decoder{}}
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		b.each(spaced{}, true)
	} else if err := b.parse("decoder", raw, 0); err != nil {
		return nil, err
	}
	b.d.seal()
	return b.d, nil
}

// builder puts a chain together.
type builder struct {
	d      *Decoder
	joined bool // what comes now acts on the joined text
}

// each adds a step that acts on every token by itself.
func (b *builder) each(m mapper, positional bool) {
	b.d.steps = append(b.d.steps, each{m, positional})
}

func (b *builder) filter(f ...filter) { b.d.filters = append(b.d.filters, f...) }

// parse adds the decoder that raw holds to the chain. Path is where it stands.
func (b *builder) parse(path string, raw []byte, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s: nested deeper than %d", path, maxDepth)
	}
	var head struct {
		Type *string `json:"type"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if head.Type == nil {
		return fmt.Errorf("%s.type: missing", path)
	}
	var part interface {
		build(b *builder, path string, depth int) error
	}
	switch *head.Type {
	case "Sequence":
		part = &sequenceSpec{}
	case "ByteLevel":
		part = &byteLevelSpec{}
	case "ByteFallback":
		part = &byteFallbackSpec{}
	case "Fuse":
		part = &fuseSpec{}
	case "Replace":
		part = &replaceSpec{}
	case "Strip":
		part = &stripSpec{}
	case "Metaspace":
		part = &metaspaceSpec{}
	case "WordPiece":
		part = &wordPieceSpec{}
	case "BPEDecoder":
		part = &bpeSpec{}
	case "CTC":
		part = &ctcSpec{}
	default:
		return fmt.Errorf("%s.type: unknown decoder %q", path, *head.Type)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(part); err != nil {
		return fmt.Errorf("%s: %s: %w", path, *head.Type, err)
	}
	return part.build(b, path, depth)
}

// typed is the member that every decoder has.
type typed struct {
	Type string `json:"type"`
}

type sequenceSpec struct {
	typed
	Decoders *[]json.RawMessage `json:"decoders"`
}

func (p *sequenceSpec) build(b *builder, path string, depth int) error {
	if p.Decoders == nil {
		return fmt.Errorf("%s.decoders: missing", path)
	}
	for i, raw := range *p.Decoders {
		if err := b.parse(fmt.Sprintf("%s.decoders[%d]", path, i), raw, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// byteLevelSpec has fields that matter only to the pre-tokenizer of the same name.
type byteLevelSpec struct {
	typed
	AddPrefixSpace bool `json:"add_prefix_space"`
	TrimOffsets    bool `json:"trim_offsets"`
	UseRegex       bool `json:"use_regex"`
}

func (*byteLevelSpec) build(b *builder, _ string, _ int) error {
	if b.joined {
		b.filter(wholeText{byteAlphabetText{}})
		return nil
	}
	if len(b.d.steps) == 0 {
		b.d.raw = true
	} else {
		b.each(byteAlphabet{}, false)
	}
	b.d.bytes, b.joined = true, true
	return nil
}

type byteFallbackSpec struct{ typed }

func (*byteFallbackSpec) build(b *builder, _ string, _ int) error {
	if b.joined {
		b.filter(byteText{})
	} else {
		b.d.steps = append(b.d.steps, byteFallback{})
	}
	return nil
}

type fuseSpec struct{ typed }

func (*fuseSpec) build(b *builder, _ string, _ int) error {
	b.joined = true
	return nil
}

type replaceSpec struct {
	typed
	Pattern *struct {
		String *string
		Regex  *string
	} `json:"pattern"`
	Content *string `json:"content"`
}

func (p *replaceSpec) build(b *builder, path string, _ int) error {
	switch {
	case p.Pattern == nil || (p.Pattern.String == nil) == (p.Pattern.Regex == nil):
		return fmt.Errorf("%s.pattern: expected either String or Regex", path)
	case p.Content == nil:
		return fmt.Errorf("%s.content: missing", path)
	case p.Pattern.Regex != nil:
		re, err := onig.Compile(*p.Pattern.Regex)
		if err != nil {
			return fmt.Errorf("%s.pattern.Regex: %w", path, err)
		}
		m := replaceRegex{re, *p.Content}
		if b.joined {
			b.filter(wholeText{m})
		} else {
			b.each(m, false)
		}
	case *p.Pattern.String == "":
		return fmt.Errorf("%s.pattern.String: expected a string that is not empty", path)
	case b.joined:
		b.filter(newSearch(*p.Pattern.String, *p.Content))
	default:
		b.each(replace{*p.Pattern.String, *p.Content}, false)
	}
	return nil
}

type stripSpec struct {
	typed
	Content string `json:"content"`
	Start   *uint  `json:"start"`
	Stop    *uint  `json:"stop"`
}

func (p *stripSpec) build(b *builder, path string, _ int) error {
	if utf8.RuneCountInString(p.Content) != 1 {
		return fmt.Errorf("%s.content: expected one character, got %q", path, p.Content)
	}
	if p.Start == nil {
		return fmt.Errorf("%s.start: missing", path)
	}
	if p.Stop == nil {
		return fmt.Errorf("%s.stop: missing", path)
	}
	const most = 1 << 30 // no text is longer
	d := strip{p.Content, int(min(*p.Start, most)), int(min(*p.Stop, most))}
	if b.joined {
		b.filter(d)
	} else {
		b.each(d, false)
	}
	return nil
}

// metaspaceSpec has fields that matter only to the pre-tokenizer of the same name.
type metaspaceSpec struct {
	typed
	Replacement    string  `json:"replacement"`
	PrependScheme  *string `json:"prepend_scheme"`
	AddPrefixSpace *bool   `json:"add_prefix_space"`
	Split          *bool   `json:"split"`
	StrRep         *string `json:"str_rep"`
}

func (p *metaspaceSpec) build(b *builder, path string, _ int) error {
	if utf8.RuneCountInString(p.Replacement) != 1 {
		return fmt.Errorf("%s.replacement: expected one character, got %q", path, p.Replacement)
	}
	scheme := "always"
	if p.PrependScheme != nil {
		scheme = *p.PrependScheme
	}
	switch scheme {
	case "always", "first":
		if p.AddPrefixSpace != nil && !*p.AddPrefixSpace {
			return fmt.Errorf("%s.add_prefix_space: false contradicts prepend_scheme %q", path, scheme)
		}
	case "never":
	default:
		return fmt.Errorf("%s.prepend_scheme: expected always, first or never, got %q", path, scheme)
	}
	d := metaspace{p.Replacement, scheme == "never"}
	if b.joined {
		b.filter(newSearch(d.char, d.space(true)))
	} else {
		b.each(d, !d.keep)
	}
	return nil
}

type wordPieceSpec struct {
	typed
	Prefix  *string `json:"prefix"`
	Cleanup *bool   `json:"cleanup"`
}

func (p *wordPieceSpec) build(b *builder, path string, _ int) error {
	switch {
	case p.Prefix == nil:
		return fmt.Errorf("%s.prefix: missing", path)
	case p.Cleanup == nil:
		return fmt.Errorf("%s.cleanup: missing", path)
	case !b.joined:
		b.each(wordPiece{*p.Prefix, *p.Cleanup}, true)
	case *p.Cleanup:
		b.cleanup()
	}
	return nil
}

type bpeSpec struct {
	typed
	Suffix *string `json:"suffix"`
}

func (p *bpeSpec) build(b *builder, path string, _ int) error {
	switch {
	case p.Suffix == nil || *p.Suffix == "":
		return fmt.Errorf("%s.suffix: expected a string that is not empty", path)
	case b.joined:
		b.filter(newSearch(*p.Suffix, ""))
	default:
		b.d.steps = append(b.d.steps, wordSuffix{*p.Suffix})
	}
	return nil
}

type ctcSpec struct {
	typed
	PadToken  *string `json:"pad_token"`
	Delimiter *string `json:"word_delimiter_token"`
	Cleanup   *bool   `json:"cleanup"`
}

func (p *ctcSpec) build(b *builder, path string, _ int) error {
	switch {
	case p.PadToken == nil:
		return fmt.Errorf("%s.pad_token: missing", path)
	case p.Cleanup == nil:
		return fmt.Errorf("%s.cleanup: missing", path)
	case p.Delimiter == nil || *p.Cleanup && *p.Delimiter == "":
		return fmt.Errorf("%s.word_delimiter_token: expected a string that is not empty", path)
	case !b.joined:
		b.d.steps = append(b.d.steps, ctc{*p.PadToken, *p.Delimiter, *p.Cleanup})
		return nil
	}
	if *p.PadToken != "" {
		b.filter(newSearch(*p.PadToken, ""))
	}
	if *p.Cleanup {
		b.cleanup()
		b.filter(newSearch(*p.Delimiter, " "))
	}
	return nil
}

// cleanup adds the filters that do what cleanUp does to a token.
func (b *builder) cleanup() {
	for _, r := range clean {
		b.filter(newSearch(r.old, r.content))
	}
}

// replaceRegex puts content in the place of what a regular expression matches.
type replaceRegex struct {
	re      *onig.Regexp
	content string
}

func (r replaceRegex) apply(dst, tok []byte, _ bool) []byte {
	if len(tok) == 0 { // an empty token stays empty, whatever the expression matches
		return dst
	}
	at := 0
	r.re.All(tok, func(start, end int) bool {
		dst = append(dst, tok[at:start]...)
		dst = append(dst, r.content...)
		at = end
		return true
	})
	return append(dst, tok[at:]...)
}
