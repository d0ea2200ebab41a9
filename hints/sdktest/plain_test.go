package sdktest_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/hints"
)

// postJSON sends a body with net/http alone and returns the answer.
func postJSON(ctx context.Context, c *http.Client, url string, body io.Reader) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", "1") // which has net/http send it again where it may
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return string(answer), err
}

// TestRedirect checks that a call that is redirected is sent with the same hints, and
// counted once.
func TestRedirect(t *testing.T) {
	u := newUpstream(t, false)
	u.before = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			return false
		}
		http.Redirect(w, r, "/v1/chat/completions", http.StatusTemporaryRedirect)
		return true
	}
	asked := new(indices)
	client := &http.Client{Transport: hints.NewTransport(nil, silent, hints.WithLookup(asked))}
	ctx := hints.WithRun(t.Context(), "r")
	for range 2 {
		answer, err := postJSON(ctx, client, u.URL+"/old/chat/completions", strings.NewReader(`{"model":"m"}`))
		if err != nil || answer != wholes["completions"] {
			t.Fatalf("answer %q, error %v", answer, err)
		}
	}
	got := u.take()
	if diff := cmp.Diff([]int{1, 1, 2, 2}, asked.got); diff != "" || len(got) != 4 {
		t.Fatalf("%d requests; indices (-want +got)\n%s", len(got), diff)
	}
	if got[0].body != got[1].body || got[2].body != got[3].body || got[0].body == got[2].body {
		t.Errorf("bodies\n%s\n%s\n%s\n%s", got[0].body, got[1].body, got[2].body, got[3].body)
	}
}

// TestLostConnection checks that net/http can send the body again, hints included, when a
// connection that was idle turns out to be closed: the transport is not asked twice.
func TestLostConnection(t *testing.T) {
	u := newUpstream(t, false)
	var calls atomic.Int32
	u.before = func(w http.ResponseWriter, r *http.Request) bool {
		if calls.Add(1) == 2 {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return true
			}
			conn.Close()
			return true
		}
		return false
	}
	asked := new(indices)
	client := &http.Client{Transport: hints.NewTransport(u.Client().Transport, silent, hints.WithLookup(asked))}
	ctx := hints.WithRun(t.Context(), "r")
	for range 2 {
		if answer, err := postJSON(ctx, client, u.URL+"/v1/messages", strings.NewReader(`{"model":"m"}`)); err != nil || answer != wholes["messages"] {
			t.Fatalf("answer %q, error %v", answer, err)
		}
	}
	got := u.take()
	if diff := cmp.Diff([]int{1, 2}, asked.got); diff != "" || len(got) != 3 {
		t.Fatalf("%d requests; indices (-want +got)\n%s", len(got), diff)
	}
	if got[1].body != got[2].body || got[2].ext.AgentHints == nil {
		t.Errorf("sent\n%s\nand again\n%s", got[1].body, got[2].body)
	}
}

// TestSharedBody checks a request whose GetBody goes back to the beginning of the one
// reader that there is, as that of openai-go does: what cannot carry hints is still sent
// whole.
func TestSharedBody(t *testing.T) {
	u := newUpstream(t, false)
	transport := hints.NewTransport(nil, silent)
	client := openaiClient(&http.Client{Transport: transport}, u.URL)
	for _, body := range []string{`["not an object"]`, `{"model":"m"}`, `{"cut off":`} {
		var answer *http.Response
		err := client.Post(t.Context(), "chat/completions", bytes.NewReader([]byte(body)), &answer)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		got := u.take()
		if len(got) != 1 || !strings.HasPrefix(got[0].body, strings.TrimSuffix(body, "}")) {
			t.Errorf("of %s there came %+v", body, got)
		}
	}
	if got := transport.Stats(); got.Hinted != 1 || got.Untouched["not_json"] != 2 {
		t.Errorf("stats %+v", got)
	}
}

// TestUpload checks that a body that is written while the answer comes passes as it is.
func TestUpload(t *testing.T) {
	lines := make(chan string)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		c.EnableFullDuplex()
		c.Flush()
		for s := bufio.NewScanner(r.Body); s.Scan(); {
			lines <- s.Text()
		}
		close(lines)
	}))
	defer srv.Close()
	transport := hints.NewTransport(nil, silent)
	body, w := io.Pipe()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer w.Close()
	wg.Go(func() {
		resp, err := (&http.Client{Transport: transport}).Post(srv.URL+"/v1/messages", "application/json", body)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
	})
	for _, part := range []string{`{"model":`, `"m"}`} {
		if _, err := io.WriteString(w, part+"\n"); err != nil {
			t.Fatal(err)
		}
		if got := <-lines; got != part {
			t.Errorf("got %q, want %q", got, part)
		}
	}
	w.Close()
	if rest, ok := <-lines; ok {
		t.Errorf("there came %q as well", rest)
	}
	if n := transport.Stats().Untouched["streamed"]; n != 1 {
		t.Errorf("%d counted as streamed", n)
	}
}

// TestUnreachable checks that an error of the transport below arrives as it is.
func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	url := "http://" + l.Addr().String() + "/v1/messages"
	_, want := postJSON(t.Context(), http.DefaultClient, url, strings.NewReader(`{}`))
	_, got := postJSON(t.Context(), &http.Client{Transport: hints.NewTransport(nil, silent)}, url, strings.NewReader(`{}`))
	if want == nil || got == nil || got.Error() != want.Error() {
		t.Errorf("error %v, want %v", got, want)
	}
}
