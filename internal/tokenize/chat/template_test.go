package chat

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/jinja"
	"github.com/stator-ai/stator/internal/tokenize"
)

// parseErr returns the message of the error that parsing s gives.
func parseErr(t *testing.T, s string) string {
	t.Helper()
	_, err := jinja.ParseJSON([]byte(s))
	if err == nil {
		t.Fatalf("%q parses", s)
	}
	return err.Error()
}

func TestHF(t *testing.T) {
	chat := func(messages, tools, kwargs string) tokenize.Chat {
		return tokenize.Chat{Messages: []byte(messages), Tools: []byte(tools), Kwargs: []byte(kwargs)}
	}
	docs := chat(`[{}]`, ``, ``)
	docs.Documents = []byte(`[{"title":"t"}]`)
	effort := chat(`[{}]`, ``, ``)
	effort.ReasoningEffort = []byte(`"low"`)
	check(t, HF, []vector{
		{
			name: "messages as they are",
			chat: messages(`[{"b":1,"a":null,"role":"x","content":[{"type":"text","text":"a"}],"tool_calls":[{"function":{"arguments":"{}"}}]}]`),
			want: `[{"b": 1, "a": null, "role": "x", "content": [{"type": "text", "text": "a"}], "tool_calls": [{"function": {"arguments": "{}"}}]}]`,
		},
		{name: "tools as they are", template: dumpTools, chat: chat(`[{}]`, `[{"b":1,"a":2.0}]`, ``), want: `[{"b": 1, "a": 2.0}]`},
		{name: "no tools", template: dumpTools, chat: chat(`[{}]`, ``, ``), want: `null`},
		{name: "kwargs", template: `{{ a }}`, chat: chat(`[{}]`, ``, `{"a":1.0}`), want: `1.0`},
		{name: "kwargs that are parameters", template: `{{ a }}`, chat: chat(`[{}]`, ``, `{"tools":1}`), err: `chat_template_kwargs.tools: not accepted`},
		{name: "documents", template: `{{ documents | tojson }}`, chat: docs, want: `[{"title": "t"}]`},
		{name: "effort", template: `{{ reasoning_effort }}`, chat: effort, want: `low`},
		{name: "a message that is none", chat: messages(`[{},[]]`), err: `messages[1]: expected an object, got an array`},
	})
}

func TestErrors(t *testing.T) {
	for _, d := range []Dialect{VLLM, SGLang, HF} {
		t.Run(d.String(), func(t *testing.T) {
			check(t, d, []vector{
				{name: "no messages", chat: messages(`[]`), err: `messages: expected at least one message`},
				{name: "null", chat: messages(`null`), err: `messages: expected at least one message`},
				{name: "not an array", chat: messages(`"hi"`), err: `messages: expected an array, got a string`},
				{name: "not an object", chat: messages(`[{"role":"user","content":"u"},1]`), err: `messages[1]: expected an object, got a number`},
				{name: "bad JSON", chat: messages(`[`), err: `messages: ` + parseErr(t, `[`)},
				{name: "raised", template: `{{ raise_exception("no " + messages[0].role) }}`, err: `messages: no user`},
				{name: "a template of the request's own", chat: tokenize.Chat{Template: []byte(`"x"`)}, err: `chat_template: templates in requests are not allowed`},
				{name: "a template that is no string", chat: tokenize.Chat{Template: []byte(`1`)}, err: `chat_template: expected a string, got a number`},
			})
		})
	}
	check(t, VLLM, []vector{
		{name: "role", chat: messages(`[{"role":7}]`), err: `messages[0].role: expected a string, got a number`},
		{name: "no role", chat: messages(`[{"content":"x"}]`), err: `messages[0].role: expected a non-empty string`},
		{name: "content", chat: messages(`[{"role":"user","content":7}]`), err: `messages[0].content: expected a string or an array of parts, got a number`},
		{name: "part", chat: messages(`[{"role":"user","content":[true]}]`), err: `messages[0].content[0]: expected an object, got a boolean`},
		{name: "part type", chat: messages(`[{"role":"user","content":"u"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"file"}]}]`), err: `messages[1].content[1].type: unsupported part type "file"`},
		{name: "no part type", chat: messages(`[{"role":"user","content":[{"text":"a"}]}]`), err: `messages[0].content[0].type: expected a string, got nothing`},
		{name: "text", chat: messages(`[{"role":"user","content":[{"type":"text","text":{}}]}]`), err: `messages[0].content[0].text: expected a string, got an object`},
		{name: "reasoning", chat: messages(`[{"role":"assistant","reasoning":1}]`), err: `messages[0].reasoning: expected a string, got a number`},
		{name: "documents", chat: tokenize.Chat{Documents: []byte(`["d"]`)}, err: `documents[0]: expected an object, got a string`},
	})
}

