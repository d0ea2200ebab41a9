package openaihttp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// TestTokenizeRests: a server that does not answer is left alone for a while; one
// whose client went away is not.
func TestTokenizeRests(t *testing.T) {
	refuse := func(context.Context) (net.Conn, error) { return nil, errors.New("refused") }
	hang := func(ctx context.Context) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	timeout := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, time.Second)
	}
	leave := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Second, cancel)
		return ctx, cancel
	}
	for _, row := range []struct {
		name  string
		dial  func(context.Context) (net.Conn, error)
		limit func(context.Context) (context.Context, context.CancelFunc)
		rests bool
	}{
		{"no connection", refuse, timeout, true},
		{"no answer", hang, timeout, true},
		{"cancelled", hang, leave, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dialled := 0
				e, err := New(Config{URL: "http://engine", Dial: func(ctx context.Context) (net.Conn, error) {
					dialled++
					return row.dial(ctx)
				}})
				if err != nil {
					t.Fatal(err)
				}
				defer e.Close()
				ask := func() error {
					ctx, cancel := row.limit(t.Context())
					defer cancel()
					_, err := e.Tokenize(ctx, tokenizeRequest(t, chatRequest, ""))
					synctest.Wait()
					return err
				}
				if err := ask(); err == nil || errors.Is(err, errResting) {
					t.Errorf("first: %v", err)
				}
				if err := ask(); err == nil || errors.Is(err, errResting) != row.rests {
					t.Errorf("second: %v", err)
				}
				if rested := dialled == 1; rested != row.rests {
					t.Errorf("dialled %d times", dialled)
				}
				time.Sleep(tokenizeRest)
				if err := ask(); err == nil || errors.Is(err, errResting) {
					t.Errorf("after a rest: %v", err)
				}
			})
		})
	}
}

// TestTokenizeAnswerLimit: an answer that is longer than the request can need is no
// answer.
func TestTokenizeAnswerLimit(t *testing.T) {
	for body, want := range map[int]int64{0: 1 << 20, 1000: 1<<20 + 16000, 64 << 20: maxTokens} {
		if got := answerLimit(body); got != want {
			t.Errorf("a body of %d bytes: %d, want %d", body, got, want)
		}
	}
	for blanks, ok := range map[int]bool{1 << 19: true, 2 << 20: false} {
		e, _ := scripted(t, func(path string, _ map[string]json.RawMessage) (int, string) {
			if path != "/tokenize" {
				return 404, ""
			}
			return 200, strings.Repeat(" ", blanks) + `{"count":1,"tokens":[1]}`
		})
		if _, err := e.Tokenize(t.Context(), tokenizeRequest(t, chatRequest, "")); (err == nil) != ok {
			t.Errorf("%d blanks: %v", blanks, err)
		}
	}
}
