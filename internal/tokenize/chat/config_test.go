package chat

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseConfig(t *testing.T) {
	const tokens = `"bos_token":"<s>","eos_token":{"__type":"AddedToken","content":"</s>","lstrip":false},"unk_token":null`
	wantTokens := []SpecialToken{{Name: "bos_token", Text: "<s>"}, {Name: "eos_token", Text: "</s>"}}
	for _, tc := range []struct {
		name                         string
		tokenizer, jinja, processors string
		want                         Config
	}{
		{name: "nothing"},
		{name: "no template", tokenizer: `{` + tokens + `,"chat_template":null}`, want: Config{SpecialTokens: wantTokens}},
		{name: "one template", tokenizer: `{"chat_template":"a\nb",` + tokens + `}`, want: Config{Template: "a\nb", SpecialTokens: wantTokens}},
		{
			name:      "several templates",
			tokenizer: `{"chat_template":[{"name":"default","template":"d"},{"name":"tool_use","template":"t"},{"name":"rag","template":"r"}]}`,
			want:      Config{Template: "d", Named: map[string]string{"tool_use": "t", "rag": "r"}},
		},
		{
			name:      "lists of tokens",
			tokenizer: `{"additional_special_tokens":["<a>",{"content":"<b>"}],"pad_token":""}`,
			want: Config{SpecialTokens: []SpecialToken{
				{Name: "pad_token"}, {Name: "additional_special_tokens", List: []string{"<a>", "<b>"}},
			}},
		},
		{name: "an empty list of tokens", tokenizer: `{"additional_special_tokens":[]}`},
		{
			name:      "the file wins",
			tokenizer: `{"chat_template":[{"name":"tool_use","template":"t"}],` + tokens + `}`,
			jinja:     "a\r\nb\rc\n", processors: `{"chat_template":"p"}`,
			want: Config{Template: "a\nb\nc\n", SpecialTokens: wantTokens},
		},
		{name: "only of a processor", processors: `{"chat_template":"p"}`, want: Config{Template: "p"}},
		{
			name: "of a processor and a tokenizer", tokenizer: `{"chat_template":"t"}`, processors: `{"chat_template":"p"}`,
			want: Config{Template: "p", Named: map[string]string{"tool_use": "t"}},
		},
		{name: "the same twice", tokenizer: `{"chat_template":"t"}`, processors: `{"chat_template":"t"}`, want: Config{Template: "t"}},
		{
			name:       "of a processor and a tokenizer with several",
			tokenizer:  `{"chat_template":[{"name":"default","template":"d"},{"name":"tool_use","template":"t"}]}`,
			processors: `{"chat_template":"p"}`,
			want:       Config{Template: "p", Named: map[string]string{"tool_use": "t"}},
		},
		{name: "a processor without", tokenizer: `{"chat_template":"t"}`, processors: `{}`, want: Config{Template: "t"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ParseConfig([]byte(tc.tokenizer), []byte(tc.jinja), []byte(tc.processors))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("config (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseConfigErrors(t *testing.T) {
	for _, tc := range []struct{ tokenizer, processors, want string }{
		{`[]`, ``, `tokenizer_config.json: malformed JSON at byte 0: expected an object`},
		{`{"chat_template":7}`, ``, `tokenizer_config.json: chat_template: expected a string or an array, got a number`},
		{`{"chat_template":"\q"}`, ``, `tokenizer_config.json: chat_template: invalid escape in string`},
		{`{"chat_template":[{"name":"default","template":"d"},1]}`, ``, `tokenizer_config.json: chat_template[1]: expected an object, got a number`},
		{`{"chat_template":[{"template":"d"}]}`, ``, `tokenizer_config.json: chat_template[0].name: expected a string, got nothing`},
		{`{"chat_template":[{"name":"d","template":[]}]}`, ``, `tokenizer_config.json: chat_template[0].template: expected a string, got an array`},
		{`{"bos_token":7}`, ``, `tokenizer_config.json: bos_token: expected a string or an object, got a number`},
		{`{"bos_token":{"content":null}}`, ``, `tokenizer_config.json: bos_token.content: expected a string, got null`},
		{`{"additional_special_tokens":["a",7]}`, ``, `tokenizer_config.json: additional_special_tokens[1]: expected a string or an object, got a number`},
		{`{"additional_special_tokens":"a"}`, ``, `tokenizer_config.json: additional_special_tokens: malformed JSON at byte 0: expected an array`},
		{`{}`, `x`, `chat_template.json: malformed JSON at byte 0: expected an object`},
		{`{}`, `{"chat_template":[]}`, `chat_template.json: chat_template: expected a string, got an array`},
	} {
		_, err := ParseConfig([]byte(tc.tokenizer), nil, []byte(tc.processors))
		if err == nil || err.Error() != tc.want {
			t.Errorf("ParseConfig(%s, %s) = %v, want %q", tc.tokenizer, tc.processors, err, tc.want)
		}
	}
}

func TestDialect(t *testing.T) {
	for _, d := range []Dialect{VLLM, SGLang, HF, LlamaCpp} {
		if got, err := ParseDialect(d.String()); err != nil || got != d {
			t.Errorf("ParseDialect(%q) = %v, %v", d, got, err)
		}
	}
	if _, err := ParseDialect("vLLM"); err == nil || err.Error() != `unknown chat dialect "vLLM": expected vllm, sglang, hf or llamacpp` {
		t.Errorf("ParseDialect of an unknown name: %v", err)
	}
}
