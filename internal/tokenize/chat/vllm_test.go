package chat

import (
	"errors"
	"testing"

	"github.com/stator-ai/stator/internal/tokenize"
)

func TestVLLMContent(t *testing.T) {
	const user = `{"role": "user", "content": "u"}`
	check(t, VLLM, []vector{{
		name: "text parts are joined with line feeds",
		chat: messages(`[{"role":"user","content":[{"type":"text","text":"a"},{"type":"input_text","text":"b"},{"type":"output_text","text":"c"},{"type":"refusal","refusal":"d"},{"type":"thinking","thinking":"e"},"f"]}]`),
		want: `[{"role": "user", "content": "a\nb\nc\nd\ne\nf"}]`,
	}, {
		name: "empty texts leave no empty line",
		chat: messages(`[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":""},{"type":"text"},{"type":"text","text":null},{"type":"text","text":"b"}]}]`),
		want: `[{"role": "user", "content": "a\nb"}]`,
	}, {
		name: "a string is a string",
		chat: messages(`[{"role":"user","content":" a\n"}]`),
		want: `[{"role": "user", "content": " a\n"}]`,
	}, {
		name:     "a string is wrapped",
		template: dumpParts,
		chat:     messages(`[{"role":"user","content":"a"}]`),
		want:     `[{"role": "user", "content": [{"type": "text", "text": "a"}]}]`,
	}, {
		name:     "an empty string is wrapped",
		template: dumpParts,
		chat:     messages(`[{"role":"user","content":""}]`),
		want:     `[{"role": "user", "content": [{"type": "text", "text": ""}]}]`,
	}, {
		name:     "texts and media as parts",
		template: dumpParts,
		chat: messages(`[{"role":"user","content":[{"type":"text","text":"a","cache_control":{}},{"type":"image_url","image_url":{"url":"data:"}},` +
			`{"type":"input_audio","input_audio":{"data":""}},{"type":"audio_url","audio_url":{"url":""}},{"type":"video_url","video_url":{"url":""}},` +
			`{"image_url":"x"},{"type":"image_url","uuid":"1","image_url":null},{"type":"tool_reference","name":"f"},{"type":"text"},"b"]}]`),
		want: `[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "audio"}, {"type": "audio"}, {"type": "video"}, ` +
			`{"type": "image"}, {"type": "image"}, {"type": "tool_reference", "name": "f"}, {"type": "text", "text": "b"}]}]`,
	}, {
		name: "media where only text goes",
		chat: messages(`[` + user + `,{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"}]}]`),
		err:  `messages[1].content[1].type: "image": the template takes only text`,
	}, {
		name: "null is empty text",
		chat: messages(`[{"role":"user","content":null},{"role":"assistant"}]`),
		want: `[{"role": "user", "content": ""}, {"role": "assistant", "content": ""}]`,
	}, {
		name:     "null is no parts",
		template: dumpParts,
		chat:     messages(`[{"role":"user","content":null},{"role":"assistant"}]`),
		want:     `[{"role": "user", "content": []}, {"role": "assistant", "content": []}]`,
	}, {
		name:   "the format can be given",
		config: Config{ContentFormat: "openai"},
		chat:   messages(`[` + user + `]`),
		want:   `[{"role": "user", "content": [{"type": "text", "text": "u"}]}]`,
	}})
}

func TestVLLMKeys(t *testing.T) {
	check(t, VLLM, []vector{{
		name: "keys of a user",
		chat: messages(`[{"name":"n","content":"u","foo":1,"tool_call_id":"x","tool_calls":[],"reasoning":"r","role":"user"}]`),
		want: `[{"role": "user", "content": "u", "name": "n"}]`,
	}, {
		name: "keys of an assistant",
		chat: messages(`[{"role":"assistant","content":"a","reasoning":"r","refusal":"no","name":null,"audio":{}}]`),
		want: `[{"role": "assistant", "content": "a", "reasoning": "r", "reasoning_content": "r"}]`,
	}, {
		name: "reasoning under its older name",
		chat: messages(`[{"role":"assistant","content":"a","reasoning_content":"r","reasoning":null}]`),
		want: `[{"role": "assistant", "content": "a", "reasoning": "r", "reasoning_content": "r"}]`,
	}, {
		name: "both names",
		chat: messages(`[{"role":"assistant","content":"a","reasoning_content":"old","reasoning":"new"}]`),
		want: `[{"role": "assistant", "content": "a", "reasoning": "new", "reasoning_content": "new"}]`,
	}, {
		name: "keys of a tool",
		chat: messages(`[{"role":"tool","content":"42","tool_call_id":"x","name":"f","tool_calls":[1]}]`),
		want: `[{"role": "tool", "content": "42", "tool_call_id": "x", "name": "f"}]`,
	}, {
		name:     "texts of a tool are joined",
		template: dumpParts,
		chat:     messages(`[{"role":"tool","content":[{"type":"text","text":"a"},{"type":"text","text":""},{"type":"text","text":"b"}]}]`),
		want:     `[{"role": "tool", "content": "a\n\nb"}]`,
	}, {
		name:     "a tool with something else keeps its parts",
		template: dumpParts,
		chat:     messages(`[{"role":"tool","content":[{"type":"text","text":"a"},{"type":"image_url"}]}]`),
		want:     `[{"role": "tool", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}]`,
	}, {
		name: "the last message is an assistant's",
		chat: messages(`[{"role":"user","content":"u"},{"role":"assistant","content":"a"}]`),
		want: `[{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]`,
	}})
}

