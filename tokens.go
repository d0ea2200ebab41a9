package stator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stator-ai/stator/internal/frontend"
	"github.com/stator-ai/stator/internal/hub"
	templates "github.com/stator-ai/stator/internal/tokenize/chat"
	"github.com/stator-ai/stator/internal/tokenize/local"
	"github.com/stator-ai/stator/internal/tokenize/qwen3"
)

// What a tokenizer can be besides a path and a repository.
const (
	tokensOfEngine = "engine"
	tokensOfNobody = "none"
	tokensOfQwen3  = "qwen3"
)

// tokenizer is a tokenizer to be loaded, for one model or for several that have the
// same.
type tokenizer struct {
	index  int      // of the first of them in the configuration
	models []string // their names
	config ModelConfig

	loaded *local.Model
	took   time.Duration
}

// loadTokens loads the tokenizers of all models and tells the frontend.
func (s *Server) loadTokens(ctx context.Context) error {
	byModel := make(map[string]frontend.Tokens)
	files := make(map[string]*tokenizer) // by what is to be loaded
	var order []*tokenizer
	for i, m := range s.cfg.Models {
		switch m.Tokenizer {
		case tokensOfNobody:
			byModel[m.Name] = frontend.Tokens{}
		case tokensOfEngine:
			byModel[m.Name] = frontend.Tokens{Engine: true}
			s.log.Info("engines are asked for tokens", "model", m.Name)
		default:
			key := m.key()
			if files[key] == nil {
				files[key] = &tokenizer{index: i, config: m}
				order = append(order, files[key])
			}
			files[key].models = append(files[key].models, m.Name)
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, t := range order {
		g.Go(func() error { return s.loadTokenizer(gctx, t) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, t := range order {
		s.announce(t)
		for _, name := range t.models {
			byModel[name] = frontend.Tokens{Local: t.loaded}
		}
	}
	s.front.SetTokens(byModel)
	return nil
}

// key is equal for models with the same tokenizer.
func (m ModelConfig) key() string {
	m.Name = ""
	m.Dialect = cmp.Or(m.Dialect, templates.VLLM.String())
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // the configuration is valid
	}
	return string(text)
}

func (s *Server) loadTokenizer(ctx context.Context, t *tokenizer) error {
	start := time.Now()
	err := s.openTokenizer(ctx, t)
	if err != nil {
		return fmt.Errorf("models[%d].tokenizer: model %q: %w", t.index, t.models[0], err)
	}
	t.took = time.Since(start)
	return nil
}

func (s *Server) openTokenizer(ctx context.Context, t *tokenizer) (err error) {
	t.loaded, err = t.config.open(ctx, s.cfg.Hub.client(s.progress))
	return err
}

// open loads the tokenizer, which is one that is built in or has files.
func (m *ModelConfig) open(ctx context.Context, client *hub.Client) (*local.Model, error) {
	if m.Tokenizer == tokensOfQwen3 && len(m.fileKeys()) == 0 {
		return qwen3.Model(), nil
	}
	o, err := m.options()
	if err != nil {
		return nil, err
	}
	if m.Tokenizer == tokensOfQwen3 {
		return qwen3.Open(o)
	}
	return local.Open(ctx, m.Tokenizer, client, o)
}

// options returns how the model's files are used. It reads the template if that is
// a file of its own.
func (m *ModelConfig) options() (local.Options, error) {
	o := local.Options{
		Chat: templates.Config{
			ContentFormat:        m.ContentFormat,
			ExcludeToolsWhenNone: m.ExcludeToolsWhenToolChoiceNone,
			AllowRequestTemplate: m.TrustRequestChatTemplate,
		},
		Pattern: m.Pattern,
	}
	var err error
	if m.Dialect != "" {
		if o.Chat.Dialect, err = templates.ParseDialect(m.Dialect); err != nil {
			return o, err
		}
	}
	if len(m.ChatTemplateKwargs) > 0 {
		if o.Chat.Defaults, err = json.Marshal(m.ChatTemplateKwargs); err != nil {
			return o, fmt.Errorf("chat_template_kwargs: %w", err)
		}
	}
	if m.Cache != nil {
		o.CacheBytes = int64(*m.Cache)
		if o.CacheBytes == 0 {
			o.CacheBytes = -1
		}
	}
	if m.ChatTemplate != "" {
		text, err := os.ReadFile(m.ChatTemplate)
		if err != nil {
			return o, fmt.Errorf("chat_template: %w", err)
		}
		if o.Template = string(text); strings.TrimSpace(o.Template) == "" {
			return o, fmt.Errorf("chat_template: %s is empty", m.ChatTemplate)
		}
	}
	return o, nil
}

// client returns the Hub's client, nil if there is no place for downloads.
func (h *HubConfig) client(p hub.Progress) *hub.Client {
	if h.CacheDir == "" {
		return nil
	}
	c := &hub.Client{Endpoint: h.Endpoint, Token: h.Token, CacheDir: h.CacheDir, Progress: p}
	if h.Offline != nil {
		c.Offline = *h.Offline
	}
	return c
}

// CheckTokenizers loads the tokenizers and templates of models that need no network,
// and returns what is wrong with the first that cannot be used.
func (c *Config) CheckTokenizers(ctx context.Context) error {
	for i, m := range c.Models {
		if _, err := os.Stat(m.Tokenizer); err != nil && m.Tokenizer != tokensOfQwen3 {
			continue
		}
		o, err := m.options()
		if err == nil && m.Tokenizer == tokensOfQwen3 {
			_, err = qwen3.Open(o)
		} else if err == nil {
			_, err = local.Open(ctx, m.Tokenizer, nil, o)
		}
		if err != nil {
			return fmt.Errorf("models[%d].tokenizer: model %q: %w", i, m.Name, err)
		}
	}
	return nil
}

// announce logs what was loaded.
func (s *Server) announce(t *tokenizer) {
	m := t.loaded
	tok := m.Tokenizer()
	log := s.log.With("model", strings.Join(t.models, ", "))
	log.Info("tokenizer loaded", "source", cmp.Or(m.Source(), "built in"), "fingerprint", tok.Fingerprint()[:12],
		"tokens", tok.Size(), "template", m.ChatError() == nil, "load_ms", t.took.Milliseconds())
	for _, w := range tok.Warnings() {
		log.Warn("tokenizer is strange", "warning", w)
	}
	if err := m.Stale(); err != nil {
		log.Warn("the Hub cannot be asked whether the model has changed", "error", err)
	}
	if err := m.ChatError(); err != nil {
		log.Warn("chats are placed without tokens", "reason", err)
	}
}

// repository is what the name of a repository on the Hub looks like.
var repository = regexp.MustCompile(`^[\w-][\w.-]*/[\w-][\w.-]*(@[\w./-]+)?$`)

func (v *validator) models(c *Config) {
	names := make(map[string]int)
	for i, m := range c.Models {
		at := fmt.Sprintf("models[%d]", i)
		if other, taken := names[m.Name]; strings.TrimSpace(m.Name) == "" {
			v.add(at+".name", "expected the name of a served model, or * for all without an entry")
		} else if taken {
			v.add(at+".name", "expected a name of its own, but models[%d] is %q too", other, m.Name)
		} else {
			names[m.Name] = i
		}
		switch m.Tokenizer {
		case tokensOfEngine, tokensOfNobody:
			for _, key := range m.fileKeys() {
				v.add(at+"."+key, "expected with the files of a tokenizer only, but the tokenizer is %s", m.Tokenizer)
			}
		default:
			v.tokenizer(at, &m)
		}
	}
	if h := &c.Hub; h.Endpoint != "" {
		v.baseURL("hub.endpoint", h.Endpoint, "https://huggingface.co")
	}
}

// fileKeys returns the settings that are about files and have been set.
func (m *ModelConfig) fileKeys() []string {
	var keys []string
	for _, k := range []struct {
		key string
		set bool
	}{
		{"chat_template", m.ChatTemplate != ""},
		{"dialect", m.Dialect != ""},
		{"content_format", m.ContentFormat != ""},
		{"chat_template_kwargs", len(m.ChatTemplateKwargs) > 0},
		{"exclude_tools_when_tool_choice_none", m.ExcludeToolsWhenToolChoiceNone},
		{"trust_request_chat_template", m.TrustRequestChatTemplate},
		{"pattern", m.Pattern != ""},
		{"cache", m.Cache != nil},
	} {
		if k.set {
			keys = append(keys, k.key)
		}
	}
	return keys
}

// tokenizer checks the entry of a model with files, as far as that goes without
// reading them.
func (v *validator) tokenizer(at string, m *ModelConfig) {
	const choices = "expected a path that exists, a repository on the Hub such as Qwen/Qwen3-8B, qwen3, engine or none"
	switch _, err := os.Stat(m.Tokenizer); {
	case m.Tokenizer == tokensOfQwen3:
	case m.Tokenizer == "":
		v.add(at+".tokenizer", "%s", choices)
	case err != nil && !repository.MatchString(m.Tokenizer):
		v.add(at+".tokenizer", "%s, got %q", choices, m.Tokenizer)
	}
	if m.ChatTemplate != "" {
		if info, err := os.Stat(m.ChatTemplate); err != nil {
			v.add(at+".chat_template", "%v", err)
		} else if !info.Mode().IsRegular() {
			v.add(at+".chat_template", "expected a file, got %q", m.ChatTemplate)
		}
	}
	if m.Dialect != "" {
		v.oneOf(at+".dialect", m.Dialect, templates.Dialects()...)
	}
	if m.ContentFormat != "" {
		v.oneOf(at+".content_format", m.ContentFormat, "string", "openai")
	}
	if _, err := json.Marshal(m.ChatTemplateKwargs); err != nil {
		v.add(at+".chat_template_kwargs", "expected values that JSON has")
	}
	if m.Cache != nil && *m.Cache < 0 {
		v.add(at+".cache", "expected at least 0, got %d", int64(*m.Cache))
	}
}
