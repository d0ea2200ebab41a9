package llamatest_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stator-ai/stator/internal/llamatest"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/chat"
	"github.com/stator-ai/stator/internal/tokenize/local"
	"github.com/stator-ai/stator/internal/tokenize/oracletest"
	"github.com/stator-ai/stator/internal/tokenize/qwen3"
)

// model makes tokens as the server does.
var model = sync.OnceValues(func() (*local.Model, error) {
	return qwen3.Open(local.Options{Chat: chat.Config{Dialect: chat.LlamaCpp}})
})

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

func ours(t *testing.T) *local.Model {
	t.Helper()
	m, err := model()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestTokensOfTexts compares ids of hard texts.
func TestTokensOfTexts(t *testing.T) {
	s := &server{t, llamatest.Start(t)}
	texts := oracletest.NewTexts(7, added())
	for range 3000 {
		text := strings.ToValidUTF8(texts.Next(), "\ufffd")
		got, err := ours(t).Complete([]byte(text), false, tokenize.Hashing{})
		if want := s.tokens(text); err != nil || !slices.Equal(got.IDs, want) {
			t.Errorf("%.300q:\n got %d, %v\nwant %d", text, got.IDs, err, want)
		}
	}
}

// TestTokensOfChats compares the prompts of conversations and their ids. What is refused
// on one side is refused on the other, apart from prompts that cannot be made exactly.
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
		got, err := ours(t).Chat(chatOf(conv), tokenize.Hashing{})
		if same, text := s.compare(conv, string(got.Text), err, counts); !same {
			continue
		} else if want := s.tokens(text); !slices.Equal(got.IDs, want) {
			t.Errorf("%s, %.300q:\n got %d\nwant %d", conv.Name, text, got.IDs, want)
			continue
		}
		counted = append(counted, prompt{conv, len(got.IDs)})
		if other, err := qwen3.Model().Chat(chatOf(conv), tokenize.Hashing{}); err == nil && slices.Equal(other.IDs, got.IDs) {
			counts["the same in the dialect of vLLM too"]++
		}
	}
	t.Logf("%d chats:%s", len(conversations), listed(counts))
	if n := len(counted); n < 470 {
		t.Errorf("%d chats with the same tokens, want 470 at least", n)
	}
	s.run(counted)
}

// compare compares what was made of a chat here with what the server makes of it, and
// returns the text if both made the same.
func (s *server) compare(conv oracletest.Conversation, got string, err error, counts map[string]int) (same bool, text string) {
	s.t.Helper()
	want, refusal := s.prompt(conv)
	switch {
	case errors.Is(err, chat.ErrInexact):
		counts["cannot be made exactly"]++
	case err != nil && refusal != "":
		counts["refused"]++
	case err != nil:
		s.t.Errorf("%s: %v; want %q", conv.Name, err, want)
	case refusal != "":
		s.t.Errorf("%s: got %q, want a refusal: %s", conv.Name, got, refusal)
	case got != want:
		s.t.Errorf("%s:\n got %q\nwant %q", conv.Name, got, want)
	default:
		counts["the same"]++
		return true, want
	}
	return false, ""
}

func chatOf(c oracletest.Conversation) tokenize.Chat {
	return tokenize.Chat{Messages: c.Messages, Tools: c.Tools, Kwargs: c.Kwargs}
}

// TestPromptsOfTemplates compares the prompts of templates that take other things than
// that of the model does.
func TestPromptsOfTemplates(t *testing.T) {
	for name, src := range templates {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "template.jinja")
			if err := os.WriteFile(file, []byte(src), 0o666); err != nil {
				t.Fatal(err)
			}
			s := &server{t, llamatest.Start(t, "--jinja", "--chat-template-file", file)}
			tmpl, err := chat.New(chat.Config{
				Template: src, Dialect: chat.LlamaCpp,
				SpecialTokens: []chat.SpecialToken{{Name: "eos_token", Text: "<|im_end|>"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			conversations := oracletest.Conversations()
			c := newComposer(2)
			for n := range 50 {
				conversations = append(conversations, c.conversation(n))
			}
			counts := make(map[string]int)
			for _, conv := range conversations {
				var p tokenize.Prompt
				err := tmpl.Render(&p, chatOf(conv))
				s.compare(conv, string(p.Text), err, counts)
			}
			t.Logf("%d chats:%s", len(conversations), listed(counts))
			if n := counts["the same"]; n < 90 {
				t.Errorf("%d chats with the same prompt, want 90 at least", n)
			}
		})
	}
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