func TestVLLMToolCalls(t *testing.T) {
	calls := func(s string) tokenize.Chat {
		return messages(`[{"role":"assistant","content":null,"tool_calls":` + s + `}]`)
	}
	args := func(s string) tokenize.Chat {
		return calls(`[{"id":"1","type":"function","function":{"name":"f","arguments":` + s + `}}]`)
	}
	want := func(s string) string {
		return `[{"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"arguments": ` + s + `, "name": "f"}, "type": "function"}]}]`
	}
	check(t, VLLM, []vector{
		{name: "a string", chat: args(`"{\"b\":1.0,\"a\":[2,\"x\"]}"`), want: want(`{"b": 1.0, "a": [2, "x"]}`)},
		{name: "an object", chat: args(`{"b":1,"a":2}`), want: want(`{"b": 1, "a": 2}`)},
		{name: "empty", chat: args(`""`), want: want(`{}`)},
		{name: "null", chat: args(`null`), want: want(`{}`)},
		{name: "not an object", chat: args(`"[1]"`), want: want(`[1]`)},
		{name: "bad JSON", chat: args(`"{"`), err: `messages[0].tool_calls[0].function.arguments: ` + parseErr(t, `{`)},
		{name: "only spaces", chat: args(`" "`), err: `messages[0].tool_calls[0].function.arguments: ` + parseErr(t, ` `)},
		{name: "a number", chat: args(`7`), err: `messages[0].tool_calls[0].function.arguments: expected a string or an object, got a number`},
		{name: "none", chat: calls(`[]`), want: `[{"role": "assistant", "content": ""}]`},
		{name: "no list", chat: calls(`{}`), err: `messages[0].tool_calls: expected an array, got an object`},
		{
			name: "further keys",
			chat: calls(`[{"index":0,"type":"function","id":"1","function":{"name":"f","arguments":"{}","x":1},"y":2}]`),
			want: want(`{}`),
		},
		{name: "another type", chat: calls(`[{"id":"1","type":"custom","custom":{}}]`), err: `messages[0].tool_calls[0].type: expected "function"`},
		{name: "without a function", chat: calls(`[{"id":"1"}]`), err: `messages[0].tool_calls[0].function: expected an object, got nothing`},
	})
}

func TestVLLMTools(t *testing.T) {
	tools := func(s string) tokenize.Chat { return tokenize.Chat{Tools: []byte(s)} }
	choice := tools(`[{"type":"function","function":{"name":"f"}}]`)
	choice.ToolChoice = []byte(`"none"`)
	named := tools(`[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}]`)
	named.ToolChoice = []byte(`{"type":"function","function":{"name":"g"}}`)
	kwargs := tools(`[{"type":"function","function":{"name":"f"}}]`)
	kwargs.Kwargs = []byte(`{"tools":[1]}`)
	const f = `{"type": "function", "function": {"name": "f", "description": null, "parameters": null}}`
	const g = `{"type": "function", "function": {"name": "g", "description": null, "parameters": null}}`
	check(t, VLLM, []vector{{
		name: "shape", template: dumpTools,
		chat: tools(`[{"x":1,"function":{"parameters":{"b":1,"a":2},"name":"f","y":2,"description":"d"},"type":"function"}]`),
		want: `[{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"b": 1, "a": 2}}}]`,
	}, {
		name: "strict", template: dumpTools,
		chat: tools(`[{"function":{"strict":false,"name":"f"}}]`),
		want: `[{"type": "function", "function": {"name": "f", "description": null, "parameters": null, "strict": false}}]`,
	}, {
		name: "absent", template: dumpTools, chat: tokenize.Chat{}, want: `null`,
	}, {
		name: "null", template: dumpTools, chat: tools(`null`), want: `null`,
	}, {
		name: "defined where absent", template: `{{ tools is defined }} {{ tools is none }}`, want: `True True`,
	}, {
		name: "empty", template: dumpTools, chat: tools(`[]`), want: `[]`,
	}, {
		name: "choice none", template: dumpTools, chat: choice, want: `[` + f + `]`,
	}, {
		name: "choice none, excluded", template: dumpTools, config: Config{ExcludeToolsWhenNone: true}, chat: choice, want: `null`,
	}, {
		name: "choice of one", template: dumpTools, chat: named, want: `[` + f + `, ` + g + `]`,
	}, {
		name: "in kwargs", template: dumpTools, chat: kwargs, want: `[1]`,
	}, {
		name: "no function", chat: tools(`[{"type":"function"}]`), err: `tools[0].function: expected an object, got nothing`,
	}, {
		name: "no name", chat: tools(`[{"function":{"name":null}}]`), err: `tools[0].function.name: expected a string, got null`,
	}, {
		name: "no list", chat: tools(`{}`), err: `tools: expected an array, got an object`,
	}})
}

