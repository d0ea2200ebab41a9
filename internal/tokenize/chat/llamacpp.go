package chat

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/stator-ai/stator/internal/jinja"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/tokenize"
)

// ErrInexact is returned for a prompt that llama.cpp makes in a way that is not known
// here: with code that it has for some templates, or with tables of its own.
var ErrInexact = errors.New("cannot be tokenized exactly as the engine does")

// renderLlamaCpp renders as llama.cpp's server does. A template or documents in the
// request are nothing to it. An answer at the end is continued, asked for or not: it is
// left out, and its text is put behind the opening of a new turn.
func (t *Template) renderLlamaCpp(dst *tokenize.Prompt, c tokenize.Chat) error {
	if err := checkContinue(&c); err != nil {
		return err
	}
	messages, err := messagesLlamaCpp(c.Messages)
	if err != nil {
		return err
	}
	tools, err := toolsLlamaCpp(&c)
	if err != nil {
		return err
	}
	generation := !c.NoGenerationPrompt
	var final *messageLlamaCpp
	if last := len(messages) - 1; c.ContinueFinal || messages[last].role == "assistant" {
		if !c.ContinueFinal && last > 0 && messages[last-1].role == "assistant" {
			return fmt.Errorf("messages[%d].role: expected no second answer at the end", last)
		}
		final = &messages[last]
		if final.role == "assistant" && len(final.calls) > 0 {
			return fmt.Errorf("messages[%d].tool_calls: expected none in an answer to be continued", last)
		}
		messages = messages[:last]
		generation = false
	}
	s, err := t.pick(nil, tools)
	if err != nil {
		return err
	}
	if s.llama.coded {
		return fmt.Errorf("messages: llama.cpp has code for this template: the prompt %w", ErrInexact)
	}
	vars, err := t.variablesLlamaCpp(&c, s)
	if err != nil {
		return err
	}
	list, err := dictsLlamaCpp(messages, &s.llama)
	if err != nil {
		return err
	}
	vars.messages, vars.tools = list, tools
	if dst.Text, err = t.printLlamaCpp(dst.Text, s, vars, generation); err != nil {
		return err
	}
	if final != nil && !final.empty() {
		if err := t.continueLlamaCpp(dst, s, vars, final); err != nil {
			return err
		}
	}
	seal(dst)
	return nil
}

// continueLlamaCpp puts an answer behind the prompt of what comes before it: how the
// template opens a turn, what was thought in the marks of the template, and what was
// said. An answer without words continues the thought.
func (t *Template) continueLlamaCpp(dst *tokenize.Prompt, s *source, vars *varsLlamaCpp, final *messageLlamaCpp) error {
	if !s.llama.continues {
		return fmt.Errorf("messages: the template does not show how thoughts are marked: an answer to be continued %w", ErrInexact)
	}
	opened, err := t.printLlamaCpp(nil, s, vars, true)
	if err != nil {
		return err
	}
	n := 0
	for n < len(opened) && n < len(dst.Text) && opened[n] == dst.Text[n] {
		n++
	}
	opening := opened[n:]
	said := final.reasoning == "" || final.content != "" || final.parts != nil
	if start := s.llama.opening; start != "" {
		if i := bytes.Index(opening, []byte(start)); i >= 0 {
			opening = opening[:i]
		}
		dst.Text = append(append(append(dst.Text, opening...), start...), final.reasoning...)
		if said {
			dst.Text = append(dst.Text, s.llama.closing...)
		}
	} else {
		dst.Text = append(dst.Text, opening...)
	}
	if said {
		dst.Text = append(dst.Text, final.text("\n\n")...)
	}
	return nil
}

// varsLlamaCpp are the variables of one rendering.
type varsLlamaCpp struct {
	messages, tools jinja.Value // nil tools are not defined
	thinking        bool
	effort          string // empty is not defined
	preserve        bool   // what was thought in earlier turns
	kwargs          *jinja.Dict
}

// variablesLlamaCpp reads what a request says to the template besides messages and
// tools. chat_template_kwargs that are no object do not count. Where they are one, they
// win over all but the tokens of the model.
func (t *Template) variablesLlamaCpp(c *tokenize.Chat, s *source) (*varsLlamaCpp, error) {
	vars := &varsLlamaCpp{thinking: s.llama.thinks, preserve: true}
	raw := c.Kwargs
	if openai.Value(raw).Kind() != '{' {
		raw = nil
	}
	k, err := t.kwargs(raw, never, "messages")
	if err != nil {
		return nil, err
	}
	if k.request != nil {
		fitIntegers(k.request)
	}
	vars.kwargs = jinja.NewDict(8)
	for _, d := range [...]*jinja.Dict{k.defaults, k.request} {
		if d != nil {
			for name, v := range keys(d) {
				vars.kwargs.Set(name, v)
			}
		}
	}
	switch v := get(vars.kwargs, "enable_thinking").(type) {
	case bool:
		vars.thinking = v
	case string:
		return nil, errors.New("chat_template_kwargs.enable_thinking: expected a boolean, got a string")
	}
	if keep, ok := get(vars.kwargs, "preserve_reasoning").(bool); ok {
		vars.preserve = keep
	}
	switch effort, _ := openai.Value(c.ReasoningEffort).Text(); effort {
	case "":
	case "none":
		vars.thinking = false
		vars.kwargs = without(vars.kwargs, "reasoning_effort")
	default:
		vars.kwargs.Set("reasoning_effort", effort)
	}
	vars.effort, _ = get(vars.kwargs, "reasoning_effort").(string)
	return vars, nil
}

