package sdktest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/tmc/langchaingo/llms"
	langchain "github.com/tmc/langchaingo/llms/openai"

	"github.com/stator-ai/stator/hints"
	"github.com/stator-ai/stator/nvext"
)

// silent keeps transports from logging.
var silent = hints.WithLogger(slog.New(slog.DiscardHandler))

// received is a request as the server got it.
type received struct {
	path, proto, retry string
	body               string
	ext                nvext.NvExt // what its nvext says
}

// upstream answers in the way of each API and keeps what it was sent.
type upstream struct {
	*httptest.Server
	// before is called with each request, if it is not nil. It returns whether it has
	// answered.
	before func(w http.ResponseWriter, r *http.Request) bool
	// between is called between the first chunk of a stream and the second.
	between func(r *http.Request)

	mu  sync.Mutex
	got []received
}

// newUpstream starts a server, over TLS and HTTP/2 if it says so.
func newUpstream(t *testing.T, http2 bool) *upstream {
	t.Helper()
	u := new(upstream)
	u.Server = httptest.NewUnstartedServer(u)
	if http2 {
		u.EnableHTTP2 = true
		u.StartTLS()
	} else {
		u.Start()
	}
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var request struct {
		Stream bool
		NvExt  json.RawMessage
	}
	got := received{path: r.URL.Path, proto: r.Proto, retry: r.Header.Get("X-Stainless-Retry-Count"), body: string(body)}
	if int64(len(body)) != r.ContentLength {
		got.body = fmt.Sprintf("%d bytes, said to be %d", len(body), r.ContentLength)
	}
	if json.Unmarshal(body, &request) == nil {
		json.Unmarshal(request.NvExt, &got.ext)
	}
	u.mu.Lock()
	u.got = append(u.got, got)
	u.mu.Unlock()
	if u.before != nil && u.before(w, r) {
		return
	}
	api := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	if !request.Stream {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, wholes[api])
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for i, event := range streams[api] {
		if i == first[api]+1 && u.between != nil {
			u.between(r)
		}
		io.WriteString(w, event+"\n\n")
		w.(http.Flusher).Flush()
	}
}

// take returns what has come and forgets it.
func (u *upstream) take() []received {
	u.mu.Lock()
	defer u.mu.Unlock()
	got := u.got
	u.got = nil
	return got
}

// What each API answers, by the last part of its path: "Hello you" in two pieces. The
// first of them is the event at the index in first.
var (
	wholes = map[string]string{
		"completions": `{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop",` +
			`"message":{"role":"assistant","content":"Hello you"}}],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}`,
		"responses": `{"id":"r1","object":"response","created_at":1,"status":"completed","model":"m","output":[{"type":"message","id":"m1",` +
			`"status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hello you","annotations":[]}]}],` +
			`"usage":{"input_tokens":9,"output_tokens":2,"total_tokens":11}}`,
		"messages": `{"id":"a1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"Hello you"}],` +
			`"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":2}}`,
	}
	streams = map[string][]string{
		"completions": {
			`data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"}}]}`,
			`data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" you"},"finish_reason":"stop"}]}`,
			`data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}`,
			`data: [DONE]`,
		},
		"responses": {
			"event: response.output_text.delta\n" + `data: {"type":"response.output_text.delta","item_id":"m1","output_index":0,"content_index":0,"delta":"Hello","sequence_number":1}`,
			"event: response.output_text.delta\n" + `data: {"type":"response.output_text.delta","item_id":"m1","output_index":0,"content_index":0,"delta":" you","sequence_number":2}`,
			"event: response.completed\n" + `data: {"type":"response.completed","sequence_number":3,"response":{"id":"r1","object":"response","status":"completed","output":[],"usage":{"input_tokens":9,"output_tokens":2,"total_tokens":11}}}`,
		},
		"messages": {
			"event: message_start\n" + `data: {"type":"message_start","message":{"id":"a1","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":9,"output_tokens":1}}}`,
			"event: content_block_start\n" + `data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			"event: content_block_delta\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}`,
			"event: content_block_delta\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" you"}}`,
			"event: content_block_stop\n" + `data: {"type":"content_block_stop","index":0}`,
			"event: message_delta\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}`,
			"event: message_stop\n" + `data: {"type":"message_stop"}`,
		},
	}
	first = map[string]int{"messages": 2}
)

// ask calls a model through an SDK and returns the text of the answer. It calls heard,
// which may be nil, when it has the first piece of a stream.
type ask func(ctx context.Context, c *http.Client, url string, heard func()) (string, error)

