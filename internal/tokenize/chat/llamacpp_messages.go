package chat

import (
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/stator-ai/stator/internal/jinja"
)

// messageLlamaCpp is what llama.cpp keeps of a message. What is absent is empty.
type messageLlamaCpp struct {
	role, content, reasoning, name, toolCallID string
	// parts are the texts of content in parts, nil for content that is text.
	parts []string
	calls []callLlamaCpp
}

// callLlamaCpp is a tool call. Its arguments are JSON as a string, or a value.
type callLlamaCpp struct {
	id, name  string
	arguments jinja.Value
}

// empty reports whether there is nothing to continue in a message.
func (m *messageLlamaCpp) empty() bool {
	return m.content == "" && m.parts == nil && m.reasoning == "" && m.name == "" && m.toolCallID == "" && len(m.calls) == 0
}

// text returns the content as text. Parts are separated, unless nothing comes before.
func (m *messageLlamaCpp) text(sep string) string {
	if m.parts == nil {
		return m.content
	}
	var b strings.Builder
	for _, p := range m.parts {
		if b.Len() > 0 {
			b.WriteString(sep)
		}
		b.WriteString(p)
	}
	return b.String()
}

func messagesLlamaCpp(raw []byte) ([]messageLlamaCpp, error) {
	list, err := messagesOf(raw)
	if err != nil {
		return nil, err
	}
	messages := make([]messageLlamaCpp, len(list))
	for i, v := range list {
		if err := messages[i].read(v.(*jinja.Dict)); err != nil {
			return nil, fmt.Errorf("messages[%d]%w", i, err)
		}
	}
	return messages, nil
}

// read reads a message. Its errors continue the path of the message.
func (m *messageLlamaCpp) read(d *jinja.Dict) error {
	for _, f := range [...]struct {
		key string
		to  *string
	}{{"role", &m.role}, {"reasoning_content", &m.reasoning}, {"name", &m.name}, {"tool_call_id", &m.toolCallID}} {
		v, ok := d.Get(f.key)
		if !ok && f.key != "role" {
			continue
		}
		if *f.to, ok = v.(string); !ok {
			return fmt.Errorf(".%s: expected a string, got %s", f.key, absentName(d, f.key))
		}
	}
	content, ok := d.Get("content")
	if _, called := d.Get("tool_calls"); !ok && !(m.role == "assistant" && called) {
		return errors.New(".content: expected a string or an array of parts, got nothing")
	}
	switch v := content.(type) {
	case nil:
	case string:
		m.content = v
	case *jinja.List:
		for i, e := range v.Items {
			text, err := partLlamaCpp(e)
			if err != nil {
				return fmt.Errorf(".content[%d]%w", i, err)
			}
			m.parts = append(m.parts, text)
		}
	default:
		return fmt.Errorf(".content: expected a string or an array of parts, got %s", typeName(v))
	}
	_, err := toolCalls(d, func(v jinja.Value) (*jinja.Dict, error) {
		c, err := readCallLlamaCpp(v)
		m.calls = append(m.calls, c)
		return nil, err
	})
	return err
}

// partLlamaCpp returns the text of a part. Its errors continue the path of the part.
func partLlamaCpp(v jinja.Value) (string, error) {
	d, ok := v.(*jinja.Dict)
	if !ok {
		return "", fmt.Errorf(": expected an object, got %s", typeName(v))
	}
	switch kind := get(d, "type"); kind {
	case "text":
		text, ok := get(d, "text").(string)
		if !ok {
			return "", fmt.Errorf(".text: expected a string, got %s", absentName(d, "text"))
		}
		return text, nil
	case "image_url", "input_audio", "input_video":
		return "", fmt.Errorf(".type: %q: %w", kind, ErrMedia)
	default:
		return "", fmt.Errorf(".type: expected text, image_url, input_audio or input_video, got %v", kind)
	}
}

func readCallLlamaCpp(v jinja.Value) (c callLlamaCpp, err error) {
	d, f, err := toolCall(v)
	if err != nil {
		return c, err
	}
	if get(d, "type") == nil {
		return c, errors.New(`.type: expected "function"`)
	}
	var ok bool
	if c.name, ok = get(f, "name").(string); !ok {
		return c, fmt.Errorf(".function.name: expected a string, got %s", absentName(f, "name"))
	}
	if c.arguments, ok = f.Get("arguments"); !ok {
		return c, errors.New(".function.arguments: expected a string or an object, got nothing")
	}
	if id, ok := d.Get("id"); ok {
		if c.id, ok = id.(string); !ok {
			return c, fmt.Errorf(".id: expected a string, got %s", typeName(id))
		}
	}
	return c, nil
}

