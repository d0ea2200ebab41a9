package frontend

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/trace"
)

// canned is an engine that answers at once, from memory.
type canned struct{ body string }

func (c canned) Open(context.Context, engine.Target, *engine.Request) (*engine.Response, error) {
	return &engine.Response{
		Status: http.StatusOK,
		Header: http.Header{"Content-Type": {"application/json"}},
		Body:   io.NopCloser(strings.NewReader(c.body)),
		Sent:   func() bool { return true },
	}, nil
}

func (c canned) Identify(context.Context) (*engine.Info, error) {
	return &engine.Info{Kind: "canned", Models: []engine.Model{{ID: "m", Tokenizer: "bytes", BlockSize: 16}}}, nil
}

func (c canned) Probe(context.Context) error { return nil }
func (c canned) Close()                      {}

// discard is a trace that is not kept.
type discard struct{}

func (discard) Write(*trace.Row) bool     { return true }
func (discard) Do(f func(), _ int64) bool { return true }

// BenchmarkGenerate is what a request costs in our own code, without sockets.
func BenchmarkGenerate(b *testing.B) {
	const answer = `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}`
	for _, row := range []struct {
		size int
		rows RowWriter
	}{{70, nil}, {200_000, nil}, {70, discard{}}, {200_000, discard{}}} {
		b.Run(fmt.Sprintf("body=%d/trace=%v", row.size, row.rows != nil), func(b *testing.B) {
			r := router.New(router.Config{})
			b.Cleanup(r.Close)
			if err := r.Add(router.Spec{ID: 1, Engine: canned{answer}}); err != nil {
				b.Fatal(err)
			}
			r.WaitChecked(b.Context())
			s := New(Config{Router: r, Trace: row.rows})
			const head = `{"model":"m","messages":[{"role":"user","content":"`
			body := head + strings.Repeat("x", max(0, row.size-len(head)-4)) + `"}]}`
			b.ReportAllocs()
			for b.Loop() {
				req := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
				req.Header["Content-Type"] = []string{"application/json"}
				w := httptest.NewRecorder()
				s.ServeHTTP(w, req)
				if w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
			}
		})
	}
}
