package simserver

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// TestOpenAIClient talks to the server with the official client, over a socket.
func TestOpenAIClient(t *testing.T) {
	s := newServer(t, Config{Seed: 1})
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	client := openai.NewClient(option.WithBaseURL(srv.URL+"/v1/"), option.WithAPIKey("none"), option.WithMaxRetries(0))

	models, err := client.Models.List(t.Context())
	if err != nil || len(models.Data) != 1 || models.Data[0].ID != "stator-sim" {
		t.Fatalf("models %+v, %v", models, err)
	}
	params := openai.ChatCompletionNewParams{
		Model:         models.Data[0].ID,
		Messages:      []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("Be brief."), openai.UserMessage("Hello")},
		N:             openai.Int(2),
		StreamOptions: openai.ChatCompletionStreamOptionsParam{},
	}
	whole, err := client.Chat.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	params.StreamOptions.IncludeUsage = openai.Bool(true)
	st := client.Chat.Completions.NewStreaming(t.Context(), params)
	var acc openai.ChatCompletionAccumulator
	for st.Next() {
		if !acc.AddChunk(st.Current()) {
			t.Fatalf("chunk does not fit: %s", st.Current().RawJSON())
		}
	}
	if err := st.Err(); err != nil {
		t.Fatal(err)
	}
	if len(acc.Choices) != 2 || len(whole.Choices) != 2 {
		t.Fatalf("%d and %d choices, want 2", len(whole.Choices), len(acc.Choices))
	}
	for i, c := range whole.Choices {
		if a := acc.Choices[i]; c.Message.Content == "" || a.Message.Content != c.Message.Content || a.FinishReason != c.FinishReason || a.Message.Role != c.Message.Role {
			t.Errorf("choice %d: streamed %+v, whole %+v", i, a, c)
		}
	}
	if acc.Usage.TotalTokens != whole.Usage.TotalTokens || acc.Usage.TotalTokens == 0 {
		t.Errorf("usage: streamed %+v, whole %+v", acc.Usage, whole.Usage)
	}

	text, err := client.Completions.New(t.Context(), openai.CompletionNewParams{
		Model:  "stator-sim",
		Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"One", "Two"}},
	})
	if err != nil || len(text.Choices) != 2 || text.Choices[1].Text == "" || text.Usage.CompletionTokens != 32 {
		t.Errorf("completion %+v, %v", text, err)
	}

	params.Model = "other"
	_, err = client.Chat.Completions.New(t.Context(), params)
	if apiErr, ok := err.(*openai.Error); !ok || apiErr.StatusCode != 404 || !strings.Contains(apiErr.Message, "other") {
		t.Errorf("unknown model: %v", err)
	}
	if n := s.Inflight(); n != 0 {
		t.Errorf("%d requests in flight", n)
	}
}
