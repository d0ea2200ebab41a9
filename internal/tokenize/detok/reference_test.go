package detok

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/onig"
)

// vocab is a made-up vocabulary: the id is the index.
type vocab struct {
	tokens  [][]byte
	special []bool
}

// newVocab gives the tokens as d wants them.
func newVocab(d *Decoder, tokens []string, special ...int) *vocab {
	v := &vocab{special: make([]bool, len(tokens))}
	for _, t := range tokens {
		if d.ByteLevel() {
			v.tokens = append(v.tokens, AppendBytes(nil, t))
		} else {
			v.tokens = append(v.tokens, []byte(t))
		}
	}
	for _, i := range special {
		v.special[i] = true
	}
	return v
}

func (v *vocab) Token(id uint32) ([]byte, bool, bool) {
	if int(id) >= len(v.tokens) {
		return nil, false, false
	}
	return v.tokens[id], v.special[id], true
}

// chain is a decoder as a file spells it.
type chain struct {
	Type        string  `json:"type"`
	Decoders    []chain `json:"decoders,omitempty"`
	Pattern     *match  `json:"pattern,omitempty"`
	Content     string  `json:"content"`
	Start       int     `json:"start"`
	Stop        int     `json:"stop"`
	Replacement string  `json:"replacement"`
	Scheme      string  `json:"prepend_scheme"`
	Prefix      string  `json:"prefix"`
	Cleanup     bool    `json:"cleanup"`
	Suffix      string  `json:"suffix"`
	Pad         string  `json:"pad_token"`
	Delimiter   string  `json:"word_delimiter_token"`
}

type match struct {
	String string `json:",omitempty"`
	Regex  string `json:",omitempty"`
}

// spell writes c as a file would, without the fields its type does not have.
func (c chain) spell() []byte {
	m := map[string]any{"type": c.Type}
	switch c.Type {
	case "":
		return []byte("null")
	case "Sequence":
		list := make([]json.RawMessage, len(c.Decoders))
		for i, d := range c.Decoders {
			list[i] = d.spell()
		}
		m["decoders"] = list
	case "Replace":
		m["pattern"], m["content"] = c.Pattern, c.Content
	case "Strip":
		m["content"], m["start"], m["stop"] = c.Content, c.Start, c.Stop
	case "Metaspace":
		m["replacement"], m["prepend_scheme"] = c.Replacement, c.Scheme
	case "WordPiece":
		m["prefix"], m["cleanup"] = c.Prefix, c.Cleanup
	case "BPEDecoder":
		m["suffix"] = c.Suffix
	case "CTC":
		m["pad_token"], m["word_delimiter_token"], m["cleanup"] = c.Pad, c.Delimiter, c.Cleanup
	}
	raw, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return raw
}

// decode is the whole thing said plainly: lists of strings through one decoder
// after another. With early set, runs of byte tokens are cut after each character,
// where the next decoder cannot tell.
func (c chain) decode(tokens []string, early bool) string {
	if c.Type == "" {
		return strings.Join(tokens, " ")
	}
	return strings.Join(c.apply(tokens, early), "")
}

