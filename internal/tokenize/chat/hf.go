package chat

import (
	"github.com/stator-ai/stator/internal/jinja"
	"github.com/stator-ai/stator/internal/tokenize"
)

// renderHF hands everything to the template as it came.
func (t *Template) renderHF(dst *tokenize.Prompt, c tokenize.Chat, own *source) error {
	if err := checkContinue(&c); err != nil {
		return err
	}
	messages, err := messagesOf(c.Messages)
	if err != nil {
		return err
	}
	args := call{messages: messages, generation: !c.NoGenerationPrompt, continueFinal: c.ContinueFinal}
	tools, err := objects("tools", c.Tools)
	if err != nil {
		return err
	}
	if tools != nil {
		args.tools = tools
	}
	k, err := t.kwargs(c.Kwargs, never,
		"messages", "conversation", "tools", "chat_template", "tokenize", "add_generation_prompt", "continue_final_message")
	if err != nil {
		return err
	}
	if args.documents, err = documents(&c, &k); err != nil {
		return err
	}
	args.kwargs = k.variables(nil)
	effort, err := parse("reasoning_effort", c.ReasoningEffort)
	if err != nil {
		return err
	}
	if _, ok := k.own("reasoning_effort"); effort != nil && !ok {
		args.kwargs.Set("reasoning_effort", effort)
	}
	s, err := t.pick(own, args.tools)
	if err != nil {
		return err
	}
	return t.render(dst, s, args)
}

// documents returns the documents of a request, from where it has them.
func documents(c *tokenize.Chat, k *kwargs) (jinja.Value, error) {
	list, err := objects("documents", c.Documents)
	if err != nil {
		return nil, err
	}
	if list != nil {
		return list, nil
	}
	v, _ := k.get("documents")
	return v, nil
}
