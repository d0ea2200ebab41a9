package chat

import (
	"errors"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/tokenize"
)

const (
	llamaUser   = "<|im_start|>user\nhi<|im_end|>\n"
	llamaOpened = "<|im_start|>assistant\n"
)

func llamaQwen3(t *testing.T) vector { return vector{template: model(t, "qwen3").Template} }

func TestLlamaCppMessages(t *testing.T) {
	const after = `,{"role":"user","content":"u"}]`
	const wantAfter = `, {"role": "user", "content": "u"}]`
	check(t, LlamaCpp, []vector{{
		name: "parts are lines, empty ones too unless they come first",
		chat: messages(`[{"role":"user","content":[{"type":"text","text":""},{"type":"text","text":"a"},{"type":"text","text":""},{"type":"text","text":"b"}]}]`),
		want: `[{"role": "user", "content": "a\n\nb"}]`,
	}, {
		name: "text where parts are wanted", template: `{% for m in messages %}{% for p in m.content %}<{{ p.type }}>{{ p.text }}{% endfor %}{% endfor %}`,
		chat: messages(`[{"role":"user","content":"a"},{"role":"user","content":[{"type":"text","text":"b"},{"type":"text","text":"c"}]}]`),
		want: `<text>a<text>b<text>c`,
	}, {
		name: "keys and their order",
		chat: messages(`[{"tool_calls":[{"x":1,"id":"i","function":{"arguments":"{\"a\": 1e2}","name":"f"},"type":"function"}],"reasoning":"x","tool_call_id":"t","name":"n","reasoning_content":"r","content":null,"role":"assistant"}` + after),
		want: `[{"role": "assistant", "content": "", "reasoning_content": "r", "name": "n", "tool_call_id": "t", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 100.0}}, "id": "i"}]}` + wantAfter,
	}, {
		name: "what is empty is absent",
		chat: messages(`[{"role":"assistant","content":"","reasoning_content":"","name":"","tool_call_id":"","tool_calls":[]}` + after),
		want: `[{"role": "assistant", "content": ""}` + wantAfter,
	}, {
		name: "a developer is a system",
		chat: messages(`[{"role":"user","content":"a"},{"role":"developer","content":"d"}` + after),
		want: `[{"role": "user", "content": "a"}, {"role": "system", "content": "d"}` + wantAfter,
	}, {
		name: "no system", template: `{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}{% endfor %}` + dump,
		chat: messages(`[{"role":"system","content":"s"}` + after),
		want: `[{"role": "user", "content": "s\nu"}]`,
	}, {
		name: "arguments stay text where text is wanted", template: `{% for m in messages %}{% for c in m.tool_calls %}{{ 'x' + c.function.arguments }}{% endfor %}{% endfor %}`,
		chat: messages(`[{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":"{ }"}}]}` + after),
		want: `x{ }`,
	}, {
		name: "a value where text is wanted", template: `{% for m in messages %}{% for c in m.tool_calls %}{{ 'x' + c.function.arguments }}{% endfor %}{% endfor %}`,
		chat: messages(`[{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":{}}}]}` + after),
		err:  `messages[0].tool_calls[0].function.arguments: the template takes text, and what llama.cpp makes of a value cannot be tokenized exactly as the engine does`,
	}, {
		name: "white space that is not ASCII's, where it is trimmed", template: `{{ messages[0].content | trim }}`,
		chat: messages(`[{"role":"user","content":"a\u3000"}]`),
		err:  `messages[0]: white space that llama.cpp does not know is at the end of a text, which cannot be tokenized exactly as the engine does`,
	}, {
		name: "white space that is not trimmed", template: `{{ messages[0].content.strip('\n') }}`,
		chat: messages(`[{"role":"user","content":"\na\u3000"}]`), want: "a\u3000",
	}})
}

