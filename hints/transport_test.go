package hints

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/stator-ai/stator/trie"
)

// refused sends a body that must not reach the wire and returns the error.
func refused(t *testing.T, tr *Transport, w *wire, ctx context.Context) string {
	t.Helper()
	sent := len(w.bodies)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, chatURL, strings.NewReader(`{"model":"test"}`))
	if err != nil {
		t.Fatal(err)
	}
	closed := &closeCounter{ReadCloser: req.Body}
	req.Body = closed
	_, err = tr.RoundTrip(req)
	if err == nil {
		t.Fatal("no error")
	}
	if len(w.bodies) != sent {
		t.Errorf("sent %s", w.bodies[sent])
	}
	if closed.n == 0 {
		t.Error("the body was not closed")
	}
	return err.Error()
}

type closeCounter struct {
	io.ReadCloser
	n int
}

func (c *closeCounter) Close() error { c.n++; return c.ReadCloser.Close() }

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%s\nhas no %s", text, p)
		}
	}
}

func TestT9AboveMaximum(t *testing.T) {
	w := new(wire)
	tr := NewTransport(w, quiet, WithMaxSensitivity(1), WithFailurePolicy(Closed))
	contains(t, refused(t, tr, w, t.Context()), "latency_sensitivity", "exceeds", "max_sensitivity")

	open := NewTransport(w, quiet, WithMaxSensitivity(1))
	contains(t, post(t, open, w, t.Context(), `{}`), `"latency_sensitivity":1.0`, `"priority":1`)
	if got := open.Stats().Clamped; got != 1 {
		t.Errorf("clamped %d", got)
	}
}

func TestT10BelowZero(t *testing.T) {
	w := new(wire)
	level := -1
	lookup := predicts(1, 1, 1, 1)
	lookup.LatencySensitivity = &level
	tr := NewTransport(w, quiet, WithLookup(lookup), WithFailurePolicy(Closed))
	contains(t, refused(t, tr, w, t.Context()), "latency_sensitivity", "must be >= 0")
}

func TestT11NothingPredicted(t *testing.T) {
	for _, c := range []struct {
		remaining, osl, iat float64
		name                string
		want                string // with the static value in place of it
	}{
		{0, 2500, 50, "total_requests", `"osl":2500,"priority":2,"prefix_id":"r-d0","total_requests":10,"iat":50}`},
		{25, 0, 50, "osl", `"osl":512,"priority":2,"prefix_id":"r-d0","total_requests":25,"iat":50}`},
		{25, 2500, 0, "iat", `"osl":2500,"priority":2,"prefix_id":"r-d0","total_requests":25,"iat":250}`},
	} {
		ctx := WithRun(t.Context(), "r")
		w := new(wire)
		lookup := WithLookup(predicts(4, c.remaining, c.osl, c.iat))
		tr := NewTransport(w, quiet, lookup, WithCompat(NAT15), WithFailurePolicy(Closed))
		contains(t, refused(t, tr, w, ctx), c.name, "must be >= 1")
		if n, _ := tr.prefixes.next("r-d0", false); n != 1 {
			t.Errorf("%s: a call that failed was counted", c.name)
		}
		tr = NewTransport(w, quiet, lookup, WithCompat(NAT18), WithFailurePolicy(Closed))
		contains(t, post(t, tr, w, ctx, `{}`), c.want)
	}
}

func TestT14FirstOnly(t *testing.T) {
	w := new(wire)
	tr := NewTransport(w, quiet, WithCacheControl(Ephemeral, FirstOnly))
	a, b := WithPrefixID(t.Context(), "a"), WithPrefixID(t.Context(), "b")
	post(t, tr, w, a, `not JSON`) // which does not count
	for i, ctx := range []context.Context{a, a, b, a} {
		got := post(t, tr, w, ctx, `{}`)
		contains(t, got, "agent_hints")
		if pinned := strings.Contains(got, "cache_control"); pinned != (i == 0 || i == 2) {
			t.Errorf("call %d: %s", i, got)
		}
	}
}

