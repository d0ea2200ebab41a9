package chat

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stator-ai/stator/internal/jinja"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/tokenize"
)

// ErrMedia is returned for a part that is no text in a chat whose template takes
// only text. Engines put a placeholder there that depends on the model's code.
var ErrMedia = errors.New("the template takes only text")

// renderVLLM renders as vLLM's OpenAI server does.
func (t *Template) renderVLLM(dst *tokenize.Prompt, c tokenize.Chat, own *source) error {
	if err := checkContinue(&c); err != nil {
		return err
	}
	messages, err := messagesOf(c.Messages)
	if err != nil {
		return err
	}
	k, err := t.kwargs(c.Kwargs, unsetVLLM, "messages", "conversation", "chat_template", "tokenize")
	if err != nil {
		return err
	}
	args := call{generation: !c.NoGenerationPrompt, continueFinal: c.ContinueFinal}
	if args.tools, err = t.toolsVLLM(&c, &k); err != nil {
		return err
	}
	if args.documents, err = documents(&c, &k); err != nil {
		return err
	}
	s, err := t.pick(own, args.tools)
	if err != nil {
		return err
	}
	args.kwargs = k.variables(s.reads)
	if err := effortVLLM(args.kwargs, &c, &k, s); err != nil {
		return err
	}
	args.messages = make([]jinja.Value, len(messages))
	for i, m := range messages {
		d, err := messageVLLM(m.(*jinja.Dict), s.parts)
		if err != nil {
			return fmt.Errorf("messages[%d]%w", i, err)
		}
		args.messages[i] = d
	}
	if !s.developer {
		args.messages = developersAsSystem(args.messages)
	}
	return t.render(dst, s, args)
}

// effortVLLM adds the reasoning_effort of a request to the variables vars of the
// template s. It also says whether to think, unless the request does, be it with
// null.
func effortVLLM(vars *jinja.Dict, c *tokenize.Chat, k *kwargs, s *source) error {
	raw := openai.Value(c.ReasoningEffort)
	if !raw.Present() {
		return nil
	}
	effort, ok := raw.Text()
	if !ok {
		return fmt.Errorf("reasoning_effort: expected a string, got %s", raw.TypeName())
	}
	if s.reads["reasoning_effort"] {
		vars.Set("reasoning_effort", effort)
	}
	if s.reads["enable_thinking"] && !k.has("enable_thinking") {
		vars.Set("enable_thinking", effort != "none")
	}
	return nil
}

// unsetVLLM tells values of chat_template_kwargs that vLLM takes for absent.
func unsetVLLM(v jinja.Value) bool { return v == nil || v == "auto" }

// checkContinue checks that a request does not ask for both, a message to be
// continued and a new one to be opened.
func checkContinue(c *tokenize.Chat) error {
	if c.ContinueFinal && !c.NoGenerationPrompt {
		return errors.New("continue_final_message: needs add_generation_prompt to be false")
	}
	return nil
}

// toolsVLLM returns the tools for the template: those in chat_template_kwargs as
// they are, before those of the request.
func (t *Template) toolsVLLM(c *tokenize.Chat, k *kwargs) (jinja.Value, error) {
	list, err := objects("tools", c.Tools)
	if err != nil {
		return nil, err
	}
	if t.config.ExcludeToolsWhenNone && string(c.ToolChoice) == `"none"` {
		list = nil
	}
	v, ok := k.own("tools")
	if !ok && list == nil {
		v, ok = k.get("tools")
	}
	if ok || list == nil {
		return v, nil
	}
	tools := make([]jinja.Value, len(list.Items))
	for i, e := range list.Items {
		f, err := functionOf(e.(*jinja.Dict))
		if err != nil {
			return nil, fmt.Errorf("tools[%d]%w", i, err)
		}
		function := dict("name", f.name, "description", f.description, "parameters", f.parameters)
		if f.strict != nil {
			function.Set("strict", f.strict)
		}
		tools[i] = dict("type", "function", "function", function)
	}
	return &jinja.List{Items: tools}, nil
}

