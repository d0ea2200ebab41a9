package chat

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/tokenize"
)

func TestSGLangContent(t *testing.T) {
	check(t, SGLang, []vector{{
		name: "text parts are joined with spaces",
		chat: messages(`[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":""}},{"type":"text","text":""},{"type":"input_text","text":"b"}]}]`),
		want: `[{"role": "user", "content": "a  b"}]`,
	}, {
		name: "a string stays where parts are wanted", template: dumpParts,
		chat: messages(`[{"role":"user","content":"a"}]`),
		want: `[{"role": "user", "content": "a"}]`,
	}, {
		name: "texts and media as parts", template: dumpParts,
		chat: messages(`[{"role":"user","name":"n","content":[{"type":"text","text":"a","x":1},{"type":"image_url"},{"type":"video_url"},{"type":"audio_url"},{"type":"tool_reference","name":"f"}]}]`),
		want: `[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "video"}, {"type": "audio"}, {"type": "tool_reference", "name": "f"}]}]`,
	}, {
		name: "null is empty text", template: dumpParts,
		chat: messages(`[{"role":"assistant","content":null},{"role":"user","content":"u"}]`),
		want: `[{"role": "assistant", "content": ""}, {"role": "user", "content": "u"}]`,
	}, {
		name: "an unknown part", chat: messages(`[{"role":"user","content":[{"type":"file"}]}]`),
		err: `messages[0].content[0].type: unsupported part type "file"`,
	}, {
		name: "a part without text", chat: messages(`[{"role":"user","content":[{"type":"text"}]}]`),
		err: `messages[0].content[0].text: expected a string, got nothing`,
	}, {
		name: "a part that is a string", chat: messages(`[{"role":"user","content":["a"]}]`),
		err: `messages[0].content[0]: expected an object, got a string`,
	}})
}

func TestSGLangKeys(t *testing.T) {
	const after = `,{"role":"user","content":"u"}]`
	const wantAfter = `, {"role": "user", "content": "u"}]`
	check(t, SGLang, []vector{{
		name: "keys of an assistant",
		chat: messages(`[{"tool_calls":null,"reasoning_content":"r","reasoning":"x","foo":1,"name":"n","content":"a","role":"Assistant"}` + after),
		want: `[{"role": "assistant", "content": "a", "name": "n", "reasoning_content": "r"}` + wantAfter,
	}, {
		name: "keys of a user",
		chat: messages(`[{"role":"user","content":"u","name":"n"}]`),
		want: `[{"role": "user", "content": "u"}]`,
	}, {
		name: "parts come last", template: dumpParts,
		chat: messages(`[{"role":"assistant","content":[{"type":"text","text":"a"}],"reasoning_content":"r"}` + after),
		want: `[{"role": "assistant", "reasoning_content": "r", "content": [{"type": "text", "text": "a"}]}` + wantAfter,
	}, {
		name: "texts of a tool are joined", template: dumpParts,
		chat: messages(`[{"role":"tool","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"tool_call_id":"x"}]`),
		want: `[{"role": "tool", "tool_call_id": "x", "content": "a b"}]`,
	}, {
		name: "a tool with something else keeps its parts", template: dumpParts,
		chat: messages(`[{"role":"tool","content":[{"type":"text","text":"a"},{"type":"image_url"}]}]`),
		want: `[{"role": "tool", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}]`,
	}, {
		name: "a developer stays one",
		chat: messages(`[{"role":"developer","content":"d"}]`),
		want: `[{"role": "developer", "content": "d"}]`,
	}, {
		name: "an unknown role", chat: messages(`[{"role":"critic","content":"d"}]`), err: `messages[0].role: unknown role "critic"`,
	}})
}

func TestSGLangToolCalls(t *testing.T) {
	calls := func(s string) tokenize.Chat {
		return messages(`[{"role":"assistant","tool_calls":` + s + `},{"role":"tool","content":"42"}]`)
	}
	args := func(s string) tokenize.Chat { return calls(`[{"function":{"arguments":` + s + `,"name":"f"},"x":1}]`) }
	want := func(s string) string {
		return `[{"role": "assistant", "content": "", "tool_calls": ` + s + `}, {"role": "tool", "content": "42"}]`
	}
	one := func(s string) string {
		return want(`[{"id": null, "index": null, "type": "function", "function": {"name": "f", "arguments": ` + s + `}}]`)
	}
	check(t, SGLang, []vector{
		{name: "a string", chat: args(`"{\"b\":1,\"a\":2}"`), want: one(`{"b": 1, "a": 2}`)},
		{name: "an object", chat: args(`{"b":1}`), want: one(`{"b": 1}`)},
		{name: "null", chat: args(`null`), want: one(`null`)},
		{name: "none", chat: calls(`[]`), want: want(`[]`)},
		{name: "empty", chat: args(`""`), err: `messages[0].tool_calls[0].function.arguments: ` + parseErr(t, ``)},
		{name: "not an object", chat: args(`"[1]"`), err: `messages[0].tool_calls[0].function.arguments: expected the JSON of an object, got that of an array`},
		{name: "a list", chat: args(`[]`), err: `messages[0].tool_calls[0].function.arguments: expected a string or an object, got an array`},
	})
}