func TestVLLMDeveloper(t *testing.T) {
	const scattered = `[{"role":"system","content":"s","name":"n"},{"role":"user","content":"u"},{"role":"developer","content":"d","tools":[1]},{"role":"system","content":""}]`
	check(t, VLLM, []vector{{
		name: "merged at the top",
		chat: messages(scattered),
		want: `[{"role": "system", "content": "s\n\nd"}, {"role": "user", "content": "u"}]`,
	}, {
		name: "alone at the top",
		chat: messages(`[{"role":"developer","content":"d","name":"n","tools":[1]},{"role":"user","content":"u"}]`),
		want: `[{"role": "system", "content": "d", "name": "n"}, {"role": "user", "content": "u"}]`,
	}, {
		name: "parts become text", template: dumpParts,
		chat: messages(`[{"role":"user","content":"u"},{"role":"developer","content":[{"type":"text","text":"a"},{"type":"image_url"},{"type":"text","text":"b"}]}]`),
		want: `[{"role": "system", "content": "a\nb"}, {"role": "user", "content": [{"type": "text", "text": "u"}]}]`,
	}, {
		name: "system messages stay without one",
		chat: messages(`[{"role":"user","content":"u"},{"role":"system","content":"s"}]`),
		want: `[{"role": "user", "content": "u"}, {"role": "system", "content": "s"}]`,
	}, {
		name: "a template that knows the role", template: `{{ 'developer' }} ` + dump,
		chat: messages(`[{"role":"developer","content":"d"},{"role":"developer","content":"d","tools":[1]}]`),
		want: `developer [{"role": "developer", "content": "d", "tools": null}, {"role": "developer", "content": "d", "tools": [1]}]`,
	}})
}

func TestVLLMGeneration(t *testing.T) {
	const tmpl = `{% for m in messages %}[{{ m.role }}]{{ m.content }}[/]{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}`
	const talk = `[{"role":"user","content":"u"},{"role":"assistant","content":"The cap "}]`
	final := func(no, cont bool) tokenize.Chat {
		return tokenize.Chat{Messages: []byte(talk), NoGenerationPrompt: no, ContinueFinal: cont}
	}
	parts := final(true, true)
	parts.Messages = []byte(`[{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]`)
	null := final(true, true)
	null.Messages = []byte(`[{"role":"assistant","content":null}]`)
	kwargs := final(false, false)
	kwargs.Kwargs = []byte(`{"add_generation_prompt":false,"continue_final_message":true}`)
	check(t, VLLM, []vector{
		{name: "default", template: tmpl, chat: final(false, false), want: "[user]u[/][assistant]The cap [/][assistant]"},
		{name: "without", template: tmpl, chat: final(true, false), want: "[user]u[/][assistant]The cap [/]"},
		{name: "continued", template: tmpl, chat: final(true, true), want: "[user]u[/][assistant]The cap "},
		{name: "both", template: tmpl, chat: final(false, true), err: "continue_final_message: needs add_generation_prompt to be false"},
		{name: "continued parts", template: tmpl, chat: parts, want: "[assistant]a\nb"},
		{name: "continued null", template: tmpl, chat: null, want: "[assistant]"},
		{name: "continued null as parts", template: dumpParts, chat: null, err: "continue_final_message: the last message has no text to continue"},
		{name: "kwargs do not count", template: tmpl, chat: kwargs, want: "[user]u[/][assistant]The cap [/][assistant]"},
		{name: "not printed", template: `{{ messages[0].content }}`, chat: final(true, true), err: "continue_final_message: the template does not print the last message as it is"},
	})
}

