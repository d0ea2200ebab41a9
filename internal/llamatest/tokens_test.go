package llamatest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stator-ai/stator/internal/llamatest"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/oracletest"
	"github.com/stator-ai/stator/internal/tokenize/qwen3"
	"github.com/stator-ai/stator/internal/ucd"
)

// The ways in which llama.cpp makes other tokens of a text than the model's own
// tokenizer. deviation tells from a text which it is.
const (
	// Text is not brought into the normal form C that the tokenizer asks for.
	notNormalized = "not normalized"
	// A token of the vocabulary that is spelled </s> is taken for the end of a
	// sequence, and looked for in text like a special token.
	endSpelled = "</s>"
	// Letters and digits that came with Unicode 16 are none.
	newLetter = "a letter newer than Unicode 15"
)

// endToken is the id of the token that is spelled </s>.
const endToken = 128247

// deviation returns how the tokens of a text are different, empty if they are not.
func deviation(t *testing.T, text string) string {
	t.Helper()
	switch {
	case normalized(encode(t, text)) != text:
		return notNormalized
	case strings.Contains(text, "</s>"):
		return endSpelled
	case strings.ContainsFunc(text, func(r rune) bool {
		return ucd.Of(r)&(ucd.Letter|ucd.Number) != 0 && unicode.Is(unicode.Cn, r)
	}):
		return newLetter
	}
	return ""
}

// normalized returns the text that ids were made of, in its normal form.
func normalized(ids []uint32) string { return string(qwen3.Tokenizer().DecodeText(nil, ids, false)) }

// server asks an instance for the tokens of texts and chats.
type server struct {
	t *testing.T
	*llamatest.Instance
}

func (s *server) tokens(text string) []uint32 {
	s.t.Helper()
	status, body := post(s.t, s.URL+"/tokenize", map[string]any{"content": text, "add_special": true, "parse_special": true})
	if status != http.StatusOK {
		s.t.Fatalf("/tokenize of %q: %d %s", text, status, body)
	}
	var out struct{ Tokens []uint32 }
	decode(s.t, body, &out)
	return out.Tokens
}

// prompt renders a chat; what the server refuses is not ok.
func (s *server) prompt(c oracletest.Conversation) (text, refusal string) {
	s.t.Helper()
	status, body := post(s.t, s.URL+"/apply-template", chatBody(c))
	if status != http.StatusOK {
		return "", string(body)
	}
	var out struct{ Prompt string }
	decode(s.t, body, &out)
	return out.Prompt, ""
}

func chatBody(c oracletest.Conversation) map[string]any {
	body := map[string]any{"messages": c.Messages}
	if c.Tools != nil {
		body["tools"] = c.Tools
	}
	if c.Kwargs != nil {
		body["chat_template_kwargs"] = c.Kwargs
	}
	return body
}

