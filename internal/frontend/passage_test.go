package frontend

import (
	"bytes"
	"context"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/simserver"
)

// echo answers with the body that it gets.
func echo(w http.ResponseWriter, r *http.Request, _ http.Handler) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	w.Write(body)
}

func TestPasses(t *testing.T) {
	for path, want := range map[string]bool{
		"/v1/files":                     true,
		"/v1/files/7/content":           true,
		"/v1/chat/completions/render":   true,
		"/v1/":                          false,
		"/v1":                           false,
		"/v1/files/":                    false,
		"/v1//files":                    false,
		"/v1/./files":                   false,
		"/v1/../metrics":                false,
		"/v1/a/../../metrics":           false,
		`/v1/..\metrics`:                false,
		"/v1/load_lora_adapter":         false,
		"/v1/unload_lora_adapter":       false,
		"/v2/files":                     false,
		"/metrics":                      false,
		"/inference/v1/generate":        false,
		"/v1x":                          false,
		"/v1/responses/resp_1/cancel":   true,
		"/v1/messages/count_tokens":     true,
		"/v1/images/generations":        true,
		"/v1/load_lora_adapter/../chat": false,
	} {
		if got := passes(path); got != want {
			t.Errorf("passes(%q) = %v, want %v", path, got, want)
		}
	}
}

