package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/tokenize"
)

const (
	corpusSize  = 1 << 20
	hostileSize = 1 << 18
	chunkSize   = 40_000
)

// corpus is text to encode, in chunks of about [chunkSize] bytes.
type corpus struct {
	name    string
	chunks  [][]byte
	special bool // spellings of special tokens are those tokens
}

func (c *corpus) size() int {
	n := 0
	for _, chunk := range c.chunks {
		n += len(chunk)
	}
	return n
}

// passages is text from which corpora are put together: parts that make sense by
// themselves, in random order, each at most once in a corpus.
type passages struct {
	english, code, cjk []string
}

// readPassages collects text that every machine with this program's sources has.
//
//   - English: the paragraphs of comments in Go's standard library (BSD licence)
//   - code: the files of the same library, its assembly included
//   - CJK: text in the manner of four samples that golang.org/x/text is tested with
//     (BSD licence): The Art of War in both scripts, Rashomon by Akutagawa and A
//     Lucky Day by Hyun Jin-geon
//
// The order is that of a seed, so that two machines with the same Go have the same
// corpora.
func readPassages(ctx context.Context) (*passages, error) {
	root, err := goCommand(ctx, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	text, err := goCommand(ctx, "list", "-m", "-f", "{{.Dir}}", "golang.org/x/text")
	if err != nil {
		return nil, err
	}
	p := new(passages)
	if err := p.readLibrary(filepath.Join(root, "src")); err != nil {
		return nil, err
	}
	if err := p.readNovels(filepath.Join(text, "encoding", "testdata")); err != nil {
		return nil, err
	}
	return p, nil
}

func goCommand(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", args...).Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// readLibrary takes the files below dir: comments for English, all of it for code.
// What was generated and what is long is tables for the most part.
func (p *passages) readLibrary(dir string) error {
	seen := make(map[string]bool)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if slices.Contains([]string{"cmd", "testdata", "vendor"}, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		case !slices.Contains([]string{".go", ".s", ".js", ".py"}, filepath.Ext(path)):
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if len(data) > 2*chunkSize || bytes.Contains(data, []byte("DO NOT EDIT")) || !utf8.Valid(data) {
			return nil
		}
		p.code = append(p.code, string(data))
		for _, c := range comments(string(data)) {
			if !seen[c] {
				seen[c] = true
				p.english = append(p.english, c)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	shuffle(seeded("english"), p.english)
	shuffle(seeded("code"), p.code)
	return nil
}

// comments returns the paragraphs of line comments in a source that are prose of
// some length.
func comments(source string) []string {
	var out []string
	var b strings.Builder
	flush := func() {
		if b.Len() >= 200 && prose(b.String()) {
			out = append(out, b.String())
		}
		b.Reset()
	}
	for line := range strings.Lines(source) {
		text, ok := strings.CutPrefix(strings.TrimSpace(line), "// ")
		if !ok || strings.HasPrefix(text, " ") || strings.HasPrefix(text, "\t") {
			flush()
			continue
		}
		b.WriteString(text)
		b.WriteByte('\n')
	}
	flush()
	return out
}

// prose reports whether most of a text is letters and spaces.
func prose(text string) bool {
	n := 0
	for _, r := range text {
		if unicode.IsLetter(r) || r == ' ' {
			n++
		}
	}
	return n*10 > len(text)*9
}

// readNovels makes paragraphs in the manner of the files in dir.
func (p *passages) readNovels(dir string) error {
	for _, name := range []string{
		"sunzi-bingfa-simplified", "sunzi-bingfa-traditional", "rashomon", "unsu-joh-eun-nal",
	} {
		data, err := os.ReadFile(filepath.Join(dir, name+"-utf-8.txt"))
		if err != nil {
			return err
		}
		c := newChain(string(data))
		rng := seeded(name)
		for n := 0; n < corpusSize/4; {
			text := c.paragraph(rng)
			n += len(text)
			p.cjk = append(p.cjk, text)
		}
	}
	shuffle(seeded("cjk"), p.cjk)
	return nil
}

// chain continues a text by what follows its last character in a sample. The samples
// are short; a corpus of their paragraphs would have each of them many times, and
// a tokenizer that remembers would know them all. What comes out makes no sense, but
// has as many tokens per character as the sample, to within a twentieth.
type chain struct {
	next map[rune][]rune
}

// newChain learns from the lines of a sample, but not from those that say where it
// comes from, which are in English.
func newChain(sample string) *chain {
	c := &chain{next: make(map[rune][]rune)}
	last := rune(0)
	for line := range strings.Lines(sample) {
		line = strings.TrimSpace(line)
		if strings.IndexFunc(line, isCJK) < 0 {
			continue
		}
		for _, r := range line {
			c.next[last] = append(c.next[last], r)
			last = r
		}
	}
	return c
}

func isCJK(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul)
}

// ends are the characters that end a sentence.
const ends = "。.」!?！？”"

// paragraph returns a few sentences.
func (c *chain) paragraph(rng *rand.Rand) string {
	var b strings.Builder
	last := []rune(ends)[0]
	for b.Len() < 300 || !strings.ContainsRune(ends, last) && b.Len() < 900 {
		following := c.next[last]
		if len(following) == 0 {
			following = c.next[0] // the beginning of the sample
		}
		last = following[rng.IntN(len(following))]
		b.WriteRune(last)
	}
	b.WriteByte('\n')
	return b.String()
}

// natural returns the corpora of plain text.
func (p *passages) natural() []*corpus {
	return []*corpus{
		{name: "English", chunks: chunks(p.english)},
		{name: "code", chunks: chunks(p.code)},
		{name: "CJK", chunks: chunks(p.cjk)},
	}
}

// chunks puts passages together, an empty line between them, until there are
// [corpusSize] bytes.
func chunks(passages []string) [][]byte {
	var out [][]byte
	var chunk []byte
	size := 0
	for _, p := range passages {
		chunk = append(append(chunk, p...), '\n')
		for len(chunk) >= chunkSize {
			end := chunkSize
			if nl := bytes.LastIndexByte(chunk[:end], '\n'); nl >= 0 {
				end = nl + 1
			}
			for end < len(chunk) && !utf8.RuneStart(chunk[end]) {
				end++
			}
			out = append(out, bytes.Clone(chunk[:end]))
			chunk = append(chunk[:0], chunk[end:]...)
			if size += end; size >= corpusSize {
				return out
			}
		}
	}
	return append(out, chunk)
}

// message is one of a chat.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// talk makes up chats of passages in which people write English, paste code and
// now and then use another script.
type talk struct {
	*passages
	rng *rand.Rand
}

func newTalk(p *passages, seed string) *talk { return &talk{p, seeded(seed)} }

// content returns a message of about size bytes.
func (t *talk) content(size int) string {
	var b strings.Builder
	for b.Len() < size {
		switch n := t.rng.IntN(10); {
		case n < 6:
			b.WriteString(pick(t.rng, t.english))
		case n < 9:
			lines := strings.SplitAfter(pick(t.rng, t.code), "\n")
			from := t.rng.IntN(len(lines))
			fmt.Fprintf(&b, "```\n%s```\n", strings.Join(lines[from:min(from+25, len(lines))], ""))
		default:
			b.WriteString(pick(t.rng, t.cjk))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// chat renders chats of about [chunkSize] bytes each by a model's own template.
func (p *passages) chat(r tokenize.Renderer) (*corpus, error) {
	t := newTalk(p, "chat")
	c := &corpus{name: "mixed chat", special: true}
	for size := 0; size < corpusSize; {
		var messages []message
		for n := 0; n < chunkSize*8/10; {
			for _, role := range []string{"user", "assistant"} {
				m := message{role, t.content(200 + t.rng.IntN(2500))}
				messages = append(messages, m)
				n += len(m.Content)
			}
		}
		text, err := render(r, append(messages, message{"user", "Go on."}))
		if err != nil {
			return nil, err
		}
		c.chunks = append(c.chunks, text)
		size += len(text)
	}
	return c, nil
}

func render(r tokenize.Renderer, messages []message) ([]byte, error) {
	raw, err := json.Marshal(messages)
	if err != nil {
		return nil, err
	}
	var p tokenize.Prompt
	if err := r.Render(&p, tokenize.Chat{Messages: raw}); err != nil {
		return nil, err
	}
	if !utf8.Valid(p.Text) {
		return nil, errors.New("the template made text that is not UTF-8")
	}
	return p.Text, nil
}

// hostile returns corpora that are made to be slow to encode.
func hostile() []*corpus {
	fill := func(name string, add func(dst []byte, rng *rand.Rand) []byte) *corpus {
		c := &corpus{name: name}
		rng := seeded(name)
		for size := 0; size < hostileSize; size += chunkSize {
			var chunk []byte
			for len(chunk) < chunkSize {
				chunk = add(chunk, rng)
			}
			c.chunks = append(c.chunks, chunk)
		}
		return c
	}
	return []*corpus{
		fill("one letter", func(dst []byte, rng *rand.Rand) []byte {
			return append(dst, bytes.Repeat([]byte{'a' + byte(rng.IntN(26))}, chunkSize)...)
		}),
		fill("base64", func(dst []byte, rng *rand.Rand) []byte {
			var raw [3 * 1024]byte
			for i := range raw {
				raw[i] = byte(rng.Uint32())
			}
			return base64.StdEncoding.AppendEncode(dst, raw[:])
		}),
		fill("random Unicode", func(dst []byte, rng *rand.Rand) []byte {
			r := rune(rng.IntN(unicode.MaxRune + 1))
			if !utf8.ValidRune(r) {
				return dst
			}
			return utf8.AppendRune(dst, r)
		}),
		fill("white space", func(dst []byte, rng *rand.Rand) []byte {
			blank := []string{" ", "\t", "\n", "\r\n", "\u00a0", "\u3000"}[rng.IntN(6)]
			return append(dst, strings.Repeat(blank, 1+rng.IntN(300))...)
		}),
	}
}

// seeded returns the random source of a name, the same in every run.
func seeded(name string) *rand.Rand {
	var seed [32]byte
	copy(seed[:], name)
	return rand.New(rand.NewChaCha8(seed))
}

func shuffle(rng *rand.Rand, s []string) {
	rng.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
}

func pick(rng *rand.Rand, s []string) string { return s[rng.IntN(len(s))] }
