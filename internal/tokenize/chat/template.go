package chat

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stator-ai/stator/internal/jinja"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/tokenize"
)

// Template renders the chats of one model. It is immutable and safe for
// concurrent use.
type Template struct {
	config   Config
	main     *source            // nil when there are only named templates without a default
	named    map[string]*source // includes default
	defaults *jinja.Dict        // nil when there are none
}

var _ tokenize.Renderer = (*Template)(nil)

// New compiles the templates of c. It returns [ErrNoTemplate] when there is
// none. Other errors name the template and, where the fault is in its source, the
// line. New keeps c's slices and maps; they must not change afterwards.
func New(c Config) (*Template, error) {
	if c.Template == "" && len(c.Named) == 0 {
		return nil, ErrNoTemplate
	}
	switch c.ContentFormat {
	case "", "string", "openai":
	default:
		return nil, fmt.Errorf("chat content format %q: expected string or openai", c.ContentFormat)
	}
	t := &Template{config: c, named: make(map[string]*source, len(c.Named))}
	for _, name := range slices.Sorted(maps.Keys(c.Named)) {
		s, err := compile(name, c.Named[name], &c)
		if err != nil {
			return nil, err
		}
		t.named[name] = s
		if c.Dialect == LlamaCpp {
			t.probeLlamaCpp(s, c.Named[name])
		}
	}
	t.main = t.named["default"]
	if c.Template != "" {
		s, err := compile("default", c.Template, &c)
		if err != nil {
			return nil, err
		}
		t.main = s
		if c.Dialect == LlamaCpp {
			t.probeLlamaCpp(s, c.Template)
		}
	}
	if v := openai.Value(c.Defaults); v.Present() {
		d, err := object("default chat_template_kwargs", c.Defaults)
		if err != nil {
			return nil, err
		}
		t.defaults = d
		if c.Dialect == LlamaCpp {
			fitIntegers(d)
		}
	}
	return t, nil
}

// source is one compiled template and what its source says about how it wants to
// be called.
type source struct {
	*jinja.Template
	// parts says that content is wanted as a list of parts, not as text.
	parts bool
	// developer says that it knows the role of that name.
	developer bool
	// reads holds the variables that it takes from outside.
	reads map[string]bool
	llama takesLlamaCpp // for that dialect only
}

func compile(name, src string, c *Config) (*source, error) {
	t, err := jinja.Compile(src)
	if err != nil {
		return nil, fmt.Errorf("chat template %q: %w", name, err)
	}
	s := &source{
		Template:  t,
		developer: strings.Contains(src, `"developer"`) || strings.Contains(src, `'developer'`),
		reads:     make(map[string]bool),
	}
	for _, name := range t.Undeclared() {
		s.reads[name] = true
	}
	switch {
	case c.ContentFormat != "":
		s.parts = c.ContentFormat == "openai"
	case c.Dialect == SGLang:
		s.parts = loopsOverContent(src)
	default:
		s.parts = t.ContentFormat() == "openai"
	}
	return s, nil
}

// pick returns the template for a request. Which one it is depends on whether
// there are tools, an empty list of them included.
func (t *Template) pick(own *source, tools jinja.Value) (*source, error) {
	if own != nil {
		return own, nil
	}
	if tools != nil {
		if s := t.named["tool_use"]; s != nil {
			return s, nil
		}
	}
	if t.main == nil {
		return nil, fmt.Errorf("chat_template: the model has no default template, only %s",
			strings.Join(slices.Sorted(maps.Keys(t.named)), ", "))
	}
	return t.main, nil
}

// own returns the template that a request brings along, nil when it does not.
func (t *Template) own(raw openai.Value) (*source, error) {
	if !raw.Present() {
		return nil, nil
	}
	src, ok := raw.Text()
	if !ok {
		return nil, fmt.Errorf("chat_template: expected a string, got %s", raw.TypeName())
	}
	return t.requested(src)
}

// requested returns the template that a request names or spells out.
func (t *Template) requested(src string) (*source, error) {
	if !t.config.AllowRequestTemplate {
		return nil, errors.New("chat_template: templates in requests are not allowed")
	}
	if s := t.named[src]; s != nil {
		return s, nil
	}
	s, err := compile("request", src, &t.config)
	if err != nil {
		return nil, fmt.Errorf("chat_template: %w", err)
	}
	return s, nil
}

// Render implements [tokenize.Renderer]. All of the prompt is special: see the
// package comment. It is one segment, except that a message continued for SGLang
// is a second one, because that engine tokenizes it apart.
//
// Errors name the member of the request at fault, as in
// "messages[2].content[0].type: …". What a template raises itself is a
// *[jinja.RaiseError], with the template's message.
func (t *Template) Render(dst *tokenize.Prompt, c tokenize.Chat) error {
	dst.Reset()
	if t.config.Dialect == LlamaCpp {
		return t.renderLlamaCpp(dst, c)
	}
	own, err := t.own(c.Template)
	if err != nil {
		return err
	}
	switch t.config.Dialect {
	case SGLang:
		return t.renderSGLang(dst, c, own)
	case HF:
		return t.renderHF(dst, c, own)
	default:
		return t.renderVLLM(dst, c, own)
	}
}

// call is one call of a template: its arguments, under the names that
// transformers gives them.
type call struct {
	messages      []jinja.Value
	tools         jinja.Value // nil is none, which is not the same as undefined
	documents     jinja.Value
	generation    bool        // add_generation_prompt
	continueFinal bool        // continue_final_message
	kwargs        *jinja.Dict // further variables, nil for none
}

// render calls the template s and replaces dst with what it prints.
func (t *Template) render(dst *tokenize.Prompt, s *source, c call) error {
	messages := c.messages
	var final string
	if c.continueFinal {
		var err error
		if messages, final, err = openFinal(messages); err != nil {
			return err
		}
	}
	vars := jinja.NewDict(16)
	for _, tok := range t.config.SpecialTokens {
		if tok.List == nil {
			vars.Set(tok.Name, tok.Text)
			continue
		}
		list := make([]jinja.Value, len(tok.List))
		for i, text := range tok.List {
			list[i] = text
		}
		vars.Set(tok.Name, &jinja.List{Items: list})
	}
	if c.kwargs != nil {
		for name, v := range keys(c.kwargs) {
			vars.Set(name, v)
		}
	}
	vars.Set("messages", &jinja.List{Items: messages})
	vars.Set("tools", c.tools)
	vars.Set("documents", c.documents)
	vars.Set("add_generation_prompt", c.generation)
	dst.Reset()
	text, err := s.Template.Render(dst.Text, vars, jinja.Options{Now: t.now()})
	if err != nil {
		return fmt.Errorf("messages: %w", err)
	}
	if c.continueFinal {
		if text, err = cutFinal(text, final); err != nil {
			return err
		}
	}
	dst.Text = text
	seal(dst)
	return nil
}

// seal makes a segment of the text after the last one, apart from it.
func seal(dst *tokenize.Prompt) {
	start := 0
	if n := len(dst.Segments); n > 0 {
		start = dst.Segments[n-1].End
	}
	if len(dst.Text) > start {
		dst.Segments = append(dst.Segments, tokenize.Segment{End: len(dst.Text), Special: true})
	}
}

func (t *Template) now() time.Time {
	now := time.Now
	if t.config.Now != nil {
		now = t.config.Now
	}
	if t.config.Location != nil {
		return now().In(t.config.Location)
	}
	return now()
}
