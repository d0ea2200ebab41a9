// Package tracetest gives tests and benchmarks a real trace. The product does not
// import it.
package tracetest

import (
	"bytes"
	_ "embed"
	"testing"

	"github.com/stator-ai/stator/internal/trace"
)

//go:embed testdata/mooncake-conversation.jsonl.zst
var conversation []byte

// ConversationFile returns the file behind [Conversation], compressed with zstd.
func ConversationFile() []byte { return bytes.Clone(conversation) }

// Conversation returns Mooncake's conversation trace: 12,031 requests of one hour
// in blocks of 512 tokens. Each call reads it anew, so that the caller may change
// it.
func Conversation(tb testing.TB) *trace.Trace {
	tb.Helper()
	t, err := trace.Read(bytes.NewReader(conversation), trace.ReadOptions{})
	if err != nil {
		tb.Fatalf("conversation trace: %v", err)
	}
	return t
}
