package chat

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stator-ai/stator/internal/openai"
)

// Dialect names the engine whose way of rendering is followed.
type Dialect uint8

// The dialects. VLLM is the default.
const (
	VLLM     Dialect = iota // messages as vLLM's OpenAI server prepares them
	SGLang                  // messages as SGLang's OpenAI server prepares them
	HF                      // messages straight to the template
	LlamaCpp                // messages as llama.cpp's server prepares them
)

// String returns the dialect's name in lower case, as [ParseDialect] reads it.
func (d Dialect) String() string {
	switch d {
	case VLLM:
		return "vllm"
	case SGLang:
		return "sglang"
	case HF:
		return "hf"
	case LlamaCpp:
		return "llamacpp"
	default:
		return fmt.Sprintf("dialect(%d)", uint8(d))
	}
}

// Dialects returns the names of all dialects, as [ParseDialect] reads them.
func Dialects() []string {
	names := make([]string, 0, 4)
	for d := VLLM; d <= LlamaCpp; d++ {
		names = append(names, d.String())
	}
	return names
}

// ParseDialect returns the dialect of a name: vllm, sglang, hf or llamacpp.
func ParseDialect(name string) (Dialect, error) {
	for d := VLLM; d <= LlamaCpp; d++ {
		if d.String() == name {
			return d, nil
		}
	}
	return 0, fmt.Errorf("unknown chat dialect %q: expected vllm, sglang, hf or llamacpp", name)
}

// Config is a model's chat template and what it is rendered with.
type Config struct {
	// Template is the source of the template that is used by default.
	Template string
	// Named holds further templates by name. The one named tool_use is used for
	// requests with tools; default stands in for an empty Template. Others are
	// used only by requests that name them.
	Named map[string]string
	// SpecialTokens are variables of the template: bos_token, eos_token and the
	// like. A name that is not among them is undefined there.
	SpecialTokens []SpecialToken

	Dialect Dialect
	// ContentFormat says what the template takes for a message's content: "string"
	// for text, "openai" for a list of parts. Empty means found out from the
	// template, in the way of the dialect. HF does not look at it.
	ContentFormat string
	// Defaults is a JSON object of template variables for every request. A
	// request's own chat_template_kwargs win.
	Defaults []byte
	// ExcludeToolsWhenNone keeps tools out of the prompt when tool_choice is
	// "none". It is for VLLM, whose server has a flag of that name; SGLang always
	// does so, HF and LlamaCpp never.
	ExcludeToolsWhenNone bool
	// AllowRequestTemplate lets a request bring its own chat_template. Without it
	// such a request is an error. LlamaCpp does not look at it: that engine takes
	// no template from a request and does not mind one.
	AllowRequestTemplate bool

	// Now is the clock behind the template function strftime_now, nil for
	// time.Now.
	Now func() time.Time
	// Location is the time zone of that clock, nil for the one that Now returns.
	// Engines use their local time; a prompt that holds the date changes at
	// midnight there.
	Location *time.Location
}

// SpecialToken is one special token, or one list of them, under the name that
// templates know it by.
type SpecialToken struct {
	Name string
	Text string
	// List is the value of a list such as additional_special_tokens; Text does
	// not count when it is not nil.
	List []string
}

// ErrNoTemplate is returned by [New] when there is no chat template. Besides
// models that are not made for chat, these are models whose prompts engines build
// in code, such as gpt-oss, DeepSeek-V3.2 and Kimi-K3.
var ErrNoTemplate = errors.New("the model has no chat template: give one, or ask the engine to tokenize")

// tokenNames are the special tokens that tokenizers have by a fixed name, in the
// order in which templates get them.
var tokenNames = [...]string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// ParseConfig reads the template and the special tokens from a model's files:
// tokenizer_config.json, chat_template.jinja and chat_template.json. Each may be
// empty. The templates in a directory additional_chat_templates belong into
// [Config.Named] under their file names without ".jinja".
//
// chat_template.jinja counts before all others. chat_template.json is the
// template of a processor of images and sound: it is used where there are no
// tools, and that of tokenizer_config.json where there are. A config without any
// template is no error here; [New] says so.
func ParseConfig(tokenizerConfig, jinjaFile, chatTemplateJSON []byte) (Config, error) {
	var c Config
	if len(tokenizerConfig) > 0 {
		if err := c.readTokenizerConfig(tokenizerConfig); err != nil {
			return Config{}, fmt.Errorf("tokenizer_config.json: %w", err)
		}
	}
	if len(jinjaFile) > 0 {
		c.Template, c.Named = lineFeeds.Replace(string(jinjaFile)), nil
		return c, nil
	}
	if len(chatTemplateJSON) > 0 {
		o, err := openai.ParseObject(chatTemplateJSON)
		if err != nil {
			return Config{}, fmt.Errorf("chat_template.json: %w", err)
		}
		if v := o.Get("chat_template"); v.Present() {
			src, ok := v.Text()
			if !ok {
				return Config{}, fmt.Errorf("chat_template.json: chat_template: expected a string, got %s", v.TypeName())
			}
			if c.Named["tool_use"] == "" && c.Template != "" && c.Template != src {
				c.Named = map[string]string{"tool_use": c.Template}
			}
			c.Template = src
		}
	}
	return c, nil
}