// sdks are the ways to call a model.
var sdks = []struct {
	name   string
	path   string
	stream bool
	ask    ask
}{
	{"openai-go chat", "/v1/chat/completions", false, openaiChat},
	{"openai-go chat, streamed", "/v1/chat/completions", true, openaiChatStream},
	{"openai-go responses", "/v1/responses", false, openaiResponse},
	{"openai-go responses, streamed", "/v1/responses", true, openaiResponseStream},
	{"anthropic-sdk-go messages", "/v1/messages", false, anthropicMessage},
	{"anthropic-sdk-go messages, streamed", "/v1/messages", true, anthropicStream},
	{"langchaingo", "/v1/chat/completions", false, langchainCall},
	{"langchaingo, streamed", "/v1/chat/completions", true, langchainStream},
}

func openaiClient(c *http.Client, url string) openai.Client {
	return openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey("k"), option.WithHTTPClient(c), option.WithMaxRetries(3))
}

var chat = openai.ChatCompletionNewParams{
	Model:     "stator-sim",
	Messages:  []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Say <hello> & 日本語")},
	MaxTokens: openai.Int(20),
}

func openaiChat(ctx context.Context, c *http.Client, url string, _ func()) (string, error) {
	client := openaiClient(c, url)
	answer, err := client.Chat.Completions.New(ctx, chat)
	if err != nil {
		return "", err
	}
	return answer.Choices[0].Message.Content, nil
}

func openaiChatStream(ctx context.Context, c *http.Client, url string, heard func()) (text string, err error) {
	client := openaiClient(c, url)
	stream := client.Chat.Completions.NewStreaming(ctx, chat)
	defer stream.Close()
	for stream.Next() {
		for _, choice := range stream.Current().Choices {
			text += choice.Delta.Content
		}
		heard()
	}
	return text, stream.Err()
}

var response = responses.ResponseNewParams{
	Model: "m",
	Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Say hello")},
}

func openaiResponse(ctx context.Context, c *http.Client, url string, _ func()) (string, error) {
	client := openaiClient(c, url)
	answer, err := client.Responses.New(ctx, response)
	if err != nil {
		return "", err
	}
	return answer.OutputText(), nil
}

func openaiResponseStream(ctx context.Context, c *http.Client, url string, heard func()) (text string, err error) {
	client := openaiClient(c, url)
	stream := client.Responses.NewStreaming(ctx, response)
	defer stream.Close()
	for stream.Next() {
		if event := stream.Current(); event.Type == "response.output_text.delta" {
			text += event.Delta
			heard()
		}
	}
	return text, stream.Err()
}

func anthropicClient(c *http.Client, url string) anthropic.Client {
	return anthropic.NewClient(anthropicoption.WithBaseURL(url), anthropicoption.WithAPIKey("k"), anthropicoption.WithHTTPClient(c), anthropicoption.WithMaxRetries(3))
}

var message = anthropic.MessageNewParams{
	Model:     "m",
	MaxTokens: 20,
	Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Say hello"))},
}

func anthropicMessage(ctx context.Context, c *http.Client, url string, _ func()) (string, error) {
	client := anthropicClient(c, url)
	answer, err := client.Messages.New(ctx, message)
	if err != nil {
		return "", err
	}
	return answer.Content[0].Text, nil
}

func anthropicStream(ctx context.Context, c *http.Client, url string, heard func()) (text string, err error) {
	client := anthropicClient(c, url)
	stream := client.Messages.NewStreaming(ctx, message)
	defer stream.Close()
	for stream.Next() {
		if event := stream.Current(); event.Type == "content_block_delta" {
			text += event.Delta.Text
			heard()
		}
	}
	return text, stream.Err()
}

func langchainCall(ctx context.Context, c *http.Client, url string, _ func()) (string, error) {
	return langchainAsk(ctx, c, url)
}

func langchainStream(ctx context.Context, c *http.Client, url string, heard func()) (string, error) {
	return langchainAsk(ctx, c, url, llms.WithStreamingFunc(func(context.Context, []byte) error { heard(); return ctx.Err() }))
}

func langchainAsk(ctx context.Context, c *http.Client, url string, opts ...llms.CallOption) (string, error) {
	llm, err := langchain.New(langchain.WithBaseURL(url+"/v1"), langchain.WithToken("k"), langchain.WithModel("stator-sim"), langchain.WithHTTPClient(c))
	if err != nil {
		return "", err
	}
	return llms.GenerateFromSinglePrompt(ctx, llm, "Say hello", append(opts, llms.WithMaxTokens(20))...)
}