func TestVLLMKwargs(t *testing.T) {
	const thinking = `{{ enable_thinking }} {{ reasoning_effort }}`
	chat := func(effort, kwargs string) tokenize.Chat {
		return tokenize.Chat{ReasoningEffort: []byte(effort), Kwargs: []byte(kwargs)}
	}
	docs := chat(``, `{"documents":[{"title":"k"}]}`)
	docs.Documents = []byte(`[{"title":"t"}]`)
	check(t, VLLM, []vector{
		{name: "none", template: thinking, want: ` `},
		{name: "effort", template: thinking, chat: chat(`"low"`, ``), want: `True low`},
		{name: "effort none", template: thinking, chat: chat(`"none"`, ``), want: `False none`},
		{name: "effort null", template: thinking, chat: chat(`null`, `null`), want: ` `},
		{name: "thinking wins over effort", template: thinking, chat: chat(`"low"`, `{"enable_thinking":false}`), want: `False low`},
		{name: "a thinking of null, too", template: thinking, chat: chat(`"low"`, `{"enable_thinking":null}`), want: ` low`},
		{name: "effort wins over kwargs", template: thinking, chat: chat(`"low"`, `{"reasoning_effort":"high"}`), want: `True low`},
		{name: "effort in kwargs", template: thinking, chat: chat(``, `{"reasoning_effort":"high"}`), want: ` high`},
		{name: "effort of another type", template: thinking, chat: chat(`1`, ``), err: `reasoning_effort: expected a string, got a number`},
		{
			name: "defaults", template: `{{ a }} {{ b }} {{ c }} {{ d }}`,
			config: Config{Defaults: []byte(`{"a":1,"b":2,"c":3,"d":4}`)},
			chat:   chat(``, `{"b":"B","c":null,"d":"auto"}`),
			want:   `1 B 3 4`,
		},
		{
			name: "effort wins over a default", template: thinking, config: Config{Defaults: []byte(`{"enable_thinking":false}`)},
			chat: chat(`"high"`, ``), want: `True high`,
		},
		{name: "what is not read", template: `{% set a = 1 %}{{ a }}{{ b }}`, chat: chat(``, `{"a":2,"b":3,"c":4}`), want: `13`},
		{name: "parameters are no variables", template: `{{ padding is defined }}`, chat: chat(``, `{"padding":true}`), want: `False`},
		{name: "documents", template: `{{ documents | tojson }}`, chat: docs, want: `[{"title": "t"}]`},
		{name: "documents in kwargs", template: `{{ documents | tojson }}`, chat: chat(``, `{"documents":[{"title":"k"}]}`), want: `[{"title": "k"}]`},
		{name: "no documents", template: `{{ documents is none }}`, want: `True`},
		{name: "chat_template", chat: chat(``, `{"chat_template":"x"}`), err: `chat_template_kwargs.chat_template: not accepted`},
		{name: "tokenize", chat: chat(``, `{"tokenize":false}`), err: `chat_template_kwargs.tokenize: not accepted`},
		{name: "messages", chat: chat(``, `{"messages":[]}`), err: `chat_template_kwargs.messages: not accepted`},
		{name: "no object", chat: chat(``, `[]`), err: `chat_template_kwargs: expected an object, got an array`},
		{
			name: "a special token given anew", template: `{{ bos_token }}{{ eos_token }}{{ additional_special_tokens }}`,
			config: Config{SpecialTokens: []SpecialToken{{Name: "bos_token", Text: "<s>"}, {Name: "additional_special_tokens", List: []string{"<x>"}}}},
			chat:   chat(``, `{"eos_token":"</s>"}`),
			want:   `<s></s>['<x>']`,
		},
	})
}

func TestErrMedia(t *testing.T) {
	_, err := render(t, Config{Template: dump}, messages(`[{"role":"user","content":[{"type":"video_url"}]}]`))
	if !errors.Is(err, ErrMedia) {
		t.Errorf("err = %v, want ErrMedia", err)
	}
}

// TestVLLMNemo shows why the order of keys matters: this template prints the
// function of a call as it is.
func TestVLLMNemo(t *testing.T) {
	got, err := render(t, model(t, "mistral_nemo"), tokenize.Chat{
		Messages: []byte(`[{"role":"user","content":"u"},{"role":"assistant","tool_calls":[{"id":"abcdefghi","type":"function","function":{"name":"f","arguments":"{\"b\":1}"}}]},` +
			`{"role":"tool","tool_call_id":"abcdefghi","content":[{"type":"text","text":"42"}]}]`),
		Tools: []byte(`[{"type":"function","function":{"parameters":{"type":"object"},"name":"f"}}]`),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `<s>[AVAILABLE_TOOLS][{"type": "function", "function": {"name": "f", "description": null, "parameters": {"type": "object"}}}][/AVAILABLE_TOOLS][INST]u[/INST]` +
		`[TOOL_CALLS][{"arguments": {"b": 1}, "name": "f", "id": "abcdefghi"}]</s>[TOOL_RESULTS]{"content": 42, "call_id": "abcdefghi"}[/TOOL_RESULTS]`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