// printLlamaCpp appends what the template prints.
func (t *Template) printLlamaCpp(dst []byte, s *source, v *varsLlamaCpp, generation bool) ([]byte, error) {
	now := t.now()
	vars := jinja.NewDict(24)
	vars.Set("preserve_thinking", v.preserve)
	vars.Set("clear_thinking", !v.preserve)
	vars.Set("truncate_history_thinking", !v.preserve)
	vars.Set("drop_thinking", !v.preserve)
	if v.effort != "" {
		vars.Set("reasoning_strength", v.effort)
	}
	vars.Set("messages", v.messages)
	if v.tools != nil {
		vars.Set("tools", v.tools)
	}
	vars.Set("enable_thinking", v.thinking)
	vars.Set("preserve_reasoning", v.preserve)
	vars.Set("datetime", now.Format("Jan 02 2006"))
	vars.Set("date_string", now.Format("02 Jan 2006"))
	if v.kwargs != nil {
		for name, value := range keys(v.kwargs) {
			vars.Set(name, value)
		}
	}
	vars.Set("bos_token", "")
	vars.Set("eos_token", "")
	for _, tok := range t.config.SpecialTokens {
		if tok.Name == "bos_token" || tok.Name == "eos_token" {
			vars.Set(tok.Name, tok.Text)
		}
	}
	if generation {
		vars.Set("add_generation_prompt", true)
	}
	dst, err := s.Template.Render(dst, vars, jinja.Options{Now: now})
	if err != nil {
		return nil, fmt.Errorf("messages: %w", err)
	}
	return dst, nil
}

// toolsLlamaCpp returns the tools for the template, nil for none. Which of them is to
// be used is nothing to the prompt, but may be refused.
func toolsLlamaCpp(c *tokenize.Chat) (jinja.Value, error) {
	if choice, ok := openai.Value(c.ToolChoice).Text(); ok {
		switch choice {
		case "auto", "none", "required":
		default:
			return nil, fmt.Errorf("tool_choice: expected auto, none or required, got %q", choice)
		}
	}
	list, err := objects("tools", c.Tools)
	if err != nil || list == nil || len(list.Items) == 0 {
		return nil, err
	}
	tools := make([]jinja.Value, len(list.Items))
	for i, e := range list.Items {
		d := e.(*jinja.Dict)
		if get(d, "type") != "function" {
			return nil, fmt.Errorf(`tools[%d].type: expected "function"`, i)
		}
		f, err := functionOf(d)
		if err != nil {
			return nil, fmt.Errorf("tools[%d]%w", i, err)
		}
		function := get(d, "function").(*jinja.Dict)
		for _, key := range [...]string{"description", "parameters"} {
			if v, ok := function.Get(key); ok && v == nil {
				return nil, fmt.Errorf("tools[%d].function.%s: expected no null", i, key)
			}
		}
		if f.description == nil {
			f.description = ""
		}
		if f.parameters == nil {
			f.parameters = jinja.NewDict(0)
		}
		tools[i] = dict("type", "function", "function",
			dict("name", f.name, "description", f.description, "parameters", fitIntegers(f.parameters)))
	}
	return &jinja.List{Items: tools}, nil
}

// knownLlamaCpp tells the templates that llama.cpp has code for: it changes messages or
// the template itself. A template is known by all strings of a row; those with an
// exclamation mark are not to be there.
var knownLlamaCpp = [][]string{
	{"<|channel|>"},
	{"[SYSTEM_PROMPT]", "[TOOL_CALLS]", "[ARGS]", "![CALL_ID]"},
	{"[TOOL_CALLS]", "if (message['content'] is none or"},
	{"<atem:function_calls>", "<|eom|>"},
	{">>>all", ">>>${recipient}"},
	{"<|tool_calls_section_begin|>", "<|tool_call_begin|>"},
	{"<|open|>", "<|close|>", "<|end_of_msg|>"},
	{"<|START_TEXT|>", "<|START_ACTION|>"},
	{"<|tool_list_start|>"},
	{"List of tools: ["},
	{"<|role_sep|>", "<|message_sep|>", "!<|function_call|>"},
	{"]<]minimax[>["},
	{"dsml_token", "DSML"},
	{"'<|tool_call>call:'"},
	{"Tool usage guidelines:", `<function name="`, `<param name="`},
	{"You have access to the following functions in JSONSchema format"},
}

// continuedLlamaCpp tells the templates for which it has code to continue an answer,
// and no other.
var continuedLlamaCpp = [][]string{{"<tool_call>", "<function=", "<parameter="}}

func known(src string, rows [][]string) bool {
	for _, row := range rows {
		all := true
		for _, mark := range row {
			mark, not := strings.CutPrefix(mark, "!")
			all = all && strings.Contains(src, mark) != not
		}
		if all {
			return true
		}
	}
	return false
}