func TestT15Trie(t *testing.T) {
	metrics := func(v float64) trie.Metrics { return trie.Metrics{SampleCount: 2, Mean: v, P90: v} }
	prediction := func(remaining, osl, iat float64) *trie.Prediction {
		return &trie.Prediction{RemainingCalls: metrics(remaining), OutputTokens: metrics(osl), InterArrivalMS: metrics(iat)}
	}
	lookup := &trie.Trie{Root: &trie.Node{
		Name: "root", AnyIndex: prediction(9, 90, 900),
		Children: []*trie.Node{{Name: "my_workflow", Children: []*trie.Node{
			{Name: "react_agent", AnyIndex: prediction(3, 200, 500)},
		}}},
	}}
	run := WithRun(t.Context(), "r")
	agent := EnterFunction(EnterFunction(run, "my_workflow"), "react_agent")
	unknown := EnterFunction(run, "elsewhere")
	for _, c := range []struct {
		name   string
		lookup *trie.Trie
		ctx    context.Context
		nat    string // as NeMo Agent Toolkit has it: the total is what remains
		total  string
	}{
		{"inside", lookup, agent, `"total_requests":3,"iat":500`, `"total_requests":4,"iat":500`},
		{"unknown path", lookup, unknown, `"total_requests":9,"iat":900`, `"total_requests":10,"iat":900`},
		{"no function", lookup, run, `"total_requests":9,"iat":900`, `"total_requests":10,"iat":900`},
		{"empty trie", &trie.Trie{Root: &trie.Node{Name: "root"}}, agent, `"total_requests":10,"iat":250`, `"total_requests":10,"iat":250`},
	} {
		w := new(wire)
		contains(t, post(t, NewTransport(w, quiet, WithLookup(c.lookup), WithCompat(NAT15)), w, c.ctx, `{}`), c.nat)
		contains(t, post(t, NewTransport(w, quiet, WithLookup(c.lookup)), w, c.ctx, `{}`), c.total)
	}
	w := new(wire)
	contains(t, post(t, NewTransport(w, quiet, WithLookup(lookup)), w, agent, `{}`), `"osl":200`)
}

// numbered predicts as many output tokens as the call's number.
type numbered struct{}

func (numbered) Find(_ []string, call int) (*trie.Prediction, bool) {
	return &predicts(1, 1, float64(call), 1).Prediction, true
}

// Calls are predicted by their number in the invocation of a function, whatever their
// prefix ids are.
func TestCallIndex(t *testing.T) {
	w := new(wire)
	tr := NewTransport(w, quiet, WithLookup(numbered{}))
	run := WithRun(t.Context(), "r")
	f, again := EnterFunction(run, "f"), EnterFunction(run, "f")
	for _, c := range []struct {
		ctx   context.Context
		index int
		total int
	}{
		{f, 1, 2}, {f, 2, 3}, {again, 1, 4}, {f, 3, 5}, {WithPrefixID(f, "x"), 4, 2}, {run, 1, 2}, {run, 2, 3}, {t.Context(), 1, 2}, {t.Context(), 2, 2},
	} {
		contains(t, post(t, tr, w, c.ctx, `{}`), fmt.Sprintf(`"osl":%d,`, c.index), fmt.Sprintf(`"total_requests":%d,`, c.total))
	}
	nat := NewTransport(w, quiet, WithLookup(numbered{}), WithCompat(NAT18))
	contains(t, post(t, nat, w, f, `{}`), `"osl":1,`)
	contains(t, post(t, nat, w, again, `{}`), `"osl":2,`)
}

type panics struct{}

func (panics) Find([]string, int) (*trie.Prediction, bool) { panic("no") }

