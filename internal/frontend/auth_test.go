package frontend

import (
	"io"
	"net/http"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func TestKeys(t *testing.T) {
	var body, auth, salt string
	rg := newRig(t, rigConfig{
		front: Config{Keys: []Key{
			{Name: "plain", Hash: HashKey("plain-key")},
			{Name: "tenant", Hash: HashKey("tenant-key"), Tenant: "acme"},
			{Name: "trusted", Hash: HashKey("trusted-key"), Trusted: true},
			{Name: "admin", Hash: HashKey("admin-key"), Admin: true},
		}},
		fault: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			raw, _ := io.ReadAll(r.Body)
			body, auth = string(raw), r.Header.Get("Authorization")+r.Header.Get("X-Api-Key")
			salt = ""
			if _, rest, ok := strings.Cut(body, `"cache_salt":`); ok {
				salt = strings.Trim(rest, `"}`)
			}
			r.Body = io.NopCloser(strings.NewReader(body))
			next.ServeHTTP(w, r)
		},
	})
	pinned := strings.Replace(hello, `{`, `{"nvext":{"backend_instance_id":1},`, 1)
	override := strings.Replace(hello, `{`, `{"nvext":{"router_config_override":{}},`, 1)
	salted := strings.TrimSuffix(hello, "}") + `,"cache_salt":"evil"}`
	rows := []struct {
		name, key, body string
		header          []string
		want            int
		text, salt      string
	}{
		{name: "no key", body: hello, want: 401, text: "Authorization: Bearer"},
		{name: "wrong key", key: "nope", body: hello, want: 401, text: "not known"},
		{name: "right key", key: "plain-key", body: hello, want: 200},
		{name: "pin", key: "plain-key", body: pinned, want: 403, text: "nvext.backend_instance_id"},
		{name: "pin by header", key: "plain-key", body: hello, header: []string{"X-Worker-Instance-Id", "1"}, want: 403, text: "may not choose workers"},
		{name: "override", key: "plain-key", body: override, want: 403, text: "router_config_override"},
		{name: "trusted pin", key: "trusted-key", body: pinned, want: 200},
		{name: "salt of an untrusted key is dropped", key: "plain-key", body: salted, want: 200},
		{name: "salt of a trusted key stays", key: "trusted-key", body: salted, want: 200, salt: "evil"},
		{name: "the key's tenant wins", key: "tenant-key", body: salted, want: 200, salt: "acme"},
		{name: "the key's tenant is added", key: "tenant-key", body: hello, want: 200, salt: "acme"},
		{name: "the key's tenant beats the header", key: "tenant-key", body: hello, header: []string{"X-Tenant-Id", "evil"}, want: 200, salt: "acme"},
	}
	for _, row := range rows {
		body, auth, salt = "", "", ""
		header := row.header
		if row.key != "" {
			header = append(header, "Authorization", "Bearer "+row.key)
		}
		resp, got := rg.post(t, "/v1/chat/completions", row.body, header...)
		if resp.StatusCode != row.want || !strings.Contains(got, row.text) {
			t.Errorf("%s: %d %s", row.name, resp.StatusCode, got)
		}
		if salt != row.salt {
			t.Errorf("%s: the engine saw the salt %q, want %q", row.name, salt, row.salt)
		}
		if auth != "" {
			t.Errorf("%s: the engine saw the client's credentials %q", row.name, auth)
		}
		if strings.Contains(body, "nvext") {
			t.Errorf("%s: nvext reached the engine: %s", row.name, body)
		}
	}
	for path, want := range map[string]map[string]int{
		"/metrics":        {"": 401, "plain-key": 403, "trusted-key": 403, "admin-key": 200},
		"/busy_threshold": {"": 401, "plain-key": 403, "admin-key": 200},
		"/v1/models":      {"": 401, "plain-key": 200},
		"/health":         {"": 200},
		"/ready":          {"": 200},
		"/live":           {"": 200},
	} {
		for key, status := range want {
			var header []string
			if key != "" {
				header = []string{"X-Api-Key", key}
			}
			if resp, got := rg.get(t, path, header...); resp.StatusCode != status {
				t.Errorf("%s with key %q: %d, want %d (%.80s)", path, key, resp.StatusCode, status, got)
			}
		}
	}
}

