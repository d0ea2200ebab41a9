package oracletest

import "encoding/json"

// Conversation is one to render. Its members are JSON, as in a request; all but
// Messages may be empty.
type Conversation struct {
	Name      string
	Messages  json.RawMessage
	Tools     json.RawMessage
	Documents json.RawMessage
	Kwargs    json.RawMessage
}

const (
	weatherTool = `{"type":"function","function":{"name":"get_weather","description":"The weather in a <city> & more: \"now\"","parameters":{"type":"object","properties":{"city":{"type":"string","description":"A city, e.g. Zürich"},"unit":{"type":"string","enum":["c","f"],"default":null},"days":{"type":"integer","minimum":0,"maximum":1e2}},"required":["city"]}}}`
	timeTool    = `{"type":"function","function":{"name":"now","description":"","parameters":{"type":"object","properties":{}}}}`
	// cohereTool is a tool as one of the models wants it.
	cohereTool = `{"name":"search","description":"Finds pages","parameter_definitions":{"query":{"description":"What to find","type":"str","required":true},"n":{"description":"How many","type":"int","required":false}}}`
	returnTool = `{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":["string","null"]},"b":{"anyOf":[{"type":"number"},{"type":"array","items":{"type":"string"}}]}}},"return":{"type":"string"}}}`

	user      = `{"role":"user","content":"Hello, world!"}`
	assistant = `{"role":"assistant","content":"Hi there. How can I help?"}`
	system    = `{"role":"system","content":"You are a careful assistant.\n\nBe short."}`
	ask       = `{"role":"user","content":"What is the weather in Zürich?"}`
	call      = `{"role":"assistant","content":"","tool_calls":[{"id":"abcdefghi","type":"function","function":{"name":"get_weather","arguments":{"city":"Zürich","unit":"c","days":3}}}]}`
	callText  = `{"role":"assistant","content":null,"tool_calls":[{"id":"abcdefghi","type":"function","function":{"name":"get_weather","arguments":"{\"city\": \"Zürich\"}"}}]}`
	callBare  = `{"role":"assistant","tool_calls":[{"id":"abcdefghi","type":"function","function":{"name":"now","arguments":{}}}]}`
	calls     = `{"role":"assistant","content":"Let me see.","tool_calls":[{"id":"abcdefgh1","type":"function","function":{"name":"get_weather","arguments":{"city":"Zürich"}}},{"id":"abcdefgh2","type":"function","function":{"name":"get_weather","arguments":{"city":"São Paulo","x":[1,2.5,true,null,{"y":"\"z\""}]}}}]}`
	result    = `{"role":"tool","tool_call_id":"abcdefghi","name":"get_weather","content":"{\"temp\": 21.5}"}`
	result1   = `{"role":"tool","tool_call_id":"abcdefgh1","name":"get_weather","content":"21 °C"}`
	result2   = `{"role":"tool","tool_call_id":"abcdefgh2","name":"get_weather","content":"30 °C"}`
	thought   = `{"role":"assistant","content":"<think>\nLet me think.\n</think>\n\nIt is 4."}`
)

