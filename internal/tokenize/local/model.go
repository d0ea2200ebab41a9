// Package local makes prompts into tokens with files instead of an engine: a
// model's tokenizer and its chat template, from a directory, from the Hub or built
// in.
package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/stator-ai/stator/internal/hub"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/chat"
	"github.com/stator-ai/stator/internal/tokenize/hf"
	"github.com/stator-ai/stator/internal/tokenize/prefix"
	"github.com/stator-ai/stator/internal/tokenize/split"
)

// DefaultCacheBytes is the size of the prefix cache of a model.
const DefaultCacheBytes = 64 << 20

// Options say how a model is used.
type Options struct {
	// Template is the source of a chat template that takes the place of the
	// model's own.
	Template string
	// Chat holds the settings of the template: its dialect, defaults and clock.
	// What comes from files is not set here.
	Chat chat.Config
	// Pattern splits text into pieces. Only tiktoken files need one, which do not
	// have their own; empty means that it is told from the model.
	Pattern string
	// CacheBytes bounds the memory of prompts whose ids are kept; 0 is
	// [DefaultCacheBytes], less than 0 keeps none.
	CacheBytes int64
}

// Model is a tokenizer and a chat template. It is safe for concurrent use.
type Model struct {
	tok           *hf.Tokenizer
	template      *chat.Template // nil when there is none, for the reason why
	why           error
	cache         *prefix.Cache // nil for none
	before, after []uint32      // around a text that is not a chat
	llamaCpp      bool          // whose tokenizer is followed
	source        string
	stale         error
}

var _ tokenize.Model = (*Model)(nil)

// repo is what the name of a repository looks like, with a revision or without.
var repo = regexp.MustCompile(`^[\w-][\w.-]*/[\w-][\w.-]*(@[\w./-]+)?$`)

// Open makes a model of what ref names: a path that exists, or else a repository
// on the Hub such as Qwen/Qwen3-8B or Qwen/Qwen3-8B@main. Client may be nil when
// there is no Hub to ask.
func Open(ctx context.Context, ref string, client *hub.Client, o Options) (*Model, error) {
	files, err := read(ctx, ref, client)
	if err != nil {
		return nil, err
	}
	m, err := Load(files, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", files.Source, err)
	}
	return m, nil
}

func read(ctx context.Context, ref string, client *hub.Client) (*hub.Files, error) {
	if _, err := os.Stat(ref); err == nil {
		return hub.Read(ref)
	}
	if !repo.MatchString(ref) || filepath.IsAbs(ref) {
		return nil, fmt.Errorf("%q is neither a path that exists nor the name of a repository such as Qwen/Qwen3-8B", ref)
	}
	if client == nil {
		return nil, fmt.Errorf("%q is not a path that exists", ref)
	}
	name, revision, _ := strings.Cut(ref, "@")
	if revision == "" {
		revision = "main"
	}
	return client.Fetch(ctx, name, revision)
}

// Load makes a model of files. A model without a chat template is none that cannot
// be used: only its chats are errors.
func Load(files *hub.Files, o Options) (*Model, error) {
	conf, err := parseConfig(files.TokenizerConfig)
	if err != nil {
		return nil, fmt.Errorf("tokenizer_config.json: %w", err)
	}
	tok, err := loadTokenizer(files, conf, o)
	if err != nil {
		return nil, err
	}
	c, err := chat.ParseConfig(files.TokenizerConfig, files.ChatTemplate, files.ChatTemplateJSON)
	if err != nil {
		return nil, err
	}
	for _, t := range files.Templates {
		if c.Named == nil {
			c.Named = make(map[string]string)
		}
		c.Named[t.Name] = string(t.Text)
	}
	m, err := New(tok, c, o)
	if err != nil {
		return nil, err
	}
	m.source, m.stale = files.Source, files.Stale
	return m, m.frame(conf)
}

