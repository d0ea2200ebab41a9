package chat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/stator-ai/stator/internal/jinja"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/tokenize"
)

// renderSGLang renders as SGLang's OpenAI server does. It opens the assistant's
// turn in any case; NoGenerationPrompt and Documents are nothing to it.
//
// A message to continue is left out, and its content is put behind the opening of
// a new turn as a segment of its own: the engine appends the tokens of that text
// to those of the prompt, so that no token spans both. What the template would
// have made of the content, such as trimming it, does not happen. Content that is
// not text cannot be continued; the message is rendered as any other.
func (t *Template) renderSGLang(dst *tokenize.Prompt, c tokenize.Chat, own *source) error {
	list, err := messagesOf(c.Messages)
	if err != nil {
		return err
	}
	k, err := t.kwargs(c.Kwargs, never,
		"messages", "conversation", "tools", "tokenize", "return_dict", "add_generation_prompt", "continue_final_message")
	if err != nil {
		return err
	}
	if v, ok := k.own("chat_template"); ok && own == nil {
		if own, err = t.ownSGLang(v); err != nil {
			return err
		}
	}
	args := call{generation: true}
	args.documents, _ = k.get("documents")
	tools, err := toolsSGLang(&c)
	if err != nil {
		return err
	}
	if tools != nil {
		args.tools = tools
	}
	s, err := t.pick(own, args.tools)
	if err != nil {
		return err
	}
	if args.kwargs, err = variablesSGLang(&c, &k); err != nil {
		return err
	}
	args.messages = make([]jinja.Value, len(list))
	for i, v := range list {
		m, err := messageSGLang(v.(*jinja.Dict), s.parts)
		if err != nil {
			return fmt.Errorf("messages[%d]%w", i, err)
		}
		args.messages[i] = m
	}
	var prefix string
	last := len(args.messages) - 1
	if m := args.messages[last].(*jinja.Dict); get(m, "role") == "assistant" {
		if content, ok := get(m, "content").(string); ok && c.ContinueFinal {
			prefix = content
			args.messages = args.messages[:last]
		} else if ok {
			args.messages[last] = dict("role", "user", "content", content)
		}
	}
	if len(args.messages) == 0 {
		return errors.New("continue_final_message: needs a message before the last one")
	}
	err = t.render(dst, s, args)
	if err != nil && tools != nil {
		// Some templates want functions without what is around them.
		bare := make([]jinja.Value, len(tools.Items))
		for i, tool := range tools.Items {
			bare[i] = get(tool.(*jinja.Dict), "function")
		}
		args.tools = &jinja.List{Items: bare}
		err = t.render(dst, s, args)
	}
	if err != nil {
		return err
	}
	dst.Text = append(dst.Text, prefix...)
	seal(dst)
	return nil
}

// ownSGLang returns the template in a request's chat_template_kwargs, where that
// engine takes it from.
func (t *Template) ownSGLang(v jinja.Value) (*source, error) {
	src, ok := v.(string)
	if !ok {
		if v == nil {
			return nil, nil
		}
		return nil, fmt.Errorf("chat_template_kwargs.chat_template: expected a string, got %s", typeName(v))
	}
	s, err := t.requested(src)
	if err != nil {
		return nil, fmt.Errorf("chat_template_kwargs.%w", err)
	}
	return s, nil
}

// variablesSGLang returns the variables for the template. An effort of "none"
// turns thinking off under both names that templates have for it.
func variablesSGLang(c *tokenize.Chat, k *kwargs) (*jinja.Dict, error) {
	vars := k.variables(nil)
	effort, err := parse("reasoning_effort", c.ReasoningEffort)
	if err != nil {
		return nil, err
	}
	switch effort.(type) {
	case nil:
		return vars, nil
	case bool, *jinja.List, *jinja.Dict:
		return nil, fmt.Errorf("reasoning_effort: expected a string or a number, got %s", typeName(effort))
	}
	if effort == "none" {
		for _, name := range [...]string{"thinking", "enable_thinking"} {
			if !k.has(name) {
				vars.Set(name, false)
			}
		}
	}
	if v, _ := k.own("reasoning_effort"); v == nil {
		vars.Set("reasoning_effort", effort)
	}
	return vars, nil
}

// toolsSGLang returns the tools for the template: all, the one that tool_choice
// names, or nil.
func toolsSGLang(c *tokenize.Chat) (*jinja.List, error) {
	list, err := objects("tools", c.Tools)
	if err != nil {
		return nil, err
	}
	choice := openai.Value(c.ToolChoice)
	if list == nil || len(list.Items) == 0 || string(choice) == `"none"` {
		return nil, nil
	}
	only := ""
	if choice.Kind() == '{' {
		if only, err = chosenTool(choice); err != nil {
			return nil, err
		}
	}
	var tools []jinja.Value
	for i, e := range list.Items {
		tool := e.(*jinja.Dict)
		f, err := functionOf(tool)
		if err != nil {
			return nil, fmt.Errorf("tools[%d]%w", i, err)
		}
		if choice.Kind() != '{' || f.name == only {
			tools = append(tools, toolSGLang(tool, &f))
		}
	}
	if tools == nil {
		return nil, fmt.Errorf("tool_choice.function.name: no tool is named %q", only)
	}
	return &jinja.List{Items: tools}, nil
}

// toolSGLang returns a tool with the keys that SGLang knows, in its order.
func toolSGLang(tool *jinja.Dict, f *function) *jinja.Dict {
	strict := f.strict
	if strict == nil {
		strict = false
	}
	function := dict("description", f.description, "name", f.name, "parameters", f.parameters, "strict", strict)
	outer := get(tool, "defer_loading")
	if f.deferLoading == nil {
		f.deferLoading = outer
	}
	if f.deferLoading != nil {
		function.Set("defer_loading", f.deferLoading)
	}
	kind := get(tool, "type")
	if kind == nil {
		kind = "function"
	}
	return dict("type", kind, "function", function, "defer_loading", outer)
}

