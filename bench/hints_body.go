package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// hintBody is a request that hints are added to, and what that is compared with.
type hintBody struct {
	name    string
	data    []byte
	escaped float64 // the share of the bytes that belong to escapes

	baseline string
	simple   func() error
	limit    float64
}

// agentMessage is a message of a chat with tools.
type agentMessage struct {
	Role       string      `json:"role"`
	Content    string      `json:"content"`
	ToolCalls  []agentCall `json:"tool_calls,omitempty"`
	ToolCallID string      `json:"tool_call_id,omitempty"`
}

type agentCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"` // JSON in a string: what is escaped in it is so twice
	} `json:"function"`
}

// fileChat returns a chat of an agent that works on sources, of about size bytes: it reads
// files, which is most of it, and now and then writes part of one. Every fourth answer of a
// tool has some text of another script, and half of these have it in escapes, as clients
// write it that keep to ASCII.
func fileChat(p *passages, size int) (*hintBody, error) {
	rng := seeded("files")
	messages := []agentMessage{{Role: "system", Content: pick(rng, p.english)}, {Role: "user", Content: "Why does it fail?"}}
	var parts [][]byte
	for n := 0; n < size; {
		source := pick(rng, p.code)
		turn := len(parts)
		name, args := "read_file", map[string]string{"path": fmt.Sprintf("src/file%d.go", turn)}
		if turn%3 == 2 {
			name = "write_file"
			args["content"] = firstBytes(source, 1500)
			source = "ok"
		}
		if turn%4 == 0 {
			source = pick(rng, p.cjk) + "\n" + source
		}
		call := agentCall{ID: fmt.Sprintf("call_%d", turn), Type: "function"}
		arguments, err := plainJSON(args)
		if err != nil {
			return nil, err
		}
		call.Function.Name, call.Function.Arguments = name, string(arguments)
		part, err := plainJSON([]agentMessage{
			{Role: "assistant", ToolCalls: []agentCall{call}},
			{Role: "tool", ToolCallID: call.ID, Content: firstBytes(source, 12_000)},
		})
		if err != nil {
			return nil, err
		}
		if turn%8 == 0 {
			part = asciiJSON(part)
		}
		part = part[1 : len(part)-1] // without the brackets
		parts = append(parts, part)
		n += len(part)
	}
	return chatBody("source files", messages, parts)
}

// proseChat returns a chat of about size bytes in which people write English.
func proseChat(p *passages, size int) (*hintBody, error) {
	rng := seeded("prose")
	var parts [][]byte
	for n := 0; n < size; {
		var b strings.Builder
		for b.Len() < 4000 {
			b.WriteString(strings.ReplaceAll(strings.TrimSpace(pick(rng, p.english)), "\n", " "))
			b.WriteString("\n\n")
		}
		part, err := plainJSON(message{Role: []string{"user", "assistant"}[len(parts)%2], Content: b.String()})
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
		n += len(part)
	}
	return chatBody("prose", nil, parts)
}

// chatBody puts a request together of messages, and of parts that are messages in JSON.
func chatBody(name string, messages []agentMessage, parts [][]byte) (*hintBody, error) {
	for i, m := range messages {
		head, err := plainJSON(m)
		if err != nil {
			return nil, err
		}
		parts = append(parts[:i:i], append([][]byte{head}, parts[i:]...)...)
	}
	data := []byte(`{"model":"Qwen/Qwen3-32B","messages":[`)
	data = append(data, bytes.Join(parts, []byte(","))...)
	data = append(data, `],"stream":true,"stream_options":{"include_usage":true},"temperature":0.2,"max_tokens":4096}`...)
	if !json.Valid(data) {
		return nil, fmt.Errorf("a chat of %s: it is no JSON", name)
	}
	return &hintBody{name: name, data: data, escaped: float64(escapeBytes(data)) / float64(len(data))}, nil
}

// plainJSON encodes without the escapes that HTML would need, as SDKs do.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// asciiJSON returns JSON with an escape for every character that is not ASCII.
func asciiJSON(data []byte) []byte {
	out := make([]byte, 0, len(data))
	for _, r := range string(data) {
		switch {
		case r < utf8.RuneSelf:
			out = append(out, byte(r))
		case utf16.RuneLen(r) == 2:
			a, b := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, a, b)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// escapeBytes counts the bytes of JSON that belong to escapes.
func escapeBytes(data []byte) int {
	n := 0
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		length := 2
		if data[i+1] == 'u' {
			length = 6
		}
		n += length
		i += length - 1
	}
	return n
}

// firstBytes returns the beginning of a text, of at most n bytes and whole characters.
func firstBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