func TestSGLangTools(t *testing.T) {
	chat := func(tools, choice string) tokenize.Chat {
		return tokenize.Chat{Tools: []byte(tools), ToolChoice: []byte(choice)}
	}
	const two = `[{"type":"function","function":{"name":"f"}},{"function":{"name":"g"}}]`
	const f = `{"type": "function", "function": {"description": null, "name": "f", "parameters": null, "strict": false}, "defer_loading": null}`
	const g = `{"type": "function", "function": {"description": null, "name": "g", "parameters": null, "strict": false}, "defer_loading": null}`
	check(t, SGLang, []vector{{
		name: "shape", template: dumpTools,
		chat: chat(`[{"x":1,"function":{"parameters":{"b":1,"a":2},"name":"f","y":2,"strict":true,"description":"d"}}]`, ``),
		want: `[{"type": "function", "function": {"description": "d", "name": "f", "parameters": {"b": 1, "a": 2}, "strict": true}, "defer_loading": null}]`,
	}, {
		name: "deferred", template: dumpTools,
		chat: chat(`[{"function":{"name":"f"},"defer_loading":true}]`, `"auto"`),
		want: `[{"type": "function", "function": {"description": null, "name": "f", "parameters": null, "strict": false, "defer_loading": true}, "defer_loading": true}]`,
	}, {
		name: "choice auto", template: dumpTools, chat: chat(two, `"auto"`), want: `[` + f + `, ` + g + `]`,
	}, {
		name: "choice none", template: dumpTools, chat: chat(two, `"none"`), want: `null`,
	}, {
		name: "choice of one", template: dumpTools, chat: chat(two, `{"type":"function","function":{"name":"g"}}`), want: `[` + g + `]`,
	}, {
		name: "choice of none there", chat: chat(two, `{"type":"function","function":{"name":"h"}}`), err: `tool_choice.function.name: no tool is named "h"`,
	}, {
		name: "choice without a name", chat: chat(two, `{"type":"function"}`), err: `tool_choice.function: expected an object, got nothing`,
	}, {
		name: "empty", template: dumpTools, chat: chat(`[]`, ``), want: `null`,
	}, {
		name:     "a template that wants bare functions",
		template: `{% if tools[0].function is defined %}{{ raise_exception("bare!") }}{% endif %}{{ tools[0].name }}`,
		chat:     chat(two, ``),
		want:     `f`,
	}, {
		name:     "a template that wants nothing",
		template: `{{ raise_exception("never") }}`,
		chat:     chat(two, ``),
		err:      `messages: never`,
	}})
}

func TestSGLangGeneration(t *testing.T) {
	const tmpl = `{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}[/]{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}`
	chat := func(messages string, cont bool) tokenize.Chat {
		return tokenize.Chat{Messages: []byte(messages), ContinueFinal: cont, NoGenerationPrompt: cont}
	}
	const talk = `[{"role":"user","content":"u"},{"role":"assistant","content":" The cap ","reasoning_content":"r"}]`
	const parts = `[{"role":"user","content":"u"},{"role":"assistant","content":[{"type":"text","text":"a"}]}]`
	check(t, SGLang, []vector{
		{name: "always", template: tmpl, chat: tokenize.Chat{NoGenerationPrompt: true}, want: "[user]u[/][assistant]"},
		{name: "a last assistant becomes a user", template: dump, chat: chat(talk, false), want: `[{"role": "user", "content": "u"}, {"role": "user", "content": " The cap "}]`},
		{name: "not when it has parts", template: dumpParts, chat: chat(parts, false), want: `[{"role": "user", "content": "u"}, {"role": "assistant", "content": [{"type": "text", "text": "a"}]}]`},
		{name: "continued", template: tmpl, chat: chat(talk, true), want: "[user]u[/][assistant] The cap "},
		{name: "nothing to continue", template: tmpl, chat: chat(`[{"role":"user","content":"u"}]`, true), want: "[user]u[/][assistant]"},
		{name: "nothing before", template: tmpl, chat: chat(`[{"role":"assistant","content":"a"}]`, true), err: "continue_final_message: needs a message before the last one"},
	})
	tm, err := New(Config{Template: tmpl, Dialect: SGLang})
	if err != nil {
		t.Fatal(err)
	}
	var p tokenize.Prompt
	if err := tm.Render(&p, chat(talk, true)); err != nil {
		t.Fatal(err)
	}
	want := []tokenize.Segment{{End: len("[user]u[/][assistant]"), Special: true}, {End: len("[user]u[/][assistant] The cap "), Special: true}}
	if diff := cmp.Diff(want, p.Segments); diff != "" {
		t.Errorf("segments of a continued message (-want +got):\n%s", diff)
	}
}

