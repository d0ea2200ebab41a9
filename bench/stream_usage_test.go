package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
	"github.com/stator-ai/stator/internal/openai"
)

func lines(events ...string) [][]byte {
	var out [][]byte
	for _, ev := range events {
		out = append(out, []byte("data: "+ev+"\n\n"))
	}
	return out
}

func TestSplitUsage(t *testing.T) {
	plain := lines(`{"n":1}`, `{"n":2}`, "[DONE]")
	asked := lines(`{"n":1,"usage":null}`, `{"n":2,"usage":null}`, `{"usage":{"prompt_tokens":1}}`, "[DONE]")
	got, err := splitUsage(plain, asked)
	if err != nil {
		t.Fatal(err)
	}
	want := &usageStreams{
		asked:  [][]byte{asked[0], slices.Concat(asked[1:]...)},
		hidden: [][]byte{asked[0], slices.Concat(asked[1], asked[3])},
		plain:  [][]byte{plain[0], slices.Concat(plain[1:]...)},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(usageStreams{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for name, bad := range map[string][][]byte{
		"no more events": plain,
		"no usage":       lines(`{"n":1}`, `{"n":2}`, `{"n":3}`, "[DONE]"),
	} {
		if _, err := splitUsage(plain, bad); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestUsageChat compares the request that asks for usage with what the adapter of an
// engine makes of the one that does not.
func TestUsageChat(t *testing.T) {
	body, err := openai.ParseObject(usageChat("someone", false))
	if err != nil {
		t.Fatal(err)
	}
	edits := openaihttp.UsageEdits(nil, &engine.Request{Body: &body, Wishes: engine.Wishes{Usage: true}})
	if diff := cmp.Diff(string(usageChat("someone", true)), string(body.Edit(edits).Bytes())); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestLockstep runs streams through a proxy that hides an event at the end, and through
// one that hides more.
func TestLockstep(t *testing.T) {
	e, _ := newTestEngine(t)
	sent := [][]byte{[]byte("data: 1\n\n"), []byte("data: 2\n\n"), []byte("data: usage\n\ndata: [DONE]\n\n")}
	want := [][]byte{sent[0], sent[1], []byte("data: [DONE]\n\n")}
	for name, hide := range map[string]struct{ what, want string }{
		"hidden":          {"data: usage\n\n", ""},
		"not hidden":      {"nothing", errMerged.Error()},
		"too much hidden": {"data: usage\n\ndata: [DONE]\n\n", "the stream ended after 2 of 3 events"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Body = io.NopCloser(strings.NewReader("asked"))
				e.ServeHTTP(&hider{w, hide.what}, r)
			}))
			defer srv.Close()
			c, err := dial(context.Background(), srv.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.close()
			err = lockstep(e, []byte("plain"), []byte("asked"), sent, want)(c)
			if got := errorText(err); got != hide.want {
				t.Errorf("got %q, want %q", got, hide.want)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// hider leaves something out of what is written.
type hider struct {
	http.ResponseWriter
	what string
}

func (h *hider) Unwrap() http.ResponseWriter { return h.ResponseWriter }

func (h *hider) Write(b []byte) (int, error) {
	if rest := strings.Replace(string(b), h.what, "", 1); rest != "" {
		if _, err := io.WriteString(h.ResponseWriter, rest); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}