// Conversations returns what is rendered with every model's template: all that a
// request may hold, and some that templates refuse.
func Conversations() []Conversation {
	list := func(items ...string) json.RawMessage {
		out := []byte("[")
		for i, item := range items {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, item...)
		}
		return append(out, ']')
	}
	text := func(role, content string) string {
		c, err := json.Marshal(content)
		if err != nil {
			panic(err) // strings always marshal
		}
		return `{"role":"` + role + `","content":` + string(c) + `}`
	}
	with := func(kwargs string, c Conversation) Conversation {
		c.Kwargs = json.RawMessage(kwargs)
		return c
	}
	tools := func(t json.RawMessage, c Conversation) Conversation {
		c.Tools = t
		return c
	}
	plain := func(name string, messages ...string) Conversation {
		return Conversation{Name: name, Messages: list(messages...)}
	}
	both := list(weatherTool, timeTool)
	docs := list(`{"title":"Tall penguins","text":"Emperor penguins are the tallest."}`, `{"title":"Habitats","text":"Only in Antarctica.","n":3}`)
	return []Conversation{
		plain("user", user),
		plain("system and user", system, user),
		plain("two turns", user, assistant, user),
		plain("two turns with system", system, user, assistant, user),
		plain("ends with assistant", user, assistant),
		plain("ends with assistant after system", system, user, assistant),
		plain("four turns", user, assistant, user, assistant, user, assistant, user),
		plain("system only", system),
		plain("system twice", system, system, user),
		plain("system late", user, assistant, system, user),
		plain("system at the end", user, system),
		plain("assistant first", assistant, user),
		plain("user twice", user, user),
		plain("assistant twice", user, assistant, assistant),
		plain("developer", text("developer", "Be terse."), user),
		plain("unknown role", text("narrator", "Once upon a time"), user),
		plain("tool without call", user, result),
		plain("ipython", user, assistant, text("ipython", "1+1")),
		plain("no role", `{"content":"x"}`),
		plain("no content", `{"role":"user"}`),
		plain("null content", `{"role":"user","content":null}`),
		plain("null content of assistant", user, `{"role":"assistant","content":null}`, user),
		plain("empty content", text("user", "")),
		plain("empty system", text("system", ""), user),
		plain("empty assistant", user, text("assistant", ""), user),
		plain("white space", text("user", " \n\t Hello \u00a0\u3000\n")),
		plain("white space all over", text("system", "  s\n"), text("user", "\n u "), text("assistant", " a\n\n"), text("user", "  ")),
		plain("separators", text("user", "\x1c\x1d a \x1f\x85\u2028")),
		plain("content is a number", `{"role":"user","content":3.0}`),
		plain("content is an object", `{"role":"user","content":{"b":1,"a":[true,null,"é"]}}`),
		plain("text parts", `{"role":"user","content":[{"type":"text","text":"Hello,"},{"type":"text","text":" world! "}]}`),
		plain("system parts", `{"role":"system","content":[{"type":"text","text":"Be short."}]}`, user),
		plain("image part", `{"role":"user","content":[{"type":"image"},{"type":"text","text":"What is this?"}]}`),
		plain("string parts", `{"role":"user","content":["a","b"]}`),
		plain("no parts", `{"role":"user","content":[]}`),
		plain("assistant parts", user, `{"role":"assistant","content":[{"type":"text","text":"Hi"}]}`, user),
		plain("unicode", text("system", "Sprich Deutsch: äöüß ẞ"), text("user", "日本語 한국어 العربية עברית हिन्दी 👩‍👩‍👧 🇩🇪"), text("assistant", "Ünïcödé e\u0301 ﬁ"), text("user", "\u200b\ufeff\U0010ffff\x00\x7f")),
		plain("quotes", text("user", `He said "it's" \ <b>&amp;</b> {{ x }} {% y %} {# z #}`)),
		plain("special tokens in content", text("user", "<|im_end|>\n<|im_start|>system\n<s>[INST]</s><eos><end_of_turn><|eot_id|><|END_OF_TURN_TOKEN|><｜User｜>")),
		plain("code", text("user", "```go\nfunc main() {\n\tprintln(\"a\")\n}\n```\n")),
		plain("thought", user, thought, user),
		plain("thought at the end", user, thought),
		plain("thought without beginning", user, text("assistant", "hm</think>\n\nyes"), user),
		plain("reasoning_content", user, `{"role":"assistant","content":"4","reasoning_content":"2+2\n"}`, user),
		plain("reasoning_content at the end", user, `{"role":"assistant","content":"4","reasoning_content":"\n2+2\n"}`),
		plain("null reasoning_content", user, `{"role":"assistant","content":"4","reasoning_content":null}`),
		plain("more keys", `{"role":"user","content":"x","name":"Ann","weight":1,"extra":{"a":1}}`),
		plain("legacy system prompt", text("system", "<<SYS>>x<</SYS>>"), user, assistant, user),
		tools(both, plain("tools", ask)),
		tools(both, plain("tools and system", system, ask)),
		tools(list(timeTool), plain("one tool", user, assistant, ask)),
		tools(list(), plain("no tools", ask)),
		tools(list(returnTool), plain("tool with return", ask)),
		tools(list(`{"name":"bare","parameters":{}}`), plain("tool without function", ask)),
		tools(list(`{"type":"code_interpreter"}`, weatherTool), plain("built-in tool", ask)),
		tools(list(cohereTool), plain("tool of another form", system, ask, assistant, user)),
		tools(list(cohereTool, `{"name":"directly-answer","description":"Answers","parameter_definitions":{}}`), plain("tools of another form", ask)),
		tools(both, plain("tools without user", system)),
		tools(both, plain("call", ask, call)),
		tools(both, plain("call and result", ask, call, result)),
		tools(both, plain("call, result and answer", system, ask, call, result, assistant)),
		tools(both, plain("call, result, answer and question", system, ask, call, result, assistant, user)),
		tools(both, plain("arguments as text", ask, callText, result)),
		tools(both, plain("call without content", ask, callBare, result)),
		tools(both, plain("two calls", ask, calls, result1, result2)),
		tools(both, plain("two calls and an answer", ask, calls, result1, result2, thought, user)),
		tools(both, plain("result with parts", ask, call, `{"role":"tool","tool_call_id":"abcdefghi","content":[{"type":"text","text":"21"}]}`)),
		tools(both, plain("result is an object", ask, call, `{"role":"tool","tool_call_id":"abcdefghi","content":{"temp":21.50,"é":"<x>"}}`)),
		tools(both, plain("result is a number", ask, call, `{"role":"tool","tool_call_id":"abcdefghi","content":21}`)),
		tools(both, plain("short id", ask, `{"role":"assistant","tool_calls":[{"id":"x","type":"function","function":{"name":"now","arguments":{}}}]}`)),
		tools(both, plain("call without id", ask, `{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"now","arguments":{}}}]}`)),
		tools(both, plain("call without function", ask, `{"role":"assistant","content":"x","tool_calls":[{"name":"now","arguments":{"a":1}}]}`, result)),
		tools(both, plain("call without arguments", ask, `{"role":"assistant","content":"x","tool_calls":[{"id":"abcdefghi","type":"function","function":{"name":"now"}}]}`)),
		plain("call without tools", ask, call, result, assistant, user),
		plain("two calls without tools", ask, calls, result1, result2),
		plain("no calls", user, `{"role":"assistant","content":"x","tool_calls":[]}`, user),
		plain("null calls", user, `{"role":"assistant","content":"x","tool_calls":null}`, user),
		plain("thought and call", ask, `{"role":"assistant","content":"<think>\nhm\n</think>\n\nok","tool_calls":[{"id":"abcdefghi","type":"function","function":{"name":"now","arguments":{"a":1}}}]}`, result),
		with(`{"enable_thinking":false}`, plain("not thinking", system, user)),
		with(`{"enable_thinking":true}`, plain("thinking", user, thought, user)),
		with(`{"enable_thinking":false}`, tools(both, plain("not thinking, tools", ask, call, result))),
		with(`{"enable_thinking":null,"thinking":true}`, plain("null thinking", user)),
		with(`{"tools_in_user_message":false}`, tools(both, plain("tools in system", system, ask))),
		with(`{"builtin_tools":["code_interpreter","brave_search"]}`, plain("built-in tools", system, ask)),
		with(`{"builtin_tools":["brave_search"],"tools_in_user_message":false}`, tools(both, plain("built-in tools, call", ask, `{"role":"assistant","content":"","tool_calls":[{"id":"abcdefghi","type":"function","function":{"name":"brave_search","arguments":{"query":"a","n":1}}}]}`, result))),
		with(`{"custom_tools":[`+weatherTool+`]}`, plain("custom tools", ask)),
		with(`{"date_string":"1 Jän 2031"}`, plain("date", user)),
		with(`{"bos_token":"[begin]","eos_token":""}`, plain("other special tokens", system, user, assistant)),
		with(`{"citation_mode":"accurate"}`, Conversation{Name: "documents", Messages: list(system, ask), Documents: docs}),
		{Name: "documents in a later turn", Messages: list(ask, assistant, user), Documents: docs},
		{Name: "empty documents", Messages: list(system, ask), Documents: list()},
		{Name: "documents and tools", Messages: list(ask), Documents: docs, Tools: both},
	}
}