func TestLlamaCppRefuses(t *testing.T) {
	for _, v := range []vector{
		{chat: messages(`[{"content":"a"}]`), err: `messages[0].role: expected a string, got nothing`},
		{chat: messages(`[{"role":"user"}]`), err: `messages[0].content: expected a string or an array of parts, got nothing`},
		{chat: messages(`[{"role":"user","content":3}]`), err: `messages[0].content: expected a string or an array of parts, got a number`},
		{chat: messages(`[{"role":"user","content":"a","name":null}]`), err: `messages[0].name: expected a string, got null`},
		{chat: messages(`[{"role":"user","content":["a"]}]`), err: `messages[0].content[0]: expected an object, got a string`},
		{chat: messages(`[{"role":"user","content":[{"type":"input_text","text":"a"}]}]`), err: `messages[0].content[0].type: expected text, image_url, input_audio or input_video, got input_text`},
		{chat: messages(`[{"role":"user","content":[{"type":"image_url"}]}]`), err: `messages[0].content[0].type: "image_url": the template takes only text`},
		{chat: messages(`[{"role":"user","content":[{"type":"text"}]}]`), err: `messages[0].content[0].text: expected a string, got nothing`},
		{chat: messages(`[{"role":"user","content":"","tool_calls":[{"function":{"name":"f","arguments":""}}]}]`), err: `messages[0].tool_calls[0].type: expected "function"`},
		{chat: messages(`[{"role":"user","content":"","tool_calls":[{"type":"function","function":{"name":"f"}}]}]`), err: `messages[0].tool_calls[0].function.arguments: expected a string or an object, got nothing`},
		{chat: messages(`[{"role":"assistant","content":"a"},{"role":"assistant","content":"b"}]`), err: `messages[1].role: expected no second answer at the end`},
		{chat: messages(`[{"role":"assistant","content":"a","tool_calls":[{"type":"function","function":{"name":"f","arguments":"{}"}}]}]`), err: `messages[0].tool_calls: expected none in an answer to be continued`},
		{chat: tokenize.Chat{ToolChoice: []byte(`"any"`)}, err: `tool_choice: expected auto, none or required, got "any"`},
		{chat: tokenize.Chat{Tools: []byte(`[{"function":{"name":"f"}}]`)}, err: `tools[0].type: expected "function"`},
		{chat: tokenize.Chat{Tools: []byte(`[{"type":"function","function":{"name":"f","description":null}}]`)}, err: `tools[0].function.description: expected no null`},
		{chat: tokenize.Chat{Kwargs: []byte(`{"enable_thinking":"false"}`)}, err: `chat_template_kwargs.enable_thinking: expected a boolean, got a string`},
		{chat: tokenize.Chat{ContinueFinal: true}, err: `continue_final_message: needs add_generation_prompt to be false`},
		{template: dump + "<|channel|>", err: `messages: llama.cpp has code for this template: the prompt cannot be tokenized exactly as the engine does`},
	} {
		v.name = v.err
		check(t, LlamaCpp, []vector{v})
	}
}

func TestLlamaCppTools(t *testing.T) {
	check(t, LlamaCpp, []vector{{
		name: "what is kept of tools", template: dumpTools,
		chat: tokenize.Chat{Tools: []byte(`[{"function":{"strict":true,"parameters":{"b":1,"a":{}},"name":"f"},"type":"function"},{"type":"function","function":{"name":"g","description":"d","return":1}}]`), ToolChoice: []byte(`"none"`)},
		want: `[{"type": "function", "function": {"name": "f", "description": "", "parameters": {"b": 1, "a": {}}}}, {"type": "function", "function": {"name": "g", "description": "d", "parameters": {}}}]`,
	}, {
		name: "an empty list is none", template: `{{ tools is defined }}`,
		chat: tokenize.Chat{Tools: []byte(`[]`)}, want: "False",
	}, {
		name: "integers of 64 bits", template: dumpTools,
		chat: tokenize.Chat{Tools: []byte(`[{"type":"function","function":{"name":"f","parameters":{"a":[9223372036854775807,9223372036854775808,18446744073709551615,18446744073709551616],"b":-9223372036854775808,"c":-9223372036854775809}}}]`)},
		want: `[{"type": "function", "function": {"name": "f", "description": "", "parameters": {"a": [9223372036854775807, -9223372036854775808, -1, 1.8446744073709552e+19], "b": -9223372036854775808, "c": -9.223372036854776e+18}}}]`,
	}})
}

func TestLlamaCppVariables(t *testing.T) {
	const vars = `{{ messages[0].content }}|{{ date_string }}|{{ datetime }}|{{ enable_thinking }}|{{ preserve_thinking }}|{{ clear_thinking }}|{{ reasoning_effort }}|{{ reasoning_strength }}|{{ bos_token }}|{{ eos_token }}|{{ add_generation_prompt is defined }}|{{ x }}`
	now := func() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC) }
	config := Config{Now: now, SpecialTokens: []SpecialToken{{Name: "eos_token", Text: "</s>"}, {Name: "x", Text: "x"}}}
	var list []vector
	for _, v := range []struct {
		name string
		chat tokenize.Chat
		want string
	}{
		{"none", tokenize.Chat{}, "u|04 Mar 2026|Mar 04 2026|False|True|False||||</s>|True|"},
		{"no generation prompt", tokenize.Chat{NoGenerationPrompt: true}, "u|04 Mar 2026|Mar 04 2026|False|True|False||||</s>|False|"},
		{"kwargs", tokenize.Chat{Kwargs: []byte(`{"enable_thinking":true,"preserve_reasoning":false,"date_string":"d","eos_token":"e","add_generation_prompt":false,"x":18446744073709551615}`)},
			"u|d|Mar 04 2026|True|False|True||||</s>|True|-1"},
		{"kwargs that are no object", tokenize.Chat{Kwargs: []byte(`[1]`)}, "u|04 Mar 2026|Mar 04 2026|False|True|False||||</s>|True|"},
		{"effort", tokenize.Chat{ReasoningEffort: []byte(`"high"`), Kwargs: []byte(`{"reasoning_effort":"low"}`)}, "u|04 Mar 2026|Mar 04 2026|False|True|False|high|high||</s>|True|"},
		{"no effort", tokenize.Chat{ReasoningEffort: []byte(`"none"`), Kwargs: []byte(`{"reasoning_effort":"low"}`)}, "u|04 Mar 2026|Mar 04 2026|False|True|False||||</s>|True|"},
		{"no effort, but thinking", tokenize.Chat{ReasoningEffort: []byte(`"none"`), Kwargs: []byte(`{"enable_thinking":true}`)}, "u|04 Mar 2026|Mar 04 2026|True|True|False||||</s>|True|"},
		{"effort that is no text", tokenize.Chat{ReasoningEffort: []byte(`3`)}, "u|04 Mar 2026|Mar 04 2026|False|True|False||||</s>|True|"},
		{"template in the request", tokenize.Chat{Template: []byte(`"x"`)}, "u|04 Mar 2026|Mar 04 2026|False|True|False||||</s>|True|"},
	} {
		list = append(list, vector{name: v.name, template: vars, config: config, chat: v.chat, want: v.want})
	}
	check(t, LlamaCpp, list)
}

