package vllmtest_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/oracletest"
	"github.com/stator-ai/stator/internal/tokenize/qwen3"
	"github.com/stator-ai/stator/internal/vllmtest"
)

// testTexts compares ids of hard texts.
func testTexts(t *testing.T, s *vllmtest.Instance) {
	texts := oracletest.NewTexts(11, added())
	for range 500 {
		text := strings.ToValidUTF8(texts.Next(), "\ufffd")
		ours, err := qwen3.Model().Complete([]byte(text), false /* bare */, tokenize.Hashing{})
		if err != nil {
			t.Fatal(err)
		}
		status, body := post(t, s.URL+"/tokenize", map[string]any{"model": vllmtest.Model, "prompt": text})
		if status != http.StatusOK {
			if len(ours.IDs) > vllmtest.ContextLength {
				continue
			}
			t.Fatalf("%.200q: %d %s", text, status, body)
		}
		var theirs struct{ Tokens []uint32 }
		decode(t, body, &theirs)
		if !slices.Equal(theirs.Tokens, ours.IDs) {
			t.Errorf("%.300q:\n got %d\nwant %d", text, theirs.Tokens, ours.IDs)
		}
	}
}

// added returns the spellings of the tokens that are looked for in text.
func added() []string {
	var out []string
	for id := qwen3.EndOfText; id < uint32(qwen3.Tokenizer().Size()); id++ {
		text, _, _ := qwen3.Tokenizer().Token(id)
		out = append(out, string(text))
	}
	return out
}

// refusals are why the server does not take some conversations that the template would.
var refusals = map[string]string{
	"null content":           "Input should be a valid string",
	"string parts":           "Input should be a valid dictionary",
	"no tools":               "`tools` must not be an empty array",
	"call without id":        "Field required",
	"call without arguments": "Field required",
}

// testChats compares the tokens that chats are run with, and those that the server
// says they would be run with.
func testChats(t *testing.T, s *vllmtest.Instance) {
	conversations := oracletest.Conversations()
	c := &composer{rng: rand.New(rand.NewPCG(5, 0)), texts: oracletest.NewTexts(5, added())}
	for n := range 150 {
		conversations = append(conversations, c.conversation(t, n))
	}
	same, refused, long := 0, 0, 0
	for _, conv := range conversations {
		conv.Messages = textArguments(t, conv.Messages)
		ours, err := qwen3.Model().Chat(tokenize.Chat{Messages: conv.Messages, Tools: conv.Tools, Kwargs: conv.Kwargs}, tokenize.Hashing{})
		if err == nil && len(ours.IDs) >= vllmtest.ContextLength {
			long++
			continue
		}
		ran, said, refusal := chatTokens(t, s, conv)
		switch {
		case refusal != "" && err != nil:
			refused++
		case refusal != "" && refusals[conv.Name] != "" && strings.Contains(refusal, refusals[conv.Name]):
			refused++
		case refusal != "":
			t.Errorf("%s: refused with %s, want %q", conv.Name, refusal, ours.Text)
		case err != nil:
			t.Errorf("%s: %d, want a refusal: %v", conv.Name, ran, err)
		case !slices.Equal(ran, ours.IDs):
			t.Errorf("%s: run with\n%d, want\n%d of %q", conv.Name, ran, ours.IDs, ours.Text)
		case strings.Contains(string(conv.Messages), `"reasoning_content"`):
			// The two routes read different members for what was thought.
			same++
		case !slices.Equal(said, ours.IDs):
			t.Errorf("%s: /tokenize says\n%d, want\n%d of %q", conv.Name, said, ours.IDs, ours.Text)
		default:
			same++
		}
	}
	t.Logf("%d chats with the same tokens, %d refused, %d too long", same, refused, long)
	if same < 150 {
		t.Errorf("%d chats with the same tokens, want 150 at least", same)
	}
}

