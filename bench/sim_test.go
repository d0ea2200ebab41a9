package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBareHandler(t *testing.T) {
	for _, tc := range []struct{ contentType, answer string }{
		{"application/json", `{"id":"chatcmpl-1"}`},
		{"text/event-stream; charset=utf-8", "data: {\"a\":1}\n\ndata: {\"a\":2}\n\ndata: [DONE]\n\n"},
	} {
		file := filepath.Join(t.TempDir(), "answer")
		if err := os.WriteFile(file, []byte(tc.answer), 0o600); err != nil {
			t.Fatal(err)
		}
		h, err := bareHandler(file)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader("{}")))
		if w.Body.String() != tc.answer || w.Header().Get("Content-Type") != tc.contentType {
			t.Errorf("%s %q, want %s %q", w.Header().Get("Content-Type"), w.Body, tc.contentType, tc.answer)
		}
	}
	if _, err := bareHandler(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no error without a file")
	}
}

func TestDateless(t *testing.T) {
	const in, want = `{"created":1700000000,"x":1}{"created":17}`, `{"created":0000000000,"x":1}{"created":00}`
	if got := dateless([]byte(in)); string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
