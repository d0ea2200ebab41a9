package oracletest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/chat"
	"github.com/stator-ai/stator/internal/tokenize/hf"
)

// TestChatTemplates compares what each model's own templates make of conversations
// with what Jinja makes of them, and the ids of that with the library's.
func TestChatTemplates(t *testing.T) {
	bare := []string{"gpt4o", "gemma2", "llama2"} // have no template
	for _, family := range Families {
		t.Run(family, func(t *testing.T) {
			config := chatConfig(t, family)
			template, err := chat.New(config)
			if errors.Is(err, chat.ErrNoTemplate) && slices.Contains(bare, family) {
				t.Skip("the model has no chat template")
			}
			if err != nil {
				t.Fatal(err)
			}
			oracle, tok := open(t, family)
			c := &chats{t: t, oracle: oracle, config: &config, template: template}
			for _, conv := range Conversations() {
				for _, generation := range []bool{true, false} {
					c.compare(conv, chatMode{generation: generation})
					if config.Named["rag"] != "" {
						c.compare(conv, chatMode{generation: generation, template: "rag"})
					}
				}
				c.compare(conv, chatMode{continued: true})
			}
			t.Logf("%d prompts, %d refusals", len(c.prompts), c.refused)
			if len(c.prompts) < 60 {
				t.Errorf("%d prompts, want 60 at least", len(c.prompts))
			}
			compareAll(t, oracle, tok, c.prompts)
		})
	}
}

