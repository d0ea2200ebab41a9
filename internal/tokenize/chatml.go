package tokenize

import (
	"errors"
	"fmt"

	"github.com/stator-ai/stator/internal/openai"
)

// ChatML renders a chat as turns between <|im_start|> and <|im_end|>:
//
//	<|im_start|>system
//	You are brief.<|im_end|>
//	<|im_start|>user
//	Hello<|im_end|>
//	<|im_start|>assistant
//
// The role and the content of a message are literal text: special tokens spelled
// there stay letters. Of a content array the text parts are joined by line
// feeds; a part of another type stands as a placeholder, an image_url as
// <image>. Null content is empty. Tool calls of an assistant follow its content
// on a line of their own, and the tools of the request follow the content of a
// leading system message, or make one, under the heading "# Tools"; both are
// the client's JSON, byte for byte. Other keys of a message are not rendered.
type ChatML struct{}

var _ Renderer = ChatML{}

// Render implements [Renderer]. NoGenerationPrompt and ContinueFinal are
// honoured; ContinueFinal without NoGenerationPrompt is an error.
func (ChatML) Render(dst *Prompt, c Chat) error {
	if c.ContinueFinal && !c.NoGenerationPrompt {
		return errors.New("continue_final_message: needs add_generation_prompt to be false")
	}
	dst.Reset()
	var tools openai.Value
	if n, err := length(c.Tools); err != nil {
		return fmt.Errorf("tools: %w", err)
	} else if n > 0 {
		tools = c.Tools
	}
	n, err := length(c.Messages)
	if err != nil {
		return fmt.Errorf("messages: %w", err)
	}
	if n == 0 {
		return errors.New("messages: expected at least one message")
	}
	i := 0
	var bad error
	err = openai.Value(c.Messages).Elements(func(v openai.Value) bool {
		m, err := parseMessage(v)
		if err != nil {
			bad = fmt.Errorf("messages[%d]%w", i, err)
			return false
		}
		if i == 0 && len(tools) > 0 && m.role != "system" {
			open(dst, "system")
			dst.Literal("# Tools\n" + string(tools))
			shut(dst)
		}
		open(dst, m.role)
		if err := appendContent(dst, m.content); err != nil {
			bad = fmt.Errorf("messages[%d].content%w", i, err)
			return false
		}
		if i == 0 && len(tools) > 0 && m.role == "system" {
			dst.Literal("\n\n# Tools\n" + string(tools))
		}
		if len(m.toolCalls) > 0 {
			dst.Literal("\n" + string(m.toolCalls))
		}
		i++
		if !c.ContinueFinal || i < n {
			shut(dst)
		}
		return true
	})
	if bad != nil {
		return bad
	}
	if err != nil {
		return fmt.Errorf("messages: %w", err)
	}
	if !c.NoGenerationPrompt {
		open(dst, "assistant")
	}
	return nil
}

func open(dst *Prompt, role string) {
	dst.Special("<|im_start|>")
	dst.Literal(role)
	dst.Literal("\n")
}

func shut(dst *Prompt) {
	dst.Special("<|im_end|>")
	dst.Literal("\n")
}

// length counts the elements of an array; what is absent or null has none.
func length(v openai.Value) (int, error) {
	if !v.Present() {
		return 0, nil
	}
	if v.Kind() != '[' {
		return 0, fmt.Errorf("expected an array, got %s", v.TypeName())
	}
	n := 0
	err := v.Elements(func(openai.Value) bool { n++; return true })
	return n, err
}

type message struct {
	role      string
	content   openai.Value
	toolCalls openai.Value
}

// parseMessage reads one message. Its errors continue the path of the message.
func parseMessage(v openai.Value) (message, error) {
	var m message
	if v.Kind() != '{' {
		return m, fmt.Errorf(": expected an object, got %s", v.TypeName())
	}
	o, err := openai.ParseObject(v)
	if err != nil {
		return m, fmt.Errorf(": %w", err)
	}
	role := o.Get("role")
	var ok bool
	if m.role, ok = role.Text(); !ok || m.role == "" {
		return m, fmt.Errorf(".role: expected a non-empty string, got %s", role.TypeName())
	}
	m.content = o.Get("content")
	if n, err := length(o.Get("tool_calls")); err != nil {
		return m, fmt.Errorf(".tool_calls: %w", err)
	} else if n > 0 {
		m.toolCalls = o.Get("tool_calls")
	}
	return m, nil
}

// appendContent writes the content of a message. Its errors continue the path of
// the content.
func appendContent(dst *Prompt, v openai.Value) error {
	switch v.Kind() {
	case 0, 'n':
		return nil
	case '"':
		s, ok := v.Text()
		if !ok {
			return errors.New(": invalid escape in string")
		}
		dst.Literal(s)
		return nil
	case '[':
		i := 0
		var bad error
		err := v.Elements(func(part openai.Value) bool {
			s, err := partText(part)
			if err != nil {
				bad = fmt.Errorf("[%d]%w", i, err)
				return false
			}
			if i > 0 {
				dst.Literal("\n")
			}
			dst.Literal(s)
			i++
			return true
		})
		if bad != nil {
			return bad
		}
		if err != nil {
			return fmt.Errorf(": %w", err)
		}
		return nil
	default:
		return fmt.Errorf(": expected a string or an array of parts, got %s", v.TypeName())
	}
}

// partText returns the text that stands for a content part.
func partText(v openai.Value) (string, error) {
	switch v.Kind() {
	case '"':
		if s, ok := v.Text(); ok {
			return s, nil
		}
		return "", errors.New(": invalid escape in string")
	case '{':
	default:
		return "", fmt.Errorf(": expected an object, got %s", v.TypeName())
	}
	o, err := openai.ParseObject(v)
	if err != nil {
		return "", fmt.Errorf(": %w", err)
	}
	kind, ok := o.Get("type").Text()
	if !ok || kind == "" {
		return "", fmt.Errorf(".type: expected a non-empty string, got %s", o.Get("type").TypeName())
	}
	switch kind {
	case "text", "input_text", "output_text":
		return member(&o, "text")
	case "refusal":
		return member(&o, "refusal")
	case "image", "image_url", "input_image":
		return "<image>", nil
	case "audio", "audio_url", "input_audio":
		return "<audio>", nil
	case "video", "video_url", "input_video":
		return "<video>", nil
	default:
		return "<" + kind + ">", nil
	}
}

func member(o *openai.Object, key string) (string, error) {
	v := o.Get(key)
	s, ok := v.Text()
	if !ok {
		return "", fmt.Errorf(".%s: expected a string, got %s", key, v.TypeName())
	}
	return s, nil
}