func TestRaised(t *testing.T) {
	_, err := render(t, Config{Template: `{{ raise_exception("no") }}`}, messages(`[{"role":"user"}]`))
	var raised *jinja.RaiseError
	if !errors.As(err, &raised) || raised.Message != "no" {
		t.Errorf("err = %v, want the template's own", err)
	}
}

func TestNamed(t *testing.T) {
	named := Config{Template: "main", Named: map[string]string{"tool_use": "tools", "rag": "rag"}}
	byName := Config{Named: map[string]string{"default": "d", "tool_use": "t"}}
	open := named
	open.AllowRequestTemplate = true
	tools := tokenize.Chat{Tools: []byte(`[{"type":"function","function":{"name":"f"}}]`)}
	excluded := tools
	excluded.ToolChoice = []byte(`"none"`)
	for _, d := range []Dialect{VLLM, SGLang, HF} {
		t.Run(d.String(), func(t *testing.T) {
			check(t, d, []vector{
				{name: "default", template: "main", config: named, want: "main"},
				{name: "with tools", template: "main", config: named, chat: tools, want: "tools"},
				{name: "named default", config: byName, want: "d"},
				{name: "named tool_use", config: byName, chat: tools, want: "t"},
				{name: "no default", config: Config{Named: map[string]string{"x": "x", "b": "b"}}, err: "chat_template: the model has no default template, only b, x"},
				{name: "by name", template: "main", config: open, chat: tokenize.Chat{Template: []byte(`"rag"`)}, want: "rag"},
				{name: "its own", template: "main", config: open, chat: tokenize.Chat{Template: []byte(`"{{ 1 + 1 }}"`)}, want: "2"},
				{name: "its own, with tools", template: "main", config: open, chat: tokenize.Chat{Template: []byte(`"x"`), Tools: tools.Tools}, want: "x"},
			})
		})
	}
	check(t, SGLang, []vector{{name: "tools not to be used", template: "main", config: named, chat: excluded, want: "main"}})
	check(t, VLLM, []vector{{name: "tools not to be used", template: "main", config: named, chat: excluded, want: "tools"}})
}

func TestOwnTemplateDoesNotCompile(t *testing.T) {
	c := Config{Template: "x", AllowRequestTemplate: true}
	_, err := render(t, c, tokenize.Chat{Messages: []byte(`[{"role":"user"}]`), Template: []byte(`"{% if %}"`)})
	if err == nil || !strings.HasPrefix(err.Error(), `chat_template: chat template "request": template line 1: `) {
		t.Errorf("err = %v, want one that names the template and the line", err)
	}
}

func TestNew(t *testing.T) {
	if _, err := New(Config{}); !errors.Is(err, ErrNoTemplate) {
		t.Errorf("New without a template: %v, want ErrNoTemplate", err)
	}
	for _, tc := range []struct {
		c    Config
		want string
	}{
		{Config{Template: "a\n{% if %}"}, `chat template "default": template line 2: `},
		{Config{Template: "a", Named: map[string]string{"tool_use": "{{"}}, `chat template "tool_use": template line 1: `},
		{Config{Template: "a", ContentFormat: "text"}, `chat content format "text": expected string or openai`},
		{Config{Template: "a", Defaults: []byte("[]")}, `default chat_template_kwargs: expected an object, got an array`},
	} {
		if _, err := New(tc.c); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("New(%+v) = %v, want %q", tc.c, err, tc.want)
		}
	}
}