// messageVLLM returns a message with the keys that vLLM keeps. Its errors
// continue the path of the message.
func messageVLLM(d *jinja.Dict, asParts bool) (*jinja.Dict, error) {
	role, _, err := text(d, "role")
	if err != nil {
		return nil, err
	}
	if role == "" {
		return nil, errors.New(".role: expected a non-empty string")
	}
	content, err := contentVLLM(get(d, "content"), asParts)
	if err != nil {
		return nil, fmt.Errorf(".content%w", err)
	}
	m := jinja.NewDict(4)
	move(m, d, "role")
	m.Set("content", content)
	switch role {
	case "assistant":
		if err := assistantVLLM(m, d); err != nil {
			return nil, err
		}
	case "tool":
		if id, ok, err := text(d, "tool_call_id"); err != nil {
			return nil, err
		} else if ok {
			m.Set("tool_call_id", id)
		}
		if list, ok := content.(*jinja.List); ok {
			if joined, ok := joinText(list, "\n"); ok {
				m.Set("content", joined)
			}
		}
	}
	if name, ok := get(d, "name").(string); ok {
		m.Set("name", name)
	}
	if role == "developer" {
		m.Set("tools", get(d, "tools"))
	}
	return m, nil
}

// assistantVLLM adds to m what an assistant's message d has besides content.
func assistantVLLM(m, d *jinja.Dict) error {
	calls, err := toolCalls(d, toolCallVLLM)
	if err != nil {
		return err
	}
	if calls != nil && len(calls.Items) > 0 {
		m.Set("tool_calls", calls)
	}
	for _, key := range [...]string{"reasoning", "reasoning_content"} {
		s, ok, err := text(d, key)
		if err != nil {
			return err
		}
		if ok {
			m.Set("reasoning", s)
			m.Set("reasoning_content", s)
			break
		}
	}
	return nil
}

// toolCallVLLM returns a tool call with its arguments parsed and with the keys
// that vLLM's validation leaves, in the order that it gives them.
func toolCallVLLM(v jinja.Value) (*jinja.Dict, error) {
	c, f, err := toolCall(v)
	if err != nil {
		return nil, err
	}
	arguments := get(f, "arguments")
	switch a := arguments.(type) {
	case nil:
		arguments = jinja.NewDict(0)
	case string:
		if a == "" {
			arguments = jinja.NewDict(0)
		} else if arguments, err = jinja.ParseJSON([]byte(a)); err != nil {
			return nil, fmt.Errorf(".function.arguments: %w", err)
		}
	case *jinja.Dict, *jinja.List:
	default:
		return nil, fmt.Errorf(".function.arguments: expected a string or an object, got %s", typeName(a))
	}
	function := dict("arguments", arguments)
	move(function, f, "name")
	out := jinja.NewDict(3)
	move(out, c, "id")
	out.Set("function", function)
	move(out, c, "type")
	return out, nil
}

// contentVLLM returns a message's content: a list of parts, or text. Its errors
// continue the path of the content.
func contentVLLM(content jinja.Value, asParts bool) (jinja.Value, error) {
	var list []jinja.Value
	switch v := content.(type) {
	case nil:
	case string:
		if !asParts {
			return content, nil
		}
		list = []jinja.Value{content}
	case *jinja.List:
		list = v.Items
	default:
		return nil, fmt.Errorf(": expected a string or an array of parts, got %s", typeName(v))
	}
	parts := make([]jinja.Value, 0, len(list))
	var texts []string
	for i, e := range list {
		p, err := partVLLM(e)
		if err != nil {
			return nil, fmt.Errorf("[%d]%w", i, err)
		}
		switch {
		case p.skip:
		case asParts:
			parts = append(parts, p.dict())
		case p.media():
			return nil, fmt.Errorf("[%d].type: %q: %w", i, p.kind, ErrMedia)
		case p.text != "":
			texts = append(texts, p.text)
		}
	}
	if asParts {
		return &jinja.List{Items: parts}, nil
	}
	return strings.Join(texts, "\n"), nil
}