func TestSGLangKwargs(t *testing.T) {
	const thinking = `{{ thinking }} {{ enable_thinking }} {{ reasoning_effort }}`
	chat := func(effort, kwargs string) tokenize.Chat {
		return tokenize.Chat{ReasoningEffort: []byte(effort), Kwargs: []byte(kwargs)}
	}
	docs := chat(``, ``)
	docs.Documents = []byte(`[{"title":"t"}]`)
	check(t, SGLang, []vector{
		{name: "none", template: thinking, want: `  `},
		{name: "effort", template: thinking, chat: chat(`"high"`, ``), want: `  high`},
		{name: "effort as a number", template: thinking, chat: chat(`0.5`, ``), want: `  0.5`},
		{name: "effort none", template: thinking, chat: chat(`"none"`, `{"thinking":true}`), want: `True False none`},
		{name: "kwargs win over effort", template: thinking, chat: chat(`"low"`, `{"reasoning_effort":"high"}`), want: `  high`},
		{name: "all are passed", template: `{{ a is none }} {{ a is defined }} {{ b }}`, chat: chat(``, `{"a":null,"b":"auto"}`), want: `True True auto`},
		{name: "defaults", template: `{{ a }} {{ b }}`, config: Config{Defaults: []byte(`{"a":1,"b":2}`)}, chat: chat(``, `{"b":3}`), want: `1 3`},
		{name: "documents only in kwargs", template: `{{ documents | tojson }}`, chat: docs, want: `null`},
		{name: "documents in kwargs", template: `{{ documents | tojson }}`, chat: chat(``, `{"documents":[]}`), want: `[]`},
		{name: "tools", chat: chat(``, `{"tools":[]}`), err: `chat_template_kwargs.tools: not accepted`},
		{name: "a template", chat: chat(``, `{"chat_template":"x"}`), err: `chat_template_kwargs.chat_template: templates in requests are not allowed`},
		{name: "a template, allowed", config: Config{AllowRequestTemplate: true}, chat: chat(``, `{"chat_template":"x"}`), want: `x`},
		{name: "effort of another type", chat: chat(`true`, ``), err: `reasoning_effort: expected a string or a number, got a boolean`},
	})
}

func TestLoopsOverContent(t *testing.T) {
	for src, want := range map[string]bool{
		``: false,
		`{% for m in messages %}{{ m.content }}{% endfor %}`: false,
		`{%- for c in message['content'] -%}`:                true,
		`{% for c in message["content"] %}`:                  true,
		`{%+ for c in msg.content %}`:                        true,
		`{%for c in m.content%}`:                             true,
		`{% for k, v in m.content %}`:                        true,
		`{% for c in m.content | selectattr('x') %}`:         true,
		`{% for c in m.content[1:] %}`:                       true,
		`{% for c in m.content[0] %}`:                        false,
		`{% for c in m.content if c.type == 'text' %}`:       true,
		`{% for c in m.contents %}`:                          false,
		`{% for c in m.content.items() %}`:                   false,
		`{% for c in xm.content %}`:                          false,
		`{% for c in content %}`:                             false,
		`{# for c in m.content #}`:                           false,
		`{% raw %}{% for c in m.content %}{% endraw %}`:      false,
		`{{ "vision" }}`:                                     true,
		`{{ '<image>' }}`:                                    true,
	} {
		if got := loopsOverContent(src); got != want {
			t.Errorf("loopsOverContent(%q) = %v, want %v", src, got, want)
		}
	}
}