// New makes a model of a tokenizer and of what files say about its template. In the
// dialect of llama.cpp the tokenizer is made what that engine makes of it.
func New(tok *hf.Tokenizer, c chat.Config, o Options) (*Model, error) {
	llamaCpp := o.Chat.Dialect == chat.LlamaCpp
	if llamaCpp {
		var err error
		if tok, err = asLlamaCpp(tok); err != nil {
			return nil, err
		}
	}
	own := o.Chat
	own.Template, own.Named, own.SpecialTokens = c.Template, c.Named, c.SpecialTokens
	if o.Template != "" {
		own.Template, own.Named = o.Template, nil
	}
	m := &Model{tok: tok, llamaCpp: llamaCpp}
	m.before, m.after = tok.Frame()
	if m.template, m.why = chat.New(own); m.why != nil && !errors.Is(m.why, chat.ErrNoTemplate) {
		return nil, m.why
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = DefaultCacheBytes
	}
	if o.CacheBytes > 0 {
		m.cache = prefix.New(tok, o.CacheBytes)
	}
	return m, nil
}

func loadTokenizer(files *hub.Files, conf *config, o Options) (*hf.Tokenizer, error) {
	added, err := conf.added()
	if err != nil {
		return nil, fmt.Errorf("tokenizer_config.json: added_tokens_decoder: %w", err)
	}
	if files.Tokenizer != nil {
		tok, err := hf.Parse(files.Tokenizer, added...)
		if err != nil {
			return nil, fmt.Errorf("tokenizer.json: %w", err)
		}
		return tok, nil
	}
	pattern := o.Pattern
	if pattern == "" {
		if pattern = patterns[conf.Class]; pattern == "" {
			return nil, errors.New("tiktoken.model: the file does not say how text is split into pieces, and neither does the model: give the pattern (models[].pattern, --pattern)")
		}
	}
	tok, err := hf.ParseTiktoken(files.TiktokenModel, pattern, added)
	if err != nil {
		return nil, fmt.Errorf("tiktoken.model: %w", err)
	}
	return tok, nil
}

// patterns says how text is split by the classes of tokenizers that read tiktoken
// files and have it in their code.
var patterns = map[string]string{
	"TikTokenTokenizer": split.Kimi,
}

// frame looks at what transformers puts around a text besides what tokenizer.json
// says: for some classes of tokenizers that is two flags.
func (m *Model) frame(conf *config) error {
	if !strings.HasPrefix(conf.Class, "Llama") && !strings.HasPrefix(conf.Class, "Gemma") {
		return nil
	}
	m.before, m.after = nil, nil
	if conf.AddBOS == nil || *conf.AddBOS {
		if err := m.special(&m.before, "bos_token", conf.BOS.text); err != nil {
			return err
		}
	}
	if conf.AddEOS != nil && *conf.AddEOS {
		return m.special(&m.after, "eos_token", conf.EOS.text)
	}
	return nil
}

func (m *Model) special(dst *[]uint32, name, text string) error {
	if text == "" {
		return nil
	}
	ids, err := m.tok.Encode(nil, []byte(text), true /* special */)
	if err != nil || len(ids) != 1 {
		return fmt.Errorf("tokenizer_config.json: %s: %q is not one token", name, text)
	}
	*dst = ids
	return nil
}

// Tokenizer returns the model's tokenizer.
func (m *Model) Tokenizer() *hf.Tokenizer { return m.tok }

// Fingerprint implements [tokenize.Model].
func (m *Model) Fingerprint() string { return m.tok.Fingerprint() }

// Source says where the files come from, for messages.
func (m *Model) Source() string { return m.source }

// Stale returns why the Hub could not be asked whether the model has changed, when
// earlier files stand in; otherwise nil.
func (m *Model) Stale() error { return m.stale }

// ChatError returns why the model cannot render chats, nil if it can.
func (m *Model) ChatError() error { return m.why }

// Stats returns the counts of the prefix cache.
func (m *Model) Stats() prefix.Stats {
	if m.cache == nil {
		return prefix.Stats{}
	}
	return m.cache.Stats()
}

// Render implements [tokenize.Renderer].
func (m *Model) Render(dst *tokenize.Prompt, c tokenize.Chat) error {
	if m.template == nil {
		return fmt.Errorf("messages: %w", m.why)
	}
	return m.template.Render(dst, c)
}