// part is a part of a message's content.
type part struct {
	kind string // text, image, audio, video or tool_reference
	text string // of a text; the name in a tool_reference
	skip bool   // it has no text and does not count
}

func (p *part) media() bool { return p.kind != "text" && p.kind != "tool_reference" }

// dict returns the part as templates see it.
func (p *part) dict() *jinja.Dict {
	switch p.kind {
	case "text":
		return dict("type", p.kind, "text", p.text)
	case "tool_reference":
		return dict("type", p.kind, "name", p.text)
	default:
		return dict("type", p.kind)
	}
}

// mediaVLLM are the types of parts that stand for something to see or hear, in
// the order in which a part without a type is looked through for them.
var mediaVLLM = []struct{ key, kind string }{
	{"image_url", "image"},
	{"image_pil", "image"},
	{"image_embeds", "image"},
	{"audio_embeds", "audio"},
	{"audio_url", "audio"},
	{"input_audio", "audio"},
	{"video_url", "video"},
	{"video_embeds", "video"},
	{"input_image", "image"},
}

// partVLLM reads one part of a message's content. Its errors continue the path of
// the part.
func partVLLM(v jinja.Value) (part, error) {
	if s, ok := v.(string); ok {
		return part{kind: "text", text: s}, nil
	}
	d, ok := v.(*jinja.Dict)
	if !ok {
		return part{}, fmt.Errorf(": expected an object, got %s", typeName(v))
	}
	kind, ok, err := text(d, "type")
	if err != nil {
		return part{}, err
	}
	if !ok || get(d, "uuid") != nil { // then the keys tell
		for _, m := range mediaVLLM {
			if _, ok := d.Get(m.key); ok {
				return part{kind: m.kind}, nil
			}
		}
		if !ok {
			return part{}, errors.New(".type: expected a string, got nothing")
		}
	}
	switch kind {
	case "text", "input_text", "output_text":
		s, ok, err := text(d, "text")
		return part{kind: "text", text: s, skip: !ok}, err
	case "refusal", "thinking":
		s, ok, err := text(d, kind)
		return part{kind: "text", text: s, skip: !ok}, err
	case "tool_reference":
		s, _, err := text(d, "name")
		return part{kind: kind, text: s}, err
	}
	i := slices.IndexFunc(mediaVLLM, func(m struct{ key, kind string }) bool { return m.key == kind })
	if i < 0 {
		return part{}, fmt.Errorf(".type: unsupported part type %q", kind)
	}
	return part{kind: mediaVLLM[i].kind}, nil
}

// developersAsSystem makes system messages of those with the role developer, for
// a template that does not know the role, and one message of all system messages
// when they are not just the first. Without a developer nothing changes.
func developersAsSystem(messages []jinja.Value) []jinja.Value {
	role := func(m jinja.Value) jinja.Value { return get(m.(*jinja.Dict), "role") }
	if !slices.ContainsFunc(messages, func(m jinja.Value) bool { return role(m) == "developer" }) {
		return messages
	}
	var systems []string
	scattered := false
	converted := make([]jinja.Value, len(messages))
	rest := make([]jinja.Value, 1, len(messages)) // the first is for the merged one
	for i, v := range messages {
		m := v.(*jinja.Dict)
		if role(m) == "developer" {
			m = without(with(m, "role", "system"), "tools")
		}
		converted[i] = m
		if role(m) != "system" {
			rest = append(rest, m)
			continue
		}
		scattered = scattered || i > 0
		if s := systemText(get(m, "content")); s != "" {
			systems = append(systems, s)
		}
	}
	if !scattered {
		return converted
	}
	rest[0] = dict("role", "system", "content", strings.Join(systems, "\n\n"))
	return rest
}

// systemText returns the text of a system message's content.
func systemText(content jinja.Value) string {
	list, ok := content.(*jinja.List)
	if !ok {
		s, _ := content.(string)
		return s
	}
	var texts []string
	for _, p := range list.Items {
		if s, ok := get(p.(*jinja.Dict), "text").(string); ok {
			texts = append(texts, s)
		}
	}
	return strings.Join(texts, "\n")
}