func TestPassageLabels(t *testing.T) {
	for path, want := range map[string]metrics.Endpoint{
		"/v1/embeddings":           metrics.EndpointEmbeddings,
		"/v1/audio/transcriptions": metrics.EndpointAudios,
		"/v1/audio/other":          metrics.EndpointAudios,
		"/v1/responses/resp_1":     metrics.EndpointResponses,
		"/v1/messages":             metrics.EndpointAnthropicMessages,
		"/v1/images/generations":   metrics.EndpointImages,
		"/v1/videos":               metrics.EndpointVideos,
		"/rerank":                  "other",
		"/v1/anything":             "other",
	} {
		if got := newPassage(path).label; got != want {
			t.Errorf("%s is counted as %q, want %q", path, got, want)
		}
	}
	rg := newRig(t, rigConfig{fault: echo})
	rg.post(t, "/v1/embeddings", `{"model":"stator-sim"}`)
	rg.post(t, "/v1/anything", `{"model":"stator-sim","stream":true}`)
	_, text := rg.get(t, "/metrics")
	for _, want := range []string{
		`dynamo_frontend_requests_total{endpoint="embeddings",error_type="",model="stator-sim",request_type="unary",status="success"} 1`,
		`dynamo_frontend_requests_total{endpoint="other",error_type="",model="stator-sim",request_type="stream",status="success"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

// modelForm returns a form with a file before the name of a model, and its type.
func modelForm(t *testing.T, model string) (body, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	file, err := w.CreateFormFile("file", "a.wav")
	if err != nil {
		t.Fatal(err)
	}
	file.Write([]byte("RIFF\x00\r\n--"))
	if err := w.WriteField("model", model); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteField("language", "de"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	return b.String(), w.FormDataContentType()
}

func TestPassageBodies(t *testing.T) {
	rg, _ := newToldRig(t, rigConfig{fault: echo})
	form, formType := modelForm(t, "stator-sim")
	adapter, adapterType := modelForm(t, "stator-sim:sql")
	const js = "application/json"
	for _, tc := range []struct {
		name, contentType, body string
		status                  int
		want                    string // the body that the engine gets, or part of the error
	}{
		{"JSON", js, ` {"a" : 1.50, "model":"stator-sim","b":[ ]}`, 200, ` {"a" : 1.50, "model":"stator-sim","b":[ ]}`},
		{"nvext", js, `{"nvext":{"greed_sampling":false},"model":"stator-sim"}`, 200, `{"model":"stator-sim"}`},
		{"no model where one is served", js, `{"input":"a"}`, 200, `{"input":"a"}`},
		{"an adapter", js, `{"model":"sql"}`, 200, `{"model":"sql"}`},
		{"an adapter by its long name", js, `{"model":"stator-sim:sql"}`, 200, `{"model":"sql"}`},
		{"a list", js, `[1, 2]`, 200, `[1, 2]`},
		{"a form", formType, form, 200, form},
		{"a form for an adapter", adapterType, adapter, 200, strings.Replace(adapter, "stator-sim:sql", "sql", 1)},
		{"bytes", "application/octet-stream", "\x00\xff", 200, "\x00\xff"},
		{"bad JSON", js, `{"model":`, 400, "malformed JSON"},
		{"a model that is no name", js, `{"model":1}`, 400, "model: expected a string, got a number"},
		{"an unknown model", js, `{"model":"other"}`, 404, "The model `other` does not exist"},
		{"nvext of the wrong type", js, `{"model":"stator-sim","nvext":{"dp_rank":"0"}}`, 400, "nvext.dp_rank"},
		{"a pin on nobody", js, `{"model":"stator-sim","nvext":{"backend_instance_id":9}}`, 400, "worker 9"},
	} {
		resp, body := rg.post(t, "/v1/embeddings", tc.body, "Content-Type", tc.contentType)
		if resp.StatusCode != tc.status || tc.status == 200 && body != tc.want || !strings.Contains(body, tc.want) {
			t.Errorf("%s: %d %q, want %d %q", tc.name, resp.StatusCode, body, tc.status, tc.want)
		}
		if tc.status == 200 && resp.Header.Get("Content-Type") != tc.contentType {
			t.Errorf("%s: the engine got %q", tc.name, resp.Header.Get("Content-Type"))
		}
	}
	if n := rg.booked(); n != 0 {
		t.Errorf("%d slots still booked", n)
	}
	if n := rg.body.Load(); n != 0 {
		t.Errorf("%d bytes still held", n)
	}
}

// twoModels is an engine that serves a second model.
type twoModels struct{ engine.Engine }

func (e twoModels) Identify(ctx context.Context) (*engine.Info, error) {
	info, err := e.Engine.Identify(ctx)
	if err == nil {
		second := info.Models[0]
		second.ID = "second"
		info.Models = append(info.Models, second)
	}
	return info, err
}

// TestPassageWithoutAModel: where there are two, the request has to say which; in the query
// if it has no body.
func TestPassageWithoutAModel(t *testing.T) {
	rg := newRig(t, rigConfig{
		fault: func(w http.ResponseWriter, r *http.Request, _ http.Handler) { answer(200, `{}`)(w, r) },
		wrap:  func(e engine.Engine) engine.Engine { return twoModels{e} },
	})
	for _, tc := range []struct {
		method, path string
		status       int
		want         string
	}{
		{"GET", "/v1/x/jobs", 400, "model: expected the name of a model, since 2 are served; name it in the URL with ?model="},
		{"GET", "/v1/x/jobs?model=second", 200, "{}"},
		{"DELETE", "/v1/x/jobs/1?model=second", 200, "{}"},
		{"HEAD", "/v1/x/jobs?model=second", 200, ""},
		{"GET", "/v1/x/jobs?model=third", 404, "third"},
	} {
		if status, body := rg.do(t, tc.method, tc.path); status != tc.status || !strings.Contains(body, tc.want) {
			t.Errorf("%s %s: %d %s, want %d", tc.method, tc.path, status, body, tc.status)
		}
	}
}

// TestPassageKeepsEscapes: a slash in a name does not become one between names.
func TestPassageKeepsEscapes(t *testing.T) {
	rg := newRig(t, rigConfig{fault: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		answer(200, r.RequestURI)(w, r)
	}})
	for path, want := range map[string]int{
		"/v1/echo/x%2Fy":               200,
		"/v1/echo/x%2Fy?z=%2F":         200,
		"/v1/echo/%252e%252e":          200,
		"/v1/echo/..%2F..%2Fmetrics":   404,
		"/v1/%2e%2e/metrics":           404,
		"/v1%2Funload_lora_adapter":    404,
		"/v1/x%5C..%5C..%5Cmetrics":    404,
		"/v1/%2Funload_lora_adapter":   404,
		"/v1/unload%5Flora%5Fadapter":  404,
		"/v1/unload_lora_adapter%2F..": 404,
	} {
		status, body := rg.do(t, "POST", path)
		if status != want || want == 200 && body != path {
			t.Errorf("%s: %d %s, want %d", path, status, body, want)
		}
	}
}

func TestPassageRetries(t *testing.T) {
	for _, tc := range []struct {
		failures int64
		status   int
		want     int
		tries    int64
	}{{2, 503, 200, 3}, {3, 502, 502, 3}, {1, 500, 500, 1}, {1, 400, 400, 1}} {
		fault, seen := failFirst(tc.failures, answer(tc.status, `{"error":{"message":"no","type":"x","param":null,"code":null}}`))
		rg := newRig(t, rigConfig{engines: 4, fault: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			fault(w, r, http.HandlerFunc(answer(200, `{}`)))
		}})
		resp, body := rg.post(t, "/v1/embeddings", `{"model":"stator-sim"}`)
		if resp.StatusCode != tc.want || seen.Load() != tc.tries {
			t.Errorf("%d times %d: %d after %d tries (%s), want %d after %d", tc.failures, tc.status, resp.StatusCode, seen.Load(), body, tc.want, tc.tries)
		}
	}
}

// TestPassageStreams: what an engine sends arrives before it sends more, and one that
// stops in the middle breaks the connection.
func TestPassageStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rg := newRig(t, rigConfig{fault: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "event: a\n\n")
			w.(http.Flusher).Flush()
			time.Sleep(time.Minute)
			io.WriteString(w, "event: b\n\n")
			if r.URL.Path == "/v1/messages" {
				panic(http.ErrAbortHandler)
			}
		}})
		for _, path := range []string{"/v1/responses", "/v1/messages"} {
			start := time.Now()
			resp, err := rg.client.Do(rg.request(t, path, `{"model":"stator-sim","stream":true}`))
			if err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 100)
			n, _ := resp.Body.Read(buf)
			if string(buf[:n]) != "event: a\n\n" || time.Since(start) > time.Second {
				t.Errorf("%q after %s", buf[:n], time.Since(start))
			}
			rest, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if broken := path == "/v1/messages"; (err != nil) != broken || !broken && string(rest) != "event: b\n\n" {
				t.Errorf("%s: %q, %v", path, rest, err)
			}
		}
		synctest.Wait()
		if n := rg.booked(); n != 0 {
			t.Errorf("%d slots still booked", n)
		}
		rg.stop()
	})
}

// TestPassageHeaders: the salt of a tenant goes along, its key does not.
func TestPassageHeaders(t *testing.T) {
	var got http.Header
	note := func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		got = r.Header
		echo(w, r, next)
	}
	keys := []Key{{Name: "k", Hash: HashKey("k"), Tenant: "acme"}}
	rg := newRig(t, rigConfig{fault: note, front: Config{Keys: keys}})
	resp, body := rg.post(t, "/v1/responses", `{"model":"stator-sim","cache_salt":"x"}`, "X-Api-Key", "k", "Cookie", "a=b", "Anthropic-Beta", "c")
	if resp.StatusCode != 200 || body != `{"model":"stator-sim","cache_salt":"acme"}` {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if got.Get("X-Api-Key") != "" || got.Get("Cookie") != "" || got.Get("Anthropic-Beta") != "c" {
		t.Errorf("the engine got %v", got)
	}
	if resp, body := rg.post(t, "/v1/responses", `{}`); resp.StatusCode != 401 {
		t.Errorf("without a key: %d %s", resp.StatusCode, body)
	}
	rg = newRig(t, rigConfig{fault: note})
	rg.post(t, "/v1/messages", `{"model":"stator-sim"}`, "X-Api-Key", "theirs")
	if got.Get("X-Api-Key") != "theirs" {
		t.Errorf("without keys of ours the engine got %v", got)
	}
}

// TestPassageLimits: bodies count, and a file does not make a prompt of its size.
func TestPassageLimits(t *testing.T) {
	rg, e := newToldRig(t, rigConfig{
		sim:   simserver.Config{ContextLength: 100},
		fault: echo,
		front: Config{Limits: Limits{Body: 1 << 20, Budget: 2 << 20}},
	})
	if resp, _ := rg.post(t, "/v1/audio/transcriptions", strings.Repeat("x", 1<<20+1), "Content-Type", "audio/wav"); resp.StatusCode != 413 {
		t.Errorf("a body above the limit: %d", resp.StatusCode)
	}
	if resp, body := rg.post(t, "/v1/audio/transcriptions", strings.Repeat("x", 1<<20), "Content-Type", "audio/wav"); resp.StatusCode != 200 || len(body) != 1<<20 {
		t.Errorf("%d, %d bytes", resp.StatusCode, len(body))
	}
	if resp, body := rg.post(t, "/v1/embeddings", `{}`, "Content-Encoding", "gzip"); resp.StatusCode != 415 {
		t.Errorf("a compressed body: %d %s", resp.StatusCode, body)
	}
	asked, _ := e.take()
	if len(asked) != 1 || asked[0].Raw == nil || asked[0].Body != nil || asked[0].Path != "/v1/audio/transcriptions" {
		t.Errorf("asked %d times", len(asked))
	}
	if n := rg.body.Load(); n != 0 {
		t.Errorf("%d bytes still held", n)
	}
}