// Chat implements [tokenize.Model].
func (m *Model) Chat(c tokenize.Chat, h tokenize.Hashing) (tokenize.Result, error) {
	var p tokenize.Prompt
	if err := m.Render(&p, c); err != nil {
		return tokenize.Result{}, err
	}
	r, err := m.EncodePrompt(&p, h)
	if err != nil {
		return tokenize.Result{}, fmt.Errorf("messages: %w", err)
	}
	return r, nil
}

// EncodePrompt returns the tokens of what the template has written. Nearly always
// that is one text; an engine that encodes the answer to be continued apart makes it
// two.
func (m *Model) EncodePrompt(p *tokenize.Prompt, h tokenize.Hashing) (tokenize.Result, error) {
	if m.llamaCpp {
		return m.encodeFramed(p.Text, h)
	}
	if len(p.Segments) == 1 {
		return m.Encode(p.Text, h)
	}
	ids, err := p.AppendIDs(nil, m.tok)
	if err != nil {
		return tokenize.Result{}, err
	}
	return tokenize.Result{
		IDs: ids, Text: p.Text, Fingerprint: m.Fingerprint(), Source: tokenize.Local,
		Blocks: kv.AppendBlocks(nil, h.Seed, ids, h.Size),
	}, nil
}

// Encode returns the tokens of a text, special tokens included.
func (m *Model) Encode(text []byte, h tokenize.Hashing) (r tokenize.Result, err error) {
	if m.cache != nil {
		r, err = m.cache.Encode(text, h)
	} else if r.IDs, err = m.tok.Encode(nil, text, true /* special */); err == nil {
		r.Blocks = kv.AppendBlocks(nil, h.Seed, r.IDs, h.Size)
	}
	if errors.Is(err, hf.ErrUnknown) {
		err = fmt.Errorf("the text %w: %w", chat.ErrInexact, err)
	}
	if err != nil {
		return tokenize.Result{}, err
	}
	r.Text, r.Fingerprint, r.Source = text, m.Fingerprint(), tokenize.Local
	return r, nil
}

// Complete implements [tokenize.Model].
func (m *Model) Complete(text []byte, bare bool, h tokenize.Hashing) (tokenize.Result, error) {
	if bare || len(m.before)+len(m.after) == 0 {
		return m.Encode(text, h)
	}
	r, err := m.Encode(text, tokenize.Hashing{})
	if err != nil {
		return tokenize.Result{}, err
	}
	r.IDs = slices.Concat(m.before, r.IDs, m.after)
	r.Blocks = kv.AppendBlocks(nil, h.Seed, r.IDs, h.Size)
	return r, nil
}

// config is what tokenizer_config.json says about tokens.
type config struct {
	Class   string                     `json:"tokenizer_class"`
	AddBOS  *bool                      `json:"add_bos_token"`
	AddEOS  *bool                      `json:"add_eos_token"`
	BOS     tokenText                  `json:"bos_token"`
	EOS     tokenText                  `json:"eos_token"`
	Decoder map[string]json.RawMessage `json:"added_tokens_decoder"`
}

func parseConfig(raw []byte) (*config, error) {
	c := new(config)
	if len(raw) == 0 {
		return c, nil
	}
	return c, json.Unmarshal(raw, c)
}

// tokenText is a token as a string or as an object with its content.
type tokenText struct{ text string }

// UnmarshalJSON implements [json.Unmarshaler].
func (t *tokenText) UnmarshalJSON(raw []byte) error {
	if raw[0] != '{' {
		return json.Unmarshal(raw, &t.text)
	}
	var o struct {
		Content string `json:"content"`
	}
	err := json.Unmarshal(raw, &o)
	t.text = o.Content
	return err
}

// added returns the tokens of added_tokens_decoder in the order of their ids.
func (c *config) added() ([]hf.AddedToken, error) {
	out := make([]hf.AddedToken, 0, len(c.Decoder))
	for id, raw := range c.Decoder {
		var t hf.AddedToken
		if err := json.Unmarshal(raw, &t); err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		if err := json.Unmarshal([]byte(id), &t.ID); err != nil {
			return nil, fmt.Errorf("%q: expected a token id", id)
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b hf.AddedToken) int { return int(int64(a.ID) - int64(b.ID)) })
	return out, nil
}