// lineFeeds makes one kind of line end of all, as reading a text file does where
// templates are usually read.
var lineFeeds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

func (c *Config) readTokenizerConfig(raw []byte) error {
	o, err := openai.ParseObject(raw)
	if err != nil {
		return err
	}
	for _, name := range tokenNames {
		v := o.Get(name)
		if !v.Present() {
			continue
		}
		text, err := tokenText(v)
		if err != nil {
			return fmt.Errorf("%s%w", name, err)
		}
		c.SpecialTokens = append(c.SpecialTokens, SpecialToken{Name: name, Text: text})
	}
	if v := o.Get("additional_special_tokens"); v.Present() {
		list := []string{}
		var bad error
		err := v.Elements(func(e openai.Value) bool {
			var text string
			if text, bad = tokenText(e); bad != nil {
				bad = fmt.Errorf("additional_special_tokens[%d]%w", len(list), bad)
				return false
			}
			list = append(list, text)
			return true
		})
		if bad != nil {
			return bad
		}
		if err != nil {
			return fmt.Errorf("additional_special_tokens: %w", err)
		}
		if len(list) > 0 {
			c.SpecialTokens = append(c.SpecialTokens, SpecialToken{Name: "additional_special_tokens", List: list})
		}
	}
	return c.readTemplates(o.Get("chat_template"))
}

// tokenText returns the text of a special token, which is a string or an object
// with a content. Its errors continue the path of the token.
func tokenText(v openai.Value) (string, error) {
	if v.Kind() == '{' {
		o, err := openai.ParseObject(v)
		if err != nil {
			return "", fmt.Errorf(": %w", err)
		}
		if text, ok := o.Get("content").Text(); ok {
			return text, nil
		}
		return "", fmt.Errorf(".content: expected a string, got %s", o.Get("content").TypeName())
	}
	if text, ok := v.Text(); ok {
		return text, nil
	}
	return "", fmt.Errorf(": expected a string or an object, got %s", v.TypeName())
}

// readTemplates reads the member chat_template: one template, or a list of them
// with names.
func (c *Config) readTemplates(v openai.Value) error {
	switch v.Kind() {
	case 0, 'n':
		return nil
	case '"':
		src, ok := v.Text()
		if !ok {
			return errors.New("chat_template: invalid escape in string")
		}
		c.Template = src
		return nil
	case '[':
	default:
		return fmt.Errorf("chat_template: expected a string or an array, got %s", v.TypeName())
	}
	i := 0
	var bad error
	err := v.Elements(func(e openai.Value) bool {
		if bad = c.readNamed(e); bad != nil {
			bad = fmt.Errorf("chat_template[%d]%w", i, bad)
			return false
		}
		i++
		return true
	})
	if bad != nil {
		return bad
	}
	if err != nil {
		return fmt.Errorf("chat_template: %w", err)
	}
	return nil
}

func (c *Config) readNamed(v openai.Value) error {
	if v.Kind() != '{' {
		return fmt.Errorf(": expected an object, got %s", v.TypeName())
	}
	o, err := openai.ParseObject(v)
	if err != nil {
		return fmt.Errorf(": %w", err)
	}
	name, ok := o.Get("name").Text()
	if !ok {
		return fmt.Errorf(".name: expected a string, got %s", o.Get("name").TypeName())
	}
	src, ok := o.Get("template").Text()
	if !ok {
		return fmt.Errorf(".template: expected a string, got %s", o.Get("template").TypeName())
	}
	if name == "default" {
		c.Template = src
		return nil
	}
	if c.Named == nil {
		c.Named = make(map[string]string)
	}
	c.Named[name] = src
	return nil
}
