package simserver

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/qwen3"
)

// TestLargePromptsTakeTurns: while others are at it a large prompt waits, for as long
// as somebody waits for it, and a small one does not.
func TestLargePromptsTakeTurns(t *testing.T) {
	s := newServer(t, Config{ContextLength: 1 << 20})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	large := strings.Repeat("word ", largeBody/5)
	for _, row := range []struct{ path, body string }{
		{chatPath, `{"max_tokens":1,"messages":[{"role":"user","content":"$"}]}`},
		{textPath, `{"max_tokens":1,"prompt":"$"}`},
		{textPath, `{"max_tokens":1,"prompt":["a","$"]}`},
		{"/tokenize", `{"prompt":"$"}`},
		{"/tokenize", `{"messages":[{"role":"user","content":"$"}]}`},
	} {
		post := func(ctx context.Context, content string) int {
			r := httptest.NewRequestWithContext(ctx, "POST", row.path, strings.NewReader(strings.Replace(row.body, "$", content, 1)))
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			return w.Code
		}
		for range cap(turns) {
			turns <- struct{}{}
		}
		if got := post(gone, large); got != 503 {
			t.Errorf("%s: status %d for a large prompt that nobody waits for, want 503", row.path, got)
		}
		if got := post(t.Context(), "small"); got != 200 {
			t.Errorf("%s: status %d for a small prompt, want 200", row.path, got)
		}
		for range cap(turns) {
			<-turns
		}
		if got := post(t.Context(), large); got != 200 {
			t.Errorf("%s: status %d for a large prompt, want 200", row.path, got)
		}
		if len(turns) != 0 {
			t.Fatalf("%s: %d turns are not given back", row.path, len(turns))
		}
	}
}

// TestOwnModel: what an engine remembers is not what a frontend remembers.
func TestOwnModel(t *testing.T) {
	if newServer(t, Config{}).vocab.model == tokenize.Model(qwen3.Model()) {
		t.Error("the model is shared")
	}
}