// chosenTool returns the name in a tool_choice that is an object.
func chosenTool(choice openai.Value) (string, error) {
	d, err := object("tool_choice", choice)
	if err != nil {
		return "", err
	}
	f, ok := get(d, "function").(*jinja.Dict)
	if !ok {
		return "", fmt.Errorf("tool_choice.function: expected an object, got %s", absentName(d, "function"))
	}
	name, ok := get(f, "name").(string)
	if !ok {
		return "", fmt.Errorf("tool_choice.function.name: expected a string, got %s", absentName(f, "name"))
	}
	return name, nil
}

// rolesSGLang are the roles besides user, which may not be written in capitals.
var rolesSGLang = map[string]bool{
	"system": true, "assistant": true, "tool": true, "function": true, "developer": true, "latest_reminder": true,
}

// messageSGLang returns a message with the keys that SGLang knows, in its order,
// without those that are null. Its errors continue the path of the message.
func messageSGLang(d *jinja.Dict, asParts bool) (*jinja.Dict, error) {
	role, _, err := text(d, "role")
	if err != nil {
		return nil, err
	}
	if role != "user" {
		if role = strings.ToLower(role); !rolesSGLang[role] {
			return nil, fmt.Errorf(".role: unknown role %q", get(d, "role"))
		}
	}
	content, err := contentSGLang(get(d, "content"), asParts)
	if err != nil {
		return nil, fmt.Errorf(".content%w", err)
	}
	m := jinja.NewDict(4)
	m.Set("role", role)
	parts, isParts := content.(*jinja.List)
	if !isParts {
		m.Set("content", content)
	}
	if role != "user" {
		for _, key := range [...]string{"tool_call_id", "name", "reasoning_content"} {
			s, ok, err := text(d, key)
			if err != nil {
				return nil, err
			}
			if ok {
				m.Set(key, s)
			}
		}
		calls, err := toolCalls(d, func(v jinja.Value) (*jinja.Dict, error) { return toolCallSGLang(v, role == "assistant") })
		if err != nil {
			return nil, err
		}
		if calls != nil {
			m.Set("tool_calls", calls)
		}
	}
	if isParts { // they come last
		if role == "tool" {
			if joined, ok := joinText(parts, " "); ok {
				content = joined
			}
		}
		m.Set("content", content)
	}
	return m, nil
}

// toolCallSGLang returns a tool call with the keys that SGLang knows, null where
// they are absent. The arguments of an assistant's call are parsed.
func toolCallSGLang(v jinja.Value, parseArguments bool) (*jinja.Dict, error) {
	c, f, err := toolCall(v)
	if err != nil {
		return nil, err
	}
	arguments := get(f, "arguments")
	switch a := arguments.(type) {
	case nil, *jinja.Dict:
	case string:
		if !parseArguments {
			break
		}
		if arguments, err = jinja.ParseJSON([]byte(a)); err != nil {
			return nil, fmt.Errorf(".function.arguments: %w", err)
		}
		if _, ok := arguments.(*jinja.Dict); !ok {
			return nil, fmt.Errorf(".function.arguments: expected the JSON of an object, got that of %s", typeName(arguments))
		}
	default:
		return nil, fmt.Errorf(".function.arguments: expected a string or an object, got %s", typeName(a))
	}
	return dict(
		"id", get(c, "id"),
		"index", get(c, "index"),
		"type", "function",
		"function", dict("name", get(f, "name"), "arguments", arguments),
	), nil
}

// contentSGLang returns a message's content. Text stays text; a list of parts
// becomes a list of simpler ones, or the texts among them. Its errors continue
// the path of the content.
func contentSGLang(content jinja.Value, asParts bool) (jinja.Value, error) {
	var list *jinja.List
	switch v := content.(type) {
	case nil:
		return "", nil
	case string:
		return content, nil
	case *jinja.List:
		list = v
	default:
		return nil, fmt.Errorf(": expected a string or an array of parts, got %s", typeName(v))
	}
	parts := make([]jinja.Value, 0, len(list.Items))
	var texts []string
	for i, e := range list.Items {
		p, err := partSGLang(e)
		if err != nil {
			return nil, fmt.Errorf("[%d]%w", i, err)
		}
		if p.kind == "text" {
			texts = append(texts, p.text)
		}
		parts = append(parts, p.dict())
	}
	if asParts {
		return &jinja.List{Items: parts}, nil
	}
	return strings.Join(texts, " "), nil
}

// partSGLang reads one part of a message's content. Its errors continue the path
// of the part.
func partSGLang(v jinja.Value) (part, error) {
	d, ok := v.(*jinja.Dict)
	if !ok {
		return part{}, fmt.Errorf(": expected an object, got %s", typeName(v))
	}
	kind, ok, err := text(d, "type")
	if err != nil {
		return part{}, err
	}
	if !ok {
		return part{}, errors.New(".type: expected a string, got nothing")
	}
	key := "text"
	switch kind {
	case "text", "input_text":
		kind = "text"
	case "tool_reference":
		key = "name"
	case "image_url", "input_image":
		return part{kind: "image"}, nil
	case "video_url":
		return part{kind: "video"}, nil
	case "audio_url":
		return part{kind: "audio"}, nil
	default:
		return part{}, fmt.Errorf(".type: unsupported part type %q", kind)
	}
	s, ok, err := text(d, key)
	if err == nil && !ok {
		err = fmt.Errorf(".%s: expected a string, got %s", key, absentName(d, key))
	}
	return part{kind: kind, text: s}, err
}