// TestReservedMembers: who is not trusted neither goes first by the engine's own means nor
// gives requests their names.
func TestReservedMembers(t *testing.T) {
	const (
		rest = `"model":"stator-sim","messages":[{"role":"user","content":"hi"}],"n":2`
		own  = `{"priority":-9,"rid":["a","b"],"request_id":"c","pr\u0069ority":-10,` + rest + `}`
	)
	for _, keys := range []bool{true, false} {
		for _, ignore := range []bool{true, false} {
			front := Config{IgnoreNvExt: ignore}
			if keys {
				front.Keys = []Key{{Name: "plain", Hash: HashKey("plain")}, {Name: "trusted", Hash: HashKey("trusted"), Trusted: true}}
			}
			var got string
			rg := newRig(t, rigConfig{front: front, fault: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				raw, _ := io.ReadAll(r.Body)
				got = string(raw)
				w.Write([]byte("{}"))
			}})
			for _, key := range []string{"plain", "trusted"} {
				want := own
				if keys && key == "plain" {
					want = `{` + rest + `}`
				}
				for _, path := range []string{"/v1/chat/completions", "/v1/responses"} {
					got = ""
					rg.post(t, path, own, "Authorization", "Bearer "+key)
					if got != want {
						t.Errorf("keys %v, nvext ignored %v, %s, %s: the engine saw %s, want %s", keys, ignore, key, path, got, want)
					}
				}
			}
		}
	}
}

func TestWithoutKeysCredentialsPass(t *testing.T) {
	var auth string
	rg := newRig(t, rigConfig{fault: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		auth = r.Header.Get("Authorization")
		next.ServeHTTP(w, r)
	}})
	rg.post(t, "/v1/chat/completions", hello, "Authorization", "Bearer engine-key", "Cookie", "a=b", "X-Conversation-Id", "7")
	if auth != "Bearer engine-key" {
		t.Errorf("the engine saw %q", auth)
	}
}

func TestHeadersToTheEngineAreChosen(t *testing.T) {
	var got http.Header
	rg := newRig(t, rigConfig{fault: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		got = r.Header.Clone()
		next.ServeHTTP(w, r)
	}})
	const id = "11111111-1111-4111-8111-111111111111"
	const parent = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
	resp, _ := rg.post(t, "/v1/chat/completions", hello, "Request-Id", id, "X-Request-Id", "mine",
		"Traceparent", parent, "Tracestate", "a=b", "Cookie", "c=d", "X-Conversation-Id", "7", "X-Tenant-Id", "t",
		"X-Vllm-Priority", "-9", "X-Data-Parallel-Rank", "1", "X-Smg-Routing-Key", "k")
	for name, want := range map[string]string{
		"Request-Id": id, "X-Request-Id": id, "Traceparent": parent, "Tracestate": "a=b", "Accept-Encoding": "identity",
		"Cookie": "", "X-Conversation-Id": "", "X-Tenant-Id": "", "X-Idempotency-Key": "",
		"X-Vllm-Priority": "", "X-Data-Parallel-Rank": "", "X-Smg-Routing-Key": "",
	} {
		if got.Get(name) != want {
			t.Errorf("%s: the engine saw %q, want %q", name, got.Get(name), want)
		}
	}
	if resp.Header.Get("X-Request-Id") != "mine" || resp.Header.Get("Request-Id") != id {
		t.Errorf("answer: %v", resp.Header)
	}
	resp, _ = rg.post(t, "/v1/chat/completions", hello, "Request-Id", "not-a-uuid", "Traceparent", "garbage", "Tracestate", "a=b")
	if !isUUID(resp.Header.Get("Request-Id")) || got.Get("Request-Id") != resp.Header.Get("Request-Id") {
		t.Errorf("a made-up id: answer %v, engine %v", resp.Header, got)
	}
	if got.Get("Traceparent") != "" || got.Get("Tracestate") != "" {
		t.Errorf("malformed trace headers reached the engine: %v", got)
	}
}

func TestSpansContinueTheClientsTrace(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	var parent string
	rg := newRig(t, rigConfig{
		front: Config{Tracer: provider.Tracer("test")},
		fault: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			parent = r.Header.Get("Traceparent")
			next.ServeHTTP(w, r)
		},
	})
	const trace = "0123456789abcdef0123456789abcdef"
	rg.post(t, "/v1/chat/completions", helloStream, "Traceparent", "00-"+trace+"-0123456789abcdef-01")
	spans := recorder.Ended()
	if len(spans) != 1 {
		t.Fatalf("%d spans", len(spans))
	}
	sc := spans[0].SpanContext()
	if sc.TraceID().String() != trace || spans[0].Parent().SpanID().String() != "0123456789abcdef" {
		t.Errorf("span %v of parent %v", sc, spans[0].Parent())
	}
	if want := "00-" + trace + "-" + sc.SpanID().String() + "-01"; parent != want {
		t.Errorf("the engine saw %q, want %q", parent, want)
	}
}
