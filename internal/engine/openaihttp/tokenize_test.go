package openaihttp

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/simserver"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/qwen3"
)

const chatRequest = `{"stream":true,"messages":[{"role":"user","content":"hi"}],"max_tokens":3,"tools":[],"chat_template_kwargs":{"enable_thinking":false}}`

func tokenizeRequest(t *testing.T, body string, prompt string) *engine.TokenizeRequest {
	t.Helper()
	o, err := openai.ParseObject([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	r := &engine.TokenizeRequest{Model: "m", Body: &o}
	if prompt != "" {
		r.Prompt = openai.Value(prompt)
	}
	return r
}

// TestTokenizeSimulated: a simulated engine gives the tokens of the model it says it
// has.
func TestTokenizeSimulated(t *testing.T) {
	sim, err := simserver.New(simserver.Config{Model: "m", ContextLength: 4096})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(sim)
	defer srv.Close()
	e := open(t, srv.URL).(*Engine)
	defer e.Close()
	const messages = `[{"role":"user","content":"Grüße 世界"}]`
	chat, err := qwen3.Model().Chat(tokenize.Chat{Messages: []byte(messages), Kwargs: []byte(`{"enable_thinking":false}`)}, tokenize.Hashing{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := qwen3.Model().Complete([]byte("one\n<|im_end|>"), false, tokenize.Hashing{})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		r    *engine.TokenizeRequest
		want []uint32
	}{
		{tokenizeRequest(t, `{"chat_template_kwargs":{"enable_thinking":false},"messages":`+messages+`}`, ""), chat.IDs},
		{tokenizeRequest(t, `{"prompt":"one"}`, `"one\n<|im_end|>"`), text.IDs},
	} {
		got, err := e.Tokenize(t.Context(), row.r)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&engine.TokenizeResult{IDs: row.want, MaxModelLen: 4096}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// scripted answers routes by a function and notes what it was asked.
func scripted(t *testing.T, answer func(path string, body map[string]json.RawMessage) (int, string)) (*Engine, *[]string) {
	t.Helper()
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		asked = append(asked, r.URL.Path+" "+string(raw))
		var body map[string]json.RawMessage
		if err := json.Unmarshal(raw, &body); err != nil {
			t.Errorf("%s: %v: %s", r.URL.Path, err, raw)
		}
		status, text := answer(r.URL.Path, body)
		w.WriteHeader(status)
		io.WriteString(w, text)
	}))
	t.Cleanup(srv.Close)
	e := open(t, srv.URL).(*Engine)
	t.Cleanup(e.Close)
	return e, &asked
}

func TestTokenizeLikeVLLM(t *testing.T) {
	e, asked := scripted(t, func(string, map[string]json.RawMessage) (int, string) {
		return 200, `{"count":3,"max_model_len":1000000000000000019884624838656,"tokens":[1,2,3],"token_strs":null}`
	})
	want := &engine.TokenizeResult{IDs: []uint32{1, 2, 3}, MaxModelLen: 1<<31 - 1}
	for _, r := range []*engine.TokenizeRequest{
		tokenizeRequest(t, chatRequest, ""),
		tokenizeRequest(t, `{"prompt":["a\u0000b"],"add_special_tokens":false,"n":2}`, `"a\u0000b"`),
	} {
		got, err := e.Tokenize(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff([]string{
		`/tokenize {"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[],"chat_template_kwargs":{"enable_thinking":false}}`,
		`/tokenize {"model":"m","prompt":"a\u0000b","add_special_tokens":false}`,
	}, *asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// likeLlama is llama.cpp's pair of routes: that for ids ignores what it does not
// know.
func likeLlama(path string, body map[string]json.RawMessage) (int, string) {
	switch {
	case path == "/apply-template":
		return 200, `{"prompt":"<user>\"hi\""}`
	case body["content"] == nil:
		return 200, `{"tokens":[]}`
	case string(body["content"]) == `"<user>\"hi\""`:
		return 200, `{"tokens":[7,8]}`
	default:
		return 200, `{"tokens":[9]}`
	}
}

func TestTokenizeLikeLlama(t *testing.T) {
	e, asked := scripted(t, likeLlama)
	for i, row := range []struct {
		r    *engine.TokenizeRequest
		want *engine.TokenizeResult
	}{
		{tokenizeRequest(t, chatRequest, ""), &engine.TokenizeResult{IDs: []uint32{7, 8}, Text: []byte(`<user>"hi"`)}},
		{tokenizeRequest(t, `{"prompt":"x"}`, `"x"`), &engine.TokenizeResult{IDs: []uint32{9}}},
	} {
		got, err := e.Tokenize(t.Context(), row.r)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%d (-want +got):\n%s", i, diff)
		}
	}
	const chat = `{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[],"chat_template_kwargs":{"enable_thinking":false}}`
	if diff := cmp.Diff([]string{
		"/tokenize " + chat, // once, to find out
		"/apply-template " + chat,
		`/tokenize {"content":"<user>\"hi\"","add_special":true,"parse_special":true}`,
		`/tokenize {"content":"x","add_special":true,"parse_special":true}`,
	}, *asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// TestTokenizeRefused: a request that is at fault says nothing about the server, and
// what the server says about it, which may quote the prompt, is not repeated.
func TestTokenizeRefused(t *testing.T) {
	bad := true
	e, asked := scripted(t, func(path string, body map[string]json.RawMessage) (int, string) {
		switch {
		case path != "/tokenize":
			return 404, `{"detail":"Not Found"}`
		case bad || body["messages"] == nil && body["prompt"] == nil:
			return 400, `{"error":{"message":"secret"}}`
		}
		return 200, `{"count":1,"tokens":[1]}`
	})
	_, err := e.Tokenize(t.Context(), tokenizeRequest(t, chatRequest, ""))
	if err == nil || !strings.Contains(err.Error(), "/tokenize: status 400") || !strings.Contains(err.Error(), "/apply-template: status 404") || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v", err)
	}
	bad = false
	for range 2 {
		if got, err := e.Tokenize(t.Context(), tokenizeRequest(t, chatRequest, "")); err != nil || len(got.IDs) != 1 {
			t.Errorf("got %v, %v", got, err)
		}
	}
	if n := len(*asked); n != 4 {
		t.Errorf("asked %d times, want 2 for the bad request and 1 for each good one: %q", n, *asked)
	}
}

// TestTokenizeFindsOutAgain: a server that was replaced by one of the other style.
func TestTokenizeFindsOutAgain(t *testing.T) {
	llama := false
	e, _ := scripted(t, func(path string, body map[string]json.RawMessage) (int, string) {
		if llama {
			return likeLlama(path, body)
		}
		if path != "/tokenize" {
			return 404, ""
		}
		return 200, `{"count":1,"tokens":[1]}`
	})
	for _, row := range []struct {
		llama bool
		want  int // tokens
	}{{true, 2}, {false, 0}, {false, 1}, {true, 0}, {true, 2}} {
		llama = row.llama
		got, err := e.Tokenize(t.Context(), tokenizeRequest(t, chatRequest, ""))
		if row.want == 0 && err == nil || row.want > 0 && (err != nil || len(got.IDs) != row.want) {
			t.Errorf("%+v: got %v, %v", row, got, err)
		}
	}
}

func TestTokenizeNonsense(t *testing.T) {
	for _, answer := range []string{``, `[]`, `{"count":2,"tokens":[1]}`, `{"count":1,"tokens":[-1]}`, `{"count":1,"tokens":"x"}`} {
		e, _ := scripted(t, func(path string, _ map[string]json.RawMessage) (int, string) {
			if path != "/tokenize" {
				return 200, `{}`
			}
			return 200, answer
		})
		if got, err := e.Tokenize(t.Context(), tokenizeRequest(t, chatRequest, "")); err == nil {
			t.Errorf("%s: got %v, want an error", answer, got)
		}
	}
}