// dictsLlamaCpp returns messages as the template takes them.
func dictsLlamaCpp(messages []messageLlamaCpp, takes *takesLlamaCpp) (*jinja.List, error) {
	list := make([]jinja.Value, 0, len(messages))
	for i := range messages {
		m := &messages[i]
		if m.role == "developer" {
			m.role = "system"
		}
		if i == 0 && m.role == "system" && !takes.system {
			continue
		}
		d, err := m.dict(takes)
		if err != nil {
			return nil, fmt.Errorf("messages[%d]%w", i, err)
		}
		if i == 1 && len(list) == 0 { // what the first one says is said here
			first, _ := messages[0].dict(takes)
			a, isText := get(first, "content").(string)
			b, areBoth := get(d, "content").(string)
			if !isText || !areBoth {
				return nil, errors.New("messages[0].content: expected a string, for a template without system messages")
			}
			d.Set("content", a+"\n"+b)
		}
		list = append(list, d)
	}
	return &jinja.List{Items: list}, nil
}

// dict returns a message with its keys in the order that they have in llama.cpp. Its
// errors continue the path of the message.
func (m *messageLlamaCpp) dict(takes *takesLlamaCpp) (*jinja.Dict, error) {
	if takes.trims {
		for _, text := range append([]string{m.content, m.reasoning}, m.parts...) {
			if trimsMore(text) {
				return nil, fmt.Errorf(": white space that llama.cpp does not know is at the end of a text, which %w", ErrInexact)
			}
		}
	}
	d := dict("role", m.role, "content", m.text("\n"))
	if texts := m.parts; takes.parts && (texts != nil || !takes.texts) {
		if texts == nil {
			texts = []string{m.content}
		}
		parts := make([]jinja.Value, len(texts))
		for i, text := range texts {
			parts[i] = dict("type", "text", "text", text)
		}
		d.Set("content", &jinja.List{Items: parts})
	}
	for _, f := range [...]struct{ key, value string }{
		{"reasoning_content", m.reasoning}, {"name", m.name}, {"tool_call_id", m.toolCallID},
	} {
		if f.value != "" {
			d.Set(f.key, f.value)
		}
	}
	if len(m.calls) == 0 {
		return d, nil
	}
	calls := make([]jinja.Value, len(m.calls))
	for i := range m.calls {
		c, err := m.calls[i].dict(takes)
		if err != nil {
			return nil, fmt.Errorf(".tool_calls[%d].function.arguments%w", i, err)
		}
		calls[i] = c
	}
	d.Set("tool_calls", &jinja.List{Items: calls})
	return d, nil
}

// dict returns a call. Its errors continue the path of the arguments.
func (c *callLlamaCpp) dict(takes *takesLlamaCpp) (*jinja.Dict, error) {
	arguments := c.arguments
	text, isText := arguments.(string)
	if takes.objects && isText {
		v, err := jinja.ParseJSON([]byte(text))
		if err != nil {
			return nil, fmt.Errorf(": %w", err)
		}
		arguments = v
	} else if !takes.objects && !isText && takes.strings {
		return nil, fmt.Errorf(": the template takes text, and what llama.cpp makes of a value %w", ErrInexact)
	}
	d := dict("type", "function", "function", dict("name", c.name, "arguments", fitIntegers(arguments)))
	if c.id != "" {
		d.Set("id", c.id)
	}
	return d, nil
}

// trimsMore reports whether a text loses more when white space is taken away around it
// than llama.cpp takes, to which only that of ASCII is some.
func trimsMore(text string) bool {
	text = strings.Trim(text, " \t\n\v\f\r")
	return text != strings.TrimFunc(text, isSpace)
}

// fitIntegers returns v with the integers that llama.cpp has: of 64 bits, to which
// larger ones wrap around if they fit without a sign, and floats beyond. Lists and
// dictionaries are changed in place.
func fitIntegers(v jinja.Value) jinja.Value {
	switch v := v.(type) {
	case *big.Int:
		if v.IsUint64() {
			return int64(v.Uint64())
		}
		f, _ := new(big.Float).SetInt(v).Float64()
		return f
	case *jinja.List:
		for i, e := range v.Items {
			v.Items[i] = fitIntegers(e)
		}
	case *jinja.Dict:
		for key, e := range keys(v) {
			switch e.(type) {
			case *big.Int:
				v.Set(key, fitIntegers(e))
			case *jinja.List, *jinja.Dict:
				fitIntegers(e)
			}
		}
	}
	return v
}