func TestClock(t *testing.T) {
	noon := time.Date(2025, 3, 1, 23, 30, 0, 0, time.UTC)
	c := Config{Template: `{{ strftime_now("%d %b %Y") }}`, Now: func() time.Time { return noon }}
	for _, tc := range []struct {
		zone *time.Location
		want string
	}{
		{nil, "01 Mar 2025"},
		{time.UTC, "01 Mar 2025"},
		{time.FixedZone("east", 3600), "02 Mar 2025"},
	} {
		c.Location = tc.zone
		got, err := render(t, c, messages(`[{"role":"user"}]`))
		if err != nil || got != tc.want {
			t.Errorf("in %v: %q, %v, want %q", tc.zone, got, err, tc.want)
		}
	}
}

func TestConcurrent(t *testing.T) {
	c := model(t, "qwen3")
	c.Defaults = []byte(`{"enable_thinking":false}`)
	tm, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			var p tokenize.Prompt
			for range 20 {
				chat := messages(fmt.Sprintf(`[{"role":"user","content":"%d"}]`, i))
				want := fmt.Sprintf("<|im_start|>user\n%d<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n", i)
				if err := tm.Render(&p, chat); err != nil || string(p.Text) != want {
					t.Errorf("%q, %v, want %q", p.Text, err, want)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzRender(f *testing.F) {
	var tms []*Template
	for _, name := range []string{"qwen3", "mistral_nemo"} {
		c := model(f, name)
		for _, d := range []Dialect{VLLM, SGLang, HF} {
			c.Dialect = d
			c.ContentFormat = ""
			add := func() {
				tm, err := New(c)
				if err != nil {
					f.Fatal(err)
				}
				tms = append(tms, tm)
			}
			add()
			c.ContentFormat = "openai"
			add()
		}
	}
	for _, g := range append(goldens(f, "testdata/render.jsonl"), goldens(f, "testdata/continue.jsonl")...) {
		f.Add([]byte(g.Messages), []byte(g.Tools), []byte(g.Kwargs), false)
		f.Add([]byte(g.Messages), []byte(g.Tools), []byte(`{"tools":[],"enable_thinking":null}`), true)
	}
	f.Fuzz(func(t *testing.T, messages, tools, kwargs []byte, cont bool) {
		chat := tokenize.Chat{
			Messages: messages, Tools: tools, Kwargs: kwargs, Documents: tools,
			ToolChoice: kwargs, NoGenerationPrompt: cont, ContinueFinal: cont,
		}
		for _, tm := range tms {
			var p, q tokenize.Prompt
			err := tm.Render(&p, chat)
			if again := tm.Render(&q, chat); (err == nil) != (again == nil) || err == nil && string(p.Text) != string(q.Text) {
				t.Fatalf("%q, %v; then %q, %v", p.Text, err, q.Text, again)
			}
			if n := len(p.Segments); err == nil && len(p.Text) > 0 && p.Segments[n-1].End != len(p.Text) {
				t.Fatalf("segments %v do not cover %d bytes", p.Segments, len(p.Text))
			}
		}
	})
}

// BenchmarkRender renders a Qwen3 chat of 20 messages, some of them tool calls
// and results.
func BenchmarkRender(b *testing.B) {
	var msgs []string
	for i := range 5 {
		msgs = append(msgs,
			fmt.Sprintf(`{"role":"user","content":"Question %d: %s"}`, i, strings.Repeat("what is the weather like? ", 8)),
			`{"role":"assistant","content":"","tool_calls":[{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Bern\",\"days\":3}"}}]}`,
			`{"role":"tool","tool_call_id":"call_1","content":"{\"temp\":21.5,\"rain\":false}"}`,
			fmt.Sprintf(`{"role":"assistant","content":"Answer %d: %s"}`, i, strings.Repeat("it is warm and dry in Bern. ", 16)),
		)
	}
	chat := tokenize.Chat{
		Messages: []byte("[" + strings.Join(msgs[:20], ",") + "]"),
		Tools:    []byte(`[{"type":"function","function":{"name":"weather","description":"Weather in a city","parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city"]}}}]`),
	}
	for _, d := range []Dialect{VLLM, SGLang, HF} {
		b.Run(d.String(), func(b *testing.B) {
			c := model(b, "qwen3")
			c.Dialect = d
			tm, err := New(c)
			if err != nil {
				b.Fatal(err)
			}
			var p tokenize.Prompt
			b.ReportAllocs()
			for b.Loop() {
				if err := tm.Render(&p, chat); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(len(p.Text)))
		})
	}
}