// chatTokens returns the tokens of a chat that was run, and those of /tokenize.
func chatTokens(t *testing.T, s *vllmtest.Instance, c oracletest.Conversation) (ran, said []uint32, refusal string) {
	t.Helper()
	body := map[string]any{"model": vllmtest.Model, "messages": c.Messages}
	if c.Tools != nil {
		body["tools"] = c.Tools
		// The model calls none, and a server without a parser for calls asks for that.
		body["tool_choice"] = "none"
	}
	if c.Kwargs != nil {
		body["chat_template_kwargs"] = c.Kwargs
	}
	status, answer := post(t, s.URL+"/tokenize", body)
	if status == http.StatusOK {
		var out struct{ Tokens []uint32 }
		decode(t, answer, &out)
		said = out.Tokens
	}
	body["max_tokens"], body["return_token_ids"] = 1, true
	if status, answer = post(t, s.URL+"/v1/chat/completions", body); status != http.StatusOK {
		return nil, nil, fmt.Sprintf("%d %s", status, answer)
	}
	var out struct {
		IDs []uint32 `json:"prompt_token_ids"`
	}
	decode(t, answer, &out)
	return out.IDs, said, ""
}

// textArguments returns messages with the arguments of calls as the text of an object,
// which is all that the server takes.
func textArguments(t *testing.T, messages json.RawMessage) json.RawMessage {
	t.Helper()
	var list []map[string]json.RawMessage
	if !strings.Contains(string(messages), `"tool_calls"`) || json.Unmarshal(messages, &list) != nil {
		return messages
	}
	for _, m := range list {
		var calls []map[string]json.RawMessage
		if json.Unmarshal(m["tool_calls"], &calls) != nil {
			continue
		}
		for _, c := range calls {
			var function map[string]json.RawMessage
			if json.Unmarshal(c["function"], &function) != nil {
				continue
			}
			if args := string(function["arguments"]); strings.HasPrefix(args, "{") {
				function["arguments"] = marshal(t, args)
				c["function"] = marshal(t, function)
			}
		}
		m["tool_calls"] = marshal(t, calls)
	}
	return marshal(t, list)
}

func marshal(t *testing.T, v any) json.RawMessage {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// composer makes random conversations. The same seeds make the same ones.
type composer struct {
	rng   *rand.Rand
	texts *oracletest.Texts
}

// conversation returns one with up to four turns, tools and what they returned.
func (c *composer) conversation(t *testing.T, n int) oracletest.Conversation {
	t.Helper()
	type function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	type call struct {
		ID       string   `json:"id"`
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	type message struct {
		Role    string `json:"role"`
		Content any    `json:"content"`
		Calls   []call `json:"tool_calls,omitempty"`
		CallID  string `json:"tool_call_id,omitempty"`
	}
	var messages []message
	add := func(m message) { messages = append(messages, m) }
	tools := c.rng.IntN(3) == 0
	if c.rng.IntN(2) == 0 {
		add(message{Role: "system", Content: c.text()})
	}
	for turns := c.rng.IntN(4); turns > 0; turns-- {
		add(message{Role: "user", Content: c.content()})
		if tools {
			id := fmt.Sprintf("call_%d", turns)
			add(message{Role: "assistant", Content: "", Calls: []call{{id, "function", function{"search", `{"q": "Zürich", "n": [1, 2.5, null]}`}}}})
			add(message{Role: "tool", CallID: id, Content: c.text()})
		}
		answer := c.text()
		if c.rng.IntN(3) == 0 {
			answer = "<think>\n" + c.text() + "\n</think>\n\n" + answer
		}
		add(message{Role: "assistant", Content: answer})
	}
	add(message{Role: "user", Content: c.content()})
	out := oracletest.Conversation{Name: fmt.Sprintf("random %d", n), Messages: marshal(t, messages)}
	if tools {
		out.Tools = json.RawMessage(`[{"type":"function","function":{"name":"search","description":"Finds <pages> & \"more\"","parameters":{"type":"object","properties":{"q":{"type":"string"},"n":{"type":"array","items":{"type":"number"},"default":null}},"required":["q"]}}}]`)
	}
	if c.rng.IntN(3) == 0 {
		out.Kwargs = json.RawMessage(`{"enable_thinking":false}`)
	}
	return out
}

// content is a text, or a list of texts.
func (c *composer) content() any {
	if c.rng.IntN(8) > 0 {
		return c.text()
	}
	type part struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	return []part{{"text", c.text()}, {"text", c.text()}}
}

func (c *composer) text() string { return strings.ToValidUTF8(c.texts.Next(), "\ufffd") }