func TestLookupPanics(t *testing.T) {
	w := new(wire)
	var log strings.Builder
	tr := NewTransport(w, WithLookup(panics{}), WithLogger(textLogger(&log)))
	for range 3 {
		contains(t, post(t, tr, w, t.Context(), `{}`), `"osl":512,`)
	}
	if s := tr.Stats(); s.LookupFailures != 3 || s.Hinted != 3 {
		t.Errorf("%+v", s)
	}
	if n := strings.Count(log.String(), "lookup"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
}

func TestRetriesKeepTheirPlace(t *testing.T) {
	send := func(tr *Transport, w *wire, ctx context.Context, change func(*http.Request)) string {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, chatURL, strings.NewReader(`{}`))
		change(req)
		if _, err := tr.RoundTrip(req); err != nil {
			t.Fatal(err)
		}
		return w.bodies[len(w.bodies)-1]
	}
	first := func(r *http.Request) { r.Header.Set("X-Stainless-Retry-Count", "0") }
	for name, change := range map[string]func(*http.Request){
		"SDK":      func(r *http.Request) { r.Header.Set("X-Stainless-Retry-Count", "2") },
		"redirect": func(r *http.Request) { r.Response = new(http.Response) },
	} {
		w := new(wire)
		tr := NewTransport(w, quiet, WithLookup(numbered{}))
		contains(t, send(tr, w, t.Context(), first), `"osl":1,`)
		contains(t, send(tr, w, t.Context(), change), `"osl":1,`)
		contains(t, send(tr, w, t.Context(), first), `"osl":2,`)
		if got := tr.Stats().Retried; got != 1 {
			t.Errorf("%s: %d retries", name, got)
		}
	}
	w := new(wire)
	tr := NewTransport(w, quiet, WithLookup(numbered{}))
	call := WithCall(t.Context())
	for range 3 {
		contains(t, send(tr, w, call, first), `"osl":1,`)
	}
	contains(t, send(tr, w, WithCall(t.Context()), first), `"osl":2,`)
	// What is entered in a call is none of its attempts, nor is what another transport sends.
	contains(t, send(tr, w, EnterFunction(call, "f"), first), `"osl":1,`, `"total_requests":2,`)
	contains(t, send(tr, w, WithPrefixID(call, "p"), first), `"prefix_id":"p","total_requests":2,`)
	contains(t, send(tr, w, WithRun(call, "r"), first), `"prefix_id":"r-d0","total_requests":2,`)
	contains(t, send(NewTransport(w, quiet), w, call, first), "cache_control")
}

// An attempt that is refused does not take back the one before it.
func TestClosedSecondAttempt(t *testing.T) {
	w := new(wire)
	tr := NewTransport(w, quiet, WithFailurePolicy(Closed), WithMaxSensitivity(5), WithLookup(numbered{}))
	call := WithCall(WithRun(t.Context(), "r"))
	contains(t, post(t, tr, w, call, `{}`), `"osl":1,`)
	refused(t, tr, w, WithLatencySensitivity(call, 6))
	contains(t, post(t, tr, w, call, `{}`), `"osl":1,`)
	contains(t, post(t, tr, w, WithRun(t.Context(), "r"), `{}`), `"osl":2,`)
}

func TestMatcherPanics(t *testing.T) {
	w := new(wire)
	tr := NewTransport(w, quiet, WithMatch(nil), WithLogger(nil), WithMatch(func(*http.Request) bool { panic("no") }))
	if got := post(t, tr, w, t.Context(), `{}`); got != `{}` || tr.Stats().Untouched["unmatched"] != 1 {
		t.Errorf("sent %s; %+v", got, tr.Stats())
	}
}

func TestClosedFailureLeavesCallUncounted(t *testing.T) {
	w := new(wire)
	tr := NewTransport(w, quiet, WithFailurePolicy(Closed), WithMaxSensitivity(5), WithLookup(numbered{}))
	call := WithCall(t.Context())
	refused(t, tr, w, WithLatencySensitivity(call, 6))
	contains(t, post(t, tr, w, call, `{}`), `"osl":1,`)
}

// A retry that is refused, too, takes no number either.
func TestClosedRetry(t *testing.T) {
	w := new(wire)
	tr := NewTransport(w, quiet, WithFailurePolicy(Closed), WithMaxSensitivity(5), WithLookup(numbered{}))
	for _, attempt := range []string{"0", "1", "2"} {
		req, _ := http.NewRequestWithContext(WithLatencySensitivity(t.Context(), 7), http.MethodPost, chatURL, strings.NewReader(`{}`))
		req.Header.Set("X-Stainless-Retry-Count", attempt)
		if _, err := tr.RoundTrip(req); err == nil {
			t.Fatal("sent")
		}
	}
	contains(t, post(t, tr, w, t.Context(), `{}`), `"osl":1,`, "cache_control")
}

