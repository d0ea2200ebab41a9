package hints_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stator-ai/stator/hints"
)

// BenchmarkRoundTrip adds hints to requests that are in memory, up to where the last byte
// is handed on. The bench command has the same with requests of agents, as ratios to
// json.Valid and to a copy.
//
//	BenchmarkRoundTrip/short-2      312561     1956 ns/op    29.14 MB/s    1976 B/op  19 allocs/op
//	BenchmarkRoundTrip/prose-2       13219    51853 ns/op  3862.97 MB/s  206712 B/op  19 allocs/op
//	BenchmarkRoundTrip/escapes-2      4147   144874 ns/op  1272.04 MB/s  190328 B/op  19 allocs/op
func BenchmarkRoundTrip(b *testing.B) {
	for _, c := range []struct{ name, text string }{
		{"short", "Hi"},
		{"prose", strings.Repeat("The train to the coast leaves at noon, and nobody knows who will be on it. ", 2670)},
		{"escapes", strings.Repeat("\tif s == \"\" {\n\t\treturn fmt.Errorf(\"%q: no name\", path)\n\t}\n", 2670)},
	} {
		text, err := json.Marshal(c.text)
		if err != nil {
			b.Fatal(err)
		}
		body := fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":%s}]}`, text)
		b.Run(c.name, func(b *testing.B) {
			ctx := hints.EnterFunction(hints.WithRun(b.Context(), "run"), "agent")
			template, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1/v1/chat/completions", bytes.NewReader(body))
			if err != nil {
				b.Fatal(err)
			}
			t := hints.NewTransport(swallow{}, hints.WithLogger(slog.New(slog.DiscardHandler)))
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				req := *template
				if req.Body, err = template.GetBody(); err != nil {
					b.Fatal(err)
				}
				if _, err := t.RoundTrip(&req); err != nil {
					b.Fatal(err)
				}
			}
			if s := t.Stats(); s.Hinted != uint64(b.N) {
				b.Errorf("%d of %d requests got hints", s.Hinted, b.N)
			}
		})
	}
}

// BenchmarkPrefixes counts calls of prefixes that are all new, once there are as many as a
// transport knows.
//
//	BenchmarkPrefixes-2   165163   4091 ns/op   2400 B/op   25 allocs/op
func BenchmarkPrefixes(b *testing.B) {
	t := hints.NewTransport(swallow{}, hints.WithLogger(slog.New(slog.DiscardHandler)))
	body := []byte(`{"model":"m"}`)
	n := 0
	call := func() {
		n++
		ctx := hints.WithPrefixID(b.Context(), fmt.Sprintf("prefix-%d", n))
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1/v1/chat/completions", bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := t.RoundTrip(req); err != nil {
			b.Fatal(err)
		}
	}
	for range hints.DefaultMaxPrefixes {
		call()
	}
	b.ReportAllocs()
	for b.Loop() {
		call()
	}
}

// swallow has a body write itself to nowhere, as net/http has it write to a connection.
type swallow struct{}

var swallowed = http.Response{StatusCode: http.StatusOK, Body: http.NoBody}

func (swallow) RoundTrip(req *http.Request) (*http.Response, error) {
	if _, err := req.Body.(io.WriterTo).WriteTo(io.Discard); err != nil {
		return nil, err
	}
	return &swallowed, req.Body.Close()
}
