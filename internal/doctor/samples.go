package doctor

import (
	"strings"

	"github.com/stator-ai/stator/internal/openai"
)

// sample is a prompt whose tokens are compared.
type sample struct {
	name string
	chat string // a body with messages
	text string // or a text
}

// parse returns the sample as a request has it.
func (s *sample) parse() (body openai.Object, prompt openai.Value, err error) {
	if s.chat == "" {
		return body, openai.AppendString(nil, s.text), nil
	}
	body, err = openai.ParseObject([]byte(s.chat))
	return body, nil, err
}

// decomposed is the sample whose accents stand apart from their letters. Many tokenizers
// put them together first, and llama.cpp does not.
const decomposed = "a text with accents apart"

// samples are chats and texts in which tokenizers and templates are likely to differ.
var samples = []sample{
	{name: "a text", text: "The quick brown fox jumps over the lazy dog."},
	{name: "a text with a space before it", text: "  leading and   inner spaces, and one at the end "},
	{name: "a text of several lines", text: "one\n\ntwo\r\n\tthree\n\n\n\nfour"},
	{name: "a text of numbers", text: "In 2024, 1234567890 of 3.14159265 were 0x1F600; 12,345,678."},
	{name: "code", text: "func f(x []int) (n int) {\n\tfor i := range x {\n\t\tn += x[i]<<2\n\t}\n\treturn\n}"},
	{name: "JSON", text: `{"a":[1,2,{"b":null}],"c":"\"quoted\"\\n"}`},
	{name: "Chinese and Japanese", text: "今天天气很好,我们去公园吧。日本語のテキストです。"},
	{name: "Arabic and Hindi", text: "مرحبا بالعالم — नमस्ते दुनिया"},
	{name: "emoji", text: "👩‍👩‍👧‍👦 🇫🇷 👍🏽 ﬁ"},
	{name: decomposed, text: "cafe\u0301 A\u030angstro\u0308m"},
	{name: "contractions", text: "I'm sure they'll say it's SHE'D've, don't you?"},
	{name: "long words", text: strings.Repeat("antidisestablishmentarianism", 3)},
	{name: "a chat", chat: `{"messages":[{"role":"user","content":"Hello!"}]}`},
	{name: "a chat with a system message", chat: `{"messages":[{"role":"system","content":"You are brief."},{"role":"user","content":"What is a stator?"}]}`},
	{name: "a chat of several turns", chat: `{"messages":[{"role":"user","content":"2+2?"},{"role":"assistant","content":"4"},{"role":"user","content":"And 3+3?"}]}`},
	{name: "a chat with lines and spaces", chat: `{"messages":[{"role":"user","content":"\n  Indented\n\n\u0060\u0060\u0060go\nx := 1\n\u0060\u0060\u0060\n"}]}`},
	{name: "a chat in several scripts", chat: `{"messages":[{"role":"user","content":"Übersetze: 你好 🌍, Привет"}]}`},
	{name: "a chat of parts", chat: `{"messages":[{"role":"user","content":[{"type":"text","text":"first part"},{"type":"text","text":"second part"}]}]}`},
	{name: "a chat without an opening", chat: `{"messages":[{"role":"user","content":"Hi"}],"add_generation_prompt":false}`},
	{name: "a chat with reasoning before", chat: `{"messages":[{"role":"user","content":"1+1?"},{"role":"assistant","content":"<think>\nsimple\n</think>\n\n2"},{"role":"user","content":"Sure?"}]}`},
	{name: "a chat with tools", chat: `{"messages":[{"role":"user","content":"Weather in Paris?"}],"tools":[` + weatherTool + `]}`},
	{name: "a chat with tool calls", chat: `{"messages":[{"role":"user","content":"Weather in Paris?"},{"role":"assistant","content":"","tool_calls":[{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\": \"Paris\", \"days\": 2}"}}]},{"role":"tool","tool_call_id":"call_1","content":"{\"sky\": \"clear\"}"}],"tools":[` + weatherTool + `]}`},
}

const weatherTool = `{"type":"function","function":{"name":"weather","description":"Returns the weather.","parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city"]}}}`
