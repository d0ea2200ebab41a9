package simserver

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/simengine"
)

func newServer(t testing.TB, cfg Config) *Server {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// modelled returns cfg with an engine model whose passes take that time.
func modelled(cfg Config, prefill, decode time.Duration) Config {
	cfg.Engine = &simengine.Config{Timing: simengine.Fixed{PrefillTime: prefill, DecodeTime: decode}}
	return cfg
}

// bothModes runs a test without an engine model and with one of each kind.
func bothModes(t *testing.T, cfg Config, test func(t *testing.T, cfg Config)) {
	t.Run("fixed", func(t *testing.T) { test(t, cfg) })
	for _, kind := range []simengine.Kind{simengine.VLLM, simengine.SGLang} {
		cfg.Kind = kind
		t.Run(string(kind), func(t *testing.T) { test(t, modelled(cfg, 0, 0)) })
	}
}

// serve runs s on a listener in memory until the test is over.
func serve(t testing.TB, s *Server) (*MemListener, *http.Client) {
	t.Helper()
	l := NewMemListener("sim")
	srv := &http.Server{Handler: s}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		srv.Close()
		s.Close()
		<-served
	})
	return l, &http.Client{Transport: tr}
}

// call answers one request without a network. Headers are given as "Key: value".
func call(s *Server, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		r.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// response is what the tests look at in a chunk or body.
type response struct {
	ID      string
	Object  string
	Model   string
	Choices []struct {
		Index   int
		Text    string
		Delta   *message
		Message *message
		Finish  string   `json:"finish_reason"`
		Stop    string   `json:"stop_reason"`
		TokenID []uint32 `json:"token_ids"`
		Prompt  []uint32 `json:"prompt_token_ids"`
		Logprob *struct {
			Content []struct {
				Token   string
				Logprob float64
				Bytes   []int
				Top     []struct{ Logprob float64 } `json:"top_logprobs"`
			}
			Offsets []int                 `json:"text_offset"`
			Tokens  []string              `json:"tokens"`
			Values  []*float64            `json:"token_logprobs"`
			Top     []map[string]*float64 `json:"top_logprobs"`
		} `json:"logprobs"`
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
		Details    *struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	Times *struct {
		Arrival float64 `json:"arrival_ms"`
		First   float64 `json:"first_token_ms"`
		End     float64 `json:"end_ms"`
	} `json:"stator"`
	Prompt []uint32 `json:"prompt_token_ids"`
}

type message struct{ Role, Content *string }

func unary(t *testing.T, s *Server, path, body string, headers ...string) response {
	t.Helper()
	w := call(s, "POST", path, body, headers...)
	if w.Code != 200 {
		t.Fatalf("%s %s: status %d: %s", path, body, w.Code, w.Body)
	}
	var r response
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	return r
}

// stream returns the chunks of a stream, which must end in [DONE].
func stream(t *testing.T, s *Server, path, body string, headers ...string) []response {
	t.Helper()
	w := call(s, "POST", path, body, headers...)
	if w.Code != 200 || w.Header().Get("Content-Type") != "text/event-stream; charset=utf-8" {
		t.Fatalf("%s %s: status %d, %s: %s", path, body, w.Code, w.Header().Get("Content-Type"), w.Body)
	}
	var out []response
	done := false
	for sc := bufio.NewScanner(w.Body); sc.Scan(); {
		data, ok := strings.CutPrefix(sc.Text(), "data: ")
		switch {
		case sc.Text() == "":
		case done || !ok:
			t.Fatalf("stray line %q", sc.Text())
		case data == "[DONE]":
			done = true
		default:
			var r response
			if err := json.Unmarshal([]byte(data), &r); err != nil {
				t.Fatalf("%v in %s", err, data)
			}
			out = append(out, r)
		}
	}
	if !done {
		t.Fatalf("stream without [DONE]: %v", out)
	}
	return out
}
