package vllmtest_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/vllmtest"
)

// patience bounds how long something is waited for that is to come soon.
const patience = 30 * time.Second

// post sends a JSON document and returns status and answer.
func post(t *testing.T, url string, doc any) (int, []byte) {
	t.Helper()
	body, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer
}

// decode reads a JSON document into v.
func decode(t *testing.T, doc []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(doc, v); err != nil {
		t.Fatalf("%v in %s", err, doc)
	}
}

// completion is what a request came to.
type completion struct {
	output []uint32
	cached int
}

// complete runs a prompt for so many tokens. An empty salt is none.
func complete(t *testing.T, s *vllmtest.Instance, prompt []uint32, tokens int, salt string) completion {
	t.Helper()
	body := map[string]any{
		"model": vllmtest.Model, "prompt": prompt, "max_tokens": tokens, "temperature": 0,
		"ignore_eos": true, "return_token_ids": true,
	}
	if salt != "" {
		body["cache_salt"] = salt
	}
	status, answer := post(t, s.URL+"/v1/completions", body)
	if status != http.StatusOK {
		t.Fatalf("a prompt of %d tokens: %d %s", len(prompt), status, answer)
	}
	var out struct {
		Choices []struct {
			TokenIDs []uint32 `json:"token_ids"`
		}
		Usage struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
			Details    struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	decode(t, answer, &out)
	if len(out.Choices) != 1 || out.Usage.Prompt != len(prompt) || len(out.Choices[0].TokenIDs) != tokens || out.Usage.Completion != tokens {
		t.Fatalf("a prompt of %d tokens, %d wanted: %s", len(prompt), tokens, answer)
	}
	return completion{out.Choices[0].TokenIDs, out.Usage.Details.Cached}
}
