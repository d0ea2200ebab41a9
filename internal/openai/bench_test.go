package openai

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
)

// chatBody returns a chat request of about size bytes: English prose, code with
// escapes, and a little that is not ASCII, as agents send it.
func chatBody(size int) []byte {
	const prose = "The scheduler keeps a ledger of the tokens promised to each worker, and the cost of a request is what it adds to that. "
	const code = `func main() {\n\tfmt.Println(\"hello, world\")\n}\n`
	const other = "Grüße aus Köln, 東京は晴れです。 "
	var b strings.Builder
	b.WriteString(`{"model":"m","messages":[{"role":"user","content":"`)
	for i := 0; b.Len() < size-64; i++ {
		switch {
		case i%6 == 0 && b.Len()+len(`"},{"role":"assistant","content":"`)+64 < size:
			b.WriteString(`"},{"role":"assistant","content":"`)
		case i%10 == 7:
			b.WriteString(other)
		case i%3 == 1:
			b.WriteString(code)
		default:
			b.WriteString(prose)
		}
	}
	b.WriteString(`"}],"stream":true,"temperature":0.7}`)
	return []byte(b.String())
}

// Sample results, one core of a 2-core Xeon VM, best of 18:
//
//	BenchmarkParseRequest/70B            421 ns/op      688 B/op  2 allocs/op
//	BenchmarkParseRequest/4KB           1794 ns/op      688 B/op  2 allocs/op
//	BenchmarkParseRequest/200KB        63530 ns/op      688 B/op  2 allocs/op
//	BenchmarkParseRequest/tokens=16384   987 µs/op      688 B/op  2 allocs/op
//
// Large bodies cost one search for quotes, by the standard library.
func BenchmarkParseRequest(b *testing.B) {
	bodies := []struct {
		name string
		body []byte
	}{
		{"70B", []byte(`{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}`)},
		{"4KB", chatBody(4 << 10)},
		{"200KB", chatBody(200 << 10)},
	}
	for _, tc := range bodies {
		b.Run(tc.name, func(b *testing.B) {
			b.SetBytes(int64(len(tc.body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseRequest(Chat, tc.body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("tokens=16384", func(b *testing.B) {
		ids := make([]uint32, 16384)
		for i := range ids {
			ids[i] = uint32(i * 9)
		}
		body := append(AppendTokenIDs([]byte(`{"model":"m","prompt":`), ids), '}')
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ParseRequest(Completions, body); err != nil {
				b.Fatal(err)
			}
		}
	})
}

const benchChunk = `{"id":"chatcmpl-7d5b3c2a9f8e4d1b","object":"chat.completion.chunk","created":1763164800,"model":"Qwen/Qwen3-32B","choices":[{"index":0,"delta":{"content":" scheduler"},"logprobs":null,"finish_reason":null,"token_ids":null}],"usage":null}`

// Sample result, as above: 353 ns/op, 0 allocs/op.
func BenchmarkParseChunk(b *testing.B) {
	data := []byte(benchChunk)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	var info ChunkInfo
	for b.Loop() {
		if err := ParseChunk(data, &info); err != nil {
			b.Fatal(err)
		}
	}
}

// Sample result, as above: 20 µs for 256 events (78 ns each) with LF, 24 µs with
// CRLF, 0 allocs/op.
func BenchmarkScanner(b *testing.B) {
	for _, eol := range []string{"\n", "\r\n"} {
		event := fmt.Sprintf("data: %s%s%s", benchChunk, eol, eol)
		stream := []byte(strings.Repeat(event, 256))
		b.Run(fmt.Sprintf("eol=%q", eol), func(b *testing.B) {
			b.SetBytes(int64(len(stream)))
			b.ReportAllocs()
			buf := make([]byte, 16<<10)
			r := bytes.NewReader(stream)
			for b.Loop() {
				r.Reset(stream)
				s := NewScanner(buf, 1<<20)
				events := 0
				for s.Fill(r) != io.EOF {
					for ev, ok := s.Next(); ok; ev, ok = s.Next() {
						events += min(len(ev.Data), 1)
					}
				}
				if events != 256 {
					b.Fatalf("events = %d, want 256", events)
				}
			}
			b.ReportMetric(float64(b.N)*256/b.Elapsed().Seconds(), "events/s")
		})
	}
}