// TestHandMade compares ids and texts of hand-made strings, for each model.
func TestHandMade(t *testing.T) {
	Dir(t)
	f, err := os.Open(filepath.Join("..", "qwen3", "testdata", "golden.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var texts []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var row struct{ Text string }
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		texts = append(texts, row.Text)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if len(texts) < 250 {
		t.Errorf("%d texts, want 250 at least", len(texts))
	}
	for _, family := range Families {
		t.Run(family, func(t *testing.T) {
			oracle, tok := open(t, family)
			compareAll(t, oracle, tok, texts)
		})
	}
}

func compareAll(t *testing.T, oracle *Oracle, tok *hf.Tokenizer, texts []string) {
	t.Helper()
	b := &ours{texts: texts}
	if b.encode(tok); b.err != nil {
		t.Fatal(b.err)
	}
	compareFrame(t, oracle, tok, b)
	compareIDs(t, oracle, tok, b)
	compareDecoded(t, oracle, b)
}

// chatConfig returns what a family's files say about chats. All prompts that have a
// date have the same.
func chatConfig(t *testing.T, family string) chat.Config {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(filepath.Dir(Path(t, family)), "tokenizer_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := chat.ParseConfig(data, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	config.Dialect = chat.HF
	config.AllowRequestTemplate = true
	config.Defaults = []byte(`{"date_string":"26 Jul 2024"}`)
	config.Now = func() time.Time { return time.Date(2024, 7, 26, 12, 0, 0, 0, time.UTC) }
	return config
}

// chats compares the prompts of one model.
type chats struct {
	t        *testing.T
	oracle   *Oracle
	config   *chat.Config
	template *chat.Template
	prompts  []string // that both have made
	refused  int      // by both
}

// chatMode is how a conversation is rendered.
type chatMode struct {
	generation bool   // with the opening of an answer
	continued  bool   // the last message is left open
	template   string // the name of one that is not picked by itself
}

func (c *chats) compare(conv Conversation, mode chatMode) {
	c.t.Helper()
	request := tokenize.Chat{
		Messages: conv.Messages, Tools: conv.Tools, Documents: conv.Documents, Kwargs: conv.Kwargs,
		NoGenerationPrompt: !mode.generation, ContinueFinal: mode.continued,
	}
	if mode.template != "" {
		request.Template = fmt.Appendf(nil, "%q", mode.template)
	}
	var p tokenize.Prompt
	err := c.template.Render(&p, request)
	want, wantErr := c.want(conv, mode)
	switch got := string(p.Text); {
	case err != nil && wantErr != nil:
		c.refused++
	case err != nil || wantErr != nil:
		c.t.Errorf("%s %+v: got %q, %v\nwant %q, %v", conv.Name, mode, got, err, want, wantErr)
	case got != want:
		c.t.Errorf("%s %+v\n got %q\nwant %q", conv.Name, mode, got, want)
	default:
		c.prompts = append(c.prompts, got)
	}
}

// source returns the template that transformers would pick.
func (c *chats) source(conv Conversation, mode chatMode) string {
	if mode.template != "" {
		return c.config.Named[mode.template]
	}
	if s := c.config.Named["tool_use"]; s != "" && conv.Tools != nil {
		return s
	}
	return c.config.Template
}

// want returns what transformers makes of a conversation, with Jinja.
func (c *chats) want(conv Conversation, mode chatMode) (string, error) {
	c.t.Helper()
	vars := make(map[string]any)
	for _, s := range c.config.SpecialTokens {
		vars[s.Name] = s.Text
		if s.List != nil {
			vars[s.Name] = s.List
		}
	}
	for _, kwargs := range [][]byte{c.config.Defaults, conv.Kwargs} {
		if len(kwargs) == 0 {
			continue
		}
		members := make(map[string]json.RawMessage)
		c.unmarshal(kwargs, &members)
		for name, v := range members {
			vars[name] = v
		}
	}
	messages := conv.Messages
	last := ""
	if mode.continued {
		var err error
		if messages, last, err = c.open(messages); err != nil {
			return "", err
		}
	}
	vars["messages"] = messages
	vars["tools"], vars["documents"] = conv.Tools, conv.Documents // null where there are none
	vars["add_generation_prompt"] = mode.generation
	data, err := encodeJSON(vars)
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := c.oracle.Render(c.source(conv, mode), data)
	if err != nil || !mode.continued {
		return out, err
	}
	return cutOpen(out, last)
}

// openTag is what transformers puts at the end of a message that is continued.
const openTag = "CONTINUE_FINAL_MESSAGE_TAG "

// open marks the end of the last message's text, and returns that text.
func (c *chats) open(messages []byte) (json.RawMessage, string, error) {
	c.t.Helper()
	var list []json.RawMessage
	c.unmarshal(messages, &list)
	last := &list[len(list)-1]
	var message struct{ Content json.RawMessage }
	c.unmarshal(*last, &message)
	content, text, err := c.openContent(message.Content)
	if err != nil {
		return nil, "", err
	}
	*last = replace(*last, message.Content, content)
	data, err := encodeJSON(list)
	return data, text, err
}

// openContent marks the end of a text, or of the last one in a list of parts.
func (c *chats) openContent(content json.RawMessage) (json.RawMessage, string, error) {
	c.t.Helper()
	var text string
	if json.Unmarshal(content, &text) == nil && content[0] == '"' {
		marked := strings.TrimSuffix(string(content), `"`) + openTag + `"`
		return json.RawMessage(marked), text, nil
	}
	var parts []json.RawMessage
	if json.Unmarshal(content, &parts) == nil {
		for i := len(parts) - 1; i >= 0; i-- {
			var part struct{ Text json.RawMessage }
			if json.Unmarshal(parts[i], &part) != nil || part.Text == nil {
				continue
			}
			marked, text, err := c.openContent(part.Text)
			return replace(content, part.Text, marked), text, err
		}
	}
	return nil, "", errors.New("the last message has no text")
}

// replace replaces the last occurrence of a value in another.
func replace(in, value, by json.RawMessage) json.RawMessage {
	at := bytes.LastIndex(in, value)
	return slices.Concat(in[:at], by, in[at+len(value):])
}

// cutOpen cuts a prompt behind a message that is continued.
func cutOpen(prompt, last string) (string, error) {
	at := strings.LastIndex(prompt, strings.TrimSpace(openTag))
	if at < 0 || !strings.Contains(prompt, strings.TrimFunc(last, pythonSpace)) {
		return "", errors.New("the last message is not in the prompt")
	}
	if strings.HasPrefix(prompt[at:], openTag) {
		return prompt[:at], nil
	}
	return strings.TrimRightFunc(prompt[:at], pythonSpace), nil
}

// pythonSpace reports what Python takes for white space.
func pythonSpace(r rune) bool {
	return strings.ContainsRune("\t\n\v\f\r\x1c\x1d\x1e\x1f \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000", r)
}

func (c *chats) unmarshal(data []byte, v any) {
	c.t.Helper()
	if err := json.Unmarshal(data, v); err != nil {
		c.t.Fatalf("%s: %v", data, err)
	}
}