func TestLlamaCppContinues(t *testing.T) {
	chat := func(answer string) tokenize.Chat {
		return messages(`[{"role":"user","content":"hi"},` + answer + `]`)
	}
	var list []vector
	for _, v := range []struct {
		name string
		chat tokenize.Chat
		want string
	}{
		{"an answer", chat(`{"role":"assistant","content":"Hi the"}`), llamaUser + llamaOpened + "<think>\n\n</think>\n\nHi the"},
		{"an answer with a thought", chat(`{"role":"assistant","content":"Hi the","reasoning_content":"abc"}`), llamaUser + llamaOpened + "<think>\nabc\n</think>\n\nHi the"},
		{"a thought", chat(`{"role":"assistant","content":"","reasoning_content":"abc"}`), llamaUser + llamaOpened + "<think>\nabc"},
		{"nothing", chat(`{"role":"assistant","content":null}`), llamaUser},
		{"parts", chat(`{"role":"assistant","content":[{"type":"text","text":""},{"type":"text","text":"a"},{"type":"text","text":""},{"type":"text","text":"b"}]}`),
			llamaUser + llamaOpened + "<think>\n\n</think>\n\na\n\n\n\nb"},
	} {
		q := llamaQwen3(t)
		q.name, q.chat, q.want = v.name, v.chat, v.want
		list = append(list, q)
		q.name += ", not thinking"
		q.chat.Kwargs = []byte(`{"enable_thinking":false}`)
		list = append(list, q)
	}
	q := llamaQwen3(t)
	q.name, q.want = "two answers, if asked for", llamaOpened+"a<|im_end|>\n"+llamaOpened+"<think>\n\n</think>\n\nb"
	q.chat = messages(`[{"role":"assistant","content":"a"},{"role":"assistant","content":"b"}]`)
	q.chat.ContinueFinal, q.chat.NoGenerationPrompt = true, true
	list = append(list, q, vector{
		name: "without thoughts", template: `{% for m in messages %}[{{ m.role }}]{{ m.content }};{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}`,
		chat: chat(`{"role":"assistant","content":"a ","reasoning_content":"r"}`), want: "[user]hi;[assistant]a ",
	}, vector{
		name: "thoughts that are not marked", template: `{% for m in messages %}[{{ m.role }}]{{ m.reasoning_content }}{{ m.content }};{% endfor %}`,
		chat: chat(`{"role":"assistant","content":"a"}`),
		err:  `messages: the template does not show how thoughts are marked: an answer to be continued cannot be tokenized exactly as the engine does`,
	})
	check(t, LlamaCpp, list)
}

func TestLlamaCppInexact(t *testing.T) {
	_, err := render(t, Config{Template: dump + ">>>all >>>${recipient}", Dialect: LlamaCpp}, messages(`[{"role":"user","content":"u"}]`))
	if !errors.Is(err, ErrInexact) {
		t.Errorf("err = %v, want %v", err, ErrInexact)
	}
}

func TestMarksAround(t *testing.T) {
	for _, tc := range []struct {
		prompt, before, after string
		ok                    bool
	}{
		{"no thought", "", "", true},
		{"<a>x\n<think>\n" + thoughtMark + "\n</think>\n\ny<b>", "<think>\n", "\n</think>\n\n", true},
		{"[T] " + thoughtMark + "[/T]y", "[T] ", "[/T]", true},
		{"<a> b>" + thoughtMark + "</a>", "", "", false},
		{"thought: " + thoughtMark + "</a>", "", "", false},
		{"<a>" + thoughtMark + " done", "", "", false},
	} {
		if before, after, ok := marksAround(tc.prompt); before != tc.before || after != tc.after || ok != tc.ok {
			t.Errorf("marksAround(%q) = %q, %q, %v, want %q, %q, %v", tc.prompt, before, after, ok, tc.before, tc.after, tc.ok)
		}
	}
}