// Outside of runs, calls have nothing to do with those before them.
func TestWithoutRun(t *testing.T) {
	var log strings.Builder
	w := new(wire)
	tr := NewTransport(w, WithLogger(textLogger(&log)), WithLookup(predicts(3, 2, 100, 1000)))
	for range 50 {
		contains(t, post(t, tr, w, t.Context(), `{}`), `"total_requests":3,"iat":1000},"cache_control":{"type":"ephemeral","ttl":"3s"}`)
	}
	if n := tr.Stats().WithoutRun; n != 50 || strings.Count(log.String(), "outside of any run") != 1 {
		t.Errorf("%d counted; log:\n%s", n, log.String())
	}
	ctx := WithRun(t.Context(), "r")
	post(t, tr, w, ctx, `{}`)
	contains(t, post(t, tr, w, ctx, `{}`), `"total_requests":4,"iat":1000},"cache_control":{"type":"ephemeral","ttl":"3s"}`)
}

func TestConcurrentCallsAreAllCounted(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	base := roundTripper(func(req *http.Request) (*http.Response, error) {
		b, _ := io.ReadAll(req.Body)
		mu.Lock()
		seen[string(b)]++
		mu.Unlock()
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	})
	tr := NewTransport(base, quiet, WithLookup(numbered{}), WithCacheControl(Ephemeral, FirstOnly))
	const callers, calls = 32, 25
	var wg sync.WaitGroup
	for i := range callers {
		ctx := WithRun(t.Context(), fmt.Sprint("r", i%4))
		wg.Go(func() {
			for range calls {
				req, _ := http.NewRequestWithContext(ctx, http.MethodPost, chatURL, strings.NewReader(`{}`))
				if _, err := tr.RoundTrip(req); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	pinned := 0
	for body, n := range seen {
		if n != 1 {
			t.Errorf("sent %d times: %s", n, body)
		}
		if strings.Contains(body, "cache_control") {
			pinned++
		}
	}
	if len(seen) != callers*calls || pinned != 4 {
		t.Errorf("%d different calls, %d with cache_control", len(seen), pinned)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// request returns one whose body can be read once.
func request(method, url, contentType string, body io.Reader, length int64) *http.Request {
	req := httptest.NewRequest(method, url, body)
	req.ContentLength = length
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	return req
}

func TestUntouched(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.WriteString(z, `{"model":"m"}`)
	z.Close()
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	m.WriteField("model", "m")
	m.Close()
	text := func(s string) io.Reader { return strings.NewReader(s) }
	for _, c := range []struct {
		name   string
		req    *http.Request
		body   string
		reason string
		opts   []Option
	}{
		{"GET", request("GET", chatURL, "", http.NoBody, 0), "", "unmatched", nil},
		{"PUT", request("PUT", chatURL, "", text(`{}`), 2), "{}", "unmatched", nil},
		{"embeddings", request("POST", "http://e/v1/embeddings", "application/json", text(`{}`), 2), "{}", "unmatched", nil},
		{"tokens of messages", request("POST", "http://e/v1/messages/count_tokens", "", text(`{}`), 2), "{}", "unmatched", nil},
		{"thread", request("POST", "http://e/v1/threads/t1/messages", "", text(`{}`), 2), "{}", "unmatched", nil},
		{"multipart", request("POST", chatURL, m.FormDataContentType(), &form, int64(form.Len())), form.String(), "unmatched", nil},
		{"multipart, all match", request("POST", chatURL, m.FormDataContentType(), bytes.NewReader(form.Bytes()), int64(form.Len())), form.String(), "not_json", []Option{WithMatch(MatchAll)}},
		{"no body", request("POST", chatURL, "", http.NoBody, 0), "", "empty", nil},
		{"gzip", withHeader(request("POST", chatURL, "application/json", bytes.NewReader(zipped.Bytes()), int64(zipped.Len())), "Content-Encoding", "gzip"), zipped.String(), "sealed", nil},
		{"gzip unsaid", request("POST", chatURL, "", bytes.NewReader(zipped.Bytes()), int64(zipped.Len())), zipped.String(), "not_json", nil},
		{"digest", withHeader(request("POST", chatURL, "", text(`{}`), 2), "Content-Digest", "sha-256=:x:"), "{}", "sealed", nil},
		{"signed", withHeader(request("POST", chatURL, "", text(`{}`), 2), "Authorization", "AWS4-HMAC-SHA256 Credential=x"), "{}", "sealed", nil},
		{"streamed", request("POST", chatURL, "application/json", text(`{}`), -1), "{}", "streamed", nil},
		{"large", request("POST", chatURL, "", text(`{"a":1}`), 7), `{"a":1}`, "large", []Option{WithMaxBody(6)}},
		{"large, length unknown", request("POST", chatURL, "", text(`{"a":1}`), -1), `{"a":1}`, "large", []Option{WithMaxBody(6), WithBuffering()}},
		{"shorter than said", request("POST", chatURL, "", text(`{}`), 3), `{}`, "unreadable", nil},
		{"longer than said", request("POST", chatURL, "", text(`{} and more`), 2), `{} and more`, "unreadable", nil},
		{"empty, length unknown", request("POST", chatURL, "", text(``), -1), ``, "empty", []Option{WithBuffering()}},
		{"array", request("POST", chatURL, "", text(`[{}]`), 4), `[{}]`, "not_json", nil},
		{"invalid", request("POST", chatURL, "", text(`{"a":}`), 6), `{"a":}`, "not_json", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := new(wire)
			tr := NewTransport(w, append(c.opts, quiet)...)
			resp, err := tr.RoundTrip(c.req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if w.bodies[0] != c.body {
				t.Errorf("sent %q, want %q", w.bodies[0], c.body)
			}
			if s := tr.Stats(); s.Untouched[c.reason] != 1 || s.Hinted != 0 || s.Prefixes != 0 {
				t.Errorf("%+v, want it %s", s, c.reason)
			}
		})
	}
}

func withHeader(r *http.Request, name, value string) *http.Request {
	r.Header.Set(name, value)
	return r
}

// What cannot carry hints takes no number: the first call that does is the first.
func TestAbsurdExtension(t *testing.T) {
	var ext strings.Builder
	ext.WriteString(`{"nvext":{"a0":0`)
	for i := range 5000 {
		fmt.Fprintf(&ext, `,"a%d":0`, i+1)
	}
	ext.WriteString(`}}`)
	w := new(wire)
	tr := NewTransport(w, quiet, WithCacheControl(Ephemeral, FirstOnly), WithLookup(numbered{}))
	ctx := WithRun(t.Context(), "r")
	if got := post(t, tr, w, ctx, ext.String()); got != ext.String() || tr.Stats().Untouched["large"] != 1 {
		t.Errorf("sent %.100s; %+v", got, tr.Stats())
	}
	contains(t, post(t, tr, w, ctx, `{}`), "cache_control", `"osl":1,`)
}

func TestTakes(t *testing.T) {
	tr := NewTransport(new(wire), quiet)
	for want, req := range map[bool]*http.Request{
		true:  request("POST", chatURL, "", strings.NewReader(`{}`), 2),
		false: withHeader(request("POST", chatURL, "", strings.NewReader(`{}`), 2), "Content-Encoding", "gzip"),
	} {
		if tr.Takes(req) != want {
			t.Errorf("takes %v: %v", req.Header, !want)
		}
	}
}

func TestMatched(t *testing.T) {
	for _, c := range []struct{ path, content string }{
		{"/v1/chat/completions", "application/json"}, {"/v1/completions", ""}, {"/openai/responses", "application/json; charset=utf-8"},
		{"/v1/messages", "application/vnd.api+json"}, {"/chat/completions", "Application/JSON"},
	} {
		if !MatchLLM(request("POST", "http://e"+c.path, c.content, http.NoBody, 0)) {
			t.Errorf("%s as %q does not match", c.path, c.content)
		}
	}
	if MatchLLM(request("POST", "http://e/v1/chat/completions", "text/plain", http.NoBody, 0)) {
		t.Error("text matches")
	}
}

var errBroken = errors.New("broken")

func TestBodyThatBreaks(t *testing.T) {
	w := new(wire)
	tr := NewTransport(w, quiet)
	body := &closeCounter{ReadCloser: io.NopCloser(io.MultiReader(strings.NewReader(`{"a"`), broken{}))}
	req := request("POST", chatURL, "", nil, 100)
	req.Body = body
	if _, err := tr.RoundTrip(req); !errors.Is(err, errBroken) {
		t.Errorf("error %v", err)
	}
	if len(w.bodies) != 0 || body.n != 1 {
		t.Errorf("%d sent, closed %d times", len(w.bodies), body.n)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errBroken }

func TestLeavingWhileTheBodyIsRead(t *testing.T) {
	w := new(wire)
	tr := NewTransport(w, quiet)
	r, pipe := io.Pipe()
	ctx, leave := context.WithCancel(t.Context())
	req := request("POST", chatURL, "", r, 100).WithContext(ctx)
	go func() {
		pipe.Write([]byte(`{"a"`)) // returns once it was read
		leave()
	}()
	if _, err := tr.RoundTrip(req); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if _, err := pipe.Write([]byte("x")); err == nil || len(w.bodies) != 0 {
		t.Errorf("the body was not closed: %v; %d sent", err, len(w.bodies))
	}
}

// A stated length is no reason to take memory for it.
func TestStatedLength(t *testing.T) {
	body := `{"a":"` + strings.Repeat("x", 3<<20) + `"}`
	got, err := readAll(iotest.HalfReader(strings.NewReader(body)), int64(len(body)), 1, 1<<20)
	if err != nil || string(got) != body {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	got, err = readAll(strings.NewReader(`{}`), 1<<40, 1<<40, maxTrusted)
	if !errors.Is(err, errLength) || cap(got) > 2*maxTrusted {
		t.Errorf("room for %d bytes, %v", cap(got), err)
	}
}

// What the caller passes in stays as it was: it may send it again.
func TestRequestIsNotChanged(t *testing.T) {
	w := new(wire)
	tr := NewTransport(w, quiet)
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, chatURL, strings.NewReader(`{"a":1}`))
	req.Header.Set("Content-Length", "7")
	body := &closeCounter{ReadCloser: req.Body}
	req.Body = body
	before := *req
	header := req.Header.Clone()
	if _, err := tr.RoundTrip(req); err != nil {
		t.Fatal(err)
	}
	if req.Body != before.Body || req.ContentLength != 7 || fmt.Sprint(req.Header) != fmt.Sprint(header) {
		t.Errorf("the request was changed: %+v", req)
	}
	if body.n != 1 {
		t.Errorf("the body was closed %d times", body.n)
	}
	if got := w.last.Header.Get("Content-Length"); got != fmt.Sprint(len(w.bodies[0])) {
		t.Errorf("sent with a Content-Length of %s for %d bytes", got, len(w.bodies[0]))
	}
	if w.last.Context() != req.Context() || w.last.URL != req.URL {
		t.Error("the copy is of another request")
	}
}

func TestOverTheNetwork(t *testing.T) {
	var got []string
	var mu sync.Mutex
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		got = append(got, fmt.Sprint(r.ContentLength, " ", r.TransferEncoding, " ", string(b)))
		mu.Unlock()
		if r.URL.Path == "/old/chat/completions" {
			http.Redirect(rw, r, "/v1/chat/completions", http.StatusTemporaryRedirect)
			return
		}
		io.WriteString(rw, "ok")
	}))
	defer srv.Close()
	client := &http.Client{Transport: NewTransport(srv.Client().Transport, quiet, WithLookup(numbered{}))}
	resp, err := client.Post(srv.URL+"/old/chat/completions", "application/json", strings.NewReader(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if len(got) != 2 || got[0] != got[1] || !strings.Contains(got[0], `{"a":1,"nvext":`) || strings.Contains(got[0], "chunked") {
		t.Errorf("the server got %q", got)
	}
	client.CloseIdleConnections()
}

func TestManyPrefixes(t *testing.T) {
	c := newCounter(100)
	for i := range 100_000 {
		if n, _ := c.next(fmt.Sprint(i), false); n != 1 {
			t.Fatalf("prefix %d is at call %d", i, n)
		}
		c.next("kept", false)
	}
	if n, evicted := c.size(); n != 100 || evicted != 100_001-100 || len(c.entries) != 101 {
		t.Errorf("%d known, %d evicted, %d entries", n, evicted, len(c.entries))
	}
	if n, _ := c.next("kept", false); n != 100_001 {
		t.Errorf("the one in use is at %d", n)
	}
	if n, _ := c.next("99999", false); n != 2 {
		t.Errorf("the latest is at %d", n)
	}
	if n, _ := c.next("0", true); n != 1 {
		t.Errorf("a retry of a forgotten one is at %d", n)
	}
}