func (c chain) apply(tokens []string, early bool) []string {
	var out []string
	switch c.Type {
	case "Sequence":
		flat := c.flat()
		for i, d := range flat {
			joins := i+1 == len(flat) || flat[i+1].Type == "Fuse"
			joined := false
			for _, before := range flat[:i] {
				joined = joined || before.Type == "Fuse" || before.Type == "ByteLevel"
			}
			tokens = d.apply(tokens, early && joins && !joined)
		}
		return tokens
	case "Fuse":
		return []string{strings.Join(tokens, "")}
	case "ByteLevel":
		var raw []byte
		for _, t := range tokens {
			raw = append(raw, unspell(t)...)
		}
		return []string{lossy(raw)}
	case "ByteFallback":
		return fallback(tokens, early)
	case "CTC":
		for i, t := range tokens {
			if i > 0 && t == tokens[i-1] {
				continue
			}
			t = strings.ReplaceAll(t, c.Pad, "")
			if c.Cleanup {
				t = strings.ReplaceAll(tidy(t), c.Delimiter, " ")
			}
			if t != "" {
				out = append(out, t)
			}
		}
		return out
	}
	for i, t := range tokens {
		switch c.Type {
		case "Replace":
			t = c.replace(t)
		case "Strip":
			runes := []rune(t)
			for n := 0; n < c.Start && len(runes) > 0 && string(runes[0]) == c.Content; n++ {
				runes = runes[1:]
			}
			for n := 0; n < c.Stop && len(runes) > 0 && string(runes[len(runes)-1]) == c.Content; n++ {
				runes = runes[:len(runes)-1]
			}
			t = string(runes)
		case "Metaspace":
			space := " "
			if i == 0 && c.Scheme != "never" {
				space = ""
			}
			t = strings.ReplaceAll(t, c.Replacement, space)
		case "WordPiece":
			if i > 0 {
				if rest, ok := strings.CutPrefix(t, c.Prefix); ok {
					t = rest
				} else {
					t = " " + t
				}
			}
			if c.Cleanup {
				t = tidy(t)
			}
		case "BPEDecoder":
			space := " "
			if i == len(tokens)-1 {
				space = ""
			}
			t = strings.ReplaceAll(t, c.Suffix, space)
		}
		out = append(out, t)
	}
	return out
}

func (c chain) flat() []chain {
	if c.Type != "Sequence" {
		return []chain{c}
	}
	var out []chain
	for _, d := range c.Decoders {
		out = append(out, d.flat()...)
	}
	return out
}

func (c chain) replace(t string) string {
	if c.Pattern.Regex == "" {
		return strings.ReplaceAll(t, c.Pattern.String, c.Content)
	}
	re, err := onig.Compile(c.Pattern.Regex)
	if err != nil {
		panic(err)
	}
	if t == "" {
		return t
	}
	var out strings.Builder
	at := 0
	re.All([]byte(t), func(start, end int) bool {
		out.WriteString(t[at:start] + c.Content)
		at = end
		return true
	})
	return out.String() + t[at:]
}

func tidy(t string) string {
	for _, p := range [][2]string{
		{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"},
		{" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
	} {
		t = strings.ReplaceAll(t, p[0], p[1])
	}
	return t
}

func fallback(tokens []string, early bool) []string {
	var out []string
	var run []byte
	flush := func() {
		switch {
		case len(run) == 0:
		case utf8.Valid(run):
			out = append(out, string(run))
		default:
			for range run {
				out = append(out, "\uFFFD")
			}
		}
		run = nil
	}
	for _, t := range tokens {
		digits := ""
		if len(t) == 6 && strings.HasPrefix(t, "<0x") && t[5] == '>' {
			digits = t[3:5]
		}
		if digits != "" && digits[0] == '+' {
			digits = "0" + digits[1:]
		}
		high, low := strings.IndexByte(hexDigits, lower(digits, 0)), strings.IndexByte(hexDigits, lower(digits, 1))
		if high < 0 || low < 0 {
			flush()
			out = append(out, t)
			continue
		}
		run = append(run, byte(high<<4|low))
		if early && utf8.Valid(run) {
			flush()
		}
	}
	flush()
	return out
}

const hexDigits = "0123456789abcdef"

func lower(s string, i int) byte {
	if i >= len(s) {
		return 0
	}
	return strings.ToLower(s)[i]
}

// bytesOf maps the characters of the byte alphabet.
var bytesOf = func() map[rune]byte {
	m := map[rune]byte{}
	next := rune(0x100)
	for b := range 256 {
		if b > 0x20 && b < 0x7F || b > 0xA0 && b != 0xAD {
			m[rune(b)] = byte(b)
		} else {
			m[next] = byte(b)
			next++
		}
	}
	return m
}()

// unspell maps a token from the byte alphabet, if all of it is in there.
func unspell(t string) []byte {
	var out []byte
	for _, r := range t {
		b, ok := bytesOf[r]
		if !ok {
			return []byte(t)
		}
		out = append(out, b)
	}
	return out
}

// lossy gives each longest beginning of a character that does not go on, and each
// byte that begins none, as one U+FFFD.
func lossy(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			for size < len(b) && !utf8.FullRune(b[:size+1]) {
				size++
			}
		}
		out.WriteRune(r)
		b = b[size:]
	}
	return out.String()
}