func encode(t *testing.T, text string) []uint32 {
	t.Helper()
	ids, err := qwen3.Tokenizer().Encode(nil, []byte(text), true /* special */)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// agree compares the server's tokens of a text with ours, and reports how they are
// different where that is known.
func (s *server) agree(name, text string, ours []uint32) string {
	s.t.Helper()
	theirs := s.tokens(text)
	if slices.Equal(theirs, ours) {
		return ""
	}
	kind := deviation(s.t, text)
	// It is that and nothing else: without it the tokens are the same.
	want := ours
	switch kind {
	case notNormalized:
		rest := normalized(ours)
		if deviation(s.t, rest) != "" {
			return kind
		}
		theirs = s.tokens(rest)
	case endSpelled:
		want = nil
		for i, part := range strings.Split(text, "</s>") {
			if i > 0 {
				want = append(want, endToken)
			}
			want = append(want, encode(s.t, part)...)
		}
		if deviation(s.t, strings.ReplaceAll(text, "</s>", " ")) != "" {
			return kind
		}
	case newLetter:
		return kind
	}
	if !slices.Equal(theirs, want) {
		s.t.Errorf("%s, %.300q:\n got %d\nwant %d", name, text, theirs, want)
	}
	return kind
}

// TestTokensOfTexts compares ids of hard texts.
func TestTokensOfTexts(t *testing.T) {
	s := &server{t, llamatest.Start(t)}
	texts := oracletest.NewTexts(7, added())
	counts := make(map[string]int)
	for range 3000 {
		text := strings.ToValidUTF8(texts.Next(), "\ufffd")
		counts[s.agree("text", text, encode(t, text))]++
	}
	t.Logf("%d texts with the same tokens; different ones:%s", counts[""], listed(counts))
	if counts[""] < 2000 {
		t.Errorf("%d texts with the same tokens, want 2000 at least", counts[""])
	}
}

// refused are the conversations that the server does not take and the template would.
var refused = map[string]string{
	"assistant twice":        "2 or more assistant messages at the end",
	"no content":             "must contain 'content'",
	"string parts":           "unsupported content[].type",
	"null reasoning_content": "must be string, but is null",
	"call":                   "Cannot continue an assistant message that contains tool calls",
	"short id":               "Cannot continue an assistant message that contains tool calls",
	"call without id":        "Cannot continue an assistant message that contains tool calls",
	"call without arguments": "key 'arguments' not found",
}

// TestTokensOfChats compares the prompts of conversations and their ids. Two things are
// rendered in another way: of one that ends with an answer the model is to go on with
// it, and some of what a request holds is read as llamaReads says.
func TestTokensOfChats(t *testing.T) {
	s := &server{t, llamatest.Start(t)}
	conversations := oracletest.Conversations()
	c := newComposer(1)
	for n := range 400 {
		conversations = append(conversations, c.conversation(n))
	}
	var counted []prompt
	counts := make(map[string]int)
	for _, conv := range conversations {
		ours, err := render(conv)
		theirs, refusal := s.prompt(conv)
		switch {
		case refusal != "":
			counts["refused"]++
			if want, ok := refused[conv.Name]; err == nil && (!ok || !strings.Contains(refusal, want)) {
				t.Errorf("%s: refused with %s", conv.Name, refusal)
			}
		case err != nil:
			t.Errorf("%s: got %q, want a refusal: %v", conv.Name, theirs, err)
		case endsWithAnswer(t, conv):
			counts["continued"]++
			s.continued(conv, theirs)
		case theirs != string(ours.Text):
			counts["read in its own way"]++
			if read, err := render(llamaReads(t, conv)); err != nil || theirs != string(read.Text) {
				t.Errorf("%s:\n got %q\nwant %q, %v", conv.Name, theirs, read.Text, err)
			}
		default:
			kind := s.agree(conv.Name, theirs, ours.IDs)
			counts[kind]++
			if kind == "" {
				counted = append(counted, prompt{conv, len(ours.IDs)})
			}
		}
	}
	t.Logf("%d chats with the same tokens; others:%s", counts[""], listed(counts))
	if counts[""] < 320 {
		t.Errorf("%d chats with the same tokens, want 320 at least", counts[""])
	}
	s.run(counted)
}

func render(c oracletest.Conversation) (tokenize.Result, error) {
	return qwen3.Model().Chat(tokenize.Chat{Messages: c.Messages, Tools: c.Tools, Kwargs: c.Kwargs}, tokenize.Hashing{})
}

// llamaReads returns a conversation as llama.cpp takes it, for all templates: of tools
// only name, description and parameters, which are "" and {} where they are missing; and
// of content in parts the texts in lines of their own, empty ones too unless they come
// first.
func llamaReads(t *testing.T, c oracletest.Conversation) oracletest.Conversation {
	t.Helper()
	if c.Tools != nil {
		type function struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Parameters  json.RawMessage `json:"parameters"`
		}
		var tools []struct {
			Type     string   `json:"type"`
			Function function `json:"function"`
		}
		decode(t, c.Tools, &tools)
		for i := range tools {
			if f := &tools[i].Function; f.Parameters == nil {
				f.Parameters = json.RawMessage("{}")
			}
		}
		c.Tools = marshal(tools)
	}
	var messages []message
	decode(t, c.Messages, &messages)
	for i := range messages {
		parts, _ := messages[i].Content.([]any)
		if parts == nil {
			continue
		}
		joined := ""
		for _, p := range parts {
			if joined != "" {
				joined += "\n"
			}
			joined += p.(map[string]any)["text"].(string)
		}
		messages[i].Content = joined
	}
	c.Messages = marshal(messages)
	return c
}

// prompt is a conversation and the number of its tokens.
type prompt struct {
	oracletest.Conversation
	tokens int
}

// run shows that the prompt of a request has the tokens that the two routes give.
func (s *server) run(prompts []prompt) {
	s.t.Helper()
	n := 0
	for i := 0; i < len(prompts); i += 10 {
		p := prompts[i]
		body := chatBody(p.Conversation)
		body["model"], body["max_tokens"] = llamatest.Model, 1
		status, answer := post(s.t, s.URL+"/v1/chat/completions", body)
		var out struct{ Usage usage }
		if status != http.StatusOK {
			s.t.Errorf("%s: %d %s", p.Name, status, answer)
			continue
		}
		decode(s.t, answer, &out)
		if out.Usage.Prompt != p.tokens {
			s.t.Errorf("%s: ran with %d tokens, want %d", p.Name, out.Usage.Prompt, p.tokens)
		}
		n++
	}
	s.t.Logf("%d of them run with that number of tokens", n)
}

// continued checks the prompt of a conversation that ends with an answer: it begins
// with all that comes before the answer.
func (s *server) continued(conv oracletest.Conversation, theirs string) {
	s.t.Helper()
	var messages []json.RawMessage
	decode(s.t, conv.Messages, &messages)
	before := marshal(messages[:len(messages)-1])
	ours, err := qwen3.Model().Chat(tokenize.Chat{Messages: before, Tools: conv.Tools, Kwargs: conv.Kwargs, NoGenerationPrompt: true}, tokenize.Hashing{})
	if err != nil {
		s.t.Fatal(err)
	}
	if !strings.HasPrefix(theirs, string(ours.Text)) || strings.HasSuffix(theirs, "<|im_end|>\n") {
		s.t.Errorf("%s: got %q, want it to begin with %q and to end with an answer that is not closed", conv.Name, theirs, ours.Text)
	}
}

func endsWithAnswer(t *testing.T, conv oracletest.Conversation) bool {
	t.Helper()
	var messages []struct{ Role string }
	if !bytes.HasPrefix(conv.Messages, []byte("[{")) {
		return false
	}
	decode(t, conv.Messages, &messages)
	return len(messages) > 0 && messages[len(messages)-1].Role == "assistant"
}

// listed returns counts in the order of their names.
func listed(counts map[string]int) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if name != "" {
			fmt.Fprintf(&b, " %s %d", name, counts[name])
		}
	}
	return b.String()
}
